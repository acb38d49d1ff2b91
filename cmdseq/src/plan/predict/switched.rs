//! A step that the switches of the network compute: the LogGP model.

use super::clock::Clock;
use super::step::{Part, Step};
use super::times::Times;
use crate::Topology;
use crate::cost::{Bound, Moment};
use crate::switch::{Call, Parameters, times_and_first};

/// Returns the times of the network's parts, if its switches compute.
pub(super) fn parameters(clock: &Clock<'_>) -> Option<Parameters> {
    let units = clock.capabilities.switch?;
    Some(Parameters {
        cycle_ps: clock.cycle_ps(),
        router_ps: clock.cycles(units.router_cycles.into()),
        hop_ps: clock.model.timing.hop_ps.into(),
        entry_ps: units.entry_ps.into(),
        phit_ps: match units.phit_ps {
            0 => clock.cycle_ps() / 2,
            given => given.into(),
        },
        input_phits: units.input_phits.into(),
        control_cycles: units.control_cycles.into(),
        float_cycles: units.float_cycles.into(),
    })
}

impl Step<'_> {
    /// Os is dispatch and the read of memory, Or the way through the own switch to memory; L counts as latency, and k G as spent on
    /// the link.
    pub(super) fn switched(&self, parts: &[Part<'_>]) -> Vec<Times> {
        let clock = self.clock;
        let reads = clock.model.timing.memory_read_cycles;
        let starts: Vec<Moment> = parts.iter().map(|part| clock.dispatched(part.issue, reads)).collect();
        let call = parts.first().and_then(|part| Call::of(part.instruction));
        let membership = parts.first().and_then(|part| part.membership);
        let (Some(call), Some(membership), Some(parameters), Topology::Switched(shape)) =
            (call, membership, parameters(clock), clock.capabilities.topology)
        else {
            return starts.into_iter().map(Times::at_once).collect();
        };
        let nodes = membership.nodes();
        let own = |part: &Part<'_>| part.membership.map_or(0, |one| one.own as usize);
        let mut begins = vec![0; nodes.len()];
        for (part, start) in parts.iter().zip(&starts) {
            begins[own(part)] = start.ps;
        }
        let (whole, first_got_ps) = times_and_first((shape, parameters), &call, nodes, &begins);
        let all_there = starts.iter().copied().fold(Moment::default(), Moment::max);
        let of_part = |(part, start): (&Part<'_>, &Moment)| {
            let rank = own(part);
            let sent = start.after(Bound::Link, whole.sent_ps[rank].saturating_sub(start.ps));
            let got = whole.got_ps[rank];
            let arrival = (got > 0).then(|| {
                let from = if got >= all_there.ps { all_there } else { *start };
                let took = got.saturating_sub(from.ps);
                let gaps = got.saturating_sub(first_got_ps[rank]).min(took);
                from.later(took - gaps).after(Bound::Link, gaps).later(clock.switch_ps())
            });
            Times { t1: sent, t2: arrival.map_or(sent, |arrival| arrival.max(sent)), arrival }
        };
        parts.iter().zip(&starts).map(of_part).collect()
    }
}

//! What programs should take, from a cost model and nothing else.
//!
//! Instructions that run together are timed together: each is dispatched, reads memory, waits for its partners if it must,
//! puts its beats on the links, and ends when the signals of its partners are back; the next is issued after the hand-over.
//! What a step waits for is known before anything moves, so all streams of the step are known, and only what they share
//! (links, pseudo channels, reduction units) is worked out from change to change. Cards meet only in their steps:
//! what each carries to its next one is when it gets there. Steps in different lanes are timed as if each had the memory for
//! itself, so programs should give them different pseudo channels.

use super::alike::Alike;
use super::clock::{Clock, wire};
use super::flow::Flows;
use super::issues::Issues;
use super::outcome::Prediction;
use super::signals::Signals;
use super::times::Times;
use crate::cost::{Bound, CostModel, Moment};
use crate::matching::{Job, Matching, Members, Membership, is_rendezvous};
use crate::program::ProgramSet;
use crate::ranges::{Transfers, transfers};
use crate::refusal::Refusal;
use crate::table::Tables;
use crate::{AddressSpace, Capabilities, Context, Instruction, Operation, verify};

/// Verifies programs and predicts their times, if all cards begin at the same time, with the reported parameters.
///
/// # Errors
/// As [`verify::verify`].
pub fn predict(set: &ProgramSet, capabilities: &Capabilities) -> Result<Prediction, Refusal> {
    predict_with(set, capabilities, &CostModel::stated(capabilities))
}

/// As [`predict`], with the parameters of `model`.
///
/// # Errors
/// As [`verify::verify`].
pub fn predict_with(set: &ProgramSet, capabilities: &Capabilities, model: &CostModel) -> Result<Prediction, Refusal> {
    let members = verify::check(set, capabilities)?;
    predict_steps(Job { programs: &set.programs, members: &members, capabilities }, &set.nodes, model, false)
}

/// Verifies programs and predicts when each of them ends, in picoseconds, if all cards begin at the same time, with the reported
/// parameters.
///
/// # Errors
/// As [`verify::verify`].
pub fn predict_ends(set: &ProgramSet, capabilities: &Capabilities) -> Result<Vec<u64>, Refusal> {
    let members = verify::check(set, capabilities)?;
    let job = Job { programs: &set.programs, members: &members, capabilities };
    let mut ends = vec![0; set.programs.len()];
    each_step(job, &set.nodes, &CostModel::stated(capabilities), |rank, times| {
        ends[rank] = times.t2.ps.max(ends[rank]);
    })?;
    Ok(ends)
}

/// As [`predict_with`], for programs that were checked. `is_barrier`: nothing is moved for its own sake, so the arrival is when
/// the last card is through.
pub(super) fn predict_steps(
    job: Job<'_>,
    group: &[u32],
    model: &CostModel,
    is_barrier: bool,
) -> Result<Prediction, Refusal> {
    let [mut t1, mut t2, mut arrival] = [Moment::default(); 3];
    each_step(job, group, model, |_, times| {
        t1 = t1.max(times.t1);
        t2 = t2.max(times.t2);
        arrival = arrival.max(times.arrival.unwrap_or_default());
    })?;
    if is_barrier || arrival.ps == 0 {
        arrival = t2;
    }
    Ok(Prediction { t1_ps: t1.ps, t2_ps: t2.ps, arrival_ps: arrival.ps, terms: arrival.terms })
}

/// Times all instructions of programs that were checked, and tells the rank and the times of each.
fn each_step(
    job: Job<'_>,
    group: &[u32],
    model: &CostModel,
    mut timed: impl FnMut(usize, &Times),
) -> Result<(), Refusal> {
    let Job { programs, members, capabilities } = job;
    let clock = Clock { capabilities, model };
    let place = vec![None; programs.len()];
    let mut step = Step { clock: &clock, group, flows: Flows::default(), place, signals: Signals::default() };
    let mut issues = Issues::new(&clock, job);
    let mut alike = Alike::default();
    let mut matching = Matching::new(job);
    while let Some(together) = matching.step()? {
        let issued: Vec<Moment> = together.iter().map(|(rank, index)| issues.of(*rank, *index)).collect();
        let shape = Alike::shape(&together, &issued, programs, members, &clock);
        let times = shape.as_ref().and_then(|shape| alike.find(shape, &issued)).unwrap_or_else(|| {
            let part = |((rank, index), issue): (&(usize, usize), &Moment)| {
                let program = &programs[*rank];
                let instruction = &program.instructions[*index];
                Part::new(*rank, instruction, *issue, &program.tables, members, capabilities)
            };
            let parts: Vec<Part<'_>> = together.iter().zip(&issued).map(part).collect();
            let times = step.run(&parts);
            if let Some(shape) = shape {
                alike.add(shape, issued, times.clone());
            }
            times
        });
        for ((rank, index), times) in together.iter().zip(times) {
            timed(*rank, &times);
            issues.end(*rank, *index, times.t2);
        }
    }
    Ok(())
}

/// One rank's instruction among those that run together.
struct Part<'a> {
    rank: usize,
    instruction: &'a Instruction,
    issue: Moment,
    moved: Transfers,
    membership: Option<Membership<'a>>,
    is_rendezvous: bool,
}

impl<'a> Part<'a> {
    fn new(
        rank: usize,
        instruction: &'a Instruction,
        issue: Moment,
        tables: &Tables,
        members: &'a Members,
        capabilities: &Capabilities,
    ) -> Self {
        let membership = members.of(rank, instruction);
        let alone = Context { rank: 0, ranks: 1, stripe_bytes: capabilities.stripe_bytes(), tables };
        let context = membership.map_or(alone, |one| one.context(tables, capabilities));
        let moved = transfers(instruction, &context).unwrap_or_default();
        Part { rank, instruction, issue, moved, membership, is_rendezvous: is_rendezvous(instruction, capabilities) }
    }

    fn is_one_stream(&self) -> bool {
        self.moved.multicast && !self.moved.sends.is_empty()
    }

    fn contributions(&self) -> usize {
        self.moved.receives.len() + usize::from(self.moved.reduced.is_some_and(|reduced| reduced.own.is_some()))
    }

    /// Rank of the programs of rank `rank` of the communicator.
    fn partner(&self, rank: u32) -> Option<usize> {
        self.membership?.program_rank(rank)
    }
}

/// Works out steps, one after another.
struct Step<'a> {
    clock: &'a Clock<'a>,
    /// Nodes by rank of the programs.
    group: &'a [u32],
    flows: Flows,
    /// Place among the parts of the step by rank of the programs; `None` between steps.
    place: Vec<Option<usize>>,
    signals: Signals,
}

/// Where a card's streams pass.
struct Passes {
    /// Of pseudo channel 0; the others follow.
    channels: u32,
    /// The way through the card's own switch.
    local: u32,
    fold: u32,
}

/// Streams of one part, by their numbers.
#[derive(Default)]
struct Streams {
    /// By place in the sends; of one stream to all, the same number.
    sends: Vec<usize>,
    own: Option<usize>,
    /// By place in the receives; of a fold, one.
    drains: Vec<usize>,
}

impl Step<'_> {
    /// Times of instructions that run together, in the order of `parts`.
    fn run(&mut self, parts: &[Part<'_>]) -> Vec<Times> {
        let clock = self.clock;
        match parts {
            [first, ..] if first.instruction.operation == Operation::Barrier => self.barrier(parts),
            [alone] => match alone.instruction.operation {
                Operation::Copy | Operation::Fill => vec![self.local(alone)],
                Operation::Fold => vec![self.fold(alone)],
                Operation::RdmaRead | Operation::RdmaWrite | Operation::PutSignal => vec![self.one_sided(alone)],
                Operation::WaitSignal => vec![self.wait(alone)],
                Operation::Delay => {
                    vec![Times::at_once(alone.issue.later(clock.cycles(alone.instruction.extent)))]
                }
                _ if alone.membership.is_none() => vec![Times::at_once(clock.dispatched(alone.issue, 0))],
                _ => self.transfer(parts),
            },
            _ => self.transfer(parts),
        }
    }

    fn barrier(&self, parts: &[Part<'_>]) -> Vec<Times> {
        let out: Vec<Moment> = parts.iter().map(|part| self.clock.controls_out(part.issue)).collect();
        let came = |own: usize| {
            let others = out.iter().enumerate().filter(|(other, _)| *other != own).map(|(_, out)| *out);
            let last = others.reduce(Moment::max);
            last.map(|last| last.later(self.clock.model.timing.control_ps.into()))
        };
        let times = |(own, t1): (usize, &Moment)| {
            let arrival = came(own).map_or(*t1, |came| came.max(*t1));
            Times { t1: *t1, t2: arrival, arrival: Some(arrival) }
        };
        out.iter().enumerate().map(times).collect()
    }

    /// Copies and fills.
    fn local(&mut self, part: &Part<'_>) -> Times {
        let (clock, instruction) = (self.clock, part.instruction);
        let is_fill = instruction.operation == Operation::Fill;
        let on_card = |space| space == AddressSpace::Card;
        if !on_card(instruction.destination.space) || !(is_fill || on_card(instruction.source.space)) {
            let took = wire(instruction.bytes, clock.model.timing.host_mbps);
            return Times::at_once(clock.dispatched(part.issue, 0).after(Bound::Host, took));
        }
        self.flows.clear();
        let passes = self.card();
        let mut over = vec![passes.channels + clock.channel(instruction.destination.address) as u32];
        let mut start = clock.dispatched(part.issue, 0);
        if !is_fill {
            start = clock.dispatched(part.issue, clock.model.timing.memory_read_cycles);
            over.extend([passes.channels + clock.channel(instruction.source.address) as u32, passes.local]);
        }
        Times::at_once(self.alone(start, instruction.bytes, over))
    }

    /// A fold of two operands of the card, which both pass the loop-back of the lane.
    fn fold(&mut self, part: &Part<'_>) -> Times {
        let (clock, instruction) = (self.clock, part.instruction);
        self.flows.clear();
        let passes = self.card();
        let at = |address: u64| passes.channels + clock.channel(address) as u32;
        let addresses = [instruction.source.address, instruction.extent, instruction.destination.address];
        let over = addresses.map(at).into_iter().chain([passes.local, passes.local, passes.fold]);
        let start = clock.dispatched(part.issue, clock.model.timing.memory_read_cycles).later(clock.cycles(1));
        let counted = self.alone(start, instruction.bytes, over).later(clock.own_ps());
        Times::at_once(counted.after(Bound::Reduce, clock.fold_ps(2)))
    }

    /// A transfer to or from a card that runs nothing for it. What else moves there meanwhile is not regarded.
    fn one_sided(&mut self, part: &Part<'_>) -> Times {
        let (clock, instruction) = (self.clock, part.instruction);
        let timing = &clock.model.timing;
        let is_read = instruction.operation == Operation::RdmaRead;
        let signals = instruction.operation == Operation::PutSignal;
        let announced = clock.dispatched(part.issue, 2);
        if instruction.bytes == 0 && signals {
            let counted = announced.later(timing.control_ps.into());
            self.signal(part, counted);
            return Times { t1: announced, t2: counted.later(timing.acknowledge_ps.into()), arrival: None };
        }
        if instruction.bytes == 0 {
            return Times::at_once(announced);
        }
        let start = match is_read {
            true => {
                let requested = announced.later(timing.control_ps.into());
                requested.later(clock.cycles(u64::from(timing.memory_read_cycles) + 1))
            }
            false => clock.dispatched(part.issue, timing.memory_read_cycles + 2),
        };
        let peer = part.membership.and_then(|one| one.nodes().get(usize::from(instruction.peer)).copied());
        let own = self.group.get(part.rank).copied();
        let link = peer.zip(own).map_or(timing.link_mbps, |(peer, own)| match is_read {
            true => clock.model.link_mbps(peer, own),
            false => clock.model.link_mbps(own, peer),
        });
        self.flows.clear();
        let (here, there) = (self.card(), self.card());
        let (from, to) = if is_read { (there, here) } else { (here, there) };
        let over = [
            from.channels + clock.channel(instruction.source.address) as u32,
            to.channels + clock.channel(instruction.destination.address) as u32,
            self.flows.resource(link.into(), Bound::Link),
        ];
        let out = self.alone(start, instruction.bytes, over);
        let counted = out.later(timing.data_ps.into());
        if signals {
            self.signal(part, counted);
        }
        match is_read {
            true => Times { t1: announced, t2: counted, arrival: Some(counted) },
            false => Times { t1: out, t2: counted.later(timing.acknowledge_ps.into()), arrival: None },
        }
    }

    fn signal(&mut self, part: &Part<'_>, at: Moment) {
        let instruction = part.instruction;
        if let Some(rank) = part.partner(instruction.peer.into()) {
            self.signals.add(rank, instruction.signal_id, at, instruction.signal_value);
        }
    }

    fn wait(&mut self, part: &Part<'_>) -> Times {
        let instruction = part.instruction;
        let read = self.clock.dispatched(part.issue, 0);
        let came = read.max(self.signals.take(part.rank, instruction.signal_id, instruction.signal_value));
        Times { t1: read, t2: came, arrival: Some(came) }
    }

    /// The end of the only stream there is.
    fn alone(&mut self, start: Moment, bytes: u64, over: impl IntoIterator<Item = u32>) -> Moment {
        let stream = self.flows.stream(start, self.clock.whole_beats(bytes), over);
        self.flows.run();
        self.flows.end(stream)
    }

    /// What streams of one more card pass.
    fn card(&mut self) -> Passes {
        let timing = &self.clock.model.timing;
        let mut resource = |mbps, bound| self.flows.resource(mbps, bound);
        let local = resource(self.clock.loop_back_mbps(), Bound::Channel);
        let fold = resource(self.clock.reduce_mbps(), Bound::Reduce);
        let channels = resource(timing.channel_mbps.into(), Bound::Channel);
        for _ in 1..self.clock.channels() {
            resource(timing.channel_mbps.into(), Bound::Channel);
        }
        Passes { channels, local, fold }
    }

    fn transfer(&mut self, parts: &[Part<'_>]) -> Vec<Times> {
        for (place, part) in parts.iter().enumerate() {
            self.place[part.rank] = Some(place);
        }
        let headers: Vec<Moment> = parts.iter().map(|part| self.header_out(parts, part)).collect();
        self.flows.clear();
        let passes: Vec<Passes> = parts.iter().map(|_| self.card()).collect();
        let streams: Vec<Streams> =
            parts.iter().enumerate().map(|(own, _)| self.streams(parts, own, &headers, &passes)).collect();
        self.flows.run();
        let times = self.ends(parts, &streams);
        for part in parts {
            self.place[part.rank] = None;
        }
        times
    }

    /// Place of the part that `part` sends to or receives from as rank `other`.
    fn place_of(&self, part: &Part<'_>, other: u32) -> Option<usize> {
        self.place.get(part.partner(other)?).copied().flatten()
    }

    /// Part, and place among its receives, of what `part` sends to rank `other`.
    fn receive_of(&self, parts: &[Part<'_>], part: &Part<'_>, other: u32) -> Option<(usize, usize)> {
        let (place, own) = (self.place_of(part, other)?, part.membership?.own);
        let receives = &parts.get(place)?.moved.receives;
        // Most receive from all others, in the order of ranks.
        let likely = [own as usize, (own as usize).wrapping_sub(1)];
        let is_own = |at: &usize| receives.get(*at).is_some_and(|receive| receive.peer_rank == own);
        let at = likely.into_iter().find(is_own);
        Some((place, at.or_else(|| receives.iter().position(|receive| receive.peer_rank == own))?))
    }

    /// When `part` has announced its data, once it is read and all destinations are ready.
    fn header_out(&self, parts: &[Part<'_>], part: &Part<'_>) -> Moment {
        let timing = &self.clock.model.timing;
        let mut start = self.clock.dispatched(part.issue, timing.memory_read_cycles);
        if part.is_rendezvous && !part.moved.sends.is_empty() {
            start = start.max(self.clock.controls_out(part.issue));
            for send in &part.moved.sends {
                let Some(place) = self.place_of(part, send.peer_rank) else { continue };
                start = start.max(self.clock.controls_out(parts[place].issue).later(timing.control_ps.into()));
            }
        }
        start.later(self.clock.cycles(1))
    }

    /// Puts all that moves for part `own` into the flows.
    fn streams(&mut self, parts: &[Part<'_>], own: usize, headers: &[Moment], passes: &[Passes]) -> Streams {
        let clock = self.clock;
        let part = &parts[own];
        let header = headers[own];
        let at = |place: usize, address: u64| passes[place].channels + clock.channel(address) as u32;
        let mut streams = Streams::default();
        let mut together = Vec::new();
        for send in &part.moved.sends {
            let link = self.link(part, send.peer_rank);
            // No list: there are as many as pairs of ranks.
            let (mut written, mut folded) = (None, None);
            if part.is_rendezvous
                && let Some((place, receive)) = self.receive_of(parts, part, send.peer_rank)
            {
                let moved = &parts[place].moved;
                // The contributions to a fold pass together: one of them stands for the result of all, if it has one only.
                if moved.reduced.is_none() || receive == 0 || !moved.partials.is_empty() {
                    written = Some(at(place, moved.receives[receive].address));
                }
                if moved.reduced.is_some() && receive == 0 {
                    folded = Some(passes[place].fold);
                }
            }
            let over = [Some(link), written, folded].into_iter().flatten();
            if part.moved.multicast {
                together.extend(over);
            } else {
                let over = over.chain([at(own, send.address)]);
                streams.sends.push(self.flows.stream(header, clock.whole_beats(send.bytes), over));
            }
        }
        if part.is_one_stream()
            && let Some(first) = part.moved.sends.first()
        {
            together.push(at(own, first.address));
            together.extend(part.moved.own.map(|block| at(own, block.destination)));
            let stream = self.flows.stream(header, clock.whole_beats(first.bytes), together);
            streams.sends = vec![stream; part.moved.sends.len()];
            streams.own = Some(stream);
        } else if let Some(block) = part.moved.own {
            let over = [at(own, block.source), at(own, block.destination), passes[own].local];
            streams.own = Some(self.flows.stream(header, clock.whole_beats(block.bytes), over));
        } else if let Some((address, bytes)) = part.moved.contribution() {
            let result = part.moved.reduced.filter(|_| !part.moved.partials.is_empty() && part.is_rendezvous);
            let result = result.map(|reduced| at(own, reduced.destination));
            let over = [at(own, address), passes[own].local].into_iter().chain(result);
            streams.own = Some(self.flows.stream(header, clock.whole_beats(bytes), over));
        }
        if !part.is_rendezvous {
            self.drains(part, own, headers, passes, &mut streams);
        }
        streams
    }

    /// What goes from the receive buffers to memory: each block once it begins to be there, or the fold of all once all do.
    fn drains(&mut self, part: &Part<'_>, own: usize, headers: &[Moment], passes: &[Passes], streams: &mut Streams) {
        let clock = self.clock;
        let is_set = clock.dispatched(part.issue, 0);
        let head = |step: &Self, rank: u32| {
            let head = step.place_of(part, rank).map(|place| headers[place].later(clock.to_buffer_ps()));
            head.map_or(is_set, |head| is_set.max(head))
        };
        let at = |address: u64| passes[own].channels + clock.channel(address) as u32;
        if let Some(reduced) = part.moved.reduced {
            let heads = part.moved.receives.iter().map(|receive| head(self, receive.peer_rank));
            let start = heads.fold(is_set, Moment::max);
            let results =
                if part.moved.partials.is_empty() { &[reduced.destination][..] } else { &part.moved.partials };
            let over = results.iter().map(|address| at(*address)).chain([passes[own].fold]);
            streams.drains.push(self.flows.stream(start, clock.whole_beats(reduced.bytes), over));
            return;
        }
        for receive in &part.moved.receives {
            let start = head(self, receive.peer_rank);
            let stream = self.flows.stream(start, clock.whole_beats(receive.bytes), [at(receive.address)]);
            streams.drains.push(stream);
        }
    }

    /// The link of `part` to rank `other`.
    fn link(&mut self, part: &Part<'_>, other: u32) -> u32 {
        let model = self.clock.model;
        let nodes = part.membership.map(|one| (one.nodes()[one.own as usize], one.nodes()[other as usize]));
        let mbps = nodes.map_or(model.timing.link_mbps, |(from, to)| model.link_mbps(from, to));
        self.flows.resource(mbps.into(), Bound::Link)
    }

    /// What follows from the ends of the streams.
    fn ends(&self, parts: &[Part<'_>], streams: &[Streams]) -> Vec<Times> {
        let clock = self.clock;
        let timing = &clock.model.timing;
        let end = |stream: usize| self.flows.end(stream);
        let mut times: Vec<Times> = parts.iter().map(|part| Times::at_once(clock.controls_out(part.issue))).collect();
        // When the last beat of each block is counted out, by receiving part and place in its receives.
        let mut out: Vec<Vec<Option<Moment>>> =
            parts.iter().map(|part| vec![None; part.moved.receives.len()]).collect();
        for ((part, streams), times) in parts.iter().zip(streams).zip(&mut times) {
            for (send, stream) in part.moved.sends.iter().zip(&streams.sends) {
                times.t1 = times.t1.max(end(*stream));
                if let Some((place, receive)) = self.receive_of(parts, part, send.peer_rank) {
                    out[place][receive] = Some(end(*stream));
                }
            }
            if let Some(own) = streams.own {
                if part.moved.sends.is_empty() {
                    times.t1 = times.t1.max(end(own));
                }
                let counted = end(own).later(clock.own_ps());
                if part.moved.own.is_some() {
                    times.arrive(counted);
                } else if part.moved.reduced.is_some_and(|reduced| reduced.own.is_some()) {
                    times.t2 = times.t2.max(counted);
                }
            }
            times.t2 = times.t2.max(times.t1);
        }
        for (place, part) in parts.iter().enumerate() {
            let counted: Vec<Option<Moment>> = match part.moved.reduced {
                Some(reduced) => {
                    let folded = self.folded(part, &streams[place], &out[place], reduced.own.is_some());
                    vec![Some(folded); part.moved.receives.len()]
                }
                None => (out[place].iter().enumerate())
                    .map(|(receive, out)| Some(self.counted((*out)?, streams[place].drains.get(receive).copied())))
                    .collect(),
            };
            for (receive, counted) in part.moved.receives.iter().zip(counted) {
                let Some(counted) = counted else { continue };
                times[place].arrive(counted);
                if let Some(source) = self.place_of(part, receive.peer_rank) {
                    times[source].t2 = times[source].t2.max(counted.later(timing.acknowledge_ps.into()));
                }
            }
        }
        times
    }

    /// When a block is counted in of which the last beat is counted `out`, and that goes to memory by stream `drain` if it
    /// lies in the receive buffer meanwhile.
    fn counted(&self, out: Moment, drain: Option<usize>) -> Moment {
        match drain {
            None => out.later(self.clock.model.timing.data_ps.into()),
            Some(drain) => {
                let whole = out.later(self.clock.to_buffer_ps());
                whole.max(self.flows.end(drain)).later(self.clock.past_buffer_ps())
            }
        }
    }

    /// When the fold of a part is counted.
    fn folded(&self, part: &Part<'_>, streams: &Streams, out: &[Option<Moment>], has_own: bool) -> Moment {
        let drain = streams.drains.first().copied();
        let came = out.iter().flatten().map(|out| self.counted(*out, drain));
        let own = streams.own.filter(|_| has_own).map(|own| self.flows.end(own).later(self.clock.own_ps()));
        let last = came.chain(own).fold(Moment::default(), Moment::max);
        last.after(Bound::Reduce, self.clock.fold_ps(part.contributions()))
    }
}

#[cfg(test)]
mod tests;

//! Measures as in section 4.2 of the OPTWEB paper: two barriers, then the operation; T1 and T2 are those of a source; the
//! migration of signals is (T2 - T1) / 2 at 64 B.

use std::collections::{BTreeMap, HashMap};

use cmdseq::Capabilities;
use cmdseq::plan::{Algorithm, Collective, Plan, Request, plan};
use fpga_driver::{Execution, Report, Times};

use crate::cards::Cards;
use crate::exit::{Failure, Result};
use crate::interrupt::Interrupt;
use crate::units::gbps;

/// Size for start-up measurements, in bytes.
pub(super) const SMALL: u64 = 64;
/// Size for bandwidth measurements, in bytes.
pub(super) const LARGE: u64 = 128 << 20;
/// Number of cards of the paper's prototype.
pub(super) const CARDS: u32 = 4;
const US_PER_MS: u64 = 1_000;

/// An operation on a mock fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Case {
    pub(super) cards: u32,
    pub(super) collective: Collective,
    pub(super) bytes: u64,
    pub(super) algorithm: Algorithm,
    /// Uses rendezvous at any size.
    pub(super) is_rendezvous: bool,
}

impl Case {
    /// Returns a case on the prototype: one hop, eager up to the receive buffer.
    pub(super) fn new(collective: Collective, bytes: u64) -> Self {
        Case { cards: CARDS, collective, bytes, algorithm: Algorithm::Direct, is_rendezvous: false }
    }

    pub(super) fn with_cards(self, cards: u32) -> Self {
        Case { cards, ..self }
    }

    pub(super) fn rendezvous(self) -> Self {
        Case { is_rendezvous: true, ..self }
    }

    pub(super) fn multipath(self) -> Self {
        Case { algorithm: Algorithm::Multipath, ..self }
    }

    fn request(&self) -> Request {
        Request {
            algorithm: Some(self.algorithm),
            eager_limit: self.is_rendezvous.then_some(0),
            ..Request::new(self.collective, (0..self.cards).collect(), self.bytes)
        }
    }

    /// Whether a rank sends data over links.
    fn is_source(&self, rank: u32) -> bool {
        match self.collective {
            Collective::Send | Collective::Recv | Collective::Scatter | Collective::Broadcast => rank == 0,
            Collective::Scatterv => rank == 0,
            Collective::Gather | Collective::Gatherv | Collective::Reduce => rank != 0,
            Collective::Barrier | Collective::Sendrecv | Collective::Alltoall | Collective::Allgather => true,
            Collective::Allreduce | Collective::ReduceScatter => true,
            Collective::Allgatherv | Collective::Alltoallv => true,
            Collective::Scan | Collective::Exscan => rank + 1 != self.cards,
        }
    }
}

/// Times measured by the cards.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Measured {
    /// T1 of the slowest source.
    pub(super) t1_us: f64,
    /// T2 of the slowest source.
    pub(super) t2_us: f64,
    /// From the issue until the last byte arrived.
    pub(super) arrival_us: f64,
    /// Bytes sent and received by the busiest card.
    pub(super) bytes_at_a_card: u64,
}

impl Measured {
    /// (T2 - T1) / 2.
    pub(super) fn migration_us(&self) -> f64 {
        (self.t2_us - self.t1_us) / 2.0
    }

    /// T1 plus migration.
    pub(super) fn start_up_us(&self) -> f64 {
        self.t1_us + self.migration_us()
    }
}

/// Mock fabrics and their measurements. Opens a fabric of each size once, and runs each case once.
pub(super) struct Lab {
    fabrics: BTreeMap<u32, Cards>,
    measured: HashMap<Case, Measured>,
    interrupt: Interrupt,
}

impl Lab {
    pub(super) fn new(interrupt: Interrupt) -> Self {
        Lab { fabrics: BTreeMap::new(), measured: HashMap::new(), interrupt }
    }

    fn fabric(&mut self, cards: u32) -> Result<&mut Cards> {
        match self.fabrics.entry(cards) {
            std::collections::btree_map::Entry::Occupied(entry) => Ok(entry.into_mut()),
            std::collections::btree_map::Entry::Vacant(entry) => {
                Ok(entry.insert(Cards::open(&format!("mock:optweb:{cards}"))?))
            }
        }
    }

    pub(super) fn capabilities(&mut self, cards: u32) -> Result<&Capabilities> {
        Ok(self.fabric(cards)?.capabilities())
    }

    /// Returns the plan of a case.
    pub(super) fn plan(&mut self, case: Case) -> Result<Plan> {
        Ok(plan(&case.request(), self.fabric(case.cards)?.capabilities())?)
    }

    fn run(&mut self, plan: &Plan, cards: u32, execution: &Execution) -> Result<Report> {
        let interrupt = self.interrupt.clone();
        let cluster = &mut self.fabric(cards)?.cluster;
        interrupt.end_at_once_during(|| cluster.execute(&plan.set, execution))?.map_err(Failure::from)
    }

    pub(super) fn measure(&mut self, case: Case) -> Result<Measured> {
        if let Some(measured) = self.measured.get(&case) {
            return Ok(*measured);
        }
        let plan = self.plan(case)?;
        let report = self.run(&plan, case.cards, &Execution { timeout: TIMEOUT, ..Execution::default() })?;
        let measured = summary(&case, &report);
        self.measured.insert(case, measured);
        Ok(measured)
    }

    /// Measures the skew after each of several barriers, in microseconds. The third and fourth card enter the first
    /// barrier 1 and 2 ms late.
    pub(super) fn skew(&mut self) -> Result<Vec<f64>> {
        let case = Case::new(Collective::Barrier, 0);
        let plan = self.plan(case)?;
        let cycles_per_us = u64::from(self.capabilities(case.cards)?.clock_khz) / 1_000;
        let start_delay_cycles = [0, 0, US_PER_MS, 2 * US_PER_MS].map(|us| us * cycles_per_us).to_vec();
        let execution = Execution { start_delay_cycles, repeat: 4, timeout: TIMEOUT, ..Execution::default() };
        let report = self.run(&plan, case.cards, &execution)?;
        Ok(report.skew_cycles.iter().map(|cycles| report.microseconds(*cycles)).collect())
    }

    /// Returns the reception time by the paper's rule: T2 minus the migration at 64 B.
    pub(super) fn reception_us(&mut self, case: Case) -> Result<f64> {
        let small = self.measure(Case { bytes: SMALL, ..case })?;
        Ok(self.measure(case)?.t2_us - small.migration_us())
    }

    /// Returns the bandwidth of one link in Gb/s, by the reception time.
    pub(super) fn received_gbps(&mut self, case: Case) -> Result<f64> {
        Ok(gbps(case.bytes, self.reception_us(case)?))
    }

    /// Returns the reception time minus size / rate, with the operation's rate at 128 MiB.
    pub(super) fn start_up_us(&mut self, case: Case) -> Result<f64> {
        let large_us = self.reception_us(Case { bytes: LARGE, ..case })?;
        Ok(self.reception_us(case)? - large_us * case.bytes as f64 / LARGE as f64)
    }
}

/// Time limit of a measurement, in host time.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(300);

fn summary(case: &Case, report: &Report) -> Measured {
    let last = |rank: &fpga_driver::RankReport| rank.repetitions.last().cloned().unwrap_or_default();
    let sources = report.ranks.iter().filter(|rank| case.is_source(rank.rank)).map(|rank| Times::of(&last(rank)));
    let (t1, t2) = sources.fold((0, 0), |(t1, t2), one| (one.t1_cycles.max(t1), one.t2_cycles.max(t2)));
    let bytes = |rank| last(rank).iter().map(|completion| completion.bytes).sum();
    Measured {
        t1_us: report.microseconds(t1),
        t2_us: report.microseconds(t2),
        arrival_us: report.microseconds(report.arrival_cycles),
        bytes_at_a_card: report.ranks.iter().map(bytes).max().unwrap_or(0),
    }
}

/// Returns the powers of two up to `most`.
pub(super) fn powers_of_two(most: u64) -> impl Iterator<Item = u64> {
    (0..64).map(|shift| 1 << shift).take_while(move |bytes| *bytes <= most)
}

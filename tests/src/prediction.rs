//! Compares the planner's predictions with the counts of mock cards, for every collective, algorithm, number of ranks and size.

use cmdseq::plan::{Algorithm, Collective, Plan, Request, plan};
use cmdseq::{Capabilities, Combine, Element, Reduction, Refusal};
use fpga_driver::{Cluster, Execution, Report};

/// Sizes from 8 B to 64 MiB, each four times the last, and those next to the limits where cards switch protocols.
pub const SIZES: [u64; 17] = [
    8,
    32,
    128,
    512,
    2 << 10,
    8 << 10,
    16 << 10,
    (16 << 10) + 8,
    32 << 10,
    100_000,
    512 << 10,
    1 << 20,
    2 << 20,
    8 << 20,
    30_000_000,
    32 << 20,
    64 << 20,
];

/// One algorithm of one collective, planned and run.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// The collective.
    pub collective: Collective,
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Ranks.
    pub ranks: u32,
    /// Bytes as the command line counts them.
    pub bytes: u64,
    /// Whether all transfers used rendezvous.
    pub is_rendezvous: bool,
    /// Predicted arrival, picoseconds.
    pub predicted_ps: u64,
    /// Counted arrival, picoseconds.
    pub simulated_ps: u64,
}

impl Case {
    /// Returns the relative error of the prediction; positive if the cards were faster.
    pub fn difference_percent(&self) -> f64 {
        100.0 * (self.predicted_ps as f64 / self.simulated_ps as f64 - 1.0)
    }
}

/// What is asked of all cards of a fabric, from rank 0, to the last if it is point to point; reductions are sums of f64, or
/// of bytes if there are no whole elements.
pub fn request(nodes: u32, collective: Collective, bytes: u64, is_rendezvous: bool) -> Request {
    request_of(nodes, collective, bytes, is_rendezvous, Lengths::Mixed)
}

/// Distribution of the block lengths of a vector form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lengths {
    /// All lengths up to the longest, in seven steps; one in seven is empty.
    Mixed,
    /// All lengths equal.
    Equal,
    /// One in five is 1000 times as long as the others.
    OneLong,
    /// Slightly shorter from rank to rank.
    Falling,
}

impl Lengths {
    /// All of them.
    pub const ALL: [Lengths; 4] = [Lengths::Mixed, Lengths::Equal, Lengths::OneLong, Lengths::Falling];

    fn of(self, block: u64, count: u64, longest: u64) -> u64 {
        match self {
            Lengths::Mixed => longest * (block * 3 % 7) / 6,
            Lengths::Equal => longest,
            Lengths::OneLong if block % 5 == 2 => longest,
            Lengths::OneLong => longest / 1000,
            Lengths::Falling => longest / count * (count - block),
        }
    }
}

/// As [`request`], with these block lengths for a vector form.
pub fn request_of(nodes: u32, collective: Collective, bytes: u64, is_rendezvous: bool, lengths: Lengths) -> Request {
    let element = if bytes.is_multiple_of(8) { Element::F64 } else { Element::U8 };
    let count = match collective {
        Collective::Alltoallv => u64::from(nodes) * u64::from(nodes),
        _ if collective.has_counts() => nodes.into(),
        _ => 0,
    };
    let counts = (0..count).map(|block| lengths.of(block, count, bytes)).collect();
    Request {
        counts,
        combine: collective.reduces().then_some(Combine::new(Reduction::Sum, element)),
        eager_limit: is_rendezvous.then_some(0),
        ..Request::new(collective, (0..nodes).collect(), if count == 0 { bytes } else { 0 })
    }
}

/// Returns the selected plan for `request`, and the plans of all algorithms that can be forced.
///
/// # Errors
/// The planner's refusal.
pub fn plans(request: &Request, capabilities: &Capabilities) -> Result<(Plan, Vec<Plan>), Refusal> {
    let chosen = plan(request, capabilities)?;
    let forced = Algorithm::ALL
        .iter()
        .filter_map(|algorithm| plan(&Request { algorithm: Some(*algorithm), ..request.clone() }, capabilities).ok());
    Ok((chosen, forced.collect()))
}

/// Returns when the last byte arrived, or the last card was released from a barrier: what a plan's predicted arrival is.
pub fn arrival_cycles(plan: &Plan, report: &Report) -> u64 {
    if plan.request.collective == Collective::Barrier { report.t2_cycles } else { report.arrival_cycles }
}

/// Runs a plan.
///
/// # Panics
/// If the plan fails.
pub fn run(cluster: &mut Cluster, plan: &Plan) -> Case {
    case(plan, &cluster.execute(&plan.set, &Execution::default()).expect("a run"))
}

/// Returns what was predicted for a plan, beside its run.
pub fn case(plan: &Plan, report: &Report) -> Case {
    let request = &plan.request;
    Case {
        collective: request.collective,
        algorithm: plan.algorithm,
        ranks: request.ranks(),
        bytes: request.bytes.max(request.counts.iter().copied().max().unwrap_or(0)),
        is_rendezvous: request.eager_limit == Some(0),
        predicted_ps: plan.predicted.arrival_ps,
        simulated_ps: arrival_cycles(plan, report) * 1_000_000_000 / u64::from(report.clock_khz),
    }
}

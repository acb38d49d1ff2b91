//! A persistent plan of eight collectives on recorded cards: the host's cost of a re-launch.

use std::sync::Arc;

use crate::run::domain;
use cmdseq::graph::{Buffer, Graph, Step};
use cmdseq::plan::{Algorithm, Collective, Request};
use cmdseq::{Capabilities, Combine, Element, Reduction};
use fpga_driver::{Cluster, Prepared};
use fpga_hal::in_process;
use fpga_mock::{Accesses, Fabric, Profile, Recorder};

/// Cards of the fabric.
pub const CARDS: u32 = 4;
/// Collectives of the plan.
pub const COLLECTIVES: usize = 8;

/// Cards whose accesses are recorded, with the plan stored on them.
pub struct Recorded {
    /// Keeps the cards alive.
    pub fabric: Fabric,
    /// By card.
    pub recorders: Vec<Arc<Recorder>>,
    /// The cards.
    pub cluster: Cluster,
    /// The plan.
    pub prepared: Prepared,
}

/// Eight collectives of all cards, each of the output of the one before.
fn graph(capabilities: &Capabilities) -> Graph {
    let group: Vec<u32> = (0..capabilities.nodes).collect();
    let (block, all) = (1024, 1024 * u64::from(capabilities.nodes));
    let mut graph = Graph::new(group.clone());
    for name in ["in", "one", "many", "turned", "sum", "part", "whole", "out"] {
        let buffer = Buffer::new(name, all);
        graph.buffer(if matches!(name, "in" | "out") { buffer.rebindable() } else { buffer });
    }
    for (collective, bytes, from, to) in [
        (Collective::Scatter, block, "in", "one"),
        (Collective::Allgather, block, "one", "many"),
        (Collective::Alltoall, block, "many", "turned"),
        (Collective::Allreduce, all, "turned", "sum"),
        (Collective::ReduceScatter, block, "sum", "part"),
        (Collective::Gather, block, "part", "whole"),
        (Collective::Broadcast, all, "whole", "out"),
    ] {
        let combine = collective.reduces().then_some(Combine::new(Reduction::Sum, Element::U32));
        let algorithm = Some(Algorithm::Direct);
        let request = Request { combine, algorithm, ..Request::new(collective, group.clone(), bytes) };
        graph.step(Step::new(request).input(from).output(to));
    }
    let last = graph.step(Step::new(Request::new(Collective::Barrier, group, 0)));
    assert_eq!(last + 1, COLLECTIVES);
    graph
}

impl Recorded {
    /// Opens the cards and prepares the plan.
    ///
    /// # Panics
    /// If opening the cards or preparing the plan fails.
    pub fn prepare() -> Self {
        let fabric = Fabric::new(Profile::optweb(CARDS)).expect("a fabric");
        let domain = domain();
        let recorders: Vec<_> = (0..CARDS).map(|node| Recorder::new(fabric.endpoint(node))).collect();
        let attach = |recorder: &Arc<Recorder>| in_process::attach(recorder.clone(), &domain, "recorded");
        let functions = recorders.iter().map(attach).collect::<Result<_, _>>().expect("cards that answer");
        let mut cluster = Cluster::open(functions).expect("cards that agree");
        let schedule = graph(cluster.capabilities()).schedule(cluster.capabilities()).expect("a schedule");
        assert_eq!(schedule.steps.len(), COLLECTIVES);
        let prepared = cluster.prepare(&schedule).expect("room on the cards");
        Recorded { fabric, recorders, cluster, prepared }
    }

    /// Counts accesses without passing them on.
    pub fn hold(&self) {
        self.recorders.iter().for_each(|recorder| recorder.hold());
    }

    /// Passes on the last doorbells held back.
    pub fn release(&self) {
        self.recorders.iter().for_each(|recorder| recorder.release());
    }

    /// Returns the counts since the last call, by card.
    pub fn take(&self) -> Vec<Accesses> {
        self.recorders.iter().map(|recorder| recorder.take()).collect()
    }
}

//! Runs one collective on a fabric with other components than the published ones.

use cmdseq::Refusal;
use cmdseq::plan::{Algorithm, Collective, Plan, Request, plan};
use fpga_driver::{Cluster, Execution, Report};
use fpga_hal::{Domain, in_process};
use fpga_mock::{Fabric, Profile};

/// A domain whose addresses begin with the last pages below 4 GiB: a card to which the host gives 32 bits of them finds nothing there.
pub fn domain() -> Domain {
    Domain::in_process_with(&[0xffff_c000..=(1 << 47) - 1], 65535)
}

/// Opens all cards of a fabric of `profile`.
///
/// # Panics
/// If the fabric cannot be built, or its cards cannot be opened.
pub fn open(profile: Profile) -> (Fabric, Cluster) {
    let fabric = Fabric::new(profile).expect("a fabric that can be");
    let domain = domain();
    let nodes = fabric.profile().nodes;
    let attach = |node| in_process::attach(fabric.endpoint(node), &domain, &format!("mock {node}"));
    let functions = (0..nodes).map(attach).collect::<Result<_, _>>().expect("cards that answer");
    (fabric, Cluster::open(functions).expect("cards that agree"))
}

/// Plans a collective of all cards from rank 0, to the last rank if it is point to point.
///
/// # Errors
/// The planner's refusal.
pub fn plan_all(
    cluster: &Cluster,
    operation: &str,
    bytes: u64,
    algorithm: Option<Algorithm>,
    eager_limit: Option<u64>,
) -> Result<Plan, Refusal> {
    let capabilities = cluster.capabilities();
    let collective: Collective = operation.parse().expect("an operation");
    let group: Vec<u32> = (0..capabilities.nodes).collect();
    plan(&Request { algorithm, eager_limit, ..Request::new(collective, group, bytes) }, capabilities)
}

/// Runs a collective of all cards on the current contents of their memory.
///
/// # Panics
/// If the collective is refused or fails.
pub fn run(
    cluster: &mut Cluster,
    operation: &str,
    bytes: u64,
    algorithm: Option<Algorithm>,
    eager_limit: Option<u64>,
) -> Report {
    let plan = plan_all(cluster, operation, bytes, algorithm, eager_limit).expect("a plan");
    cluster.execute(&plan.set, &Execution::default()).expect("a run")
}

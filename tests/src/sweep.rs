//! Runs many cases on the same cards: plan, write inputs, run, and compare every byte of the outputs.

use std::time::Duration;

use cmdseq::plan::{Plan, Request, plan};
use fpga_driver::{Choice, Cluster, Communicator, Error, Execution, Report};

/// Bytes compared at a time.
const CHUNK: usize = 4 << 20;
/// Time limit of one case.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Inputs and expected outputs of a case.
pub trait Data {
    /// Returns the size of the input of `rank`, in bytes.
    fn input_bytes(&self, rank: u32) -> u64;

    /// Returns the size of the output of `rank`, in bytes.
    fn output_bytes(&self, rank: u32) -> u64;

    /// Fills `data` with the input of `rank` from `offset` on.
    fn fill(&self, rank: u32, offset: u64, data: &mut [u8]);

    /// Offset of the first byte of `data`, the output of `rank` from `offset` on, that is not as it should be under `plan`.
    fn first_wrong(&self, plan: &Plan, rank: u32, offset: u64, data: &[u8]) -> Option<u64>;
}

/// Cards, and the number of cases run on them.
pub struct Sweep {
    /// The cards.
    pub cluster: Cluster,
    /// Cases so far.
    pub cases: usize,
    seed: u64,
}

impl Sweep {
    /// Opens the cards of `selector`.
    ///
    /// # Panics
    /// If opening fails.
    pub fn new(selector: &str) -> Self {
        let functions = fpga_select::select(selector).expect("cards").functions;
        Sweep { cluster: Cluster::open(functions).expect("cards that agree"), cases: 0, seed: 0 }
    }

    /// Plans `request`, and runs it on data of a new seed, so that data of an earlier case cannot pass for the result.
    ///
    /// # Panics
    /// If the request is refused or fails, or an output is wrong.
    pub fn check<D: Data>(&mut self, request: &Request, data: impl FnOnce(u64) -> D) -> Plan {
        let plan =
            plan(request, self.cluster.capabilities()).unwrap_or_else(|refusal| panic!("{request:?}: {refusal}"));
        self.check_plan(&plan, data);
        plan
    }

    /// As [`Sweep::check`], for a plan.
    ///
    /// # Panics
    /// If the plan fails, or an output is wrong.
    pub fn check_plan<D: Data>(&mut self, plan: &Plan, data: impl FnOnce(u64) -> D) {
        self.try_plan(plan, data).unwrap_or_else(|why| panic!("{why}"));
    }

    fn try_plan<D: Data>(&mut self, plan: &Plan, data: impl FnOnce(u64) -> D) -> Result<(), String> {
        self.seed += 1;
        self.cases += 1;
        let seed = self.seed;
        run(&mut self.cluster, plan, &data(seed), false)
            .map(drop)
            .map_err(|why| format!("{:?} {}, seed {seed}: {why}", plan.request, plan.algorithm))
    }

    /// As [`Sweep::check_plan`], where the plan's group is one of the two parts of a split of all cards.
    ///
    /// # Errors
    /// A split or plan that fails, or a wrong output.
    pub fn try_split<D: Data>(&mut self, plan: &Plan, data: impl FnOnce(u64) -> D) -> Result<(), String> {
        let group = &plan.request.group;
        let world = self.cluster.world();
        let choice = |node| match group.iter().position(|member| *member == node) {
            Some(key) => Some(Choice { colour: 0, key: key as i32 }),
            None => Some(Choice { colour: 1, key: 0 }),
        };
        let choices: Vec<_> = (0..world.size()).map(choice).collect();
        let mut parts = self.cluster.split(&world, &choices);
        if let Err(Error::IdsSpent { .. }) = parts {
            // After some thousand cases no id is left until then.
            for place in 0..self.cluster.cards().len() {
                self.cluster.card_mut(place).reset().map_err(|error| error.to_string())?;
            }
            parts = self.cluster.split(&world, &choices);
        }
        let parts = parts.map_err(|error| error.to_string())?;
        let rest = (0..world.size()).find(|node| !group.contains(node));
        let parts = [Some(group[0]), rest].into_iter().flatten().filter_map(|node| parts[node as usize].clone());
        let parts: Vec<Communicator> = parts.collect();
        let outcome = match parts[0].members() == group {
            true => self.try_plan(plan, data),
            false => Err(format!("{group:?} became {:?}", parts[0].members())),
        };
        for part in &parts {
            self.cluster.free(part).map_err(|error| error.to_string())?;
        }
        outcome
    }
}

/// Writes the inputs, runs, and compares outputs and inputs; `spoil` flips one bit of an output.
///
/// # Errors
/// A wrong size of an input or output, the failure, or the first wrong byte.
pub fn run(cluster: &mut Cluster, plan: &Plan, data: &impl Data, spoil: bool) -> Result<Report, String> {
    let request = &plan.request;
    let mut chunk = vec![0; CHUNK];
    let mut again = Vec::new();
    for rank in 0..request.ranks() {
        let requested = (request.input_bytes(rank), request.output_bytes(rank));
        let defined = (data.input_bytes(rank), data.output_bytes(rank));
        if requested != defined {
            return Err(format!("rank {rank}: bytes of input and output are {requested:?}, and must be {defined:?}"));
        }
    }
    for rank in 0..request.ranks() {
        for (offset, bytes) in chunks(request.input_bytes(rank)) {
            data.fill(rank, offset, &mut chunk[..bytes]);
            cluster.write_input(&plan.set, rank, offset, &chunk[..bytes]).map_err(|error| error.to_string())?;
        }
    }
    let execution = Execution { timeout: TIMEOUT, ..Execution::default() };
    let report = cluster.execute(&plan.set, &execution).map_err(|error| error.to_string())?;
    for rank in 0..request.ranks() {
        for (offset, bytes) in chunks(request.output_bytes(rank)) {
            let part = &mut chunk[..bytes];
            cluster.read_output(&plan.set, rank, offset, part).map_err(|error| error.to_string())?;
            if spoil && offset == 0 {
                part[bytes / 2] ^= 1;
            }
            if let Some(at) = data.first_wrong(plan, rank, offset, part) {
                return Err(format!("rank {rank}, byte {at} of the output is wrong"));
            }
        }
        let node = request.group[rank as usize];
        let card = cluster.cards().iter().position(|card| card.node() == node).map(|place| cluster.card_mut(place));
        let card = card.ok_or("no such card")?;
        let kept = if plan.replaces_input { &[][..] } else { &plan.set.programs[rank as usize].input };
        for piece in kept {
            for (offset, bytes) in chunks(piece.bytes) {
                again.resize(bytes, 0);
                card.read_memory(piece.address + offset, &mut again).map_err(|error| error.to_string())?;
                data.fill(rank, piece.offset + offset, &mut chunk[..bytes]);
                if again != chunk[..bytes] {
                    return Err(format!("the input of rank {rank} has changed"));
                }
            }
        }
    }
    Ok(report)
}

/// Splits `total` bytes into chunks: offset and length of each.
fn chunks(total: u64) -> impl Iterator<Item = (u64, usize)> {
    (0..total).step_by(CHUNK).map(move |offset| (offset, (total - offset).min(CHUNK as u64) as usize))
}

/// Returns whether the long forms run (`FPGA_TESTS_FULL=1`).
pub fn is_full() -> bool {
    std::env::var_os("FPGA_TESTS_FULL").is_some_and(|value| value != "0")
}

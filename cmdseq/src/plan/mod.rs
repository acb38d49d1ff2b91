//! What is made of a collective: algorithm, one program per rank, where data lies, and how long it should take.

mod collective;
mod direct;
mod multipath;
mod placement;
mod predict;
mod two_level;

use std::collections::HashMap;

use crate::instruction::WORLD;
use crate::matching::Members;
use crate::{Capabilities, Flags, Instruction, Topology, transfers, verify};

pub use collective::{Algorithm, Collective, UnknownAlgorithm, UnknownCollective};
pub use predict::predict;

/// What is asked of the planner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What to do.
    pub collective: Collective,
    /// Nodes that take part, by rank.
    pub group: Vec<u32>,
    /// Bytes as `--bytes` counts them: see [`Collective`].
    pub bytes: u64,
    /// Root, or sender; a rank of `group`.
    pub root: u32,
    /// Receiver of a send; a rank of `group`.
    pub peer: u32,
    /// A way that must be taken; `None` lets the planner choose.
    pub algorithm: Option<Algorithm>,
    /// Largest piece sent eagerly instead of the card's own limit; 0 forces rendezvous.
    pub eager_limit: Option<u64>,
}

/// A range of card memory that holds a range of a rank's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Where the range begins in the rank's data, bytes.
    pub offset: u64,
    /// Where it lies in card memory, bytes.
    pub address: u64,
    /// Its length.
    pub bytes: u64,
}

/// One card's part of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Program {
    /// What the card runs, in order.
    pub instructions: Vec<Instruction>,
    /// Where the rank's input must lie before; empty if it has none. In order of `offset`, without gaps.
    pub input: Vec<Piece>,
    /// Where the rank's output lies after; empty if it has none.
    pub output: Vec<Piece>,
}

/// A communicator that the programs name, to be defined on its members before.
///
/// It is defined on its members only, so several communicators of one plan may have one id if no card is a member of two
/// of them: the rows of a Dragonfly are one id, and its columns another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Communicator {
    /// Index in the card's table.
    pub id: u16,
    /// Nodes by rank.
    pub members: Vec<u32>,
}

/// What the planner expects, in picoseconds of the fabric's time from the issue of the first instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Prediction {
    /// All beats counted out.
    pub t1_ps: u64,
    /// Complete.
    pub t2_ps: u64,
    /// Last byte counted in at the last destination.
    pub arrival_ps: u64,
}

/// What the planner makes of a [`Request`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// What was asked.
    pub request: Request,
    /// The way chosen.
    pub algorithm: Algorithm,
    /// One program per rank of the request's group.
    pub programs: Vec<Program>,
    /// Communicators to define before; the same ids on all cards that are members. Without [`WORLD`], which always is.
    pub communicators: Vec<Communicator>,
    /// What it should take.
    pub predicted: Prediction,
    /// Bytes that cross the busiest link in one direction.
    pub busiest_link_bytes: u64,
    /// Bytes that a destination gets from other ranks, at the destination that gets most.
    pub bytes_per_destination: u64,
    /// What a user should know, such as that times are extrapolated.
    pub notes: Vec<String>,
}

/// Why nothing was planned or launched. Names rank and instruction where there are any.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{cause}", place(*rank, *instruction))]
pub struct Refusal {
    /// Rank it is about.
    pub rank: Option<u32>,
    /// Index of the instruction in that rank's program.
    pub instruction: Option<usize>,
    /// What is wrong, and what would be right.
    pub cause: String,
}

impl Refusal {
    /// Of the request or the fabric as a whole.
    pub(crate) fn general(cause: String) -> Self {
        Refusal { rank: None, instruction: None, cause }
    }

    /// Of one rank.
    pub(crate) fn of(rank: usize, cause: String) -> Self {
        Refusal { rank: Some(rank as u32), instruction: None, cause }
    }

    /// Of one instruction of one rank.
    pub(crate) fn at(rank: usize, instruction: usize, cause: String) -> Self {
        Refusal { rank: Some(rank as u32), instruction: Some(instruction), cause }
    }
}

fn place(rank: Option<u32>, instruction: Option<usize>) -> String {
    match (rank, instruction) {
        (Some(rank), Some(instruction)) => format!("rank {rank}, instruction {instruction}: "),
        (Some(rank), None) => format!("rank {rank}: "),
        _ => String::new(),
    }
}

/// Programs before they are checked and timed.
struct Draft {
    programs: Vec<Program>,
    communicators: Vec<Communicator>,
    /// The communicator of all ranks, if there is one.
    communicator: u16,
}

impl Draft {
    fn empty(request: &Request) -> Self {
        let programs = vec![Program::default(); request.group.len()];
        Draft { programs, communicators: Vec::new(), communicator: WORLD }
    }

    /// With a communicator of all ranks: the one that always exists if they are all nodes in order.
    fn on_one_communicator(request: &Request, capabilities: &Capabilities) -> Self {
        let mut draft = Draft::empty(request);
        if !request.group.iter().copied().eq(0..capabilities.nodes) {
            draft.communicator = WORLD + 1;
            draft.communicators.push(Communicator { id: draft.communicator, members: request.group.clone() });
        }
        draft
    }
}

/// Plans `request` for cards with `capabilities`. The result is verified.
///
/// Without an algorithm in the request, the one with the earliest predicted arrival is taken.
///
/// # Errors
/// A refusal that says what is wrong with the request, or that no way does it on this fabric.
pub fn plan(request: &Request, capabilities: &Capabilities) -> Result<Plan, Refusal> {
    check(request, capabilities)?;
    if let Some(algorithm) = request.algorithm {
        return build(algorithm, request, capabilities);
    }
    let mut best: Option<Plan> = None;
    let mut refusals: Vec<(Algorithm, Refusal)> = Vec::new();
    for algorithm in applicable(request, capabilities) {
        match build(algorithm, request, capabilities) {
            Ok(plan) => {
                let times = |plan: &Plan| (plan.predicted.arrival_ps, plan.predicted.t2_ps);
                if best.as_ref().is_none_or(|best| times(&plan) < times(best)) {
                    best = Some(plan);
                }
            }
            Err(refusal) => refusals.push((algorithm, refusal)),
        }
    }
    best.ok_or_else(|| match refusals.pop() {
        Some((_, refusal)) if refusals.is_empty() => refusal,
        last => {
            refusals.extend(last);
            let causes: Vec<String> = refusals.iter().map(|(way, refusal)| format!("{way}: {refusal}")).collect();
            Refusal::general(format!("no way does it. {}", causes.join("; ")))
        }
    })
}

/// Every algorithm with the plan it gives, or why it gives none. The algorithm in the request is not regarded.
pub fn candidates(request: &Request, capabilities: &Capabilities) -> Vec<(Algorithm, Result<Plan, Refusal>)> {
    let checked = check(request, capabilities);
    let one = |algorithm| match &checked {
        Ok(()) => build(algorithm, request, capabilities),
        Err(refusal) => Err(refusal.clone()),
    };
    Algorithm::ALL.iter().map(|algorithm| (*algorithm, one(*algorithm))).collect()
}

/// The ways worth trying, the simplest first.
fn applicable(request: &Request, capabilities: &Capabilities) -> Vec<Algorithm> {
    let mut ways = vec![Algorithm::Direct];
    if request.ranks() > 1 && (request.collective.has_peer() || request.collective == Collective::Broadcast) {
        ways.push(Algorithm::Multipath);
    }
    if matches!(capabilities.topology, Topology::Dragonfly { .. }) {
        ways.push(Algorithm::TwoLevel);
    }
    ways
}

/// What can be said of a request before there are programs.
fn check(request: &Request, capabilities: &Capabilities) -> Result<(), Refusal> {
    let refuse = |cause| Err(Refusal::general(cause));
    if request.group.is_empty() {
        return refuse("the group is empty; it needs at least one node".into());
    }
    if request.group.len() > usize::from(u16::MAX) {
        return refuse(format!("the group has {} ranks; an instruction names at most {}", request.ranks(), u16::MAX));
    }
    let mut rank_of = HashMap::new();
    for (rank, node) in request.group.iter().enumerate() {
        if *node >= capabilities.nodes {
            return Err(Refusal::of(
                rank,
                format!("there is no node {node}; the last is {}", capabilities.nodes.saturating_sub(1)),
            ));
        }
        if let Some(first) = rank_of.insert(*node, rank) {
            return Err(Refusal::of(rank, format!("node {node} is rank {first} already; each node takes part once")));
        }
    }
    let collective = request.collective;
    for (is_used, name, rank) in
        [(collective.has_root(), "root", request.root), (collective.has_peer(), "peer", request.peer)]
    {
        if is_used && rank >= request.ranks() {
            return refuse(format!("{name} {rank} is not a rank; the last is {}", request.ranks() - 1));
        }
    }
    if let Some(limit) = request.eager_limit.filter(|limit| *limit > capabilities.eager_bytes) {
        return refuse(format!(
            "an eager limit of {limit} B is more than the receive buffer of a link, {} B",
            capabilities.eager_bytes
        ));
    }
    Ok(())
}

/// Makes, checks and times a plan.
fn build(algorithm: Algorithm, request: &Request, capabilities: &Capabilities) -> Result<Plan, Refusal> {
    let mut draft = match algorithm {
        Algorithm::Direct => direct::build(request, capabilities),
        Algorithm::Multipath => multipath::build(request, capabilities),
        Algorithm::TwoLevel => two_level::build(request, capabilities),
    }?;
    if let Some(limit) = request.eager_limit {
        for instruction in draft.programs.iter_mut().flat_map(|program| &mut program.instructions) {
            if instruction.bytes > limit {
                instruction.flags |= Flags::RENDEZVOUS;
            } else if instruction.operation.fields().bytes && limit > capabilities.eager_limit {
                instruction.flags |= Flags::EAGER;
            }
        }
    }
    let Draft { programs, communicators, .. } = draft;
    let members = verify::check(&programs, &communicators, &request.group, capabilities)?;
    let predicted = predict::predict_steps(&programs, &members, capabilities)?;
    let (busiest_link_bytes, bytes_per_destination) =
        (busiest_link(&programs, &members, capabilities), from_others(request));
    let mut notes = Vec::new();
    if capabilities.extrapolated {
        notes.push("the fabric is larger than the published system was built: times are extrapolated".into());
    }
    if request.group.len() as u64 > u64::from(capabilities.memory_channels / 2) && algorithm != Algorithm::Multipath {
        notes.push(format!("{} ranks share {} memory I/Os", request.group.len(), capabilities.memory_channels / 2));
    }
    Ok(Plan {
        request: request.clone(),
        algorithm,
        programs,
        communicators,
        predicted,
        busiest_link_bytes,
        bytes_per_destination,
        notes,
    })
}

/// Bytes over the link, in one direction, that carries most.
fn busiest_link(programs: &[Program], members: &Members, capabilities: &Capabilities) -> u64 {
    let mut links: HashMap<(usize, u32), u64> = HashMap::new();
    for (rank, program) in programs.iter().enumerate() {
        for instruction in &program.instructions {
            let Some(membership) = members.of(rank, instruction) else { continue };
            let nodes = membership.nodes();
            let stripe = capabilities.stripe_half_bytes.saturating_mul(2);
            let Ok(moved) = transfers(instruction, membership.own, nodes.len() as u32, stripe) else { continue };
            for send in moved.sends {
                let link = links.entry((rank, nodes[send.peer_rank as usize])).or_default();
                *link = link.saturating_add(send.bytes);
            }
        }
    }
    links.into_values().max().unwrap_or(0)
}

/// Bytes from other ranks at the rank that gets most.
fn from_others(request: &Request) -> u64 {
    let others = u64::from(request.ranks()) - 1;
    match request.collective {
        Collective::Barrier => 0,
        Collective::Send | Collective::Recv if request.root == request.peer => 0,
        Collective::Gather | Collective::Alltoall | Collective::Allgather => request.bytes.saturating_mul(others),
        _ if others == 0 => 0,
        _ => request.bytes,
    }
}

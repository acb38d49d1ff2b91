//! The planner: chooses an algorithm for a [`Request`], and makes its programs, the placement of data, and a predicted time
//! (`docs/planning.md`).
//!
//! The planner uses requests, cost models, matching and the verifier, which checks every plan; none of these uses the planner.

mod binomial;
mod bound;
mod channels;
mod direct;
mod draft;
mod factorisation;
mod fold_order;
mod folding;
mod grid;
mod lanes;
mod links;
mod moves;
mod multipath;
mod order;
mod outcome;
mod phases;
mod placement;
mod predict;
mod relay;
mod renumbered;
mod ring;
mod rounds;
mod routing;
mod scan_blocks;
mod switched;
mod two_level;
mod vector;

use std::collections::HashMap;

use crate::cost::CostModel;
use crate::instruction::takes_tables;
use crate::matching::{Job, Members, takes_partners};
use crate::refusal::Refusal;
use crate::{Capabilities, Flags, Instruction, Topology, verify};

use draft::Draft;
use renumbered::on_grid;

pub use crate::program::{Communicator, Piece, Program, ProgramSet};
pub use crate::request::{
    Algorithm, Collective, Order, Placement, Request, UnknownAlgorithm, UnknownCollective, UnknownOrder,
};
pub use bound::LowerBound;
pub use fold_order::FoldOrder;
pub use folding::Folding;
pub use outcome::{Plan, Prediction, SharedLinks};
pub use predict::{predict, predict_ends, predict_with};

/// Plans `request` for cards with `capabilities`. The result is verified.
///
/// If the request names no algorithm, the one with the earliest predicted arrival is selected.
///
/// # Errors
/// If the request is invalid, or no algorithm can run it on these cards.
pub fn plan(request: &Request, capabilities: &Capabilities) -> Result<Plan, Refusal> {
    plan_with(request, capabilities, &CostModel::stated(capabilities))
}

/// As [`plan`], with the parameters of `model`.
///
/// # Errors
/// As [`plan`].
pub fn plan_with(request: &Request, capabilities: &Capabilities, model: &CostModel) -> Result<Plan, Refusal> {
    check(request, capabilities)?;
    let search = Search { request, capabilities, model };
    if let Some(algorithm) = request.algorithm {
        return search.only(algorithm);
    }
    let mut best: Option<Plan> = None;
    let mut refusals: Vec<(Algorithm, Refusal)> = Vec::new();
    for algorithm in applicable(request, capabilities) {
        match search.fastest(algorithm, best.as_ref().map(|best| best.predicted)) {
            Ok(better) => best = better.or(best),
            Err(refusal) => refusals.push((algorithm, refusal)),
        }
    }
    best.ok_or_else(|| match refusals.pop() {
        Some((_, refusal)) if refusals.is_empty() => refusal,
        last => {
            refusals.extend(last);
            let causes: Vec<String> = refusals.iter().map(|(way, refusal)| format!("{way}: {refusal}")).collect();
            Refusal::general(format!("no algorithm can run this request: {}", causes.join("; ")))
        }
    })
}

/// Returns the plan of every algorithm, or why it has none. The request's own algorithm is ignored.
pub fn candidates(request: &Request, capabilities: &Capabilities) -> Vec<(Algorithm, Result<Plan, Refusal>)> {
    candidates_with(request, capabilities, &CostModel::stated(capabilities))
}

/// As [`candidates`], with the parameters of `model`.
pub fn candidates_with(
    request: &Request,
    capabilities: &Capabilities,
    model: &CostModel,
) -> Vec<(Algorithm, Result<Plan, Refusal>)> {
    let checked = check(request, capabilities);
    let one = |algorithm| match &checked {
        Ok(()) => Search { request, capabilities, model }.only(algorithm),
        Err(refusal) => Err(refusal.clone()),
    };
    Algorithm::ALL.iter().map(|algorithm| (*algorithm, one(*algorithm))).collect()
}

/// The ways worth trying, the simplest first.
fn applicable(request: &Request, capabilities: &Capabilities) -> Vec<Algorithm> {
    use Algorithm::{Binomial, Direct, Lanes, Multipath, Relay, Ring, Switch, TwoLevel};
    let collective = request.collective;
    let is_grid = matches!(capabilities.topology, Topology::Dragonfly { .. });
    let has_trees = collective.has_peer() || matches!(collective, Collective::Broadcast | Collective::Reduce);
    let is_worth_it = |algorithm: &Algorithm| match algorithm {
        Direct => true,
        Switch => capabilities.switch.is_some() && switched::has(collective),
        TwoLevel => capabilities.topology != Topology::FullyConnected,
        _ if request.ranks() < 2 => false,
        Lanes => capabilities.lanes > 1 && (has_trees || is_grid),
        Relay => is_grid,
        Multipath | Binomial | Ring => true,
    };
    let all = [Switch, Direct, TwoLevel, Lanes, Multipath, Binomial, Ring, Relay].into_iter();
    all.filter(|one| one.does(collective) && is_worth_it(one)).collect()
}

/// What can be said of a request before there are programs.
fn check(request: &Request, capabilities: &Capabilities) -> Result<(), Refusal> {
    let refuse = |cause| Err(Refusal::general(cause));
    if request.group.is_empty() {
        return refuse("empty group: expected at least one node".into());
    }
    if request.group.len() > usize::from(u16::MAX) {
        return refuse(format!("group of {} ranks: at most {} are supported", request.ranks(), u16::MAX));
    }
    capabilities.topology.check(capabilities.nodes).or_else(|error| refuse(error.to_string()))?;
    let mut rank_of = HashMap::new();
    for (rank, node) in request.group.iter().enumerate() {
        if *node >= capabilities.nodes {
            return Err(Refusal::of(
                rank,
                format!("no node {node} (the last is {})", capabilities.nodes.saturating_sub(1)),
            ));
        }
        if let Some(first) = rank_of.insert(*node, rank) {
            return Err(Refusal::of(rank, format!("duplicate node {node}: it is also rank {first}")));
        }
    }
    if let Some(node) = request.relays.iter().flatten().find(|node| **node >= capabilities.nodes) {
        return refuse(format!("relay: no node {node} (the last is {})", capabilities.nodes.saturating_sub(1)));
    }
    let collective = request.collective;
    for (is_used, name, rank) in
        [(collective.has_root(), "root", request.root), (collective.has_peer(), "peer", request.peer)]
    {
        if is_used && rank >= request.ranks() {
            return refuse(format!("{name} {rank} is not a rank (the last is {})", request.ranks() - 1));
        }
    }
    let (given, needed) = (request.counts.len() as u64, request.counts_needed());
    if given != needed {
        return refuse(match needed {
            0 => format!("{collective} has no counts, but {given} were given: its blocks have one length"),
            _ => format!("{collective} of {} ranks needs {needed} counts, but {given} were given", request.ranks()),
        });
    }
    check_combine(request, capabilities)?;
    if let Some(placement) = &request.placement {
        placement.check(capabilities)?;
    }
    if let Some(limit) = request.eager_limit.filter(|limit| *limit > capabilities.eager_bytes) {
        return refuse(format!(
            "eager limit of {limit} B exceeds the receive buffer of a link, {} B",
            capabilities.eager_bytes
        ));
    }
    Ok(())
}

fn check_combine(request: &Request, capabilities: &Capabilities) -> Result<(), Refusal> {
    let refuse = |cause| Err(Refusal::general(cause));
    let collective = request.collective;
    match request.combine {
        None if collective.reduces() => refuse(format!("{collective} needs a reduction and an element type")),
        Some(combine) if !collective.reduces() => refuse(format!("{collective} does not reduce: remove {combine}")),
        Some(combine) => crate::verify::check_combine(combine, [request.bytes])
            .or_else(|fault| refuse(format!("{collective}: {}", fault.cause)))
            .and_then(|()| match capabilities.combines(combine) {
                true => Ok(()),
                false => refuse(format!("{collective}: the cards do not support {combine} elements")),
            }),
        None => Ok(()),
    }
}

/// What plans are made for.
#[derive(Clone, Copy)]
struct Search<'a> {
    request: &'a Request,
    capabilities: &'a Capabilities,
    model: &'a CostModel,
}

impl Search<'_> {
    /// The plan of one algorithm.
    fn only(self, algorithm: Algorithm) -> Result<Plan, Refusal> {
        // Without a best there is nothing to be slower than.
        self.fastest(algorithm, None)?.ok_or_else(|| Refusal::general(format!("{algorithm} has no plan")))
    }

    /// The plan of the algorithm's fastest draft; `None` if it is not faster than `best`.
    fn fastest(self, algorithm: Algorithm, best: Option<Prediction>) -> Result<Option<Plan>, Refusal> {
        let (mut fastest, mut refusal, mut is_possible): (Option<Plan>, _, _) = (None, None, false);
        for draft in self.drafts(algorithm)? {
            let so_far = fastest.as_ref().map(|plan| plan.predicted).or(best);
            let storable = match self.request.resident {
                true => verify::check_storable(&draft.programs, self.capabilities),
                false => Ok(()),
            };
            match storable.and_then(|()| self.finish(draft, algorithm, so_far)) {
                Ok(faster) => (fastest, is_possible) = (faster.or(fastest), true),
                Err(cause) => refusal = Some(cause),
            }
        }
        refusal.filter(|_| !is_possible).map_or(Ok(fastest), Err)
    }

    fn drafts(self, algorithm: Algorithm) -> Result<Vec<Draft>, Refusal> {
        let Search { request, capabilities, .. } = self;
        order::check(request, algorithm)?;
        if !algorithm.does(request.collective) {
            let (others, collective) = (applicable(request, capabilities), request.collective);
            let others = others.iter().map(|one| one.name()).collect::<Vec<_>>().join(", ");
            return Err(Refusal::general(format!("{algorithm} is not for {collective}: try {others}")));
        }
        let draft = match algorithm {
            Algorithm::Multipath => return on_grid(request, capabilities, multipath::build),
            Algorithm::TwoLevel => return on_grid(request, capabilities, two_level::build),
            Algorithm::Relay => return relay::build(request, capabilities),
            Algorithm::Switch => return switched::build(request, capabilities),
            Algorithm::Lanes => return on_grid(request, capabilities, lanes::build),
            Algorithm::Direct if request.collective.has_counts() => vector::build(request, capabilities),
            Algorithm::Direct => direct::build(request, capabilities),
            Algorithm::Binomial => binomial::build(request, capabilities),
            Algorithm::Ring => ring::build(request, capabilities),
        };
        Ok(vec![draft?.finish(request, capabilities)?])
    }

    /// Times and checks a draft; `None` if it is not faster than `best`.
    fn finish(self, mut draft: Draft, algorithm: Algorithm, best: Option<Prediction>) -> Result<Option<Plan>, Refusal> {
        let Search { request, capabilities, model } = self;
        if let Some(limit) = request.eager_limit {
            let instructions = draft.programs.iter_mut().flat_map(|program| &mut program.instructions);
            let is_sent = |one: &&mut Instruction| {
                takes_partners(one.operation) && !takes_tables(one.operation) && one.form().is_none()
            };
            for instruction in instructions.filter(is_sent) {
                if instruction.bytes > limit {
                    instruction.flags |= Flags::RENDEZVOUS;
                } else if instruction.operation.fields().bytes && limit > capabilities.eager_limit {
                    instruction.flags |= Flags::EAGER;
                }
            }
        }
        let Draft { programs, communicators, nodes, replaces_input, .. } = draft;
        let set = ProgramSet { nodes, programs, communicators };
        let is_barrier = request.collective == Collective::Barrier;
        let members = Members::new(&set, capabilities)?;
        let job = Job { programs: &set.programs, members: &members, capabilities };
        // What cannot win is neither timed nor checked.
        if best.is_some_and(|best| predict::at_least(job, model) > best.arrival_ps) {
            return Ok(None);
        }
        // What no link carries would take longest to time.
        let is_linked = job.members_are_linked();
        if !is_linked {
            verify::check_without_matching(job)?;
        }
        let predicted = predict::predict_steps(job, model, is_barrier)?;
        let times = |of: Prediction| (of.arrival_ps, of.t2_ps);
        if best.is_some_and(|best| times(predicted) >= times(best)) {
            return Ok(None);
        }
        if is_linked {
            verify::check_without_matching(job)?;
        }
        if let Some(placement) = &request.placement {
            placement.check_honoured(request, job)?;
        }
        let (busiest_link_bytes, shared_links) = links::used(job);
        let bytes_per_destination = (0..request.ranks()).map(|rank| request.arriving(rank)).max().unwrap_or(0);
        let mut notes = Vec::new();
        if capabilities.extrapolated {
            notes.push("the fabric is larger than the published system was built: times are extrapolated".into());
        }
        if request.collective.reduces() && capabilities.reductions_extend && algorithm != Algorithm::Switch {
            notes.push(
                "the published system does not reduce: its reduction units are an extension, and their times assumed"
                    .into(),
            );
        }
        let relays: Vec<String> = set.nodes[request.group.len()..].iter().map(u32::to_string).collect();
        if !relays.is_empty() {
            notes.push(match relays.as_slice() {
                [node] => format!("node {node} outside of the group relays"),
                _ => format!("nodes {} outside of the group relay", relays.join(", ")),
            });
        }
        // The others have one partner at a time.
        let is_at_once = matches!(algorithm, Algorithm::Direct | Algorithm::TwoLevel);
        if request.group.len() as u64 > u64::from(capabilities.memory_channels / 2) && is_at_once {
            let units = match capabilities.memory_channels / 2 {
                1 => "1 memory I/O".to_owned(),
                several => format!("{several} memory I/Os"),
            };
            notes.push(format!("{} ranks share {units}", request.group.len()));
        }
        if replaces_input {
            notes.push("the output replaces the input: a card has no room for both".into());
        }
        Ok(Some(Plan {
            request: request.clone(),
            algorithm,
            set,
            predicted,
            busiest_link_bytes,
            shared_links,
            bytes_per_destination,
            replaces_input,
            notes,
        }))
    }
}

//! The order in which each algorithm folds, as in `docs/isa.md`, for callers that compute the same bits.

use std::collections::BTreeMap;

use super::factorisation::Factorisation;
use super::folding::Folding;
use super::grid::Grid;
use super::lanes::{Halves, Trees, reduces_by_trees};
use super::outcome::Plan;
use super::renumbered::Renumbered;
use super::rounds::Blocks;
use crate::Capabilities;
use crate::Topology;
use crate::request::{Algorithm, Collective};
use crate::switch::{Call, Model, PAYLOAD_BYTES, Parameters, fold_order};

/// The order in which the plan of a reduction folds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoldOrder {
    algorithm: Algorithm,
    collective: Collective,
    ranks: u32,
    /// Ranks of a row of a Dragonfly, or all.
    row: u32,
    is_along_the_ranks: bool,
    /// Bytes of a chunk: each has its order.
    chunk: u64,
    lanes: Option<InLanes>,
    renumbered: Option<Renumbered>,
    /// In switches: by piece of a block, the fold of each rank and block.
    switched: Vec<BTreeMap<(u32, u32), Folding>>,
}

/// Returns the folds of a plan for switches, by piece of a block until they are the same again.
fn in_switches(plan: &Plan, capabilities: &Capabilities) -> Vec<BTreeMap<(u32, u32), Folding>> {
    let call = plan.set.programs.first().and_then(|program| Call::of(program.instructions.first()?));
    let (Some(call), Topology::Switched(shape)) = (call, capabilities.topology) else { return Vec::new() };
    let nodes = &plan.request.group;
    let chain = |mut inputs: Vec<Folding>| match inputs.len() {
        1 => inputs.swap_remove(0),
        _ => Folding::Left(inputs),
    };
    let unit = |mut inputs: Vec<Folding>| {
        let rest = inputs.split_off(fold_order(inputs.len()).0);
        chain([chain(inputs), chain(rest)].into())
    };
    // Only the order matters.
    let parameters = Parameters::default();
    let orders = |index: u32| {
        let model = Model::new((shape, parameters), &call, nodes, index as u16..index as u16 + 1, unit);
        model.run(&[], |rank, _| Folding::Rank(rank)).values
    };
    (0..call.period(plan.request.ranks())).map(orders).collect()
}

/// The parts of a plan for several lanes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum InLanes {
    Trees(Trees),
    Halves(Halves),
}

impl FoldOrder {
    /// Returns the order of `plan` for cards with `capabilities`; meaningless unless it reduces.
    pub fn new(plan: &Plan, capabilities: &Capabilities) -> Self {
        let (algorithm, original) = (plan.algorithm, &plan.request);
        let is_on_grid = matches!(algorithm, Algorithm::TwoLevel | Algorithm::Multipath | Algorithm::Lanes);
        let renumbered = Renumbered::of(original, capabilities).filter(|_| is_on_grid);
        let request = renumbered.as_ref().map_or(original, |renumbered| &renumbered.request);
        let (collective, ranks) = (request.collective, request.ranks());
        let is_along_the_ranks = request.needs_rank_order();
        let is_cut = algorithm == Algorithm::Ring && collective == Collective::Allreduce && !is_along_the_ranks;
        let chunk = match is_cut {
            true => Blocks::dividing(request, capabilities, ranks.into()).distance(),
            false => request.bytes,
        };
        // Cards of a torus all reach each other, and are rows and columns to the two-level algorithm all the same.
        let row = match algorithm {
            Algorithm::TwoLevel => Grid::of(request, capabilities).map(|grid| grid.size),
            _ => Factorisation::of(request, capabilities).ok().map(|factors| factors.dimensions[0].size),
        };
        let row = row.unwrap_or(ranks);
        let lanes = match collective {
            _ if algorithm != Algorithm::Lanes => None,
            Collective::Scan | Collective::Exscan => None,
            Collective::Reduce if reduces_by_trees(capabilities) => {
                Trees::new(request, capabilities).ok().map(InLanes::Trees)
            }
            _ => Halves::new(request, capabilities).ok().map(InLanes::Halves),
        };
        let chunk = match &lanes {
            Some(InLanes::Trees(trees)) => trees.chunk,
            Some(InLanes::Halves(halves)) => halves.first_bytes(),
            None => chunk,
        };
        let switched = if algorithm == Algorithm::Switch { in_switches(plan, capabilities) } else { Vec::new() };
        let chunk = if switched.len() > 1 { PAYLOAD_BYTES as u64 } else { chunk };
        let (row, chunk) = (row.max(1), chunk.max(1));
        FoldOrder { switched, algorithm, collective, ranks, row, is_along_the_ranks, chunk, lanes, renumbered }
    }

    /// Returns the fold at byte `offset` of rank `rank`'s output, and the first byte with another fold; `None` without a fold.
    pub fn at(&self, rank: u32, offset: u64) -> Option<(Folding, u64)> {
        match &self.renumbered {
            Some(renumbered) => {
                let (folding, end) = self.in_rows(renumbered.place(rank), offset)?;
                Some((folding.renumbered(&|place| renumbered.rank(place)), end))
            }
            None => self.in_rows(rank, offset),
        }
    }

    /// As [`at`](FoldOrder::at), with ranks numbered as the algorithm does.
    fn in_rows(&self, rank: u32, offset: u64) -> Option<(Folding, u64)> {
        let number = offset / self.chunk;
        let end = number.saturating_add(1).saturating_mul(self.chunk);
        match &self.lanes {
            Some(InLanes::Trees(trees)) => return Some((trees.folding(u32::try_from(number).ok()?)?, end)),
            Some(InLanes::Halves(halves)) => return Some((halves.folding(offset), end)),
            None => {}
        }
        if !self.switched.is_empty() {
            let orders = self.switched.get(number as usize % self.switched.len())?;
            let block = if self.collective == Collective::ReduceScatter { rank } else { 0 };
            return Some((orders.get(&(rank, block))?.clone(), end));
        }
        let block = match self.collective {
            Collective::ReduceScatter => rank,
            _ => u32::try_from(number).ok()?,
        };
        Some((self.of_block(rank, block)?, end))
    }

    fn of_block(&self, rank: u32, block: u32) -> Option<Folding> {
        let ranks = self.ranks;
        let prefix = match self.collective {
            Collective::Scan => rank + 1,
            Collective::Exscan => rank,
            _ => ranks,
        };
        if prefix == 0 || !self.collective.reduces() {
            return None;
        }
        if self.is_along_the_ranks {
            return Folding::chain(0..prefix);
        }
        let is_rotated = matches!(self.collective, Collective::Allreduce | Collective::ReduceScatter);
        match self.algorithm {
            Algorithm::Multipath if self.row < ranks => Some(self.two_level(rank, prefix)),
            Algorithm::Direct | Algorithm::Multipath => Some(Folding::left(0..prefix)),
            Algorithm::Binomial => Folding::pairwise((0..ranks).map(Folding::Rank).collect()),
            Algorithm::Ring if is_rotated => Folding::chain((0..ranks).map(|step| (block % ranks + 1 + step) % ranks)),
            Algorithm::Ring => Folding::chain(0..prefix),
            Algorithm::TwoLevel => Some(self.two_level(rank, prefix)),
            // Of others than scans, `at` knows.
            Algorithm::Lanes => {
                matches!(self.collective, Collective::Scan | Collective::Exscan).then(|| self.two_level(rank, prefix))
            }
            Algorithm::Relay | Algorithm::Switch => None,
        }
    }

    fn two_level(&self, rank: u32, prefix: u32) -> Folding {
        let size = self.row;
        let rows = self.ranks / size;
        match self.collective {
            Collective::Scan | Collective::Exscan => {
                let before = Folding::of_grid(rank / size, size, false);
                let here = rank / size * size..prefix;
                match (rank / size, here.is_empty()) {
                    (0, _) => Folding::left(here),
                    (_, true) => before,
                    (_, false) => Folding::two(before, Folding::left(here)),
                }
            }
            of => Folding::of_grid(rows, size, of == Collective::ReduceScatter),
        }
    }
}

//! Groups that are a grid only in another order, or only together with other cards.
//!
//! They are planned as if their ranks were numbered row by row. Programs then go to the cards for which they are, and only the names
//! of blocks change: what lies where for which rank. Cards that complete a grid have no rank in the group: they take part as if they
//! had, and what they have of their own is lost. So they are for what moves data, and not for reductions.

use std::collections::BTreeSet;

use super::draft::Draft;
use super::grid::Grid;
use crate::program::{Piece, Program};
use crate::refusal::Refusal;
use crate::request::{Collective, Request};
use crate::{Capabilities, Topology};

/// A request whose ranks are numbered row by row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Renumbered {
    pub(super) request: Request,
    /// By rank of the original, the rank in the new request.
    places: Vec<u32>,
    /// The ranks of the new request that are not in the original.
    outside: Vec<u32>,
}

impl Renumbered {
    /// Numbers the ranks of `request` by their nodes, with those that complete a grid; `None` if they are a grid already, or have to
    /// stay in their order, or if too many are missing.
    pub(super) fn of(request: &Request, capabilities: &Capabilities) -> Option<Self> {
        let is_linked = capabilities.topology.all_reach(&request.group, capabilities.nodes);
        if is_linked || Grid::of(request, capabilities).is_some() {
            return None;
        }
        let collective = request.collective;
        let is_ordered = matches!(collective, Collective::Sendrecv | Collective::Scan | Collective::Exscan);
        let has_blocks = collective.takes_blocks() || collective.gives_blocks();
        if is_ordered || request.needs_rank_order() || has_blocks && request.placement.is_some() {
            return None;
        }
        let missing = missing(request, capabilities)?;
        let ranks = request.group.iter().copied().zip((0..).map(Some));
        let mut cards: Vec<(u32, Option<u32>)> = ranks.chain(missing.into_iter().map(|node| (node, None))).collect();
        cards.sort_unstable();
        let (mut places, mut outside) = (vec![0; request.group.len()], Vec::new());
        for (place, (_, rank)) in (0..).zip(&cards) {
            match rank {
                Some(rank) => places[*rank as usize] = place,
                None => outside.push(place),
            }
        }
        let all = || cards.iter().map(|(_, rank)| *rank);
        let counts = match collective {
            Collective::Alltoallv => {
                let given = |from: Option<u32>, to| from.zip(to).map_or(0, |(from, to)| request.given(from, to));
                all().flat_map(|from| all().map(move |to| given(from, to))).collect()
            }
            one if one.has_counts() => all().map(|rank| rank.map_or(0, |rank| request.block(rank))).collect(),
            _ => Vec::new(),
        };
        let place = |rank: u32| places.get(rank as usize).copied().unwrap_or(rank);
        let request = Request {
            group: cards.iter().map(|(node, _)| *node).collect(),
            counts,
            root: place(request.root),
            peer: place(request.peer),
            ..request.clone()
        };
        Grid::of(&request, capabilities).map(|_| Renumbered { request, places, outside })
    }

    /// Returns a draft of the new request as one of `original`.
    pub(super) fn restore(&self, original: &Request, mut draft: Draft) -> Draft {
        draft.nodes.clone_from(&original.group);
        let mut programs: Vec<_> = std::mem::take(&mut draft.programs);
        let mut take = |place: &u32| programs.get_mut(*place as usize).map(std::mem::take).unwrap_or_default();
        for (rank, place) in (0..).zip(&self.places) {
            let mut program = take(place);
            if original.collective.takes_blocks() {
                program.input = self.reordered(&program.input, original, |to| original.block_between(rank, to));
            }
            if original.collective.gives_blocks() {
                program.output = self.reordered(&program.output, original, |from| original.block_between(from, rank));
            }
            draft.programs.push(program);
        }
        for place in &self.outside {
            draft.programs.push(Program { input: Vec::new(), output: Vec::new(), ..take(place) });
            draft.nodes.push(self.request.group[*place as usize]);
        }
        draft
    }

    /// The rank of the original that is `place` in the new request.
    pub(super) fn rank(&self, place: u32) -> u32 {
        let rank = self.places.iter().position(|one| *one == place);
        rank.map_or(place, |rank| rank as u32)
    }

    /// The rank in the new request of `rank` of the original.
    pub(super) fn place(&self, rank: u32) -> u32 {
        self.places.get(rank as usize).copied().unwrap_or(rank)
    }

    /// Pieces with a block for each rank of the new request, as pieces with a block for each rank of the original. `bytes` gives
    /// the lengths by rank of the original.
    fn reordered(&self, pieces: &[Piece], original: &Request, bytes: impl Fn(u32) -> u64) -> Vec<Piece> {
        let of_others = if original.collective.has_counts() { 0 } else { original.bytes };
        let mut begins = vec![of_others; self.request.group.len()];
        (0..).zip(&self.places).for_each(|(rank, place)| begins[*place as usize] = bytes(rank));
        let mut total = 0;
        for begin in &mut begins {
            total += std::mem::replace(begin, total);
        }
        let mut reordered = Vec::new();
        let mut offset = 0;
        for (rank, place) in (0..).zip(&self.places) {
            let (mut begin, end) = (begins[*place as usize], begins[*place as usize] + bytes(rank));
            let first = pieces.partition_point(|piece| piece.offset + piece.bytes <= begin);
            for piece in &pieces[first..] {
                let length = (piece.offset + piece.bytes).min(end).saturating_sub(begin);
                if length == 0 {
                    break;
                }
                reordered.push(Piece { offset, address: piece.address + (begin - piece.offset), bytes: length });
                (offset, begin) = (offset + length, begin + length);
            }
        }
        reordered
    }
}

/// The nodes that complete the group to a grid, which is none if it is one in some order; `None` if the request does not name them as
/// relays, or if they are more than the group.
pub(super) fn missing(request: &Request, capabilities: &Capabilities) -> Option<Vec<u32>> {
    let Topology::Dragonfly { groups } = capabilities.topology else { return None };
    let place = |node: &u32| capabilities.topology.place(*node, capabilities.nodes);
    let rows: BTreeSet<u32> = request.group.iter().filter_map(place).map(|(row, _)| row).collect();
    let columns: BTreeSet<u32> = request.group.iter().filter_map(place).map(|(_, column)| column).collect();
    // Bounds are asked of any request: a group that names a card twice may have more ranks than its grid has cards.
    let count = (rows.len() * columns.len()).checked_sub(request.group.len())?;
    let is_possible = !request.collective.reduces() && request.placement.is_none() && count <= request.group.len();
    if count == 0 || !is_possible {
        return (count == 0).then(Vec::new);
    }
    let of_row = |row: &u32| row * (capabilities.nodes / groups.max(1));
    let all = rows.iter().flat_map(|row| columns.iter().map(move |column| of_row(row) + column));
    let group: BTreeSet<u32> = request.group.iter().copied().collect();
    let missing: Vec<u32> = all.filter(|node| !group.contains(node)).collect();
    let named: BTreeSet<u32> = request.relays.iter().flatten().copied().collect();
    missing.iter().all(|node| named.contains(node)).then_some(missing)
}

/// Builds drafts of a request, or of what it is renumbered to.
pub(super) fn on_grid(
    request: &Request,
    capabilities: &Capabilities,
    build: impl Fn(&Request, &Capabilities) -> Result<Vec<Draft>, Refusal>,
) -> Result<Vec<Draft>, Refusal> {
    let Some(renumbered) = Renumbered::of(request, capabilities) else { return build(request, capabilities) };
    let drafts = build(&renumbered.request, capabilities)?;
    Ok(drafts.into_iter().map(|draft| renumbered.restore(request, draft)).collect())
}

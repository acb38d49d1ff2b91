//! Grids whose ranks are in another order than their rows.
//!
//! They are planned as if their ranks were numbered row by row. Programs then go to the cards for which they are, and only the names
//! of blocks change: what lies where for which rank.

use super::draft::Draft;
use super::grid::Grid;
use crate::Capabilities;
use crate::program::Piece;
use crate::refusal::Refusal;
use crate::request::{Collective, Request};

/// A request whose ranks are numbered row by row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Renumbered {
    pub(super) request: Request,
    /// By rank of the original, the rank in the new request.
    places: Vec<u32>,
}

impl Renumbered {
    /// Numbers the ranks of `request` by their nodes; `None` if they are no grid then, are one already, or have to stay in their
    /// order.
    pub(super) fn of(request: &Request, capabilities: &Capabilities) -> Option<Self> {
        let is_linked = capabilities.topology.all_linked(&request.group, capabilities.nodes);
        if is_linked || Grid::of(request, capabilities).is_ok() {
            return None;
        }
        let collective = request.collective;
        let is_ordered = matches!(collective, Collective::Sendrecv | Collective::Scan | Collective::Exscan);
        let has_blocks = collective.takes_blocks() || collective.gives_blocks();
        if is_ordered || request.needs_rank_order() || has_blocks && request.placement.is_some() {
            return None;
        }
        let mut ranks: Vec<u32> = (0..request.ranks()).collect();
        ranks.sort_unstable_by_key(|rank| request.group[*rank as usize]);
        let mut places = vec![0; ranks.len()];
        (0..).zip(&ranks).for_each(|(place, rank)| places[*rank as usize] = place);
        let all = || ranks.iter().map(|rank| *rank as usize);
        let counts = match collective {
            Collective::Alltoallv => {
                let row = |from: usize| &request.counts[from * ranks.len()..][..ranks.len()];
                all().flat_map(|from| all().map(|to| row(from)[to]).collect::<Vec<u64>>()).collect()
            }
            one if one.has_counts() => all().map(|rank| request.counts[rank]).collect(),
            _ => Vec::new(),
        };
        let place = |rank: u32| places.get(rank as usize).copied().unwrap_or(rank);
        let request = Request {
            group: all().map(|rank| request.group[rank]).collect(),
            counts,
            root: place(request.root),
            peer: place(request.peer),
            ..request.clone()
        };
        Grid::of(&request, capabilities).ok().map(|_| Renumbered { request, places })
    }

    /// Returns a draft of the new request as one of `original`.
    pub(super) fn restore(&self, original: &Request, mut draft: Draft) -> Draft {
        draft.nodes.clone_from(&original.group);
        let mut programs: Vec<_> = std::mem::take(&mut draft.programs).into_iter().map(Some).collect();
        let bytes = |from, to| if original.collective.has_counts() { original.given(from, to) } else { original.bytes };
        for (rank, place) in (0..).zip(&self.places) {
            let Some(mut program) = programs.get_mut(*place as usize).and_then(Option::take) else { continue };
            if original.collective.takes_blocks() {
                program.input = self.reordered(&program.input, |to| bytes(rank, to));
            }
            if original.collective.gives_blocks() {
                program.output = self.reordered(&program.output, |from| bytes(from, rank));
            }
            draft.programs.push(program);
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
    fn reordered(&self, pieces: &[Piece], bytes: impl Fn(u32) -> u64) -> Vec<Piece> {
        let mut begins = vec![0; self.places.len()];
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

//! A binomial tree: half of the ranks that still take part hand on what they have, and are done.
//!
//! Ranks are cut into blocks of 1, 2, 4 and so on. One rank of each block has what the block has: the root if it is in it, else
//! the first. So the tree, and the order of a fold, do not depend on the root.

use std::ops::Range;

use super::draft::Draft;
use super::placement::{Packed, whole};
use super::rounds::{Move, TOKEN_BYTES, check_rounds};
use crate::Capabilities;
use crate::refusal::Refusal;
use crate::request::{Collective, Request};

/// The programs of `request`, with a round for each level of the tree.
pub(super) fn build(request: &Request, capabilities: &Capabilities) -> Result<Draft, Refusal> {
    let ranks = request.ranks();
    let root = if request.collective.has_root() { request.root } else { 0 };
    let tree = Tree { ranks, root };
    let mut draft = Draft::with_routes(request, capabilities)?;
    check_rounds(request, "binomial", draft.routed.is_some())?;
    match request.collective {
        Collective::Barrier => barrier(request, tree, &mut draft, capabilities)?,
        Collective::Broadcast => {
            // What the root has is where it was.
            let [input, output] = draft.place(request, capabilities, [request.bytes; 2])?;
            let at = |rank| if rank == root { input } else { output };
            distribute(tree, &mut draft, at, request.bytes);
            draft.lies(request, |rank| (whole(input, request.input_bytes(rank)), whole(at(rank), request.bytes)));
        }
        Collective::Scatter | Collective::Gather | Collective::Scatterv | Collective::Gatherv => {
            blocks(request, tree, &mut draft, capabilities)?;
        }
        _ => {
            let bytes = request.bytes;
            let [input, result] = draft.place(request, capabilities, [bytes; 2])?;
            let mut is_folded = vec![false; ranks as usize];
            for size in tree.sizes() {
                let branches: Vec<Branch> = tree.branches(size).collect();
                let at = |rank: u32, is_folded: &[bool]| if is_folded[rank as usize] { result } else { input };
                let fold = |branch: &Branch| Move {
                    from: branch.child,
                    to: branch.parent,
                    source: at(branch.child, &is_folded),
                    destination: result,
                    bytes,
                    own: Some(at(branch.parent, &is_folded)),
                };
                draft.round(branches.iter().map(fold), request.combine);
                branches.iter().for_each(|branch| is_folded[branch.parent as usize] = true);
            }
            if request.collective == Collective::Allreduce {
                distribute(tree, &mut draft, |_| result, bytes);
            }
            draft.lies(request, |rank| (whole(input, bytes), whole(result, request.output_bytes(rank))));
        }
    }
    Ok(draft)
}

#[derive(Clone, Copy)]
struct Tree {
    ranks: u32,
    root: u32,
}

/// Two blocks that meet.
struct Branch {
    /// Who has what both blocks have.
    parent: u32,
    child: u32,
    /// Ranks of the child's block.
    ranks: Range<u32>,
}

impl Tree {
    /// Lengths of the blocks that meet at each level, from the leaves.
    fn sizes(self) -> impl DoubleEndedIterator<Item = u32> {
        (0..self.ranks.next_power_of_two().ilog2()).map(|level| 1 << level)
    }

    /// Who has what the block from `start` has.
    fn holder(self, start: u32, size: u32) -> u32 {
        if (start..start + size).contains(&self.root) { self.root } else { start }
    }

    /// Blocks of `size` that meet, if they are two.
    fn branches(self, size: u32) -> impl Iterator<Item = Branch> {
        (0..self.ranks).step_by(2 * size as usize).filter(move |start| start + size < self.ranks).map(move |start| {
            let middle = start + size;
            let (low, high) = (self.holder(start, size), self.holder(middle, size));
            match self.holder(start, 2 * size) {
                parent if parent == low => {
                    Branch { parent, child: high, ranks: middle..(middle + size).min(self.ranks) }
                }
                parent => Branch { parent, child: low, ranks: start..middle },
            }
        })
    }
}

/// The root's vector goes to all; at rank r it lies at `at(r)`.
fn distribute(tree: Tree, draft: &mut Draft, at: impl Fn(u32) -> u64, bytes: u64) {
    for size in tree.sizes().rev() {
        let down = |branch: Branch| Move {
            from: branch.parent,
            to: branch.child,
            source: at(branch.parent),
            destination: at(branch.child),
            bytes,
            own: None,
        };
        draft.round(tree.branches(size).map(down), None);
    }
}

/// Scatter and gather: a rank has the blocks of all ranks below it, where the root has them. These are ranks one after another
/// whatever the root, so their blocks are too.
fn blocks(request: &Request, tree: Tree, draft: &mut Draft, capabilities: &Capabilities) -> Result<(), Refusal> {
    let blocks = Packed::new((0..request.ranks()).map(|rank| request.block(rank)), capabilities);
    let [input, output] = draft.place(request, capabilities, [blocks.total(); 2])?;
    let is_scatter = request.collective.takes_blocks();
    // Where the root has them, and others in the same place.
    let data = if is_scatter { input } else { output };
    let at = |rank: u32| data + blocks.offset(rank);
    let between = |branch: Branch| {
        let (from, to) = if is_scatter { (branch.parent, branch.child) } else { (branch.child, branch.parent) };
        let place = at(branch.ranks.start);
        Move { from, to, source: place, destination: place, bytes: blocks.bytes(branch.ranks), own: None }
    };
    let mut sizes: Vec<u32> = tree.sizes().collect();
    if is_scatter {
        sizes.reverse();
    }
    for size in sizes {
        draft.round(tree.branches(size).map(between), None);
    }
    draft.lies(request, |rank| {
        let all = if rank == request.root { blocks.pieces(data) } else { Vec::new() };
        let own = whole(at(rank), blocks.length(rank));
        if is_scatter { (all, own) } else { (own, all) }
    });
    Ok(())
}

fn barrier(request: &Request, tree: Tree, draft: &mut Draft, capabilities: &Capabilities) -> Result<(), Refusal> {
    let [_, _, source, destination] = draft.place(request, capabilities, [0, 0, TOKEN_BYTES, TOKEN_BYTES])?;
    let token = |from, to| Move { from, to, source, destination, bytes: TOKEN_BYTES, own: None };
    for size in tree.sizes() {
        draft.round(tree.branches(size).map(|branch| token(branch.child, branch.parent)), None);
    }
    for size in tree.sizes().rev() {
        draft.round(tree.branches(size).map(|branch| token(branch.parent, branch.child)), None);
    }
    Ok(())
}

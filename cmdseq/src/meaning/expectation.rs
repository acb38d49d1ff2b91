//! The expected outputs of a collective.

use super::value::{Folds, Value};
use crate::Combine;
use crate::request::{Collective, Order, Request};

/// A request, by its expected outputs (see [`Collective`]).
#[derive(Debug, Clone, Copy)]
pub(super) struct Expectation<'a>(pub(super) &'a Request);

/// The expected value of bytes of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// A copy of an input.
    Input { rank: u32, offset: u64 },
    /// The fold of the inputs of the ranks up to before `end`, all from one offset on.
    Fold { end: u32, offset: u64 },
}

impl Expectation<'_> {
    /// Returns the expected value of the byte at `offset` of `rank`'s output, and for how many bytes it continues. `None` beyond
    /// the output.
    pub(super) fn wanted(&self, rank: u32, offset: u64) -> Option<(Wanted, u64)> {
        use Collective::{
            Allgather, Allgatherv, Allreduce, Alltoall, Alltoallv, Barrier, Broadcast, Exscan, Gather, Gatherv, Recv,
            Reduce, ReduceScatter, Scan, Scatter, Scatterv, Send, Sendrecv,
        };
        let &Request { collective, root, peer, .. } = self.0;
        if collective.has_counts() {
            return self.wanted_of_counts(rank, offset);
        }
        let ranks = self.0.ranks();
        let bytes = self.0.bytes;
        // Blocks of 0 bytes are no output.
        let (block, within) = (offset.checked_div(bytes)?, offset % bytes);
        let left = bytes - within;
        let own = u64::from(rank).saturating_mul(bytes);
        let is_one = block == 0;
        let copy = |rank, offset| Some((Wanted::Input { rank, offset }, left));
        let fold = |end, offset| match end {
            1 => Some((Wanted::Input { rank: 0, offset }, left)),
            _ => Some((Wanted::Fold { end, offset }, left)),
        };
        let from = u32::try_from(block).ok().filter(|block| *block < ranks);
        match collective {
            // No output.
            Barrier => None,
            Send | Recv => copy(root, offset).filter(|_| rank == peer && is_one),
            Sendrecv => copy((rank + ranks - 1) % ranks, offset).filter(|_| is_one),
            Scatter => copy(root, own.saturating_add(within)).filter(|_| is_one),
            Broadcast => copy(root, offset).filter(|_| is_one),
            Gather if rank != root => None,
            Gather | Allgather => copy(from?, within),
            Alltoall => copy(from?, own.saturating_add(within)),
            Reduce => fold(ranks, offset).filter(|_| rank == root && is_one),
            Allreduce => fold(ranks, offset).filter(|_| is_one),
            ReduceScatter => fold(ranks, own.saturating_add(within)).filter(|_| is_one),
            Scan => fold(rank + 1, offset).filter(|_| is_one),
            Exscan => fold(rank, offset).filter(|_| is_one && rank > 0),
            Scatterv | Gatherv | Allgatherv | Alltoallv => None,
        }
    }

    /// The same for a vector form, whose blocks are consecutive in inputs and outputs.
    fn wanted_of_counts(&self, rank: u32, offset: u64) -> Option<(Wanted, u64)> {
        let request = self.0;
        // An allgatherv sends one block to all.
        let is_same = request.collective == Collective::Allgatherv;
        let given = |from: u32, to: u32| request.given(from, if is_same { from } else { to });
        let mut before = 0_u64;
        for from in 0..request.ranks() {
            let bytes = given(from, rank);
            if offset < before.saturating_add(bytes) {
                let within = offset - before;
                let first =
                    if is_same { 0 } else { (0..rank).fold(0, |sum: u64, to| sum.saturating_add(given(from, to))) };
                return Some((Wanted::Input { rank: from, offset: first.saturating_add(within) }, bytes - within));
            }
            before = before.saturating_add(bytes);
        }
        None
    }

    /// Returns the cost of a comparison with `wanted`, in inputs.
    pub(super) fn inputs_of(&self, wanted: Wanted) -> u64 {
        match wanted {
            Wanted::Fold { end, .. } => end.into(),
            // Adding up lengths is far cheaper than searching an input in a fold.
            Wanted::Input { .. } if self.0.collective.has_counts() => u64::from(self.0.ranks()) / 16 + 1,
            Wanted::Input { .. } => 1,
        }
    }

    /// Whether rank order is required and visible in the bits.
    pub(super) fn in_rank_order(&self) -> bool {
        self.0.order == Order::Rank && self.0.combine.is_some_and(Combine::depends_on_order)
    }

    /// Whether the first byte of `wanted` lies inside of an element whose bits depend on the order of its fold. It must be of the
    /// same fold as the byte before it: each element is rounded as a whole.
    pub(super) fn is_inside_element(&self, wanted: Wanted) -> bool {
        let Wanted::Fold { offset, .. } = wanted else { return false };
        let combine = self.0.combine.filter(|combine| combine.depends_on_order());
        combine.is_some_and(|combine| !offset.is_multiple_of(combine.element.bytes()))
    }

    /// Whether `value` is the expected one, but for what [`is_inside_element`](Self::is_inside_element) requires.
    pub(super) fn is_met(&self, wanted: Wanted, value: Value, folds: &Folds) -> bool {
        match wanted {
            Wanted::Input { rank, offset } => value == Value::Input { rank, offset },
            Wanted::Fold { end, offset } => self.0.combine.is_some_and(|combine| {
                holds_each_once(value, combine, end, offset, folds)
                    && (!self.in_rank_order() || is_in_order(value, combine, end, folds))
            }),
        }
    }
}

/// Whether `value` is a fold of the inputs of ranks 0 to `end` - 1 from `offset` on, each once, by `combine` alone.
///
/// The elements of every fold must be aligned with those of the inputs, otherwise carries and roundings affect other bytes.
/// With this, one byte stands for all bytes of its element that are of the same fold: folds are split at elements, and an operand
/// whose element is of several values is undefined.
fn holds_each_once(value: Value, combine: Combine, end: u32, offset: u64, folds: &Folds) -> bool {
    let mut seen = vec![false; end as usize];
    let mut left = vec![value];
    while let Some(value) = left.pop() {
        match value {
            Value::Input { rank, offset: at } => match seen.get_mut(rank as usize) {
                Some(seen) if at == offset && !*seen => *seen = true,
                _ => return false,
            },
            Value::Fold { node, offset: at } => {
                let node = &folds.nodes[node];
                // With more inputs than ranks, one is duplicate. This also bounds the walk.
                let element = combine.element.bytes();
                if node.combine != combine || at % element != offset % element || node.inputs > u64::from(end) {
                    return false;
                }
                left.extend(node.operands.iter().map(|operand| operand.skip(at)));
            }
            Value::Undefined | Value::Fill { .. } => return false,
        }
    }
    seen.into_iter().all(|seen| seen)
}

/// Whether `value`, which has each rank once, folds them in rank order. A fold of two is commutative.
fn is_in_order(value: Value, combine: Combine, end: u32, folds: &Folds) -> bool {
    let mut ranks: Vec<u32> = Vec::new();
    let mut at = value;
    loop {
        match at {
            Value::Input { rank, .. } => {
                ranks.push(rank);
                break;
            }
            Value::Fold { node, .. } => {
                let node = &folds.nodes[node];
                let [one, two, rest @ ..] = node.operands.as_slice() else { return false };
                if node.call.is_some() && !rest.is_empty() {
                    return false;
                }
                let (deeper, leaf) = if matches!(two, Value::Fold { .. }) { (two, one) } else { (one, two) };
                // A fold of several f16 or bf16 is rounded once, not after each.
                if combine.element.is_narrow() && !rest.is_empty() {
                    return false;
                }
                for operand in rest.iter().rev().chain([leaf]) {
                    let Value::Input { rank, .. } = operand else { return false };
                    ranks.push(*rank);
                }
                at = *deeper;
            }
            Value::Undefined | Value::Fill { .. } => return false,
        }
    }
    ranks.reverse();
    if let [first, second, ..] = ranks.as_mut_slice()
        && first > second
    {
        std::mem::swap(first, second);
    }
    ranks.into_iter().eq(0..end)
}

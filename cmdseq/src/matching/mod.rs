//! Matching: which instructions of different cards run together, and in what order.
//!
//! A card runs one instruction at a time, and each waits for its partners. So programs run to their ends if repeatedly some
//! instructions at the heads of their programs have all their partners at heads too. The order in which such sets are removed
//! does not change the result.
//!
//! Matching uses instructions, ranges, programs and refusals; verifier, meaning and the planner's prediction use it.

mod kinds;
mod meeting;
mod members;
mod progress;
mod stuck;
#[cfg(test)]
mod tests;

use crate::refusal::Refusal;

pub(crate) use kinds::{directions, is_one_sided, is_paired, is_rendezvous, takes_partners};
pub(crate) use members::{Members, Membership, entry_of, is_id};
pub(crate) use progress::Matching;

impl Matching<'_> {
    /// Returns the next instructions that run together, by rank and index; `None` when all programs have ended.
    ///
    /// # Errors
    /// Partners that disagree, or programs that wait forever.
    pub(crate) fn step(&mut self) -> Result<Option<Vec<(usize, usize)>>, Refusal> {
        let mut together = Vec::new();
        Ok(self.step_into(&mut together)?.then_some(together))
    }

    /// As [`step`](Matching::step), into a reused list; returns false when all programs have ended.
    pub(crate) fn step_into(&mut self, together: &mut Vec<(usize, usize)>) -> Result<bool, Refusal> {
        together.clear();
        while let Some(rank) = self.fresh.pop() {
            let Some(head) = self.head(rank) else { continue };
            self.together.clear();
            if !self.arrive(rank, head)? {
                continue;
            }
            self.together.sort_unstable();
            for rank in self.together.drain(..) {
                together.push((rank, self.next[rank]));
                self.next[rank] += 1;
                self.fresh.push(rank);
            }
            return Ok(true);
        }
        stuck::check(self).map(|()| false)
    }
}

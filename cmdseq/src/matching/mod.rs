//! Matching: which instructions of different cards run together, and in what order.
//!
//! A card issues its instructions in order. Each lane runs one at a time, and each instruction waits for its partners, which are in
//! the same lane of other cards. So programs run to their ends if repeatedly some instructions that were issued have all their
//! partners issued too. The order in which such sets are removed does not change the result.
//!
//! A *stream* is a lane of a rank: rank times lanes, plus lane. The *head* of a stream is the instruction that was issued in it
//! and has not ended.
//!
//! Matching uses instructions, ranges, programs and refusals; verifier, meaning, graphs and the planner's prediction use it.

mod job;
mod kinds;
mod lanes;
mod members;
mod pair_sets;
mod progress;
mod recent;
mod stuck;

use crate::refusal::Refusal;

pub(crate) use job::{Job, Signal};
pub(crate) use kinds::{directions, is_one_sided, is_paired, is_rendezvous, takes_partners};
pub(crate) use lanes::{Claim, Lanes};
pub(crate) use members::{Members, Membership, entry_of, is_id};
pub(crate) use progress::Matching;
pub(crate) use recent::Recent;

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
        while let Some(stream) = self.fresh.pop() {
            let Some(head) = self.head(stream) else { continue };
            self.together.clear();
            if !self.arrive(stream, head)? {
                continue;
            }
            let mut streams = std::mem::take(&mut self.together);
            streams.sort_unstable();
            for stream in streams.iter().copied() {
                together.extend(self.heads[stream].take().map(|(index, _)| (self.rank_of(stream), index)));
                self.issue(self.rank_of(stream));
            }
            self.together = streams;
            return Ok(true);
        }
        stuck::check(self).map(|()| false)
    }
}

//! Streams in the middle of which a planted fault strikes: each runs in two parts.

use crate::engine::streams::ResourceId;
use crate::fault::{Fault, Moved, When};
use crate::proto::optweb::stream::{StreamPurpose, Watched};
use crate::world::Core;

impl Core {
    /// Starts a stream of `bytes`, rounded up to whole beats: a partial last beat takes the time of a whole one.
    pub(crate) fn start_stream(&mut self, bytes: u64, passes: Vec<ResourceId>, purpose: StreamPurpose) {
        let bytes = self.whole_beats(bytes);
        self.log_begin(&purpose);
        let Some((fault, before)) = self.take_watch(&purpose, bytes) else {
            self.rates.start(self.now, bytes, passes, purpose);
            return;
        };
        let epoch = self.lane(purpose.at()).epoch;
        let rest = Watched { purpose, fault, epoch, passes: passes.clone(), bytes: bytes - before };
        self.rates.start(self.now, before, passes, StreamPurpose::Watched(Box::new(rest)));
    }

    fn whole_beats(&self, bytes: u64) -> u64 {
        let beat = self.profile.beat_bytes;
        bytes.div_ceil(beat).saturating_mul(beat)
    }

    /// The first part is over: strikes, and goes on with the stream unless its instruction has ended by that.
    pub(crate) fn watched_point(&mut self, rest: Watched) {
        self.strike(rest.fault);
        let goes_on = match rest.purpose.served() {
            Some(id) => self.is_served(id),
            None => self.lane(rest.purpose.at()).epoch == rest.epoch,
        };
        if goes_on {
            self.rates.start(self.now, rest.bytes, rest.passes, rest.purpose);
        }
    }

    /// Takes the planted fault that waits for a stream of `bytes`, and returns the bytes before it.
    fn take_watch(&mut self, purpose: &StreamPurpose, bytes: u64) -> Option<(Fault, u64)> {
        if self.watches.is_empty() {
            return None;
        }
        let at = purpose.at();
        let own = self.cards[at.card].node;
        let (node, tag) = match purpose.served() {
            // The transfer is that of the card that reads.
            Some(id) => (self.ports.peer(own, id.port), self.served(id)?.reader?.tag),
            None => (own, self.running(at)?.instruction.tag),
        };
        let transfers = match purpose {
            StreamPurpose::Send { send, .. } => *send..*send + 1,
            StreamPurpose::Multicast { .. } => 0..self.sends(at),
            StreamPurpose::Write { .. } | StreamPurpose::Reply(_) | StreamPurpose::Local { .. } => 0..1,
            _ => return None,
        };
        let meets = |moved: &Moved| {
            moved.node == node
                && moved.tag.is_none_or(|one| one == tag)
                && transfers.contains(&(moved.transfer as usize))
                && moved.bytes <= bytes
        };
        let before = |fault: &Fault| match fault.when() {
            When::Moved(moved) if meets(&moved) => Some(moved.bytes),
            _ => None,
        };
        let place = self.watches.iter().position(|fault| before(fault).is_some())?;
        let before = before(&self.watches[place])?;
        Some((self.watches.remove(place), self.whole_beats(before)))
    }
}

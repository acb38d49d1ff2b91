//! Streams in the middle of which a planted fault strikes: each runs in two parts.

use crate::engine::streams::ResourceId;
use crate::fault::{Fault, Moved, When};
use crate::on_card::OnCard;
use crate::proto::optweb::stream::{StreamPurpose, Watched};

impl OnCard<'_> {
    /// Starts a stream of `bytes`, rounded up to whole beats: a partial last beat takes the time of a whole one.
    pub(crate) fn start_stream(&mut self, bytes: u64, passes: Vec<ResourceId>, purpose: StreamPurpose) {
        let bytes = self.whole_beats(bytes);
        self.env.log_begin(&purpose);
        let Some((fault, before)) = self.take_watch(&purpose, bytes) else {
            self.env.rates.start(self.env.now, bytes, passes, purpose);
            return;
        };
        let epoch = self.lane(purpose.at()).epoch;
        let rest = Watched { purpose, fault, epoch, passes: passes.clone(), bytes: bytes - before };
        self.env.rates.start(self.env.now, before, passes, StreamPurpose::Watched(Box::new(rest)));
    }

    fn whole_beats(&self, bytes: u64) -> u64 {
        let beat = self.env.profile.beat_bytes;
        bytes.div_ceil(beat).saturating_mul(beat)
    }

    /// Takes the planted fault that waits for a stream of `bytes`, and returns the bytes before it.
    fn take_watch(&mut self, purpose: &StreamPurpose, bytes: u64) -> Option<(Fault, u64)> {
        if self.env.watches.is_empty() {
            return None;
        }
        let at = purpose.at();
        let own = self.card.node;
        let (node, tag) = match purpose.served() {
            // The transfer is that of the card that reads.
            Some(id) => (self.env.ports.peer(own, id.port), self.served(id)?.reader?.tag),
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
        let place = self.env.watches.iter().position(|fault| before(fault).is_some())?;
        let before = before(&self.env.watches[place])?;
        Some((self.env.watches.remove(place), self.whole_beats(before)))
    }
}

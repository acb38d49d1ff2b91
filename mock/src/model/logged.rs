//! Which transfers on links are logged, for traces.

use crate::card::running::{Running, Work};
use crate::engine::Time;
use crate::net::transfers::LinkTransfer;
use crate::proto::optweb::lane::LaneId;
use crate::proto::optweb::stream::StreamPurpose;
use crate::world::Core;

/// Picoseconds of virtual time: 213 days have room.
pub(crate) fn picoseconds(time: Time) -> u64 {
    u64::try_from(time).unwrap_or(u64::MAX)
}

impl Core {
    /// A stream has moved its last byte.
    pub(super) fn log_end(&mut self, purpose: &StreamPurpose) {
        let (Some(log), Some(key)) = (&mut self.env.transfers, purpose.key()) else { return };
        let Some(begin) = log.end(key) else { return };
        match purpose {
            StreamPurpose::Send { at, send } => self.log_sends(*at, *send..*send + 1, begin),
            StreamPurpose::Multicast { at } => {
                let sends = self.on(at.card).sends(*at);
                self.log_sends(*at, 0..sends, begin);
            }
            StreamPurpose::Write { at } => {
                if let Some(Running { work: Work::Rdma(issued), .. }) = self.running(*at) {
                    self.log_one(at.card, issued.port, issued.request.bytes, *at, begin);
                }
            }
            StreamPurpose::Reply(id) => {
                let bytes = self.on(id.at.card).served(*id).map(|served| served.request.bytes);
                let reader = self.env.back(id.at.card, id.port).map(|(card, _)| LaneId { card, ..id.at });
                if let (Some(bytes), Some(reader)) = (bytes, reader) {
                    self.log_one(id.at.card, id.port, bytes, reader, begin);
                }
            }
            _ => {}
        }
    }

    fn log_sends(&mut self, at: LaneId, which: std::ops::Range<usize>, begin: Time) {
        let Some(Running { work: Work::Transfer(transfer), .. }) = self.running(at) else { return };
        let sends: Vec<_> = transfer.sends[which].iter().map(|send| (send.port, send.bytes)).collect();
        sends.into_iter().for_each(|(port, bytes)| self.log_one(at.card, port, bytes, at, begin));
    }

    /// Logs what the card has sent out of `port`, for the instruction that runs in `lane`.
    fn log_one(&mut self, card: usize, port: usize, bytes: u64, lane: LaneId, begin: Time) {
        let Some(running) = self.running(lane) else { return };
        let from = self.cards[card].node;
        let one = LinkTransfer {
            from,
            to: self.env.ports.peer(from, port),
            bytes,
            begin_ps: picoseconds(begin),
            end_ps: picoseconds(self.env.now),
            link_mbps: self.cards[card].links[port].mbps,
            node: self.cards[lane.card].node,
            tag: running.instruction.tag,
            issued_ps: picoseconds(running.issued),
        };
        if let Some(log) = &mut self.env.transfers {
            log.add(one);
        }
    }
}

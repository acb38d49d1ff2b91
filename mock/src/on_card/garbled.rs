//! Bit errors on links. OPTWEB has no retry: what is hit is lost, and the card that finds the wrong checksum counts it.

use cmdseq::completion::Status;
use fpga_regs::bits::Errors;

use crate::card::running::{Running, Work};
use crate::on_card::OnCard;
use crate::proto::optweb::lane::LaneId;
use crate::proto::optweb::transfer::{Carried, ReceiveState};

impl OnCard<'_> {
    /// Returns what arrives of `what`, which the link at `port` of this card carries.
    pub(super) fn hit(&mut self, port: usize, what: Carried) -> Carried {
        let bytes = what.bytes(self.env.profile.beat_bytes);
        if bytes > 0 && self.is_hit(port, bytes) {
            return Carried::Garbled { is_data: what.is_data() };
        }
        what
    }

    /// Whether a bit error hits one of `bytes` bytes that the link at `port` of this card carries now.
    fn is_hit(&mut self, port: usize, bytes: u64) -> bool {
        let link = &mut self.card.links[port];
        if !link.garbles.is_empty() && link.take_garble() {
            return true;
        }
        let Some(bits) = self.env.profile.hardware.bits_per_error else { return false };
        self.env.link_dice.below(bits) < bytes.saturating_mul(8)
    }

    /// Something came with a wrong checksum. An instruction that waits for data on the link fails; of a signal that is missing,
    /// only the count tells.
    pub(super) fn garbled_came(&mut self, at: LaneId, port: usize, is_data: bool) {
        let card = &mut *self.card;
        if card.is_frozen {
            return;
        }
        card.link_errors = card.link_errors.wrapping_add(1);
        card.errors |= Errors::LINK_ERROR;
        let waits = match (&card.lanes[at.lane].running, card.links[port].receive(at.lane)) {
            (Some(Running { work: Work::Transfer(transfer), .. }), Some(place)) => {
                transfer.receives[place].state == ReceiveState::Waiting
            }
            (Some(Running { work: Work::Rdma(issued), .. }), _) => issued.is_read && issued.port == port,
            _ => false,
        };
        if is_data && waits {
            let peer = self.env.ports.peer(card.node, port);
            self.fail(at, (Status::LinkError, peer as u16));
        }
    }
}

//! Reads and writes of the channel block.

use fpga_regs::bits::{ChannelFeatures, ChannelStatus};
use fpga_regs::channel as block;
use fpga_regs::feature_list::{self, CARD_GUID, CHANNEL_GUID, Header};
use fpga_regs::pci;

use crate::card::feature_list::{FEATURE_BYTES, feature_bytes};
use crate::channels::core::{Core, ENDS};
use crate::channels::end::{SLOT_BYTES_MAX, SLOTS_MAX};
use crate::profile::circus::PACKET_BYTES;
use crate::proto::circus::Torus;

/// Where the block is in the register BAR.
pub(super) const OFFSET: u64 = 0x4000;
/// Bytes of a packet's header.
const HEADER_BYTES: u32 = 4;
/// Widest word.
const WORD_BYTES_MAX: u32 = 64;

/// Returns the byte of a feature header at `offset` of the register BAR, if inside one.
pub(super) fn feature_byte(offset: u64) -> Option<u8> {
    let card = Header {
        id: 0,
        revision: 0,
        next: OFFSET as u32,
        end_of_list: false,
        version: 0,
        kind: feature_list::TYPE_AFU,
    };
    let channels = Header { id: 2, revision: 0, next: 0, end_of_list: true, version: 0, kind: feature_list::TYPE_BBB };
    let (header, guid, at) = match offset.checked_sub(OFFSET) {
        None if offset < FEATURE_BYTES as u64 => (card, CARD_GUID, offset),
        Some(at) if at < FEATURE_BYTES as u64 => (channels, CHANNEL_GUID, at),
        _ => return None,
    };
    Some(feature_bytes(header, guid)[at as usize])
}

/// Returns the offset in the block, if the access is inside.
pub(super) fn block_offset(offset: u64) -> Option<u32> {
    let offset = offset.checked_sub(OFFSET)?;
    (offset < u64::from(block::BLOCK_BYTES)).then_some(offset as u32)
}

/// Where a register is.
enum Place {
    Block(u32),
    End(usize, u32),
    Route(usize),
}

fn place(offset: u32) -> Place {
    match offset {
        _ if offset >= block::ROUTES_OFFSET => Place::Route((offset - block::ROUTES_OFFSET) as usize / 4),
        _ if offset >= block::ENDS_OFFSET => {
            let at = offset - block::ENDS_OFFSET;
            Place::End((at / block::end::STRIDE) as usize, at % block::end::STRIDE)
        }
        _ => Place::Block(offset),
    }
}

impl Core {
    pub(super) fn read_register(&self, node: usize, offset: u32) -> u32 {
        let card = &self.cards[node];
        match place(offset) {
            Place::Route(to) => card.routes.get(to).copied().unwrap_or(0),
            Place::End(end, register) => card.ends.get(end).map_or(0, |end| end.read(register)),
            Place::Block(register) => self.read_block(node, register),
        }
    }

    fn read_block(&self, node: usize, register: u32) -> u32 {
        let (card, lost) = (&self.cards[node], self.network.losses_of(node));
        match register {
            block::MAGIC => block::MAGIC_VALUE,
            block::VERSION => block::VERSION_VALUE,
            block::NODE => node as u32,
            block::COLUMNS => self.torus.width(),
            block::ROWS => self.torus.height(),
            block::PORTS => Torus::LINKS as u32 + 1,
            block::PACKET_BYTES => PACKET_BYTES as u32,
            block::PAYLOAD_BYTES => PACKET_BYTES as u32 - HEADER_BYTES,
            block::WORD_BYTES_MAX => WORD_BYTES_MAX,
            block::ENDS => ENDS as u32,
            block::SLOT_BYTES_MAX => SLOT_BYTES_MAX,
            block::SLOTS_MAX => SLOTS_MAX,
            block::DMA_BITS => pci::DMA_BITS.into(),
            block::FEATURES => ChannelFeatures::MODEL.bits(),
            block::STATUS => {
                let mut status = ChannelStatus::READY;
                status.set(ChannelStatus::ROUTED, card.is_routed);
                status.bits()
            }
            block::PENDING => card.msix.pending(),
            block::LOST_FULL => lost.full as u32,
            block::LOST_NO_ROUTE => lost.no_route as u32,
            block::LOST_NO_CHANNEL => lost.no_channel as u32,
            _ => 0,
        }
    }

    pub(super) fn write_register(&mut self, node: usize, offset: u32, value: u32) {
        if self.cards[node].is_frozen {
            return;
        }
        match place(offset) {
            Place::Route(to) => {
                if let Some(route) = self.cards[node].routes.get_mut(to) {
                    *route = value & 0xff;
                }
            }
            Place::End(end, register) if end < ENDS => self.write_end(node, end, register, value),
            Place::End(..) => {}
            Place::Block(block::ROUTES_LOAD) if value == block::LOAD_VALUE => {
                let route = |route: &u32| (*route != block::NO_ROUTE).then_some(*route as u8);
                let table = self.cards[node].routes.iter().map(route).collect();
                self.network.set_routes(node, table);
                self.cards[node].is_routed = true;
            }
            Place::Block(block::PENDING) => {
                self.cards[node].msix.clear(value);
                self.cards[node].deliver_interrupts();
            }
            Place::Block(_) => {}
        }
        self.run();
    }

    fn write_end(&mut self, node: usize, end: usize, register: u32, value: u32) {
        let nodes = self.torus.nodes();
        let state = &mut self.cards[node].ends[end];
        match register {
            block::end::ENABLE if value & 1 == 0 => {
                if std::mem::take(&mut state.is_enabled) {
                    self.network.close(node, end);
                }
            }
            block::end::ENABLE if state.read(block::end::ENABLE) == 0 => {
                let (channel, word_bytes) = (state.channel(), state.word_bytes());
                if let Some(direction) = state.checked(nodes)
                    && self.network.open((node, end), direction, channel, word_bytes)
                {
                    state.enable();
                }
            }
            block::end::DOORBELL if state.is_enabled => state.ring(value),
            block::end::INTERRUPT_ARM if state.is_enabled => {
                state.armed = Some(value);
                self.interrupt_if_due(node, end);
            }
            _ => state.keep(register, value),
        }
    }
}

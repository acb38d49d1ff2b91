//! The region of the shell that holds the sequencer or other logic, and its decoupler.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fpga_regs::decoupler::{
    CONTROL, CUT_OFF, DEVICE, INTERFACE_0, INTERFACE_3, LOGIC_0, LOGIC_3, MAGIC, MAGIC_VALUE, STATUS,
};
use fpga_regs::feature_list::{CARD_GUID, Header, TYPE_BBB};

use crate::xdma::block::{Block, ListHeader};

/// Id of the interface that images for these cards are made for, `5e0c7a11-90d1-4c0b-8f35-2c1d3b6a9e04`.
pub const INTERFACE: u128 = 0x5e0c7a11_90d1_4c0b_8f35_2c1d3b6a9e04;
/// IDCODE of the FPGA of an Alveo U280.
pub const IDCODE: u32 = 0x14b7_d093;
/// What is behind the decoupler in the user BAR: offsets. The memory for rings is the shell's, but while the region is cut off, it
/// reads zero there and takes no writes.
pub(super) const BEHIND: Range<u32> = 0x1000..0x1_0000;

/// The region. Clones are handles to the same.
#[derive(Debug, Clone)]
pub(super) struct Region(Arc<Mutex<State>>);

#[derive(Debug)]
pub(super) struct State {
    /// GUID of the logic; `None` while nothing is configured.
    pub(super) logic: Option<u128>,
    pub(super) is_cut_off: bool,
    /// CONTROL has no effect.
    pub(super) is_stuck: bool,
    control: u32,
}

impl Region {
    pub(super) fn new() -> Self {
        let state = State { logic: Some(CARD_GUID), is_cut_off: false, is_stuck: false, control: 0 };
        Region(Arc::new(Mutex::new(state)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what answers a read at `offset` of the user BAR in place of the block that decodes it; `None`: that block. What is
    /// answered for takes no writes either.
    pub(super) fn instead(&self, offset: u32) -> Option<u32> {
        let place = offset.checked_sub(BEHIND.start).filter(|_| BEHIND.contains(&offset))?;
        let state = self.lock();
        match state.logic.filter(|_| !state.is_cut_off) {
            Some(CARD_GUID) => None,
            Some(guid) => {
                let header = Header { id: 1, revision: 0, next: 0, end_of_list: true, version: 0, kind: TYPE_BBB };
                Some(ListHeader { header, guid }.word(place))
            }
            None => Some(0),
        }
    }
}

/// The decoupler.
impl Block for Region {
    fn read32(&mut self, offset: u32) -> u32 {
        let state = self.lock();
        let part = |value: u128, first: u32| (value >> (8 * (offset - first))) as u32;
        match offset {
            MAGIC => MAGIC_VALUE,
            CONTROL => state.control,
            STATUS => u32::from(state.is_cut_off) * CUT_OFF,
            DEVICE => IDCODE,
            LOGIC_0..=LOGIC_3 => part(state.logic.unwrap_or(0), LOGIC_0),
            INTERFACE_0..=INTERFACE_3 => part(INTERFACE, INTERFACE_0),
            _ => 0,
        }
    }

    fn write32(&mut self, offset: u32, value: u32) {
        let mut state = self.lock();
        if offset == CONTROL {
            state.control = value & CUT_OFF;
            if !state.is_stuck {
                state.is_cut_off = state.control != 0;
            }
        }
    }
}

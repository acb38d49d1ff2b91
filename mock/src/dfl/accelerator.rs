//! The accelerator's function: a card behind the port.

use std::sync::Arc;

use fpga_hal::BarIndex;
use fpga_hal::endpoint::{Endpoint, Interposer};
use fpga_regs::dfl::ACCELERATOR;
use fpga_regs::feature_list::CARD_GUID;

use crate::card::feature_list::read_only_header;
use crate::dfl::attached::aligned;
use crate::dfl::slot::Slot;
use crate::fabric::Fabric;
use crate::msgdma::CardWithEngine;

/// BAR of the accelerator's registers.
const REGISTERS_BAR: usize = 0;

/// A card with a command sequencer as one of the accelerators that the region can hold.
pub(super) struct Accelerator {
    fabric: Fabric,
    node: u32,
    card: Arc<dyn Endpoint>,
    slot: Arc<Slot>,
    /// The engine beside the sequencer, which is in `card`.
    engine: Option<Arc<CardWithEngine>>,
}

impl Accelerator {
    /// The card at `node` of a fabric. `has_engine`: beside its sequencer is an engine.
    pub(super) fn new(fabric: &Fabric, node: u32, has_engine: bool, slot: Arc<Slot>) -> Self {
        let engine = has_engine.then(|| Arc::new(CardWithEngine::new(fabric, node)));
        let card: Arc<dyn Endpoint> = match &engine {
            Some(engine) => Arc::<CardWithEngine>::clone(engine),
            None => fabric.endpoint(node),
        };
        Accelerator { fabric: fabric.clone(), node, card, slot, engine }
    }

    /// Returns the engine beside the sequencer.
    pub(super) fn engine(&self) -> Option<&CardWithEngine> {
        self.engine.as_deref()
    }

    /// Returns the accelerator that answers an access of the registers, if the access reaches the port.
    fn answering(&self) -> Option<u128> {
        if self.fabric.decodes(self.node) { self.slot.answering() } else { None }
    }

    /// Resets the logic of the accelerator, but not its function.
    pub(super) fn reset_logic(&self) {
        if let Some(engine) = &self.engine {
            engine.reset_logic();
        }
        self.fabric.reset_logic(self.node);
    }
}

impl Interposer for Accelerator {
    fn behind(&self) -> &dyn Endpoint {
        &*self.card
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        if bar.index() != REGISTERS_BAR {
            return self.card.bar_read(bar, offset, data);
        }
        match self.answering() {
            Some(CARD_GUID) => self.card.bar_read(bar, offset, data),
            Some(other) if aligned(&ACCELERATOR, bar, offset, data.len()).is_some() => {
                read_only_header(other, offset, data);
            }
            Some(_) | None => data.fill(0xff),
        }
    }

    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) {
        if bar.index() != REGISTERS_BAR || self.answering() == Some(CARD_GUID) {
            self.card.bar_write(bar, offset, data);
        }
    }
}

#[cfg(test)]
mod tests {
    use fpga_regs::dfl::port::errors::{ERROR, MMIO_TIMEOUT};
    use fpga_regs::dfl::reconfiguration::{COMPLETE, CONTROL, DATA, START, STATUS};
    use fpga_regs::sequencer::{self, queue};

    use super::*;
    use crate::dfl::{D5005, image};
    use crate::model::registers::SEQUENCER_OFFSET;
    use crate::{Profile, Shell};

    /// Command register: memory space and bus master.
    const ON: [u8; 2] = [6, 0];
    /// Bus master only.
    const MASTER: [u8; 2] = [4, 0];
    const COMMAND: u16 = 4;
    /// Place of the reconfiguration engine.
    const ENGINE: u64 = 0x9_0000;
    /// Place of the port's errors.
    const PORT_ERRORS: u64 = 0xa_0000;

    fn bar() -> BarIndex {
        BarIndex::new(0).unwrap()
    }

    fn at(register: u32) -> u64 {
        SEQUENCER_OFFSET + u64::from(register)
    }

    fn queue(register: u32) -> u32 {
        queue::base(0) + register
    }

    fn read(card: &dyn Endpoint, register: u32) -> u32 {
        let mut word = [0; 4];
        card.bar_read(bar(), at(register), &mut word);
        u32::from_le_bytes(word)
    }

    fn write(card: &dyn Endpoint, register: u32, value: u32) {
        card.bar_write(bar(), at(register), &value.to_le_bytes());
    }

    /// Loads the image of an accelerator.
    fn load(control: &dyn Endpoint, guid: u128) {
        let write = |register: u32, value: u64| {
            control.bar_write(bar(), ENGINE + u64::from(register), &value.to_le_bytes());
        };
        let read = |register: u32| {
            let mut word = [0; 8];
            control.bar_read(bar(), ENGINE + u64::from(register), &mut word);
            u64::from_le_bytes(word)
        };
        write(CONTROL, START);
        for word in image(guid, 64).as_chunks().0 {
            write(DATA, u32::from_le_bytes(*word).into());
        }
        write(CONTROL, START | COMPLETE);
        for _ in 0..10 {
            read(CONTROL);
        }
        assert_eq!((read(CONTROL) & START, read(STATUS) >> 16 & 1), (0, 0));
    }

    /// A card of a new fabric: the control function decodes memory, the accelerator's function does not.
    fn card() -> (Fabric, D5005) {
        let fabric = Fabric::new(Profile { shell: Shell::S10Dfl, ..Profile::optweb(2) }).unwrap();
        let card = D5005::new(&fabric, 0);
        card.control().config_write(COMMAND, &ON);
        (fabric, card)
    }

    /// Reads `bytes` bytes of the accelerator's BAR.
    fn at_offset(card: &D5005, offset: u64, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        card.accelerator().bar_read(bar(), offset, &mut data);
        data
    }

    #[test]
    fn the_port_notes_an_access_only_if_the_function_decodes_it() {
        let (_fabric, card) = card();
        let errors = || {
            let mut word = [0; 8];
            card.control().bar_read(bar(), PORT_ERRORS + u64::from(ERROR), &mut word);
            u64::from_le_bytes(word)
        };
        card.accelerator().bar_write(bar(), 0, &[0; 4]);
        assert_eq!((at_offset(&card, 0, 4), errors()), (vec![0xff; 4], 0));
        card.accelerator().config_write(COMMAND, &ON);
        assert_eq!((at_offset(&card, 0, 4), errors()), (vec![0xff; 4], MMIO_TIMEOUT));
    }

    #[test]
    fn another_accelerator_answers_what_its_function_decodes() {
        let (_fabric, card) = card();
        card.release();
        load(&*card.control(), 77);
        let header = 0x1000_0100_0000_0000_u64.to_le_bytes();
        assert_eq!(at_offset(&card, 0, 8), [0xff; 8]);
        card.accelerator().config_write(COMMAND, &ON);
        assert_eq!((at_offset(&card, 0, 8), at_offset(&card, 8, 4)), (header.to_vec(), vec![77, 0, 0, 0]));
        let end = ACCELERATOR.bar_bytes(0);
        assert_eq!(at_offset(&card, end - 8, 8), [0; 8]);
        for (offset, bytes) in [(0, 1), (0, 2), (0, 16), (2, 4), (4, 8), (end, 4), (u64::MAX - 3, 4)] {
            assert_eq!(at_offset(&card, offset, bytes), vec![0xff; bytes], "{bytes} bytes at {offset:#x}");
        }
    }

    #[test]
    fn a_load_clears_the_logic_even_while_the_function_decodes_no_memory() {
        let (fabric, card) = card();
        card.release();
        let (control, accelerator) = (card.control(), card.accelerator());
        let state = || {
            [sequencer::SCRATCH, queue(queue::DEPTH), queue(queue::ENABLE)]
                .map(|register| read(&*accelerator, register))
        };
        for command in [ON, MASTER] {
            accelerator.config_write(COMMAND, &ON);
            let eager_limit = read(&*accelerator, sequencer::EAGER_LIMIT);
            write(&*accelerator, sequencer::SCRATCH, 77);
            write(&*accelerator, sequencer::EAGER_LIMIT, eager_limit / 2);
            write(&*accelerator, queue(queue::DEPTH), 16);
            write(&*accelerator, queue(queue::ENABLE), 1);
            fabric.write_memory(0, 4096, b"kept").unwrap();
            assert_eq!(state(), [77, 16, 1]);
            accelerator.config_write(COMMAND, &command);
            load(&*control, CARD_GUID);
            accelerator.config_write(COMMAND, &ON);
            assert_eq!(state(), [0; 3], "{command:?}");
            assert_eq!(read(&*accelerator, sequencer::EAGER_LIMIT), eager_limit);
            assert_eq!(fabric.read_memory(0, 4096, 4).unwrap(), b"kept");
        }
    }
}

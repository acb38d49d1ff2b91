//! The fake as an endpoint of a bus.

use std::sync::Arc;

use fpga_hal::BarIndex;
use fpga_hal::endpoint::{BarLayout, DmaFault, DmaPort, DmaTag, Endpoint, InterruptPort, Layout, ResetKind};

use crate::{AER, BLOCK, Fake, PLANTED, RING_BAR, RING_BYTES, config};

impl Endpoint for Fake {
    fn layout(&self) -> Layout {
        let bar = |bytes| Some(BarLayout { bytes, is_64_bit: true, prefetchable: false });
        Layout { bars: [bar(0x1_0000), None, bar(RING_BYTES as u64), None, bar(0x1000), None], dma_bits: 48 }
    }

    fn attach(&self, dma: Arc<dyn DmaPort>, interrupts: Arc<dyn InterruptPort>) {
        *self.ports.lock().expect("no panic") = Some((dma, interrupts));
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) {
        let state = self.state();
        if state.is_gone {
            return data.fill(0xff);
        }
        data.copy_from_slice(&state.config[usize::from(offset)..][..data.len()]);
    }

    fn config_write(&self, offset: u16, data: &[u8]) {
        let mut state = self.state();
        let at = usize::from(offset);
        if (AER..AER + 0x14).contains(&at) {
            assert_eq!(state.config[at..][..data.len()], *data, "errors of PCIe are cleared unread");
            return state.config[at..][..data.len()].fill(0);
        }
        if offset == 4 && data[0] & 4 != 0 && state.config[4] & 4 == 0 {
            let runs = state.register(0x100) != 0 || state.register(0x414) != 0 || state.hanging.is_some();
            assert!(!runs, "a sequencer that runs is let onto the bus");
        }
        state.config[usize::from(offset)..][..data.len()].copy_from_slice(data);
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        let mut state = self.state();
        if state.is_gone {
            return data.fill(0xff);
        }
        if bar.index() == 4 {
            return data.copy_from_slice(&state.msix[offset as usize..][..data.len()]);
        }
        assert_eq!(data.len(), 4, "registers are 32 bits wide");
        if bar.index() == usize::from(RING_BAR) {
            return data.copy_from_slice(&state.read_ring_memory(offset as usize));
        }
        if state.vanishes_after == Some(0) {
            state.is_gone = true;
            return data.fill(0xff);
        }
        state.vanishes_after = state.vanishes_after.map(|reads| reads - 1);
        state.reads += 1;
        let value = state.read(offset as u32);
        data.copy_from_slice(&value.to_le_bytes());
    }

    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) {
        let ports = self.ports();
        let mut state = self.state();
        if state.is_gone {
            return;
        }
        if bar.index() == 4 {
            return state.msix[offset as usize..][..data.len()].copy_from_slice(data);
        }
        let word: [u8; 4] = data.try_into().expect("registers are 32 bits wide");
        if bar.index() == usize::from(RING_BAR) {
            return state.post_to_ring_memory(offset as usize, word);
        }
        state.writes += 1;
        state.write(&ports, offset as u32, u32::from_le_bytes(word));
    }

    fn reset(&self, _kind: ResetKind) {
        let mut state = self.state();
        // A reset clears no error, and nothing that was put there.
        let kept = state.config.split_off(PLANTED);
        state.config = config(state.ids);
        state.config[PLANTED..].copy_from_slice(&kept);
        for offset in (0x400..0x430).step_by(4).chain([0x100, 0x108]) {
            state.registers.remove(&(BLOCK + offset));
        }
        state.hanging = None;
        state.resets += 1;
    }

    fn dma_complete(&self, _tag: DmaTag, _result: std::result::Result<&[u8], DmaFault>) {}
}

//! Any memory is walked as a Device Feature List to an end; what is found lies inside of the BAR, and a card is opened or refused.
#![no_main]

use std::sync::Arc;

use fpga_driver::dfl::{Control, Exerciser};
use fpga_driver::feature_list::{Walk, places};
use fpga_driver::{Card, find_sequencer};
use fpga_hal::endpoint::{BarLayout, DmaFault, DmaPort, DmaTag, InterruptPort, Layout, ResetKind};
use fpga_hal::{BarIndex, Domain, Endpoint, in_process};
use libfuzzer_sys::fuzz_target;

/// Bytes of BAR 0, and of configuration space.
const BAR: usize = 0x4000;
const CONFIG: usize = 4096;

/// A function whose configuration space and BAR 0 are memory that only the fuzzer writes.
struct Memory {
    config: Vec<u8>,
    bar: Vec<u8>,
}

impl Endpoint for Memory {
    fn layout(&self) -> Layout {
        let mut bars = [None; BarIndex::COUNT];
        bars[0] = Some(BarLayout { bytes: BAR as u64, is_64_bit: true, prefetchable: false });
        Layout { bars, dma_bits: 64 }
    }

    fn attach(&self, _: Arc<dyn DmaPort>, _: Arc<dyn InterruptPort>) {}

    fn config_read(&self, offset: u16, data: &mut [u8]) {
        data.copy_from_slice(&self.config[usize::from(offset)..][..data.len()]);
    }

    fn config_write(&self, _: u16, _: &[u8]) {}

    fn bar_read(&self, _: BarIndex, offset: u64, data: &mut [u8]) {
        data.copy_from_slice(&self.bar[offset as usize..][..data.len()]);
    }

    fn bar_write(&self, _: BarIndex, _: u64, _: &[u8]) {}

    fn reset(&self, _: ResetKind) {}

    fn dma_complete(&self, _: DmaTag, _: Result<&[u8], DmaFault>) {}
}

fuzz_target!(|data: &[u8]| {
    let (mut config, mut bar) = (vec![0; CONFIG], vec![0; BAR]);
    config[..12].copy_from_slice(&[0x86, 0x80, 0xcf, 0xbc, 2, 0, 0, 0, 1, 0, 0, 0x12]);
    // Each 11 bytes are a word and where it is: in the BAR, or behind the beginning of the extended capabilities.
    let mut rest = data;
    while let Some((head, tail)) = rest.split_first_chunk::<11>() {
        rest = tail;
        let at = usize::from(u16::from_le_bytes([head[1], head[2]]));
        match head[0] & 3 {
            0 => config[0x100 + 8 * (at % 0x1e0)..][..8].copy_from_slice(&head[3..]),
            _ => bar[8 * (at % (BAR / 8))..][..8].copy_from_slice(&head[3..]),
        }
    }
    let memory = Arc::new(Memory { config, bar });
    let Ok(function) = in_process::attach(memory, &Domain::in_process(), "memory") else { return };
    if let Ok(window) = function.window(BarIndex::new(0).unwrap()) {
        let mut last = None;
        for feature in Walk::new(&window, 0) {
            let Ok(feature) = feature else { break };
            assert!(feature.offset < window.len() && last.is_none_or(|last| last < feature.offset));
            if let Some(registers) = &feature.registers {
                assert!(registers.start <= registers.end && registers.end <= window.len());
            }
            last = Some(feature.offset);
        }
    }
    let _ = places(&function);
    let _ = find_sequencer(&function);
    drop(Control::open(function.clone()));
    drop(Exerciser::open(function.clone()));
    drop(Card::open(function));
});

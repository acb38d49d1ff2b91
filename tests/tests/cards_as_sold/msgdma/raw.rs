//! The engine as any driver sees it: registers by number, typed from the documents, without this project's tables.

use std::sync::Arc;

use fpga_hal::{BarIndex, DmaBuffer, Function, Interrupt, InterruptKind, Window};

use super::Pac;

/// Offset of the building block in BAR 2: the accelerator's list is at 0x40000.
pub(crate) const BLOCK: u64 = 0x6_0000;
pub(crate) const STATUS: u64 = 0x40;
pub(crate) const CONTROL: u64 = 0x44;
pub(crate) const FILL: u64 = 0x48;
pub(crate) const SEQUENCE: u64 = 0x50;
pub(crate) const DESCRIPTOR: u64 = 0x60;
pub(crate) const PAGE: u64 = 0x200;
pub(crate) const WINDOW: u64 = 0x1000;

pub(crate) const BUSY: u32 = 1 << 0;
pub(crate) const EMPTY: u32 = 1 << 1;
pub(crate) const FULL: u32 = 1 << 2;
pub(crate) const NO_RESPONSE: u32 = 1 << 3;
pub(crate) const STOPPED: u32 = 1 << 5;
pub(crate) const RESETTING: u32 = 1 << 6;
pub(crate) const ERROR: u32 = 1 << 7;
pub(crate) const EARLY: u32 = 1 << 8;
pub(crate) const IRQ: u32 = 1 << 9;

pub(crate) const HOST: u64 = 0x2_0000_0000_0000;
pub(crate) const ROM: u64 = 0x1_0000_0000_0000;

pub(crate) const GO: u32 = 1 << 31;
pub(crate) const GO_IRQ: u32 = GO | 1 << 14;

/// A function with its block, and with host memory.
pub(crate) struct Raw {
    pub(crate) function: Function,
    pub(crate) port: Window,
    pub(crate) block: Window,
    pub(crate) buffer: Arc<DmaBuffer>,
}

impl Raw {
    pub(crate) fn new(pac: &Pac) -> Self {
        let function = super::attach(pac.endpoint());
        function.set_bus_master(true).unwrap();
        let port = function.window(BarIndex::new(2).unwrap()).unwrap();
        let block = port.slice(BLOCK, 0x2000).unwrap();
        let buffer = function.domain().allocate(1 << 20, 4096).unwrap();
        Raw { function, port, block, buffer }
    }

    pub(crate) fn read(&self, offset: u64) -> u32 {
        self.block.read_u32(offset).unwrap()
    }

    pub(crate) fn write(&self, offset: u64, value: u32) {
        self.block.write_u32(offset, value).unwrap();
    }

    pub(crate) fn status(&self) -> u32 {
        self.read(STATUS)
    }

    /// Writes a descriptor that goes on in steps on both sides, in bursts of one line.
    pub(crate) fn push(&self, source: u64, destination: u64, bytes: u32, number: u16, control: u32) {
        self.push_with(source, destination, bytes, (0x0101_0000 | u32::from(number), 0x1_0001), control);
    }

    pub(crate) fn push_with(&self, source: u64, to: u64, bytes: u32, (burst, stride): (u32, u32), control: u32) {
        let high = |address: u64| (address >> 32) as u32;
        let words = [source as u32, to as u32, bytes, burst, stride, high(source), high(to), control];
        for (number, word) in words.into_iter().enumerate() {
            self.write(DESCRIPTOR + 4 * number as u64, word);
        }
    }

    /// The address of a byte of the buffer for the engine.
    pub(crate) fn host(&self, offset: u64) -> u64 {
        HOST | (self.buffer.iova().0 + offset)
    }

    pub(crate) fn host_bytes(&self, offset: usize, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        self.buffer.read(offset, &mut data).unwrap();
        data
    }

    pub(crate) fn interrupts(&self) -> Vec<Interrupt> {
        self.function.enable_interrupts_of(InterruptKind::Msix, 2).unwrap()
    }
}

//! PCI configuration space of a card: header, PCI Express and MSI-X capability, with the write masks of each byte.

use fpga_hal::endpoint::{BarLayout, Layout};
use fpga_hal::{BarIndex, Endpoint};
use fpga_regs::pci::{Function, Msix};

const COMMAND: usize = 0x04;
const STATUS: usize = 0x06;
const BARS: usize = 0x10;
const CAPABILITIES: usize = 0x34;
/// PCI Express capability, version 2, endpoint (PCI Express Base 5.0, section 7.5.3).
const EXPRESS: usize = 0x40;
const EXPRESS_DEVICE_CONTROL: usize = EXPRESS + 8;
/// MSI-X capability (PCI Express Base 5.0, section 7.7.2).
const MSIX: usize = 0x80;
const MSIX_CONTROL: usize = MSIX + 2;

/// Advanced error reporting, version 2 (PCI Express Base 5.0, section 7.8.4).
const AER: usize = 0x100;
const AER_UNCORRECTABLE: usize = AER + 4;
const AER_CORRECTABLE: usize = AER + 16;

/// Interrupt pin: INTA.
const INTERRUPT_PIN: usize = 0x3d;
/// Status: Interrupt Status, whether or not it is disabled.
const STATUS_INTERRUPT: u8 = 1 << 3;

const COMMAND_MEMORY: u8 = 1 << 1;
const COMMAND_MASTER: u8 = 1 << 2;
/// Interrupt Disable, in the command register's upper byte.
const COMMAND_INTX_OFF: u8 = 1 << 2;

/// Returns the BARs of a function, as [`ConfigSpace::new`] has them, and the address bits of its DMA.
pub(crate) fn layout(function: &Function, dma_bits: u8) -> Layout {
    let mut bars = [None; BarIndex::COUNT];
    for (index, bytes) in function.bars {
        let prefetchable = function.is_prefetchable;
        bars[usize::from(*index)] = Some(BarLayout { bytes: *bytes, is_64_bit: true, prefetchable });
    }
    Layout { bars, dma_bits }
}

/// Side effect of a write to configuration space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    /// Initiate Function Level Reset was set.
    FunctionReset,
    /// Interrupts may have been enabled, disabled or masked.
    Interrupts,
}

/// Errors of the function that were not corrected: bits of the status register of advanced error reporting (section 7.8.4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Uncorrectable {
    PoisonedTlp = 12,
    CompletionTimeout = 14,
}

/// What the command register of a function says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Command(u8);

impl Command {
    /// Reads the command register of a function. One that does not answer decodes nothing, and is no bus master.
    pub(crate) fn of(function: &dyn Endpoint) -> Self {
        let mut bytes = [0xff; 2];
        function.config_read(COMMAND as u16, &mut bytes);
        Command(if bytes == [0xff; 2] { 0 } else { bytes[0] })
    }

    /// Sets memory space and bus master of a function, and nothing else.
    pub(crate) fn set_on(function: &dyn Endpoint) {
        function.config_write(COMMAND as u16, &[COMMAND_MEMORY | COMMAND_MASTER, 0]);
    }

    pub(crate) fn decodes_memory(self) -> bool {
        self.0 & COMMAND_MEMORY != 0
    }

    pub(crate) fn is_bus_master(self) -> bool {
        self.0 & COMMAND_MASTER != 0
    }
}

#[derive(Debug)]
pub(crate) struct ConfigSpace {
    bytes: Box<[u8; 4096]>,
    /// Write mask of each byte.
    writable: Box<[u8; 4096]>,
}

impl ConfigSpace {
    pub(crate) fn new(function: &Function) -> Self {
        let mut space = ConfigSpace { bytes: Box::new([0; 4096]), writable: Box::new([0; 4096]) };
        space.put(0x00, &function.vendor.to_le_bytes());
        space.put(0x02, &function.device.to_le_bytes());
        space.put(STATUS, &[1 << 4]); // it has a capability list
        space.put(0x08, &[function.revision]);
        space.put(0x09, &function.class.to_le_bytes()[..3]);
        space.put(0x2c, &function.subsystem_vendor.to_le_bytes());
        space.put(0x2e, &function.subsystem_device.to_le_bytes());
        space.put(CAPABILITIES, &[EXPRESS as u8]);
        // Command: memory space, bus master, interrupt disable. Cache line size and interrupt line are the host's to keep.
        space.allow(COMMAND, &[COMMAND_MEMORY | COMMAND_MASTER, COMMAND_INTX_OFF]);
        space.allow(0x0c, &[0xff]);
        space.allow(0x3c, &[0xff]);
        space.put(INTERRUPT_PIN, &[1]);
        for (index, bytes) in function.bars {
            space.bar(*index, *bytes, function.is_prefetchable);
        }
        space.express();
        space.msix(&function.msix);
        space.put(AER, &0x0002_0001_u32.to_le_bytes());
        space
    }

    /// Resets the function. The status bits of errors are sticky (PCI Express Base 5.0, section 7.4): no reset clears them.
    pub(crate) fn reset(&mut self, function: &Function) {
        let mut space = ConfigSpace::new(function);
        for register in [AER_UNCORRECTABLE, AER_CORRECTABLE] {
            space.put(register, &self.bytes[register..][..4]);
        }
        *self = space;
    }

    /// A 64-bit memory BAR: its type in the low bits, its address bits writable above its size.
    fn bar(&mut self, index: u8, bytes: u64, is_prefetchable: bool) {
        let at = BARS + 4 * usize::from(index);
        self.put(at, &[0b100 | u8::from(is_prefetchable) << 3]);
        self.allow(at, &(!(bytes - 1) & !0xf).to_le_bytes());
    }

    fn express(&mut self) {
        self.put(EXPRESS, &[0x10, MSIX as u8, 0x02, 0x00]);
        // Device capabilities: payload 256 bytes, function level reset; link: 8 GT/s, 16 lanes, and running so.
        self.put(EXPRESS + 4, &(1u32 | 1 << 28).to_le_bytes());
        self.put(EXPRESS + 12, &(3u32 | 16 << 4).to_le_bytes());
        self.put(EXPRESS + 18, &(3u16 | 16 << 4).to_le_bytes());
        self.put(EXPRESS + 44, &(0b1110u32).to_le_bytes());
        // Max_Read_Request_Size: 512 bytes by default (section 7.5.3.4).
        self.put(EXPRESS_DEVICE_CONTROL + 1, &[2 << 4]);
        self.allow(EXPRESS_DEVICE_CONTROL, &[0xff, 0x7f]);
    }

    fn msix(&mut self, msix: &Msix) {
        self.put(MSIX, &[0x11, 0]);
        self.put(MSIX_CONTROL, &(msix.vectors - 1).to_le_bytes());
        self.put(MSIX + 4, &(msix.table | u32::from(msix.bar)).to_le_bytes());
        self.put(MSIX + 8, &(msix.pending | u32::from(msix.bar)).to_le_bytes());
        self.allow(MSIX_CONTROL + 1, &[0b1100_0000]);
    }

    fn put(&mut self, at: usize, value: &[u8]) {
        self.bytes[at..at + value.len()].copy_from_slice(value);
    }

    fn allow(&mut self, at: usize, mask: &[u8]) {
        self.writable[at..at + mask.len()].copy_from_slice(mask);
    }

    /// Reads at `offset`; past the end all bits are one.
    pub(crate) fn read(&self, offset: u16, data: &mut [u8]) {
        for (at, byte) in (usize::from(offset)..).zip(data) {
            *byte = self.bytes.get(at).copied().unwrap_or(0xff);
        }
    }

    /// Writes the writable bits, and returns the side effect.
    pub(crate) fn write(&mut self, offset: u16, data: &[u8]) -> Effect {
        let mut effect = Effect::None;
        for (at, byte) in (usize::from(offset)..).zip(data) {
            let Some(mask) = self.writable.get(at) else { break };
            self.bytes[at] = self.bytes[at] & !mask | byte & mask;
            if is_error_status(at) {
                self.bytes[at] &= !byte;
            }
            if begins_reset(at, *byte) {
                effect = Effect::FunctionReset;
            } else if (at == MSIX_CONTROL + 1 || at == COMMAND + 1) && effect == Effect::None {
                effect = Effect::Interrupts;
            }
        }
        effect
    }

    /// Whether a write begins a function level reset.
    pub(crate) fn resets(offset: u16, data: &[u8]) -> bool {
        (usize::from(offset)..).zip(data).any(|(at, byte)| begins_reset(at, *byte))
    }

    /// Sets the bit of an error that was not corrected.
    pub(crate) fn report(&mut self, error: Uncorrectable) {
        let bit = error as usize;
        self.bytes[AER_UNCORRECTABLE + bit / 8] |= 1 << (bit % 8);
    }

    /// Sets bits of errors: uncorrectable, and corrected ones.
    pub(crate) fn report_all(&mut self, uncorrectable: u32, correctable: u32) {
        for (register, bits) in [(AER_UNCORRECTABLE, uncorrectable), (AER_CORRECTABLE, correctable)] {
            for (byte, new) in self.bytes[register..].iter_mut().zip(bits.to_le_bytes()) {
                *byte |= new;
            }
        }
    }

    /// Returns the most bytes of one write of host memory: Max_Payload_Size of Device Control.
    pub(crate) fn payload_bytes(&self) -> u64 {
        128 << (self.bytes[EXPRESS_DEVICE_CONTROL] >> 5)
    }

    /// Returns the most bytes of one read of host memory: Max_Read_Request_Size of Device Control.
    pub(crate) fn read_request_bytes(&self) -> u64 {
        128 << (self.bytes[EXPRESS_DEVICE_CONTROL + 1] >> 4 & 7)
    }

    pub(crate) fn decodes_memory(&self) -> bool {
        Command(self.bytes[COMMAND]).decodes_memory()
    }

    pub(crate) fn is_bus_master(&self) -> bool {
        Command(self.bytes[COMMAND]).is_bus_master()
    }

    /// Returns whether the INTx line is asserted, given pending vectors, and updates the status register.
    pub(crate) fn asserts_intx(&mut self, pending: bool) -> bool {
        let is_pending = pending && self.bytes[MSIX_CONTROL + 1] & 0b1000_0000 == 0;
        self.bytes[STATUS] = self.bytes[STATUS] & !STATUS_INTERRUPT | if is_pending { STATUS_INTERRUPT } else { 0 };
        is_pending && self.bytes[COMMAND + 1] & COMMAND_INTX_OFF == 0
    }

    /// Returns whether MSI-X is enabled.
    pub(crate) fn has_msix(&self) -> bool {
        self.bytes[MSIX_CONTROL + 1] & 0b1000_0000 != 0
    }

    /// Returns whether MSI-X is enabled and the function not masked.
    pub(crate) fn delivers_interrupts(&self) -> bool {
        self.bytes[MSIX_CONTROL + 1] & 0b1100_0000 == 0b1000_0000
    }
}

/// Whether the byte at `offset` has bits that are cleared by writing ones.
fn is_error_status(offset: usize) -> bool {
    let is_in = |register: usize| (register..register + 4).contains(&offset);
    is_in(AER_UNCORRECTABLE) || is_in(AER_CORRECTABLE)
}

/// Whether a function level reset begins when `byte` is written at `at`.
fn begins_reset(at: usize, byte: u8) -> bool {
    at == EXPRESS_DEVICE_CONTROL + 1 && byte & 0x80 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn u32_at(space: &ConfigSpace, offset: u16) -> u32 {
        let mut word = [0; 4];
        space.read(offset, &mut word);
        u32::from_le_bytes(word)
    }

    #[test]
    fn sizes_its_bars() {
        let mut space = ConfigSpace::new(&fpga_regs::pci::CARD);
        space.write(0x10, &[0xff; 8]);
        assert_eq!(u32_at(&space, 0x10), 0xffff_0004);
        assert_eq!(u32_at(&space, 0x14), 0xffff_ffff);
        space.write(0x18, &[0xff; 4]);
        assert_eq!(u32_at(&space, 0x18), 0);
    }

    #[test]
    fn errors_stay_until_their_bits_are_written() {
        let mut space = ConfigSpace::new(&fpga_regs::pci::CARD);
        space.report(Uncorrectable::CompletionTimeout);
        space.report(Uncorrectable::PoisonedTlp);
        assert_eq!((u32_at(&space, 0x100), u32_at(&space, 0x104)), (0x0002_0001, 0x5000));
        space.write(0x104, &[0, 0x10, 0xff, 0]);
        assert_eq!(u32_at(&space, 0x104), 0x4000);
    }

    #[test]
    fn a_reset_clears_no_error() {
        let mut space = ConfigSpace::new(&fpga_regs::pci::CARD);
        space.report_all(1 << 14, 1 << 6);
        space.write(4, &[6]);
        space.reset(&fpga_regs::pci::CARD);
        assert_eq!([0x104, 0x110, 4].map(|offset| u32_at(&space, offset) & 0xffff), [1 << 14, 1 << 6, 0]);
    }

    #[test]
    fn requests_are_as_large_as_device_control_says() {
        let mut space = ConfigSpace::new(&fpga_regs::pci::CARD);
        assert_eq!((space.payload_bytes(), space.read_request_bytes()), (128, 512));
        space.write(0x48, &[0x30, 0x30]);
        assert_eq!((space.payload_bytes(), space.read_request_bytes()), (256, 1024));
    }

    #[test]
    fn identity_cannot_be_written() {
        let mut space = ConfigSpace::new(&fpga_regs::pci::CARD);
        space.write(0, &[0; 4]);
        assert_eq!(u32_at(&space, 0), 0xf9a0_1234);
        let mut past = [0; 8];
        space.read(4092, &mut past);
        assert_eq!(past[4..], [0xff; 4]);
        assert_eq!(space.write(4094, &[1; 4]), Effect::None);
    }

    #[test]
    fn function_level_reset_is_an_effect_and_reads_as_zero() {
        let mut space = ConfigSpace::new(&fpga_regs::pci::CARD);
        assert_eq!(space.write(0x48, &[0x10, 0x80]), Effect::FunctionReset);
        assert_eq!(u32_at(&space, 0x48) & 0xffff, 0x0010);
    }
}

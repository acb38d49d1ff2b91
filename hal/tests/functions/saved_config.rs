//! Configuration space that is saved, lost and restored.

use std::sync::{Arc, Mutex};

use fpga_hal::endpoint::{BarLayout, DmaFault, DmaPort, DmaTag, InterruptPort, Layout, ResetKind};
use fpga_hal::{BarIndex, Domain, Endpoint, Error, Function, Restored, in_process};

/// A function that has nothing but configuration space. `stuck`: bytes that keep no writes.
struct Bare {
    space: Mutex<[u8; 256]>,
    stuck: Mutex<Vec<u16>>,
}

/// Identity, a list of PCI Express at 0x40 and MSI-X at 0x80.
fn power_up() -> [u8; 256] {
    let mut space = [0; 256];
    space[..8].copy_from_slice(&[0x34, 0x12, 0x01, 0x00, 0, 0, 0x10, 0]);
    space[0x10] = 4;
    (space[0x34], space[0x40], space[0x41], space[0x80]) = (0x40, 0x10, 0x80, 0x11);
    (space[0x48], space[0x82]) = (0x10, 7);
    space
}

impl Endpoint for Bare {
    fn layout(&self) -> Layout {
        let mut bars = [None; BarIndex::COUNT];
        bars[0] = Some(BarLayout { bytes: 4096, is_64_bit: true, prefetchable: false });
        Layout { bars, dma_bits: 64 }
    }

    fn attach(&self, _: Arc<dyn DmaPort>, _: Arc<dyn InterruptPort>) {}

    fn config_read(&self, offset: u16, data: &mut [u8]) {
        let space = self.space.lock().unwrap();
        (usize::from(offset)..).zip(data).for_each(|(at, byte)| *byte = space.get(at).copied().unwrap_or(0));
    }

    fn config_write(&self, offset: u16, data: &[u8]) {
        let stuck = self.stuck.lock().unwrap();
        for (at, byte) in (offset..).zip(data).filter(|(at, _)| !stuck.contains(at)) {
            self.space.lock().unwrap()[usize::from(at)] = *byte;
        }
    }

    fn bar_read(&self, _: BarIndex, _: u64, data: &mut [u8]) {
        data.fill(0);
    }

    fn bar_write(&self, _: BarIndex, _: u64, _: &[u8]) {}

    fn reset(&self, _: ResetKind) {}

    fn dma_complete(&self, _: DmaTag, _: Result<&[u8], DmaFault>) {}
}

fn opened() -> (Arc<Bare>, Function) {
    let bare = Arc::new(Bare { space: Mutex::new(power_up()), stuck: Mutex::default() });
    let function = in_process::attach(Arc::<Bare>::clone(&bare), &Domain::in_process(), "bare").unwrap();
    for (offset, value) in [(0x10, 0xfe00_000c), (0x14, 0x38), (0x80, 0x8007_0011)] {
        function.config_write_u32(offset, value).unwrap();
    }
    function.config_write_u16(0x48, 0x2930).unwrap();
    function.set_bus_master(true).unwrap();
    (bare, function)
}

#[test]
fn what_the_host_has_set_comes_back_and_nothing_else_is_written() {
    let (bare, function) = opened();
    // The kernel drops writes of MSI-X message control.
    bare.stuck.lock().unwrap().extend([0x82, 0x83]);
    let mut before = *bare.space.lock().unwrap();
    let saved = function.save_config().unwrap();
    assert_eq!(function.restore_config(&saved).unwrap(), []);
    *bare.space.lock().unwrap() = power_up();
    let restored = function.restore_config(&saved).unwrap();
    let names: Vec<_> = restored.iter().map(|one| one.name).collect();
    assert_eq!(names, ["BAR0", "BAR1", "Device Control", "Command"]);
    assert_eq!(restored[0], Restored { name: "BAR0", found: 4, value: 0xfe00_000c });
    // Interrupts are the caller's to enable again.
    before[0x83] = 0;
    assert_eq!(*bare.space.lock().unwrap(), before);
    assert_eq!(function.restore_config(&saved).unwrap(), []);
}

#[test]
fn a_register_that_keeps_no_value_is_an_error() {
    let (bare, function) = opened();
    let saved = function.save_config().unwrap();
    *bare.space.lock().unwrap() = power_up();
    bare.stuck.lock().unwrap().extend([0x14, 0x15]);
    let error = function.restore_config(&saved).unwrap_err();
    assert!(matches!(error, Error::NotRestored { register: "BAR1", value: 0x38, found: 0 }), "{error}");
    *bare.space.lock().unwrap() = [0xff; 256];
    assert!(matches!(function.restore_config(&saved), Err(Error::Removed { .. })));
    assert!(matches!(function.save_config(), Err(Error::Removed { .. })));
}

/// Lists that loop or lead into the header end.
#[test]
fn a_broken_list_of_capabilities_ends() {
    for (offset, next, has_express) in [(0x41, 0x40, true), (0x34, 0x10, false), (0x34, 0xfc, false)] {
        let (bare, function) = opened();
        bare.space.lock().unwrap()[offset] = next;
        let saved = function.save_config().unwrap();
        assert_eq!(format!("{saved:?}").contains("Device Control"), has_express, "{offset:#x}");
    }
}

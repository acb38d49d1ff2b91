//! A function's life: open, windows, interrupts, reset, close.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::fake::{Event, Fake, MSIX, REGISTERS, RESETS, TABLE, VECTORS, bar};
use fpga_hal::endpoint::{BarLayout, DmaFault, ResetKind};
use fpga_hal::{BusKind, Domain, Error, ResetOutcome, SharedMemory};

#[test]
fn opening_connects_resets_identifies_and_turns_on_memory() {
    let (fake, domain) = (Fake::new(), Domain::in_process());
    let function = fake.open(&domain, "card 0").unwrap();
    assert_eq!(
        fake.take_events(),
        [Event::Attach, Event::Reset(ResetKind::Function), Event::ConfigWrite(0x04, 0x0002)]
    );
    assert_eq!((function.bus(), function.opening_reset()), (BusKind::InProcess, ResetOutcome::Function));
    assert_eq!(function.identity().to_string(), "card 0 (10ee:5020, class 120000, revision 03)");
    assert!(function.reaches(&domain.allocate(1, 1).unwrap()));
    assert!(function.reaches(&function.private_domain().allocate(1, 1).unwrap()));
    let other = Fake::new().open(&domain, "card 1").unwrap();
    let elsewhere = Domain::in_process().allocate(1, 1).unwrap();
    for buffer in [other.private_domain().allocate(1, 1).unwrap(), elsewhere] {
        assert!(!function.reaches(&buffer));
    }
    assert_eq!(function.bar(bar(0)).unwrap().bytes, REGISTERS);
    assert!(function.bar(bar(3)).is_none());
}

#[test]
fn the_last_holder_closes_in_order() {
    let (fake, domain) = (Fake::new(), Domain::in_process());
    let buffer = domain.allocate(4096, 1).unwrap();
    let function = fake.open(&domain, "card").unwrap();
    let window = function.window(bar(0)).unwrap().slice(16, 16).unwrap();
    function.set_bus_master(true).unwrap();
    let _interrupts = function.enable_interrupts(1).unwrap();
    let other = function.clone();
    assert_eq!(fake.command(), 0x6);
    assert_eq!(fake.msix_control(), 0x8000 | (VECTORS - 1));
    fake.take_events();

    drop(function);
    drop(other);
    assert_eq!(fake.take_events(), [], "a window keeps the function open");
    assert_eq!(domain.narrowest(), Some(("card".to_owned(), 64)));
    assert_eq!(fake.dma_write(buffer.iova().0, b"still there"), Ok(()));

    drop(window);
    assert_eq!(
        fake.take_events(),
        [
            Event::ConfigWrite(MSIX + 2, u32::from(VECTORS - 1)),
            Event::ConfigWrite(0x04, 0x0002),
            Event::ConfigWrite(0x04, 0x0000),
            Event::Reset(ResetKind::Function),
        ]
    );
    assert_eq!(domain.narrowest(), None);
    assert_eq!(fake.dma_write(buffer.iova().0, b"too late"), Err(DmaFault::HostGone));
    let mut data = [0; 11];
    buffer.read(0, &mut data).unwrap();
    assert_eq!(&data, b"still there");
}

#[test]
fn one_function_and_one_driver_at_a_time_have_an_endpoint() {
    let (fake, domain) = (Fake::new(), Domain::in_process());
    let function = fake.open(&domain, "card").unwrap();
    fake.take_events();
    for domain in [&domain, &Domain::in_process()] {
        assert!(matches!(fake.open(domain, "again").unwrap_err(), Error::InUse { name } if name == "again"));
    }
    assert_eq!(fake.take_events(), [], "the first keeps its ports");
    let claim = function.claim().unwrap();
    assert!(matches!(function.clone().claim().unwrap_err(), Error::InUse { name } if name == "card"));
    drop(function);
    assert!(matches!(fake.open(&domain, "again").unwrap_err(), Error::InUse { .. }), "the claim keeps it open");
    drop(claim);
    let function = fake.open(&domain, "again").unwrap();
    drop(function.claim().unwrap());
    drop(function.claim().unwrap());
}

#[test]
fn what_is_no_endpoint_is_not_opened() {
    let domain = Domain::in_process();
    let absent = Fake::with(64, |fake| *fake.gone.get_mut() = true);
    assert!(matches!(absent.open(&domain, "absent"), Err(Error::Removed { .. })));
    let bridge = Fake::with(64, |fake| fake.config.get_mut().unwrap()[0x0e] = 0x81);
    assert!(matches!(bridge.open(&domain, "bridge"), Err(Error::HeaderType { header_type: 1 })));
    let many = Fake::with(64, |fake| fake.config.get_mut().unwrap()[0x0e] = 0x80);
    assert!(many.open(&domain, "one of many").is_ok());
    // Whatever failed has left nothing behind.
    assert_eq!(domain.narrowest(), None);
    assert_eq!(absent.dma_read(0x1000, &mut [0]), Err(DmaFault::HostGone));
    assert_eq!(bridge.take_events().last(), Some(&Event::Reset(ResetKind::Function)));
}

#[test]
fn impossible_layouts_are_refused() {
    let domain = Domain::in_process();
    let plain = BarLayout { bytes: 16, is_64_bit: false, prefetchable: false };
    for (at, layout) in [
        (0, BarLayout { bytes: 8, ..plain }),
        (0, BarLayout { bytes: 48, ..plain }),
        (0, BarLayout { bytes: 1 << 32, ..plain }),
        (1, BarLayout { is_64_bit: true, ..plain }),
        (5, BarLayout { is_64_bit: true, ..plain }),
    ] {
        let fake = Fake::with(64, |fake| fake.layout.get_mut().unwrap().bars[at] = Some(layout));
        assert!(matches!(fake.open(&domain, "card"), Err(Error::Layout { .. })), "{at}: {layout:?}");
        assert_eq!(fake.take_events(), []);
    }
    for dma_bits in [0, 65] {
        assert!(matches!(Fake::with(dma_bits, |_| {}).open(&domain, "card"), Err(Error::Layout { .. })));
    }
    let short = Fake::with(64, |fake| fake.memory = Some(Arc::new(SharedMemory::new("short", 4096).unwrap())));
    let function = short.open(&domain, "card").unwrap();
    assert!(matches!(function.window(bar(2)), Err(Error::Layout { .. })));
}

#[test]
fn trapped_windows_reach_the_endpoint_at_the_width_named() {
    let fake = Fake::new();
    let function = fake.open(&Domain::in_process(), "card").unwrap();
    let window = function.window(bar(0)).unwrap();
    assert!(!window.is_mapped());
    assert_eq!(window.len(), REGISTERS);
    fake.take_events();
    window.write_u32(4, 0x0403_0201).unwrap();
    window.write_u64(8, 0x0c0b_0a09_0807_0605).unwrap();
    let part = window.slice(4, 12).unwrap();
    assert_eq!(part.read_u32(0).unwrap(), 0x0403_0201);
    assert_eq!(part.read_u64(4).unwrap(), 0x0c0b_0a09_0807_0605);
    assert_eq!(
        fake.take_events(),
        [
            Event::BarWrite(4, 0x0403_0201),
            Event::BarWrite(8, 0x0c0b_0a09_0807_0605),
            Event::BarRead(4, 4),
            Event::BarRead(8, 8),
        ]
    );
    assert_eq!(fake.registers.lock().unwrap()[4..8], [1, 2, 3, 4]);
    assert!(matches!(function.window(bar(1)), Err(Error::NoBar { bar }) if bar.index() == 1));
}

#[test]
fn mapped_windows_are_memory_and_no_call() {
    let fake = Fake::new();
    let function = fake.open(&Domain::in_process(), "card").unwrap();
    let window = function.window(bar(2)).unwrap();
    assert!(window.is_mapped());
    fake.take_events();
    window.write_u32(0xfffc, 0x0403_0201).unwrap();
    window.slice(0x8000, 16).unwrap().write_u64(8, 7).unwrap();
    let memory = fake.memory.as_ref().unwrap();
    let mut data = [0; 4];
    memory.read(0xfffc, &mut data).unwrap();
    assert_eq!(data, [1, 2, 3, 4]);
    memory.write(0x8004, &[9, 0, 0, 0]).unwrap();
    assert_eq!(window.read_u32(0x8004).unwrap(), 9);
    assert_eq!(window.read_u64(0x8008).unwrap(), 7);
    assert_eq!(fake.take_events(), []);
    // The memory outlives the function for as long as the window does.
    drop(function);
    assert_eq!(window.read_u32(0x8004).unwrap(), 9);
}

#[test]
fn windows_refuse_what_is_outside_or_not_aligned() {
    let fake = Fake::new();
    let function = fake.open(&Domain::in_process(), "card").unwrap();
    for window in [function.window(bar(0)).unwrap(), function.window(bar(2)).unwrap()] {
        let len = window.len();
        let part = window.slice(len - 12, 12).unwrap();
        fake.take_events();
        for offset in [len - 3, len, u64::MAX, u64::MAX - 3] {
            assert!(matches!(window.read_u32(offset), Err(Error::OutOfBounds { offset: at, bytes: 4, len: l, .. })
                    if (at, l) == (offset, len)));
            assert!(matches!(window.write_u64(offset, 0), Err(Error::OutOfBounds { bytes: 8, .. })));
        }
        assert!(matches!(window.read_u32(2), Err(Error::Misaligned { offset: 2, bytes: 4, .. })));
        assert!(matches!(window.write_u64(4, 0), Err(Error::Misaligned { offset: 4, bytes: 8, .. })));
        assert!(part.read_u32(8).is_ok());
        assert!(part.read_u32(12).is_err());
        // Aligned in the part, but not in the BAR.
        assert!(matches!(part.read_u64(0), Err(Error::Misaligned { .. })));
        assert!(part.read_u64(4).is_ok());
        for (offset, bytes) in [(0, len + 1), (len, 1), (u64::MAX, 2), (2, u64::MAX)] {
            assert!(matches!(window.slice(offset, bytes), Err(Error::OutOfBounds { .. })));
        }
        assert!(part.slice(12, 0).unwrap().is_empty());
        assert!(fake.take_events().len() <= 2, "refused accesses reach nobody");
    }
}

#[test]
fn configuration_space_is_bounded_and_aligned() {
    let fake = Fake::new();
    let function = fake.open(&Domain::in_process(), "card").unwrap();
    assert_eq!(function.config_read_u8(0x34).unwrap(), 0x40);
    assert_eq!(function.config_read_u16(0x02).unwrap(), 0x5020);
    assert_eq!(function.config_read_u32(0x00).unwrap(), 0x5020_10ee);
    assert_eq!(function.config_read_u32(4092).unwrap(), 0);
    for offset in [1, 2, 4093, 4096, u16::MAX, u16::MAX - 3] {
        assert!(matches!(function.config_read_u32(offset), Err(Error::ConfigAccess { width: 4, .. })), "{offset}");
        assert!(function.config_write_u32(offset, 0).is_err());
    }
    assert!(function.config_read_u16(4095).is_err());
    assert!(function.config_write_u16(1, 0).is_err());
    assert!(function.config_read_u8(4096).is_err());
    // However the command register is written, the bus knows.
    let buffer = function.domain().allocate(64, 1).unwrap();
    function.config_write_u32(0x04, 0x6).unwrap();
    assert_eq!(fake.dma_write(buffer.iova().0, &[1]), Ok(()));
    function.config_write_u16(0x04, 0x2).unwrap();
    assert_eq!(fake.dma_write(buffer.iova().0, &[1]), Err(DmaFault::NotMaster));
    function.set_bus_master(true).unwrap();
    function.config_write_u16(RESETS, 0).unwrap();
    assert_eq!(fake.dma_write(buffer.iova().0, &[1]), Err(DmaFault::NotMaster), "the function has reset itself");
}

#[test]
fn interrupts_are_set_up_as_the_kernel_does() {
    let fake = Fake::new();
    let function = fake.open(&Domain::in_process(), "card").unwrap();
    fake.take_events();
    let interrupts = function.enable_interrupts(3).unwrap();
    assert_eq!(interrupts.len(), 3);
    let events = fake.take_events();
    assert_eq!(events.first(), Some(&Event::ConfigWrite(MSIX + 2, 0xc003)), "on, all masked");
    assert_eq!(events.last(), Some(&Event::ConfigWrite(MSIX + 2, 0x8003)), "on");
    for vector in 0..VECTORS {
        let (address, data, control) = fake.table_entry(vector);
        assert_eq!(control, u32::from(vector >= 3), "vector {vector}");
        assert_eq!((address != 0, data != 0), (vector < 3, vector < 3), "vector {vector}");
    }

    // An interrupt is a write of the function's.
    fake.raise(1);
    assert!(!interrupts[1].wait(Duration::ZERO).unwrap());
    function.set_bus_master(true).unwrap();
    fake.raise(1);
    fake.raise(1);
    fake.raise(3);
    fake.raise(u16::MAX);
    assert_eq!(interrupts[0].drain().unwrap(), 0);
    assert_eq!(interrupts[1].drain().unwrap(), 2);
    assert_eq!(interrupts[2].drain().unwrap(), 0);

    // Enabling again begins anew.
    let again = function.enable_interrupts(1).unwrap();
    fake.raise(0);
    assert!(!interrupts[0].wait(Duration::ZERO).unwrap());
    assert!(again[0].wait(Duration::ZERO).unwrap());
    assert_eq!(fake.table_entry(1).2, 1);
}

#[test]
fn interrupts_that_cannot_be_had_are_refused() {
    let domain = Domain::in_process();
    let open = |change: &dyn Fn(&mut Vec<u8>)| {
        let fake = Fake::with(64, |fake| change(fake.config.get_mut().unwrap()));
        let function = fake.open(&domain, "card").unwrap();
        let result = function.enable_interrupts(2);
        assert_eq!(fake.msix_control() & 0x8000, 0);
        result
    };
    assert!(matches!(open(&|config| config[0x06] = 0), Err(Error::NoInterrupts { kind: None })));
    assert!(matches!(open(&|config| config[0x34] = 0), Err(Error::NoInterrupts { kind: None })));
    assert!(matches!(open(&|config| config[0x41] = 0), Err(Error::NoInterrupts { kind: None })));
    assert!(matches!(open(&|config| config[0x41] = 0x40), Err(Error::CapabilityList { .. })));
    assert!(matches!(open(&|config| config[0x34..0x100].fill(0xff)), Err(Error::CapabilityList { .. })));
    assert!(matches!(open(&|config| config[0x54] = 7), Err(Error::MsixTable { bar: 7, vectors: VECTORS, .. })));
    assert!(matches!(open(&|config| config[0x54] = 1), Err(Error::MsixTable { bar: 1, .. })));
    assert!(matches!(open(&|config| config[0x55] = 0x10), Err(Error::MsixTable { bar: 0, offset: 0x1000, .. })));
    assert!(matches!(open(&|config| config[0x52] = 0), Err(Error::VectorCount { asked: 2, available: 1 })));
    // Its last bytes would lie in the extended space.
    let at_the_end = |config: &mut Vec<u8>| {
        config[0x41] = 0xfc;
        config[0xfc..0x100].copy_from_slice(&[0x11, 0, 3, 0]);
    };
    assert!(matches!(open(&at_the_end), Err(Error::CapabilityList { offset: 0xfc })));

    let function = Fake::new().open(&domain, "card").unwrap();
    for asked in [0, VECTORS + 1, u16::MAX] {
        let refused = function.enable_interrupts(asked);
        assert!(matches!(refused, Err(Error::VectorCount { available: VECTORS, asked: a }) if a == asked));
    }
    assert!(function.enable_interrupts(VECTORS).is_ok());
}

#[test]
fn the_table_may_lie_in_mapped_memory() {
    let fake = Fake::with(64, |fake| fake.config.get_mut().unwrap()[0x54] = 2);
    let function = fake.open(&Domain::in_process(), "card").unwrap();
    function.set_bus_master(true).unwrap();
    let interrupts = function.enable_interrupts(1).unwrap();
    let mut control = [9; 4];
    fake.memory.as_ref().unwrap().read(TABLE + 12, &mut control).unwrap();
    assert_eq!(control, [0; 4]);
    fake.raise(0);
    assert!(interrupts[0].wait(Duration::ZERO).unwrap());
}

#[test]
fn reset_leaves_memory_on_and_the_rest_off() {
    let fake = Fake::new();
    let function = fake.open(&Domain::in_process(), "card").unwrap();
    function.set_bus_master(true).unwrap();
    let interrupts = function.enable_interrupts(1).unwrap();
    let buffer = function.domain().allocate(64, 1).unwrap();
    fake.take_events();
    assert_eq!(function.reset().unwrap(), ResetOutcome::Function);
    assert_eq!(fake.take_events(), [Event::Reset(ResetKind::Function), Event::ConfigWrite(0x04, 0x0002)]);
    assert_eq!(fake.dma_write(buffer.iova().0, &[1]), Err(DmaFault::NotMaster));
    function.set_bus_master(true).unwrap();
    assert_eq!(fake.dma_write(buffer.iova().0, &[1]), Ok(()));
    fake.raise(0);
    assert!(!interrupts[0].wait(Duration::ZERO).unwrap(), "interrupts must be enabled again");
    let interrupts = function.enable_interrupts(1).unwrap();
    fake.raise(0);
    assert!(interrupts[0].wait(Duration::ZERO).unwrap());
}

#[test]
fn a_function_that_is_gone_is_noticed() {
    let fake = Fake::new();
    let function = fake.open(&Domain::in_process(), "card").unwrap();
    let window = function.window(bar(0)).unwrap();
    window.write_u32(0, u32::MAX).unwrap();
    assert!(!function.is_removed());
    let value = window.read_u32(0).unwrap();
    assert_eq!(function.check_alive(value).unwrap(), u32::MAX, "a register may well be all-ones");

    fake.gone.store(true, Ordering::Relaxed);
    assert!(function.is_removed());
    assert_eq!(window.read_u64(8).unwrap(), u64::MAX);
    assert_eq!(function.check_alive(0).unwrap(), 0);
    let value = window.read_u32(0).unwrap();
    assert!(matches!(function.check_alive(value), Err(Error::Removed { .. })));
    // What is written is lost, wherever.
    window.write_u32(0, 1).unwrap();
    function.config_write_u16(4, 6).unwrap();
    assert_eq!(function.config_read_u16(4).unwrap(), u16::MAX);
    assert!(matches!(function.set_bus_master(true), Err(Error::Removed { .. })));
    assert!(matches!(function.enable_interrupts(1), Err(Error::Removed { .. })));
    assert!(matches!(function.reset(), Err(Error::Removed { .. })));
}

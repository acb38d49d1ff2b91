//! Any bytes as configuration space, and any text as files of sysfs: every walk ends, every parser returns a value or none.
#![no_main]

use fpga_hal::config::Space;
use fpga_hal::sysfs::parsers;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some(space) = Space::new(data.to_vec()) {
        let (short, long) = (space.capabilities(), space.extended_capabilities());
        assert!(short.found.len() <= 48 && long.found.len() <= 960);
        for one in short.found.iter().chain(&long.found) {
            assert!(usize::from(one.offset) < space.len());
        }
        let _ = (space.header(), space.express(), space.aer());
        if let Some(msix) = space.msix() {
            assert!((1..=2048).contains(&msix.vectors));
        }
        assert!(space.vendor_specific().len() <= 48 + 960);
    }
    if let Ok(text) = std::str::from_utf8(data) {
        for bar in parsers::bars(text).unwrap_or_default() {
            assert!(bar.bytes > 0);
        }
        let counters = parsers::aer_counters(text).unwrap_or_default();
        assert!(counters.len() <= 64);
        if let Some(Some(width)) = parsers::link_width(text) {
            assert!((1..=32).contains(&width));
        }
        let _ = (parsers::link_speed(text), parsers::limit(text, "Max locked memory"), parsers::process_ids(text, "Uid:"));
        for digits in [2, 4, 6, 16] {
            if let Some(value) = parsers::hex(text, digits) {
                assert!(digits == 16 || value < 1 << (4 * digits));
            }
        }
    }
});

//! Any text is parsed as a selector or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = fpga_select::Selector::parse(text);
});

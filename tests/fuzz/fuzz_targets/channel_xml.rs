//! Any bytes are a channel definition, which prints and reads the same, or an error at a place in the file.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match fpga_channels::parse(bytes) {
        Ok(read) => assert_eq!(fpga_channels::parse(read.to_string().as_bytes()), Ok(read)),
        Err(error) => assert!(error.line as usize <= bytes.split(|byte| *byte == b'\n').count() && error.column > 0),
    }
});

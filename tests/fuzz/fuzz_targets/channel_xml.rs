//! Any bytes are a channel definition, which prints and reads the same, or an error at a place in the file. Code for the
//! definition has no part of a template that is not filled, or it is refused with the name of a channel.
#![no_main]

use fpga_channels::{Channel, Part, generate, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match parse(bytes) {
        Ok(read) => {
            match generate(&read, "app", &Part::ALL, &[]) {
                Ok(files) => assert!(files.len() == 4 && files.iter().all(|file| !file.text.contains('@'))),
                Err(refusal) => {
                    let text = refusal.to_string();
                    let is_named = |one: &Channel| text.contains(&one.writer.name) || text.contains(&one.reader.name);
                    assert!(read.channels().iter().any(is_named), "{text}");
                }
            }
            assert_eq!(parse(read.to_string().as_bytes()), Ok(read));
        }
        Err(error) => assert!(error.line as usize <= bytes.split(|byte| *byte == b'\n').count() && error.column > 0),
    }
});

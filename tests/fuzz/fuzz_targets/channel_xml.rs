//! Any bytes are a channel definition, which prints and reads the same, or an error at a place in the file. Code for the
//! definition has no part of a template that is not filled, or it is refused with the name of a channel.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match fpga_channels::parse(bytes) {
        Ok(read) => {
            match fpga_channels::generate(&read, "app", &fpga_channels::Part::ALL, &[]) {
                Ok(files) => assert!(files.len() == 4 && files.iter().all(|file| !file.text.contains('@'))),
                Err(refusal) => assert!(read.channels().iter().any(|one| refusal.to_string().contains(&one.writer.name)
                    || refusal.to_string().contains(&one.reader.name))),
            }
            assert_eq!(fpga_channels::parse(read.to_string().as_bytes()), Ok(read));
        }
        Err(error) => assert!(error.line as usize <= bytes.split(|byte| *byte == b'\n').count() && error.column > 0),
    }
});

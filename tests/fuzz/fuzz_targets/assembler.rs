//! Any text is assembled or refused, within the limits; assembled programs survive conversion to text and to a file. Any bytes
//! are read as a program file or refused, with any checksum.
#![no_main]

use cmdseq::asm::{Assembly, Limits, Options, assemble, decode, disassemble, encode, lint};
use libfuzzer_sys::fuzz_target;

/// Small enough that no input takes long.
fn options(only: Option<u32>) -> Options {
    let limits = Limits {
        source_bytes: 1 << 18,
        files: 8,
        include_depth: 4,
        instructions: 1 << 10,
        all_instructions: 1 << 12,
        steps: 1 << 14,
        values: 1 << 18,
        buffers: 1 << 12,
        entries: 1 << 14,
        errors: 20,
        warnings: 20,
    };
    Options { ranks: Some(3), only, limits, raw_host: true }
}

fn again(assembly: &Assembly) {
    assert_eq!(assembly.check(), Ok(()));
    let text = disassemble(assembly);
    let mut nothing = |_: &str| Err("there are none".to_owned());
    let only = match assembly.programs.as_slice() {
        [one] if assembly.ranks > 1 => Some(one.rank),
        all if all.len() == assembly.ranks as usize => None,
        // Some ranks of many are no source's output.
        _ => return,
    };
    let options = Options { ranks: Some(assembly.ranks), only, raw_host: true, ..Options::default() };
    let assembled = assemble("again.seq", &text, &mut nothing, &options);
    assert_eq!(&assembled.unwrap_or_else(|errors| panic!("{errors}")).assembly, assembly);
}

fuzz_target!(|data: &[u8]| {
    let mut sealed = data.to_vec();
    if sealed.len() >= 32 {
        let length = sealed.len() as u64;
        sealed[..12].copy_from_slice(b"FPGASEQ\0\x01\0\x40\0");
        sealed[20..28].copy_from_slice(&length.to_le_bytes());
        // The words' own checksums stay the input's to find.
        let sum = crc32c::crc32c_append(crc32c::crc32c(&sealed[..28]), &sealed[32..]);
        sealed[28..32].copy_from_slice(&sum.to_le_bytes());
        if let Ok(assembly) = decode(&sealed) {
            assert_eq!(encode(&assembly), sealed);
            if assembly.ranks <= 16 {
                again(&assembly);
            }
        }
    }
    let _ = decode(data);
    let Ok(text) = std::str::from_utf8(data) else { return };
    // An included file is what stands behind the first zero.
    let (text, included) = text.split_once('\0').unwrap_or((text, ""));
    let mut read = |path: &str| match path.contains('x') {
        true => Err("there is no such file".to_owned()),
        false => Ok(included.to_owned()),
    };
    for only in [None, Some(1)] {
        if let Ok(assembled) = assemble("main.seq", text, &mut read, &options(only)) {
            again(&assembled.assembly);
        }
    }
    match lint("main.seq", text, &mut read, &options(None)) {
        Ok(found) => found.warnings.iter().for_each(|warning| drop(warning.diagnostic.to_string())),
        Err(errors) => assert!(!errors.to_string().is_empty()),
    }
});

//! Any 64 bytes decode to an instruction that encodes to the same bytes, or to an error; any 32 bytes are a completion.
#![no_main]

use cmdseq::{Completion, Instruction, instruction};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some(word) = data.first_chunk::<64>() {
        let mut sealed = *word;
        instruction::seal(&mut sealed);
        for word in [word, &sealed] {
            if let Ok(instruction) = Instruction::decode(word) {
                assert_eq!(&instruction.encode(), word);
            }
        }
    }
    if let Some(word) = data.first_chunk::<32>() {
        let completion = Completion::decode(word);
        assert_eq!(Completion::decode(&completion.encode()), completion);
    }
});

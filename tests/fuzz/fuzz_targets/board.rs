//! Any text is read as a board file or refused at one of its lines; what is read is inside of its BARs, and apart.
#![no_main]

use fpga_driver::board::{Board, built_in};
use libfuzzer_sys::fuzz_target;

/// A good file, of which inputs replace a part.
const GOOD: &str = include_str!("../../../driver/boards/alveo-xdma.toml");

fuzz_target!(|data: &[u8]| {
    let text = match data {
        [mode, at, removed, inserted @ ..] if mode & 1 != 0 => {
            let at = usize::from(*at) * GOOD.len() / 256;
            let end = (at + usize::from(*removed)).min(GOOD.len());
            let inserted = String::from_utf8_lossy(inserted);
            GOOD[..at].to_owned() + &inserted + &GOOD[end..]
        }
        _ => String::from_utf8_lossy(data).into_owned(),
    };
    assert_eq!(built_in().len(), 6);
    let board = match Board::parse("x.toml", &text) {
        Ok(board) => board,
        Err(error) => {
            assert!((1..=text.lines().count().max(1) + 1).contains(&error.line), "{error}");
            return;
        }
    };
    for of in &board.functions {
        for (place, block) in of.blocks.iter().enumerate() {
            let bytes = of.bars.iter().find(|(bar, _)| *bar == block.bar).map_or(0, |(_, bytes)| *bytes);
            assert!(block.bytes > 0 && block.offset + block.bytes <= bytes);
            for other in &of.blocks[..place] {
                let end = |one: &fpga_driver::board::Block| one.offset + one.bytes;
                assert!(other.bar != block.bar || end(other) <= block.offset || end(block) <= other.offset);
            }
        }
    }
});

//! Board files: those of this project are right for the mocks, every mistake is refused at its line, and cards are opened as a file says.

use std::time::Duration;

use cmdseq::Instruction;
use fpga_driver::board::{self, Basis, BlockKind, Board, Ids, Role, built_in};
use fpga_driver::{Card, Error, Feed};
use fpga_hal::{Domain, Function, in_process};
use fpga_mock::dfl::D5005;
use fpga_mock::xdma::{Shape, XdmaCards};
use fpga_mock::{Fabric, Profile, Shell};
use proptest::prelude::*;

const PATIENCE: Duration = Duration::from_secs(60);

fn fabric(shell: Shell) -> Fabric {
    Fabric::new(Profile { shell, ..Profile::optweb(2) }).unwrap()
}

fn attach(endpoint: std::sync::Arc<dyn fpga_hal::Endpoint>) -> Function {
    in_process::attach(endpoint, &Domain::in_process(), "card").unwrap()
}

fn alveo() -> Function {
    attach(XdmaCards::before(&fabric(Shell::AlveoXdma), Shape::default()).endpoint(0))
}

#[test]
fn each_mock_has_the_board_file_of_its_card() {
    let [ofs, pac] = [Shell::S10Dfl, Shell::S10Pac].map(|shell| D5005::new(&fabric(shell), 0));
    for (function, name, role) in [
        (alveo(), "alveo-xdma", Role::Card),
        (attach(ofs.control()), "s10-dfl", Role::Control),
        (attach(ofs.accelerator()), "s10-dfl", Role::Card),
        (attach(pac.accelerator()), "s10-pac", Role::Card),
        (attach(fabric(Shell::Mock).endpoint(0)), "mock", Role::Card),
    ] {
        let found = board::of(&function).unwrap();
        assert_eq!((&*found.board, found.role), (name, role));
    }
}

/// Typed by hand from docs/boards.md.
#[test]
fn the_blocks_of_an_alveo_card_are_where_its_map_says() {
    let found = board::of(&alveo()).unwrap();
    let places: Vec<(BlockKind, usize, u64, u64)> =
        found.blocks.iter().map(|block| (block.kind, block.bar.index(), block.offset, block.bytes)).collect();
    assert_eq!(
        places,
        [
            (BlockKind::FeatureList, 0, 0, 24),
            (BlockKind::Hwicap, 0, 0x1_0000, 0x120),
            (BlockKind::Decoupler, 0, 0x2_0000, 0x40),
            (BlockKind::Cms, 0, 0x8_0000, 0x4_0000),
        ]
    );
    assert!(found.blocks.iter().all(|block| block.basis == Basis::Choice && !block.source.is_empty()));
}

#[test]
fn every_block_of_this_projects_files_has_its_basis_and_one_file_is_for_any_function() {
    assert!(
        built_in().iter().all(|board| board
            .functions
            .iter()
            .flat_map(|of| &of.blocks)
            .all(|block| !block.source.is_empty()))
    );
    let any: Vec<&str> = built_in()
        .iter()
        .filter(|board| board.functions.iter().any(|of| of.ids == Ids::Any))
        .map(|board| board.name.as_str())
        .collect();
    assert_eq!(any, ["any"]);
    let unnamed = built_in().iter().find(|board| board.name == "bittware-520n").unwrap();
    assert_eq!(unnamed.functions[0].ids, Ids::These(Vec::new()));
    assert!(unnamed.functions[0].blocks.iter().all(|block| block.basis == Basis::Unverified));
}

const TEXT: &str = "name = \"lab\"
about = \"a card of a laboratory\"

[[function]]
role = \"card\"
ids = [\"10ee:903f\"]
bars = [{ bar = 0, bytes = 0x100000 }, { bar = 2, bytes = 0x10000 }]
feed = \"card-ring\"

[[function.block]]
kind = \"sequencer\"
bar = 0
offset = 0x1000
basis = \"choice\"
source = \"lab\"

[[function.block]]
kind = \"ring-memory\"
bar = 0
offset = 0x4000
bytes = 0xc000
sequencer = 0x200000000
engine = 0x10000000000
interrupt = 0
basis = \"choice\"
source = \"lab\"
";

fn changed(from: &str, to: &str) -> String {
    assert!(TEXT.contains(from), "{from}");
    TEXT.replacen(from, to, 1)
}

#[test]
fn every_mistake_is_refused_at_its_line() {
    Board::parse("lab.toml", TEXT).unwrap();
    for (text, line, why) in [
        (changed("name = \"lab\"", "name = \"Lab 1\""), 1, "invalid name \"Lab 1\""),
        (changed("about", "title"), 2, "unknown field `title`"),
        (changed("role = \"card\"", "role = \"data\""), 5, "unknown variant `data`"),
        (changed("role = \"card\"", "role = \"control\""), 8, "only a function of role card is fed"),
        (changed("10ee:903f", "10ee-903f"), 6, "invalid id \"10ee-903f\""),
        (changed("10ee:903f", "+0ee:903f"), 6, "invalid id"),
        (changed("\"10ee:903f\"", "\"any\", \"10ee:903f\""), 6, "invalid id \"any\""),
        (changed("bar = 2", "bar = 0"), 7, "BAR0 is there twice"),
        (changed("bar = 2", "bar = 6"), 7, "BAR 6: expected 0 to 5"),
        (changed("0x10000 }", "0x10001 }"), 7, "BAR2 has 65537 bytes: expected a power of two"),
        (
            changed("feed = \"card-ring\"", "feed = \"host-ring\""),
            8,
            "wrong feed: a host ring has no block ring-memory",
        ),
        (changed("feed = \"card-ring\"", "feed = \"mailbox\""), 8, "unknown variant `mailbox`"),
        (changed("engine = 0x10000000000\n", ""), 8, "wrong feed: a card ring needs the key engine"),
        (changed("kind = \"sequencer\"", "kind = \"ring-memory\""), 10, "keys bytes and sequencer are missing"),
        (changed("kind = \"ring-memory\"", "kind = \"cms\""), 17, "keys of ring-memory"),
        (changed("bar = 0\noffset = 0x1000", "bar = 0\nengine = 0\noffset = 0x1000"), 10, "keys of ring-memory"),
        (changed("bar = 0\noffset = 0x1000", "bar = 0\ninterrupt = 0\noffset = 0x1000"), 10, "keys of ring-memory"),
        (changed("0x10000 }", "8 }"), 7, "BAR2 has 8 bytes: expected a power of two from 16"),
        (format!("{TEXT}#{}", "#".repeat(Board::BYTES_MAX - TEXT.len())), 1, "expected at most"),
        (changed("bar = 0\noffset = 0x1000", "bar = 4\noffset = 0x1000"), 10, "the function has no BAR4"),
        (changed("offset = 0x1000", "offset = 0x1004"), 10, "expected a multiple of 8"),
        (
            changed("offset = 0x1000", "offset = 0xff800"),
            10,
            "0x1000 bytes at 0xff800 of BAR0, which has 0x100000 bytes",
        ),
        (changed("offset = 0x1000", "offset = 0x3008"), 17, "where block sequencer is, with 0x1000 bytes at 0x3008"),
        (changed("offset = 0x1000", "offset = -8"), 13, "expected u64"),
        (changed("offset = 0x4000", "offset = 0x4020"), 17, "expected a multiple of 64"),
        (changed("bytes = 0xc000", "bytes = 0x7fffffffffffffff"), 17, "of BAR0, which has 0x100000 bytes"),
        (changed("bytes = 0xc000", "bytes = 0"), 17, "0x0 bytes at 0x4000"),
        (changed("sequencer = 0x200000000", "sequencer = 0x200000020"), 17, "address 0x200000020"),
        (changed("interrupt = 0", "interrupt = 16"), 17, "expected 0 to 15"),
        (changed("basis = \"choice\"", "basis = \"sure\""), 14, "unknown variant `sure`"),
        (changed("source = \"lab\"\n", ""), 10, "missing field `source`"),
        (changed("bytes = 0xc000", "bytes = 0xc000\nbytes = 1"), 22, "duplicate key"),
        (format!("{TEXT}\n[extra]\n"), 28, "unknown field `extra`"),
        ("name = \"lab\"\nabout = \"\"\nfunction = []".to_owned(), 1, "expected at least one [[function]]"),
        (String::new(), 1, "missing field `name`"),
    ] {
        let error = Board::parse("lab.toml", &text).unwrap_err();
        assert!(error.what.contains(why), "{why}: {error}");
        assert_eq!((error.file.as_str(), error.line), ("lab.toml", line), "{error}");
    }
    let twice = TEXT.to_owned() + &TEXT[TEXT.find("[[function.block]]").unwrap()..];
    let error = Board::parse("lab.toml", &twice).unwrap_err();
    assert!(error.what.contains("a second block sequencer"), "{error}");
}

#[test]
fn the_smallest_bar_blocks_that_touch_and_the_longest_file_are_accepted() {
    let longest = format!("{TEXT}{}", "#".repeat(Board::BYTES_MAX - TEXT.len()));
    // The sequencer has 0x1000 bytes, and the rings are at 0x4000 to 0x10000.
    let touching = |offset: &str| changed("offset = 0x1000", &format!("offset = {offset}"));
    for text in [changed("0x10000 }", "16 }"), touching("0x3000"), touching("0x10000"), longest] {
        Board::parse("lab.toml", &text).unwrap();
    }
}

/// The sequencer and its rings are where the file says, without a feature list.
#[test]
fn a_card_is_opened_as_its_board_file_says() {
    let open = |text: &str| {
        let board = Board::parse("lab.toml", text).unwrap();
        Card::open_on_board(alveo(), &board.functions[0])
    };
    let mut card = open(TEXT).unwrap();
    assert_eq!(card.feed(), Feed::CardRing);
    card.run([Instruction::nop(); 300], PATIENCE).unwrap();
    card.write_memory(7, b"by the engine").unwrap();
    let mut back = [0; 13];
    card.read_memory(7, &mut back).unwrap();
    assert_eq!(&back, b"by the engine");
    let mut card = open(&changed("feed = \"card-ring\"", "feed = \"registers\"")).unwrap();
    assert_eq!(card.feed(), Feed::Registers);
    card.run([Instruction::nop(); 300], PATIENCE).unwrap();
    card.reset().unwrap();
    card.run([Instruction::nop(); 3], PATIENCE).unwrap();
    // What is in the wrong place does not look like a sequencer.
    let moved = open(&changed("offset = 0x1000", "offset = 0x2000")).unwrap_err();
    assert!(matches!(moved, Error::NoSequencer { .. }), "{moved}");
    // This sequencer does not announce what the file demands.
    let from = TEXT.find("\n[[function.block]]\nkind = \"ring").unwrap();
    let host = open(&TEXT[..from].replace("card-ring", "host-ring")).unwrap_err();
    assert!(matches!(host, Error::BadCapability { register: "FEATURES", .. }), "{host}");
    assert!(host.to_string().contains("as its board file says"), "{host}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Any text, and any change of a good one, is read or refused; what is read is inside of its BARs, and apart.
    #[test]
    fn any_text_is_read_or_refused(at in 0..TEXT.len(), removed in 0..40_usize, inserted in "[ -~\\n]{0,20}") {
        let end = (at + removed).min(TEXT.len());
        let text = TEXT[..at].to_owned() + &inserted + &TEXT[end..];
        let Ok(board) = Board::parse("x.toml", &text) else { return Ok(()) };
        for of in &board.functions {
            for (place, block) in of.blocks.iter().enumerate() {
                let bar = of.bars.iter().find(|(bar, _)| *bar == block.bar).unwrap().1;
                prop_assert!(block.bytes > 0 && block.offset + block.bytes <= bar);
                let is_apart = |other: &board::Block| {
                    other.bar != block.bar || other.offset + other.bytes <= block.offset || block.offset + block.bytes <= other.offset
                };
                prop_assert!(of.blocks[..place].iter().all(is_apart));
            }
        }
    }
}

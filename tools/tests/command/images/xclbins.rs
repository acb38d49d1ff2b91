//! xclbin files for Alveo cards.

#[path = "../../../../driver/image/tests/xclbin_writer/mod.rs"]
mod xclbin_writer;

use std::fs;
use std::path::{Path, PathBuf};

use fpga_image::Uuid;

use self::xclbin_writer::{BITSTREAM, PARTITION_METADATA, Tree, xclbin};
use super::{Bench, CARD, OTHER, beginning, failed};
use crate::{json, run, stdout};

/// A device tree with one property of the root, and one of the node `/interfaces/@0`.
fn tree(logic: &str, interface: &str) -> Vec<u8> {
    let text = |guid: &str| format!("{}\0", guid.replace('-', "")).into_bytes();
    let root = Tree::default().node("").property("logic_uuid", &text(logic));
    let interfaces = root.node("interfaces").node("@0").property("interface_uuid", &text(interface));
    interfaces.end().end().end().token(9).bytes()
}

/// An Alveo card, its interface, and a .bit file that brings [`OTHER`].
struct Alveo {
    bench: Bench,
    interface: Uuid,
    bit: Vec<u8>,
}

impl Alveo {
    fn new() -> Self {
        let bench = Bench::alveo();
        let bit = bench.image(OTHER, "4KiB");
        let card = &json(&["image", "inspect", bit.to_str().unwrap(), &bench.target()])["card"];
        let interface = card["interface"].as_str().unwrap().parse().unwrap();
        Alveo { interface, bit: fs::read(bit).unwrap(), bench }
    }

    fn file(&self, interface: Uuid, sections: &[(u32, Vec<u8>)]) -> PathBuf {
        let path = self.bench.path("x.xclbin");
        fs::write(&path, xclbin(interface, sections)).unwrap();
        path
    }

    /// Loads a file. Returns the exit code and what was printed about failures.
    fn load(&self, file: &Path) -> (i32, String) {
        let words = ["image", "load", file.to_str().unwrap(), &self.bench.target(), "--state-dir"];
        failed(&run(&[&words[..], &[self.bench.folder.path().to_str().unwrap()]].concat()))
    }
}

#[test]
fn a_file_for_the_card_is_loaded_without_being_told_to() {
    let alveo = Alveo::new();
    let bit = (BITSTREAM, alveo.bit.clone());
    let foreign = Uuid::from_u128(7);
    // By its header, and by its partition with a header that says nothing or another interface.
    let listed = (PARTITION_METADATA, tree(OTHER, &alveo.interface.to_string()));
    for (interface, sections) in [
        (alveo.interface, vec![bit.clone()]),
        (Uuid::nil(), vec![bit.clone(), listed.clone()]),
        (foreign, vec![listed, bit.clone()]),
    ] {
        let (code, text) = alveo.load(&alveo.file(interface, &sections));
        assert_eq!(code, 0, "{text}");
        assert_eq!(alveo.bench.loaded(), beginning(OTHER));
    }
    let (code, text) = alveo.load(&alveo.file(foreign, std::slice::from_ref(&bit)));
    assert!(code == 7 && text.contains(&format!("made for interface {foreign}; the card has")), "{code}: {text}");
    let (code, text) = alveo.load(&alveo.file(Uuid::nil(), &[bit]));
    assert!(code == 7 && text.contains("use --unchecked"), "{code}: {text}");
    let (code, text) = alveo.load(&alveo.file(alveo.interface, &[]));
    assert!(code == 7 && text.contains("the xclbin holds no .bit file"), "{code}: {text}");
}

/// Such a file has what a card takes, and is for a simulator.
#[test]
fn a_file_for_emulation_is_shown_as_such_and_refused() {
    let alveo = Alveo::new();
    let file = alveo.file(alveo.interface, &[(BITSTREAM, alveo.bit.clone())]);
    // A name that would clear a terminal.
    let named = alveo.bench.path("\u{1b}[2J.xclbin");
    let target = alveo.bench.target();
    for (mode, name, is_taken) in
        [(4_u16, "HW_EMU", false), (5, "SW_EMU", false), (6, "HW_EMU_PR", false), (1, "PR", true)]
    {
        let mut bytes = fs::read(&file).unwrap();
        bytes[332..334].copy_from_slice(&mode.to_le_bytes());
        fs::write(&named, bytes).unwrap();
        let words = ["image", "inspect", named.to_str().unwrap(), &target];
        let shown = stdout(&words);
        assert!(shown.contains(&format!("\nmode        {name}\n")) && !shown.contains('\u{1b}'), "{shown}");
        assert_eq!(json(&words)["card"]["fits"], is_taken, "{name}");
        let compared =
            if is_taken { ": the file is for it\n" } else { ": the file is for emulation, not for a card\n" };
        assert!(shown.contains(compared), "{shown}");
        let (code, text) = alveo.load(&named);
        match is_taken {
            true => assert_eq!((code, alveo.bench.loaded()), (0, beginning(OTHER)), "{text}"),
            false => {
                assert!(code == 7 && text.contains("the file is for emulation, not for a card"), "{code}: {text}");
                assert_eq!(alveo.bench.loaded(), beginning(CARD));
            }
        }
    }
}

/// The file says one logic, its bitstream brings another.
#[test]
fn a_file_that_brings_something_else_is_rolled_back() {
    let alveo = Alveo::new();
    alveo.bench.loads(&alveo.bench.image(CARD, "4KiB"));
    let lying = tree("ffffffff-864f-49a7-b94b-12284c31e02b", &alveo.interface.to_string());
    let file = alveo.file(alveo.interface, &[(BITSTREAM, alveo.bit.clone()), (PARTITION_METADATA, lying)]);
    let (code, text) = alveo.load(&file);
    let expected = format!("the card holds {OTHER} now; the file names ffffffff{}", &OTHER[8..]);
    assert!(code == 1 && text.contains(&expected), "{code}: {text}");
    assert!(text.ends_with(&format!("rolled back to accelerator {CARD}\n")), "{text}");
    assert_eq!(alveo.bench.loaded(), beginning(CARD));
}

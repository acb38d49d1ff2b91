//! xclbin files for Alveo cards, written here field by field as AMD's `xclbin.h` and the Devicetree Specification have them.

use std::fs;
use std::path::{Path, PathBuf};

use fpga_image::Uuid;

use super::{Bench, CARD, OTHER, beginning, failed};
use crate::{json, run};

/// Offset of the UUID of the interface, and of the first entry of the table of sections.
const INTERFACE: usize = 336;
const SECTIONS: usize = 456;
/// Bytes of an entry; kinds of sections.
const ENTRY_BYTES: usize = 40;
const BITSTREAM: u32 = 0;
const PARTITION_METADATA: u32 = 20;

/// A device tree with one property of the root, and one of the node `/interfaces/@0`.
fn tree(logic: &str, interface: &str) -> Vec<u8> {
    let names = b"logic_uuid\0interface_uuid\0";
    let text = |guid: &str| format!("{}\0\0\0\0", guid.replace('-', "")).into_bytes();
    let property = |name: u32, guid: &str| [&word(3)[..], &word(33), &word(name), &text(guid)].concat();
    let node = |name: &[u8]| [&word(1)[..], name].concat();
    let structure = [
        node(b"\0\0\0\0"),
        property(0, logic),
        node(b"interfaces\0\0"),
        node(b"@0\0\0"),
        property(11, interface),
        [2, 2, 2, 9].map(word).concat(),
    ]
    .concat();
    let (begin, bytes) = (56, structure.len() as u32);
    let total = begin + bytes + names.len() as u32;
    let header = [0xd00d_feed, total, begin, begin + bytes, 40, 17, 16, 0, names.len() as u32, bytes];
    [header.map(word).concat(), vec![0; 16], structure, names.to_vec()].concat()
}

fn word(value: u32) -> [u8; 4] {
    value.to_be_bytes()
}

/// A file for `interface`, with these sections.
fn xclbin(interface: Uuid, sections: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut file = vec![0; SECTIONS + ENTRY_BYTES * sections.len()];
    file[..8].copy_from_slice(b"xclbin2\0");
    file[8..12].fill(0xff);
    file[INTERFACE..INTERFACE + 16].copy_from_slice(interface.as_bytes());
    file[448] = sections.len() as u8;
    for (index, (kind, bytes)) in sections.iter().enumerate() {
        file.resize(file.len().next_multiple_of(8), 0);
        let (entry, place) = (SECTIONS + ENTRY_BYTES * index, file.len() as u64);
        file[entry..entry + 4].copy_from_slice(&kind.to_le_bytes());
        file[entry + 24..entry + 32].copy_from_slice(&place.to_le_bytes());
        file[entry + 32..entry + 40].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        file.extend(bytes);
    }
    let length = file.len() as u64;
    file[304..312].copy_from_slice(&length.to_le_bytes());
    file
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

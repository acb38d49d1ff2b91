//! Files of xclbinutil with something wrong: refused with the reason, or read, and never more.
#![forbid(unsafe_code)]

use fpga_image::xclbin::mode_name;
use fpga_image::{Error, Image};
use proptest::prelude::*;

const PLAIN: &[u8] = include_bytes!("data/plain.xclbin");
const SIGNED: &[u8] = include_bytes!("data/signed.xclbin");
const USER: &[u8] = include_bytes!("data/user-signed.xclbin");
/// Bytes of header, table of sections and tables of memories, kernels and connections.
const TABLES: usize = 0x700;

fn with(file: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = file.to_vec();
    file[at..at + bytes.len()].copy_from_slice(bytes);
    file
}

/// Offset of entry `index` in the table of sections.
fn entry(index: usize) -> usize {
    456 + 40 * index
}

fn offset_of(file: &[u8], index: usize) -> usize {
    u64::from_le_bytes(file[entry(index) + 24..entry(index) + 32].try_into().unwrap()) as usize
}

fn refusal(file: &[u8]) -> String {
    match Image::parse(file) {
        Err(error @ Error::Invalid { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_truncation_is_refused() {
    for file in [PLAIN, SIGNED, USER] {
        for bytes in 1..file.len() {
            // What is left without the user's signature is a file.
            if file == USER && bytes == PLAIN.len() {
                assert!(Image::parse(&file[..bytes]).is_ok());
                continue;
            }
            refusal(&file[..bytes]);
        }
    }
}

#[test]
fn every_flipped_bit_is_read_or_refused() {
    let mut refused = 0;
    for file in [PLAIN, SIGNED] {
        for bit in 0..8 * TABLES {
            let mut flipped = file.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            refused += u32::from(Image::parse(&flipped).is_err());
        }
    }
    // Most bits are of names and reserved bytes; those of lengths, offsets, counts and indices are refused.
    assert!(refused > 1000, "{refused}");
}

#[test]
fn what_makes_no_sense_is_refused_with_its_place() {
    let memories = offset_of(PLAIN, 0);
    let kernels = offset_of(PLAIN, 1);
    let connections = offset_of(PLAIN, 2);
    let clocks = offset_of(PLAIN, 3);
    let huge = 0x1_0000_0000_u64.to_le_bytes();
    for (file, reason) in [
        (with(PLAIN, 6, b"0"), "byte 0x0 of the xclbin file: it does not begin with xclbin2"),
        (with(PLAIN, 6, b"1"), "it does not begin with xclbin2: files of other versions are not read"),
        (with(PLAIN, 7, b"2"), "it does not begin with xclbin2"),
        (with(PLAIN, 8, &0_i32.to_le_bytes()), "byte 0x8 of the xclbin file: the signature has 0 bytes"),
        (with(PLAIN, 8, &(-2_i32).to_le_bytes()), "the signature has -2 bytes"),
        (with(PLAIN, 8, &i32::MIN.to_le_bytes()), "the signature has -2147483648 bytes"),
        (with(PLAIN, 8, &i32::MAX.to_le_bytes()), "the signature has 2147483647 bytes"),
        (with(PLAIN, 304, &huge), "says that it has 4294967296 bytes"),
        (with(PLAIN, 304, &100_u64.to_le_bytes()), "says that it has 100 bytes"),
        (with(PLAIN, 304, &u64::MAX.to_le_bytes()), "byte 0x130"),
        (with(PLAIN, 448, &0x1_0001_u32.to_le_bytes()), "the table of sections has 2621480 bytes"),
        (with(PLAIN, 448, &0x1_0000_u32.to_le_bytes()), "the table of sections has 2621440 bytes"),
        (with(PLAIN, 448, &u32::MAX.to_le_bytes()), "the table of sections has 171798691800 bytes"),
        (with(PLAIN, entry(0) + 4, &[b'x'; 16]), "a section's name does not end within 16 bytes"),
        (with(PLAIN, entry(0) + 4, b"\x1b[2J\0"), "a section's name is no printable ASCII text"),
        (with(PLAIN, entry(0) + 24, &huge), "section MEM_TOPOLOGY has 168 bytes, but only 0 are left"),
        (with(PLAIN, entry(0) + 24, &(u64::MAX - 3).to_le_bytes()), "but only 0 are left"),
        (with(PLAIN, entry(0) + 24, &0_u64.to_le_bytes()), "inside of the table of sections"),
        (with(PLAIN, entry(0) + 32, &huge), "section MEM_TOPOLOGY has 4294967296 bytes"),
        (with(PLAIN, entry(0) + 32, &u64::MAX.to_le_bytes()), "section MEM_TOPOLOGY has 18446744073709551615 bytes"),
        (with(PLAIN, entry(1) + 24, &(memories as u64 + 8).to_le_bytes()), "two sections overlap here"),
        (with(PLAIN, entry(0) + 32, &7_u64.to_le_bytes()), "the table of memories has 160 bytes, but only 0 are left"),
        (with(PLAIN, memories, &5_i32.to_le_bytes()), "the table of memories has 200 bytes, but only 160"),
        (with(PLAIN, memories, &i32::MAX.to_le_bytes()), "the table of memories has 85899345880 bytes"),
        (with(PLAIN, memories, &(-1_i32).to_le_bytes()), "the table of memories has -1 entries"),
        (with(PLAIN, memories + 8 + 24, &[b'x'; 16]), "a memory's name does not end"),
        (with(PLAIN, memories + 8 + 8, &u64::MAX.to_le_bytes()), "beyond 64 bits"),
        (with(PLAIN, memories + 8 + 16, &u64::MAX.to_le_bytes()), "beyond 64 bits"),
        (with(PLAIN, kernels, &(-1_i32).to_le_bytes()), "the table of kernels has -1 entries"),
        (with(PLAIN, kernels + 8 + 16, &[b'x'; 64]), "a kernel's name does not end within 64 bytes"),
        (with(PLAIN, connections, &4_i32.to_le_bytes()), "the table of connections has 48 bytes, but only 36"),
        (with(PLAIN, connections + 4 + 4, &3_u32.to_le_bytes()), "a connection of kernel 3, but there are 3"),
        (with(PLAIN, connections + 4 + 4, &u32::MAX.to_le_bytes()), "a connection of kernel 4294967295"),
        (with(PLAIN, connections + 4 + 8, &4_u32.to_le_bytes()), "a connection to memory 4, but there are 4"),
        (with(PLAIN, connections + 4 + 8, &1_u32.to_le_bytes()), "\"HBM[0]\", which is marked as unused"),
        (with(PLAIN, clocks, &(-1_i16).to_le_bytes()), "the table of clocks has -1 entries"),
        (with(PLAIN, clocks, &i16::MAX.to_le_bytes()), "the table of clocks has 4456312 bytes"),
        (with(PLAIN, 352, &[b'x'; 64]), "the platform does not end within 64 bytes"),
        (with(USER, PLAIN.len(), b"x"), "69 bytes behind the 6311 that the file says it has"),
        (with(USER, PLAIN.len() + 24, &70_u32.to_le_bytes()), "the user's signature says 70 bytes, but 69 are there"),
        (with(USER, PLAIN.len() + 32, &u32::MAX.to_le_bytes()), "the user's signature has 25 bytes, but only 0"),
        (with(USER, PLAIN.len() + 36, &u32::MAX.to_le_bytes()), "the user's signature has 4294967295 bytes"),
    ] {
        let error = refusal(&file);
        assert!(error.contains(reason), "{reason} is not in: {error}");
    }
}

/// What is shown of a table takes many times the memory of the table.
#[test]
fn a_table_with_too_many_entries_is_refused() {
    let connections = offset_of(PLAIN, 2);
    let with_connections = |count: usize| {
        let one = &PLAIN[connections + 4..connections + 16];
        let table = [&(count as i32).to_le_bytes()[..], &one.repeat(count)].concat();
        let file = [PLAIN, &table].concat();
        let length = file.len() as u64;
        let placed = with(&with(&file, 304, &length.to_le_bytes()), entry(2) + 24, &PLAIN.len().to_le_bytes());
        with(&placed, entry(2) + 32, &table.len().to_le_bytes())
    };
    let file = with_connections(65_536);
    let Ok(Image::Xclbin(xclbin)) = Image::parse(&file) else { panic!() };
    assert_eq!(xclbin.connections.len(), 65_536);
    let place = PLAIN.len();
    assert!(refusal(&with_connections(65_537)).ends_with(&format!(
        "byte {place:#x} of the xclbin file: the table of connections has 65537 entries, more than 65536"
    )));
}

#[test]
fn what_is_legal_is_read() {
    // A kind from a later version, and a second section of a kind, of which the first counts.
    for kind in [100_u32, u32::MAX, 6] {
        let file = with(PLAIN, entry(7), &kind.to_le_bytes());
        let Ok(Image::Xclbin(xclbin)) = Image::parse(&file) else { panic!("{kind}") };
        assert_eq!((xclbin.sections[7].kind, xclbin.memories.len()), (kind, 4));
    }
    // A bitstream that is no .bit file.
    let file = with(PLAIN, offset_of(PLAIN, 4), &[1; 16]);
    let Ok(Image::Xclbin(xclbin)) = Image::parse(&file) else { panic!() };
    assert_eq!(xclbin.bitstream, None);
    // A section without a name.
    let file = with(PLAIN, entry(0) + 4, &[0; 16]);
    let Ok(Image::Xclbin(xclbin)) = Image::parse(&file) else { panic!() };
    assert_eq!(xclbin.sections[0].name, "");
    // Bytes behind the last section, that the header counts: a description in JSON, as tools of AMD append it, and what nobody knows.
    for behind in [&b"XCLBIN_MIRROR_DATA_START{}XCLBIN_MIRROR_DATA_END"[..], &[0xff; 5]] {
        let length = (PLAIN.len() + behind.len()) as u64;
        let file = with(&[PLAIN, behind].concat(), 304, &length.to_le_bytes());
        let Ok(Image::Xclbin(xclbin)) = Image::parse(&file) else { panic!("{behind:?}") };
        assert_eq!(xclbin.sections.len(), 8);
    }
    // Streams have ids in place of size and address.
    let bank = offset_of(PLAIN, 0) + 8;
    for kind in [3, 9] {
        let file = with(&with(PLAIN, bank, &[kind]), bank + 8, &[0xff; 16]);
        let Ok(Image::Xclbin(xclbin)) = Image::parse(&file) else { panic!("{kind}") };
        let stream = xclbin.memories[0];
        assert_eq!((stream.kind, stream.bytes, stream.address), (kind, 0, 0));
    }
    // Any mode.
    for (mode, name, is_for_emulation) in [
        (0, Some("FLAT"), false),
        (1, Some("PR"), false),
        (3, Some("TANDEM_STAGE2_WITH_PR"), false),
        (4, Some("HW_EMU"), true),
        (6, Some("HW_EMU_PR"), true),
        (7, None, false),
        (u16::MAX, None, false),
    ] {
        let file = with(PLAIN, 332, &u16::to_le_bytes(mode));
        let Ok(Image::Xclbin(xclbin)) = Image::parse(&file) else { panic!("{mode}") };
        assert_eq!((mode_name(xclbin.mode), xclbin.is_for_emulation()), (name, is_for_emulation), "{mode}");
    }
    // Sections without bytes may be said to be anywhere.
    let empty = with(&with(PLAIN, entry(4) + 24, &u64::MAX.to_le_bytes()), entry(4) + 32, &[0; 8]);
    assert!(Image::parse(&empty).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, ..ProptestConfig::default() })]

    /// Random damage of whole words is read or refused.
    #[test]
    fn damaged_files_are_read_or_refused(
        changes in prop::collection::vec((0..TABLES / 4, prop_oneof![any::<u32>(), 0..300_u32, Just(u32::MAX)]), 1..12)
    ) {
        let mut file = SIGNED.to_vec();
        for (word, value) in changes {
            file[4 * word..4 * word + 4].copy_from_slice(&value.to_le_bytes());
        }
        if let Ok(Image::Xclbin(xclbin)) = Image::parse(&file) {
            prop_assert!(xclbin.sections.iter().all(|section| section.offset as usize + section.bytes.len() <= file.len() || section.bytes.is_empty()));
        }
    }

    #[test]
    fn any_bytes_behind_any_beginning_are_read_or_refused(
        begin in prop::sample::select(vec![&b"xclbin2\0"[..], b"XeonFPGA\xb7GBSv001", &[0x80, 0x86, 0x1f, 0x1d], &[0, 9, 0x0f, 0xf0, 0x0f, 0xf0, 0x0f, 0xf0, 0x0f, 0xf0, 0, 0, 1]]),
        rest in prop::collection::vec(any::<u8>(), 0..700)
    ) {
        let _ = Image::parse(&[begin, &rest].concat());
    }
}

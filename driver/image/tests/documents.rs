//! Files built byte by byte from the documents of their formats, not by a writer of this project.
#![forbid(unsafe_code)]

use fpga_image::bit;
use fpga_image::gbs::{Gbs, MAGIC, MAGIC_NUMBER};
use fpga_image::{BYTES_MAX, Error, Format, Image, Uuid};

fn gbs(description: &str, bitstream: &[u8]) -> Vec<u8> {
    // OPAE writes the GUID 58656f6e-4650-4741-b747-425376303031 as it is printed.
    let mut file = 0x58656f6e_4650_4741_b747_425376303031_u128.to_be_bytes().to_vec();
    file.extend((description.len() as u32).to_le_bytes());
    file.extend(description.as_bytes());
    file.extend(bitstream);
    file
}

const DESCRIPTION: &str = r#"{"version": 1, "platform-name": "PAC_D5005", "afu-image": {"magic-no": 488605312,
 "interface-uuid": "bfac4d85-1ee8-56fe-8c95-865ce1bbaa2d", "clock-frequency-high": 170, "clock-frequency-low": "auto-85", "power": 0,
 "accelerator-clusters": [{"name": "hello", "total-contexts": 1, "accelerator-type-uuid": "56E203E9864F49A7B94B12284C31E02B"}]}}"#;

#[test]
fn a_gbs_file_with_a_description() {
    let file = gbs(DESCRIPTION, &[7; 40]);
    let Image::Gbs(gbs) = Image::parse(&file).unwrap() else { panic!() };
    assert_eq!(gbs.interface, Some(Uuid::from_u128(0xbfac4d85_1ee8_56fe_8c95_865ce1bbaa2d)));
    assert_eq!(gbs.platform.as_deref(), Some("PAC_D5005"));
    assert_eq!(gbs.clock_mhz, [Some(170.0), None]);
    assert_eq!(gbs.power_w, Some(0.0));
    assert_eq!(gbs.accelerators.len(), 1);
    assert_eq!((gbs.accelerators[0].name.as_str(), gbs.accelerators[0].contexts), ("hello", 1));
    assert_eq!(gbs.accelerators[0].guid, Uuid::from_u128(0x56e203e9_864f_49a7_b94b_12284c31e02b));
    assert_eq!((gbs.bitstream, gbs.is_signed), ([7; 40].as_slice(), false));
}

#[test]
fn a_gbs_file_of_the_first_cards() {
    let mut file = vec![0x80, 0x86, 0x1f, 0x1d];
    file.extend((0..16).rev());
    file.extend([1, 2, 3, 4]);
    let gbs = Gbs::parse(&file).unwrap();
    assert_eq!(gbs.interface, Some(Uuid::from_bytes([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15])));
    assert_eq!(gbs.bitstream, [1, 2, 3, 4]);
}

#[test]
fn signed_images_are_said_to_be() {
    let signed = [&[0x19, 0xfd, 0xea, 0xb6], [0; 60].as_slice()].concat();
    assert_eq!(Image::parse(&signed).unwrap().format(), Format::Signed);
    let file = gbs(DESCRIPTION, &signed);
    let Image::Gbs(gbs) = Image::parse(&file).unwrap() else { panic!() };
    assert!(gbs.is_signed);
}

#[test]
fn descriptions_that_make_no_sense_are_refused() {
    let with = |from: &str, to: &str| {
        assert!(DESCRIPTION.contains(from));
        gbs(&DESCRIPTION.replacen(from, to, 1), &[7; 4])
    };
    for (file, reason) in [
        (gbs("", &[1]), "the description: EOF"),
        (gbs("[]", &[1]), "no object \"afu-image\""),
        (with("488605312", "488605313"), "\"magic-no\" is 488605313"),
        (with("\"magic-no\": 488605312", "\"magic-no\": \"x\""), "no number \"magic-no\""),
        (with("\"version\": 1", "\"version\": 2"), "of version 2"),
        (with("bfac4d85-", "bfac4d8-"), "expected a UUID"),
        (with("\"power\": 0", "\"power\": -1"), "\"power\" is -1"),
        (with("\"total-contexts\": 1", "\"total-contexts\": -1"), "\"total-contexts\" is -1"),
        (with("\"name\": \"hello\", ", ""), "no \"name\""),
        (with("\"hello\"", "7"), "\"name\" is 7"),
        (with("\"hello\"", "\"\\u001b[2J\""), "control characters"),
        (with("[{", "{\"a\": [{").into_iter().collect(), "the description"),
        (gbs(DESCRIPTION, &[]), "there is no bitstream"),
        (gbs(&"[".repeat(100_000), &[1]), "recursion limit"),
    ] {
        let error = Gbs::parse(&file).unwrap_err().to_string();
        assert!(error.contains(reason), "{reason} is not in: {error}");
    }
    // Descriptions longer than the file, and longer than any.
    for bytes in [1000_u32, 1 << 21, u32::MAX] {
        let mut file = gbs("{}", &[0; 32]);
        file[16..20].copy_from_slice(&bytes.to_le_bytes());
        assert!(matches!(Gbs::parse(&file), Err(Error::Invalid { offset: 16 | 20, .. })));
    }
}

/// Field by field: tag, length in two bytes, text with its NUL.
fn bit() -> Vec<u8> {
    let mut file = vec![0x00, 0x09, 0x0f, 0xf0, 0x0f, 0xf0, 0x0f, 0xf0, 0x0f, 0xf0, 0x00, 0x00, 0x01];
    for (tag, text) in [(b'a', "top\0"), (b'b', "xcu50\0"), (b'c', "2026/11/24\0"), (b'd', "10:00:00\0")] {
        file.extend([tag, 0, text.len() as u8]);
        file.extend(text.as_bytes());
    }
    file.extend([b'e', 0, 0, 0, 8, 0xff, 0xff, 0xff, 0xff, 0xaa, 0x99, 0x55, 0x66]);
    file
}

#[test]
fn a_bit_file() {
    let file = bit();
    let Image::Bit(bit) = Image::parse(&file).unwrap() else { panic!() };
    assert_eq!((bit.design, bit.part, bit.date, bit.time), ("top", "xcu50", "2026/11/24", "10:00:00"));
    assert_eq!(bit.stream, [0xff, 0xff, 0xff, 0xff, 0xaa, 0x99, 0x55, 0x66]);
}

#[test]
fn bit_files_that_make_no_sense_are_refused() {
    let whole = bit();
    let with = |at: usize, byte: u8| {
        let mut file = whole.clone();
        file[at] = byte;
        file
    };
    let longer = [&whole[..], &[0]].concat();
    for (file, reason) in [
        (with(12, 2), "continues with 2"),
        (with(13, b'x'), "expected the design's name"),
        (with(15, 0), "the design's name does not end within 0 bytes"),
        (with(15, 3), "the design's name does not end within 3 bytes"),
        (with(15, 5), "is empty or ends before its 5 bytes"),
        (with(16, 0), "is empty or ends before"),
        (with(17, 0x1b), "no printable ASCII"),
        (with(14, 0xff), "but only"),
        (with(whole.len() - 13, b'f'), "expected the stream's length"),
        (with(whole.len() - 9, 9), "the stream has 9 bytes, but only 8"),
        (with(whole.len() - 9, 0), "the stream is empty"),
        (with(whole.len() - 12, 0xff), "but only 8 are left"),
        (longer, "1 bytes behind the stream"),
    ] {
        let error = Image::parse(&file).unwrap_err().to_string();
        assert!(error.contains(reason), "{reason} is not in: {error}");
    }
}

/// What ends early or has a flipped bit is read or refused; what is read lies inside of the file.
#[test]
fn damaged_gbs_and_bit_files_are_read_or_refused() {
    for file in [gbs(DESCRIPTION, &[7; 32]), bit()] {
        assert!(matches!(Image::parse(&file).unwrap().format(), Format::Gbs | Format::Bit));
        let inside = |data: &[u8], part: &[u8]| {
            data.as_ptr_range().start <= part.as_ptr() && part.as_ptr_range().end <= data.as_ptr_range().end
        };
        let check = |data: &[u8]| match Image::parse(data) {
            Ok(Image::Gbs(gbs)) => assert!(inside(data, gbs.bitstream) && !gbs.bitstream.is_empty()),
            Ok(Image::Bit(bit)) => assert!(inside(data, bit.stream) && !bit.stream.is_empty()),
            Ok(_) | Err(_) => {}
        };
        for end in 0..file.len() {
            check(&file[..end]);
        }
        for bit in 0..8 * file.len() {
            let mut damaged = file.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            check(&damaged);
        }
    }
}

#[test]
fn beginnings_of_headers_are_no_raw_files() {
    for header in [&MAGIC[..], &MAGIC_NUMBER.to_le_bytes(), &bit::MAGIC, b"xclbin2\0"] {
        for bytes in 1..=header.len() {
            let parsed = Image::parse(&header[..bytes]);
            assert!(matches!(parsed, Err(Error::Invalid { .. })), "{:?}: {parsed:?}", &header[..bytes]);
        }
    }
}

#[test]
fn other_files_are_raw() {
    let stream = [&[0xff; 100][..], &[0xaa, 0x99, 0x55, 0x66]].concat();
    assert_eq!(Image::parse(&stream).unwrap().format(), Format::Bin);
    assert_eq!(Image::parse(&[0x12; 100]).unwrap().format(), Format::Raw);
    assert_eq!(Image::parse(&[]), Err(Error::Empty));
    assert_eq!(BYTES_MAX, 1 << 30);
}

//! Layouts and numbers of all messages, against the specification.

use nix::errno::Errno;
use proptest::prelude::*;

use super::device::*;
use super::header::*;
use super::interrupt::*;
use super::memory::*;
use super::region::*;
use super::version::*;

/// Words in the order of the host.
fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[test]
fn bodies_have_the_specified_layout() {
    let map = DmaMap { argsz: 32, flags: 3, offset: 0x1000, address: 0x2000, size: 0x3000 };
    if cfg!(target_endian = "little") {
        assert_eq!(map.encode(), words(&[32, 3, 0x1000, 0, 0x2000, 0, 0x3000, 0]));
        let unmap = DmaUnmap { argsz: 24, flags: 2, address: 0x2000, size: 0x3000 };
        assert_eq!(unmap.encode(), words(&[24, 2, 0x2000, 0, 0x3000, 0]));
        let region = RegionInfo { argsz: 64, flags: 15, index: 2, cap_offset: 32, size: 1 << 33, offset: 5 };
        assert_eq!(region.encode(), words(&[64, 15, 2, 32, 0, 2, 5, 0]));
        let areas = [Area { offset: 0x1000, size: 0x2000 }, Area { offset: 0x8000, size: 0x1000 }];
        let expected = words(&[1 | 1 << 16, 0, 2, 0, 0x1000, 0, 0x2000, 0, 0x8000, 0, 0x1000, 0]);
        assert_eq!(encode_areas(&areas), expected);
        let access = RegionAccess { offset: 0x18, region: 7, count: 4 };
        assert_eq!(access.encode().to_vec(), words(&[0x18, 0, 7, 4]));
        let dma = DmaAccess { address: 0x18, count: 4 };
        assert_eq!(dma.encode().to_vec(), words(&[0x18, 0, 4, 0]));
        let header = Header::command(0x1234, Command::Reset, 0);
        assert_eq!(header.encode().to_vec(), words(&[0x000d_1234, 16, 0, 0]));
        assert_eq!(header.failure(Errno::EINVAL).encode().to_vec(), words(&[0x000d_1234, 16, 0x21, 22]));
    }
}

#[test]
fn numbers_are_those_of_the_specification() {
    let numbers: Vec<_> = Command::ALL.iter().map(|command| *command as u16).collect();
    assert_eq!(numbers, (1..=13).collect::<Vec<_>>());
    for number in 0..=20 {
        let expected = (1..=13).contains(&number).then_some(number);
        assert_eq!(Command::from_number(number).map(|command| command as u16), expected);
    }
    let flags = [SetInterrupts::DATA_NONE, SetInterrupts::DATA_BOOL, SetInterrupts::DATA_EVENTFD];
    assert_eq!((flags, SetInterrupts::DATA), ([1, 2, 4], 7));
    let actions = [SetInterrupts::MASK, SetInterrupts::UNMASK, SetInterrupts::TRIGGER];
    assert_eq!((actions, SetInterrupts::ACTION), ([8, 16, 32], 56));
    assert_eq!(DEFAULT_TRANSFER_BYTES, 1_048_576);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Bytes that decode encode to the same bytes again.
    #[test]
    fn what_decodes_encodes_to_the_same_bytes(bytes in prop::collection::vec(any::<u8>(), 0..80), offset in 0..100u32) {
        let prefix = |size: usize| bytes.get(..size).map(<[u8]>::to_vec);
        prop_assert_eq!(DmaMap::decode(&bytes).map(|it| it.encode()), prefix(DmaMap::BYTES));
        prop_assert_eq!(DmaUnmap::decode(&bytes).map(|it| it.encode()), prefix(DmaUnmap::BYTES));
        prop_assert_eq!(DeviceInfo::decode(&bytes).map(|it| it.encode()), prefix(DeviceInfo::BYTES));
        prop_assert_eq!(RegionInfo::decode(&bytes).map(|it| it.encode()), prefix(RegionInfo::BYTES));
        prop_assert_eq!(InterruptInfo::decode(&bytes).map(|it| it.encode()), prefix(InterruptInfo::BYTES));
        prop_assert_eq!(RegionAccess::decode(&bytes).map(|it| it.0.encode().to_vec()), prefix(16));
        prop_assert_eq!(DmaAccess::decode(&bytes).map(|it| it.0.encode().to_vec()), prefix(16));
        let whole = |size: usize| (bytes.len() >= size).then(|| bytes.clone());
        prop_assert_eq!(SetInterrupts::decode(&bytes).map(|it| it.encode()), whole(SetInterrupts::BYTES));
        prop_assert_eq!(Version::decode(&bytes).map(|it| it.encode()), whole(4));
        if let Some(header) = bytes.first_chunk() {
            prop_assert_eq!(&Header::decode(header).encode(), header);
        }
        let _ = decode_areas(&bytes, offset);
        let _ = DmaAccess::decode_written(&bytes);
    }
}

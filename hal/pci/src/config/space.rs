//! A copy of configuration space, its header, and its two lists of capabilities.

use std::fmt;

use super::registers::{
    BYTES, CAPABILITIES, CAPABILITY_EXPRESS, CLASS_REVISION, COMMAND, DEVICE, EXTENDED, HEADER_TYPE, STATUS,
    STATUS_CAPABILITIES, VENDOR,
};

/// Bytes of the header: the shortest copy.
pub const HEADER_BYTES: usize = 64;
/// Offset of the capability pointer in the header of a CardBus bridge.
const CARDBUS_CAPABILITIES: u16 = 0x14;

/// A copy of configuration space: all of it, its first 256 bytes, or the 64 bytes that the kernel shows to ordinary users.
///
/// The bytes may be anything. Every read is checked, and every walk ends.
#[derive(Clone, PartialEq, Eq)]
pub struct Space {
    bytes: Vec<u8>,
}

/// Header fields that every type of function has (PCI Express Base 5.0, section 7.5.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Vendor id.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// Command register.
    pub command: u16,
    /// Status register.
    pub status: u16,
    /// Class code, 24 bits.
    pub class: u32,
    /// Revision.
    pub revision: u8,
    /// Header type without the multi-function bit: 0 endpoint, 1 bridge, 2 CardBus bridge.
    pub header_type: u8,
}

/// An entry of a capability list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capability {
    /// Id: 8 bits in the first list, 16 bits in the extended list.
    pub id: u16,
    /// Version, 4 bits; 0 in the first list.
    pub version: u8,
    /// Offset in configuration space.
    pub offset: u16,
}

/// Why a walk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The list ended.
    Complete,
    /// The list continues at this offset, past the end of the copy.
    CutShort(u16),
    /// The entry at this offset is invalid: it points backwards, into the header, or to all-ones.
    Broken(u16),
}

/// Entries of a list, up to where the walk ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walk {
    /// Entries in list order, each offset once.
    pub found: Vec<Capability>,
    /// Why the walk ended.
    pub end: End,
}

/// A capability list is invalid at an offset, or the copy ends there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("The capability list is broken at {offset:#x}")]
pub struct BrokenList {
    /// Offset of the invalid entry.
    pub offset: u16,
}

impl Walk {
    /// Returns the first entry with this id.
    pub fn first(&self, id: u16) -> Option<Capability> {
        self.found.iter().copied().find(|entry| entry.id == id)
    }

    /// Returns the first entry with this id, or `None` if the list is complete without it.
    ///
    /// # Errors
    /// [`BrokenList`] if the walk ended before it found the entry.
    pub fn find(&self, id: u16) -> Result<Option<Capability>, BrokenList> {
        match (self.first(id), self.end) {
            (Some(entry), _) => Ok(Some(entry)),
            (None, End::Complete) => Ok(None),
            (None, End::CutShort(offset) | End::Broken(offset)) => Err(BrokenList { offset }),
        }
    }

    /// Returns whether the list is complete and has no entry with this id.
    pub fn lacks(&self, id: u16) -> bool {
        self.end == End::Complete && self.first(id).is_none()
    }
}

impl Space {
    /// Takes a copy; bytes past 4096 are dropped. `None`: the bytes are shorter than a header.
    pub fn new(mut bytes: Vec<u8>) -> Option<Self> {
        bytes.truncate(usize::from(BYTES));
        (bytes.len() >= HEADER_BYTES).then_some(Space { bytes })
    }

    /// Reads the part that holds the header and the first list of capabilities: 256 bytes. `read` returns the word at an offset.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn read<E>(mut read: impl FnMut(u16) -> Result<[u8; 4], E>) -> Result<Self, E> {
        let mut bytes = Vec::with_capacity(usize::from(EXTENDED));
        for offset in (0..EXTENDED).step_by(4) {
            bytes.extend(read(offset)?);
        }
        Ok(Space { bytes })
    }

    /// Returns the length of the copy: 64 to 4096 bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns `false`: a copy has a header.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns whether the function did not answer: its vendor id and its status register are all-ones. The vendor id alone is so
    /// of every virtual function (PCI Express Base 5.0, section 9.3.4.1.1), in sysfs too. VFIO emulates the vendor id, so an open
    /// function is gone if one of the two is all-ones.
    pub fn is_gone(&self) -> bool {
        [VENDOR, STATUS].map(|offset| self.u16(offset)) == [Some(u16::MAX); 2]
    }

    /// Returns the byte at `offset`, if the copy has it.
    pub fn u8(&self, offset: u16) -> Option<u8> {
        self.bytes.get(usize::from(offset)).copied()
    }

    /// Returns the 16 bits at `offset`, if the copy has them.
    pub fn u16(&self, offset: u16) -> Option<u16> {
        self.array(offset).map(u16::from_le_bytes)
    }

    /// Returns the 32 bits at `offset`, if the copy has them.
    pub fn u32(&self, offset: u16) -> Option<u32> {
        self.array(offset).map(u32::from_le_bytes)
    }

    fn array<const N: usize>(&self, offset: u16) -> Option<[u8; N]> {
        self.bytes.get(usize::from(offset)..)?.first_chunk().copied()
    }

    /// Parses the header.
    pub fn header(&self) -> Header {
        // The copy has a header, so the defaults are never used.
        let word = |offset| self.u16(offset).unwrap_or_default();
        let class_revision = self.u32(CLASS_REVISION).unwrap_or_default();
        let header_type = self.u8(HEADER_TYPE).unwrap_or_default();
        Header {
            vendor: word(VENDOR),
            device: word(DEVICE),
            command: word(COMMAND),
            status: word(STATUS),
            class: class_revision >> 8,
            revision: class_revision as u8,
            header_type: header_type & 0x7f,
        }
    }

    /// Walks the first list, which lies in the first 256 bytes.
    pub fn capabilities(&self) -> Walk {
        let header = self.header();
        let mut walk = Walk { found: Vec::new(), end: End::Complete };
        if header.status & STATUS_CAPABILITIES == 0 {
            return walk;
        }
        let mut from = if header.header_type == 2 { CARDBUS_CAPABILITIES } else { CAPABILITIES };
        let mut is_seen = [false; 64];
        loop {
            let Some(next) = self.u8(from) else { return walk.ended(End::CutShort(from)) };
            // The low two bits are reserved.
            let offset = next & 0xfc;
            if offset == 0 {
                return walk;
            }
            let seen = &mut is_seen[usize::from(offset / 4)];
            if usize::from(offset) < HEADER_BYTES || *seen {
                return walk.ended(End::Broken(from & !3));
            }
            *seen = true;
            let offset = u16::from(offset);
            let Some(id) = self.u8(offset) else { return walk.ended(End::CutShort(offset)) };
            if id == 0xff {
                return walk.ended(End::Broken(offset));
            }
            walk.found.push(Capability { id: id.into(), version: 0, offset });
            from = offset + 1;
        }
    }

    /// Walks the extended list, which begins at 0x100. Functions of conventional PCI have none.
    pub fn extended_capabilities(&self) -> Walk {
        let mut walk = Walk { found: Vec::new(), end: End::Complete };
        if self.len() <= usize::from(EXTENDED) {
            let first = self.capabilities();
            let is_conventional = self.len() == usize::from(EXTENDED) && first.lacks(CAPABILITY_EXPRESS.into());
            return if is_conventional { walk } else { walk.ended(End::CutShort(EXTENDED)) };
        }
        let mut is_seen = [false; BYTES as usize / 4];
        let mut offset = EXTENDED;
        loop {
            is_seen[usize::from(offset / 4)] = true;
            let Some(word) = self.u32(offset) else { return walk.ended(End::CutShort(offset)) };
            if word == u32::MAX || (word == 0 && offset != EXTENDED) {
                return walk.ended(End::Broken(offset));
            }
            if word == 0 {
                return walk;
            }
            let (id, version, next) = (word as u16, (word >> 16 & 0xf) as u8, (word >> 20) as u16 & 0xffc);
            // The first entry may be empty and still link to others.
            if id != 0 {
                walk.found.push(Capability { id, version, offset });
            }
            if next == 0 {
                return walk;
            }
            if next < EXTENDED || is_seen[usize::from(next / 4)] {
                return walk.ended(End::Broken(offset));
            }
            offset = next;
        }
    }
}

impl Walk {
    fn ended(mut self, end: End) -> Self {
        self.end = end;
        self
    }
}

impl fmt::Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Space").field("len", &self.len()).field("header", &self.header()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn space(len: usize, words: &[(usize, u32)]) -> Space {
        let mut bytes = vec![0; len];
        for &(at, word) in words {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        Space::new(bytes).unwrap()
    }

    const LIST: (usize, u32) = (0x04, 0x0010_0000);

    #[test]
    fn both_lists_are_followed() {
        let express = space(
            4096,
            &[LIST, (0x34, 0x40), (0x40, 0x5001), (0x50, 0x0011_0010), (0x100, 0x1481_0001), (0x148, 0x0001_000b)],
        );
        let first: Vec<_> = express.capabilities().found.iter().map(|one| (one.id, one.offset)).collect();
        assert_eq!(first, [(0x01, 0x40), (0x10, 0x50)]);
        assert_eq!(express.capabilities().end, End::Complete);
        let walk = express.extended_capabilities();
        assert_eq!(walk.found[0], Capability { id: 1, version: 1, offset: 0x100 });
        assert_eq!(walk.found[1], Capability { id: 0x0b, version: 1, offset: 0x148 });
        assert_eq!((walk.found.len(), walk.end), (2, End::Complete));
        assert!(walk.lacks(0x10) && !walk.lacks(1));
        let id = |id| walk.find(id).map(|entry| entry.map(|entry| entry.offset));
        assert_eq!((id(0x0b), id(0x10)), (Ok(Some(0x148)), Ok(None)));
    }

    #[test]
    fn all_48_capabilities_are_found_and_the_status_bit_is_obeyed() {
        let entry = |slot: u32| (slot as usize * 4, if slot == 63 { 0x11 } else { (slot + 1) << 10 | 0x09 });
        let mut words: Vec<_> = (16..64).map(entry).chain([LIST, (0x34, 0x40)]).collect();
        let walk = space(256, &words).capabilities();
        assert_eq!((walk.found.len(), walk.first(0x11).unwrap().offset, walk.end), (48, 0xfc, End::Complete));
        words.retain(|word| *word != LIST);
        assert_eq!(space(256, &words).capabilities(), Walk { found: Vec::new(), end: End::Complete });
    }

    #[test]
    fn broken_lists_end_where_they_break() {
        for (words, end) in [
            (vec![LIST, (0x34, 0x40), (0x40, 0x4001)], End::Broken(0x40)),
            (vec![LIST, (0x34, 0x40), (0x40, 0x4801), (0x48, 0x4005)], End::Broken(0x48)),
            (vec![LIST, (0x34, 0x10)], End::Broken(0x34)),
            (vec![LIST, (0x34, 0x40), (0x40, 0xff)], End::Broken(0x40)),
        ] {
            let walk = space(256, &words).capabilities();
            assert_eq!(walk.end, end, "{words:x?}");
            let End::Broken(offset) = end else { unreachable!() };
            assert_eq!(walk.find(0x11), Err(BrokenList { offset }), "{words:x?}");
            // An entry before the break is found.
            assert!(walk.found.iter().all(|entry| walk.find(entry.id) == Ok(Some(*entry))), "{words:x?}");
        }
        for (words, end) in [
            (vec![(0x100, 0x1001_0001)], End::Broken(0x100)),
            (vec![(0x100, 0x0f01_0001)], End::Broken(0x100)),
            (vec![(0x100, 0x2001_0001), (0x200, 0x1001_000b)], End::Broken(0x200)),
            (vec![(0x100, 0x2001_0001)], End::Broken(0x200)),
            (vec![(0x100, u32::MAX)], End::Broken(0x100)),
        ] {
            assert_eq!(space(4096, &words).extended_capabilities().end, end, "{words:x?}");
        }
    }

    #[test]
    fn what_an_ordinary_user_sees_is_cut_short_and_not_absent() {
        let seen = space(64, &[LIST, (0x34, 0x40)]);
        assert_eq!(seen.capabilities().end, End::CutShort(0x40));
        assert_eq!(seen.extended_capabilities().end, End::CutShort(0x100));
        assert!(!seen.capabilities().lacks(0x11));
        // Conventional PCI has 256 bytes, and with PCI Express there would be more.
        assert_eq!(space(256, &[]).extended_capabilities().end, End::Complete);
        let hidden = space(256, &[LIST, (0x34, 0x40), (0x40, 0x10)]);
        assert_eq!(hidden.extended_capabilities().end, End::CutShort(0x100));
        assert!(Space::new(vec![0; 63]).is_none());
    }

    #[test]
    fn a_function_that_is_gone_is_all_ones() {
        let gone = Space::new(vec![0xff; 4096]).unwrap();
        assert!(gone.is_gone());
        let virtual_function = space(64, &[(0x00, u32::MAX), LIST]);
        assert!(!virtual_function.is_gone(), "its ids are those of its physical function");
        assert_eq!(gone.capabilities().end, End::Broken(0xfc));
        assert_eq!(gone.extended_capabilities().end, End::Broken(0x100));
    }

    /// A list of distinct offsets, linked in this order.
    fn chains() -> impl Strategy<Value = Vec<(u16, u16)>> {
        prop::collection::btree_map(0x40u16..0x400, 1u16..0xffff, 1..60)
            .prop_map(|map| map.into_iter().map(|(slot, id)| (slot * 4, id)).collect())
            .prop_shuffle()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever order entries are linked in, the walk gives them all, in that order.
        #[test]
        fn any_chain_comes_back(mut entries in chains()) {
            entries.retain(|entry| entry.0 != 0x100);
            entries.insert(0, (0x100, 0x77));
            let words: Vec<_> = entries.iter().enumerate().map(|(index, (offset, id))| {
                let next = entries.get(index + 1).map_or(0, |entry| u32::from(entry.0));
                (usize::from(*offset), u32::from(*id) | 1 << 16 | next << 20)
            }).collect();
            let walk = space(4096, &words).extended_capabilities();
            prop_assert_eq!(walk.end, End::Complete);
            let found: Vec<_> = walk.found.iter().map(|one| (one.offset, one.id)).collect();
            prop_assert_eq!(found, entries);
        }

        /// Any bytes of any length: every walk ends, and finds only what is there, each offset once.
        #[test]
        fn any_bytes_end(mut bytes in prop::collection::vec(any::<u8>(), 64..4200), ones in 0usize..3) {
            bytes[6] |= 0x10;
            if ones == 0 {
                let from = bytes.len() / 2;
                bytes[from..].fill(0xff);
            }
            let space = Space::new(bytes).unwrap();
            for (walk, most) in [(space.capabilities(), 48), (space.extended_capabilities(), 960)] {
                prop_assert!(walk.found.len() <= most);
                let mut offsets: Vec<_> = walk.found.iter().map(|one| one.offset).collect();
                offsets.sort_unstable();
                offsets.dedup();
                prop_assert_eq!(offsets.len(), walk.found.len());
                for one in &walk.found {
                    prop_assert!(usize::from(one.offset) < space.len() && one.offset >= 0x40);
                    prop_assert_eq!(space.u8(one.offset), Some(one.id as u8));
                }
            }
        }
    }
}

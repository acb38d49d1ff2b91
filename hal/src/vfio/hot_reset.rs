//! Hot reset: the reset of a whole slot or bus, for functions without a reset of their own.
//!
//! It resets every function there, so the kernel requires proof that the caller has all of them: a descriptor of each IOMMU
//! group (`VFIO_DEVICE_PCI_HOT_RESET`). The kernel does not check whether this process uses the other functions.

use std::collections::BTreeSet;

use crate::PciAddress;

/// A function that a hot reset resets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reached {
    pub(super) group: u32,
    pub(super) address: PciAddress,
}

impl Reached {
    /// Parses a `vfio_pci_hot_reset_info` after its first three words: each function has a word with the group's number, and a
    /// word with segment, bus and device. `None`: an address is invalid.
    pub(super) fn parse(words: &[u32]) -> Option<Vec<Reached>> {
        let (pairs, []) = words.as_chunks::<2>() else { return None };
        pairs
            .iter()
            .map(|&[group, place]| {
                let [low, high, bus, slot] = place.to_ne_bytes();
                let segment = u16::from_ne_bytes([low, high]);
                Some(Reached { group, address: PciAddress::new(segment.into(), bus, slot >> 3, slot & 7)? })
            })
            .collect()
    }
}

/// Returns the groups whose descriptors prove that this process has all reset functions. `None`: a group is missing, or a
/// function other than `own` is open.
pub(super) fn groups_to_prove(
    reached: &[Reached],
    own: PciAddress,
    held: &BTreeSet<u32>,
    open: &BTreeSet<PciAddress>,
) -> Option<BTreeSet<u32>> {
    let is_whole = reached.iter().any(|function| function.address == own);
    let is_ours = |function: &Reached| {
        held.contains(&function.group) && (function.address == own || !open.contains(&function.address))
    };
    (is_whole && reached.iter().all(is_ours)).then(|| reached.iter().map(|function| function.group).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str, group: u32) -> Reached {
        Reached { group, address: address.parse().unwrap() }
    }

    #[test]
    fn the_kernels_answer_is_read() {
        // struct vfio_pci_dependent_device: u32 group, u16 segment, u8 bus, u8 devfn.
        let place = |segment: u16, bus, slot| {
            let [low, high] = segment.to_ne_bytes();
            u32::from_ne_bytes([low, high, bus, slot])
        };
        let words = [7, place(0, 0x3b, 0), 9, place(1, 0x3b, 0x0a)];
        assert_eq!(Reached::parse(&words), Some(vec![at("0000:3b:00.0", 7), at("0001:3b:01.2", 9)]));
        assert_eq!(Reached::parse(&words[..3]), None);
        assert_eq!(Reached::parse(&[]), Some(vec![]));
    }

    #[test]
    fn only_what_is_ours_and_idle_is_reset() {
        let card = [at("3b:00.0", 7), at("3b:00.1", 8)];
        let own = card[1].address;
        let prove = |held: &[u32], open: &[&str]| {
            let open = open.iter().map(|address| address.parse().unwrap()).collect();
            groups_to_prove(&card, own, &held.iter().copied().collect(), &open)
        };
        assert_eq!(prove(&[7, 8], &["3b:00.1"]), Some(BTreeSet::from([7, 8])), "both groups prove it");
        assert_eq!(prove(&[8], &["3b:00.1"]), None, "the other group is somebody else's");
        assert_eq!(prove(&[7, 8], &["3b:00.0", "3b:00.1"]), None, "the other function is open here");
        assert_eq!(prove(&[7, 8], &["5e:00.0"]), Some(BTreeSet::from([7, 8])), "what is not reached does not matter");
        // An answer that does not even name the function itself proves nothing.
        assert_eq!(groups_to_prove(&[], own, &BTreeSet::from([7, 8]), &BTreeSet::new()), None);
    }
}

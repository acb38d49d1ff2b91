//! Fabrics, and random groups of their cards, for tests of any case.

use fpga_tests::sweep::Sweep;
use proptest::prelude::*;

/// The fabrics that [`groups`] are of.
pub(crate) fn fabrics() -> [Sweep; 3] {
    [Sweep::new("mock:optweb:17"), Sweep::new("mock:optweb:64"), Sweep::new("mock:optweb:4x4")]
}

/// Which of the [`fabrics`], and a group there: of 2 to 17 cards or 64 in any order, or a whole Dragonfly.
pub(crate) fn groups() -> impl Strategy<Value = (usize, Vec<u32>)> {
    prop_oneof![
        16 => (Just(0_usize), Just((0..17).collect::<Vec<u32>>()).prop_shuffle(), 2_usize..18),
        1 => (Just(1_usize), Just((0..64).collect::<Vec<u32>>()).prop_shuffle(), Just(64_usize)),
        1 => (Just(1_usize), Just((0..64).collect::<Vec<u32>>()).prop_shuffle(), 2_usize..18),
        3 => (Just(2_usize), Just((0..16).collect::<Vec<u32>>()), Just(16_usize)),
    ]
    .prop_map(|(fabric, mut group, ranks)| {
        group.truncate(ranks);
        (fabric, group)
    })
}

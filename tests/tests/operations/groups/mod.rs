//! Fabrics, and random groups of their cards, for tests of any case.

use fpga_tests::sweep::Sweep;
use proptest::prelude::*;

/// The fabrics that [`groups`] are of.
pub(crate) fn fabrics() -> [Sweep; 7] {
    // With more cards in reach than memory I/Os, stripes share pseudo channels, for a small group too.
    ["17", "64", "4x4", "16+lanes=2", "4x4+lanes=6", "64+lanes=2", "3x40+lanes=6"]
        .map(|shape| Sweep::new(&format!("mock:optweb:{shape}")))
}

/// Which of the [`fabrics`], and a group there: of 2 to 17 cards or 64 in any order, or some rows of a Dragonfly and some
/// places in each of them, with one lane or several.
pub(crate) fn groups() -> impl Strategy<Value = (usize, Vec<u32>)> {
    let line = |of: u32, most: usize| (Just((0..of).collect::<Vec<u32>>()).prop_shuffle(), 1..=most);
    let grid = move |groups: u32, size: u32| {
        (line(groups, groups as usize), line(size, size.min(7) as usize))
            .prop_map(move |((rows, row_count), (columns, column_count))| {
                let row =
                    |row: &u32| columns[..column_count].iter().map(|column| size * row + column).collect::<Vec<u32>>();
                rows[..row_count].iter().flat_map(row).collect::<Vec<u32>>()
            })
            .prop_filter("one card", |group| group.len() > 1)
    };
    prop_oneof![
        16 => (Just(0_usize), Just((0..17).collect::<Vec<u32>>()).prop_shuffle(), 2_usize..18),
        1 => (Just(1_usize), Just((0..64).collect::<Vec<u32>>()).prop_shuffle(), Just(64_usize)),
        1 => (Just(1_usize), Just((0..64).collect::<Vec<u32>>()).prop_shuffle(), 2_usize..18),
        6 => (Just(2_usize), grid(4, 4), Just(16_usize)),
        3 => (Just(3_usize), Just((0..16).collect::<Vec<u32>>()).prop_shuffle(), 2_usize..17),
        4 => (Just(4_usize), grid(4, 4), Just(16_usize)),
        2 => (Just(5_usize), Just((0..64).collect::<Vec<u32>>()).prop_shuffle(), 2_usize..18),
        3 => (Just(6_usize), grid(3, 40), Just(21_usize)),
    ]
    .prop_map(|(fabric, mut group, ranks)| {
        group.truncate(ranks);
        (fabric, group)
    })
}

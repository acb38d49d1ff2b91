//! The table of communicators: its published size, its content, and that an entry is enough for trees, doubling and halving.

use std::collections::{BTreeMap, BTreeSet};

use cmdseq::communicator::{ContextId, GENERATIONS, INDICES};
use fpga_mock::communicator_table::{Entry, EntryError, Format, Peer, Table, TableError};
use proptest::prelude::*;

fn id(index: u32, generation: u32) -> ContextId {
    ContextId::new(index, generation).unwrap()
}

fn entry(size: u32, rank: u32) -> Entry {
    Entry::new(id(1, 0), size, rank, |rank| rank as u16).unwrap()
}

fn is_long() -> bool {
    std::env::var_os("FPGA_TESTS_FULL").is_some_and(|value| value != "0")
}

/// MPI-FPGA, equation 1: (log(MAX_R) (log(MAX_R) + 2) + 8) N_C bits.
fn published_bits(max_r: u32, n_c: u32) -> u32 {
    let log = max_r.ilog2();
    (log * (log + 2) + 8) * n_c
}

#[test]
fn the_table_has_the_published_size() {
    for rank_bits in 1..=16 {
        for entries in 1..=32 {
            let format = Format { rank_bits, entries };
            let bits = published_bits(1 << rank_bits, entries);
            assert_eq!(format.bits(), bits);
            assert_eq!(Table::new(format).as_bytes().len(), bits.div_ceil(8) as usize);
        }
    }
    // Section 3.1: 32 outstanding communicators, up to 64 K processes, "around 1 KB". Section 3.2: ranks of 16 bits, and
    // five block memories of 64 bits side by side hold an entry.
    let table = Table::new(Format::PUBLISHED);
    assert_eq!((table.format().entries, table.format().ranks()), (32, 65_536));
    assert_eq!(table.format().bits(), 9_472);
    assert_eq!(table.as_bytes().len(), 1_184);
    assert_eq!(table.format().entry_bits().div_ceil(64), 5);
    // Section 3.2: a context id in a packet has 5 bits, as many as tell the entries apart.
    assert_eq!(INDICES, 1 << 5);
}

/// The table in `docs/isa.md`: first bit, bits and value of each field.
#[test]
fn an_entry_is_laid_out_as_documented() {
    let mut table = Table::new(Format::PUBLISHED);
    table.insert(&Entry::new(id(0, 0x5a), 0x1235, 0x0102, |rank| 0x4000 | rank as u16).unwrap()).unwrap();
    let field = |first: usize, bits: usize| {
        let bit = |at: usize| u32::from(table.as_bytes()[at / 8] >> (at % 8) & 1) << (at - first);
        (first..first + bits).map(bit).sum::<u32>()
    };
    assert_eq!((field(0, 8), field(8, 16), field(24, 16)), (0x5a, 0x1234, 0x0102));
    for step in 0..16 {
        let rank = 0x0102 ^ 1 << step;
        assert_eq!(field(40 + 16 * step, 16), if rank < 0x1235 { 0x4000 | rank } else { 0 });
    }
}

#[test]
fn a_full_table_of_the_largest_communicators_keeps_everything() {
    let mut table = Table::new(Format::PUBLISHED);
    let node = |index: u32, rank: u32| (rank.wrapping_mul(0x9e37) ^ index.wrapping_mul(0x1003)) as u16;
    let entries: Vec<Entry> = (0..32)
        .map(|index| {
            let rank = (index * 2111) % 65_536;
            Entry::new(id(index, 255 - index), 65_536, rank, |rank| node(index, rank)).unwrap()
        })
        .collect();
    entries.iter().for_each(|entry| table.insert(entry).unwrap());
    for (index, entry) in (0..).zip(&entries) {
        assert_eq!(table.get(entry.id()), Some(*entry));
        assert_eq!(entry.peers().count(), 16);
        let expected =
            (0..16).map(|bit| entry.own_rank() ^ 1 << bit).map(|rank| Peer { rank, node: node(index, rank) });
        assert!(table.get(entry.id()).unwrap().peers().eq(expected));
    }
    assert_eq!(table.as_bytes().len(), 1_184);
}

#[test]
fn what_cannot_be_is_refused() {
    assert_eq!(Entry::new(id(1, 0), 0, 0, |_| 0), Err(EntryError::Size(0)));
    assert_eq!(Entry::new(id(1, 0), 65_537, 0, |_| 0), Err(EntryError::Size(65_537)));
    assert_eq!(Entry::new(id(1, 0), 7, 7, |_| 0), Err(EntryError::Rank { rank: 7, size: 7 }));
    assert_eq!(ContextId::new(INDICES, 0), None);
    assert_eq!(ContextId::new(0, GENERATIONS), None);
    for raw in 0..=u16::MAX {
        let id = ContextId::from_raw(raw);
        assert_eq!(id.map(ContextId::raw), (raw < 8192).then_some(raw));
    }

    let mut table = Table::new(Format { rank_bits: 3, entries: 4 });
    let refused = |table: &mut Table, entry: &Entry| table.insert(entry).unwrap_err();
    let of = |id, size, node: u16| Entry::new(id, size, 0, |_| node).unwrap();
    assert!(matches!(refused(&mut table, &of(id(4, 0), 2, 0)), TableError::NoEntry { entries: 4, .. }));
    assert!(matches!(refused(&mut table, &of(id(1, 0), 9, 0)), TableError::TooLarge { ranks: 8, .. }));
    assert!(matches!(refused(&mut table, &of(id(1, 0), 2, 8)), TableError::TooLarge { ranks: 8, .. }));
    table.insert(&of(id(1, 0), 8, 7)).unwrap();
    table.insert(&of(id(1, 0), 8, 7)).unwrap();
    for other in [of(id(1, 1), 8, 7), of(id(1, 0), 7, 7), of(id(1, 0), 8, 6)] {
        let error = refused(&mut table, &other);
        assert_eq!(error, TableError::Occupied { id: other.id(), occupant: id(1, 0) });
    }
    assert!(!table.remove(id(1, 1)) && !table.remove(id(2, 0)) && !table.remove(id(5, 0)));
    assert!(table.remove(id(1, 0)) && !table.remove(id(1, 0)));
    assert_eq!(table.occupant(1), None);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    /// Inserts and removals in any order against a map from place to entry.
    #[test]
    fn the_table_is_a_map(
        rank_bits in 1_u32..=16,
        entries in 1_u32..=32,
        steps in prop::collection::vec((any::<bool>(), 0_u32..34, 0_u32..3, any::<u32>(), any::<u32>(), any::<u16>()), 1..200),
    ) {
        let format = Format { rank_bits, entries };
        let (mut table, mut model) = (Table::new(format), BTreeMap::<u32, Entry>::new());
        for (is_insert, index, generation, size, rank, seed) in steps {
            let Some(id) = ContextId::new(index, generation) else { continue };
            let size = size % format.ranks() + 1;
            let node = |rank: u32| (rank.wrapping_mul(u32::from(seed) | 1) % format.ranks()) as u16;
            let entry = Entry::new(id, size, rank % size, node).unwrap();
            if is_insert {
                let is_free = model.get(&index).is_none_or(|occupant| *occupant == entry) && index < entries;
                prop_assert_eq!(table.insert(&entry).is_ok(), is_free);
                if is_free {
                    model.insert(index, entry);
                }
            } else {
                let is_there = model.get(&index).is_some_and(|occupant| occupant.id() == id);
                prop_assert_eq!(table.remove(id), is_there);
                if is_there {
                    model.remove(&index);
                }
            }
            for index in 0..34 {
                prop_assert_eq!(table.occupant(index), model.get(&index).copied());
            }
        }
    }
}

fn ranks(peers: impl IntoIterator<Item = Peer>) -> Vec<u32> {
    peers.into_iter().map(|peer| peer.rank).collect()
}

/// The neighbours of a rank in a tree.
struct Tree {
    /// The rank toward the root; none at the root.
    parent: Option<Peer>,
    /// The ranks away from the root, the one with the largest subtree first.
    children: Vec<Peer>,
}

/// Returns the neighbours of an entry's rank in the binomial tree from `root`; if the size is no power of two, in what remains of
/// the tree of the next one.
///
/// A path to the root first clears the bits that the root does not have, lowest first, and then sets those that it has. So no
/// rank on the path exceeds both ends, and each exists.
fn tree(entry: &Entry, root: u32) -> Tree {
    let (cleared, set): (Vec<u32>, Vec<u32>) = (0..16).partition(|step| root >> step & 1 == 0);
    let order: Vec<u32> = cleared.into_iter().chain(set).collect();
    let differs = entry.own_rank() ^ root;
    let first = order.iter().position(|step| differs >> step & 1 == 1).unwrap_or(order.len());
    Tree {
        parent: order.get(first).and_then(|step| entry.peer(*step)),
        children: order[..first].iter().rev().filter_map(|step| entry.peer(*step)).collect(),
    }
}

/// Whether the rank lies beyond the largest power of two in the size. Such a rank hands its data to its [`companion`] before
/// doubling or halving, and gets the result from it.
fn is_beyond(entry: &Entry) -> bool {
    entry.own_rank() >= 1 << entry.size().ilog2()
}

/// Returns the rank that stands in for one beyond the largest power of two, and the reverse.
fn companion(entry: &Entry) -> Option<Peer> {
    entry.peer(entry.size().ilog2())
}

/// Returns the partners of recursive doubling in order; those of recursive halving are the same, backwards.
fn doubling(entry: &Entry) -> Vec<Peer> {
    let steps = if is_beyond(entry) { 0 } else { entry.size().ilog2() };
    (0..steps).filter_map(|step| entry.peer(step)).collect()
}

/// The tree from `root` over all ranks: parents and children agree, all are reached, in no more steps than the size has bits.
fn check_tree(entries: &[Entry], root: u32) {
    let size = entries.len() as u32;
    let trees: Vec<_> = entries.iter().map(|entry| tree(entry, root)).collect();
    // A rank that has the data tells its children one after another: when each gets it.
    let mut at = vec![None; entries.len()];
    at[root as usize] = Some(0);
    let mut reached = vec![root];
    while let Some(rank) = reached.pop() {
        for (turn, child) in (1..).zip(&trees[rank as usize].children) {
            assert_eq!(trees[child.rank as usize].parent.map(|peer| peer.rank), Some(rank), "{size} ranks from {root}");
            assert_eq!(at[child.rank as usize], None, "{size} ranks from {root}: {} is told twice", child.rank);
            at[child.rank as usize] = at[rank as usize].map(|at: u32| at + turn);
            reached.push(child.rank);
        }
    }
    assert_eq!(trees[root as usize].parent, None);
    let rounds = size.next_power_of_two().ilog2();
    assert!(at.iter().all(|at| at.is_some_and(|at| at <= rounds)), "{size} ranks from {root}: {at:?}");
    for (entry, tree) in entries.iter().zip(&trees) {
        let known: BTreeSet<u32> = ranks(entry.peers()).into_iter().collect();
        assert!(tree.children.iter().chain(&tree.parent).all(|peer| known.contains(&peer.rank)));
    }
}

#[test]
fn a_tree_from_any_root_needs_no_other_peers_and_all_of_them() {
    for size in 1..=if is_long() { 512 } else { 130 } {
        let entries: Vec<Entry> = (0..size).map(|rank| entry(size, rank)).collect();
        (0..size).for_each(|root| check_tree(&entries, root));
        // A root tells everyone it knows: an entry has no peer that is never used.
        for entry in &entries {
            let children: BTreeSet<u32> = ranks(tree(entry, entry.own_rank()).children).into_iter().collect();
            assert_eq!(children, ranks(entry.peers()).into_iter().collect());
        }
    }
    for size in (131..=4096).step_by(if is_long() { 1 } else { 61 }).chain([65_535, 65_536, 40_961]) {
        let entries: Vec<Entry> = (0..size).map(|rank| entry(size, rank)).collect();
        [0, size - 1, size / 3].into_iter().for_each(|root| check_tree(&entries, root));
    }
}

#[test]
fn of_a_power_of_two_the_tree_is_binomial() {
    for bits in 0..=8_u32 {
        let size = 1 << bits;
        for root in 0..size {
            // Ranks by distance from the root: as many as there are ways to choose so many of the bits.
            let mut by_depth = vec![0_u64; bits as usize + 1];
            for rank in 0..size {
                let (mut at, mut depth) = (rank, 0);
                while let Some(parent) = tree(&entry(size, at), root).parent {
                    assert_eq!((at ^ parent.rank).count_ones(), 1);
                    (at, depth) = (parent.rank, depth + 1);
                }
                assert_eq!(at, root);
                by_depth[depth] += 1;
            }
            let choose = |k: u64| (0..k).fold(1, |product, i| product * (u64::from(bits) - i) / (i + 1));
            assert!(by_depth.into_iter().eq((0..=u64::from(bits)).map(choose)), "{size} ranks from {root}");
        }
    }
}

#[test]
fn doubling_and_halving_bring_everything_to_everyone() {
    let sizes = (1..=4096_u32).step_by(if is_long() { 1 } else { 37 }).chain((1..=200).chain([65_535, 65_536, 33_000]));
    for size in sizes {
        let entries: Vec<Entry> = (0..size).map(|rank| entry(size, rank)).collect();
        // What a rank has is a sum of distinct weights, so that nothing may come twice.
        let weight = |rank: u32| u128::from(rank) + (1 << 64);
        let all: u128 = (0..size).map(weight).sum();
        let mut has: Vec<u128> = (0..size).map(weight).collect();
        for entry in entries.iter().filter(|entry| is_beyond(entry)) {
            let partner = companion(entry).unwrap().rank;
            assert_eq!(ranks(companion(&entries[partner as usize])), [entry.own_rank()]);
            assert!(doubling(entry).is_empty());
            has[partner as usize] += weight(entry.own_rank());
        }
        let within: Vec<&Entry> = entries.iter().filter(|entry| !is_beyond(entry)).collect();
        let (mut doubled, mut halved) = (has.clone(), has);
        for step in 0..size.ilog2() as usize {
            let (before, before_halved) = (doubled.clone(), halved.clone());
            for entry in &within {
                let own = entry.own_rank() as usize;
                let near = doubling(entry)[step].rank as usize;
                let far = doubling(entry).iter().rev().nth(step).unwrap().rank as usize;
                assert_eq!(doubling(&entries[near])[step].rank as usize, own);
                assert_eq!((own ^ near, own ^ far), (1 << step, 1 << (size.ilog2() as usize - 1 - step)));
                doubled[own] += before[near];
                halved[own] += before_halved[far];
            }
        }
        assert!(within.iter().all(|entry| doubled[entry.own_rank() as usize] == all), "{size} ranks");
        assert!(within.iter().all(|entry| halved[entry.own_rank() as usize] == all), "{size} ranks");
        let steps = size.next_power_of_two().ilog2() as usize;
        assert!(entries.iter().all(|entry| entry.peers().count() <= steps), "{size} ranks");
    }
}

/// Why trees are counted by bits: those that are turned by their root need ranks at powers of two in both directions.
#[test]
fn trees_turned_by_their_root_would_need_more() {
    let (size, rank) = (64_u32, 21_u32);
    let turned: BTreeSet<u32> = (0..size)
        .flat_map(|root| {
            let relative = (rank + size - root) % size;
            let parent = (relative != 0).then(|| relative & (relative - 1));
            let children = (0..relative.trailing_zeros().min(6)).map(move |bit| relative + (1 << bit));
            parent.into_iter().chain(children).map(move |relative| (relative + root) % size)
        })
        .collect();
    let known: BTreeSet<u32> = ranks(entry(size, rank).peers()).into_iter().collect();
    assert_eq!(known.len(), 6);
    assert_eq!(turned.len(), 11);
    // From rank 0 they are the same, and the paper's example is of rank 0 of 8.
    assert_eq!(ranks(entry(8, 0).peers()), [1, 2, 4]);
    assert_eq!(ranks(tree(&entry(8, 0), 0).children), [4, 2, 1]);
}

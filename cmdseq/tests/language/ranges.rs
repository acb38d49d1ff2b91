//! Tables, and the ranges that instructions read and write, by hand-computed examples.

use std::collections::BTreeSet;

use cmdseq::ranges::{Range, Reduced, Transfers, card_ranges};
use cmdseq::{
    Combine, Context, Element, Instruction, Operand, OwnBlock, RangeError, Reduction, Table, Tables, Transfer, table,
    transfers,
};

const NO_TABLES: &Tables = &Tables::new();

fn at(rank: u32, ranks: u32) -> Context<'static> {
    Context { rank, ranks, stripe_bytes: STRIPE, tables: NO_TABLES }
}

const STRIPE: u64 = 512 << 20;

#[test]
fn a_striped_block_lies_in_the_stripe_of_the_rank_it_is_exchanged_with() {
    let striped = Operand::card(64).striped();
    let scatter = Instruction::scatter(2, striped, striped, 32);
    let root = transfers(&scatter, &at(2, 4)).unwrap();
    let addresses: Vec<u64> = root.sends.iter().map(|send| send.address).collect();
    assert_eq!(addresses, [64, 64 + STRIPE, 64 + 3 * STRIPE]);
    assert_eq!(root.own, None, "the own block is in place");
    let other = transfers(&scatter, &at(1, 4)).unwrap();
    assert_eq!(other.receives, [Transfer { peer_rank: 2, address: 64 + 2 * STRIPE, bytes: 32 }]);
    assert!(other.sends.is_empty() && other.own.is_none());
}

#[test]
fn divided_vectors_end_with_short_and_empty_blocks() {
    let allgather = Instruction::allgather(Operand::card(0), Operand::card(4096), 64).dividing(100);
    let last = transfers(&allgather, &at(3, 4)).unwrap();
    assert!(last.sends.is_empty() && last.multicast);
    let blocks: Vec<(u32, u64)> = last.receives.iter().map(|one| (one.peer_rank, one.bytes)).collect();
    assert_eq!(blocks, [(0, 64), (1, 36)]);
    let ranges = card_ranges(&allgather, &at(0, 4)).unwrap();
    assert_eq!(ranges.reads, [Range { address: 0, bytes: 64 }], "one stream is read once");
    assert_eq!(ranges.writes.len(), 2, "the block of rank 1 and the own one");
}

/// Rank 1 of 3 sends its blocks 0 and 2, and writes a result for each rank, its own where its own block arrives.
#[test]
fn an_alltoall_scan_writes_a_partial_result_for_each_rank() {
    let sum = Combine::new(Reduction::Sum, Element::F32);
    let (here, there) = (Operand::card(1000), Operand::card(5000));
    let blocks =
        |list: &[Transfer]| -> Vec<(u32, u64)> { list.iter().map(|one| (one.peer_rank, one.address)).collect() };
    for (source, destination, read, written) in [
        (here, there, [1000, 1064, 1128], [5000, 5064, 5128]),
        (here.striped(), there, [1000, 1000 + STRIPE, 1000 + 2 * STRIPE], [5000, 5064, 5128]),
        (here, there.striped(), [1000, 1064, 1128], [5000, 5000 + STRIPE, 5000 + 2 * STRIPE]),
    ] {
        let instruction = Instruction::alltoall_scan(sum, source, destination, 64);
        let moved = transfers(&instruction, &at(1, 3)).unwrap();
        assert_eq!(blocks(&moved.sends), [(0, read[0]), (2, read[2])]);
        assert_eq!(blocks(&moved.receives), [(0, written[0]), (2, written[2])]);
        assert_eq!(moved.partials, written);
        assert_eq!(moved.reduced, Some(Reduced { own: Some(read[1]), destination: written[1], bytes: 64 }));
        assert_eq!((moved.own, moved.multicast, moved.contribution()), (None, false, Some((read[1], 64))));
        let ranges = card_ranges(&instruction, &at(1, 3)).unwrap();
        let addresses = |ranges: &[Range]| ranges.iter().map(|range| range.address).collect::<BTreeSet<u64>>();
        assert_eq!(
            (addresses(&ranges.reads), addresses(&ranges.writes)),
            (BTreeSet::from(read), BTreeSet::from(written))
        );
        assert_eq!(ranges.in_place, None);
    }
    let alone = transfers(&Instruction::alltoall_scan(sum, here, there, 64), &at(0, 1)).unwrap();
    assert_eq!(alone.own, Some(OwnBlock { source: 1000, destination: 5000, bytes: 64 }));
    assert!(alone.partials.is_empty() && alone.reduced.is_none());
    let nothing = transfers(&Instruction::alltoall_scan(sum, here, there, 0), &at(1, 3)).unwrap();
    assert_eq!(nothing, Transfers::default());
    let own_in_place = card_ranges(&Instruction::alltoall_scan(sum, here, here, 64), &at(1, 3)).unwrap();
    assert!(own_in_place.reads.contains(&Range { address: 1064, bytes: 64 }), "the own block is read and written");
    assert!(own_in_place.writes.contains(&Range { address: 1064, bytes: 64 }));
    let high = Instruction::alltoall_scan(sum, here, Operand::card(u64::MAX - 100), 64);
    assert!(matches!(transfers(&high, &at(0, 3)), Err(RangeError::Address { block: 1, .. })));
}

#[test]
fn blocks_of_vector_forms_lie_where_tables_say() {
    let tables = Tables::from([(2, Table::packed([10, 0, 30, 5], 64)), (3, Table::packed([1, 2, 30, 4], 1))]);
    let context = |rank| Context { tables: &tables, ..at(rank, 4) };
    let (here, there) = (Operand::card(1000), Operand::card(5000));
    let blocks = |list: &[Transfer]| -> Vec<(u32, u64, u64)> {
        list.iter().map(|one| (one.peer_rank, one.address, one.bytes)).collect()
    };
    let scatterv = transfers(&Instruction::scatterv(2, here, there, 30, 2), &context(2)).unwrap();
    assert_eq!(blocks(&scatterv.sends), [(0, 1000, 10), (3, 1128, 5)]);
    assert_eq!(scatterv.own, Some(OwnBlock { source: 1064, destination: 5000, bytes: 30 }));
    let gatherv = transfers(&Instruction::gatherv(0, here, there, 5, 0), &context(3)).unwrap();
    assert_eq!(blocks(&gatherv.sends), [(0, 1000, 5)], "only the root reads a table");
    let allgatherv = transfers(&Instruction::allgatherv(here, there, 0, 2), &context(1)).unwrap();
    assert!(allgatherv.sends.is_empty() && allgatherv.own.is_none());
    assert_eq!(blocks(&allgatherv.receives), [(0, 5000, 10), (2, 5064, 30), (3, 5128, 5)]);
    let alltoallv = transfers(&Instruction::alltoallv(here, there, 2, 3), &context(2)).unwrap();
    assert_eq!(blocks(&alltoallv.sends), [(0, 1000, 10), (3, 1128, 5)]);
    assert_eq!(blocks(&alltoallv.receives), [(0, 5000, 1), (1, 5001, 2), (3, 5033, 4)]);
    let in_place = card_ranges(&Instruction::scatterv(2, here, Operand::card(1064), 30, 2), &context(2)).unwrap();
    assert_eq!(in_place.in_place, Some(Range { address: 1064, bytes: 30 }));
}

#[test]
fn tables_that_do_not_fit_are_refused() {
    let tables = Tables::from([(2, Table::packed([10, 20, 30], 1)), (3, Table::packed([10, 21, 30], 1))]);
    let context = Context { tables: &tables, ..at(1, 3) };
    let zero = Operand::card(0);
    let refused = |instruction| transfers(&instruction, &context).unwrap_err();
    let allgatherv = |bytes, table| refused(Instruction::allgatherv(zero, Operand::card(100), bytes, table));
    assert_eq!(allgatherv(20, 4), RangeError::NoTable { slot: 4 });
    assert_eq!(allgatherv(19, 2), RangeError::OwnBlock { slot: 2, listed: 20, bytes: 19 });
    let other = Instruction { extent: 1 << 32 | 3 << 16 | 2, ..Instruction::alltoallv(zero, zero, 0, 0) };
    assert_eq!(refused(other), RangeError::NoTable { slot: 1 << 16 | 3 });
    let uneven = Instruction::alltoallv(zero, zero, 2, 3);
    assert_eq!(refused(uneven), RangeError::OwnBlock { slot: 3, listed: 21, bytes: 20 });
    let four = Context { ranks: 4, ..context };
    let entries = transfers(&Instruction::scatterv(1, zero, zero, 20, 2), &four).unwrap_err();
    assert_eq!(entries, RangeError::Entries { slot: 2, entries: 3, ranks: 4 });
    let high = Instruction::gatherv(1, zero, Operand::card(u64::MAX - 20), 20, 2);
    assert!(matches!(refused(high), RangeError::Address { block: 2, .. }));
}

#[test]
fn addresses_do_not_wrap() {
    let near_the_end = Operand::card(u64::MAX - 100);
    let gather = Instruction::gather(0, Operand::card(0), near_the_end, 64);
    let overflow = transfers(&gather, &at(0, 2)).unwrap_err();
    assert_eq!(overflow, RangeError::Address { address: u64::MAX - 100, block: 1, bytes: 64 });
    assert!(transfers(&gather, &at(1, 2)).is_ok(), "the other rank only reads at 0");
    let copy = Instruction::copy(near_the_end, Operand::card(0), 200);
    assert!(card_ranges(&copy, &at(0, 1)).is_err());
    let huge = Instruction::alltoall(Operand::card(0), Operand::card(0), u64::MAX);
    assert!(transfers(&huge, &at(0, 3)).is_err());
}

#[test]
fn blocks_are_packed_at_aligned_places() {
    let table = Table::packed([100, 0, 64, 1], 64);
    let places: Vec<(u64, u64)> = table.entries.iter().map(|one| (one.displacement, one.bytes)).collect();
    assert_eq!(places, [(0, 100), (128, 0), (128, 64), (192, 1)]);
    assert_eq!((table.span(), table.longest()), (193, 100));
    assert_eq!(Table::packed([u64::MAX, 5], 64).entries[1].displacement, u64::MAX);
}

#[test]
fn what_is_encoded_is_decoded() {
    let table = Table::packed([7, 1 << 40, 0], 8);
    assert_eq!(table.encode().len(), 3 * table::ENTRY_BYTES);
    assert_eq!(table.encode()[24..32], (1_u64 << 40).to_le_bytes());
    assert_eq!(Table::decode(&table.encode()), Ok(table));
    for bytes in [0, 17] {
        let error = Table::decode(&vec![0; bytes]).unwrap_err().to_string();
        assert_eq!(error, format!("invalid table of {bytes} B: expected one entry of 16 B for each rank"));
    }
}

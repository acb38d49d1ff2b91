//! The short check of an instruction against the check of its blocks.

use proptest::prelude::*;

use super::*;
use crate::table::Table;
use crate::verify::sample::{EAGER_BYTES, EAGER_LIMIT, MEMORY, STRIPE, card, members};
use crate::{Reduction, table};

const SUM: Combine = Combine::new(Reduction::Sum, Element::U8);

fn at(address: u64) -> Operand {
    Operand::card(address)
}

fn listed(blocks: &[(u64, u64)]) -> Table {
    let entry = |(displacement, bytes): &(u64, u64)| table::Entry { displacement: *displacement, bytes: *bytes };
    Table { entries: blocks.iter().map(entry).collect() }
}

/// The results of both checks for an instruction of `rank`; `None` if an earlier check refuses it.
fn looks(instruction: &Instruction, rank: u32, ranks: u32, tables: &Tables) -> Option<(bool, Result<(), Refusal>)> {
    let capabilities = card(ranks);
    let members = members(&capabilities, &[]);
    let membership = members.of(rank as usize, instruction)?;
    check_form(instruction, &capabilities).ok()?;
    check_ranks(instruction, &membership).ok()?;
    check_stripes(instruction, &capabilities).ok()?;
    let context = membership.context(tables, &capabilities);
    let spans = &Spans::of_each([tables].into_iter())[0];
    let short = Instructions::new(&members, &capabilities, 1).is_plainly_right(instruction, &context, spans);
    Some((short, check_blocks(instruction, &membership, &context, &capabilities)))
}

/// Common instructions. Checking their blocks would take many times the time in `docs/verifier.md`.
#[test]
#[expect(clippy::too_many_lines, reason = "a list of instructions")]
fn common_instructions_need_only_the_short_check() {
    let (a, b, far) = (at(0), at(1024), at(MEMORY - 256));
    let late = |it: Instruction| it.with_flags(Flags::RENDEZVOUS);
    let eager = |it: Instruction| it.with_flags(Flags::EAGER);
    // Blocks of 8, 16, 24 and 32 B, and the same with 8 B between them.
    let lengths = [8, 16, 24, 32];
    let tables = Tables::from([
        (0, Table::packed(lengths, 1)),
        (1, listed(&[(100, 8), (0, 16), (40, 24), (200, 32)])),
        (2, Table::packed([24; 4], 1)),
    ]);
    let plain = [
        Instruction::barrier(),
        Instruction::send(0, a, 64),
        Instruction::send(0, a, MEMORY),
        Instruction::send(0, at(MEMORY), 0),
        Instruction::send(0, a.striped(), STRIPE / 2),
        Instruction::recv(0, at(MEMORY - 64), 64),
        eager(Instruction::send(0, a, EAGER_BYTES)),
        eager(Instruction::recv(0, a, EAGER_BYTES)),
        Instruction::sendrecv(1, 3, a, b, 1024),
        Instruction::sendrecv(1, 3, b, a, 1024),
        Instruction::sendrecv(2, 2, a, b, 64),
        Instruction::scatter(2, a, b, 256),
        Instruction::scatter(0, a, a, 256),
        Instruction::gather(2, a, b, 256),
        Instruction::gather(0, a, a, 256),
        Instruction::broadcast(2, a, b, 256),
        Instruction::broadcast(0, a, a, 256),
        Instruction::alltoall(a, b, 256),
        Instruction::alltoall(a.striped(), at(STRIPE / 2).striped(), STRIPE / 2),
        Instruction::allgather(a, b, 256),
        Instruction::allgather(a, b, 256).dividing(1000),
        // Two of four blocks are empty.
        Instruction::allgather(a, at(MEMORY - 128), 64).dividing(100),
        Instruction::reduce(SUM, 2, a, b, 64),
        Instruction::reduce(SUM, 0, a, b, 64),
        Instruction::allreduce(SUM, a, b, 64),
        Instruction::allreduce(SUM, a.striped(), at(32).striped(), 32),
        Instruction::reduce_scatter(SUM, a, b, 256),
        Instruction::scan(SUM, a, b, 64),
        Instruction::exscan(SUM, a, b, 64),
        Instruction::recv_reduce(SUM, 0, a, b, 64),
        // Between the stripes.
        Instruction::sendrecv(1, 1, at(STRIPE).striped(), at(2 * STRIPE + 16), 16),
        Instruction::sendrecv_reduce(SUM, (1, 3), a, far, b, 64),
        Instruction::sendrecv_reduce(SUM, (1, 3), a, b, b, 64),
        Instruction::sendrecv_reduce(SUM, (1, 3), a, a, b, 64),
        Instruction::rdma_read(0, a, a, 64),
        Instruction::rdma_write(0, at(MEMORY - 64), a, 64),
        eager(Instruction::rdma_write(0, a, a, EAGER_BYTES)),
        Instruction::put_signal(0, a, far, 64, 0, 1),
        // Lists, at ranks that read them and at those that do not.
        Instruction::scatterv(0, a, b, 24, 9),
        Instruction::scatterv(2, a, b, 24, 0),
        Instruction::scatterv(2, a, b, 24, 1),
        Instruction::gatherv(0, a, b, 999, 9),
        Instruction::gatherv(2, a, b, 24, 1),
        Instruction::allgatherv(a, b, 24, 0),
        Instruction::allgatherv(a, b, 24, 1),
        Instruction::alltoallv(a, b, 0, 0),
        Instruction::alltoallv(a, b, 0, 2),
        Instruction::alltoallv(b, a, 1, 0),
    ];
    let listed = [
        Instruction::scatterv(2, a, b, 24, 0),
        Instruction::gatherv(2, a, b, 24, 1),
        Instruction::allgatherv(a, b, 24, 0),
        Instruction::alltoallv(a, b, 0, 2),
    ];
    for instruction in plain.into_iter().chain(plain.map(late)).chain(listed.map(eager)) {
        assert_eq!(looks(&instruction, 2, 4, &tables), Some((true, Ok(()))), "{instruction:?}");
    }
    // The own block in place: at the root, or at each rank.
    let own = |rank: u64, blocks: u16| {
        let list = &tables[&blocks].entries[rank as usize];
        at(1024 + list.displacement)
    };
    for rank in 0..4_u16 {
        let block = at(1024 + 64 * u64::from(rank));
        let bytes = lengths[usize::from(rank)];
        for instruction in [
            Instruction::scatter(rank, b, block, 64),
            Instruction::gather(rank, block, b, 64),
            Instruction::broadcast(rank, b, b, 64),
            Instruction::allgather(block, b, 64),
            Instruction::reduce(SUM, rank, b, b, 64),
            Instruction::reduce_scatter(SUM, b, block, 64),
            Instruction::recv_reduce(SUM, (rank + 1) % 4, b, b, 64),
            Instruction::scatterv(rank, b, own(rank.into(), 0), bytes, 0),
            Instruction::scatterv(rank, b, own(rank.into(), 1), bytes, 1),
            Instruction::gatherv(rank, own(rank.into(), 1), b, bytes, 1),
            Instruction::allgatherv(own(rank.into(), 0), b, bytes, 0),
        ] {
            assert_eq!(looks(&instruction, rank.into(), 4, &tables), Some((true, Ok(()))), "{instruction:?}");
        }
    }
}

/// The short check does not accept instructions that are wrong, or need a check of their blocks.
#[test]
fn other_instructions_need_the_check_of_their_blocks() {
    let (a, b) = (at(0), at(1024));
    let eager = |it: Instruction| it.with_flags(Flags::EAGER);
    let tables = Tables::from([
        (0, listed(&[(0, 8), (64, 8), (32, 8)])),
        (1, listed(&[(16, 8), (48, 8), (80, 8)])),
        (2, listed(&[(0, 8), (64, 8), (7, 8)])),
        (3, listed(&[(0, 9), (9, 8), (17, 8)])),
        (4, listed(&[(0, 0), (0, 8), (8, 8)])),
        (5, listed(&[(0, 8), (48, 8), (80, 8)])),
        (6, listed(&[(0, 8), (8, EAGER_BYTES + 1), (0, 0)])),
    ]);
    let (right, overlap) = (None, Some(Reason::Overlap));
    for (instruction, refused) in [
        // Right, by the check of their blocks.
        (Instruction::allgather(a, at(MEMORY - 127), 64).dividing(100), right),
        (Instruction::rdma_write(1, a.striped(), b, 8), right),
        (Instruction::rdma_read(1, a, b.striped(), 8), right),
        (Instruction::alltoallv(a, a, 0, 5), right),
        (Instruction::gatherv(0, at(16), a, 8, 0), right),
        (Instruction::sendrecv(1, 1, at(STRIPE).striped(), at(3 * STRIPE), 16), right),
        // Wrong.
        (eager(Instruction::send(1, a, EAGER_BYTES + 1)), Some(Reason::EagerOverrun)),
        (eager(Instruction::gatherv(0, a, b, 8, 6)), Some(Reason::EagerOverrun)),
        (eager(Instruction::scatterv(0, a, b, 8, 6)), Some(Reason::EagerOverrun)),
        (eager(Instruction::alltoallv(a, at(EAGER_BYTES + 64), 6, 6)), Some(Reason::EagerOverrun)),
        (eager(Instruction::send(1, a, EAGER_LIMIT + EAGER_BYTES)), Some(Reason::EagerOverrun)),
        (Instruction::send(1, at(MEMORY - 63), 64), Some(Reason::Memory)),
        (Instruction::recv(1, at(MEMORY - 63), 64), Some(Reason::Memory)),
        (Instruction::rdma_write(1, at(MEMORY - 7), b, 8), Some(Reason::Memory)),
        (Instruction::rdma_write(1, b, at(MEMORY - 7), 8), Some(Reason::Memory)),
        (Instruction::rdma_read(1, b, at(u64::MAX - 4), 8), Some(Reason::Memory)),
        (Instruction::sendrecv_reduce(SUM, (1, 2), a, at(MEMORY - 7), b, 8), Some(Reason::Memory)),
        (Instruction::sendrecv(1, 2, a, at(63), 64), overlap),
        (Instruction::sendrecv_reduce(SUM, (1, 2), a, at(1023), b, 8), overlap),
        (Instruction::sendrecv_reduce(SUM, (1, 2), b, a, b, 8), overlap),
        (Instruction::scatter(0, a, at(63), 64), overlap),
        (Instruction::scatter(0, a, at(64), 64), overlap),
        (Instruction::gather(0, at(65), a, 64), overlap),
        (Instruction::allgather(at(64), a, 64), overlap),
        (Instruction::allreduce(SUM, a, a, 64), overlap),
        (Instruction::alltoall(a, a, 64), overlap),
        (Instruction::alltoallv(a, at(28), 0, 0), overlap),
        (Instruction::alltoallv(a, at(12), 0, 1), overlap),
        (Instruction::allgatherv(b, a, 8, 2), overlap),
        (Instruction::gatherv(0, b, a, 8, 2), overlap),
        (Instruction::alltoallv(b, a, 0, 2), overlap),
        (Instruction::allgatherv(b, a, 8, 3), Some(Reason::TableMismatch)),
        (Instruction::gatherv(0, b, a, 8, 3), Some(Reason::TableMismatch)),
        (Instruction::scatterv(0, b, a, 8, 3), Some(Reason::TableMismatch)),
        (Instruction::alltoallv(b, a, 0, 3), Some(Reason::TableMismatch)),
        (Instruction::alltoallv(b, a, 9, 0), Some(Reason::Stored)),
        (Instruction::alltoallv(b, a, 0, 9), Some(Reason::Stored)),
    ] {
        let (short, long) = looks(&instruction, 0, 3, &tables).unwrap();
        assert_eq!((short, long.err().map(|fault| fault.reason)), (false, refused), "{instruction:?}");
    }
    // Lists whose blocks are between those of the other.
    for instruction in [Instruction::alltoallv(a, a, 0, 1), Instruction::alltoallv(a, at(8), 0, 0)] {
        assert_eq!(looks(&instruction, 0, 3, &tables), Some((true, Ok(()))), "{instruction:?}");
    }
    // A single striped block is not at its operand's address: here it is where the block of rank 3 is written.
    let striped = Instruction::allgather(at(STRIPE / 2).striped(), a, STRIPE / 2);
    let (short, long) = looks(&striped, 1, 4, &tables).unwrap();
    assert_eq!((short, long.map_err(|fault| fault.reason)), (false, Err(Reason::Overlap)));
    // An empty own block is not read, at any address.
    let empty = Instruction::allgatherv(at(12), a, 0, 4);
    assert_eq!(looks(&empty, 0, 3, &tables), Some((false, Ok(()))));
}

fn operand() -> impl Strategy<Value = Operand> {
    let address =
        prop_oneof![8 => (0..40_u64).prop_map(|at| at * 8), 1 => Just(MEMORY - 64), 1 => Just(u64::MAX - 100)];
    (address, prop::bool::weighted(0.2)).prop_map(|(address, is_striped)| match is_striped {
        true => at(address).striped(),
        false => at(address),
    })
}

fn tables(ranks: u32) -> impl Strategy<Value = Tables> {
    let block = (0..8_u64, 0..3_u64).prop_map(|(at, blocks)| (at * 8, blocks * 8));
    let list = prop::collection::vec(block, ranks as usize);
    prop::collection::vec(list, 2).prop_map(|lists| (0..).zip(lists.iter().map(|list| listed(list))).collect())
}

fn instruction(ranks: u32) -> impl Strategy<Value = Instruction> {
    let operations: Vec<Operation> = Operation::ALL
        .iter()
        .copied()
        .filter(|operation| takes_partners(*operation) || is_one_sided(*operation))
        .collect();
    let fields = (0..ranks as u16, 0..ranks as u16, 0..5_u64, 0..40_u64, 0..3_u8);
    (prop::sample::select(operations), operand(), operand(), fields).prop_map(
        |(operation, source, destination, (root, peer, bytes, extent, flags))| {
            let reads = operation.fields();
            let extent = match operation {
                Operation::SendrecvReduce => extent * 8,
                Operation::Alltoallv => (extent % 2) | ((extent / 2 % 2) << 16),
                _ if takes_tables(operation) => extent % 2,
                _ => extent / 2,
            };
            let flags = [Flags::empty(), Flags::EAGER, Flags::RENDEZVOUS][usize::from(flags)];
            Instruction {
                root: if reads.root { root } else { 0 },
                peer: if reads.peer { peer } else { 0 },
                source: if reads.source { source } else { at(0) },
                destination: if reads.destination { destination } else { at(0) },
                bytes: if reads.bytes { 8 * bytes } else { 0 },
                extent: if reads.extent { extent } else { 0 },
                element: reads.combine.then_some(Element::U8),
                reduction: reads.combine.then_some(Reduction::Sum),
                flags,
                ..Instruction::new(operation)
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(20000) })]

    /// The short check never accepts a wrong instruction.
    #[test]
    fn what_is_plainly_right_is_right(
        (ranks, rank, instruction, tables) in (1..5_u32)
            .prop_flat_map(|ranks| (Just(ranks), 0..ranks, instruction(ranks), tables(ranks)))
    ) {
        if let Some((true, long)) = looks(&instruction, rank, ranks, &tables) {
            prop_assert_eq!(long, Ok(()));
        }
    }
}

#[test]
fn host_memory_is_for_cards_whose_sequencer_reaches_it() {
    let (host, card_memory) = (Operand::host(4096), at(0));
    let reaches = card(2);
    let reaches_none = Capabilities { host_memory: false, ..reaches.clone() };
    for instruction in [
        Instruction::copy(host, card_memory, 64),
        Instruction::copy(card_memory, host, 64),
        Instruction::table(0, 4096, 2),
        Instruction::store(0, 4096, 1),
        Instruction::group(1, 4096, 2),
    ] {
        assert_eq!(check_form(&instruction, &reaches), Ok(()), "{instruction:?}");
        let fault = check_form(&instruction, &reaches_none).unwrap_err();
        assert_eq!(fault.reason, Reason::Unsupported, "{instruction:?}");
    }
    assert_eq!(check_form(&Instruction::copy(card_memory, at(64), 64), &reaches_none), Ok(()));
}

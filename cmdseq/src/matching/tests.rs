//! The short check of the blocks of vector forms against the full one.

use proptest::prelude::*;

use super::{Job, Matching};
use crate::table::Table;
use crate::verify::sample::{card, members, programs};
use crate::{Instruction, Operand, Operation, Tables, transfers};

const RANKS: usize = 4;

/// A vector form of each rank, with `sent` from each to each. What is received is the same, but for `changes`: a length of
/// a table, or one that an instruction says.
fn vector_form(
    operation: Operation,
    root: u16,
    sent: &[Vec<u64>],
    changes: &[(usize, usize, u64)],
) -> Vec<(Instruction, Tables)> {
    let (a, b) = (Operand::card(0), Operand::card(2048));
    let mut received = sent.to_vec();
    changes.iter().for_each(|(from, to, bytes)| received[*from][*to] = *bytes);
    let from_root = &sent[usize::from(root)];
    let each = |rank: usize| {
        let row = |lengths: &[u64]| Table::packed(lengths.iter().copied(), 1);
        let column: Vec<u64> = received.iter().map(|row| row[rank]).collect();
        // Of a form in which each sends or receives one length, a change is one of what this rank says.
        let own = changes.iter().filter(|change| change.0 == rank).map(|change| change.2).next_back();
        let bytes = own.unwrap_or(from_root[rank]);
        let mut listed = from_root.clone();
        listed[rank] = bytes;
        let instruction = match operation {
            Operation::Scatterv => Instruction::scatterv(root, a, b, bytes, 0),
            Operation::Gatherv => Instruction::gatherv(root, a, b, bytes, 0),
            Operation::Allgatherv => Instruction::allgatherv(a, b, bytes, 0),
            _ => return (Instruction::alltoallv(a, b, 0, 1), [(0, row(&sent[rank])), (1, row(&column))].into()),
        };
        (instruction, [(0, row(&listed))].into())
    };
    (0..RANKS).map(each).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4000) })]

    #[test]
    fn the_short_check_of_blocks_agrees_with_the_full_one(
        operation in prop::sample::select(vec![
            Operation::Scatterv, Operation::Gatherv, Operation::Allgatherv, Operation::Alltoallv,
        ]),
        root in 0..RANKS as u16,
        sent in prop::collection::vec(prop::collection::vec(0..3_u64, RANKS), RANKS),
        changes in prop::collection::vec((0..RANKS, 0..RANKS, 0..3_u64), 0..3),
    ) {
        let all = vector_form(operation, root, &sent, &changes);
        let (capabilities, programs) = (card(RANKS as u32), programs(all.into_iter().map(|(it, tables)| (vec![it], tables))));
        let members = members(&capabilities, &[]);
        let job = Job { programs: &programs, members: &members, capabilities: &capabilities };
        let matching = Matching::new(job);
        // An own block of two lengths is refused before.
        for (rank, program) in programs.iter().enumerate() {
            let instruction = &program.instructions[0];
            prop_assume!(transfers(instruction, &job.context(rank, instruction)).is_ok());
        }
        let membership = members.of(0, &programs[0].instructions[0]).unwrap();
        prop_assert_eq!(matching.do_blocks_agree(&membership, 0), matching.check_blocks(membership.index).is_ok());
    }
}

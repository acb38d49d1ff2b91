//! What is known of the last exchanges of a rank: pieces of one transfer differ in their addresses only.

use crate::instruction::has_address_in_extent;
use crate::{Instruction, Operation};

/// Kinds of exchanges that are remembered.
const KINDS: usize = 16;

/// Operation, communicator, root, peer, bytes and extent.
type Kind = (Operation, u16, u16, u16, u64, u64);

/// Facts about the last exchanges of one rank that depend on everything but addresses.
#[derive(Debug, Clone)]
pub(crate) struct Recent<T> {
    /// In the order in which they first came, which pieces of a pipeline repeat.
    known: Vec<(Kind, T)>,
    /// Place behind the last that was asked for.
    next: usize,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Recent { known: Vec::new(), next: 0 }
    }
}

impl<T> Recent<T> {
    /// Returns what `find` says of `instruction`, or said of one of its kind.
    pub(crate) fn of(&mut self, instruction: &Instruction, find: impl FnOnce() -> T) -> &T {
        let Instruction { operation, communicator, root, peer, bytes, .. } = *instruction;
        let extent = if has_address_in_extent(operation) { 0 } else { instruction.extent };
        let kind = (operation, communicator, root, peer, bytes, extent);
        let mut places = (self.next..self.known.len()).chain(0..self.next);
        let place = places.find(|place| self.known[*place].0 == kind).unwrap_or_else(|| {
            if self.known.len() == KINDS {
                self.known.clear();
            }
            self.known.push((kind, find()));
            self.known.len() - 1
        });
        self.next = place + 1;
        &self.known[place].1
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Context, Operand, Tables, Transfer, transfers};

    fn any_instruction() -> impl Strategy<Value = Instruction> {
        let addresses = [0..4_u64, 0..4, 0..4].map(|places| places.prop_map(|place| place * 1000));
        (prop::sample::select(Operation::ALL), 0..4_u16, 0..4_u16, 0..4_u64, addresses).prop_map(
            |(operation, root, peer, bytes, [from, to, extent])| Instruction {
                root,
                peer,
                bytes,
                extent,
                source: Operand::card(from),
                destination: Operand::card(to),
                ..Instruction::new(operation)
            },
        )
    }

    /// Ranks and bytes, without addresses.
    fn blocks(transfers: &[Transfer]) -> Vec<(u32, u64)> {
        transfers.iter().map(|block| (block.peer_rank, block.bytes)).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

        #[test]
        fn what_is_moved_is_the_same_for_all_of_a_kind(
            rank in 0..4_u32,
            instructions in prop::collection::vec(any_instruction(), 0..100),
            order in prop::collection::vec(any::<prop::sample::Index>(), 100),
        ) {
            let tables = Tables::new();
            let context = Context { rank, ranks: 4, stripe_bytes: 512, tables: &tables };
            let mut recent = Recent::default();
            for index in order.iter().filter(|_| !instructions.is_empty()) {
                let instruction = index.get(&instructions);
                let find = || {
                    let moved = transfers(instruction, &context).unwrap_or_default();
                    [blocks(&moved.sends), blocks(&moved.receives)]
                };
                let known = recent.of(instruction, find).clone();
                prop_assert_eq!(known, find());
            }
        }
    }

    #[test]
    fn what_was_found_is_not_looked_for_again_until_it_is_forgotten() {
        let (mut recent, mut asked) = (Recent::default(), 0);
        let mut ask = |bytes: u64, address: u64| {
            recent.of(&Instruction::send(1, Operand::card(address), bytes), || asked += 1);
            asked
        };
        assert_eq!((0..KINDS as u64).map(|bytes| ask(bytes, 0)).last(), Some(KINDS));
        assert_eq!((0..KINDS as u64).map(|bytes| ask(bytes, 64)).last(), Some(KINDS));
        assert_eq!(ask(99, 0), KINDS + 1);
        assert_eq!(ask(0, 0), KINDS + 2, "all others were forgotten");
    }
}

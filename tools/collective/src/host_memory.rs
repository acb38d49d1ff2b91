//! Host memory that the cards reach, and data between it and card memory, without a copy on the way where the card allows it.

use std::sync::Arc;

use cmdseq::plan::Piece;
use cmdseq::{Instruction, Operand};
use fpga_driver::Bound;
use fpga_hal::DmaBuffer;

use crate::cards::Cards;
use crate::collective::CollectiveId;
use crate::error::{Error, Result};

/// Most bytes that are copied at once where the card does not reach the memory. A multiple of all alignments of cards.
const PART_BYTES: u64 = 4 << 20;

/// Where the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    ToCard,
    FromCard,
}

impl Cards {
    /// Returns zeroed host memory of at least `bytes` bytes that the cards reach. It outlives the cards.
    ///
    /// # Errors
    /// Those of the driver: there is no memory, or no address for it.
    pub fn allocate(&self, bytes: usize) -> Result<Arc<DmaBuffer>> {
        Ok(self.cluster.cards()[0].allocate(bytes.max(1))?)
    }

    /// Copies `bytes` bytes from byte `at` of `source` to the memory of card `card` at `address`. If the addresses suit
    /// the card, and it reaches `source`, it fetches the bytes itself; else they go through other memory.
    ///
    /// # Errors
    /// As [`write_memory`](Cards::write_memory); [`Class::Usage`](crate::Class::Usage) if `source` is shorter.
    pub fn load_memory(
        &mut self,
        card: u32,
        address: u64,
        source: &Arc<DmaBuffer>,
        at: usize,
        bytes: u64,
    ) -> Result<()> {
        self.move_memory(card, address, source, at, bytes, Way::ToCard)
    }

    /// Copies `bytes` bytes of the memory of card `card` at `address` to byte `at` of `destination` and on.
    ///
    /// # Errors
    /// As [`load_memory`](Cards::load_memory).
    pub fn store_memory(
        &mut self,
        card: u32,
        address: u64,
        destination: &Arc<DmaBuffer>,
        at: usize,
        bytes: u64,
    ) -> Result<()> {
        self.move_memory(card, address, destination, at, bytes, Way::FromCard)
    }

    fn move_memory(
        &mut self,
        card: u32,
        address: u64,
        memory: &Arc<DmaBuffer>,
        at: usize,
        bytes: u64,
        way: Way,
    ) -> Result<()> {
        check(memory, at, bytes)?;
        self.check_memory(card, address, bytes)?;
        let index = self.index(card)?;
        let moved = self.copy(index, &[Piece { offset: 0, address, bytes }], memory, at, way);
        self.note_taken();
        self.settle(Some(index), moved)
    }

    /// Writes a rank's whole input, which is at byte `at` of `source`.
    ///
    /// # Errors
    /// As [`write_input`](Cards::write_input); [`Class::Usage`](crate::Class::Usage) if `source` is shorter.
    pub fn load_input(&mut self, id: CollectiveId, rank: u32, source: &Arc<DmaBuffer>, at: usize) -> Result<()> {
        self.move_data(id, rank, source, at, Way::ToCard)?;
        let (input, _) = self.data_bytes(id, rank)?;
        Self::planned_mut(&mut self.collectives, id)?.note_input(rank, input);
        Ok(())
    }

    /// Reads a rank's whole output to byte `at` of `destination` and on.
    ///
    /// # Errors
    /// As [`load_input`](Cards::load_input).
    pub fn store_output(&mut self, id: CollectiveId, rank: u32, destination: &Arc<DmaBuffer>, at: usize) -> Result<()> {
        self.move_data(id, rank, destination, at, Way::FromCard)
    }

    fn move_data(&mut self, id: CollectiveId, rank: u32, memory: &Arc<DmaBuffer>, at: usize, way: Way) -> Result<()> {
        let (input, output) = self.data_bytes(id, rank)?;
        check(memory, at, if way == Way::ToCard { input } else { output })?;
        self.check_idle()?;
        let set = &Self::planned_mut(&mut self.collectives, id)?.plan.set;
        let program = &set.programs[rank as usize];
        let (pieces, phase) = match way {
            Way::ToCard => (program.input.clone(), "copy in"),
            Way::FromCard => (program.output.clone(), "copy out"),
        };
        // All cards run all collectives, so ranks are indices.
        let moved = self.copy(rank as usize, &pieces, memory, at, way);
        let nodes = &self.planned(id)?.plan.set.nodes;
        let moved = moved.map_err(|error| fpga_driver::in_phase(error, nodes, phase));
        self.settle(Some(rank as usize), moved)
    }

    /// Refuses bytes outside of the memory of card `card`.
    ///
    /// # Errors
    /// [`Class::Usage`](crate::Class::Usage) if there is no such card, else [`Class::Refused`](crate::Class::Refused).
    pub fn check_memory(&self, card: u32, address: u64, bytes: u64) -> Result<()> {
        Ok(self.cluster.cards()[self.index(card)?].check_range(address, bytes)?)
    }

    /// Moves pieces of a card's memory from or to byte `at` and on of `memory`, each at its offset.
    fn copy(
        &mut self,
        index: usize,
        pieces: &[Piece],
        memory: &Arc<DmaBuffer>,
        at: usize,
        way: Way,
    ) -> fpga_driver::Result<()> {
        let card = self.cluster.card_mut(index);
        let capabilities = card.capabilities();
        let align = u64::from(capabilities.address_align);
        let first = memory.iova().0 + at as u64;
        let suits = |piece: &Piece| (first + piece.offset) % align == 0 && piece.address % align == 0;
        let is_reached = capabilities.host_memory && card.function().reaches(memory);
        if is_reached && pieces.iter().all(suits) {
            let copies = pieces.iter().filter(|piece| piece.bytes > 0).map(|piece| {
                let (host, there) = (Operand::host(first + piece.offset), Operand::card(piece.address));
                let (from, to) = if way == Way::ToCard { (host, there) } else { (there, host) };
                Bound::from(Instruction::copy(from, to, piece.bytes)).holding(Arc::clone(memory))
            });
            let timeout = card.timeout();
            return card.run(copies, timeout).map(drop);
        }
        let longest = pieces.iter().map(|piece| piece.bytes).max().unwrap_or_default();
        let mut data = vec![0; longest.min(PART_BYTES) as usize];
        for piece in pieces {
            for done in (0..piece.bytes).step_by(PART_BYTES as usize) {
                let part = &mut data[..(piece.bytes - done).min(PART_BYTES) as usize];
                let (address, at) = (piece.address + done, at + (piece.offset + done) as usize);
                if way == Way::ToCard {
                    memory.read(at, part).map_err(fpga_driver::Error::Bus)?;
                    card.write_memory(address, part)?;
                } else {
                    card.read_memory(address, part)?;
                    memory.write(at, part).map_err(fpga_driver::Error::Bus)?;
                }
            }
        }
        Ok(())
    }
}

/// Refuses bytes outside of `memory`.
fn check(memory: &DmaBuffer, at: usize, bytes: u64) -> Result<()> {
    let length = memory.len();
    match (at as u64).checked_add(bytes).is_some_and(|end| end <= length as u64) {
        true => Ok(()),
        false => Err(Error::usage(format!("no {bytes} bytes from byte {at} of memory of {length} bytes"))),
    }
}

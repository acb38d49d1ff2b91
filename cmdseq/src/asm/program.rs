//! Assembled programs.

use std::collections::HashSet;
use std::fmt;

use super::keywords::is_reserved;
use super::lexer::{NAME_MAX, is_name_part, is_name_start};
use crate::instruction::{ARGUMENTS, Side};
use crate::program::Communicator;
use crate::table::{Entry, Tables};
use crate::{AddressSpace, Instruction, Layout, Operation};

/// Largest number of ranks: a rank has 16 bits.
pub const RANKS_MAX: u32 = 1 << 16;

/// The programs of all ranks, or that of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assembly {
    /// Number of ranks, 1 to [`RANKS_MAX`].
    pub ranks: u32,
    /// By rank: those of all ranks, or that of one.
    pub programs: Vec<RankProgram>,
}

/// The program of one rank.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RankProgram {
    /// The rank.
    pub rank: u32,
    /// The instructions. The address of an operand with a [`Binding`] is an offset in its host buffer.
    pub instructions: Vec<Instruction>,
    /// Named ranges of memory. Names are unique.
    pub buffers: Vec<Buffer>,
    /// The communicators of this rank; members are ranks. Ids are unique and not 0.
    pub communicators: Vec<Communicator>,
    /// Tables to load before, by slot; each has 1 to [`RANKS_MAX`] blocks within 64-bit addresses.
    pub tables: Tables,
    /// Operands in host buffers, by instruction and side.
    pub bindings: Vec<Binding>,
}

/// A named range of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buffer {
    /// Its name.
    pub name: String,
    /// The memory. A host buffer gets its address at run time.
    pub space: AddressSpace,
    /// Layout of blocks, unless the instruction has another. In host memory always [`Layout::Block`].
    pub layout: Layout,
    /// Address in card memory, bytes; 0 in host memory.
    pub address: u64,
    /// Bytes from the first to the last, for any layout.
    pub bytes: u64,
}

/// An operand that gets its address at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Binding {
    /// Index of the instruction.
    pub instruction: u32,
    /// Which operand.
    pub side: Side,
    /// Index of the host buffer.
    pub buffer: u32,
}

/// An operand that exceeds its host buffer.
#[derive(Debug)]
pub(super) struct Outside<'p> {
    /// Index of the instruction.
    pub(super) instruction: usize,
    side: Side,
    /// Its offset in the buffer, with launch arguments added.
    start: i128,
    bytes: u64,
    buffer: &'p Buffer,
}

impl Outside<'_> {
    /// The error message.
    pub(super) fn cause(&self) -> String {
        let Outside { start, bytes, buffer: Buffer { name, bytes: size, .. }, .. } = self;
        let side = self.side.name();
        format!("the {side}, {bytes} B from byte {start} on, exceeds host buffer `{name}` of {size} B")
    }
}

impl fmt::Display for Outside<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "instruction {}: {}", self.instruction, self.cause())
    }
}

/// The loop around an instruction, if it adds to a launch argument.
struct Around {
    /// Index of the instruction after its body.
    end: usize,
    last_round: i128,
    argument: usize,
    step: i128,
}

impl Assembly {
    /// Checks that the assembler could have made this.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(&self) -> Result<(), String> {
        if self.ranks == 0 || self.ranks > RANKS_MAX {
            return Err(format!("invalid number of ranks {}: expected 1 to {RANKS_MAX}", self.ranks));
        }
        let programs = self.programs.len();
        if programs != 1 && programs != self.ranks as usize {
            return Err(format!("{programs} programs for {} ranks: expected one, or one for each rank", self.ranks));
        }
        if !self.programs.is_sorted_by(|a, b| a.rank < b.rank) {
            return Err("the programs are not sorted by rank".into());
        }
        for program in &self.programs {
            program.check(self.ranks).map_err(|cause| format!("rank {}: {cause}", program.rank))?;
        }
        Ok(())
    }
}

impl RankProgram {
    fn check(&self, ranks: u32) -> Result<(), String> {
        if self.rank >= ranks {
            return Err(format!("the program has {ranks} ranks"));
        }
        for (index, instruction) in self.instructions.iter().enumerate() {
            instruction.check_fields().map_err(|error| format!("instruction {index}: {error}"))?;
        }
        let mut names = HashSet::new();
        for buffer in &self.buffers {
            buffer.check()?;
            if !names.insert(&buffer.name) {
                return Err(format!("duplicate buffer {}", buffer.name));
            }
        }
        let mut ids = HashSet::from([crate::instruction::WORLD]);
        for communicator in &self.communicators {
            if !ids.insert(communicator.id) {
                return Err(format!("duplicate communicator {}", communicator.id));
            }
            let mut members = HashSet::new();
            if let Some(wrong) = communicator.members.iter().find(|rank| **rank >= ranks || !members.insert(**rank)) {
                return Err(format!("communicator {}: member {wrong} is duplicate or no rank", communicator.id));
            }
            if !members.contains(&self.rank) {
                return Err(format!("communicator {}: this rank is not a member", communicator.id));
            }
        }
        for (slot, table) in &self.tables {
            let ends = |entry: &Entry| entry.displacement.checked_add(entry.bytes).is_some();
            let blocks = table.entries.len();
            if blocks == 0 || blocks > RANKS_MAX as usize || !table.entries.iter().all(ends) {
                return Err(format!(
                    "table {slot}: expected 1 to {RANKS_MAX} blocks within 64-bit addresses, found {blocks}"
                ));
            }
        }
        self.check_bindings()?;
        self.bindings.iter().try_for_each(|binding| self.bound_address(binding, 0).map(drop))
    }

    fn check_bindings(&self) -> Result<(), String> {
        if !self.bindings.is_sorted_by(|a, b| (a.instruction, a.side) < (b.instruction, b.side)) {
            return Err("the bindings are not sorted".into());
        }
        self.outside().first().map_or(Ok(()), |outside| Err(outside.to_string()))
    }

    /// Returns the address of an operand whose host buffer is at `base`.
    fn bound_address(&self, binding: &Binding, base: u64) -> Result<u64, String> {
        let refuse = |why: &str| format!("binding of instruction {}: {why}", binding.instruction);
        let instruction =
            self.instructions.get(binding.instruction as usize).ok_or_else(|| refuse("no such instruction"))?;
        let buffer = self.buffers.get(binding.buffer as usize).filter(|buffer| buffer.space == AddressSpace::Host);
        buffer.ok_or_else(|| refuse("no such host buffer"))?;
        let operand = binding.side.operand(instruction);
        if operand.space != AddressSpace::Host {
            return Err(refuse("the operand is in card memory"));
        }
        base.checked_add(operand.address).ok_or_else(|| refuse("the address exceeds 64 bits"))
    }

    /// Returns the operands that exceed their host buffers in a launch with arguments 0, in order. In a loop that adds to an
    /// argument, the first and the last round are checked.
    ///
    /// Operations on host memory (copy, group, store, table) use [`Instruction::bytes`] from the operand's address on: no host
    /// operand is striped or has several blocks.
    pub(super) fn outside(&self) -> Vec<Outside<'_>> {
        let mut outside = Vec::new();
        let mut bindings = self.bindings.iter().peekable();
        // The values of the launch arguments here, and the loop around this instruction.
        let (mut arguments, mut around) = ([0_i128; ARGUMENTS], None::<Around>);
        for (index, instruction) in self.instructions.iter().enumerate() {
            if bindings.peek().is_none() {
                break;
            }
            if let Some(ended) = around.take_if(|around| around.end == index) {
                arguments[ended.argument] += ended.step * (ended.last_round + 1);
            }
            if let (Operation::Loop, Some(argument)) = (instruction.operation, instruction.extent_argument) {
                around = Some(Around {
                    end: index + 1 + usize::from(instruction.loop_body),
                    last_round: i128::from(instruction.loop_count.max(1)) - 1,
                    argument: usize::from(argument) % ARGUMENTS,
                    // Arguments wrap, so the step may be negative.
                    step: i128::from(instruction.extent as i64),
                });
            }
            while let Some(binding) = bindings.next_if(|binding| binding.instruction as usize == index) {
                let operand = binding.side.operand(instruction);
                let Some(buffer) = self.buffers.get(binding.buffer as usize) else { continue };
                let moved = operand.argument.map_or(0, |argument| arguments[usize::from(argument) % ARGUMENTS]);
                let first = i128::from(operand.address) + moved;
                let by_loop =
                    around.as_ref().filter(|around| operand.argument.map(usize::from) == Some(around.argument));
                let last = by_loop.map_or(first, |around| first + around.step * around.last_round);
                let fits = |start: &i128| *start >= 0 && start + i128::from(instruction.bytes) <= buffer.bytes.into();
                if let Some(start) = [first, last].into_iter().find(|start| !fits(start)) {
                    let (side, bytes) = (binding.side, instruction.bytes);
                    outside.push(Outside { instruction: index, side, start, bytes, buffer });
                }
            }
        }
        outside
    }

    /// Returns the instructions with host buffers at the IOVAs that `address` returns for their index.
    ///
    /// # Errors
    /// If a binding does not fit the program, or an operand exceeds its host buffer in a launch with arguments 0. Assembled and
    /// decoded programs have no such errors.
    pub fn bound(&self, address: impl Fn(usize) -> u64) -> Result<Vec<Instruction>, String> {
        let of_rank = |cause: String| format!("rank {}: {cause}", self.rank);
        self.check_bindings().map_err(of_rank)?;
        let mut instructions = self.instructions.clone();
        for binding in &self.bindings {
            let value = self.bound_address(binding, address(binding.buffer as usize)).map_err(of_rank)?;
            binding.side.operand_mut(&mut instructions[binding.instruction as usize]).address = value;
        }
        Ok(instructions)
    }

    /// Returns the first instruction with a [raw host address](Self::names_raw_host).
    pub fn raw_host(&self) -> Option<usize> {
        (0..self.instructions.len()).find(|index| self.names_raw_host(*index))
    }

    /// Whether an instruction has an operand in host memory outside of any host buffer, whose accesses nobody checks.
    pub fn names_raw_host(&self, instruction: usize) -> bool {
        let Some(word) = self.instructions.get(instruction) else { return false };
        Side::ALL
            .iter()
            .any(|side| side.operand(word).space == AddressSpace::Host && self.buffer_of(instruction, *side).is_none())
    }

    /// Returns the host buffer of an operand.
    pub(crate) fn buffer_of(&self, instruction: usize, side: Side) -> Option<&Buffer> {
        self.buffer_in(&self.bindings, instruction, side)
    }

    /// Returns the buffer of an operand in sorted `bindings`.
    pub(super) fn buffer_in(&self, bindings: &[Binding], instruction: usize, side: Side) -> Option<&Buffer> {
        let key = (u32::try_from(instruction).ok()?, side);
        let index = bindings.binary_search_by_key(&key, |binding| (binding.instruction, binding.side)).ok()?;
        self.buffers.get(bindings[index].buffer as usize)
    }
}

impl Buffer {
    fn check(&self) -> Result<(), String> {
        let mut characters = self.name.chars();
        let is_name = characters.next().is_some_and(is_name_start) && characters.all(is_name_part);
        if !is_name || self.name.len() > NAME_MAX || is_reserved(&self.name) {
            return Err(format!("invalid name of a buffer: {:?}", self.name));
        }
        let is_plain = self.address == 0 && self.layout == Layout::Block;
        if self.space == AddressSpace::Host && !is_plain {
            return Err(format!("host buffer {} with an address or a layout", self.name));
        }
        if self.bytes == 0 || self.address.checked_add(self.bytes).is_none() {
            return Err(format!("buffer {} is empty or exceeds 64-bit addresses", self.name));
        }
        Ok(())
    }
}

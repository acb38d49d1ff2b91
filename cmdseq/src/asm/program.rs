//! What a source is assembled to.

use std::collections::HashSet;
use std::fmt;

use super::keywords::is_reserved;
use super::lexer::{NAME_MAX, is_name_part, is_name_start};
use crate::instruction::ARGUMENTS;
use crate::program::Communicator;
use crate::table::{Entry, Tables};
use crate::{AddressSpace, Flags, Instruction, Layout, Operand, Operation};

/// Ranks a program may be for: a rank is a number of 16 bits.
pub const RANKS_MAX: u32 = 1 << 16;

/// The programs of some or all ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assembly {
    /// How many ranks there are: 1 to [`RANKS_MAX`].
    pub ranks: u32,
    /// In order of rank; not necessarily of all.
    pub programs: Vec<RankProgram>,
}

/// What one rank runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RankProgram {
    /// The rank.
    pub rank: u32,
    /// In order. The address of an operand that has a [`Binding`] is an offset in its host buffer.
    pub instructions: Vec<Instruction>,
    /// Named ranges of memory, each name once.
    pub buffers: Vec<Buffer>,
    /// Communicators this rank is a member of; members are ranks. Each id once, and not 0.
    pub communicators: Vec<Communicator>,
    /// Tables to be loaded before, by slot; each has 1 to [`RANKS_MAX`] blocks, none past 64 bits.
    pub tables: Tables,
    /// Operands that name a host buffer, in order of instruction and side.
    pub bindings: Vec<Binding>,
}

/// A named range of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buffer {
    /// Its name.
    pub name: String,
    /// Whose memory. That of the host gets its address at run time.
    pub space: AddressSpace,
    /// How blocks lie in it, unless the instruction says otherwise. In host memory always [`Layout::Block`].
    pub layout: Layout,
    /// Address in card memory, bytes; 0 in host memory.
    pub address: u64,
    /// Length from its first byte to its last, whatever the layout.
    pub bytes: u64,
}

/// An operand of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// Where data comes from.
    Source,
    /// Where data goes to.
    Destination,
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

/// An operand that leaves the host buffer that it names.
#[derive(Debug)]
pub(super) struct Outside<'p> {
    /// Index of the instruction.
    pub(super) instruction: usize,
    side: Side,
    /// Where in the buffer it begins, launch arguments added.
    start: i128,
    bytes: u64,
    buffer: &'p Buffer,
}

impl Outside<'_> {
    /// What is wrong with the instruction.
    pub(super) fn cause(&self) -> String {
        let Outside { start, bytes, buffer: Buffer { name, bytes: size, .. }, .. } = self;
        let side = match self.side {
            Side::Source => "source",
            Side::Destination => "destination",
        };
        format!("the {side} has {bytes} B from byte {start} of host buffer `{name}` on, which has {size} B")
    }
}

impl fmt::Display for Outside<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "instruction {}: {}", self.instruction, self.cause())
    }
}

/// The loop of the sequencer that an instruction is in, if it moves a launch argument.
struct Around {
    /// Index of the instruction behind its body.
    end: usize,
    last_round: i128,
    argument: usize,
    step: i128,
}

impl Side {
    /// The operand of `instruction` on this side.
    pub fn operand(self, instruction: &Instruction) -> &Operand {
        match self {
            Side::Source => &instruction.source,
            Side::Destination => &instruction.destination,
        }
    }

    /// The operand of `instruction` on this side.
    pub fn operand_mut(self, instruction: &mut Instruction) -> &mut Operand {
        match self {
            Side::Source => &mut instruction.source,
            Side::Destination => &mut instruction.destination,
        }
    }
}

impl Assembly {
    /// Whether this is what the assembler could have made.
    ///
    /// # Errors
    /// A sentence about the first thing that is not.
    pub fn check(&self) -> Result<(), String> {
        if self.ranks == 0 || self.ranks > RANKS_MAX {
            return Err(format!("it is for {} ranks; there can be 1 to {RANKS_MAX}", self.ranks));
        }
        if !self.programs.is_sorted_by(|a, b| a.rank < b.rank) {
            return Err("its programs are not in order of rank".into());
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
            return Err(format!("there are {ranks} ranks"));
        }
        for (index, instruction) in self.instructions.iter().enumerate() {
            instruction.check_fields().map_err(|error| format!("instruction {index}: {error}"))?;
            if instruction.flags.contains(Flags::EAGER | Flags::RENDEZVOUS) {
                return Err(format!("instruction {index}: it is flagged eager and rendezvous"));
            }
        }
        let mut names = HashSet::new();
        for buffer in &self.buffers {
            buffer.check()?;
            if !names.insert(&buffer.name) {
                return Err(format!("there are two buffers {}", buffer.name));
            }
        }
        let mut ids = HashSet::from([crate::instruction::WORLD]);
        for communicator in &self.communicators {
            if !ids.insert(communicator.id) {
                return Err(format!("communicator {} is there already", communicator.id));
            }
            let mut members = HashSet::new();
            if let Some(wrong) = communicator.members.iter().find(|rank| **rank >= ranks || !members.insert(**rank)) {
                return Err(format!("communicator {}: member {wrong} is no rank, or there twice", communicator.id));
            }
            if !members.contains(&self.rank) {
                return Err(format!("communicator {}: the rank is not a member", communicator.id));
            }
        }
        for (slot, table) in &self.tables {
            let ends = |entry: &Entry| entry.displacement.checked_add(entry.bytes).is_some();
            let blocks = table.entries.len();
            if blocks == 0 || blocks > RANKS_MAX as usize || !table.entries.iter().all(ends) {
                return Err(format!("table {slot}: it has {blocks} blocks, or one that ends past 64 bits"));
            }
        }
        self.check_bindings()?;
        self.bindings.iter().try_for_each(|binding| self.bound_address(binding, 0).map(drop))
    }

    fn check_bindings(&self) -> Result<(), String> {
        if !self.bindings.is_sorted_by(|a, b| (a.instruction, a.side) < (b.instruction, b.side)) {
            return Err("bindings are not in order".into());
        }
        self.outside().first().map_or(Ok(()), |outside| Err(outside.to_string()))
    }

    /// Address of an operand whose host buffer lies at `base`.
    fn bound_address(&self, binding: &Binding, base: u64) -> Result<u64, String> {
        let refuse = |why: &str| format!("a binding of instruction {}: {why}", binding.instruction);
        let instruction = self.instructions.get(binding.instruction as usize).ok_or_else(|| refuse("there is none"))?;
        let buffer = self.buffers.get(binding.buffer as usize).filter(|buffer| buffer.space == AddressSpace::Host);
        buffer.ok_or_else(|| refuse("it names no host buffer"))?;
        let operand = binding.side.operand(instruction);
        if operand.space != AddressSpace::Host {
            return Err(refuse("its operand is in card memory"));
        }
        base.checked_add(operand.address).ok_or_else(|| refuse("the address does not fit 64 bits"))
    }

    /// Operands that leave the host buffer that they name, in order (bindings are), if the program is launched with arguments 0: of loops
    /// that move an argument, in the first round or the last.
    ///
    /// What takes host memory (copy, group, store, table) takes it from the operand's address on, [`Instruction::bytes`]
    /// long: no host operand is striped or of several blocks.
    pub(super) fn outside(&self) -> Vec<Outside<'_>> {
        let mut outside = Vec::new();
        let mut bindings = self.bindings.iter().peekable();
        // Of each launch argument the value here, and what a round of the loop around this adds.
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
                    // Arguments wrap: what is added may be less than nothing.
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

    /// The instructions with host buffers at the addresses (IOVAs) that `address` gives for their index.
    ///
    /// # Errors
    /// A sentence with rank and instruction, if a binding does not fit the program, or an operand leaves its host buffer when
    /// launch arguments are 0: never of what was assembled or read.
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

    /// The first instruction that [names an address in host memory](Self::names_raw_host).
    pub fn raw_host(&self) -> Option<usize> {
        (0..self.instructions.len()).find(|index| self.names_raw_host(*index))
    }

    /// Whether an instruction names an address in host memory that is in no host buffer: the card reads or writes there
    /// what nobody checks.
    pub fn names_raw_host(&self, instruction: usize) -> bool {
        let Some(word) = self.instructions.get(instruction) else { return false };
        [Side::Source, Side::Destination]
            .into_iter()
            .any(|side| side.operand(word).space == AddressSpace::Host && self.buffer_of(instruction, side).is_none())
    }

    /// The buffer that an operand names by a binding.
    pub fn buffer_of(&self, instruction: usize, side: Side) -> Option<&Buffer> {
        let key = (u32::try_from(instruction).ok()?, side);
        let index = self.bindings.binary_search_by_key(&key, |binding| (binding.instruction, binding.side)).ok()?;
        self.buffers.get(self.bindings[index].buffer as usize)
    }
}

impl Buffer {
    fn check(&self) -> Result<(), String> {
        let mut characters = self.name.chars();
        let is_name = characters.next().is_some_and(is_name_start) && characters.all(is_name_part);
        if !is_name || self.name.len() > NAME_MAX || is_reserved(&self.name) {
            return Err(format!("{:?} cannot be the name of a buffer", self.name));
        }
        let is_plain = self.address == 0 && self.layout == Layout::Block;
        if self.space == AddressSpace::Host && !is_plain {
            return Err(format!("host buffer {} has an address or a layout", self.name));
        }
        if self.bytes == 0 || self.address.checked_add(self.bytes).is_none() {
            return Err(format!("buffer {} is empty, or ends past 64 bits", self.name));
        }
        Ok(())
    }
}

//! Instructions together with the host memory they name.

use std::sync::Arc;

use cmdseq::{AddressSpace, Instruction, Operand, Operation, instruction};
use fpga_hal::{DmaBuffer, Function};

/// An instruction and the host buffers that it reads or writes.
///
/// The queue keeps the buffers until the card has completed the instruction, or has certainly been stopped or reset. A timeout
/// does not release them. An instruction that names no host memory converts by itself; one that does needs
/// [`holding`](Bound::holding) for every buffer it names:
///
/// ```no_run
/// # fn example(card: &mut fpga_driver::Card) -> fpga_driver::Result<()> {
/// use cmdseq::{Instruction, Operand};
/// use fpga_driver::Bound;
/// use std::time::Duration;
///
/// let buffer = card.allocate(4096)?;
/// let copy = Instruction::copy(Operand::host(buffer.iova().0), Operand::card(0), 4096);
/// card.run([Bound::from(copy).holding(buffer)], Duration::from_secs(1))?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Bound {
    pub(crate) instruction: Instruction,
    pub(crate) held: Held,
    is_unowned: bool,
    /// What it names as host memory is on the card, where a sequencer that masters no bus finds it.
    is_on_card: bool,
}

impl Bound {
    /// Adds a buffer that the instruction names.
    pub fn holding(mut self, buffer: Arc<DmaBuffer>) -> Self {
        self.held.add(buffer);
        self
    }

    /// Binds `instruction` to those of `buffers` that cover the host memory it names.
    pub fn covered_by(instruction: &Instruction, buffers: &[Arc<DmaBuffer>]) -> Self {
        let mut bound = Bound::from(instruction);
        for (address, bytes) in host_operands(instruction).filter_map(|operand| range(instruction, operand)) {
            // Buffers of several domains may have one address.
            for buffer in buffers.iter().filter(|buffer| covers(buffer, address, bytes)) {
                bound.held.add(Arc::clone(buffer));
            }
        }
        bound
    }

    /// Binds `instruction` to no memory, whatever host addresses it names. **Dangerous**: the card reads and writes these
    /// addresses, and nothing in this process keeps them mapped.
    ///
    /// The caller promises that every host range the instruction names is either mapped for the card and stays so, or is
    /// meant to fault. A range must stay mapped until the instruction's completion was taken, or until the card was stopped
    /// or reset. After a timeout the card may still write there: memory that is released then, and addresses that are
    /// handed out again, are overwritten.
    ///
    /// If the instruction stores a resident program, the promise holds for all that the program names, for as long as it
    /// is on the card.
    pub fn dangerously_unowned(instruction: Instruction) -> Self {
        Bound { instruction, held: Held::None, is_unowned: true, is_on_card: false }
    }

    /// Binds an instruction to data that was handed to the sequencer: in a buffer that is held, or on the card.
    pub(crate) fn handed(instruction: Instruction, held: Held) -> Self {
        let is_on_card = held.as_slice().is_empty();
        Bound { instruction, held, is_unowned: true, is_on_card }
    }

    pub(crate) fn is_on_card(&self) -> bool {
        self.is_on_card
    }

    /// The instruction.
    pub fn instruction(&self) -> &Instruction {
        &self.instruction
    }

    /// The buffers bound to it.
    pub fn buffers(&self) -> &[Arc<DmaBuffer>] {
        self.held.as_slice()
    }

    /// Makes sure that the buffers cover all host memory that the instruction names.
    pub(crate) fn check(&self, function: &Function) -> Result<(), Unowned> {
        self.check_operands(function)?;
        if self.instruction.operation == Operation::Store && !self.is_unowned {
            return self.check_stored(function);
        }
        Ok(())
    }

    /// Makes sure that the buffers cover the operands in host memory.
    pub(crate) fn check_operands(&self, function: &Function) -> Result<(), Unowned> {
        let is_held = |(address, bytes): (u64, u64)| bytes == 0 || self.covering(function, address, bytes).is_some();
        let is_unbound = |operand: &&Operand| !range(&self.instruction, operand).is_some_and(is_held);
        match host_operands(&self.instruction).find(is_unbound) {
            Some(operand) if !self.is_unowned => Err(unbound(&self.instruction, operand)),
            _ => Ok(()),
        }
    }

    /// The bound buffer that covers this memory.
    fn covering(&self, function: &Function, address: u64, bytes: u64) -> Option<&Arc<DmaBuffer>> {
        self.buffers().iter().find(|buffer| function.reaches(buffer) && covers(buffer, address, bytes))
    }

    /// Refuses a program that names host memory, because nothing would keep that memory as long as the program is on the card.
    fn check_stored(&self, function: &Function) -> Result<(), Unowned> {
        let (address, words) = (self.instruction.source.address, self.instruction.bytes / instruction::BYTES as u64);
        let Some(buffer) = self.covering(function, address, self.instruction.bytes) else { return Ok(()) };
        let mut word = [0; instruction::BYTES];
        for index in 0..words as usize {
            let at = (address - buffer.iova().0) as usize + index * instruction::BYTES;
            buffer.read(at, &mut word).map_err(Unowned::Read)?;
            // The card refuses what cannot be decoded.
            let Ok(stored) = Instruction::decode(&word) else { continue };
            if let Some(operand) = host_operands(&stored).next() {
                return Err(unbound(&stored, operand));
            }
        }
        Ok(())
    }
}

impl From<Instruction> for Bound {
    #[inline]
    fn from(instruction: Instruction) -> Self {
        Bound { instruction, held: Held::None, is_unowned: false, is_on_card: false }
    }
}

impl From<&Instruction> for Bound {
    #[inline]
    fn from(instruction: &Instruction) -> Self {
        Bound::from(*instruction)
    }
}

impl From<&Bound> for Bound {
    fn from(bound: &Bound) -> Self {
        bound.clone()
    }
}

/// Why the buffers of an instruction do not suffice.
#[derive(Debug)]
pub(crate) enum Unowned {
    /// No buffer covers this operand.
    Operand { operation: Operation, address: u64, bytes: u64 },
    /// The program to be stored could not be read.
    Read(fpga_hal::Error),
}

/// Buffers that an instruction in flight keeps. Up to two need no allocation: no operation names more.
#[derive(Debug, Clone, Default)]
pub(crate) enum Held {
    #[default]
    None,
    One(Arc<DmaBuffer>),
    Two([Arc<DmaBuffer>; 2]),
    Many(Vec<Arc<DmaBuffer>>),
}

impl Held {
    pub(crate) fn add(&mut self, buffer: Arc<DmaBuffer>) {
        *self = match std::mem::take(self) {
            Held::None => Held::One(buffer),
            Held::One(first) => Held::Two([first, buffer]),
            Held::Two([first, second]) => Held::Many(vec![first, second, buffer]),
            Held::Many(mut buffers) => {
                buffers.push(buffer);
                Held::Many(buffers)
            }
        };
    }

    pub(crate) fn as_slice(&self) -> &[Arc<DmaBuffer>] {
        match self {
            Held::None => &[],
            Held::One(buffer) => std::slice::from_ref(buffer),
            Held::Two(buffers) => buffers,
            Held::Many(buffers) => buffers,
        }
    }
}

fn host_operands(instruction: &Instruction) -> impl Iterator<Item = &Operand> {
    [&instruction.source, &instruction.destination].into_iter().filter(|one| one.space == AddressSpace::Host)
}

/// Returns address and bytes of an operand in host memory, if the instruction determines both.
fn range(instruction: &Instruction, operand: &Operand) -> Option<(u64, u64)> {
    use Operation::{Copy, Group, Store, Table};
    // All other operations work on card memory, and a launch argument may be anything.
    let is_said = matches!(instruction.operation, Copy | Group | Store | Table) && operand.argument.is_none();
    is_said.then_some((operand.address, instruction.bytes))
}

fn covers(buffer: &DmaBuffer, address: u64, bytes: u64) -> bool {
    let (start, len) = (buffer.iova().0, buffer.len() as u64);
    bytes <= len && address >= start && address - start <= len - bytes
}

fn unbound(instruction: &Instruction, operand: &Operand) -> Unowned {
    let (operation, bytes) = (instruction.operation, instruction.bytes);
    Unowned::Operand { operation, address: operand.address, bytes }
}

//! One card: opened, described, and its instructions run.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cmdseq::{Capabilities, Completion, Instruction, Operand};
use fpga_hal::{BarIndex, BusKind, DmaBuffer, Function, Interrupt};
use fpga_regs::bits::Features;
use fpga_regs::{pci, sequencer};

use crate::block::{Block, bus_error};
use crate::communicator::{Entries, Spent};
use crate::discover;
use crate::error::{Error, Result};
use crate::queue::{QueuePair, check};
use crate::state::SequencerState;
use crate::token::Token;

/// How long one instruction of the driver's own may take: a copy of a chunk, a group, a store.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Buffers for the card are pages of their own.
const BUFFER_ALIGNMENT: usize = 4096;

/// A card with a command sequencer, held by this process. Dropping it stops its queue and closes the function.
#[derive(Debug)]
pub struct Card {
    // Fields are dropped in this order: the queue stops the card before its memory and its function go.
    queue: QueuePair,
    pub(crate) staging: Option<Arc<DmaBuffer>>,
    /// The program last stored in each slot.
    pub(crate) stored: BTreeMap<u32, Arc<()>>,
    /// The communicators it has.
    pub(crate) entries: Entries,
    /// The ids of communicators that it was given since its reset.
    pub(crate) spent: Spent,
    block: Block,
    version: u32,
    features: Features,
    node: u32,
    capabilities: Capabilities,
    timeout: Duration,
    function: Function,
}

impl Card {
    /// Takes `function` into use: finds the sequencer, reads what it can do, and sets up a queue.
    ///
    /// # Errors
    /// [`Error::NoSequencer`], [`Error::Version`] and [`Error::BadCapability`] for a card that is none of ours,
    /// [`Error::Removed`] for one that does not answer, [`Error::Bus`].
    pub fn open(function: Function) -> Result<Card> {
        Card::set_up(function.clone()).map_err(|error| match error {
            // What a card that goes meanwhile reads makes no sense, and that is all there is to say of it.
            _ if function.is_removed() => Error::Removed { name: function.identity().name.clone() },
            // Whose card it is instead, its ids tell.
            Error::NoSequencer { looked, .. } => Error::NoSequencer { name: function.identity().to_string(), looked },
            error => error,
        })
    }

    fn set_up(function: Function) -> Result<Card> {
        let name: Arc<str> = function.identity().name.as_str().into();
        let bus = |error| bus_error(&name, error);
        let Some(bar) = BarIndex::new(pci::REGISTERS_BAR) else { unreachable!("a constant below 6") };
        let window = function.window(bar).map_err(|error| match error {
            fpga_hal::Error::NoBar { .. } => Error::NoSequencer { name: name.to_string(), looked: error.to_string() },
            error => bus(error),
        })?;
        let offset = discover::find_sequencer(&window, &name)?;
        let block = Block::new(window.slice(offset, u64::from(sequencer::BLOCK_BYTES)).map_err(bus)?, name.clone());
        let described = discover::describe(&block)?;
        function.limit_dma_bits(described.dma_bits);
        block.quiesce()?;
        function.set_bus_master(true).map_err(bus)?;
        let interrupt = enable_interrupt(&function, &block)?;
        let queue =
            QueuePair::create(&function, &block, described.node, described.capabilities.queue_depth_max, interrupt)?;
        log::debug!("{name}: node {} of {}", described.node, described.capabilities.nodes);
        Ok(Card {
            queue,
            staging: None,
            stored: BTreeMap::new(),
            entries: Entries::default(),
            spent: Spent::default(),
            block,
            version: described.version,
            features: described.features,
            node: described.node,
            capabilities: described.capabilities,
            timeout: TIMEOUT,
            function,
        })
    }

    /// What the card says it can do.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Its place in the fabric, from 0.
    pub fn node(&self) -> u32 {
        self.node
    }

    /// The function it is reached by.
    pub fn function(&self) -> &Function {
        &self.function
    }

    /// The selector or bus address it was opened by.
    pub fn name(&self) -> &str {
        self.block.name()
    }

    /// How it is reached.
    pub fn kind(&self) -> BusKind {
        self.function.bus()
    }

    /// Whether it is a model: by its PCI id, which no real card has.
    pub fn is_mock(&self) -> bool {
        let identity = self.function.identity();
        identity.vendor == pci::VENDOR && identity.device == pci::DEVICE
    }

    /// Version of its registers: major and minor.
    pub fn version(&self) -> (u16, u16) {
        ((self.version >> 16) as u16, self.version as u16)
    }

    /// What its sequencer has.
    pub fn features(&self) -> Features {
        self.features
    }

    /// Largest piece sent eagerly, bytes; 0 means rendezvous always.
    pub fn eager_limit(&self) -> u64 {
        self.capabilities.eager_limit
    }

    /// Sets the largest piece sent eagerly. All cards of a group need the same.
    ///
    /// # Errors
    /// [`Error::BadArgument`] if the card's receive buffer is smaller.
    pub fn set_eager_limit(&mut self, bytes: u64) -> Result<()> {
        let most = self.capabilities.eager_bytes;
        let Some(value) = u32::try_from(bytes).ok().filter(|_| bytes <= most) else {
            return Err(Error::argument("eager limit", bytes, format!("the receive buffer has {most} bytes")));
        };
        self.block.write(sequencer::EAGER_LIMIT, value)?;
        self.capabilities.eager_limit = bytes;
        Ok(())
    }

    /// The sequencer's free-running counter.
    ///
    /// # Errors
    /// [`Error::Removed`], [`Error::Bus`].
    pub fn cycles(&self) -> Result<u64> {
        self.block.read_pair(sequencer::CYCLES_LO, sequencer::CYCLES_HI)
    }

    /// Instructions completed since the card was reset.
    ///
    /// # Errors
    /// [`Error::Removed`], [`Error::Bus`].
    pub fn retired(&self) -> Result<u64> {
        self.block.read_pair(sequencer::RETIRED_LO, sequencer::RETIRED_HI)
    }

    /// What the sequencer says it is doing. Reads registers, so not for a hot path.
    ///
    /// # Errors
    /// [`Error::Removed`], [`Error::Bus`].
    pub fn sequencer_state(&self) -> Result<SequencerState> {
        SequencerState::read(&self.block)
    }

    /// How long one instruction of the driver's own may take: a copy of a chunk, a group, a store.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Sets [`timeout`](Card::timeout).
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// The card's queue.
    pub fn queue(&self) -> &QueuePair {
        &self.queue
    }

    /// The card's queue, to push to and wait on.
    pub fn queue_mut(&mut self) -> &mut QueuePair {
        &mut self.queue
    }

    /// Zeroed host memory of at least `bytes` bytes that the card reaches.
    ///
    /// # Errors
    /// [`Error::Bus`] if there is no memory, or no address for it.
    pub fn allocate(&self, bytes: usize) -> Result<Arc<DmaBuffer>> {
        self.function.domain().allocate(bytes, BUFFER_ALIGNMENT).map_err(|error| self.bus(error))
    }

    /// Waits for the completion of `token` and checks its status.
    ///
    /// # Errors
    /// Those of [`QueuePair::wait`], and [`Error::Failed`].
    pub fn wait(&mut self, token: Token, timeout: Duration) -> Result<Completion> {
        let operation = token.operation();
        let completion = self.queue.wait(token, timeout)?;
        check(completion, self.node, 0, operation)
    }

    /// Runs `instructions`, however many, and gives their completions in order, all of them done.
    ///
    /// # Errors
    /// [`Error::Failed`] for the first that was not done (those behind it were run all the same), [`Error::Timeout`]
    /// naming the first that did not complete within `timeout`, and those of [`QueuePair::wait`].
    pub fn run(&mut self, instructions: &[Instruction], timeout: Duration) -> Result<Vec<Completion>> {
        let start = Instant::now();
        let deadline = start + timeout;
        let mut completions = Vec::with_capacity(instructions.len());
        let mut tokens = VecDeque::with_capacity(instructions.len().min(self.queue.depth() as usize));
        let mut rest = instructions.iter();
        let mut next = rest.next();
        while completions.len() < instructions.len() {
            while let Some(instruction) = next {
                match self.queue.push(instruction) {
                    Ok(token) => tokens.push_back(token),
                    // The ring is full of what others pushed.
                    Err(Error::Full { .. }) if tokens.is_empty() => {
                        tokens.push_back(self.queue.push_when_room(instruction, None, deadline)?);
                    }
                    Err(Error::Full { .. }) => break,
                    Err(error) => return Err(error),
                }
                next = rest.next();
            }
            let Some(token) = tokens.pop_front() else { continue };
            let left = deadline.saturating_duration_since(Instant::now());
            match self.queue.wait(token, left) {
                Ok(completion) => completions.push(completion),
                Err(error) => {
                    tokens.into_iter().for_each(Token::abandon);
                    // A failure seen already is the likely reason for what did not come.
                    self.check_all(&completions, instructions)?;
                    return Err(late(error, completions.len(), instructions, start.elapsed()));
                }
            }
            while let Some(token) = tokens.pop_front() {
                match self.queue.take(token)? {
                    Ok(completion) => completions.push(completion),
                    Err(token) => {
                        tokens.push_front(token);
                        break;
                    }
                }
            }
        }
        self.check_all(&completions, instructions)?;
        Ok(completions)
    }

    fn check_all(&self, completions: &[Completion], instructions: &[Instruction]) -> Result<()> {
        for (index, (completion, instruction)) in completions.iter().zip(instructions).enumerate() {
            check(*completion, self.node, index, instruction.operation)?;
        }
        Ok(())
    }

    /// Fills `bytes` bytes of card memory at `address` with the eight bytes of `pattern`, little-endian, repeated.
    ///
    /// # Errors
    /// [`Error::BadArgument`] outside of card memory or if `address` is not aligned as the card asks.
    pub fn fill(&mut self, address: u64, bytes: u64, pattern: u64) -> Result<()> {
        self.check_range(address, bytes)?;
        let align = u64::from(self.capabilities.address_align);
        if address % align != 0 {
            return Err(Error::argument("address", format!("{address:#x}"), format!("a multiple of {align}")));
        }
        if bytes == 0 {
            return Ok(());
        }
        self.run(&[Instruction::fill(Operand::card(address), bytes, pattern)], self.timeout).map(drop)
    }

    pub(crate) fn check_range(&self, address: u64, bytes: u64) -> Result<()> {
        let size = self.capabilities.memory_bytes;
        if address.checked_add(bytes).is_some_and(|end| end <= size) {
            return Ok(());
        }
        let range = format!("{bytes} bytes at {address:#x}");
        Err(Error::argument("card memory range", range, format!("the card has {size:#x} bytes")))
    }

    /// Ends what the sequencer runs and empties the queue. Everything in flight completes with status aborted; memory
    /// it was to write is undefined. Memory, communicators and resident programs stay.
    ///
    /// # Errors
    /// [`Error::Timeout`] if the sequencer does not stop: then [`reset`](Card::reset).
    pub fn abort(&mut self) -> Result<()> {
        let start = Instant::now();
        if !self.queue.stop() {
            return Err(self.queue.timeout("the sequencer to stop".into(), start.elapsed()));
        }
        self.queue.restart(None)
    }

    /// Resets the function and sets it up again. Everything in flight completes with status aborted, resident programs
    /// and communicators are gone, and the eager limit is the card's own again.
    ///
    /// # Errors
    /// As [`open`](Card::open); [`Error::Mismatch`] if another card answers.
    pub fn reset(&mut self) -> Result<()> {
        self.stored.clear();
        self.entries = Entries::default();
        self.spent = Spent::default();
        self.function.reset().map_err(|error| self.bus(error))?;
        let described = discover::describe(&self.block)?;
        if described.node != self.node || described.capabilities.queue_depth_max != self.capabilities.queue_depth_max {
            let what = "after a reset the card says it is another".to_owned();
            return Err(Error::Mismatch { node: self.node, other: described.node, what });
        }
        self.capabilities = described.capabilities;
        self.block.quiesce()?;
        self.function.set_bus_master(true).map_err(|error| self.bus(error))?;
        let interrupt = enable_interrupt(&self.function, &self.block)?;
        self.queue.restart(Some(interrupt))
    }

    pub(crate) fn bus(&self, error: fpga_hal::Error) -> Error {
        self.block.bus(error)
    }
}

fn enable_interrupt(function: &Function, block: &Block) -> Result<Interrupt> {
    let interrupts = function.enable_interrupts(1).map_err(|error| block.bus(error))?;
    interrupts.into_iter().next().ok_or_else(|| Error::BadCapability {
        name: block.name().to_owned(),
        register: "MSI-X message control",
        value: 0,
        expected: "at least one vector",
    })
}

/// A timeout, told in terms of the program.
fn late(error: Error, index: usize, instructions: &[Instruction], waited: Duration) -> Error {
    match error {
        Error::Timeout { node, last_seen, .. } => Error::Timeout {
            what: format!("instruction {index} ({}) to complete", instructions[index].operation),
            node,
            rank: None,
            instruction: Some(index),
            waited,
            last_seen,
        },
        other => other,
    }
}

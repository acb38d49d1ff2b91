//! One card: opens it, describes it, and runs instructions on it.

pub(crate) mod communicator_table;
pub(crate) mod control;
pub(crate) mod memory;
pub(crate) mod resident;
pub(crate) mod tables;
pub(crate) mod windows;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cmdseq::{Capabilities, Completion, Instruction, Operand, Operation};
use fpga_hal::{Claim, DmaBuffer, Function};
use fpga_regs::bits::Features;
use fpga_regs::sequencer;

use crate::board::{self, BlockKind, BoardFunction, Feed};
use crate::card::communicator_table::{Entries, Spent};
use crate::card::control::{CardFunctions, Management};
use crate::card::windows::OpenWindows;
use crate::deadline::Deadline;
use crate::dfl::{OwnPort, Reported, released};
use crate::error::{Error, Result};
use crate::ledger::bound::{Bound, Held};
use crate::ledger::state::State;
use crate::ledger::token::Token;
use crate::queue::{QueuePair, check};
use crate::sequencer::block::STOP;
use crate::sequencer::block::{Block, bus_error, removed_or};
use crate::sequencer::discover::{self, Found};
use crate::sequencer::state::SequencerState;
use crate::shell::Shell;
use crate::stats::PublishedSensors;
use crate::stats::publication::{Identity, Publication};

/// Default time limit of calls without a timeout argument.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);
/// Buffers for the card are pages of their own.
const BUFFER_ALIGNMENT: usize = 4096;

/// A card with a command sequencer, held by this process. Dropping it stops its queue and closes the function.
#[derive(Debug)]
pub struct Card {
    // Fields are dropped in this order: the queue stops the card before its memory and its function go.
    queue: QueuePair,
    pub(crate) shell: Shell,
    pub(crate) staging: Option<Arc<DmaBuffer>>,
    /// The communicators it has.
    pub(crate) entries: Entries,
    /// The ids of communicators that it was given since its reset.
    pub(crate) spent: Spent,
    /// The windows that programs of a cluster have open.
    pub(crate) windows: OpenWindows,
    block: Block,
    version: u32,
    is_mock: bool,
    node: u32,
    capabilities: Capabilities,
    timeout: Duration,
    control: Option<Management>,
    /// The port of a card that is its own control function.
    port: Option<OwnPort>,
    function: Function,
    /// Dropped last: until then the function takes no other driver.
    _claim: Claim,
}

impl Card {
    /// Takes the functions of a card into use: finds the sequencer, reads what it can do, and sets up a queue. If the function has a port
    /// that holds the accelerator in reset, releases it. With the control function the card is [reset](Card::reset) by its port too, and
    /// its sensors and [errors](Card::shell_errors) are the shell's.
    ///
    /// # Errors
    /// [`Error::NoSequencer`], [`Error::Version`] and [`Error::BadCapability`] for a card without a sequencer that this
    /// driver knows, [`Error::Removed`] for one that does not answer; [`Error::Engine`] if the engine of its shell does not stop;
    /// [`Error::Bus`], with [`fpga_hal::Error::InUse`] if
    /// another card of this process drives the function.
    pub fn open(functions: impl Into<CardFunctions>) -> Result<Card> {
        let CardFunctions { data, control } = functions.into();
        let name = &data.identity().name;
        let control = control.map(|control| Management::open(control, name)).transpose()?;
        Ok(Card { control, ..Card::open_given(data, None)? })
    }

    /// As [`open`](Card::open), with what a board file says of the function.
    ///
    /// # Errors
    /// As [`open`](Card::open); [`Error::BadCapability`] if the sequencer does not announce that it can be fed as the file says.
    pub fn open_on_board(function: Function, board: &BoardFunction) -> Result<Card> {
        Card::open_given(function, Some(board))
    }

    fn open_given(function: Function, board: Option<&BoardFunction>) -> Result<Card> {
        Card::set_up(function.clone(), board).map_err(|error| match removed_or(&function, error) {
            // The ids tell which card it is instead.
            Error::NoSequencer { looked, .. } => Error::NoSequencer { name: function.identity().to_string(), looked },
            error => error,
        })
    }

    fn set_up(function: Function, board: Option<&BoardFunction>) -> Result<Card> {
        let name: Arc<str> = function.identity().name.as_str().into();
        let bus = |error| bus_error(&name, error);
        let claim = function.claim().map_err(bus)?;
        let board = match board {
            Some(board) => board,
            None => board::of(&function)?,
        };
        // A sequencer that a board file places is behind no port that its lists lead to.
        let port = match board.block(BlockKind::Sequencer) {
            Some(_) => None,
            None => OwnPort::find(&function, board)?,
        };
        let found = released(port.as_ref(), || discover::find_on(&function, board))?;
        let Found { bar, list, offset, start: _ } = found;
        let window = list.slice(offset, u64::from(sequencer::BLOCK_BYTES)).map_err(bus)?;
        let block = Block::new(window, name.clone(), &function);
        let mut described = discover::describe(&block, Features::HOST_RING | Features::CARD_RING)?;
        function.limit_dma_bits(described.dma_bits);
        block.quiesce()?;
        let mut shell = Shell::probe((&function, board), (bar, &list), &block, described.features)?;
        let interrupt = shell.interrupt(&function, &block)?;
        let depth_max = described.capabilities.queue_depth_max;
        let (transport, depth) = shell.transport(&function, &block, depth_max)?;
        shell.limit(&mut described.capabilities, &transport);
        let queue = QueuePair::create(&function, &block, described.node, transport, depth, interrupt)?;
        log::debug!("{name}: node {} of {}", described.node, described.capabilities.nodes);
        Ok(Card {
            queue,
            shell,
            staging: None,
            entries: Entries::default(),
            spent: Spent::default(),
            windows: OpenWindows::new(),
            block,
            version: described.version,
            is_mock: described.features.contains(Features::MODEL),
            node: described.node,
            capabilities: described.capabilities,
            timeout: TIMEOUT,
            control: None,
            port,
            function,
            _claim: claim,
        })
    }

    /// The capabilities that the card reports.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Its node in the fabric, from 0.
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

    /// Whether it is a mock. It says so itself, whatever its PCI ids are.
    pub fn is_mock(&self) -> bool {
        self.is_mock
    }

    /// Version of its registers: major and minor.
    pub fn version(&self) -> (u16, u16) {
        ((self.version >> 16) as u16, self.version as u16)
    }

    /// How instructions reach its sequencer.
    pub fn feed(&self) -> Feed {
        self.queue.transport.feed()
    }

    /// The channels of AMD's engine through which its sequencer masters the bus, by descriptor bypass: the number of that from the host,
    /// and of that to the host. `None` if it masters the bus by itself, or not at all.
    pub fn bypass_channels(&self) -> Option<(u32, u32)> {
        self.shell.bypass_channels()
    }

    /// The name of the engine that moves data between the host and card memory, `xdma` or `msgdma`. `None` if copy instructions do.
    pub fn data_engine(&self) -> Option<&'static str> {
        self.shell.engine_name()
    }

    /// Largest piece sent eagerly, bytes; 0 means rendezvous always.
    pub fn eager_limit(&self) -> u64 {
        self.capabilities.eager_limit
    }

    /// Sets the largest piece sent eagerly. All cards of a cluster need the same.
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

    /// Words of card memory with an error that was corrected, each time that they were read since the card was reset, modulo
    /// 2^32. 0 if the card does not count them.
    ///
    /// # Errors
    /// The bus's.
    pub fn corrected_memory_errors(&self) -> Result<u32> {
        self.block.read(sequencer::MEMORY_CORRECTED)
    }

    /// Reads what the sequencer is doing from its registers: not for a hot path.
    ///
    /// # Errors
    /// [`Error::Removed`], [`Error::Bus`].
    pub fn sequencer_state(&self) -> Result<SequencerState> {
        SequencerState::read(&self.block)
    }

    /// Time limit of calls without a timeout argument: copies to or from card memory, communicators, stores.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Sets [`timeout`](Card::timeout).
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Publishes the state and the counts of the card's queue from now on, in a file in `directory` that other processes may
    /// read while they change ([`read_stats`](crate::read_stats)). `directory` should be in memory, such as `/dev/shm`. The file
    /// is removed with the card. Returns its path. As the user may truncate the file, this installs a handler of SIGBUS: see
    /// [`fpga_hal::vfio`].
    ///
    /// # Errors
    /// Those of the file system.
    pub fn publish(&mut self, directory: &Path) -> std::io::Result<PathBuf> {
        let queue = &self.queue;
        let identity = Identity {
            name: self.name(),
            node: self.node,
            is_mock: self.is_mock(),
            depth: queue.depth(),
            links: self.capabilities.ports,
        };
        let publication = Publication::create(directory, &identity, queue.state())?;
        let path = publication.path();
        self.queue.ledger.publish(publication);
        Ok(path)
    }

    /// The sensors of the card, to be published beside its counters; `None` if it has none or is not published. The caller has them read
    /// now and then: the driver has no thread for it.
    ///
    /// # Errors
    /// The bus's.
    pub fn sensors(&self) -> std::result::Result<Option<PublishedSensors>, crate::readings::Error> {
        let Some(words) = self.queue.ledger.published() else { return Ok(None) };
        let function = self.control.as_ref().map_or(&self.function, Management::function);
        PublishedSensors::find(function, words)
    }

    /// Reads the error registers of the shell by the control function. Returns those that are not zero, and clears nothing; none without a
    /// control function. What they read when the card is closed is logged.
    ///
    /// # Errors
    /// [`Error::Control`], [`Error::Removed`], [`Error::Bus`].
    pub fn shell_errors(&self) -> Result<Vec<Reported>> {
        self.control.as_ref().map_or(Ok(Vec::new()), Management::errors)
    }

    /// The card's queue.
    pub fn queue(&self) -> &QueuePair {
        &self.queue
    }

    /// The card's queue, to push to and wait on.
    pub fn queue_mut(&mut self) -> &mut QueuePair {
        &mut self.queue
    }

    /// Zeroed host memory of at least `bytes` bytes that the card and all others of its domain reach.
    ///
    /// # Errors
    /// [`Error::Bus`] if there is no memory, or no address for it.
    pub fn allocate(&self, bytes: usize) -> Result<Arc<DmaBuffer>> {
        self.function.domain().allocate(bytes, BUFFER_ALIGNMENT).map_err(|error| self.bus(error))
    }

    /// Allocates as [`allocate`](Self::allocate), for this card alone.
    pub(crate) fn allocate_private(&self, bytes: usize) -> Result<Arc<DmaBuffer>> {
        self.function.private_domain().allocate(bytes, BUFFER_ALIGNMENT).map_err(|error| self.bus(error))
    }

    /// Whether the card's queue takes instructions, and why not.
    pub fn state(&self) -> State {
        self.queue.state()
    }

    /// Waits for the completion of `token` and checks its status. After a timeout the token may be waited for again.
    ///
    /// # Errors
    /// Those of [`QueuePair::wait`], and [`Error::Failed`].
    pub fn wait(&mut self, token: &Token, timeout: Duration) -> Result<Completion> {
        let completion = self.queue.wait(token, timeout)?;
        check(completion, self.node, 0, token.operation())
    }

    /// [`wait`](Card::wait) with a deadline that several waits share.
    pub(crate) fn wait_done(&mut self, token: &Token, deadline: Deadline) -> Result<Completion> {
        check(self.completion(token, deadline)?, self.node, 0, token.operation())
    }

    /// The completion of `token`, whatever its status.
    pub(crate) fn completion(&mut self, token: &Token, deadline: Deadline) -> Result<Completion> {
        match self.queue.wait_until(token, deadline)? {
            Some(completion) => Ok(completion),
            None => Err(self.queue.timeout(format!("{} to complete", token.operation()), deadline.waited())),
        }
    }

    /// Runs any number of `instructions`, and returns their completions in order, all of them done.
    ///
    /// # Errors
    /// [`Error::Failed`] for the first that was not done (those after it were run all the same), [`Error::Timeout`]
    /// naming the first that did not complete within `timeout`, and those of [`QueuePair::push`] and [`QueuePair::wait`].
    /// What is in flight then goes on, and the buffers bound to it are kept until it is complete.
    pub fn run(
        &mut self,
        instructions: impl IntoIterator<Item = impl Into<Bound>>,
        timeout: Duration,
    ) -> Result<Vec<Completion>> {
        let deadline = Deadline::after(timeout);
        let mut operations = Vec::new();
        let mut completions = Vec::new();
        let mut tokens = VecDeque::new();
        let mut rest = instructions.into_iter().map(Into::into).peekable();
        loop {
            // If others have filled the ring, the first waits for room.
            while let Some(bound) = rest.next_if(|_| tokens.is_empty() || self.queue.has_room()) {
                let operation = bound.instruction().operation;
                match self.queue.push_when_room(bound, deadline) {
                    Ok(token) => tokens.push_back(token),
                    Err(error) => {
                        // Those before it run now, not with a later doorbell.
                        self.queue.ring()?;
                        return Err(error);
                    }
                }
                operations.push(operation);
            }
            let Some(token) = tokens.pop_front() else { break };
            match self.queue.wait_until(&token, deadline) {
                Ok(Some(completion)) => {
                    completions.push(completion);
                    let _ = self.queue.take(token)?;
                }
                outcome => {
                    token.abandon();
                    tokens.into_iter().for_each(Token::abandon);
                    // A failure already seen is the likely reason for missing completions.
                    self.check_all(&completions, &operations)?;
                    outcome?;
                    return Err(self.late(completions.len(), &operations, deadline));
                }
            }
        }
        self.check_all(&completions, &operations)?;
        Ok(completions)
    }

    fn check_all(&self, completions: &[Completion], operations: &[Operation]) -> Result<()> {
        for (index, (completion, operation)) in completions.iter().zip(operations).enumerate() {
            check(*completion, self.node, index, *operation)?;
        }
        Ok(())
    }

    /// A timeout of a program, at instruction `index`.
    fn late(&mut self, index: usize, operations: &[Operation], deadline: Deadline) -> Error {
        let what = format!("instruction {index} ({}) to complete", operations[index]);
        match self.queue.timeout(what, deadline.waited()) {
            Error::Timeout { what, node, rank, waited, last_seen, .. } => {
                Error::Timeout { what, node, rank, instruction: Some(index), waited, last_seen }
            }
            other => other,
        }
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
        self.run([Instruction::fill(Operand::card(address), bytes, pattern)], self.timeout).map(drop)
    }

    /// Makes sure that `bytes` from `address` are in card memory.
    ///
    /// # Errors
    /// [`Error::BadArgument`].
    pub fn check_range(&self, address: u64, bytes: u64) -> Result<()> {
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
    /// [`Error::Timeout`] if the sequencer does not stop: then the queue is [poisoned](State::Poisoned), and needs a
    /// [`reset`](Card::reset). [`Error::NotRunning`] if a reset has failed before or another program has reset the card, and
    /// [`Error::Removed`].
    pub fn abort(&mut self) -> Result<()> {
        if self.queue.needs_reset() {
            return Err(self.queue.refusal());
        }
        let deadline = Deadline::after(STOP);
        let told = self.queue.request_stop();
        match self.queue.await_stop(told, deadline) {
            State::Stopped => self.queue.restart(None),
            // Of a card that does not answer, this is that error.
            _ => Err(self.queue.timeout("the sequencer to stop".into(), deadline.waited())),
        }
    }

    /// Resets the function, and the accelerator by the port of its control function, and sets it up again. Everything in flight
    /// completes with status aborted, resident programs and communicators are gone, and the eager limit is the card's own again.
    ///
    /// # Errors
    /// As [`open`](Card::open); [`Error::Mismatch`] if another card answers. Then the queue is
    /// [poisoned](State::Poisoned) or [gone](State::Gone), and everything stored on the card before counts as lost.
    pub fn reset(&mut self) -> Result<()> {
        self.queue.ledger.forget_stored();
        self.entries = Entries::default();
        self.spent = Spent::default();
        self.windows.clear();
        let outcome = self.reset_and_start().map_err(|error| removed_or(&self.function, error));
        if let Err(error) = &outcome {
            self.queue.reset_failed(error);
        }
        outcome
    }

    fn reset_and_start(&mut self) -> Result<()> {
        self.function.reset().map_err(|error| self.bus(error))?;
        if let Some(control) = &mut self.control {
            control.reset_accelerator()?;
        }
        self.queue.was_reset();
        // A reset of the function may have reset its port, too.
        let describe = || discover::describe(&self.block, self.shell.ring_feature());
        let mut described = released(self.port.as_ref(), describe)?;
        if described.node != self.node || described.capabilities.queue_depth_max != self.capabilities.queue_depth_max {
            let what = "after a reset the card says it is another".to_owned();
            return Err(Error::Mismatch { node: self.node, other: described.node, what });
        }
        self.shell.limit(&mut described.capabilities, &self.queue.transport);
        self.capabilities = described.capabilities;
        self.block.quiesce()?;
        self.shell.after_reset(&self.function, &self.block)?;
        self.queue.transport.after_reset()?;
        let interrupt = self.shell.interrupt(&self.function, &self.block)?;
        self.queue.restart(Some(interrupt))
    }

    pub(crate) fn bus(&self, error: fpga_hal::Error) -> Error {
        self.block.bus(error)
    }

    /// Puts `data` where the sequencer reads it, and binds to it the instruction that `name` makes of its address. The instruction must
    /// be submitted next.
    pub(crate) fn hand_over(
        &mut self,
        data: &[u8],
        deadline: Deadline,
        name: impl FnOnce(u64) -> Instruction,
    ) -> Result<Bound> {
        if self.queue.reaches_host() {
            let buffer = self.allocate_private(data.len())?;
            buffer.write(0, data).map_err(|error| self.bus(error))?;
            let instruction = name(buffer.iova().0);
            return Ok(Bound::handed(instruction, Held::One(buffer)));
        }
        loop {
            let Some(scratchpad) = self.queue.transport.scratchpad() else { unreachable!("it reaches no host memory") };
            if let Some(address) = scratchpad.put(data)? {
                return Ok(Bound::handed(name(address), Held::None));
            }
            if data.len() as u64 > scratchpad.bytes() {
                let expected = format!("the card has room for {} bytes at once", scratchpad.bytes());
                return Err(Error::argument("table or program", format!("{} bytes", data.len()), expected));
            }
            // What reads the data that is there must be done with it.
            self.queue.drain(deadline)?;
            if let Some(scratchpad) = self.queue.transport.scratchpad() {
                scratchpad.clear();
            }
        }
    }
}

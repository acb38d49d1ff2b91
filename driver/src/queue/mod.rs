//! Queue pairs: instructions in, completions out. Waiting is in `waiting`, stopping and starting over in `stopping`.

pub(crate) mod stopping;
pub(crate) mod waiting;

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};

use cmdseq::{Completion, Encoded, Operation, Status, completion};
use fpga_hal::{Function, Interrupt};

use crate::error::{Error, Result};
use crate::ledger::Ledger;
use crate::ledger::bound::Bound;
use crate::ledger::state::{Broken, Poison, State};
use crate::ledger::submission::Submission;
use crate::ledger::token::{Entry, Token, Tokens};
use crate::sequencer::block::Block;
use crate::transport::Transport;
use crate::transport::any::{AnyTransport, each};

/// The queue of a card: instructions in, completions out, with one owner.
///
/// [`push`](QueuePair::push) stores instructions, [`ring`](QueuePair::ring) tells the card of all that were stored,
/// [`poll`](QueuePair::poll) takes completions, [`wait`](QueuePair::wait) sleeps for one. Completions come in the order
/// of the instructions; tokens may be waited for in any order. Up to twice the depth of the ring may be in flight or have
/// tokens that are not dropped.
///
/// If an access to the bus is refused, the queue is as it was before the call: what was stored stays stored, completions
/// that were taken stay with their tokens, and the next call tries again. A queue that is not
/// [running](State::Running) takes nothing until [`Card::abort`](crate::Card::abort) or
/// [`Card::reset`](crate::Card::reset) has started it again.
///
/// Dropping a queue with instructions in flight stops the sequencer first, so that no card works on memory that is gone.
pub struct QueuePair {
    pub(crate) function: Function,
    pub(crate) node: u32,
    pub(crate) block: Block,
    pub(crate) transport: AnyTransport,
    pub(crate) ledger: Ledger,
    pub(crate) interrupt: Interrupt,
    reaches_host: bool,
}

impl QueuePair {
    /// Queue 0 of the card behind `block`, with rings of `depth` entries, which are empty. Starts the sequencer.
    pub(crate) fn create(
        function: &Function,
        block: &Block,
        node: u32,
        transport: AnyTransport,
        depth: u32,
        interrupt: Interrupt,
    ) -> Result<Self> {
        let (function, block, ledger) = (function.clone(), block.clone(), Ledger::new(depth));
        let reaches_host = transport.scratchpad().is_none();
        let mut queue = QueuePair { function, node, block, transport, ledger, interrupt, reaches_host };
        queue.transport.start()?;
        queue.ledger.restart();
        Ok(queue)
    }

    /// Entries of each ring.
    pub fn depth(&self) -> u32 {
        self.ledger.depth()
    }

    /// Instructions stored and not completed.
    pub fn in_flight(&self) -> u32 {
        self.ledger.in_flight()
    }

    /// Whether the queue takes instructions, and why not.
    pub fn state(&self) -> State {
        self.ledger.state()
    }

    /// Refuses a queue that does not run.
    #[inline]
    fn check(&self) -> Result<()> {
        if self.ledger.state() == State::Running { Ok(()) } else { Err(self.refusal()) }
    }

    /// Why the queue takes no instructions.
    #[cold]
    pub(crate) fn refusal(&self) -> Error {
        let name = || self.block.name().to_owned();
        let state = self.state();
        match (state, self.ledger.poison()) {
            (State::Gone, _) => self.block.removed(),
            (_, Some(Poison::Completion(Broken { what, expected, found }))) => {
                Error::BadCompletion { name: name(), what, expected: *expected, found: *found }
            }
            (_, Some(Poison::Failed(why) | Poison::Reset(why))) => {
                Error::NotRunning { name: name(), state, why: why.clone() }
            }
            (_, None) => Error::NotRunning { name: name(), state, why: "it was not started again".to_owned() },
        }
    }

    /// Notes that the card is gone if `error` says so.
    #[cold]
    pub(crate) fn note(&mut self, error: Error) -> Error {
        if matches!(error, Error::Removed { .. }) {
            self.ledger.set_state(State::Gone);
        }
        error
    }

    /// Stores an instruction in the ring, with a tag of the queue's own, and keeps the buffers bound to it until it is
    /// complete. No MMIO: the card learns of it by [`ring`](QueuePair::ring).
    ///
    /// # Errors
    /// [`Error::HostMemoryUnbound`] if the instruction names host memory that no buffer bound to it covers;
    /// [`Error::Full`] with the instruction; the error that [`state`](QueuePair::state) stands for if the queue does not
    /// run. Then nothing was stored.
    #[inline]
    pub fn push(&mut self, instruction: impl Submission) -> Result<Token> {
        let entry = self.store(instruction)?;
        Ok(self.ledger.token(entry))
    }

    #[inline(always)]
    fn store(&mut self, submission: impl Submission) -> Result<Entry> {
        if !submission.is_plain() {
            return self.store_bound(submission.into_bound());
        }
        if !self.may_push()? {
            return Err(self.full(submission.into_bound()));
        }
        let entry = self.put(&submission)?;
        // It holds nothing: no drop on the path of an instruction.
        std::mem::forget(submission);
        Ok(entry)
    }

    /// Stores an instruction that names or holds host memory.
    fn store_bound(&mut self, bound: Bound) -> Result<Entry> {
        self.check()?;
        if !self.reaches_host && !bound.is_on_card() && bound.instruction.names_host() {
            let (name, operation) = (self.block.name().to_owned(), bound.instruction.operation);
            return Err(Error::NoHostMemory { name, operation });
        }
        bound.check(&self.function)?;
        if !self.may_push()? {
            return Err(self.full(bound));
        }
        let entry = self.put(&bound)?;
        self.ledger.note_store(&bound.instruction);
        self.ledger.hold(bound.held);
        Ok(entry)
    }

    #[cold]
    fn full(&self, bound: Bound) -> Error {
        Error::Full { instruction: Box::new(bound), in_flight: self.in_flight(), depth: self.depth() }
    }

    /// Makes sure that the queue runs, and returns whether it has room for another instruction.
    #[inline]
    pub(crate) fn may_push(&mut self) -> Result<bool> {
        if self.ledger.has_credit() { Ok(true) } else { self.look_for_room() }
    }

    #[cold]
    fn look_for_room(&mut self) -> Result<bool> {
        self.check()?;
        Ok(self.has_room())
    }

    /// Stores a launch that was encoded before, with a tag of the queue's own, and rings. It [may be
    /// pushed](QueuePair::may_push).
    #[inline]
    pub(crate) fn submit_launch(&mut self, launch: &Encoded, tokens: &mut Tokens) -> Result<()> {
        tokens.push(self.put(launch)?);
        self.tell()
    }

    /// Room for the tokens of up to `count` instructions of this queue.
    pub(crate) fn tokens(&self, count: usize) -> Tokens {
        Tokens::with_capacity(self.ledger.states(), count)
    }

    // A call and its frame are a twentieth of what storing takes.
    #[inline(always)]
    fn put(&mut self, submission: &impl Submission) -> Result<Entry> {
        let (count, tag) = (self.ledger.pushed(), self.ledger.next_tag());
        match &self.transport {
            // The word goes from registers to the ring.
            AnyTransport::HostRing(ring) => ring.store(count, &submission.word(tag))?,
            AnyTransport::Shell(ring) => store_apart(&**ring, count, submission, tag)?,
        }
        Ok(self.ledger.push(submission.instruction()))
    }

    /// Whether there is room for another instruction.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        self.ledger.has_room()
    }

    /// Whether the sequencer reaches host memory.
    pub(crate) fn reaches_host(&self) -> bool {
        self.reaches_host
    }

    /// Tells the card of everything stored: one MMIO write. There is a second, before it, if more than half of the ring
    /// is in flight and the card has not yet been told of the latest completions taken.
    ///
    /// # Errors
    /// The bus's. The instructions stay stored, and the card is told of them by the next call.
    #[inline]
    pub fn ring(&mut self) -> Result<()> {
        if self.ledger.is_rung() {
            return Ok(());
        }
        self.check()?;
        self.tell()
    }

    /// Tells the card of everything stored. The queue must [run](State::Running).
    #[inline(always)]
    pub(crate) fn tell(&mut self) -> Result<()> {
        if self.ledger.must_announce() {
            self.announce()?;
        }
        let pushed = self.ledger.pushed();
        self.ledger.set_ringing();
        each!(&self.transport, one => one.ring(pushed).map_err(|error| self.note(error))?);
        self.ledger.set_rung(pushed);
        Ok(())
    }

    /// [`push`](QueuePair::push) and [`ring`](QueuePair::ring).
    ///
    /// # Errors
    /// Those of [`push`](QueuePair::push), or the bus's. Then the instruction is not stored; what was stored before stays.
    #[inline]
    pub fn submit(&mut self, instruction: impl Submission) -> Result<Token> {
        let entry = self.store(instruction)?;
        if let Err(error) = self.tell() {
            return Err(self.take_back(entry, error));
        }
        Ok(self.ledger.token(entry))
    }

    /// Removes the instruction pushed last, because its doorbell failed.
    #[cold]
    fn take_back(&mut self, entry: Entry, error: Error) -> Error {
        // If the card is gone, it may have seen the instruction before: the memory is kept.
        match self.state() {
            State::Running => self.ledger.take_back(entry),
            _ => self.ledger.token(entry).abandon(),
        }
        error
    }

    /// Takes the completions that are there and returns their number. Never waits, and reads no register.
    ///
    /// # Errors
    /// [`Error::BadCompletion`], and from then on the queue is poisoned; the bus's.
    #[inline]
    pub fn poll(&mut self) -> Result<u32> {
        self.check()?;
        let count = self.collect()?;
        if self.ledger.unannounced() >= self.depth() / 2 {
            self.announce()?;
        }
        Ok(count)
    }

    /// Takes the completions that are there.
    #[inline]
    pub(crate) fn collect(&mut self) -> Result<u32> {
        let collected = each!(&self.transport, one => collect(one, &mut self.ledger));
        collected.map_err(|stopped| match stopped {
            Stopped::Bus(error) => self.note(error),
            Stopped::Broken(broken) => self.break_off(broken),
        })
    }

    #[cold]
    fn break_off(&mut self, broken: Broken) -> Error {
        self.ledger.set_poison(Poison::Completion(broken));
        self.refusal()
    }

    /// Tells the card which completions were taken, so that it may write over them.
    pub(crate) fn announce(&mut self) -> Result<()> {
        if self.ledger.unannounced() != 0 {
            self.transport.registers().announce(self.ledger.taken()).map_err(|error| self.note(error))?;
            self.ledger.set_announced();
        }
        Ok(())
    }

    /// The completion of `token` if it has been taken, or the token back.
    ///
    /// # Errors
    /// [`Error::Stale`] if the token is another queue's.
    pub fn take(&mut self, token: Token) -> Result<std::result::Result<Completion, Token>> {
        self.ledger.take(token)
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("card", &self.block.name())
            .field("ledger", &self.ledger)
            .finish_non_exhaustive()
    }
}

impl AsFd for QueuePair {
    /// Descriptor that becomes readable when the interrupt is raised: see [`QueuePair::arm`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.interrupt.as_fd()
    }
}

/// Stores an instruction in a function of its own: the accesses to the bus take longer than any call.
#[inline(never)]
fn store_apart(transport: &dyn Transport, count: u32, submission: &impl Submission, tag: u16) -> Result<()> {
    transport.store(count, &submission.word(tag))
}

/// Why taking completions ended early.
enum Stopped {
    Bus(Error),
    Broken(Broken),
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Stopped::Bus(error)
    }
}

/// Takes the completions that are there and returns their number.
#[inline]
fn collect(transport: &(impl Transport + ?Sized), ledger: &mut Ledger) -> std::result::Result<u32, Stopped> {
    let before = ledger.taken();
    let mut word = [0; completion::BYTES];
    while !ledger.is_idle() {
        let count = ledger.taken();
        if !transport.poll(count, &mut word)? {
            return Ok(count.wrapping_sub(before));
        }
        ledger.complete(Completion::decode(&word)).map_err(Stopped::Broken)?;
    }
    let count = ledger.taken();
    // Looks at host memory if completions arrive there, else reads the BAR once.
    if transport.peek(count, &mut word)? {
        let found = Completion::decode(&word).tag;
        return Err(Stopped::Broken(ledger.broken("nothing was submitted for it", found)));
    }
    Ok(count.wrapping_sub(before))
}

/// Returns `completion` if its status is done.
///
/// # Errors
/// [`Error::Failed`] for any other status, with the arguments.
pub fn check(completion: Completion, node: u32, index: usize, operation: Operation) -> Result<Completion> {
    match completion.status {
        Status::Done => Ok(completion),
        status => {
            Err(Error::Failed { node, rank: None, instruction: index, operation, status, detail: completion.detail })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cmdseq::{Instruction, Operand};
    use fpga_hal::BarIndex;

    use crate::transport::host_ring::HostRing;

    use super::*;
    use fpga_fake::{BLOCK, Fake};

    /// The block of a card, as far as its bus shows it.
    fn block(function: &Function, bytes: u64) -> Block {
        let window = function.window(BarIndex::new(0).unwrap()).unwrap();
        Block::new(window.slice(BLOCK.into(), bytes).unwrap(), "fake".into(), function)
    }

    /// Rings in host memory.
    fn rings(function: &Function, block: &Block) -> AnyTransport {
        AnyTransport::HostRing(HostRing::allocate(block, function.domain(), 4).unwrap())
    }

    /// The queue of a card, which is enabled.
    pub(super) fn queue(fake: &Arc<Fake>) -> QueuePair {
        let function = fake.function();
        let block = block(&function, 0x800);
        function.set_bus_master(true).unwrap();
        let interrupt = function.enable_interrupts(1).unwrap().remove(0);
        QueuePair::create(&function, &block, 0, rings(&function, &block), 4, interrupt).unwrap()
    }

    /// The queue of a card whose bus refuses the doorbell, and all registers behind it, once it is enabled.
    fn without_doorbell(fake: &Arc<Fake>) -> QueuePair {
        let mut queue = queue(fake);
        queue.transport = rings(&queue.function, &block(&queue.function, 0x418));
        queue
    }

    #[test]
    fn a_doorbell_that_is_refused_leaves_nothing_pushed() {
        let fake = Fake::new(4);
        let mut queue = without_doorbell(&fake);
        let buffer = queue.function.domain().allocate(64, 64).unwrap();
        let copy = Instruction::copy(Operand::card(0), Operand::host(buffer.iova().0), 64);
        let refused = |error| matches!(error, Error::Bus(fpga_hal::Error::OutOfBounds { .. }));
        // More often than the queue has room for.
        for stored in 0..3 {
            for _ in 0..20 {
                assert!(refused(queue.submit(Instruction::nop()).unwrap_err()));
                let bound = Bound::from(copy).holding(Arc::clone(&buffer));
                assert!(refused(queue.submit(bound).unwrap_err()));
                assert_eq!((queue.in_flight(), Arc::strong_count(&buffer)), (stored, 1));
            }
            // What is stored by itself stays, and is told of by a later call.
            let token = queue.push(Instruction::nop()).unwrap();
            assert_eq!(u32::from(token.tag()), stored);
            assert!(refused(queue.ring().unwrap_err()));
            assert_eq!((queue.in_flight(), queue.state()), (stored + 1, State::Running));
            token.abandon();
        }
        assert!(fake.state().ran.is_empty());
    }

    #[test]
    fn a_queue_shows_its_counts() {
        let mut queue = without_doorbell(&Fake::new(4));
        queue.push(Instruction::nop()).unwrap().abandon();
        let shown = format!("{queue:?}");
        for part in ["fake", "Running", "depth: 4", "pushed: 1", "rung: 0", "taken: 0", "announced: 0"] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
    }
}

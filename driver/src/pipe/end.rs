//! What both ends of a pipe have.

use std::sync::Arc;
use std::time::Duration;

use cmdseq::communicator::ContextId;
use cmdseq::instruction::{Rights, Window};
use cmdseq::{Instruction, Operand, Operation, Status};
use fpga_hal::DmaBuffer;

use crate::card::Card;
use crate::card::windows::Keys;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::ledger::bound::Bound;
use crate::pipe::slot::{HEADER, SLOT, SLOTS};
use crate::queue::check;

/// Bytes of card memory that a pipe uses, on each of its two cards.
pub const PIPE_BYTES: u64 = (SLOTS * SLOT) as u64;
/// Most bytes of a write that arrive together: see [`PipeWriter::write`](crate::PipeWriter::write).
pub const PIPE_BUF: usize = SLOT - HEADER;

/// The communicator of a pipe: only its two cards use its windows.
const PAIR: ContextId = match ContextId::new(1, 0) {
    Some(id) => id,
    None => ContextId::WORLD,
};
/// Ranks in it.
const WRITER: u16 = 0;
const READER: u16 = 1;
/// The signal of each end: data at the reader, slots given back at the writer.
pub(super) const SIGNAL: u16 = 0;
/// The signal of each end while the pipe is opened: a greeting at the reader, its answer at the writer. Both may come more than once,
/// for a link that goes down leaves open whether they came.
pub(super) const GREETING: u16 = 1;
/// Instructions of a message at either end.
pub(super) const STEPS: usize = 3;
/// How long a reader waits for a writer before it asks again whether it is stopped.
const ASK: Duration = Duration::from_millis(100);
/// How long an end waits before it tries again to reach the other, which is not there yet, or whose link is down.
pub(super) const AGAIN: Duration = Duration::from_millis(5);
/// How long an end that closes tries to tell the other while the link is down.
pub(super) const LAST: Duration = Duration::from_secs(1);

/// What came of reaching for the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reached {
    /// Its window is open.
    Window,
    /// It has no window with the key, or has closed it.
    NoWindow,
    /// The link went down; its card may just be opened and reset. What was sent has come or not.
    Unknown,
}

/// Where a pipe is. Both ends name the same.
///
/// ```
/// use std::io::{Read, Write};
/// use std::time::Duration;
///
/// use fpga_driver::{Card, Pipe, PipeReader, PipeWriter};
/// # use fpga_hal::{Domain, in_process};
/// # let fabric = fpga_mock::Fabric::new(fpga_mock::Profile::bluelink(1, 2))?;
/// # let card = |node| Card::open(in_process::attach(fabric.endpoint(node), &Domain::in_process(), "example").unwrap());
///
/// let (pipe, limit) = (Pipe::new(0, 1), Duration::from_secs(10));
/// // At the host of node 1:
/// # let there = card(1)?;
/// let reading = std::thread::spawn(move || {
///     let mut text = String::new();
///     PipeReader::open(there, pipe, limit).expect("a reader").read_to_string(&mut text).expect("text");
///     text
/// });
/// // At the host of node 0:
/// # let here = card(0)?;
/// let mut writer = PipeWriter::open(here, pipe, limit)?;
/// writer.write_all(b"hello")?;
/// writer.close()?;
/// assert_eq!(reading.join().unwrap(), "hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pipe {
    /// Node of the card whose host writes.
    pub writer: u32,
    /// Node of the card whose host reads.
    pub reader: u32,
    /// Address of the [`PIPE_BYTES`] bytes that the pipe uses, in the memory of both cards.
    pub address: u64,
    /// Key of the window through which the writer's card finds the reader's, not 0. No other card does. Then the two agree on
    /// another, which the writer draws, so that an end whose peer is gone does not reach the next one.
    pub key: u32,
}

impl Pipe {
    /// A pipe at the beginning of card memory, with key 1.
    pub fn new(writer: u32, reader: u32) -> Self {
        Pipe { writer, reader, address: 0, key: 1 }
    }
}

/// What both ends have.
#[derive(Debug)]
pub(super) struct End {
    pub(super) card: Card,
    pub(super) pipe: Pipe,
    /// Key of the windows: of the pipe while the reader waits for a writer, then of the two.
    pub(super) key: u32,
    /// A copy of the slots.
    pub(super) buffer: Arc<DmaBuffer>,
}

impl End {
    /// Resets the card, so that no window and no signal is left of what ran before, and opens the window of this end with `key`.
    pub(super) fn open(mut card: Card, pipe: Pipe, rights: Rights, key: u32) -> Result<Self, Error> {
        check_place(&card, pipe)?;
        card.reset()?;
        let buffer = card.allocate_private(SLOTS * SLOT)?;
        let timeout = card.timeout();
        let mut end = End { card, pipe, key, buffer };
        let members: Vec<u8> =
            [pipe.writer, pipe.reader].iter().flat_map(|node| (*node as u16).to_le_bytes()).collect();
        end.buffer.write(0, &members).map_err(Error::Bus)?;
        let group = Instruction::group(PAIR.raw(), end.buffer.iova().0, 2);
        end.card.spent.add(PAIR);
        let group = Bound::from(group).holding(Arc::clone(&end.buffer));
        end.card.run([group], timeout)?;
        end.open_window(rights, key)?;
        Ok(end)
    }

    /// Opens the window of this end. The other end reaches it, and is reached, with `key`.
    pub(super) fn open_window(&mut self, rights: Rights, key: u32) -> Result<(), Error> {
        self.key = key;
        let place = Operand::card(self.pipe.address);
        let open = Instruction::open(self.window(key), rights, place, PIPE_BYTES).on(PAIR.raw());
        let timeout = self.card.timeout();
        self.card.run([open], timeout).map(drop)
    }

    /// The window of either end: in the same slot on both cards.
    fn window(&self, key: u32) -> Window {
        Window { slot: (self.card.capabilities().windows - 1) as u16, key }
    }

    /// Where slot `index` is in card memory.
    pub(super) fn on_card(&self, index: usize) -> Operand {
        Operand::card(self.pipe.address + (index * SLOT) as u64)
    }

    /// Where slot `index` is in host memory.
    pub(super) fn on_host(&self, index: usize) -> Operand {
        Operand::host(self.buffer.iova().0 + (index * SLOT) as u64)
    }

    /// A copy between the two.
    pub(super) fn copy(&self, source: Operand, destination: Operand, bytes: usize) -> Bound {
        Bound::from(Instruction::copy(source, destination, bytes as u64)).holding(Arc::clone(&self.buffer))
    }

    /// Writes `bytes` bytes of slot `index` into the same slot of the reader's card, and adds 1 to its signal.
    pub(super) fn put(&self, index: usize, bytes: usize) -> Instruction {
        let slot = self.on_card(index);
        self.reach(Instruction::put_signal(READER, slot, slot, bytes as u64, SIGNAL, 1))
    }

    /// Writes the greeting in the first slot into that of a reader that waits for a writer.
    pub(super) fn greet(&self) -> Instruction {
        let slot = self.on_card(0);
        let put = Instruction::put_signal(READER, slot, slot, HEADER as u64, GREETING, 1);
        put.through(self.window(self.pipe.key)).on(PAIR.raw())
    }

    /// Tells the writer that its greeting has come.
    pub(super) fn answer(&self) -> Instruction {
        self.signal_writer(GREETING, 1)
    }

    /// Gives the writer's card slots.
    pub(super) fn give_back(&self, slots: u32) -> Instruction {
        self.signal_writer(SIGNAL, slots)
    }

    /// Adds `value` to a signal of the writer's card, and writes nothing.
    fn signal_writer(&self, signal: u16, value: u32) -> Instruction {
        let nothing = Operand::card(0);
        self.reach(Instruction::put_signal(WRITER, nothing, nothing, 0, signal, value))
    }

    fn reach(&self, put: Instruction) -> Instruction {
        put.through(self.window(self.key)).on(PAIR.raw())
    }

    /// Runs instructions, the last of which reaches into the window of the other end.
    pub(super) fn run_to_peer(&mut self, instructions: impl IntoIterator<Item = Bound>) -> Result<Reached, Error> {
        let timeout = self.card.timeout();
        match self.card.run(instructions, timeout) {
            Ok(_) => Ok(Reached::Window),
            Err(Error::Failed { status: Status::BadWindow, .. }) => Ok(Reached::NoWindow),
            Err(Error::Failed { status: Status::LinkDown, .. }) => Ok(Reached::Unknown),
            Err(error) => Err(error),
        }
    }

    /// As [`run_to_peer`](Self::run_to_peer), again until it is known whether the put has come, the time is up, or the end
    /// `is_stopped`.
    pub(super) fn reach_until(
        &mut self,
        put: Instruction,
        deadline: Deadline,
        is_stopped: &mut dyn FnMut() -> bool,
    ) -> Result<Reached, Error> {
        loop {
            let reached = self.run_to_peer([put.into()])?;
            if reached != Reached::Unknown || deadline.left().is_zero() || is_stopped() {
                return Ok(reached);
            }
            std::thread::sleep(AGAIN.min(deadline.left()));
        }
    }

    /// Waits for the signal [`GREETING`] of the other end until `deadline` or until the end `is_stopped`. Returns whether it has come.
    /// One that comes later is kept.
    pub(super) fn await_greeting(
        &mut self,
        deadline: Deadline,
        is_stopped: &mut dyn FnMut() -> bool,
    ) -> Result<bool, Error> {
        let queue = self.card.queue_mut();
        let token = queue.submit(Instruction::wait_signal(GREETING, 1))?;
        let mut ended = None;
        let mut is_over = false;
        while ended.is_none() && !is_over {
            let left = if is_stopped() { Duration::ZERO } else { deadline.left() };
            is_over = left.is_zero();
            ended = queue.wait_until(&token, Deadline::after(ASK.min(left)))?;
        }
        if ended.is_none() {
            self.card.abort()?;
            ended = self.card.queue_mut().test(&token)?;
        }
        let Some(completion) = ended else { unreachable!("an abort ends all that was submitted") };
        if completion.status == Status::Aborted {
            return Ok(false);
        }
        check(completion, self.card.node(), 0, Operation::WaitSignal).map(|_| true)
    }

    /// Closes the window, so that the other end reaches nothing any more.
    pub(super) fn close_window(&mut self) -> Result<(), Error> {
        let (close, timeout) = (Instruction::close(self.window(self.key)), self.card.timeout());
        self.card.run([close], timeout).map(drop)
    }

    /// Frees the communicator, through which nothing is reached any more.
    pub(super) fn free(&mut self) -> Result<(), Error> {
        let timeout = self.card.timeout();
        self.card.run([Instruction::free(PAIR.raw())], timeout).map(drop)
    }
}

/// Draws a key for the windows of a writer and its reader.
pub(super) fn draw_key(pipe: Pipe) -> Result<u32, Error> {
    loop {
        let key = Keys::System.next()?;
        if key != pipe.key {
            return Ok(key);
        }
    }
}

/// Refuses a place that is not on both cards, and cards without what a pipe needs.
fn check_place(card: &Card, pipe: Pipe) -> Result<(), Error> {
    let capabilities = card.capabilities();
    let Pipe { writer, reader, address, key } = pipe;
    let refuse = |what, value: String, expected: String| Err(Error::argument(what, value, expected));
    let nodes = capabilities.nodes;
    if writer >= nodes || reader >= nodes || writer == reader {
        return refuse(
            "ends of a pipe",
            format!("{writer} and {reader}"),
            format!("two different nodes below {nodes}"),
        );
    }
    if !capabilities.topology.reaches(writer, reader, nodes) {
        return refuse("ends of a pipe", format!("{writer} and {reader}"), "nodes with a way between them".into());
    }
    let align = u64::from(capabilities.address_align);
    let fits = address.checked_add(PIPE_BYTES).is_some_and(|end| end <= capabilities.memory_bytes);
    if !fits || !address.is_multiple_of(align) || !(SLOT as u64).is_multiple_of(align) {
        let expected = format!("a multiple of {align}, with {PIPE_BYTES} bytes of card memory from there");
        return refuse("address of a pipe", format!("{address:#x}"), expected);
    }
    if key == 0 {
        return refuse("key of a pipe", "0".into(), "not 0".into());
    }
    if !capabilities.host_memory {
        let why = "its sequencer does not reach host memory, which an end of a pipe needs".into();
        return refuse("card for a pipe", card.name().to_owned(), why);
    }
    let depth = STEPS * SLOTS + 1;
    let (windows, signals, communicators) = (capabilities.windows, capabilities.signals, capabilities.communicators);
    let room = card.queue().depth() as usize;
    if windows == 0 || signals < 2 || communicators < 2 || room < depth {
        let found = format!("{windows} windows, {signals} signals, {communicators} communicators, a queue of {room}");
        return refuse("card for a pipe", found, format!("1 window, 2 signals, 2 communicators, a queue of {depth}"));
    }
    Ok(())
}

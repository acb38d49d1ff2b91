//! What both ends of a pipe have.

use std::sync::Arc;

use cmdseq::instruction::{Rights, Window};
use cmdseq::{Instruction, Operand};
use fpga_hal::DmaBuffer;

use crate::card::Card;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::ledger::bound::Bound;
use crate::pipe::slot::{HEADER, SLOT, SLOTS};
use crate::queue::check;

/// Bytes of card memory that a pipe uses, on each of its two cards.
pub const PIPE_BYTES: u64 = (SLOTS * SLOT) as u64;
/// Most bytes of a write that arrive together: see [`PipeWriter::write`].
pub const PIPE_BUF: usize = SLOT - HEADER;

/// The signal of each end: data at the reader, slots given back at the writer.
pub(super) const SIGNAL: u16 = 0;
/// Instructions of a message at either end.
pub(super) const STEPS: usize = 3;

/// Where a pipe is. Both ends name the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pipe {
    /// Node of the card whose host writes.
    pub writer: u32,
    /// Node of the card whose host reads.
    pub reader: u32,
    /// Address of the [`PIPE_BYTES`] bytes that the pipe uses, in the memory of both cards.
    pub address: u64,
    /// Key of the windows through which the cards reach each other, not 0. A card of the fabric that knows the key may write
    /// into the pipe.
    pub key: u32,
}

impl Pipe {
    /// A pipe at the begin of card memory, with key 1.
    pub fn new(writer: u32, reader: u32) -> Self {
        Pipe { writer, reader, address: 0, key: 1 }
    }
}

/// What both ends have.
#[derive(Debug)]
pub(super) struct End {
    pub(super) card: Card,
    pub(super) pipe: Pipe,
    /// A copy of the slots.
    pub(super) buffer: Arc<DmaBuffer>,
}

impl End {
    /// Resets the card, so that no window and no signal is left of what ran before, and opens the window of this end.
    pub(super) fn open(mut card: Card, pipe: Pipe, rights: Rights) -> Result<Self, Error> {
        check_place(&card, pipe)?;
        card.reset()?;
        let buffer = card.allocate(SLOTS * SLOT)?;
        let timeout = card.timeout();
        let mut end = End { card, pipe, buffer };
        let open = Instruction::open(end.window(), rights, Operand::card(pipe.address), PIPE_BYTES);
        end.card.run([open], timeout)?;
        Ok(end)
    }

    /// The window of either end: in the same slot on both cards.
    pub(super) fn window(&self) -> Window {
        Window { slot: (self.card.capabilities().windows - 1) as u16, key: self.pipe.key }
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

    /// Adds to the signal of the other end, whose node is `peer`.
    pub(super) fn signal(&self, peer: u32, value: u32) -> Instruction {
        let nothing = Operand::card(0);
        Instruction::put_signal(peer as u16, nothing, nothing, 0, SIGNAL, value).through(self.window())
    }

    /// Closes the window, so that the other end reaches nothing any more.
    pub(super) fn close_window(&mut self, deadline: Deadline) -> Result<(), Error> {
        let close = Instruction::close(self.window());
        let token = self.card.queue_mut().push_when_room(close, deadline)?;
        let node = self.card.node();
        let completion = self.card.completion(&token, deadline)?;
        check(completion, node, 0, token.operation()).map(drop)
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
    let depth = STEPS * SLOTS + 1;
    if capabilities.windows == 0 || capabilities.signals == 0 || (card.queue().depth() as usize) < depth {
        let found = format!(
            "{} windows, {} signals, a queue of {}",
            capabilities.windows,
            capabilities.signals,
            card.queue().depth()
        );
        return refuse("card for a pipe", found, format!("a window, a signal and a queue of at least {depth}"));
    }
    Ok(())
}

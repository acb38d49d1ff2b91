//! The end of a pipe that reads.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use cmdseq::instruction::Rights;
use cmdseq::{Instruction, Status};

use crate::card::Card;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::ledger::token::Token;
use crate::pipe::end::{End, LAST, Pipe, Reached, SIGNAL};
use crate::pipe::error::PipeError;
use crate::pipe::slot::{self, HEADER, Message, SLOT, SLOTS, index};
use crate::queue::check;

/// The end of a pipe that reads. It has the card to itself.
///
/// Dropped without [`close`](PipeReader::close), it does not tell the writer, who then waits until its time is up.
#[derive(Debug)]
pub struct PipeReader {
    end: End,
    /// Messages that the card waits for, from number `next`: the signal, then the copy to the host.
    awaited: VecDeque<[Token; 2]>,
    /// Slots given back, for which the writer's card has not answered.
    given_back: VecDeque<Token>,
    /// Why the writer's card has refused one.
    gone: Option<Status>,
    /// Number of the next message.
    next: u64,
    /// Bytes of the message before it that were not read: where they begin in the buffer, and how many.
    left: (usize, usize),
    is_at_end: bool,
    timeout: Duration,
}

impl PipeReader {
    /// Resets `card` and opens the end of `pipe` that reads. Waits until the other end is open, as open(2) of a FIFO does, for at
    /// most `timeout`, which is also that of later calls.
    ///
    /// # Errors
    /// [`Error::BadArgument`] if `card` is not the reader's or the pipe does not fit; [`PipeError::NoPeer`]; [`PipeError::Greeting`] of a
    /// writer of another version; the card's.
    pub fn open(card: Card, pipe: Pipe, timeout: Duration) -> Result<Self, PipeError> {
        PipeReader::open_until(card, pipe, timeout, &mut || false)
    }

    /// As [`open`](PipeReader::open). The wait for a writer ends too once `is_stopped`, which is asked about every 100 ms.
    ///
    /// # Errors
    /// As [`open`](PipeReader::open): [`PipeError::NoPeer`] for a reader that was stopped.
    pub fn open_until(
        card: Card,
        pipe: Pipe,
        timeout: Duration,
        is_stopped: &mut dyn FnMut() -> bool,
    ) -> Result<Self, PipeError> {
        if card.node() != pipe.reader {
            return Err(Error::argument("card of the reader", card.node(), format!("node {}", pipe.reader)).into());
        }
        let deadline = Deadline::after(timeout);
        let rights = Rights::WRITE.union(Rights::SIGNAL);
        let mut end = End::open(card, pipe, rights, pipe.key)?;
        loop {
            let no_peer = |gone| PipeError::NoPeer { node: pipe.writer, waited: deadline.waited(), gone };
            if !end.await_greeting(deadline, is_stopped)? {
                return Err(no_peer(None));
            }
            end.close_window()?;
            let Some(key) = greeted(&mut end)? else {
                end.open_window(rights, pipe.key)?;
                continue;
            };
            mark_slots(&mut end)?;
            end.open_window(rights, key)?;
            match end.reach_until(end.answer(), deadline, is_stopped)? {
                Reached::Window => break,
                // It is gone. The next one may have greeted already.
                Reached::NoWindow => {
                    end.close_window()?;
                    end.open_window(rights, pipe.key)?;
                }
                Reached::Unknown => return Err(no_peer(Some(Status::LinkDown))),
            }
        }
        let (awaited, given_back) = (VecDeque::with_capacity(SLOTS), VecDeque::with_capacity(SLOTS));
        let mut reader =
            PipeReader { end, awaited, given_back, gone: None, next: 0, left: (0, 0), is_at_end: false, timeout };
        for sequence in 0..SLOTS as u64 {
            reader.expect(sequence)?;
        }
        Ok(reader)
    }

    /// Sets how long a call waits; zero for a call that does not wait (O_NONBLOCK).
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Reads some bytes into `data`: those that are there, or else those that come first. Returns how many; 0 is the end of the
    /// file.
    ///
    /// # Errors
    /// [`PipeError::TimedOut`] if none came; [`PipeError::Truncated`] instead of the end of the file if data was lost;
    /// [`PipeError::Invalid`]; the card's.
    pub fn read(&mut self, data: &mut [u8]) -> Result<usize, PipeError> {
        let deadline = Deadline::after(self.timeout);
        while self.left.1 == 0 {
            if self.is_at_end || data.is_empty() {
                return Ok(0);
            }
            self.take(deadline)?;
        }
        let (at, bytes) = self.left;
        let now = bytes.min(data.len());
        self.end.buffer.read(at, &mut data[..now]).map_err(Error::Bus)?;
        self.left = (at + now, bytes - now);
        if self.left.1 == 0 {
            // Its place in the buffer is free.
            self.expect(self.next - 1 + SLOTS as u64)?;
        }
        Ok(now)
    }

    /// Closes the end, and returns the card. What was not read is lost, and later writes fail with [`PipeError::Broken`]; once the card
    /// is dropped, which resets it, a write that is on its way fails with [`Status::LinkDown`].
    ///
    /// # Errors
    /// The card's.
    pub fn close(self) -> Result<Card, PipeError> {
        let mut end = self.end;
        // Ends the waits for messages.
        end.card.abort()?;
        // A writer that waits for slots finds the window closed, once it has some. One that is gone needs none.
        end.close_window()?;
        end.reach_until(end.give_back(SLOTS as u32), Deadline::after(LAST), &mut || false)?;
        end.free()?;
        Ok(end.card)
    }

    /// Has the card wait for a message, copy it to the host, and give the slot back.
    fn expect(&mut self, sequence: u64) -> Result<(), PipeError> {
        let (end, slot) = (&mut self.end, index(sequence));
        let copy = end.copy(end.on_card(slot), end.on_host(slot), SLOT);
        let slot_is_free = end.give_back(1);
        let queue = end.card.queue_mut();
        let awaited = [queue.push(Instruction::wait_signal(SIGNAL, 1))?, queue.push(copy)?];
        self.awaited.push_back(awaited);
        self.given_back.push_back(queue.push(slot_is_free)?);
        queue.ring()?;
        Ok(())
    }

    /// Waits for the next message.
    fn take(&mut self, deadline: Deadline) -> Result<(), PipeError> {
        let Some(tokens) = self.awaited.front() else { unreachable!("every slot but those being read is awaited") };
        let node = self.end.card.node();
        for token in tokens {
            let Some(completion) = self.end.card.queue_mut().wait_until(token, deadline)? else {
                self.note_refusals()?;
                let gone = self.gone;
                return Err(PipeError::TimedOut { what: "data of the writer", waited: deadline.waited(), gone });
            };
            check(completion, node, 0, token.operation())?;
        }
        let (at, mut header) = (index(self.next) * SLOT, [0; HEADER]);
        self.end.buffer.read(at, &mut header).map_err(Error::Bus)?;
        let is_missing = slot::is_missing(&header, self.next);
        let message = if is_missing { Message::Truncated } else { Message::decode(&header, self.next)? };
        match message {
            Message::Data(bytes) => self.left = (at + HEADER, bytes),
            Message::End => self.is_at_end = true,
            Message::Truncated => return Err(PipeError::Truncated),
        }
        self.awaited.pop_front();
        self.next += 1;
        self.note_refusals()
    }

    /// Notes whether the writer's card has refused slots. Its end may be closed, with the last messages still to be read here.
    fn note_refusals(&mut self) -> Result<(), PipeError> {
        while let Some(token) = self.given_back.front() {
            let Some(completion) = self.end.card.queue_mut().test(token)? else { break };
            if completion.status != Status::Done {
                self.gone = Some(completion.status);
            }
            self.given_back.pop_front();
        }
        Ok(())
    }
}

/// Returns the key that the writer who has greeted has drawn: see [`slot::greeted`].
fn greeted(end: &mut End) -> Result<Option<u32>, PipeError> {
    let (copy, timeout) = (end.copy(end.on_card(0), end.on_host(0), HEADER), end.card.timeout());
    end.card.run([copy], timeout)?;
    let mut greeting = [0; HEADER];
    end.buffer.read(0, &mut greeting).map_err(Error::Bus)?;
    slot::greeted(&greeting)
}

/// Has each slot say that messages were lost, until its first one comes: what an earlier pipe has left there does not pass for it.
fn mark_slots(end: &mut End) -> Result<(), Error> {
    let mut copies = Vec::with_capacity(SLOTS);
    for sequence in 0..SLOTS as u64 {
        let slot = index(sequence);
        end.buffer.write(slot * SLOT, &Message::Truncated.encode(sequence)).map_err(Error::Bus)?;
        copies.push(end.copy(end.on_host(slot), end.on_card(slot), HEADER));
    }
    let timeout = end.card.timeout();
    end.card.run(copies, timeout).map(drop)
}

impl io::Read for PipeReader {
    fn read(&mut self, data: &mut [u8]) -> io::Result<usize> {
        PipeReader::read(self, data).map_err(io::Error::from)
    }
}

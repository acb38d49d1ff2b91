//! The end of a pipe that writes.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use cmdseq::instruction::Rights;
use cmdseq::{Instruction, Operation, Status};

use crate::card::Card;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::ledger::token::Token;
use crate::pipe::end::{AGAIN, End, LAST, PIPE_BUF, Pipe, Reached, SIGNAL, STEPS, draw_key};
use crate::pipe::error::PipeError;
use crate::pipe::slot::{HEADER, Message, SLOT, SLOTS, greeting, index};
use crate::queue::check;

/// How long a writer waits for an answer before it greets again. The reader that was greeted may be gone, and another may come.
const ANSWER: Duration = Duration::from_millis(100);

/// The end of a pipe that writes. It has the card to itself.
///
/// Dropped without [`close`](PipeWriter::close), as by a panic, it does not tell the reader of the end of the data.
#[derive(Debug)]
pub struct PipeWriter {
    end: End,
    /// Messages whose instructions are not all complete.
    sent: VecDeque<Vec<Token>>,
    /// Number of the next message.
    next: u64,
    is_broken: bool,
    /// Whether an instruction has failed, so that a message is missing.
    has_failed: bool,
    /// Since when it is known that the cards move the first of them.
    moving: Option<Instant>,
    timeout: Duration,
}

impl PipeWriter {
    /// Resets `card` and opens the end of `pipe` that writes. Waits until the other end is open, as open(2) of a FIFO does, for at
    /// most `timeout`, which is also that of later calls.
    ///
    /// # Errors
    /// [`Error::BadArgument`] if `card` is not the writer's or the pipe does not fit; [`PipeError::NoPeer`]; the card's.
    pub fn open(card: Card, pipe: Pipe, timeout: Duration) -> Result<Self, PipeError> {
        PipeWriter::open_until(card, pipe, timeout, &mut || false)
    }

    /// As [`open`](PipeWriter::open). The time is up too once `is_stopped`, which is asked about every 100 ms: then either no reader
    /// takes the pipe for open, or the end is returned, whose [`close`](PipeWriter::close) tells the reader. A writer that vanishes
    /// instead may leave a reader waiting that has just answered.
    ///
    /// # Errors
    /// As [`open`](PipeWriter::open): [`PipeError::NoPeer`] for a writer that was stopped.
    pub fn open_until(
        card: Card,
        pipe: Pipe,
        timeout: Duration,
        is_stopped: &mut dyn FnMut() -> bool,
    ) -> Result<Self, PipeError> {
        if card.node() != pipe.writer {
            return Err(Error::argument("card of the writer", card.node(), format!("node {}", pipe.writer)).into());
        }
        let deadline = Deadline::after(timeout);
        let mut end = End::open(card, pipe, Rights::SIGNAL, draw_key(pipe)?)?;
        if let Some(reached) = meet(&mut end, deadline, is_stopped)? {
            let gone = (reached == Reached::Unknown).then_some(Status::LinkDown);
            return Err(PipeError::NoPeer { node: pipe.reader, waited: deadline.waited(), gone });
        }
        Ok(PipeWriter {
            end,
            sent: VecDeque::new(),
            next: 0,
            is_broken: false,
            has_failed: false,
            moving: None,
            timeout,
        })
    }

    /// Sets how long a call waits; zero for a call that does not wait (O_NONBLOCK).
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Writes some of `data`, at most [`PIPE_BUF`](crate::PIPE_BUF) bytes, and returns how many. They are one message,
    /// which arrives as a whole.
    ///
    /// # Errors
    /// [`PipeError::Broken`] if the reader has closed its end, once this card knows; [`PipeError::TimedOut`] if the pipe stays
    /// full, and then nothing was written; the card's, such as [`Error::Timeout`] for a message that the cards do not move within
    /// the [card's timeout](Card::timeout).
    pub fn write(&mut self, data: &[u8]) -> Result<usize, PipeError> {
        let deadline = Deadline::after(self.timeout);
        while !self.sent.is_empty() && !self.is_broken {
            // Waits only for room.
            let until = if self.sent.len() < SLOTS { Deadline::after(Duration::ZERO) } else { deadline };
            if !self.settle_first(until)? {
                break;
            }
        }
        if self.is_broken {
            return Err(PipeError::Broken);
        }
        if self.sent.len() == SLOTS {
            return Err(full(deadline));
        }
        if data.is_empty() {
            return Ok(0);
        }
        let bytes = data.len().min(PIPE_BUF);
        self.send(Message::Data(bytes), &data[..bytes], deadline)?;
        Ok(bytes)
    }

    /// Waits until the reader's card has everything that was written.
    ///
    /// # Errors
    /// As [`write`](PipeWriter::write).
    pub fn flush(&mut self) -> Result<(), PipeError> {
        self.flush_until(Deadline::after(self.timeout))
    }

    fn flush_until(&mut self, deadline: Deadline) -> Result<(), PipeError> {
        // Once the pipe is broken, what is left may wait for slots that nobody gives any more.
        while !self.sent.is_empty() && !self.is_broken {
            if !self.settle_first(deadline)? {
                return Err(full(deadline));
            }
        }
        if self.is_broken { Err(PipeError::Broken) } else { Ok(()) }
    }

    /// Closes the end, and returns the card. Waits until the reader's card has everything, and the end of the file, for which it
    /// always has room.
    ///
    /// # Errors
    /// [`PipeError::Broken`] if the reader had closed its end before its card had everything, unless a call has said so before;
    /// [`PipeError::TimedOut`] if the reader does not read; the card's. After the latter two the reader gets what had left and
    /// then [`PipeError::Truncated`], as far as its card is still reached.
    pub fn close(mut self) -> Result<Card, PipeError> {
        let is_known = self.is_broken;
        let deadline = Deadline::after(self.timeout);
        let ended = match self.flush_until(deadline) {
            Ok(()) => self.end_with(Message::End, deadline),
            Err(PipeError::Broken) if is_known => Ok(()),
            Err(error @ PipeError::Broken) => return Err(error),
            Err(error) => {
                // The first error says why.
                let _ = self.give_up();
                return Err(error);
            }
        };
        match ended {
            // Everything came, and nobody waits for the end.
            Ok(()) | Err(PipeError::Broken) => {}
            Err(error) => return Err(error),
        }
        if !self.sent.is_empty() {
            // Of a broken pipe: the card would do nothing else before.
            self.stop()?;
            self.sent.clear();
        }
        self.end.close_window()?;
        self.end.free()?;
        Ok(self.end.card)
    }

    /// Drops the messages that have not left, and tells the reader.
    fn give_up(&mut self) -> Result<(), PipeError> {
        self.stop()?;
        let deadline = Deadline::after(self.end.card.timeout());
        // All of them are complete now, or aborted.
        while let Some(tokens) = self.sent.front() {
            for token in tokens {
                match self.end.card.queue_mut().wait_until(token, deadline)? {
                    Some(completion) if completion.status == Status::Done => {}
                    _ => {
                        // The last message comes in the place of the first one that is missing.
                        self.next -= self.sent.len() as u64;
                        self.sent.clear();
                        return self.end_with(Message::Truncated, deadline);
                    }
                }
            }
            self.sent.pop_front();
        }
        self.end_with(Message::End, deadline)
    }

    /// Sends the last message, and waits until the reader's card has it. It is sent again if the link goes down, and may then come
    /// twice, which does no harm: the reader takes nothing after it.
    fn end_with(&mut self, last: Message, deadline: Deadline) -> Result<(), PipeError> {
        let tries = Deadline::after(LAST.min(deadline.left()));
        loop {
            self.moving = None;
            self.send(last, &[], deadline)?;
            let ended = self.flush_until(deadline);
            let is_unknown = matches!(ended, Err(PipeError::Card(Error::Failed { status: Status::LinkDown, .. })));
            if !is_unknown || tries.left().is_zero() {
                return ended;
            }
            self.sent.clear();
            self.next -= 1;
            std::thread::sleep(AGAIN.min(tries.left()));
        }
    }

    /// Ends what the card runs: no message may leave after one that is missing.
    fn stop(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.has_failed, true) { Ok(()) } else { self.end.card.abort() }
    }

    /// Sends a message through a slot of the buffer that is free.
    fn send(&mut self, message: Message, data: &[u8], deadline: Deadline) -> Result<(), PipeError> {
        let (end, slot, bytes) = (&mut self.end, index(self.next), HEADER + data.len());
        end.buffer.write(slot * SLOT, &message.encode(self.next)).map_err(Error::Bus)?;
        end.buffer.write(slot * SLOT + HEADER, data).map_err(Error::Bus)?;
        let (here, on_card) = (end.on_host(slot), end.on_card(slot));
        let (copy, put) = (end.copy(here, on_card, bytes), end.put(slot, bytes));
        let mut tokens = Vec::with_capacity(STEPS);
        // The first slots were given when the pipe was opened. One is kept for the last message, which waits for none.
        if matches!(message, Message::Data(_)) && self.next >= SLOTS as u64 - 1 {
            let slot_is_free = Instruction::wait_signal(SIGNAL, 1);
            tokens.push(end.card.queue_mut().push_when_room(slot_is_free, deadline)?);
        }
        tokens.push(end.card.queue_mut().push_when_room(copy, deadline)?);
        tokens.push(end.card.queue_mut().push_when_room(put, deadline)?);
        end.card.queue_mut().ring()?;
        self.sent.push_back(tokens);
        self.next += 1;
        Ok(())
    }

    /// Waits for the instructions of the first message that was sent, and returns whether they are complete.
    fn settle_first(&mut self, deadline: Deadline) -> Result<bool, PipeError> {
        let Some(tokens) = self.sent.front() else { return Ok(true) };
        let node = self.end.card.node();
        for token in tokens {
            let (waited, most) = if token.operation() == Operation::WaitSignal {
                (Duration::ZERO, Duration::MAX)
            } else {
                // The message has its slot and needs only the cards, whatever the reader does.
                (self.moving.get_or_insert_with(Instant::now).elapsed(), self.end.card.timeout())
            };
            let until = Deadline::after(deadline.left().min(most.saturating_sub(waited)));
            let Some(completion) = self.end.card.queue_mut().wait_until(token, until)? else {
                if waited < most && deadline.left().is_zero() {
                    return Ok(false);
                }
                let late = self.end.card.queue_mut().timeout("the reader's card to take a message".into(), most);
                let _ = self.stop();
                return Err(late.into());
            };
            match check(completion, node, 0, token.operation()) {
                Err(Error::Failed { operation: Operation::PutSignal, status: Status::BadWindow, .. }) => {
                    self.is_broken = true;
                }
                Err(error) => {
                    // The error says more than that the card does not stop either.
                    let _ = self.stop();
                    return Err(error.into());
                }
                Ok(_) => {}
            }
        }
        self.sent.pop_front();
        self.moving = None;
        Ok(true)
    }
}

/// Why a call has waited in vain.
fn full(deadline: Deadline) -> PipeError {
    PipeError::TimedOut { what: "the reader to make room in the pipe", waited: deadline.waited(), gone: None }
}

/// Greets until a reader answers, and returns `None` then; else, once the time is up or `is_stopped`, what the last greeting reached.
fn meet(end: &mut End, deadline: Deadline, is_stopped: &mut dyn FnMut() -> bool) -> Result<Option<Reached>, Error> {
    // Whether a reader may have been told the key: then an answer may come at any time.
    let mut is_told = false;
    loop {
        let reached = greet(end)?;
        is_told |= reached != Reached::NoWindow;
        let left = if is_stopped() { Duration::ZERO } else { deadline.left() };
        let is_answered = match (is_told, left.is_zero()) {
            (true, false) => end.await_greeting(Deadline::after(ANSWER.min(left)), &mut || false)?,
            (true, true) => was_answered(end)?,
            (false, _) => false,
        };
        if is_answered || left.is_zero() {
            // The reader may have closed its end already: then the pipe is open, and broken.
            return Ok((!is_answered).then_some(reached));
        }
        if !is_told {
            std::thread::sleep(AGAIN.min(left));
        }
    }
}

/// Looks for an answer for the last time: one that comes later finds no window, so that its reader does not take the pipe for open.
fn was_answered(end: &mut End) -> Result<bool, Error> {
    end.close_window()?;
    let is_answered = end.await_greeting(Deadline::after(ANSWER), &mut || false)?;
    if is_answered {
        end.open_window(Rights::SIGNAL, end.key)?;
    }
    Ok(is_answered)
}

/// Tells the reader the key of the windows.
fn greet(end: &mut End) -> Result<Reached, Error> {
    end.buffer.write(0, &greeting(end.key)).map_err(Error::Bus)?;
    let copy = end.copy(end.on_host(0), end.on_card(0), HEADER);
    end.run_to_peer([copy, end.greet().into()])
}

impl io::Write for PipeWriter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        PipeWriter::write(self, data).map_err(io::Error::from)
    }

    fn flush(&mut self) -> io::Result<()> {
        PipeWriter::flush(self).map_err(io::Error::from)
    }
}

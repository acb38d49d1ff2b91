//! The end of a channel at which the host writes.

use std::sync::Arc;
use std::time::Duration;

use fpga_regs::channel::slot;

use crate::channel::card::Card;
use crate::channel::end::{End, HEADER, Settings, Waiting, wait};
use crate::channel::error::{Error, Result};
use crate::deadline::Deadline;

/// How long a writer that is dropped waits for the card to take what was written.
const DROP: Duration = Duration::from_millis(100);

/// Writes words into a channel.
///
/// The words go through a ring in host memory. A call costs one MMIO write, and no MMIO read, lock, allocation or system call,
/// unless it waits.
///
/// If a writer is dropped, the message ends, and the card takes what is in the ring if it does so within 100 ms.
/// [`close`](Writer::close) reports what the drop cannot.
#[derive(Debug)]
pub struct Writer {
    end: End,
    /// Slots filled, announced to the card, and taken by it, modulo 2^32.
    filled: u32,
    announced: u32,
    taken: u32,
    /// Words were written that no message ends with.
    is_within: bool,
}

impl Writer {
    pub(super) fn open(card: &Arc<Card>, to: u32, settings: Settings) -> Result<Self> {
        let end = End::open(card, Some(to), settings)?;
        Ok(Writer { end, filled: 0, announced: 0, taken: 0, is_within: false })
    }

    /// Returns what the end was opened with.
    pub fn settings(&self) -> Settings {
        self.end.settings
    }

    /// Writes whole words. The last one ends a message: the card sends it even if it does not fill a packet. Waits for room
    /// in the ring, for at most `timeout`. Without words, it ends a message that goes on; a kernel that reads the channel sees an
    /// empty word then.
    ///
    /// # Errors
    /// [`Error::TimedOut`] with the bytes that were written, all of them whole words; the message goes on then.
    /// [`Error::Stopped`], [`Error::Invalid`]; the card's.
    pub fn write(&mut self, words: &[u8], timeout: Duration) -> Result<()> {
        self.write_all(words, true, timeout)
    }

    /// Writes whole words of a message that goes on: words that do not fill a packet wait on the card for the next ones.
    ///
    /// # Errors
    /// As [`write`](Writer::write).
    pub fn write_more(&mut self, words: &[u8], timeout: Duration) -> Result<()> {
        self.write_all(words, false, timeout)
    }

    /// Writes as many whole words as there is room for, and returns their bytes. If all were written, they end a message;
    /// otherwise it goes on.
    ///
    /// # Errors
    /// [`Error::Invalid`]; the card's.
    pub fn try_write(&mut self, words: &[u8]) -> Result<usize> {
        self.end.check(words.len())?;
        self.update()?;
        let written = self.fill(words, true)?;
        self.announce()?;
        Ok(written)
    }

    /// Waits until the card has taken all that was written out of host memory, for at most `timeout`.
    ///
    /// # Errors
    /// As [`write`](Writer::write).
    pub fn flush(&mut self, timeout: Duration) -> Result<()> {
        self.end.check(0)?;
        let deadline = Deadline::after(timeout);
        self.announce()?;
        while self.update()? != 0 {
            if !wait(self, deadline)? {
                return Err(timed_out("the card to take what was written", 0, deadline));
            }
        }
        Ok(())
    }

    /// Ends the message, waits until the card has taken all that was written, and closes the end.
    ///
    /// # Errors
    /// As [`write`](Writer::write). The end is closed all the same.
    pub fn close(mut self, timeout: Duration) -> Result<()> {
        self.flush(timeout)
    }

    fn write_all(&mut self, words: &[u8], is_last: bool, timeout: Duration) -> Result<()> {
        self.end.check(words.len())?;
        let deadline = Deadline::after(timeout);
        let mut done = 0;
        loop {
            self.update()?;
            done += self.fill(&words[done..], is_last)?;
            self.announce()?;
            if done == words.len() && !(is_last && self.is_within) {
                return Ok(());
            }
            if !wait(self, deadline)? {
                return Err(timed_out("room in the ring", done, deadline));
            }
        }
    }

    /// Fills free slots with words, and returns their bytes.
    fn fill(&mut self, words: &[u8], is_last: bool) -> Result<usize> {
        let mut done = 0;
        while done < words.len() && self.filled.wrapping_sub(self.taken) < self.end.slots {
            let bytes = self.end.payload.min(words.len() - done);
            let (part, at) = (&words[done..done + bytes], self.end.offset(self.filled));
            done += bytes;
            let ends = is_last && done == words.len();
            self.filled = self.filled.wrapping_add(1);
            let header = slot::encode(self.filled, bytes as u32, ends).to_le_bytes();
            let (ring, card) = (&self.end.ring, &self.end.card);
            ring.write(at + HEADER, part)
                .and_then(|()| ring.write(at, &header))
                .map_err(|error| card.block.bus(error))?;
            self.is_within = !ends;
        }
        // A message that goes on ends without another word.
        if words.is_empty() && is_last && self.is_within && self.filled.wrapping_sub(self.taken) < self.end.slots {
            let at = self.end.offset(self.filled);
            self.filled = self.filled.wrapping_add(1);
            let header = slot::encode(self.filled, 0, true).to_le_bytes();
            self.end.ring.write(at, &header).map_err(|error| self.end.card.block.bus(error))?;
            self.is_within = false;
        }
        Ok(done)
    }

    /// Tells the card of slots that it was not told of.
    fn announce(&mut self) -> Result<()> {
        if self.announced != self.filled {
            self.end.ring_doorbell(self.filled)?;
            self.announced = self.filled;
        }
        Ok(())
    }

    /// Looks how many slots the card has taken, and returns how many it has not.
    fn update(&mut self) -> Result<u32> {
        let found = self.end.load_count()?;
        let filled = self.filled.wrapping_sub(self.taken);
        let newly = (found as u32).wrapping_sub(self.taken);
        if found >> 32 != 0 || newly > filled {
            let (least, most) = (self.taken, self.filled);
            return Err(self.end.broken("number of slots taken", found, format!("{least} to {most}")));
        }
        self.taken = found as u32;
        Ok(filled - newly)
    }
}

impl Waiting for Writer {
    fn end(&self) -> &End {
        &self.end
    }

    fn seen(&self) -> u32 {
        self.taken
    }

    fn is_ready(&mut self) -> Result<bool> {
        let before = self.taken;
        self.update()?;
        Ok(self.taken != before)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // The card ends the message when the end is closed.
        if self.taken != self.filled
            && let Err(error) = self.flush(DROP)
        {
            log::warn!("{}: words of channel {} are lost: {error}", self.end.card.name(), self.end.settings.id);
        }
    }
}

fn timed_out(what: &'static str, done: usize, deadline: Deadline) -> Error {
    Error::TimedOut { what, done, waited: deadline.waited() }
}

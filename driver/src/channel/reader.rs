//! The end of a channel at which the host reads.

use std::sync::Arc;
use std::time::Duration;

use fpga_regs::channel::slot;

use crate::channel::card::Card;
use crate::channel::end::{End, HEADER, Settings, Waiting, wait};
use crate::channel::error::{Error, Result};
use crate::deadline::Deadline;

/// Reads words from a channel.
///
/// The card writes words into a ring in host memory. A call costs no MMIO read, lock, allocation or system call unless it waits,
/// and one MMIO write for every half ring.
///
/// While the ring is full, the card takes nothing from the network. If a reader is dropped, its end is closed: packets that come
/// later are lost, and counted: see [`Network::losses`](super::Network::losses).
///
/// All words that are read were written, and come in order, but for bit errors and the loss of a multiple of 256 packets in a row.
/// If a packet is lost, so are its words, and if words cross packets, the rest of the message: no error and no mark stands there.
#[derive(Debug)]
pub struct Reader {
    end: End,
    /// Slots emptied, and those of which the card was told, modulo 2^32.
    emptied: u32,
    announced: u32,
    /// Bytes of the present slot, and those of them that were read.
    bytes: usize,
    read: usize,
}

impl Reader {
    pub(super) fn open(card: &Arc<Card>, settings: Settings) -> Result<Self> {
        let end = End::open(card, None, settings)?;
        Ok(Reader { end, emptied: 0, announced: 0, bytes: 0, read: 0 })
    }

    /// Returns what the end was opened with.
    pub fn settings(&self) -> Settings {
        self.end.settings
    }

    /// Reads some words into `words`: those that are there, or else those that come first. Returns their bytes, at least 1
    /// unless `words` is empty.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if none came within `timeout`; [`Error::Stopped`], [`Error::Invalid`]; the card's.
    pub fn read(&mut self, words: &mut [u8], timeout: Duration) -> Result<usize> {
        self.read_until(words, 1.min(words.len()), timeout)
    }

    /// Fills `words`.
    ///
    /// # Errors
    /// [`Error::TimedOut`] with the bytes that were read; as [`read`](Reader::read).
    pub fn read_exact(&mut self, words: &mut [u8], timeout: Duration) -> Result<()> {
        self.read_until(words, words.len(), timeout).map(drop)
    }

    /// Reads the words that are there, and returns their bytes: 0 if there are none.
    ///
    /// # Errors
    /// [`Error::Invalid`]; the card's.
    pub fn try_read(&mut self, words: &mut [u8]) -> Result<usize> {
        self.end.check(words.len())?;
        let read = self.take(words)?;
        if self.emptied.wrapping_sub(self.announced) >= self.end.slots / 2 {
            self.announce()?;
        }
        Ok(read)
    }

    fn read_until(&mut self, words: &mut [u8], least: usize, timeout: Duration) -> Result<usize> {
        self.end.check(words.len())?;
        let deadline = Deadline::after(timeout);
        let mut done = 0;
        loop {
            done += self.take(&mut words[done..])?;
            if self.emptied.wrapping_sub(self.announced) >= self.end.slots / 2 {
                self.announce()?;
            }
            if done >= least {
                return Ok(done);
            }
            self.announce()?;
            if !wait(self, deadline)? {
                return Err(Error::TimedOut { what: "words of the channel", done, waited: deadline.waited() });
            }
        }
    }

    /// Takes words out of full slots, and returns their bytes.
    fn take(&mut self, words: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < words.len() && self.is_ready()? {
            let bytes = (self.bytes - self.read).min(words.len() - done);
            let at = self.end.offset(self.emptied) + HEADER + self.read;
            let part = &mut words[done..done + bytes];
            self.end.ring.read(at, part).map_err(|error| self.end.card.block.bus(error))?;
            done += bytes;
            self.read += bytes;
            if self.read == self.bytes {
                (self.read, self.bytes) = (0, 0);
                self.emptied = self.emptied.wrapping_add(1);
            }
        }
        Ok(done)
    }

    /// Tells the card of slots that it was not told of.
    fn announce(&mut self) -> Result<()> {
        if self.announced != self.emptied {
            self.end.ring_doorbell(self.emptied)?;
            self.announced = self.emptied;
        }
        Ok(())
    }
}

impl Waiting for Reader {
    fn end(&self) -> &End {
        &self.end
    }

    fn seen(&self) -> u32 {
        self.emptied
    }

    /// Returns whether there is something in the present slot.
    fn is_ready(&mut self) -> Result<bool> {
        if self.bytes != 0 {
            return Ok(true);
        }
        let (offset, expected) = (self.end.offset(self.emptied), self.emptied.wrapping_add(1));
        let header = self.end.ring.load_acquire(offset).map_err(|error| self.end.card.block.bus(error))?;
        let (sequence, bytes, is_last) = slot::decode(header);
        if sequence != expected {
            // What is there from the ring's last pass, or nothing in the first one.
            let is_first = self.emptied < self.end.slots && header == 0;
            if is_first || sequence == expected.wrapping_sub(self.end.slots) {
                return Ok(false);
            }
            let what = "number of a slot";
            return Err(self.end.broken(what, sequence.into(), format!("{expected}")));
        }
        let (bytes, most, word) = (bytes as usize, self.end.payload, self.end.settings.word_bytes as usize);
        if is_last || bytes == 0 || bytes > most || !bytes.is_multiple_of(word) {
            let expected = format!("1 to {most} bytes, in words of {word} bytes");
            return Err(self.end.broken("header of a slot", header, expected));
        }
        self.bytes = bytes;
        Ok(true)
    }
}

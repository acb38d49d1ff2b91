
/// Writes `@NAME@`, an end of channel @ID@. OpenCL's type of the words is `@TYPE@`@NOTE@.
pub struct @STRUCT@ {
    writer: Writer,
    bytes: Vec<u8>,
}

impl @STRUCT@ {
    /// Id, word and depth of this end.
    pub const SETTINGS: Settings = Settings { id: @ID@, word_bytes: @WORD_BYTES@, depth: @DEPTH@ };

    /// Opens the end on the host of the card `from`. Its words go to the card `to`.
    ///
    /// # Errors
    /// An [`Error`] of the driver, as for all functions of this type.
    pub fn open(network: &Network, from: u32, to: u32) -> Result<Self, Error> {
        Ok(Self { writer: network.writer(from, to, Self::SETTINGS)?, bytes: Vec::new() })
    }

    /// Writes all words, and waits for room. The last word ends a message: the card sends all words before it, even if they
    /// do not fill a packet. If the time is over, the error has the bytes that were written, and the message goes on.
    pub fn write(&mut self, words: &[@WORD@], timeout: Duration) -> Result<(), Error> {
        self.encode(words);
        self.writer.write(&self.bytes, timeout)
    }

    /// Writes all words of a message that goes on, and waits for room.
    pub fn write_more(&mut self, words: &[@WORD@], timeout: Duration) -> Result<(), Error> {
        self.encode(words);
        self.writer.write_more(&self.bytes, timeout)
    }

    /// Writes as many words as there is room for now, and returns their number. If it wrote all, they end a message.
    pub fn try_write(&mut self, words: &[@WORD@]) -> Result<usize, Error> {
        self.encode(words);
        Ok(self.writer.try_write(&self.bytes)? / @WORD_BYTES@)
    }

    /// Waits until the card has read all that was written.
    pub fn flush(&mut self, timeout: Duration) -> Result<(), Error> {
        self.writer.flush(timeout)
    }

    /// Waits until the card has read all that was written, and closes the end.
    pub fn close(self, timeout: Duration) -> Result<(), Error> {
        self.writer.close(timeout)
    }

    fn encode(&mut self, words: &[@WORD@]) {
        self.bytes.clear();
        for word in words {
            @ENCODE@
        }
    }
}

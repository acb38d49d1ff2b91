
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

    /// Writes all words, and waits for room. If the time is over, the error has the bytes that were written.
    pub fn write(&mut self, words: &[@WORD@], timeout: Duration) -> Result<(), Error> {
        self.encode(words);
        self.writer.write(&self.bytes, timeout)
    }

    /// Writes as many words as there is room for now, and returns their number.
    pub fn try_write(&mut self, words: &[@WORD@]) -> Result<usize, Error> {
        self.encode(words);
        Ok(self.writer.try_write(&self.bytes)? / @WORD_BYTES@)
    }

    /// Ends the message: only then does the card send a packet that is not full.
    pub fn end_message(&mut self, timeout: Duration) -> Result<(), Error> {
        self.writer.end_message(timeout)
    }

    /// Ends the message, and waits until the card has read all of it.
    pub fn flush(&mut self, timeout: Duration) -> Result<(), Error> {
        self.writer.flush(timeout)
    }

    /// Waits until the card has read everything, and closes the end.
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

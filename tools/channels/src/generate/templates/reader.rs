
/// Reads `@NAME@`, an end of channel @ID@. OpenCL's type of the words is `@TYPE@`@NOTE@.
pub struct @STRUCT@ {
    reader: Reader,
    bytes: Vec<u8>,
}

impl @STRUCT@ {
    /// Id, word and depth of this end.
    pub const SETTINGS: Settings = Settings { id: @ID@, word_bytes: @WORD_BYTES@, depth: @DEPTH@ };

    /// Opens the end on the host of the card `at`.
    ///
    /// # Errors
    /// An [`Error`] of the driver, as for all functions of this type.
    pub fn open(network: &Network, at: u32) -> Result<Self, Error> {
        Ok(Self { reader: network.reader(at, Self::SETTINGS)?, bytes: Vec::new() })
    }

    /// Waits for words, and returns how many of `words` are filled: at least one.
    pub fn read(&mut self, words: &mut [@WORD@], timeout: Duration) -> Result<usize, Error> {
        self.bytes.resize(words.len() * @WORD_BYTES@, 0);
        let bytes = self.reader.read(&mut self.bytes, timeout)?;
        Ok(Self::decode(&self.bytes[..bytes], words))
    }

    /// Fills `words`. If the time is over, the error has the bytes that were read: as many of `words` are filled.
    pub fn read_exact(&mut self, words: &mut [@WORD@], timeout: Duration) -> Result<(), Error> {
        self.bytes.resize(words.len() * @WORD_BYTES@, 0);
        let result = self.reader.read_exact(&mut self.bytes, timeout);
        let bytes = match &result {
            Ok(()) => self.bytes.len(),
            Err(Error::TimedOut { done, .. }) => *done,
            Err(_) => 0,
        };
        Self::decode(&self.bytes[..bytes], words);
        result
    }

    /// Reads the words that are there now, and returns how many of `words` are filled.
    pub fn try_read(&mut self, words: &mut [@WORD@]) -> Result<usize, Error> {
        self.bytes.resize(words.len() * @WORD_BYTES@, 0);
        let bytes = self.reader.try_read(&mut self.bytes)?;
        Ok(Self::decode(&self.bytes[..bytes], words))
    }

    fn decode(bytes: &[u8], words: &mut [@WORD@]) -> usize {
        let parts = bytes.as_chunks::<@WORD_BYTES@>().0;
        for (word, part) in words.iter_mut().zip(parts) {
            @DECODE@
        }
        parts.len()
    }
}

//! What a slot holds: a header, and the bytes of a message. No I/O.
//!
//! | bytes of the header | field |
//! |---|---|
//! | 0 to 7 | sequence: number of the message, from 0 |
//! | 8 to 11 | bytes of the message |
//! | 12 to 15 | in the last message, which is empty, 1, or 2 if messages before it were lost; else 0 |
//! | 16 to 63 | zero |
//!
//! A writer greets its reader in the first slot, before any message: `fpga` in ASCII, the key of their windows, zeros. The reader
//! then marks each slot, before it answers: its first message is one that says that messages were lost. That is read if a signal
//! comes without the message.

use crate::pipe::error::PipeError;

/// Slots of a pipe.
pub(super) const SLOTS: usize = 16;
/// Bytes of a slot.
pub(super) const SLOT: usize = 32 << 10;
/// Bytes of a header.
pub(super) const HEADER: usize = 64;

/// Begins a greeting.
const MARK: u32 = u32::from_le_bytes(*b"fpga");

/// Returns the greeting of a writer whose windows have this key.
pub(super) fn greeting(key: u32) -> [u8; HEADER] {
    let mut greeting = [0; HEADER];
    greeting[..4].copy_from_slice(&MARK.to_le_bytes());
    greeting[4..8].copy_from_slice(&key.to_le_bytes());
    greeting
}

/// Returns the key in a greeting. `None` if the reader has marked over it: the signal was that of a second greeting, which came before
/// the marks. A writer greets again while it gets no answer.
///
/// # Errors
/// [`PipeError::Greeting`] for what [`greeting`] does not write.
pub(super) fn greeted(greeting: &[u8; HEADER]) -> Result<Option<u32>, PipeError> {
    if *greeting == Message::Truncated.encode(0) {
        return Ok(None);
    }
    let (words, _) = greeting.as_chunks::<8>();
    let [first, rest @ ..] = words else { unreachable!("a header has eight words") };
    let first = u64::from_le_bytes(*first);
    let odd = rest.iter().map(|word| u64::from_le_bytes(*word)).find(|word| *word != 0);
    match (first as u32, (first >> 32) as u32, odd) {
        (MARK, key @ 1.., None) => Ok(Some(key)),
        (_, _, odd) => Err(PipeError::Greeting { found: odd.unwrap_or(first) }),
    }
}

/// Slot of message `sequence`.
pub(super) fn index(sequence: u64) -> usize {
    (sequence % SLOTS as u64) as usize
}

/// Whether a slot that should hold message `sequence` still holds the one before it. Then the signal was that of another message,
/// and this one is lost: see [`Message::Truncated`].
pub(super) fn is_missing(header: &[u8; HEADER], sequence: u64) -> bool {
    let before = sequence.checked_sub(SLOTS as u64);
    before.is_some_and(|before| header.starts_with(&before.to_le_bytes()))
}

/// What a slot holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Message {
    /// Data of so many bytes.
    Data(usize),
    /// The end of the file.
    End,
    /// The end, but messages before it were lost. It takes the place of the first of these that its writer knows of. That one may
    /// have come nevertheless, if the link went down; then the reader finds the next one missing.
    Truncated,
}

impl Message {
    /// Returns the header of message `sequence`.
    pub(super) fn encode(self, sequence: u64) -> [u8; HEADER] {
        let (bytes, is_last) = match self {
            Message::Data(bytes) => (bytes as u32, 0u32),
            Message::End => (0, 1),
            Message::Truncated => (0, 2),
        };
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(&sequence.to_le_bytes());
        header[8..12].copy_from_slice(&bytes.to_le_bytes());
        header[12..16].copy_from_slice(&is_last.to_le_bytes());
        header
    }

    /// Reads the header of message `sequence`.
    ///
    /// # Errors
    /// [`PipeError::Invalid`] for what [`encode`](Self::encode) does not write.
    pub(super) fn decode(header: &[u8; HEADER], sequence: u64) -> Result<Self, PipeError> {
        let invalid = |field, found| Err(PipeError::Invalid { sequence, field, found });
        let (words, _) = header.as_chunks::<8>();
        let [number, of_message, rest @ ..] = words else { unreachable!("a header has eight words") };
        let [number, of_message] = [*number, *of_message].map(u64::from_le_bytes);
        if number != sequence {
            return invalid("sequence", number);
        }
        if let Some(word) = rest.iter().map(|word| u64::from_le_bytes(*word)).find(|word| *word != 0) {
            return invalid("reserved field", word);
        }
        let (bytes, is_last) = (of_message as u32 as usize, of_message >> 32);
        match (bytes, is_last) {
            (0, 1) => Ok(Message::End),
            (0, 2) => Ok(Message::Truncated),
            (1.., 0) if bytes <= SLOT - HEADER => Ok(Message::Data(bytes)),
            (_, 0) => invalid("length", bytes as u64),
            _ => invalid("mark of the end", is_last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever a card writes is either what `encode` writes, or refused.
        #[test]
        fn only_what_is_encoded_is_decoded(
            sequence in any::<u64>(),
            message in prop_oneof![
                (1..=SLOT - HEADER).prop_map(Message::Data),
                Just(Message::End),
                Just(Message::Truncated),
            ],
            at in 0..HEADER,
            change in 0u8..
        ) {
            let mut header = message.encode(sequence);
            prop_assert_eq!(Message::decode(&header, sequence).unwrap(), message);
            header[at] ^= change;
            if let Ok(other) = Message::decode(&header, sequence) {
                prop_assert_eq!(other.encode(sequence), header);
            }
        }
    }

    proptest! {
        #[test]
        fn only_greetings_are_taken_for_some(key in 1u32.., at in 0..HEADER, change in 0u8..) {
            let mut header = greeting(key);
            prop_assert_eq!(greeted(&header).unwrap(), Some(key));
            header[at] ^= change;
            if let Ok(other) = greeted(&header) {
                prop_assert_eq!(other.map(greeting), Some(header));
            }
            prop_assert!(greeted(&greeting(0)).is_err());
        }

        #[test]
        fn no_message_but_the_mark_of_the_reader_is_taken_for_none(at in 0..HEADER, change in 0u8..) {
            let mut mark = Message::Truncated.encode(0);
            prop_assert_eq!(greeted(&mark).unwrap(), None);
            mark[at] ^= change;
            prop_assert_eq!(greeted(&mark).is_ok(), change == 0);
            prop_assert!(greeted(&Message::Data(1).encode(0)).is_err());
        }
    }

    #[test]
    fn a_message_is_missing_if_the_one_before_it_is_still_there() {
        for sequence in 0..3 * SLOTS as u64 {
            assert!(!is_missing(&Message::Data(1).encode(sequence), sequence));
            assert!(is_missing(&Message::Data(1).encode(sequence), sequence + SLOTS as u64));
            assert!(!is_missing(&Message::Data(1).encode(sequence), sequence + 2 * SLOTS as u64));
        }
        assert!(!is_missing(&greeting(7), 0));
    }

    #[test]
    fn no_message_is_longer_than_its_slot() {
        for bytes in [0, SLOT - HEADER + 1, u32::MAX as usize] {
            let header = Message::Data(bytes).encode(7);
            assert!(matches!(
                Message::decode(&header, 7),
                Err(PipeError::Invalid { sequence: 7, field: "length", found }) if found == bytes as u64
            ));
        }
    }
}

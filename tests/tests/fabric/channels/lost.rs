//! Lost packets, and readers that open late: what is read are whole words that were written, in order.

use std::time::Duration;

use fpga_driver::channel::{Error, Network, Reader, Settings, Writer};
use fpga_mock::circus::Profile;
use proptest::prelude::*;

use super::{PATIENCE, SHORT, cards, network, read, settings};

/// The word `index` of a message: torn ones have parts that differ.
fn word(message: u32, index: u32, bytes: u32) -> Vec<u8> {
    let part = (message << 16 | index).to_le_bytes();
    part.into_iter().cycle().take(bytes as usize).collect()
}

fn words(message: u32, indices: std::ops::Range<u32>, bytes: u32) -> Vec<u8> {
    indices.flat_map(|index| word(message, index, bytes)).collect()
}

/// A reader, and the place of the last word that it gave.
struct Checked {
    reader: Reader,
    last: Option<(u32, u32)>,
}

impl Checked {
    fn open(network: &Network, settings: Settings) -> Self {
        Checked { reader: network.reader(1, settings).unwrap(), last: None }
    }

    /// Reads what is there. Each word follows the one before it, or begins a later message; if words do not cross packets, some may be
    /// missing anywhere.
    fn read(&mut self) -> Result<usize, TestCaseError> {
        let bytes = self.reader.settings().word_bytes;
        let (mut part, mut count) = (vec![0; 256 * bytes as usize], 0);
        loop {
            let read = self.reader.try_read(&mut part).unwrap();
            if read == 0 {
                return Ok(count);
            }
            prop_assert_eq!(read % bytes as usize, 0);
            for found in part[..read].chunks(bytes as usize) {
                let place = u32::from_le_bytes(found[..4].try_into().unwrap());
                let (message, index) = (place >> 16, place & 0xffff);
                prop_assert_eq!(found.to_vec(), word(message, index, bytes), "after {:?}", self.last);
                let is_next = self.last == Some((message, index.wrapping_sub(1)));
                let is_later = self.last.is_none_or(|last| last.0 < message);
                let (begins, is_alone) =
                    (index == 0 && is_later, 60 % bytes == 0 && self.last < Some((message, index)));
                prop_assert!(is_next || begins || is_alone, "word {index} of message {message} after {:?}", self.last);
                self.last = Some((message, index));
                count += 1;
            }
        }
    }
}

#[test]
fn a_slow_reader_gets_no_words_that_were_not_written() {
    for bytes in [8, 64] {
        let cards = cards(&Profile::published(), 2, 1);
        let network = network(&cards);
        let mut reader = Checked::open(&network, settings(0, bytes, 4));
        let mut writer = network.writer(0, 1, settings(0, bytes, 1024)).unwrap();
        // Twice, in one message, more than buffers and rings hold, but less than 256 packets more.
        let half = (24 << 10) / bytes;
        for part in 0..2 {
            writer.write_more(&words(1, part * half..(part + 1) * half, bytes), PATIENCE).unwrap();
            writer.flush(PATIENCE).unwrap();
            reader.read().unwrap();
        }
        let (message, index) = reader.last.unwrap();
        assert!(message == 1 && index + 1 < half, "word {index} of {bytes} bytes");
        let lost = network.losses(1).unwrap();
        assert!(lost.full > 0 && lost.no_channel > 0, "{lost:?}");
        // The message ends, and the next one comes whole.
        writer.write(&words(1, 2 * half..2 * half + 1, bytes), PATIENCE).unwrap();
        writer.write(&words(2, 0..10, bytes), PATIENCE).unwrap();
        assert_eq!(reader.read().unwrap(), 10, "words of {bytes} bytes");
        assert_eq!(reader.last, Some((2, 9)));
    }
}

#[test]
fn words_that_cross_no_packets_go_on_after_a_loss() {
    let cards = cards(&Profile::published(), 2, 1);
    let network = network(&cards);
    let mut reader = Checked::open(&network, settings(0, 4, 4));
    let mut writer = network.writer(0, 1, settings(0, 4, 1024)).unwrap();
    for part in 0..2 {
        writer.write_more(&words(1, part * 6_000..(part + 1) * 6_000, 4), PATIENCE).unwrap();
        writer.flush(PATIENCE).unwrap();
        reader.read().unwrap();
    }
    assert!(reader.last > Some((1, 6_000)), "{:?}", reader.last);
    let lost = network.losses(1).unwrap();
    assert!(lost.full > 0 && lost.no_channel == 0, "{lost:?}");
}

#[test]
fn a_reader_that_opens_inside_a_message_begins_with_the_next() {
    let cards = cards(&Profile::complete(), 2, 1);
    let network = network(&cards);
    let settings = settings(5, 8, 64);
    let mut writer = network.writer(0, 1, settings).unwrap();
    // 60 bytes are lost, and 4 wait on the card.
    writer.write_more(&words(1, 0..8, 8), PATIENCE).unwrap();
    assert_eq!(network.losses(1).unwrap().no_channel, 1);
    let mut reader = network.reader(1, settings).unwrap();
    writer.write(&words(1, 8..20, 8), PATIENCE).unwrap();
    let error = reader.read(&mut [0; 8 * 13], SHORT).unwrap_err();
    assert!(matches!(error, Error::TimedOut { done: 0, .. }), "{error}");
    // The other two packets of the message.
    assert_eq!(network.losses(1).unwrap().no_channel, 3);
    writer.write(&words(2, 0..3, 8), PATIENCE).unwrap();
    assert_eq!(read(&mut reader, 24), words(2, 0..3, 8));
}

/// What a host does next.
#[derive(Debug, Clone)]
enum Step {
    /// Words, and whether their message ends.
    Write(u32, bool),
    OpenOrClose,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..400_u32, any::<bool>()).prop_map(|(words, is_last)| Step::Write(words, is_last)),
        1 => Just(Step::OpenOrClose),
    ]
}

/// Writes words that continue the message at `place` (message, index), as far as there is room.
fn write(writer: &mut Writer, (message, index): (u32, u32), count: u32, is_last: bool) -> (u32, u32) {
    let bytes = writer.settings().word_bytes;
    let data = words(message, index..index + count, bytes);
    // Most steps find room; with credits, a ring that nobody reads may have none.
    let written = match is_last {
        true => writer.write(&data, Duration::ZERO),
        false => writer.write_more(&data, Duration::ZERO),
    };
    match written {
        Ok(()) if is_last => (message + 1, 0),
        Ok(()) => (message, index + count),
        Err(Error::TimedOut { done, .. }) => (message, index + done as u32 / bytes),
        Err(error) => panic!("{error}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_word_that_arrives_was_written(
        is_lossy: bool,
        bytes in 4..=64_u32,
        depth in 1..40_u32,
        steps in prop::collection::vec(step(), 1..30),
    ) {
        let profile = if is_lossy { Profile::published() } else { Profile::complete() };
        let cards = cards(&profile, 2, 1);
        let network = network(&cards);
        let mut writer = network.writer(0, 1, settings(3, bytes, 1024)).unwrap();
        let (mut reader, mut place) = (None::<Checked>, (0, 0));
        for step in steps {
            match step {
                // Less than 256 packets more than buffers hold: a longer loss may not be seen.
                Step::Write(words, is_last) => place = write(&mut writer, place, words, is_last),
                Step::OpenOrClose => {
                    reader = match reader.take() {
                        Some(_) => None,
                        None => Some(Checked::open(&network, settings(3, bytes, depth))),
                    }
                }
            }
            if let Some(reader) = &mut reader {
                reader.read()?;
            }
        }
        // Once all was read, a message that fits comes whole.
        let mut reader = match reader {
            Some(reader) => reader,
            None => Checked::open(&network, settings(3, bytes, depth)),
        };
        writer.write(&[], PATIENCE).unwrap();
        reader.read()?;
        writer.write(&words(place.0 + 1, 0..20, bytes), PATIENCE).unwrap();
        while reader.read()? > 0 {}
        prop_assert_eq!(reader.last, Some((place.0 + 1, 19)));
    }
}

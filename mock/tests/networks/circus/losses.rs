//! Lost packets and late readers: every word that arrives was written, and they come in order.

use std::collections::VecDeque;

use fpga_mock::circus::Word;
use fpga_mock::circus::wire::{Header, packets, words};
use proptest::prelude::*;

use super::bytes;

const HEADER: Header = Header { destination_bits: 6, destination: 1, channel: 9 };
const PAYLOAD_BYTES: usize = 60;

/// The words of messages of which only the packets that `is_kept` says arrive: those up to the first one that is missing, or of
/// all, if words do not cross packets.
fn expected(messages: &[Vec<u8>], word_bytes: usize, is_kept: &[bool]) -> Vec<Word> {
    let mut is_kept: VecDeque<bool> = is_kept.to_vec().into();
    let mut expected = Vec::new();
    for message in messages {
        let count = message.len().div_ceil(PAYLOAD_BYTES).max(1);
        let is_kept: Vec<bool> = is_kept.drain(..count).collect();
        if PAYLOAD_BYTES.is_multiple_of(word_bytes) {
            let whole = [vec![]];
            let payloads = message.chunks(PAYLOAD_BYTES).chain(whole.iter().map(Vec::as_slice)).take(count);
            for (index, payload) in payloads.enumerate().filter(|(index, _)| is_kept[*index]) {
                let mut words: Vec<Word> = payload.chunks(word_bytes).map(|word| Word::new(word, false)).collect();
                if index + 1 == count {
                    let last = words.pop().unwrap_or(Word::new(&[], false));
                    words.push(Word::new(last.bytes(), true));
                }
                expected.extend(words);
            }
            continue;
        }
        let kept = is_kept.iter().take_while(|is_kept| **is_kept).count();
        let (is_whole, arrived) = (kept == count, message.len().min(kept * PAYLOAD_BYTES));
        let arrived = if is_whole { arrived } else { arrived - arrived % word_bytes };
        let mut words: Vec<Word> = message[..arrived].chunks(word_bytes).map(|word| Word::new(word, false)).collect();
        if is_whole {
            let last = words.pop().unwrap_or(Word::new(&[], false));
            words.push(Word::new(last.bytes(), true));
        }
        expected.extend(words);
    }
    expected
}

/// What arrives of messages, and what is expected.
fn cut(messages: &[Vec<u8>], word_bytes: usize, is_kept: impl Fn(usize) -> bool) -> (Vec<Word>, Vec<Word>) {
    let sent = packets(messages, word_bytes, HEADER);
    let is_kept: Vec<bool> = (0..sent.len()).map(is_kept).collect();
    let arrived: Vec<_> = sent.into_iter().zip(&is_kept).filter(|(_, kept)| **kept).map(|(packet, _)| packet).collect();
    (words(&arrived, word_bytes, HEADER.destination_bits), expected(messages, word_bytes, &is_kept))
}

#[test]
fn a_message_ends_before_the_packet_that_is_missing() {
    for word_bytes in [1, 4, 7, 8, 16, 32, 64] {
        let messages = [bytes(1, 64 * 12), bytes(2, 64 * 3)];
        for missing in 0..13 {
            let (arrived, expected) = cut(&messages, word_bytes, |packet| packet != missing);
            assert_eq!(arrived, expected, "words of {word_bytes} bytes without packet {missing}");
        }
    }
}

/// Numbers go on over messages: a packet is not taken for one of another message in the same place.
#[test]
fn the_end_of_one_message_and_the_beginning_of_the_next_are_missed() {
    let messages = [bytes(1, 600), bytes(2, 600), bytes(3, 8)];
    for first in 1..10 {
        // As many packets as a message has.
        let (arrived, expected) = cut(&messages, 8, |packet| !(first..first + 10).contains(&packet));
        assert_eq!(arrived, expected, "without ten packets from {first} on");
    }
}

#[test]
fn numbers_wrap_in_long_messages() {
    let message = [bytes(1, 60 * 1_000)];
    let (arrived, expected) = cut(&message, 8, |_| true);
    assert!(arrived == expected);
    // The longest loss that is seen without fail.
    let (arrived, expected) = cut(&message, 8, |packet| !(301..301 + 255).contains(&packet));
    assert!(arrived == expected);
}

proptest! {
    #[test]
    fn words_that_arrive_were_written(
        word_bytes in 1..=64_usize,
        lengths in prop::collection::vec(0..1_500_usize, 1..8),
        late in 0..20_usize,
        losses in prop::collection::vec((0..200_usize, 1..30_usize), 0..6),
    ) {
        let messages: Vec<Vec<u8>> = (1..).zip(&lengths).map(|(seed, length)| bytes(seed, *length)).collect();
        let is_lost = |packet| losses.iter().any(|(first, count)| (*first..first + count).contains(&packet));
        let (arrived, expected) = cut(&messages, word_bytes, |packet| packet >= late && !is_lost(packet));
        prop_assert_eq!(arrived, expected);
    }
}

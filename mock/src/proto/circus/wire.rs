//! The bytes of packets, for whoever must agree with the kernels of this crate.

use crate::engine::{Clocked as _, Cycle};
use crate::profile::circus::PACKET_BYTES;
use crate::proto::circus::fifo::{WORD_BYTES_MAX, Wires, Word};
use crate::proto::circus::kernels::{Module, Receive, Send, Source};
use crate::proto::circus::packet::Format;

/// What the headers of a channel's packets have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bits of the destination, as in a [`Profile`](super::Profile): 6 or 8.
    pub destination_bits: u32,
    /// The card that the packets go to.
    pub destination: u32,
    /// Id of the channel at that card.
    pub channel: u8,
}

/// Returns the packets that a send kernel makes of messages, in words of `word_bytes`.
///
/// # Panics
/// Unless a word has 1 to 64 bytes.
pub fn packets(messages: &[Vec<u8>], word_bytes: usize, header: Header) -> Vec<[u8; PACKET_BYTES]> {
    assert!((1..=WORD_BYTES_MAX).contains(&word_bytes), "a word has 1 to {WORD_BYTES_MAX} bytes, not {word_bytes}");
    let mut wires = Wires::default();
    let (from, to) = (wires.add_words(1), wires.add_packets(1));
    let mut source = Source::new(from, word_bytes);
    messages.iter().for_each(|message| source.push(message, true));
    let send = Module::Send(Send::new((from, to), (header.destination, header.channel), 0));
    let format = Format { destination_bits: header.destination_bits };
    let mut packets = Vec::new();
    run(&mut [Module::Source(source), send], &mut wires, |wires| {
        packets.extend(wires.packets[to].pop().map(|one| format.encode(&one)))
    });
    packets
}

/// Returns the words that a receive kernel makes of packets, all of one channel. If packets are missing, the rest of their
/// message gives no words.
///
/// # Panics
/// Unless a word has 1 to 64 bytes.
pub fn words(packets: &[[u8; PACKET_BYTES]], word_bytes: usize, destination_bits: u32) -> Vec<Word> {
    assert!((1..=WORD_BYTES_MAX).contains(&word_bytes), "a word has 1 to {WORD_BYTES_MAX} bytes, not {word_bytes}");
    let mut wires = Wires::default();
    let (from, to) = (wires.add_packets(packets.len()), wires.add_words(1));
    let format = Format { destination_bits };
    packets.iter().for_each(|packet| wires.packets[from].push(format.decode(packet)));
    let receive = Module::Receive(Receive::new((from, to), word_bytes, 0));
    let mut words = Vec::new();
    run(&mut [receive], &mut wires, |wires| words.extend(wires.take_word(to)));
    words
}

/// Runs modules until nothing changes; `collect` looks at the wires after every cycle.
fn run(modules: &mut [Module], wires: &mut Wires, mut collect: impl FnMut(&mut Wires)) {
    for cycle in Cycle::default().. {
        modules.iter_mut().for_each(|module| module.consume(cycle, wires));
        let produced = modules.iter_mut().map(|module| module.produce(cycle, wires)).collect::<Vec<_>>();
        collect(wires);
        if produced.iter().all(Option::is_none) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_become_the_words_again() {
        let header = Header { destination_bits: 6, destination: 9, channel: 3 };
        for (word_bytes, lengths) in [(1, [1, 60, 61]), (8, [8, 120, 128]), (64, [64, 960, 1024])] {
            let message = |length: usize| (0..length).map(|at| at as u8).collect();
            let messages: Vec<Vec<u8>> = lengths.into_iter().map(message).collect();
            let packets = packets(&messages, word_bytes, header);
            let expected: usize = messages.iter().map(|message| message.len().div_ceil(60)).sum();
            assert_eq!(packets.len(), expected);
            assert!(packets.iter().all(|packet| packet[0] == 9 | 3 << 6), "{packets:?}");
            let words = words(&packets, word_bytes, header.destination_bits);
            let mut received: Vec<Vec<u8>> = vec![Vec::new()];
            for word in &words {
                received.last_mut().unwrap().extend(word.bytes());
                if word.is_last() {
                    received.push(Vec::new());
                }
            }
            assert_eq!(received.pop(), Some(Vec::new()));
            assert_eq!(received, messages, "words of {word_bytes} B");
        }
    }
}

//! Generated code of channel definitions does what the mock's kernels do: the OpenCL is compiled as C, and run.

mod application;
mod handles;

use std::fmt::Write as _;

use application::{Application, Settings, hex};
use fpga_channels::{Channel, Definition, Scalar, parse};
use fpga_mock::circus::wire::{self, Header};
use proptest::prelude::*;

const PACKET_BYTES: usize = 64;

/// A definition of channels from `out_ID` to `in_ID`.
fn definition(channels: &[(u8, String, u32)]) -> Definition {
    let mut text = String::from("<channels>");
    for (id, word, bits) in channels {
        for (end, tag) in [("out", "write-to"), ("in", "read-from")] {
            let _ = write!(text, "<channel name='{end}_{id}'><type>{word}</type><width>{bits}</width>");
            let _ = write!(text, "<depth>16</depth><{tag}>{id}</{tag}></channel>");
        }
    }
    parse((text + "</channels>").as_bytes()).unwrap()
}

/// Every type of words that a definition can have, with its bits.
fn all_words() -> Vec<(String, u32)> {
    let elements = [(1, ""), (2, "2"), (4, "4"), (8, "8"), (16, "16")];
    let words = Scalar::ALL.iter().flat_map(|scalar| {
        elements.iter().map(|(number, text)| (format!("{}{text}", scalar.name()), scalar.bits() * number))
    });
    words.filter(|(_, bits)| *bits <= fpga_channels::BITS_MAX).collect()
}

fn word_bytes(channel: &Channel) -> usize {
    channel.word.bits() as usize / 8
}

/// Bytes that differ from channel to channel and from place to place.
fn data(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// Messages of one channel: the host starts the send kernel once for all of them.
struct Sent<'a> {
    channel: &'a Channel,
    destination: u32,
    words: usize,
    messages: Vec<Vec<u8>>,
}

impl Sent<'_> {
    /// Commands that put the words in and start the send kernel.
    fn commands(&self) -> String {
        let name = &self.channel.writer.name;
        let (words, messages) = (self.words, self.messages.len());
        let mut text = format!("send {name} {} {words} {messages}\n", self.destination);
        for word in self.messages.concat().chunks(word_bytes(self.channel)) {
            let _ = writeln!(text, "word {name} {}", hex(word));
        }
        text
    }

    /// The packets that the mock's send kernel makes.
    fn packets(&self, destination_bits: u32) -> Vec<[u8; PACKET_BYTES]> {
        let header = Header { destination_bits, destination: self.destination, channel: self.channel.id };
        wire::packets(&self.messages, word_bytes(self.channel), header)
    }
}

/// Sends on all channels at once, and compares the packets of each with the mock's.
fn check_packets(application: &Application, destination_bits: u32, sent: &[Sent<'_>]) -> Result<(), TestCaseError> {
    let commands: String = sent.iter().map(Sent::commands).collect();
    let packets = application.words(&(commands + "finish\ntake circus_out\n"));
    let mut count = 0;
    for one in sent {
        let expected = one.packets(destination_bits);
        let id = |packet: &[u8]| u32::from_le_bytes(packet[..4].try_into().unwrap()) >> destination_bits & 255;
        let of_channel = packets.iter().filter(|packet| id(packet) == u32::from(one.channel.id));
        let found: Vec<&[u8]> = of_channel.map(Vec::as_slice).collect();
        prop_assert_eq!(found, expected.iter().map(<[u8; 64]>::as_slice).collect::<Vec<_>>(), "{:?}", one.channel);
        count += expected.len();
    }
    prop_assert_eq!(packets.len(), count);
    Ok(())
}

/// Gives packets to the demultiplexer, and compares the words of each channel with the mock's.
fn check_words(
    application: &Application,
    destination_bits: u32,
    packets: &[(&Channel, Vec<[u8; PACKET_BYTES]>)],
) -> Result<(), TestCaseError> {
    let mut commands = String::new();
    // One of each channel, in turn.
    for turn in 0..packets.iter().map(|(_, packets)| packets.len()).max().unwrap_or(0) {
        for packet in packets.iter().filter_map(|(_, packets)| packets.get(turn)) {
            let _ = writeln!(commands, "word circus_in {}", hex(packet));
        }
    }
    for (channel, _) in packets {
        let _ = writeln!(commands, "take {}", channel.reader.name);
    }
    let found = application.words(&commands);
    let mut expected = Vec::new();
    for (channel, packets) in packets {
        let words = wire::words(packets, word_bytes(channel), destination_bits);
        // The mock has a word of no bytes at the end of an empty message.
        for word in words.iter().filter(|word| !word.bytes().is_empty()) {
            let mut bytes = word.bytes().to_vec();
            bytes.resize(word_bytes(channel), 0);
            expected.push(bytes);
        }
    }
    prop_assert_eq!(found, expected);
    Ok(())
}

/// Packets of any messages, as hosts send them: the last word need not be whole.
fn host_packets(channel: &Channel, seed: u64, lengths: &[usize], destination_bits: u32) -> Vec<[u8; PACKET_BYTES]> {
    let messages: Vec<Vec<u8>> = (seed..).zip(lengths).map(|(seed, length)| data(seed, *length)).collect();
    wire::packets(&messages, word_bytes(channel), Header { destination_bits, destination: 5, channel: channel.id })
}

#[test]
fn every_type_of_word_is_packed_and_unpacked_as_by_the_mock() {
    let channels: Vec<_> = (0_u8..).zip(all_words()).map(|(id, (word, bits))| (4 * id + 3, word, bits)).collect();
    assert_eq!(channels.len(), 52);
    let definition = definition(&channels);
    let application = Application::build(&Settings::new(&definition));
    for words in [1, 2, 7, 15, 16, 31, 121] {
        let sent: Vec<Sent<'_>> = (0_u32..)
            .zip(definition.channels())
            .map(|(number, channel)| {
                let message = |at| data(u64::from(number) << 8 | at, words * word_bytes(channel));
                Sent { channel, destination: number, words, messages: (0..3).map(message).collect() }
            })
            .collect();
        check_packets(&application, 6, &sent).unwrap();
    }
    let lengths = [1, 59, 60, 61, 64, 3, 0, 960, 961, 127];
    let packets = |channel: &Channel| {
        let mut packets = host_packets(channel, channel.id.into(), &lengths, 6);
        // Some begin a message, some go on with it, and before some, packets are missing.
        let bit_errors = [
            (63, true, true, 0),
            (4, false, true, 1),
            (0, false, false, 2),
            (61, true, false, 3),
            (8, false, true, 255),
            (3, true, false, 0),
            (62, true, true, 1),
            (5, true, false, 2),
            (20, false, true, 3),
            (60, false, false, 5),
            (60, true, false, 6),
            (59, false, true, 7),
            (57, true, true, 8),
        ];
        packets.extend(bit_errors.map(|(length, is_last, is_first, number)| {
            damaged(channel, &Damaged { length, is_last, is_first, number, seed: length as u64 })
        }));
        packets
    };
    let packets: Vec<_> = definition.channels().iter().map(|channel| (channel, packets(channel))).collect();
    check_words(&application, 6, &packets).unwrap();
}

#[test]
fn handles_move_words_of_every_type() {
    let channels: Vec<_> = (0_u8..).zip(all_words()).map(|(id, (word, bits))| (id, word, bits)).collect();
    handles::check(&definition(&channels));
}

#[test]
fn host_code_checks_its_arguments_and_loads_routes() {
    let definition = definition(&[(0, "float".into(), 32), (200, "uint16".into(), 512)]);
    let application = Application::build(&Settings::new(&definition));
    let invalid = "result -30\n";
    assert_eq!(application.run("send out_0 64 1 1\n"), invalid);
    assert_eq!(application.run("send out_200 0 0 1\n"), invalid);
    assert_eq!(application.run("routes 0005\n"), invalid);
    assert_eq!(application.run(&format!("routes {}\n", "00".repeat(65))), invalid);
    // A send kernel whose words are missing does not end.
    assert_eq!(application.run("send out_0 63 2 1\nword out_0 00000000\nfinish\n"), "result 0\nresult -5\n");
    assert_eq!(application.run("send out_0 63 1 0\nfinish\n"), "result 0\nresult 0\n");
    // Each start has arguments of its own.
    let twice =
        "word out_0 01000000\nword out_0 02000000\nsend out_0 5 1 1\nsend out_0 6 1 1\nfinish\ntake circus_out\n";
    let packets = application.words(twice);
    let packet = |destination, first| {
        let header = Header { destination_bits: 6, destination, channel: 0 };
        wire::packets(&[vec![first, 0, 0, 0]], 4, header)[0].to_vec()
    };
    assert_eq!(packets, [packet(5, 1), packet(6, 2)]);
    let routes = "routes 04000102\ntake circus_table\n";
    assert_eq!(application.run(routes), "result 0\nword 00000400\nword 01000000\nword 02000100\nword 03000200\n");
}

/// Names of variables of the kernels, and words of Rust and C++.
#[test]
fn any_name_that_is_not_refused_works() {
    let names =
        "level word packet buffer words messages messages_left words_left count header i is_ending is_last destination
        held turn granted next first whole units bytes ports card cards circus error position match self class x
        number found packets payload is_first is_taken goes_on is_within";
    let names: Vec<&str> = names.split_ascii_whitespace().collect();
    let mut text = String::from("<channels>");
    for (id, pair) in names.chunks(2).enumerate() {
        for (name, tag) in pair.iter().zip(["write-to", "read-from"]) {
            let _ = write!(text, "<channel name='{name}'><type>uint2</type><width>64</width>");
            let _ = write!(text, "<depth>1</depth><{tag}>{id}</{tag}></channel>");
        }
    }
    let definition = parse((text + "</channels>").as_bytes()).unwrap();
    let application = Application::build(&Settings::new(&definition));
    let sent = |channel| Sent { channel, destination: 1, words: 9, messages: vec![data(3, 72)] };
    check_packets(&application, 6, &definition.channels().iter().map(sent).collect::<Vec<_>>()).unwrap();
    let packets = |channel| (channel, host_packets(channel, 4, &[73], 6));
    check_words(&application, 6, &definition.channels().iter().map(packets).collect::<Vec<_>>()).unwrap();
}

#[test]
fn packets_of_unknown_channels_are_dropped() {
    let definition = definition(&[(7, "ushort".into(), 16)]);
    let application = Application::build(&Settings::new(&definition));
    let packet = |channel| {
        let header = Header { destination_bits: 6, destination: 0, channel };
        hex(&wire::packets(&[vec![channel, 1]], 2, header)[0])
    };
    let commands = format!("word circus_in {}\nword circus_in {}\ntake in_7\n", packet(8), packet(7));
    assert_eq!(application.run(&commands), "word 0701\n");
}

#[test]
fn a_card_may_have_some_ends_and_no_table() {
    let definition = definition(&[(0, "char4".into(), 32), (1, "half2".into(), 32), (2, "double".into(), 64)]);
    for ends in [&["out_1"] as &[&str], &["in_2", "in_0"], &["out_0", "in_1"]] {
        let settings = Settings { ends, destination_bits: 8, has_table: false, ..Settings::new(&definition) };
        let application = Application::build(&settings);
        assert_eq!(application.run("routes 00\n"), "result -48\n");
        let is_built = |name: &str| ends.contains(&name);
        for channel in definition.channels() {
            if is_built(&channel.writer.name) {
                let messages = vec![data(1, 33 * word_bytes(channel))];
                check_packets(&application, 8, &[Sent { channel, destination: 255, words: 33, messages }]).unwrap();
            }
            if is_built(&channel.reader.name) {
                let packets = host_packets(channel, 2, &[100, 7], 8);
                check_words(&application, 8, &[(channel, packets)]).unwrap();
            }
        }
    }
}

/// A channel as a test draws it: type, words of a message, messages, destination, and lengths of messages to read.
#[derive(Debug)]
struct Drawn {
    word: (String, u32),
    words: usize,
    messages: usize,
    destination: u32,
    lengths: Vec<usize>,
    /// Which packets of these messages arrive, again and again.
    is_kept: Vec<bool>,
    /// Packets with any header.
    damaged: Vec<Damaged>,
}

/// What a bit error may make of a packet.
#[derive(Debug)]
struct Damaged {
    length: usize,
    is_last: bool,
    is_first: bool,
    number: u8,
    /// Of the payload.
    seed: u64,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let word = prop::sample::select(all_words());
    let header = (0..64_usize, any::<bool>(), any::<bool>(), 0..3_u8, any::<u64>());
    let damaged = prop::collection::vec(header, 0..8);
    let damaged = damaged.prop_map(|headers| {
        let one = |(length, is_last, is_first, number, seed)| Damaged { length, is_last, is_first, number, seed };
        headers.into_iter().map(one).collect()
    });
    let lengths = prop::collection::vec(0..400_usize, 0..5);
    let is_kept = prop::collection::vec(prop::bool::weighted(0.8), 1..12);
    (word, 1..200_usize, 0..4_usize, 0..64_u32, lengths, is_kept, damaged).prop_map(
        |(word, words, messages, destination, lengths, is_kept, damaged)| Drawn {
            word,
            words,
            messages,
            destination,
            lengths,
            is_kept,
            damaged,
        },
    )
}

/// A packet as a bit error may leave it. Units of words are whole, as kernels round up to them.
fn damaged(channel: &Channel, damaged: &Damaged) -> [u8; PACKET_BYTES] {
    let Damaged { length, is_last, is_first, number, seed } = *damaged;
    let length = if is_last { length } else { length / 4 * 4 };
    let header = u32::from(channel.id) << 6
        | (length as u32) << 14
        | u32::from(is_last) << 20
        | u32::from(is_first) << 21
        | u32::from(number) << 22;
    let mut packet = [0; PACKET_BYTES];
    packet[..4].copy_from_slice(&header.to_le_bytes());
    let bytes = length.min(PACKET_BYTES - 4);
    packet[4..4 + bytes].copy_from_slice(&data(seed, bytes));
    packet
}

proptest! {
    // Each case runs the C compiler.
    #![proptest_config(ProptestConfig::with_cases(4))]
    #[test]
    fn generated_kernels_agree_with_the_mock(channels in prop::collection::btree_map(any::<u8>(), drawn(), 1..6)) {
        let list: Vec<_> = channels.iter().map(|(id, drawn)| (*id, drawn.word.0.clone(), drawn.word.1)).collect();
        let definition = definition(&list);
        let application = Application::build(&Settings::new(&definition));
        let all = || definition.channels().iter().zip(channels.values());
        let sent: Vec<Sent<'_>> = all().map(|(channel, drawn)| {
            let message = |at| data(u64::from(channel.id) << 8 | at as u64, drawn.words * word_bytes(channel));
            let messages = (0..drawn.messages).map(message).collect();
            Sent { channel, destination: drawn.destination, words: drawn.words, messages }
        }).collect();
        check_packets(&application, 6, &sent)?;
        let packets: Vec<_> = all().map(|(channel, drawn)| {
            let packets = host_packets(channel, channel.id.into(), &drawn.lengths, 6).into_iter();
            let kept = packets.zip(drawn.is_kept.iter().cycle()).filter(|(_, is_kept)| **is_kept);
            let mut packets: Vec<_> = kept.map(|(packet, _)| packet).collect();
            packets.extend(drawn.damaged.iter().map(|one| damaged(channel, one)));
            (channel, packets)
        }).collect();
        check_words(&application, 6, &packets)?;
    }
}

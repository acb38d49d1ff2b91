//! Channels of CIRCUS cards, as their hosts use them: every byte in order, back-pressure, losses, and cards that fail.

mod lost;
mod observed;

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cmdseq::routing::RouteError;
use fpga_driver::channel::{Error, Network, Reader, Settings, Writer};
use fpga_hal::vfio_user::{self, Server};
use fpga_hal::{BarIndex, Domain, Endpoint, Function, in_process};
use fpga_mock::circus::{Channel, Channels, Design, Placement, Profile, Torus};
use fpga_mock::{ChannelCards, LateDma};
use fpga_tests::run::domain;
use proptest::prelude::*;

/// Longer than anything here takes, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// For waits that are to time out.
const SHORT: Duration = Duration::from_millis(30);

fn cards(profile: &Profile, width: u32, height: u32) -> ChannelCards {
    ChannelCards::new(profile, Design::new(Torus::new(width, height).unwrap())).unwrap()
}

fn attach(cards: impl IntoIterator<Item = Arc<dyn Endpoint>>) -> Vec<Function> {
    let domain = domain();
    let attach = |(node, card)| in_process::attach(card, &domain, &format!("card {node}")).unwrap();
    cards.into_iter().enumerate().map(attach).collect()
}

fn functions(cards: &ChannelCards) -> Vec<Function> {
    attach((0..cards.nodes()).map(|node| cards.endpoint(node)))
}

fn network(cards: &ChannelCards) -> Network {
    let mut network = Network::open(functions(cards)).unwrap();
    network.load().unwrap();
    network
}

fn settings(id: u8, word_bytes: u32, depth: u32) -> Settings {
    Settings { id, word_bytes, depth }
}

/// Bytes that tell where in a stream they were.
fn pattern(seed: u64, from: u64, bytes: usize) -> Vec<u8> {
    let byte = |at: u64| (at.wrapping_add(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    (from..from + bytes as u64).map(byte).collect()
}

fn read(reader: &mut Reader, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    reader.read_exact(&mut data, PATIENCE).unwrap();
    data
}

/// A channel between two hosts, and what was written and not read.
struct Stream {
    writer: Writer,
    reader: Reader,
    word: usize,
    written: u64,
    expected: VecDeque<u8>,
}

impl Stream {
    fn write(&mut self, words: usize) {
        let bytes = pattern(1, self.written, words * self.word);
        let accepted = self.writer.try_write(&bytes).unwrap();
        assert_eq!(accepted % self.word, 0);
        self.written += accepted as u64;
        self.expected.extend(&bytes[..accepted]);
    }

    fn read(&mut self, words: usize) -> usize {
        let mut bytes = vec![0; words * self.word];
        let read = self.reader.try_read(&mut bytes).unwrap();
        assert!(read <= self.expected.len());
        let expected: Vec<u8> = self.expected.drain(..read).collect();
        assert_eq!(bytes[..read], expected[..]);
        read
    }
}

#[derive(Debug, Clone)]
struct Planned {
    from: u32,
    to: u32,
    word: u32,
    depth: u32,
}

prop_compose! {
    fn planned()(from in 0..16_u32, to in 0..16_u32, word in 1..=64_u32, depth in 1..300_u32) -> Planned {
        Planned { from, to, word, depth }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_arrives_in_order(
        (width, height) in (1..4_u32, 1..4_u32).prop_filter("two cards", |(width, height)| width * height > 1),
        planned in prop::collection::vec(planned(), 1..5),
        steps in prop::collection::vec((0..5_usize, any::<bool>(), 0..400_usize), 1..60),
    ) {
        let cards = cards(&Profile::complete(), width, height);
        let network = network(&cards);
        let nodes = width * height;
        let open = |(id, planned): (u8, &Planned)| {
            let (from, to) = (planned.from % nodes, planned.to % nodes);
            let settings = settings(id, planned.word, planned.depth);
            let reader = network.reader(to, settings).unwrap();
            let writer = network.writer(from, to, settings).unwrap();
            Stream { writer, reader, word: planned.word as usize, written: 0, expected: VecDeque::new() }
        };
        let mut streams: Vec<Stream> = (0..).zip(&planned).map(open).collect();
        for (stream, writes, words) in steps {
            let index = stream % streams.len();
            match writes {
                true => streams[index].write(words),
                false => drop(streams[index].read(words)),
            }
        }
        // Streams share links and the way into a card: none may wait for another one to be read first.
        while streams.iter().any(|stream| !stream.expected.is_empty()) {
            // A message of which not all words had room goes on: it ends here.
            streams.iter_mut().for_each(|stream| assert_eq!(stream.writer.try_write(&[]).unwrap(), 0));
            let read: usize = streams.iter_mut().map(|stream| stream.read(64)).sum();
            prop_assert!(read > 0, "{} bytes do not arrive", streams.iter().map(|s| s.expected.len()).sum::<usize>());
        }
        for mut stream in streams {
            prop_assert_eq!(stream.reader.try_read(&mut vec![0; stream.word]).unwrap(), 0);
            stream.writer.close(PATIENCE).unwrap();
        }
        prop_assert!(cards.losses().is_empty(), "{:?}", cards.losses());
    }
}

#[test]
fn a_writer_waits_for_a_reader_and_goes_on() {
    let cards = cards(&Profile::complete(), 4, 1);
    let network = network(&cards);
    let settings = settings(7, 4, 64);
    let mut reader = network.reader(2, settings).unwrap();
    let mut writer = network.writer(0, 2, settings).unwrap();
    let all = pattern(3, 0, 1 << 20);
    let mut done = 0;
    let began = Instant::now();
    let error = writer.write(&all, SHORT).unwrap_err();
    assert!(began.elapsed() >= SHORT && began.elapsed() < PATIENCE);
    match error {
        Error::TimedOut { done: written, waited, .. } => {
            assert!(waited >= SHORT);
            assert!(written > 256 && written < 1 << 20 && written % 4 == 0, "{written}");
            done += written;
        }
        other => panic!("{other}"),
    }
    assert_eq!(writer.try_write(&all[done..]).unwrap(), 0);
    assert!(matches!(writer.flush(SHORT), Err(Error::TimedOut { .. })));
    let writing = thread::spawn({
        let all = all.clone();
        move || {
            writer.write(&all[done..], PATIENCE).unwrap();
            writer.close(PATIENCE).unwrap();
        }
    });
    assert!(read(&mut reader, all.len()) == all);
    writing.join().unwrap();
    assert!(cards.losses().is_empty());
}

#[test]
fn a_full_ring_takes_no_part_of_another_message() {
    let cards = cards(&Profile::complete(), 2, 1);
    let network = network(&cards);
    let settings = settings(7, 4, 64);
    let mut reader = network.reader(1, settings).unwrap();
    let mut writer = network.writer(0, 1, settings).unwrap();
    let mut count = 0_u32;
    while writer.try_write(&count.to_le_bytes()).unwrap() != 0 {
        count += 1;
    }
    let timed_out = |outcome| matches!(outcome, Err(Error::TimedOut { done: 0, .. }));
    assert!(timed_out(writer.write(&[1; 8], SHORT)));
    assert!(timed_out(writer.write_more(&[1; 8], SHORT)));
    for expected in 0..count {
        assert_eq!(read(&mut reader, 4), expected.to_le_bytes());
    }
    writer.flush(PATIENCE).unwrap();
    assert_eq!(reader.try_read(&mut [0; 8]).unwrap(), 0);
    // Nobody reads.
    while writer.try_write(&[2; 4]).unwrap() != 0 {}
    assert!(timed_out(writer.close(SHORT)));
}

#[test]
fn words_of_a_message_that_goes_on_fill_packets() {
    let cards = cards(&Profile::published(), 2, 1);
    let network = network(&cards);
    let settings = settings(0, 4, 64);
    let mut reader = network.reader(1, settings).unwrap();
    let mut writer = network.writer(0, 1, settings).unwrap();
    let words = pattern(5, 0, 100);
    writer.write_more(&words[..80], PATIENCE).unwrap();
    let mut data = [0; 100];
    // Of 80 bytes, 60 fill a packet.
    assert_eq!(reader.try_read(&mut data).unwrap(), 60);
    writer.write(&words[80..], PATIENCE).unwrap();
    assert_eq!(reader.try_read(&mut data[60..]).unwrap(), 40);
    assert_eq!(data[..], words[..]);
    // A writer that is dropped ends its message.
    writer.write_more(&words[..8], PATIENCE).unwrap();
    drop(writer);
    assert_eq!(read(&mut reader, 8), words[..8]);
}

#[test]
fn ends_are_closed_and_opened_again() {
    let cards = cards(&Profile::complete(), 2, 2);
    let network = network(&cards);
    for round in 0..20_u64 {
        let settings = settings(9, 8, 32);
        let mut reader = network.reader(3, settings).unwrap();
        let mut writer = network.writer(0, 3, settings).unwrap();
        let words = pattern(round, 0, 256);
        writer.write(&words, PATIENCE).unwrap();
        // What was not read is gone with the reader, and disturbs no later one.
        assert_eq!(read(&mut reader, 8), words[..8]);
        drop((writer, reader));
    }
    // All eight ends, twice.
    for _ in 0..2 {
        let open = |id| network.reader(3, settings(id, 8, 32)).unwrap();
        let readers: Vec<Reader> = (0..8).map(open).collect();
        assert!(matches!(network.reader(3, settings(8, 8, 32)), Err(Error::NoEnd { ends: 8, .. })));
        drop(readers);
    }
    let reader = network.reader(3, settings(1, 8, 32)).unwrap();
    assert!(matches!(network.reader(3, settings(1, 8, 32)), Err(Error::Refused { id: 1, .. })));
    // Ends keep their card in use.
    drop(network);
    let again = || in_process::attach(cards.endpoint(3), &domain(), "again");
    assert!(again().is_err());
    drop(reader);
    again().unwrap();
}

#[test]
fn only_the_published_links_lose_packets() {
    for (profile, is_lossy) in [(Profile::published(), true), (Profile::complete(), false)] {
        let cards = cards(&profile, 2, 1);
        let network = network(&cards);
        let _reader = network.reader(1, settings(0, 64, 4)).unwrap();
        let mut writer = network.writer(0, 1, settings(0, 64, 1024)).unwrap();
        let written = writer.write(&vec![1; 1 << 20], SHORT);
        assert_eq!(written.is_ok(), is_lossy, "{written:?}");
        let losses = network.losses(1).unwrap();
        assert_eq!(losses.full > 0, is_lossy, "{losses:?}");
        assert_eq!((losses.no_route, losses.no_channel), (0, 0));
        assert_eq!(cards.losses().is_empty(), !is_lossy);
    }
}

/// As if a host had ended between two of its cards.
#[test]
fn packets_that_go_round_are_lost_and_hold_up_nobody() {
    let cards = cards(&Profile::complete(), 2, 2);
    let network = network(&cards);
    // Card 0 sends to card 2 by card 1, which sends to it by card 0.
    let (card, bar, block) = (cards.endpoint(0), BarIndex::new(0).unwrap(), 0x4000);
    let mut to_1 = [0; 4];
    card.bar_read(bar, block + 0x1004, &mut to_1);
    card.bar_write(bar, block + 0x1008, &to_1);
    card.bar_write(bar, block + 0x104, &0x4441_4f4c_u32.to_le_bytes());
    let mut writer = network.writer(0, 2, settings(5, 4, 64)).unwrap();
    writer.write(&[1; 120], PATIENCE).unwrap();
    let began = Instant::now();
    let lost = || (0..4).map(|node| network.losses(node).unwrap().no_route).sum::<u32>();
    while lost() < 2 {
        assert!(began.elapsed() < PATIENCE, "{} packets are lost", lost());
    }
    let mut reader = network.reader(3, settings(6, 4, 64)).unwrap();
    network.writer(1, 3, settings(6, 4, 64)).unwrap().write(&[2; 60], PATIENCE).unwrap();
    assert_eq!(read(&mut reader, 60), [2; 60]);
    assert_eq!(lost(), 2);
}

#[test]
fn words_that_nobody_reads_are_lost_and_counted() {
    let cards = cards(&Profile::complete(), 2, 1);
    let network = network(&cards);
    let mut writer = network.writer(0, 1, settings(5, 4, 64)).unwrap();
    writer.write(&[1; 120], PATIENCE).unwrap();
    writer.close(PATIENCE).unwrap();
    assert_eq!(network.losses(1).unwrap().no_channel, 2);
    assert_eq!(network.losses(0).unwrap(), fpga_driver::channel::Losses::default());
}

#[test]
fn tables_are_checked_before_they_are_loaded() {
    let cards = cards(&Profile::published(), 4, 2);
    let mut network = Network::open(functions(&cards)).unwrap();
    let torus = network.torus();
    assert_eq!((torus.width(), torus.height(), network.nodes().count()), (4, 2, 8));
    let mut refused = |at, to, port| {
        let mut tables = torus.dimension_order();
        tables.set(at, to, port);
        match network.load_tables(&tables) {
            Err(Error::Route(error)) => error,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(1, 2, None), RouteError::Missing { from: 0, to: 2, at: 1 });
    assert_eq!(refused(1, 2, Some(1)), RouteError::Loop { from: 0, to: 2, at: 0 });
    assert_eq!(refused(3, 7, Some(99)), RouteError::Port { from: 0, to: 7, at: 3, port: 99 });
    assert!(refused(1, 2, None).to_string().contains("from node 0 to node 2"));
    assert!(matches!(network.writer(0, 1, settings(0, 4, 16)), Err(Error::NotRouted { .. })));
    assert!(matches!(network.reader(0, settings(0, 4, 16)), Err(Error::NotRouted { .. })));
    network.load().unwrap();
    // Other tables than those in order of dimensions: along the column first, from node 0 to node 5.
    let mut tables = torus.dimension_order();
    tables.set(0, 5, Some(2));
    tables.set(4, 5, Some(0));
    network.load_tables(&tables).unwrap();
    let mut reader = network.reader(5, settings(0, 4, 16)).unwrap();
    let mut writer = network.writer(0, 5, settings(0, 4, 16)).unwrap();
    writer.write(&[1, 2, 3, 4], PATIENCE).unwrap();
    assert_eq!(read(&mut reader, 4), [1, 2, 3, 4]);
}

#[test]
fn arguments_are_checked() {
    let cards = cards(&Profile::published(), 2, 1);
    let network = network(&cards);
    let is_argument = |error: Error| matches!(error, Error::Card(fpga_driver::Error::BadArgument { .. }));
    for (word, depth) in [(0, 1), (65, 1), (4, 0), (64, u32::MAX), (1, u32::MAX)] {
        assert!(is_argument(network.reader(0, settings(0, word, depth)).unwrap_err()), "{word} {depth}");
    }
    assert!(is_argument(network.writer(0, 2, settings(0, 4, 1)).unwrap_err()));
    assert!(is_argument(network.writer(2, 0, settings(0, 4, 1)).unwrap_err()));
    assert!(is_argument(Network::open([]).unwrap_err()));
    let mut reader = network.reader(1, settings(0, 4, 1)).unwrap();
    let mut writer = network.writer(0, 1, settings(0, 4, 1)).unwrap();
    assert!(is_argument(writer.write(&[0; 5], SHORT).unwrap_err()));
    assert!(is_argument(reader.try_read(&mut [0; 3]).unwrap_err()));
    // The largest ring that the card has.
    drop((reader, writer));
    let most = 1024 * ((4096 - 8) / 64);
    drop(network.reader(0, settings(0, 64, most)).unwrap());
    assert!(is_argument(network.reader(0, settings(0, 64, most + 1)).unwrap_err()));
}

/// Adds one to each word.
fn add_one(channels: &mut Channels<'_>) {
    if channels.can_put(0)
        && let Some(word) = channels.take(0)
    {
        channels.put(0, word.map_u32(|number| number.wrapping_add(1)));
    }
}

#[test]
fn kernels_on_several_cards_are_between_two_hosts() {
    let mut design = Design::new(Torus::new(4, 2).unwrap());
    // From the host of card 0 through kernels of cards 3, 6 and 5 to the host of card 1.
    let hops = [0, 3, 6, 5, 1];
    let channels: Vec<_> =
        hops.windows(2).map(|hop| design.channel(Channel::narrow(hop[0], hop[1])).unwrap()).collect();
    for (pair, node) in channels.windows(2).zip(&hops[1..]) {
        let placement = Placement { node: *node, reads: &pair[..1], writes: &pair[1..], latency_cycles: 3 };
        design.kernel(placement, add_one).unwrap();
    }
    let (first, last) = (design.id(channels[0]), design.id(channels[3]));
    let cards = ChannelCards::new(&Profile::complete(), design).unwrap();
    let network = network(&cards);
    let mut reader = network.reader(1, settings(last, 4, 256)).unwrap();
    let mut writer = network.writer(0, 3, settings(first, 4, 256)).unwrap();
    // The kernel on card 3 reads that channel already.
    assert!(matches!(network.reader(3, settings(first, 4, 16)), Err(Error::Refused { .. })));
    let numbers: Vec<u32> = (0..1000).collect();
    let bytes = |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let writing = thread::spawn({
        let bytes = bytes(&numbers);
        move || writer.write(&bytes, PATIENCE).map(|()| writer.close(PATIENCE))
    });
    let expected: Vec<u32> = numbers.iter().map(|number| number + 3).collect();
    assert_eq!(read(&mut reader, 4000), bytes(&expected));
    writing.join().unwrap().unwrap().unwrap();
}

#[test]
fn cards_that_fail_give_errors_in_time() {
    type Fail = fn(&ChannelCards, u32);
    for (name, fail) in
        [("removed", ChannelCards::remove as Fail), ("frozen", ChannelCards::freeze), ("reset", ChannelCards::reset)]
    {
        let cards = cards(&Profile::complete(), 2, 1);
        let network = network(&cards);
        let mut reader = network.reader(1, settings(0, 4, 16)).unwrap();
        let mut writer = network.writer(0, 1, settings(0, 4, 16)).unwrap();
        writer.write(&[1; 64], PATIENCE).unwrap();
        assert_eq!(read(&mut reader, 64), [1; 64]);
        fail(&cards, 0);
        fail(&cards, 1);
        let began = Instant::now();
        let wait = Duration::from_millis(300);
        let errors = [
            writer.write(&[2; 1 << 16], wait).unwrap_err(),
            writer.flush(wait).unwrap_err(),
            reader.read(&mut [0; 4], wait).unwrap_err(),
        ];
        for error in errors {
            let is_right = match name {
                "removed" => matches!(error, Error::Card(fpga_driver::Error::Removed { .. })),
                "frozen" => matches!(error, Error::TimedOut { .. }),
                // Memory decoding is off after a reset.
                _ => matches!(error, Error::Card(fpga_driver::Error::AllOnes { .. })),
            };
            assert!(is_right, "{name}: {error}");
        }
        drop((reader, writer, network));
        assert!(began.elapsed() < PATIENCE, "{name}");
    }
}

#[test]
fn cards_are_opened_again_after_a_reset() {
    let cards = cards(&Profile::complete(), 2, 1);
    let first = network(&cards);
    let mut reader = first.reader(1, settings(0, 4, 16)).unwrap();
    cards.reset(1);
    let error = reader.read(&mut [0; 4], PATIENCE).unwrap_err();
    assert!(matches!(error, Error::Card(fpga_driver::Error::AllOnes { .. })), "{error}");
    drop((reader, first));
    // Without loading tables: routers keep theirs.
    let network = Network::open(functions(&cards)).unwrap();
    let mut reader = network.reader(1, settings(0, 4, 16)).unwrap();
    let mut writer = network.writer(0, 1, settings(0, 4, 16)).unwrap();
    writer.write(&[1, 2, 3, 4], PATIENCE).unwrap();
    assert_eq!(read(&mut reader, 4), [1, 2, 3, 4]);
}

/// Sends a stream around a torus of 2 by 2 and back.
fn round_trip(functions: Vec<Function>) {
    let mut network = Network::open(functions).unwrap();
    network.load().unwrap();
    let settings = settings(3, 16, 64);
    let there = network.reader(3, settings).unwrap();
    let back = network.reader(0, settings).unwrap();
    let mut outward = network.writer(0, 3, settings).unwrap();
    let mut homeward = network.writer(3, 0, settings).unwrap();
    const BYTES: usize = 24 << 10;
    let echo = thread::spawn(move || {
        let mut there = there;
        for _ in 0..BYTES / 1024 {
            homeward.write(&read(&mut there, 1024), PATIENCE).unwrap();
        }
        homeward.close(PATIENCE).unwrap();
    });
    let words = pattern(8, 0, BYTES);
    let writing = thread::spawn({
        let words = words.clone();
        move || outward.write(&words, PATIENCE).map(|()| outward.close(PATIENCE))
    });
    let mut back = back;
    assert!(read(&mut back, BYTES) == words);
    writing.join().unwrap().unwrap().unwrap();
    echo.join().unwrap();
}

#[test]
fn hosts_on_sockets_exchange_words() {
    let cards = cards(&Profile::complete(), 2, 2);
    let directory = tempfile::tempdir().unwrap();
    let socket = |node| directory.path().join(format!("{node}.sock"));
    let serve = |node| Server::bind(socket(node), cards.endpoint(node)).and_then(Server::spawn).unwrap();
    let _servers: Vec<_> = (0..4).map(serve).collect();
    let domain = Domain::vfio_user();
    round_trip((0..4).map(|node| vfio_user::connect(&socket(node), &domain).unwrap()).collect());
    assert!(cards.losses().is_empty());
}

#[test]
fn late_dma_changes_no_byte() {
    let cards = cards(&Profile::complete(), 2, 2);
    let late =
        |node| LateDma::new(cards.endpoint(node), u64::from(node), Duration::from_micros(200)) as Arc<dyn Endpoint>;
    round_trip(attach((0..4).map(late)));
    assert!(cards.losses().is_empty());
}

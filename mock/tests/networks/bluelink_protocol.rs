//! BlueLink's reliability layer against an unreliable FIFO: nothing lost, doubled, reordered or wrong, and always progress.

use std::collections::VecDeque;

use fpga_mock::bluelink::{
    Acknowledgement, Address, Aligner, Datum, End, EndConfig, Event, Flit, FlitError, HEADER, Payload, Received,
    Sequence, Session, Violation, WINDOW, Word, serialize,
};
use proptest::prelude::*;

/// A generator for the line's faults, apart from proptest's so that a case is small to print.
struct Xorshift(u64);

impl Xorshift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn hits(&mut self, per_mille: u64) -> bool {
        self.next() % 1000 < per_mille
    }
}

/// What a line does to flits.
#[derive(Debug, Clone, Copy)]
struct Faults {
    lost_per_mille: u64,
    flipped_per_mille: u64,
    /// Turns from sending to arriving; the second value is a delay that comes and goes.
    delay: u64,
    jitter: u64,
    /// A cable is pulled and plugged about so often.
    flap_per_mille: u64,
    idle_per_mille: u64,
    take_per_mille: u64,
}

const GOOD: Faults = Faults {
    lost_per_mille: 0,
    flipped_per_mille: 0,
    delay: 3,
    jitter: 0,
    flap_per_mille: 0,
    idle_per_mille: 0,
    take_per_mille: 1000,
};

/// One direction of a cable: a FIFO that loses and damages.
#[derive(Default)]
struct Line {
    flying: VecDeque<(u64, [u8; 16])>,
}

impl Line {
    fn send(&mut self, now: u64, mut wire: [u8; 16], faults: &Faults, dice: &mut Xorshift) {
        if dice.hits(faults.lost_per_mille) {
            return;
        }
        if dice.hits(faults.flipped_per_mille) {
            for _ in 0..1 + dice.next() % 5 {
                let bit = dice.next() % 128;
                wire[bit as usize / 8] ^= 1 << (bit % 8);
            }
        }
        let jitter = if faults.jitter == 0 { 0 } else { dice.next() % faults.jitter };
        // A FIFO: nothing overtakes.
        let at = (now + faults.delay + jitter).max(self.flying.back().map_or(0, |last| last.0));
        self.flying.push_back((at, wire));
    }

    fn arrived(&mut self, now: u64) -> Option<[u8; 16]> {
        self.flying.front().filter(|flit| flit.0 <= now)?;
        self.flying.pop_front().map(|flit| flit.1)
    }
}

/// What a test knows about one direction, on its own.
#[derive(Default)]
struct Stream {
    sent: u64,
    /// Payloads in the order of arrival.
    arrived: Vec<u64>,
    /// Flits that an end has reported as dropped, or forgot when it restarted itself.
    written_off: u64,
}

struct Pair {
    ends: [End; 2],
    lines: [Line; 2],
    streams: [Stream; 2],
    dice: Xorshift,
    is_plugged: bool,
    now: u64,
    sessions: u32,
    config: EndConfig,
}

impl Pair {
    fn new(config: EndConfig, seed: u64) -> Self {
        let end = |session| End::new(config, Session::new(session).unwrap());
        let dice = Xorshift(seed | 1);
        let (lines, streams) = Default::default();
        Pair { ends: [end(1), end(2)], lines, streams, dice, is_plugged: true, now: 0, sessions: 2, config }
    }

    fn turn(&mut self, faults: &Faults, input: [bool; 2]) {
        self.now += 1;
        if self.dice.hits(faults.flap_per_mille) {
            self.is_plugged = !self.is_plugged;
            self.lines.iter_mut().for_each(|line| line.flying.clear());
        }
        for (side, has_input) in input.into_iter().enumerate() {
            // A payload is its number in the stream, and the address follows from it: a mix-up shows.
            let number = self.streams[side].sent;
            let address = Address::new((number % 4096) as u16).unwrap();
            if has_input && self.ends[side].send(Datum { address, payload: number }).is_ok() {
                self.streams[side].sent += 1;
            }
            if !self.dice.hits(faults.idle_per_mille)
                && let Some(flit) = self.ends[side].transmit(self.now)
                && self.is_plugged
            {
                self.lines[side].send(self.now, flit.encode(), faults, &mut self.dice);
            }
            while let Some(wire) = self.lines[1 - side].arrived(self.now) {
                self.receive(side, &wire);
            }
            if self.dice.hits(faults.take_per_mille)
                && let Some(datum) = self.ends[side].take()
            {
                assert_eq!(u64::from(datum.address.get()), datum.payload % 4096, "another flit's address");
                self.streams[1 - side].arrived.push(datum.payload);
            }
        }
    }

    fn receive(&mut self, side: usize, wire: &[u8; 16]) {
        match Flit::decode(wire) {
            Ok(flit) => {
                let event = self.ends[side].receive(self.now, flit).expect("both ends follow the protocol");
                if let Event::NeighbourRestarted { unacknowledged, unsent } = event {
                    self.streams[side].written_off += (unacknowledged + unsent) as u64;
                }
            }
            Err(FlitError::Damaged(_)) => {}
            Err(FlitError::Violation(violation)) => panic!("{violation}"),
        }
    }

    fn restart(&mut self, side: usize) {
        self.sessions += 1;
        // What was given to this end and not acknowledged, and what it has received and nobody has taken.
        self.streams[side].written_off += self.ends[side].pending() as u64;
        while let Some(datum) = self.ends[side].take() {
            self.streams[1 - side].arrived.push(datum.payload);
        }
        self.ends[side] = End::new(self.config, Session::new(self.sessions).unwrap());
    }

    /// Lets a good link finish; fails if it takes more turns than a stuck link would need.
    fn drain(&mut self) {
        self.is_plugged = true;
        let most = self.now + 400 * self.config.timeout + 20_000;
        while self.ends.iter().any(|end| end.pending() > 0 || end.peek().is_some() || !end.is_up()) {
            self.turn(&GOOD, [false; 2]);
            assert!(self.now < most, "no progress: {:?}", self.ends);
        }
    }
}

fn faults() -> impl Strategy<Value = Faults> {
    let rate = |most: u64| prop_oneof![Just(0), 0..most];
    (rate(400), rate(400), 1..20u64, rate(12), rate(30), rate(700), 20..1000u64).prop_map(
        |(lost_per_mille, flipped_per_mille, delay, jitter, flap_per_mille, idle_per_mille, take_per_mille)| Faults {
            lost_per_mille,
            flipped_per_mille,
            delay,
            jitter,
            flap_per_mille,
            idle_per_mille,
            take_per_mille,
        },
    )
}

/// Timeouts shorter than a round trip, too: they replay in vain, and nothing else.
fn config() -> impl Strategy<Value = EndConfig> {
    (1..80u64, 1..20usize, 1..40usize).prop_map(|(timeout, input, receive_buffer)| EndConfig {
        timeout,
        input,
        receive_buffer,
    })
}

fn datum(payload: u64) -> Datum {
    Datum { address: Address::default(), payload }
}

fn upright() -> Acknowledgement {
    Acknowledgement { last: Sequence::FIRST.before(), no_more: false }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_arrives_once_in_order_and_unchanged(
        config in config(), phases in prop::collection::vec((faults(), any::<[bool; 2]>(), 1..600u64), 1..6), seed in any::<u64>(),
    ) {
        let mut pair = Pair::new(config, seed);
        for (faults, input, turns) in phases {
            for _ in 0..turns {
                pair.turn(&faults, input);
            }
            if seed % 2 == 0 {
                pair.drain();
            }
        }
        pair.drain();
        for stream in &pair.streams {
            prop_assert_eq!(stream.written_off, 0);
            prop_assert_eq!(&stream.arrived, &(0..stream.sent).collect::<Vec<_>>());
        }
    }

    /// With restarts at any moment, no more is missing than the ends report, and the rest is in order and once.
    #[test]
    fn restarts_lose_only_what_they_report(
        config in config(), phases in prop::collection::vec((faults(), 1..300u64, 0..4usize), 1..12), seed in any::<u64>(),
    ) {
        let mut pair = Pair::new(config, seed);
        for (faults, turns, restarted) in phases {
            for _ in 0..turns {
                pair.turn(&faults, [true; 2]);
            }
            if restarted < 2 {
                pair.restart(restarted);
            }
        }
        pair.drain();
        for stream in &pair.streams {
            prop_assert!(stream.arrived.is_sorted_by(|a, b| a < b), "doubled or out of order");
            let missing = stream.sent - stream.arrived.len() as u64;
            prop_assert!(missing <= stream.written_off, "{} missing, {} reported", missing, stream.written_off);
        }
    }

    /// After any faults a good link is as fast as ever: the window does not shrink, and nothing is replayed for ever.
    #[test]
    fn a_link_recovers_its_rate(faults in faults(), turns in 1..2000u64, seed in any::<u64>()) {
        let mut pair = Pair::new(EndConfig { timeout: 40, input: 16, receive_buffer: 32 }, seed);
        for _ in 0..turns {
            pair.turn(&faults, [true; 2]);
        }
        pair.drain();
        let before = pair.streams[0].arrived.len();
        for _ in 0..400 {
            pair.turn(&GOOD, [true; 2]);
        }
        // The round trip of 6 turns is shorter than the window of 8: nearly every turn brings a flit.
        prop_assert!(pair.streams[0].arrived.len() - before >= 380, "{}", pair.streams[0].arrived.len() - before);
    }

    /// Any 16 bytes are a flit that encodes to the same bytes, or an error; also with a good header and CRC.
    #[test]
    fn decoding_is_strict(bytes in any::<[u8; 16]>(), small in any::<bool>()) {
        let mut sealed = bytes;
        sealed[0] = HEADER;
        if small {
            sealed[4..12].fill(0);
        }
        let crc = crc(&sealed[1..12]);
        sealed[12..].copy_from_slice(&crc.to_le_bytes());
        for wire in [bytes, sealed] {
            if let Ok(flit) = Flit::<u64>::decode(&wire) {
                prop_assert_eq!(flit.encode(), wire);
            }
        }
        prop_assert!(!matches!(Flit::<u64>::decode(&sealed), Err(FlitError::Damaged(_))));
    }

    /// The polynomial detects any seven wrong bits of a flit, header included.
    #[test]
    fn up_to_seven_wrong_bits_are_detected(payload in any::<u64>(), bits in prop::collection::btree_set(0..128usize, 1..=7)) {
        let flit = Flit::Data { datum: datum(payload), sequence: Sequence::from_bits(3), acknowledgement: upright() };
        let mut wire = flit.encode();
        bits.iter().for_each(|bit| wire[bit / 8] ^= 1 << (bit % 8));
        prop_assert!(matches!(Flit::<u64>::decode(&wire), Err(FlitError::Damaged(_))));
    }

    /// Words may be lost anywhere: flits that come out whole are flits that went in.
    #[test]
    fn the_aligner_finds_whole_flits(lost in prop::collection::btree_set(0..80usize, 0..40), idle in prop::collection::btree_set(0..80usize, 0..40)) {
        let flits: Vec<[u8; 16]> = (0..20u64)
            .map(|number| {
                // First words differ: one of them with the rest of another flit is no flit.
                let datum = Datum { address: Address::new(number as u16).unwrap(), payload: !number };
                Flit::Data { datum, sequence: Sequence::FIRST, acknowledgement: upright() }.encode()
            })
            .collect();
        let words: Vec<Word> = flits.iter().flat_map(serialize::<u64>).collect();
        let mut aligner = Aligner::<u64>::default();
        let mut found = Vec::new();
        for (place, word) in words.iter().enumerate() {
            // An idle word between words of a flit ends the flit.
            if idle.contains(&place) {
                found.extend(aligner.push(Word::IDLE));
            }
            if !lost.contains(&place) {
                found.extend(aligner.push(*word));
            }
        }
        let is_whole = |flit: &usize| {
            let words = 4 * flit..4 * flit + 4;
            words.clone().all(|word| !lost.contains(&word)) && words.skip(1).all(|word| !idle.contains(&word))
        };
        let whole: Vec<[u8; 16]> = (0..20).filter(is_whole).map(|flit| flits[flit]).collect();
        // Words of two flits make one only if a first word is missing; then the CRC tells.
        found.retain(|wire| Flit::<u64>::decode(wire).is_ok());
        prop_assert_eq!(found, whole);
    }
}

/// Castagnoli's CRC-32 bit by bit, from its definition.
fn crc(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

#[test]
fn the_fields_have_the_published_widths() {
    let address = Address::new(Address::MAX).unwrap();
    assert_eq!(Address::new(Address::MAX + 1), None);
    let flit: Flit = Flit::Data {
        datum: Datum { address, payload: 0x0123_4567_89ab_cdef },
        sequence: Sequence::from_bits(0xa),
        acknowledgement: Acknowledgement { last: Sequence::from_bits(0x5), no_more: false },
    };
    let wire = flit.encode();
    assert_eq!(wire.len() * 8, 128);
    assert_eq!(wire[..12], [0xbc, 0x5a, 0xff, 0x1f, 0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01]);
    assert_eq!(wire[12..], crc(&wire[1..12]).to_le_bytes());
    let words: Vec<Word> = serialize::<u64>(&wire).collect();
    assert_eq!(words.iter().map(|word| word.control).collect::<Vec<_>>(), [1, 0, 0, 0]);
    assert_eq!(words[0].data, 0x1fff_5abc);
    assert_eq!(<u64 as Payload>::BITS, 64);
    assert_eq!(WINDOW, 8);
}

fn up(config: EndConfig) -> [End; 2] {
    let mut ends = [1, 2].map(|session| End::new(config, Session::new(session).unwrap()));
    for now in 0..4 {
        for (from, to) in [(0, 1), (1, 0)] {
            if let Some(flit) = ends[from].transmit(now) {
                ends[to].receive(now, flit).unwrap();
            }
        }
    }
    assert!(ends.iter().all(End::is_up));
    ends
}

const CONFIG: EndConfig = EndConfig { timeout: 100, input: 32, receive_buffer: 16 };

#[test]
fn a_replayed_flit_is_acknowledged_again_and_delivered_once() {
    let [mut from, mut to] = up(CONFIG);
    from.send(datum(7)).unwrap();
    let first = from.transmit(10).unwrap();
    assert_eq!(to.receive(11, first), Ok(Event::Data(Received::Accepted)));
    let lost = to.transmit(12).unwrap();
    assert!(matches!(lost, Flit::Empty(_)));
    assert_eq!(from.transmit(109), None);
    let again = from.transmit(110).unwrap();
    assert_eq!(to.receive(111, again), Ok(Event::Data(Received::Repeated)));
    assert_eq!(to.transmit(112), Some(lost));
    from.receive(113, lost).unwrap();
    assert_eq!((from.pending(), to.take(), to.take()), (0, Some(datum(7)), None));
}

#[test]
fn the_head_is_sent_until_it_is_acknowledged_then_the_rest() {
    let [mut from, _] = up(CONFIG);
    (0..9).for_each(|payload| from.send(datum(payload)).unwrap());
    let payload = |flit: Option<Flit>| match flit {
        Some(Flit::Data { datum, .. }) => Some(datum.payload),
        _ => None,
    };
    let sent: Vec<_> = (10..30).map_while(|now| payload(from.transmit(now))).collect();
    assert_eq!(sent, (0..8).collect::<Vec<_>>(), "a window");
    let replayed: Vec<_> = (110..115).map_while(|now| payload(from.transmit(now))).collect();
    assert_eq!(replayed, [0; 5], "the head, continuously");
    from.receive(115, Flit::Empty(Acknowledgement { last: Sequence::FIRST, no_more: false })).unwrap();
    let rest: Vec<_> = (116..130).map_while(|now| payload(from.transmit(now))).collect();
    assert_eq!(rest, (1..8).collect::<Vec<_>>(), "the others once, and no new one");
    from.receive(131, Flit::Empty(Acknowledgement { last: Sequence::from_bits(7), no_more: false })).unwrap();
    assert_eq!(payload(from.transmit(132)), Some(8));
}

/// The flit that withdraws "no more" is lost: the sender asks again after a timeout.
#[test]
fn a_lost_release_is_found_out() {
    let [mut from, mut to] = up(CONFIG);
    (0..20).for_each(|payload| from.send(datum(payload)).unwrap());
    let mut delivered = 0;
    for now in 10..60 {
        if let Some(flit) = from.transmit(now) {
            delivered += usize::from(to.receive(now, flit) == Ok(Event::Data(Received::Accepted)));
        }
        if let Some(flit) = to.transmit(now) {
            from.receive(now, flit).unwrap();
        }
    }
    assert!((8..=16).contains(&delivered) && from.pending() == 20 - delivered, "{delivered} were delivered");
    while to.take().is_some() {}
    let released = to.transmit(61);
    assert!(matches!(released, Some(Flit::Empty(Acknowledgement { no_more: false, .. }))), "{released:?}");
    assert_eq!(to.transmit(62), None);
    assert_eq!(from.wakes_at().map(|at| at > 62 && at <= 162), Some(true));
    let asked = from.transmit(from.wakes_at().unwrap()).unwrap();
    assert!(matches!(asked, Flit::Data { .. }));
    assert_eq!(to.receive(170, asked), Ok(Event::Data(Received::Accepted)));
    from.receive(171, to.transmit(170).unwrap()).unwrap();
    assert!(matches!(from.transmit(172), Some(Flit::Data { .. })));
}

#[test]
fn a_foreign_neighbour_is_named() {
    let cases: [(Flit, Violation); 2] = [
        (
            Flit::Empty(Acknowledgement { last: Sequence::from_bits(3), no_more: false }),
            Violation::NotSent { last: Sequence::from_bits(3), first: Sequence::FIRST, unacknowledged: 0 },
        ),
        (
            Flit::Data { datum: datum(1), sequence: Sequence::from_bits(12), acknowledgement: upright() },
            Violation::NoReplay { sequence: Sequence::from_bits(12), expected: Sequence::FIRST, accepted: 0 },
        ),
    ];
    for (flit, violation) in cases {
        let [mut end, mut other] = up(CONFIG);
        end.send(datum(5)).unwrap();
        assert_eq!(end.receive(10, flit), Err(violation));
        assert_eq!((end.violation(), end.is_up()), (Some(violation), false));
        assert_eq!(end.pending(), 1, "what was not acknowledged is still known");
        assert_eq!((end.transmit(11), end.wakes_at()), (None, None));
        other.send(datum(6)).unwrap();
        assert_eq!(end.receive(12, other.transmit(12).unwrap()), Err(violation), "a stopped end takes nothing more");
    }
}

/// A flit that breaks the protocol changes nothing, whatever else it says.
#[test]
fn nothing_of_a_foreign_flit_counts() {
    let replay = Sequence::from_bits(12);
    let never_sent = Acknowledgement { last: Sequence::from_bits(5), no_more: false };
    for (sequence, acknowledgement) in
        [(replay, Acknowledgement { last: Sequence::FIRST, no_more: true }), (Sequence::FIRST, never_sent)]
    {
        let [mut end, _] = up(CONFIG);
        end.send(datum(5)).unwrap();
        assert!(end.transmit(10).is_some());
        assert!(end.receive(11, Flit::Data { datum: datum(1), sequence, acknowledgement }).is_err());
        assert_eq!((end.pending(), end.take()), (1, None));
    }
}

//! The card driven by hand: register writes by offset and 64-byte words typed byte by byte, without the driver.
//!
//! These results are compared with the published figures: the card gets no shortcut from our own driver.

use std::sync::Arc;

use fpga_hal::{BarIndex, DmaBuffer, Domain, Function, Window, in_process};
use fpga_mock::{Fabric, Profile};
use fpga_tests::run::domain;

/// Offsets retyped from docs/registers.md. The sequencer's block starts at 0x1000 of BAR0.
const CONTROL: u64 = 0x1100;
const QUEUE: u64 = 0x1400;
const DEPTH: u32 = 16;
const K: u64 = 256 << 20;

struct RawCard {
    registers: Window,
    rings: Arc<DmaBuffer>,
    data: Arc<DmaBuffer>,
    stored: u32,
    taken: u32,
    _function: Function,
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
struct RawCompletion {
    tag: u16,
    status: u8,
    t1: u64,
    t2: u64,
    arrival: u64,
    bytes: u64,
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

/// A word of an operation with a root, laid out as docs/isa.md says. `numbers` are source, destination, bytes and extent.
fn word(operation: u8, tag: u16, root: u16, operands: u8, numbers: [u64; 4]) -> [u8; 64] {
    let mut word = [0; 64];
    word[0] = 1;
    word[1] = operation;
    word[2..4].copy_from_slice(&tag.to_le_bytes());
    word[6..8].copy_from_slice(&root.to_le_bytes());
    word[13] = operands;
    for (at, number) in (16..).step_by(8).zip(numbers) {
        word[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }
    let sum = crc32c(&word[..60]);
    word[60..].copy_from_slice(&sum.to_le_bytes());
    word
}

fn barrier(tag: u16) -> [u8; 64] {
    word(2, tag, 0, 0, [0, 0, 0, 0])
}

impl RawCard {
    fn open(fabric: &Fabric, node: u32, domain: &Domain) -> Self {
        let function = in_process::attach(fabric.endpoint(node), domain, &format!("raw {node}")).unwrap();
        function.set_bus_master(true).unwrap();
        let registers = function.window(BarIndex::new(0).unwrap()).unwrap();
        let rings = domain.allocate(8192, 4096).unwrap();
        let data = domain.allocate(1 << 20, 4096).unwrap();
        let iova = rings.iova().0;
        for (offset, value) in [
            (0x00, iova as u32),
            (0x04, (iova >> 32) as u32),
            (0x08, (iova + 4096) as u32),
            (0x0c, ((iova + 4096) >> 32) as u32),
            (0x10, DEPTH),
            (0x14, 1),
        ] {
            registers.write_u32(QUEUE + offset, value).unwrap();
        }
        assert_eq!(registers.read_u32(QUEUE + 0x14).unwrap(), 1, "the queue is live");
        registers.write_u32(CONTROL, 1).unwrap();
        RawCard { registers, rings, data, stored: 0, taken: 0, _function: function }
    }

    fn store(&mut self, word: &[u8; 64]) {
        self.rings.write((self.stored % DEPTH) as usize * 64, word).unwrap();
        self.stored += 1;
    }

    fn ring(&self) {
        self.registers.write_u32(QUEUE + 0x18, self.stored).unwrap();
    }

    fn take(&mut self) -> Option<RawCompletion> {
        let mut bytes = [0; 32];
        self.rings.read(4096 + (self.taken % DEPTH) as usize * 32, &mut bytes).unwrap();
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let phase = word(24) >> 63 == 1;
        if phase != (self.taken / DEPTH % 2 == 0) {
            return None;
        }
        self.taken += 1;
        self.registers.write_u32(QUEUE + 0x1c, self.taken).unwrap();
        let cycles = |at: usize| word(at) & 0xff_ffff_ffff;
        Some(RawCompletion {
            tag: (word(0) >> 48) as u16,
            status: (word(24) >> 40) as u8,
            t1: cycles(8),
            t2: cycles(16),
            arrival: cycles(24),
            bytes: word(8) >> 40 | (word(16) >> 40) << 24,
        })
    }

    /// Moves `data` between host and card memory with copy instructions of at most 1 MiB.
    fn write_memory(&mut self, address: u64, data: &[u8]) {
        self.data.write(0, data).unwrap();
        self.run(&word(24, 0x77, 0, 0x01, [self.data.iova().0, address, data.len() as u64, 0]));
    }

    fn read_memory(&mut self, address: u64, bytes: usize) -> Vec<u8> {
        self.run(&word(24, 0x78, 0, 0x10, [address, self.data.iova().0, bytes as u64, 0]));
        let mut data = vec![0; bytes];
        self.data.read(0, &mut data).unwrap();
        data
    }

    fn run(&mut self, word: &[u8; 64]) {
        self.store(word);
        self.ring();
        let completion = self.take().expect("it completes at once");
        assert_eq!(completion.status, 0, "{completion:?}");
    }
}

fn fabric(cards: u32) -> Vec<RawCard> {
    let fabric = Fabric::new(Profile::optweb(cards)).unwrap();
    let domain = domain();
    (0..cards).map(|node| RawCard::open(&fabric, node, &domain)).collect()
}

/// Two barriers, then `words` on each card; the completions behind the barriers.
fn run_after_barriers(cards: &mut [RawCard], words: impl Fn(u16) -> Vec<[u8; 64]>) -> Vec<Vec<RawCompletion>> {
    for card in cards.iter_mut() {
        card.store(&barrier(1));
        card.store(&barrier(2));
        for word in words(3) {
            card.store(&word);
        }
    }
    cards.iter().for_each(RawCard::ring);
    let mut all = Vec::new();
    for card in cards {
        let mut taken: Vec<RawCompletion> = std::iter::from_fn(|| card.take()).collect();
        assert!(taken.len() > 2, "{taken:?}");
        taken.drain(..2);
        assert!(taken.iter().all(|completion| completion.status == 0), "{taken:?}");
        all.push(taken);
    }
    all
}

#[test]
fn barrier_takes_what_the_paper_says() {
    for completions in run_after_barriers(&mut fabric(4), |tag| vec![barrier(tag)]) {
        // 0.04 us and 0.40 us at 5 ns a cycle.
        let expected = RawCompletion { tag: 3, status: 0, t1: 8, t2: 80, arrival: 80, bytes: 0 };
        assert_eq!(completions, [expected]);
    }
}

#[test]
fn eager_allgather_moves_the_bytes_in_the_published_time() {
    let mut cards = fabric(4);
    let block = |rank: usize| -> Vec<u8> { (0..64).map(|byte| (rank * 64 + byte) as u8).collect() };
    for (rank, card) in cards.iter_mut().enumerate() {
        card.write_memory(0, &block(rank));
    }
    // Operation 10, destination striped.
    let all = run_after_barriers(&mut cards, |tag| vec![word(10, tag, 0, 0x20, [0, K, 64, 0])]);
    for completions in &all {
        let [it] = completions[..] else { panic!("{completions:?}") };
        // 0.32 us, 0.71 us to arrive, 1.10 us with the signals back.
        assert_eq!((it.t1, it.arrival, it.t2), (64, 142, 220));
        assert_eq!(it.bytes, 6 * 64);
    }
    for card in &mut cards {
        for rank in 0..4 {
            assert_eq!(card.read_memory(K + 2 * K * rank as u64, 64), block(rank));
        }
    }
}

#[test]
fn rendezvous_comes_out_at_0_80_us() {
    let mut cards = fabric(4);
    for card in &cards {
        card.registers.write_u32(0x110c, 0).unwrap();
    }
    let all = run_after_barriers(&mut cards, |tag| vec![word(10, tag, 0, 0x20, [0, K, 64, 0])]);
    for completions in all {
        let start_up = completions[0].t1 + (completions[0].t2 - completions[0].t1) / 2;
        assert_eq!(start_up * 5, 805);
    }
}

#[test]
fn words_that_are_not_instructions_are_refused_by_status() {
    let mut cards = fabric(2);
    let mut torn = barrier(9);
    torn[40] ^= 1;
    let mut old = barrier(9);
    old[0] = 9;
    let sum = crc32c(&old[..60]);
    old[60..].copy_from_slice(&sum.to_le_bytes());
    for (bad, status) in [
        (torn, 1),
        (old, 2),
        (word(99, 9, 0, 0, [0, 0, 0, 0]), 3),
        (word(2, 9, 1, 0, [0, 0, 0, 0]), 4),
        (word(10, 9, 0, 0, [8 << 30, 0, 64, 0]), 8),
        (word(24, 9, 0, 0x01, [0xdead_0000_0000, 0, 64, 0]), 11),
        (word(24, 9, 0, 0x10, [0, 0xdead_0000_0000, 64, 0]), 12),
        (word(6, 9, 5, 0, [0, 0, 64, 0]), 7),
    ] {
        let card = &mut cards[0];
        card.store(&bad);
        card.ring();
        let completion = card.take().unwrap();
        assert_eq!((completion.tag, completion.status), (9, status));
    }
}

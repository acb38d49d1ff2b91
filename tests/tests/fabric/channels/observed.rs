//! Interrupts, cards that lie, and hosts that break the rules.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fpga_driver::Error as CardError;
use fpga_driver::channel::{Error, Network};
use fpga_hal::endpoint::{DmaFault, DmaPort, DmaProgress, DmaTag, Interposer, InterruptPort};
use fpga_hal::{BarIndex, Endpoint, Function, Iova};
use fpga_mock::ChannelCards;
use fpga_mock::circus::Profile;
use fpga_regs::channel::{self as registers, end, slot};
use fpga_tests::altered::altered;

use super::{PATIENCE, attach, cards, functions, read, settings};

/// Where the mock has its block.
const BLOCK: u64 = 0x4000;

/// Counts interrupts and what asks for them, and alters what a card writes.
struct Observed {
    card: Arc<dyn Endpoint>,
    counts: Arc<Counts>,
    /// All writes of 8 bytes to host memory are this instead.
    words: Option<u64>,
}

/// What was seen on all cards.
#[derive(Default)]
struct Counts {
    interrupts: AtomicU64,
    /// Writes of INTERRUPT_ARM of the first end of a card.
    armed: AtomicU64,
}

struct ObservedPorts {
    dma: Arc<dyn DmaPort>,
    interrupts: Arc<dyn InterruptPort>,
    counts: Arc<Counts>,
    /// All writes of 8 bytes to host memory are this instead.
    words: Option<u64>,
}

impl DmaPort for ObservedPorts {
    fn read(&self, tag: DmaTag, iova: Iova, data: &mut [u8]) -> DmaProgress {
        self.dma.read(tag, iova, data)
    }

    fn write(&self, tag: DmaTag, iova: Iova, data: &[u8]) -> DmaProgress {
        match self.words {
            Some(word) if data.len() == 8 => self.dma.write(tag, iova, &word.to_le_bytes()),
            _ => self.dma.write(tag, iova, data),
        }
    }
}

impl InterruptPort for ObservedPorts {
    fn raise(&self, vector: u16) {
        self.counts.interrupts.fetch_add(1, Ordering::Relaxed);
        self.interrupts.raise(vector);
    }

    fn set_intx(&self, asserted: bool) {
        self.interrupts.set_intx(asserted);
    }
}

impl Interposer for Observed {
    fn behind(&self) -> &dyn Endpoint {
        &*self.card
    }

    fn attach(&self, dma: Arc<dyn DmaPort>, interrupts: Arc<dyn InterruptPort>) {
        let ports = Arc::new(ObservedPorts { dma, interrupts, counts: Arc::clone(&self.counts), words: self.words });
        self.card.attach(Arc::clone(&ports) as Arc<dyn DmaPort>, ports);
    }

    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) {
        self.card.bar_write(bar, offset, data);
        if bar.index() == 0 && offset == BLOCK + u64::from(end::base(0) + end::INTERRUPT_ARM) {
            self.counts.armed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The cards of a network, all of which write `words`.
fn observed(cards: &ChannelCards, words: Option<u64>) -> (Vec<Function>, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    let observe = |node| {
        let observed = Observed { card: cards.endpoint(node), counts: Arc::clone(&counts), words };
        Arc::new(observed) as Arc<dyn Endpoint>
    };
    (attach((0..cards.nodes()).map(observe)), counts)
}

#[test]
fn data_paths_read_no_register() {
    let cards = cards(&Profile::complete(), 2, 1);
    let reads = Arc::new(AtomicU64::new(0));
    let observe = |node| Arc::new(Counted { card: cards.endpoint(node), reads: Arc::clone(&reads) }) as Arc<_>;
    let mut network = Network::open(attach((0..2).map(observe).collect::<Vec<Arc<dyn Endpoint>>>())).unwrap();
    network.load().unwrap();
    let mut reader = network.reader(1, settings(0, 4, 256)).unwrap();
    let mut writer = network.writer(0, 1, settings(0, 4, 256)).unwrap();
    let before = reads.load(Ordering::Relaxed);
    assert!(before > 0);
    for round in 0..200_u32 {
        writer.write(&round.to_le_bytes(), PATIENCE).unwrap();
        assert_eq!(read(&mut reader, 4), round.to_le_bytes());
    }
    assert_eq!(reads.load(Ordering::Relaxed), before);
}

/// Counts reads of registers.
struct Counted {
    card: Arc<dyn Endpoint>,
    reads: Arc<AtomicU64>,
}

impl Interposer for Counted {
    fn behind(&self) -> &dyn Endpoint {
        &*self.card
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.card.bar_read(bar, offset, data);
    }
}

#[test]
fn a_reader_sleeps_until_the_interrupt() {
    let cards = cards(&Profile::complete(), 2, 1);
    let (functions, counts) = observed(&cards, None);
    let mut network = Network::open(functions).unwrap();
    network.load().unwrap();
    let mut reader = network.reader(1, settings(0, 4, 16)).unwrap();
    let mut writer = network.writer(0, 1, settings(0, 4, 16)).unwrap();
    writer.write(&[1; 4], PATIENCE).unwrap();
    read(&mut reader, 4);
    // Nobody waited, so nobody asked for an interrupt.
    assert_eq!(counts.interrupts.load(Ordering::Relaxed), 0);
    let before = counts.armed.load(Ordering::Relaxed);
    let reading = thread::spawn(move || read(&mut reader, 4));
    let began = Instant::now();
    while counts.armed.load(Ordering::Relaxed) == before {
        assert!(began.elapsed() < PATIENCE, "it does not ask for an interrupt");
        thread::sleep(Duration::from_millis(1));
    }
    writer.write(&[2; 4], PATIENCE).unwrap();
    assert_eq!(reading.join().unwrap(), [2; 4]);
    assert_eq!(counts.interrupts.load(Ordering::Relaxed), 1);
}

/// As after a reset of the channels behind the driver's back, when registers can be read.
#[test]
fn an_end_that_the_card_has_closed_is_told() {
    let cards = cards(&Profile::complete(), 2, 1);
    let functions = functions(&cards);
    let windows: Vec<_> = functions.iter().map(|one| one.window(BarIndex::new(0).unwrap()).unwrap()).collect();
    let mut network = Network::open(functions).unwrap();
    network.load().unwrap();
    let mut reader = network.reader(1, settings(0, 4, 16)).unwrap();
    let mut writer = network.writer(0, 1, settings(0, 4, 16)).unwrap();
    for window in windows {
        window.write_u32(BLOCK + u64::from(end::base(0) + end::ENABLE), 0).unwrap();
    }
    for error in [writer.write(&[2; 1 << 16], PATIENCE).unwrap_err(), reader.read(&mut [0; 4], PATIENCE).unwrap_err()] {
        assert!(matches!(&error, Error::Stopped { why, .. } if why.contains("reset")), "{error}");
    }
}

#[test]
fn an_armed_end_raises_its_interrupt_once() {
    let cards = cards(&Profile::complete(), 2, 1);
    let (functions, counts) = observed(&cards, None);
    let window = functions[1].window(BarIndex::new(0).unwrap()).unwrap();
    let mut network = Network::open(functions).unwrap();
    network.load().unwrap();
    let _reader = network.reader(1, settings(0, 4, 64)).unwrap();
    let mut writer = network.writer(0, 1, settings(0, 4, 64)).unwrap();
    let arm = |seen| window.write_u32(BLOCK + u64::from(end::base(0) + end::INTERRUPT_ARM), seen).unwrap();
    arm(0);
    assert_eq!(counts.interrupts.load(Ordering::Relaxed), 0);
    writer.write(&[1; 4], PATIENCE).unwrap();
    writer.write(&[1; 4], PATIENCE).unwrap();
    assert_eq!(counts.interrupts.load(Ordering::Relaxed), 1);
    // At once, if there is more already; not for what was seen.
    arm(1);
    assert_eq!(counts.interrupts.load(Ordering::Relaxed), 2);
    arm(2);
    assert_eq!(counts.interrupts.load(Ordering::Relaxed), 2);
    writer.write(&[1; 4], PATIENCE).unwrap();
    assert_eq!(counts.interrupts.load(Ordering::Relaxed), 3);
}

/// The cards of a network, on all of which a register of the block reads as `value`.
fn saying(cards: &ChannelCards, register: u32, value: u32) -> Vec<Function> {
    let values = [(BLOCK + u64::from(register), value)];
    attach((0..cards.nodes()).map(|node| altered(cards.endpoint(node), 0, &values)))
}

#[test]
fn capabilities_that_cannot_be_are_refused() {
    let refusal =
        |register, value| Network::open(saying(&cards(&Profile::published(), 2, 1), register, value)).unwrap_err();
    for (register, value, name) in [
        (registers::NODE, 2, "NODE"),
        (registers::COLUMNS, 0, "COLUMNS"),
        (registers::COLUMNS, 17, "COLUMNS"),
        (registers::ROWS, 0, "ROWS"),
        (registers::PORTS, 4, "PORTS"),
        (registers::WORD_BYTES_MAX, 0, "WORD_BYTES_MAX"),
        (registers::WORD_BYTES_MAX, 65, "WORD_BYTES_MAX"),
        (registers::ENDS, 0, "ENDS"),
        (registers::ENDS, 57, "ENDS"),
        (registers::SLOT_BYTES_MAX, 64, "SLOT_BYTES_MAX"),
        (registers::SLOT_BYTES_MAX, 4097, "SLOT_BYTES_MAX"),
        (registers::SLOTS_MAX, 1, "SLOTS_MAX"),
        (registers::DMA_BITS, 11, "DMA_BITS"),
        (registers::DMA_BITS, 65, "DMA_BITS"),
    ] {
        let error = refusal(register, value);
        let Error::Card(CardError::BadCapability { register, value: found, .. }) = &error else {
            panic!("{name} reads {value}: {error:?}")
        };
        assert_eq!((*register, *found), (name, value));
    }
    let (status, enable) = (registers::STATUS, end::base(0) + end::ENABLE);
    for register in [
        registers::MAGIC,
        registers::VERSION,
        registers::NODE,
        registers::COLUMNS,
        registers::ROWS,
        registers::SLOTS_MAX,
        status,
        enable,
    ] {
        let (place, error) = (BLOCK + u64::from(register), refusal(register, u32::MAX));
        assert!(
            matches!(&error, Error::Card(CardError::AllOnes { register, .. }) if *register == place),
            "{place:#x}: {error:?}"
        );
    }
    assert!(matches!(refusal(registers::MAGIC, 0), Error::NoChannels { .. }));
    assert!(matches!(refusal(registers::VERSION, 0x2_0000), Error::Card(CardError::Version { .. })));
    for (register, value) in [(status, 0), (enable, 1)] {
        let error = refusal(register, value);
        assert!(matches!(error, Error::Card(CardError::Timeout { .. })), "{register:#x}: {error:?}");
    }
    // Both cards say that they are card 0.
    let cards = cards(&Profile::published(), 2, 1);
    let opened = Network::open(saying(&cards, registers::NODE, 0));
    assert!(matches!(opened, Err(Error::Card(CardError::Mismatch { .. }))));
    // A table that does not keep what is written.
    let mut network = Network::open(saying(&cards_of_two(), registers::ROUTES_OFFSET, 3)).unwrap();
    assert!(matches!(network.load(), Err(Error::RouteLost { to: 0, found: 3, .. })));
}

/// A slot holds an eighth of the words if the card has slots that large, and up to 64 words can be messages of their own.
#[test]
fn rings_are_as_large_as_their_depth_needs() {
    let cards = cards(&Profile::complete(), 2, 1);
    let functions = functions(&cards);
    let window = functions[0].window(BarIndex::new(0).unwrap()).unwrap();
    let mut network = Network::open(functions).unwrap();
    network.load().unwrap();
    for (word, depth, bytes, slots) in [
        (4, 64, 64, 64),
        (64, 1, 128, 2),
        (8, 1024, 1024, 64),
        (64, 1024, 4096, 64),
        (64, 8192, 4096, 256),
        (1, 3, 64, 4),
    ] {
        let end = network.reader(0, settings(0, word, depth)).unwrap();
        let read = |register| window.read_u32(BLOCK + u64::from(end::base(0) + register)).unwrap();
        assert_eq!((read(end::SLOT_BYTES), read(end::SLOTS)), (bytes, slots), "{depth} words of {word} bytes");
        drop(end);
    }
}

#[test]
fn a_depth_beyond_all_slots_is_refused() {
    // A slot holds one word of 64 bytes.
    let mut network = Network::open(saying(&cards_of_two(), registers::SLOT_BYTES_MAX, 128)).unwrap();
    network.load().unwrap();
    for depth in [1 << 31, (1 << 31) + 1, u32::MAX] {
        let error = network.reader(0, settings(0, 64, depth)).unwrap_err();
        assert!(matches!(error, Error::Card(CardError::BadArgument { .. })), "{error}");
    }
}

fn cards_of_two() -> ChannelCards {
    cards(&Profile::published(), 2, 1)
}

#[test]
fn a_hostile_card_gives_errors() {
    let wait = Duration::from_millis(20);
    let words = [
        u64::MAX,
        0,
        1 << 32,
        1000,
        slot::encode(1, 0, false),
        slot::encode(1, 57, false),
        slot::encode(1, u32::MAX >> 1, false),
        slot::encode(1, 4, true),
        slot::encode(2, 4, false),
        slot::encode(u32::MAX, 4, false),
    ];
    for word in words {
        let cards = cards_of_two();
        let (functions, _) = observed(&cards, Some(word));
        let mut network = Network::open(functions).unwrap();
        network.load().unwrap();
        let mut reader = network.reader(1, settings(0, 4, 4)).unwrap();
        let mut writer = network.writer(0, 1, settings(0, 4, 4)).unwrap();
        // One message after another, so that the ring goes round.
        let written = (0..20).try_for_each(|_| writer.write(&[7; 4], wait)).and_then(|()| writer.flush(wait));
        let error = written.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. } | Error::TimedOut { .. }), "{word:#x}: {error}");
        let error = reader.read_exact(&mut [0; 64], wait).unwrap_err();
        assert!(matches!(error, Error::Invalid { .. } | Error::TimedOut { .. }), "{word:#x}: {error}");
        if matches!(error, Error::Invalid { .. }) {
            assert!(matches!(reader.try_read(&mut [0; 4]), Err(Error::Stopped { .. })));
        }
    }
}

#[test]
fn a_slot_with_part_of_a_word_is_refused() {
    let cards = cards_of_two();
    let (functions, _) = observed(&cards, Some(slot::encode(1, 6, false)));
    let mut network = Network::open(functions).unwrap();
    network.load().unwrap();
    let mut reader = network.reader(1, settings(0, 4, 4)).unwrap();
    network.writer(0, 1, settings(0, 4, 4)).unwrap().write(&[7; 4], PATIENCE).unwrap();
    let error = reader.read(&mut [0; 8], PATIENCE).unwrap_err();
    assert!(matches!(error, Error::Invalid { what: "header of a slot", .. }), "{error}");
    assert!(error.to_string().contains("in words of 4 bytes"), "{error}");
    assert!(matches!(reader.try_read(&mut [0; 4]), Err(Error::Stopped { .. })));
}

#[test]
fn a_host_that_breaks_the_rules_stops_its_own_end() {
    let cards = cards_of_two();
    let functions = functions(&cards);
    let window = functions[0].window(BarIndex::new(0).unwrap()).unwrap();
    let mut network = Network::open(functions).unwrap();
    network.load().unwrap();
    let at = |register: u32| BLOCK + u64::from(end::base(0) + register);
    // More slots than the ring has, and a slot without a header.
    for (doorbell, fault) in [(1 << 20, 4), (1, 3)] {
        let mut writer = network.writer(0, 1, settings(0, 4, 16)).unwrap();
        window.write_u32(at(end::DOORBELL), doorbell).unwrap();
        assert_eq!(window.read_u32(at(end::FAULT)).unwrap(), fault);
        assert!(matches!(writer.write(&[0; 1 << 12], PATIENCE), Err(Error::Stopped { .. })));
    }
    // Invalid registers: the end stays closed.
    for (register, value) in [
        (end::SLOT_BYTES, 32),
        (end::SLOT_BYTES, 96),
        (end::SLOTS, 3),
        (end::WORD_BYTES, 65),
        (end::CHANNEL, 256),
        (end::PEER, 2),
        (end::DIRECTION, 2),
        (end::RING_BASE_LO, 32),
    ] {
        for (register, value) in
            [(end::SLOT_BYTES, 64), (end::SLOTS, 2), (end::WORD_BYTES, 4), (end::CHANNEL, 0), (end::PEER, 1)]
        {
            window.write_u32(at(register), value).unwrap();
        }
        window.write_u32(at(end::DIRECTION), 0).unwrap();
        window.write_u32(at(end::RING_BASE_LO), 0).unwrap();
        window.write_u32(at(register), value).unwrap();
        window.write_u32(at(end::ENABLE), 1).unwrap();
        assert_eq!(window.read_u32(at(end::ENABLE)).unwrap(), 0, "{register:#x} is {value}");
    }
}

#[test]
fn an_end_whose_opening_fails_is_given_back() {
    struct Garbled {
        card: Arc<dyn Endpoint>,
        is_due: AtomicBool,
    }
    impl Interposer for Garbled {
        fn behind(&self) -> &dyn Endpoint {
            &*self.card
        }

        fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
            self.card.bar_read(bar, offset, data);
            let is_enable = bar.index() == 0 && offset == BLOCK + u64::from(end::base(0) + end::ENABLE);
            if is_enable && self.is_due.swap(false, Ordering::Relaxed) {
                data.fill(0xff);
            }
        }
    }
    let cards = cards_of_two();
    let garbled = Arc::new(Garbled { card: cards.endpoint(0), is_due: AtomicBool::new(false) });
    let functions = attach([Arc::clone(&garbled) as Arc<dyn Endpoint>, cards.endpoint(1)]);
    let window = functions[0].window(BarIndex::new(0).unwrap()).unwrap();
    let mut network = Network::open(functions).unwrap();
    network.load().unwrap();
    garbled.is_due.store(true, Ordering::Relaxed);
    let error = network.reader(0, settings(0, 4, 16)).unwrap_err();
    assert!(matches!(error, Error::Card(CardError::AllOnes { .. })), "{error:?}");
    let _reader = network.reader(0, settings(0, 4, 16)).unwrap();
    let enable = BLOCK + u64::from(end::base(0) + end::ENABLE);
    assert_eq!(window.read_u32(enable).unwrap(), 1, "the first end is used again");
}

#[test]
fn a_bus_that_refuses_dma_stops_the_end() {
    struct Refusing(Arc<dyn Endpoint>);
    struct Ports;
    impl DmaPort for Ports {
        fn read(&self, _: DmaTag, iova: Iova, _: &mut [u8]) -> DmaProgress {
            DmaProgress::Done(Err(DmaFault::Unmapped { iova }))
        }
        fn write(&self, _: DmaTag, iova: Iova, _: &[u8]) -> DmaProgress {
            DmaProgress::Done(Err(DmaFault::Unmapped { iova }))
        }
    }
    impl Interposer for Refusing {
        fn behind(&self) -> &dyn Endpoint {
            &*self.0
        }

        fn attach(&self, _: Arc<dyn DmaPort>, interrupts: Arc<dyn InterruptPort>) {
            self.0.attach(Arc::new(Ports), interrupts);
        }
    }
    let cards = cards_of_two();
    let refusing = |node| Arc::new(Refusing(cards.endpoint(node))) as Arc<dyn Endpoint>;
    let mut network = Network::open(attach((0..2).map(refusing))).unwrap();
    network.load().unwrap();
    let mut writer = network.writer(0, 1, settings(0, 4, 4)).unwrap();
    let error = writer.write(&[0; 1 << 10], PATIENCE).unwrap_err();
    assert!(error.to_string().contains("refused a read"), "{error}");
}

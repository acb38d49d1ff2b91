//! The sequencer behind the engine: its map, what its instructions cost, and what the host is told of faults.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use cmdseq::{Instruction, Operand, Status, Table, Tables, instruction};
use fpga_driver::{Bound, Card, Cluster, Error, Feed, Pipe, PipeError, PipeWriter, State, xdma};
use fpga_hal::memory::domain::DEFAULT_RANGES;
use fpga_hal::{BarIndex, Domain, Function, Window, in_process};
use fpga_mock::xdma::{Misanswer, Shape, XdmaCards};
use fpga_mock::{Accesses, Fabric, Fault, Profile, Recorder, Shell, When};
use fpga_regs::xdma::Status as EngineStatus;
use fpga_tests::altered::altered;
use fpga_tests::run::domain;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{PATIENCE, SHORT, pattern};

const NODES: u32 = 2;

/// A fabric, and its cards behind engines.
pub(crate) struct Rig {
    fabric: Fabric,
    pub(crate) cards: XdmaCards,
}

impl Rig {
    fn new() -> Self {
        Rig::with(Shell::AlveoXdma, Shape::default())
    }

    pub(crate) fn with(shell: Shell, shape: Shape) -> Self {
        Rig::of(Profile { shell, ..Profile::optweb(NODES) }, shape)
    }

    fn of(profile: Profile, shape: Shape) -> Self {
        let fabric = Fabric::new(profile).unwrap();
        let cards = XdmaCards::before(&fabric, shape);
        Rig { fabric, cards }
    }

    pub(crate) fn function(&self, node: u32) -> Function {
        in_process::attach(self.cards.endpoint(node), &domain(), &format!("node {node}")).unwrap()
    }

    pub(crate) fn card(&self, node: u32) -> Card {
        let mut card = Card::open(self.function(node)).unwrap();
        card.set_timeout(PATIENCE);
        card
    }
}

pub(crate) fn window(function: &Function, bar: u8) -> Window {
    function.window(BarIndex::new(bar).unwrap()).unwrap()
}

pub(crate) fn nop(card: &mut Card) -> Result<(), Error> {
    card.run([Instruction::nop()], PATIENCE).map(drop)
}

/// Typed by hand from docs/registers.md and docs/boards.md.
#[test]
fn the_user_bar_is_as_its_map_says() {
    let rig = Rig::new();
    let function = rig.function(1);
    let user = window(&function, 0);
    for (offset, expected) in [
        // An accelerator, the sequencer 4 KiB on, the description of its rings 10 KiB further on, which ends the list.
        (0x0000, 0x1000_0000_1000_0000),
        (0x0008, 0x9a57_7f1f_4f8b_2c10),
        (0x0010, 0x6fe0_a4a1_5a0c_4d0e),
        (0x1000, 0x2000_0000_2800_0001),
        (0x1008, 0x8e0b_93d1_a65e_4f08),
        (0x1010, 0xc7e3_b1d2_2f64_47f5),
        (0x3800, 0x2000_0100_0000_0002),
        (0x3808, 0x8a72_60c4_e917_b35d),
        (0x3810, 0xd1f0_b6a4_3c59_4e8e),
        // RING, version 2.0; at 0x4000, 48 KiB; for the sequencer, for the engine; user interrupt 0; BAR 0.
        (0x3818, 0x0002_0000_474e_4952),
        (0x3820, 0x0000_c000_0000_4000),
        (0x3828, 0x0000_0002_0000_0000),
        (0x3830, 0x0000_0100_0000_0000),
        (0x3838, 0),
        // Where drivers of the engine look for its identifiers, there is nothing.
        (0x2000, 0),
        (0x3000, 0),
        (0xf_fff8, 0),
    ] {
        let halves = [0, 4].map(|half| u64::from(user.read_u32(offset + half).unwrap()));
        assert_eq!((user.read_u64(offset).unwrap(), halves[0] | halves[1] << 32), (expected, expected), "{offset:#x}");
        user.write_u64(offset, !expected).unwrap();
        assert_eq!(user.read_u64(offset).unwrap(), expected, "{offset:#x} is read-only");
    }
    // Node 1 of 2, and rings on the card but not in host memory.
    assert_eq!((user.read_u32(0x1034).unwrap(), user.read_u32(0x1038).unwrap()), (1, 2));
    assert_eq!(user.read_u32(0x102c).unwrap() & 0b111, 0b010);
    assert_eq!(user.read_u32(0x10a8).unwrap(), 0, "it masters no bus");
    for offset in (0x4000..0x1_0000).step_by(0x1ffc) {
        user.write_u32(offset, 0x1234_5678 ^ offset as u32).unwrap();
    }
    for offset in (0x4000..0x1_0000).step_by(0x1ffc) {
        assert_eq!(user.read_u32(offset).unwrap(), 0x1234_5678 ^ offset as u32);
    }
}

/// A card that is not opened, because its host lacks memory for a part of it, leaves no channel running.
#[test]
fn channels_are_stopped_if_there_is_no_memory() {
    let rig = Rig::new();
    let refused = (1..100).take_while(|limit| {
        let domain = Domain::in_process_with(&DEFAULT_RANGES, *limit);
        let function = in_process::attach(rig.cards.endpoint(0), &domain, "node 0").unwrap();
        let opened = Card::open(function.clone());
        if let Err(error) = &opened {
            // CONTROL of the channels to the host, in AMD's engine.
            let dma = window(&function, 2);
            let control = [0x1004, 0x1104].map(|register| dma.read_u32(register).unwrap());
            assert!(control.iter().all(|control| control & 1 == 0), "{limit}: {control:x?}, {error}");
        }
        opened.is_err()
    });
    assert!((2..99).contains(&refused.count()));
}

#[test]
fn memory_for_rings_that_holds_none_is_refused() {
    let rig = Rig::new();
    for bytes in [64, 128, 191, 192] {
        let endpoint = altered(rig.cards.endpoint(0), 0, &[(0x3824, bytes)]);
        let error = Card::open(in_process::attach(endpoint, &domain(), "node 0").unwrap()).unwrap_err();
        let expected = "room for rings, and for an instruction beside them";
        assert!(matches!(error, Error::BadCapability { expected: found, .. } if found == expected), "{bytes}: {error}");
    }
}

/// The engine, the window in BAR 4 and the sequencer reach the same memory; the engine reaches the rings too.
#[test]
fn there_is_one_memory() {
    let rig = Rig::new();
    let function = rig.function(0);
    let mut card = Card::open(function.clone()).unwrap();
    let data = pattern(1, 3000);
    card.write_memory(5, &data).unwrap();
    assert_eq!(rig.cards.read_memory(0, 5, 3000).unwrap(), data);
    card.run([Instruction::copy(Operand::card(5), Operand::card(0x1_0000), 3000)], PATIENCE).unwrap();
    let bypass = window(&function, 4);
    for (at, word) in (0x1_0000..).step_by(4).zip(data.as_chunks::<4>().0) {
        assert_eq!(bypass.read_u32(at).unwrap().to_le_bytes(), *word);
    }
    bypass.write_u32(0x1_0004, 7).unwrap();
    let mut back = [0; 4];
    card.read_memory(0x1_0004, &mut back).unwrap();
    assert_eq!(back, [7, 0, 0, 0]);
    drop(card);
    let user = window(&function, 0);
    user.write_u32(0x5004, 0xfeed).unwrap();
    let mut engine = xdma::Engine::open(function, xdma::Completion::Interrupt).unwrap();
    engine.read((1 << 40) + 0x1004, &mut back).unwrap();
    assert_eq!(u32::from_le_bytes(back), 0xfeed);
    engine.write((1 << 40) + 0xbffc, &[1, 2, 3, 4]).unwrap();
    assert_eq!(user.read_u32(0xfffc).unwrap(), 0x0403_0201);
    let outside = engine.write((1 << 40) + 0xbffd, &[1, 2, 3, 4]).unwrap_err();
    assert!(outside.to_string().contains("no card memory"), "{outside}");
}

/// Accesses of registers for `count` instructions, one by one.
fn accesses(shell: Shell, shape: Shape, count: u64) -> (Feed, Accesses) {
    let fabric = Fabric::new(Profile { shell, ..Profile::optweb(NODES) }).unwrap();
    let engines = shell.has_engine().then(|| XdmaCards::before(&fabric, shape));
    let recorder = Recorder::new(engines.map_or_else(|| fabric.endpoint(0), |cards| cards.endpoint(0)));
    let endpoint = Arc::<Recorder>::clone(&recorder);
    let mut card = Card::open(in_process::attach(endpoint, &domain(), "recorded").unwrap()).unwrap();
    let queue = card.queue_mut();
    recorder.take();
    for _ in 0..count {
        let token = queue.submit(Instruction::nop()).unwrap();
        assert_eq!(queue.wait(&token, PATIENCE).unwrap().status, Status::Done);
    }
    (card.feed(), recorder.take())
}

/// What the table in docs/cost.md says. Every half ring, the host says besides how many completions it has taken.
#[test]
fn an_instruction_costs_as_many_accesses_as_its_way_needs() {
    let engine = |c2h| Shape { c2h, ..Shape::default() };
    const COUNT: u64 = 640;
    for (shell, shape, feed, reads, writes, announcements) in [
        (Shell::Mock, engine(2), Feed::HostRing, 0, 1, COUNT / 512),
        (Shell::AlveoBypass, engine(2), Feed::HostRing, 0, 1, COUNT / 512),
        (Shell::AlveoXdma, engine(2), Feed::CardRing, 0, 16 + 1 + 1, COUNT / 64),
        (Shell::AlveoBar4, engine(2), Feed::CardRing, 1, 16 + 1 + 1, COUNT / 64),
        (Shell::AlveoXdma, engine(1), Feed::Registers, 1 + 8 + 1, 16 + 1, COUNT / 64),
    ] {
        let (found, Accesses { reads: read, writes: written }) = accesses(shell, shape, COUNT);
        println!("{}: {} reads and {} writes for {COUNT} instructions", found.name(), read, written);
        assert_eq!((found, read), (feed, COUNT * reads));
        assert_eq!(written, COUNT * writes + announcements, "{feed:?}");
    }
}

/// Programs, tables and communicators are handed to the sequencer beside its rings, again and again.
#[test]
fn what_the_sequencer_reads_besides_instructions_is_on_the_card() {
    let rig = Rig::new();
    let mut card = rig.card(0);
    assert_eq!((card.capabilities().resident_words, card.capabilities().host_memory), (576, false));
    for round in 0..5 {
        let fill = Instruction::fill(Operand::card(64 * round), 64, round + 1);
        let program: Vec<_> = std::iter::repeat_n(Instruction::nop(), 500).chain([fill]).collect();
        let resident = card.store(round as u32, program).unwrap();
        card.run_resident(&resident, [0; 3]).unwrap();
        assert_eq!(rig.cards.read_memory(0, 64 * round, 8).unwrap(), (round + 1).to_le_bytes());
    }
    let long = card.store(0, vec![Instruction::nop(); 577]).unwrap_err();
    assert!(matches!(long, Error::BadArgument { what: "program length", .. }), "{long}");
}

/// Tables that have no room beside the rings at the same time: the first are read before others take their place.
#[test]
fn more_tables_than_have_room_beside_the_rings_are_loaded() {
    const CARDS: u32 = 160;
    let rig = Rig::of(Profile { shell: Shell::AlveoXdma, ..Profile::circus(10, 16) }, Shape::default());
    let mut cluster = Cluster::open((0..CARDS).map(|node| rig.function(node)).collect()).unwrap();
    let block = |slot: u16| 64 - u64::from(slot);
    let root = cluster.card_mut(0);
    let tables: Tables = (0..root.capabilities().tables as u16)
        .map(|slot| (slot, Table::packed((0..CARDS).map(|_| block(slot)), 64)))
        .collect();
    let all: usize = tables.values().map(|table| table.encode().len()).sum();
    assert!(all > root.capabilities().resident_words as usize * instruction::BYTES);
    let source: Vec<u8> = (0..CARDS as usize * 64).map(|at| (at % 251) as u8).collect();
    root.write_memory(0, &source).unwrap();
    root.load_tables(&tables).unwrap();
    // The last rank receives from the end of the source.
    let last = CARDS as usize - 1;
    for slot in tables.into_keys() {
        let into = |slot| Operand::card((1 << 20) + u64::from(slot) * 64);
        let tokens: Vec<_> = (0..CARDS as usize)
            .map(|node| {
                let table = if node == 0 { slot } else { 0 };
                let scatter = Instruction::scatterv(0, Operand::card(0), into(slot), block(slot), table);
                (node, cluster.card_mut(node).queue_mut().submit(scatter).unwrap())
            })
            .collect();
        for (node, token) in tokens {
            cluster.card_mut(node).wait(&token, PATIENCE).unwrap();
        }
        let mut found = [0; 64];
        cluster.card_mut(last).read_memory(into(slot).address, &mut found).unwrap();
        let mut expected = [0; 64];
        let bytes = block(slot) as usize;
        expected[..bytes].copy_from_slice(&source[last * 64..last * 64 + bytes]);
        assert_eq!(found, expected, "slot {slot}");
    }
}

#[test]
fn instructions_that_name_host_memory_are_refused_before_they_are_stored() {
    let rig = Rig::new();
    let mut card = rig.card(0);
    let buffer = card.allocate(4096).unwrap();
    let copy = Instruction::copy(Operand::host(buffer.iova().0), Operand::card(0), 4096);
    let bound = Bound::from(copy).holding(Arc::clone(&buffer));
    for refused in [
        card.run([bound.clone()], PATIENCE).map(drop).unwrap_err(),
        card.run([Bound::dangerously_unowned(copy)], PATIENCE).map(drop).unwrap_err(),
        card.store(0, [bound]).map(drop).unwrap_err(),
    ] {
        assert!(matches!(refused, Error::NoHostMemory { .. }), "{refused}");
    }
    assert_eq!((card.queue().in_flight(), Arc::strong_count(&buffer)), (0, 1));
    nop(&mut card).unwrap();
    let pipe = PipeWriter::open(card, Pipe::new(0, 1), SHORT).unwrap_err();
    let PipeError::Card(error @ Error::BadArgument { what: "card for a pipe", .. }) = pipe else { panic!("{pipe:?}") };
    let why = "): its sequencer does not reach host memory, which an end of a pipe needs";
    assert!(error.to_string().ends_with(why), "{error}");
}

/// A doorbell that overtakes its word: the checksum, or the tag, tells, and nothing else is run instead.
#[test]
fn a_doorbell_before_its_word_is_an_error_and_not_another_instruction() {
    // All of the word, or its last part, is late; in an empty ring, or where another instruction was before.
    for (words, before) in [(16, 0), (1, 0), (3, 0), (16, 1), (16, 127), (16, 128), (1, 200)] {
        let rig = Rig::new();
        let mut card = rig.card(0);
        rig.cards.write_memory(0, 0, &[9; 64]).unwrap();
        card.run(vec![Instruction::nop(); before], PATIENCE).unwrap();
        rig.cards.delay_words(0, words);
        let fill = Instruction::fill(Operand::card(0), 64, 0);
        let failed = card.run([fill], PATIENCE).unwrap_err();
        let is_told =
            matches!(&failed, Error::Failed { status: Status::BadChecksum, .. } | Error::BadCompletion { .. });
        assert!(is_told, "{words} late, {before} before: {failed}");
        assert_eq!(rig.cards.read_memory(0, 0, 64).unwrap(), [9; 64]);
        if card.state() != State::Running {
            card.abort().unwrap();
        }
        card.run([fill], PATIENCE).unwrap();
        assert_eq!(rig.cards.read_memory(0, 0, 64).unwrap(), [0; 64]);
    }
}

#[test]
fn an_engine_that_hangs_keeps_its_memory_until_a_reset() {
    let rig = Rig::new();
    let mut card = rig.card(0);
    card.write_memory(0, &[1; 10_000]).unwrap();
    card.set_timeout(SHORT);
    rig.cards.hang(0);
    let failed = card.write_memory(0, &[2; 100_000]).unwrap_err();
    let is_stuck = |error: &Error| {
        let Error::Engine(engine) = error else { return false };
        matches!(engine.downcast_ref(), Some(xdma::Error::Stuck { .. }))
    };
    assert!(is_stuck(&failed), "{failed:?}");
    assert!(is_stuck(&card.write_memory(0, &[2; 10]).unwrap_err()), "until a reset");
    // Instructions run all the same.
    nop(&mut card).unwrap();
    card.set_timeout(PATIENCE);
    card.reset().unwrap();
    let data = pattern(3, 100_000);
    card.write_memory(7, &data).unwrap();
    let mut back = vec![0; data.len()];
    card.read_memory(7, &mut back).unwrap();
    assert!(back == data);
    nop(&mut card).unwrap();
    assert_eq!(rig.cards.violations(0), []);
}

/// The channel that fetches completions hangs: a wait ends at its limit, or with the reason.
#[test]
fn a_channel_that_no_longer_brings_completions_is_told() {
    let rig = Rig::new();
    let mut card = rig.card(0);
    nop(&mut card).unwrap();
    rig.cards.hang(0);
    let late = card.run([Instruction::nop()], SHORT).unwrap_err();
    assert!(matches!(late, Error::Timeout { .. }), "{late}");
    card.reset().unwrap();
    nop(&mut card).unwrap();
    // The rings answer the engine with errors.
    rig.cards.fail_memory(0, 1 << 40..(1 << 40) + 0xc000);
    let failed = card.run([Instruction::nop()], PATIENCE).unwrap_err();
    assert!(matches!(failed, Error::Engine(_)), "{failed:?}");
    rig.cards.mend_memory(0);
    card.reset().unwrap();
    nop(&mut card).unwrap();
}

/// The channel that fetches completions is stopped: by a descriptor that does not come, of which it writes a word, or by a write
/// of its control register, of which it writes none.
#[test]
fn a_channel_that_has_stopped_is_told() {
    /// What clears bits of CONTROL of C2H 0 in the DMA BAR; the other channels follow at every 100h.
    const CONTROL_CLEAR: u64 = 0x100c;
    for (misanswer, expected) in [
        (Some(Misanswer::Unsupported), EngineStatus::DESCRIPTOR_ERROR_0),
        (Some(Misanswer::Poisoned), EngineStatus::DESCRIPTOR_ERROR_3),
        (None, EngineStatus::empty()),
    ] {
        let rig = Rig::new();
        let mut card = rig.card(0);
        for _ in 0..3 {
            nop(&mut card).unwrap();
        }
        if let Some(misanswer) = misanswer {
            rig.cards.misanswer(0, 0, misanswer);
        } else {
            let dma = window(card.function(), 2);
            let channels = 0..u64::from(Shape::default().c2h);
            channels.for_each(|channel| dma.write_u32(CONTROL_CLEAR + 0x100 * channel, 1).unwrap());
        }
        let failed = card.run([Instruction::nop()], Duration::from_secs(20)).unwrap_err();
        let Error::Engine(engine) = &failed else { panic!("{failed:?}") };
        match engine.downcast_ref() {
            Some(xdma::Error::Failed { completed, descriptors, status, .. }) => {
                assert_eq!((*descriptors, *status), (completed + 1, expected));
                assert!((3..10).contains(completed), "{completed}");
                assert!(!engine.to_string().contains("address 0x"), "{engine}");
            }
            other => panic!("{other:?}"),
        }
        card.reset().unwrap();
        nop(&mut card).unwrap();
    }
}

#[test]
fn errors_of_card_memory_reach_the_caller() {
    let rig = Rig::new();
    let mut card = rig.card(0);
    rig.cards.fail_memory(0, 0x1000..0x2000);
    let text = |error: Error| {
        let mut source: &dyn std::error::Error = &error;
        while let Some(next) = source.source() {
            source = next;
        }
        source.to_string()
    };
    let failed = text(card.write_memory(0, &[1; 0x3000]).unwrap_err());
    assert!(failed.contains("card memory answered with an error"), "{failed}");
    let failed = text(card.read_memory(0, &mut [1; 0x3000]).unwrap_err());
    assert!(failed.contains("card memory answered with an error"), "{failed}");
    rig.cards.mend_memory(0);
    card.write_memory(0, &[1; 0x3000]).unwrap();
    // A word that its code does not correct: the engine and the sequencer are told.
    rig.fabric.plant(Fault::FlipBits { node: 0, address: 0x1000, bits: 2 });
    let failed = text(card.read_memory(0, &mut [1; 0x3000]).unwrap_err());
    assert!(failed.contains("card memory answered with an error"), "{failed}");
    let failed = card.run([Instruction::copy(Operand::card(0x1000), Operand::card(0), 64)], PATIENCE).unwrap_err();
    assert!(matches!(failed, Error::Failed { status: Status::MemoryError, .. }), "{failed}");
    let outside = card.write_memory(card.capabilities().memory_bytes, &[1]).unwrap_err();
    assert!(matches!(outside, Error::BadArgument { .. }), "{outside}");
}

#[test]
fn a_card_that_is_removed_is_gone_for_instructions_and_data() {
    for by_fabric in [false, true] {
        let rig = Rig::new();
        let mut card = rig.card(0);
        nop(&mut card).unwrap();
        match by_fabric {
            true => rig.fabric.plant(Fault::Vanish { node: 0 }),
            false => rig.cards.remove(0),
        }
        let removed = [
            card.write_memory(0, &[1; 100]).unwrap_err(),
            card.run([Instruction::nop()], PATIENCE).map(drop).unwrap_err(),
            card.reset().unwrap_err(),
        ];
        for error in removed {
            assert!(matches!(error, Error::Removed { .. }), "{error}");
        }
    }
}

/// Waits until the queue's descriptor is readable.
fn is_raised(card: &Card, wait: Duration) -> bool {
    let timeout = PollTimeout::try_from(wait).unwrap();
    poll(&mut [PollFd::new(card.queue().as_fd(), PollFlags::POLLIN)], timeout).unwrap() == 1
}

/// What one card's host does raises the interrupt of another card, whoever advances the fabric's time; again and again, because the
/// level is acknowledged.
#[test]
fn the_interrupt_of_a_queue_is_the_sequencers_level() {
    let shells = [Shell::AlveoXdma, Shell::AlveoBar4, Shell::AlveoBypass];
    for (shell, has_clock) in shells.into_iter().flat_map(|shell| [(shell, false), (shell, true)]) {
        let rig = Rig::with(shell, Shape::default());
        let mut cluster = Cluster::open((0..NODES).map(|node| rig.function(node)).collect()).unwrap();
        let _clock = has_clock.then(|| rig.fabric.start_clock().unwrap());
        for round in 0..5 {
            let first = cluster.card_mut(0).queue_mut();
            let token = first.submit(Instruction::barrier()).unwrap();
            first.poll().unwrap();
            first.arm().unwrap();
            assert!(!is_raised(cluster.card_mut(0), Duration::ZERO), "round {round}");
            let second = cluster.card_mut(1).queue_mut();
            let other = second.submit(Instruction::barrier()).unwrap();
            assert!(is_raised(cluster.card_mut(0), PATIENCE), "round {round}");
            assert_eq!(cluster.card_mut(0).wait(&token, PATIENCE).unwrap().status, Status::Done);
            assert_eq!(cluster.card_mut(1).wait(&other, PATIENCE).unwrap().status, Status::Done);
            drain(cluster.card_mut(0));
        }
    }
}

/// Takes what was raised, as a wait does that sleeps.
fn drain(card: &mut Card) {
    let token = card.queue_mut().submit(Instruction::delay(1)).unwrap();
    card.wait(&token, PATIENCE).unwrap();
    while is_raised(card, Duration::ZERO) {
        card.queue_mut().wait_progress(Duration::from_millis(1)).unwrap();
    }
}

/// A message that is lost, or masked by somebody else, costs time and nothing else.
#[test]
fn a_wait_ends_without_its_interrupt() {
    let rig = Rig::new();
    let mut cluster = Cluster::open((0..NODES).map(|node| rig.function(node)).collect()).unwrap();
    let _clock = rig.fabric.start_clock().unwrap();
    // USER_ENABLE_CLEAR.
    window(cluster.card_mut(0).function(), 2).write_u32(0x200c, 1).unwrap();
    let token = cluster.card_mut(0).queue_mut().submit(Instruction::barrier()).unwrap();
    assert_eq!(cluster.card_mut(0).queue_mut().wait_progress(SHORT).unwrap(), 0);
    let other = cluster.card_mut(1).queue_mut().submit(Instruction::barrier()).unwrap();
    for (card, token) in [(0, token), (1, other)] {
        assert_eq!(cluster.card_mut(card).wait(&token, PATIENCE).unwrap().status, Status::Done);
    }
}

#[test]
fn a_reset_in_the_middle_aborts_and_starts_over() {
    let rig = Rig::new();
    let mut card = rig.card(0);
    for _ in 0..3 {
        let token = card.queue_mut().submit(Instruction::barrier()).unwrap();
        card.reset().unwrap();
        assert_eq!(card.queue_mut().wait(&token, PATIENCE).unwrap().status, Status::Aborted);
        nop(&mut card).unwrap();
        let token = card.queue_mut().submit(Instruction::barrier()).unwrap();
        card.abort().unwrap();
        assert_eq!(card.queue_mut().wait(&token, PATIENCE).unwrap().status, Status::Aborted);
        card.write_memory(0, &[5; 5000]).unwrap();
    }
    // The card's clock stops: nothing answers but the registers.
    rig.fabric.plant(Fault::Freeze { node: 0, when: When::Now });
    assert!(matches!(card.run([Instruction::nop()], SHORT).unwrap_err(), Error::Timeout { .. }));
    card.reset().unwrap();
    nop(&mut card).unwrap();
    assert_eq!(rig.cards.violations(0), []);
}

/// More instructions than the rings have room for, so that they wrap, and the fetches with them.
#[test]
fn rings_wrap() {
    for c2h in [1, 2] {
        let rig = Rig::with(Shell::AlveoXdma, Shape { c2h, ..Shape::default() });
        let mut card = rig.card(1);
        assert_eq!(card.queue().depth(), 128);
        for count in [1, 127, 128, 129, 1000] {
            let before = card.retired().unwrap();
            let completions = card.run(vec![Instruction::nop(); count], PATIENCE).unwrap();
            assert_eq!((completions.len(), card.retired().unwrap() - before), (count, count as u64));
        }
        assert_eq!(rig.cards.violations(1), []);
    }
}

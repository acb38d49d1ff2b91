//! The host exerciser: every length in every mode, by the driver and by registers; resets in the middle.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fpga_driver::Error as CardError;
use fpga_driver::dfl::{Control, Error, Exercise, Exerciser};
use fpga_hal::endpoint::{DmaPort, DmaProgress, DmaTag, Interposer, InterruptPort};
use fpga_hal::vfio_user::{Server, connect};
use fpga_hal::{DmaBuffer, Domain, Endpoint, Function, InterruptKind, Iova, Window, in_process};
use fpga_mock::LateDma;
use fpga_tests::altered::altered;

use super::{Cards, bar_0};

fn function(cards: &Cards) -> Function {
    in_process::attach(cards.first.exerciser().unwrap(), &cards.domain, "exerciser of card 0").unwrap()
}

fn check(exerciser: &mut Exerciser, exercise: Exercise, lines: u32, request_lines: u32) {
    let run = exerciser.run(exercise, lines, request_lines, u64::from(lines)).unwrap();
    let (reads, writes) = match exercise {
        Exercise::Loopback | Exercise::Throughput => (lines, lines),
        Exercise::Read => (lines, 0),
        Exercise::Write => (0, lines),
    };
    assert_eq!((run.lines_read, run.lines_written), (reads.into(), writes.into()), "{exercise:?} {lines}");
    assert!(run.cycles > 0 && run.clock_mhz == 250 && run.bytes_per_second() > 0.0, "{run:?}");
}

#[test]
fn every_number_of_lines_in_every_mode() {
    let cards = Cards::new();
    let mut exerciser = Exerciser::open(function(&cards)).unwrap();
    for lines in 1..=1024 {
        for (number, exercise) in Exercise::ALL.into_iter().enumerate() {
            check(&mut exerciser, exercise, lines, 1 << ((lines as usize + number) % 5));
        }
    }
    for (lines, request_lines) in [(0, 1), (1025, 1), (1, 0), (1, 3), (1, 32), (u32::MAX, 1)] {
        let error = exerciser.run(Exercise::Read, lines, request_lines, 0).unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    }
}

#[test]
fn host_memory_that_answers_late_changes_nothing() {
    let cards = Cards::new();
    let late = LateDma::new(cards.first.exerciser().unwrap(), 1, Duration::from_micros(200));
    let function = in_process::attach(late, &cards.domain, "late").unwrap();
    let mut exerciser = Exerciser::open(function).unwrap();
    exerciser.set_timeout(Duration::from_secs(120));
    for lines in [1, 2, 17, 300] {
        for exercise in Exercise::ALL {
            check(&mut exerciser, exercise, lines, 4);
        }
    }
}

/// A bus that changes a byte of the first line that a card writes.
struct Wrong(Arc<dyn Endpoint>);

struct WrongPort {
    dma: Arc<dyn DmaPort>,
    is_changed: AtomicBool,
}

impl DmaPort for WrongPort {
    fn read(&self, tag: DmaTag, iova: Iova, data: &mut [u8]) -> DmaProgress {
        self.dma.read(tag, iova, data)
    }

    fn write(&self, tag: DmaTag, iova: Iova, data: &[u8]) -> DmaProgress {
        let mut data = data.to_vec();
        if !self.is_changed.swap(true, Ordering::Relaxed) {
            data[5] ^= 0x10;
        }
        self.dma.write(tag, iova, &data)
    }
}

impl Interposer for Wrong {
    fn behind(&self) -> &dyn Endpoint {
        &*self.0
    }

    fn attach(&self, dma: Arc<dyn DmaPort>, interrupts: Arc<dyn InterruptPort>) {
        self.0.attach(Arc::new(WrongPort { dma, is_changed: AtomicBool::new(false) }), interrupts);
    }
}

#[test]
fn a_wrong_byte_is_told_with_its_place() {
    let cards = Cards::new();
    let wrong = Arc::new(Wrong(cards.first.exerciser().unwrap()));
    let function = in_process::attach(wrong, &cards.domain, "wrong").unwrap();
    let mut exerciser = Exerciser::open(function).unwrap();
    let error = exerciser.run(Exercise::Loopback, 64, 4, 1).unwrap_err();
    let Error::WrongData { at: 5, expected, found, .. } = error else { panic!("{error:?}") };
    assert_eq!(found ^ expected, 0x10);
    check(&mut exerciser, Exercise::Loopback, 64, 4);
}

#[test]
fn over_vfio_user() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("0.he-lb.sock");
    let cards = Cards::new();
    let _server = Server::bind(&socket, cards.first.exerciser().unwrap()).unwrap().spawn().unwrap();
    let mut exerciser = Exerciser::open(connect(&socket, &Domain::vfio_user()).unwrap()).unwrap();
    exerciser.set_timeout(Duration::from_secs(120));
    for exercise in Exercise::ALL {
        check(&mut exerciser, exercise, 1024, 16);
    }
}

#[test]
fn a_function_without_one_is_refused() {
    let cards = Cards::new();
    for function in [cards.control_function(), cards.second()] {
        let error = Exerciser::open(function).unwrap_err();
        assert!(matches!(error, Error::NoExerciser { .. }), "{error:?}");
    }
    let error = Control::open(function(&cards)).unwrap_err();
    assert!(matches!(error, Error::NoControl { .. }), "{error:?}");
}

/// The exerciser by its registers: numbers of OPAE's header, without this project's tables.
struct Raw {
    bar: Window,
    function: Function,
    status: Arc<DmaBuffer>,
    data: Arc<DmaBuffer>,
}

impl Raw {
    fn new(cards: &Cards) -> Self {
        let function = function(cards);
        function.set_bus_master(true).unwrap();
        let allocate = || function.domain().allocate(1 << 17, 4096).unwrap();
        Raw { bar: bar_0(&function), status: allocate(), data: allocate(), function }
    }

    fn start(&self, lines: u64, config: u64, data: u64) {
        for (register, value) in [
            (0x138, 0),
            (0x138, 1),
            (0x110, self.status.iova().0 >> 6),
            (0x120, data >> 6),
            (0x128, (data >> 6) + 1024),
            (0x130, lines - 1),
            (0x140, config),
            (0x138, 3),
        ] {
            self.bar.write_u64(register, value).unwrap();
        }
    }

    fn status(&self) -> u64 {
        let mut word = [0; 8];
        self.status.read(0, &mut word).unwrap();
        u64::from_le_bytes(word)
    }
}

#[test]
fn registers_are_those_of_opae() {
    let cards = Cards::new();
    let raw = Raw::new(&cards);
    let read = |offset| raw.bar.read_u64(offset).unwrap();
    assert_eq!((read(0), read(8), read(0x10)), (0x1000_0100_0000_0000, 0xb94b_1228_4c31_e02b, 0x56e2_03e9_864f_49a7));
    for (offset, kept) in [
        (0x100, u64::MAX),
        (0x108, u64::MAX),
        (0x110, u64::MAX),
        (0x120, u64::MAX),
        (0x128, u64::MAX),
        (0x130, 0x3ff),
        (0x140, 0xe070_007e),
        (0x148, 0xffff_ffff),
        (0x150, 0xffff_ffff),
        (0x158, u64::MAX),
        (0x178, 0xffff_ffff),
    ] {
        assert_eq!(read(offset), 0, "{offset:#x}");
        raw.bar.write_u64(offset, u64::MAX).unwrap();
        assert_eq!(read(offset), kept, "{offset:#x}");
        raw.bar.write_u32(offset, 0).unwrap();
        assert_eq!(read(offset), kept & !0xffff_ffff, "{offset:#x}");
        assert_eq!(raw.bar.read_u32(offset + 4).unwrap(), (kept >> 32) as u32, "{offset:#x}");
    }
    for offset in [0, 8, 0x10, 0x18, 0x160, 0x168, 0x170, 0x180, 0x188, 0x3_fff8] {
        let before = read(offset);
        raw.bar.write_u64(offset, u64::MAX).unwrap();
        assert_eq!(read(offset), before, "{offset:#x}");
    }
}

#[test]
fn a_continuous_run_ends_when_it_is_told_to() {
    let cards = Cards::new();
    let raw = Raw::new(&cards);
    raw.function.set_bus_master(true).unwrap();
    let vectors = raw.function.enable_interrupts_of(InterruptKind::Msix, 5).unwrap();
    raw.bar.write_u32(0x150, 3 << 16).unwrap();
    raw.start(16, 1 << 1 | 1 << 29, raw.data.iova().0);
    for _ in 0..100 {
        assert_eq!(raw.status(), 0);
        raw.bar.read_u64(0x160).unwrap();
    }
    raw.bar.write_u64(0x138, 7).unwrap();
    let reads = (0..100_000).take_while(|_| raw.bar.read_u64(0x160).is_ok() && raw.status() & 1 == 0).count();
    assert!(reads < 100_000, "the run ends");
    assert!(vectors[3].wait(Duration::from_secs(10)).unwrap());
    let lines = raw.bar.read_u64(0x160).unwrap();
    assert_eq!(lines >> 32, lines & 0xffff_ffff);
    assert!(lines >> 32 >= 1600 && lines.is_multiple_of(16), "{lines:#x}");
}

#[test]
fn lines_that_change_in_the_middle_count_from_the_next_round() {
    let cards = Cards::new();
    let raw = Raw::new(&cards);
    raw.function.set_bus_master(true).unwrap();
    // Only writes, 1000 lines again and again.
    raw.start(1000, 2 << 2 | 1 << 1, raw.data.iova().0);
    raw.bar.write_u64(0x130, 10 - 1).unwrap();
    raw.bar.write_u64(0x138, 7).unwrap();
    let reads = (0..100_000).take_while(|_| raw.bar.read_u64(0x160).is_ok() && raw.status() & 1 == 0).count();
    assert!(reads < 100_000, "the run ends");
    assert_eq!(raw.status() >> 32, 0, "and has reached nothing else");
}

#[test]
fn memory_that_is_not_the_cards_is_an_error_and_not_a_hang() {
    let cards = Cards::new();
    let raw = Raw::new(&cards);
    raw.start(4, 0, 1 << 40);
    assert_eq!(raw.status(), 1 | 1 << 32);
    assert_eq!(raw.bar.read_u64(0x170).unwrap(), 1);
    // The next run is as if nothing had been.
    raw.status.fill(0, 64, 0).unwrap();
    raw.start(4, 0, raw.data.iova().0);
    assert_eq!(raw.status(), 1 | 1 << 1);
    // Writes are posted: what is lost is no error, and is not there.
    raw.status.fill(0, 64, 0).unwrap();
    raw.start(4, 2 << 2, 1 << 40);
    assert_eq!((raw.status(), raw.bar.read_u64(0x170).unwrap()), (1 | 2 << 1, 0));
}

#[test]
fn a_reset_of_the_port_in_the_middle_is_an_error_and_not_a_hang() {
    let cards = Cards::new();
    let mut control = cards.control();
    control.reset_accelerator().unwrap();
    // Host memory is so slow that the run is in the middle for long.
    let late = LateDma::new(cards.first.exerciser().unwrap(), 1, Duration::from_millis(20));
    let function = in_process::attach(late, &cards.domain, "late").unwrap();
    let bar = bar_0(&function);
    let mut exerciser = Exerciser::open(function).unwrap();
    exerciser.set_timeout(Duration::from_secs(600));
    let error = thread::scope(|scope| {
        let running = scope.spawn(|| exerciser.run(Exercise::Loopback, 1024, 1, 0));
        while bar.read_u64(0x138).unwrap() != 3 && !running.is_finished() {
            thread::yield_now();
        }
        control.reset_accelerator().unwrap();
        running.join().unwrap().unwrap_err()
    });
    let Error::TimedOut { last_seen, .. } = &error else { panic!("{error:?}") };
    assert!(last_seen.ends_with("it was reset meanwhile"), "{error}");
    drop((exerciser, bar));
    let mut exerciser = Exerciser::open(self::function(&cards)).unwrap();
    check(&mut exerciser, Exercise::Loopback, 1024, 8);
}

#[test]
fn a_card_that_never_answers_is_a_timeout() {
    let cards = Cards::new();
    let late = LateDma::new(cards.first.exerciser().unwrap(), 1, Duration::from_secs(1));
    let function = in_process::attach(late, &cards.domain, "late").unwrap();
    let mut exerciser = Exerciser::open(function.clone()).unwrap();
    exerciser.set_timeout(Duration::from_millis(20));
    let error = exerciser.run(Exercise::Loopback, 1024, 1, 0).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    // Two drivers do not share it.
    let second = Exerciser::open(function).unwrap_err();
    assert!(matches!(second, Error::Card(CardError::Bus(fpga_hal::Error::InUse { .. }))), "{second:?}");
}

/// Returns how many mappings of a domain are left of an exerciser whose run has timed out, if STATUS_1 then says so.
fn left_of_a_stopped_run(cards: &Cards, status_1: u32) -> usize {
    let before = cards.domain.mappings();
    let late = LateDma::new(cards.first.exerciser().unwrap(), 1, Duration::from_secs(1));
    let function = in_process::attach(altered(late, 0, &[(0x168, status_1)]), &cards.domain, "busy").unwrap();
    let mut exerciser = Exerciser::open(function).unwrap();
    exerciser.set_timeout(Duration::from_millis(20));
    let error = exerciser.run(Exercise::Loopback, 1024, 1, 0).unwrap_err();
    assert!(matches!(error, Error::TimedOut { to: "end an exercise", .. }), "{error:?}");
    drop(exerciser);
    cards.domain.mappings() - before
}

#[test]
fn buffers_are_kept_while_a_stopped_run_has_unanswered_requests() {
    let cards = Cards::new();
    assert_eq!(left_of_a_stopped_run(&cards, 0), 0);
    // A read that is never answered.
    assert_eq!(left_of_a_stopped_run(&cards, 1 << 16), 3);
}

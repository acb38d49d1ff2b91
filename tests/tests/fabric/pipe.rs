//! Pipes between the hosts of two cards: what is written is read, in order and once; the ends of a pipe as pipe(7) has them.

mod hurry;
mod lost;

use std::io::{self, Read as _, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use cmdseq::instruction::{Rights, Window};
use cmdseq::{Instruction, Operand, Status};
use fpga_driver::{Bound, Card, Error, PIPE_BUF, PIPE_BYTES, Pipe, PipeError, PipeReader, PipeWriter};
use fpga_hal::in_process;
use fpga_mock::{Fabric, Fault, Moved, Profile, When};
use fpga_tests::run::domain;
use proptest::prelude::*;

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(100);

fn card(fabric: &Fabric, node: u32) -> Card {
    let function = in_process::attach(fabric.endpoint(node), &domain(), &format!("mock {node}"));
    Card::open(function.expect("a card that answers")).expect("a card")
}

/// Opens both ends, each on a thread of its own.
fn open(fabric: &Fabric, pipe: Pipe) -> (PipeWriter, PipeReader) {
    thread::scope(|scope| {
        let reader = scope.spawn(|| PipeReader::open(card(fabric, pipe.reader), pipe, LONG).expect("a reader"));
        let writer = PipeWriter::open(card(fabric, pipe.writer), pipe, LONG).expect("a writer");
        (writer, reader.join().expect("no panic"))
    })
}

/// Opens the reader's end of a pipe, and reads to the end of the file.
fn read_all(card: Card, pipe: Pipe) -> String {
    let mut reader = PipeReader::open(card, pipe, LONG).expect("a reader");
    let mut came = String::new();
    reader.read_to_string(&mut came).expect("data");
    came
}

fn data(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Writes and reads of any lengths, on any fabric: the reader gets the bytes of the writer, then the end of the file.
    #[test]
    fn what_is_written_is_read(
        fabric in prop::sample::select(vec![Profile::optweb(2), Profile::optweb(5), Profile::circus(3, 3), Profile::bluelink(1, 4)]),
        ends in any::<(prop::sample::Index, prop::sample::Index)>(),
        address in 0u64..1 << 10,
        writes in prop::collection::vec(prop_oneof![0usize..200, 1usize..3 * PIPE_BUF], 0..40),
        most in prop_oneof![1usize..100, 1usize..2 * PIPE_BUF],
    ) {
        let nodes = fabric.nodes;
        let writer = ends.0.index(nodes as usize) as u32;
        let reader = (writer + 1 + ends.1.index(nodes as usize - 1) as u32) % nodes;
        let fabric = Fabric::new(fabric).expect("a fabric");
        let pipe = Pipe { address: address * 4096, ..Pipe::new(writer, reader) };
        let (mut writer, mut reader) = open(&fabric, pipe);
        let sent = data(writes.iter().sum::<usize>().min(most * 5_000));
        let came = thread::scope(|scope| {
            let reading = scope.spawn(move || {
                let (mut came, mut buffer) = (Vec::<u8>::new(), vec![0; most]);
                loop {
                    match reader.read(&mut buffer).expect("data") {
                        0 => break,
                        bytes => came.extend(&buffer[..bytes]),
                    }
                }
                assert_eq!(reader.read(&mut buffer).expect("the end, again"), 0);
                reader.close().expect("closed");
                came
            });
            let mut rest = &sent[..];
            for bytes in writes {
                let (now, later) = rest.split_at(bytes.min(rest.len()));
                writer.write_all(now).expect("room");
                rest = later;
            }
            writer.close().expect("closed");
            reading.join().expect("no panic")
        });
        prop_assert_eq!(came.len(), sent.len());
        prop_assert!(came == sent);
    }
}

/// It is gone before the writer looks for its answer, or soon after.
#[test]
fn a_reader_that_closes_at_once_breaks_the_pipe() {
    for _ in 0..20 {
        let fabric = Fabric::new(Profile::bluelink(1, 2)).unwrap();
        let pipe = Pipe::new(0, 1);
        thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let mut writer = PipeWriter::open(card(&fabric, 0), pipe, LONG).expect("a writer");
                io::copy(&mut io::repeat(7), &mut writer).unwrap_err()
            });
            let there = PipeReader::open(card(&fabric, 1), pipe, LONG).expect("a reader").close().unwrap();
            let error = writing.join().expect("no panic");
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe, "{error}");
            drop(there);
        });
    }
}

#[test]
fn a_closed_reader_breaks_the_pipe() {
    for is_full in [false, true] {
        let fabric = Fabric::new(Profile::bluelink(1, 2)).unwrap();
        let (mut writer, reader) = open(&fabric, Pipe::new(0, 1));
        writer.write_all(b"lost").unwrap();
        writer.set_timeout(SHORT);
        while is_full && writer.write(&[1; PIPE_BUF]).is_ok() {}
        writer.set_timeout(LONG);
        let writing = |mut writer: PipeWriter| {
            let error = io::copy(&mut io::repeat(7), &mut writer).unwrap_err();
            (error, writer)
        };
        let (error, mut writer) = thread::scope(|scope| {
            let writing = scope.spawn(move || writing(writer));
            // The writer waits, or fills the pipe.
            thread::sleep(SHORT);
            reader.close().unwrap();
            writing.join().unwrap()
        });
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe, "{error}");
        assert!(matches!(writer.write(b"again"), Err(PipeError::Broken)));
        assert!(matches!(writer.flush(), Err(PipeError::Broken)));
        // Both cards go on.
        let mut card = writer.close().unwrap();
        card.run([Instruction::nop()], LONG).unwrap();
    }
}

/// Whether the last data came is told by the last call, if no call has told before.
#[test]
fn a_writer_that_closes_learns_that_its_last_data_was_refused() {
    for has_data in [false, true] {
        let fabric = Fabric::new(Profile::bluelink(1, 2)).unwrap();
        let (mut writer, reader) = open(&fabric, Pipe::new(0, 1));
        writer.write_all(b"came, and was not read").unwrap();
        writer.flush().unwrap();
        let there = reader.close().unwrap();
        if has_data {
            writer.write_all(b"hello\n").unwrap();
        }
        match writer.close() {
            Ok(mut card) => {
                assert!(!has_data);
                card.run([Instruction::nop()], LONG).unwrap();
            }
            Err(error) => assert!(has_data && matches!(error, PipeError::Broken), "{error}"),
        }
        drop(there);
    }
}

/// The end has room in a pipe that is full. It does not pass for that of the data, of which some has not left.
#[test]
fn a_writer_that_gives_up_tells_the_reader() {
    let fabric = Fabric::new(Profile::bluelink(1, 2)).unwrap();
    let (mut writer, mut reader) = open(&fabric, Pipe::new(0, 1));
    let sent = data(4 * PIPE_BYTES as usize);
    writer.set_timeout(SHORT);
    let mut written = 0;
    let full = loop {
        match writer.write(&sent[written..]) {
            Ok(bytes) => written += bytes,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, PipeError::TimedOut { .. }), "{full}");
    // Longer than the cards need to come to rest.
    writer.set_timeout(Duration::from_secs(3));
    let error = writer.close().unwrap_err();
    assert!(matches!(error, PipeError::TimedOut { .. }), "{error}");
    let (mut came, mut buffer) = (Vec::<u8>::new(), vec![0; PIPE_BUF]);
    let end = loop {
        match reader.read(&mut buffer) {
            Ok(0) => panic!("{} bytes of {written} pass for all", came.len()),
            Ok(bytes) => came.extend(&buffer[..bytes]),
            Err(error) => break error,
        }
    };
    assert!(matches!(end, PipeError::Truncated), "{end}");
    assert!(matches!(reader.read(&mut buffer), Err(PipeError::Truncated)), "again");
    assert_eq!(io::Error::from(end).kind(), io::ErrorKind::UnexpectedEof);
    assert!(came.len() < written && came == sent[..came.len()]);
    reader.close().unwrap();
}

/// Once a message is lost, none leaves after it.
#[test]
fn a_writer_whose_link_has_failed_tells_the_reader() {
    const MICROSECOND: u64 = 1_000_000;
    let fabric = Fabric::new(Profile::bluelink(1, 2)).unwrap();
    let (mut writer, mut reader) = open(&fabric, Pipe::new(0, 1));
    writer.write_all(b"came").unwrap();
    writer.flush().unwrap();
    // While the card copies the message from the host, and while it sends it; not in the short one that tells.
    let when = When::Moved(Moved { node: 0, tag: None, transfer: 0, bytes: 1000 });
    fabric.plant(Fault::Flap { a: 0, b: 1, when, down_ps: 3 * MICROSECOND / 10, count: 2 });
    writer.write_all(&[7; PIPE_BUF]).unwrap();
    let error = writer.close().unwrap_err();
    assert!(matches!(error, PipeError::Card(Error::Failed { status: Status::LinkDown, .. })), "{error}");
    let mut came = [0; 9];
    assert_eq!(reader.read(&mut came).unwrap(), 4);
    let error = reader.read(&mut came).unwrap_err();
    assert!(matches!(error, PipeError::Truncated), "{error}");
}

/// A put that is lost on the way has the card's time, not the reader's.
#[test]
fn a_writer_does_not_wait_for_a_message_that_is_lost() {
    let fabric = Fabric::new(Profile::bluelink(1, 2)).unwrap();
    let pipe = Pipe::new(0, 1);
    let (mut writer, reader) = thread::scope(|scope| {
        let reader = scope.spawn(|| PipeReader::open(card(&fabric, 1), pipe, LONG).expect("a reader"));
        let mut impatient = card(&fabric, 0);
        impatient.set_timeout(Duration::from_secs(3));
        (PipeWriter::open(impatient, pipe, LONG).expect("a writer"), reader.join().expect("no panic"))
    });
    fabric.plant(Fault::Garble { from: 0, to: 1, after: 0 });
    writer.set_timeout(SHORT);
    writer.write_all(b"lost").unwrap();
    let error = loop {
        match writer.flush() {
            Err(PipeError::TimedOut { .. }) => {}
            outcome => break outcome.unwrap_err(),
        }
    };
    assert!(matches!(error, PipeError::Card(Error::Timeout { .. })), "{error}");
    drop((writer, reader));
}

#[test]
fn ends_that_must_not_wait_do_not() {
    let fabric = Fabric::new(Profile::optweb(2)).unwrap();
    let (mut writer, mut reader) = open(&fabric, Pipe::new(1, 0));
    let mut buffer = vec![0; 2 * PIPE_BUF];
    reader.set_timeout(Duration::ZERO);
    let nothing = reader.read(&mut buffer).unwrap_err();
    assert!(matches!(nothing, PipeError::TimedOut { gone: None, .. }), "{nothing}");
    assert_eq!(io::Error::from(nothing).kind(), io::ErrorKind::TimedOut);
    writer.set_timeout(Duration::ZERO);
    let mut written = 0;
    let full = loop {
        match writer.write(&data(PIPE_BUF)) {
            Ok(bytes) => written += bytes,
            // It may be that the cards are still at work.
            Err(_) if written < PIPE_BYTES as usize => thread::sleep(Duration::from_millis(1)),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, PipeError::TimedOut { .. }), "{full}");
    reader.set_timeout(LONG);
    writer.set_timeout(LONG);
    let came = thread::scope(|scope| {
        let closing = scope.spawn(|| writer.close().unwrap());
        let mut came = Vec::new();
        reader.read_to_end(&mut came).unwrap();
        closing.join().unwrap();
        came
    });
    assert_eq!(came, data(PIPE_BUF).repeat(written / PIPE_BUF));
}

#[test]
fn the_other_end_has_to_come_in_time() {
    let fabric = Fabric::new(Profile::optweb(2)).unwrap();
    let pipe = Pipe::new(0, 1);
    let error = PipeWriter::open(card(&fabric, 0), pipe, SHORT).unwrap_err();
    assert!(matches!(error, PipeError::NoPeer { node: 1, gone: None, .. }), "{error}");
    let error = PipeReader::open(card(&fabric, 1), pipe, SHORT).unwrap_err();
    assert!(matches!(error, PipeError::NoPeer { node: 0, .. }), "{error}");
    // Nothing is left of them: the two meet now.
    let (mut writer, mut reader) = open(&fabric, pipe);
    writer.write_all(b"hello").unwrap();
    let mut came = [0; 9];
    assert_eq!(reader.read(&mut came).unwrap(), 5);
    // Another key is another pipe.
    drop((writer, reader));
    let other = Pipe { key: 2, ..pipe };
    thread::scope(|scope| {
        let reading = scope.spawn(|| PipeReader::open(card(&fabric, 1), other, SHORT).unwrap_err());
        let error = PipeWriter::open(card(&fabric, 0), pipe, SHORT).unwrap_err();
        assert!(matches!(error, PipeError::NoPeer { .. }), "{error}");
        assert!(matches!(reading.join().unwrap(), PipeError::NoPeer { .. }));
    });
}

/// Of a writer that vanishes the reader gets what had come, and no end of the file.
#[test]
fn a_writer_that_vanishes_does_not_end_the_file() {
    // More than the 16 slots of the reader's host: some are given back when the writer is gone, or only the last.
    for times in [17, 20] {
        vanish(times);
    }
}

fn vanish(times: usize) {
    let fabric = Fabric::new(Profile::optweb(2)).unwrap();
    let (mut writer, mut reader) = open(&fabric, Pipe::new(0, 1));
    let message = [7; 100];
    for _ in 0..times {
        writer.write_all(&message).unwrap();
    }
    writer.flush().unwrap();
    drop(writer);
    // Whoever takes the card next resets it.
    card(&fabric, 0).reset().unwrap();
    let mut came = [0; 200];
    for _ in 0..times {
        assert_eq!(reader.read(&mut came).unwrap(), message.len());
    }
    reader.set_timeout(SHORT);
    until("the card of the writer to refuse", || match reader.read(&mut came).unwrap_err() {
        PipeError::TimedOut { gone, .. } => gone == Some(Status::BadWindow),
        other => panic!("{other}"),
    });
    let mut card = reader.close().unwrap();
    card.run([Instruction::nop()], LONG).unwrap();
}

/// The two ends have a key of their own: what is left of a pipe neither reaches the next one nor keeps it from coming.
#[test]
fn an_end_whose_peer_is_gone_does_not_reach_the_next_one() {
    let fabric = Fabric::new(Profile::optweb(2)).unwrap();
    let pipe = Pipe::new(0, 1);
    let (mut first, mut reader) = open(&fabric, pipe);
    first.write_all(b"first").unwrap();
    first.flush().unwrap();
    drop(first);
    let sent = data(3 * PIPE_BYTES as usize);
    thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let mut second = PipeWriter::open(card(&fabric, 0), pipe, LONG).expect("a writer");
            second.write_all(&sent).expect("room");
            second.close().expect("closed");
        });
        // The second writer's window is open.
        thread::sleep(SHORT);
        let mut came = [0; 9];
        assert_eq!(reader.read(&mut came).unwrap(), 5, "which gives a slot back");
        drop(reader.close().unwrap());
        let mut next = PipeReader::open(card(&fabric, 1), pipe, LONG).expect("a reader");
        let mut came = Vec::new();
        next.read_to_end(&mut came).expect("data");
        assert!(came == sent);
        writing.join().expect("no panic");
    });
    let (mut writer, reader) = open(&fabric, pipe);
    drop(reader);
    let error = PipeReader::open(card(&fabric, 1), pipe, SHORT).unwrap_err();
    assert!(matches!(error, PipeError::NoPeer { .. }), "{error}");
    let broken = writer.write_all(b"lost").and_then(|()| writer.flush().map_err(io::Error::from)).unwrap_err();
    assert_eq!(broken.kind(), io::ErrorKind::BrokenPipe, "{broken}");
}

/// Key of the windows of a forged writer and its reader.
const FORGED: u32 = 5;

/// The greeting of a writer with that key.
fn greeting(key: u32) -> [u8; 64] {
    let mut greeting = [0; 64];
    greeting[..4].copy_from_slice(b"fpga");
    greeting[4..8].copy_from_slice(&key.to_le_bytes());
    greeting
}

/// Writes `what` at the beginning of the window with `key` on node 1, and adds 1 to `signal` there.
fn put(card: &mut Card, key: u32, what: &[u8; 64], signal: u16) -> Instruction {
    card.write_memory(0, what).unwrap();
    Instruction::put_signal(1, Operand::card(0), Operand::card(0), 64, signal, 1).through(window(card, key))
}

/// The window of either end of a pipe.
fn window(card: &Card, key: u32) -> Window {
    Window { slot: (card.capabilities().windows - 1) as u16, key }
}

/// The card of an end without the driver's pipe, with the communicator of nodes 0 and 1.
fn forged(fabric: &Fabric, node: u32) -> Card {
    let mut card = card(fabric, node);
    card.reset().unwrap();
    let members = card.allocate(4).unwrap();
    members.write(0, &[0, 0, 1, 0]).unwrap();
    let group = Bound::from(Instruction::group(2, members.iova().0, 2)).holding(members);
    card.run([group], LONG).unwrap();
    card
}

/// Greets the reader at node 1 from node 0 without the driver's pipe, with a window for slots or without.
fn forge(fabric: &Fabric, what: &[u8; 64], has_window: bool) -> Card {
    let mut card = forged(fabric, 0);
    if has_window {
        let open = Instruction::open(window(&card, FORGED), Rights::SIGNAL, Operand::card(0), PIPE_BYTES).on(2);
        card.run([open], LONG).unwrap();
    }
    let greet = put(&mut card, Pipe::new(0, 1).key, what, 1).on(2);
    until("a reader", || match card.run([greet], LONG) {
        Ok(_) => true,
        Err(Error::Failed { status: Status::BadWindow | Status::LinkDown, .. }) => false,
        Err(other) => panic!("{other}"),
    });
    card
}

/// Tries `outcome` until it is as wanted.
fn until(what: &str, mut outcome: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !outcome() {
        assert!(begin.elapsed() < LONG, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A neighbour that knows the keys does not reach the pipe. The writer's own card does: what it writes is checked.
#[test]
fn messages_that_no_writer_writes_are_refused() {
    let fabric = Fabric::new(Profile::optweb(3)).unwrap();
    let pipe = Pipe::new(0, 1);
    let (mut reader, mut wrong) = thread::scope(|scope| {
        let reading = scope.spawn(|| PipeReader::open(card(&fabric, 1), pipe, LONG).expect("a reader"));
        let mut neighbour = card(&fabric, 2);
        let refuse = |neighbour: &mut Card, key| {
            let put = put(neighbour, key, &[0xff; 64], 0);
            until("the card to refuse", || match neighbour.run([put], LONG).unwrap_err() {
                Error::Failed { status: Status::BadWindow, .. } => true,
                // The reader's card is just reset.
                Error::Failed { status: Status::LinkDown, .. } => false,
                other => panic!("{other}"),
            });
        };
        refuse(&mut neighbour, pipe.key);
        let wrong = forge(&fabric, &greeting(FORGED), true);
        let reader = reading.join().expect("no panic");
        refuse(&mut neighbour, pipe.key);
        refuse(&mut neighbour, FORGED);
        (reader, wrong)
    });
    let message = put(&mut wrong, FORGED, &[0xff; 64], 0).on(2);
    wrong.run([message], LONG).unwrap();
    let error = reader.read(&mut [0; 8]).unwrap_err();
    assert!(matches!(error, PipeError::Invalid { sequence: 0, field: "sequence", found: u64::MAX }), "{error}");
}

/// The greeting of a writer is checked like its messages. One who has greeted and is gone does not keep the next one out.
#[test]
fn greetings_are_checked() {
    let fabric = Fabric::new(Profile::optweb(2)).unwrap();
    let pipe = Pipe::new(0, 1);
    thread::scope(|scope| {
        let reading = scope.spawn(|| PipeReader::open(card(&fabric, 1), pipe, LONG).unwrap_err());
        drop(forge(&fabric, &[0xff; 64], true));
        let error = reading.join().expect("no panic");
        assert!(matches!(error, PipeError::Greeting { found: u64::MAX }), "{error}");
        let reading = scope.spawn(|| read_all(card(&fabric, 1), pipe));
        drop(forge(&fabric, &greeting(FORGED), false));
        let mut writer = PipeWriter::open(card(&fabric, 0), pipe, LONG).expect("a writer");
        writer.write_all(b"hello").unwrap();
        writer.close().unwrap();
        assert_eq!(reading.join().expect("no panic"), "hello");
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The link of the two goes down and up while they meet, whoever comes first, and its losses end with them.
    #[test]
    fn ends_meet_over_a_link_that_flaps(
        when in prop_oneof![
            // The greeting while it is copied and sent.
            prop::sample::select(vec![0u64, 32, 64])
                .prop_map(|bytes| When::Moved(Moved { node: 0, tag: None, transfer: 0, bytes })),
            (1u64..10_000_000).prop_map(When::After),
        ],
        down_ps in 1u64..3_000_000,
        count in 1u32..8,
        late in 0u64..8,
        writer_is_late in any::<bool>(),
    ) {
        let fabric = Fabric::new(Profile::bluelink(1, 2)).expect("a fabric");
        let pipe = Pipe::new(0, 1);
        fabric.plant(Fault::Flap { a: 0, b: 1, when, down_ps, count });
        let wait = |is_late: bool| thread::sleep(Duration::from_millis(if is_late { late } else { 0 }));
        let (mut writer, mut reader) = thread::scope(|scope| {
            let reader = scope.spawn(|| {
                wait(!writer_is_late);
                PipeReader::open(card(&fabric, 1), pipe, LONG).expect("a reader")
            });
            wait(writer_is_late);
            let writer = PipeWriter::open(card(&fabric, 0), pipe, LONG).expect("a writer");
            (writer, reader.join().expect("no panic"))
        });
        reader.set_timeout(LONG);
        // Messages may still meet the last of the flaps.
        match writer.write_all(b"hello").and_then(|()| writer.flush().map_err(io::Error::from)) {
            Ok(()) => {
                let mut came = [0; 9];
                prop_assert_eq!(reader.read(&mut came).expect("data"), 5);
                prop_assert_eq!(&came[..5], b"hello");
            }
            Err(error) => prop_assert!(error.to_string().contains("link"), "{}", error),
        }
    }
}

/// Whatever of the opening a loss of the link hits, the greeting, its answer, or what says that they came, the ends meet.
#[test]
fn ends_meet_whenever_the_link_is_lost() {
    const STEP: u64 = 100_000;
    for at in 1..=100 {
        let fabric = Fabric::new(Profile::bluelink(1, 2)).unwrap();
        fabric.plant(Fault::Flap { a: 0, b: 1, when: When::After(at * STEP), down_ps: STEP, count: 1 });
        drop(open(&fabric, Pipe::new(0, 1)));
    }
}

#[test]
fn places_that_do_not_fit_are_refused() {
    let fabric = Fabric::new(Profile::optweb(2)).unwrap();
    let bytes = card(&fabric, 0).capabilities().memory_bytes;
    let right = Pipe::new(0, 1);
    for (wrong, what) in [
        (Pipe { reader: 0, ..right }, "ends of a pipe"),
        (Pipe { reader: 2, ..right }, "ends of a pipe"),
        (Pipe { writer: 1, reader: 0, ..right }, "card of the writer"),
        (Pipe { address: bytes - PIPE_BYTES + 4096, ..right }, "address of a pipe"),
        (Pipe { address: u64::MAX - 4095, ..right }, "address of a pipe"),
        (Pipe { key: 0, ..right }, "key of a pipe"),
    ] {
        match PipeWriter::open(card(&fabric, 0), wrong, SHORT).unwrap_err() {
            PipeError::Card(Error::BadArgument { what: found, .. }) => assert_eq!(found, what),
            other => panic!("{wrong:?}: {other}"),
        }
    }
    // The last place that fits, whose other end does not come.
    let last = Pipe { address: bytes - PIPE_BYTES, ..right };
    assert!(matches!(PipeWriter::open(card(&fabric, 0), last, SHORT), Err(PipeError::NoPeer { node: 1, .. })));
    let old = Fabric::new(Profile { windows: 0, ..Profile::optweb(2) }).unwrap();
    match PipeReader::open(card(&old, 1), right, SHORT).unwrap_err() {
        PipeError::Card(Error::BadArgument { what, .. }) => assert_eq!(what, "card for a pipe"),
        other => panic!("{other}"),
    }
}

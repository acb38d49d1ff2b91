//! Ends that do not wait for long enough, or are told to stop, while they open.

use std::cell::Cell;
use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cmdseq::Status;
use fpga_driver::{Card, Error, Pipe, PipeError, PipeReader, PipeWriter, read_stats};
use fpga_hal::Domain;
use fpga_hal::vfio_user::{Server, connect};
use fpga_mock::{Fabric, Fault, Profile, When};

use super::{FORGED, LONG, card, forged, greeting, put, read_all, until};

/// Opens an end with limits that are mostly too short, again and again until it meets the other, at node `peer`. They become longer,
/// because it is the machine that says what is too short.
fn in_a_hurry<End>(peer: u32, mut open: impl FnMut(Duration) -> Result<End, PipeError>) -> End {
    let mut met = None;
    let mut limits = (1..).flat_map(|round| [0, 1, 2, 3, 5, 8, 20].map(|limit| round * Duration::from_millis(limit)));
    until("the other end", || {
        match open(limits.next().unwrap()) {
            Ok(end) => met = Some(end),
            Err(PipeError::NoPeer { node, .. }) => assert_eq!(node, peer),
            Err(other) => panic!("{other}"),
        }
        met.is_some()
    });
    met.unwrap()
}

/// A writer that does not wait for long enough may be met, or else takes no reader with it.
#[test]
fn a_writer_in_a_hurry_keeps_no_reader_waiting() {
    let fabric = Fabric::new(Profile::optweb(2)).unwrap();
    let pipe = Pipe::new(0, 1);
    thread::scope(|scope| {
        let reading = scope.spawn(|| read_all(card(&fabric, 1), pipe));
        let mut writer = in_a_hurry(1, |limit| PipeWriter::open(card(&fabric, 0), pipe, limit));
        writer.set_timeout(LONG);
        writer.write_all(b"hello").unwrap();
        writer.close().unwrap();
        assert_eq!(reading.join().expect("no panic"), "hello");
    });
}

/// A reader that does not wait for long enough may be met, or else takes no writer with it.
#[test]
fn a_reader_in_a_hurry_keeps_no_writer_out() {
    let fabric = Fabric::new(Profile::optweb(2)).unwrap();
    let pipe = Pipe::new(0, 1);
    thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let mut writer = PipeWriter::open(card(&fabric, 0), pipe, LONG).expect("a writer");
            writer.write_all(b"hello").unwrap();
            writer.close().unwrap();
        });
        let mut reader = in_a_hurry(0, |limit| PipeReader::open(card(&fabric, 1), pipe, limit));
        reader.set_timeout(LONG);
        let mut came = String::new();
        reader.read_to_string(&mut came).unwrap();
        assert_eq!(came, "hello");
        writing.join().expect("no panic");
    });
}

/// Whether a writer is stopped that was asked so many times before.
fn stopped_after(looks: u32) -> impl FnMut() -> bool {
    let left = Cell::new(looks);
    move || left.replace(left.get().saturating_sub(1)) == 0
}

/// A writer that is told to stop may be met, and then ends the file, or else takes no reader with it. One that is told at once is met
/// only by chance, so later ones stop later.
#[test]
fn a_writer_that_is_stopped_keeps_no_reader_waiting() {
    let pipe = Pipe::new(0, 1);
    for looks in [0, 1, 2, 9].repeat(5) {
        let fabric = Fabric::new(Profile::optweb(2)).unwrap();
        thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let mut reader = PipeReader::open(card(&fabric, 1), pipe, LONG).expect("a reader");
                assert_eq!(reader.read(&mut [0; 9]).expect("the end of the file"), 0);
                // Its card is there until the writer has closed.
                reader
            });
            let mut tries = 0;
            until("the reader", || {
                tries += 1;
                match PipeWriter::open_until(card(&fabric, 0), pipe, LONG, &mut stopped_after(looks + tries / 4)) {
                    Ok(writer) => writer.close().map(|_| true).unwrap(),
                    Err(PipeError::NoPeer { node: 1, .. }) => false,
                    Err(other) => panic!("{other}"),
                }
            });
            drop(reading.join().expect("no panic"));
        });
    }
}

/// A writer greets again while it gets no answer, and then vanishes. The second greeting is not taken for that of the next writer.
#[test]
fn greetings_of_a_writer_that_is_gone_are_forgotten() {
    let in_process = Fabric::new(Profile::optweb(2)).unwrap();
    forget_greetings(&in_process, || card(&in_process, 1));
    // This card runs beside its driver.
    let (fabric, directory) = (Fabric::new(Profile::optweb(2)).unwrap(), tempfile::tempdir().unwrap());
    let path = directory.path().join("socket");
    let _server = Server::bind(&path, fabric.endpoint(1)).and_then(Server::spawn).unwrap();
    let _clock = fabric.start_clock();
    for _ in 0..5 {
        forget_greetings(&fabric, || Card::open(connect(&path, &Domain::vfio_user()).unwrap()).unwrap());
    }
}

/// Opens a pipe to the reader's card after the greetings of a writer that is gone.
fn forget_greetings(fabric: &Fabric, readers: impl Fn() -> Card + Sync) {
    let pipe = Pipe::new(0, 1);
    thread::scope(|scope| {
        let reading = scope.spawn(|| read_all(readers(), pipe));
        let mut gone = forged(fabric, 0);
        let greet = put(&mut gone, pipe.key, &greeting(FORGED), 1).on(2);
        until("a reader", || match gone.run([greet; 3], LONG) {
            Ok(_) => true,
            Err(Error::Failed { status: Status::BadWindow | Status::LinkDown, .. }) => false,
            Err(other) => panic!("{other}"),
        });
        drop(gone);
        let mut writer = PipeWriter::open(card(fabric, 0), pipe, LONG).expect("a writer");
        writer.write_all(b"hello").unwrap();
        writer.close().unwrap();
        assert_eq!(reading.join().expect("no panic"), "hello");
    });
}

#[test]
fn a_writer_without_a_reader_stops_when_it_is_told() {
    let fabric = Fabric::new(Profile::optweb(2)).unwrap();
    let opened = PipeWriter::open_until(card(&fabric, 0), Pipe::new(0, 1), Duration::MAX, &mut stopped_after(3));
    assert!(matches!(opened, Err(PipeError::NoPeer { node: 1, .. })), "{opened:?}");
}

#[test]
fn a_reader_without_a_writer_stops_when_it_is_told() {
    let fabric = Fabric::new(Profile::optweb(2)).unwrap();
    let opened = PipeReader::open_until(card(&fabric, 1), Pipe::new(0, 1), Duration::MAX, &mut stopped_after(3));
    assert!(matches!(opened, Err(PipeError::NoPeer { node: 0, .. })), "{opened:?}");
}

/// The link fails between the greeting and its answer.
#[test]
fn a_reader_that_cannot_answer_stops_when_it_is_told() {
    until("a cut before the answer", || {
        let fabric = Fabric::new(Profile::optweb(2)).unwrap();
        let (pipe, is_cut) = (Pipe::new(0, 1), AtomicBool::new(false));
        let mut writer = forged(&fabric, 0);
        let greet = put(&mut writer, pipe.key, &greeting(FORGED), 1).on(2);
        thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let began = Instant::now();
                let mut is_stopped = || is_cut.load(Ordering::Relaxed);
                let opened = PipeReader::open_until(card(&fabric, 1), pipe, LONG, &mut is_stopped);
                assert!(began.elapsed() < LONG / 2, "{opened:?}");
                matches!(opened, Err(PipeError::NoPeer { node: 0, gone: Some(Status::LinkDown), .. }))
            });
            until("a reader", || match writer.run([greet], LONG) {
                Ok(_) => true,
                Err(Error::Failed { status: Status::BadWindow | Status::LinkDown, .. }) => false,
                Err(other) => panic!("{other}"),
            });
            fabric.plant(Fault::Cut { a: 0, b: 1, when: When::Now });
            is_cut.store(true, Ordering::Relaxed);
            reading.join().expect("no panic")
        })
    });
}

/// It asks whether it is stopped while its card waits on.
#[test]
fn a_reader_that_waits_leaves_its_card_alone() {
    let fabric = Fabric::new(Profile::optweb(2)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut there = card(&fabric, 1);
    let path = there.publish(directory.path()).unwrap();
    let mut seen = Vec::new();
    let opened = PipeReader::open_until(there, Pipe::new(0, 1), Duration::MAX, &mut || {
        let counts = read_stats(&path).unwrap();
        seen.push((counts.restarts, counts.failed));
        seen.len() == 5
    });
    assert!(matches!(opened, Err(PipeError::NoPeer { node: 0, .. })), "{opened:?}");
    assert_eq!(seen, [seen[0]; 5]);
}

#[test]
fn a_writer_that_comes_late_meets_a_reader_that_asks_whether_it_is_stopped() {
    let fabric = Fabric::new(Profile::optweb(2)).unwrap();
    let (pipe, looks) = (Pipe::new(0, 1), AtomicU32::new(0));
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut look = || {
                looks.fetch_add(1, Ordering::Relaxed);
                false
            };
            let opened = PipeReader::open_until(card(&fabric, 1), pipe, LONG, &mut look);
            let mut came = String::new();
            opened.expect("a reader").read_to_string(&mut came).expect("data");
            came
        });
        until("the reader to ask", || looks.load(Ordering::Relaxed) > 3);
        let mut writer = PipeWriter::open(card(&fabric, 0), pipe, LONG).expect("a writer");
        writer.write_all(b"hello").unwrap();
        writer.close().unwrap();
        assert_eq!(reading.join().expect("no panic"), "hello");
    });
}

//! Messages that are lost with the link, and readers that vanish: the other end learns of it.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use cmdseq::instruction::{Rights, Window};
use cmdseq::{Instruction, Operand, Status};
use fpga_driver::{Card, Error, PIPE_BUF, PIPE_BYTES, Pipe, PipeError, PipeReader, PipeWriter};
use fpga_mock::{Fabric, Fault, Moved, Profile, When};

use super::{FORGED, LONG, SHORT, card, forge, forged, greeting, open, window};

const MICROSECOND: u64 = 1_000_000;
/// Bytes of a slot, and how many there are.
const SLOT: u64 = PIPE_BUF as u64 + 64;
const SLOTS: u64 = PIPE_BYTES / SLOT;

/// Takes the link down so often, while the writer's card copies a message from the host: it is still down when the message is sent.
fn lose(fabric: &Fabric, count: u32) {
    let when = When::Moved(Moved { node: 0, tag: None, transfer: 0, bytes: 32 });
    fabric.plant(Fault::Flap { a: 0, b: 1, when, down_ps: 5 * MICROSECOND, count });
}

fn is_link_down(error: &PipeError) -> bool {
    matches!(error, PipeError::Card(Error::Failed { status: Status::LinkDown, .. }))
}

/// Reads messages until an end, and returns how many came, and the end.
fn read_all(reader: &mut PipeReader) -> (u64, Result<usize, PipeError>) {
    let mut buffer = vec![0; PIPE_BUF];
    let mut count = 0;
    loop {
        match reader.read(&mut buffer) {
            Ok(1..) => count += 1,
            end => return (count, end),
        }
    }
}

/// The header of a message: of so many bytes, or the last.
fn header(sequence: u64, bytes: u32, last: u32) -> [u8; 64] {
    let mut header = [0; 64];
    header[..8].copy_from_slice(&sequence.to_le_bytes());
    header[8..12].copy_from_slice(&bytes.to_le_bytes());
    header[12..16].copy_from_slice(&last.to_le_bytes());
    header
}

/// Sends a message of a forged writer, once the reader has given its slot.
fn send(writer: &mut Card, sequence: u64, bytes: u32, last: u32) {
    let place = sequence % SLOTS * SLOT;
    writer.write_memory(place, &header(sequence, bytes, last)).unwrap();
    let (place, bytes) = (Operand::card(place), 64 + u64::from(bytes));
    let put = Instruction::put_signal(1, place, place, bytes, 0, 1).through(window(writer, FORGED));
    writer.run([put.on(2)], LONG).unwrap();
}

/// A reader, and a forged writer that it has answered.
fn forge_writer(fabric: &Fabric, before: impl FnOnce()) -> (PipeReader, Card) {
    thread::scope(|scope| {
        let reading = scope.spawn(|| PipeReader::open(card(fabric, 1), Pipe::new(0, 1), LONG).expect("a reader"));
        before();
        let writer = forge(fabric, &greeting(FORGED), true);
        (reading.join().expect("no panic"), writer)
    })
}

/// A message may come although its writer is told that the link was down. What says that messages are lost then comes in the place of
/// one that was read.
#[test]
fn the_place_of_the_loss_may_have_been_read() {
    for count in [1, SLOTS - 1, SLOTS, 2 * SLOTS + 3] {
        let fabric = Fabric::new(Profile::optweb(2)).unwrap();
        let (mut reader, mut writer) = forge_writer(&fabric, || {});
        for sequence in 0..count {
            send(&mut writer, sequence, 5, 0);
            assert_eq!(reader.read(&mut [0; 9]).unwrap(), 5);
        }
        // It may come twice too.
        for _ in 0..2 {
            send(&mut writer, count - 1, 0, 2);
            let error = reader.read(&mut [0; 9]).unwrap_err();
            assert!(matches!(error, PipeError::Truncated), "after {count}: {error}");
        }
        reader.close().unwrap();
    }
}

/// A message that is lost before its slot was ever used is not taken for that of another pipe.
#[test]
fn what_an_earlier_pipe_has_left_does_not_pass_for_data() {
    let fabric = Fabric::new(Profile::optweb(2)).unwrap();
    let (mut reader, mut writer) = forge_writer(&fabric, || {
        // The reader has reset its card when it takes this writer's greeting, who is gone. Its key is not that of the next one, or
        // the reader could take its answer for having come.
        drop(forge(&fabric, &greeting(FORGED + 1), false));
        fabric.write_memory(1, SLOT, &header(1, 5, 0)).unwrap();
    });
    send(&mut writer, 0, 5, 0);
    assert_eq!(reader.read(&mut [0; 9]).unwrap(), 5);
    // Of message 1 nothing comes.
    send(&mut writer, 2, 5, 0);
    let outcome = reader.read(&mut [0; 9]);
    assert!(matches!(outcome, Err(PipeError::Truncated)), "{outcome:?}");
}

/// Messages that the writer's card has already may leave after one that is lost.
#[test]
fn a_message_that_is_lost_is_missed_if_others_follow() {
    let fabric = Fabric::new(Profile::bluelink(1, 2)).unwrap();
    let (mut writer, mut reader) = open(&fabric, Pipe::new(0, 1));
    writer.set_timeout(SHORT);
    while writer.write(&[7; 100]).is_ok() {}
    // The next message that gets a slot.
    lose(&fabric, 1);
    let (count, end) = read_all(&mut reader);
    assert!(matches!(end, Err(PipeError::Truncated)), "after {count}: {end:?}");
    assert!(count >= SLOTS, "{count}");
    let error = writer.close().unwrap_err();
    assert!(is_link_down(&error), "{error}");
    assert!(matches!(reader.read(&mut [0; 9]), Err(PipeError::Truncated)));
}

#[test]
fn the_end_of_the_file_is_sent_again_after_a_loss_of_the_link() {
    let fabric = Fabric::new(Profile::bluelink(1, 2)).unwrap();
    let (mut writer, mut reader) = open(&fabric, Pipe::new(0, 1));
    writer.write(b"came").unwrap();
    writer.flush().unwrap();
    lose(&fabric, 1);
    writer.close().unwrap();
    assert!(matches!(read_all(&mut reader), (1, Ok(0))));
}

#[test]
fn a_writer_tells_of_a_loss_again_after_another() {
    let fabric = Fabric::new(Profile::bluelink(1, 2)).unwrap();
    let (mut writer, mut reader) = open(&fabric, Pipe::new(0, 1));
    writer.write(b"came").unwrap();
    writer.flush().unwrap();
    lose(&fabric, 2);
    writer.write(b"lost").unwrap();
    let error = writer.close().unwrap_err();
    assert!(is_link_down(&error), "{error}");
    let (count, end) = read_all(&mut reader);
    assert!(count == 1 && matches!(end, Err(PipeError::Truncated)), "after {count}: {end:?}");
}

/// Whatever a loss of the link hits, a message, its acknowledgement, or the end: both ends say the same of the data.
#[test]
fn both_ends_agree_whenever_the_link_is_lost() {
    const STEP: u64 = MICROSECOND / 10;
    let mut failed = 0;
    for (before, at) in [0, 20].into_iter().flat_map(|before| (1..=60).map(move |at| (before, at))) {
        let fabric = Fabric::new(Profile::bluelink(1, 2)).unwrap();
        let (mut writer, mut reader) = open(&fabric, Pipe::new(0, 1));
        for _ in 0..before {
            writer.write(&[7; 100]).unwrap();
            assert_eq!(reader.read(&mut [0; 200]).unwrap(), 100);
        }
        fabric.plant(Fault::Flap { a: 0, b: 1, when: When::After(at * STEP), down_ps: STEP, count: 1 });
        // Fewer than the slots: none of them has to be given back.
        let written = (0..10).try_for_each(|_| writer.write(&[7; 100]).map(drop));
        let outcome = written.and(writer.close().map(drop));
        match (read_all(&mut reader), outcome) {
            ((10, Ok(0)), Ok(())) => {}
            ((..=10, Err(PipeError::Truncated)), Err(error)) if is_link_down(&error) => failed += 1,
            (read, outcome) => panic!("down {at} steps after {before} messages: {read:?}, {outcome:?}"),
        }
    }
    assert!(failed > 0);
}

/// A forged reader that has answered a writer, and its window.
fn forge_reader(fabric: &Fabric) -> (Card, Window) {
    let mut reader = forged(fabric, 1);
    let (slot, rights) = (window(&reader, 1).slot, Rights::WRITE.union(Rights::SIGNAL));
    let open = |window| Instruction::open(window, rights, Operand::card(0), PIPE_BYTES).on(2);
    let first = Window { slot, key: Pipe::new(0, 1).key };
    reader.run([open(first), Instruction::wait_signal(1, 1)], LONG).unwrap();
    let mut key = [0; 4];
    reader.read_memory(4, &mut key).unwrap();
    let own = Window { slot, key: u32::from_le_bytes(key) };
    reader.run([Instruction::close(first), open(own), signal_writer(own, 1)], LONG).unwrap();
    (reader, own)
}

/// Adds 1 to a signal of the writer's card.
fn signal_writer(window: Window, signal: u16) -> Instruction {
    Instruction::put_signal(0, Operand::card(0), Operand::card(0), 0, signal, 1).through(window).on(2)
}

/// A reader that vanishes leaves messages in the writer's card that wait for their slots for ever. The card's time is longer than the
/// test.
#[test]
fn a_writer_closes_at_once_when_its_reader_has_vanished() {
    for is_known in [false, true] {
        let fabric = Fabric::new(Profile::bluelink(1, 2)).unwrap();
        let (mut writer, (mut there, window)) = thread::scope(|scope| {
            let reading = scope.spawn(|| forge_reader(&fabric));
            let mut patient = card(&fabric, 0);
            patient.set_timeout(10 * LONG);
            let writer = PipeWriter::open(patient, Pipe::new(0, 1), LONG).expect("a writer");
            (writer, reading.join().expect("no panic"))
        });
        writer.set_timeout(SHORT);
        while writer.write(&[7; 100]).is_ok() {}
        // The first of those that wait gets a slot, and finds no window. The others never get one.
        there.run([Instruction::close(window), signal_writer(window, 0)], LONG).unwrap();
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            writer.set_timeout(10 * LONG);
            if is_known {
                assert!(matches!(writer.write(b"lost"), Err(PipeError::Broken)));
                assert!(matches!(writer.flush(), Err(PipeError::Broken)));
            }
            // The card goes on.
            let closed = writer.close().map(|mut card| card.run([Instruction::nop()], Duration::MAX).map(drop));
            tell.send(closed)
        });
        match told.recv_timeout(LONG).expect("it closes in time") {
            Ok(ran) => assert!(is_known && ran.is_ok(), "{ran:?}"),
            Err(error) => assert!(!is_known && matches!(error, PipeError::Broken), "{error}"),
        }
    }
}

//! Published counters, and files that hold anything else.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{fs, io};

use cmdseq::Instruction;
use cmdseq::text::is_harmful;
use fpga_driver::{OwnerState, State, StatsError, list_stats, read_stats, remove_gone_stats};
use proptest::prelude::*;

use crate::cards::Open as _;
use fpga_fake::{Fake, Reply};

const SECOND: Duration = Duration::from_secs(1);

fn nops(count: usize) -> Vec<Instruction> {
    vec![Instruction::nop(); count]
}

#[test]
fn counts_and_state_are_published_until_the_card_is_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::new(8);
    let mut card = fake.open().unwrap();
    card.run(nops(3), SECOND).unwrap();
    let path = card.publish(directory.path()).unwrap();
    let read = || read_stats(&path).unwrap();
    let start = read();
    assert_eq!((start.name.as_str(), start.node, start.depth), (card.name(), card.node(), 8));
    assert_eq!((start.pid, start.owner, start.state), (std::process::id(), OwnerState::Alive, State::Running));
    assert_eq!((start.submitted, start.completed, start.restarts), (0, 0, 0), "counts from before");
    assert!(start.since.elapsed().unwrap() < Duration::from_secs(600));

    card.run(nops(5), SECOND).unwrap();
    let ran = read();
    assert_eq!((ran.submitted, ran.completed, ran.failed, ran.in_flight()), (5, 5, 0, 0));

    fake.plant(8, Reply::Hang);
    let queue = card.queue_mut();
    let tokens = [(); 2].map(|()| queue.push(Instruction::nop()).unwrap());
    assert_eq!(read().in_flight(), 0, "the card was not told");
    queue.ring().unwrap();
    assert_eq!((read().submitted, read().in_flight()), (7, 2));
    card.abort().unwrap();
    let aborted = read();
    assert_eq!((aborted.completed, aborted.failed, aborted.in_flight(), aborted.restarts), (7, 2, 0, 1));
    assert_eq!(aborted.state, State::Running);
    drop(tokens);

    let listed = list_stats(directory.path()).unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].1.as_ref().unwrap(), &aborted);
    assert_eq!(remove_gone_stats(directory.path()).unwrap(), 0);
    drop(card);
    assert!(
        matches!(read_stats(&path), Err(StatsError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound)
    );
    assert!(list_stats(directory.path()).unwrap().is_empty());
}

#[test]
fn a_card_that_vanishes_is_published_as_gone() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::new(8);
    let mut card = fake.open().unwrap();
    let path = card.publish(directory.path()).unwrap();
    fake.plant(0, Reply::Silence);
    fake.vanish_after(0);
    card.run(nops(1), SECOND).unwrap_err();
    assert_eq!(read_stats(&path).unwrap().state, State::Gone);
}

#[test]
fn failures_of_links_are_counted_apart() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::new(8);
    let mut card = fake.open().unwrap();
    let path = card.publish(directory.path()).unwrap();
    let counts = || read_stats(&path).map(|found| (found.links, found.failed, found.link_failures)).unwrap();
    let links = card.capabilities().ports;
    assert_eq!(counts(), (links, 0, 0));
    // A link that is down, and a status that nobody knows.
    for (index, (code, expected)) in [(13, (links, 1, 1)), (200, (links, 2, 1))].into_iter().enumerate() {
        fake.plant(index as u32, Reply::Code(code, 0));
        card.run(nops(1), SECOND).unwrap_err();
        assert_eq!(counts(), expected);
    }
}

#[test]
fn cards_of_one_process_have_files_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let mut cards = [0, 1].map(|_| Fake::new(8).open().unwrap());
    let [first, second] = cards.each_mut().map(|card| card.publish(directory.path()).unwrap());
    assert_ne!(first, second);
    // Published again, it has another file.
    let third = cards[0].publish(directory.path()).unwrap();
    assert!(!first.exists() && second.exists() && third.exists());
    let missing = cards[0].publish(Path::new("/nowhere")).unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    assert!(third.exists(), "a failed call ends the publication");
}

/// A valid file, and its path in a directory of its own.
fn valid() -> (tempfile::TempDir, PathBuf, Vec<u8>) {
    let directory = tempfile::tempdir().unwrap();
    let bytes = {
        let mut card = Fake::new(8).open().unwrap();
        let path = card.publish(directory.path()).unwrap();
        fs::read(path).unwrap()
    };
    let path = directory.path().join("fpga-stats.1.0");
    fs::write(&path, &bytes).unwrap();
    (directory, path, bytes)
}

/// The words of the format, by hand (docs/stats.md).
#[test]
fn the_format_is_as_documented() {
    let (_directory, path, bytes) = valid();
    let word = |index: usize| u64::from_le_bytes(*bytes[index * 8..].first_chunk().unwrap());
    assert_eq!((&bytes[..8], bytes.len()), (&b"FPGASTAT"[..], 5120));
    assert_eq!(word(1), 640 << 32 | 2);
    assert_eq!(word(2) as u32, std::process::id());
    assert_eq!((word(5) as u32, word(8)), (8, 1));
    assert_eq!(word(6), u64::from(read_stats(&path).unwrap().links));
    assert!(bytes[256..].starts_with(read_stats(&path).unwrap().name.as_bytes()));
}

#[test]
fn each_wrong_word_is_named() {
    let (_directory, path, bytes) = valid();
    for (index, value, expected) in [
        (0, 1, "its first word is 0x0000000000000001"),
        (1, 640 << 32 | 3, "has version 3 of the format: expected 2"),
        (5, 7, "the depth of its queue is 7"),
        (8, 5, "its state is 5"),
        (9, 1000, "1000 completions of 0 instructions"),
        (11, 1000, "1000 of its 0 completions failed"),
        (32, 0xff, "the name of its card"),
        (32, 0x1b, "the name of its card"),
        (96, 0x0a, "the name of its process"),
        // U+202E, which turns what follows around.
        (32, 0xae80e2, "the name of its card"),
        (15, 65, "65 sensors: expected at most 64"),
        (15, 1, "sensor 0 has a wrong name, unit or state"),
    ] {
        let mut wrong = bytes.clone();
        wrong[index * 8..index * 8 + 8].copy_from_slice(&u64::to_le_bytes(value));
        fs::write(&path, wrong).unwrap();
        let error = read_stats(&path).unwrap_err().to_string();
        assert!(error.contains(expected), "word {index}: {error}");
    }
    // Words are stored one after the other: a count may be ahead by as many instructions as the queue has entries, 8.
    for (index, value, is_valid) in [(9, 8, true), (9, 9, false), (11, 8, true), (11, 9, false)] {
        let mut ahead = bytes.clone();
        ahead[index * 8..index * 8 + 8].copy_from_slice(&u64::to_le_bytes(value));
        fs::write(&path, ahead).unwrap();
        let found = read_stats(&path);
        assert_eq!(found.is_ok(), is_valid, "word {index}: {value}");
        if let Ok(found) = found {
            assert_eq!((found.completed, found.in_flight()), (0, 0), "none is completed before it is submitted");
        }
    }
    fs::write(&path, &bytes[..5119]).unwrap();
    assert!(read_stats(&path).unwrap_err().to_string().contains("5119 bytes: expected at least 5120"));
}

/// A process that has ended, or another one with its id.
#[test]
fn files_of_processes_that_ended_are_gone_and_can_be_removed() {
    let (directory, path, mut bytes) = valid();
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    fs::remove_file(path).unwrap();
    for pid in [child.id(), 1] {
        let path = directory.path().join(format!("fpga-stats.{pid}.0"));
        bytes[16..20].copy_from_slice(&pid.to_le_bytes());
        fs::write(&path, &bytes).unwrap();
        assert_eq!(read_stats(&path).unwrap().owner, OwnerState::Gone);
        assert_eq!(remove_gone_stats(directory.path()).unwrap(), 1);
        assert!(!path.exists());
    }
}

/// A file that somebody copies under another name could take the place of its original, or double it.
#[test]
fn files_of_other_names_are_left_out_and_copies_are_refused() {
    let (directory, valid, bytes) = valid();
    fs::remove_file(valid).unwrap();
    let pid = std::process::id();
    let write = |name: String| fs::write(directory.path().join(name), &bytes).unwrap();
    for name in [".1\u{1b}]0;x\u{7}.0", ".1", ".1.0.part", ".1.", "..0", ".a.0", ".1.0.0", ".1.-1"] {
        write(format!("fpga-stats{name}"));
    }
    for name in [format!("0{pid}.0"), format!("+{pid}.0"), format!("{pid}.00"), format!("{pid}.4294967296")] {
        write(format!("fpga-stats.{name}"));
    }
    assert!(list_stats(directory.path()).unwrap().is_empty());
    write(format!("fpga-stats.{pid}.10"));
    write("fpga-stats.1.0".to_owned());
    let found = list_stats(directory.path()).unwrap();
    let [(copied, Err(error)), (_, Ok(own))] = found.as_slice() else { panic!("{found:?}") };
    assert!(copied.ends_with("fpga-stats.1.0") && own.pid == pid);
    assert!(error.to_string().ends_with(&format!("it has the counters of process {pid}")), "{error}");
    // Who names it means it.
    assert_eq!(read_stats(copied).unwrap().pid, pid);
}

#[test]
fn a_sensor_that_is_there_twice_is_refused() {
    let (_directory, path, mut bytes) = valid();
    bytes[15 * 8] = 2;
    for (sensor, name) in [(128, b't'), (136, b'u')] {
        // Part, name, unit, and a good value.
        for (word, value) in [
            (0, *b"board\0\0\0"),
            (1, [name, 0, 0, 0, 0, 0, 0, 0]),
            (5, *b"mC\0\0\0\0\0\0"),
            (6, 1_u64.rotate_right(8).to_le_bytes()),
        ] {
            bytes[(sensor + word) * 8..][..8].copy_from_slice(&value);
        }
    }
    fs::write(&path, &bytes).unwrap();
    assert_eq!(read_stats(&path).unwrap().sensors.len(), 2);
    bytes[(136 + 1) * 8] = b't';
    fs::write(&path, &bytes).unwrap();
    assert!(read_stats(&path).unwrap_err().to_string().contains("its sensor t of board is there twice"));
}

/// Directories and files have names that anybody may have chosen.
#[test]
fn paths_are_shown_without_what_harms_a_terminal() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a\u{1b}]0;owned\u{7}\u{202e}b");
    fs::write(&path, "nothing").unwrap();
    for path in [path.clone(), path.join("c"), path.with_extension("none")] {
        let text = read_stats(&path).unwrap_err().to_string();
        assert!(
            text.contains("a\u{fffd}]0;owned\u{fffd}\u{fffd}b") && !text.contains(['\u{1b}', '\u{202e}']),
            "{text:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any bytes, and a valid file with any changes: an error or counts, and counts that hold together.
    #[test]
    fn any_file_is_read_or_refused(noise in prop::collection::vec(any::<u8>(), 0..6000),
                                   changes in prop::collection::vec((0..5120usize, any::<u8>()), 0..20)) {
        let (_directory, path, mut bytes) = valid();
        fs::write(&path, noise).unwrap();
        prop_assert!(read_stats(&path).is_err());
        for (at, value) in changes {
            bytes[at] = value;
        }
        fs::write(&path, bytes).unwrap();
        if let Ok(card) = read_stats(&path) {
            prop_assert!(card.completed <= card.submitted && card.in_flight() <= card.depth);
            prop_assert!(!card.name.contains(is_harmful) && !card.command.contains(is_harmful));
        }
    }
}

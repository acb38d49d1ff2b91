//! Files that killed owners have left.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::Owner;
use crate::command;

/// A process that is killed before all words of a file are written leaves it with the suffix `.part`.
#[test]
fn unfinished_files_of_killed_processes_are_removed() {
    let mut owner = Owner::new("mock:optweb:2");
    let valid = fs::read(owner.cards()[0]["file"].as_str().unwrap()).unwrap();
    let of_earlier = {
        let mut bytes = valid.clone();
        bytes[3 * 8] ^= 1;
        bytes
    };
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let (own, gone) = (owner.child.id(), ended.id());
    let left = |number: u32| owner.directory().join(format!("fpga-stats.{own}.{number}.part"));
    let [short, whole, earlier] = [7, 8, 9].map(left);
    let other = owner.directory().join(format!("fpga-stats.{gone}.0.part.part"));
    let write = |path: &Path, bytes: &[u8]| fs::write(path, bytes).unwrap();
    write(&owner.directory().join(format!("fpga-stats.{gone}.0.part")), b"");
    write(&owner.directory().join(format!("fpga-stats.{gone}.1.part")), &valid[..100]);
    std::os::unix::fs::symlink(&other, owner.directory().join(format!("fpga-stats.{gone}.2.part"))).unwrap();
    write(&short, &valid[..100]);
    write(&whole, &valid);
    // Of another process that had the id.
    write(&earlier, &of_earlier);
    write(&other, b"");
    assert_eq!(owner.cards().len(), 2, "an unfinished file is read");
    assert_eq!(owner.run(&["stats", "--clean"]).stdout, b"removed: 4\n");
    assert!(short.exists() && whole.exists() && !earlier.exists() && other.exists());
    owner.kill();
    assert!(owner.run(&["coll", "broadcast", "--bytes", "64"]).status.success());
    let names: Vec<_> = fs::read_dir(owner.directory()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(names, [other], "the next owner removes the others");
}

/// A file that was cut short, and one of another version of the format: readers refuse both, so nothing but their names and first words
/// tells of their owners.
#[test]
fn refused_files_of_killed_processes_are_removed() {
    let mut owner = Owner::new("mock:optweb:2");
    let files: Vec<_> = owner.cards().iter().map(|card| card["file"].as_str().unwrap().to_owned()).collect();
    let mut valid = fs::read(&files[0]).unwrap();
    valid[8] = 3;
    let write = |name: &str, bytes: &[u8]| fs::write(owner.directory().join(name), bytes).unwrap();
    // Of a process that runs, and of an earlier one with its id.
    let own = format!("fpga-stats.{}.7", owner.child.id());
    write(&own, &valid);
    valid[3 * 8] ^= 1;
    write(&format!("fpga-stats.{}.8", owner.child.id()), &valid);
    assert_eq!(owner.run(&["stats"]).status.code(), Some(1));
    assert_eq!(owner.run(&["stats", "--clean"]).stdout, b"removed: 1\n");
    assert!(owner.directory().join(own).exists());

    owner.kill();
    fs::File::options().write(true).open(&files[0]).unwrap().set_len(20).unwrap();
    assert_eq!(owner.run(&["stats"]).status.code(), Some(1));
    assert_eq!(owner.run(&["stats", "--clean"]).stdout, b"removed: 3\n");
    assert!(owner.run(&["stats"]).status.success());
}

/// What an earlier process with the same id left keeps none of the cards from being published.
#[test]
fn an_unfinished_file_of_the_same_process_id_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let inner = command(&["pipe", "--cards", "mock:optweb:2"]);
    let mut shell = Command::new("sh");
    let leave = "for n in 0 1; do : > \"$FPGACTL_STATS_DIR/fpga-stats.$$.$n.part\"; done; exec \"$@\"";
    shell.args(["-c", leave, "sh"]).arg(inner.get_program()).args(inner.get_args());
    shell.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.env("FPGACTL_STATS_DIR", directory.path()).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = shell.spawn().unwrap();
    let owner = Owner { input: child.stdin.take(), child, directory };
    owner.until("the cards are not published", |cards| cards.len() == 2);
    assert_eq!(fs::read_dir(owner.directory()).unwrap().count(), 2);
}

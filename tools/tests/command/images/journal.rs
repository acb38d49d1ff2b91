//! What is kept of a load that was killed, or not undone: nothing but its recovery, or another load, takes it away.

use std::cell::RefCell;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use serde_json::Value;

use super::{ALL, Bench, CARD, MASKS, OTHER, PORT, beginning, failed};
use crate::{command, command_with_room, json, parsed, run, stdout};

/// Waits until something is so while a command runs.
fn await_while(running: &mut Child, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(running.try_wait().unwrap().is_none(), "the command has ended before");
        assert!(began.elapsed() < Duration::from_secs(120), "waited too long");
        thread::sleep(Duration::from_millis(1));
    }
}

fn spawn(words: &[&str]) -> Child {
    command(words).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

fn signal(signal: &str, process: u32) {
    assert!(Command::new("kill").args([signal, &process.to_string()]).status().unwrap().success());
}

/// Ends a command by Ctrl-C.
fn interrupt(running: Child) -> Output {
    signal("-INT", running.id());
    running.wait_with_output().unwrap()
}

/// Interrupts a command while it loads an image. `is_near` tells that it is about to: a signal before changes nothing, and is repeated.
pub(super) fn interrupt_load(words: &[&str], prepare: impl Fn(), is_near: impl Fn() -> bool) -> Output {
    for attempt in 0..50 {
        prepare();
        let mut running = spawn(words);
        await_while(&mut running, &is_near);
        thread::sleep(attempt * Duration::from_millis(10));
        let output = interrupt(running);
        if !failed(&output).1.contains("interrupted before the load") {
            return output;
        }
    }
    panic!("every signal came before the load had started");
}

/// Runs a command, and interrupts it where it first reads what tells this boot of the machine from others, which is `one`.
fn interrupt_at_boot(bench: &Bench, words: &[&str]) -> Output {
    let boot = bench.machine.as_ref().unwrap().path("proc/sys/kernel/random/boot_id");
    fs::create_dir_all(boot.parent().unwrap()).unwrap();
    let _ = fs::remove_file(&boot);
    nix::unistd::mkfifo(&boot, Mode::S_IRWXU).unwrap();
    let mut running = spawn(words);
    let pipe = RefCell::new(None);
    // Without a reader, opening fails.
    let is_read = || {
        let opened = fs::File::options().write(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(&boot).ok();
        opened.is_some_and(|opened| pipe.replace(Some(opened)).is_none())
    };
    await_while(&mut running, is_read);
    // What it reads later is no pipe.
    let file = bench.path("boot");
    fs::write(&file, "one\n").unwrap();
    fs::rename(&file, &boot).unwrap();
    signal("-INT", running.id());
    pipe.take().unwrap().write_all(b"one\n").unwrap();
    running.wait_with_output().unwrap()
}

/// Kills the load of a card, below the port, once it has begun, and leaves a shorter image in its stead.
fn kill_load(bench: &Bench, target: &str, long: &Path, short: &Path) {
    let pending = bench.kept_of(target, "pending");
    let mut load = spawn(&bench.words(&["load", long.to_str().unwrap()], target));
    await_while(&mut load, || pending.exists());
    load.kill().unwrap();
    assert_eq!(load.wait().unwrap().code(), None, "killed");
    assert_eq!(bench.masks(), ALL);
    fs::write(pending, fs::read(short).unwrap()).unwrap();
}

/// Plants the image of a load that was killed.
fn plant(bench: &Bench, image: &Path) {
    let pending = bench.kept("pending");
    fs::create_dir_all(pending.parent().unwrap()).unwrap();
    fs::copy(image, pending).unwrap();
}

/// Writes an image that the card refuses after it has taken all of it.
fn damaged(bench: &Bench) -> PathBuf {
    let mut data = fs::read(bench.image(OTHER, "4KiB")).unwrap();
    *data.last_mut().unwrap() ^= 1;
    let path = bench.path("damaged.gbs");
    fs::write(&path, data).unwrap();
    path
}

fn done(recovered: &Value) -> &str {
    recovered["done"].as_str().unwrap()
}

#[test]
fn a_signal_before_a_load_has_started_changes_nothing() {
    let bench = Bench::new().below_port();
    let (image, left) = (bench.image(OTHER, "64KiB"), bench.image(OTHER, "4KiB"));
    let (target, pending) = (bench.target(), bench.kept("pending"));
    let check = |output: &Output| {
        let (code, text) = failed(output);
        assert!(code == 130, "{code}: {text}");
        assert!(text.ends_with("fpgactl: interrupted before the load; the card was not changed\n"), "{text}");
        assert_eq!((bench.loaded(), bench.masks(), bench.is_noted()), (beginning(CARD), MASKS, false));
    };
    let load = bench.words(&["load", image.to_str().unwrap()], &target);
    // What a load that was killed has written of its image.
    let unfinished = bench.kept("pending.f3Xa9q.part");
    fs::create_dir_all(unfinished.parent().unwrap()).unwrap();
    fs::write(&unfinished, "half").unwrap();
    // No load fails for another one's name.
    fs::create_dir(bench.kept("pending.folder.part")).unwrap();
    check(&interrupt_at_boot(&bench, &load));
    assert!(!pending.exists() && !unfinished.exists());
    // A load that was killed before is still to be recovered.
    plant(&bench, &left);
    check(&interrupt_at_boot(&bench, &load));
    assert_eq!(fs::read(&pending).unwrap(), fs::read(&left).unwrap());
    // It has masked the port, so that recovering looks at the boot.
    fs::write(bench.kept("port"), format!(r#"{{"port":"{PORT}","boot":"one"}}"#)).unwrap();
    check(&interrupt_at_boot(&bench, &bench.words(&["recover"], &target)));
    assert_eq!((done(&bench.recover()), bench.loaded()), ("completed", beginning(OTHER)));
}

/// Another load of the card replaces the killed one, and ends, after `recover` has looked at the journal and before it has the card.
#[test]
fn recovering_leaves_a_load_alone_that_has_ended_meanwhile() {
    const BYTES: u64 = 16 << 20;
    let bench = Bench::new();
    let (image, target) = (bench.image(OTHER, "16MiB"), bench.target());
    let server = bench.served.process();
    let mut output = None;
    // The command waits for its card for 5 s only.
    for _ in 0..5 {
        plant(&bench, &image);
        signal("-STOP", server);
        let mut recover = spawn(&[&bench.words(&["recover"], &target)[..], &["--json"]].concat());
        let counts = PathBuf::from(format!("/proc/{}/io", recover.id()));
        await_while(&mut recover, || {
            let counts = fs::read_to_string(&counts).unwrap();
            let read = counts.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap();
            read.parse::<u64>().unwrap() > BYTES
        });
        fs::remove_file(bench.kept("pending")).unwrap();
        signal("-CONT", server);
        let ended = recover.wait_with_output().unwrap();
        let is_late = ended.status.code() == Some(5);
        output = Some(ended);
        if !is_late {
            break;
        }
    }
    let output = output.unwrap();
    assert_eq!(failed(&output), (0, String::new()));
    assert_eq!(done(&parsed(&output.stdout)), "nothing");
    assert_eq!(bench.loaded(), beginning(CARD));
}

/// The images are kept of an Intel card; an Alveo card has its place now.
#[test]
fn images_of_another_card_are_refused_and_nothing_is_said_to_be_lost() {
    let bench = Bench::alveo();
    let gbs = bench.path("other.gbs");
    stdout(&["mock", "image", "--output", gbs.to_str().unwrap(), "--bytes", "4KiB"]);
    plant(&bench, &gbs);
    fs::copy(&gbs, bench.kept("good")).unwrap();
    let recover = || failed(&run(&bench.words(&["recover"], &bench.target())));
    let folder = bench.kept("pending").parent().unwrap().to_owned();
    let told = format!("; the card was not changed: if the images are another card's, delete {}\n", folder.display());
    for _ in 0..2 {
        let (code, text) = recover();
        assert!(
            code == 7 && text.contains("GBS files are for Intel's cards, and this card is AMD's"),
            "{code}: {text}"
        );
        assert!(text.ends_with(&told) && !text.contains("no accelerator"), "{text}");
        assert_eq!(bench.loaded(), beginning(CARD));
    }
    // A name that would clear a terminal.
    let state = bench.path("\u{1b}[2J");
    let named = state.join(folder.strip_prefix(bench.folder.path()).unwrap());
    fs::create_dir_all(&named).unwrap();
    for name in ["pending", "good"] {
        fs::copy(&gbs, named.join(name)).unwrap();
    }
    let output = run(&["image", "recover", &bench.target(), "--state-dir", state.to_str().unwrap()]);
    let (code, text) = failed(&output);
    assert!(code == 7 && text.contains("another card's, delete ") && !text.contains('\u{1b}'), "{code}: {text:?}");
    // The image before cannot be read.
    fs::remove_file(bench.kept("good")).unwrap();
    symlink("/nowhere", bench.kept("good")).unwrap();
    let (code, text) = recover();
    assert!(code == 7 && text.contains("; rolling back failed, the card was not changed: "), "{code}: {text}");
    assert_eq!(bench.loaded(), beginning(CARD));
    // There is none, and a load was killed between giving the earlier image a second name and writing its own.
    fs::remove_file(bench.kept("good")).unwrap();
    fs::hard_link(bench.kept("pending"), bench.kept("earlier")).unwrap();
    let (code, text) = recover();
    assert!(code == 7 && text.ends_with("this card is AMD's; the card was not changed\n"), "{code}: {text}");
    assert_eq!((done(&bench.recover()), bench.loaded()), ("nothing", beginning(CARD)));
    assert!(!bench.kept("earlier").exists());
}

/// Limits the size of files, as a full disk does.
#[test]
fn a_load_that_cannot_be_noted_leaves_the_killed_one_before_to_be_recovered() {
    let bench = Bench::new();
    let (image, left) = (bench.image(CARD, "256KiB"), bench.image(OTHER, "4KiB"));
    plant(&bench, &left);
    let load = command_with_room(64, &bench.words(&["load", image.to_str().unwrap()], &bench.target())).output();
    let (code, text) = failed(&load.unwrap());
    assert!(code == 1 && text.contains("File too large"), "{code}: {text}");
    assert!(!bench.kept("earlier").exists());
    assert_eq!(fs::read(bench.kept("pending")).unwrap(), fs::read(&left).unwrap());
    assert_eq!((done(&bench.recover()), bench.loaded()), ("completed", beginning(OTHER)));
}

#[test]
fn a_journal_that_cannot_be_changed_after_a_load_does_not_hide_that_the_image_is_loaded() {
    let bench = Bench::new().below_port();
    // A load of so many bytes lasts until its journal is changed.
    let (image, target, pending) = (bench.image(OTHER, "16MiB"), bench.target(), bench.kept("pending"));
    let check = |running: Child| {
        fs::remove_file(&pending).unwrap();
        let (code, text) = failed(&running.wait_with_output().unwrap());
        let told = format!("fpgactl: the image is loaded, but: {}: No such file", pending.display());
        assert!(code == 1 && text.contains(&told), "{code}: {text}");
        assert_eq!((bench.loaded(), bench.masks()), (beginning(OTHER), MASKS));
    };
    let mut load = spawn(&bench.words(&["load", image.to_str().unwrap()], &target));
    await_while(&mut load, || pending.exists());
    check(load);
    bench.loads(&bench.image(CARD, "4KiB"));
    plant(&bench, &image);
    fs::write(bench.kept("port"), format!(r#"{{"port":"{PORT}","boot":"one"}}"#)).unwrap();
    let boot = bench.machine.as_ref().unwrap().path("proc/sys/kernel/random/boot_id");
    fs::create_dir_all(boot.parent().unwrap()).unwrap();
    fs::write(boot, "one\n").unwrap();
    let mut recover = spawn(&bench.words(&["recover"], &target));
    await_while(&mut recover, || bench.masks() == ALL);
    check(recover);
}

#[test]
fn a_file_that_is_refused_leaves_a_killed_load_to_be_recovered() {
    let bench = Bench::alveo();
    let image = bench.image(OTHER, "4KiB");
    plant(&bench, &image);
    let mut data = fs::read(bench.image(CARD, "4KiB")).unwrap();
    let place = data.windows(4).position(|word| word == [0x14, 0xb7, 0xd0, 0x93]).unwrap();
    data[place] = 0x15;
    let foreign = bench.path("foreign.bit");
    fs::write(&foreign, data).unwrap();
    for _ in 0..2 {
        let (code, text) = failed(&bench.load(&foreign));
        assert!(code == 7 && text.contains("the image is for device 0x15b7d093"), "{code}: {text}");
        assert_eq!(fs::read(bench.kept("pending")).unwrap(), fs::read(&image).unwrap());
    }
    assert_eq!((done(&bench.recover()), bench.loaded()), ("completed", beginning(OTHER)));
    assert_eq!(done(&bench.recover()), "nothing");
    // A load that is not refused replaces it.
    plant(&bench, &image);
    bench.loads(&bench.image(CARD, "4KiB"));
    assert_eq!((done(&bench.recover()), bench.loaded()), ("nothing", beginning(CARD)));
    // A refused file alone leaves nothing.
    assert_eq!(failed(&bench.load(&foreign)).0, 7);
    assert_eq!(done(&bench.recover()), "nothing");
    assert!(!bench.kept("earlier").exists());
}

#[test]
fn a_load_whose_rollback_fails_can_be_recovered() {
    let bench = Bench::new();
    let good = bench.image(CARD, "4KiB");
    bench.loads(&good);
    let bad = damaged(&bench);
    fs::copy(&bad, bench.kept("good")).unwrap();
    let (code, text) = failed(&bench.load(&bad));
    assert!(code == 1 && text.contains("rolling back failed, no accelerator is loaded: "), "{code}: {text}");
    assert!(text.ends_with("; use `fpgactl image recover` to try again\n"), "{text}");
    let (code, text) = failed(&run(&bench.words(&["recover"], &bench.target())));
    assert!(code == 1 && text.ends_with("; use `fpgactl image recover` to try again\n"), "{code}: {text}");
    // What stood in the way is gone.
    fs::copy(&good, bench.kept("good")).unwrap();
    assert_eq!((done(&bench.recover()), bench.loaded()), ("undone", beginning(CARD)));
    assert_eq!(done(&bench.recover()), "nothing");
    // Without an image to go back to, the same file would fail again.
    fs::remove_file(bench.kept("good")).unwrap();
    let (code, text) = failed(&bench.load(&bad));
    assert!(code == 1 && text.ends_with("; no accelerator is loaded\n"), "{code}: {text}");
    assert_eq!(done(&bench.recover()), "nothing");
}

/// Without an image to go back to, the image that was being loaded is all there is.
#[test]
fn an_interrupted_first_load_can_be_recovered_even_if_that_is_interrupted() {
    let bench = Bench::new().below_port();
    let (long, short) = (bench.image(OTHER, "16MiB"), bench.image(OTHER, "4KiB"));
    let target = bench.target();
    let check = |output: &Output| {
        let (code, text) = failed(output);
        assert!(code == 130 && text.ends_with("; use `fpgactl image recover` to load the image\n"), "{code}: {text}");
        assert_eq!(fs::read(bench.kept("pending")).unwrap(), fs::read(&long).unwrap());
        assert_eq!((bench.masks(), bench.is_noted()), (MASKS, false));
    };
    let pending = bench.kept("pending");
    let load = bench.words(&["load", long.to_str().unwrap()], &target);
    check(&interrupt_load(&load, || (), || pending.exists()));
    // As if a load had been killed: so recovering masks the port too, which shows that it is about to load.
    let note_port = || fs::write(bench.kept("port"), format!(r#"{{"port":"{PORT}","boot":null}}"#)).unwrap();
    let recover = bench.words(&["recover"], &target);
    check(&interrupt_load(&recover, note_port, || bench.masks() == ALL));
    fs::copy(&short, &pending).unwrap();
    assert_eq!((done(&bench.recover()), bench.loaded()), ("completed", beginning(OTHER)));
    assert_eq!(done(&bench.recover()), "nothing");
}

/// Each of two cards has a load that is killed, and the second finds the errors of their port masked.
#[test]
fn killed_loads_of_two_cards_leave_their_port_as_it_was_before_both() {
    let bench = Bench::new().below_port();
    let (long, short) = (bench.image(OTHER, "16MiB"), bench.image(OTHER, "4KiB"));
    let targets = [0, 1].map(|node| bench.served.control(node));
    let recover = |target: &str| json(&bench.words(&["recover"], target));
    for order in [[0, 1], [1, 0]] {
        for target in &targets {
            kill_load(&bench, target, &long, &short);
        }
        let [first, second] = order.map(|card| recover(&targets[card]));
        assert_eq!((done(&first), first["unmasked"].as_str()), ("completed", Some(PORT)));
        assert_eq!((done(&second), second["unmasked"].as_str()), ("completed", None));
        assert_eq!((bench.masks(), bench.is_noted()), (MASKS, false), "{order:?}");
        assert!(!bench.kept_of(&targets[1], "port").exists());
        for target in &targets {
            assert_eq!(done(&recover(target)), "nothing");
        }
    }
    // A load of the other card that is not killed restores them as well.
    kill_load(&bench, &targets[0], &long, &short);
    json(&bench.words(&["load", short.to_str().unwrap()], &targets[1]));
    assert_eq!((bench.masks(), bench.noted().exists()), (MASKS, false));
    let recovered = recover(&targets[0]);
    assert_eq!((done(&recovered), recovered["unmasked"].as_str()), ("completed", None));
    assert_eq!((bench.masks(), bench.is_noted()), (MASKS, false));
}

/// A load of one card does not touch the masks that another card's load holds, and recovering neither.
#[test]
fn masks_are_left_to_the_load_that_has_set_them() {
    let bench = Bench::new().below_port();
    let (long, short) = (bench.image(OTHER, "16MiB"), bench.image(OTHER, "4KiB"));
    let targets = [0, 1].map(|node| bench.served.control(node));
    kill_load(&bench, &targets[1], &long, &short);
    // Held as by a load under way.
    let config = fs::File::options().read(true).write(true).open(bench.config()).unwrap();
    let lock =
        nix::fcntl::Flock::lock(config, nix::fcntl::FlockArg::LockExclusive).map_err(|(_, errno)| errno).unwrap();
    let loaded = json(&bench.words(&["load", short.to_str().unwrap()], &targets[0]));
    assert_eq!((loaded["upstream"]["masked"].as_bool(), bench.masks()), (Some(false), ALL));
    let (code, text) = failed(&run(&bench.words(&["recover"], &targets[1])));
    assert!(code == 1 && text.contains("another process masks errors of 0000:3a:00.0"), "{code}: {text}");
    assert!(text.ends_with("; use `fpgactl image recover` after it has ended\n"), "{text}");
    assert_eq!((bench.masks(), bench.noted().exists()), (ALL, true));
    drop(lock);
    let recovered = json(&bench.words(&["recover"], &targets[1]));
    assert_eq!((done(&recovered), recovered["unmasked"].as_str()), ("nothing", Some(PORT)));
    assert_eq!((bench.masks(), bench.is_noted()), (MASKS, false));
}

#[test]
fn a_socket_has_one_journal_by_whatever_path_it_is_named() {
    let bench = Bench::new();
    let image = bench.image(OTHER, "4KiB");
    let target = bench.target();
    let socket = Path::new(target.trim_start_matches("vfio-user:"));
    let (folder, name) = (socket.parent().unwrap(), socket.file_name().unwrap().to_str().unwrap());
    let link = bench.path("link");
    symlink(folder, &link).unwrap();
    let last = folder.file_name().unwrap().to_str().unwrap();
    let names = [
        format!("vfio-user:{}/{name}", link.display()),
        format!("vfio-user:/../..{}/{name}", folder.display()),
        format!("vfio-user:{}/../{last}/{name}", folder.display()),
        target.clone(),
    ];
    for named in &names {
        plant(&bench, &image);
        assert_eq!(done(&json(&bench.words(&["recover"], named))), "completed", "{named}");
        assert_eq!(done(&json(&bench.words(&["recover"], &target))), "nothing", "{named}");
    }
    // All of it is in the folder for what is kept, under one name.
    let state = bench.path("deep/state");
    for named in &names {
        let words = ["image", "load", image.to_str().unwrap(), named, "--state-dir", state.to_str().unwrap()];
        json(&words);
    }
    let inside = |path: &Path| fs::read_dir(path).unwrap().map(|one| one.unwrap().file_name()).collect::<Vec<_>>();
    assert_eq!(inside(&bench.path("deep")), ["state"]);
    assert_eq!(inside(&state), ["vfio-user"]);
    // A folder that does not exist has no card: the text is that of opening it.
    let nowhere = "vfio-user:/nowhere/0.control.sock";
    let [recover, load] = [run(&bench.words(&["recover"], nowhere)), load_into(&bench, &image, nowhere)];
    assert_eq!(failed(&recover), failed(&load));
    assert_eq!(failed(&recover).0, 4);
}

fn load_into(bench: &Bench, image: &Path, target: &str) -> Output {
    run(&bench.words(&["load", image.to_str().unwrap()], target))
}

#[test]
fn an_image_whose_completion_fails_is_undone() {
    let bench = Bench::new();
    bench.loads(&bench.image(CARD, "4KiB"));
    // As if a load of a damaged image had been killed.
    let mut damaged = fs::read(bench.image(OTHER, "4KiB")).unwrap();
    *damaged.last_mut().unwrap() ^= 1;
    fs::write(bench.kept("pending"), damaged).unwrap();
    let recovered = bench.recover();
    assert_eq!(
        (recovered["done"].as_str(), recovered["image"].as_str()),
        (Some("undone"), Some(&*format!("accelerator {CARD}")))
    );
    assert_eq!(bench.loaded(), beginning(CARD));
    assert_eq!(bench.recover()["done"], "nothing");
}

//! What is kept of a load that was killed, or not undone: nothing but its recovery, or another load, takes it away.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{ALL, Bench, CARD, MASKS, OTHER, PORT, beginning, failed};
use crate::{command, json, run};

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

/// Ends a command by Ctrl-C.
fn interrupt(running: Child) -> Output {
    assert!(Command::new("kill").args(["-INT", &running.id().to_string()]).status().unwrap().success());
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
    let mut load = spawn(&bench.words(&["load", long.to_str().unwrap()], &target));
    await_while(&mut load, || pending.exists());
    check(&interrupt(load));
    // As if a load had been killed: so recovering masks the port too, which shows that it has begun.
    fs::write(bench.kept("port"), format!(r#"{{"port":"{PORT}","boot":null}}"#)).unwrap();
    let mut recover = spawn(&bench.words(&["recover"], &target));
    await_while(&mut recover, || bench.masks() == ALL);
    check(&interrupt(recover));
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

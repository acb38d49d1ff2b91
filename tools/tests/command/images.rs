//! `fpgactl image`: what files hold, and what a card holds after every way that loading may end.

mod begun;
mod journal;
mod xclbins;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::served::Served;
use crate::tree::Tree;
use crate::{command, json, run, stdout};

/// GUID of the card with a sequencer, and of an accelerator that the model does not have.
const CARD: &str = "6fe0a4a1-5a0c-4d0e-9a57-7f1f4f8b2c10";
const OTHER: &str = "56e203e9-864f-49a7-b94b-12284c31e02b";
/// The port of `hal/sysfs/tests/trees/port.txt`; its masks of uncorrectable and correctable errors, typed by hand.
const PORT: &str = "0000:3a:00.0";
const MASKS: [u32; 2] = [0x0040_0000, 0xe000];
const ALL: [u32; 2] = [u32::MAX; 2];

/// A served card, images for it, and a place to keep them.
struct Bench {
    served: Served,
    folder: TempDir,
    is_alveo: bool,
    /// A machine with a port above the card.
    machine: Option<Tree>,
}

impl Bench {
    fn new() -> Self {
        Bench::of("mock:s10-dfl:2", false)
    }

    /// Alveo cards: their user BAR takes images.
    fn alveo() -> Self {
        Bench::of("mock:alveo-xdma:2", true)
    }

    fn of(selector: &str, is_alveo: bool) -> Self {
        Bench { served: Served::new(&[selector]), folder: tempfile::tempdir().unwrap(), is_alveo, machine: None }
    }

    /// The same, below a port.
    fn below_port(self) -> Self {
        Bench { machine: Some(Tree::new(&["machine", "port"])), ..self }
    }

    /// Configuration space of the port.
    fn config(&self) -> PathBuf {
        self.machine.as_ref().unwrap().path("sys/bus/pci/devices").join(PORT).join("config")
    }

    /// What the port has as masks now.
    fn masks(&self) -> [u32; 2] {
        let config = fs::read(self.config()).unwrap();
        [0x150, 0x15c].map(|at| u32::from_le_bytes(config[at..at + 4].try_into().unwrap()))
    }

    /// Writes masks, as a killed load leaves them.
    fn set_masks(&self, masks: [u32; 2]) {
        let mut config = fs::read(self.config()).unwrap();
        for (at, mask) in [0x150, 0x15c].into_iter().zip(masks) {
            config[at..at + 4].copy_from_slice(&mask.to_le_bytes());
        }
        fs::write(self.config(), config).unwrap();
    }

    /// The function of card 0 that takes images.
    fn target(&self) -> String {
        if self.is_alveo { self.served.card(0) } else { self.served.control(0) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes an image of this accelerator.
    fn image(&self, guid: &str, bytes: &str) -> PathBuf {
        let path = self.path(&format!("{guid}-{bytes}.{}", if self.is_alveo { "bit" } else { "gbs" }));
        stdout(&["mock", "image", "--output", path.to_str().unwrap(), "--guid", guid, "--bytes", bytes]);
        path
    }

    /// Arguments for the control function of card 0.
    fn words<'a>(&'a self, words: &[&'a str], control: &'a str) -> Vec<&'a str> {
        let unchecked = self.is_alveo && words[0] == "load";
        let unchecked = if unchecked { &["--unchecked"][..] } else { &[] };
        let port = if words[0] == "load" { &["--port", PORT][..] } else { &[] };
        let machine = self.machine.iter().flat_map(|tree| {
            ["--sysfs-root", tree.root().to_str().unwrap()].iter().chain(port).copied().collect::<Vec<_>>()
        });
        let known = [&["image"], words, &[control, "--state-dir", self.folder.path().to_str().unwrap()], unchecked];
        known.concat().into_iter().chain(machine).collect()
    }

    fn load(&self, image: &Path) -> Output {
        run(&self.words(&["load", image.to_str().unwrap()], &self.target()))
    }

    fn loads(&self, image: &Path) -> serde_json::Value {
        json(&self.words(&["load", image.to_str().unwrap()], &self.target()))
    }

    fn recover(&self) -> serde_json::Value {
        json(&self.words(&["recover"], &self.target()))
    }

    /// Where an image of card 0 is kept.
    fn kept(&self, name: &str) -> PathBuf {
        self.kept_of(&self.target(), name)
    }

    /// Where an image of a card is kept: its folder may have several names, and one is used.
    fn kept_of(&self, target: &str, name: &str) -> PathBuf {
        let socket = Path::new(target.trim_start_matches("vfio-user:"));
        let folder = socket.parent().unwrap().canonicalize().unwrap();
        let card = self.path("vfio-user").join(folder.strip_prefix("/").unwrap()).join(socket.file_name().unwrap());
        card.join(name)
    }

    /// Where the masks of the port from before are noted, for all cards.
    fn noted(&self) -> PathBuf {
        self.path("port").join(PORT).join("masks")
    }

    /// Whether the journal names the port or its masks.
    fn is_noted(&self) -> bool {
        self.noted().exists() || self.kept("port").exists()
    }

    /// The first 32 bits of the GUID in the accelerator's feature list; all-ones if there is no accelerator. Of an Alveo card those that
    /// the decoupler says; 0 if there is no accelerator.
    fn loaded(&self) -> u64 {
        let register = if self.is_alveo { "0x2001c" } else { "0x14" };
        json(&["reg", &self.served.card(0), register])["value"].as_u64().unwrap()
    }
}

fn beginning(guid: &str) -> u64 {
    u64::from_str_radix(&guid[..8], 16).unwrap()
}

fn failed(output: &Output) -> (i32, String) {
    (output.status.code().unwrap(), String::from_utf8(output.stderr.clone()).unwrap())
}

/// Without OFS one socket is card and control function.
#[test]
fn a_card_without_ofs_takes_images_on_its_only_function() {
    let bench = Bench::of("mock:s10-pac:2", false);
    let card = bench.served.card(0);
    let load = |image: &Path| json(&bench.words(&["load", image.to_str().unwrap()], &card));
    let collective = ["coll", "allgather", "--bytes", "4KiB", "--cards", &bench.served.all()];
    let before = stdout(&collective);
    load(&bench.image(OTHER, "4KiB"));
    assert_eq!(failed(&run(&collective)).0, 1, "no sequencer is loaded");
    let info = json(&["info", "--cards", &card]);
    assert_eq!((info["schema"].as_str(), info["held"].as_bool()), (Some("fpgactl.info-control/1"), Some(false)));
    assert_eq!(load(&bench.image(CARD, "1MiB"))["accelerators"][0], CARD);
    assert_eq!(stdout(&collective), before);
    let info = json(&["info", "--cards", &card]);
    assert_eq!(
        (info["schema"].as_str(), info["control"]["features"][6]["bar"].as_u64()),
        (Some("fpgactl.info/1"), Some(2))
    );
    let register = json(&["reg", &card, "MAGIC"]);
    assert_eq!((register["bar"].as_u64(), register["offset"].as_u64()), (Some(2), Some(0x4_1020)));
}

/// The file says one accelerator, its bitstream brings another.
#[test]
fn an_image_that_brings_something_else_is_rolled_back() {
    let bench = Bench::of("mock:s10-pac:2", false);
    let card = bench.served.card(0);
    let good = bench.image(CARD, "4KiB");
    json(&bench.words(&["load", good.to_str().unwrap()], &card));
    let lying = bench.path("lying.gbs");
    let mut file = fs::read(bench.image(OTHER, "4KiB")).unwrap();
    let place = file.windows(36).position(|bytes| bytes == OTHER.as_bytes()).unwrap();
    file[place..place + 8].copy_from_slice(b"ffffffff");
    fs::write(&lying, file).unwrap();
    let (code, text) = failed(&run(&bench.words(&["load", lying.to_str().unwrap()], &card)));
    let expected = format!("the card holds {OTHER} now; the file names ffffffff{}", &OTHER[8..]);
    assert!(code == 1 && text.contains(&expected), "{code}: {text}");
    assert!(text.ends_with(&format!("rolled back to accelerator {CARD}\n")), "{text}");
    assert_eq!(json(&bench.words(&["recover"], &card))["done"], "nothing");
    assert_eq!(json(&["reg", &card, "MAGIC"])["register"], "MAGIC");
}

#[test]
fn an_image_replaces_the_accelerator_and_its_return_brings_it_back() {
    let bench = Bench::new();
    let collective = ["coll", "allgather", "--bytes", "4KiB", "--cards", &bench.served.all()];
    let before = stdout(&collective);
    let loaded = bench.loads(&bench.image(OTHER, "64KiB"));
    assert_eq!(loaded["schema"], "fpgactl.image-load/1");
    assert_eq!((loaded["bytes"].as_u64(), loaded["accelerators"][0].as_str()), (Some(65_536), Some(OTHER)));
    assert_eq!(bench.loaded(), beginning(OTHER));
    let (code, text) = failed(&run(&collective));
    assert!(code == 1 && text.contains("no command sequencer"), "{code}: {text}");
    bench.loads(&bench.image(CARD, "64KiB"));
    assert_eq!(stdout(&collective), before);
}

#[test]
fn a_first_load_says_that_nothing_is_kept_to_go_back_to() {
    let bench = Bench::new();
    let image = bench.image(OTHER, "4KiB");
    let (code, text) = failed(&bench.load(&image));
    assert_eq!(code, 0);
    assert!(text.starts_with("note: no earlier image of this card is kept"), "{text}");
    assert_eq!(failed(&bench.load(&image)), (0, String::new()));
}

#[test]
fn a_load_that_fails_is_rolled_back() {
    let bench = Bench::new();
    let mut damaged = fs::read(bench.image(OTHER, "64KiB")).unwrap();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    let bad = bench.path("bad.gbs");
    fs::write(&bad, damaged).unwrap();
    // Nothing to go back to.
    let (code, text) = failed(&bench.load(&bad));
    assert_eq!(code, 1);
    assert!(text.ends_with("operation failed, or an error was pending; no accelerator is loaded\n"), "{text}");
    assert_eq!(bench.loaded(), u64::from(u32::MAX));
    bench.loads(&bench.image(CARD, "64KiB"));
    let (code, text) = failed(&bench.load(&bad));
    assert_eq!(code, 1);
    assert!(text.ends_with(&format!("; rolled back to accelerator {CARD}\n")), "{text}");
    assert_eq!(bench.loaded(), beginning(CARD));
    assert_eq!(bench.recover()["done"], "nothing");
}

#[test]
fn an_interrupted_load_is_rolled_back() {
    let bench = Bench::new().below_port();
    bench.loads(&bench.image(CARD, "64KiB"));
    let long = bench.image(OTHER, "16MiB");
    let control = bench.served.control(0);
    let words = bench.words(&["load", long.to_str().unwrap()], &control);
    let is_near = || bench.kept("pending").exists() && bench.masks() == ALL;
    let (code, text) = failed(&journal::interrupt_load(&words, || (), is_near));
    assert_eq!(code, 130, "{text}");
    assert!(
        text.contains("interrupted after") && text.ends_with(&format!("rolled back to accelerator {CARD}\n")),
        "{text}"
    );
    assert_eq!(bench.loaded(), beginning(CARD));
    assert_eq!((bench.masks(), bench.is_noted()), (MASKS, false));
}

/// Waits until a load has noted that it begins, or has ended.
fn await_pending(bench: &Bench, load: &mut Child) {
    let began = Instant::now();
    while !bench.kept("pending").exists() && load.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < Duration::from_secs(120), "the load does not begin");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Kills loads at points that are spread over their whole time, or with `FPGA_TESTS_FULL=1` at random ones. Afterwards the next
/// command leaves the old image or the new one, and says which.
#[test]
fn a_killed_load_is_completed_or_undone() {
    kill_loads(&Bench::new().below_port());
}

#[test]
fn a_killed_load_of_an_alveo_card_is_completed_or_undone() {
    kill_loads(&Bench::alveo().below_port());
}

fn kill_loads(bench: &Bench) {
    let is_full = std::env::var_os("FPGA_TESTS_FULL").is_some_and(|value| value != "0");
    let points: usize = if is_full { 200 } else { 30 };
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let images = [(CARD, bench.image(CARD, "256KiB")), (OTHER, bench.image(OTHER, "256KiB"))];
    let began = Instant::now();
    bench.loads(&images[0].1);
    let whole = began.elapsed();
    let mut current = CARD;
    let mut outcomes = [0; 3];
    let mut masked = 0;
    for point in 0..points {
        let (guid, image) = &images[(point + 1) % 2];
        let target = bench.target();
        let words = bench.words(&["load", image.to_str().unwrap()], &target);
        let mut child = command(&words).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        // Half of them from the first note on, so that some are in the middle on any machine.
        if point % 4 >= 2 {
            await_pending(bench, &mut child);
        }
        // Marsaglia's xorshift.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let place = if is_full { random % points as u64 } else { (point / 4 * 4) as u64 };
        thread::sleep(whole * place as u32 / points as u32);
        let _ = child.kill();
        let was_killed = child.wait().unwrap().code().is_none();
        // Either may have been written.
        let is_noted = bench.noted().exists();
        masked += u32::from(bench.masks() == ALL);
        assert!(is_noted || bench.masks() == MASKS, "point {point}: {:x?}", bench.masks());
        // The server may take a moment to see that its client is gone.
        let recovered = bench.recover();
        assert_eq!(bench.masks(), MASKS, "point {point}: {recovered}");
        assert_eq!(recovered["unmasked"].as_str(), is_noted.then_some(PORT), "point {point}: {recovered}");
        assert!(!bench.is_noted(), "point {point}");
        match recovered["done"].as_str().unwrap() {
            "nothing" if was_killed => outcomes[0] += 1,
            "nothing" => (current, outcomes[0]) = (guid, outcomes[0] + 1),
            "completed" => (current, outcomes[1]) = (guid, outcomes[1] + 1),
            "undone" => outcomes[2] += 1,
            other => panic!("{other}"),
        }
        let said = recovered["image"].as_str().map(|image| image.trim_start_matches("accelerator "));
        assert!(said.is_none_or(|said| said == current), "point {point}: {recovered}");
        let loaded = bench.loaded();
        if said.is_none() && was_killed && loaded == beginning(guid) {
            // Killed after its last act, before it could say so.
            current = guid;
        }
        assert_eq!(loaded, beginning(current), "point {point}: {recovered}");
    }
    println!("{points} points: {} not begun or done, {} completed, {} undone", outcomes[0], outcomes[1], outcomes[2]);
    println!("killed with masked errors of the port: {masked}");
    assert!(outcomes[0] > 0 && outcomes[1] > 0 && masked > 0, "{outcomes:?}, {masked} masked");
}

#[test]
fn errors_of_the_port_above_are_masked_during_a_load_and_restored_however_it_ends() {
    let bench = Bench::new().below_port();
    let image = bench.image(CARD, "64KiB");
    let before = fs::read(bench.config()).unwrap();
    let loaded = bench.loads(&image);
    assert_eq!((loaded["upstream"]["port"].as_str(), loaded["upstream"]["masked"].as_bool()), (Some(PORT), Some(true)));
    assert!(loaded["upstream"]["reason"].is_null());
    assert_eq!(fs::read(bench.config()).unwrap(), before);
    // A load that fails, and is rolled back.
    let mut damaged = fs::read(&image).unwrap();
    *damaged.last_mut().unwrap() ^= 1;
    let bad = bench.path("bad.gbs");
    fs::write(&bad, damaged).unwrap();
    let (code, text) = failed(&bench.load(&bad));
    assert!(code == 1 && text.contains("rolled back"), "{code}: {text}");
    assert_eq!((fs::read(bench.config()).unwrap(), bench.is_noted()), (before, false));
    // Without a port, nothing is said.
    let alone = Bench { machine: None, ..bench };
    assert!(alone.loads(&image)["upstream"].is_null());
}

#[test]
fn masks_that_a_killed_load_left_are_restored_by_the_next() {
    let bench = Bench::new().below_port();
    let image = bench.image(CARD, "4KiB");
    bench.loads(&image);
    // As if a load had been killed with its errors masked.
    let boot = bench.machine.as_ref().unwrap().path("proc/sys/kernel/random/boot_id");
    fs::create_dir_all(boot.parent().unwrap()).unwrap();
    fs::write(&boot, "one\n").unwrap();
    let (of_card, of_port) = (bench.kept("port"), bench.noted());
    let named = format!(r#"{{"port":"{PORT}","boot":"one"}}"#);
    let note = format!(r#"{{"uncorrectable":{},"correctable":{},"boot":"one"}}"#, MASKS[0], MASKS[1]);
    fs::create_dir_all(of_port.parent().unwrap()).unwrap();
    let plant = |masks| {
        fs::write(&of_card, &named).unwrap();
        fs::write(&of_port, &note).unwrap();
        bench.set_masks(masks);
    };
    for masks in [ALL, [u32::MAX, MASKS[1]], MASKS] {
        plant(masks);
        assert_eq!(bench.loads(&image)["upstream"]["masked"], true);
        assert_eq!((bench.masks(), bench.is_noted()), (MASKS, false), "{masks:x?}");
        plant(masks);
        let recovered = bench.recover();
        assert_eq!((recovered["done"].as_str(), recovered["unmasked"].as_str()), (Some("nothing"), Some(PORT)));
        assert_eq!((bench.masks(), bench.is_noted()), (MASKS, false), "{masks:x?}");
    }
    // The machine was started since: the masks are whoever's.
    plant([1, 2]);
    fs::write(&boot, "two\n").unwrap();
    assert!(bench.recover()["unmasked"].is_null());
    assert_eq!((bench.masks(), of_card.exists()), ([1, 2], false));
    assert_eq!(bench.loads(&image)["upstream"]["masked"], true);
    assert_eq!((bench.masks(), bench.is_noted()), ([1, 2], false), "the load has noted the masks of this boot");
    fs::write(&boot, "one\n").unwrap();
    // The port does not let them be restored: `recover` says so, and does so once it can.
    plant(ALL);
    let config = fs::read(bench.config()).unwrap();
    fs::write(bench.config(), &config[..64]).unwrap();
    let (code, text) = failed(&run(&bench.words(&["recover"], &bench.target())));
    assert_eq!(code, 4, "{text}");
    assert!(text.contains("errors of port 0000:3a:00.0 are still masked: the kernel shows 64 bytes"), "{text}");
    assert!(text.ends_with("use `fpgactl image recover` as root\n"), "{text}");
    let (code, text) = failed(&bench.load(&image));
    assert!(code == 0 && text.matches("still masked").count() == 1, "{code}: {text}");
    fs::write(bench.config(), config).unwrap();
    assert_eq!(bench.recover()["unmasked"], PORT);
    assert_eq!(bench.masks(), MASKS);
    // Notes that nobody wrote.
    for (path, other) in [(&of_card, r#"{"port":"3a","boot":"one"}"#), (&of_port, r#"{"uncorrectable":1}"#)] {
        plant(MASKS);
        for note in ["", "{}", other] {
            fs::write(path, note).unwrap();
            let (code, text) = failed(&run(&bench.words(&["recover"], &bench.target())));
            assert_eq!(code, 7, "{note}: {text}");
            // As if a load had been killed: the image comes first.
            fs::copy(&image, bench.kept("pending")).unwrap();
            let (code, text) = failed(&run(&bench.words(&["recover"], &bench.target())));
            assert!(code == 7 && text.starts_with("fpgactl: the image is loaded, but: "), "{note}: {code}: {text}");
            let (code, text) = failed(&bench.load(&image));
            assert!(code == 0 && text.starts_with("note: "), "{note}: {code}: {text}");
        }
    }
    assert_eq!(bench.masks(), MASKS);
}

#[test]
fn a_port_that_cannot_be_masked_is_told_once_and_the_load_goes_on() {
    let mut bench = Bench::new().below_port();
    let image = bench.image(CARD, "4KiB");
    bench.loads(&image);
    for (listing, reason) in [
        ("$port/config @ 148 01 00 82 14", "The capability list is broken at 0x148"),
        ("$port/config @ 100 03 00 81 ff\n$port/config @ ff8 01 00 02 00", "ends after configuration space"),
        ("$port/config @ 0 ff ff ff ff ff ff ff ff", "reads as all-ones"),
        ("$port/config x 64\n$port/config @ 0 86 80 30 20 07 04 10 00 07 00 04 06 10 00 01 00", "shows 64 bytes"),
        ("- $port/config", "There is no PCI function"),
    ] {
        let mut tree = Tree::new(&["machine", "port"]);
        tree.apply(listing);
        bench.machine = Some(tree);
        let before = fs::read(bench.config()).ok();
        let (code, text) = failed(&bench.load(&image));
        assert!(code == 0 && text.starts_with("note: errors of port 0000:3a:00.0 are not masked: "), "{code}: {text}");
        assert!(text.contains(reason) && text.lines().count() == 1, "{text}");
        let upstream = &bench.loads(&image)["upstream"];
        assert!(upstream["masked"] == false && upstream["reason"].as_str().unwrap().contains(reason), "{upstream}");
        assert_eq!((fs::read(bench.config()).ok(), bench.is_noted()), (before, false), "{listing}");
        assert_eq!(bench.loaded(), beginning(CARD));
    }
    // Without error reporting there is nothing to mask.
    bench
        .machine
        .as_mut()
        .unwrap()
        .apply("$port/config x 4096\n$port/config @ 0 86 80 30 20 07 04 10 00 07 00 04 06 10 00 01 00");
    assert!(bench.loads(&image)["upstream"].is_null());
    assert_eq!(failed(&bench.load(&image)), (0, String::new()));
    let own = run(&["image", "load", image.to_str().unwrap(), "mock:s10-dfl:2/0.control", "--port", PORT]);
    let (code, text) = failed(&own);
    assert!(code == 2 && text.contains("--port"), "{code}: {text}");
}

#[test]
fn an_alveo_card_takes_bit_files_and_rolls_back_what_fails() {
    let bench = Bench::alveo();
    let collective = ["coll", "allgather", "--bytes", "4KiB", "--cards", &bench.served.all()];
    let before = stdout(&collective);
    let (first, second) = (bench.image(OTHER, "64KiB"), bench.image(CARD, "64KiB"));
    // A .bit file does not say which interface it is made for.
    let checked = run(&["image", "load", first.to_str().unwrap(), &bench.target()]);
    let (code, text) = failed(&checked);
    assert!(code == 7 && text.contains("use --unchecked"), "{code}: {text}");
    assert_eq!(bench.loads(&first)["accelerators"][0], OTHER);
    assert_eq!(bench.loaded(), beginning(OTHER));
    let (code, text) = failed(&run(&collective));
    assert!(code == 1 && text.contains("no command sequencer"), "{code}: {text}");
    bench.loads(&second);
    assert_eq!(stdout(&collective), before);
    // A damaged checksum: the image before comes back.
    let mut damaged = fs::read(&first).unwrap();
    let place = damaged.len() - 16;
    damaged[place] ^= 1;
    let bad = bench.path("bad.bit");
    fs::write(&bad, damaged).unwrap();
    let (code, text) = failed(&bench.load(&bad));
    assert_eq!(code, 1);
    assert!(
        text.contains("checksum of the image") && text.ends_with(&format!("rolled back to accelerator {CARD}\n")),
        "{text}"
    );
    assert_eq!((bench.loaded(), bench.recover()["done"].as_str()), (beginning(CARD), Some("nothing")));
    // For another device: refused, and nothing is rolled back, because nothing was started.
    let mut foreign = fs::read(&first).unwrap();
    let place = foreign.windows(4).position(|word| word == [0x14, 0xb7, 0xd0, 0x93]).unwrap();
    foreign[place] = 0x15;
    fs::write(&bad, foreign).unwrap();
    let (code, text) = failed(&bench.load(&bad));
    assert_eq!(code, 7, "{text}");
    assert!(text.ends_with("the image is for device 0x15b7d093; the card has 0x14b7d093\n"), "{text}");
    assert_eq!((bench.loaded(), bench.recover()["done"].as_str()), (beginning(CARD), Some("nothing")));
    assert_eq!(stdout(&collective), before);
    // Files of the other maker.
    let gbs = bench.path("other.gbs");
    stdout(&["mock", "image", "--output", gbs.to_str().unwrap(), "--bytes", "4KiB"]);
    let (code, text) = failed(&bench.load(&gbs));
    assert!(code == 7 && text.contains("GBS files are for Intel's cards, and this card is AMD's"), "{code}: {text}");
    let xclbin = PathBuf::from("../driver/image/tests/data/plain.xclbin");
    let (code, text) = failed(&bench.load(&xclbin));
    assert!(code == 7, "{code}: {text}");
}

#[test]
fn what_cannot_be_loaded_is_refused_before_anything_is_written() {
    let bench = Bench::new();
    let foreign = bench.path("foreign.gbs");
    let text = fs::read(bench.image(OTHER, "4KiB")).unwrap();
    let place = text.windows(8).position(|bytes| bytes == b"a1c4ad5c").unwrap();
    fs::write(&foreign, [&text[..place], b"ffffffff", &text[place + 8..]].concat()).unwrap();
    let raw = bench.path("x.rbf");
    fs::write(&raw, [7; 400]).unwrap();
    let empty = bench.path("empty");
    fs::write(&empty, []).unwrap();
    let xclbin = PathBuf::from("../driver/image/tests/data/plain.xclbin");
    for (file, code, reason) in [
        (
            &foreign,
            7,
            "made for interface ffffffff-2b37-4d2e-9f0e-64a6b6c51f70; the card has a1c4ad5c-2b37-4d2e-9f0e-64a6b6c51f70",
        ),
        (&raw, 7, "use --unchecked"),
        (&empty, 7, "the file is empty"),
        (&xclbin, 7, "xclbin files are for AMD's cards"),
        (&bench.path("none"), 4, "No such file"),
        (&bench.path(""), 7, "not a regular file"),
    ] {
        let (found, text) = failed(&bench.load(file));
        assert!(found == code && text.contains(reason), "{}: {found}: {text}", file.display());
    }
    assert_eq!(bench.loaded(), beginning(CARD), "the card is as it was");
    for (file, fits) in
        [(&foreign, Some(false)), (&raw, None), (&xclbin, Some(false)), (&bench.image(OTHER, "4KiB"), Some(true))]
    {
        let card = &json(&["image", "inspect", file.to_str().unwrap(), &bench.served.control(0)])["card"];
        assert_eq!((card["fits"].as_bool(), card["interface"].as_str().unwrap().len()), (fits, 36), "{card}");
    }
    let image = bench.image(OTHER, "4KiB");
    let (code, text) = failed(&run(&bench.words(&["load", image.to_str().unwrap()], &bench.served.card(0))));
    assert!(code == 7 && text.contains("takes no images: it is no control function"), "{code}: {text}");
    let all = ["image", "load", image.to_str().unwrap(), "mock:s10-dfl:2/0.control,mock:s10-dfl:2/1.control"];
    let (code, text) = failed(&run(&all));
    assert!(code == 2 && text.contains("selects 2 cards: select one"), "{code}: {text}");
    for selector in ["mock:optweb:2/0.control", "mock:s10-dfl:2/0,mock:s10-dfl:2/1.control", "mock:s10-dfl:2.control"] {
        assert_eq!(run(&["info", "--cards", selector]).status.code(), Some(2), "{selector}");
    }
}

#[test]
fn a_file_without_a_known_interface_is_loaded_if_told_to() {
    let bench = Bench::new();
    let gbs = fs::read(bench.image(OTHER, "4KiB")).unwrap();
    let raw = bench.path("x.rbf");
    fs::write(&raw, &gbs[gbs.len() - 4096..]).unwrap();
    let control = bench.served.control(0);
    let words = bench.words(&["load", "--unchecked", raw.to_str().unwrap()], &control);
    let text = stdout(&[&words[..], &["--json"]].concat());
    assert!(text.contains("\"format\": \"raw bitstream\""), "{text}");
    assert_eq!(bench.loaded(), beginning(OTHER));
}

#[test]
fn errors_of_the_port_are_shown_and_cleared() {
    let bench = Bench::new();
    let control = bench.served.control(0);
    assert_eq!(json(&["info", "--cards", &control])["errors"].as_array().unwrap().len(), 0);
    // An access of a region that holds nothing is not answered.
    let mut damaged = fs::read(bench.image(OTHER, "4KiB")).unwrap();
    *damaged.last_mut().unwrap() ^= 1;
    let bad = bench.path("bad.gbs");
    fs::write(&bad, damaged).unwrap();
    assert_eq!(bench.load(&bad).status.code(), Some(1));
    assert_eq!(bench.loaded(), u64::from(u32::MAX));
    let text = "port: ERROR 0x80: the accelerator did not answer an access";
    let printed = json(&["info", "--cards", &control]);
    assert_eq!((printed["errors"][0]["text"].as_str(), printed["held"].as_bool()), (Some(text), Some(true)));
    let failing = run(&["selftest", &control]);
    assert_eq!(failing.status.code(), Some(1));
    assert!(String::from_utf8(failing.stdout).unwrap().contains(text));
    let reset = json(&["reset", &control, "--errors"]);
    assert_eq!(reset["cleared"][0], text);
    assert_eq!(json(&["reset", &control, "--errors"])["cleared"].as_array().unwrap().len(), 0);
    let (code, text) = failed(&run(&["reset", &bench.served.card(1), "--errors"]));
    assert!(code == 7 && text.contains("is no control function"), "{code}: {text}");
}

//! Command lines that nobody wrote: commands, options and values drawn from what `--help` prints of them, many of them odd.
//! Whatever they are, the command ends with a documented exit code, does not panic, and leaves no file that was not named.
//!
//! The seed is fixed; `PROPTEST_RNG_SEED=n` draws others.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use crate::{command, stdout};

const LINES: u64 = 2400;
const SEED: u64 = 20_240_229;
/// Far beyond what any of these may take: they have time limits of their own.
const BOUND: Duration = Duration::from_secs(120);
/// `docs/cli.md`.
const EXIT_CODES: [i32; 9] = [0, 1, 2, 3, 4, 5, 6, 7, 130];

/// Values for what takes one, by the name of the option or argument.
#[expect(clippy::too_many_lines, reason = "a table")]
fn values(name: &str) -> &'static [&'static str] {
    const FILES: &[&str] = &[
        "ring.seq",
        "in.npy",
        "in.bin",
        "missing",
        "missing/x",
        "folder",
        "/dev/null",
        "/dev/zero",
        "link.npy",
        "out/x",
    ];
    const CARDS: &[&str] = &[
        "mock:optweb:2",
        "mock:optweb:4",
        "mock:optweb:5",
        "mock:optweb:2x2",
        "mock:optweb:4/1",
        "mock:optweb:4/0,mock:optweb:4/2",
        "mock:optweb:4/9",
        "mock:optweb:0",
        "mock:optweb:99",
        "mock:optweb:4294967295x4294967295",
        "mock:optweb:4+stop=1",
        "mock:optweb:4+stop=9",
        "mock:optweb:4+stop=0@18446744073709",
        "mock:optweb:4+cut=0-1",
        "mock:optweb:4+cut=1-1",
        "mock:optweb:4+slow=1",
        "mock:optweb:4+late=86400000001",
        "mock:optweb:4+posted=1+split=7+drift=300",
        "mock:optweb:4+posted=65",
        "mock:optweb:4+poisoned=0@1",
        "vfio:0000:ff:1f.7",
        "ff:1f.7,ff:1f.7",
        "vfio-user:missing",
        "vfio-user:folder",
        "vfio-user:in.bin",
        "mock",
        ",",
    ];
    match name {
        "cards" | "SELECTOR" | "CARD" | "SELECTOR[/NODE]" => CARDS,
        "bytes" | "eager-limit" => {
            &["0", "1", "64", "4095", "64K", "64KiB", "1M", "1MB", "9GiB", "16777215TiB", "18446744073709551615", "K"]
        }
        "counts" => &["1,2", "1,2,3,4", "0,0,0,0", "1,2/3,4", "9GiB,1,1,1", "18446744073709551615,1,1,1", ",", "1;2"],
        "root" | "peer" | "rank" | "seed" => &["0", "1", "3", "4", "65535", "4294967295", "-1"],
        "ranks" => &["0", "1", "2", "4", "65536", "65537"],
        "group" => &["0,1", "1,0", "0,0", "9", "0,1,2,3", "4294967295", ","],
        "relays" => &["none", "0", "1,2", "9", "4294967295", ","],
        "start-delay" => &["0", "1,2", "0,0,0,5", "nan,0,0,0", "1e300", "86400000000,0,0,0", "-1"],
        "repeat" => &["0", "1", "3", "-1"],
        "timeout" => &["0", "0.2", "1e-9", "-1", "nan", "inf", "1e300", "86401"],
        "input" => &["in.npy", "in.npy,in.npy", "link.npy", "missing", "folder", "/dev/zero", "in.bin"],
        "output" | "save" => {
            &["out/x", "out/x.npy", "in.npy", "link.npy", "ring.seq", "folder", "missing/x", "/dev/null", "/dev/full"]
        }
        "socket-dir" => &["in.bin", "missing/deep", ""],
        "svg" => &["out/svg", "in.bin", "/dev/null/x"],
        "row" => &["barrier/total", "nothing", "barrier/"],
        "figure" => &["9", "16", "x"],
        "load" | "dump" => &[
            "a=in.npy",
            "chunk=in.bin",
            "chunk@0=out/x",
            "chunk=out/x.npy",
            "chunk@9=out/x",
            "=x",
            "a",
            "chunk=missing/x",
        ],
        "expect" => &[
            "allgather",
            "barrier",
            "allgather,bytes=64",
            "send,root=9",
            "allreduce,op=sum,dtype=f32",
            "allgather,bytes=16777215TiB",
            "x",
            "send,counts=1/2",
        ],
        "dragonfly" => &["2", "64", "1024", "1025", "1"],
        "driver" => &["vfio-pci", "../x", ""],
        "ADDRESS" => &["0000:ff:1f.7", "ff:1f.7", "3b:00", "x"],
        "REGISTER" => &[
            "NODE",
            "SCRATCH",
            "queue1.SUBMISSION_TAIL",
            "queue99.DEPTH",
            "0x3",
            "0x1114",
            "0x100000000",
            "bar4:0",
            "bar9:0",
            "ABORT",
        ],
        "VALUE" => &["0", "0x2a", "4294967296", "x"],
        "FILE" | "FILE.seq" | "calibration" => FILES,
        _ => &["0", "x", "folder"],
    }
}

/// Values for anything.
const ODD: &[&str] = &["", "-1", "x", "4294967296", "1e9", "\u{202e}\u{e9}", "--", "=", "\n"];

/// An option or argument, as `--help` has it.
#[derive(Debug, Default)]
struct Parameter {
    name: String,
    takes_value: bool,
    possible: Vec<String>,
}

/// A command: its words, arguments and options.
#[derive(Debug)]
struct Described {
    words: Vec<String>,
    arguments: Vec<Parameter>,
    options: Vec<Parameter>,
}

/// All commands below these words.
fn commands(words: &[String]) -> Vec<Described> {
    let mut line: Vec<&str> = words.iter().map(String::as_str).collect();
    line.push("--help");
    let text = stdout(&line);
    let mut sections: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut section = "";
    for line in text.lines() {
        match line.strip_suffix(':').filter(|name| !name.starts_with(' ')) {
            Some(name) => section = name,
            None => sections.entry(section).or_default().push(line),
        }
    }
    if let Some(names) = sections.get("Commands") {
        let names = names.iter().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        let names = names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
        return names.flat_map(|name| commands(&[words, &[name.to_owned()]].concat())).collect();
    }
    let parameters = |name| parameters(sections.get(name).map_or(&[], Vec::as_slice));
    let (arguments, options) = (parameters("Arguments"), parameters("Options"));
    vec![Described { words: words.to_vec(), arguments, options }]
}

fn parameters(lines: &[&str]) -> Vec<Parameter> {
    let mut texts: Vec<String> = Vec::new();
    for line in lines {
        let is_first = line.trim_start().starts_with(['-', '<', '[']) && line.len() - line.trim_start().len() <= 6;
        match texts.last_mut() {
            Some(text) if !is_first => *text += &format!(" {}", line.trim()),
            _ => texts.push(line.trim().to_owned()),
        }
    }
    let parameter = |text: &String| {
        let head = text.split_once("  ").map_or(text.as_str(), |(head, _)| head);
        let option = head.split_whitespace().find_map(|word| word.strip_prefix("--"));
        let argument = head.trim_end_matches("...").trim_matches(['<', '>']).trim_start_matches('[');
        let argument = if head.starts_with('[') { argument.trim_end_matches(']') } else { argument };
        let possible = text.split_once("[possible values: ").and_then(|(_, rest)| rest.split_once(']'));
        Parameter {
            name: option.unwrap_or(argument).to_owned(),
            takes_value: option.is_none() || head.contains('<'),
            possible: possible.map(|(list, _)| list.split(", ").map(str::to_owned).collect()).unwrap_or_default(),
        }
    };
    texts
        .iter()
        .filter(|text| !text.is_empty())
        .map(parameter)
        .filter(|one| one.name != "help" && one.name != "version")
        .collect()
}

/// splitmix64.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ x >> 31) % end as u64) as usize
    }

    fn value(&mut self, of: &Parameter) -> String {
        if !["row", "figure", "socket-dir"].contains(&of.name.as_str()) && self.below(16) == 0 {
            return ODD[self.below(ODD.len())].to_owned();
        }
        let known = values(&of.name);
        match of.possible.len() {
            0 => known[self.below(known.len())].to_owned(),
            count => of.possible[self.below(count)].clone(),
        }
    }

    fn line(&mut self, commands: &[Described]) -> Vec<String> {
        let command = &commands[self.below(commands.len())];
        let mut line = command.words.clone();
        for argument in &command.arguments {
            if self.below(12) > 0 {
                line.push(self.value(argument));
            }
        }
        for option in &command.options {
            // What would measure everything, or run until it is interrupted, is held by an option.
            let is_needed = ["row", "socket-dir", "timeout"].contains(&option.name.as_str());
            // `stats --watch` ends with Ctrl-C only.
            if option.name == "watch" || !is_needed && self.below(4) > 0 {
                continue;
            }
            line.push(format!("--{}", option.name));
            if option.takes_value {
                let mut value = self.value(option);
                // A calibration has no time limit, and its measurements of many cards take long.
                if command.words == ["calibrate"] && option.name == "cards" && value.contains("optweb:") {
                    value = "mock:optweb:4/9".to_owned();
                }
                line.push(value);
            }
        }
        // Without cards it plans for six fabrics.
        if command.words == ["bench", "planner"] && !line.iter().any(|word| word == "--cards") {
            line.extend(["--cards", "mock:optweb:2x2"].map(String::from));
        }
        if command.words == ["calibrate"] && !line.iter().any(|word| word == "--cards") {
            line.extend(["--cards", "mock:optweb:99"].map(String::from));
        }
        line
    }
}

/// A directory with files to read, in which command lines run one after another.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Place(tempfile::tempdir().unwrap());
        let at = |name: &str| place.0.path().join(name);
        let ring = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/command/programs/ring.seq");
        fs::copy(ring, at("ring.seq")).unwrap();
        let mut array = b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (16,), }".to_vec();
        array.resize(127, b' ');
        array.push(b'\n');
        array.extend([0; 64]);
        fs::write(at("in.npy"), array).unwrap();
        fs::write(at("in.bin"), [7; 64]).unwrap();
        std::os::unix::fs::symlink("in.npy", at("link.npy")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        fs::create_dir(at("out")).unwrap();
        place
    }

    /// All that is there but what is below `out`, and what the files hold.
    fn listing(&self) -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(self.0.path()).unwrap().chain(fs::read_dir(self.0.path().join("folder")).unwrap());
        let named = |entry: fs::DirEntry| {
            let name = entry.path().strip_prefix(self.0.path()).unwrap().display().to_string();
            (name, fs::read(entry.path()).unwrap_or_default())
        };
        entries.map(|entry| named(entry.unwrap())).collect()
    }

    /// What is wrong with how a command line ended, if anything.
    fn wrong(&self, line: &[String], before: &BTreeMap<String, Vec<u8>>) -> Option<String> {
        let said = self.0.path().join("out/stderr");
        let words: Vec<&str> = line.iter().map(String::as_str).collect();
        let mut command = command(&words);
        command.current_dir(self.0.path()).stdout(Stdio::null()).stderr(File::create(&said).unwrap());
        let mut child = command.spawn().unwrap();
        let deadline = Instant::now() + BOUND;
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break status,
                None if Instant::now() > deadline => {
                    child.kill().unwrap();
                    child.wait().unwrap();
                    return Some(format!("did not end in {BOUND:?}"));
                }
                None => thread::sleep(Duration::from_millis(1)),
            }
        };
        let text = String::from_utf8_lossy(&fs::read(&said).unwrap()).into_owned();
        let Some(code) = status.code().filter(|code| EXIT_CODES.contains(code)) else {
            return Some(format!("{status}: {text}"));
        };
        if text.contains("panicked at") || (code == 0) != text.is_empty() {
            return Some(format!("{status}: {text:?}"));
        }
        // What comes after "--" is no option.
        if code != 0 && line.iter().take_while(|word| *word != "--").any(|word| word == "--json") {
            let error: serde_json::Value = match serde_json::from_str(&text) {
                Ok(error) => error,
                Err(error) => return Some(format!("{error}: {text:?}")),
            };
            crate::schemas::check(&error);
            let is_complete = error["message"].as_str().is_some_and(|message| !message.is_empty());
            if error["schema"] != "fpgactl.error/1" || error["exit"] != code || !is_complete {
                return Some(format!("{status}: {error}"));
            }
        }
        let mut after = self.listing();
        if line[0] == "asm" && after.remove("ring.seqb").is_some() {
            fs::remove_file(self.0.path().join("ring.seqb")).unwrap();
        }
        // What an output is named may be replaced, and odd values may be names of outputs.
        for (name, data) in before {
            let is_named = line.iter().any(|word| word == name || (word.ends_with(".npy") && name.ends_with(".npy")));
            if is_named && after.get(name).is_some_and(|found| found != data) {
                fs::write(self.0.path().join(name), data).unwrap();
                after.insert(name.clone(), data.clone());
            }
        }
        let is_named = |name: &String| line.iter().any(|word| !word.is_empty() && name.starts_with(word.as_str()));
        let named: Vec<String> =
            after.keys().filter(|name| !before.contains_key(*name) && is_named(name)).cloned().collect();
        for name in named {
            after.remove(&name);
            let path = self.0.path().join(name);
            // Figures are drawn into a directory.
            if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        }
        (after != *before).then(|| format!("{status}: files are {:?}", after.keys()))
    }
}

fn seed() -> u64 {
    match std::env::var("PROPTEST_RNG_SEED") {
        Ok(seed) => seed.parse().unwrap_or_else(|_| panic!("PROPTEST_RNG_SEED={seed} is not a number")),
        Err(_) => SEED,
    }
}

#[test]
fn every_command_line_ends_as_documented() {
    let seed = seed();
    let commands = commands(&[]);
    // That help was understood.
    let coll = commands.iter().find(|one| one.words == ["coll"]).unwrap();
    assert!(
        coll.arguments[0].possible.len() > 10 && coll.options.iter().any(|one| one.name == "bytes" && one.takes_value)
    );
    assert!(commands.iter().any(|one| one.words == ["bench", "optweb"]) && commands.len() > 15, "{commands:?}");
    let threads = thread::available_parallelism().map_or(2, |count| count.get()).min(8) as u64;
    thread::scope(|scope| {
        for first in 0..threads {
            let commands = &commands;
            scope.spawn(move || {
                let place = Place::new();
                let before = place.listing();
                for number in (first..LINES).step_by(threads as usize) {
                    let line = Draw(seed ^ number << 32).line(commands);
                    let wrong = place.wrong(&line, &before);
                    assert!(
                        wrong.is_none(),
                        "seed {seed}, line {number}: fpgactl {line:?}: {}",
                        wrong.unwrap_or_default()
                    );
                }
            });
        }
    });
}

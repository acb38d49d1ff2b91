//! `stats` and `metrics`: other processes read what the owner of a card publishes.

mod left;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::command;
use crate::served::Served;

/// What a busy machine may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A process that holds the cards of `selector`, and publishes them in a directory of its own: a pipe whose input stays open.
pub(crate) struct Owner {
    child: Child,
    input: Option<ChildStdin>,
    directory: TempDir,
}

impl Owner {
    pub(crate) fn new(selector: &str) -> Self {
        let owner = Owner::of(&["pipe", "--cards", selector]);
        owner.until("it moves nothing", |cards| cards.len() == 2 && cards.iter().all(|card| card["completed"] != 0));
        owner
    }

    /// A process that runs `arguments`, and publishes its cards in a directory of its own.
    fn of(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut process = command(arguments);
        process.env("FPGACTL_STATS_DIR", directory.path()).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = process.spawn().unwrap();
        let input = child.stdin.take();
        Owner { child, input, directory }
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        command(arguments).env("FPGACTL_STATS_DIR", self.directory()).output().unwrap()
    }

    fn cards(&self) -> Vec<Value> {
        let output = self.run(&["stats", "--json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let printed = crate::parsed(&output.stdout);
        assert_eq!(printed["schema"], "fpgactl.stats/1");
        printed["cards"].as_array().unwrap().clone()
    }

    /// Reads until `reached`.
    fn until(&self, what: &str, reached: impl Fn(&[Value]) -> bool) {
        let start = Instant::now();
        while !reached(&self.cards()) {
            assert!(start.elapsed() < PATIENCE, "{what}: {:?}", self.cards());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Moves data through the cards.
    pub(crate) fn write(&mut self) {
        self.input.as_mut().unwrap().write_all(&[7; 1 << 20]).unwrap();
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Counts of an owner, in process and on sockets; the file goes with it.
#[test]
fn another_process_sees_what_the_owner_does() {
    let served = Served::new(&["mock:optweb:2"]);
    for selector in ["mock:optweb:2".to_owned(), served.all()] {
        let mut owner = Owner::new(&selector);
        let before = owner.cards();
        for (node, card) in before.iter().enumerate() {
            assert_eq!(
                (&card["node"], &card["owner"], &card["state"]),
                (&node.into(), &"alive".into(), &"running".into())
            );
            assert_eq!((&card["pid"], &card["process"]), (&owner.child.id().into(), &"fpgactl".into()));
            assert_eq!(card["mock"], true);
            assert!(card["name"].as_str().unwrap().contains(if selector.starts_with("mock") {
                "mock:"
            } else {
                ".sock"
            }));
        }
        owner.write();
        let bytes = |cards: &[Value]| cards.iter().map(|card| card["bytes"].as_u64().unwrap()).sum::<u64>();
        owner.until("no bytes are counted", |cards| bytes(cards) > bytes(&before));
        let table = String::from_utf8(owner.run(&["stats"]).stdout).unwrap();
        assert!(table.starts_with("CARD") && table.lines().count() == 3 && table.contains("running"), "{table}");
        drop(owner.input.take());
        assert!(owner.child.wait().unwrap().success());
        assert_eq!(fs::read_dir(owner.directory()).unwrap().count(), 0, "a closed card leaves its file");
        assert_eq!(String::from_utf8(owner.run(&["stats"]).stdout).unwrap(), "no card in use\n");
    }
}

/// A name with control characters is published without them: readers print it on terminals.
#[test]
fn a_card_of_any_name_can_be_read() {
    let served = Served::in_folder("a\tb\u{1b}c", &["mock:optweb:2"]);
    let owner = Owner::new(&served.all());
    for card in owner.cards() {
        let name = card["name"].as_str().unwrap();
        assert!(name.contains("a\u{fffd}b\u{fffd}c/"), "{name:?}");
    }
}

/// What the card management of cards measures while they run a collective, in process and on sockets.
#[test]
fn sensors_of_cards_in_use_are_shown_and_exported() {
    let served = Served::new(&["mock:alveo-xdma:2"]);
    for selector in ["mock:alveo-xdma:2".to_owned(), served.all()] {
        let mut owner =
            Owner::of(&["coll", "barrier", "--cards", &selector, "--repeat", "1000000000", "--timeout", "3600"]);
        let sensors = |card: &Value| card["sensors"].as_array().cloned().unwrap_or_default();
        owner
            .until("no sensor is read", |cards| cards.len() == 2 && cards.iter().all(|card| !sensors(card).is_empty()));
        for card in owner.cards() {
            let sensors = sensors(&card);
            let found = sensors.iter().find(|one| one["name"] == "fpga_temperature").unwrap();
            let expected =
                [("part", "cms".into()), ("unit", "mC".into()), ("state", "good".into()), ("value", 44_000.into())];
            assert!(expected.iter().all(|(key, value): &(_, Value)| found[key] == *value), "{found}");
            assert!(sensors.iter().all(|one| one["state"] != "absent") && card["sensed_unix_s"].as_f64() > Some(1e9));
        }
        let table = String::from_utf8(owner.run(&["top", "--once"]).stdout).unwrap();
        assert_eq!(table.matches("44 C").count(), 2, "{table}");
        let text = owner.directory().join("text");
        assert!(owner.run(&["metrics", "--textfile", text.to_str().unwrap()]).status.success());
        let text = fs::read_to_string(text).unwrap();
        let of =
            |family: &str| text.lines().filter(|line| line.starts_with(&format!("{family}{{"))).collect::<Vec<_>>();
        let hot = of("fpga_card_temperature_celsius");
        let hot = hot.iter().filter(|line| line.contains("sensor=\"fpga_temperature\"")).collect::<Vec<_>>();
        assert!(hot.len() == 2 && hot.iter().all(|line| line.ends_with("} 44")), "{text}");
        assert!(!of("fpga_card_voltage_volts").is_empty() && !of("fpga_card_fan_speed_rpm").is_empty(), "{text}");
        assert!(of("fpga_card_sensor_good").iter().all(|line| line.ends_with(" 1")), "{text}");
        owner.kill();
        // Values of a process that has ended are not those of now.
        assert!(!String::from_utf8(owner.run(&["top", "--once"]).stdout).unwrap().contains("44 C"));
    }
}

/// The sensors of a D5005 are behind its control function, which the owner of the card holds with it.
#[test]
fn sensors_behind_control_functions_are_shown() {
    let served = Served::new(&["mock:s10-dfl:2"]);
    for selector in ["mock:s10-dfl:2".to_owned(), served.all()] {
        let mut owner =
            Owner::of(&["coll", "barrier", "--cards", &selector, "--repeat", "1000000000", "--timeout", "3600"]);
        let sensors = |card: &Value| card["sensors"].as_array().cloned().unwrap_or_default();
        owner
            .until("no sensor is read", |cards| cards.len() == 2 && cards.iter().all(|card| !sensors(card).is_empty()));
        for card in owner.cards() {
            // Those that are absent are left out.
            assert_eq!(sensors(&card).len(), 33, "{card}");
            let hot = sensors(&card).into_iter().find(|one| one["name"] == "fpga_temperature").unwrap();
            assert_eq!((hot["value"].as_u64(), hot["state"].as_str()), (Some(46_000), Some("good")), "{hot}");
            assert!(sensors(&card).iter().all(|one| one["part"] == "board"), "{card}");
        }
        owner.kill();
    }
}

#[test]
fn a_pipe_publishes_the_sensors_behind_control_functions() {
    let owner = Owner::of(&["pipe", "--cards", "mock:s10-dfl:2"]);
    let sensors = |card: &Value| card["sensors"].as_array().map_or(0, Vec::len);
    owner.until("no sensor is read", |cards| cards.len() == 2 && cards.iter().all(|card| sensors(card) == 33));
}

/// A process may have a name of any bytes. It is shown, and hides nothing of others.
#[test]
fn a_process_whose_name_is_no_text_is_read() {
    let other = Owner::new("mock:optweb:2");
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join(OsStr::from_bytes(b"card\xff"));
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_fpgactl"), &program).unwrap();
    let mut process = Command::new(program);
    for (name, value) in command(&[]).get_envs() {
        match value {
            Some(value) => process.env(name, value),
            None => process.env_remove(name),
        };
    }
    process.args(["pipe", "--cards", "mock:optweb:2"]).env("FPGACTL_STATS_DIR", other.directory());
    let mut child = process.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    other.until("it publishes nothing", |cards| {
        cards.iter().filter(|card| card["process"] == "card\u{fffd}").count() == 2 && cards.len() == 4
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(other.run(&["stats", "--clean"]).stdout, b"removed: 2\n");
    assert_eq!(other.cards().len(), 2);
}

/// A file of somebody else, under a name that readers look for.
#[test]
fn copies_of_a_file_are_no_series_of_its_owner() {
    let owner = Owner::new("mock:optweb:2");
    let file = owner.cards()[0]["file"].as_str().unwrap().to_owned();
    let pid = owner.child.id();
    for name in ["1.0".to_owned(), format!("0{pid}.0"), format!("{pid}.00"), "1.\u{1b}]0;owned\u{7}".to_owned()] {
        fs::copy(&file, owner.directory().join(format!("fpga-stats.{name}"))).unwrap();
    }
    let metrics = String::from_utf8(owner.run(&["metrics", "--textfile", "/dev/stdout"]).stdout).unwrap();
    // No series is there twice: parse checks that.
    assert_eq!(values(&metrics, "fpga_card_up"), [1.0, 1.0]);
    assert_eq!(values(&metrics, "fpga_stats_unread_files"), [1.0]);
    let output = owner.run(&["stats"]);
    let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.code() == Some(1) && !printed.contains('\u{1b}'), "{printed:?}");
    assert!(
        printed.contains(&format!("fpga-stats.1.0 is no statistics file: it has the counters of process {pid}")),
        "{printed}"
    );
}

#[test]
fn a_killed_owner_is_said_to_be_gone() {
    let mut owner = Owner::new("mock:optweb:2");
    owner.kill();
    let cards = owner.cards();
    assert_eq!(cards.len(), 2);
    assert!(cards.iter().all(|card| card["owner"] == "gone" && card["completed"] != 0), "{cards:?}");
    let table = String::from_utf8(owner.run(&["stats"]).stdout).unwrap();
    assert!(table.contains("owner gone"), "{table}");
    let metrics = owner.run(&["metrics", "--textfile", "/dev/stdout"]).stdout;
    assert_eq!(values(&String::from_utf8(metrics).unwrap(), "fpga_card_up"), [0.0, 0.0]);
    assert_eq!(String::from_utf8(owner.run(&["stats", "--clean"]).stdout).unwrap(), "removed: 2\n");
    assert!(owner.cards().is_empty());

    // The next owner removes them too.
    let mut owner = Owner::new("mock:optweb:2");
    owner.kill();
    let coll = owner.run(&["coll", "broadcast", "--bytes", "64"]);
    assert!(coll.status.success());
    assert_eq!(fs::read_dir(owner.directory()).unwrap().count(), 0);
}

#[test]
fn watching_prints_rates_until_it_is_interrupted() {
    let mut owner = Owner::new("mock:optweb:2");
    let mut watch = command(&["stats", "--watch", "--interval", "0.2", "--json"]);
    let mut watch = watch.env("FPGACTL_STATS_DIR", owner.directory()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = || -> Value { crate::parsed(lines.next().unwrap().unwrap()) };
    assert!(next()["cards"][0].get("rates").is_none(), "rates of one reading");
    owner.write();
    let start = Instant::now();
    while next()["cards"][0]["rates"]["gbps"].as_f64().unwrap() == 0.0 {
        assert!(start.elapsed() < PATIENCE, "no rate");
    }
    assert!(Command::new("sh").args(["-c", &format!("kill -INT {}", watch.id())]).status().unwrap().success());
    assert!(watch.wait().unwrap().success());
}

/// A line is there before the next reading, and a reader that leaves ends the command.
#[test]
fn a_reader_that_leaves_ends_watching() {
    let owner = Owner::new("mock:optweb:2");
    for format in [&["--json"][..], &[]] {
        let mut watch = command(&[&["stats", "--watch", "--interval", "0.2"], format].concat());
        let watch = watch.env("FPGACTL_STATS_DIR", owner.directory()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut watch = watch.spawn().unwrap();
        let mut output = BufReader::new(watch.stdout.take().unwrap());
        output.read_line(&mut String::new()).unwrap();
        drop(output);
        let ended = watch.wait_with_output().unwrap();
        assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
    }
}

/// Corrupt and foreign files: a clear error with the path, and the other cards.
#[test]
fn a_corrupt_file_is_an_error_and_hides_no_card() {
    let owner = Owner::new("mock:optweb:2");
    let foreign = owner.directory().join("fpga-stats.1.9");
    let valid = fs::read(owner.cards()[0]["file"].as_str().unwrap()).unwrap();
    let changed = |at: usize, byte: u8| {
        let mut changed = valid.clone();
        changed[at] = byte;
        changed
    };
    for (content, message) in [
        (Vec::new(), "0 bytes: expected at least 5120"),
        (vec![b'x'; 6000], "its first word is 0x7878787878787878"),
        (valid[..1000].to_vec(), "1000 bytes: expected at least 5120"),
        (changed(8, 1), "has version 1 of the format: expected 2"),
        (changed(64, 9), "its state is 9: expected 1 to 4"),
        (changed(40, 3), "the depth of its queue is"),
        (changed(32 * 8, 0x1b), "the name of its card is not printable text"),
    ] {
        fs::write(&foreign, content).unwrap();
        let metrics = owner.run(&["metrics", "--textfile", "/dev/stdout"]).stdout;
        assert_eq!(values(&String::from_utf8(metrics).unwrap(), "fpga_stats_unread_files"), [1.0]);
        let top = String::from_utf8(owner.run(&["top", "--once", "--interval", "0.01"]).stdout).unwrap();
        assert!(top.matches("running").count() == 2 && top.contains(message), "{top}");
        for arguments in [&["stats"][..], &["stats", foreign.to_str().unwrap()]] {
            let output = owner.run(arguments);
            let errors = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{errors}");
            assert!(errors.contains(message) && errors.contains("fpga-stats.1.9"), "{errors}");
        }
        assert_eq!(String::from_utf8(owner.run(&["stats"]).stdout).unwrap().matches("running").count(), 2);
    }
    let missing = owner.run(&["stats", "/nowhere/fpga-stats.1.1"]);
    assert_eq!(missing.status.code(), Some(4));
    let missing = command(&["stats"]).env("FPGACTL_STATS_DIR", "/nowhere").output().unwrap();
    assert_eq!(missing.status.code(), Some(4), "{}", String::from_utf8_lossy(&missing.stderr));
    let file = foreign.to_str().unwrap();
    for arguments in [
        &["stats"][..],
        &["top", "--once"],
        &["metrics", "--textfile", "/dev/null"],
        &["metrics", "--listen", "127.0.0.1:0"],
    ] {
        let output = command(arguments).env("FPGACTL_STATS_DIR", file).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(4) && errors.contains(file), "{arguments:?}: {errors}");
    }
    // A directory where nothing can be published ends no command.
    let coll = command(&["coll", "barrier"]).env("FPGACTL_STATS_DIR", "/nowhere").output().unwrap();
    assert!(coll.status.success() && coll.stderr.is_empty());
}

/// Labels and a value.
type Sample = (BTreeMap<String, String>, f64);

/// Checks text by the grammar of OpenMetrics if it ends as such, else by that of Prometheus' text format 0.0.4, as far as they
/// are used, and returns the samples of each metric.
fn parse(text: &str) -> BTreeMap<String, Vec<Sample>> {
    let open = text.strip_suffix("# EOF\n");
    let body = open.unwrap_or(text);
    let (mut families, mut samples) = (BTreeMap::new(), BTreeMap::<_, Vec<_>>::new());
    let mut current = String::new();
    for line in body.lines() {
        assert!(!line.is_empty() && line == line.trim());
        if let Some(metadata) = line.strip_prefix("# ") {
            let words: Vec<&str> = metadata.splitn(3, ' ').collect();
            match words[0] {
                "TYPE" => {
                    assert!(["gauge", "counter"].contains(&words[2]), "{line}");
                    assert!(families.insert(words[1].to_owned(), words[2].to_owned()).is_none(), "twice: {line}");
                    words[1].clone_into(&mut current);
                }
                "UNIT" if open.is_some() => {
                    assert!(words[1] == current && current.ends_with(&format!("_{}", words[2])), "{line}")
                }
                "HELP" => assert!(words[1] == current && !words[2].is_empty(), "{line}"),
                other => panic!("{other} in {line}"),
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) =
            series.split_once('{').map_or((series, ""), |(name, labels)| (name, labels.strip_suffix('}').unwrap()));
        let is_counter = families[&current] == "counter";
        let suffix = if is_counter && open.is_some() { "_total" } else { "" };
        assert_eq!(is_counter, name.ends_with("_total"), "{line}");
        assert_eq!(name, format!("{current}{suffix}"), "the samples of a family follow its metadata");
        assert!(name.chars().all(|one| one.is_ascii_alphanumeric() || one == '_'));
        let mut found = BTreeMap::new();
        let mut rest = labels;
        while let Some((key, after)) = rest.split_once("=\"") {
            let end =
                (0..after.len()).find(|at| after[*at..].starts_with('"') && !after[..*at].ends_with('\\')).unwrap();
            assert!(found.insert(key.trim_start_matches(',').to_owned(), after[..end].to_owned()).is_none(), "{line}");
            rest = &after[end + 1..];
        }
        assert_eq!(rest, "", "{line}");
        samples.entry(name.to_owned()).or_default().push((found, value.parse::<f64>().unwrap()));
    }
    for (name, samples) in &samples {
        let series: BTreeSet<_> = samples.iter().map(|(labels, _)| labels).collect();
        assert_eq!(series.len(), samples.len(), "{name} has a series twice");
    }
    samples
}

/// The values of a metric, in the order of the cards.
fn values(text: &str, metric: &str) -> Vec<f64> {
    parse(text).remove(metric).unwrap_or_default().into_iter().map(|(_, value)| value).collect()
}

/// `metrics --listen` at a free port, until it is dropped.
struct Exporter {
    child: Child,
    address: String,
}

impl Exporter {
    fn new(directory: &Path) -> Self {
        let mut metrics = command(&["metrics", "--listen", "127.0.0.1:0", "--json"]);
        let mut child = metrics.env("FPGACTL_STATS_DIR", directory).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let line = lines.find(|line| line.contains("address")).unwrap();
        let address = line.split('"').nth(3).unwrap().to_owned();
        Exporter { child, address }
    }

    /// Sends `request` and returns all that comes until the end.
    fn ask(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // The server may have answered and closed before it read everything.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn metrics_have_the_format_of_the_reader_and_say_what_stats_says() {
    let served = Served::new(&["mock:optweb:2"]);
    let owner = Owner::new(&served.all());
    fs::write(owner.directory().join("fpga-stats.1.9"), "corrupt").unwrap();
    let exporter = Exporter::new(owner.directory());
    // As Prometheus asks.
    let answer = exporter.ask(
        b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n\r\n",
    );
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(body.ends_with("# EOF\n") && body.contains("# TYPE fpga_card_instructions counter\n"), "{body}");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    let metrics = parse(body);
    assert_eq!(metrics.len(), 11);
    assert_eq!(values(body, "fpga_card_up"), [1.0, 1.0]);
    assert_eq!(values(body, "fpga_card_queue_depth"), [1024.0, 1024.0]);
    assert_eq!(values(body, "fpga_stats_unread_files"), [1.0]);
    assert!(values(body, "fpga_card_instructions_total").iter().all(|count| *count > 0.0));
    let labels = &metrics["fpga_card_up"][1].0;
    assert_eq!(
        (labels["node"].as_str(), labels["process"].as_str(), labels["mock"].as_str()),
        ("1", "fpgactl", "true")
    );
    assert_eq!(labels["pid"], owner.child.id().to_string());

    let file = owner.directory().join("fpga.prom");
    assert!(owner.run(&["metrics", "--textfile", file.to_str().unwrap()]).status.success());
    let written = fs::read_to_string(file).unwrap();
    for accept in [
        "",
        "Accept: text/plain\r\n",
        "accept: */*\r\n",
        "Accept: text/plain, application/openmetrics-text;version=1.0.0; Q=0.000\r\n",
    ] {
        let answer = exporter.ask(format!("GET /metrics HTTP/1.1\r\n{accept}\r\n").as_bytes());
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8"), "{accept}: {head}");
        assert_eq!(parse(body).keys().collect::<Vec<_>>(), metrics.keys().collect::<Vec<_>>(), "{accept}");
    }
    // Type and help are of the names that samples have.
    for line in ["# TYPE fpga_card_moved_bytes_total counter", "# TYPE fpga_card_up gauge"] {
        assert!(written.lines().any(|one| one == line), "{written}");
    }
    assert!(!written.contains("# EOF") && !written.contains("# UNIT"), "{written}");
    assert_eq!(parse(&written).keys().collect::<Vec<_>>(), metrics.keys().collect::<Vec<_>>());
}

/// Requests that are wrong, large, slow or unfinished: an error each, and the next one is answered.
#[test]
fn the_server_is_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let exporter = Exporter::new(directory.path());
    let good = b"GET /metrics HTTP/1.0\r\n\r\n";
    for (request, status) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
        (b"GET /metrics SPDY/3\r\n\r\n", "400 Bad Request"),
        (b"\xff\xfe\r\n\r\n", "400 Bad Request"),
        (good, "200 OK"),
        (b"GET http://127.0.0.1:9990/metrics?x HTTP/1.1\r\n\r\n", "200 OK"),
        (b"GET HTTP://[::1]/metrics HTTP/1.1\r\n\r\n", "200 OK"),
        (b"GET http://127.0.0.1/ HTTP/1.1\r\n\r\n", "404 Not Found"),
        (b"GET http://metrics HTTP/1.1\r\n\r\n", "404 Not Found"),
        (b"GET http:///metrics/ HTTP/1.1\r\n\r\n", "404 Not Found"),
        (b"GET /?http://x/metrics HTTP/1.1\r\n\r\n", "404 Not Found"),
    ] {
        let answer = exporter.ask(request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answer}");
    }
    let head = exporter.ask(b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.ends_with("\r\n\r\n"), "{head}");
    let large = [&b"GET /metrics HTTP/1.1\r\nX: "[..], &[b'x'; 9000]].concat();
    let answer = exporter.ask(&large);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    // A client that sends nothing holds the others up for two seconds, not longer.
    let silent = TcpStream::connect(&exporter.address).unwrap();
    assert!(exporter.ask(good).starts_with("HTTP/1.1 200 OK"));
    drop(silent);
    // The port is in use.
    let second = command(&["metrics", "--listen", &exporter.address])
        .env("FPGACTL_STATS_DIR", directory.path())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(1));
    assert!(errors.contains(&exporter.address) && errors.contains("in use"), "{errors}");
}

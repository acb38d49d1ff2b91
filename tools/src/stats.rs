//! `fpgactl stats`: what the owners of cards publish. Opens no card.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use cmdseq::text::with_causes;
use fpga_driver::readings::Value;
use fpga_driver::{
    CardStats, OwnerState, SensedValue, StatsError, StatsFile, list_stats, read_stats, remove_gone_stats,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::{self, Cli};
use crate::exit::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::units::rounded;
use crate::{output, readings};

#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed {
    schema: &'static str,
    pub(crate) cards: Vec<Card>,
    pub(crate) unread: Vec<Unread>,
}

/// What the owner of a card has published.
#[derive(Debug, Clone, JsonSchema, Serialize)]
pub(crate) struct Card {
    pub(crate) name: String,
    pub(crate) node: u32,
    pub(crate) mock: bool,
    pub(crate) pid: u32,
    pub(crate) process: String,
    pub(crate) owner: Owner,
    pub(crate) state: String,
    pub(crate) since_unix_s: f64,
    pub(crate) depth: u32,
    pub(crate) in_flight: u32,
    pub(crate) submitted: u64,
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    pub(crate) bytes: u64,
    pub(crate) restarts: u64,
    pub(crate) links: u32,
    pub(crate) link_failures: u64,
    /// Sensors that the card has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) sensors: Vec<Sensor>,
    /// When they were read last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sensed_unix_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rates: Option<Rates>,
    pub(crate) file: String,
}

/// What a sensor of the card reads.
#[derive(Debug, Clone, JsonSchema, Serialize)]
pub(crate) struct Sensor {
    pub(crate) part: String,
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) value: Option<u64>,
    pub(crate) state: &'static str,
    /// The value for people.
    #[serde(skip)]
    pub(crate) shown: String,
}

impl Sensor {
    pub(crate) fn new(sensed: &SensedValue) -> Self {
        let value = sensed.value.number();
        Sensor {
            part: sensed.part.clone(),
            name: sensed.name.clone(),
            unit: sensed.unit.name(),
            value,
            state: sensed.value.state(),
            shown: readings::shown(value, sensed.unit),
        }
    }
}

/// Whether the process that holds the card still runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Owner {
    Alive,
    Gone,
}

/// Rates since the reading before.
#[derive(Debug, Clone, Copy, JsonSchema, Serialize)]
pub(crate) struct Rates {
    pub(crate) operations_per_s: f64,
    pub(crate) gbps: f64,
}

/// A file that cannot be read.
#[derive(Debug, Clone, JsonSchema, Serialize)]
pub(crate) struct Unread {
    pub(crate) file: String,
    pub(crate) error: String,
}

/// Files, each with what it holds.
pub(crate) type Found = Vec<StatsFile>;

/// Reads all files of published counters.
pub(crate) fn all(cli: &Cli) -> Result<Found> {
    if cli.stats_dir == Path::new("none") {
        return Err(Failure::usage(
            "invalid directory `none` in --stats-dir or FPGACTL_STATS_DIR: expected that of published counters",
        ));
    }
    list_stats(&cli.stats_dir).map_err(|error| failure(&error, true))
}

/// Converts the error of a file. One that the user has not named is no missing argument.
fn failure(error: &StatsError, is_named: bool) -> Failure {
    match error {
        StatsError::Io { path, source } if is_named => Failure::file(path, source),
        error => Failure::new(Exit::Failed, with_causes(error)),
    }
}

pub(crate) fn run(cli: &Cli, arguments: &cli::Stats) -> Result<()> {
    if arguments.clean {
        all(cli)?;
        let count = remove_gone_stats(&cli.stats_dir).map_err(|error| failure(&error, true))?;
        let text = format!("removed: {count}\n");
        return if cli.json {
            output::json(&Cleaned { schema: "fpgactl.stats-clean/1", removed: count })
        } else {
            output::text(&text)
        };
    }
    let interrupt = Interrupt::listen_watching()?;
    let (mut before, mut next) = (Before::default(), Instant::now());
    let is_named = !arguments.files.is_empty();
    loop {
        let found = read(cli, &arguments.files)?;
        let failed = found.iter().find_map(|(_, one)| Some(failure(one.as_ref().err()?, is_named)));
        let printed = printed(&found, arguments.watch.then_some(&mut before));
        let text = if !cli.json {
            text(&printed, arguments.watch)
        } else if arguments.watch {
            output::json_line(&printed)?
        } else {
            output::json(&printed)?;
            String::new()
        };
        let flow = output::stream(text.as_bytes())?;
        if !arguments.watch {
            return failed.map_or(Ok(()), Err);
        }
        next += Duration::from_secs_f64(arguments.interval);
        // Ctrl-C is how watching ends.
        if interrupt.wait_until(next).is_err() || flow == ControlFlow::Break(()) {
            return Ok(());
        }
    }
}

#[derive(JsonSchema, Serialize)]
pub(crate) struct Cleaned {
    schema: &'static str,
    removed: usize,
}

fn read(cli: &Cli, files: &[PathBuf]) -> Result<Found> {
    if files.is_empty() {
        return all(cli);
    }
    Ok(files.iter().map(|path| (path.clone(), read_stats(path))).collect())
}

/// When the files were read before, and what they held.
#[derive(Default)]
pub(crate) struct Before {
    at: Option<Instant>,
    cards: BTreeMap<PathBuf, (u64, u64)>,
}

impl Before {
    /// Returns operations and bytes of each card for each second since the call before; `None` for cards that are new.
    pub(crate) fn rates(&mut self, found: &Found) -> Vec<Option<(f64, f64)>> {
        let now = Instant::now();
        let seconds = self.at.replace(now).map(|at| now.duration_since(at).as_secs_f64()).filter(|time| *time > 0.0);
        let rate = |path: &PathBuf, card: &CardStats| {
            let (completed, bytes) = self.cards.get(path)?;
            let seconds = seconds?;
            let more = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
            Some((more(card.completed, *completed), more(card.bytes, *bytes)))
        };
        let rates = found.iter().map(|(path, card)| card.as_ref().ok().and_then(|card| rate(path, card))).collect();
        let counts =
            |(path, card): &StatsFile| card.as_ref().ok().map(|card| (path.clone(), (card.completed, card.bytes)));
        self.cards = found.iter().filter_map(counts).collect();
        rates
    }
}

/// Describes what was read; with `before`, with rates.
pub(crate) fn printed(found: &Found, before: Option<&mut Before>) -> Printed {
    let rates = before.map(|before| before.rates(found)).unwrap_or_default();
    let (mut cards, mut unread) = (Vec::new(), Vec::new());
    for ((path, card), rates) in found.iter().zip(rates.into_iter().chain(std::iter::repeat(None))) {
        let file = path.display().to_string();
        match card {
            Ok(card) => cards.push(Card::new(card, file, rates)),
            Err(error) => unread.push(Unread { file, error: failure(error, true).message().to_owned() }),
        }
    }
    Printed::new(cards, unread)
}

impl Printed {
    pub(crate) fn new(cards: Vec<Card>, unread: Vec<Unread>) -> Self {
        Printed { schema: "fpgactl.stats/1", cards, unread }
    }
}

impl Card {
    fn new(card: &CardStats, file: String, rates: Option<(f64, f64)>) -> Self {
        let unix_s =
            |at: SystemTime| rounded(at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64());
        Card {
            name: card.name.clone(),
            node: card.node,
            mock: card.is_mock,
            pid: card.pid,
            process: card.command.clone(),
            owner: if card.owner == OwnerState::Alive { Owner::Alive } else { Owner::Gone },
            state: card.state.to_string(),
            since_unix_s: unix_s(card.since),
            depth: card.depth,
            in_flight: card.in_flight(),
            submitted: card.submitted,
            completed: card.completed,
            failed: card.failed,
            bytes: card.bytes,
            restarts: card.restarts,
            links: card.links,
            link_failures: card.link_failures,
            sensors: card.sensors.iter().filter(|one| one.value != Value::Absent).map(Sensor::new).collect(),
            sensed_unix_s: card.sensed.map(unix_s),
            rates: rates.map(|(operations, bytes)| Rates {
                operations_per_s: rounded(operations),
                gbps: rounded(bytes * 8e-9),
            }),
            file,
        }
    }
}

fn text(printed: &Printed, with_rates: bool) -> String {
    if printed.cards.is_empty() && printed.unread.is_empty() {
        return "no card in use\n".to_owned();
    }
    let heads = ["CARD", "NODE", "PROCESS", "STATE", "QUEUE", "COMPLETED", "FAILED", "BYTES"];
    let rates: &[&str] = if with_rates { &["PER SECOND", "Gb/s"] } else { &[] };
    let mut rows = vec![heads.iter().chain(rates).map(|head| (*head).to_owned()).collect::<Vec<_>>()];
    for card in &printed.cards {
        let state = if card.owner == Owner::Alive { card.state.clone() } else { "owner gone".to_owned() };
        let mut row = vec![
            card.name.clone(),
            card.node.to_string(),
            format!("{} ({})", card.pid, card.process),
            state,
            format!("{} of {}", card.in_flight, card.depth),
            card.completed.to_string(),
            card.failed.to_string(),
            card.bytes.to_string(),
        ];
        if with_rates {
            row.push(card.rates.map_or("-".to_owned(), |rates| format!("{:.0}", rates.operations_per_s)));
            row.push(card.rates.map_or("-".to_owned(), |rates| format!("{:.2}", rates.gbps)));
        }
        rows.push(row);
    }
    let notes = printed.unread.iter().map(|one| format!("note: {}\n", one.error));
    let end = if with_rates { "\n" } else { "" };
    output::table(&rows) + &notes.collect::<String>() + end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_may_not_be_read_is_missing_only_if_it_was_named() {
        let path = PathBuf::from("/dev/shm/fpga-stats.1.0");
        let source = std::io::ErrorKind::PermissionDenied.into();
        let error = StatsError::Io { path, source };
        let message = "/dev/shm/fpga-stats.1.0: permission denied";
        assert_eq!(failure(&error, true), Failure::new(Exit::NoFile, message));
        assert_eq!(failure(&error, false), Failure::new(Exit::Failed, format!("Cannot read {message}")));
    }
}

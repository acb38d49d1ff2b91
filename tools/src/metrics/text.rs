//! OpenMetrics text 1.0 (the OpenMetrics specification, section "Text format"), and Prometheus' older text format 0.0.4
//! (Prometheus' documentation, "Exposition formats").

use std::fmt::Write as _;
use std::path::Path;
use std::time::SystemTime;

use fpga_driver::readings::{Unit, Value};
use fpga_driver::{CardStats, OwnerState, SensedValue, State};

use crate::stats::Found;

/// A text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    OpenMetrics,
    /// The older one, which node_exporter's textfile collector reads: type and help are of the name that samples have, with its
    /// suffix, and there are no units.
    Prometheus,
}

impl Format {
    /// Returns the media type in HTTP.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// A metric: name without suffix, type, help, unit or none, and its value for a card.
type Metric = (&'static str, &'static str, &'static str, &'static str, fn(&CardStats) -> u64);

const METRICS: [Metric; 10] = [
    ("fpga_card_up", "gauge", "1 if the owner of the card is alive and its queue runs.", "", |card| {
        u64::from(card.owner == OwnerState::Alive && card.state == State::Running)
    }),
    ("fpga_card_owner_alive", "gauge", "1 if the process that holds the card is alive.", "", |card| {
        u64::from(card.owner == OwnerState::Alive)
    }),
    ("fpga_card_queue_depth", "gauge", "Entries of the queue.", "", |card| u64::from(card.depth)),
    ("fpga_card_in_flight", "gauge", "Instructions on the card and not completed.", "", |card| {
        u64::from(card.in_flight())
    }),
    ("fpga_card_instructions", "counter", "Completed instructions.", "", |card| card.completed),
    (
        "fpga_card_failed_instructions",
        "counter",
        "Instructions that ended with a status other than done.",
        "",
        |card| card.failed,
    ),
    ("fpga_card_moved_bytes", "counter", "Bytes that completed instructions moved.", "bytes", |card| card.bytes),
    ("fpga_card_restarts", "counter", "Starts of the queue after an abort or a reset.", "", |card| card.restarts),
    ("fpga_card_links", "gauge", "Links to other cards, 0 if not published.", "", |card| u64::from(card.links)),
    (
        "fpga_card_link_failures",
        "counter",
        "Instructions that failed because a link was missing or down.",
        "",
        |card| card.link_failures,
    ),
];

/// What sensors measure: name of the metric, its unit, the unit of the sensors, and how many of those one is.
type Measured = (&'static str, &'static str, Unit, f64);

const MEASURED: [Measured; 5] = [
    ("fpga_card_voltage", "volts", Unit::Millivolts, 1e3),
    ("fpga_card_current", "amperes", Unit::Milliamperes, 1e3),
    ("fpga_card_temperature", "celsius", Unit::MilliCelsius, 1e3),
    ("fpga_card_power", "watts", Unit::Milliwatts, 1e3),
    ("fpga_card_fan_speed", "rpm", Unit::Rpm, 1.0),
];

/// Formats all cards. A file that cannot be read counts in `fpga_stats_unread_files`.
pub(super) fn metrics(found: &Found, format: Format) -> String {
    let mut text = Text { text: String::new(), format };
    let cards: Vec<(String, &CardStats)> =
        found.iter().filter_map(|(path, card)| card.as_ref().ok().map(|card| (labels(path, card), card))).collect();
    for (name, kind, help, unit, value) in METRICS {
        text.head(name, kind, unit, help);
        let suffix = suffix(kind);
        for (labels, card) in &cards {
            let _ = writeln!(text.text, "{name}{suffix}{{{labels}}} {}", value(card));
        }
    }
    sensors(&mut text, &cards);
    let unread = found.iter().filter(|(_, card)| card.is_err()).count();
    text.head("fpga_stats_unread_files", "gauge", "", "Statistics files that cannot be read.");
    let _ = writeln!(text.text, "fpga_stats_unread_files {unread}");
    text.text + if format == Format::OpenMetrics { "# EOF\n" } else { "" }
}

/// What the names of the samples of a metric end with.
fn suffix(kind: &str) -> &'static str {
    if kind == "counter" { "_total" } else { "" }
}

/// Writes the sensors of cards that have some. A value that cannot be trusted is left out.
fn sensors(text: &mut Text, cards: &[(String, &CardStats)]) {
    let present = || cards.iter().flat_map(|(labels, card)| card.sensors.iter().map(move |one| (labels, one)));
    let of_sensor = |one: &SensedValue| format!("part=\"{}\",sensor=\"{}\"", escaped(&one.part), escaped(&one.name));
    for (family, unit, measured, scale) in MEASURED {
        let mut is_first = true;
        for (labels, one) in present().filter(|(_, one)| one.unit == measured) {
            let Value::Good(value) = one.value else { continue };
            let name = format!("{family}_{unit}");
            if std::mem::take(&mut is_first) {
                text.head(&name, "gauge", unit, "What a sensor of the card measures.");
            }
            let _ = writeln!(text.text, "{name}{{{labels},{}}} {}", of_sensor(one), value as f64 / scale);
        }
    }
    if cards.iter().all(|(_, card)| card.sensed.is_none()) {
        return;
    }
    let name = "fpga_card_sensor_good";
    text.head(name, "gauge", "", "1 if the value of the sensor can be trusted, 0 if it is stale or impossible.");
    for (labels, one) in present().filter(|(_, one)| one.value != Value::Absent) {
        let is_good = matches!(one.value, Value::Good(_));
        let _ = writeln!(text.text, "{name}{{{labels},{}}} {}", of_sensor(one), u8::from(is_good));
    }
    let name = "fpga_card_sensors_read_time_seconds";
    text.head(name, "gauge", "seconds", "When the sensors of the card were read last, since 1970.");
    for (labels, card) in cards {
        let since = card.sensed.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
        if let Some(since) = since {
            let _ = writeln!(text.text, "{name}{{{labels}}} {}", since.as_secs_f64());
        }
    }
}

/// Text of a format.
struct Text {
    text: String,
    format: Format,
}

impl Text {
    /// Writes the metadata of a metric.
    fn head(&mut self, name: &str, kind: &str, unit: &str, help: &str) {
        let (suffix, has_unit) = match self.format {
            Format::OpenMetrics => ("", !unit.is_empty()),
            Format::Prometheus => (suffix(kind), false),
        };
        let _ = writeln!(self.text, "# TYPE {name}{suffix} {kind}");
        if has_unit {
            let _ = writeln!(self.text, "# UNIT {name} {unit}");
        }
        let _ = writeln!(self.text, "# HELP {name}{suffix} {help}");
    }
}

/// Returns the labels of a card. The number at the end of the file's name tells cards of one name in one process apart.
fn labels(path: &Path, card: &CardStats) -> String {
    let number = path.extension().unwrap_or_default().to_string_lossy();
    format!(
        "card=\"{}\",node=\"{}\",mock=\"{}\",pid=\"{}\",process=\"{}\",number=\"{}\"",
        escaped(&card.name),
        card.node,
        card.is_mock,
        card.pid,
        escaped(&card.command),
        escaped(&number),
    )
}

/// Escapes the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

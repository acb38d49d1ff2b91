//! OpenMetrics text 1.0 (the OpenMetrics specification, section "Text format").

use std::fmt::Write as _;

use fpga_driver::{CardStats, OwnerState, State};

use crate::stats::Found;

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

/// Formats all cards. A file that cannot be read counts in `fpga_stats_unread_files`.
pub(super) fn open_metrics(found: &Found) -> String {
    let mut text = String::new();
    for (name, kind, help, unit, value) in METRICS {
        let _ = writeln!(text, "# TYPE {name} {kind}");
        if !unit.is_empty() {
            let _ = writeln!(text, "# UNIT {name} {unit}");
        }
        let _ = writeln!(text, "# HELP {name} {help}");
        let suffix = if kind == "counter" { "_total" } else { "" };
        for (path, card) in found {
            let Ok(card) = card else { continue };
            // The number at the end of the file's name tells cards of one name in one process apart.
            let number = path.extension().unwrap_or_default().to_string_lossy();
            let _ = writeln!(
                text,
                "{name}{suffix}{{card=\"{}\",node=\"{}\",mock=\"{}\",pid=\"{}\",process=\"{}\",number=\"{}\"}} {}",
                escaped(&card.name),
                card.node,
                card.is_mock,
                card.pid,
                escaped(&card.command),
                escaped(&number),
                value(card)
            );
        }
    }
    let unread = found.iter().filter(|(_, card)| card.is_err()).count();
    text +=
        "# TYPE fpga_stats_unread_files gauge\n# HELP fpga_stats_unread_files Statistics files that cannot be read.\n";
    let _ = write!(text, "fpga_stats_unread_files {unread}\n# EOF\n");
    text
}

/// Escapes the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

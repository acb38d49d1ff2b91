//! The columns of `top`, for the terminal and for `--once`.

use super::model::Row;
use crate::cli::Sort;

/// A column: its head, its width on a terminal, whether it is aligned to the right, what sorts by it, and its cell.
pub(super) struct Column {
    pub(super) head: &'static str,
    /// Width; 0 for what is left.
    pub(super) width: u16,
    pub(super) is_number: bool,
    pub(super) sort: Option<Sort>,
    pub(super) cell: fn(&Row) -> String,
    /// Narrowest terminal that shows it.
    pub(super) from: u16,
}

/// Narrow terminals show as many of them as leave ten columns for the card: no number is cut.
pub(super) const COLUMNS: [Column; 12] = [
    Column {
        head: "CARD",
        width: 0,
        is_number: false,
        sort: Some(Sort::Card),
        cell: |row| row.card.name.clone(),
        from: 0,
    },
    Column { head: "NODE", width: 5, is_number: true, sort: None, cell: |row| row.card.node.to_string(), from: 103 },
    Column {
        head: "PID",
        width: 7,
        is_number: true,
        sort: Some(Sort::Pid),
        cell: |row| row.card.pid.to_string(),
        from: 63,
    },
    Column {
        head: "PROCESS",
        width: 15,
        is_number: false,
        sort: None,
        cell: |row| row.card.process.clone(),
        from: 103,
    },
    Column { head: "STATE", width: 11, is_number: false, sort: None, cell: |row| row.condition.to_string(), from: 0 },
    Column { head: "QUEUE", width: 9, is_number: true, sort: Some(Sort::Queue), cell: queue, from: 32 },
    Column { head: "OPS/S", width: 7, is_number: true, sort: Some(Sort::Ops), cell: operations, from: 40 },
    Column { head: "Gb/s", width: 7, is_number: true, sort: Some(Sort::Gbps), cell: gbps, from: 48 },
    Column { head: "FAILED", width: 6, is_number: true, sort: Some(Sort::Failed), cell: failed, from: 55 },
    Column { head: "LINKS", width: 9, is_number: true, sort: None, cell: links, from: 73 },
    Column { head: "TEMP", width: 7, is_number: true, sort: None, cell: temperature, from: 103 },
    Column {
        head: "COMPLETED",
        width: 10,
        is_number: true,
        sort: None,
        cell: |row| scaled(row.card.completed as f64),
        from: 122,
    },
];

fn queue(row: &Row) -> String {
    format!("{}/{}", row.card.in_flight, row.card.depth)
}

fn operations(row: &Row) -> String {
    row.rates().map_or("-".to_owned(), |rates| scaled(rates.operations_per_s))
}

fn gbps(row: &Row) -> String {
    row.rates().map_or("-".to_owned(), |rates| format!("{:.2}", rates.gbps))
}

fn failed(row: &Row) -> String {
    scaled(row.card.failed as f64)
}

/// The number of links, or how many instructions failed because of one.
fn links(row: &Row) -> String {
    match (row.card.links, row.card.link_failures) {
        (0, 0) => "-".to_owned(),
        (links, 0) => links.to_string(),
        (_, failures) => format!("{} err", scaled(failures as f64)),
    }
}

/// The temperature of the FPGA.
fn temperature(row: &Row) -> String {
    let found = row.sensors().find(|sensor| sensor.name == "fpga_temperature" && sensor.state == "good");
    found.map_or("-".to_owned(), |sensor| sensor.shown.clone())
}

/// Formats a number in at most 5 characters: `999`, `12.3k`, `4.56M`.
pub(super) fn scaled(value: f64) -> String {
    let (mut value, mut units) = (value, ["", "k", "M", "G", "T", "P", "E"].iter());
    let mut unit = units.next().copied().unwrap_or_default();
    // What would be rounded up to 1000 has the next unit.
    while value >= 999.5 {
        let Some(next) = units.next() else { break };
        (value, unit) = (value / 1000.0, next);
    }
    let digits = if unit.is_empty() || value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::scaled;

    #[test]
    fn numbers_take_five_characters() {
        for (value, text) in [
            (0.0, "0"),
            (999.4, "999"),
            (999.6, "1.00k"),
            (9_994.0, "9.99k"),
            (9_996.0, "10.0k"),
            (99_960.0, "100k"),
            (999_600.0, "1.00M"),
            (u64::MAX as f64, "18.4E"),
        ] {
            assert_eq!(scaled(value), text);
        }
    }
}

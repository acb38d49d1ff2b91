//! Counts of calls by communicator and operation.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use cmdseq::completion::microseconds;
use serde::Serialize;

use crate::settings::Format;
use crate::shape::Reason;

/// What one operation did on one communicator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Row {
    offloaded: u64,
    sum: Call,
    passed: BTreeMap<Reason, u64>,
}

/// Offloaded calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Call {
    /// Of this rank's input and output.
    pub(crate) bytes: u64,
    /// Bytes of these that the host copied, to memory that the card reaches and back.
    pub(crate) copied: u64,
    pub(crate) host: Duration,
    pub(crate) card_cycles: u64,
}

/// A communicator, or all with the same name and size that were freed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    name: String,
    size: u32,
}

impl Name {
    pub(crate) fn new(name: String, size: u32) -> Self {
        Name { name, size }
    }
}

/// Most communicators, by name and size, that are counted apart. Programs may name any number.
const NAMES_MAX: usize = 1024;

/// The counts of this rank.
#[derive(Debug)]
pub(crate) struct Statistics {
    /// Whether they are printed. Else nothing is counted.
    are_printed: bool,
    rows: BTreeMap<Name, BTreeMap<&'static str, Row>>,
    /// The communicators beyond [`NAMES_MAX`].
    others: Name,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Printed<'a> {
    schema: &'static str,
    rank: u32,
    ranks: u32,
    mpi: &'a str,
    communicators: Vec<PrintedCommunicator<'a>>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PrintedCommunicator<'a> {
    name: &'a str,
    size: u32,
    operations: Vec<PrintedRow<'a>>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PrintedRow<'a> {
    op: &'a str,
    offloaded: u64,
    bytes: u64,
    copied: u64,
    host_us: f64,
    cards_us: f64,
    passed: BTreeMap<&'static str, u64>,
}

impl Statistics {
    pub(crate) fn new(are_printed: bool) -> Self {
        let others = Name::new("(other communicators)".to_owned(), 0);
        Statistics { are_printed, rows: BTreeMap::new(), others }
    }

    /// The row of an operation; `None` if nothing is counted.
    fn row(&mut self, name: &Name, operation: &'static str) -> Option<&mut Row> {
        if !self.are_printed {
            return None;
        }
        let is_known = self.rows.contains_key(name);
        let name = if is_known || self.rows.len() < NAMES_MAX { name } else { &self.others };
        if !self.rows.contains_key(name) {
            self.rows.insert(name.clone(), BTreeMap::new());
        }
        Some(self.rows.get_mut(name)?.entry(operation).or_default())
    }

    pub(crate) fn offloaded(&mut self, name: &Name, operation: &'static str, call: Call) {
        let Some(row) = self.row(name, operation) else { return };
        row.offloaded += 1;
        row.sum.bytes += call.bytes;
        row.sum.copied += call.copied;
        row.sum.host += call.host;
        row.sum.card_cycles += call.card_cycles;
    }

    pub(crate) fn passed(&mut self, name: &Name, operation: &'static str, reason: Reason) {
        if let Some(row) = self.row(name, operation) {
            *row.passed.entry(reason).or_default() += 1;
        }
    }

    /// The report of rank `rank` of `ranks`, in the fabric's time for the cards.
    pub(crate) fn report(&self, format: Format, mpi: &str, (rank, ranks): (u32, u32), clock_khz: u32) -> String {
        let cards_us = |cycles: u64| if clock_khz == 0 { 0.0 } else { microseconds(cycles, clock_khz) };
        let row = |(op, row): (&&'static str, &Row)| PrintedRow {
            op,
            offloaded: row.offloaded,
            bytes: row.sum.bytes,
            copied: row.sum.copied,
            host_us: row.sum.host.as_nanos() as f64 / 1e3,
            cards_us: cards_us(row.sum.card_cycles),
            passed: row.passed.iter().map(|(reason, count)| (reason.text(), *count)).collect(),
        };
        let communicators = self.rows.iter().map(|(name, rows)| PrintedCommunicator {
            name: &name.name,
            size: name.size,
            operations: rows.iter().map(row).collect(),
        });
        let printed = Printed { schema: "fpga-mpi.stats/1", rank, ranks, mpi, communicators: communicators.collect() };
        match format {
            Format::Json => serde_json::to_string(&printed).unwrap_or_default() + "\n",
            Format::Text => text(&printed),
        }
    }
}

fn text(printed: &Printed<'_>) -> String {
    let mut text = format!("fpga-mpi: calls of rank {} of {}, {}\n", printed.rank, printed.ranks, printed.mpi);
    for communicator in &printed.communicators {
        let name = if communicator.name.is_empty() { "(no name)" } else { communicator.name };
        let _ = writeln!(text, "{name}, {} ranks", communicator.size);
        for row in &communicator.operations {
            let _ = write!(text, "  {:<20} {:>8} offloaded", row.op, row.offloaded);
            if row.offloaded != 0 {
                let PrintedRow { bytes, copied, host_us, cards_us, .. } = row;
                let _ = write!(text, ", {bytes} B, {copied} B copied, host {host_us:.1} us, cards {cards_us:.1} us");
            }
            for (reason, count) in &row.passed {
                let _ = write!(text, "; {count} passed through: {reason}");
            }
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: Call = Call { bytes: 16, copied: 8, host: Duration::from_micros(3), card_cycles: 300 };

    #[test]
    fn reports_say_what_was_counted() {
        let mut statistics = Statistics::new(true);
        let world = Name::new("MPI_COMM_WORLD".to_owned(), 4);
        statistics.offloaded(&world, "allreduce", CALL);
        statistics.offloaded(&world, "allreduce", CALL);
        statistics.passed(&world, "allreduce", Reason::Datatype);
        statistics.passed(&world, "iallreduce", Reason::NonBlocking);
        let json = statistics.report(Format::Json, "MPICH", (0, 4), 300_000);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let row = &json["communicators"][0]["operations"][0];
        assert_eq!((&row["op"], &row["offloaded"], &row["bytes"]), (&"allreduce".into(), &2.into(), &32.into()));
        assert_eq!(row["copied"], 16);
        assert_eq!((&row["host_us"], &row["cards_us"]), (&6.0.into(), &2.0.into()));
        assert_eq!(row["passed"]["datatype that the cards do not reduce"], 1);
        let text = statistics.report(Format::Text, "MPICH", (0, 4), 300_000);
        assert!(text.contains("MPI_COMM_WORLD, 4 ranks\n"), "{text}");
        assert!(
            text.contains("2 offloaded, 32 B, 16 B copied, host 6.0 us, cards 2.0 us; 1 passed through: datatype"),
            "{text}"
        );
    }

    #[test]
    fn names_are_bounded_and_nothing_is_counted_that_is_not_printed() {
        let (mut printed, mut silent) = (Statistics::new(true), Statistics::new(false));
        let names = (0..NAMES_MAX + 3).map(|index| Name::new(format!("communicator {index}"), 2));
        for name in names.clone().chain(names) {
            for statistics in [&mut printed, &mut silent] {
                statistics.offloaded(&name, "barrier", CALL);
                statistics.passed(&name, "ibarrier", Reason::NonBlocking);
            }
        }
        assert!(silent.rows.is_empty());
        assert_eq!(printed.rows.len(), NAMES_MAX + 1);
        assert_eq!(printed.rows[&printed.others]["barrier"].offloaded, 6);
        assert_eq!(printed.rows[&printed.others]["ibarrier"].passed, [(Reason::NonBlocking, 6)].into());
        let one = Name::new("communicator 7".to_owned(), 2);
        assert_eq!(printed.rows[&one]["barrier"].offloaded, 2);
    }

    /// The schema is of these types, and what is printed is valid by it.
    #[test]
    fn the_schema_is_of_the_report() {
        let settings = schemars::generate::SchemaSettings::draft2020_12().for_serialize();
        let mut schema = settings.into_generator().into_root_schema_for::<Printed<'_>>();
        schema.insert("title".into(), "fpga-mpi.stats/1".into());
        *schema.pointer_mut("/properties/schema").unwrap() = serde_json::json!({ "const": "fpga-mpi.stats/1" });
        let printed = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schemas/fpga-mpi.stats-1.json");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, &printed).unwrap();
        }
        assert!(printed == std::fs::read_to_string(path).unwrap(), "{path} differs (UPDATE=1 writes it)");
        let mut statistics = Statistics::new(true);
        let world = Name::new("MPI_COMM_WORLD".to_owned(), 4);
        statistics.offloaded(&world, "allreduce", CALL);
        statistics.passed(&world, "iallreduce", Reason::NonBlocking);
        let report = statistics.report(Format::Json, "MPICH", (0, 4), 300_000);
        let report = serde_json::from_str(&report).unwrap();
        let validator = jsonschema::draft202012::new(schema.as_value()).unwrap();
        assert!(validator.is_valid(&report), "{report}");
        assert!(!validator.is_valid(&serde_json::json!({ "schema": "fpga-mpi.stats/1" })));
    }
}

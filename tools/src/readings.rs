//! What `fpgactl info` shows of the readings of cards.

use cmdseq::text::with_causes;
use fpga_driver::readings::{Error, Reading, Readings, Unit};
use fpga_hal::Function;
use schemars::JsonSchema;
use serde::Serialize;

use crate::exit::Result;
use crate::{boards, output};

/// Of a card that is nothing else to this program.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed<'a> {
    schema: &'static str,
    selector: &'a str,
    kind: &'static str,
    readings: &'a Described,
}

/// Readings of one function.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Described {
    rows: Vec<Row>,
    board: Vec<Entry>,
    failures: Vec<Failed>,
    /// What the board files say of the function.
    board_file: boards::Described,
    #[serde(skip)]
    has_parts: bool,
}

#[derive(JsonSchema, Serialize)]
struct Row {
    part: &'static str,
    name: String,
    unit: &'static str,
    value: Option<u64>,
    state: &'static str,
    largest: Option<u64>,
    average: Option<u64>,
    text: Option<String>,
    #[serde(skip)]
    shown: [String; 3],
    #[serde(skip)]
    is_alarm: bool,
}

#[derive(JsonSchema, Serialize)]
struct Entry {
    name: &'static str,
    value: String,
}

#[derive(JsonSchema, Serialize)]
struct Failed {
    part: &'static str,
    message: String,
}

/// Reads what a function has. It is free again afterwards.
pub(crate) fn describe(function: &Function) -> Result<Described> {
    let readings = Readings::of(function)?;
    let row = |reading: &Reading| Row {
        part: reading.part,
        name: reading.name.clone(),
        unit: reading.unit.name(),
        value: reading.value.number(),
        state: reading.value.state(),
        largest: reading.largest,
        average: reading.average,
        text: reading.meaning(),
        shown: [reading.value.number(), reading.largest, reading.average].map(|value| shown(value, reading.unit)),
        is_alarm: reading.is_alarm(),
    };
    let has_parts = readings.rows.iter().any(|row| !matches!(row.part, "link" | "aer"));
    Ok(Described {
        rows: readings.rows.iter().map(row).collect(),
        board: readings.board.into_iter().map(|(name, value)| Entry { name, value }).collect(),
        failures: readings.failures.into_iter().map(failed).collect(),
        board_file: boards::describe(function)?,
        has_parts,
    })
}

fn failed((part, error): (&'static str, Error)) -> Failed {
    Failed { part, message: with_causes(&error) }
}

impl Described {
    /// Returns what the board files say of the function.
    pub(crate) fn board_file(&self) -> &boards::Described {
        &self.board_file
    }

    /// Returns whether more than every PCIe function has was read.
    pub(crate) fn has_parts(&self) -> bool {
        self.has_parts || !self.failures.is_empty()
    }
}

/// Writes a value for people.
pub(crate) fn shown(value: Option<u64>, unit: Unit) -> String {
    let Some(value) = value else { return "-".to_owned() };
    let thousandths = |unit: &str| format!("{} {unit}", value as f64 / 1e3);
    match unit {
        Unit::Millivolts => thousandths("V"),
        Unit::Milliamperes => thousandths("A"),
        Unit::MilliCelsius => thousandths("C"),
        Unit::Milliwatts => thousandths("W"),
        Unit::MegaTransfers => thousandths("GT/s"),
        Unit::Bits => format!("{value:#x}"),
        Unit::Rpm | Unit::Lanes => format!("{value} {}", unit.name()),
    }
}

/// Prints the readings of a card that is nothing else to this program.
pub(crate) fn print(readings: &Described, selector: &str, kind: &'static str, json: bool) -> Result<()> {
    match json {
        true => output::json(&Printed { schema: "fpgactl.info-readings/1", selector, kind, readings }),
        false => output::text(&format!("{selector}: no command sequencer\n\n{}", text(readings))),
    }
}

/// Returns the text of one card for people. Sensors that the card lacks are left out.
pub(crate) fn text(readings: &Described) -> String {
    let mut text = String::new();
    if !readings.board.is_empty() {
        let rows: Vec<_> = readings.board.iter().map(|one| vec![one.name.to_owned(), one.value.clone()]).collect();
        text = output::table(&rows) + "\n";
    }
    let row = |one: &Row| {
        let [now, largest, average] = one.shown.clone();
        let state = if one.state == "good" { String::new() } else { one.state.to_owned() };
        let note = one.text.clone().unwrap_or(state);
        [one.part.to_owned(), one.name.clone(), now, largest, average, note]
    };
    let there = readings.rows.iter().filter(|one| one.state != "absent").map(row);
    text += &output::headed(["PART", "READING", "NOW", "LARGEST", "AVERAGE", "NOTE"], there);
    for Failed { part, message } in &readings.failures {
        text += &format!("{part}: {message}\n");
    }
    text + "\n" + &boards::text(&readings.board_file)
}

/// Returns a line for each reading of several cards that is not as it should be.
pub(crate) fn alarms(cards: &[Described]) -> String {
    let mut text = String::new();
    for (number, card) in cards.iter().enumerate() {
        for row in card.rows.iter().filter(|row| row.is_alarm) {
            let note = row.text.as_deref().unwrap_or(row.state);
            text += &format!("card {number}: {} {} {}: {note}\n", row.part, row.name, row.shown[0]);
        }
        for Failed { part, message } in &card.failures {
            text += &format!("card {number}: {part}: {message}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_fails_is_told_with_the_cause() {
        let source = std::io::ErrorKind::OutOfMemory.into();
        let error = fpga_driver::Error::Bus(fpga_hal::Error::Memory { what: "DMA memory", bytes: 4096, source });
        let Failed { message, .. } = failed(("cms", error.into()));
        assert_eq!(message, "Cannot allocate 4096 bytes of DMA memory: out of memory");
    }
}

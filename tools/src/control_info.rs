//! What `fpgactl info` shows of a control function.

use fpga_driver::dfl::{Control, Error};
use fpga_driver::feature_list::Feature;
use fpga_hal::{BarIndex, Function};
use fpga_image::Uuid;
use schemars::JsonSchema;
use serde::Serialize;

use crate::exit::Result;
use crate::{output, readings};

/// Of a function that is only this.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed<'a> {
    schema: &'static str,
    selector: &'a str,
    kind: &'static str,
    #[serde(flatten)]
    control: &'a Described,
    readings: &'a readings::Described,
}

/// What a control function says.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Described {
    version: String,
    /// BITSTREAM_ID, in hexadecimal digits.
    bitstream: String,
    date: Option<String>,
    interface: Option<String>,
    /// Whether the port holds the accelerator in reset.
    held: bool,
    errors: Vec<Reported>,
    features: Vec<Listed>,
}

#[derive(JsonSchema, Serialize)]
struct Reported {
    part: &'static str,
    register: &'static str,
    bits: u64,
    text: String,
}

#[derive(JsonSchema, Serialize)]
struct Listed {
    bar: usize,
    offset: u64,
    kind: u8,
    id: u16,
    revision: u8,
    guid: Option<String>,
    name: Option<&'static str>,
}

/// Reads what a control function says; `None` of other functions. The function is free again afterwards.
pub(crate) fn describe(function: &Function) -> Result<Option<Described>> {
    let control = match Control::open(function.clone()) {
        Ok(control) => control,
        Err(Error::NoControl { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let identity = control.identity()?;
    let [major, minor, patch] = identity.version();
    Ok(Some(Described {
        version: format!("{major}.{minor}.{patch}"),
        bitstream: format!("{:016x}", identity.bitstream),
        date: identity.day().map(|(year, month, day)| format!("{year}-{month:02}-{day:02}")),
        interface: identity.interface.map(|interface| Uuid::from_u128(interface).to_string()),
        held: control.is_held()?,
        errors: control.errors()?.into_iter().map(reported).collect(),
        features: control.features().iter().map(listed).collect(),
    }))
}

/// Prints what a function says that is only a control function.
pub(crate) fn print(
    control: &Described,
    readings: &readings::Described,
    selector: &str,
    kind: &'static str,
    json: bool,
) -> Result<()> {
    match json {
        true => output::json(&Printed { schema: "fpgactl.info-control/1", selector, kind, control, readings }),
        false => output::text(&(text(control, selector) + "\n" + &readings::text(readings))),
    }
}

fn reported(error: fpga_driver::dfl::Reported) -> Reported {
    Reported { part: error.part, register: error.register, bits: error.bits, text: error.to_string() }
}

fn listed((bar, feature): &(BarIndex, Feature)) -> Listed {
    Listed {
        bar: bar.index(),
        offset: feature.offset,
        kind: feature.kind,
        id: feature.id,
        revision: feature.revision,
        guid: feature.guid.map(|guid| Uuid::from_u128(guid).to_string()),
        name: feature.name(),
    }
}

/// Returns the text for people.
pub(crate) fn text(printed: &Described, selector: &str) -> String {
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let unknown = || "unknown".to_owned();
    let mut rows = vec![
        row("function", format!("control function ({selector})")),
        row("shell", format!("{}, bitstream {}", printed.version, printed.bitstream)),
        row("made on", printed.date.clone().unwrap_or_else(unknown)),
        row("interface", printed.interface.clone().unwrap_or_else(|| "takes no images".to_owned())),
        row("accelerator", if printed.held { "held in reset" } else { "released" }.to_owned()),
    ];
    match printed.errors.as_slice() {
        [] => rows.push(row("errors", "none".to_owned())),
        some => rows.extend(some.iter().map(|error| row("error", error.text.clone()))),
    }
    let feature = |one: &Listed| {
        let name = one.name.map_or_else(|| format!("type {}", one.kind), str::to_owned);
        [one.bar.to_string(), format!("{:#07x}", one.offset), name, format!("{:#x}", one.id), one.revision.to_string()]
    };
    let features = output::headed(["BAR", "OFFSET", "FEATURE", "ID", "REVISION"], printed.features.iter().map(feature));
    output::table(&rows) + "\n" + &features
}

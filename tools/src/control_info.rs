//! What `fpgactl info` shows of a control function.

use fpga_driver::dfl::{Control, Error};
use fpga_driver::feature_list::Feature;
use fpga_hal::Function;
use fpga_image::Uuid;
use serde::Serialize;

use crate::exit::Result;
use crate::output;

#[derive(Serialize)]
struct Printed<'a> {
    schema: &'static str,
    selector: &'a str,
    kind: &'static str,
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

#[derive(Serialize)]
struct Reported {
    part: &'static str,
    register: &'static str,
    bits: u64,
    text: String,
}

#[derive(Serialize)]
struct Listed {
    offset: u64,
    kind: u8,
    id: u16,
    revision: u8,
    guid: Option<String>,
    name: Option<&'static str>,
}

/// Prints what a control function says, and returns true. Returns false for other functions.
pub(crate) fn print(function: &Function, selector: &str, kind: &'static str, json: bool) -> Result<bool> {
    let control = match Control::open(function.clone()) {
        Ok(control) => control,
        Err(Error::NoControl { .. }) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let identity = control.identity()?;
    let [major, minor, patch] = identity.version();
    let printed = Printed {
        schema: "fpgactl.info-control/1",
        selector,
        kind,
        version: format!("{major}.{minor}.{patch}"),
        bitstream: format!("{:016x}", identity.bitstream),
        date: identity.day().map(|(year, month, day)| format!("{year}-{month:02}-{day:02}")),
        interface: identity.interface.map(|interface| Uuid::from_u128(interface).to_string()),
        held: control.is_held()?,
        errors: control.errors()?.into_iter().map(reported).collect(),
        features: control.features().iter().map(listed).collect(),
    };
    match json {
        true => output::json(&printed)?,
        false => output::write(text(&printed).as_bytes())?,
    }
    Ok(true)
}

fn reported(error: fpga_driver::dfl::Reported) -> Reported {
    Reported { part: error.part, register: error.register, bits: error.bits, text: error.to_string() }
}

fn listed(feature: &Feature) -> Listed {
    Listed {
        offset: feature.offset,
        kind: feature.kind,
        id: feature.id,
        revision: feature.revision,
        guid: feature.guid.map(|guid| Uuid::from_u128(guid).to_string()),
        name: feature.name(),
    }
}

fn text(printed: &Printed<'_>) -> String {
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let unknown = || "unknown".to_owned();
    let mut rows = vec![
        row("function", format!("control function ({})", printed.selector)),
        row("shell", format!("{}, bitstream {}", printed.version, printed.bitstream)),
        row("made on", printed.date.clone().unwrap_or_else(unknown)),
        row("interface", printed.interface.clone().unwrap_or_else(|| "takes no images".to_owned())),
        row("accelerator", if printed.held { "held in reset" } else { "released" }.to_owned()),
    ];
    match printed.errors.as_slice() {
        [] => rows.push(row("errors", "none".to_owned())),
        some => rows.extend(some.iter().map(|error| row("error", error.text.clone()))),
    }
    let heading = ["OFFSET", "FEATURE", "ID", "REVISION"].map(str::to_owned).to_vec();
    let feature = |one: &Listed| {
        let name = one.name.map_or_else(|| format!("type {}", one.kind), str::to_owned);
        vec![format!("{:#07x}", one.offset), name, format!("{:#x}", one.id), one.revision.to_string()]
    };
    let features = std::iter::once(heading).chain(printed.features.iter().map(feature));
    output::table(&rows) + "\n" + &output::table(&features.collect::<Vec<_>>())
}

//! `fpgactl mock image`: writes a GBS file for the cards of `mock:s10-dfl` and `mock:s10-pac`, or a .bit file for those of
//! `mock:alveo-xdma`.

use fpga_image::Uuid;
use fpga_regs::feature_list::CARD_GUID;
use fpga_select::{dfl, xdma};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::{Cli, MockImage};
use crate::exit::{Failure, Result};
use crate::{atomic_file, input_file, output, size};

/// Most bytes of a bitstream: more than those of a real card.
const BYTES_MAX: u64 = 256 << 20;

#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed {
    schema: &'static str,
    output: String,
    bytes: u64,
    interface: String,
    guid: String,
}

pub(crate) fn run(cli: &Cli, arguments: &MockImage) -> Result<()> {
    let path = &arguments.output;
    input_file::check_outputs(&[] as &[&str], &[path])?;
    if !(64..=BYTES_MAX).contains(&arguments.bytes) {
        return Err(Failure::usage(format!("invalid --bytes {}: expected 64 to 256MiB", arguments.bytes)));
    }
    let guid = arguments.guid.unwrap_or(Uuid::from_u128(CARD_GUID));
    let is_bit = path.extension().is_some_and(|extension| extension == "bit");
    let (interface, file) = match is_bit {
        true => (xdma::INTERFACE, bit(guid, arguments.bytes as usize)),
        false => (dfl::INTERFACE, gbs(guid, arguments.bytes as usize)),
    };
    atomic_file::write(path, &file)?;
    let printed = Printed {
        schema: "fpgactl.mock-image/1",
        output: path.display().to_string(),
        bytes: file.len() as u64,
        interface: Uuid::from_u128(interface).to_string(),
        guid: guid.to_string(),
    };
    if cli.json {
        return output::json(&printed);
    }
    let Printed { output: path, bytes, guid, .. } = &printed;
    output::text(&format!("{path}: {}, accelerator {guid}, for mock cards only\n", size::show(*bytes)))
}

/// Makes a GBS file.
fn gbs(guid: Uuid, bytes: usize) -> Vec<u8> {
    let interface = Uuid::from_u128(dfl::INTERFACE);
    let description = serde_json::json!({
        "version": 1,
        "platform-name": "mock",
        "afu-image": {
            "magic-no": fpga_image::gbs::MAGIC_NUMBER,
            "interface-uuid": interface.to_string(),
            "accelerator-clusters": [
                { "name": "mock", "total-contexts": 1, "accelerator-type-uuid": guid.to_string() }
            ]
        }
    });
    let description = serde_json::to_vec(&description).unwrap_or_default();
    let mut file = fpga_image::gbs::MAGIC.to_vec();
    file.extend((description.len() as u32).to_le_bytes());
    file.extend(description);
    file.extend(dfl::image(guid.as_u128(), bytes));
    file
}

/// Makes a .bit file.
fn bit(guid: Uuid, bytes: usize) -> Vec<u8> {
    let stream = xdma::stream(guid.as_u128(), xdma::IDCODE, bytes);
    let mut file = fpga_image::bit::MAGIC.to_vec();
    file.extend([0, 1]);
    for (tag, text) in [(b'a', "mock"), (b'b', "mock"), (b'c', "2026/11/01"), (b'd', "00:00:00")] {
        file.push(tag);
        file.extend((text.len() as u16 + 1).to_be_bytes());
        file.extend(text.bytes().chain([0]));
    }
    file.push(b'e');
    file.extend((stream.len() as u32).to_be_bytes());
    file.extend(stream);
    file
}

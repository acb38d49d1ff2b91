//! `fpgactl mock image`: writes a GBS file for the cards of `mock:s10-dfl` and `mock:s10-pac`.

use fpga_image::Uuid;
use fpga_regs::feature_list::CARD_GUID;
use fpga_select::dfl;
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
    file.extend(dfl::image(guid.as_u128(), arguments.bytes as usize));
    atomic_file::write(path, &file)?;
    let printed = Printed {
        schema: "fpgactl.mock-image/1",
        output: path.display().to_string(),
        bytes: file.len() as u64,
        interface: interface.to_string(),
        guid: guid.to_string(),
    };
    if cli.json {
        return output::json(&printed);
    }
    let Printed { output: path, bytes, guid, .. } = &printed;
    output::write(format!("{path}: {}, accelerator {guid}, for mock cards only\n", size::show(*bytes)).as_bytes())
}

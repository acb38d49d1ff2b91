//! `fpgactl channel check FILE`: checks a CIRCUS channel definition and prints its channels.

use std::path::Path;

use cmdseq::asm::Diagnostic;
use fpga_channels::{BYTES_MAX, Definition, End};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::{ChannelCheck, Cli};
use crate::exit::{Exit, Failure, Result};
use crate::{input_file, output};

#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed<'a> {
    schema: &'static str,
    channels: Vec<Channel<'a>>,
}

#[derive(JsonSchema, Serialize)]
struct Channel<'a> {
    id: u8,
    #[serde(rename = "type")]
    word: String,
    width_bits: u32,
    writer: ChannelEnd<'a>,
    reader: ChannelEnd<'a>,
}

#[derive(JsonSchema, Serialize)]
struct ChannelEnd<'a> {
    name: &'a str,
    depth: u32,
}

impl<'a> From<&'a End> for ChannelEnd<'a> {
    fn from(end: &'a End) -> Self {
        ChannelEnd { name: &end.name, depth: end.depth }
    }
}

impl<'a> From<&'a fpga_channels::Channel> for Channel<'a> {
    fn from(channel: &'a fpga_channels::Channel) -> Self {
        let fpga_channels::Channel { id, word, writer, reader } = channel;
        Channel {
            id: *id,
            word: word.to_string(),
            width_bits: word.bits(),
            writer: writer.into(),
            reader: reader.into(),
        }
    }
}

pub(crate) fn check(cli: &Cli, arguments: &ChannelCheck) -> Result<()> {
    let definition = open(&arguments.file)?;
    let channels: Vec<Channel<'_>> = definition.channels().iter().map(Channel::from).collect();
    if cli.json {
        return output::json(&Printed { schema: "fpgactl.channel-check/1", channels });
    }
    let rows = channels.iter().map(|Channel { id, word, width_bits, writer, reader }| {
        let (id, bits) = (id.to_string(), width_bits.to_string());
        let (written, read) = (writer.depth.to_string(), reader.depth.to_string());
        [id, word.clone(), bits, writer.name.into(), written, reader.name.into(), read]
    });
    output::text(&output::headed(["ID", "TYPE", "BITS", "WRITER", "DEPTH", "READER", "DEPTH"], rows))
}

/// Reads a definition.
pub(crate) fn open(path: &Path) -> Result<Definition> {
    let bytes = input_file::read(path, ("a definition", BYTES_MAX as u64))?;
    fpga_channels::parse(&bytes).map_err(|error| {
        let text = String::from_utf8_lossy(&bytes);
        let source = text.split('\n').nth(error.line as usize - 1).unwrap_or_default();
        let location = Diagnostic {
            file: path.display().to_string(),
            line: error.line,
            column: error.column,
            width: 1,
            source: source.trim_end_matches('\r').to_owned(),
            message: error.to_string(),
            rank: None,
        };
        Failure::refused(format!("{}: invalid channel definition", path.display())).at_locations(vec![location])
    })
}

/// Converts an error of the driver's channels.
pub(crate) fn failure(error: fpga_driver::channel::Error) -> Failure {
    use fpga_driver::channel::Error;
    match error {
        Error::Card(error) => error.into(),
        Error::Route(_) => Failure::chain(Exit::Refused, &error),
        Error::TimedOut { .. } => Failure::chain(Exit::Timeout, &error),
        _ => Failure::chain(Exit::Failed, &error),
    }
}

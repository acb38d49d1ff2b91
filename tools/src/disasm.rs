//! `fpgactl disasm FILE`: disassembles a binary; the output reassembles to identical bytes.

use cmdseq::asm::{Limits, disassemble};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::{self, Cli};
use crate::exit::Result;
use crate::{output, source};

#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed {
    schema: &'static str,
    ranks: u32,
    programs: Vec<u32>,
    text: String,
}

pub(crate) fn run(cli: &Cli, arguments: &cli::Disasm) -> Result<()> {
    let assembly = source::binary(&arguments.file)?;
    let text = disassemble(&assembly);
    if cli.json {
        let programs = assembly.programs.iter().map(|one| one.rank).collect();
        return output::json(&Printed { schema: "fpgactl.disasm/1", ranks: assembly.ranks, programs, text });
    }
    let (bytes, most) = (text.len(), Limits::default().source_bytes);
    if bytes > most {
        eprintln!("note: the source has {bytes} B, and `asm` accepts at most {most} (limit source_bytes)");
    }
    output::write(text.as_bytes())
}

//! `fpgactl asm FILE`: assembles a source into a binary.

use cmdseq::asm::{Options, encode};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::{self, Cli};
use crate::exit::Result;
use crate::source::{Source, check_binary_name};
use crate::{atomic_file, input_file, output};

#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed {
    schema: &'static str,
    ranks: u32,
    output: String,
    bytes: usize,
    programs: Vec<Program>,
}

#[derive(JsonSchema, Serialize)]
struct Program {
    rank: u32,
    instructions: usize,
    buffers: usize,
    communicators: usize,
    tables: usize,
    bindings: usize,
}

pub(crate) fn run(cli: &Cli, arguments: &cli::Asm) -> Result<()> {
    let source = Source::open(&arguments.program.file, arguments.program.root.as_deref())?;
    let cli::Program { ranks, allow_raw_host: raw_host, .. } = arguments.program;
    let options = Options { ranks, only: arguments.rank, raw_host, ..Options::default() };
    let assembly = source.assemble(&options)?.assembly;
    let path = arguments.output.clone().unwrap_or_else(|| arguments.program.file.with_extension("seqb"));
    input_file::check_outputs(&source.files(), &[&path])?;
    check_binary_name("--output", &path)?;
    let bytes = encode(&assembly);
    atomic_file::write(&path, &bytes)?;
    let program = |one: &cmdseq::asm::RankProgram| Program {
        rank: one.rank,
        instructions: one.instructions.len(),
        buffers: one.buffers.len(),
        communicators: one.communicators.len(),
        tables: one.tables.len(),
        bindings: one.bindings.len(),
    };
    let printed = Printed {
        schema: "fpgactl.asm/1",
        ranks: assembly.ranks,
        output: path.display().to_string(),
        bytes: bytes.len(),
        programs: assembly.programs.iter().map(program).collect(),
    };
    if cli.json {
        return output::json(&printed);
    }
    let instructions: usize = printed.programs.iter().map(|one| one.instructions).sum();
    let ranks = match printed.programs.as_slice() {
        [one] if printed.ranks > 1 => format!("rank {} of {}", one.rank, printed.ranks),
        _ => format!("{} ranks", printed.ranks),
    };
    let text = format!("{}: {instructions} instructions, {ranks}, {} B\n", printed.output, printed.bytes);
    output::text(&text)
}

//! `fpgactl channel generate FILE`: generates code for the channels of a CIRCUS channel definition.

use std::path::Path;

use fpga_channels::{File, Part, Refusal, generate};
use schemars::JsonSchema;
use serde::Serialize;

use crate::atomic_file::AtomicFile;
use crate::cli::{ChannelGenerate, Cli};
use crate::exit::{Failure, Result};
use crate::{channel, input_file, output};

#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed {
    schema: &'static str,
    files: Vec<PrintedFile>,
}

#[derive(JsonSchema, Serialize)]
struct PrintedFile {
    part: &'static str,
    file: String,
    bytes: usize,
}

pub(crate) fn run(cli: &Cli, arguments: &ChannelGenerate) -> Result<()> {
    let definition = channel::open(&arguments.file)?;
    let application = arguments.file.file_stem().unwrap_or_default().to_string_lossy();
    let parts = if arguments.only.is_empty() { &Part::ALL as &[Part] } else { &arguments.only };
    let files = generate(&definition, &application, parts, &arguments.ends)
        .map_err(|refusal| failure(&arguments.file, &refusal))?;
    write(&arguments.file, &arguments.output, &files)?;
    let printed = |file: &File| PrintedFile {
        part: file.part.name(),
        file: arguments.output.join(&file.name).display().to_string(),
        bytes: file.text.len(),
    };
    let printed: Vec<PrintedFile> = files.iter().map(printed).collect();
    if cli.json {
        return output::json(&Printed { schema: "fpgactl.channel-generate/1", files: printed });
    }
    let rows = printed.into_iter().map(|one| [one.part.into(), one.file, one.bytes.to_string()]);
    output::text(&output::headed(["PART", "FILE", "BYTES"], rows))
}

fn failure(definition: &Path, refusal: &Refusal) -> Failure {
    let message = format!("{}: {refusal}", definition.display());
    match refusal {
        Refusal::NoEnd { .. } => Failure::usage(message),
        _ => Failure::refused(message),
    }
}

/// Writes all files, or none if one cannot be written.
fn write(definition: &Path, directory: &Path, files: &[File]) -> Result<()> {
    if directory.exists() && !directory.is_dir() {
        return Err(Failure::refused(format!("output {} is a file: expected a directory", directory.display())));
    }
    std::fs::create_dir_all(directory).map_err(|error| Failure::file(directory, &error))?;
    let paths: Vec<_> = files.iter().map(|file| directory.join(&file.name)).collect();
    input_file::check_outputs(&[definition], &paths)?;
    let mut finished = Vec::with_capacity(files.len());
    for (path, file) in paths.iter().zip(files) {
        let mut output = AtomicFile::create(path)?;
        output.append(file.text.as_bytes())?;
        finished.push(output.finish()?);
    }
    finished.into_iter().try_for_each(|file| file.commit())
}

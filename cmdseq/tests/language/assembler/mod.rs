//! The assembler as its users see it.

mod document;
mod right;
mod round_trip;
mod wrong;

use cmdseq::asm::{Assembled, Errors, Options, assemble};

/// Assembles with files to include.
fn assemble_with(files: &[(&str, &str)], text: &str, options: &Options) -> Result<Assembled, Errors> {
    let mut read = |path: &str| {
        let found = files.iter().find(|(name, _)| *name == path);
        found.map(|(_, text)| (*text).to_owned()).ok_or_else(|| "there is no such file".to_owned())
    };
    assemble("main.seq", text, &mut read, options)
}

/// Takes addresses in host memory as they are.
fn raw_host() -> Options {
    Options { raw_host: true, ..Options::default() }
}

fn plain(text: &str) -> Result<Assembled, Errors> {
    assemble_with(&[], text, &Options::default())
}

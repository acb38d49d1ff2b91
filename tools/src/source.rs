//! Loads programs from sources and binaries, and limits where includes come from.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use cmdseq::Refusal;
use cmdseq::asm::{self, Assembled, Assembly, Diagnostic, Errors, FileError, Limits, Options, Warnings};

use crate::cards::wrong_number;
use crate::exit::{Exit, Failure, Result};
use crate::{input_file, output};

/// A loaded program.
pub(crate) enum Loaded {
    /// Assembled from a source; boxed because it contains the text.
    Source(Box<Assembled>),
    /// Read from a binary.
    Binary(Assembly),
}

impl Loaded {
    pub(crate) fn assembly(&self) -> &Assembly {
        match self {
            Loaded::Source(assembled) => &assembled.assembly,
            Loaded::Binary(assembly) => assembly,
        }
    }

    /// Returns `message` at the source line of an instruction; `None` for a binary.
    pub(crate) fn diagnose(&self, rank: u32, instruction: usize, message: &str) -> Option<Diagnostic> {
        match self {
            Loaded::Source(assembled) => assembled.diagnose(rank, instruction, message),
            Loaded::Binary(_) => None,
        }
    }

    /// Returns the source line of the instruction or declaration that a refusal concerns; `None` for a binary.
    pub(crate) fn locate(&self, refusal: &Refusal) -> Option<Diagnostic> {
        let Loaded::Source(assembled) = self else { return None };
        let Refusal { rank, instruction, declaration, cause, .. } = refusal;
        match (rank, instruction) {
            (Some(rank), Some(instruction)) => assembled.diagnose(*rank, *instruction, cause),
            _ => assembled.diagnose_declaration(declaration.as_ref()?, *rank, cause),
        }
    }

    /// Returns `file:line` of an instruction; `None` for a binary.
    pub(crate) fn line(&self, rank: u32, instruction: usize) -> Option<String> {
        match self {
            Loaded::Source(assembled) => assembled.line(rank, instruction).map(|(file, line)| format!("{file}:{line}")),
            Loaded::Binary(_) => None,
        }
    }
}

/// A source, and the folder that contains all included files.
pub(crate) struct Source {
    /// The source and, after assembling, all included files.
    files: RefCell<Vec<PathBuf>>,
    root: PathBuf,
    name: String,
    text: String,
}

impl Source {
    /// Opens `path`. Includes come from `root`, by default the folder of `path`.
    pub(crate) fn open(path: &Path, root: Option<&Path>) -> Result<Self> {
        let refuse = |why: String| Failure::refused(format!("{}: {why}", path.display()));
        let canonical = |path: &Path| path.canonicalize().map_err(|error| Failure::file(path, &error));
        let (file, root) = (canonical(path)?, canonical(root.unwrap_or(input_file::folder(path)))?);
        let name = file.strip_prefix(&root).ok().and_then(Path::to_str).ok_or_else(|| {
            refuse(format!("expected a UTF-8 path inside {}; select the folder with --root", root.display()))
        })?;
        let text = text(&file)?;
        Ok(Source { files: RefCell::new(vec![file.clone()]), name: name.to_owned(), root, text })
    }

    /// Returns the files read so far.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.files.borrow().clone()
    }

    pub(crate) fn assemble(&self, options: &Options) -> Result<Assembled> {
        Ok(asm::assemble(&self.name, &self.text, &mut |path: &str| self.include(path), options)?)
    }

    pub(crate) fn lint(&self, options: &Options) -> Result<Warnings> {
        Ok(asm::lint(&self.name, &self.text, &mut |path: &str| self.include(path), options)?)
    }

    fn include(&self, path: &str) -> std::result::Result<String, String> {
        let file = self.root.join(path).canonicalize().map_err(|error| error.to_string())?;
        // A symbolic link can lead outside of the folder.
        if !file.starts_with(&self.root) {
            return Err(format!("a symbolic link leads outside {}", self.root.display()));
        }
        let text = text(&file).map_err(|failure| failure.message().to_owned())?;
        self.files.borrow_mut().push(file);
        Ok(text)
    }
}

/// Reads a regular file, up to the size limit of a source.
fn text(path: &Path) -> Result<String> {
    let bytes = input_file::read(path, ("a source (limit source_bytes)", Limits::default().source_bytes as u64))?;
    let refuse = |why: String| Failure::refused(format!("{}: {why}", path.display()));
    if bytes.starts_with(&asm::MAGIC) {
        return Err(refuse("not a source but an assembled program; `fpgactl disasm` prints its source".to_owned()));
    }
    String::from_utf8(bytes)
        .map_err(|error| refuse(format!("invalid UTF-8 at byte {}", error.utf8_error().valid_up_to())))
}

/// Size limit of a binary: twice that of the assembler's largest output.
const BINARY_MAX_BYTES: u64 = 128 << 20;

/// Reads a binary.
pub(crate) fn binary(path: &Path) -> Result<Assembly> {
    let bytes = input_file::read(path, ("a binary", BINARY_MAX_BYTES))?;
    asm::decode(&bytes).map_err(|error| {
        let failure = Failure::chain(Exit::Refused, &error).about(&path.display().to_string());
        match error {
            FileError::Magic => failure.with_help("`asm` and `plan --save` write programs; a source is named `*.seq`"),
            _ => failure,
        }
    })
}

/// Whether the name is that of a source.
fn is_source(path: &Path) -> bool {
    path.extension() == Some(OsStr::new("seq"))
}

/// Refuses the name of a source for a binary, which [`load`] would read as a source.
pub(crate) fn check_binary_name(option: &str, path: &Path) -> Result<()> {
    if !is_source(path) {
        return Ok(());
    }
    let message = format!("{option} {}: `*.seq` is a source: name the binary `*.seqb`", path.display());
    Err(Failure::usage(message))
}

/// Loads a program of all ranks: a source if named `*.seq`, else a binary. Also returns the files that were read.
pub(crate) fn load(path: &Path, root: Option<&Path>, options: &Options) -> Result<(Loaded, Vec<PathBuf>)> {
    if is_source(path) {
        let source = Source::open(path, root)?;
        let assembled = source.assemble(options)?;
        return Ok((Loaded::Source(Box::new(assembled)), source.files()));
    }
    let assembly = binary(path)?;
    if assembly.programs.len() != assembly.ranks as usize {
        let held = match &*assembly.programs {
            [only] => format!("rank {}", only.rank),
            some => format!("{} ranks", some.len()),
        };
        let message = format!("holds only {held} of {}: assemble it without --rank", assembly.ranks);
        return Err(Failure::refused(message).about(&path.display().to_string()));
    }
    let raw_host = |program: &asm::RankProgram| Some((program.rank, program.raw_host()?));
    if let Some((rank, instruction)) = assembly.programs.iter().find_map(raw_host)
        && !options.raw_host
    {
        let message = format!(
            "{}: rank {rank}, instruction {instruction}: unchecked host address outside of all host buffers; \
             --allow-raw-host accepts unchecked addresses",
            path.display()
        );
        return Err(Failure::refused(message).of_instruction(rank, instruction));
    }
    match options.ranks {
        Some(cards) if cards != assembly.ranks => {
            Err(wrong_number(assembly.ranks, cards).about(&path.display().to_string()))
        }
        _ => Ok((Loaded::Binary(assembly), vec![path.to_owned()])),
    }
}

impl From<Errors> for Failure {
    fn from(errors: Errors) -> Self {
        let count = errors.errors.len() + errors.more;
        let counted = output::counted(count as u64, "error", "errors");
        let at_least = if errors.is_partial { "at least " } else { "" };
        let shown = if errors.more > 0 { format!(", {} shown", errors.errors.len()) } else { String::new() };
        Failure::refused(format!("the program has {at_least}{counted}{shown}")).at_locations(errors.errors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_as_far_as_they_were_searched() {
        let message = |lines: usize| {
            let (text, options) = ("foo\n".repeat(lines), Options { ranks: Some(2), ..Options::default() });
            let errors = asm::assemble("a.seq", &text, &mut |_: &str| Err(String::new()), &options).unwrap_err();
            Failure::from(errors).message().to_owned()
        };
        assert_eq!(message(1), "the program has 1 error");
        assert_eq!(message(30), "the program has 30 errors, 20 shown");
        assert_eq!(message(3000), "the program has at least 1000 errors, 20 shown");
    }

    #[test]
    fn the_limit_of_a_source_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("long.seq");
        let most = Limits::default().source_bytes as u64;
        std::fs::File::create(&path).unwrap().set_len(most + 1).unwrap();
        let Err(failure) = Source::open(&path, None) else { panic!("a source of {} B is opened", most + 1) };
        let expected = format!("file too large: a source (limit source_bytes) has at most {most} B");
        assert!(failure.message().ends_with(&expected), "{}", failure.message());
    }
}

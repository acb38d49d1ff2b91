//! Sources of programs on disk: where includes may come from, and what is printed of errors.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use cmdseq::asm::{self, Assembled, Assembly, Diagnostic, Errors, Limits, Options, Warnings};

use crate::exit::{Exit, Failure, Result};

/// A program in one of its two forms.
pub(crate) enum Loaded {
    /// Assembled from text; boxed because it keeps the text.
    Text(Box<Assembled>),
    /// Read from a file of words.
    Words(Assembly),
}

impl Loaded {
    pub(crate) fn assembly(&self) -> &Assembly {
        match self {
            Loaded::Text(assembled) => &assembled.assembly,
            Loaded::Words(assembly) => assembly,
        }
    }

    /// `message` with the line of the source it is about, if there is a source.
    pub(crate) fn diagnose(&self, rank: u32, instruction: usize, message: &str) -> Option<Diagnostic> {
        match self {
            Loaded::Text(assembled) => assembled.diagnose(rank, instruction, message),
            Loaded::Words(_) => None,
        }
    }

    /// `file:line` of an instruction, if there is a source.
    pub(crate) fn place(&self, rank: u32, instruction: usize) -> Option<String> {
        match self {
            Loaded::Text(assembled) => assembled.line(rank, instruction).map(|(file, line)| format!("{file}:{line}")),
            Loaded::Words(_) => None,
        }
    }
}

/// A source and the folder that everything it includes lies in.
pub(crate) struct Source {
    root: PathBuf,
    name: String,
    text: String,
}

impl Source {
    /// Opens `path`. Includes come from `root`, or else from the folder that `path` is in.
    pub(crate) fn open(path: &Path, root: Option<&Path>) -> Result<Self> {
        let refuse = |why: String| Failure::refused(format!("{}: {why}", path.display()));
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let canonical = |path: &Path| path.canonicalize().map_err(|error| refuse(error.to_string()));
        let (file, root) = (canonical(path)?, canonical(root.unwrap_or(folder))?);
        let name = file
            .strip_prefix(&root)
            .ok()
            .and_then(Path::to_str)
            .ok_or_else(|| refuse(format!("it is not below {}, or its name is not UTF-8", root.display())))?;
        let text = text(&file).map_err(refuse)?;
        Ok(Source { name: name.to_owned(), root, text })
    }

    pub(crate) fn assemble(&self, options: &Options) -> Result<Assembled> {
        Ok(asm::assemble(&self.name, &self.text, &mut |path: &str| self.include(path), options)?)
    }

    pub(crate) fn lint(&self, options: &Options) -> Result<Warnings> {
        Ok(asm::lint(&self.name, &self.text, &mut |path: &str| self.include(path), options)?)
    }

    fn include(&self, path: &str) -> std::result::Result<String, String> {
        let file = self.root.join(path).canonicalize().map_err(|error| error.to_string())?;
        // A symbolic link may lead anywhere.
        if !file.starts_with(&self.root) {
            return Err(format!("it is a link that leaves {}", self.root.display()));
        }
        text(&file)
    }
}

/// The text of a regular file that is not too long for a source.
fn text(path: &Path) -> std::result::Result<String, String> {
    let most = Limits::default().source_bytes as u64;
    let bytes = bytes(path, most)?;
    String::from_utf8(bytes).map_err(|error| format!("byte {} is not UTF-8", error.utf8_error().valid_up_to()))
}

fn bytes(path: &Path, most: u64) -> std::result::Result<Vec<u8>, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("it is not a regular file".into());
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > most {
        return Err(format!("it is longer than {most} B"));
    }
    Ok(bytes)
}

/// Most bytes of a file of words: those of as many instructions as the assembler makes, twice.
const WORDS_MAX: u64 = 128 << 20;

/// Reads a file of words.
pub(crate) fn words(path: &Path) -> Result<Assembly> {
    let bytes = bytes(path, WORDS_MAX).map_err(|why| Failure::refused(format!("{}: {why}", path.display())))?;
    asm::decode(&bytes).map_err(|error| Failure::chain(Exit::Refused, &error).about(&path.display().to_string()))
}

/// Loads a program in either form: text by the name `*.seq`, words by any other.
pub(crate) fn load(path: &Path, root: Option<&Path>, options: &Options) -> Result<Loaded> {
    if path.extension() == Some(OsStr::new("seq")) {
        return Ok(Loaded::Text(Box::new(Source::open(path, root)?.assemble(options)?)));
    }
    let assembly = words(path)?;
    let raw_host = |program: &asm::RankProgram| Some((program.rank, program.raw_host()?));
    if let Some((rank, instruction)) = assembly.programs.iter().find_map(raw_host)
        && !options.raw_host
    {
        let message = format!(
            "{}: rank {rank}, instruction {instruction}: its address in host memory is in no host buffer, so nobody \
             checks it; --allow-raw-host accepts it",
            path.display()
        );
        return Err(Failure::refused(message).of_instruction(rank, instruction));
    }
    match options.ranks {
        Some(ranks) if ranks != assembly.ranks => {
            Err(Failure::refused(format!("{}: it is for {} ranks, not {ranks}", path.display(), assembly.ranks)))
        }
        _ => Ok(Loaded::Words(assembly)),
    }
}

impl From<Errors> for Failure {
    fn from(errors: Errors) -> Self {
        let count = errors.errors.len() + errors.more;
        let plural = if count == 1 { "error" } else { "errors" };
        let shown =
            if errors.more > 0 { format!(", of which {} are shown", errors.errors.len()) } else { String::new() };
        Failure::refused(format!("the program has {count} {plural}{shown}")).at_places(errors.errors)
    }
}

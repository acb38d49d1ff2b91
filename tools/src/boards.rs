//! Board files: those that a user adds, and what `info` shows of the one that is used.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use cmdseq::text::printable;
use fpga_driver::board::{self, Board};
use fpga_hal::Function;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::{BOARD_DIRECTORY, Cli};
use crate::exit::{Exit, Failure, Result};
use crate::{ineffective, input_file, output};

/// How names of board files end.
const EXTENSION: &str = "toml";

/// What `info` shows of a board file.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Described {
    name: String,
    role: &'static str,
    feed: Option<&'static str>,
    blocks: Vec<Placed>,
    /// Files with the ids of the function that are not used, and why.
    passed_over: Vec<String>,
}

#[derive(JsonSchema, Serialize)]
struct Placed {
    kind: &'static str,
    bar: usize,
    offset: u64,
    bytes: u64,
    basis: &'static str,
    source: String,
}

/// Reads the board files that this user has added, and has the driver use them.
pub(crate) fn read(cli: &Cli) -> Result<()> {
    // A command that opens no function does not fail for a board file that is wrong.
    if ineffective::has_no_effect(cli, "board") {
        return Ok(());
    }
    let named = cli.board.as_deref().map(named).transpose()?;
    let others = in_directory(&cli.board_dir, cli.board_dir == Path::new(BOARD_DIRECTORY))?;
    if named.is_none() && others.is_empty() {
        return Ok(());
    }
    board::use_boards(named, others).map_err(|error| Failure::chain(Exit::Failed, &error))
}

/// Returns the board that `--board` names: a file, or a name of a board file of this project.
fn named(name: &str) -> Result<Board> {
    let path = Path::new(name);
    if name.contains('/') || path.extension().is_some_and(|extension| extension == EXTENSION) {
        return parse(path);
    }
    let boards = board::built_in();
    boards.iter().find(|board| board.name == name).cloned().ok_or_else(|| {
        let names: Vec<&str> = boards.iter().map(|board| board.name.as_str()).collect();
        Failure::usage(format!("unknown board {name:?}: expected a file, or one of {}", names.join(", ")))
    })
}

/// Reads the board files in a directory, by name; none if there is no such directory, which is an error unless it `may_be_missing`.
fn in_directory(directory: &Path, may_be_missing: bool) -> Result<Vec<Board>> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if may_be_missing && error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Failure::file(directory, &error)),
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<std::io::Result<Vec<PathBuf>>>();
    let mut paths = paths.map_err(|error| Failure::file(directory, &error))?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == EXTENSION));
    paths.sort();
    paths.iter().map(|path| parse(path)).collect()
}

fn parse(path: &Path) -> Result<Board> {
    let bytes = input_file::read(path, ("a board file", Board::BYTES_MAX as u64))?;
    let name = printable(&path.to_string_lossy());
    let text = String::from_utf8(bytes).map_err(|_| Failure::refused(format!("{name}: no text in UTF-8")))?;
    Board::parse(&name, &text).map_err(|error| Failure::refused(error.to_string()))
}

/// Refuses a board file of another board than that of `function`, before anything on it is read, written or reset.
pub(crate) fn check(function: &Function) -> Result<()> {
    Ok(board::of(function).map(drop).map_err(fpga_driver::Error::from)?)
}

/// Returns what the board files say of a function.
pub(crate) fn describe(function: &Function) -> Result<Described> {
    let found = board::of(function).map_err(fpga_driver::Error::from)?;
    let placed = |block: &board::Block| Placed {
        kind: block.kind.name(),
        bar: block.bar.index(),
        offset: block.offset,
        bytes: block.bytes,
        basis: block.basis.name(),
        source: block.source.clone(),
    };
    Ok(Described {
        name: found.board.to_string(),
        role: found.role.name(),
        feed: found.feed.map(board::Feed::name),
        blocks: found.blocks.iter().map(placed).collect(),
        passed_over: board::passed_over(function),
    })
}

/// Returns the name for people, and what it is for.
pub(crate) fn name(of: &Described) -> String {
    let feed = of.feed.map(|feed| format!(", fed by {feed}")).unwrap_or_default();
    format!("{} (function of role {}{feed})", of.name, of.role)
}

/// Returns the text for people.
pub(crate) fn text(of: &Described) -> String {
    let row = |one: &Placed| {
        let at = format!("{:#x}", one.offset);
        [one.kind.to_owned(), one.bar.to_string(), at, one.basis.to_owned(), one.source.clone()]
    };
    let mut text = format!("board file {}\n", name(of));
    if of.blocks.is_empty() {
        text += "it places no blocks\n";
    } else {
        text += &output::headed(["BLOCK", "BAR", "OFFSET", "BASIS", "SOURCE"], of.blocks.iter().map(row));
    }
    text + &unused(of)
}

/// Returns a line for each file with the ids of the function that is not used.
pub(crate) fn unused(of: &Described) -> String {
    of.passed_over.iter().map(|why| format!("board file not used: {why}\n")).collect()
}

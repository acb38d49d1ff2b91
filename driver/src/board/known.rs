//! The boards that a process knows.

use std::sync::{LazyLock, OnceLock};

use fpga_hal::Function;

use crate::board::description::{Board, BoardFunction};
use crate::board::error::WrongBoard;

/// The board files of this project. The last is for functions of which no other has the ids.
const FILES: [(&str, &str); 6] = [
    ("alveo-xdma.toml", include_str!("../../boards/alveo-xdma.toml")),
    ("s10-dfl.toml", include_str!("../../boards/s10-dfl.toml")),
    ("s10-pac.toml", include_str!("../../boards/s10-pac.toml")),
    ("mock.toml", include_str!("../../boards/mock.toml")),
    ("bittware-520n.toml", include_str!("../../boards/bittware-520n.toml")),
    ("any.toml", include_str!("../../boards/any.toml")),
];

static BUILT_IN: LazyLock<Vec<Board>> = LazyLock::new(|| {
    let parse = |(file, text): (&str, &str)| match Board::parse(file, text) {
        Ok(board) => board,
        // A test reads them all.
        Err(error) => unreachable!("{error}"),
    };
    FILES.map(parse).into()
});

/// The boards that a user adds, once for a process.
static ADDED: OnceLock<Added> = OnceLock::new();

#[derive(Debug)]
struct Added {
    named: Option<Board>,
    others: Vec<Board>,
}

/// Error of [`use_boards`]: the process has boards already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the boards of a process are set once")]
pub struct AlreadyUsed;

/// Returns the board files of this project.
pub fn built_in() -> &'static [Board] {
    &BUILT_IN
}

/// Has this process use `others` before the board files of this project, and for all functions `named`, if a user has named one. Call it
/// before the first card is opened.
///
/// # Errors
/// [`AlreadyUsed`] on a second call.
pub fn use_boards(named: Option<Board>, others: Vec<Board>) -> Result<(), AlreadyUsed> {
    ADDED.set(Added { named, others }).map_err(|_| AlreadyUsed)
}

/// Returns what the board files know of `function`: of the board that a user has named, or else of the first whose ids and BARs are the
/// function's, or else of the last, `any`.
///
/// # Errors
/// [`WrongBoard`]: why the named board is not the function's.
pub fn of(function: &Function) -> Result<&'static BoardFunction, WrongBoard> {
    let added = ADDED.get();
    if let Some(named) = added.and_then(|added| added.named.as_ref()) {
        return of_named(named, function);
    }
    let boards = added.map_or(&[][..], |added| &added.others).iter().chain(built_in());
    let mut last = None;
    for of in boards.flat_map(|board| &board.functions).filter(|of| of.ids.have(function)) {
        if of.misfit(function).is_none() {
            return Ok(of);
        }
        last = Some(of);
    }
    // Whoever looks for something in it says which BAR is missing.
    last.ok_or_else(|| wrong(function, "no board file is for any function".to_owned()))
}

/// Says which board files that a user has added have the ids of `function`, but are not used because of its BARs, and why.
pub fn passed_over(function: &Function) -> Vec<String> {
    let added = ADDED.get().map_or(&[][..], |added| match &added.named {
        // It is used for all functions.
        Some(_) => &[],
        None => &added.others,
    });
    let entries = added.iter().flat_map(|board| board.functions.iter().map(move |of| (board, of)));
    let misfits = entries.filter(|(_, of)| of.ids.have(function)).filter_map(|(board, of)| {
        let why = of.misfit(function)?;
        Some(format!("{} ({}): {why}", board.name, board.file))
    });
    misfits.collect()
}

/// Returns what the board that a user has named says of `function`.
fn of_named(board: &'static Board, function: &Function) -> Result<&'static BoardFunction, WrongBoard> {
    let identity = function.identity();
    let mut why = format!("it is not for functions {:04x}:{:04x}", identity.vendor, identity.device);
    for of in board.functions.iter().filter(|of| of.ids.may_be(function)) {
        match of.misfit(function) {
            None => return Ok(of),
            Some(misfit) => why = misfit,
        }
    }
    Err(wrong(function, format!("{} ({}): {why}", board.name, board.file)))
}

fn wrong(function: &Function, why: String) -> WrongBoard {
    WrongBoard { name: function.identity().name.clone(), why }
}

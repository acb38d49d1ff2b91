//! Options of `plan`.

use std::path::PathBuf;

use clap::Args;

use super::Operation;

#[derive(Debug, Args)]
pub(crate) struct Plan {
    #[command(flatten)]
    pub(crate) operation: Operation,

    /// Show all candidate algorithms and their predicted times
    #[arg(long)]
    pub(crate) explain: bool,

    /// Plan programs that the cards can store, for `run --persistent`
    #[arg(long)]
    pub(crate) persistent: bool,

    /// Write the programs to a file for `run`; they name their data `input` and
    /// `output`
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
}

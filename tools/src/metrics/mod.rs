//! `fpgactl metrics`: exports what the owners of cards publish, in OpenMetrics text. Opens no card.

pub(crate) mod server;
mod text;

use crate::cli::{self, Cli};
use crate::exit::Result;
use crate::interrupt::Interrupt;
use crate::{atomic_file, stats};

pub(crate) fn run(cli: &Cli, arguments: &cli::Metrics) -> Result<()> {
    let body = || stats::all(cli).map(|found| text::open_metrics(&found));
    if let Some(path) = &arguments.textfile {
        return atomic_file::write(path, body()?.as_bytes());
    }
    let Some(address) = arguments.listen else { return Ok(()) };
    let interrupt = Interrupt::listen()?;
    // A directory that cannot be read is an error now, not of each request.
    body()?;
    server::serve(cli, address, &interrupt, body)
}

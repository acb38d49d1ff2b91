//! `fpgactl metrics`: exports what the owners of cards publish, in a text format of Prometheus. Opens no card.

pub(crate) mod server;
mod text;

use crate::cli::{self, Cli};
use crate::exit::Result;
use crate::interrupt::Interrupt;
use crate::{atomic_file, input_file, output, stats};
use text::Format;

pub(crate) fn run(cli: &Cli, arguments: &cli::Metrics) -> Result<()> {
    let body = |format| stats::all(cli).map(|found| text::metrics(&found, format));
    if let Some(path) = &arguments.textfile {
        let body = body(Format::Prometheus)?;
        return match input_file::is_stdout(path) {
            true => output::write(body.as_bytes()),
            false => atomic_file::write(path, body.as_bytes()),
        };
    }
    let Some(address) = arguments.listen else { return Ok(()) };
    let interrupt = Interrupt::listen_watching()?;
    // A directory that cannot be read is an error now, not of each request.
    body(Format::OpenMetrics)?;
    server::serve(cli, address, &interrupt, body)
}

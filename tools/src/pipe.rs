//! `fpgactl pipe`: copies stdin at the host of one card to stdout at the host of another, through the cards.

use std::io::{self, ErrorKind, Write as _};
use std::os::fd::AsFd as _;
use std::thread;
use std::time::{Duration, Instant};

use fpga_driver::{Card, PIPE_BUF, Pipe, PipeError, PipeReader, PipeWriter};
use fpga_select::Selector;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::cards;
use crate::cli::{self, Cli};
use crate::exit::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::sampler::Sampler;

/// Longest wait between two checks for a signal.
const SLICE: Duration = Duration::from_millis(100);
/// How long an end that a signal ended may take to tell the other.
const CLOSE: Duration = Duration::from_secs(1);

/// One end, at this host.
struct End<'a> {
    card: Card,
    pipe: Pipe,
    limit: Option<Duration>,
    interrupt: &'a Interrupt,
}

pub(crate) fn run(cli: &Cli, arguments: &cli::Pipe) -> Result<()> {
    let interrupt = Interrupt::listen()?;
    let limit = arguments.timeout.map(Duration::from_secs_f64);
    let selection = Selector::parse(&cards::selector(cli)?)?.open()?;
    let mut cards = selection.functions.into_iter().map(Card::open).collect::<std::result::Result<Vec<_>, _>>()?;
    cards::publish(cli, cards.len(), |index| cards[index].publish(&cli.stats_dir));
    let _sampler = Sampler::start(&cards);
    let Some(nodes) = cards.first().map(|card| card.capabilities().nodes) else {
        return Err(Failure::new(Exit::NoCard, format!("{} selects no card", selection.selector)));
    };
    let (writer, reader) = (arguments.from, arguments.to.unwrap_or(nodes - 1));
    let pipe = Pipe { writer, reader, address: arguments.address, key: arguments.key };
    let (mut from, mut to) = (None, None);
    for card in cards {
        let end = End { pipe, limit, interrupt: &interrupt, card };
        match end.card.node() {
            node if node == writer && from.is_none() => from = Some(end),
            node if node == reader && to.is_none() => to = Some(end),
            _ => {}
        }
    }
    match (from, to) {
        (Some(from), Some(to)) => thread::scope(|scope| {
            let writing = thread::Builder::new().spawn_scoped(scope, || from.write());
            let writing = writing.map_err(Failure::no_thread)?;
            let read = to.read();
            // A reader that fails breaks the pipe: its reason comes first.
            let written = writing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            read.and(written)
        }),
        (Some(from), None) => from.write(),
        (None, Some(to)) => to.read(),
        (None, None) => Err(Failure::refused(format!(
            "{} selects neither node {writer}, which writes, nor node {reader}, which reads",
            selection.selector
        ))),
    }
}

impl End<'_> {
    fn most(&self) -> Duration {
        self.limit.unwrap_or(Duration::MAX)
    }

    /// Copies stdin to the pipe.
    fn write(self) -> Result<()> {
        let (most, limit, interrupt) = (self.most(), self.limit, self.interrupt);
        let mut writer = interrupt.end_at_once_during(|| PipeWriter::open(self.card, self.pipe, most))??;
        writer.set_timeout(SLICE);
        let mut buffer = vec![0; PIPE_BUF];
        let outcome = loop {
            let bytes = match next_of_stdin(&mut buffer, interrupt) {
                Ok(0) => break Ok(()),
                Ok(bytes) => bytes,
                Err(failure) => break Err(failure),
            };
            let mut rest = &buffer[..bytes];
            let mut write = || {
                let written = writer.write(rest)?;
                rest = &rest[written..];
                Ok(rest.is_empty())
            };
            if let Err(failure) = until_done(limit, interrupt, &mut write) {
                break Err(failure);
            }
        };
        match outcome {
            Ok(()) => {
                writer.set_timeout(most);
                interrupt.end_at_once_during(|| writer.close())??;
                Ok(())
            }
            Err(failure) => {
                // The reader gets the end of the file, if there is still room for it.
                writer.set_timeout(CLOSE);
                let _ = writer.close();
                Err(failure)
            }
        }
    }

    /// Copies the pipe to stdout.
    fn read(self) -> Result<()> {
        let (most, limit, interrupt) = (self.most(), self.limit, self.interrupt);
        let mut reader = interrupt.end_at_once_during(|| PipeReader::open(self.card, self.pipe, most))??;
        reader.set_timeout(SLICE);
        let mut buffer = vec![0; PIPE_BUF];
        let mut stdout = io::stdout().lock();
        let outcome = loop {
            let mut bytes = 0;
            let mut read = || {
                bytes = reader.read(&mut buffer)?;
                Ok(true)
            };
            if let Err(failure) = until_done(limit, interrupt, &mut read) {
                break Err(failure);
            }
            if bytes == 0 {
                break Ok(());
            }
            match stdout.write_all(&buffer[..bytes]).and_then(|()| stdout.flush()) {
                // As with any pipe, who reads the output has had enough.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => break Ok(()),
                Err(error) => break Err(Failure::new(Exit::Failed, format!("stdout: {error}"))),
                Ok(()) => {}
            }
        };
        let closed = reader.close().map_err(Failure::from);
        outcome.and(closed.map(drop))
    }
}

/// Repeats `step`, which waits for at most [`SLICE`], until it is done, the time is up, or a signal came.
fn until_done(
    limit: Option<Duration>,
    interrupt: &Interrupt,
    step: &mut dyn FnMut() -> std::result::Result<bool, PipeError>,
) -> Result<()> {
    let start = Instant::now();
    loop {
        match step() {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(PipeError::TimedOut { what, gone, .. }) => {
                interrupt.check()?;
                let waited = start.elapsed();
                if limit.is_some_and(|limit| waited >= limit) {
                    return Err(PipeError::TimedOut { what, waited, gone }.into());
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads from stdin, as soon as there is something; 0 bytes are its end.
fn next_of_stdin(buffer: &mut [u8], interrupt: &Interrupt) -> Result<usize> {
    let stdin = io::stdin();
    // Without a buffer: what is in a buffer, poll does not see.
    let read = |buffer: &mut [u8]| nix::unistd::read(stdin.as_fd(), buffer);
    let failed = |error: io::Error| Failure::new(Exit::Failed, format!("stdin: {error}"));
    loop {
        interrupt.check()?;
        let mut ready = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ready, PollTimeout::from(SLICE.as_millis() as u16)) {
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => match read(buffer) {
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                outcome => return outcome.map_err(|error| failed(error.into())),
            },
            Err(error) => return Err(failed(error.into())),
        }
    }
}

impl From<PipeError> for Failure {
    fn from(error: PipeError) -> Self {
        match error {
            PipeError::Card(error) => error.into(),
            PipeError::NoPeer { .. } | PipeError::TimedOut { .. } => Failure::chain(Exit::Timeout, &error),
            _ => Failure::chain(Exit::Failed, &error),
        }
    }
}

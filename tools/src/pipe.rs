//! `fpgactl pipe`: copies stdin at the host of one card to stdout at the host of another, through the cards.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use cmdseq::text::printable;
use fpga_driver::{Card, PIPE_BUF, Pipe, PipeError, PipeReader, PipeWriter};
use fpga_select::Selector;
use nix::errno::Errno;
use nix::poll::PollFlags;

use crate::cli::{self, Cli};
use crate::exit::{Exit, Failure, Result};
use crate::interrupt::{Interrupt, is_ready};
use crate::sampler::Sampler;
use crate::{cards, output};

/// Longest wait between two checks for a signal.
const SLICE: Duration = Duration::from_millis(100);
/// How long an end that fails waits for the other before it tells it.
const CLOSE: Duration = Duration::from_secs(1);
/// Longest wait for what needs no other process: the other end in this one, and the reader's card.
const HERE: Duration = Duration::from_secs(30);

/// One end, at this host.
struct End<'a> {
    card: Card,
    sampler: Option<Sampler>,
    pipe: Pipe,
    waits: Waits<'a>,
}

/// What ends the waits of an end.
#[derive(Clone, Copy)]
struct Waits<'a> {
    limit: Option<Duration>,
    interrupt: &'a Interrupt,
    /// Why the first of both ends has failed, if both are in this process.
    first: Option<&'a OnceLock<Failure>>,
}

pub(crate) fn run(cli: &Cli, arguments: &cli::Pipe) -> Result<()> {
    let limit = arguments.timeout.map(Duration::from_secs_f64);
    let mut selection = Selector::parse(&cards::selector(cli)?)?.open_cards(Duration::MAX)?;
    let mut cards = selection.take_cards().into_iter().map(Card::open).collect::<std::result::Result<Vec<_>, _>>()?;
    // Until here nothing was changed: a signal ends the command at once, also while a server does not answer.
    let interrupt = Interrupt::listen()?;
    cards::publish(cli, cards.len(), |index| cards[index].publish(&cli.stats_dir));
    let Some(nodes) = cards.first().map(|card| card.capabilities().nodes) else {
        return Err(Failure::new(Exit::NoCard, format!("{} selects no card", printable(&selection.selector))));
    };
    let (writer, reader) = (arguments.from, arguments.to.unwrap_or(nodes - 1));
    if let Some(node) = [writer, reader].into_iter().find(|node| *node >= nodes) {
        return Err(Failure::new(Exit::NoCard, format!("no node {node} (available: 0 to {})", nodes - 1)));
    }
    let pipe = Pipe { writer, reader, address: arguments.address, key: arguments.key };
    let (mut from, mut to) = (None, None);
    for card in cards {
        let sampler = Sampler::start(std::slice::from_ref(&card));
        let end = End { pipe, waits: Waits { limit, interrupt: &interrupt, first: None }, sampler, card };
        match end.card.node() {
            node if node == writer && from.is_none() => from = Some(end),
            node if node == reader && to.is_none() => to = Some(end),
            _ => {}
        }
    }
    match (from, to) {
        (Some(from), Some(to)) => both(from, to),
        (Some(from), None) => from.write(),
        (None, Some(to)) => to.read(),
        (None, None) => Err(Failure::refused(format!(
            "{} selects neither node {writer}, which writes, nor node {reader}, which reads",
            printable(&selection.selector)
        ))),
    }
}

/// Runs both ends. If one fails the other ends too, and the first failure is the command's.
fn both(from: End<'_>, to: End<'_>) -> Result<()> {
    let first = OnceLock::new();
    let [from, to] = [from, to].map(|end| End { waits: Waits { first: Some(&first), ..end.waits }, ..end });
    let outcome = thread::scope(|scope| {
        let writing = thread::Builder::new().spawn_scoped(scope, || from.write());
        let writing = writing.map_err(Failure::no_thread)?;
        let read = to.read();
        writing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).and(read)
    });
    match first.get() {
        Some(failure) => Err(failure.clone()),
        None => outcome,
    }
}

impl Waits<'_> {
    /// How long the other end may take to open.
    fn until_open(&self) -> Duration {
        let most = self.limit.unwrap_or(Duration::MAX);
        if self.first.is_some() { most.min(HERE) } else { most }
    }

    /// Fails after a signal, and once the other end has failed.
    fn check(&self) -> Result<()> {
        self.interrupt.check()?;
        match self.first.and_then(OnceLock::get) {
            Some(failure) => Err(failure.clone()),
            None => Ok(()),
        }
    }

    /// Returns why an end was not opened: what has stopped it, or else `error`.
    fn why(&self, error: PipeError) -> Failure {
        self.check().err().unwrap_or_else(|| error.into())
    }

    /// Notes a failure, before the other end can fail because of it.
    fn note<T>(&self, outcome: Result<T>) -> Result<T> {
        if let (Err(failure), Some(first)) = (&outcome, self.first) {
            // Only the first is kept.
            let _ = first.set(failure.clone());
        }
        outcome
    }
}

impl End<'_> {
    /// Copies stdin to the pipe.
    fn write(self) -> Result<()> {
        let End { card, pipe, waits, sampler } = self;
        // A signal ends the wait in order: a reader that has just answered is told that nothing comes.
        let opened = PipeWriter::open_until(card, pipe, waits.until_open(), &mut || waits.check().is_err());
        let mut writer = waits.note(opened.map_err(|error| waits.why(error)))?;
        writer.set_timeout(SLICE);
        let outcome = waits.note(copy_in(&mut writer, waits));
        // What has left needs only the cards. What an end that fails has not sent by then is lost, and the reader learns of it.
        writer.set_timeout(if outcome.is_ok() { HERE } else { CLOSE });
        // As of all cards that are closed: it holds the control function.
        drop(sampler);
        let closed = writer.close().map_err(Failure::from);
        outcome.and(waits.note(closed.map(drop)))
    }

    /// Copies the pipe to stdout.
    fn read(self) -> Result<()> {
        let End { card, pipe, waits, sampler } = self;
        let open = || PipeReader::open_until(card, pipe, waits.until_open(), &mut || waits.check().is_err());
        let opened = waits.interrupt.end_at_once_during(open)?;
        let mut reader = match opened {
            // Not noted: a writer of this process then tells why.
            Err(error @ PipeError::NoPeer { gone: None, .. }) => return Err(waits.why(error)),
            opened => waits.note(opened.map_err(|error| waits.why(error)))?,
        };
        reader.set_timeout(SLICE);
        let outcome = waits.note(copy_out(&mut reader, waits));
        drop(sampler);
        let closed = reader.close().map_err(Failure::from);
        outcome.and(waits.note(closed.map(drop)))
    }
}

/// Copies stdin to `writer`, until the reader's card has everything.
fn copy_in(writer: &mut PipeWriter, waits: Waits<'_>) -> Result<()> {
    let mut buffer = vec![0; PIPE_BUF];
    loop {
        let bytes = next_of_stdin(&mut buffer, waits)?;
        if bytes == 0 {
            let mut flush = || writer.flush().map(|()| true);
            return until_done(waits, &mut flush);
        }
        let mut rest = &buffer[..bytes];
        let mut write = || {
            let written = writer.write(rest)?;
            rest = &rest[written..];
            Ok(rest.is_empty())
        };
        until_done(waits, &mut write)?;
    }
}

/// Copies what comes out of `reader` to stdout, until the end of the file.
fn copy_out(reader: &mut PipeReader, waits: Waits<'_>) -> Result<()> {
    let mut buffer = vec![0; PIPE_BUF];
    let most = most_at_once()?;
    loop {
        waits.check()?;
        let mut bytes = 0;
        let mut read = || {
            bytes = reader.read(&mut buffer)?;
            Ok(true)
        };
        until_done(waits, &mut read)?;
        if bytes == 0 || !output::write_when_ready(&buffer[..bytes], most, || waits.check())? {
            return Ok(());
        }
    }
}

/// Repeats `step`, which waits for at most [`SLICE`], until it is done, the time is up, or [`Waits::check`] fails.
fn until_done(waits: Waits<'_>, step: &mut dyn FnMut() -> std::result::Result<bool, PipeError>) -> Result<()> {
    let start = Instant::now();
    loop {
        match step() {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(PipeError::TimedOut { what, gone, .. }) => {
                waits.check()?;
                let waited = start.elapsed();
                // What came before the other end was gone needs only this card.
                let limit = gone.map(|_| HERE).into_iter().chain(waits.limit).min();
                if limit.is_some_and(|limit| waited >= limit) {
                    return Err(PipeError::TimedOut { what, waited, gone }.into());
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads from stdin, as soon as there is something; 0 bytes are its end.
fn next_of_stdin(buffer: &mut [u8], waits: Waits<'_>) -> Result<usize> {
    let stdin = io::stdin();
    // Without a buffer: what is in a buffer, poll does not see.
    let read = |buffer: &mut [u8]| nix::unistd::read(stdin.as_fd(), buffer);
    let failed = |error: io::Error| Failure::new(Exit::Failed, format!("stdin: {error}"));
    loop {
        waits.check()?;
        if !is_ready(&stdin, PollFlags::POLLIN, SLICE).map_err(failed)? {
            continue;
        }
        match read(buffer) {
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            outcome => return outcome.map_err(|error| failed(error.into())),
        }
    }
}

/// Most bytes of a write to stdout, which then does not wait once stdout is ready. A file is always ready.
fn most_at_once() -> Result<usize> {
    let metadata = io::stdout().as_fd().try_clone_to_owned().and_then(|stdout| File::from(stdout).metadata());
    Ok(if metadata.map_err(|error| output::failed(&error))?.is_file() { usize::MAX } else { output::PIPE_BUF })
}

impl From<PipeError> for Failure {
    fn from(error: PipeError) -> Self {
        match error {
            PipeError::Card(error) => error.into(),
            PipeError::NoPeer { gone: Some(_), .. } => Failure::chain(Exit::Gone, &error),
            PipeError::NoPeer { .. } | PipeError::TimedOut { .. } => Failure::chain(Exit::Timeout, &error),
            _ => Failure::chain(Exit::Failed, &error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use fpga_hal::{Domain, in_process};
    use fpga_mock::{Fabric, Profile};

    use super::*;

    /// Longer than anything here takes on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn a_reader_does_not_wait_for_a_writer_of_its_process_that_has_failed() {
        let fabric = Fabric::new(Profile::bluelink(1, 2)).unwrap();
        let function = in_process::attach(fabric.endpoint(1), &Domain::in_process(), "mock").unwrap();
        let (interrupt, first) = (Interrupt::default(), OnceLock::new());
        assert!(first.set(Failure::new(Exit::Verification, "the writer's")).is_ok());
        let waits = Waits { limit: None, interrupt: &interrupt, first: Some(&first) };
        let end = End { card: Card::open(function).unwrap(), pipe: Pipe::new(0, 1), waits, sampler: None };
        // It would tell of its own wait if that had ended first.
        assert_eq!(end.read().unwrap_err().exit(), Exit::Verification);
    }

    /// A writer that is interrupted while it opens leaves no reader waiting that has just answered.
    #[test]
    fn an_interrupted_writer_tells_a_reader_that_has_answered() {
        let fabric = Fabric::new(Profile::bluelink(1, 2)).unwrap();
        let card = |node| {
            let function = in_process::attach(fabric.endpoint(node), &Domain::in_process(), "mock").unwrap();
            Card::open(function).unwrap()
        };
        let pipe = Pipe::new(0, 1);
        let interrupt = Interrupt::default();
        interrupt.flag().store(true, Ordering::Relaxed);
        let waits = Waits { limit: None, interrupt: &interrupt, first: None };
        thread::scope(|scope| {
            let there = card(1);
            let reading = scope.spawn(move || PipeReader::open(there, pipe, PATIENCE).unwrap().read(&mut [0; 9]));
            // It is there at last.
            while !reading.is_finished() {
                let failure = End { card: card(0), pipe, waits, sampler: None }.write().unwrap_err();
                assert_eq!(failure.exit(), Exit::Interrupted, "{failure:?}");
            }
            assert_eq!(reading.join().unwrap().unwrap(), 0);
        });
    }
}

//! `fpgactl top`: watches all cards in use on a terminal. Opens no card.
//!
//! Readings of published counters make a model, which is drawn; keys change only what is shown of it.

mod columns;
mod model;
mod screen;
mod view;

#[cfg(test)]
mod picture;
#[cfg(test)]
mod tests;

use std::io::{ErrorKind, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use crate::cli::{self, Cli};
use crate::exit::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::output;
use crate::stats::{self, Before};
use columns::COLUMNS;
use model::Model;
use screen::{Pressed, Screen};

/// Interval at which the loop checks for a signal.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) fn run(cli: &Cli, arguments: &cli::Top) -> Result<()> {
    // No signal ends the command while the terminal is changed.
    let interrupt = Interrupt::listen_until_ended()?;
    let mut readings = Readings::new(cli)?;
    let interval = Duration::from_secs_f64(arguments.interval);
    if arguments.once || !std::io::stdout().is_terminal() {
        wait(&interrupt, interval)?;
        readings.read(cli)?;
        return output::write(table(&readings.model, arguments.sort).as_bytes());
    }
    // https://no-color.org: any value but an empty one.
    let has_color = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut screen = Screen::new(arguments.sort, arguments.interval, has_color);
    watch(cli, &interrupt, &mut readings, &mut screen, interval)
}

/// The model, and what its rates are computed from.
struct Readings {
    model: Model,
    before: Before,
    start: Instant,
}

impl Readings {
    fn new(cli: &Cli) -> Result<Self> {
        let mut readings = Readings { model: Model::default(), before: Before::default(), start: Instant::now() };
        readings.read(cli)?;
        Ok(readings)
    }

    fn read(&mut self, cli: &Cli) -> Result<()> {
        let read = stats::printed(&stats::all(cli)?, Some(&mut self.before));
        self.model.update(read, self.start.elapsed());
        Ok(())
    }
}

/// Waits for `time`, or fails on a signal.
fn wait(interrupt: &Interrupt, time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        interrupt.check()?;
        std::thread::sleep(end.saturating_duration_since(Instant::now()).min(PAUSE));
    }
    Ok(())
}

/// Formats all cards as plain text.
fn table(model: &Model, sort: cli::Sort) -> String {
    let rows = model.sorted(sort, false);
    let notes: String = model.unread.iter().map(|one| format!("note: {}\n", one.error)).collect();
    if rows.is_empty() {
        return format!("no card in use\n{notes}");
    }
    let heads = COLUMNS.iter().map(|column| column.head.to_owned()).collect();
    let cells = rows.iter().map(|row| COLUMNS.iter().map(|column| (column.cell)(row)).collect());
    output::table(&std::iter::once(heads).chain(cells).collect::<Vec<_>>()) + &notes
}

/// Draws and reads keys, until a key or a signal ends it.
fn watch(
    cli: &Cli,
    interrupt: &Interrupt,
    readings: &mut Readings,
    screen: &mut Screen,
    interval: Duration,
) -> Result<()> {
    let failed = |error: std::io::Error| Failure::new(Exit::Failed, format!("terminal: {error}"));
    // Restores the terminal also when this panics.
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let mut next = Instant::now() + interval;
    let outcome = loop {
        if let Err(error) = terminal.draw(|frame| view::draw(frame, &readings.model, screen)) {
            break Err(failed(error));
        }
        match keys(interrupt, screen, next) {
            Ok(Pressed::Quit) => break Ok(()),
            Ok(Pressed::Continue) => {}
            Err(error) => break Err(failed(error)),
        }
        if Instant::now() >= next {
            if let Err(failure) = readings.read(cli) {
                readings.model.fail(failure.message());
            }
            next = Instant::now() + interval;
        }
    };
    outcome.and(ratatui::try_restore().map_err(failed))
}

/// Waits for a key or another size of the terminal, for at most `time`.
///
/// # Errors
/// The terminal has hung up: reading from it would not end.
fn is_pressed(time: Duration) -> std::io::Result<bool> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return event::poll(time);
    }
    let mut keys = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    let time = PollTimeout::try_from(time).unwrap_or(PollTimeout::ZERO);
    match poll(&mut keys, time) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    match keys[0].revents().is_some_and(|events| events.contains(PollFlags::POLLHUP)) {
        true => Err(std::io::Error::new(ErrorKind::UnexpectedEof, "has hung up")),
        false => event::poll(Duration::ZERO),
    }
}

/// Waits until `next`, a key, or another size of the terminal; a signal quits.
fn keys(interrupt: &Interrupt, screen: &mut Screen, next: Instant) -> std::io::Result<Pressed> {
    loop {
        if interrupt.check().is_err() {
            return Ok(Pressed::Quit);
        }
        let left = next.saturating_duration_since(Instant::now());
        if is_pressed(left.min(PAUSE))? {
            return Ok(match event::read()? {
                Event::Key(key) if key.kind == KeyEventKind::Press => screen.press(key),
                _ => Pressed::Continue,
            });
        }
        if left.is_zero() {
            return Ok(Pressed::Continue);
        }
    }
}

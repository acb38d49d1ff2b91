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

use std::io::IsTerminal as _;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{self, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode};
use ratatui::layout::Rect;
use ratatui::{DefaultTerminal, TerminalOptions, Viewport};

use crate::cli::{self, Cli};
use crate::exit::{Exit, Failure, Result};
use crate::interrupt::{self, Interrupt, PAUSE};
use crate::output;
use crate::stats::{self, Before};
use columns::COLUMNS;
use model::Model;
use screen::{Pressed, Screen};

/// Most columns, and most lines, that are drawn: a terminal may have 65535 of each, and each cell takes memory.
const SIDE_MAX: u16 = 1000;

pub(crate) fn run(cli: &Cli, arguments: &cli::Top) -> Result<()> {
    // No signal ends the command while the terminal is changed.
    let interrupt = Interrupt::listen_until_ended()?;
    let mut readings = Readings::new(cli)?;
    let interval = Duration::from_secs_f64(arguments.interval);
    if arguments.once || !std::io::stdout().is_terminal() {
        interrupt.wait_until(Instant::now() + interval)?;
        readings.read(cli)?;
        return interrupt::ending_at_once(|| output::text(&table(&readings.model, arguments.sort)));
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

/// Draws and reads keys, until a key or a signal ends it, or the terminal hangs up.
fn watch(
    cli: &Cli,
    interrupt: &Interrupt,
    readings: &mut Readings,
    screen: &mut Screen,
    interval: Duration,
) -> Result<()> {
    // A terminal that has hung up passes for none.
    let has_keyboard = std::io::stdin().is_terminal();
    let end = move || end_with_terminals(has_keyboard);
    thread::Builder::new().name("terminal".to_owned()).spawn(end).map_err(Failure::no_thread)?;
    match draw_until_quit(cli, interrupt, readings, screen, interval) {
        Err(_) if has_hung_up(has_keyboard, Duration::ZERO) => Ok(()),
        ended => ended.map_err(|error| Failure::new(Exit::Failed, format!("terminal: {error}"))),
    }
}

fn draw_until_quit(
    cli: &Cli,
    interrupt: &Interrupt,
    readings: &mut Readings,
    screen: &mut Screen,
    interval: Duration,
) -> std::io::Result<()> {
    // Restores the terminal also when this panics.
    let mut terminal = ratatui::try_init_with_options(TerminalOptions { viewport: Viewport::Fixed(area()?) })?;
    execute!(std::io::stdout(), EnterAlternateScreen)?;
    let mut next = Instant::now() + interval;
    let outcome = loop {
        let fitted = fit(&mut terminal);
        if let Err(error) =
            fitted.and_then(|()| terminal.draw(|frame| view::draw(frame, &readings.model, screen)).map(drop))
        {
            break Err(error);
        }
        match keys(interrupt, screen, next) {
            Ok(Pressed::Quit) => break Ok(()),
            Ok(Pressed::Continue) => {}
            Err(error) => break Err(error),
        }
        if Instant::now() >= next {
            if let Err(failure) = readings.read(cli) {
                readings.model.fail(failure.message());
            }
            next = Instant::now() + interval;
        }
    };
    // The modes are those of the terminal that keys are read from, which may be another, and gone.
    let restored = disable_raw_mode();
    let left = execute!(std::io::stdout(), LeaveAlternateScreen, Show);
    // Its drop would show the cursor again, and panic if neither the terminal nor stderr can be written.
    std::mem::forget(terminal);
    outcome.and(restored).and(left)
}

/// Returns the part of the terminal that is drawn.
fn area() -> std::io::Result<Rect> {
    let (width, height) = terminal::size()?;
    Ok(Rect::new(0, 0, width.min(SIDE_MAX), height.min(SIDE_MAX)))
}

/// Follows the size of the terminal.
fn fit(terminal: &mut DefaultTerminal) -> std::io::Result<()> {
    let area = area()?;
    if terminal.get_frame().area() == area { Ok(()) } else { terminal.resize(area) }
}

/// Ends the process when the terminal, or the one that keys are read from, hangs up. On a thread, because crossterm would go on
/// reading without end.
fn end_with_terminals(has_keyboard: bool) {
    while !has_hung_up(has_keyboard, PAUSE) {}
    let stdout = std::io::stdout();
    // A terminal that takes nothing more, as after Ctrl-S, stays as it is: whoever draws may hold the lock, and wait.
    let is_writable = interrupt::is_ready(&stdout, PollFlags::POLLOUT, Duration::ZERO).unwrap_or(false);
    // Held until the end, so that nothing more is drawn.
    let mut locked = is_writable.then(|| stdout.lock());
    if let Some(stdout) = &mut locked {
        // Fails if this terminal is the one that has hung up.
        let _ = execute!(stdout, LeaveAlternateScreen, Show);
    }
    std::process::exit(0);
}

/// Waits for `time` at most at each terminal, and returns whether the terminal, or the one that keys are read from, has hung up.
fn has_hung_up(has_keyboard: bool, time: Duration) -> bool {
    let is_gone = |terminal: BorrowedFd<'_>| interrupt::is_ready(terminal, PollFlags::empty(), time).unwrap_or(false);
    is_gone(std::io::stdout().as_fd()) || has_keyboard && is_gone(std::io::stdin().as_fd())
}

/// Waits until `next`, a key, or another size of the terminal; a signal quits.
fn keys(interrupt: &Interrupt, screen: &mut Screen, next: Instant) -> std::io::Result<Pressed> {
    loop {
        if interrupt.check().is_err() {
            return Ok(Pressed::Quit);
        }
        let left = next.saturating_duration_since(Instant::now());
        if event::poll(left.min(PAUSE))? {
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

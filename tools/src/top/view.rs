//! Draws the model on a terminal. The same model, screen and size give the same cells.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Table, TableState};

use super::columns::{COLUMNS, Column, scaled};
use super::model::{Condition, Model, Row};
use super::screen::Screen;
use crate::output;
use crate::stats::{Owner, Sensor};

/// Lines of the pane that describes the selected card, with its border, and those more for its sensors.
const DETAIL_LINES: u16 = 6;
const SENSOR_LINES: u16 = 2;
/// The pane is left out on terminals with fewer lines.
const DETAIL_FROM: u16 = 16;

const HELP: &str = "\
up, down, j, k      select a card
PgUp, PgDn          one page
Home, End, g, G     first, last card
s, S                sort by the next, previous column
r                   reverse the order
h, ?                this help
q, Esc, Ctrl-C      quit

STATE   stalled: instructions in flight, and no progress
        owner gone: the process has ended; last counts
        stale: the file cannot be read now; last counts
QUEUE   instructions in flight, entries of the queue
LINKS   links of the card, or failures because of them
TEMP    temperature of the FPGA, on wide terminals";

/// Draws everything. Remembers in `screen` which cards are visible.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model, screen: &mut Screen) {
    let area = frame.area();
    let rows = model.sorted(screen.sort, screen.is_reversed);
    // So that moving the selection does not move the table.
    let sensors = if rows.iter().any(|row| row.sensors().next().is_some()) { SENSOR_LINES } else { 0 };
    let detail = if area.height >= DETAIL_FROM { DETAIL_LINES + sensors } else { 0 };
    let notes = u16::from(model.error.is_some() || !model.unread.is_empty());
    let [head, note, table, below, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(notes),
        Constraint::Min(2),
        Constraint::Length(detail),
        Constraint::Length(1),
    ])
    .areas(area);
    screen.settle(&rows, table.height.saturating_sub(1));
    frame.render_widget(Text::from(summary(model, screen, rows.len(), head.width.into())), head);
    if notes > 0 {
        let style = screen.colored(Color::Yellow);
        frame.render_widget(Line::styled(note_text(model), style), note);
    }
    cards(frame, &rows, screen, table);
    if let Some(row) = screen.selected.and_then(|index| rows.get(index)).filter(|_| detail > 0) {
        describe(frame, row, screen, below);
    }
    frame.render_widget(Line::styled(keys(screen), screen.colored(Color::DarkGray)), foot);
    if screen.shows_help {
        help(frame, area);
    }
}

fn summary(model: &Model, screen: &Screen, rows: usize, width: usize) -> Vec<Line<'static>> {
    let totals = model.totals;
    let old = if totals.old > 0 { format!(" ({} old)", totals.old) } else { String::new() };
    let first = screen.offset + 1;
    let last = (screen.offset + screen.page).min(rows);
    let shown = if last - screen.offset < rows { format!("   shown {first} to {last}") } else { String::new() };
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let counts = format!(
        "{} operations/s   {:.2} Gb/s   in flight {} of {}   failed {}",
        scaled(totals.operations_per_s),
        totals.gbps,
        totals.in_flight,
        totals.depth,
        totals.failed
    );
    vec![
        Line::from(vec![
            Span::styled("fpgactl top", bold),
            Span::raw(format!("   cards {}{old}{shown}", totals.cards)),
            Span::raw(format!("   every {} s", screen.interval)),
        ]),
        Line::raw(begun(&counts, width)),
    ]
}

fn note_text(model: &Model) -> String {
    match (&model.error, model.unread.as_slice()) {
        (Some(error), _) => error.clone(),
        (None, [first, rest @ ..]) if !rest.is_empty() => {
            format!("unreadable files: {}; {}", rest.len() + 1, first.error)
        }
        (None, unread) => unread.iter().map(|one| one.error.clone()).collect(),
    }
}

fn cards(frame: &mut Frame<'_>, rows: &[&Row], screen: &Screen, area: Rect) {
    if rows.is_empty() {
        frame.render_widget(Text::raw("\nno card in use"), area);
        return;
    }
    let columns: Vec<&Column> = COLUMNS.iter().filter(|column| column.from <= area.width).collect();
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let heads = columns.iter().map(|column| {
        // The column that is sorted by is underlined.
        let is_sorted = column.sort == Some(screen.sort);
        let style = if is_sorted { bold.add_modifier(Modifier::UNDERLINED) } else { bold };
        Cell::from(aligned(column, Span::styled(column.head, style)))
    });
    let widths = columns.iter().map(|column| match column.width {
        0 => Constraint::Fill(1),
        width => Constraint::Length(width),
    });
    let taken: u16 = columns.iter().map(|column| column.width + 1).sum();
    let name_width = usize::from((area.width + 1).saturating_sub(taken));
    let lines = rows.iter().map(|row| {
        ratatui::widgets::Row::new(columns.iter().map(|column| {
            let width = if column.width == 0 { name_width } else { usize::from(column.width) };
            let text = shortened(&(column.cell)(row), width);
            let style = if column.head == "STATE" { condition_style(row.condition, screen) } else { Style::new() };
            Cell::from(aligned(column, Span::styled(text, style)))
        }))
    });
    let table = Table::new(lines, widths)
        .header(ratatui::widgets::Row::new(heads))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(screen.selected).with_offset(screen.offset);
    frame.render_stateful_widget(table, area, &mut state);
}

fn aligned<'a>(column: &Column, span: Span<'a>) -> Text<'a> {
    let alignment = if column.is_number { Alignment::Right } else { Alignment::Left };
    Text::from(span).alignment(alignment)
}

/// Cuts `text` at its beginning: the end of a selector tells cards apart.
fn shortened(text: &str, width: usize) -> String {
    if output::width(text) <= width {
        return text.to_owned();
    }
    let mut ends = text.char_indices().map(|(start, _)| &text[start..]);
    format!("…{}", ends.find(|end| output::width(end) < width).unwrap_or_default())
}

/// Cuts `text` at its end.
fn begun(text: &str, width: usize) -> String {
    if output::width(text) <= width {
        return text.to_owned();
    }
    let mut starts = text.char_indices().rev().map(|(end, _)| &text[..end]);
    format!("{}…", starts.find(|start| output::width(start) < width).unwrap_or_default())
}

fn condition_style(condition: Condition, screen: &Screen) -> Style {
    match condition {
        Condition::Running => screen.colored(Color::Green),
        Condition::Stopped | Condition::Stalled(_) | Condition::Stale => screen.colored(Color::Yellow),
        Condition::Poisoned | Condition::CardGone | Condition::OwnerGone => screen.colored(Color::Red),
    }
}

/// All that is known of a card.
fn describe(frame: &mut Frame<'_>, row: &Row, screen: &Screen, area: Rect) {
    let card = &row.card;
    let kind = if card.mock { ", a mock card" } else { "" };
    let owner = if card.owner == Owner::Alive { "" } else { ", which has ended" };
    let lines = [
        format!("process {} ({}){owner}; node {}{kind}", card.pid, card.process, card.node),
        format!("state {}; queue {} of {}; restarts {}", row.condition, card.in_flight, card.depth, card.restarts),
        format!(
            "submitted {}; completed {}; failed {}; bytes {}",
            card.submitted, card.completed, card.failed, card.bytes
        ),
        format!("links {}; {} instructions failed because of a link; {}", card.links, card.link_failures, card.file),
    ];
    let block = Block::bordered().title(format!(" {} ", card.name));
    let text = lines.into_iter().map(Line::raw).chain(sensors(row, screen, area.width.saturating_sub(2)));
    let text: Vec<Line<'_>> = text.collect();
    frame.render_widget(Paragraph::new(text).block(block), area);
}

/// As many sensors as fit, those that cannot be trusted first.
fn sensors(row: &Row, screen: &Screen, width: u16) -> Vec<Line<'static>> {
    let mut all: Vec<&Sensor> = row.sensors().collect();
    all.sort_by_key(|sensor| sensor.state == "good");
    let mut lines: Vec<Line<'static>> = Vec::new();
    for Sensor { name, shown, state, .. } in all {
        let span = match *state {
            "good" => Span::raw(format!("{name} {shown}")),
            _ => Span::styled(format!("{name} {shown} ({state})"), screen.colored(Color::Yellow)),
        };
        match lines.last_mut() {
            Some(line) if line.width() + 2 + span.width() <= usize::from(width) => {
                line.push_span("; ");
                line.push_span(span);
            }
            _ => lines.push(Line::from(span)),
        }
    }
    lines.truncate(SENSOR_LINES.into());
    lines
}

fn keys(screen: &Screen) -> String {
    let order = if screen.is_reversed { ", reversed" } else { "" };
    format!("q quit   h help   s sort: {}{order}   r reverse   arrows select", screen.sort_name())
}

fn help(frame: &mut Frame<'_>, area: Rect) {
    let height = (HELP.lines().count() as u16 + 2).min(area.height);
    let width = (HELP.lines().map(|line| line.chars().count()).max().unwrap_or(0) as u16 + 4).min(area.width);
    let [_, middle, _] =
        Layout::vertical([Constraint::Fill(1), Constraint::Length(height), Constraint::Fill(1)]).areas(area);
    let [_, middle, _] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(width), Constraint::Fill(1)]).areas(middle);
    frame.render_widget(Clear, middle);
    frame.render_widget(Paragraph::new(HELP).block(Block::bordered().title(" keys ")), middle);
}

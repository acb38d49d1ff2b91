//! What the keys of `top` change: selection, order, help.

use clap::ValueEnum as _;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Style};

use super::model::Row;
use crate::cli::Sort;

/// What a person has chosen to see.
#[derive(Debug)]
pub(super) struct Screen {
    pub(super) sort: Sort,
    pub(super) is_reversed: bool,
    pub(super) shows_help: bool,
    /// Whether colours are used.
    pub(super) has_color: bool,
    /// Seconds between readings.
    pub(super) interval: f64,
    /// File of the selected card, which keeps the selection when the order changes.
    file: Option<String>,
    /// Index of the selected card.
    pub(super) selected: Option<usize>,
    /// Index of the first visible card.
    pub(super) offset: usize,
    /// Number of visible cards.
    pub(super) page: usize,
    /// Where the selection is to move.
    step: Step,
}

/// A movement of the selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    None,
    By(isize),
    ByPage(isize),
    First,
    Last,
}

/// What a key means for the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pressed {
    Quit,
    Continue,
}

impl Screen {
    pub(super) fn new(sort: Sort, interval: f64, has_color: bool) -> Self {
        Screen {
            sort,
            is_reversed: false,
            shows_help: false,
            has_color,
            interval,
            file: None,
            selected: None,
            offset: 0,
            page: 0,
            step: Step::None,
        }
    }

    /// Applies a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> Pressed {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { Pressed::Quit } else { Pressed::Continue };
        }
        match key.code {
            // Escape closes the help first.
            KeyCode::Esc if self.shows_help => self.shows_help = false,
            KeyCode::Char('q' | 'Q') | KeyCode::Esc => return Pressed::Quit,
            KeyCode::Char('h' | '?') => self.shows_help = !self.shows_help,
            KeyCode::Char('s') => self.sort = self.neighbour(1),
            KeyCode::Char('S') => self.sort = self.neighbour(-1),
            KeyCode::Char('r') => self.is_reversed = !self.is_reversed,
            KeyCode::Up | KeyCode::Char('k') => self.step = Step::By(-1),
            KeyCode::Down | KeyCode::Char('j') => self.step = Step::By(1),
            KeyCode::PageUp => self.step = Step::ByPage(-1),
            KeyCode::PageDown => self.step = Step::ByPage(1),
            KeyCode::Home | KeyCode::Char('g') => self.step = Step::First,
            KeyCode::End | KeyCode::Char('G') => self.step = Step::Last,
            _ => {}
        }
        Pressed::Continue
    }

    fn neighbour(&self, step: isize) -> Sort {
        let all = Sort::value_variants();
        let index = all.iter().position(|sort| *sort == self.sort).unwrap_or(0);
        all[index.saturating_add_signed(all.len() as isize + step) % all.len()]
    }

    pub(super) fn sort_name(&self) -> String {
        self.sort.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Moves the selection, and scrolls so that the selected card is visible on a page of `page` lines.
    pub(super) fn settle(&mut self, rows: &[&Row], page: u16) {
        self.page = usize::from(page.max(1));
        let Some(last) = rows.len().checked_sub(1) else {
            (self.selected, self.offset, self.step) = (None, 0, Step::None);
            return;
        };
        let kept = self.file.as_ref().and_then(|file| rows.iter().position(|row| row.card.file == *file));
        let from = kept.or(self.selected).unwrap_or(0).min(last);
        let page = self.page as isize;
        let index = match std::mem::replace(&mut self.step, Step::None) {
            Step::None => from,
            Step::By(step) => from.saturating_add_signed(step),
            Step::ByPage(step) => from.saturating_add_signed(step * page),
            Step::First => 0,
            Step::Last => last,
        };
        let index = index.min(last);
        self.offset = self.offset.clamp((index + 1).saturating_sub(self.page), index);
        self.offset = self.offset.min(rows.len().saturating_sub(self.page));
        self.selected = Some(index);
        self.file = Some(rows[index].card.file.clone());
    }

    /// Returns a style with this colour, if colours are used.
    pub(super) fn colored(&self, color: Color) -> Style {
        if self.has_color { Style::new().fg(color) } else { Style::new() }
    }
}

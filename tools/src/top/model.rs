//! What `top` shows, from readings of published counters. Reads no file and no clock.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cli::Sort;
use crate::stats::{Card, Owner, Printed, Rates, Sensor, Unread};

/// A card with instructions in flight is stalled if its counts have not changed for this time.
const STALLED_AFTER: Duration = Duration::from_secs(5);

/// A card, and what is known of it beyond its counts.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) card: Card,
    pub(super) condition: Condition,
    /// When a count changed last.
    changed: Duration,
}

/// The condition of a card, worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    Running,
    /// The queue is stopped.
    Stopped,
    /// Instructions are in flight and no count has changed for this time.
    Stalled(Duration),
    /// The queue stopped on an error.
    Poisoned,
    /// The card is gone.
    CardGone,
    /// The file could be read before and cannot be read now: the counts are old.
    Stale,
    /// The process that held the card has ended: the counts are its last.
    OwnerGone,
}

impl Condition {
    /// Whether rates of the card are of now.
    fn is_current(self) -> bool {
        !matches!(self, Condition::Stale | Condition::OwnerGone)
    }
}

impl std::fmt::Display for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Condition::Running => f.pad("running"),
            Condition::Stopped => f.pad("stopped"),
            Condition::Stalled(time) => write!(f, "stalled {}", duration(*time)),
            Condition::Poisoned => f.pad("poisoned"),
            Condition::CardGone => f.pad("card gone"),
            Condition::Stale => f.pad("stale"),
            Condition::OwnerGone => f.pad("owner gone"),
        }
    }
}

/// Formats a time in one unit: `12s`, `5m`, `3h`, `2d`.
pub(super) fn duration(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m", seconds / 60),
        seconds @ 3600..86_400 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// All cards in use.
#[derive(Debug, Default)]
pub(super) struct Model {
    rows: BTreeMap<String, Row>,
    pub(super) unread: Vec<Unread>,
    /// Why nothing could be read the last time.
    pub(super) error: Option<String>,
    pub(super) totals: Totals,
}

/// Sums over the cards whose counts are of now.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(super) struct Totals {
    pub(super) cards: usize,
    /// Cards whose owner is gone, or whose file cannot be read any more.
    pub(super) old: usize,
    pub(super) operations_per_s: f64,
    pub(super) gbps: f64,
    pub(super) in_flight: u64,
    pub(super) depth: u64,
    /// Over all cards.
    pub(super) failed: u64,
}

impl Model {
    /// Takes over what was read at `now`, a time since any fixed point.
    pub(super) fn update(&mut self, read: Printed, now: Duration) {
        let mut before = std::mem::take(&mut self.rows);
        for card in read.cards {
            let old = before.remove(&card.file);
            let row = Row::new(card, old.as_ref(), now);
            self.rows.insert(row.card.file.clone(), row);
        }
        // A file that is no more is left out: its card was closed.
        for unread in &read.unread {
            if let Some(row) = before.remove(&unread.file) {
                self.rows.insert(unread.file.clone(), Row { condition: Condition::Stale, ..row });
            }
        }
        self.unread = read.unread;
        self.error = None;
        self.totals = Totals::of(self.rows.values());
    }

    /// Notes that nothing could be read: all counts are old.
    pub(super) fn fail(&mut self, error: &str) {
        self.error = Some(error.to_owned());
        self.rows.values_mut().for_each(|row| row.condition = Condition::Stale);
        self.totals = Totals::of(self.rows.values());
    }

    /// Returns the cards in the order of `sort`; equal ones by name.
    pub(super) fn sorted(&self, sort: Sort, is_reversed: bool) -> Vec<&Row> {
        let mut rows: Vec<_> = self.rows.values().map(|row| ((natural(&row.card.name), row.card.node), row)).collect();
        rows.sort_by(|(name, a), (other, b)| {
            let order = match sort {
                Sort::Card => name.cmp(other),
                Sort::Pid => a.card.pid.cmp(&b.card.pid),
                Sort::Queue => b.card.in_flight.cmp(&a.card.in_flight),
                Sort::Ops => b.operations_per_s().total_cmp(&a.operations_per_s()),
                Sort::Gbps => b.gbps().total_cmp(&a.gbps()),
                Sort::Failed => b.card.failed.cmp(&a.card.failed),
            };
            let order = if is_reversed { order.reverse() } else { order };
            order.then_with(|| name.cmp(other))
        });
        rows.into_iter().map(|(_, row)| row).collect()
    }
}

impl Row {
    fn new(card: Card, before: Option<&Row>, now: Duration) -> Self {
        let counts = |card: &Card| (card.submitted, card.completed);
        let changed = before.filter(|row| counts(&row.card) == counts(&card)).map_or(now, |row| row.changed);
        let quiet = now.saturating_sub(changed);
        let condition = match (card.owner, card.state.as_str()) {
            (Owner::Gone, _) => Condition::OwnerGone,
            (_, "gone") => Condition::CardGone,
            (_, "poisoned") => Condition::Poisoned,
            (_, "stopped") => Condition::Stopped,
            _ if card.in_flight > 0 && quiet >= STALLED_AFTER => Condition::Stalled(quiet),
            _ => Condition::Running,
        };
        Row { card, condition, changed }
    }

    /// Returns the rates; `None` if they are not known or not of now.
    pub(super) fn rates(&self) -> Option<Rates> {
        self.card.rates.filter(|_| self.condition.is_current())
    }

    /// Returns the sensors; none if what they read is not of now.
    pub(super) fn sensors(&self) -> impl Iterator<Item = &Sensor> {
        self.card.sensors.iter().filter(|_| self.condition.is_current())
    }

    fn operations_per_s(&self) -> f64 {
        self.rates().map_or(-1.0, |rates| rates.operations_per_s)
    }

    fn gbps(&self) -> f64 {
        self.rates().map_or(-1.0, |rates| rates.gbps)
    }
}

impl Totals {
    fn of<'a>(rows: impl Iterator<Item = &'a Row>) -> Self {
        rows.fold(Totals::default(), |mut sum, row| {
            sum.cards += 1;
            sum.failed = sum.failed.saturating_add(row.card.failed);
            if row.condition.is_current() {
                sum.operations_per_s += row.rates().map_or(0.0, |rates| rates.operations_per_s);
                sum.gbps += row.rates().map_or(0.0, |rates| rates.gbps);
                sum.in_flight += u64::from(row.card.in_flight);
                sum.depth += u64::from(row.card.depth);
            } else {
                sum.old += 1;
            }
            sum
        })
    }
}

/// A part of a name, in the order of its value.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Part<'a> {
    /// A number, decimal or hexadecimal: its digits without leading zeros, counted first.
    Number(usize, &'a str),
    Other(char),
}

/// Returns the key that names are sorted by: `2.sock` is before `10.sock`, and `9.sock` before `1a.sock`. A number begins with a decimal
/// digit, and may be hexadecimal, as in a PCI address. Names that differ only in leading zeros are in the order of their characters.
fn natural(name: &str) -> (Vec<Part<'_>>, &str) {
    let (mut parts, mut rest) = (Vec::new(), name);
    while let Some(first) = rest.chars().next() {
        let (part, bytes) = if first.is_ascii_digit() {
            let bytes = rest.find(|one: char| !one.is_ascii_hexdigit()).unwrap_or(rest.len());
            let digits = rest[..bytes].trim_start_matches('0');
            (Part::Number(digits.len(), digits), bytes)
        } else {
            (Part::Other(first), first.len_utf8())
        };
        parts.push(part);
        rest = &rest[bytes..];
    }
    (parts, name)
}

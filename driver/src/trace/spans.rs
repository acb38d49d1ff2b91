//! What the host did: named spans of time.

use std::time::{Duration, Instant, SystemTime};

use crate::trace::recording::nanoseconds;

/// Spans recorded of one cluster: more are counted.
const SPANS: usize = 1 << 16;

/// A moment of the host's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment(Instant);

impl Moment {
    /// This moment.
    pub fn now() -> Self {
        Moment(Instant::now())
    }
}

/// A span of time in which the host did something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// What it did.
    pub name: &'static str,
    /// In nanoseconds since the recording began; 0 if it began before.
    pub begin_ns: u64,
    /// In nanoseconds since the recording began.
    pub end_ns: u64,
}

/// The spans of a recording.
#[derive(Debug)]
pub(crate) struct Spans {
    pub(crate) began: Instant,
    pub(crate) wall: SystemTime,
    spans: Vec<Span>,
    dropped: u64,
}

impl Spans {
    /// A recording that begins at `began`, which is not later than now.
    pub(crate) fn new(began: Moment) -> Self {
        let ago: Duration = began.0.elapsed();
        let wall = SystemTime::now().checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH);
        Spans { began: began.0, wall, spans: Vec::new(), dropped: 0 }
    }

    /// Notes a span that ends now.
    pub(crate) fn end(&mut self, name: &'static str, begin: Moment) {
        if self.spans.len() == SPANS {
            self.dropped += 1;
            return;
        }
        let begin_ns = u64::try_from(begin.0.saturating_duration_since(self.began).as_nanos()).unwrap_or(u64::MAX);
        self.spans.push(Span { name, begin_ns, end_ns: nanoseconds(self.began) });
    }

    /// Returns the spans by their beginning, longer ones first, and how many had no room.
    pub(crate) fn into_spans(mut self) -> (Vec<Span>, u64) {
        self.spans.sort_by_key(|span| (span.begin_ns, std::cmp::Reverse(span.end_ns)));
        (self.spans, self.dropped)
    }
}

//! The queue of future events, in order of time: a bucket calendar.
//!
//! The near future is the bucket whose time has come, sorted, and a heap of the few events that were added to it since. After it
//! comes a year of buckets, each about as wide as two events are apart, in no order. What is later than the year waits in no
//! order either, and the next year is made of it. So an event is moved two or three times, however many there are, and many of
//! one instant are sorted already.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

/// A moment of the fabric's time: picoseconds since the fabric was made.
///
/// 64 bits would end after seven months of virtual time, which one client spends in 56 000 instructions. An event is at
/// most about 2^87 picoseconds ahead (a stream of 2^64 bytes at one megabit a second), and most are below 2^49: 128 bits
/// outlast 2^41 of the longest events and 2^79 of the others, so sums of times do not overflow.
pub type Time = u128;

/// Fewer events than this need no year.
const FEW: usize = 64;
/// Events in the heap from which on narrower buckets are worth their cost.
const CROWD: usize = 512;
/// Most buckets of a year.
const BUCKETS_MAX: usize = 1 << 16;

/// Entries by time; entries of one instant in the order in which they were added.
///
/// ```
/// let mut agenda = fpga_mock::engine::Agenda::default();
/// agenda.add(20, "second");
/// agenda.add(10, "first");
/// agenda.add(20, "third");
/// assert_eq!(std::iter::from_fn(|| agenda.take()).collect::<Vec<_>>(), [(10, "first"), (20, "second"), (20, "third")]);
/// ```
#[derive(Debug)]
pub struct Agenda<T> {
    /// The earliest entry. A sequencer that runs alone adds its next event and takes it at once: this needs no calendar.
    first: Option<Entry<T>>,
    /// The others before `near_end`, or all others: sorted, and those added since. Both are empty only if there are no others.
    sorted: VecDeque<Entry<T>>,
    near: BinaryHeap<Entry<T>>,
    near_end: Option<Time>,
    /// With more entries than this, the heap is crowded.
    near_most: usize,
    year: Year<T>,
    /// Entries after the year.
    far: Vec<Entry<T>>,
    added: u64,
}

#[derive(Debug)]
struct Entry<T> {
    at: Time,
    order: u64,
    what: T,
}

impl<T> Default for Agenda<T> {
    fn default() -> Self {
        Agenda {
            first: None,
            sorted: VecDeque::new(),
            near: BinaryHeap::new(),
            near_end: None,
            near_most: CROWD,
            year: Year::default(),
            far: Vec::new(),
            added: 0,
        }
    }
}

impl<T> Agenda<T> {
    /// Adds `what` at the time `at`, after all entries of the same time.
    #[inline]
    pub fn add(&mut self, at: Time, what: T) {
        self.added += 1;
        let entry = Entry { at, order: self.added, what };
        // An entry just added comes after all that are there for the same time.
        if self.next_at().is_none_or(|next| at < next) {
            if let Some(later) = self.first.replace(entry) {
                self.add_later(later);
            }
        } else {
            self.add_later(entry);
        }
    }

    /// Returns the time of the first entry.
    #[inline]
    pub fn next_at(&self) -> Option<Time> {
        // The earliest entry is the greatest, and no entry is less than any.
        let next = self.first.as_ref().or_else(|| self.sorted.front().max(self.near.peek()))?;
        Some(next.at)
    }

    /// Removes and returns the first entry.
    #[inline]
    pub fn take(&mut self) -> Option<(Time, T)> {
        if let Some(first) = self.first.take() {
            return Some((first.at, first.what));
        }
        let is_added = self.near.peek() > self.sorted.front();
        let entry = if is_added { self.near.pop() } else { self.sorted.pop_front() }?;
        if self.sorted.is_empty() && self.near.is_empty() {
            self.refill();
        }
        Some((entry.at, entry.what))
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        let near = usize::from(self.first.is_some()) + self.sorted.len() + self.near.len();
        near + self.year.entries + self.far.len()
    }

    /// Returns whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.next_at().is_none()
    }

    fn add_later(&mut self, entry: Entry<T>) {
        if self.near_end.is_none_or(|end| entry.at < end) {
            self.near.push(entry);
            if self.near.len() > self.near_most {
                self.lay_out();
            }
        } else {
            match self.year.span.place(entry.at) {
                Some(place) => self.year.add(place, entry),
                None => self.far.push(entry),
            }
        }
    }

    /// Fills the empty near future: from the next bucket, or else from a new year.
    fn refill(&mut self) {
        if self.year.entries == 0 && self.far.len() >= FEW {
            self.begin_year();
        }
        let mut bucket = std::mem::take(&mut self.sorted).into();
        self.near_end = self.year.take_bucket(&mut bucket);
        if self.near_end.is_none() {
            // Few are left, or the bucket ends with time itself.
            self.year.drain_into(&mut bucket);
            bucket.append(&mut self.far);
        }
        bucket.sort_unstable_by_key(Entry::key);
        self.sorted = bucket.into();
        // A crowd of one instant stays one: it is laid out again only after it has doubled.
        self.near_most = CROWD.max(2 * self.sorted.len());
    }

    /// Lays out all entries again, in narrower buckets: a crowd has gathered in the heap.
    fn lay_out(&mut self) {
        self.far.extend(self.sorted.drain(..).chain(self.near.drain()));
        self.year.drain_into(&mut self.far);
        self.refill();
    }

    /// Begins a year with the first entries of `far`: half of them or more.
    fn begin_year(&mut self) {
        let half = self.far.len() / 2;
        let (before, middle, _) = self.far.select_nth_unstable_by_key(half, |entry| entry.at);
        let begin = before.iter().map(|entry| entry.at).min().unwrap_or(middle.at);
        self.year.begin(begin, middle.at, half);
        let span = self.year.span;
        for entry in self.far.extract_if(.., |entry| span.place(entry.at).is_some()) {
            if let Some(place) = span.place(entry.at) {
                self.year.add(place, entry);
            }
        }
    }
}

/// Buckets of equal width.
#[derive(Debug)]
struct Year<T> {
    buckets: Vec<Vec<Entry<T>>>,
    span: Span,
    entries: usize,
}

/// What times the buckets hold, from the next one on.
#[derive(Debug, Clone, Copy, Default)]
struct Span {
    /// Begin of the first bucket.
    begin: Time,
    /// A bucket is 2^width picoseconds wide.
    width: u32,
    /// The next bucket; those before it are over.
    next: usize,
    buckets: usize,
}

impl Span {
    /// Returns the bucket of the time `at`, if it is not over.
    fn place(&self, at: Time) -> Option<usize> {
        let place = at.checked_sub(self.begin)? >> self.width;
        (place >= self.next as Time && place < self.buckets as Time).then_some(place as usize)
    }
}

impl<T> Default for Year<T> {
    fn default() -> Self {
        Year { buckets: Vec::new(), span: Span::default(), entries: 0 }
    }
}

impl<T> Year<T> {
    /// Makes empty buckets for `entries` entries from `begin` to `end`, and as many after that.
    fn begin(&mut self, begin: Time, end: Time, entries: usize) {
        let buckets = (entries / 2).next_power_of_two().clamp(2, BUCKETS_MAX);
        let apart = (end - begin) / (buckets as Time / 2);
        self.buckets.resize_with(buckets, Vec::new);
        self.span = Span { begin, width: Time::BITS - apart.leading_zeros(), next: 0, buckets };
    }

    fn add(&mut self, place: usize, entry: Entry<T>) {
        self.buckets[place].push(entry);
        self.entries += 1;
    }

    /// Moves the next bucket with entries to `all`, which is empty, and returns its end, if there are both.
    fn take_bucket(&mut self, all: &mut Vec<Entry<T>>) -> Option<Time> {
        if self.entries == 0 {
            return None;
        }
        let Span { begin, width, next, .. } = self.span;
        let place = next + self.buckets.get(next..)?.iter().position(|bucket| !bucket.is_empty())?;
        // The memory of the empty `all` is the bucket's from now on.
        std::mem::swap(&mut self.buckets[place], all);
        self.entries -= all.len();
        self.span.next = place + 1;
        begin.checked_add((place as Time + 1).checked_mul(1 << width)?)
    }

    fn drain_into(&mut self, all: &mut Vec<Entry<T>>) {
        if self.entries > 0 {
            self.buckets.iter_mut().for_each(|bucket| all.append(bucket));
            self.entries = 0;
        }
    }
}

impl<T> Entry<T> {
    fn key(&self) -> (Time, u64) {
        (self.at, self.order)
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap gives its largest: the earliest must be that.
        other.key().cmp(&self.key())
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Entry<T> {}

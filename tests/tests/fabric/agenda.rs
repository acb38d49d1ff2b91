//! The calendar of the mock's engine gives the same events in the same order as a binary heap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fpga_mock::engine::{Agenda, Time};
use proptest::prelude::*;

/// Distances of new events from the present, as fabrics have them: cycles, transfers, delays, and the longest there are.
fn distance() -> impl Strategy<Value = Time> {
    prop_oneof![
        2 => Just(0),
        8 => (0..100_u64).prop_map(|cycles| Time::from(cycles * 5_000)),
        8 => (0..50_000_000_u64).prop_map(Time::from),
        2 => any::<u64>().prop_map(Time::from),
        1 => (0..120_u32).prop_map(|shift| 1 << shift),
        1 => Just(Time::MAX),
    ]
}

/// What happens: so many events are added at about this distance, and so many are taken.
#[derive(Debug, Clone)]
struct Round {
    distances: Vec<Time>,
    /// Each distance is used so many times, a little further each time.
    copies: usize,
    apart: Time,
    taken: usize,
}

fn round() -> impl Strategy<Value = Round> {
    let apart = prop_oneof![Just(0), Just(1), Just(5_000), Just(1_000_003)];
    (prop::collection::vec(distance(), 0..30), 1..40_usize, apart, 0..1_500_usize)
        .prop_map(|(distances, copies, apart, taken)| Round { distances, copies, apart, taken })
}

/// The agenda beside its model.
#[derive(Default)]
struct Both {
    agenda: Agenda<u64>,
    model: BinaryHeap<Reverse<(Time, u64)>>,
    added: u64,
    now: Time,
}

impl Both {
    fn add(&mut self, at: Time) {
        self.added += 1;
        self.agenda.add(at, self.added);
        self.model.push(Reverse((at, self.added)));
    }

    /// Takes the next event of both.
    fn take(&mut self) -> Result<(), TestCaseError> {
        let expected = self.model.pop().map(|Reverse(event)| event);
        prop_assert_eq!(self.agenda.next_at(), expected.map(|(at, _)| at));
        prop_assert_eq!(self.agenda.take(), expected);
        self.now = expected.map_or(self.now, |(at, _)| at);
        prop_assert_eq!((self.agenda.len(), self.agenda.is_empty()), (self.model.len(), self.model.is_empty()));
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn events_come_in_the_order_of_a_heap(rounds in prop::collection::vec(round(), 1..20)) {
        let mut both = Both::default();
        for round in rounds {
            for copy in 0..round.copies {
                for distance in &round.distances {
                    both.add(both.now.saturating_add(*distance).saturating_add(round.apart * copy as Time));
                }
                // In between, as events that cause others.
                both.take()?;
            }
            for _ in 0..round.taken {
                both.take()?;
            }
        }
        while !both.model.is_empty() {
            both.take()?;
        }
        both.take()?;
    }
}

/// Many events of one instant, and of few: none is narrower than a bucket.
#[test]
fn crowds_of_one_instant_keep_their_order() {
    let mut both = Both::default();
    for round in 0..3 {
        for number in 0..20_000_u64 {
            both.add(Time::from(round * 7 + number % 3));
        }
        for _ in 0..15_000 {
            both.take().unwrap();
        }
    }
    while !both.model.is_empty() {
        both.take().unwrap();
    }
}

#[test]
fn an_event_may_be_added_before_the_last_one_taken() {
    let mut both = Both::default();
    (0..5_000).for_each(|at| both.add(1_000_000 + 17 * at));
    for at in (0..5_000).rev() {
        both.take().unwrap();
        both.add(at);
        both.take().unwrap();
    }
}

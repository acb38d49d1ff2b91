//! Go-back-N on one link: a window of flits that are kept until the other end has them, and sent again from the first one
//! that it misses.

use std::collections::VecDeque;

use crate::net::flit::Flit;

/// The sending end.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    /// Flits without acknowledgement, oldest first.
    kept: VecDeque<Flit>,
    /// Number of the oldest one.
    first: u64,
    most: usize,
}

/// The receiving end.
#[derive(Debug, Clone, Default)]
pub(crate) struct InOrder {
    /// Number of the next flit.
    next: u64,
    /// Whether the other end was told to go back to it.
    is_asked: bool,
}

/// What to tell the sending end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// All flits before this number have arrived.
    Acknowledge(u64),
    /// All flits before this number have arrived, and those from it on are to be sent again.
    GoBack(u64),
}

impl Window {
    /// Returns a window of so many flits.
    pub(crate) fn new(most: usize) -> Self {
        Window { kept: VecDeque::new(), first: 0, most }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.kept.len() < self.most
    }

    /// Keeps a flit, and returns its number.
    pub(crate) fn keep(&mut self, flit: Flit) -> u64 {
        self.kept.push_back(flit);
        self.first + self.kept.len() as u64 - 1
    }

    /// Takes an answer, and returns the flits to send again, with their numbers.
    pub(crate) fn answer(&mut self, answer: Answer) -> impl Iterator<Item = (u64, Flit)> + '_ {
        let (Answer::Acknowledge(next) | Answer::GoBack(next)) = answer;
        while self.first < next && self.kept.pop_front().is_some() {
            self.first += 1;
        }
        let again = if matches!(answer, Answer::GoBack(_)) { self.kept.len() } else { 0 };
        (self.first..).zip(self.kept.iter().copied()).take(again)
    }
}

impl InOrder {
    /// Takes a flit with this number, good or not; returns whether it is the next one, and the answer.
    pub(crate) fn take(&mut self, number: u64, is_good: bool) -> (bool, Option<Answer>) {
        if is_good && number == self.next {
            (self.next, self.is_asked) = (number + 1, false);
            return (true, Some(Answer::Acknowledge(self.next)));
        }
        // The flits behind one that is missed are under way: they are no reason to ask again. If what was asked for
        // arrives with an error too, there is one.
        let is_to_ask = !self.is_asked || (!is_good && number == self.next);
        self.is_asked = true;
        (false, is_to_ask.then_some(Answer::GoBack(self.next)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missed_is_sent_again_from_there_on() {
        let flit = Flit { word: [0; 32], is_head: true, is_tail: true, virtual_channel: 0, links: 0 };
        let mut window = Window::new(4);
        assert_eq!((0..4).map(|_| window.keep(flit)).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert!(!window.has_room());
        let mut in_order = InOrder::default();
        assert_eq!(in_order.take(0, true), (true, Some(Answer::Acknowledge(1))));
        assert_eq!(in_order.take(1, false), (false, Some(Answer::GoBack(1))));
        // Those behind it were under way.
        assert_eq!(in_order.take(2, true), (false, None));
        assert_eq!(in_order.take(3, false), (false, None));
        assert_eq!(window.answer(Answer::Acknowledge(1)).count(), 0);
        assert!(window.has_room());
        let again =
            |window: &mut Window| window.answer(Answer::GoBack(1)).map(|(number, _)| number).collect::<Vec<_>>();
        assert_eq!(again(&mut window), [1, 2, 3]);
        // It is damaged again.
        assert_eq!(in_order.take(1, false), (false, Some(Answer::GoBack(1))));
        assert_eq!(in_order.take(2, true), (false, None));
        assert_eq!(again(&mut window), [1, 2, 3]);
        assert_eq!(in_order.take(1, true), (true, Some(Answer::Acknowledge(2))));
        assert_eq!(in_order.take(2, true), (true, Some(Answer::Acknowledge(3))));
        assert_eq!(window.answer(Answer::Acknowledge(3)).count(), 0);
        assert_eq!(window.keep(flit), 4);
    }
}

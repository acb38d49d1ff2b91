//! The soonest of many times that change: a heap of four children in which each number stands once.
//!
//! A heap that keeps the times that were replaced grows with every change; of thousands of streams that share a link, each end changes
//! the times of all others.

/// Place of a number that is not in the heap.
const NOWHERE: u32 = u32::MAX;
/// Children of a place. Times change by little, so few places are passed; four children lie side by side in memory.
const CHILDREN: usize = 4;

/// Times by number.
#[derive(Debug, Default)]
pub(super) struct Soonest {
    /// Each not after its children, which stand from `4 * place + 1` on.
    heap: Vec<(u64, u32)>,
    /// By number, its place in the heap.
    places: Vec<u32>,
}

impl Soonest {
    pub(super) fn clear(&mut self) {
        self.heap.clear();
        self.places.clear();
    }

    /// Returns the soonest time, and the lowest number that has it.
    pub(super) fn peek(&self) -> Option<(u64, u32)> {
        self.heap.first().copied()
    }

    /// Sets the time of `number`.
    pub(super) fn set(&mut self, number: u32, at: u64) {
        if self.places.len() <= number as usize {
            self.places.resize(number as usize + 1, NOWHERE);
        }
        let place = match self.places[number as usize] {
            NOWHERE => {
                self.heap.push((at, number));
                self.heap.len() - 1
            }
            place => place as usize,
        };
        self.settle(place, (at, number));
    }

    /// Takes `number` out, if it is there.
    pub(super) fn remove(&mut self, number: u32) {
        let Some(place) = self.places.get_mut(number as usize).filter(|place| **place != NOWHERE) else { return };
        let place = std::mem::replace(place, NOWHERE);
        // The last one takes its place.
        if let Some(last) = self.heap.pop().filter(|last| last.1 != number) {
            self.settle(place as usize, last);
        }
    }

    /// Puts `entry` at `place`, and moves it up or down to where it belongs.
    fn settle(&mut self, mut place: usize, entry: (u64, u32)) {
        while let Some(parent) = place.checked_sub(1).map(|below| below / CHILDREN) {
            if self.heap[parent] <= entry {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        loop {
            let first = CHILDREN * place + 1;
            let children = first..self.heap.len().min(first + CHILDREN);
            let Some(least) = children.min_by_key(|child| self.heap[*child]) else { break };
            if entry <= self.heap[least] {
                break;
            }
            self.put(place, self.heap[least]);
            place = least;
        }
        self.put(place, entry);
    }

    fn put(&mut self, place: usize, entry: (u64, u32)) {
        self.heap[place] = entry;
        self.places[entry.1 as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Each change gives a number, and its new time or none.
        #[test]
        fn the_soonest_of_all_is_first(changes in vec((0..40u32, proptest::option::of(0..100u64)), 0..300)) {
            let (mut soonest, mut times) = (Soonest::default(), BTreeMap::new());
            for (number, at) in changes {
                match at {
                    Some(at) => {
                        soonest.set(number, at);
                        times.insert(number, at);
                    }
                    None => {
                        soonest.remove(number);
                        times.remove(&number);
                    }
                }
                prop_assert_eq!(soonest.peek(), times.iter().map(|(number, at)| (*at, *number)).min());
            }
            // And all others in their order.
            while let Some((at, number)) = soonest.peek() {
                prop_assert_eq!(Some((at, number)), times.iter().map(|(number, at)| (*at, *number)).min());
                times.remove(&number);
                soonest.remove(number);
            }
            prop_assert!(times.is_empty());
        }
    }
}

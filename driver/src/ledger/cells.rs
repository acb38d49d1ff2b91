//! States of completions: the one thing that a queue shares with other threads, because a token may be dropped on any.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crossbeam::utils::CachePadded;

/// Nobody uses the cell.
pub(crate) const FREE: u8 = 0;
/// The instruction is on its way, and a token waits for it.
pub(crate) const PENDING: u8 = 1;
/// The completion is there, and a token may take it.
pub(crate) const DONE: u8 = 2;
/// The instruction is on its way, and nobody waits for it.
pub(crate) const ABANDONED: u8 = 3;
/// The completion is there, and nobody will take it.
pub(crate) const RELEASED: u8 = 4;

/// An atomic byte: the standard one, or that of a model checker.
pub(crate) trait AtomicByte {
    fn new(value: u8) -> Self;
    fn load(&self, order: Ordering) -> u8;
    fn store(&self, value: u8, order: Ordering);
    fn swap(&self, value: u8, order: Ordering) -> u8;
    fn compare_exchange(&self, current: u8, new: u8, success: Ordering, failure: Ordering) -> Result<u8, u8>;
}

macro_rules! atomic_byte {
    ($atomic:ty) => {
        impl AtomicByte for $atomic {
            fn new(value: u8) -> Self {
                <$atomic>::new(value)
            }

            #[inline(always)]
            fn load(&self, order: Ordering) -> u8 {
                <$atomic>::load(self, order)
            }

            #[inline(always)]
            fn store(&self, value: u8, order: Ordering) {
                <$atomic>::store(self, value, order);
            }

            #[inline(always)]
            fn swap(&self, value: u8, order: Ordering) -> u8 {
                <$atomic>::swap(self, value, order)
            }

            #[inline(always)]
            fn compare_exchange(&self, current: u8, new: u8, success: Ordering, failure: Ordering) -> Result<u8, u8> {
                <$atomic>::compare_exchange(self, current, new, success, failure)
            }
        }
    };
}

atomic_byte!(AtomicU8);

/// States of a queue's cells, shared with its tokens. A token changes one only when it is dropped.
///
/// A cell goes from [`FREE`] to [`PENDING`] and, by whoever comes first, the queue with the completion or the token that is
/// dropped, to [`DONE`] or [`ABANDONED`]; then back to [`FREE`], from [`DONE`] by way of [`RELEASED`] if the token was not
/// given back to the queue. So each cell is freed once.
#[derive(Debug)]
pub(crate) struct Cells<A = AtomicU8> {
    states: Box<[A]>,
    /// 1 if a cell was [`RELEASED`] since the queue looked.
    released: CachePadded<A>,
}

impl<A: AtomicByte> Cells<A> {
    pub(crate) fn new(count: usize) -> Arc<Self> {
        let states = (0..count).map(|_| A::new(FREE)).collect();
        Arc::new(Cells { states, released: CachePadded::new(A::new(0)) })
    }

    pub(crate) fn state(&self, cell: u32) -> u8 {
        self.states[cell as usize].load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, cell: u32, state: u8) {
        self.states[cell as usize].store(state, Ordering::Release);
    }

    /// Notes that the completion has come, and returns whether a token waits for it. If none does, the cell is free.
    pub(crate) fn complete(&self, cell: u32) -> bool {
        let state = &self.states[cell as usize];
        if state.compare_exchange(PENDING, DONE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return true;
        }
        state.store(FREE, Ordering::Release);
        false
    }

    /// Notes that the token is dropped.
    pub(crate) fn abandon(&self, cell: u32) {
        let state = &self.states[cell as usize];
        if state.compare_exchange(PENDING, ABANDONED, Ordering::AcqRel, Ordering::Acquire).is_err() {
            state.store(RELEASED, Ordering::Release);
            // A store would do, but the model of the tests orders it with no exchange.
            self.released.swap(1, Ordering::AcqRel);
        }
    }

    /// Frees the cells of tokens that were dropped after their completion had come, and passes each to `free`.
    #[inline(never)]
    pub(crate) fn reclaim(&self, mut free: impl FnMut(u32)) {
        if !self.take_released() {
            return;
        }
        for cell in 0..self.states.len() as u32 {
            if self.state(cell) == RELEASED {
                self.set(cell, FREE);
                free(cell);
            }
        }
    }

    /// Whether there are cells to free; forgets that there are.
    fn take_released(&self) -> bool {
        self.released.swap(0, Ordering::AcqRel) != 0
    }
}

/// Puts `cell` behind the free cells of the ring `cells`, of which there were `freed`.
#[inline]
pub(crate) fn free(cells: &mut [u32], freed: &mut u32, cell: u32) {
    let place = *freed as usize & (cells.len() - 1);
    cells[place] = cell;
    *freed = freed.wrapping_add(1);
}

#[cfg(test)]
mod tests {
    use loom::sync::atomic::AtomicU8;
    use loom::thread;

    use super::*;

    atomic_byte!(AtomicU8);

    /// The queue's part: the completion of each cell comes, and what is released is freed. Returns the cells freed.
    fn complete_all(cells: &Cells<AtomicU8>, count: u32) -> Vec<u32> {
        let mut free = Vec::new();
        for cell in 0..count {
            if !cells.complete(cell) {
                free.push(cell);
            }
            cells.reclaim(|cell| free.push(cell));
        }
        free
    }

    #[test]
    fn a_cell_is_freed_once_whenever_its_token_is_dropped() {
        for count in [1, 2] {
            loom::model(move || {
                let cells = Cells::<AtomicU8>::new(count as usize);
                (0..count).for_each(|cell| cells.set(cell, PENDING));
                let shared = Arc::clone(&cells);
                let dropping = thread::spawn(move || (0..count).rev().for_each(|cell| shared.abandon(cell)));
                let mut free = complete_all(&cells, count);
                dropping.join().unwrap();
                cells.reclaim(|cell| free.push(cell));
                free.sort_unstable();
                assert_eq!(free, (0..count).collect::<Vec<_>>());
                assert!((0..count).all(|cell| cells.state(cell) == FREE));
            });
        }
    }

    #[test]
    fn tokens_dropped_on_two_threads_lose_no_cell() {
        loom::model(|| {
            let cells = Cells::<AtomicU8>::new(2);
            (0..2).for_each(|cell| cells.set(cell, PENDING));
            let dropping = [0, 1].map(|cell| {
                let shared = Arc::clone(&cells);
                thread::spawn(move || shared.abandon(cell))
            });
            let mut free = complete_all(&cells, 2);
            dropping.into_iter().for_each(|thread| thread.join().unwrap());
            cells.reclaim(|cell| free.push(cell));
            free.sort_unstable();
            assert_eq!(free, [0, 1]);
        });
    }
}

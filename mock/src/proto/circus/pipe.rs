//! The pipeline of a module: what is put in comes out a fixed number of cycles later, one item a cycle.

use std::collections::VecDeque;

use crate::engine::Cycle;

#[derive(Debug)]
pub(crate) struct Pipe<T> {
    latency: u64,
    /// With the cycle in which each comes out.
    items: VecDeque<(Cycle, T)>,
}

impl<T> Pipe<T> {
    pub(crate) fn new(latency: u64) -> Self {
        Pipe { latency, items: VecDeque::new() }
    }

    /// Returns whether an item can be put in: the pipeline stands still while its end is not taken.
    pub(crate) fn has_room(&self) -> bool {
        self.items.len() as u64 <= self.latency
    }

    pub(crate) fn put(&mut self, cycle: Cycle, item: T) {
        self.items.push_back((cycle + Cycle::from(self.latency), item));
    }

    /// Takes the item at the end of the pipeline, if one is there.
    pub(crate) fn take(&mut self, cycle: Cycle) -> Option<T> {
        let is_there = self.items.front().is_some_and(|item| item.0 <= cycle);
        if is_there { self.items.pop_front().map(|item| item.1) } else { None }
    }

    /// Returns when the first item comes out, if that is after `cycle`.
    pub(crate) fn next(&self, cycle: Cycle) -> Option<Cycle> {
        self.items.front().map(|item| item.0).filter(|at| *at > cycle)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

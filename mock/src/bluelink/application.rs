//! Applications that a board runs itself, each on a channel.

use super::address::Target;
use super::memory_unit::MemoryUnit;
use super::pipe_unit::PipeUnit;

/// An application on a channel of a board.
#[derive(Debug)]
pub(super) enum Application {
    Memory(MemoryUnit),
    Pipe(PipeUnit),
}

impl Application {
    pub(super) fn channel(&self) -> usize {
        match self {
            Application::Memory(unit) => unit.channel(),
            Application::Pipe(unit) => unit.channel(),
        }
    }

    /// Returns whether it takes a flit now.
    pub(super) fn has_room(&self) -> bool {
        match self {
            Application::Memory(unit) => unit.is_idle(),
            Application::Pipe(_) => true,
        }
    }

    /// Takes a flit.
    pub(super) fn push(&mut self, flit: u64) {
        match self {
            Application::Memory(unit) => unit.push(flit),
            Application::Pipe(unit) => unit.push(flit),
        }
    }

    /// Returns whether it works in the next cycle without a flit.
    pub(super) fn is_running(&self) -> bool {
        match self {
            Application::Memory(unit) => unit.is_running(),
            Application::Pipe(_) => false,
        }
    }

    /// Works for a cycle.
    pub(super) fn run(&mut self) {
        match self {
            Application::Memory(unit) => unit.run(),
            Application::Pipe(_) => {}
        }
    }

    /// Returns the flit that it has for another channel.
    pub(super) fn peek(&self) -> Option<(Target, u64)> {
        match self {
            Application::Memory(unit) => unit.peek(),
            Application::Pipe(unit) => unit.peek(),
        }
    }

    /// Removes the flit that [`Application::peek`] returns.
    pub(super) fn pop(&mut self) {
        match self {
            Application::Memory(unit) => unit.pop(),
            Application::Pipe(unit) => unit.pop(),
        }
    }

    /// The board is configured again. Returns whether the application is still there: a memory is, with its bytes.
    pub(super) fn restart(&mut self) -> bool {
        match self {
            Application::Memory(unit) => {
                unit.restart();
                true
            }
            Application::Pipe(_) => false,
        }
    }
}

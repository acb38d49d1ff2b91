//! Faults that tests plant.

/// A fault of an engine. Each happens once, [`Slow`](Fault::Slow) excepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A master gets an error for its next access.
    Error,
    /// The next transfer ends early, as a stream's packet would end it.
    EarlyTermination,
    /// The next access is never answered, and a reset of the dispatcher does not end it.
    Unanswered,
    /// Each descriptor begins only after so many reads of STATUS, from now on.
    Slow(u32),
    /// The next write of host memory is lost.
    LostWrite,
}

/// The faults that are to happen. They outlast a reset of the dispatcher; one of the function or of the accelerator drops them.
#[derive(Debug, Default)]
pub(super) struct Planted {
    faults: Vec<Fault>,
    pub(super) slow: u32,
}

impl Planted {
    pub(super) fn plant(&mut self, fault: Fault) {
        match fault {
            Fault::Slow(reads) => self.slow = reads,
            fault => self.faults.push(fault),
        }
    }

    /// Returns whether `fault` happens now. It does not happen again.
    pub(super) fn take(&mut self, fault: Fault) -> bool {
        let place = self.faults.iter().position(|planted| *planted == fault);
        place.map(|place| self.faults.remove(place)).is_some()
    }
}

//! Answers of the bus that tests plant.

use fpga_regs::xdma::Status;

/// How the bus can answer a read otherwise than with data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misanswer {
    /// Nobody has the address: an unsupported request.
    Unsupported,
    /// The completer aborted.
    Aborted,
    /// A parity error in the data.
    Parity,
    /// The data is marked as poisoned.
    Poisoned,
    /// The completion has a wrong tag.
    Unexpected,
}

impl Misanswer {
    pub(super) fn of_data(self) -> Status {
        match self {
            Misanswer::Unsupported => Status::READ_ERROR_0,
            Misanswer::Aborted => Status::READ_ERROR_1,
            Misanswer::Parity => Status::READ_ERROR_2,
            Misanswer::Poisoned => Status::READ_ERROR_3,
            Misanswer::Unexpected => Status::READ_ERROR_4,
        }
    }

    pub(super) fn of_descriptors(self) -> Status {
        match self {
            Misanswer::Unsupported => Status::DESCRIPTOR_ERROR_0,
            Misanswer::Aborted => Status::DESCRIPTOR_ERROR_1,
            Misanswer::Parity => Status::DESCRIPTOR_ERROR_2,
            Misanswer::Poisoned => Status::DESCRIPTOR_ERROR_3,
            Misanswer::Unexpected => Status::DESCRIPTOR_ERROR_4,
        }
    }
}

/// Reads whose answer a test plants: how many come before, and the answer.
#[derive(Debug, Default)]
pub(super) struct Misanswers {
    planted: Vec<(u32, Misanswer)>,
}

impl Misanswers {
    pub(super) fn plant(&mut self, before: u32, misanswer: Misanswer) {
        self.planted.push((before, misanswer));
    }

    /// Counts a read, and returns its answer if one was planted.
    pub(super) fn next(&mut self) -> Option<Misanswer> {
        let due = self.planted.iter().position(|(before, _)| *before == 0);
        self.planted.iter_mut().for_each(|(before, _)| *before = before.saturating_sub(1));
        due.map(|place| self.planted.remove(place).1)
    }
}

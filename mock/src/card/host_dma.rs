//! The jobs of all cards on host memory, and their requests.

use std::collections::VecDeque;

use fpga_hal::endpoint::DmaTag;

use crate::card::host_jobs::{Active, Misanswer};
use crate::card::split::Split;
use crate::net::noise::Dice;

/// Waiting jobs, and those with outstanding requests.
#[derive(Debug, Default)]
pub(crate) struct HostDma {
    pub(crate) waiting: VecDeque<Active>,
    /// The job whose request is pending, if requests are made one at a time.
    pub(crate) outstanding: Option<Active>,
    /// The jobs at work, if requests are split.
    pub(crate) split: Vec<Split>,
    /// Jobs of which a read is never answered, each with a number.
    pub(crate) unanswered: Vec<(u64, Active)>,
    /// Planted faults: the card, the number of its reads before, and what becomes of the next.
    pub(crate) misanswers: Vec<(usize, u64, Misanswer)>,
    /// Chooses which request is answered next.
    pub(crate) dice: Dice,
    /// Number of the last job in `unanswered`.
    left: u64,
    /// Tag of the last request.
    tag: u64,
    /// Buffer of the last job, for the next.
    pub(crate) spare: Vec<u8>,
}

impl HostDma {
    /// Without jobs. Choices are drawn from `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        HostDma { dice: Dice::new(seed), ..HostDma::default() }
    }

    pub(crate) fn next_tag(&mut self) -> DmaTag {
        self.tag = self.tag.wrapping_add(1);
        DmaTag(self.tag)
    }

    /// Keeps a job of which a read is never answered, and returns its number.
    pub(crate) fn leave_unanswered(&mut self, active: Active) -> u64 {
        self.left += 1;
        self.unanswered.push((self.left, active));
        self.left
    }

    /// Whether `tag` is that of the last request.
    pub(crate) fn is_last(&self, tag: DmaTag) -> bool {
        tag.0 == self.tag
    }

    /// All jobs, without those that wait for an answer that never comes.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = &Active> {
        let split = self.split.iter().map(|split| &split.active);
        self.waiting.iter().chain(&self.outstanding).chain(split)
    }

    /// Counts a read of the card, and returns what becomes of it if it is not answered with data.
    pub(crate) fn misanswer(&mut self, card: usize) -> Option<Misanswer> {
        let mut due = None;
        self.misanswers.retain_mut(|(of, before, what)| {
            if *of != card {
                return true;
            }
            if *before == 0 && due.is_none() {
                due = Some(*what);
                return false;
            }
            *before = before.saturating_sub(1);
            true
        });
        due
    }
}

//! Programs tick by tick: what one tick has in different lanes may run at once, and the next tick waits for all of it.

use crate::plan::draft::Draft;
use crate::program::Communicator;
use crate::request::Request;
use crate::{Flags, Instruction};

/// Programs being made.
pub(super) struct Ticks {
    pub(super) draft: Draft,
    /// Ranks that have an instruction in this tick.
    has_begun: Vec<bool>,
}

impl Ticks {
    pub(super) fn new(request: &Request, communicators: Vec<Communicator>) -> Self {
        let draft = Draft { communicators, ..Draft::empty(request) };
        Ticks { has_begun: vec![false; draft.programs.len()], draft }
    }

    /// Begins the next tick.
    pub(super) fn next(&mut self) {
        self.has_begun.fill(false);
    }

    /// Appends instructions of the first lanes to the program of `rank`, one of each by turns.
    pub(super) fn by_turns(&mut self, rank: u32, lanes: impl Iterator<Item = Vec<Instruction>>) {
        let lanes: Vec<Vec<Instruction>> = lanes.collect();
        for turn in 0..lanes.iter().map(Vec::len).max().unwrap_or(0) {
            for (lane, instruction) in (0..).zip(lanes.iter().map(|instructions| instructions.get(turn))) {
                instruction.into_iter().for_each(|instruction| self.push(rank, lane, *instruction));
            }
        }
    }

    /// Appends an instruction to the program of `rank`.
    pub(super) fn push(&mut self, rank: u32, lane: u8, instruction: Instruction) {
        let place = rank as usize;
        let (Some(program), Some(has_begun)) = (self.draft.programs.get_mut(place), self.has_begun.get_mut(place))
        else {
            return;
        };
        let mut one = instruction.in_lane(lane);
        if !std::mem::replace(has_begun, true) {
            one.flags |= Flags::FENCE;
        }
        program.instructions.push(one);
    }
}

//! A running resident program: what comes next, and the totals of what has ended.

use cmdseq::completion::Status;
use cmdseq::instruction::ARGUMENTS;
use cmdseq::{Flags, Instruction, Operation};

use super::Refusal;
use super::in_flight::Ended;
use crate::engine::Time;
use crate::fabric::{Core, Step};
use crate::lanes::LaneId;

/// A running resident program.
#[derive(Debug)]
pub(super) struct Launch {
    tag: u16,
    flags: Flags,
    pub(super) slot: usize,
    next: usize,
    rounds: Option<Rounds>,
    arguments: [u64; ARGUMENTS],
    issued: Time,
    counted_out: Time,
    ended: Time,
    arrival: Option<Time>,
    bytes: u64,
    /// An instruction failed: no further one is issued.
    pub(super) has_failed: bool,
}

/// A running loop of a resident program.
#[derive(Debug)]
struct Rounds {
    /// Index of the loop's first instruction, and the index after its last.
    first: usize,
    end: usize,
    left: u16,
    /// The launch argument that each round increments, and the increment.
    moves: Option<(u8, u64)>,
}

/// An instruction of a resident program, to be issued.
pub(super) struct Upcoming {
    pub(super) instruction: Instruction,
    /// Index in the program.
    pub(super) place: usize,
    /// It is the first of a further round.
    pub(super) turns: bool,
}

impl Launch {
    fn new(instruction: &Instruction, slot: usize, now: Time) -> Self {
        Launch {
            tag: instruction.tag,
            flags: instruction.flags,
            slot,
            next: 0,
            rounds: None,
            arguments: [instruction.source.address, instruction.destination.address, instruction.bytes],
            issued: now,
            counted_out: now,
            ended: now,
            arrival: None,
            bytes: 0,
            has_failed: false,
        }
    }

    /// Takes the next instruction of `program`; `None` after the last.
    pub(super) fn take(&mut self, program: &[Instruction]) -> Option<Upcoming> {
        if self.has_failed {
            return None;
        }
        let turns = self.turn();
        let place = self.next;
        let instruction = program.get(place)?.with_arguments(&self.arguments);
        self.next += 1;
        Some(Upcoming { instruction, place, turns })
    }

    /// Ends a round. Returns whether another round follows.
    fn turn(&mut self) -> bool {
        let Some(rounds) = self.rounds.as_mut().filter(|rounds| rounds.end == self.next) else { return false };
        if let Some((argument, by)) = rounds.moves
            && let Some(value) = self.arguments.get_mut(usize::from(argument))
        {
            *value = value.wrapping_add(by);
        }
        rounds.left = rounds.left.saturating_sub(1);
        if rounds.left == 0 {
            self.rounds = None;
            return false;
        }
        self.next = rounds.first;
        true
    }

    /// Returns the index of the next instruction of a program of `length` instructions; `None` after the last.
    pub(super) fn next_place(&self, length: usize) -> Option<usize> {
        let another = self.rounds.as_ref().filter(|rounds| rounds.end == self.next && rounds.left > 1);
        another.map(|rounds| rounds.first).or_else(|| (self.next < length).then_some(self.next))
    }

    /// Adds an instruction to the totals.
    pub(super) fn add(&mut self, ended: &Ended) {
        self.counted_out = self.counted_out.max(ended.counted_out);
        self.ended = self.ended.max(ended.ended);
        self.arrival = self.arrival.max(ended.arrival);
        self.bytes = self.bytes.saturating_add(ended.bytes);
    }

    /// Returns the end of the program, with the status and detail of its completion.
    pub(super) fn over(self, (status, detail): Refusal) -> Ended {
        let Launch { tag, flags, issued, counted_out, ended, arrival, bytes, .. } = self;
        Ended { tag, flags, issued, counted_out, ended, arrival, bytes, status, detail, place: 0 }
    }
}

impl Core {
    pub(super) fn begin_launch(&mut self, at: LaneId, instruction: &Instruction) -> Result<(), Refusal> {
        let slot = self.resident_slot(at.card, instruction.extent)?;
        let now = self.now;
        let card = &mut self.cards[at.card];
        if card.resident[slot].is_empty() {
            return Err((Status::BadProgram, 0));
        }
        // The instructions of the program take the place of the launch.
        card.lanes[at.lane].running = None;
        card.sequencer.in_flight.take_back();
        card.sequencer.is_fenced = true;
        card.sequencer.launch = Some(Launch::new(instruction, slot, now));
        Ok(())
    }

    /// Dispatches the loop: each round begins with a dispatch.
    pub(super) fn begin_loop(&mut self, at: LaneId, instruction: &Instruction) -> Result<(), Refusal> {
        let dispatch = self.profile.cycles(self.profile.dispatch_cycles);
        let moves = instruction.extent_argument.map(|argument| (argument, instruction.extent));
        let launch = self.cards[at.card].sequencer.launch.as_mut();
        // Only a stored program has following instructions to return to.
        let launch = launch.ok_or((Status::BadOperation, Operation::Loop as u16))?;
        let end = launch.next + usize::from(instruction.loop_body);
        launch.rounds = Some(Rounds { first: launch.next, end, left: instruction.loop_count, moves });
        self.schedule_step(at, dispatch, Step::Finish);
        Ok(())
    }
}

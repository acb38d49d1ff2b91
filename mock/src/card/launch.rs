//! A running resident program: what comes next, and the totals of what has ended.

use cmdseq::instruction::ARGUMENTS;
use cmdseq::{Flags, Instruction};

use crate::card::in_flight::Ended;
use crate::engine::Time;
use crate::proto::refusal::Refusal;

/// A running resident program.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) tag: u16,
    pub(crate) flags: Flags,
    /// Life of the queue in which it was issued.
    pub(crate) life: u32,
    pub(crate) slot: usize,
    pub(crate) next: usize,
    pub(crate) rounds: Option<Rounds>,
    pub(crate) arguments: [u64; ARGUMENTS],
    pub(crate) issued: Time,
    pub(crate) counted_out: Time,
    pub(crate) ended: Time,
    pub(crate) arrival: Option<Time>,
    pub(crate) bytes: u64,
    /// An instruction failed: no further one is issued.
    pub(crate) has_failed: bool,
}

/// A running loop of a resident program.
#[derive(Debug)]
pub(crate) struct Rounds {
    /// Index of the loop's first instruction, and the index after its last.
    pub(crate) first: usize,
    pub(crate) end: usize,
    pub(crate) left: u16,
    /// The launch argument that each round increments, and the increment.
    pub(crate) moves: Option<(u8, u64)>,
}

/// An instruction of a resident program, to be issued.
pub(crate) struct Upcoming {
    pub(crate) instruction: Instruction,
    /// Index in the program.
    pub(crate) place: usize,
    /// It is the first of a further round.
    pub(crate) turns: bool,
}

impl Launch {
    pub(crate) fn new(instruction: &Instruction, slot: usize, now: Time, life: u32) -> Self {
        Launch {
            tag: instruction.tag,
            flags: instruction.flags,
            life,
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
    pub(crate) fn take(&mut self, program: &[Instruction]) -> Option<Upcoming> {
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
    pub(crate) fn turn(&mut self) -> bool {
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
    pub(crate) fn next_place(&self, length: usize) -> Option<usize> {
        let another = self.rounds.as_ref().filter(|rounds| rounds.end == self.next && rounds.left > 1);
        another.map(|rounds| rounds.first).or_else(|| (self.next < length).then_some(self.next))
    }

    /// Adds an instruction to the totals.
    pub(crate) fn add(&mut self, ended: &Ended) {
        self.counted_out = self.counted_out.max(ended.counted_out);
        self.ended = self.ended.max(ended.ended);
        self.arrival = self.arrival.max(ended.arrival);
        self.bytes = self.bytes.saturating_add(ended.bytes);
    }

    /// Returns the end of the program, with the status and detail of its completion.
    pub(crate) fn over(self, (status, detail): Refusal) -> Ended {
        let Launch { tag, flags, life, issued, counted_out, ended, arrival, bytes, .. } = self;
        Ended { tag, flags, life, issued, counted_out, ended, arrival, bytes, status, detail, place: 0 }
    }
}

//! The command sequencer: fetches instructions, runs them one after another, writes completions.

use std::collections::VecDeque;

use cmdseq::completion::{Completion, OUT_OF_MEMORY, Status};
use cmdseq::instruction::{self, ARGUMENTS, offset};
use cmdseq::table::ENTRY_BYTES;
use cmdseq::{DecodeError, Flags, Instruction, Operation};
use fpga_regs::bits::Errors;

use crate::agenda::Time;
use crate::card::RESIDENT_WORDS;
use crate::fabric::{Core, Event, Step};
use crate::host_dma::Job;
use crate::inbound::Inbound;
use crate::memory::{CardMemory, MemoryError};
use crate::rdma::Rdma;
use crate::signals::Signal;
use crate::stored::table_slot;
use crate::switch::{Barrier, Transfer};

/// Longest delay an instruction may ask for, in cycles: close to six minutes at 200 MHz.
const DELAY_MAX: u64 = 1 << 36;

/// Arguments of a call to user logic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserCall {
    /// Card address of the input.
    pub source: u64,
    /// Card address of the output.
    pub destination: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// The instruction's extent, with a meaning defined by the logic.
    pub extent: u64,
}

/// User logic at the changeover switch. It has exclusive access to the card memory while it runs.
pub trait UserLogic: Send {
    /// Runs on `memory`, and returns the cycles used.
    ///
    /// # Errors
    /// The status that the instruction ends with.
    fn run(&mut self, memory: &mut CardMemory, call: UserCall) -> Result<u64, Status>;
}

/// State of the sequencer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    /// Idle.
    #[default]
    Idle,
    /// Instructions are being fetched.
    Fetching,
    /// The next issue is scheduled.
    Issuing,
    /// An instruction runs.
    Running,
    /// A completion is being written.
    Completing,
}

/// State between instructions.
#[derive(Debug, Default)]
pub(crate) struct Sequencer {
    pub(crate) prefetched: VecDeque<[u8; instruction::BYTES]>,
    pub(crate) may_run: bool,
    pub(crate) is_halted: bool,
    pub(crate) retired: u64,
    stage: Stage,
    /// Earliest time of the next issue.
    ready_at: Time,
    launch: Option<Launch>,
}

impl Sequencer {
    pub(crate) fn is_busy(&self) -> bool {
        self.stage != Stage::Idle
    }
}

/// A running resident program.
#[derive(Debug)]
struct Launch {
    tag: u16,
    flags: Flags,
    slot: usize,
    next: usize,
    rounds: Option<Rounds>,
    arguments: [u64; ARGUMENTS],
    issued: Time,
    arrival: Option<Time>,
    bytes: u64,
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

impl Launch {
    /// Counts an instruction. Returns whether it was the last of a round and another round follows.
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
}

/// The instruction being run.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) instruction: Instruction,
    /// When it was issued, and when its last beat was counted out: picoseconds of the fabric's time.
    pub(crate) issued: Time,
    pub(crate) counted_out: Time,
    /// When the last byte for this card was counted in.
    pub(crate) arrival: Option<Time>,
    pub(crate) bytes: u64,
    pub(crate) status: Status,
    pub(crate) detail: u16,
    pub(crate) work: Work,
}

impl Running {
    pub(crate) fn begun(instruction: Instruction, now: Time) -> Self {
        Running {
            instruction,
            issued: now,
            counted_out: now,
            arrival: None,
            bytes: 0,
            status: Status::Done,
            detail: 0,
            work: Work::Timed,
        }
    }
}

/// Rest of the instruction's work.
#[derive(Debug)]
pub(crate) enum Work {
    /// Only time.
    Timed,
    /// Signals from all ranks.
    Barrier(Barrier),
    /// Blocks out and in.
    Transfer(Box<Transfer>),
    /// A one-sided transfer.
    Rdma(Rdma),
    /// A signal of this card, checked after it is read.
    Signal { signal: Signal, is_read: bool },
    /// A stream within the card's own memory.
    Local { source: Option<u64>, destination: u64 },
    /// A table in host memory.
    HostTable,
    /// A copy from or to host memory, with the bytes done.
    HostCopy { done: u64 },
}

/// Refusal of an instruction: status and detail of its completion.
pub(crate) type Refusal = (Status, u16);

impl Core {
    /// Continues with the card's queue if an instruction is available and the sequencer may run.
    pub(crate) fn kick(&mut self, index: usize) {
        const QUEUE: usize = 0;
        let card = &mut self.cards[index];
        let sequencer = &card.sequencer;
        if sequencer.is_busy() || !sequencer.may_run || sequencer.is_halted || card.is_frozen {
            return;
        }
        let in_launch = sequencer.launch.is_some();
        if in_launch || (!sequencer.prefetched.is_empty() && card.rings[QUEUE].has_room()) {
            card.sequencer.stage = Stage::Issuing;
            let epoch = card.epoch;
            let at = card.sequencer.ready_at.max(self.now).next_multiple_of(self.profile.cycle_ps.into());
            self.schedule(at, Event::Issue { card: index, epoch });
        } else if card.sequencer.prefetched.is_empty() && card.rings[QUEUE].next_fetch(1).is_some() {
            card.sequencer.stage = Stage::Fetching;
            self.push_host_job(index, Job::Fetch { queue: QUEUE });
        }
    }

    /// Takes the instructions of a fetch.
    pub(crate) fn fetched(&mut self, index: usize, queue: usize, words: &[u8], went_well: bool) {
        if !went_well {
            return self.halt(index, Errors::FETCH_FAULT);
        }
        let card = &mut self.cards[index];
        let (words, _) = words.as_chunks::<{ instruction::BYTES }>();
        card.rings[queue].fetched(words.len() as u32);
        card.prefetched().extend(words);
        card.sequencer.stage = Stage::Idle;
        self.kick(index);
    }

    /// The queue was disabled during a fetch or the write of a completion.
    pub(crate) fn queue_changed(&mut self, index: usize) {
        self.cards[index].sequencer.stage = Stage::Idle;
        self.kick(index);
    }

    /// Halts the sequencer until the host clears the error.
    pub(crate) fn halt(&mut self, index: usize, why: Errors) {
        let card = &mut self.cards[index];
        card.errors |= why;
        card.sequencer.is_halted = true;
        card.sequencer.may_run = false;
        card.sequencer.stage = Stage::Idle;
    }

    /// Issues the next instruction, now.
    pub(crate) fn issue(&mut self, index: usize) {
        let card = &mut self.cards[index];
        card.sequencer.stage = Stage::Running;
        let (instruction, unreadable) = match &mut card.sequencer.launch {
            Some(launch) => {
                let instruction = card.resident.get(launch.slot).and_then(|program| program.get(launch.next));
                launch.next += 1;
                match instruction {
                    Some(instruction) => (instruction.with_arguments(&launch.arguments), None),
                    None => (Instruction::nop(), Some((Status::BadProgram, 0))),
                }
            }
            None => {
                let Some(word) = card.sequencer.prefetched.pop_front() else {
                    card.sequencer.stage = Stage::Idle;
                    return;
                };
                match Instruction::decode(&word) {
                    Ok(instruction) => (instruction, None),
                    // An invalid instruction still gets a completion, with the tag it seems to have.
                    Err(error) => {
                        let tag = u16::from_le_bytes([word[offset::TAG], word[offset::TAG + 1]]);
                        (Instruction::nop().with_tag(tag), Some(refusal(error)))
                    }
                }
            }
        };
        card.running = Some(Running::begun(instruction, self.now));
        let begun = unreadable.map_or_else(|| self.begin(index, &instruction), Err);
        if let Err((status, detail)) = begun {
            self.fail_after(index, status, detail, self.profile.cycles(self.profile.dispatch_cycles));
        }
    }

    pub(crate) fn fail_after(&mut self, index: usize, status: Status, detail: u16, delay: u64) {
        if let Some(running) = &mut self.cards[index].running {
            (running.status, running.detail, running.work) = (status, detail, Work::Timed);
        }
        self.schedule_step(index, delay, Step::Finish);
    }

    fn begin(&mut self, index: usize, instruction: &Instruction) -> Result<(), Refusal> {
        let dispatch = self.profile.cycles(self.profile.dispatch_cycles);
        match instruction.operation {
            Operation::Nop => self.schedule_step(index, dispatch, Step::Finish),
            Operation::Delay if instruction.extent > DELAY_MAX => return Err(bad_field(offset::EXTENT)),
            Operation::Delay => self.schedule_step(index, self.profile.cycles(instruction.extent), Step::Finish),
            Operation::Barrier => return self.begin_barrier(index),
            Operation::RdmaRead | Operation::RdmaWrite | Operation::PutSignal => {
                return self.begin_rdma(index, instruction);
            }
            Operation::WaitSignal => return self.begin_wait(index, instruction),
            Operation::Copy => return self.begin_copy(index, instruction),
            Operation::Fill => {
                let destination = instruction.destination.address;
                self.check_memory(index, destination, instruction.bytes)?;
                self.begin_local(index, None, destination);
            }
            Operation::Group => {
                let most = 2 * self.cards.len() as u64;
                self.cards[index].communicators.check_free(instruction.communicator)?;
                if instruction.bytes == 0 || instruction.bytes % 2 != 0 || instruction.bytes > most {
                    return Err(bad_field(offset::BYTES));
                }
                self.begin_table(index, instruction);
            }
            Operation::Free => {
                self.cards[index].communicators.free(instruction.communicator)?;
                self.schedule_step(index, dispatch, Step::Finish);
            }
            Operation::Store => {
                let words = instruction.bytes / instruction::BYTES as u64;
                let whole = instruction.bytes % instruction::BYTES as u64 == 0;
                if !whole || words == 0 || words > RESIDENT_WORDS.into() {
                    return Err(bad_field(offset::BYTES));
                }
                self.resident_slot(index, instruction.extent)?;
                self.begin_table(index, instruction);
            }
            Operation::Table => {
                let entries = instruction.bytes / ENTRY_BYTES as u64;
                if instruction.bytes % ENTRY_BYTES as u64 != 0 || !(1..=self.cards.len() as u64).contains(&entries) {
                    return Err(bad_field(offset::BYTES));
                }
                table_slot(instruction.extent)?;
                self.begin_table(index, instruction);
            }
            Operation::Launch => return self.begin_launch(index, instruction),
            Operation::Loop => self.begin_loop(index, instruction)?,
            Operation::User => return self.begin_user(index, instruction),
            Operation::Send
            | Operation::Recv
            | Operation::Sendrecv
            | Operation::Scatter
            | Operation::Gather
            | Operation::Broadcast
            | Operation::Alltoall
            | Operation::Allgather
            | Operation::Reduce
            | Operation::Allreduce
            | Operation::ReduceScatter
            | Operation::Scan
            | Operation::Exscan
            | Operation::AlltoallScan
            | Operation::Scatterv
            | Operation::Gatherv
            | Operation::Allgatherv
            | Operation::Alltoallv
            | Operation::RecvReduce
            | Operation::SendrecvReduce => return self.begin_transfer(index, instruction),
        }
        Ok(())
    }

    pub(crate) fn set_work(&mut self, index: usize, work: Work) {
        if let Some(running) = &mut self.cards[index].running {
            running.work = work;
        }
    }

    fn begin_launch(&mut self, index: usize, instruction: &Instruction) -> Result<(), Refusal> {
        let slot = self.resident_slot(index, instruction.extent)?;
        let card = &mut self.cards[index];
        if card.resident[slot].is_empty() {
            return Err((Status::BadProgram, 0));
        }
        card.running = None;
        card.sequencer.launch = Some(Launch {
            tag: instruction.tag,
            flags: instruction.flags,
            slot,
            next: 0,
            rounds: None,
            arguments: [instruction.source.address, instruction.destination.address, instruction.bytes],
            issued: self.now,
            arrival: None,
            bytes: 0,
        });
        card.sequencer.stage = Stage::Idle;
        card.sequencer.ready_at = self.now + Time::from(self.profile.cycles(self.profile.dispatch_cycles));
        self.kick(index);
        Ok(())
    }

    /// Dispatches the loop: each round begins with a dispatch.
    fn begin_loop(&mut self, index: usize, instruction: &Instruction) -> Result<(), Refusal> {
        let dispatch = self.profile.cycles(self.profile.dispatch_cycles);
        let moves = instruction.extent_argument.map(|argument| (argument, instruction.extent));
        let launch = self.cards[index].sequencer.launch.as_mut();
        // Only a stored program has following instructions to return to.
        let launch = launch.ok_or((Status::BadOperation, Operation::Loop as u16))?;
        let end = launch.next + usize::from(instruction.loop_body);
        launch.rounds = Some(Rounds { first: launch.next, end, left: instruction.loop_count, moves });
        self.schedule_step(index, dispatch, Step::Finish);
        Ok(())
    }

    fn begin_user(&mut self, index: usize, instruction: &Instruction) -> Result<(), Refusal> {
        let call = UserCall {
            source: instruction.source.address,
            destination: instruction.destination.address,
            bytes: instruction.bytes,
            extent: instruction.extent,
        };
        let card = &mut self.cards[index];
        let logic = card.user_logic.as_mut().ok_or((Status::NoUserLogic, 0))?;
        let cycles = logic.run(&mut card.memory, call).map_err(|status| (status, 0))?;
        let cycles = cycles.min(DELAY_MAX) + self.profile.dispatch_cycles;
        self.schedule_step(index, self.profile.cycles(cycles), Step::Finish);
        Ok(())
    }

    pub(crate) fn check_memory(&self, index: usize, address: u64, bytes: u64) -> Result<(), Refusal> {
        if self.cards[index].memory.contains(address, bytes) { Ok(()) } else { Err((Status::OutOfRange, 0)) }
    }

    /// Fails the running instruction, now.
    pub(crate) fn fail(&mut self, index: usize, (status, detail): Refusal) {
        if let Some(running) = &mut self.cards[index].running {
            (running.status, running.detail) = (status, detail);
        }
        self.finish(index);
    }

    /// Ends the running instruction, now.
    pub(crate) fn finish(&mut self, index: usize) {
        let handover = self.profile.cycles(self.profile.handover_cycles);
        let card = &mut self.cards[index];
        let Some(running) = card.running.take() else { return };
        card.epoch += 1;
        if running.status != Status::Done {
            self.stop_streams(index);
        }
        let card = &mut self.cards[index];
        for link in &mut card.links {
            (link.send, link.receive) = (None, None);
        }
        self.statistics.instructions += 1;
        card.sequencer.ready_at = self.now + Time::from(handover);
        let mut over = Over {
            tag: running.instruction.tag,
            flags: running.instruction.flags,
            issued: running.issued,
            arrival: running.arrival,
            bytes: running.bytes,
            detail: running.detail,
        };
        if let Some(mut launch) = card.sequencer.launch.take() {
            launch.arrival = launch.arrival.max(running.arrival);
            launch.bytes = launch.bytes.saturating_add(running.bytes);
            let at = launch.next;
            let turns = launch.turn();
            if running.status == Status::Done && launch.next < card.resident.get(launch.slot).map_or(0, Vec::len) {
                if turns {
                    let dispatch = self.profile.cycles(self.profile.dispatch_cycles);
                    card.sequencer.ready_at += Time::from(dispatch);
                }
                card.sequencer.launch = Some(launch);
                card.sequencer.stage = Stage::Idle;
                return self.kick(index);
            }
            // If a resident program fails, the detail is the index of the failed instruction.
            let detail = if running.status == Status::Done { 0 } else { at.saturating_sub(1) as u16 };
            let Launch { tag, flags, issued, arrival, bytes, .. } = launch;
            over = Over { tag, flags, issued, arrival, bytes, detail };
        }
        card.sequencer.stage = Stage::Completing;
        let cycles = |at: Time| (at.saturating_sub(over.issued) / Time::from(self.profile.cycle_ps)) as u64;
        let completion = Completion {
            tag: over.tag,
            status: running.status,
            detail: over.detail,
            issued: self.counter(index, over.issued),
            t1: cycles(running.counted_out.max(over.issued)),
            t2: cycles(self.now),
            arrival: over.arrival.map_or(0, cycles),
            bytes: over.bytes,
            phase: false,
        };
        let interrupt = over.flags.contains(Flags::INTERRUPT);
        self.push_host_job(index, Job::Complete { queue: 0, completion, interrupt });
    }

    /// The completion is in host memory.
    pub(crate) fn completion_written(&mut self, index: usize, queue: usize, interrupt: bool, went_well: bool) {
        if !went_well {
            return self.halt(index, Errors::COMPLETION_FAULT);
        }
        let card = &mut self.cards[index];
        card.rings[queue].completed();
        card.sequencer.retired += 1;
        card.sequencer.stage = Stage::Idle;
        if card.rings[queue].take_due_interrupt() || interrupt {
            card.interrupt(queue);
        }
        self.kick(index);
    }

    /// Ends the running instruction for the host, and stops.
    pub(crate) fn abort(&mut self, index: usize) {
        let card = &mut self.cards[index];
        card.sequencer.may_run = false;
        if card.is_frozen {
            return;
        }
        // The instruction has ended: a kept job would be taken for a later instruction's.
        card.links.iter_mut().for_each(|link| link.inbound = Inbound::default());
        if let Some(running) = &mut card.running {
            running.status = Status::Aborted;
            running.work = Work::Timed;
            self.finish(index);
        } else if card.sequencer.stage == Stage::Issuing {
            // Between two instructions: the next one stays in the ring.
            card.epoch += 1;
            card.sequencer.stage = Stage::Idle;
            // The resident program ends.
            if let Some(launch) = &mut card.sequencer.launch {
                launch.next += 1;
                card.running =
                    Some(Running { status: Status::Aborted, ..Running::begun(Instruction::nop(), self.now) });
                self.finish(index);
            }
        }
    }
}

/// The parts of an instruction or launch that its completion needs.
struct Over {
    tag: u16,
    flags: Flags,
    issued: Time,
    arrival: Option<Time>,
    bytes: u64,
    detail: u16,
}

/// Converts an error of card memory to the refusal of the instruction.
pub(crate) fn memory_refusal(error: MemoryError) -> Refusal {
    match error {
        MemoryError::OutOfRange { .. } => (error.into(), 0),
        MemoryError::Exhausted { .. } => (error.into(), OUT_OF_MEMORY),
    }
}

pub(crate) fn bad_field(offset: usize) -> Refusal {
    (Status::BadField, offset as u16)
}

fn refusal(error: DecodeError) -> Refusal {
    match error {
        DecodeError::Checksum { .. } => (Status::BadChecksum, 0),
        DecodeError::Version(_) => (Status::BadVersion, 0),
        DecodeError::Operation(code) => (Status::BadOperation, code.into()),
        DecodeError::Field { offset, .. } => bad_field(offset),
    }
}

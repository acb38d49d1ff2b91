//! The command sequencer: fetches instructions, runs them one after another, writes completions.

use std::collections::VecDeque;
use std::sync::Arc;

use cmdseq::completion::{Completion, OUT_OF_MEMORY, Status};
use cmdseq::instruction::{self, ARGUMENTS, offset};
use cmdseq::table::{ENTRY_BYTES, Table};
use cmdseq::{AddressSpace, DecodeError, Flags, Instruction, Operation};
use fpga_hal::endpoint::DmaFault;
use fpga_regs::bits::Errors;

use crate::agenda::Time;
use crate::card::{RESIDENT_WORDS, TABLES};
use crate::fabric::{Core, Event, Step};
use crate::host_dma::{Job, REQUEST_BYTES};
use crate::inbound::Inbound;
use crate::memory::{CardMemory, MemoryError};
use crate::rdma::Rdma;
use crate::signals::Signal;
use crate::switch::{Barrier, Transfer};

/// Longest delay an instruction may ask for, in cycles: close to six minutes at 200 MHz.
const DELAY_MAX: u64 = 1 << 36;

/// What user logic is called with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserCall {
    /// Card address of its input.
    pub source: u64,
    /// Card address of its output.
    pub destination: u64,
    /// Bytes, as the instruction says.
    pub bytes: u64,
    /// Whatever the instruction says besides.
    pub extent: u64,
}

/// Logic of the user behind the changeover switch: it has the card memory to itself while it runs.
pub trait UserLogic: Send {
    /// Does its work on `memory` and says how many cycles that took; or the status the instruction fails with.
    ///
    /// # Errors
    /// Whatever status it wants the host to see.
    fn run(&mut self, memory: &mut CardMemory, call: UserCall) -> Result<u64, Status>;
}

/// What the sequencer is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    /// Nothing to do.
    #[default]
    Idle,
    /// Instructions are being fetched.
    Fetching,
    /// An instruction is there and will be issued.
    Issuing,
    /// One is being run.
    Running,
    /// Its completion is being written.
    Completing,
}

/// State that lasts from instruction to instruction.
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

/// A resident program at work.
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

/// A loop of a resident program at work.
#[derive(Debug)]
struct Rounds {
    /// Place of the loop's first instruction, and the place behind its last.
    first: usize,
    end: usize,
    left: u16,
    /// The launch argument that each round moves on, and by how much.
    moves: Option<(u8, u64)>,
}

impl Launch {
    /// One more instruction is done. Says whether that was the last of a round and another one follows.
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

/// What is left to do of it.
#[derive(Debug)]
pub(crate) enum Work {
    /// Only time has to pass.
    Timed,
    /// Signals from all ranks.
    Barrier(Barrier),
    /// Blocks out and in.
    Transfer(Box<Transfer>),
    /// A one-sided transfer.
    Rdma(Rdma),
    /// A signal of this card, looked at once it is read.
    Signal { signal: Signal, is_read: bool },
    /// A stream within the card's own memory.
    Local { source: Option<u64>, destination: u64 },
    /// A table in host memory.
    HostTable,
    /// A copy from or to host memory, so far done.
    HostCopy { done: u64 },
}

/// Why an instruction cannot be run: status and detail of its completion.
pub(crate) type Refusal = (Status, u16);

impl Core {
    /// Goes on with `card`'s queue if there is something to do and nothing in the way.
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

    /// The words of a fetch are here.
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

    /// The queue was switched off while its instructions were being fetched, or a completion written.
    pub(crate) fn queue_changed(&mut self, index: usize) {
        self.cards[index].sequencer.stage = Stage::Idle;
        self.kick(index);
    }

    /// Stops the sequencer until the host has looked.
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
                    // A word that cannot be read still gets a completion with the tag it seems to have.
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

    fn fail_after(&mut self, index: usize, status: Status, detail: u16, delay: u64) {
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
            | Operation::Scatterv
            | Operation::Gatherv
            | Operation::Allgatherv
            | Operation::Alltoallv
            | Operation::RecvReduce
            | Operation::SendrecvReduce => return self.begin_transfer(index, instruction),
        }
        Ok(())
    }

    fn set_work(&mut self, index: usize, work: Work) {
        if let Some(running) = &mut self.cards[index].running {
            running.work = work;
        }
    }

    fn begin_table(&mut self, index: usize, instruction: &Instruction) {
        self.set_work(index, Work::HostTable);
        self.push_host_job(index, Job::Table { iova: instruction.source.address, bytes: instruction.bytes });
    }

    /// A table or a resident program is here.
    pub(crate) fn table_read(&mut self, index: usize, table: &[u8], went_well: bool) {
        let dispatch = self.profile.cycles(self.profile.dispatch_cycles);
        let Some(instruction) = self.cards[index].running.as_ref().map(|running| running.instruction) else { return };
        let kept = match instruction.operation {
            _ if !went_well => Err((Status::HostReadFault, 0)),
            Operation::Store => self.store(index, &instruction, table),
            Operation::Table => self.keep_table(index, &instruction, table),
            _ => self.define(index, &instruction, table),
        };
        match kept {
            Ok(()) => self.schedule_step(index, dispatch, Step::Finish),
            Err((status, detail)) => self.fail_after(index, status, detail, dispatch),
        }
    }

    fn define(&mut self, index: usize, instruction: &Instruction, table: &[u8]) -> Result<(), Refusal> {
        let (numbers, _) = table.as_chunks::<2>();
        let members: Arc<[u32]> = numbers.iter().map(|number| u16::from_le_bytes(*number).into()).collect();
        let mut seen = vec![false; self.cards.len()];
        for node in members.iter() {
            match seen.get_mut(*node as usize) {
                Some(seen) if !*seen => *seen = true,
                _ => return Err((Status::BadCommunicator, *node as u16)),
            }
        }
        let card = &mut self.cards[index];
        card.communicators.define(instruction.communicator, &members, card.node)
    }

    fn store(&mut self, index: usize, instruction: &Instruction, table: &[u8]) -> Result<(), Refusal> {
        let slot = self.resident_slot(index, instruction.extent)?;
        let (words, _) = table.as_chunks::<{ instruction::BYTES }>();
        let mut program = Vec::with_capacity(words.len());
        for (place, word) in words.iter().enumerate() {
            let at = place as u16;
            let step = Instruction::decode(word).map_err(|_| (Status::BadProgram, at))?;
            // A program ends where its last word says, and does not start or change programs.
            let is_last = step.flags.contains(Flags::LAST);
            if is_last != (place + 1 == words.len()) || matches!(step.operation, Operation::Launch | Operation::Store) {
                return Err((Status::BadProgram, at));
            }
            program.push(step);
        }
        check_loops(&program)?;
        self.cards[index].resident[slot] = program;
        Ok(())
    }

    fn keep_table(&mut self, index: usize, instruction: &Instruction, table: &[u8]) -> Result<(), Refusal> {
        let slot = table_slot(instruction.extent)?;
        let table = Table::decode(table).map_err(|_| bad_field(offset::BYTES))?;
        self.cards[index].tables.insert(slot, table);
        Ok(())
    }

    fn resident_slot(&self, index: usize, slot: u64) -> Result<usize, Refusal> {
        usize::try_from(slot)
            .ok()
            .filter(|slot| *slot < self.cards[index].resident.len())
            .ok_or((Status::BadProgram, 0))
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

    /// A loop takes a dispatch of its own before each round.
    fn begin_loop(&mut self, index: usize, instruction: &Instruction) -> Result<(), Refusal> {
        let dispatch = self.profile.cycles(self.profile.dispatch_cycles);
        let moves = instruction.extent_argument.map(|argument| (argument, instruction.extent));
        let launch = self.cards[index].sequencer.launch.as_mut();
        // Only a program that is stored has instructions behind this one to come back to.
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

    fn begin_copy(&mut self, index: usize, instruction: &Instruction) -> Result<(), Refusal> {
        let Instruction { source, destination, bytes, .. } = *instruction;
        for operand in [source, destination] {
            if operand.space == AddressSpace::Card {
                self.check_memory(index, operand.address, bytes)?;
            }
        }
        // A copy moves piece by piece, so that what overlaps would come out as the pieces lie.
        let distance = source.address.abs_diff(destination.address);
        if source.space == destination.space && distance != 0 && distance < bytes {
            return Err((Status::Overlap, 0));
        }
        if source.space == AddressSpace::Card && destination.space == AddressSpace::Card {
            self.begin_local(index, Some(source.address), destination.address);
            return Ok(());
        }
        self.set_work(index, Work::HostCopy { done: 0 });
        self.host_piece(index);
        Ok(())
    }

    /// Moves the next piece between host and card. Pieces are apart in the fabric's time by what they take on the host link,
    /// so that other cards go on in between.
    pub(crate) fn host_piece(&mut self, index: usize) {
        let Some(Running { work: Work::HostCopy { done }, instruction, .. }) = &self.cards[index].running else {
            return;
        };
        let (Instruction { source, destination, .. }, done) = (*instruction, *done);
        let bytes = (instruction.bytes - done).min(REQUEST_BYTES);
        // Of card memory the range is checked; what leaves host memory, the bus refuses.
        let (from, to) = (source.address.wrapping_add(done), destination.address.wrapping_add(done));
        let job = match (source.space, destination.space) {
            (AddressSpace::Host, AddressSpace::Card) => {
                if let Err(error) = self.cards[index].memory.slice_mut(to, bytes) {
                    let dispatch = self.profile.cycles(self.profile.dispatch_cycles);
                    let (status, detail) = memory_refusal(error);
                    return self.fail_after(index, status, detail, dispatch);
                }
                Job::In { iova: from, address: to, bytes }
            }
            (AddressSpace::Card, _) => Job::Out { address: from, iova: to, bytes },
            (AddressSpace::Host, AddressSpace::Host) => Job::Through { from, to, bytes },
        };
        self.push_host_job(index, job);
    }

    /// A piece has moved between host and card; what that took on the host link is still to pass.
    pub(crate) fn host_copied(&mut self, index: usize, result: Result<(), (DmaFault, bool)>) {
        let host_mbps = u128::from(self.profile.host_mbps.max(1));
        let Some(Running { work: Work::HostCopy { done }, instruction, .. }) = &mut self.cards[index].running else {
            return;
        };
        // Both ends of the piece are rounded alike, so that all pieces take what the whole does.
        let on_the_link = |bytes: u64| u128::from(bytes) * 8_000_000 / host_mbps;
        let before = on_the_link(*done);
        *done += (instruction.bytes - *done).min(REQUEST_BYTES);
        let piece = u64::try_from(on_the_link(*done) - before).unwrap_or(u64::MAX);
        let is_last = *done == instruction.bytes;
        let dispatch = self.profile.cycles(self.profile.dispatch_cycles);
        match result {
            Ok(()) if is_last => self.schedule_step(index, dispatch.saturating_add(piece), Step::Finish),
            Ok(()) => self.schedule_step(index, piece, Step::HostPiece),
            Err((_, true)) => self.fail_after(index, Status::HostWriteFault, 0, dispatch),
            Err((_, false)) => self.fail_after(index, Status::HostReadFault, 0, dispatch),
        }
    }

    fn begin_local(&mut self, index: usize, source: Option<u64>, destination: u64) {
        self.set_work(index, Work::Local { source, destination });
        let read = if source.is_some() { self.profile.memory_read_cycles } else { 0 };
        self.schedule_step(index, self.profile.cycles(self.profile.dispatch_cycles + read), Step::DataAtSwitch);
    }

    pub(crate) fn check_memory(&self, index: usize, address: u64, bytes: u64) -> Result<(), Refusal> {
        if self.cards[index].memory.contains(address, bytes) { Ok(()) } else { Err((Status::OutOfRange, 0)) }
    }

    /// The running instruction fails, now.
    pub(crate) fn fail(&mut self, index: usize, (status, detail): Refusal) {
        if let Some(running) = &mut self.cards[index].running {
            (running.status, running.detail) = (status, detail);
        }
        self.finish(index);
    }

    /// The running instruction is over, now.
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
            // Of a resident program that fails, the detail is the place of the instruction that failed.
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

    /// The completion lies in host memory.
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
        // What it was for has ended: kept, it would pass for that of a later instruction.
        card.links.iter_mut().for_each(|link| link.inbound = Inbound::default());
        if let Some(running) = &mut card.running {
            running.status = Status::Aborted;
            running.work = Work::Timed;
            self.finish(index);
        } else if card.sequencer.stage == Stage::Issuing {
            // Between two instructions: the one that would have come stays in the ring.
            card.epoch += 1;
            card.sequencer.stage = Stage::Idle;
            // A resident program ends there.
            if let Some(launch) = &mut card.sequencer.launch {
                launch.next += 1;
                card.running =
                    Some(Running { status: Status::Aborted, ..Running::begun(Instruction::nop(), self.now) });
                self.finish(index);
            }
        }
    }
}

/// What a completion needs of an instruction or of a launch.
struct Over {
    tag: u16,
    flags: Flags,
    issued: Time,
    arrival: Option<Time>,
    bytes: u64,
    detail: u16,
}

/// Every loop of a resident program has rounds and a body, which is in the program and without a loop; so programs end.
fn check_loops(program: &[Instruction]) -> Result<(), Refusal> {
    let mut body_end = 0;
    for (place, step) in program.iter().enumerate().filter(|(_, step)| step.operation == Operation::Loop) {
        let end = place + 1 + usize::from(step.loop_body);
        if place < body_end || step.loop_count == 0 || step.loop_body == 0 || end > program.len() {
            return Err((Status::BadProgram, place as u16));
        }
        body_end = end;
    }
    Ok(())
}

/// What an instruction ends with whose data card memory cannot take.
pub(crate) fn memory_refusal(error: MemoryError) -> Refusal {
    match error {
        MemoryError::OutOfRange { .. } => (error.into(), 0),
        MemoryError::Exhausted { .. } => (error.into(), OUT_OF_MEMORY),
    }
}

/// The slot of a table.
fn table_slot(slot: u64) -> Result<u16, Refusal> {
    u16::try_from(slot).ok().filter(|slot| *slot < TABLES).ok_or((Status::BadTable, slot as u16))
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

//! Random programs: programs that the verifier accepts end on the cards without fault, with the result that the definitions
//! give. Host memory is valid or invalid for the instructions that read it, and cards have user logic or not: where invalid
//! or missing, exactly that instruction fails, as `docs/verifier.md` states.
//!
//! A few hundred always run, 50 000 verified ones with `FPGA_TESTS_FULL=1`.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use cmdseq::instruction::takes_tables;
use cmdseq::plan::{Communicator, Program};
use cmdseq::table::Entry;
use cmdseq::verify::{Stored, verify_launches};
use cmdseq::{
    Capabilities, Combine, Element, Flags, Instruction, Operand, Operation, Reason, Reduction, Status, Table,
};
use fpga_mock::Profile;
use fpga_tests::dice::{Dice, seed};
use fpga_tests::program_sets::{Both, HOST_BYTES};
use fpga_tests::sweep::is_full;

/// Memory that random programs use.
const ARENA: u64 = 64 << 10;
/// The first id of communicators that programs define themselves: those of the sets are below.
const DEFINED: u16 = 20;
/// Entries of a card's table.
const ENTRIES: u16 = 32;
const SIZES: [u64; 9] = [0, 1, 8, 24, 64, 100, 512, 2048, 17_000];

/// A set at work.
struct Set<'a> {
    dice: Dice,
    capabilities: &'a Capabilities,
    programs: Vec<Program>,
    communicators: Vec<Communicator>,
    /// Waits that are owed: rank, signal and value.
    owed: Vec<(usize, u16, u32)>,
    /// By rank: where its card finds host memory.
    host: &'a [u64],
    /// By rank: what is to lie there.
    contents: Vec<Vec<u8>>,
    /// What frees communicators, at the end.
    frees: Vec<(usize, u16)>,
}

/// The last rank's card has no user logic.
fn has_logic(rank: usize, ranks: u32) -> bool {
    rank + 1 < ranks as usize
}

/// What is stored on the cards before any set: in slot 0 what works alone, in slot 1 what all have to run together.
fn stored(rank: usize, ranks: u32) -> Vec<Stored> {
    let (ranks, own) = (ranks as u16, rank as u16);
    let at = |argument| Operand::card(0).plus_argument(argument);
    let last = |it: Instruction| it.with_flags(Flags::LAST);
    let alone = vec![Instruction::fill(at(1), 64, 0x1122_3344_5566_7788), last(Instruction::copy(at(0), at(1), 32))];
    let shift = Instruction::sendrecv((own + 1) % ranks, (own + ranks - 1) % ranks, at(0), at(1), 64);
    let together = vec![Instruction::delay(20), shift, last(Instruction::barrier())];
    vec![Stored { slot: 0, instructions: alone }, Stored { slot: 1, instructions: together }]
}

fn encoded(program: &[Instruction]) -> Vec<u8> {
    program.iter().flat_map(|it| it.encode()).collect()
}

/// What the interpreter runs in place of a program: what is launched, logic that copies, and nothing for what only changes
/// slots and communicators.
fn meant(programs: &[Program]) -> Vec<Program> {
    let ranks = programs.len() as u32;
    let plain = |rank: usize, it: &Instruction| -> Vec<Instruction> {
        match it.operation {
            Operation::Group | Operation::Free | Operation::Store | Operation::Table => Vec::new(),
            Operation::User => vec![Instruction::copy(it.source, it.destination, it.bytes)],
            Operation::Launch => {
                let arguments = [it.source.address, it.destination.address];
                let add = |side: Operand| match side.argument {
                    Some(argument) => Operand::card(side.address + arguments[usize::from(argument)]),
                    None => side,
                };
                let launched = stored(rank, ranks).into_iter().find(|one| one.slot == it.extent);
                let launched = launched.map_or_else(Vec::new, |one| one.instructions).into_iter();
                launched
                    .map(|it| Instruction { source: add(it.source), destination: add(it.destination), ..it })
                    .collect()
            }
            _ => vec![*it],
        }
    };
    let of_rank = |(rank, program): (usize, &Program)| Program {
        instructions: program.instructions.iter().flat_map(|it| plain(rank, it)).collect(),
        tables: program.tables.clone(),
        ..Program::default()
    };
    programs.iter().enumerate().map(of_rank).collect()
}

/// The statuses of which one is that of an instruction whose content is wrong, by `docs/verifier.md`; none if it is right.
/// `None` if it reads beyond what it was given.
fn fails_as(rank: usize, it: &Instruction, set: &RandomSet, host: u64) -> Option<&'static [Status]> {
    let ranks = set.programs.len() as u32;
    let content = || {
        let from = usize::try_from(it.source.address.checked_sub(host)?).ok()?;
        set.contents[rank].get(from..from.checked_add(it.bytes as usize)?)
    };
    match it.operation {
        Operation::User => Some(if has_logic(rank, ranks) { &[] } else { &[Status::NoUserLogic] }),
        // In these entries lies what the host calls the set's communicators.
        Operation::Group if it.communicator % ENTRIES < DEFINED => None,
        Operation::Group => {
            let nodes: Vec<u16> = content()?.chunks(2).map(|two| u16::from_le_bytes([two[0], two[1]])).collect();
            let different: std::collections::BTreeSet<u16> = nodes.iter().copied().collect();
            let is_right = different.len() == nodes.len()
                && nodes.iter().all(|node| u32::from(*node) < ranks)
                && nodes.contains(&(rank as u16));
            Some(if is_right { &[] } else { &[Status::BadCommunicator, Status::NotMember] })
        }
        Operation::Store => {
            let words: Vec<_> = content()?.as_chunks::<64>().0.iter().map(Instruction::decode).collect();
            let is_right = words.iter().enumerate().all(|(place, word)| {
                word.as_ref().is_ok_and(|it| {
                    it.flags.contains(Flags::LAST) == (place + 1 == words.len())
                        && !matches!(it.operation, Operation::Launch | Operation::Store | Operation::Loop)
                })
            });
            Some(if is_right { &[] } else { &[Status::BadProgram] })
        }
        // Whatever the entries are: it is the use of a table that looks at them.
        Operation::Table => content().map(|_| &[][..]),
        _ => Some(&[]),
    }
}

impl Set<'_> {
    fn push(&mut self, rank: usize, instruction: Instruction) {
        self.programs[rank].instructions.push(instruction);
    }

    /// A place of `bytes` bytes: sources mostly in the lower half, destinations in the upper.
    fn place(&mut self, is_upper: bool, bytes: u64) -> Operand {
        let half = ARENA / 2;
        let base = if is_upper != self.dice.one_in(12) { half } else { 0 };
        let room = half.saturating_sub(bytes);
        let address = base + self.dice.below(room / 8 + 1) * 8;
        Operand::card(address)
    }

    fn size(&mut self) -> u64 {
        self.dice.of(&SIZES)
    }

    fn flags(&mut self) -> Flags {
        match self.dice.below(8) {
            0 => Flags::RENDEZVOUS,
            1 => Flags::EAGER,
            _ => Flags::empty(),
        }
    }

    /// A communicator, and the ranks of the programs in it.
    fn communicator(&mut self) -> (u16, Vec<usize>) {
        let count = self.programs.len();
        match self.dice.below(self.communicators.len() as u64 + 2) as usize {
            at if at < self.communicators.len() => {
                let one = &self.communicators[at];
                (one.id, one.members.iter().map(|node| *node as usize).collect())
            }
            _ => (0, (0..count).collect()),
        }
    }

    fn combine(&mut self) -> Combine {
        loop {
            let combine = Combine::new(self.dice.of(Reduction::ALL), self.dice.of(Element::ALL));
            if combine.is_defined() && self.capabilities.combines(combine) {
                return combine;
            }
        }
    }

    /// What some ranks do together, or one alone.
    fn episode(&mut self) {
        match self.dice.below(18) {
            0..=3 => self.collective(),
            4 => self.vector_form(),
            5 => {
                let (id, ranks) = self.communicator();
                ranks.iter().for_each(|rank| self.push(*rank, Instruction::barrier().on(id)));
            }
            6..=8 => self.pair(),
            9 => self.ring(),
            10 | 11 => self.one_sided(),
            12 | 13 if self.capabilities.runs(Operation::PutSignal) => self.put(),
            14 | 15 => self.outside(),
            _ => self.alone(),
        }
    }

    /// Puts `content` where `rank`'s card can read it.
    fn content(&mut self, rank: usize, content: &[u8]) -> u64 {
        let all = &mut self.contents[rank];
        let address = self.host[rank] + all.len() as u64;
        all.extend_from_slice(content);
        all.resize(all.len().next_multiple_of(64), 0);
        address
    }

    /// What reads host memory, or runs what is stored or the user's.
    fn outside(&mut self) {
        let count = self.programs.len();
        let mut rank = self.dice.below(count as u64) as usize;
        let (from, to) = (self.place(false, 64), self.place(true, 64));
        let arguments = [from.address, to.address, self.dice.roll()];
        // Seldom: a set that fails has no other use.
        let is_wrong = self.dice.one_in(6);
        match self.dice.below(7) {
            0 => {
                let id = DEFINED + self.dice.below(3) as u16;
                let mut nodes: Vec<u16> = (0..count as u16).map(|node| (node + rank as u16) % count as u16).collect();
                nodes.truncate(1 + self.dice.below(count as u64) as usize);
                if is_wrong {
                    let (last, own) = (nodes.len() - 1, rank as u16);
                    nodes[last] = self.dice.of(&[count as u16, u16::MAX, (own + 1) % count as u16, own]);
                }
                let bytes: Vec<u8> = nodes.iter().flat_map(|node| node.to_le_bytes()).collect();
                let address = self.content(rank, &bytes);
                self.push(rank, Instruction::group(id, address, nodes.len() as u64));
                if self.dice.one_in(2) {
                    self.frees.push((rank, id));
                }
            }
            1 => {
                let (id, ranks) = self.communicator();
                if id != 0 {
                    let own = self.dice.below(ranks.len() as u64) as usize;
                    self.frees.push((ranks[own], id));
                }
            }
            2 => {
                let entries = count as u64 + u64::from(is_wrong);
                let bytes: Vec<u8> = (0..2 * entries).flat_map(|_| self.dice.roll().to_le_bytes()).collect();
                let address = self.content(rank, &bytes);
                let slot = self.capabilities.tables as u16 - 1 - self.dice.below(2) as u16;
                self.push(rank, Instruction::table(slot, address, entries));
            }
            3 => {
                let mut program = vec![Instruction::nop(); 1 + self.dice.below(3) as usize];
                program.push(Instruction::recv(0, to, 64).with_flags(Flags::LAST));
                let words = program.len();
                if is_wrong {
                    let at = self.dice.below(words as u64) as usize;
                    program[at] = self.dice.of(&[
                        Instruction::launch(0, [0; 3]).with_flags(program[at].flags),
                        program[at].with_flags(program[at].flags ^ Flags::LAST),
                    ]);
                }
                let mut bytes = encoded(&program);
                if is_wrong && self.dice.one_in(2) {
                    bytes[17] ^= 1;
                }
                let address = self.content(rank, &bytes);
                let slot = 2 + self.dice.below(2);
                self.push(rank, Instruction::store(slot, address, words as u64));
            }
            4 => self.push(rank, Instruction::launch(0, arguments)),
            5 => (0..count).for_each(|rank| self.push(rank, Instruction::launch(1, arguments))),
            _ => {
                if !is_wrong {
                    rank = self.dice.below(count as u64 - 1) as usize;
                }
                let bytes = self.size();
                let (from, to) = (self.place(false, bytes), self.place(true, bytes));
                let extent = self.dice.roll();
                self.push(rank, Instruction::user(from, to, bytes, extent));
            }
        }
    }

    fn alone(&mut self) {
        let rank = self.dice.below(self.programs.len() as u64) as usize;
        let bytes = self.size();
        let (from, to) = (self.place(false, bytes), self.place(true, bytes));
        let instruction = match self.dice.below(4) {
            0 => Instruction::copy(from, to, bytes),
            1 => Instruction::delay(self.dice.below(2000)),
            2 => Instruction::nop(),
            _ => Instruction::fill(to, bytes, self.dice.roll()),
        };
        self.push(rank, instruction);
    }

    fn pair(&mut self) {
        let (id, ranks) = self.communicator();
        if ranks.len() < 2 {
            return;
        }
        let from = self.dice.below(ranks.len() as u64) as usize;
        let to = (from + 1 + self.dice.below(ranks.len() as u64 - 1) as usize) % ranks.len();
        let (bytes, flags) = (self.size(), self.flags());
        let source = self.place(false, bytes);
        let destination = self.place(true, bytes);
        let (send, recv) =
            (Instruction::send(to as u16, source, bytes), Instruction::recv(from as u16, destination, bytes));
        let mut both = [send, recv];
        if self.capabilities.runs(Operation::RecvReduce) && self.dice.one_in(3) {
            let combine = self.combine();
            let bytes = bytes / combine.element.bytes() * combine.element.bytes();
            let own = if self.dice.one_in(2) { destination } else { self.place(false, bytes) };
            both = [
                Instruction::send(to as u16, source, bytes),
                Instruction::recv_reduce(combine, from as u16, own, destination, bytes),
            ];
        } else if self.dice.one_in(3) {
            let back = self.place(false, bytes);
            let there = self.place(true, bytes);
            both = [
                Instruction::sendrecv(to as u16, to as u16, source, there, bytes),
                Instruction::sendrecv(from as u16, from as u16, back, destination, bytes),
            ];
        }
        let [one, two] = both.map(|it| it.on(id).with_flags(flags));
        self.push(ranks[from], one);
        self.push(ranks[to], two);
    }

    fn ring(&mut self) {
        let (id, ranks) = self.communicator();
        let count = ranks.len();
        let (mut bytes, flags) = (self.size(), self.flags());
        let folds = self.capabilities.runs(Operation::SendrecvReduce) && self.dice.one_in(2) && count > 1;
        let combine = self.combine();
        if folds {
            bytes = bytes / combine.element.bytes() * combine.element.bytes();
        }
        for (own, rank) in ranks.iter().enumerate() {
            let (source, destination) = (self.place(false, bytes), self.place(true, bytes));
            let ((to, from), own) = (((own + 1) % count, (own + count - 1) % count), self.place(false, bytes));
            let (to, from) = (to as u16, from as u16);
            let instruction = match folds {
                true => Instruction::sendrecv_reduce(combine, (to, from), source, own, destination, bytes),
                false => Instruction::sendrecv(to, from, source, destination, bytes),
            };
            self.push(*rank, instruction.on(id).with_flags(flags));
        }
    }

    /// Two different ones of `ranks`, which are at least two, by their places.
    fn two_of(&mut self, ranks: &[usize]) -> (usize, usize) {
        let own = self.dice.below(ranks.len() as u64) as usize;
        let peer = (own + 1 + self.dice.below(ranks.len() as u64 - 1) as usize) % ranks.len();
        (own, peer)
    }

    fn one_sided(&mut self) {
        let (id, ranks) = self.communicator();
        if ranks.len() < 2 {
            return;
        }
        let (own, peer) = self.two_of(&ranks);
        let bytes = self.size();
        let (from, to) = (self.place(false, bytes), self.place(true, bytes));
        let instruction = match self.dice.one_in(2) {
            true => Instruction::rdma_read(peer as u16, from, to, bytes),
            false => Instruction::rdma_write(peer as u16, from, to, bytes),
        };
        if !self.dice.one_in(3) {
            ranks.iter().for_each(|rank| self.push(*rank, Instruction::barrier().on(id)));
        }
        self.push(ranks[own], instruction.on(id));
        if !self.dice.one_in(3) {
            ranks.iter().for_each(|rank| self.push(*rank, Instruction::barrier().on(id)));
        }
    }

    fn put(&mut self) {
        let (id, ranks) = self.communicator();
        if ranks.len() < 2 {
            return;
        }
        let (own, peer) = self.two_of(&ranks);
        let bytes = self.size();
        let (from, to) = (self.place(false, bytes), self.place(true, bytes));
        let (signal, value) = (self.dice.below(3) as u16, 1 + self.dice.below(3) as u32);
        self.push(ranks[own], Instruction::put_signal(peer as u16, from, to, bytes, signal, value).on(id));
        self.owed.push((ranks[peer], signal, value));
        if self.dice.one_in(2) {
            self.wait();
        }
    }

    /// Waits for all that is owed to one rank.
    fn wait(&mut self) {
        let Some((rank, ..)) = self.owed.last().copied() else { return };
        for (_, signal, value) in self.owed.extract_if(.., |owed| owed.0 == rank).collect::<Vec<_>>() {
            self.push(rank, Instruction::wait_signal(signal, value));
        }
    }

    fn collective(&mut self) {
        let (id, ranks) = self.communicator();
        let count = ranks.len() as u64;
        let root = self.dice.below(count) as u16;
        let combine = self.combine();
        let operation = self.dice.of(&[
            Operation::Scatter,
            Operation::Gather,
            Operation::Broadcast,
            Operation::Alltoall,
            Operation::Allgather,
            Operation::Reduce,
            Operation::Allreduce,
            Operation::ReduceScatter,
            Operation::Scan,
            Operation::Exscan,
        ]);
        let folds = operation.fields().combine;
        let each = if folds { combine.element.bytes() } else { 1 };
        let bytes = self.size().min(ARENA / 2 / count) / each * each;
        let flags = self.flags();
        let divides = matches!(
            operation,
            Operation::Scatter | Operation::Gather | Operation::Allgather | Operation::ReduceScatter
        );
        let extent = if divides && self.dice.one_in(4) { self.dice.below(bytes * count / each + 1) * each } else { 0 };
        for rank in ranks {
            let in_place = self.dice.one_in(10);
            let is_striped = self.dice.one_in(10);
            let source = self.place(false, bytes * count);
            let mut destination = if in_place { source } else { self.place(true, bytes * count) };
            if is_striped {
                destination = destination.striped();
            }
            let fields = operation.fields();
            let root = if fields.root { root } else { 0 };
            let mut instruction =
                Instruction { root, source, destination, bytes, extent, ..Instruction::new(operation) };
            if folds {
                (instruction.element, instruction.reduction) = (Some(combine.element), Some(combine.reduction));
            }
            self.push(rank, instruction.on(id).with_flags(flags));
        }
    }

    /// Blocks of lengths of their own, mostly one after another, as tables say that no other instruction uses.
    fn vector_form(&mut self) {
        let (id, ranks) = self.communicator();
        let count = ranks.len();
        let root = self.dice.below(count as u64) as usize;
        let operation =
            self.dice.of(&[Operation::Scatterv, Operation::Gatherv, Operation::Allgatherv, Operation::Alltoallv]);
        let longest = ARENA / 2 / count as u64;
        // What each gives each; but for an alltoallv it is one length for a rank.
        let lengths: Vec<u64> = (0..count * count).map(|_| self.size().min(longest)).collect();
        let length = |from: usize, to: usize| match operation {
            Operation::Scatterv => lengths[to],
            Operation::Alltoallv => lengths[from * count + to],
            _ => lengths[from],
        };
        let flags = match self.flags() {
            // Not all of them know how long the longest block is.
            Flags::EAGER if lengths.iter().any(|bytes| *bytes > self.capabilities.eager_bytes) => Flags::RENDEZVOUS,
            flags => flags,
        };
        for (own, rank) in ranks.into_iter().enumerate() {
            let sends = self.table((0..count).map(|to| length(own, to)).collect());
            let receives = self.table((0..count).map(|from| length(from, own)).collect());
            let (source, destination) = (self.place(false, sends.span()), self.place(true, receives.span()));
            let (listed, used): (Vec<Table>, _) = match operation {
                Operation::Scatterv => (vec![sends], own == root),
                Operation::Gatherv => (vec![receives], own == root),
                Operation::Allgatherv => (vec![receives], true),
                _ => (vec![sends, receives], true),
            };
            let slots: Option<Vec<u64>> = match used {
                true => listed.into_iter().map(|table| self.store(rank, table)).collect(),
                false => Some(vec![0]),
            };
            // The card's slots are taken: the others find no partner then, and the set is refused.
            let Some(slots) = slots else { continue };
            let extent = slots[0] | slots.get(1).map_or(0, |slot| slot << 16);
            let fields = operation.fields();
            let bytes = if fields.bytes { length(own, own) } else { 0 };
            let root = if fields.root { root as u16 } else { 0 };
            let instruction = Instruction { root, source, destination, bytes, extent, ..Instruction::new(operation) };
            self.push(rank, instruction.on(id).with_flags(flags));
        }
    }

    /// A table of blocks of these lengths: one after another in some order, with gaps.
    fn table(&mut self, lengths: Vec<u64>) -> Table {
        let mut entries: Vec<Entry> = lengths.into_iter().map(|bytes| Entry { displacement: 0, bytes }).collect();
        let (count, mut next) = (entries.len(), 0);
        let first = self.dice.below(count as u64) as usize;
        for at in 0..count {
            let entry = &mut entries[(first + at) % count];
            entry.displacement = next;
            next += entry.bytes + self.dice.below(3) * 8;
        }
        Table { entries }
    }

    /// Where the card has room for `table`.
    fn store(&mut self, rank: usize, table: Table) -> Option<u64> {
        let tables = &mut self.programs[rank].tables;
        let slot = (0..self.capabilities.tables as u16).find(|slot| !tables.contains_key(slot))?;
        tables.insert(slot, table);
        Some(slot.into())
    }

    /// Changes something of one program.
    fn noise(&mut self) {
        let rank = self.dice.below(self.programs.len() as u64) as usize;
        let Program { instructions: program, tables, .. } = &mut self.programs[rank];
        let dice = &mut self.dice;
        if dice.one_in(2)
            && let Some(table) = tables.values_mut().next_back()
        {
            let at = dice.below(table.entries.len() as u64) as usize;
            let entry = &mut table.entries[at];
            match dice.below(3) {
                0 => entry.bytes = dice.of(&SIZES),
                1 => entry.displacement = entry.displacement.wrapping_add(dice.below(128)).wrapping_sub(64),
                _ => drop(table.entries.pop()),
            }
            return;
        }
        if program.is_empty() {
            return;
        }
        let at = dice.below(program.len() as u64) as usize;
        let other = dice.below(program.len() as u64) as usize;
        let near = dice.below(128).wrapping_sub(64);
        let it = &mut program[at];
        match dice.below(12) {
            0 => program.swap(at, other),
            1 => drop(program.remove(at)),
            2 => program.insert(other, program[at]),
            3 => it.source.address = it.source.address.wrapping_add(near),
            4 => it.destination.address = it.destination.address.wrapping_add(near),
            5 => it.bytes = dice.of(&SIZES),
            6 => it.peer = dice.below(5) as u16,
            7 => it.root = dice.below(5) as u16,
            8 => it.communicator = dice.below(4) as u16,
            9 => it.flags = dice.of(&[Flags::EAGER, Flags::RENDEZVOUS, Flags::empty(), Flags::INTERRUPT]),
            10 => it.signal_value = dice.below(3) as u32,
            _ => it.operation = dice.of(&[Operation::Send, Operation::Recv, Operation::Sendrecv, Operation::RdmaWrite]),
        }
    }
}

/// Programs of all ranks, and what lies in host memory for them.
struct RandomSet {
    programs: Vec<Program>,
    communicators: Vec<Communicator>,
    contents: Vec<Vec<u8>>,
}

fn random_set(seed: u64, capabilities: &Capabilities, host: &[u64]) -> RandomSet {
    let ranks = capabilities.nodes;
    let programs = vec![Program::default(); ranks as usize];
    let contents = vec![Vec::new(); ranks as usize];
    let (communicators, owed, frees) = (Vec::new(), Vec::new(), Vec::new());
    let mut set = Set { dice: Dice(seed), capabilities, programs, communicators, owed, host, contents, frees };
    let mut members: Vec<u32> = (0..ranks).rev().filter(|_| !set.dice.one_in(3)).collect();
    if members.is_empty() {
        members.push(0);
    }
    set.communicators = vec![
        Communicator { id: 1, members },
        Communicator { id: 2, members: (0..ranks).map(|rank| (rank + 1) % ranks).collect() },
    ];
    for _ in 0..1 + set.dice.below(9) {
        set.episode();
    }
    while !set.owed.is_empty() {
        set.wait();
    }
    for (rank, id) in std::mem::take(&mut set.frees) {
        set.push(rank, Instruction::free(id));
    }
    if set.dice.one_in(3) {
        set.noise();
    }
    RandomSet { programs: set.programs, communicators: set.communicators, contents: set.contents }
}

/// Cards of `ranks` ranks with data in their memory, programs in their slots and logic behind their switches.
fn cards(ranks: u32) -> Both {
    let mut both = Both::new(Profile::optweb(ranks));
    for rank in 0..ranks as usize {
        both.prepare(rank, 0, ARENA);
        for Stored { slot, instructions } in stored(rank, ranks) {
            both.put_host(rank, 0, &encoded(&instructions));
            let store = Instruction::store(slot, both.host(rank), instructions.len() as u64);
            both.run_before(rank, &[store]);
        }
        if has_logic(rank, ranks) {
            both.set_user_logic(rank);
        }
    }
    both
}

/// Communicators that a program defines and does not free.
fn left_defined(program: &Program) -> Vec<u16> {
    let mut left = Vec::new();
    for it in &program.instructions {
        match it.operation {
            Operation::Group => left.push(it.communicator),
            Operation::Free => left.retain(|id| *id != it.communicator),
            _ => {}
        }
    }
    left
}

/// Sets that were verified and ran, of these with some kinds of instructions, and why others did not.
#[derive(Debug, Default)]
struct Ran {
    verified: usize,
    one_sided: usize,
    vector: usize,
    /// With what reads host memory, changes communicators, or runs what is stored or the user's; by operation.
    outside: BTreeMap<&'static str, usize>,
    /// Failed, as what they were given was wrong; by status.
    failed: BTreeMap<String, usize>,
    refused: BTreeMap<Reason, usize>,
}

/// Runs sets until so many were verified and ran; counts why the others were refused.
fn run_sets(ranks: u32, first_seed: u64, wanted: usize) -> Ran {
    let mut both = cards(ranks);
    let capabilities = both.capabilities().clone();
    let group: Vec<u32> = (0..ranks).collect();
    let stored: Vec<Vec<Stored>> = (0..ranks as usize).map(|rank| stored(rank, ranks)).collect();
    let mut ran = Ran::default();
    for seed in first_seed.. {
        let host: Vec<u64> = (0..ranks as usize).map(|rank| both.host(rank)).collect();
        let set = random_set(seed, &capabilities, &host);
        let RandomSet { programs, communicators, contents } = &set;
        if let Err(refusal) = verify_launches(programs, &stored, communicators, &group, &capabilities) {
            *ran.refused.entry(refusal.reason).or_insert(0) += 1;
            continue;
        }
        let each =
            || programs.iter().enumerate().flat_map(|(rank, one)| one.instructions.iter().map(move |it| (rank, it)));
        let fails = |(rank, it): (usize, &Instruction)| fails_as(rank, it, &set, host[rank]);
        let Some(fails) = each().map(fails).collect::<Option<Vec<_>>>() else { continue };
        for (rank, content) in contents.iter().enumerate() {
            assert!(content.len() as u64 <= HOST_BYTES);
            both.put_host(rank, 0, content);
        }
        ran.verified += 1;
        let has = |what: &dyn Fn(&Instruction) -> bool| each().any(|(_, it)| what(it));
        for operation in
            [Operation::Group, Operation::Free, Operation::Store, Operation::Launch, Operation::Table, Operation::User]
        {
            *ran.outside.entry(operation.name()).or_default() += usize::from(has(&|it| it.operation == operation));
        }
        ran.one_sided += usize::from(has(&|it| {
            matches!(it.operation, Operation::RdmaRead | Operation::RdmaWrite | Operation::PutSignal)
        }));
        ran.vector += usize::from(has(&|it| takes_tables(it.operation)));
        let show = |wrong: &str| format!("seed {seed} of {ranks} ranks: {wrong}\n{communicators:?}\n{programs:#?}");
        if fails.iter().any(|statuses| !statuses.is_empty()) {
            let (rank, index, status) =
                both.fail(programs, communicators).unwrap_or_else(|wrong| panic!("{}", show(&wrong)));
            let it = programs[rank].instructions.get(index);
            let expected = it.and_then(|it| fails_as(rank, it, &set, host[rank]));
            let is_expected = expected.is_some_and(|all| all.contains(&status));
            assert!(is_expected, "{}", show(&format!("rank {rank}, instruction {index}: {status}")));
            *ran.failed.entry(format!("{status:?}")).or_default() += 1;
            both = cards(ranks);
        } else {
            // Other ranks first, or much later: what is ordered comes out the same.
            let mut dice = Dice(!seed);
            let delays: Vec<u64> = (0..ranks).map(|_| dice.below(3) * dice.below(5000)).collect();
            if let Err(wrong) = both.run_as(programs, &meant(programs), communicators, &delays) {
                panic!("{}", show(&wrong));
            }
            for (rank, program) in programs.iter().enumerate() {
                left_defined(program).into_iter().for_each(|id| both.run_before(rank, &[Instruction::free(id)]));
            }
            match has(&|it| it.operation == Operation::Free && it.communicator < DEFINED) {
                // The host knows of no communicators that are gone.
                true => both = cards(ranks),
                // What was written shall differ from what is there.
                false => both.prepare(ran.verified % ranks as usize, 0, ARENA),
            }
        }
        if ran.verified == wanted {
            break;
        }
    }
    ran
}

#[test]
fn verified_programs_do_what_they_say() {
    let full = is_full();
    let wanted = if full { 50_000 } else { 600 };
    for (ranks, part) in [(2, 4), (3, 4), (4, 2)] {
        let wanted = wanted / part;
        let ran = run_sets(ranks, seed() << 32, wanted);
        println!(
            "{ranks} ranks: {} verified and run, {} with one-sided transfers, {} with vector forms, {:?}; failed, as they \
             were given what is wrong: {:?}; refused: {:?}",
            ran.verified, ran.one_sided, ran.vector, ran.outside, ran.failed, ran.refused
        );
        assert_eq!(ran.verified, wanted);
        assert!(ran.one_sided * 10 > wanted, "{ran:?}");
        assert!(ran.vector * 10 > wanted, "{ran:?}");
        assert!(ran.outside.values().all(|count| count * 100 > wanted), "{ran:?}");
        assert!(ran.failed.len() >= if full { 4 } else { 1 }, "{ran:?}");
        let most: usize = ran.refused.values().sum();
        assert!(most < 4 * wanted, "{most} refused");
    }
}

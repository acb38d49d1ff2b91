//! Draws sets of programs, and the host memory that they read.

use cmdseq::instruction::{Rights, Window};
use cmdseq::plan::{Communicator, Program, ProgramSet};
use cmdseq::table::Entry;
use cmdseq::{Capabilities, Combine, Element, Flags, Instruction, Operand, Operation, Reduction, Table};
use fpga_tests::dice::Dice;

use super::stored::encoded;

/// Memory that random programs use.
pub(crate) const ARENA: u64 = 64 << 10;
/// The first id of communicators that programs define themselves: those of the sets are below.
pub(crate) const DEFINED: u16 = 20;
/// Entries of a card's table.
pub(crate) const ENTRIES: u16 = 32;
pub(crate) const SIZES: [u64; 9] = [0, 1, 8, 24, 64, 100, 512, 2048, 17_000];

/// A set at work.
pub(crate) struct Set<'a> {
    dice: Dice,
    capabilities: &'a Capabilities,
    pub(crate) programs: Vec<Program>,
    pub(crate) communicators: Vec<Communicator>,
    /// Waits that are owed: rank, signal and value.
    owed: Vec<(usize, u16, u32)>,
    /// By rank: where its card finds host memory.
    host: &'a [u64],
    /// By rank: what is to lie there.
    pub(crate) contents: Vec<Vec<u8>>,
    /// What frees communicators, at the end.
    frees: Vec<(usize, u16)>,
    /// Whether exchanges take any lane; the verifier refuses one-sided operations then.
    has_lanes: bool,
    /// The lane of this episode.
    lane: u8,
}

impl Set<'_> {
    fn push(&mut self, rank: usize, mut instruction: Instruction) {
        if instruction.operation.fields().lane {
            instruction.lane = self.lane;
        }
        if self.has_lanes && self.dice.one_in(4) {
            instruction.flags |= Flags::FENCE;
        }
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
        if self.has_lanes {
            self.lane = self.dice.below(self.capabilities.lanes.into()) as u8;
        }
        match self.dice.below(20) {
            0..=3 => self.collective(),
            4 => self.vector_form(),
            5 => {
                let (id, ranks) = self.communicator();
                ranks.iter().for_each(|rank| self.push(*rank, Instruction::barrier().on(id)));
            }
            6..=8 => self.pair(),
            9 => self.ring(),
            10..=13 if self.has_lanes => self.pair(),
            10 | 11 => self.one_sided(),
            12 | 13 if self.capabilities.runs(Operation::PutSignal) => self.put(),
            14 | 15 => self.outside(),
            18 | 19 if self.capabilities.runs(Operation::Fold) => self.fold(),
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

    /// A fold of two operands of a card; its result mostly replaces neither.
    fn fold(&mut self) {
        let rank = self.dice.below(self.programs.len() as u64) as usize;
        let combine = self.combine();
        let bytes = self.size() / combine.element.bytes() * combine.element.bytes();
        let (first, second) = (self.place(false, bytes), self.place(false, bytes));
        let destination = match self.dice.below(6) {
            0 => first,
            1 => second,
            _ => self.place(true, bytes),
        };
        self.push(rank, Instruction::fold(combine, first, second, destination, bytes));
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
        if self.capabilities.windows > 0 && self.dice.one_in(2) {
            return self.through_window((id, &ranks), (own, peer), instruction.on(id));
        }
        if !self.dice.one_in(3) {
            ranks.iter().for_each(|rank| self.push(*rank, Instruction::barrier().on(id)));
        }
        self.push(ranks[own], instruction.on(id));
        if !self.dice.one_in(3) {
            ranks.iter().for_each(|rank| self.push(*rank, Instruction::barrier().on(id)));
        }
    }

    /// A window of `peer`, and an instruction of `own` that goes through it; seldom one that the window does not allow.
    fn through_window(&mut self, (id, ranks): (u16, &[usize]), (own, peer): (usize, usize), instruction: Instruction) {
        let window = Window { slot: self.dice.below(3) as u16, key: 1 + self.dice.below(3) as u32 };
        let is_read = instruction.operation == Operation::RdmaRead;
        let there = if is_read { instruction.source } else { instruction.destination };
        let needed = if is_read { Rights::READ } else { Rights::WRITE };
        let (mut rights, mut named, mut at, mut bytes) = (needed, window, there, instruction.bytes);
        match self.dice.below(24) {
            0 => rights = Rights::all() - needed,
            1 => named.key += 1,
            2 => named.slot += 1,
            3 => bytes = bytes.saturating_sub(1),
            4 => at.address += 1,
            5 => (at.address, bytes) = (0, ARENA),
            6 => rights = Rights::all(),
            _ => {}
        }
        // Of a communicator of the set, in which the other may be no member.
        let of = if self.dice.one_in(3) { self.communicator().0 } else { id };
        self.push(ranks[peer], Instruction::open(window, rights, at, bytes).on(of));
        let barrier = |set: &mut Self| {
            if !set.dice.one_in(12) {
                ranks.iter().for_each(|rank| set.push(*rank, Instruction::barrier().on(id)));
            }
        };
        barrier(self);
        self.push(ranks[own], instruction.through(named));
        barrier(self);
        if !self.dice.one_in(10) {
            self.push(ranks[peer], Instruction::close(window));
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
            Operation::AlltoallScan,
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
        if it.operation.fields().window && dice.one_in(4) {
            it.extent = dice.of(&[0, 1 << 32, 1 << 32 | 1, it.extent ^ 1 << 16]);
            return;
        }
        match dice.below(if self.capabilities.lanes > 1 { 14 } else { 12 }) {
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
            12 => it.lane = dice.below(4) as u8,
            13 => it.flags ^= Flags::FENCE,
            _ => it.operation = dice.of(&[Operation::Send, Operation::Recv, Operation::Sendrecv, Operation::RdmaWrite]),
        }
    }
}

/// Programs of all ranks, and what lies in host memory for them.
pub(crate) struct RandomSet {
    pub(crate) set: ProgramSet,
    pub(crate) contents: Vec<Vec<u8>>,
}

pub(crate) fn random_set(seed: u64, capabilities: &Capabilities, host: &[u64]) -> RandomSet {
    let ranks = capabilities.nodes;
    let programs = vec![Program::default(); ranks as usize];
    let contents = vec![Vec::new(); ranks as usize];
    let (communicators, owed, frees) = (Vec::new(), Vec::new(), Vec::new());
    let mut dice = Dice(seed);
    let has_lanes = capabilities.lanes > 1 && !dice.one_in(4);
    let mut set = Set { dice, capabilities, programs, communicators, owed, host, contents, frees, has_lanes, lane: 0 };
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
    let Set { programs, communicators, contents, .. } = set;
    RandomSet { set: ProgramSet { nodes: (0..ranks).collect(), programs, communicators }, contents }
}

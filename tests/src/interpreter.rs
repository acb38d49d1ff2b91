//! Interprets programs on bytes, by the definitions of `docs/isa.md`: no time, no cards, and links only to order lanes.
//!
//! It shares no code with planner, verifier and mock: it computes block addresses and matches instructions itself. The
//! programs must not race; then any order of execution gives the same result.

use std::collections::{BTreeSet, HashMap, VecDeque};

use cmdseq::plan::ProgramSet;
use cmdseq::{AddressSpace, Flags, Instruction, Layout, Operand, Operation};

use crate::memory::Memory;
use crate::reduction::fold;
use crate::windows::Windows;

/// Error of programs that do not run to their ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stuck(pub String);

/// The running programs of all ranks.
struct Machine<'a> {
    set: &'a ProgramSet,
    nodes: u32,
    stripe_bytes: u64,
    memory: &'a mut [Memory],
    /// By rank, the next instruction that was not issued.
    next: Vec<usize>,
    /// By rank, those that were issued and have not ended.
    issued: Vec<Vec<Issued>>,
    messages: HashMap<Way, VecDeque<Vec<u8>>>,
    signals: HashMap<(usize, u16), u64>,
    windows: Windows,
}

/// The way of data in flight: members of the communicator, lane, sender and receiver.
type Way = (Vec<u32>, u8, usize, usize);

/// An instruction that was issued.
#[derive(Debug, Clone)]
struct Issued {
    it: Instruction,
    /// Whether it has sent and received its data.
    halves: (bool, bool),
    /// The ranks of programs to which it sends, and from which it receives.
    uses: [BTreeSet<usize>; 2],
}

/// Runs the programs of `set` in a fabric of `nodes` cards with stripes of `stripe_bytes`, on the memory of each.
///
/// # Errors
/// [`Stuck`] programs, or programs that do not match.
pub fn interpret(set: &ProgramSet, nodes: u32, stripe_bytes: u64, memory: &mut [Memory]) -> Result<(), Stuck> {
    let ranks = set.programs.len();
    let mut machine = Machine {
        set,
        nodes,
        stripe_bytes,
        memory,
        next: vec![0; ranks],
        issued: vec![Vec::new(); ranks],
        messages: HashMap::new(),
        signals: HashMap::new(),
        windows: Windows::default(),
    };
    loop {
        let mut moved = false;
        for rank in 0..ranks {
            machine.issue(rank)?;
            // Those that end change the list.
            for lane in machine.issued[rank].iter().map(|one| one.it.lane).collect::<Vec<_>>() {
                moved |= machine.advance(rank, lane)?;
            }
        }
        if !moved {
            break;
        }
    }
    for (rank, program) in set.programs.iter().enumerate() {
        if machine.next[rank] < program.instructions.len() || !machine.issued[rank].is_empty() {
            return Err(Stuck(format!("rank {rank} stays at instruction {}", machine.next[rank])));
        }
    }
    match machine.messages.values().all(VecDeque::is_empty) {
        true => Ok(()),
        false => Err(Stuck("messages are left".into())),
    }
}

impl Machine<'_> {
    fn head(&self, rank: usize, lane: u8) -> Option<Instruction> {
        self.issued[rank].iter().find(|one| one.it.lane == lane).map(|one| one.it)
    }

    fn halves(&mut self, rank: usize, lane: u8) -> &mut (bool, bool) {
        let place = self.issued[rank].iter().position(|one| one.it.lane == lane).expect("an issued instruction");
        &mut self.issued[rank][place].halves
    }

    /// Issues what waits for nothing that runs: `docs/isa.md`, Lanes.
    fn issue(&mut self, rank: usize) -> Result<(), Stuck> {
        while let Some(it) = self.set.programs[rank].instructions.get(self.next[rank]).copied() {
            let is_alone = |it: &Instruction| !is_exchange(it.operation);
            let uses = self.uses(rank, &it)?;
            let waits = |one: &Issued| {
                is_alone(&it)
                    || is_alone(&one.it)
                    || it.flags.contains(Flags::FENCE)
                    || it.lane == one.it.lane
                    || uses.iter().zip(&one.uses).any(|(own, its)| !own.is_disjoint(its))
            };
            if self.issued[rank].iter().any(waits) {
                break;
            }
            self.issued[rank].push(Issued { it, halves: (false, false), uses });
            self.next[rank] += 1;
        }
        Ok(())
    }

    /// Returns the ranks of programs to which the instruction sends blocks that are not empty, and from which it receives some.
    fn uses(&self, rank: usize, it: &Instruction) -> Result<[BTreeSet<usize>; 2], Stuck> {
        let nothing = [BTreeSet::new(), BTreeSet::new()];
        // One lane waits in any case, and a fold uses no link.
        if !is_exchange(it.operation)
            || it.operation == Operation::Fold
            || self.set.programs[rank].instructions.iter().all(|one| one.lane == 0)
        {
            return Ok(nothing);
        }
        let (nodes, own) = self.of_communicator(rank, it)?;
        let (root, peer, count) = (usize::from(it.root), usize::from(it.peer), nodes.len());
        let is_full = |number: usize| block_bytes(it, number) > 0;
        let listed = |slot: u64, number: usize| {
            let table = self.set.programs[rank].tables.iter().find(|(known, _)| u64::from(**known) == slot);
            table.and_then(|(_, table)| table.entries.get(number)).is_some_and(|entry| entry.bytes > 0)
        };
        let goes = |from: usize, to: usize| match it.operation {
            Operation::Send => from == own && to == peer && it.bytes > 0,
            Operation::Recv | Operation::RecvReduce => from == peer && to == own && it.bytes > 0,
            Operation::Sendrecv | Operation::SendrecvReduce => {
                ((from == own && to == peer) || (from == root && to == own)) && it.bytes > 0
            }
            Operation::Barrier => false,
            Operation::Scatter => from == root && is_full(to),
            Operation::Gather => to == root && is_full(from),
            Operation::Broadcast => from == root && it.bytes > 0,
            Operation::Reduce => to == root && it.bytes > 0,
            Operation::Allgather => is_full(from),
            Operation::ReduceScatter => is_full(to),
            Operation::Scan | Operation::Exscan => from < to && it.bytes > 0,
            Operation::Scatterv if own == root => from == root && listed(it.extent, to),
            Operation::Scatterv => from == root && it.bytes > 0,
            Operation::Gatherv if own == root => to == root && listed(it.extent, from),
            Operation::Gatherv => to == root && it.bytes > 0,
            Operation::Allgatherv => listed(it.extent, from),
            Operation::Alltoallv if from == own => listed(it.extent & 0xffff, to),
            Operation::Alltoallv => listed(it.extent >> 16, from),
            _ => it.bytes > 0,
        };
        let mut uses = nothing;
        for other in (0..count).filter(|other| *other != own) {
            let program = self.set.nodes.iter().position(|node| *node == nodes[other]);
            let [out, into] = [goes(own, other), goes(other, own)].map(|goes| program.filter(|_| goes));
            uses[0].extend(out);
            uses[1].extend(into);
        }
        Ok(uses)
    }

    /// Returns the nodes of the communicator, and the own rank.
    fn members(&self, rank: usize, id: u16) -> Option<(Vec<u32>, usize)> {
        let node = self.set.nodes[rank];
        let nodes: Vec<u32> = match id {
            0 => (0..self.nodes).collect(),
            _ => self.set.communicators.iter().find(|one| one.id == id && one.members.contains(&node))?.members.clone(),
        };
        let own = nodes.iter().position(|one| *one == node)?;
        Some((nodes, own))
    }

    fn program_rank(&self, node: u32) -> Result<usize, Stuck> {
        self.set.nodes.iter().position(|one| *one == node).ok_or_else(|| Stuck(format!("node {node} has no program")))
    }

    /// Returns the address of the only block exchanged with `other`.
    fn single(&self, side: Operand, other: usize) -> u64 {
        let stripes = if side.layout == Layout::Striped { other as u64 } else { 0 };
        side.address + stripes * self.stripe_bytes
    }

    /// Returns the address of block `number`.
    fn many(&self, side: Operand, bytes: u64, number: usize) -> u64 {
        let distance = if side.layout == Layout::Striped { self.stripe_bytes } else { bytes };
        side.address + number as u64 * distance
    }

    fn end(&mut self, rank: usize, lane: u8) {
        self.issued[rank].retain(|one| one.it.lane != lane);
    }

    /// Advances the instruction in `lane` of `rank` as far as possible.
    fn advance(&mut self, rank: usize, lane: u8) -> Result<bool, Stuck> {
        let Some(it) = self.head(rank, lane) else { return Ok(false) };
        match it.operation {
            Operation::Nop | Operation::Delay => {}
            Operation::Copy => {
                if it.source.space == AddressSpace::Host || it.destination.space == AddressSpace::Host {
                    return Err(Stuck("host memory is not interpreted".into()));
                }
                let data = self.memory[rank].read(it.source.address, it.bytes);
                self.memory[rank].write(it.destination.address, &data);
            }
            Operation::Fill => {
                let pattern = it.extent.to_le_bytes();
                let data: Vec<u8> = pattern.iter().copied().cycle().take(it.bytes as usize).collect();
                self.memory[rank].write(it.destination.address, &data);
            }
            Operation::Fold => {
                let [first, second] =
                    [it.source.address, it.extent].map(|address| self.memory[rank].read(address, it.bytes));
                let result = fold_of(&it, [first.as_slice(), second.as_slice()].into_iter())?;
                self.memory[rank].write(it.destination.address, &result);
            }
            Operation::RdmaRead | Operation::RdmaWrite | Operation::PutSignal => self.one_sided(rank, &it)?,
            Operation::Open => {
                let (members, _) = self.of_communicator(rank, &it)?;
                self.windows.open(rank, it, members).map_err(Stuck)?;
            }
            Operation::Close => self.windows.close(rank, &it).map_err(Stuck)?,
            Operation::WaitSignal => {
                let signal = self.signals.entry((rank, it.signal_id)).or_default();
                let Some(left) = signal.checked_sub(it.signal_value.into()) else { return Ok(false) };
                *signal = left;
            }
            Operation::Send
            | Operation::Recv
            | Operation::Sendrecv
            | Operation::RecvReduce
            | Operation::SendrecvReduce => return self.exchange(rank, &it),
            _ => return self.collective(rank, &it),
        }
        self.end(rank, lane);
        Ok(true)
    }

    fn one_sided(&mut self, rank: usize, it: &Instruction) -> Result<(), Stuck> {
        let (nodes, own) = self.of_communicator(rank, it)?;
        let peer = self.program_rank(nodes[usize::from(it.peer)])?;
        let other = usize::from(it.peer);
        let there = if it.operation == Operation::RdmaRead { it.source } else { it.destination };
        self.windows.pass(self.set.nodes[rank], peer, it, self.single(there, own)).map_err(Stuck)?;
        if it.operation == Operation::RdmaRead {
            let data = self.memory[peer].read(self.single(it.source, own), it.bytes);
            self.memory[rank].write(self.single(it.destination, other), &data);
            return Ok(());
        }
        let data = self.memory[rank].read(self.single(it.source, other), it.bytes);
        let to = self.single(it.destination, own);
        self.memory[peer].write(to, &data);
        if it.operation == Operation::PutSignal {
            *self.signals.entry((peer, it.signal_id)).or_default() += u64::from(it.signal_value);
        }
        Ok(())
    }

    fn of_communicator(&self, rank: usize, it: &Instruction) -> Result<(Vec<u32>, usize), Stuck> {
        let id = it.communicator;
        self.members(rank, id).ok_or_else(|| Stuck(format!("rank {rank} is not in communicator {id}")))
    }

    fn exchange(&mut self, rank: usize, it: &Instruction) -> Result<bool, Stuck> {
        let (nodes, own) = self.of_communicator(rank, it)?;
        let folds = matches!(it.operation, Operation::RecvReduce | Operation::SendrecvReduce);
        let both = matches!(it.operation, Operation::Sendrecv | Operation::SendrecvReduce);
        let (peer, root) = (usize::from(it.peer), usize::from(it.root));
        let to = (both || it.operation == Operation::Send).then_some(peer);
        let from = if both { Some(root) } else { (it.operation != Operation::Send).then_some(peer) };
        if both && peer == own {
            let data = self.memory[rank].read(self.single(it.source, own), it.bytes);
            self.memory[rank].write(self.single(it.destination, own), &data);
            self.end(rank, it.lane);
            return Ok(true);
        }
        // What is empty is neither sent nor waited for.
        if it.bytes == 0 {
            self.end(rank, it.lane);
            return Ok(true);
        }
        let mut moved = false;
        if let Some(to) = to
            && !self.halves(rank, it.lane).0
        {
            let data = self.memory[rank].read(self.single(it.source, to), it.bytes);
            let key = (nodes.clone(), it.lane, rank, self.program_rank(nodes[to])?);
            self.messages.entry(key).or_default().push_back(data);
            self.halves(rank, it.lane).0 = true;
            moved = true;
        }
        if let Some(from) = from
            && !self.halves(rank, it.lane).1
        {
            let key = (nodes.clone(), it.lane, self.program_rank(nodes[from])?, rank);
            let Some(data) = self.messages.get_mut(&key).and_then(VecDeque::pop_front) else { return Ok(moved) };
            if data.len() as u64 != it.bytes {
                return Err(Stuck(format!("rank {rank} gets {} B for {}", data.len(), it.bytes)));
            }
            let place = self.single(it.destination, from);
            let result = if folds {
                let at = if both { it.extent } else { self.single(it.source, from) };
                let mine = self.memory[rank].read(at, it.bytes);
                let mut both = [(own, mine), (from, data)];
                both.sort_by_key(|(rank, _)| *rank);
                fold_of(it, both.iter().map(|(_, data)| data.as_slice()))?
            } else {
                data
            };
            self.memory[rank].write(place, &result);
            self.halves(rank, it.lane).1 = true;
            moved = true;
        }
        let is_taken = match to {
            Some(to) => {
                let key = (nodes.clone(), it.lane, rank, self.program_rank(nodes[to])?);
                self.messages.get(&key).is_none_or(VecDeque::is_empty)
            }
            None => true,
        };
        if is_taken {
            self.end(rank, it.lane);
        }
        Ok(moved || is_taken)
    }

    /// Runs a collective if all its members have reached it.
    fn collective(&mut self, rank: usize, it: &Instruction) -> Result<bool, Stuck> {
        let (nodes, _) = self.of_communicator(rank, it)?;
        let ranks = nodes.iter().map(|node| self.program_rank(*node)).collect::<Result<Vec<_>, _>>()?;
        let mut all = Vec::new();
        for rank in &ranks {
            let Some(its) = self.head(*rank, it.lane).filter(|its| its.operation == it.operation) else {
                return Ok(false);
            };
            match self.members(*rank, its.communicator) {
                Some((members, _)) if members == nodes => all.push(its),
                _ => return Ok(false),
            }
        }
        let is_vector = is_vector_form(it.operation);
        let lengths = |one: &Instruction| (!is_vector).then_some((one.bytes, one.extent));
        let same = |one: &Instruction| (one.root, lengths(one), one.element, one.reduction);
        if all.iter().any(|one| same(one) != same(it)) {
            return Err(Stuck(format!("members of a {} do not say the same", it.operation)));
        }
        let results = if is_vector { self.vector_results(it, &ranks, &all)? } else { self.results(it, &ranks, &all)? };
        for (place, address, data) in results {
            self.memory[ranks[place]].write(address, &data);
        }
        ranks.iter().for_each(|rank| self.end(*rank, it.lane));
        Ok(true)
    }

    /// Returns the transfers of a vector form. Both ends must state the same length for each block.
    fn vector_results(
        &self,
        it: &Instruction,
        ranks: &[usize],
        all: &[Instruction],
    ) -> Result<Vec<(usize, u64, Vec<u8>)>, Stuck> {
        let root = usize::from(it.root);
        // Where block `number` of `rank` lies that its table in `slot` lists, and its length.
        let listed = |rank: usize, slot: u64, side: Operand, number: usize| {
            let tables = &self.set.programs[ranks[rank]].tables;
            let (_, table) = tables
                .iter()
                .find(|(known, _)| u64::from(**known) == slot)
                .ok_or_else(|| Stuck(format!("member {rank} of a {} has no table {slot}", it.operation)))?;
            match table.entries.get(number) {
                Some(entry) if table.entries.len() == ranks.len() => {
                    Ok((side.address.wrapping_add(entry.displacement), entry.bytes))
                }
                _ => Err(Stuck(format!("table {slot} of member {rank} is not one of {} ranks", ranks.len()))),
            }
        };
        let sent = |from: usize, to: usize| {
            let Instruction { source, bytes, extent, .. } = all[from];
            match it.operation {
                Operation::Scatterv => listed(from, extent, source, to),
                Operation::Alltoallv => listed(from, extent & 0xffff, source, to),
                _ => Ok((source.address, bytes)),
            }
        };
        let received = |to: usize, from: usize| {
            let Instruction { destination, bytes, extent, .. } = all[to];
            match it.operation {
                Operation::Scatterv => Ok((destination.address, bytes)),
                Operation::Alltoallv => listed(to, extent >> 16, destination, from),
                _ => listed(to, extent, destination, from),
            }
        };
        let mut results = Vec::new();
        for from in 0..ranks.len() {
            for to in 0..ranks.len() {
                let is_left_out = match it.operation {
                    Operation::Scatterv => from != root,
                    Operation::Gatherv => to != root,
                    _ => false,
                };
                if is_left_out {
                    continue;
                }
                let ((source, bytes), (destination, expected)) = (sent(from, to)?, received(to, from)?);
                if bytes != expected {
                    return Err(Stuck(format!("member {to} is to get {expected} B from {from}, which has {bytes} B")));
                }
                if bytes != 0 {
                    results.push((to, destination, self.memory[ranks[from]].read(source, bytes)));
                }
            }
        }
        Ok(results)
    }

    /// Returns what each member receives. All data is read before any is written.
    fn results(
        &self,
        it: &Instruction,
        ranks: &[usize],
        all: &[Instruction],
    ) -> Result<Vec<(usize, u64, Vec<u8>)>, Stuck> {
        let count = ranks.len();
        let root = usize::from(it.root);
        let block = |number: usize| block_bytes(it, number);
        let read = |rank: usize, address: u64, bytes: u64| self.memory[ranks[rank]].read(address, bytes);
        let from_single = |rank: usize, other: usize, bytes| read(rank, self.single(all[rank].source, other), bytes);
        let from_many =
            |rank: usize, number: usize| read(rank, self.many(all[rank].source, it.bytes, number), block(number));
        let to_single = |rank: usize, other: usize| self.single(all[rank].destination, other);
        let to_many = |rank: usize, number: usize| self.many(all[rank].destination, it.bytes, number);
        let folded = |members: std::ops::Range<usize>, of: &dyn Fn(usize) -> Vec<u8>| {
            let all: Vec<Vec<u8>> = members.map(of).collect();
            fold_of(it, all.iter().map(Vec::as_slice))
        };
        let mut results = Vec::new();
        match it.operation {
            Operation::Barrier => {}
            Operation::Scatter => {
                results.extend((0..count).map(|rank| (rank, to_single(rank, root), from_many(root, rank))));
            }
            Operation::Gather => {
                let one = |rank| (root, to_many(root, rank), from_single(rank, root, block(rank)));
                results.extend((0..count).map(one));
            }
            Operation::Broadcast => {
                let data = from_single(root, root, it.bytes);
                results.extend((0..count).map(|rank| (rank, to_single(rank, root), data.clone())));
            }
            Operation::Alltoall => {
                for rank in 0..count {
                    results.extend((0..count).map(|from| (rank, to_many(rank, from), from_many(from, rank))));
                }
            }
            Operation::Allgather => {
                for rank in 0..count {
                    let one = |from| (rank, to_many(rank, from), from_single(from, from, block(from)));
                    results.extend((0..count).map(one));
                }
            }
            Operation::Reduce => {
                let data = folded(0..count, &|rank| from_single(rank, root, it.bytes))?;
                results.push((root, to_single(root, root), data));
            }
            Operation::Allreduce => {
                let data = folded(0..count, &|rank| from_single(rank, rank, it.bytes))?;
                results.extend((0..count).map(|rank| (rank, to_single(rank, rank), data.clone())));
            }
            Operation::ReduceScatter => {
                for rank in 0..count {
                    let data = folded(0..count, &|from| from_many(from, rank))?;
                    results.push((rank, to_single(rank, rank), data));
                }
            }
            Operation::AlltoallScan => {
                for (rank, last) in (0..count).flat_map(|rank| (0..count).map(move |last| (rank, last))) {
                    let data = folded(0..last + 1, &|from| from_many(from, rank))?;
                    results.push((rank, to_many(rank, last), data));
                }
            }
            Operation::Scan | Operation::Exscan => {
                let with_own = usize::from(it.operation == Operation::Scan);
                for rank in 1 - with_own..count {
                    let data = folded(0..rank + with_own, &|from| from_single(from, from, it.bytes))?;
                    results.push((rank, to_single(rank, rank), data));
                }
            }
            other => return Err(Stuck(format!("{other} is not interpreted"))),
        }
        results.retain(|(_, _, data)| !data.is_empty());
        Ok(results)
    }
}

/// Whether the operation runs in a lane.
fn is_exchange(operation: Operation) -> bool {
    use Operation::{Close, Open, Table, User, WaitSignal};
    use Operation::{Copy, Delay, Fill, Free, Group, Launch, Loop, Nop, PutSignal, RdmaRead, RdmaWrite, Store};
    !matches!(
        operation,
        Nop | Delay
            | Copy
            | Fill
            | RdmaRead
            | RdmaWrite
            | PutSignal
            | WaitSignal
            | Group
            | Free
            | Store
            | Launch
            | Loop
            | Table
            | User
            | Open
            | Close
    )
}

/// Bytes of block `number` of a collective: the last ones of a divided vector are short or empty.
fn block_bytes(it: &Instruction, number: usize) -> u64 {
    use Operation::{Allgather, Gather, ReduceScatter, Scatter};
    match matches!(it.operation, Scatter | Gather | Allgather | ReduceScatter) && it.extent != 0 {
        true => it.extent.saturating_sub(number as u64 * it.bytes).min(it.bytes),
        false => it.bytes,
    }
}

fn is_vector_form(operation: Operation) -> bool {
    use Operation::{Allgatherv, Alltoallv, Gatherv, Scatterv};
    matches!(operation, Scatterv | Gatherv | Allgatherv | Alltoallv)
}

fn fold_of<'d>(it: &Instruction, contributions: impl Iterator<Item = &'d [u8]>) -> Result<Vec<u8>, Stuck> {
    let combine = it.combine().ok_or_else(|| Stuck(format!("{} without a reduction", it.operation)))?;
    let all: Vec<&[u8]> = contributions.collect();
    Ok(fold(combine.reduction.name(), combine.element.name(), &all))
}

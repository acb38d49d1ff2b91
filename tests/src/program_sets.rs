//! Runs program sets on mock cards and in the interpreter, from the same memory, and compares the memory afterwards.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cmdseq::plan::ProgramSet;
use cmdseq::{Capabilities, Instruction, Status};
use fpga_driver::{Bound, Cluster, Error, Execution, Report};
use fpga_hal::DmaBuffer;
use fpga_mock::{CardMemory, Fabric, Profile, UserCall, UserLogic};

use crate::interpreter::interpret;
use crate::memory::{Memory, PAGE};
use crate::{pattern, run};

/// Time limit of a set; far above any set that ends.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Host memory that each card reads: communicators, tables and programs.
pub const HOST_BYTES: u64 = 64 << 10;

/// User logic: a copy in card memory.
struct Copying;

impl UserLogic for Copying {
    fn run(&mut self, memory: &mut CardMemory, call: UserCall) -> Result<u64, Status> {
        let data = memory.read(call.source, call.bytes)?;
        memory.write(call.destination, &data)?;
        Ok(call.bytes.div_ceil(32))
    }
}

/// Cards, and their memory in the interpreter.
pub struct Both {
    cluster: Cluster,
    memory: Vec<Memory>,
    seed: u64,
    /// Pages that are compared after every run, on every card.
    watched: BTreeSet<u64>,
    host: Vec<Arc<DmaBuffer>>,
    fabric: Fabric,
}

impl Both {
    /// Opens all cards of a fabric of `profile`, with empty memory.
    ///
    /// # Panics
    /// If the fabric cannot be built.
    pub fn new(profile: Profile) -> Self {
        let (fabric, cluster) = run::open(profile);
        let nodes = cluster.capabilities().nodes;
        let memory = vec![Memory::default(); nodes as usize];
        let allocate = |card: &fpga_driver::Card| card.allocate(HOST_BYTES as usize).expect("host memory");
        let host = cluster.cards().iter().map(allocate).collect();
        Both { cluster, memory, seed: 0, watched: BTreeSet::new(), host, fabric }
    }

    /// Returns the capabilities of the cards.
    pub fn capabilities(&self) -> &Capabilities {
        self.cluster.capabilities()
    }

    /// Returns the IOVA of a card's [`HOST_BYTES`] of host memory.
    pub fn host(&self, rank: usize) -> u64 {
        self.host[rank].iova().0
    }

    /// Puts `data` into the host memory of `rank`'s card.
    ///
    /// # Panics
    /// If `data` is longer.
    pub fn put_host(&mut self, rank: usize, offset: u64, data: &[u8]) {
        self.host[rank].write(offset as usize, data).expect("host memory");
    }

    /// Connects user logic that copies to the switch of `rank`'s card.
    pub fn set_user_logic(&mut self, rank: usize) {
        self.fabric.set_user_logic(rank as u32, Box::new(Copying));
    }

    /// Runs instructions on `rank`'s card alone.
    ///
    /// # Panics
    /// If one of them fails.
    pub fn run_before(&mut self, rank: usize, instructions: &[Instruction]) {
        let bound = instructions.iter().map(|one| Bound::covered_by(one, &self.host));
        self.cluster.card_mut(rank).run(bound, TIMEOUT).expect("instructions that do not fail");
    }

    /// Compares a range on every card after every later run, whichever card uses it.
    pub fn watch(&mut self, address: u64, bytes: u64) {
        let end = address.saturating_add(bytes).min(self.capabilities().memory_bytes);
        self.watched.extend(address / PAGE..end.div_ceil(PAGE));
    }

    /// Fills a range of `rank`'s memory with new data, and watches the range from now on.
    ///
    /// # Panics
    /// If the write fails.
    pub fn prepare(&mut self, rank: usize, address: u64, bytes: u64) {
        let mut data = vec![0; bytes as usize];
        self.seed += 1;
        pattern::fill(self.seed, rank as u32, 0, &mut data);
        self.put(rank, address, &data);
    }

    /// Writes `data` to `rank`'s memory, and watches the range.
    ///
    /// # Panics
    /// If the write fails.
    pub fn put(&mut self, rank: usize, address: u64, data: &[u8]) {
        self.cluster.card_mut(rank).write_memory(address, data).expect("card memory");
        self.memory[rank].write(address, data);
        self.watch(address, data.len() as u64);
    }

    /// Returns a range of `rank`'s memory in the interpreter.
    pub fn read(&self, rank: usize, address: u64, bytes: u64) -> Vec<u8> {
        self.memory[rank].read(address, bytes)
    }

    /// Runs programs of all cards, by node, each `delays` cycles later, which are to end well and leave on the cards what they leave
    /// in the interpreter: wherever a program has written on one card, and in all that is watched, on every card and in
    /// every stripe.
    ///
    /// # Errors
    /// The difference, as a sentence.
    pub fn run(&mut self, set: &ProgramSet, delays: &[u64]) -> Result<Report, String> {
        self.run_as(set, set, delays)
    }

    /// As [`run`](Both::run), with the interpreter running `meant`: what the programs do, said with what it knows.
    ///
    /// # Errors
    /// As [`run`](Both::run).
    pub fn run_as(&mut self, set: &ProgramSet, meant: &ProgramSet, delays: &[u64]) -> Result<Report, String> {
        self.memory.iter_mut().for_each(|memory| drop(memory.take_written()));
        let (nodes, stripe) = (self.capabilities().nodes, self.capabilities().stripe_bytes());
        interpret(meant, nodes, stripe, &mut self.memory).map_err(|stuck| format!("the interpreter: {}", stuck.0))?;
        let report = self.execute(set, delays).map_err(|error| format!("the cards: {error}"))?;
        let pages = self.pages_to_compare();
        for rank in 0..set.programs.len() {
            self.compare(rank, &pages)?;
        }
        Ok(report)
    }

    /// Runs programs that are to fail: rank, index and status. The cards cannot be used afterwards.
    ///
    /// # Errors
    /// The difference, as a sentence.
    pub fn fail(&mut self, set: &ProgramSet) -> Result<(usize, usize, Status), String> {
        match self.execute(set, &[]) {
            Err(Error::Failed { rank: Some(rank), instruction, status, .. }) => {
                Ok((rank as usize, instruction, status))
            }
            Err(other) => Err(format!("the cards: {other}")),
            Ok(_) => Err("no instruction fails".into()),
        }
    }

    fn execute(&mut self, set: &ProgramSet, delays: &[u64]) -> fpga_driver::Result<Report> {
        let buffers = self.host.clone();
        let start_delay_cycles = delays.to_vec();
        let execution = Execution { timeout: TIMEOUT, start_delay_cycles, buffers, ..Execution::default() };
        self.cluster.execute(set, &execution)
    }

    /// What is watched, and what the interpreter has written on any card, in every stripe.
    fn pages_to_compare(&mut self) -> BTreeSet<u64> {
        let mut pages = self.watched.clone();
        let stripe = (self.capabilities().stripe_bytes() / PAGE).max(1);
        let all = self.capabilities().memory_bytes / PAGE;
        let cards = self.memory.len() as u64;
        for (address, bytes) in self.memory.iter_mut().flat_map(Memory::take_written) {
            for page in address / PAGE..(address + bytes).div_ceil(PAGE) {
                let in_stripes = (0..cards).map(|other| page % stripe + other * stripe);
                pages.extend(in_stripes.chain([page]).filter(|page| *page < all));
            }
        }
        pages
    }

    /// Compares pages of `rank`'s card with what the interpreter has, those in a row at once.
    fn compare(&mut self, rank: usize, pages: &BTreeSet<u64>) -> Result<(), String> {
        let mut pages = pages.iter().copied().peekable();
        while let Some(first) = pages.next() {
            let mut end = first + 1;
            while pages.next_if_eq(&end).is_some() {
                end += 1;
            }
            let address = first * PAGE;
            let mut data = vec![0; ((end - first) * PAGE) as usize];
            let card = self.cluster.card_mut(rank);
            card.read_memory(address, &mut data).map_err(|error| format!("the cards: {error}"))?;
            let expected = self.memory[rank].read(address, data.len() as u64);
            if let Some(at) = data.iter().zip(&expected).position(|(found, right)| found != right) {
                let at = address + at as u64;
                return Err(format!("rank {rank}: the byte at {at:#x} is not what the interpreter has"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use cmdseq::{Instruction, Operand};

    use super::*;

    /// A byte that no program writes is compared too: on the card that runs nothing, and behind what another writes.
    #[test]
    fn what_nobody_was_to_write_is_compared() {
        let mut both = Both::new(Profile::optweb(2));
        both.prepare(0, 0x10_000, 64);
        let fill = Instruction::fill(Operand::card(0x20_000), 64, 7);
        let set = ProgramSet::new([0, 1], [vec![fill], vec![]]);
        both.run(&set, &[]).expect("both do the same");
        for (rank, stray) in [(1, 0x10_000), (0, 0x10_fff), (1, 0x20_040), (0, 0x20_800)] {
            both.cluster.card_mut(rank).write_memory(stray, &[1]).expect("card memory");
            let wrong = both.run(&set, &[]).expect_err("a stray byte");
            assert_eq!(wrong, format!("rank {rank}: the byte at {stray:#x} is not what the interpreter has"));
            both.cluster.card_mut(rank).write_memory(stray, &[0]).expect("card memory");
            both.put(rank, stray, &[0]);
        }
    }
}

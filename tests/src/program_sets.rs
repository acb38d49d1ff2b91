//! Program sets on mock cards and in the interpreter, with the same memory before and, it is to be hoped, after.

use std::time::Duration;

use cmdseq::Capabilities;
use cmdseq::plan::{Collective, Communicator, Plan, Program, Request, plan};
use fpga_driver::{Cluster, Execution};
use fpga_mock::{Fabric, Profile};

use crate::interpreter::{Memory, interpret};
use crate::{pattern, run};

/// Far more than any set takes that does not hang.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Cards, and what the interpreter says their memory holds.
pub struct Both {
    cluster: Cluster,
    memory: Vec<Memory>,
    carrier: Plan,
    seed: u64,
    _fabric: Fabric,
}

impl Both {
    /// All cards of a fabric of `profile`, with empty memory.
    ///
    /// # Panics
    /// If there is no such fabric.
    pub fn new(profile: Profile) -> Self {
        let (fabric, cluster) = run::open(profile);
        let nodes = cluster.capabilities().nodes;
        let request = Request::new(Collective::Barrier, (0..nodes).collect(), 0);
        let carrier = plan(&request, cluster.capabilities()).expect("a barrier");
        let memory = vec![Memory::default(); nodes as usize];
        Both { cluster, memory, carrier, seed: 0, _fabric: fabric }
    }

    /// What the cards say of themselves.
    pub fn capabilities(&self) -> &Capabilities {
        self.cluster.capabilities()
    }

    /// Puts data that was never there before into a range of `rank`'s memory.
    ///
    /// # Panics
    /// If the card does not take it.
    pub fn prepare(&mut self, rank: usize, address: u64, bytes: u64) {
        let mut data = vec![0; bytes as usize];
        self.seed += 1;
        pattern::fill(self.seed, rank as u32, 0, &mut data);
        self.put(rank, address, &data);
    }

    /// Puts `data` into `rank`'s memory.
    ///
    /// # Panics
    /// If the card does not take it.
    pub fn put(&mut self, rank: usize, address: u64, data: &[u8]) {
        self.cluster.cards_mut()[rank].write_memory(address, data).expect("card memory");
        self.memory[rank].write(address, data);
    }

    /// What the interpreter says is in a range of `rank`'s memory.
    pub fn read(&self, rank: usize, address: u64, bytes: u64) -> Vec<u8> {
        self.memory[rank].read(address, bytes)
    }

    /// Runs programs of all ranks, each `delays` cycles later, which are to end well and leave on the cards what they leave
    /// in the interpreter.
    ///
    /// # Errors
    /// In a sentence, how it did not.
    pub fn run(&mut self, programs: &[Program], communicators: &[Communicator], delays: &[u64]) -> Result<(), String> {
        let group = self.carrier.request.group.clone();
        self.memory.iter_mut().for_each(|memory| drop(memory.take_written()));
        let (nodes, stripe) = (self.capabilities().nodes, self.capabilities().stripe_bytes());
        interpret(programs, communicators, &group, nodes, stripe, &mut self.memory)
            .map_err(|stuck| format!("the interpreter: {}", stuck.0))?;
        let plan = Plan { programs: programs.to_vec(), communicators: communicators.to_vec(), ..self.carrier.clone() };
        let execution = Execution { timeout: TIMEOUT, start_delay_cycles: delays.to_vec(), ..Execution::default() };
        self.cluster.execute(&plan, &execution).map_err(|error| format!("the cards: {error}"))?;
        for (rank, memory) in self.memory.iter_mut().enumerate() {
            for (address, bytes) in memory.take_written() {
                let mut data = vec![0; bytes as usize];
                let card = &mut self.cluster.cards_mut()[rank];
                card.read_memory(address, &mut data).map_err(|error| format!("the cards: {error}"))?;
                let expected = memory.read(address, bytes);
                if let Some(at) = data.iter().zip(&expected).position(|(found, right)| found != right) {
                    let at = address + at as u64;
                    return Err(format!("rank {rank}: the byte at {at:#x} is not what the interpreter has"));
                }
            }
        }
        Ok(())
    }
}

//! Windows in the interpreter, by the definitions of `docs/isa.md`.

use std::collections::HashMap;

use cmdseq::{Instruction, Operation};

/// By rank and slot, the `open` of each open window, and the nodes that it is for.
#[derive(Debug, Default)]
pub(crate) struct Windows(HashMap<(usize, u64), (Instruction, Vec<u32>)>);

fn slot(it: &Instruction) -> u64 {
    it.extent & 0xffff
}

fn key(it: &Instruction) -> u64 {
    it.extent >> 32
}

impl Windows {
    /// Opens a window of `rank` for `members`.
    pub(crate) fn open(&mut self, rank: usize, it: Instruction, members: Vec<u32>) -> Result<(), String> {
        match self.0.insert((rank, slot(&it)), (it, members)) {
            None => Ok(()),
            Some(_) => Err(format!("rank {rank} opens a window twice")),
        }
    }

    /// Closes a window of `rank`.
    pub(crate) fn close(&mut self, rank: usize, it: &Instruction) -> Result<(), String> {
        match self.0.remove(&(rank, slot(it))) {
            Some((open, _)) if key(&open) == key(it) => Ok(()),
            _ => Err(format!("rank {rank} closes a window that is not open")),
        }
    }

    /// Whether a one-sided operation of `node` may reach its bytes at `address` of rank `peer`.
    pub(crate) fn pass(&self, node: u32, peer: usize, it: &Instruction, address: u64) -> Result<(), String> {
        let refuse = |why: &str| Err(format!("node {node} misses a window of rank {peer}: {why}"));
        // A program's own data.
        if it.extent == 0 {
            return Ok(());
        }
        let Some((open, members)) = self.0.get(&(peer, slot(it))) else { return refuse("it is closed") };
        // Of the rights: 1 reads, 2 writes, 4 adds to signals.
        let needed = match it.operation {
            Operation::RdmaRead => 1,
            Operation::RdmaWrite => 2,
            _ if it.bytes == 0 => 4,
            _ => 6,
        };
        let (first, end) = (open.destination.address, open.destination.address + open.bytes);
        if key(open) != key(it) {
            refuse("the key")
        } else if needed & !(open.extent >> 16) != 0 {
            refuse("the right")
        } else if !members.contains(&node) {
            refuse("it is for others")
        } else if it.bytes > 0 && (address < first || address + it.bytes > end) {
            refuse("the range")
        } else {
            Ok(())
        }
    }
}

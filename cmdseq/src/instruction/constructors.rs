//! Constructors, one for each operation.

use super::operand::Operand;
use super::operation::Operation;
use super::word::BYTES;
use super::{ARGUMENTS, Instruction, Rights, Window};
use crate::reduction::Combine;

impl Instruction {
    const fn combining(
        operation: Operation,
        combine: Combine,
        source: Operand,
        destination: Operand,
        bytes: u64,
    ) -> Self {
        let Combine { element, reduction } = combine;
        let instruction = Instruction::moving(operation, source, destination, bytes);
        Instruction { element: Some(element), reduction: Some(reduction), ..instruction }
    }

    const fn moving(operation: Operation, source: Operand, destination: Operand, bytes: u64) -> Self {
        Instruction { source, destination, bytes, ..Instruction::new(operation) }
    }

    /// Does nothing.
    pub const fn nop() -> Self {
        Instruction::new(Operation::Nop)
    }

    /// Waits until all ranks have arrived.
    pub const fn barrier() -> Self {
        Instruction::new(Operation::Barrier)
    }

    /// Sends `bytes` to rank `peer`.
    pub const fn send(peer: u16, source: Operand, bytes: u64) -> Self {
        Instruction { peer, ..Instruction::moving(Operation::Send, source, Operand::card(0), bytes) }
    }

    /// Receives `bytes` from rank `peer`.
    pub const fn recv(peer: u16, destination: Operand, bytes: u64) -> Self {
        Instruction { peer, ..Instruction::moving(Operation::Recv, Operand::card(0), destination, bytes) }
    }

    /// Sends to rank `to` and receives from rank `from`.
    pub const fn sendrecv(to: u16, from: u16, source: Operand, destination: Operand, bytes: u64) -> Self {
        Instruction { peer: to, root: from, ..Instruction::moving(Operation::Sendrecv, source, destination, bytes) }
    }

    /// Distributes blocks of `bytes` from rank `root`.
    pub const fn scatter(root: u16, source: Operand, destination: Operand, bytes: u64) -> Self {
        Instruction { root, ..Instruction::moving(Operation::Scatter, source, destination, bytes) }
    }

    /// Collects blocks of `bytes` at rank `root`.
    pub const fn gather(root: u16, source: Operand, destination: Operand, bytes: u64) -> Self {
        Instruction { root, ..Instruction::moving(Operation::Gather, source, destination, bytes) }
    }

    /// Copies `bytes` of rank `root` to every rank.
    pub const fn broadcast(root: u16, source: Operand, destination: Operand, bytes: u64) -> Self {
        Instruction { root, ..Instruction::moving(Operation::Broadcast, source, destination, bytes) }
    }

    /// Exchanges blocks of `bytes` between all ranks.
    pub const fn alltoall(source: Operand, destination: Operand, bytes: u64) -> Self {
        Instruction::moving(Operation::Alltoall, source, destination, bytes)
    }

    /// Collects blocks of `bytes` at every rank.
    pub const fn allgather(source: Operand, destination: Operand, bytes: u64) -> Self {
        Instruction::moving(Operation::Allgather, source, destination, bytes)
    }

    /// Folds vectors of `bytes` at rank `root`.
    pub const fn reduce(combine: Combine, root: u16, source: Operand, destination: Operand, bytes: u64) -> Self {
        Instruction { root, ..Instruction::combining(Operation::Reduce, combine, source, destination, bytes) }
    }

    /// Folds vectors of `bytes` at every rank.
    pub const fn allreduce(combine: Combine, source: Operand, destination: Operand, bytes: u64) -> Self {
        Instruction::combining(Operation::Allreduce, combine, source, destination, bytes)
    }

    /// Folds blocks of `bytes`, one for each rank.
    pub const fn reduce_scatter(combine: Combine, source: Operand, destination: Operand, bytes: u64) -> Self {
        Instruction::combining(Operation::ReduceScatter, combine, source, destination, bytes)
    }

    /// Folds vectors of `bytes` of the ranks up to each.
    pub const fn scan(combine: Combine, source: Operand, destination: Operand, bytes: u64) -> Self {
        Instruction::combining(Operation::Scan, combine, source, destination, bytes)
    }

    /// Folds vectors of `bytes` of the ranks before each.
    pub const fn exscan(combine: Combine, source: Operand, destination: Operand, bytes: u64) -> Self {
        Instruction::combining(Operation::Exscan, combine, source, destination, bytes)
    }

    /// Folds blocks of `bytes`, one for each rank, and keeps the fold of the ranks up to each.
    pub const fn alltoall_scan(combine: Combine, source: Operand, destination: Operand, bytes: u64) -> Self {
        Instruction::combining(Operation::AlltoallScan, combine, source, destination, bytes)
    }

    /// Reads `bytes` of rank `peer`'s card memory at `source`.
    pub const fn rdma_read(peer: u16, source: Operand, destination: Operand, bytes: u64) -> Self {
        Instruction { peer, ..Instruction::moving(Operation::RdmaRead, source, destination, bytes) }
    }

    /// Writes `bytes` to rank `peer`'s card memory at `destination`.
    pub const fn rdma_write(peer: u16, source: Operand, destination: Operand, bytes: u64) -> Self {
        Instruction { peer, ..Instruction::moving(Operation::RdmaWrite, source, destination, bytes) }
    }

    /// Receives `bytes` from rank `peer` and folds them with the bytes at `own`.
    pub const fn recv_reduce(combine: Combine, peer: u16, own: Operand, destination: Operand, bytes: u64) -> Self {
        Instruction { peer, ..Instruction::combining(Operation::RecvReduce, combine, own, destination, bytes) }
    }

    /// Sends `bytes` at `source` to rank `to`, and folds the data from rank `from` with the bytes at `own`.
    pub const fn sendrecv_reduce(
        combine: Combine,
        (to, from): (u16, u16),
        source: Operand,
        own: Operand,
        destination: Operand,
        bytes: u64,
    ) -> Self {
        Instruction {
            peer: to,
            root: from,
            extent: own.address,
            extent_argument: own.argument,
            ..Instruction::combining(Operation::SendrecvReduce, combine, source, destination, bytes)
        }
    }

    /// Folds `bytes` at `first` with those at `second`, in this order. The result may replace either operand.
    pub const fn fold(combine: Combine, first: Operand, second: Operand, destination: Operand, bytes: u64) -> Self {
        Instruction {
            extent: second.address,
            extent_argument: second.argument,
            ..Instruction::combining(Operation::Fold, combine, first, destination, bytes)
        }
    }

    /// Writes `bytes` to rank `peer`'s card memory at `destination`, then adds `value` to its signal `signal`.
    pub const fn put_signal(
        peer: u16,
        source: Operand,
        destination: Operand,
        bytes: u64,
        signal: u16,
        value: u32,
    ) -> Self {
        Instruction {
            peer,
            signal_id: signal,
            signal_value: value,
            ..Instruction::moving(Operation::PutSignal, source, destination, bytes)
        }
    }

    /// Waits until this card's signal `signal` is at least `value`, and subtracts the value.
    pub const fn wait_signal(signal: u16, value: u32) -> Self {
        Instruction { signal_id: signal, signal_value: value, ..Instruction::new(Operation::WaitSignal) }
    }

    /// Distributes the blocks of table `table` of rank `root`; the own block has `bytes`.
    pub const fn scatterv(root: u16, source: Operand, destination: Operand, bytes: u64, table: u16) -> Self {
        let instruction = Instruction::moving(Operation::Scatterv, source, destination, bytes);
        Instruction { root, extent: table as u64, ..instruction }
    }

    /// Collects the blocks of table `table` of rank `root`; the own block has `bytes`.
    pub const fn gatherv(root: u16, source: Operand, destination: Operand, bytes: u64, table: u16) -> Self {
        let instruction = Instruction::moving(Operation::Gatherv, source, destination, bytes);
        Instruction { root, extent: table as u64, ..instruction }
    }

    /// Collects the blocks of table `table` at every rank; the own block has `bytes`.
    pub const fn allgatherv(source: Operand, destination: Operand, bytes: u64, table: u16) -> Self {
        Instruction { extent: table as u64, ..Instruction::moving(Operation::Allgatherv, source, destination, bytes) }
    }

    /// Exchanges the blocks of table `sends` for those of table `receives`.
    pub const fn alltoallv(source: Operand, destination: Operand, sends: u16, receives: u16) -> Self {
        let extent = sends as u64 | (receives as u64) << 16;
        Instruction { extent, ..Instruction::moving(Operation::Alltoallv, source, destination, 0) }
    }

    /// Stores the `ranges` ranges at IOVA `table` in table slot `slot`.
    pub const fn table(slot: u16, table: u64, ranges: u64) -> Self {
        let (source, bytes) = (Operand::host(table), ranges.saturating_mul(16));
        let instruction = Instruction::moving(Operation::Table, source, Operand::card(0), bytes);
        Instruction { extent: slot as u64, ..instruction }
    }

    /// Removes `communicator`.
    pub const fn free(communicator: u16) -> Self {
        Instruction { communicator, ..Instruction::new(Operation::Free) }
    }

    /// Opens `window` over `bytes` at `destination` for the members of the communicator, with `rights`.
    pub const fn open(window: Window, rights: Rights, destination: Operand, bytes: u64) -> Self {
        let instruction = Instruction::moving(Operation::Open, Operand::card(0), destination, bytes);
        Instruction { extent: window.extent(rights), ..instruction }
    }

    /// Closes `window`.
    pub const fn close(window: Window) -> Self {
        Instruction { extent: window.extent(Rights::empty()), ..Instruction::new(Operation::Close) }
    }

    /// Runs the next `body` instructions `count` times.
    pub const fn repeat(count: u16, body: u16) -> Self {
        Instruction { loop_count: count, loop_body: body, ..Instruction::new(Operation::Loop) }
    }

    /// Copies `bytes` between card and host memory.
    pub const fn copy(source: Operand, destination: Operand, bytes: u64) -> Self {
        Instruction::moving(Operation::Copy, source, destination, bytes)
    }

    /// Fills `bytes` at `destination` with `pattern`, little-endian, repeated.
    pub const fn fill(destination: Operand, bytes: u64, pattern: u64) -> Self {
        Instruction { extent: pattern, ..Instruction::moving(Operation::Fill, Operand::card(0), destination, bytes) }
    }

    /// Waits `cycles` of the sequencer's clock.
    pub const fn delay(cycles: u64) -> Self {
        Instruction { extent: cycles, ..Instruction::new(Operation::Delay) }
    }

    /// Defines `communicator` as the `ranks` nodes listed (u16, little-endian) at IOVA `table`.
    pub const fn group(communicator: u16, table: u64, ranks: u64) -> Self {
        let (members, bytes) = (Operand::host(table), ranks.saturating_mul(2));
        Instruction { communicator, ..Instruction::moving(Operation::Group, members, Operand::card(0), bytes) }
    }

    /// Stores `words` instructions at IOVA `program` in slot `slot`.
    pub const fn store(slot: u64, program: u64, words: u64) -> Self {
        let bytes = words.saturating_mul(BYTES as u64);
        Instruction {
            extent: slot,
            ..Instruction::moving(Operation::Store, Operand::host(program), Operand::card(0), bytes)
        }
    }

    /// Runs the resident program in slot `slot` with `arguments`.
    pub const fn launch(slot: u64, arguments: [u64; ARGUMENTS]) -> Self {
        let [source, destination, bytes] = arguments;
        Instruction {
            extent: slot,
            ..Instruction::moving(Operation::Launch, Operand::card(source), Operand::card(destination), bytes)
        }
    }

    /// Hands the memory to user logic, with `extent` for it to interpret.
    pub const fn user(source: Operand, destination: Operand, bytes: u64, extent: u64) -> Self {
        Instruction { extent, ..Instruction::moving(Operation::User, source, destination, bytes) }
    }
}

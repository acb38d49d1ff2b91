//! Operations, and the fields that each reads.

use crate::named::coded;

macro_rules! operations {
    ($($(#[doc = $doc:literal])* $name:ident = $code:literal, $text:literal, uses($($field:ident)*);)*) => {
        coded! {
            /// The operation of an instruction.
            Operation in u64 { $($(#[doc = $doc])* $name = $code, $text;)* }
        }

        impl Operation {
            /// Returns the fields that the operation reads. All others must be zero.
            // Inlined, the test of one field is that of a bit.
            #[inline(always)]
            pub const fn fields(self) -> Fields {
                match self {
                    $(Operation::$name => Fields { $($field: true,)* ..Fields::NONE },)*
                }
            }
        }
    };
}

macro_rules! fields {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// The fields that an operation reads; all others must be zero.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub struct Fields {
            $($(#[$doc])* pub $field: bool,)*
        }

        impl Fields {
            const NONE: Fields = Fields { $($field: false,)* };
        }
    };
}

fields! {
    communicator,
    root,
    peer,
    source,
    destination,
    bytes,
    extent,
    /// Element type and reduction.
    combine,
    /// Number and value of a signal.
    signal,
    /// Count and body of a loop.
    rounds,
    /// The launch argument of the extent.
    extent_argument,
    /// The lane: the operation runs in it, and those of other lanes may run at the same time.
    lane,
    /// Slot and key of a window.
    window,
    /// The rights of a window.
    rights,
}

operations! {
    /// Does nothing.
    Nop = 1, "nop", uses();
    /// Waits until every rank of the communicator has arrived.
    Barrier = 2, "barrier", uses(communicator lane);
    /// Sends `bytes` at `source` to rank `peer`, which runs recv.
    Send = 3, "send", uses(communicator peer source bytes lane);
    /// Receives `bytes` from rank `peer` to `destination`.
    Recv = 4, "recv", uses(communicator peer destination bytes lane);
    /// Sends to rank `peer` and receives the same number of bytes from rank `root`, at once.
    Sendrecv = 5, "sendrecv", uses(communicator root peer source destination bytes lane);
    /// Block i of rank `root`'s source goes to rank i's destination.
    Scatter = 6, "scatter", uses(communicator root source destination bytes extent lane);
    /// Every rank's source goes to block i of rank `root`'s destination.
    Gather = 7, "gather", uses(communicator root source destination bytes extent lane);
    /// Rank `root`'s source goes to every rank's destination.
    Broadcast = 8, "broadcast", uses(communicator root source destination bytes lane);
    /// Block j of rank i's source goes to block i of rank j's destination.
    Alltoall = 9, "alltoall", uses(communicator source destination bytes lane);
    /// Every rank's source goes to block i of every rank's destination.
    Allgather = 10, "allgather", uses(communicator source destination bytes extent lane);
    /// The fold of all ranks' sources goes to rank `root`'s destination.
    Reduce = 11, "reduce", uses(communicator root source destination bytes combine lane);
    /// The fold of all ranks' sources goes to every rank's destination.
    Allreduce = 12, "allreduce", uses(communicator source destination bytes combine lane);
    /// The fold of block i of all ranks' sources goes to rank i's destination.
    ReduceScatter = 13, "reduce_scatter", uses(communicator source destination bytes extent combine lane);
    /// The fold of the sources of ranks 0 to i goes to rank i's destination.
    Scan = 14, "scan", uses(communicator source destination bytes combine lane);
    /// The fold of the sources of ranks 0 to i - 1 goes to rank i's destination; rank 0 keeps its destination.
    Exscan = 15, "exscan", uses(communicator source destination bytes combine lane);
    /// Reads `bytes` at `source` in the memory of rank `peer`, which runs no instruction for it, to `destination` here.
    RdmaRead = 16, "rdma_read", uses(communicator peer source destination bytes window);
    /// Writes `bytes` at `source` here to `destination` in the memory of rank `peer`, which runs no instruction for it.
    RdmaWrite = 17, "rdma_write", uses(communicator peer source destination bytes window);
    /// Receives `bytes` from rank `peer`, folds them with the own bytes at `source`, and writes the result to `destination`.
    RecvReduce = 18, "recv_reduce", uses(communicator peer source destination bytes combine lane);
    /// Sends to rank `peer`; at the same time, receives from rank `root`, folds with the own bytes at card address `extent`, and
    /// writes the result to `destination`.
    SendrecvReduce = 19, "sendrecv_reduce",
        uses(communicator root peer source destination bytes extent extent_argument combine lane);
    /// Writes as rdma_write; when the bytes are visible there, adds the signal value to signal `signal` of that card.
    PutSignal = 20, "put_signal", uses(communicator peer source destination bytes signal window);
    /// Waits until signal `signal` of this card is at least the signal value, and subtracts the value.
    WaitSignal = 21, "wait_signal", uses(signal);
    /// Folds `bytes` at `source` with the same number at card address `extent`, in this order, and writes the result to `destination`.
    Fold = 22, "fold", uses(source destination bytes extent extent_argument combine lane);
    /// The folds of block j of the sources of ranks 0 to i go to block i of rank j's destination, for every i.
    AlltoallScan = 23, "alltoall_scan", uses(communicator source destination bytes combine lane);
    /// Copies between card memory and host memory, in any direction.
    Copy = 24, "copy", uses(source destination bytes);
    /// Fills `destination` with the eight bytes of `extent`, repeated.
    Fill = 25, "fill", uses(destination bytes extent);
    /// Waits `extent` cycles of the sequencer.
    Delay = 26, "delay", uses(extent);
    /// Scatter with blocks placed by table `extent` of rank `root`; `bytes` is the length of the own block.
    Scatterv = 27, "scatterv", uses(communicator root source destination bytes extent lane);
    /// Gather with blocks placed by table `extent` of rank `root`; `bytes` is the length of the own block.
    Gatherv = 28, "gatherv", uses(communicator root source destination bytes extent lane);
    /// Allgather with blocks placed by table `extent`; `bytes` is the length of the own block.
    Allgatherv = 29, "allgatherv", uses(communicator source destination bytes extent lane);
    /// Alltoall with blocks placed by two tables: bits 0 to 15 of `extent` for the source, bits 16 to 31 for the destination.
    Alltoallv = 30, "alltoallv", uses(communicator source destination extent lane);
    /// Defines `communicator` by the `bytes / 2` node numbers (u16) at host address `source`.
    Group = 32, "group", uses(communicator source bytes);
    /// Stores the `bytes / 64` instructions at host address `source` as resident program `extent`.
    Store = 33, "store", uses(source bytes extent);
    /// Runs resident program `extent` with three arguments: `source`, `destination` and `bytes`.
    Launch = 34, "launch", uses(source destination bytes extent);
    /// Stores the `bytes / 16` ranges (displacement and length, u64 each) at host address `source` as table `extent`.
    Table = 35, "table", uses(source bytes extent);
    /// Removes `communicator`.
    Free = 36, "free", uses(communicator);
    /// Runs the next `loop body` instructions `loop count` times, in a resident program; after each round, adds `extent` to the launch
    /// argument `extent argument`, if any.
    Loop = 37, "loop", uses(extent extent_argument rounds);
    /// Opens window `window` with `key` over `bytes` at `destination`: members of `communicator` reach them with `rights`.
    Open = 38, "open", uses(communicator destination bytes window rights);
    /// Closes window `window` with `key`, when no transfer goes through it.
    Close = 39, "close", uses(window);
    /// Connects the changeover switch to the user logic, which accesses card memory until it is done.
    User = 40, "user", uses(source destination bytes extent);
}

/// Whether all ranks of the communicator run the operation together.
pub(crate) const fn is_collective(operation: Operation) -> bool {
    let Fields { communicator, peer, lane, .. } = operation.fields();
    communicator && lane && !peer
}

/// Whether blocks may be striped over the memory I/Os. Vector forms are placed by tables instead.
pub(super) const fn takes_stripes(operation: Operation) -> bool {
    is_collective(operation) && !takes_tables(operation)
        || matches!(
            operation,
            Operation::Send | Operation::Recv | Operation::Sendrecv | Operation::RdmaRead | Operation::RdmaWrite
        )
}

/// Whether the extent of the operation is an address of card memory, which it reads.
pub const fn has_address_in_extent(operation: Operation) -> bool {
    matches!(operation, Operation::SendrecvReduce | Operation::Fold)
}

/// Whether the extent of the operation names tables.
pub const fn takes_tables(operation: Operation) -> bool {
    matches!(operation, Operation::Scatterv | Operation::Gatherv | Operation::Allgatherv | Operation::Alltoallv)
}

//! The 64-byte instruction: fields, encoding, decoding.

use std::fmt;

use crate::reduction::{Combine, Element, Reduction};

/// Bytes of an encoded instruction.
pub const BYTES: usize = 64;
/// Version of the instruction word that this crate writes and reads.
pub const VERSION: u8 = 1;
/// The communicator that always exists: all cards of the fabric, in order of their nodes.
pub const WORLD: u16 = 0;
/// Arguments a launch passes to a resident program.
pub const ARGUMENTS: usize = 3;

/// Byte offsets of the fields, as `docs/isa.md` lists them.
pub mod offset {
    #![allow(missing_docs)]
    pub const VERSION: usize = 0;
    pub const OPERATION: usize = 1;
    pub const TAG: usize = 2;
    pub const COMMUNICATOR: usize = 4;
    pub const ROOT: usize = 6;
    pub const PEER: usize = 8;
    pub const ELEMENT: usize = 10;
    pub const REDUCTION: usize = 11;
    pub const ALGORITHM: usize = 12;
    pub const OPERANDS: usize = 13;
    pub const FLAGS: usize = 14;
    pub const SOURCE: usize = 16;
    pub const DESTINATION: usize = 24;
    pub const BYTES: usize = 32;
    pub const EXTENT: usize = 40;
    pub const SIGNAL_ID: usize = 48;
    pub const LOOP_COUNT: usize = 50;
    pub const SIGNAL_VALUE: usize = 52;
    pub const LOOP_BODY: usize = 56;
    pub const ARGUMENT_INDEX: usize = 58;
    pub const EXTENT_ARGUMENT: usize = 59;
    pub const CHECKSUM: usize = 60;
}

macro_rules! operations {
    ($($(#[doc = $doc:literal])* $name:ident = $code:literal, $text:literal, uses($($field:ident)*);)*) => {
        /// What an instruction does.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Operation {
            $($(#[doc = $doc])* $name = $code,)*
        }

        impl Operation {
            /// Every operation this version defines, by code.
            pub const ALL: &[Operation] = &[$(Operation::$name,)*];

            /// The operation with this code.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Operation::$name),)*
                    _ => None,
                }
            }

            /// Name in programs, messages and documents.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Operation::$name => $text,)*
                }
            }

            /// What it does, in a sentence.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Operation::$name => concat!($($doc),*).trim_ascii(),)*
                }
            }

            /// The fields this operation reads. All others must be zero.
            pub const fn fields(self) -> Fields {
                match self {
                    $(Operation::$name => Fields { $($field: true,)* ..Fields::NONE },)*
                }
            }
        }
    };
}

/// Which optional fields an operation reads; a field that it does not read must be zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Fields {
    pub communicator: bool,
    pub root: bool,
    pub peer: bool,
    pub source: bool,
    pub destination: bool,
    pub bytes: bool,
    pub extent: bool,
    /// Element type and reduction.
    pub combine: bool,
    /// Number and value of a signal.
    pub signal: bool,
    /// Count and body of a loop.
    pub rounds: bool,
    /// A launch argument that goes with the extent.
    pub extent_argument: bool,
}

impl Fields {
    const NONE: Fields = Fields {
        communicator: false,
        root: false,
        peer: false,
        source: false,
        destination: false,
        bytes: false,
        extent: false,
        combine: false,
        signal: false,
        rounds: false,
        extent_argument: false,
    };
}

operations! {
    /// Nothing; completes.
    Nop = 1, "nop", uses();
    /// Waits until every rank of the communicator is here.
    Barrier = 2, "barrier", uses(communicator);
    /// Sends `bytes` at `source` to rank `peer`, which runs recv.
    Send = 3, "send", uses(communicator peer source bytes);
    /// Receives `bytes` from rank `peer` to `destination`.
    Recv = 4, "recv", uses(communicator peer destination bytes);
    /// Sends to rank `peer` and receives the same number of bytes from rank `root`, at once.
    Sendrecv = 5, "sendrecv", uses(communicator root peer source destination bytes);
    /// Block i of rank `root`'s source goes to rank i's destination.
    Scatter = 6, "scatter", uses(communicator root source destination bytes extent);
    /// Every rank's source goes to block i of rank `root`'s destination.
    Gather = 7, "gather", uses(communicator root source destination bytes extent);
    /// Rank `root`'s source goes to every rank's destination.
    Broadcast = 8, "broadcast", uses(communicator root source destination bytes);
    /// Block j of rank i's source goes to block i of rank j's destination.
    Alltoall = 9, "alltoall", uses(communicator source destination bytes);
    /// Every rank's source goes to block i of every rank's destination.
    Allgather = 10, "allgather", uses(communicator source destination bytes extent);
    /// The fold of all ranks' sources goes to rank `root`'s destination.
    Reduce = 11, "reduce", uses(communicator root source destination bytes combine);
    /// The fold of all ranks' sources goes to every rank's destination.
    Allreduce = 12, "allreduce", uses(communicator source destination bytes combine);
    /// The fold of block i of all ranks' sources goes to rank i's destination.
    ReduceScatter = 13, "reduce_scatter", uses(communicator source destination bytes extent combine);
    /// The fold of the sources of ranks 0 to i goes to rank i's destination.
    Scan = 14, "scan", uses(communicator source destination bytes combine);
    /// The fold of the sources of ranks 0 to i - 1 goes to rank i's destination; rank 0's is left alone.
    Exscan = 15, "exscan", uses(communicator source destination bytes combine);
    /// Reads `bytes` at `source` in the memory of rank `peer`, which does not take part, to `destination` here.
    RdmaRead = 16, "rdma_read", uses(communicator peer source destination bytes);
    /// Writes `bytes` at `source` here to `destination` in the memory of rank `peer`, which does not take part.
    RdmaWrite = 17, "rdma_write", uses(communicator peer source destination bytes);
    /// Receives `bytes` from rank `peer`, folds them with the own ones at `source`, and writes the result to `destination`.
    RecvReduce = 18, "recv_reduce", uses(communicator peer source destination bytes combine);
    /// Sends to rank `peer`; at once, receives from rank `root`, folds that with the own bytes at card address `extent`, and
    /// writes the result to `destination`.
    SendrecvReduce = 19, "sendrecv_reduce",
        uses(communicator root peer source destination bytes extent extent_argument combine);
    /// As rdma_write; when the bytes can be seen there, adds the signal value to signal `signal` of that card.
    PutSignal = 20, "put_signal", uses(communicator peer source destination bytes signal);
    /// Waits until signal `signal` of this card is at least the signal value, and subtracts that.
    WaitSignal = 21, "wait_signal", uses(signal);
    /// Copies between card memory and host memory, in any direction.
    Copy = 24, "copy", uses(source destination bytes);
    /// Fills `destination` with the eight bytes of `extent`, repeated.
    Fill = 25, "fill", uses(destination bytes extent);
    /// Waits `extent` cycles of the sequencer.
    Delay = 26, "delay", uses(extent);
    /// Scatter with blocks that lie where table `extent` of rank `root` says; `bytes` is the length of the own block.
    Scatterv = 27, "scatterv", uses(communicator root source destination bytes extent);
    /// Gather with blocks that lie where table `extent` of rank `root` says; `bytes` is the length of the own block.
    Gatherv = 28, "gatherv", uses(communicator root source destination bytes extent);
    /// Allgather with blocks that lie where table `extent` says; `bytes` is the length of the own block.
    Allgatherv = 29, "allgatherv", uses(communicator source destination bytes extent);
    /// Alltoall with blocks that lie where two tables say: of the source, the low 16 bits of `extent`; of the destination,
    /// the next 16.
    Alltoallv = 30, "alltoallv", uses(communicator source destination extent);
    /// Makes `communicator` out of the `bytes / 2` node numbers (u16) at host address `source`.
    Group = 32, "group", uses(communicator source bytes);
    /// Stores the `bytes / 64` instructions at host address `source` as resident program `extent`.
    Store = 33, "store", uses(source bytes extent);
    /// Runs resident program `extent` with three arguments: the values of `source`, `destination` and `bytes`.
    Launch = 34, "launch", uses(source destination bytes extent);
    /// Stores the `bytes / 16` ranges (displacement and length, u64 each) at host address `source` as table `extent`.
    Table = 35, "table", uses(source bytes extent);
    /// Forgets `communicator`.
    Free = 36, "free", uses(communicator);
    /// In a resident program: runs the next `body` instructions `count` times; after each round, adds `extent` to a launch
    /// argument if it names one.
    Loop = 37, "loop", uses(extent extent_argument rounds);
    /// Turns the changeover switch to the user logic, which works on card memory until it is done.
    User = 40, "user", uses(source destination bytes extent);
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

bitflags::bitflags! {
    /// How an instruction is run.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Flags: u16 {
        /// Send eagerly whatever the size; refused by the card past its receive buffer.
        const EAGER = 1 << 0;
        /// Use rendezvous whatever the size.
        const RENDEZVOUS = 1 << 1;
        /// Raise the queue's interrupt with the completion.
        const INTERRUPT = 1 << 2;
        /// Last instruction of a resident program.
        const LAST = 1 << 3;
    }
}

/// Whose memory an address is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AddressSpace {
    /// Memory of the card.
    #[default]
    Card,
    /// Memory of the host, at an IOVA.
    Host,
}

/// How the blocks of several peers lie in card memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Layout {
    /// One after another: block i at `address + i * bytes`. A single block lies at `address`.
    #[default]
    Block,
    /// One in each memory I/O: block i at `address + 2K * i` (equation 1 of the OPTWEB paper). A single block, exchanged
    /// with rank i, lies where that equation puts i.
    Striped,
}

/// One of the two addresses of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Operand {
    /// Whose memory.
    pub space: AddressSpace,
    /// How several blocks lie.
    pub layout: Layout,
    /// In a resident program: the launch argument that is added to `address`.
    pub argument: Option<u8>,
    /// Byte address.
    pub address: u64,
}

impl Operand {
    /// Card memory at `address`.
    pub const fn card(address: u64) -> Self {
        Operand { space: AddressSpace::Card, layout: Layout::Block, argument: None, address }
    }

    /// Host memory at IOVA `address`.
    pub const fn host(address: u64) -> Self {
        Operand { space: AddressSpace::Host, layout: Layout::Block, argument: None, address }
    }

    /// The same address with striped blocks.
    pub const fn striped(mut self) -> Self {
        self.layout = Layout::Striped;
        self
    }

    /// The same address plus launch argument `index` (0 to 2).
    pub const fn plus_argument(mut self, index: u8) -> Self {
        self.argument = Some(index);
        self
    }
}

/// One word to the sequencer.
///
/// Which fields an operation reads is said by [`Operation::fields`]; those it does not read are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Instruction {
    /// What to do.
    pub operation: Operation,
    /// Comes back in the completion.
    pub tag: u16,
    /// Index into the card's communicator table.
    pub communicator: u16,
    /// Rank that distributes or collects; for [`Operation::Sendrecv`] the rank received from.
    pub root: u16,
    /// The other rank of a point to point operation.
    pub peer: u16,
    /// How to run it.
    pub flags: Flags,
    /// Where data comes from.
    pub source: Operand,
    /// Where data goes to.
    pub destination: Operand,
    /// Bytes of one block: what one pair exchanges in one direction.
    pub bytes: u64,
    /// Type of what a reduction folds; `None` for other operations.
    pub element: Option<Element>,
    /// What a reduction does with the elements; `None` for other operations.
    pub reduction: Option<Reduction>,
    /// Operation by operation: for scatter, gather, allgather and reduce_scatter, the bytes of the divided vector if its last blocks are
    /// short or empty (0: all blocks are full); a fill's pattern; a delay's cycles; a resident program's or a table's slot;
    /// the address of the own contribution to a sendrecv_reduce; what a loop adds to a launch argument.
    pub extent: u64,
    /// In a resident program: the launch argument that is added to the extent of a sendrecv_reduce, or to which a loop adds
    /// its own.
    pub extent_argument: Option<u8>,
    /// Number of a signal of a card.
    pub signal_id: u16,
    /// What is added to a signal, or waited for and subtracted.
    pub signal_value: u32,
    /// How often a loop's body is run.
    pub loop_count: u16,
    /// Instructions of a loop's body, which follow it.
    pub loop_body: u16,
}

/// Why 64 bytes are not an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The checksum does not fit: the word is torn, stale or damaged.
    #[error("checksum {found:#010x} does not fit the word, which needs {expected:#010x}")]
    Checksum {
        /// In the word.
        found: u32,
        /// Computed.
        expected: u32,
    },
    /// Not a version this decoder knows.
    #[error("instruction version {0} is not known")]
    Version(u8),
    /// No operation has this code.
    #[error("operation code {0} is not known")]
    Operation(u8),
    /// A field that must be zero, or a code that is not defined.
    #[error("byte {offset} ({name}) has a value this operation does not allow")]
    Field {
        /// Offset of the field in the word.
        offset: usize,
        /// Its name.
        name: &'static str,
    },
}

pub(crate) const SOURCE_SHIFT: u32 = 0;
pub(crate) const DESTINATION_SHIFT: u32 = 4;
pub(crate) const OPERAND_HOST: u8 = 1;
pub(crate) const OPERAND_STRIPED: u8 = 2;
pub(crate) const OPERAND_ARGUMENT: u8 = 4;

impl Instruction {
    /// An instruction of `operation` whose other fields are zero.
    pub const fn new(operation: Operation) -> Self {
        let nothing = Operand::card(0);
        Instruction {
            operation,
            tag: 0,
            communicator: WORLD,
            root: 0,
            peer: 0,
            flags: Flags::empty(),
            source: nothing,
            destination: nothing,
            bytes: 0,
            element: None,
            reduction: None,
            extent: 0,
            extent_argument: None,
            signal_id: 0,
            signal_value: 0,
            loop_count: 0,
            loop_body: 0,
        }
    }

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

    /// Waits for every rank.
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

    /// Reads `bytes` of rank `peer`'s card memory at `source`.
    pub const fn rdma_read(peer: u16, source: Operand, destination: Operand, bytes: u64) -> Self {
        Instruction { peer, ..Instruction::moving(Operation::RdmaRead, source, destination, bytes) }
    }

    /// Writes `bytes` to rank `peer`'s card memory at `destination`.
    pub const fn rdma_write(peer: u16, source: Operand, destination: Operand, bytes: u64) -> Self {
        Instruction { peer, ..Instruction::moving(Operation::RdmaWrite, source, destination, bytes) }
    }

    /// Receives `bytes` from rank `peer` and folds them with those at `own`.
    pub const fn recv_reduce(combine: Combine, peer: u16, own: Operand, destination: Operand, bytes: u64) -> Self {
        Instruction { peer, ..Instruction::combining(Operation::RecvReduce, combine, own, destination, bytes) }
    }

    /// Sends `bytes` at `source` to rank `to`, and folds what comes from rank `from` with the bytes at `own`.
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

    /// Waits until this card's signal `signal` is at least `value`, and subtracts that.
    pub const fn wait_signal(signal: u16, value: u32) -> Self {
        Instruction { signal_id: signal, signal_value: value, ..Instruction::new(Operation::WaitSignal) }
    }

    /// Distributes the blocks of table `table` of rank `root`; the own one has `bytes`.
    pub const fn scatterv(root: u16, source: Operand, destination: Operand, bytes: u64, table: u16) -> Self {
        let instruction = Instruction::moving(Operation::Scatterv, source, destination, bytes);
        Instruction { root, extent: table as u64, ..instruction }
    }

    /// Collects blocks as table `table` of rank `root` says; the own one has `bytes`.
    pub const fn gatherv(root: u16, source: Operand, destination: Operand, bytes: u64, table: u16) -> Self {
        let instruction = Instruction::moving(Operation::Gatherv, source, destination, bytes);
        Instruction { root, extent: table as u64, ..instruction }
    }

    /// Collects blocks as table `table` says at every rank; the own one has `bytes`.
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
        let source = Operand::host(table);
        let instruction = Instruction::moving(Operation::Table, source, Operand::card(0), ranges * 16);
        Instruction { extent: slot as u64, ..instruction }
    }

    /// Forgets `communicator`.
    pub const fn free(communicator: u16) -> Self {
        Instruction { communicator, ..Instruction::new(Operation::Free) }
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
        let members = Operand::host(table);
        Instruction { communicator, ..Instruction::moving(Operation::Group, members, Operand::card(0), ranks * 2) }
    }

    /// Stores `words` instructions at IOVA `program` in slot `slot`.
    pub const fn store(slot: u64, program: u64, words: u64) -> Self {
        let bytes = words * BYTES as u64;
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

    /// The same with another tag.
    pub const fn with_tag(mut self, tag: u16) -> Self {
        self.tag = tag;
        self
    }

    /// The same on another communicator.
    pub const fn on(mut self, communicator: u16) -> Self {
        self.communicator = communicator;
        self
    }

    /// The same with other flags.
    pub const fn with_flags(mut self, flags: Flags) -> Self {
        self.flags = flags;
        self
    }

    /// The same, dividing a vector of `bytes` over the ranks: the last blocks may be short or empty.
    pub const fn dividing(mut self, bytes: u64) -> Self {
        self.extent = bytes;
        self
    }

    /// In a resident program, as the card runs it: the launch arguments that it names are added to its addresses. What a
    /// loop names stays, because it changes that argument.
    pub fn with_arguments(mut self, arguments: &[u64; ARGUMENTS]) -> Self {
        let value = |index: Option<u8>| index.and_then(|index| arguments.get(usize::from(index))).copied().unwrap_or(0);
        for operand in [&mut self.source, &mut self.destination] {
            operand.address = operand.address.wrapping_add(value(operand.argument.take()));
        }
        if self.operation == Operation::SendrecvReduce {
            self.extent = self.extent.wrapping_add(value(self.extent_argument.take()));
        }
        self
    }

    /// What a reduction folds, and how; `None` for other operations, and if only one of the two is said.
    pub const fn combine(&self) -> Option<Combine> {
        match (self.reduction, self.element) {
            (Some(reduction), Some(element)) => Some(Combine { reduction, element }),
            _ => None,
        }
    }

    /// Bytes of block `rank`: [`Instruction::bytes`], or what is left of a divided vector.
    pub const fn block_bytes(&self, rank: u64) -> u64 {
        let divides = matches!(
            self.operation,
            Operation::Scatter | Operation::Gather | Operation::Allgather | Operation::ReduceScatter
        );
        if self.extent == 0 || !divides {
            return self.bytes;
        }
        let left = self.extent.saturating_sub(self.bytes.saturating_mul(rank));
        if left < self.bytes { left } else { self.bytes }
    }

    /// The word as the sequencer reads it.
    ///
    /// Fields that the operation does not read are written as they are; a card (and [`Instruction::decode`]) refuses them
    /// unless they are zero.
    #[inline]
    pub fn encode(&self) -> [u8; BYTES] {
        let field = |value: u64, at: usize| value << (at % 8 * 8);
        let operands =
            operand_bits(&self.source) << SOURCE_SHIFT | operand_bits(&self.destination) << DESTINATION_SHIFT;
        let arguments = self.source.argument.unwrap_or(0) & 3 | (self.destination.argument.unwrap_or(0) & 3) << 4;
        let extent_argument = self.extent_argument.map_or(0, |index| (index & 3) + 1);
        // Put together in registers: stored field by field, the checksum would wait for the stores to leave the core.
        let words = [
            field(VERSION.into(), offset::VERSION)
                | field(self.operation as u64, offset::OPERATION)
                | field(self.tag.into(), offset::TAG)
                | field(self.communicator.into(), offset::COMMUNICATOR)
                | field(self.root.into(), offset::ROOT),
            field(self.peer.into(), offset::PEER)
                | field(self.element.map_or(0, |element| element as u64), offset::ELEMENT)
                | field(self.reduction.map_or(0, |reduction| reduction as u64), offset::REDUCTION)
                | field(operands.into(), offset::OPERANDS)
                | field(self.flags.bits().into(), offset::FLAGS),
            self.source.address,
            self.destination.address,
            self.bytes,
            self.extent,
            field(self.signal_id.into(), offset::SIGNAL_ID)
                | field(self.loop_count.into(), offset::LOOP_COUNT)
                | field(self.signal_value.into(), offset::SIGNAL_VALUE),
            field(self.loop_body.into(), offset::LOOP_BODY)
                | field(arguments.into(), offset::ARGUMENT_INDEX)
                | field(extent_argument.into(), offset::EXTENT_ARGUMENT),
        ];
        let mut word = Aligned([0; BYTES]);
        for (place, value) in word.0.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        seal(&mut word.0);
        word.0
    }

    /// Reads a word. Any 64 bytes give an instruction or an error.
    ///
    /// # Errors
    /// Checksum first, then version, operation and fields, in the order of the word.
    pub fn decode(word: &[u8; BYTES]) -> Result<Instruction, DecodeError> {
        let found = u32_at(word, offset::CHECKSUM);
        let expected = checksum(word);
        if found != expected {
            return Err(DecodeError::Checksum { found, expected });
        }
        if word[offset::VERSION] != VERSION {
            return Err(DecodeError::Version(word[offset::VERSION]));
        }
        let code = word[offset::OPERATION];
        let operation = Operation::from_code(code).ok_or(DecodeError::Operation(code))?;
        let flags = Flags::from_bits(u16_at(word, offset::FLAGS))
            .filter(|flags| !flags.contains(Flags::EAGER | Flags::RENDEZVOUS))
            .ok_or(DecodeError::Field { offset: offset::FLAGS, name: "flags" })?;
        let operands = word[offset::OPERANDS];
        let arguments = word[offset::ARGUMENT_INDEX];
        let source =
            operand(operands >> SOURCE_SHIFT & 0xf, arguments & 0xf, u64_at(word, offset::SOURCE), offset::OPERANDS)?;
        let destination = operand(
            operands >> DESTINATION_SHIFT,
            arguments >> 4,
            u64_at(word, offset::DESTINATION),
            offset::OPERANDS,
        )?;
        let extent_argument = code_at(word, offset::EXTENT_ARGUMENT, "extent argument", |code| {
            let index = code.checked_sub(1)?;
            (usize::from(index) < ARGUMENTS).then_some(index)
        })?;
        let element = code_at(word, offset::ELEMENT, "element type", Element::from_code)?;
        let reduction = code_at(word, offset::REDUCTION, "reduction", Reduction::from_code)?;
        let instruction = Instruction {
            operation,
            tag: u16_at(word, offset::TAG),
            communicator: u16_at(word, offset::COMMUNICATOR),
            root: u16_at(word, offset::ROOT),
            peer: u16_at(word, offset::PEER),
            flags,
            source,
            destination,
            bytes: u64_at(word, offset::BYTES),
            element,
            reduction,
            extent: u64_at(word, offset::EXTENT),
            extent_argument,
            signal_id: u16_at(word, offset::SIGNAL_ID),
            signal_value: u32_at(word, offset::SIGNAL_VALUE),
            loop_count: u16_at(word, offset::LOOP_COUNT),
            loop_body: u16_at(word, offset::LOOP_BODY),
        };
        instruction.check_fields()?;
        if word[offset::ALGORITHM] != 0 {
            return Err(DecodeError::Field { offset: offset::ALGORITHM, name: "algorithm" });
        }
        Ok(instruction)
    }

    /// Whether the fields that the operation does not read are zero, and its operands in spaces that it can reach.
    ///
    /// # Errors
    /// The first field that is not allowed.
    pub fn check_fields(&self) -> Result<(), DecodeError> {
        let refuse = |offset, name| Err(DecodeError::Field { offset, name });
        let nothing = Operand::card(0);
        let fields = self.operation.fields();
        if !fields.communicator && self.communicator != 0 {
            return refuse(offset::COMMUNICATOR, "communicator");
        }
        if !fields.root && self.root != 0 {
            return refuse(offset::ROOT, "root");
        }
        if !fields.peer && self.peer != 0 {
            return refuse(offset::PEER, "peer");
        }
        if !fields.source && self.source != nothing {
            return refuse(offset::SOURCE, "source");
        }
        if !fields.destination && self.destination != nothing {
            return refuse(offset::DESTINATION, "destination");
        }
        if !fields.bytes && self.bytes != 0 {
            return refuse(offset::BYTES, "bytes");
        }
        if !fields.extent && self.extent != 0 {
            return refuse(offset::EXTENT, "extent");
        }
        if !fields.extent_argument && self.extent_argument.is_some() {
            return refuse(offset::EXTENT_ARGUMENT, "extent argument");
        }
        if !fields.signal && self.signal_id != 0 {
            return refuse(offset::SIGNAL_ID, "signal id");
        }
        if !fields.signal && self.signal_value != 0 {
            return refuse(offset::SIGNAL_VALUE, "signal value");
        }
        if !fields.rounds && self.loop_count != 0 {
            return refuse(offset::LOOP_COUNT, "loop count");
        }
        if !fields.rounds && self.loop_body != 0 {
            return refuse(offset::LOOP_BODY, "loop body");
        }
        if fields.combine != self.element.is_some() {
            return refuse(offset::ELEMENT, "element type");
        }
        if fields.combine != self.reduction.is_some() {
            return refuse(offset::REDUCTION, "reduction");
        }
        if let Some(combine) = self.combine() {
            if !combine.is_defined() {
                return refuse(offset::REDUCTION, "reduction");
            }
            if !self.bytes.is_multiple_of(combine.element.bytes()) {
                return refuse(offset::BYTES, "bytes");
            }
            // Of a sendrecv_reduce it is an address.
            if is_collective(self.operation) && !self.extent.is_multiple_of(combine.element.bytes()) {
                return refuse(offset::EXTENT, "extent");
            }
        }
        let spaces_fit = match self.operation {
            Operation::Copy => true,
            Operation::Group | Operation::Store | Operation::Table => self.source.space == AddressSpace::Host,
            _ => self.source.space == AddressSpace::Card && self.destination.space == AddressSpace::Card,
        };
        let layouts_fit = takes_stripes(self.operation)
            || (self.source.layout == Layout::Block && self.destination.layout == Layout::Block);
        let arguments_fit = self.operation != Operation::Launch
            || (self.source.argument.is_none() && self.destination.argument.is_none());
        if spaces_fit && layouts_fit && arguments_fit { Ok(()) } else { refuse(offset::OPERANDS, "operands") }
    }
}

/// Whether all ranks of the communicator run the operation together.
pub(crate) const fn is_collective(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::Barrier
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
    )
}

/// Whether blocks may lie striped over the memory I/Os. Those of several lengths lie where a table says.
const fn takes_stripes(operation: Operation) -> bool {
    is_collective(operation) && !takes_tables(operation)
        || matches!(
            operation,
            Operation::Send | Operation::Recv | Operation::Sendrecv | Operation::RdmaRead | Operation::RdmaWrite
        )
}

/// Whether the operation's extent names tables.
pub const fn takes_tables(operation: Operation) -> bool {
    matches!(operation, Operation::Scatterv | Operation::Gatherv | Operation::Allgatherv | Operation::Alltoallv)
}

/// A word at an address that the checksum's instruction takes whole.
#[repr(align(8))]
struct Aligned([u8; BYTES]);

/// Writes the checksum of `word` into it. For tools and tests that make words by hand.
pub fn seal(word: &mut [u8; BYTES]) {
    let sum = checksum(word);
    word[offset::CHECKSUM..].copy_from_slice(&sum.to_le_bytes());
}

/// CRC-32C of all bytes before the checksum: any change of up to three bits, or of bits within 32, changes it.
fn checksum(word: &[u8; BYTES]) -> u32 {
    crc32c::crc32c(&word[..offset::CHECKSUM])
}

fn operand_bits(operand: &Operand) -> u8 {
    let mut bits = 0;
    if operand.space == AddressSpace::Host {
        bits |= OPERAND_HOST;
    }
    if operand.layout == Layout::Striped {
        bits |= OPERAND_STRIPED;
    }
    if operand.argument.is_some() {
        bits |= OPERAND_ARGUMENT;
    }
    bits
}

fn operand(bits: u8, argument: u8, address: u64, offset: usize) -> Result<Operand, DecodeError> {
    let named = bits & OPERAND_ARGUMENT != 0;
    if bits & !(OPERAND_HOST | OPERAND_STRIPED | OPERAND_ARGUMENT) != 0 {
        return Err(DecodeError::Field { offset, name: "operands" });
    }
    if usize::from(argument) >= ARGUMENTS || (!named && argument != 0) {
        return Err(DecodeError::Field { offset: self::offset::ARGUMENT_INDEX, name: "argument index" });
    }
    Ok(Operand {
        space: if bits & OPERAND_HOST != 0 { AddressSpace::Host } else { AddressSpace::Card },
        layout: if bits & OPERAND_STRIPED != 0 { Layout::Striped } else { Layout::Block },
        argument: named.then_some(argument),
        address,
    })
}

/// What the code at `at` stands for; 0 for nothing.
fn code_at<T>(
    word: &[u8; BYTES],
    at: usize,
    name: &'static str,
    from_code: impl Fn(u8) -> Option<T>,
) -> Result<Option<T>, DecodeError> {
    match word[at] {
        0 => Ok(None),
        code => from_code(code).map(Some).ok_or(DecodeError::Field { offset: at, name }),
    }
}

fn u16_at(word: &[u8; BYTES], at: usize) -> u16 {
    u16::from_le_bytes([word[at], word[at + 1]])
}

fn u32_at(word: &[u8; BYTES], at: usize) -> u32 {
    u32::from_le_bytes([word[at], word[at + 1], word[at + 2], word[at + 3]])
}

fn u64_at(word: &[u8; BYTES], at: usize) -> u64 {
    u64::from(u32_at(word, at)) | u64::from(u32_at(word, at + 4)) << 32
}

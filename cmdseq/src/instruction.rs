//! The 64-byte instruction: fields, encoding, decoding.

use std::fmt;

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
    pub const RESERVED: usize = 59;
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
    /// Reads `bytes` at `source` in the memory of rank `peer`, which does not take part, to `destination` here.
    RdmaRead = 16, "rdma_read", uses(communicator peer source destination bytes);
    /// Writes `bytes` at `source` here to `destination` in the memory of rank `peer`, which does not take part.
    RdmaWrite = 17, "rdma_write", uses(communicator peer source destination bytes);
    /// Copies between card memory and host memory, in any direction.
    Copy = 24, "copy", uses(source destination bytes);
    /// Fills `destination` with the eight bytes of `extent`, repeated.
    Fill = 25, "fill", uses(destination bytes extent);
    /// Waits `extent` cycles of the sequencer.
    Delay = 26, "delay", uses(extent);
    /// Makes `communicator` out of the `bytes / 2` node numbers (u16) at host address `source`.
    Group = 32, "group", uses(communicator source bytes);
    /// Stores the `bytes / 64` instructions at host address `source` as resident program `extent`.
    Store = 33, "store", uses(source bytes extent);
    /// Runs resident program `extent` with three arguments: the values of `source`, `destination` and `bytes`.
    Launch = 34, "launch", uses(source destination bytes extent);
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
    /// Operation by operation: for scatter, gather and allgather, the bytes of the divided vector if its last blocks are
    /// short or empty (0: all blocks are full); a fill's pattern; a delay's cycles; a resident program's slot.
    pub extent: u64,
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
            extent: 0,
        }
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

    /// Reads `bytes` of rank `peer`'s card memory at `source`.
    pub const fn rdma_read(peer: u16, source: Operand, destination: Operand, bytes: u64) -> Self {
        Instruction { peer, ..Instruction::moving(Operation::RdmaRead, source, destination, bytes) }
    }

    /// Writes `bytes` to rank `peer`'s card memory at `destination`.
    pub const fn rdma_write(peer: u16, source: Operand, destination: Operand, bytes: u64) -> Self {
        Instruction { peer, ..Instruction::moving(Operation::RdmaWrite, source, destination, bytes) }
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

    /// Bytes of block `rank`: [`Instruction::bytes`], or what is left of a divided vector.
    pub const fn block_bytes(&self, rank: u64) -> u64 {
        if self.extent == 0 || !matches!(self.operation, Operation::Scatter | Operation::Gather | Operation::Allgather)
        {
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
        // Put together in registers: stored field by field, the checksum would wait for the stores to leave the core.
        let words = [
            field(VERSION.into(), offset::VERSION)
                | field(self.operation as u64, offset::OPERATION)
                | field(self.tag.into(), offset::TAG)
                | field(self.communicator.into(), offset::COMMUNICATOR)
                | field(self.root.into(), offset::ROOT),
            field(self.peer.into(), offset::PEER)
                | field(operands.into(), offset::OPERANDS)
                | field(self.flags.bits().into(), offset::FLAGS),
            self.source.address,
            self.destination.address,
            self.bytes,
            self.extent,
            0,
            field(arguments.into(), offset::ARGUMENT_INDEX),
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
            extent: u64_at(word, offset::EXTENT),
        };
        instruction.check_fields()?;
        for (name, at, end) in UNUSED {
            if word[at..end].iter().any(|byte| *byte != 0) {
                return Err(DecodeError::Field { offset: at, name });
            }
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
        let spaces_fit = match self.operation {
            Operation::Copy => true,
            Operation::Group | Operation::Store => self.source.space == AddressSpace::Host,
            _ => self.source.space == AddressSpace::Card && self.destination.space == AddressSpace::Card,
        };
        let layouts_fit = fields.communicator && self.operation != Operation::Group
            || (self.source.layout == Layout::Block && self.destination.layout == Layout::Block);
        let arguments_fit = self.operation != Operation::Launch
            || (self.source.argument.is_none() && self.destination.argument.is_none());
        if spaces_fit && layouts_fit && arguments_fit { Ok(()) } else { refuse(offset::OPERANDS, "operands") }
    }
}

/// Fields for which there is room in the word but which no operation of this version reads.
const UNUSED: [(&str, usize, usize); 8] = [
    ("element type", offset::ELEMENT, offset::REDUCTION),
    ("reduction", offset::REDUCTION, offset::ALGORITHM),
    ("algorithm", offset::ALGORITHM, offset::OPERANDS),
    ("signal id", offset::SIGNAL_ID, offset::LOOP_COUNT),
    ("loop count", offset::LOOP_COUNT, offset::SIGNAL_VALUE),
    ("signal value", offset::SIGNAL_VALUE, offset::LOOP_BODY),
    ("loop body", offset::LOOP_BODY, offset::ARGUMENT_INDEX),
    ("reserved", offset::RESERVED, offset::CHECKSUM),
];

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

fn u16_at(word: &[u8; BYTES], at: usize) -> u16 {
    u16::from_le_bytes([word[at], word[at + 1]])
}

fn u32_at(word: &[u8; BYTES], at: usize) -> u32 {
    u32::from_le_bytes([word[at], word[at + 1], word[at + 2], word[at + 3]])
}

fn u64_at(word: &[u8; BYTES], at: usize) -> u64 {
    u64::from(u32_at(word, at)) | u64::from(u32_at(word, at + 4)) << 32
}

//! The 32-byte completion: what became of an instruction, and when.

use std::fmt;

/// Bytes of an encoded completion.
pub const BYTES: usize = 32;
/// Bits of a cycle count that is relative to the issue of the instruction.
const CYCLES_BITS: u32 = 40;
/// Bits of the cycle count at which the instruction was issued, and of the byte count.
const WIDE_BITS: u32 = 48;

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        /// What became of an instruction.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Status {
            $($(#[$doc])* $name,)*
            /// A code that this version does not define.
            Unknown(u8),
        }

        impl Status {
            /// Every status this version defines.
            pub const ALL: &[Status] = &[$(Status::$name,)*];

            /// The code in the completion.
            pub const fn code(self) -> u8 {
                match self {
                    $(Status::$name => $code,)*
                    Status::Unknown(code) => code,
                }
            }

            /// The status with this code.
            pub const fn from_code(code: u8) -> Self {
                match code {
                    $($code => Status::$name,)*
                    _ => Status::Unknown(code),
                }
            }
        }

        impl fmt::Display for Status {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Status::$name => f.write_str($text),)*
                    Status::Unknown(code) => write!(f, "status code {code}, which this version does not know"),
                }
            }
        }
    };
}

statuses! {
    /// It did what it says.
    Done = 0, "done";
    /// The word's checksum did not fit.
    BadChecksum = 1, "the instruction's checksum does not fit";
    /// The word's version is not one the card knows.
    BadVersion = 2, "the card does not know the instruction's version";
    /// The operation is not one the card runs.
    BadOperation = 3, "the card does not run this operation";
    /// A field has a value that the operation does not allow.
    BadField = 4, "a field has a value the operation does not allow";
    /// The communicator is not defined, or cannot be.
    BadCommunicator = 5, "the communicator is not defined or cannot be";
    /// This card is not a member of the communicator.
    NotMember = 6, "the card is not a member of the communicator";
    /// Root or peer is not a rank of the communicator.
    BadRank = 7, "root or peer is not a rank of the communicator";
    /// An address range leaves card memory, or a striped block its stripe. The detail is [`OUT_OF_MEMORY`] if the range is
    /// inside, and the machine behind a mock card has no memory for it.
    OutOfRange = 8, "an address range leaves card memory or its stripe";
    /// Source and destination overlap in a way the operation cannot do.
    Overlap = 9, "source and destination overlap";
    /// Eager transfer was forced for more than the receive buffer holds.
    EagerOverrun = 10, "a piece sent eagerly is larger than the receive buffer";
    /// The host bus refused a read.
    HostReadFault = 11, "the host bus refused a read";
    /// The host bus refused a write.
    HostWriteFault = 12, "the host bus refused a write";
    /// There is no link to the peer, or it is down.
    LinkDown = 13, "there is no link to the peer, or it is down";
    /// It was ended by the abort register or a reset.
    Aborted = 14, "aborted";
    /// No such slot, nothing stored in it, or a program that cannot be stored.
    BadProgram = 15, "the resident program is missing or cannot be stored";
    /// A peer sent more or other data than the instruction says.
    Mismatch = 16, "a peer sent other data than the instruction says";
    /// There is no user logic behind the changeover switch.
    NoUserLogic = 17, "there is no user logic behind the changeover switch";
    /// There is no such slot for a table, none is stored in it, or it does not fit communicator and instruction. The detail
    /// is the slot.
    BadTable = 18, "the table is missing or does not fit";
    /// There is no such signal on the card it is on, or it would exceed 32 bits. The detail is the signal.
    BadSignal = 19, "there is no such signal, or it would overflow";
}

/// One word from the sequencer.
///
/// Cycle counts are of the sequencer's clock. T1 and T2 are as the OPTWEB paper (section 4.2) defines them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Tag of the instruction.
    pub tag: u16,
    /// What became of it.
    pub status: Status,
    /// What the status is about: the node of a peer, or the offset of a field. 15 bits.
    pub detail: u16,
    /// Value of the free-running counter when the instruction was issued, 48 bits.
    pub issued: u64,
    /// T1: cycles from issue until all beats were counted out. 40 bits.
    pub t1: u64,
    /// T2: cycles from issue until it was complete, with the control signals of all destinations back. 40 bits.
    pub t2: u64,
    /// Cycles from issue until the last byte for this card was counted in; 0 if none was. 40 bits.
    pub arrival: u64,
    /// Bytes the switch counted out and in on links; the own block is not among them. 48 bits.
    pub bytes: u64,
    /// Turns each time the ring wraps: true in the first pass.
    pub phase: bool,
}

impl Completion {
    /// The word as the host reads it. Counts that do not fit are cut to their field, as counters wrap.
    pub fn encode(&self) -> [u8; BYTES] {
        let words = [
            self.issued & mask(WIDE_BITS) | u64::from(self.tag) << WIDE_BITS,
            self.t1 & mask(CYCLES_BITS) | self.bytes << CYCLES_BITS,
            self.t2 & mask(CYCLES_BITS) | (self.bytes & mask(WIDE_BITS)) >> 24 << CYCLES_BITS,
            self.arrival & mask(CYCLES_BITS)
                | u64::from(self.status.code()) << 40
                | u64::from(self.detail & 0x7fff) << 48
                | u64::from(self.phase) << 63,
        ];
        let mut out = [0; BYTES];
        for (chunk, word) in out.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    /// Reads a word; every 32 bytes are a completion.
    pub fn decode(word: &[u8; BYTES]) -> Self {
        let (chunks, _) = word.as_chunks::<8>();
        let mut words = [0; 4];
        for (value, chunk) in words.iter_mut().zip(chunks) {
            *value = u64::from_le_bytes(*chunk);
        }
        let [first, second, third, last] = words;
        Completion {
            tag: (first >> WIDE_BITS) as u16,
            status: Status::from_code((last >> 40) as u8),
            detail: (last >> 48 & 0x7fff) as u16,
            issued: first & mask(WIDE_BITS),
            t1: second & mask(CYCLES_BITS),
            t2: third & mask(CYCLES_BITS),
            arrival: last & mask(CYCLES_BITS),
            bytes: second >> CYCLES_BITS | (third >> CYCLES_BITS & mask(24)) << 24,
            phase: phase_of(last),
        }
    }
}

/// Detail of [`Status::OutOfRange`] on a mock card whose fabric has used up its memory budget.
pub const OUT_OF_MEMORY: u16 = 1;

/// Offset of the word that the card writes last and that carries the phase bit.
pub const PHASE_WORD: usize = 24;

/// The phase bit of the word at [`PHASE_WORD`].
pub const fn phase_of(word: u64) -> bool {
    word >> 63 == 1
}

const fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

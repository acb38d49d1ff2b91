//! The 32-byte completion: result and times of an instruction.

use std::fmt;

/// Bytes of an encoded completion.
pub const BYTES: usize = 32;
/// Bits of a cycle count relative to the issue of the instruction.
const CYCLES_BITS: u32 = 40;
/// Bits of the cycle count at which the instruction was issued, and of the byte count.
const WIDE_BITS: u32 = 48;

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        /// The result of an instruction.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Status {
            $($(#[$doc])* $name,)*
            /// A code that this version does not define.
            Unknown(u8),
        }

        impl Status {
            /// Every status that this version defines.
            pub const ALL: &[Status] = &[$(Status::$name,)*];

            /// Returns the code in the completion.
            pub const fn code(self) -> u8 {
                match self {
                    $(Status::$name => $code,)*
                    Status::Unknown(code) => code,
                }
            }

            /// Returns the status with this code.
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
                    Status::Unknown(code) => write!(f, "unknown status code {code}"),
                }
            }
        }
    };
}

statuses! {
    /// The instruction succeeded.
    Done = 0, "done";
    /// The word's checksum does not match.
    BadChecksum = 1, "the instruction's checksum does not match";
    /// The card does not support the word's version.
    BadVersion = 2, "the card does not support the instruction's version";
    /// The card does not support the operation.
    BadOperation = 3, "the card does not support this operation";
    /// A field has a value that the operation does not allow.
    BadField = 4, "a field has a value the operation does not allow";
    /// The communicator is not defined, or its id is invalid.
    BadCommunicator = 5, "the communicator is not defined, or its id is invalid";
    /// This card is not a member of the communicator.
    NotMember = 6, "the card is not a member of the communicator";
    /// Root or peer is not a rank of the communicator.
    BadRank = 7, "root or peer is not a rank of the communicator";
    /// An address range exceeds card memory, or a striped block its stripe. The detail is [`OUT_OF_MEMORY`] if the range is
    /// inside, but the memory budget of the mock fabric is exceeded.
    OutOfRange = 8, "an address range exceeds card memory or its stripe";
    /// Source and destination overlap in a way that the operation does not support.
    Overlap = 9, "source and destination overlap";
    /// A forced eager transfer exceeds the receive buffer.
    EagerOverrun = 10, "an eager piece exceeds the receive buffer";
    /// A read of host memory failed: the bus refused it, or the detail is [`READ_TIMED_OUT`] or [`READ_POISONED`].
    HostReadFault = 11, "a read of host memory failed";
    /// The host bus refused a write.
    HostWriteFault = 12, "the host bus refused a write";
    /// The link to the peer is missing or down.
    LinkDown = 13, "the link to the peer is missing or down";
    /// The abort register or a reset ended the instruction.
    Aborted = 14, "aborted";
    /// The slot does not exist or is empty, or the program cannot be stored.
    BadProgram = 15, "the resident program is missing or cannot be stored";
    /// A peer sent other data than the instruction expects.
    Mismatch = 16, "a peer sent other data than the instruction expects";
    /// The changeover switch has no user logic.
    NoUserLogic = 17, "the changeover switch has no user logic";
    /// The table slot does not exist or is empty, or the table does not fit communicator and instruction. The detail is the
    /// slot.
    BadTable = 18, "the table is missing or does not fit";
    /// The signal does not exist on its card, or would exceed 32 bits. The detail is the signal.
    BadSignal = 19, "the signal does not exist, or would overflow";
    /// The window does not exist, is closed, or does not allow the access. The detail is the node of the peer; of an open or close,
    /// the slot.
    BadWindow = 20, "the window does not exist, is closed, or does not allow the access";
    /// Data for the instruction came over a link with a wrong checksum, and was lost. The detail is the node of the peer.
    LinkError = 21, "data came over a link with a bit error, and was lost";
    /// A word of card memory has more bit errors than its code corrects. The detail is the node of the card.
    MemoryError = 22, "card memory has an error that cannot be corrected";
}

/// One word from the sequencer.
///
/// Cycle counts are of the sequencer's clock. T1 and T2 are as the OPTWEB paper (section 4.2) defines them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Tag of the instruction.
    pub tag: u16,
    /// The result.
    pub status: Status,
    /// Depends on the status: the node of a peer, or the offset of a field. 15 bits.
    pub detail: u16,
    /// Free-running cycle counter when the instruction was issued, 48 bits.
    pub issued: u64,
    /// T1: cycles from issue until all beats were counted out. 40 bits.
    pub t1: u64,
    /// T2: cycles from issue until complete, including the returning signals of all destinations. 40 bits.
    pub t2: u64,
    /// Cycles from issue until the last byte for this card was counted in; 0 without data. 40 bits.
    pub arrival: u64,
    /// Bytes that the switch counted out and in on links, without the own block. 48 bits.
    pub bytes: u64,
    /// Inverts each time the ring wraps; true in the first pass.
    pub phase: bool,
}

/// Converts `cycles` of a clock to microseconds.
pub fn microseconds(cycles: u64, clock_khz: u32) -> f64 {
    cycles as f64 * 1e3 / f64::from(clock_khz)
}

impl Completion {
    /// The bits of the cycle counter that completions carry.
    pub const CYCLES_MASK: u64 = mask(WIDE_BITS);

    /// Encodes the word. Counts wrap to the width of their fields.
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

    /// Decodes a word: any 32 bytes are a completion.
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

/// Detail of [`Status::OutOfRange`] if the memory budget of the mock fabric is exceeded.
pub const OUT_OF_MEMORY: u16 = 1;
/// Detail of [`Status::HostReadFault`] if the read was not answered within the card's completion timeout (PCI Express Base 5.0,
/// section 2.8).
pub const READ_TIMED_OUT: u16 = 1;
/// Detail of [`Status::HostReadFault`] if the data of the answer was poisoned (PCI Express Base 5.0, section 2.7.2). It was not
/// used.
pub const READ_POISONED: u16 = 2;

/// Offset of the word with the phase bit, which the card writes last.
pub const PHASE_WORD: usize = 24;

/// Returns the phase bit of the word at [`PHASE_WORD`].
pub const fn phase_of(word: u64) -> bool {
    word >> 63 == 1
}

const fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

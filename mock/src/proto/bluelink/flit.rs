//! The flit: 128 bits on the wire, 64 of them payload (BlueLink paper, section VI).
//!
//! | bytes | bits | field |
//! |---|---|---|
//! | 0 | 8 | header of the physical layer: the control symbol [`HEADER`] |
//! | 1 | 4 + 4 | sequence number, acknowledged sequence number |
//! | 2 to 3 | 12 + 4 | address, flags |
//! | 4 to 11 | 64 | payload |
//! | 12 to 15 | 32 | CRC of bytes 1 to 11 |
//!
//! The paper gives a flit of 120 bits without header, and fields of 116. The other four are the flags: the paper needs
//! one for "no more" and one for "no payload".

use std::num::NonZeroU32;

use super::sequence::Sequence;

/// First symbol of a flit on the wire: K28.5, the comma of 8b10b. It aligns the receiver.
pub const HEADER: u8 = 0xbc;

const HAS_PAYLOAD: u16 = 1 << 12;
const NO_MORE: u16 = 1 << 13;
const RESTART: u16 = 1 << 14;
/// Of a restart flit, in the place of "no more".
const JOINED: u16 = 1 << 13;
const RESERVED: u16 = 1 << 15;

/// Bytes before the payload: header, sequence numbers, address and flags.
const HEAD: usize = 4;
const CRC: usize = 4;

/// Payload of a flit: `u64`, as published, or `u128` for a flit of 192 bits, as an extension.
pub trait Payload: Copy + Eq + std::fmt::Debug {
    /// Bytes of a flit on the wire.
    type Wire: AsRef<[u8]> + AsMut<[u8]> + Copy + Eq + std::fmt::Debug;
    /// A wire image of zeros.
    const BLANK: Self::Wire;
    /// Bits of payload.
    const BITS: u32;
    /// Writes the payload to `bytes`, the lowest byte first.
    fn write(self, bytes: &mut [u8]);
    /// Reads what [`Payload::write`] wrote.
    fn read(bytes: &[u8]) -> Self;
    /// Returns a payload whose lowest 64 bits are `low`, and the others 0.
    fn from_low(low: u64) -> Self;
    /// Returns the lowest 64 bits.
    fn to_low(self) -> u64;
}

macro_rules! payload {
    ($integer:ty) => {
        impl Payload for $integer {
            type Wire = [u8; HEAD + size_of::<$integer>() + CRC];
            const BLANK: Self::Wire = [0; HEAD + size_of::<$integer>() + CRC];
            const BITS: u32 = <$integer>::BITS;

            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }

            fn read(bytes: &[u8]) -> Self {
                bytes.iter().rev().fold(0, |value, byte| value << 8 | <$integer>::from(*byte))
            }

            fn from_low(low: u64) -> Self {
                low.into()
            }

            fn to_low(self) -> u64 {
                // Cuts the others off.
                self as u64
            }
        }
    };
}

payload!(u64);
payload!(u128);

/// Address of a flit: 12 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Address(u16);

impl Address {
    /// The largest address.
    pub const MAX: u16 = 0xfff;

    /// Returns the address, or `None` above [`Address::MAX`].
    pub const fn new(address: u16) -> Option<Self> {
        if address <= Self::MAX { Some(Address(address)) } else { None }
    }

    /// Returns the address as a number.
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// What the reliability layer carries: the payload and address of a flit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datum<P = u64> {
    /// Destination, for the layers above.
    pub address: Address,
    /// The data.
    pub payload: P,
}

/// Acknowledges all flits up to `last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acknowledgement {
    /// The last flit received in order, or the number before [`Sequence::FIRST`] if there is none.
    pub last: Sequence,
    /// "No more": the sender must not send new flits.
    pub no_more: bool,
}

/// Names one life of a link's end: another one after each restart.
pub type Session = NonZeroU32;

/// A flit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flit<P = u64> {
    /// Payload, with a piggybacked acknowledgement.
    Data {
        /// Payload and address.
        datum: Datum<P>,
        /// Its number.
        sequence: Sequence,
        /// For the opposite direction.
        acknowledgement: Acknowledgement,
    },
    /// An acknowledgement without payload.
    Empty(Acknowledgement),
    /// An end has restarted, or answers one that has.
    Restart {
        /// Session of the end that sends this flit.
        own: Session,
        /// Session of the other end, if it is known.
        heard: Option<Session>,
        /// The end carries data already, and needs no answer.
        has_joined: bool,
    },
}

/// A flit that was damaged on the wire. It is dropped, and sent again by its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The first symbol is not the header.
    #[error("flit without header: first byte {0:#04x}, expected {HEADER:#04x}")]
    Header(u8),
    /// The CRC does not match.
    #[error("bad CRC: {found:#010x}, computed {computed:#010x}")]
    Crc {
        /// In the flit.
        found: u32,
        /// Of the flit.
        computed: u32,
    },
}

/// A flit with a good CRC that no end of this protocol sends. The link stops: what follows cannot be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A reserved flag is set.
    #[error("protocol violation: reserved flag set (flags {flags:#x})")]
    Reserved {
        /// The four flags.
        flags: u8,
    },
    /// A restart with payload flag, numbers or an address.
    #[error(
        "protocol violation: restart flit with other fields (numbers {numbers:#04x}, address and flags {tail:#06x})"
    )]
    RestartFields {
        /// Both sequence numbers.
        numbers: u8,
        /// Address and flags.
        tail: u16,
    },
    /// A restart without a session.
    #[error("protocol violation: restart flit without a session")]
    NoSession,
    /// An empty flit with a payload, address or sequence number.
    #[error("protocol violation: empty flit with a payload, an address or a sequence number")]
    NotEmpty,
    /// A replay of a flit that was never received.
    #[error(
        "protocol violation: flit {sequence} is no replay: {expected} is expected, and only {accepted} came before it"
    )]
    NoReplay {
        /// Number of the flit.
        sequence: Sequence,
        /// The expected number.
        expected: Sequence,
        /// Flits received since the last restart.
        accepted: usize,
    },
    /// An acknowledgement of a flit that was not sent.
    #[error(
        "protocol violation: acknowledgement of flit {last}, which was not sent ({unacknowledged} flits from {first} on were)"
    )]
    NotSent {
        /// The acknowledged number.
        last: Sequence,
        /// The oldest flit without acknowledgement, or the next flit.
        first: Sequence,
        /// Flits sent and not acknowledged.
        unacknowledged: usize,
    },
}

/// Why bytes are not a flit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FlitError {
    /// Damaged on the wire.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// Sent by something else than an end of this protocol.
    #[error(transparent)]
    Violation(#[from] Violation),
}

impl<P: Payload> Flit<P> {
    /// Encodes the flit for the wire.
    pub fn encode(&self) -> P::Wire {
        let mut wire = P::BLANK;
        let bytes = wire.as_mut();
        let (numbers, tail) = match self {
            Flit::Data { datum, sequence, acknowledgement } => {
                let (acknowledged, flags) = pack(*acknowledgement);
                (sequence.bits() | acknowledged, datum.address.get() | flags | HAS_PAYLOAD)
            }
            Flit::Empty(acknowledgement) => pack(*acknowledgement),
            Flit::Restart { has_joined, .. } => (0, RESTART | if *has_joined { JOINED } else { 0 }),
        };
        bytes[0] = HEADER;
        bytes[1] = numbers;
        bytes[2..HEAD].copy_from_slice(&tail.to_le_bytes());
        let end = bytes.len() - CRC;
        match self {
            Flit::Data { datum, .. } => datum.payload.write(&mut bytes[HEAD..end]),
            Flit::Empty(_) => {}
            Flit::Restart { own, heard, .. } => {
                bytes[HEAD..HEAD + 4].copy_from_slice(&own.get().to_le_bytes());
                bytes[HEAD + 4..HEAD + 8].copy_from_slice(&heard.map_or(0, NonZeroU32::get).to_le_bytes());
            }
        }
        let crc = crc32c::crc32c(&bytes[1..end]);
        bytes[end..].copy_from_slice(&crc.to_le_bytes());
        wire
    }

    /// Decodes a flit.
    ///
    /// # Errors
    /// [`FlitError::Damaged`] for a wrong header or CRC, [`FlitError::Violation`] for fields that do not go together.
    pub fn decode(wire: &P::Wire) -> Result<Self, FlitError> {
        let bytes = wire.as_ref();
        let end = bytes.len() - CRC;
        if bytes[0] != HEADER {
            return Err(Damage::Header(bytes[0]).into());
        }
        let (found, computed) = (word(&bytes[end..]), crc32c::crc32c(&bytes[1..end]));
        if found != computed {
            return Err(Damage::Crc { found, computed }.into());
        }
        Ok(interpret(bytes[1], u16::from_le_bytes([bytes[2], bytes[3]]), &bytes[HEAD..end])?)
    }
}

/// Interprets both sequence numbers, address with flags, and payload.
fn interpret<P: Payload>(numbers: u8, tail: u16, payload: &[u8]) -> Result<Flit<P>, Violation> {
    if tail & RESERVED != 0 {
        return Err(Violation::Reserved { flags: (tail >> 12) as u8 });
    }
    if tail & RESTART != 0 {
        if numbers != 0 || tail & !JOINED != RESTART || payload[8..].iter().any(|byte| *byte != 0) {
            return Err(Violation::RestartFields { numbers, tail });
        }
        let own = NonZeroU32::new(word(payload)).ok_or(Violation::NoSession)?;
        let heard = NonZeroU32::new(word(&payload[4..]));
        return Ok(Flit::Restart { own, heard, has_joined: tail & JOINED != 0 });
    }
    let sequence = Sequence::from_bits(numbers & 0xf);
    let acknowledgement = Acknowledgement { last: Sequence::from_bits(numbers >> 4), no_more: tail & NO_MORE != 0 };
    if tail & HAS_PAYLOAD != 0 {
        let datum = Datum { address: Address(tail & Address::MAX), payload: P::read(payload) };
        return Ok(Flit::Data { datum, sequence, acknowledgement });
    }
    if sequence != Sequence::FIRST || tail & Address::MAX != 0 || payload.iter().any(|byte| *byte != 0) {
        return Err(Violation::NotEmpty);
    }
    Ok(Flit::Empty(acknowledgement))
}

/// Returns the byte of numbers, and the flags.
fn pack(acknowledgement: Acknowledgement) -> (u8, u16) {
    (acknowledgement.last.bits() << 4, if acknowledgement.no_more { NO_MORE } else { 0 })
}

fn word(bytes: &[u8]) -> u32 {
    bytes[..4].iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

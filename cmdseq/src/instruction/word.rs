//! The 64-byte word: encoding, decoding, and checks of fields.

use multiversion::multiversion;
use multiversion::target::match_target;

use super::fields::first_invalid;
use super::operand::{AddressSpace, Layout, Operand};
use super::operation::{Operation, is_collective, takes_stripes};
use super::{ARGUMENTS, Flags, Instruction, offset};
use crate::reduction::{Element, Reduction};

/// Bytes of an encoded instruction.
pub const BYTES: usize = 64;
/// Version of the instruction word that this crate writes and reads.
pub const VERSION: u8 = 1;

/// Why 64 bytes are no instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The checksum does not match: the word is torn, stale or damaged.
    #[error("checksum mismatch: found {found:#010x}, expected {expected:#010x}")]
    Checksum {
        /// In the word.
        found: u32,
        /// Computed.
        expected: u32,
    },
    /// The version is unknown.
    #[error("unsupported instruction version {0}")]
    Version(u8),
    /// No operation has this code.
    #[error("unknown operation code {0}")]
    Operation(u8),
    /// A field must be zero, or has an undefined code.
    #[error("invalid value of {name} (byte {offset}) for this operation")]
    Field {
        /// Offset of the field in the word.
        offset: usize,
        /// Its name.
        name: &'static str,
    },
}

/// Offset of the part of eight bytes that ends with the checksum.
const LAST: usize = offset::CHECKSUM / 8 * 8;

pub(crate) const SOURCE_SHIFT: u32 = 0;
pub(crate) const DESTINATION_SHIFT: u32 = 4;
/// The two bits of the space are no neighbours: bits 1 and 2 had their meanings when the second was added.
pub(crate) const OPERAND_SPACE_LOW: u8 = 1;
pub(crate) const OPERAND_SPACE_HIGH: u8 = 8;
pub(crate) const OPERAND_STRIPED: u8 = 2;
pub(crate) const OPERAND_ARGUMENT: u8 = 4;

impl Instruction {
    /// Encodes the word.
    ///
    /// Fields that the operation does not read are encoded too; a card and [`Instruction::decode`] refuse them unless they are
    /// zero.
    #[inline]
    pub fn encode(&self) -> [u8; BYTES] {
        self.encode_with_tag(self.tag)
    }

    /// Encodes the word with another tag than the instruction's, in the registers of the caller.
    #[inline(always)]
    pub fn encode_with_tag(&self, tag: u16) -> [u8; BYTES] {
        let (arguments, named) = argument_fields(self.source.argument, self.destination.argument, self.extent_argument);
        let operands =
            operand_bits(&self.source) << SOURCE_SHIFT | operand_bits(&self.destination) << DESTINATION_SHIFT | named;
        // Composed in registers: the checksum would wait for stores of single fields.
        let words = [
            field(VERSION.into(), offset::VERSION)
                | field(self.operation as u64, offset::OPERATION)
                | field(tag.into(), offset::TAG)
                | (field(self.communicator.into(), offset::COMMUNICATOR) | field(self.root.into(), offset::ROOT)),
            field(self.peer.into(), offset::PEER)
                | field(self.element.map_or(0, |element| element as u64), offset::ELEMENT)
                | field(self.reduction.map_or(0, |reduction| reduction as u64), offset::REDUCTION)
                | field(self.lane.into(), offset::LANE)
                | field(operands.into(), offset::OPERANDS)
                | field(self.flags.bits().into(), offset::FLAGS),
            self.source.address,
            self.destination.address,
            self.bytes,
            self.extent,
            field(self.signal_id.into(), offset::SIGNAL_ID)
                | field(self.loop_count.into(), offset::LOOP_COUNT)
                | field(self.signal_value.into(), offset::SIGNAL_VALUE),
            field(self.loop_body.into(), offset::LOOP_BODY) | arguments,
        ];
        let mut word = [0; BYTES];
        for (place, value) in word.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *place = value.to_le_bytes();
        }
        // A whole part, because loading it would wait for a store of half of it.
        let last = words[LAST / 8] | field(checksum(&word).into(), offset::CHECKSUM);
        word[LAST..].copy_from_slice(&last.to_le_bytes());
        word
    }

    /// Decodes a word: any 64 bytes are an instruction or an error.
    ///
    /// # Errors
    /// The first of checksum, version, operation and fields that is wrong.
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
            .ok_or(DecodeError::Field { offset: offset::FLAGS, name: "flags" })?;
        let operands = word[offset::OPERANDS];
        let arguments = word[offset::ARGUMENT_INDEX];
        let source = operand(operands >> SOURCE_SHIFT & 0xf, arguments & 0xf, u64_at(word, offset::SOURCE))?;
        let destination = operand(operands >> DESTINATION_SHIFT, arguments >> 4, u64_at(word, offset::DESTINATION))?;
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
            lane: word[offset::LANE],
            signal_id: u16_at(word, offset::SIGNAL_ID),
            signal_value: u32_at(word, offset::SIGNAL_VALUE),
            loop_count: u16_at(word, offset::LOOP_COUNT),
            loop_body: u16_at(word, offset::LOOP_BODY),
        };
        instruction.check_fields()?;
        Ok(instruction)
    }

    /// Checks that the fields that the operation does not read are zero, and that it supports its operands.
    ///
    /// # Errors
    /// The first invalid field.
    pub fn check_fields(&self) -> Result<(), DecodeError> {
        let refuse = |offset, name| Err(DecodeError::Field { offset, name });
        if let Some(field) = first_invalid(self) {
            return refuse(field.offset, field.name);
        }
        if let Some(combine) = self.combine() {
            if !combine.is_defined() {
                return refuse(offset::REDUCTION, "reduction");
            }
            if !self.bytes.is_multiple_of(combine.element.bytes()) {
                return refuse(offset::BYTES, "bytes");
            }
            // For a sendrecv_reduce, the extent is an address.
            if is_collective(self.operation) && !self.extent.is_multiple_of(combine.element.bytes()) {
                return refuse(offset::EXTENT, "extent");
            }
        }
        if !self.are_flags_valid() {
            return refuse(offset::FLAGS, "flags");
        }
        if self.operation.fields().window && !self.is_window_valid() {
            return refuse(offset::EXTENT, "window");
        }
        let spaces_fit = match self.operation {
            Operation::Copy => self.source.space.is_memory() && self.destination.space.is_memory(),
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

/// Writes the checksum of `word` into it, for tools and tests that compose words.
pub fn seal(word: &mut [u8; BYTES]) {
    let sum = checksum(word);
    word[offset::CHECKSUM..].copy_from_slice(&sum.to_le_bytes());
}

/// Returns the CRC-32C of all bytes before the checksum: it detects any change of up to three bits, or of bits within 32.
///
/// `crc32c` uses the processor's CRC instruction too, but is made for any length and alignment: most of its instructions for
/// these 60 bytes are about those.
#[multiversion(targets("x86_64+sse4.2", "aarch64+crc"))]
fn checksum(word: &[u8; BYTES]) -> u32 {
    match_target! {
        "x86_64+sse4.2" => {
            let mut sum = u64::from(u32::MAX);
            for at in (0..LAST).step_by(8) {
                sum = std::arch::x86_64::_mm_crc32_u64(sum, u64_at(word, at));
            }
            !std::arch::x86_64::_mm_crc32_u32(sum as u32, u32_at(word, LAST))
        },
        "aarch64+crc" => {
            let mut sum = u32::MAX;
            for at in (0..LAST).step_by(8) {
                sum = std::arch::aarch64::__crc32cd(sum, u64_at(word, at));
            }
            !std::arch::aarch64::__crc32cw(sum, u32_at(word, LAST))
        },
        _ => crc32c::crc32c(&word[..offset::CHECKSUM]),
    }
}

/// Returns the part of eight bytes that has `value` at offset `at` of the word, and zeroes else.
#[inline(always)]
fn field(value: u64, at: usize) -> u64 {
    value << (at % 8 * 8)
}

/// Returns the fields that name launch arguments, and the bits of the operands that say so.
#[inline(always)]
fn argument_fields(source: Option<u8>, destination: Option<u8>, extent: Option<u8>) -> (u64, u8) {
    // Only resident programs name them.
    if source.is_none() & destination.is_none() & extent.is_none() {
        return (0, 0);
    }
    let indices = source.unwrap_or(0) & 3 | (destination.unwrap_or(0) & 3) << 4;
    let extent = extent.map_or(0, |index| (index & 3) + 1);
    let named = |side: Option<u8>, shift: u32| side.map_or(0, |_| OPERAND_ARGUMENT << shift);
    (
        field(indices.into(), offset::ARGUMENT_INDEX) | field(extent.into(), offset::EXTENT_ARGUMENT),
        named(source, SOURCE_SHIFT) | named(destination, DESTINATION_SHIFT),
    )
}

#[inline(always)]
fn operand_bits(operand: &Operand) -> u8 {
    const { assert!(Layout::Striped as u8 == OPERAND_STRIPED) };
    operand.space as u8 | operand.layout as u8
}

fn operand(bits: u8, argument: u8, address: u64) -> Result<Operand, DecodeError> {
    let named = bits & OPERAND_ARGUMENT != 0;
    if usize::from(argument) >= ARGUMENTS || (!named && argument != 0) {
        return Err(DecodeError::Field { offset: offset::ARGUMENT_INDEX, name: "argument index" });
    }
    Ok(Operand {
        space: match (bits & OPERAND_SPACE_HIGH != 0, bits & OPERAND_SPACE_LOW != 0) {
            (false, false) => AddressSpace::Card,
            (false, true) => AddressSpace::Host,
            (true, false) => AddressSpace::Stream0,
            (true, true) => AddressSpace::Stream1,
        },
        layout: if bits & OPERAND_STRIPED != 0 { Layout::Striped } else { Layout::Block },
        argument: named.then_some(argument),
        address,
    })
}

/// Decodes the code at `at`; 0 is `None`.
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

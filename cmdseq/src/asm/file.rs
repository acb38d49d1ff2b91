//! Encodes assembled programs as a file (layout: `docs/seq.md`), and decodes and checks it.

use super::program::{Assembly, Binding, Buffer, RankProgram};
use crate::instruction::Side;
use crate::program::Communicator;
use crate::table::{ENTRY_BYTES, Table};
use crate::{AddressSpace, DecodeError, Instruction, Layout, instruction};

/// The first eight bytes.
pub const MAGIC: [u8; 8] = *b"FPGASEQ\0";
const VERSION: u16 = 1;
/// Bytes before the first program.
const HEADER: usize = 32;
/// Offset of the checksum of all other bytes, the last field of the header.
const CHECKSUM: usize = 28;

/// Why bytes are not a valid program file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The magic bytes differ.
    #[error("not a program file (the magic bytes differ)")]
    Magic,
    /// The version is unknown.
    #[error("unsupported version {0}: expected {VERSION}")]
    Version(u16),
    /// The file is truncated.
    #[error("truncated in {0}")]
    Short(&'static str),
    /// The checksum does not match.
    #[error("checksum mismatch: header {found:#010x}, content {expected:#010x}")]
    Checksum {
        /// In the header.
        found: u32,
        /// Computed.
        expected: u32,
    },
    /// A field is invalid.
    #[error("invalid value of {0}")]
    Field(&'static str),
    /// A word is no instruction.
    #[error("invalid instruction {instruction} of rank {rank}")]
    Word {
        /// Whose.
        rank: u32,
        /// Its index.
        instruction: usize,
        /// Why.
        #[source]
        source: DecodeError,
    },
    /// The parts are inconsistent.
    #[error("inconsistent content: {0}")]
    Parts(String),
}

/// Returns the bytes of the file.
pub fn encode(assembly: &Assembly) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(MAGIC);
    out.extend(VERSION.to_le_bytes());
    out.extend((instruction::BYTES as u16).to_le_bytes());
    out.extend(assembly.ranks.to_le_bytes());
    out.extend((assembly.programs.len() as u32).to_le_bytes());
    out.resize(HEADER, 0);
    for program in &assembly.programs {
        let count = |length: usize| (length as u32).to_le_bytes();
        out.extend(program.rank.to_le_bytes());
        out.extend(count(program.instructions.len()));
        out.extend(count(program.buffers.len()));
        out.extend(count(program.communicators.len()));
        out.extend(count(program.bindings.len()));
        out.extend(count(program.tables.len()));
        program.instructions.iter().for_each(|instruction| out.extend(instruction.encode()));
        for buffer in &program.buffers {
            out.extend(buffer.address.to_le_bytes());
            out.extend(buffer.bytes.to_le_bytes());
            out.push(u8::from(buffer.space == AddressSpace::Host));
            out.push(u8::from(buffer.layout == Layout::Striped));
            out.extend((buffer.name.len() as u16).to_le_bytes());
            out.extend(buffer.name.as_bytes());
        }
        for communicator in &program.communicators {
            out.extend(communicator.id.to_le_bytes());
            out.extend([0; 2]);
            out.extend(count(communicator.members.len()));
            communicator.members.iter().for_each(|member| out.extend(member.to_le_bytes()));
        }
        for binding in &program.bindings {
            out.extend(binding.instruction.to_le_bytes());
            out.extend(binding.buffer.to_le_bytes());
            out.extend(u32::from(binding.side == Side::Destination).to_le_bytes());
        }
        for (slot, table) in &program.tables {
            out.extend(slot.to_le_bytes());
            out.extend([0; 2]);
            out.extend(count(table.entries.len()));
            out.extend(table.encode());
        }
    }
    let bytes = out.len() as u64;
    out[20..28].copy_from_slice(&bytes.to_le_bytes());
    let sum = checksum(&out);
    out[CHECKSUM..HEADER].copy_from_slice(&sum.to_le_bytes());
    out
}

/// CRC-32C of all bytes but the checksum, of a file with at least a header.
fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..CHECKSUM]), &bytes[HEADER..])
}

/// Decodes a file.
///
/// # Errors
/// The first part that [`encode`] would not write.
pub fn decode(bytes: &[u8]) -> Result<Assembly, FileError> {
    let mut reader = Reader { rest: bytes };
    if reader.array("the header")? != MAGIC {
        return Err(FileError::Magic);
    }
    let version = u16::from_le_bytes(reader.array("the header")?);
    if version != VERSION {
        return Err(FileError::Version(version));
    }
    if usize::from(u16::from_le_bytes(reader.array("the header")?)) != instruction::BYTES {
        return Err(FileError::Field("the size of a word"));
    }
    let ranks = reader.number("the header")?;
    let programs = reader.number("the header")?;
    let length = u64::from_le_bytes(reader.array("the header")?);
    let found = reader.number("the header")?;
    match length.cmp(&(bytes.len() as u64)) {
        std::cmp::Ordering::Greater => return Err(FileError::Short("the content")),
        std::cmp::Ordering::Less => return Err(FileError::Field("the length of the file")),
        std::cmp::Ordering::Equal => {}
    }
    let expected = checksum(bytes);
    if found != expected {
        return Err(FileError::Checksum { found, expected });
    }
    let mut assembly = Assembly { ranks, programs: Vec::new() };
    for _ in 0..programs {
        assembly.programs.push(reader.program()?);
    }
    if !reader.rest.is_empty() {
        return Err(FileError::Field("the number of programs"));
    }
    assembly.check().map_err(FileError::Parts)?;
    Ok(assembly)
}

/// The unread rest. Allocations never exceed what it can hold.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize, what: &'static str) -> Result<&'a [u8], FileError> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(FileError::Short(what))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], FileError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(FileError::Short(what))?;
        self.rest = rest;
        Ok(*taken)
    }

    fn number(&mut self, what: &'static str) -> Result<u32, FileError> {
        self.array(what).map(u32::from_le_bytes)
    }

    fn program(&mut self) -> Result<RankProgram, FileError> {
        let [rank, words, buffers, communicators, bindings, tables] = {
            let mut counts = [0; 6];
            for count in &mut counts {
                *count = self.number("a program's counts")?;
            }
            counts
        };
        let mut program = RankProgram { rank, ..RankProgram::default() };
        let bytes = (words as usize).checked_mul(instruction::BYTES).ok_or(FileError::Short("instructions"))?;
        let (words, _) = self.take(bytes, "instructions")?.as_chunks::<{ instruction::BYTES }>();
        for (index, word) in words.iter().enumerate() {
            let decoded = Instruction::decode(word);
            let word = |source| FileError::Word { rank, instruction: index, source };
            program.instructions.push(decoded.map_err(word)?);
        }
        for _ in 0..buffers {
            program.buffers.push(self.buffer()?);
        }
        for _ in 0..communicators {
            program.communicators.push(self.communicator()?);
        }
        for _ in 0..bindings {
            let (instruction, buffer) = (self.number("bindings")?, self.number("bindings")?);
            let side = match self.number("bindings")? {
                0 => Side::Source,
                1 => Side::Destination,
                _ => return Err(FileError::Field("the side of a binding")),
            };
            program.bindings.push(Binding { instruction, side, buffer });
        }
        for _ in 0..tables {
            let (slot, table) = self.table()?;
            // With a duplicate slot, or in another order, encoding would not give the same file again.
            if program.tables.last_key_value().is_some_and(|(last, _)| *last >= slot) {
                return Err(FileError::Field("the slot of a table"));
            }
            program.tables.insert(slot, table);
        }
        Ok(program)
    }

    fn buffer(&mut self) -> Result<Buffer, FileError> {
        let address = u64::from_le_bytes(self.array("buffers")?);
        let bytes = u64::from_le_bytes(self.array("buffers")?);
        let space = match self.array("buffers")? {
            [0] => AddressSpace::Card,
            [1] => AddressSpace::Host,
            _ => return Err(FileError::Field("the space of a buffer")),
        };
        let layout = match self.array("buffers")? {
            [0] => Layout::Block,
            [1] => Layout::Striped,
            _ => return Err(FileError::Field("the layout of a buffer")),
        };
        let length = u16::from_le_bytes(self.array("buffers")?);
        let name = std::str::from_utf8(self.take(length.into(), "the name of a buffer")?);
        let name = name.map_err(|_| FileError::Field("the name of a buffer"))?.to_owned();
        Ok(Buffer { name, space, layout, address, bytes })
    }

    fn table(&mut self) -> Result<(u16, Table), FileError> {
        let slot = u16::from_le_bytes(self.array("tables")?);
        if self.array("tables")? != [0; 2] {
            return Err(FileError::Field("a reserved field"));
        }
        let count = self.number("tables")? as usize;
        let bytes = count.checked_mul(ENTRY_BYTES).ok_or(FileError::Short("tables"))?;
        let table = Table::decode(self.take(bytes, "tables")?).map_err(|_| FileError::Field("a table"))?;
        Ok((slot, table))
    }

    fn communicator(&mut self) -> Result<Communicator, FileError> {
        let id = u16::from_le_bytes(self.array("communicators")?);
        if self.array("communicators")? != [0; 2] {
            return Err(FileError::Field("a reserved field"));
        }
        let count = self.number("communicators")? as usize;
        let bytes = count.checked_mul(4).ok_or(FileError::Short("communicators"))?;
        let (members, _) = self.take(bytes, "communicators")?.as_chunks();
        Ok(Communicator { id, members: members.iter().map(|member| u32::from_le_bytes(*member)).collect() })
    }
}

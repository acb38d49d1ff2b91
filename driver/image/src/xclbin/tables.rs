//! Tables in sections: memories, kernels, connections, clocks.

use crate::error::Result;
use crate::reader::Reader;
use crate::xclbin::section::Section;

/// Kinds of the sections.
const MEM_TOPOLOGY: u32 = 6;
const CONNECTIVITY: u32 = 7;
const IP_LAYOUT: u32 = 8;
const CLOCK_FREQ_TOPOLOGY: u32 = 11;
const GROUP_TOPOLOGY: u32 = 26;
const GROUP_CONNECTIVITY: u32 = 27;

/// Names of kinds of memory, from 0 on.
const MEMORIES: [&str; 12] = [
    "MEM_DDR3",
    "MEM_DDR4",
    "MEM_DRAM",
    "MEM_STREAMING",
    "MEM_PREALLOCATED_GLOB",
    "MEM_ARE",
    "MEM_HBM",
    "MEM_BRAM",
    "MEM_URAM",
    "MEM_STREAMING_CONNECTION",
    "MEM_HOST",
    "MEM_PS_KERNEL",
];
/// Names of kinds of blocks, from 0 on.
const IPS: [&str; 8] = [
    "IP_MB",
    "IP_KERNEL",
    "IP_DNASC",
    "IP_DDR4_CONTROLLER",
    "IP_MEM_DDR4",
    "IP_MEM_HBM",
    "IP_MEM_HBM_ECC",
    "IP_PS_KERNEL",
];
/// Kinds of memory that are streams: these have no size and no address.
const STREAMS: [u8; 2] = [3, 9];

/// Returns the name of a kind of memory.
pub fn memory_kind_name(kind: u8) -> Option<&'static str> {
    MEMORIES.get(usize::from(kind)).copied()
}

/// Returns the name of a kind of block.
pub fn ip_kind_name(kind: u32) -> Option<&'static str> {
    IPS.get(kind as usize).copied()
}

/// A memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its kind: [`memory_kind_name`].
    pub kind: u8,
    /// Whether a kernel uses it.
    pub is_used: bool,
    /// Bytes; 0 of a stream.
    pub bytes: u64,
    /// Address of its first byte; 0 of a stream.
    pub address: u64,
}

/// A kernel or another block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ip<'a> {
    /// Its name, of a kernel `KERNEL:INSTANCE`.
    pub name: &'a str,
    /// Its kind: [`ip_kind_name`].
    pub kind: u32,
    /// Of a kernel: interrupt enabled in 0, its number in 7:1, control protocol in 15:8.
    pub properties: u32,
    /// Address of its registers; `None` if it has none.
    pub address: Option<u64>,
}

/// An argument of a kernel, and the memory that it lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// Number of the argument.
    pub argument: u32,
    /// Index of the kernel.
    pub ip: u32,
    /// Index of the memory.
    pub memory: u32,
}

/// What a clock is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockKind {
    /// Not said.
    Unused,
    /// Data.
    Data,
    /// Kernels.
    Kernel,
    /// The shell.
    System,
    /// Another kind.
    Unknown(u8),
}

/// A clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it is for.
    pub kind: ClockKind,
    /// Its frequency.
    pub mhz: u16,
}

/// All tables.
pub(super) struct Tables<'a> {
    pub(super) memories: Vec<Memory<'a>>,
    pub(super) ips: Vec<Ip<'a>>,
    pub(super) connections: Vec<Connection>,
    pub(super) clocks: Vec<Clock<'a>>,
}

/// Reads the tables, and checks that what they name exists.
pub(super) fn tables<'a>(file: Reader<'a>, sections: &[Section<'a>]) -> Result<Tables<'a>> {
    let part = |kind: u32| -> Result<Option<Reader<'a>>> {
        let section = sections.iter().find(|section| section.kind == kind && !section.bytes.is_empty());
        section.map(|section| file.part(section.offset, section.bytes.len() as u64, "a section")).transpose()
    };
    let memories = optional(part(MEM_TOPOLOGY)?, memories)?;
    let ips = optional(part(IP_LAYOUT)?, ips)?;
    let connections = optional(part(CONNECTIVITY)?, |section| connections(section, &ips, &memories))?;
    let groups = optional(part(GROUP_TOPOLOGY)?, self::memories)?;
    if !groups.is_empty() {
        optional(part(GROUP_CONNECTIVITY)?, |section| self::connections(section, &ips, &groups))?;
    }
    let clocks = optional(part(CLOCK_FREQ_TOPOLOGY)?, clocks)?;
    Ok(Tables { memories, ips, connections, clocks })
}

/// Reads the table of a section, if the file has it.
fn optional<'a, T>(section: Option<Reader<'a>>, read: impl FnOnce(Reader<'a>) -> Result<Vec<T>>) -> Result<Vec<T>> {
    section.map_or(Ok(Vec::new()), read)
}

fn count(section: Reader<'_>) -> Result<i64> {
    Ok(i32::from_le_bytes(section.array(0, "the number of entries")?).into())
}

fn memories(section: Reader<'_>) -> Result<Vec<Memory<'_>>> {
    let entry = |entry: Reader<'_>| -> Result<_> {
        let kind = entry.u8(0, "a memory's kind")?;
        // In place of size and address a stream has the ids of its route and flow.
        if STREAMS.contains(&kind) {
            return Ok((kind, (0, 0)));
        }
        let kib = entry.u64(8, "a memory's size")?;
        let address = entry.u64(16, "a memory's address")?;
        let Some(bytes) = kib.checked_mul(1024).filter(|bytes| address.checked_add(*bytes).is_some()) else {
            return Err(entry.error(8, format!("a memory of {kib} KiB at {address:#x}, beyond 64 bits")));
        };
        Ok((kind, (bytes, address)))
    };
    let mut found = Vec::new();
    for one in section.entries(8, count(section)?, 40, "the table of memories")? {
        let (kind, (bytes, address)) = entry(one)?;
        let (is_used, name) = (one.u8(1, "a memory's use")? != 0, one.text(24, 16, "a memory's name")?);
        found.push(Memory { name, kind, is_used, bytes, address });
    }
    Ok(found)
}

fn ips(section: Reader<'_>) -> Result<Vec<Ip<'_>>> {
    let mut found = Vec::new();
    for one in section.entries(8, count(section)?, 80, "the table of kernels")? {
        found.push(Ip {
            name: one.text(16, 64, "a kernel's name")?,
            kind: one.u32(0, "a kernel's kind")?,
            properties: one.u32(4, "a kernel's properties")?,
            address: Some(one.u64(8, "a kernel's address")?).filter(|address| *address != u64::MAX),
        });
    }
    Ok(found)
}

fn connections(section: Reader<'_>, ips: &[Ip<'_>], memories: &[Memory<'_>]) -> Result<Vec<Connection>> {
    let mut found = Vec::new();
    for one in section.entries(4, count(section)?, 12, "the table of connections")? {
        let connection = Connection {
            argument: one.u32(0, "an argument")?,
            ip: one.u32(4, "a kernel's index")?,
            memory: one.u32(8, "a memory's index")?,
        };
        if connection.ip as usize >= ips.len() {
            let (ip, count) = (connection.ip, ips.len());
            return Err(one.error(4, format!("a connection of kernel {ip}, but there are {count}")));
        }
        match memories.get(connection.memory as usize) {
            Some(memory) if memory.is_used => found.push(connection),
            Some(memory) => {
                return Err(one.error(8, format!("a connection to {:?}, which is marked as unused", memory.name)));
            }
            None => {
                let (memory, count) = (connection.memory, memories.len());
                return Err(one.error(8, format!("a connection to memory {memory}, but there are {count}")));
            }
        }
    }
    Ok(found)
}

fn clocks(section: Reader<'_>) -> Result<Vec<Clock<'_>>> {
    let count = i16::from_le_bytes(section.array(0, "the number of clocks")?);
    let mut found = Vec::new();
    for one in section.entries(2, count.into(), 136, "the table of clocks")? {
        found.push(Clock {
            name: one.text(8, 128, "a clock's name")?,
            kind: match one.u8(2, "a clock's kind")? {
                0 => ClockKind::Unused,
                1 => ClockKind::Data,
                2 => ClockKind::Kernel,
                3 => ClockKind::System,
                other => ClockKind::Unknown(other),
            },
            mhz: one.u16(0, "a clock's frequency")?,
        });
    }
    Ok(found)
}

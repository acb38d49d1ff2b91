//! AMD's xclbin files: sections, with tables of the memories, kernels and clocks that the bitstream holds.
//!
//! All numbers are little-endian. Source: XRT, `xclbin.h`; a file may also hold a description of itself in JSON between its last
//! section and its signature.

mod partition;
mod section;
mod tables;

pub use partition::{Node, Partition, Property};
pub use section::{Section, kind_name};
pub use tables::{Clock, ClockKind, Connection, Ip, Memory, ip_kind_name, memory_kind_name};

use std::ops::RangeInclusive;

use uuid::Uuid;

use crate::bit::Bit;
use crate::error::Result;
use crate::reader::Reader;
use section::{BITSTREAM, PARTITION_METADATA, sections};
use tables::{Tables, tables};

/// What a file begins with.
const MAGIC: &[u8] = b"xclbin2\0";
/// What files of any version begin with.
pub(crate) const ANY_VERSION: &[u8] = b"xclbin";
/// Bytes up to the table of sections.
const FIXED_BYTES: u64 = 456;

/// Names of modes, from 0 on: whole devices, partial reconfiguration, second stages of configuration over PCIe, emulation.
const MODES: [&str; 7] = ["FLAT", "PR", "TANDEM_STAGE2", "TANDEM_STAGE2_WITH_PR", "HW_EMU", "SW_EMU", "HW_EMU_PR"];
/// Modes of files that no card takes.
const EMULATION: RangeInclusive<u16> = 4..=6;

/// What a user's signature behind the file begins with.
const USER_SIGNATURE: [u8; 16] = *b"SIGN\x9d\xff\x41\xc0\x8c\xcb\x82\xa7\x13\x1c\xc9\xf3";

/// Offsets in the file.
const SIGNATURE_BYTES: u64 = 8;
const LENGTH: u64 = 304;
const TIMESTAMP: u64 = 312;
const ROM_TIMESTAMP: u64 = 320;
const PATCH: u64 = 328;
const MAJOR: u64 = 330;
const MINOR: u64 = 331;
const MODE: u64 = 332;
const INTERFACE: u64 = 336;
const PLATFORM: u64 = 352;
const PLATFORM_BYTES: u64 = 64;
const ID: u64 = 416;
const SECTIONS: u64 = 448;

/// Returns the name of a mode.
pub fn mode_name(mode: u16) -> Option<&'static str> {
    MODES.get(usize::from(mode)).copied()
}

/// A file.
#[derive(Debug, Clone, PartialEq)]
pub struct Xclbin<'a> {
    /// UUID of the file.
    pub id: Uuid,
    /// UUID of the interface of the shell, zeros if the file does not say.
    pub interface: Uuid,
    /// The platform: vendor, board, name, version.
    pub platform: &'a str,
    /// Version of the tool that wrote it: major, minor, patch.
    pub version: (u8, u8, u16),
    /// When it was written, in seconds since 1970.
    pub timestamp: u64,
    /// Time stamp of the shell's read-only memory, which old shells are told apart by.
    pub rom_timestamp: u64,
    /// What it is for: [`mode_name`].
    pub mode: u16,
    /// Its sections, in the order of the table.
    pub sections: Vec<Section<'a>>,
    /// Memories of the platform.
    pub memories: Vec<Memory<'a>>,
    /// Kernels and other blocks.
    pub ips: Vec<Ip<'a>>,
    /// Which memory each argument of a kernel lies in.
    pub connections: Vec<Connection>,
    /// Clocks.
    pub clocks: Vec<Clock<'a>>,
    /// What the metadata of the partition say, if the file has them.
    pub partition: Option<Partition<'a>>,
    /// The bitstream, if its section is a .bit file.
    pub bitstream: Option<Bit<'a>>,
    /// Signature of all bytes before it (PKCS#7).
    pub signature: Option<&'a [u8]>,
    /// What somebody added behind the file with `--add-signature`.
    pub user_signature: Option<&'a [u8]>,
}

impl<'a> Xclbin<'a> {
    /// Takes a file apart.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid), with the place in the file.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let file = Reader::new("xclbin", bytes);
        if file.slice(0, MAGIC.len() as u64, "the header")? != MAGIC {
            return Err(file.error(0, "it does not begin with xclbin2: files of other versions are not read"));
        }
        file.slice(0, FIXED_BYTES, "the header")?;
        let length = file.u64(LENGTH, "the length")?;
        let user_signature = user_signature(file, length)?;
        let file = file.part(0, length, "the file")?;
        let signature = signature(file)?;
        let signed = file.part(0, file.len() - signature.map_or(0, |bytes| bytes.len() as u64), "the signed part")?;
        let sections = sections(signed, file.u32(SECTIONS, "the number of sections")?, FIXED_BYTES)?;
        let Tables { memories, ips, connections, clocks } = tables(file, &sections)?;
        let bitstream = match sections.iter().find(|section| section.kind == BITSTREAM && !section.bytes.is_empty()) {
            Some(section) if section.bytes.starts_with(&crate::bit::MAGIC) => {
                Some(Bit::read(file.part(section.offset, section.bytes.len() as u64, "the bitstream")?)?)
            }
            _ => None,
        };
        let metadata = sections.iter().find(|section| section.kind == PARTITION_METADATA && !section.bytes.is_empty());
        let tree = |section: &Section<'_>| file.part(section.offset, section.bytes.len() as u64, "a section");
        let partition = metadata.map(|section| tree(section).and_then(partition::partition)).transpose()?;
        Ok(Xclbin {
            id: Uuid::from_bytes(file.array(ID, "the id")?),
            interface: Uuid::from_bytes(file.array(INTERFACE, "the interface")?),
            platform: file.text(PLATFORM, PLATFORM_BYTES, "the platform")?,
            version: (file.u8(MAJOR, "the version")?, file.u8(MINOR, "the version")?, file.u16(PATCH, "the version")?),
            timestamp: file.u64(TIMESTAMP, "the time stamp")?,
            rom_timestamp: file.u64(ROM_TIMESTAMP, "the time stamp")?,
            mode: file.u16(MODE, "the mode")?,
            sections,
            memories,
            ips,
            connections,
            clocks,
            partition,
            bitstream,
            signature,
            user_signature,
        })
    }

    /// Whether the file is for an emulator, and for no card.
    pub fn is_for_emulation(&self) -> bool {
        EMULATION.contains(&self.mode)
    }
}

/// Returns the user's signature behind a file of `length` bytes. Nothing else may be there.
fn user_signature(file: Reader<'_>, length: u64) -> Result<Option<&[u8]>> {
    let rest = match file.len().checked_sub(length) {
        Some(0) => return Ok(None),
        Some(rest) if length >= FIXED_BYTES => rest,
        _ => {
            let what = format!("the file says that it has {length} bytes, but it has {}", file.len());
            return Err(file.error(LENGTH, what));
        }
    };
    let block = file.part(length, rest, "what is behind the file")?;
    if !block.bytes().starts_with(&USER_SIGNATURE) {
        return Err(file.error(length, format!("{rest} bytes behind the {length} that the file says it has")));
    }
    let whole = u64::from(block.u32(24, "the user's signature")?);
    let (offset, bytes) = (block.u32(32, "the user's signature")?, block.u32(36, "the user's signature")?);
    if whole != rest {
        return Err(block.error(24, format!("the user's signature says {whole} bytes, but {rest} are there")));
    }
    block.slice(offset.into(), bytes.into(), "the user's signature").map(Some)
}

/// Returns the signature at the end of the file.
fn signature(file: Reader<'_>) -> Result<Option<&[u8]>> {
    let bytes = i32::from_le_bytes(file.array(SIGNATURE_BYTES, "the signature's length")?);
    if bytes == -1 {
        return Ok(None);
    }
    let room = file.len() - FIXED_BYTES;
    match u64::try_from(bytes) {
        Ok(bytes) if bytes > 0 && bytes <= room => Ok(Some(file.slice(file.len() - bytes, bytes, "the signature")?)),
        _ => {
            let what = format!("the signature has {bytes} bytes; expected 1 to {room}, or -1 for none");
            Err(file.error(SIGNATURE_BYTES, what))
        }
    }
}

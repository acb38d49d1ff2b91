//! The sections of a file.

use crate::error::Result;
use crate::reader::Reader;

/// Kind of the section with the bitstream.
pub(super) const BITSTREAM: u32 = 0;
/// Kind of the section with the device tree of a partition.
pub(super) const PARTITION_METADATA: u32 = 20;
/// Bytes of an entry of the table.
const ENTRY_BYTES: u64 = 40;
/// Offsets in an entry.
const NAME: u64 = 4;
const NAME_BYTES: u64 = 16;
const OFFSET: u64 = 24;
const BYTES: u64 = 32;

/// Names of kinds, from 0 on.
const KINDS: [&str; 37] = [
    "BITSTREAM",
    "CLEARING_BITSTREAM",
    "EMBEDDED_METADATA",
    "FIRMWARE",
    "DEBUG_DATA",
    "SCHED_FIRMWARE",
    "MEM_TOPOLOGY",
    "CONNECTIVITY",
    "IP_LAYOUT",
    "DEBUG_IP_LAYOUT",
    "DESIGN_CHECK_POINT",
    "CLOCK_FREQ_TOPOLOGY",
    "MCS",
    "BMC",
    "BUILD_METADATA",
    "KEYVALUE_METADATA",
    "USER_METADATA",
    "DNA_CERTIFICATE",
    "PDI",
    "BITSTREAM_PARTIAL_PDI",
    "PARTITION_METADATA",
    "EMULATION_DATA",
    "SYSTEM_METADATA",
    "SOFT_KERNEL",
    "ASK_FLASH",
    "AIE_METADATA",
    "GROUP_TOPOLOGY",
    "GROUP_CONNECTIVITY",
    "SMARTNIC",
    "AIE_RESOURCES",
    "OVERLAY",
    "VENDER_METADATA",
    "AIE_PARTITION",
    "IP_METADATA",
    "AIE_RESOURCES_BIN",
    "AIE_TRACE_METADATA",
    "DTBO",
];

/// Returns the name of a kind of section. Files may have kinds that this crate does not know.
pub fn kind_name(kind: u32) -> Option<&'static str> {
    KINDS.get(kind as usize).copied()
}

/// A section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section<'a> {
    /// What it holds: [`kind_name`].
    pub kind: u32,
    /// Its name, which may be empty.
    pub name: &'a str,
    /// Where it begins in the file.
    pub offset: u64,
    /// What it holds.
    pub bytes: &'a [u8],
}

/// Reads the table of sections at `table`. No two overlap, and none overlaps the table.
pub(super) fn sections(file: Reader<'_>, count: u32, table: u64) -> Result<Vec<Section<'_>>> {
    let end = table + u64::from(count) * ENTRY_BYTES;
    let mut sections = Vec::new();
    for entry in file.entries(table, count.into(), ENTRY_BYTES, "the table of sections")? {
        let (offset, bytes) = (entry.u64(OFFSET, "a section's offset")?, entry.u64(BYTES, "a section's size")?);
        let name = entry.text(NAME, NAME_BYTES, "a section's name")?;
        let kind = entry.u32(0, "a section's kind")?;
        let called =
            kind_name(kind).map_or_else(|| format!("the section of kind {kind}"), |name| format!("section {name}"));
        if bytes > 0 && offset < end {
            return Err(entry.error(OFFSET, format!("{called} begins at {offset:#x}, inside of the table of sections")));
        }
        let bytes = if bytes == 0 { &[][..] } else { file.slice(offset, bytes, &called)? };
        sections.push(Section { kind, name, offset, bytes });
    }
    let mut places: Vec<(u64, u64)> = sections
        .iter()
        .filter(|section| !section.bytes.is_empty())
        .map(|section| (section.offset, section.offset + section.bytes.len() as u64))
        .collect();
    places.sort_unstable();
    match places.windows(2).find(|pair| pair[0].1 > pair[1].0) {
        Some(pair) => Err(file.error(pair[1].0, "two sections overlap here")),
        None => Ok(sections),
    }
}

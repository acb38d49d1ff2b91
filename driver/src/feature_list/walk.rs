//! The features of one list, one after the other.

use std::fmt;
use std::ops::Range;

use fpga_hal::Window;
use fpga_regs::dfl::{fme, port};
use fpga_regs::feature_list::{
    GUID, HEADERS_MAX, Header, REGISTERS, REGISTERS_ABSOLUTE, REGISTERS_BYTES, TYPE_AFU, TYPE_FIU, TYPE_PRIVATE,
};

use crate::feature_list::error::Error;

/// Bytes of a header and the GUID behind it.
const HEADER_BYTES: u64 = 24;
/// Bytes of a header of version 1.
const HEADER_1_BYTES: u64 = 40;
/// Bytes of the last feature, if the list does not say.
const LAST_BYTES: u64 = 4096;

/// A unit, by which the ids of the features behind its header are numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// The management engine of the shell.
    Management,
    /// A port, through which an accelerator reaches the host.
    Port,
    /// An accelerator.
    Accelerator,
    /// None that this driver knows.
    Unknown,
}

/// A feature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feature {
    /// Offset of its header in the BAR.
    pub offset: u64,
    /// Type: 1 accelerator, 2 building block, 3 private feature, 4 unit of the shell.
    pub kind: u8,
    /// Id, 12 bits. It means something else in each unit.
    pub id: u16,
    /// Revision, 4 bits.
    pub revision: u8,
    /// Version of the header.
    pub version: u8,
    /// The unit that it belongs to, or is.
    pub unit: Unit,
    /// GUID, if it has one.
    pub guid: Option<u128>,
    /// Where its registers are in the BAR: from the header on, if that is of version 0. `None` if the header gives them an address
    /// instead.
    pub registers: Option<Range<u64>>,
}

/// Names of the management engine's features by id, as in Linux' `dfl-feature-id` list.
const OF_MANAGEMENT: [(u16, &str); 20] = [
    (0x01, "temperature"),
    (0x02, "power"),
    (0x03, "performance"),
    (0x04, "errors"),
    (0x05, "partial reconfiguration"),
    (0x07, "performance"),
    (0x08, "flash"),
    (0x09, "memory interfaces"),
    (0x0e, "board controller"),
    (0x0f, "serial interfaces"),
    (0x10, "Ethernet"),
    (0x12, "board controller"),
    (0x13, "QSFP"),
    (0x14, "streaming to memory"),
    (0x15, "serial interfaces"),
    (0x20, "PCIe"),
    (0x22, "time of day"),
    (0x23, "feature with a GUID"),
    (0x24, "UART"),
    (0x26, "DMA"),
];
/// Names of a port's features by id.
const OF_PORT: [(u16, &str); 5] = [
    (0x10, "port errors"),
    (0x11, "messages"),
    (0x12, "user interrupts"),
    (0x13, "remote SignalTap"),
    (0x14, "accelerator clock"),
];

impl Feature {
    /// Returns what it is, if this driver knows.
    pub fn name(&self) -> Option<&'static str> {
        let known: &[(u16, &'static str)] = match (self.kind, self.unit) {
            (TYPE_FIU, Unit::Management) => return Some("management engine"),
            (TYPE_FIU, Unit::Port) => return Some("port"),
            (TYPE_AFU, _) => return Some("accelerator"),
            (TYPE_PRIVATE, Unit::Management) => &OF_MANAGEMENT,
            (TYPE_PRIVATE, Unit::Port) => &OF_PORT,
            _ => &[],
        };
        known.iter().find(|(id, _)| *id == self.id).map(|(_, name)| *name)
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "type {}, id {:#x}, revision {}", self.kind, self.id, self.revision)?;
        match self.guid {
            Some(guid) => write!(f, ", GUID {guid:032x}"),
            None => Ok(()),
        }
    }
}

/// A walk along a list. It ends behind the last feature, or behind an error.
#[derive(Debug)]
pub struct Walk<'a> {
    window: &'a Window,
    /// Offset of the next header.
    next: Option<u64>,
    count: usize,
    unit: Unit,
}

impl<'a> Walk<'a> {
    /// Begins at `offset` of a BAR.
    pub fn new(window: &'a Window, offset: u64) -> Self {
        Walk { window, next: Some(offset), count: 0, unit: Unit::Unknown }
    }

    /// Returns how many headers were read.
    pub(super) fn headers(&self) -> usize {
        self.count
    }

    fn read(&mut self, offset: u64) -> Result<Feature, Error> {
        let (count, len) = (self.count, self.window.len());
        if count == HEADERS_MAX {
            return Err(Error::List(format!("the feature list does not end within {HEADERS_MAX} headers")));
        }
        self.inside(offset, HEADER_BYTES)?;
        let word = read_u64(self.window, offset)?;
        if word == u64::MAX {
            return Err(Error::List(format!("header {count} at {offset:#x} reads all-ones")));
        }
        let header = Header::decode(word);
        if header.version > 1 {
            let version = header.version;
            return Err(Error::List(format!(
                "header {count} at {offset:#x} is of version {version}; 0 and 1 are known"
            )));
        }
        let is_last = header.end_of_list || header.next == 0;
        if !is_last && (header.next < 8 || header.next % 8 != 0) {
            let next = header.next;
            return Err(Error::List(format!("header {count} at {offset:#x} says the next is {next:#x} further on")));
        }
        self.unit = match (header.kind, header.id) {
            (TYPE_FIU, fme::ID) => Unit::Management,
            (TYPE_FIU, port::ID) => Unit::Port,
            (TYPE_FIU, _) => Unit::Unknown,
            (TYPE_AFU, _) => Unit::Accelerator,
            _ => self.unit,
        };
        let bytes = match header.next {
            0 => LAST_BYTES.min(len - offset),
            next => u64::from(next),
        };
        if is_last {
            self.next = None;
            self.inside(offset, bytes)?;
        } else {
            self.next = Some(offset + bytes);
        }
        let registers = match header.version {
            // Of a header whose next is outside, the next step tells.
            0 => Some(offset..(offset + bytes).min(len)),
            _ => self.registers(offset)?,
        };
        let guid = match header.has_guid() {
            true => Some(
                u128::from(read_u64(self.window, offset + GUID)?)
                    | u128::from(read_u64(self.window, offset + GUID + 8)?) << 64,
            ),
            false => None,
        };
        let Header { kind, id, revision, version, .. } = header;
        Ok(Feature { offset, kind, id, revision, version, unit: self.unit, guid, registers })
    }

    /// Reads where the registers of a feature are, from its header of version 1.
    fn registers(&self, offset: u64) -> Result<Option<Range<u64>>, Error> {
        self.inside(offset, HEADER_1_BYTES)?;
        let place = read_u64(self.window, offset + REGISTERS)?;
        let bytes = read_u64(self.window, offset + REGISTERS_BYTES)? >> 32;
        if place & REGISTERS_ABSOLUTE != 0 {
            return Ok(None);
        }
        let begin = offset.saturating_add(place);
        self.inside(begin, bytes)?;
        Ok(Some(begin..begin + bytes))
    }

    fn inside(&self, offset: u64, bytes: u64) -> Result<(), Error> {
        let size = self.window.len();
        if offset.checked_add(bytes).is_some_and(|end| end <= size) {
            return Ok(());
        }
        let count = self.count;
        let what = match bytes {
            HEADER_BYTES => format!("header {count} at {offset:#x} is"),
            _ => format!("{bytes:#x} bytes at {offset:#x}, of header {count}, are"),
        };
        Err(Error::List(format!("{what} outside of the BAR's {size:#x} bytes")))
    }
}

/// Two reads of 32 bits: every card takes them, and a bus may split longer ones.
pub(super) fn read_u64(window: &Window, offset: u64) -> Result<u64, fpga_hal::Error> {
    Ok(u64::from(window.read_u32(offset)?) | u64::from(window.read_u32(offset + 4)?) << 32)
}

impl Iterator for Walk<'_> {
    type Item = Result<Feature, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let offset = self.next.take()?;
        let read = self.read(offset);
        self.count += 1;
        if read.is_err() {
            self.next = None;
        }
        Some(read)
    }
}

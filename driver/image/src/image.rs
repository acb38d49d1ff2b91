//! Telling the formats apart.

use uuid::Uuid;

use crate::bit::{self, Bit};
use crate::error::{Error, Result};
use crate::gbs::{self, Gbs};
use crate::signed::is_signed;
use crate::xclbin::{self, Xclbin};

/// Most bytes of a file, as in XRT: 1 GiB.
pub const BYTES_MAX: u64 = 1 << 30;
/// What a configuration stream of AMD's devices has near its beginning.
const SYNC: [u8; 4] = [0xaa, 0x99, 0x55, 0x66];
/// How near.
const SYNC_WITHIN: usize = 1024;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// AMD's container, with tables of what the bitstream holds.
    Xclbin,
    /// Intel's: a description, and a bitstream for partial reconfiguration.
    Gbs,
    /// AMD's bitstream with a header.
    Bit,
    /// AMD's bitstream without a header: it has a sync word.
    Bin,
    /// Intel's image with a signature, whose parts only the card checks.
    Signed,
    /// Anything else, such as Intel's raw binary file (.rbf).
    Raw,
}

impl Format {
    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Xclbin => "xclbin",
            Format::Gbs => "GBS",
            Format::Bit => ".bit",
            Format::Bin => ".bin",
            Format::Signed => "signed image",
            Format::Raw => "raw bitstream",
        }
    }
}

/// A file, taken apart.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Image<'a> {
    /// AMD's container.
    Xclbin(Box<Xclbin<'a>>),
    /// Intel's description and bitstream.
    Gbs(Gbs<'a>),
    /// AMD's bitstream with a header.
    Bit(Bit<'a>),
    /// AMD's bitstream without a header.
    Bin(&'a [u8]),
    /// Intel's signed image.
    Signed(&'a [u8]),
    /// A file of no format that this crate knows.
    Raw(&'a [u8]),
}

impl<'a> Image<'a> {
    /// Takes a file apart. Its beginning tells the format.
    ///
    /// # Errors
    /// [`Error`], with the place in the file. A file whose beginning is of no format is [`Image::Raw`].
    pub fn parse(file: &'a [u8]) -> Result<Self> {
        let bytes = file.len() as u64;
        if bytes > BYTES_MAX {
            return Err(Error::TooLong { bytes, limit: BYTES_MAX });
        }
        if file.is_empty() {
            return Err(Error::Empty);
        }
        match format_of(file) {
            Format::Xclbin => Xclbin::parse(file).map(|xclbin| Image::Xclbin(Box::new(xclbin))),
            Format::Gbs => Gbs::parse(file).map(Image::Gbs),
            Format::Bit => Bit::parse(file).map(Image::Bit),
            Format::Bin => Ok(Image::Bin(file)),
            Format::Signed => Ok(Image::Signed(file)),
            Format::Raw => Ok(Image::Raw(file)),
        }
    }

    /// Returns the bitstream in it. `None` of an xclbin that holds no .bit file.
    pub fn bitstream(&self) -> Option<&'a [u8]> {
        match self {
            Image::Xclbin(xclbin) => xclbin.bitstream.as_ref().map(|bit| bit.stream),
            Image::Gbs(gbs) => Some(gbs.bitstream),
            Image::Bit(bit) => Some(bit.stream),
            Image::Bin(bytes) | Image::Signed(bytes) | Image::Raw(bytes) => Some(bytes),
        }
    }

    /// Returns the interfaces that it is made for: a card with any of them takes it. Empty if the file does not say.
    pub fn interfaces(&self) -> Vec<Uuid> {
        match self {
            Image::Xclbin(xclbin) => {
                let offered = xclbin.partition.iter().flat_map(|partition| &partition.interfaces);
                std::iter::once(&xclbin.interface).chain(offered).copied().filter(|one| !one.is_nil()).collect()
            }
            Image::Gbs(gbs) => gbs.interface.into_iter().collect(),
            Image::Bit(_) | Image::Bin(_) | Image::Signed(_) | Image::Raw(_) => Vec::new(),
        }
    }

    /// Returns the GUIDs of what it brings, as far as the file says.
    pub fn contents(&self) -> Vec<Uuid> {
        match self {
            Image::Xclbin(xclbin) => xclbin.partition.iter().filter_map(|partition| partition.logic).collect(),
            Image::Gbs(gbs) => gbs.accelerators.iter().map(|one| one.guid).collect(),
            Image::Bit(_) | Image::Bin(_) | Image::Signed(_) | Image::Raw(_) => Vec::new(),
        }
    }

    /// Returns its format.
    pub fn format(&self) -> Format {
        match self {
            Image::Xclbin(_) => Format::Xclbin,
            Image::Gbs(_) => Format::Gbs,
            Image::Bit(_) => Format::Bit,
            Image::Bin(_) => Format::Bin,
            Image::Signed(_) => Format::Signed,
            Image::Raw(_) => Format::Raw,
        }
    }
}

/// Returns the format of a file from its beginning, which is not empty.
fn format_of(file: &[u8]) -> Format {
    // Files cut short are recognised too: what is left of a beginning is no raw bitstream.
    let begins = |magic: &[u8]| file.starts_with(magic) || magic.starts_with(file);
    match file {
        _ if begins(xclbin::ANY_VERSION) => Format::Xclbin,
        _ if begins(&gbs::MAGIC) || begins(&gbs::MAGIC_NUMBER.to_le_bytes()) => Format::Gbs,
        _ if begins(&bit::MAGIC) => Format::Bit,
        _ if is_signed(file) => Format::Signed,
        _ if file[..file.len().min(SYNC_WITHIN)].windows(4).any(|word| word == SYNC) => Format::Bin,
        _ => Format::Raw,
    }
}

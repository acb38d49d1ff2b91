//! The port above a function, and the masks of its Advanced Error Reporting (PCI Express Base 5.0, section 7.8.4).

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use fpga_pci::PciAddress;
use fpga_pci::config::{BYTES, BrokenList, EXTENDED, EXTENDED_AER, End, Space};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::attribute::is_absence;
use crate::error::Error;
use crate::root::Sysfs;

/// Header type of a bridge.
const BRIDGE: u8 = 1;
/// In the capability: mask of uncorrectable errors, 32 bits.
const UNCORRECTABLE_MASK: u16 = 0x08;
/// In the capability: mask of correctable errors, 32 bits.
const CORRECTABLE_MASK: u16 = 0x14;
/// Where the kernel tells one boot from another.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Errors that a port does not report, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorMasks {
    /// Uncorrectable errors.
    pub uncorrectable: u32,
    /// Correctable errors.
    pub correctable: u32,
}

impl ErrorMasks {
    /// Every error, and the reserved bits, which a port ignores.
    pub const ALL: ErrorMasks = ErrorMasks { uncorrectable: u32::MAX, correctable: u32::MAX };
}

/// A port with Advanced Error Reporting, held so that no other process of this program changes its masks.
#[derive(Debug)]
pub struct Port {
    address: PciAddress,
    path: PathBuf,
    /// Closing the file unlocks it, even if the process is killed.
    config: Flock<File>,
    /// Offset of the capability; both masks are in configuration space.
    capability: u16,
}

/// Why the masks of a port cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// The port does not exist.
    #[error("There is no PCI function {port}")]
    NoPort {
        /// Address of the port.
        port: PciAddress,
    },
    /// The function is no bridge.
    #[error("{port} is no bridge: its header has type {header_type}")]
    NoBridge {
        /// Address of the function.
        port: PciAddress,
        /// Type in its header.
        header_type: u8,
    },
    /// Only root may write the configuration space of a port.
    #[error("no permission to write {}: only root may", path.display())]
    NoPermission {
        /// Path of the configuration space.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The kernel shows a part of configuration space only.
    #[error("the kernel shows {bytes} bytes of {}: expected {BYTES}, as with CAP_SYS_ADMIN", path.display())]
    Hidden {
        /// Path of the configuration space.
        path: PathBuf,
        /// Visible length, in bytes.
        bytes: usize,
    },
    /// Configuration space cannot be read or written.
    #[error("Cannot access {}", path.display())]
    Failed {
        /// Path of the configuration space.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The port does not answer.
    #[error("{port} does not answer: its configuration space reads as all-ones")]
    Gone {
        /// Address of the port.
        port: PciAddress,
    },
    /// The list of extended capabilities is invalid.
    #[error("Extended capabilities of {port}")]
    BrokenList {
        /// Address of the port.
        port: PciAddress,
        /// Where.
        #[source]
        source: BrokenList,
    },
    /// The capability leads out of configuration space.
    #[error("AER of {port} at {offset:#x} ends after configuration space")]
    Outside {
        /// Address of the port.
        port: PciAddress,
        /// Offset of the capability.
        offset: u16,
    },
    /// Another process has masked errors of the port.
    #[error("another process masks errors of {port}")]
    InUse {
        /// Address of the port.
        port: PciAddress,
    },
    /// The port does not keep what is written.
    #[error(
        "masks of {port} are {:#010x} and {:#010x} (expected {:#010x} and {:#010x})",
        found.uncorrectable, found.correctable, expected.uncorrectable, expected.correctable
    )]
    Ineffective {
        /// Address of the port.
        port: PciAddress,
        /// Written masks.
        expected: ErrorMasks,
        /// Masks that it has afterwards.
        found: ErrorMasks,
    },
}

impl Sysfs {
    /// Returns the port above a function; of a virtual function, that above its physical function. `None`: it is on a root bus.
    ///
    /// # Errors
    /// [`Error::NoFunction`], or if its ids cannot be read.
    pub fn port_above(&self, address: PciAddress) -> Result<Option<PciAddress>, Error> {
        self.function(address).map(|function| function.upstream)
    }

    /// Opens a port to change its masks. `None`: it has no Advanced Error Reporting. Writes nothing.
    ///
    /// # Errors
    /// Any [`PortError`] except [`Ineffective`](PortError::Ineffective).
    pub fn open_port(&self, port: PciAddress) -> Result<Option<Port>, PortError> {
        let path = self.directory(port).join("config");
        let file =
            OpenOptions::new().read(true).write(true).open(&path).map_err(|source| {
                if is_absence(&source) { PortError::NoPort { port } } else { refused(&path, source) }
            })?;
        let config = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(locked) => locked,
            Err((_, Errno::EWOULDBLOCK)) => return Err(PortError::InUse { port }),
            Err((_, errno)) => return Err(refused(&path, errno.into())),
        };
        let space = read(&config).map_err(|source| refused(&path, source))?;
        let bytes = space.len();
        let Some(space) = Space::new(space) else { return Err(PortError::Hidden { path, bytes }) };
        let capability = find(&space, port, &path)?;
        Ok(capability.map(|capability| Port { address: port, path, config, capability }))
    }

    /// Returns what tells this boot of the machine from others, if the kernel says it.
    pub fn boot(&self) -> Option<String> {
        crate::attribute::text(&self.path(BOOT_ID)).ok().flatten()
    }
}

impl Port {
    /// Returns its address.
    pub fn address(&self) -> PciAddress {
        self.address
    }

    /// Reads the masks.
    ///
    /// # Errors
    /// [`PortError::Failed`], or [`PortError::Gone`].
    pub fn masks(&self) -> Result<ErrorMasks, PortError> {
        let masks = ErrorMasks {
            uncorrectable: self.read(self.capability + UNCORRECTABLE_MASK)?,
            correctable: self.read(self.capability + CORRECTABLE_MASK)?,
        };
        // All-ones in both may be the masks, or what is read of a port that is gone.
        if self.read(0)? == u32::MAX { Err(PortError::Gone { port: self.address }) } else { Ok(masks) }
    }

    /// Masks every error.
    ///
    /// # Errors
    /// As [`masks`](Port::masks), or [`PortError::NoPermission`].
    pub fn mask_all(&self) -> Result<(), PortError> {
        self.write(ErrorMasks::ALL)?;
        self.masks().map(drop)
    }

    /// Writes masks that were read before.
    ///
    /// # Errors
    /// As [`mask_all`](Port::mask_all), or [`PortError::Ineffective`] if they read back otherwise.
    pub fn restore(&self, masks: ErrorMasks) -> Result<(), PortError> {
        self.write(masks)?;
        let (port, found) = (self.address, self.masks()?);
        if found == masks { Ok(()) } else { Err(PortError::Ineffective { port, expected: masks, found }) }
    }

    fn read(&self, offset: u16) -> Result<u32, PortError> {
        let mut bytes = [0; 4];
        self.config.read_exact_at(&mut bytes, offset.into()).map_err(|source| refused(&self.path, source))?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn write(&self, masks: ErrorMasks) -> Result<(), PortError> {
        for (offset, value) in [(UNCORRECTABLE_MASK, masks.uncorrectable), (CORRECTABLE_MASK, masks.correctable)] {
            // The kernel makes one access of an aligned write of four bytes.
            let written = self.config.write_all_at(&value.to_le_bytes(), (self.capability + offset).into());
            written.map_err(|source| refused(&self.path, source))?;
        }
        Ok(())
    }
}

/// Reads configuration space, as far as the kernel shows it.
fn read(config: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::from(BYTES)];
    let mut length = 0;
    while length < bytes.len() {
        match config.read_at(&mut bytes[length..], length as u64) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(length);
    Ok(bytes)
}

/// Returns the offset of Advanced Error Reporting, whose masks are in configuration space. `None`: the port has none.
fn find(space: &Space, port: PciAddress, path: &Path) -> Result<Option<u16>, PortError> {
    if space.is_gone() {
        return Err(PortError::Gone { port });
    }
    let header_type = space.header().header_type;
    if header_type != BRIDGE {
        return Err(PortError::NoBridge { port, header_type });
    }
    let walk = space.extended_capabilities();
    match walk.end {
        End::Complete => {}
        End::CutShort(EXTENDED) if space.len() <= usize::from(EXTENDED) => {
            return Err(PortError::Hidden { path: path.to_owned(), bytes: space.len() });
        }
        // Nothing is written to a port whose list is wrong anywhere.
        End::CutShort(offset) | End::Broken(offset) => {
            return Err(PortError::BrokenList { port, source: BrokenList { offset } });
        }
    }
    let Some(entry) = walk.first(EXTENDED_AER) else { return Ok(None) };
    match space.u32(entry.offset + CORRECTABLE_MASK) {
        Some(_) => Ok(Some(entry.offset)),
        None => Err(PortError::Outside { port, offset: entry.offset }),
    }
}

fn refused(path: &Path, source: io::Error) -> PortError {
    let path = path.to_owned();
    match source.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EACCES | Errno::EPERM | Errno::EROFS) => PortError::NoPermission { path, source },
        _ => PortError::Failed { path, source },
    }
}

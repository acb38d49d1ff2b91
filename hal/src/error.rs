//! What can go wrong on the bus.

use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::BrokenList;
use crate::vfio::OpenError;
use crate::{BarIndex, BusKind, InterruptKind, Iova};

/// What can go wrong on the bus. Causes are in [`source`](std::error::Error::source), not in the sentence.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The function has no such BAR.
    #[error("{bar} is not implemented")]
    NoBar {
        /// The BAR asked for.
        bar: BarIndex,
    },
    /// The function no longer answers (reads give all-ones), or its bus has asked for it back: close it.
    #[error("The function is gone, or its bus has asked for it back")]
    Removed,
    /// This process holds the function already: one driver at a time has a card.
    #[error("{name} is in use in this process already; drop the first user before it is opened again")]
    InUse {
        /// The selector or bus address it was opened by.
        name: String,
    },
    /// An access does not lie inside of what it is made to.
    #[error("{bytes} bytes at offset {offset:#x} do not lie inside of the {what} of {len:#x} bytes")]
    OutOfBounds {
        /// What was accessed: "window", "DMA buffer", …
        what: &'static str,
        /// Where the access begins.
        offset: u64,
        /// Its width or length in bytes.
        bytes: u64,
        /// Length of what was accessed, in bytes.
        len: u64,
    },
    /// An access is not aligned to its width.
    #[error("Offset {offset:#x} of the {what} is not aligned to the access of {bytes} bytes")]
    Misaligned {
        /// What was accessed: "window", "DMA buffer", …
        what: &'static str,
        /// Where the access begins.
        offset: u64,
        /// Its width in bytes.
        bytes: u64,
    },
    /// Memory cannot be had from the operating system.
    #[error("Cannot get {bytes} bytes of {what}")]
    Memory {
        /// What it was for: "DMA memory", "shared memory".
        what: &'static str,
        /// Bytes asked for.
        bytes: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A buffer of zero bytes, or of more than the address space holds.
    #[error("A buffer cannot have {bytes} bytes")]
    BufferSize {
        /// Bytes asked for.
        bytes: u64,
    },
    /// An alignment that is not a power of two.
    #[error("An alignment of {alignment} bytes is not a power of two")]
    Alignment {
        /// The alignment asked for, in bytes.
        alignment: u64,
    },
    /// There is room for a mapping, but one of the domain's functions cannot reach it.
    #[error(
        "No room for {bytes:#x} bytes aligned to {alignment:#x} that {function} can reach: it masters only {bits} \
         address bits"
    )]
    DmaMask {
        /// Bytes asked for.
        bytes: u64,
        /// Alignment asked for, in bytes.
        alignment: u64,
        /// Name of the function that limits.
        function: String,
        /// Address bits it masters.
        bits: u8,
    },
    /// The domain's address ranges have no room for a mapping.
    #[error("No room for {bytes:#x} bytes aligned to {alignment:#x} in the domain's IOVA ranges {ranges}")]
    IovaSpace {
        /// Bytes asked for.
        bytes: u64,
        /// Alignment asked for, in bytes.
        alignment: u64,
        /// The domain's ranges.
        ranges: IovaRanges,
    },
    /// The domain holds as many mappings as it can.
    #[error("The domain allows {limit} mappings and holds as many")]
    EntryLimit {
        /// Mappings it allows.
        limit: usize,
    },
    /// An access to configuration space that is not aligned or not inside of its 4096 bytes.
    #[error("Configuration space has no {width}-byte register at {offset:#x}")]
    ConfigAccess {
        /// Offset asked for.
        offset: u16,
        /// Width in bytes.
        width: u16,
    },
    /// The function is not an endpoint (a bridge, say).
    #[error("Header type {header_type:#04x} is not that of an endpoint")]
    HeaderType {
        /// The header type register without its multi-function bit.
        header_type: u8,
    },
    /// The capability list of configuration space leads nowhere.
    #[error("The capability list is broken at {offset:#x}")]
    CapabilityList {
        /// Offset of the entry that is wrong.
        offset: u16,
    },
    /// The function has no interrupts of the kind asked for, or none at all.
    #[error("The function has no {} interrupts", .kind.map_or("MSI-X, MSI or INTx".to_owned(), |kind| kind.to_string()))]
    NoInterrupts {
        /// The kind, if a certain one was asked for.
        kind: Option<InterruptKind>,
    },
    /// A vector was triggered through the bus and did not arrive.
    #[error("{kind} vector {vector} was triggered and did not arrive within {milliseconds} ms")]
    InterruptLost {
        /// Its kind.
        kind: InterruptKind,
        /// The vector.
        vector: u16,
        /// How long it was waited for.
        milliseconds: u64,
    },
    /// A function of one bus was to be opened in a domain of another.
    #[error("A function {bus} cannot be opened in a domain of functions {domain}")]
    DomainKind {
        /// How the function is reached.
        bus: BusKind,
        /// How the domain's functions are.
        domain: BusKind,
    },
    /// The MSI-X capability names a table that is not there.
    #[error("The MSI-X table of {vectors} vectors at {offset:#x} of BAR{bar} does not lie in that BAR")]
    MsixTable {
        /// The BAR it names (6 and 7 are reserved).
        bar: u8,
        /// Offset it names, in bytes.
        offset: u64,
        /// Vectors it announces.
        vectors: u16,
    },
    /// More interrupt vectors, or fewer, than can be enabled.
    #[error("Cannot enable {asked} interrupt vectors: the function has {available}")]
    VectorCount {
        /// Vectors asked for.
        asked: u16,
        /// Vectors of the function's table.
        available: u16,
    },
    /// An interrupt's descriptor cannot be made or waited for.
    #[error("Cannot {action} the descriptor of an interrupt")]
    InterruptDescriptor {
        /// What was tried: "create", "read" or "wait for".
        action: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A socket cannot be served or reached.
    #[error("Cannot {action} the socket {}", .path.display())]
    Socket {
        /// What was tried: "serve" or "connect to".
        action: &'static str,
        /// The socket's file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A server took too long to answer while its function was opened.
    #[error("The server of {} did not answer in time: opening may take {patience:?}", .path.display())]
    Unresponsive {
        /// The socket's file.
        path: PathBuf,
        /// How long opening may take.
        patience: Duration,
    },
    /// The function behind a socket has another client.
    #[error("Another client has the function at {}", .path.display())]
    Busy {
        /// The socket's file.
        path: PathBuf,
    },
    /// A vfio-user server has said no.
    #[error("The server does not {what} the function")]
    Refused {
        /// What was asked for.
        what: &'static str,
        /// What it said.
        #[source]
        source: io::Error,
    },
    /// A vfio-user server has said what cannot be right.
    #[error("The server's {what} makes no sense")]
    Nonsense {
        /// Of what it spoke.
        what: &'static str,
    },
    /// An endpoint describes itself in a way that no PCI function can be.
    #[error("The endpoint's layout is impossible: {reason}")]
    Layout {
        /// What is wrong with it.
        reason: String,
    },
    /// A function cannot be opened through kernel VFIO.
    #[error(transparent)]
    Vfio(#[from] OpenError),
    /// The kernel's VFIO driver refuses something of an open function.
    #[error("The kernel cannot {action} the function")]
    Kernel {
        /// What was asked for.
        action: &'static str,
        /// What it said.
        #[source]
        source: io::Error,
    },
    /// The bus cannot make one access of this width to a register that is not mapped.
    #[error(
        "An access of {bytes} bytes at {offset:#x} would be several, because the register is not mapped: the widest is {most} \
         bytes; make several where the register allows it"
    )]
    AccessWidth {
        /// Offset in the BAR, bytes.
        offset: u64,
        /// Width asked for, bytes.
        bytes: u64,
        /// The widest that is one access, bytes.
        most: u64,
    },
    /// The function cannot be reset, neither alone nor with all that shares its bus.
    #[error(
        "The function cannot be reset: it has no reset of its own, and this process does not hold all functions that share \
         its bus"
    )]
    NoReset,
    /// The function cannot be reset, so it was not opened.
    #[error(
        "The function cannot be reset, so what its last user started may still run; open every function that shares its bus, \
         or, if its engines are known to be stopped, open it without a reset (selector option +without-reset)"
    )]
    NotReset,
    /// The domain has no function, so that nobody can say what it maps.
    #[error("The domain has no function, so that nobody can say what it maps: open one first")]
    EmptyDomain,
    /// Nothing translates for the domain's functions, so that they cannot be given host memory.
    #[error("No IOMMU translates for the domain's functions: they cannot be given host memory")]
    NotTranslated,
    /// The process may not pin as much memory.
    #[error(
        "Cannot pin {bytes} bytes for DMA: {locked} are pinned or locked of {} that RLIMIT_MEMLOCK allows; raise it with \
         `ulimit -l`, LimitMEMLOCK= of the systemd unit, or memlock in /etc/security/limits.conf and a new login",
        .limit.map_or("any number".to_owned(), |limit| limit.to_string())
    )]
    Memlock {
        /// Bytes asked for.
        bytes: u64,
        /// Bytes pinned or locked already.
        locked: u64,
        /// Bytes that may be, if there is a limit.
        limit: Option<u64>,
        /// What the kernel said, if it was asked at all.
        #[source]
        source: Option<io::Error>,
    },
    /// The kernel refuses a mapping: what overlaps another, say, or lies outside of what the IOMMU translates.
    #[error("Cannot map {bytes:#x} bytes at IOVA {iova}")]
    DmaMap {
        /// Where.
        iova: Iova,
        /// Bytes of the mapping.
        bytes: u64,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The kernel does not take a mapping back.
    #[error("Cannot unmap {bytes:#x} bytes at IOVA {iova}")]
    DmaUnmap {
        /// Where.
        iova: Iova,
        /// Bytes of the mapping.
        bytes: u64,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// Memory cannot be registered because of its start or length.
    #[error(
        "Cannot register {bytes} bytes at {start:#x}: start and length must be multiples of {granule}, and not zero"
    )]
    RegisteredRange {
        /// Address of the first byte.
        start: u64,
        /// Length in bytes.
        bytes: u64,
        /// Bytes of a page of the domain.
        granule: u64,
    },
    /// Memory without a descriptor cannot be registered in a domain of vfio-user servers.
    #[error(
        "Cannot register {bytes} bytes: vfio-user servers get memory as a descriptor, and this memory has none; register an \
         Arc<SharedMemory>"
    )]
    NotShareable {
        /// Length in bytes.
        bytes: u64,
    },
    /// Registered memory cannot be returned, because the kernel refuses to unmap it.
    #[error("{bytes:#x} bytes at IOVA {iova} are still mapped: the kernel refuses to unmap them")]
    StillMapped {
        /// Where devices reach it.
        iova: Iova,
        /// Length in bytes.
        bytes: u64,
    },
    /// The kernel cannot allocate on a NUMA node.
    #[error("Cannot allocate on NUMA node {node}")]
    NumaNode {
        /// The node asked for.
        node: u32,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The resource belongs to another process: this one was forked from it.
    #[error("The resource belongs to process {owner}, and this is a process forked from it")]
    Forked {
        /// Process id of the owner.
        owner: u32,
    },
}

impl From<BrokenList> for Error {
    fn from(broken: BrokenList) -> Self {
        Error::CapabilityList { offset: broken.offset }
    }
}

/// Result with the bus's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Usable address ranges of a domain, both ends inclusive. Displays as `0x1000-0xffff, …`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IovaRanges(pub Vec<RangeInclusive<u64>>);

impl fmt::Display for IovaRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("(none)");
        }
        for (index, range) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{:#x}-{:#x}", range.start(), range.end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_cross_threads() {
        fn crosses<T: Send + Sync + 'static>() {}
        crosses::<Error>();
    }

    #[test]
    fn a_sentence_does_not_repeat_its_cause() {
        let cause = io::Error::from_raw_os_error(12);
        let error = Error::Memory { what: "DMA memory", bytes: 4096, source: cause };
        let cause = std::error::Error::source(&error).expect("the cause is kept").to_string();
        assert!(!error.to_string().contains(&cause));
        assert!(error.to_string().contains("4096"));
    }
}

//! Errors of the bus.

use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::BrokenList;
use crate::ending::Ending;
use crate::vfio::OpenError;
use crate::{BarIndex, BusKind, InterruptKind, Iova};

/// An error of the bus. Its text does not repeat the cause, which is in [`source`](std::error::Error::source).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The function does not implement the BAR.
    #[error("{bar} is not implemented")]
    NoBar {
        /// The BAR asked for.
        bar: BarIndex,
    },
    /// The function no longer answers (it reads as all-ones), or the bus requested its release. Close the function.
    #[error("The function is gone")]
    Removed {
        /// Why, if the bus knows.
        #[source]
        source: Option<Ending>,
    },
    /// This process uses the function already. One driver at a time may use a card.
    #[error("{name} is in use by this process already: close it before opening it again")]
    InUse {
        /// Selector or bus address that it was opened by.
        name: String,
    },
    /// An access reaches outside of its target.
    #[error("{bytes} bytes at offset {offset:#x} reach outside of the {what} of {len:#x} bytes")]
    OutOfBounds {
        /// Target of the access: "window", "DMA buffer", …
        what: &'static str,
        /// Offset of the access in the target.
        offset: u64,
        /// Length of the access in bytes.
        bytes: u64,
        /// Length of the target in bytes.
        len: u64,
    },
    /// An access is not aligned to its width.
    #[error("Offset {offset:#x} of the {what} is not aligned: expected a multiple of {bytes}, the access width")]
    Misaligned {
        /// Target of the access: "window", "DMA buffer", …
        what: &'static str,
        /// Offset of the access in the target.
        offset: u64,
        /// Width of the access in bytes.
        bytes: u64,
    },
    /// The operating system refuses memory, or has too little.
    #[error("Cannot allocate {bytes} bytes of {what}")]
    Memory {
        /// Purpose: "DMA memory", "shared memory", "registered memory".
        what: &'static str,
        /// Bytes asked for.
        bytes: u64,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A buffer would have zero bytes, or more than the address space; or the entries of a [`Ring`](crate::Ring) are no power
    /// of two.
    #[error("invalid buffer size: {bytes} bytes")]
    BufferSize {
        /// Bytes asked for, or of the ring.
        bytes: u64,
    },
    /// An alignment is not a power of two.
    #[error("invalid alignment of {alignment} bytes: expected a power of two")]
    Alignment {
        /// The alignment asked for, in bytes.
        alignment: u64,
    },
    /// A mapping would fit, but a function of the domain cannot reach it.
    #[error(
        "No room for {bytes:#x} bytes aligned to {alignment:#x} that {function} can reach: it masters only {bits} \
         address bits"
    )]
    DmaMask {
        /// Bytes asked for.
        bytes: u64,
        /// Alignment asked for, in bytes.
        alignment: u64,
        /// Name of the function with the shortest reach.
        function: String,
        /// Address bits that it masters.
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
    /// The domain has its largest number of mappings.
    #[error("The domain already has {limit} mappings, its limit")]
    EntryLimit {
        /// Largest number of mappings.
        limit: usize,
    },
    /// An access to configuration space is not aligned, or reaches outside of its 4096 bytes.
    #[error("Configuration space has no {width}-byte register at {offset:#x}")]
    ConfigAccess {
        /// Offset asked for.
        offset: u16,
        /// Width in bytes.
        width: u16,
    },
    /// The function is not an endpoint, for example a bridge.
    #[error("Not an endpoint: its header type is {header_type:#04x}, expected 0x00")]
    HeaderType {
        /// The header type register without its multi-function bit.
        header_type: u8,
    },
    /// The capability list of configuration space is invalid.
    #[error("The capability list is broken at {offset:#x}")]
    CapabilityList {
        /// Offset of the invalid entry.
        offset: u16,
    },
    /// The function lacks the requested kind of interrupts, or all kinds.
    #[error("The function has no {} interrupts", .kind.map_or("MSI-X, MSI or INTx".to_owned(), |kind| kind.to_string()))]
    NoInterrupts {
        /// The requested kind. `None`: any kind.
        kind: Option<InterruptKind>,
    },
    /// A vector was triggered through the bus and did not arrive.
    #[error("{kind} vector {vector} was triggered and did not arrive within {milliseconds} ms")]
    InterruptLost {
        /// Its kind.
        kind: InterruptKind,
        /// The vector.
        vector: u16,
        /// Time limit of the wait.
        milliseconds: u64,
    },
    /// A function and its domain are on different buses.
    #[error("A function {bus} cannot be opened in a domain of functions {domain}")]
    DomainKind {
        /// Bus of the function.
        bus: BusKind,
        /// Bus of the domain.
        domain: BusKind,
    },
    /// The MSI-X capability is invalid: its table lies outside of the BAR.
    #[error("The MSI-X table of {vectors} vectors at {offset:#x} lies outside of its BAR{bar}")]
    MsixTable {
        /// BAR that the capability names (6 and 7 are reserved).
        bar: u8,
        /// Offset that the capability names, in bytes.
        offset: u64,
        /// Number of vectors.
        vectors: u16,
    },
    /// The number of interrupt vectors is zero, or over that of the function.
    #[error("Cannot enable {asked} interrupt vectors: expected 1 to {available}")]
    VectorCount {
        /// Vectors asked for.
        asked: u16,
        /// Vectors of the function's table.
        available: u16,
    },
    /// An operation on the descriptor of an interrupt failed.
    #[error("Cannot {action} the descriptor of an interrupt")]
    InterruptDescriptor {
        /// The operation: "create", "read" or "wait for".
        action: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A socket cannot be served or connected to.
    #[error("Cannot {action} the socket {}", .path.display())]
    Socket {
        /// The operation: "serve" or "connect to".
        action: &'static str,
        /// Path of the socket.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A server took too long to open a function.
    #[error("The server of {} did not answer in time: the limit for opening is {patience:?}", .path.display())]
    Unresponsive {
        /// Path of the socket.
        path: PathBuf,
        /// Time limit for opening.
        patience: Duration,
    },
    /// Another client uses the function behind a socket.
    #[error("Another client uses the function at {}", .path.display())]
    Busy {
        /// Path of the socket.
        path: PathBuf,
    },
    /// A vfio-user server refused a request.
    #[error("The server refused to {what} the function")]
    Refused {
        /// The request.
        what: &'static str,
        /// What the server said.
        #[source]
        source: io::Error,
    },
    /// A vfio-user server sent an invalid message.
    #[error("The server sent an invalid {what}")]
    Nonsense {
        /// The invalid part of the message.
        what: &'static str,
    },
    /// The layout of an endpoint is invalid for a PCI function.
    #[error("The endpoint has an invalid layout: {reason}")]
    Layout {
        /// What is wrong.
        reason: String,
    },
    /// A function cannot be opened through kernel VFIO.
    #[error(transparent)]
    Vfio(#[from] OpenError),
    /// The kernel's VFIO driver refused an operation on an open function.
    #[error("The kernel cannot {action} the function")]
    Kernel {
        /// The operation.
        action: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The bus would split an access of this width, because the register is not mapped.
    #[error(
        "The kernel would split an access of {bytes} bytes at {offset:#x}, because the register is not mapped: access at most \
         {most} bytes"
    )]
    AccessWidth {
        /// Offset in the BAR, bytes.
        offset: u64,
        /// Width asked for, bytes.
        bytes: u64,
        /// The widest access that is not split, bytes.
        most: u64,
    },
    /// The function cannot be reset, neither alone nor together with all functions of its bus.
    #[error(
        "The function cannot be reset: it has no reset of its own, and this process does not have all functions of its bus \
         open"
    )]
    NoReset,
    /// A register of configuration space does not keep the value that was saved before.
    #[error("{register} in configuration space reads {found:#x}: {value:#x}, which it had before, cannot be restored")]
    NotRestored {
        /// Name of the register.
        register: &'static str,
        /// What it had before.
        value: u32,
        /// What it reads.
        found: u32,
    },
    /// The function cannot be reset, so it was not opened.
    #[error(
        "The function cannot be reset, so work of its previous user may still run: open every function of its bus, or, if its \
         engines are known to be stopped, open it without a reset (selector option +without-reset)"
    )]
    NotReset,
    /// The domain has no function, so what its IOMMU can map is unknown.
    #[error("The domain has no function, so what its IOMMU can map is unknown: open a function first")]
    EmptyDomain,
    /// No IOMMU translates for the functions of the domain, so no host memory can be mapped.
    #[error("No IOMMU translates for the functions of the domain, so no host memory can be mapped")]
    NotTranslated,
    /// The limit on pinned memory is too low.
    #[error(
        "Cannot pin {bytes} bytes for DMA: {locked} are pinned or locked of {} that RLIMIT_MEMLOCK allows; raise it with \
         `ulimit -l`, LimitMEMLOCK= of the systemd unit, or memlock in /etc/security/limits.conf and a new login",
        .limit.map_or("any number".to_owned(), |limit| limit.to_string())
    )]
    Memlock {
        /// Bytes asked for.
        bytes: u64,
        /// Bytes that are pinned or locked already.
        locked: u64,
        /// The limit in bytes. `None`: no limit.
        limit: Option<u64>,
        /// What the kernel said. `None`: the limit was checked before.
        #[source]
        source: Option<io::Error>,
    },
    /// The kernel or a server refused a mapping, for example because it overlaps another.
    #[error("Cannot map {bytes:#x} bytes at IOVA {iova}")]
    DmaMap {
        /// Address of the mapping.
        iova: Iova,
        /// Bytes of the mapping.
        bytes: u64,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The kernel or a server refused to unmap memory.
    #[error("Cannot unmap {bytes:#x} bytes at IOVA {iova}")]
    DmaUnmap {
        /// Address of the mapping.
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
    /// The resource belongs to the process that this process was forked from.
    #[error("The resource belongs to process {owner}, which forked this process")]
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

/// Usable address ranges of a domain, ends inclusive. Displays as `0x1000-0xffff, …`.
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

//! Registered memory: memory that the caller owns, mapped for DMA.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use memmap2::MmapMut;

use super::direction::Direction;
use super::domain::Domain;
use super::iova::Iova;
use super::region::Region;
use super::shared::SharedMemory;
use crate::{Error, Result};

/// Sizes of large IOMMU pages. An IOMMU can use them only where memory and IOVA are aligned to them.
const LARGE_PAGES: [usize; 2] = [1 << 30, 2 << 20];

/// Memory that can be registered for DMA.
///
/// # Safety
/// From the first call of a method until the value is dropped, even if the value is moved:
/// - `start` and `len` return the same range, and `memory_file` returns the same file;
/// - if `check` succeeds, the range is valid for reads and writes of this process, and stays in place;
/// - nothing accesses the range through references, because devices write it at any time.
///
/// A memory file has the bytes of the range at its beginning, and does not shrink.
pub unsafe trait HostMemory: Send + Sync + 'static {
    /// Returns the address of the first byte.
    fn start(&mut self) -> *mut u8;

    /// Returns the length in bytes.
    fn len(&self) -> usize;

    /// Returns whether the length is zero.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fails in a process that does not have the memory, such as a forked child. Called before the other methods.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the memory file whose first bytes are the range. vfio-user servers need it.
    fn memory_file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

// SAFETY: a mapping stays in place until it is dropped. It is readable and writable, and all references into it borrow the
// `MmapMut`, which `Registered` owns and never lends.
unsafe impl HostMemory for MmapMut {
    fn start(&mut self) -> *mut u8 {
        self.as_mut_ptr()
    }

    fn len(&self) -> usize {
        self[..].len()
    }
}

// SAFETY: a region stays in place until its last handle is dropped, in the process that `check` lets pass. `SharedMemory` copies,
// without references. Its file is sealed against shrinking.
unsafe impl HostMemory for Arc<SharedMemory> {
    fn start(&mut self) -> *mut u8 {
        self.region().base()
    }

    fn len(&self) -> usize {
        self.region().len()
    }

    fn check(&self) -> Result<()> {
        self.region().owner().check()
    }

    fn memory_file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

/// Memory that the caller keeps in place: for memory of other languages and libraries.
#[derive(Debug)]
pub struct RawMemory {
    start: *mut u8,
    len: usize,
}

impl RawMemory {
    /// Describes `len` bytes at `start`.
    ///
    /// # Safety
    /// Until the value is dropped, or for ever if [`Registered::unregister`] fails:
    /// - the range is valid for reads and writes from any thread, and stays in place;
    /// - nothing accesses the range through references: devices and [`Registered::write`] change it at any time.
    pub unsafe fn new(start: *mut u8, len: usize) -> Self {
        RawMemory { start, len }
    }
}

// SAFETY: the caller of `RawMemory::new` vouches for accesses from any thread.
unsafe impl Send for RawMemory {}
// SAFETY: as for `Send`: a shared value gives out nothing but the address.
unsafe impl Sync for RawMemory {}

// SAFETY: the caller of `RawMemory::new` vouches for the range until the value is dropped. The fields never change.
unsafe impl HostMemory for RawMemory {
    fn start(&mut self) -> *mut u8 {
        self.start
    }

    fn len(&self) -> usize {
        self.len
    }
}

/// Memory that was not registered, and the reason. Converts to [`Error`], which drops the memory.
#[derive(Debug)]
pub struct NotRegistered<M> {
    /// The memory, unchanged.
    pub memory: M,
    /// The reason.
    pub error: Error,
}

impl<M> fmt::Display for NotRegistered<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<M: fmt::Debug> std::error::Error for NotRegistered<M> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl<M> From<NotRegistered<M>> for Error {
    fn from(refused: NotRegistered<M>) -> Self {
        refused.error
    }
}

/// Memory of the caller, mapped for the devices of a domain until it is dropped. Access is by copy, never by reference.
///
/// Dropping it unmaps the memory first, and then drops the memory. If the kernel refuses to unmap it, the memory is leaked,
/// because devices may still reach it. A forked child gets [`Error::Forked`].
#[derive(Debug)]
pub struct Registered<M: HostMemory> {
    // Dropped only after devices can no longer reach it. `None` once it was returned or leaked.
    memory: Option<M>,
    region: Arc<Region>,
    iova: Iova,
    direction: Direction,
    domain: Domain,
}

impl Domain {
    /// Registers memory of the caller for DMA, without a copy. Devices reach it in `direction` only.
    ///
    /// Start and length must be multiples of the page size (of the IOMMU's, where that is larger). All pages are made present.
    /// The memory takes one of the domain's entries, and on kernel VFIO it is pinned and counts against `RLIMIT_MEMLOCK`.
    ///
    /// ```
    /// use fpga_hal::memory::MmapMut;
    /// use fpga_hal::{Direction, Domain};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut weights = MmapMut::map_anon(1 << 20)?;
    /// weights[..7].copy_from_slice(b"weights");
    /// let domain = Domain::in_process();
    /// let registered = domain.register(weights, Direction::ToDevice)?;
    /// println!("devices read it at {}", registered.iova());
    /// let weights: MmapMut = registered.unregister()?;
    /// assert_eq!(&weights[..7], b"weights");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`NotRegistered`] returns the memory with the reason:
    /// - [`Error::RegisteredRange`]: start or length is not a multiple of the page size, or the length is zero.
    /// - [`Error::NotShareable`]: a domain of vfio-user servers needs a memory file. Register an `Arc<SharedMemory>`.
    /// - Those of [`allocate`](Self::allocate).
    pub fn register<M: HostMemory>(
        &self,
        mut memory: M,
        direction: Direction,
    ) -> std::result::Result<Registered<M>, NotRegistered<M>> {
        match self.try_register(&mut memory, direction) {
            Ok((region, iova)) => {
                Ok(Registered { memory: Some(memory), region, iova, direction, domain: self.clone() })
            }
            Err(error) => Err(NotRegistered { memory, error }),
        }
    }

    fn try_register(&self, memory: &mut impl HostMemory, direction: Direction) -> Result<(Arc<Region>, Iova)> {
        memory.check()?;
        let granule = self.granule()?;
        let (len, start) = (memory.len(), memory.start());
        if len == 0 || !(start.addr() as u64).is_multiple_of(granule) || !(len as u64).is_multiple_of(granule) {
            return Err(Error::RegisteredRange { start: start.addr() as u64, bytes: len as u64, granule });
        }
        let failed = |source| Error::Memory { what: "registered memory", bytes: len as u64, source };
        let file = memory.memory_file().map(|file| file.try_clone_to_owned()).transpose().map_err(failed)?;
        if file.is_none() && self.shares_memory() {
            return Err(Error::NotShareable { bytes: len as u64 });
        }
        let room = self.check_room(len as u64, 1)?;
        // SAFETY: `HostMemory` keeps the range valid and in place. `Registered` owns the memory, and drops it only after
        // `Domain::release` unmapped the region.
        let region = Arc::new(unsafe { Region::over("registered memory", start, len, file) });
        // A device that only reads would otherwise get the shared page of zeros, and miss what is written later.
        region.populate().map_err(failed)?;
        let large = LARGE_PAGES.into_iter().find(|page| len >= *page && start.addr().is_multiple_of(*page));
        let iova = self.map(&region, &room, large.unwrap_or(1) as u64, direction)?;
        Ok((region, iova))
    }
}

impl<M: HostMemory> Registered<M> {
    /// Returns the address that devices use.
    pub fn iova(&self) -> Iova {
        self.iova
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// Returns `false`: registered memory has at least one page.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns what devices may do with the memory.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Returns the domain of the memory.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// Copies bytes out. Fails outside of the memory.
    pub fn read(&self, offset: usize, data: &mut [u8]) -> Result<()> {
        self.region.read(self.len(), offset, data)
    }

    /// Copies bytes in. The last aligned eight bytes are stored last, with release order. Fails outside of the memory.
    pub fn write(&self, offset: usize, data: &[u8]) -> Result<()> {
        self.region.write(self.len(), offset, data)
    }

    /// Unmaps the memory, and returns it. Devices no longer reach it.
    ///
    /// # Errors
    /// - [`Error::Forked`]: the memory belongs to the parent process.
    /// - [`Error::StillMapped`]: the kernel refused. Devices may still reach the memory, so it is leaked.
    pub fn unregister(mut self) -> Result<M> {
        self.region.owner().check()?;
        let (iova, bytes) = (self.iova, self.len() as u64);
        self.unmap().ok_or(Error::StillMapped { iova, bytes })
    }

    /// Takes the memory out after devices can no longer reach it. Otherwise leaks it.
    fn unmap(&mut self) -> Option<M> {
        let memory = self.memory.take()?;
        // A forked child must not unmap memory: other memory may lie at its address.
        if self.region.owner().is_here() && self.domain.release(self.iova, &self.region) {
            return Some(memory);
        }
        std::mem::forget(memory);
        None
    }
}

impl<M: HostMemory> Drop for Registered<M> {
    fn drop(&mut self) {
        drop(self.unmap());
    }
}

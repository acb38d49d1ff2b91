//! The bus inside this process: an adapter for any endpoint.
//!
//! DMA completes at once, through the domain's own IOMMU. DMA and MSI-X need bus mastering in the command register. A vector
//! raises an eventfd, as it would from the kernel.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use nix::sys::eventfd::EventFd;

use crate::bus::{Bus, Piece};
use crate::endpoint::intx::{Intx, raise};
use crate::endpoint::msix::Msix;
use crate::endpoint::{
    BarLayout, DmaFault, DmaPort, DmaProgress, DmaTag, Endpoint, InterruptPort, Layout, ResetKind, has_intx,
    is_bus_master,
};
use crate::memory::backend::{DomainBackend, Mapping, NotMapped};
use crate::memory::domain::{DEFAULT_ENTRY_LIMIT, DEFAULT_RANGES};
use crate::memory::table::{FunctionIommu, InProcessIommu};
use crate::owner::Owner;
use crate::removal::Removal;
use crate::{BarIndex, BusKind, Domain, Error, Function, Interrupt, InterruptKind, Iova, ResetOutcome, Result};

impl DomainBackend for InProcessIommu {
    fn kind(&self) -> BusKind {
        BusKind::InProcess
    }

    /// Its devices access memory as the process does.
    fn needs_pages(&self) -> bool {
        false
    }

    fn map(&self, mapping: Mapping, _entry_limit: usize) -> std::result::Result<(), NotMapped> {
        InProcessIommu::map(self, mapping);
        Ok(())
    }

    fn unmap(&self, iova: Iova, _bytes: u64) -> Result<()> {
        InProcessIommu::unmap(self, iova);
        Ok(())
    }
}

impl Domain {
    /// Creates a domain whose IOMMU is a table in this process, with [`DEFAULT_RANGES`] and [`DEFAULT_ENTRY_LIMIT`].
    pub fn in_process() -> Self {
        Self::in_process_with(&DEFAULT_RANGES, DEFAULT_ENTRY_LIMIT)
    }

    /// Creates a domain whose IOMMU is a table in this process. It maps addresses of `ranges` (ends inclusive), and at most
    /// `entry_limit` buffers at a time.
    pub fn in_process_with(ranges: &[RangeInclusive<u64>], entry_limit: usize) -> Self {
        Self::with_backend(Arc::<InProcessIommu>::default(), ranges, entry_limit)
    }
}

/// Opens `endpoint` as a function of `domain` named `name`: connects its ports, resets it, reads its identity, and enables
/// memory decoding. Bus mastering is off, as the kernel leaves it.
///
/// # Errors
/// - [`Error::InUse`]: another function has the endpoint.
/// - [`Error::Layout`]: the endpoint's layout is invalid.
/// - [`Error::Removed`]: the endpoint reads as all-ones.
/// - [`Error::HeaderType`]: the header is not that of an endpoint.
pub fn attach(endpoint: Arc<dyn Endpoint>, domain: &Domain, name: &str) -> Result<Function> {
    let layout = endpoint.layout();
    check_layout(&layout)?;
    let table = domain
        .backend::<InProcessIommu>()
        .ok_or(Error::DomainKind { bus: BusKind::InProcess, domain: domain.kind() })?;
    let attached = Attached::new(&endpoint, name)?;
    let link = Arc::new(Link::default());
    let attachment = domain.attach(name, layout.dma_bits);
    let iommu = FunctionIommu { table, member: attachment.member() };
    let port = Port { iommu, link: Arc::clone(&link), highest: u64::MAX >> (64 - layout.dma_bits) };
    endpoint.attach(Arc::new(port), Arc::clone(&link) as Arc<dyn InterruptPort>);
    let bus = InProcess { attached, endpoint, layout, link, removal: Arc::default() };
    Function::open(Box::new(bus), attachment, name, false)
}

pub(crate) fn check_layout(layout: &Layout) -> Result<()> {
    let wrong = |reason: String| Err(Error::Layout { reason });
    if !(1..=64).contains(&layout.dma_bits) {
        return wrong(format!("{} DMA address bits: expected 1 to 64", layout.dma_bits));
    }
    for (index, bar) in layout.bars.iter().enumerate() {
        let Some(bar) = bar else { continue };
        if bar.bytes < 16 || !bar.bytes.is_power_of_two() {
            return wrong(format!("BAR{index} has {} bytes: expected a power of two of at least 16", bar.bytes));
        }
        if !bar.is_64_bit && bar.bytes > 1 << 31 {
            return wrong(format!("32-bit BAR{index} has {:#x} bytes: expected at most 0x80000000", bar.bytes));
        }
        if bar.is_64_bit && !matches!(layout.bars.get(index + 1), Some(None)) {
            return wrong(format!("64-bit BAR{index} needs the next register too, which another BAR uses"));
        }
    }
    Ok(())
}

/// The host side of an endpoint.
struct InProcess {
    // Dropped first: after the endpoint is freed, another may have its address.
    attached: Attached,
    endpoint: Arc<dyn Endpoint>,
    layout: Layout,
    link: Arc<Link>,
    removal: Arc<Removal>,
}

/// Addresses of the endpoints that functions of this process use.
static ATTACHED: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// The exclusive use of an endpoint. The endpoint must outlive it.
struct Attached {
    address: usize,
    owner: Owner,
}

impl Attached {
    fn new(endpoint: &Arc<dyn Endpoint>, name: &str) -> Result<Self> {
        let address = Arc::as_ptr(endpoint).cast::<()>().addr();
        let is_free = ATTACHED.lock().unwrap_or_else(PoisonError::into_inner).insert(address);
        let owner = Owner::current();
        if is_free { Ok(Attached { address, owner }) } else { Err(Error::InUse { name: name.to_owned() }) }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // In a forked child the lock may be held by a thread that it did not inherit.
        if self.owner.is_here() {
            ATTACHED.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.address);
        }
    }
}

impl Bus for InProcess {
    fn kind(&self) -> BusKind {
        BusKind::InProcess
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) -> Result<()> {
        self.endpoint.config_read(offset, data);
        Ok(())
    }

    fn config_write(&self, offset: u16, data: &[u8]) -> Result<()> {
        self.endpoint.config_write(offset, data);
        // Any write may clear the bit, such as one that resets the function.
        self.note_bus_master();
        Ok(())
    }

    fn bar(&self, bar: BarIndex) -> Option<BarLayout> {
        self.layout.bars[bar.index()]
    }

    fn bar_pieces(&self, bar: BarIndex) -> Result<Vec<Piece>> {
        let Some(memory) = self.endpoint.bar_memory(bar) else { return Ok(Vec::new()) };
        let bytes = self.bar(bar).map_or(0, |layout| layout.bytes);
        if memory.len() != bytes {
            let reason = format!("{bar} has {bytes} bytes, its memory {}", memory.len());
            return Err(Error::Layout { reason });
        }
        let (start, owner) = (memory.region().base(), memory.region().owner());
        // SAFETY: `memory` is page-aligned and `bytes` long (checked above), its size is sealed, and `SharedMemory` never
        // creates references into it. The piece keeps it alive.
        Ok(vec![unsafe { Piece::new(0, bytes, start, owner, memory) }])
    }

    #[inline]
    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) -> Result<()> {
        // The child's copy of the endpoint may be locked for ever, by a thread that it did not inherit.
        self.attached.owner.check()?;
        self.endpoint.bar_read(bar, offset, data);
        Ok(())
    }

    #[inline]
    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) -> Result<()> {
        self.attached.owner.check()?;
        self.endpoint.bar_write(bar, offset, data);
        Ok(())
    }

    fn vectors(&self, kind: InterruptKind) -> Result<u16> {
        Ok(match kind {
            InterruptKind::Msix => self.msix()?.map_or(0, |msix| msix.vectors()),
            // Endpoints have no port for MSI.
            InterruptKind::Msi => 0,
            InterruptKind::Intx => has_intx(&*self.endpoint).into(),
        })
    }

    fn enable_interrupts(&self, kind: InterruptKind, interrupts: &[Interrupt]) -> Result<()> {
        let counters: Vec<_> = interrupts.iter().map(Interrupt::counter).collect();
        match kind {
            InterruptKind::Msix => {
                let msix = self.msix()?.ok_or(Error::NoInterrupts { kind: Some(kind) })?;
                *self.link.vectors.write().unwrap_or_else(PoisonError::into_inner) = counters;
                msix.enable(&*self.endpoint, |vector| usize::from(vector) < interrupts.len())
            }
            InterruptKind::Msi => Err(Error::NoInterrupts { kind: Some(kind) }),
            InterruptKind::Intx => {
                self.link.intx.connect(counters.into_iter().next(), |counter| raise(counter));
                Ok(())
            }
        }
    }

    fn disable_interrupts(&self, kind: InterruptKind) -> Result<()> {
        if kind == InterruptKind::Msix
            && let Some(msix) = self.msix()?
        {
            msix.disable(&*self.endpoint);
        }
        self.disconnect();
        Ok(())
    }

    fn trigger(&self, kind: InterruptKind, vector: u16) -> Result<()> {
        match kind {
            InterruptKind::Intx => self.link.intx.trigger(|counter| raise(counter)),
            _ => self.link.signal(vector),
        }
        Ok(())
    }

    fn unmask_intx(&self) -> Result<()> {
        self.link.intx.unmask(|counter| raise(counter));
        Ok(())
    }

    fn can_reset(&self) -> ResetOutcome {
        ResetOutcome::Function
    }

    fn reset(&self) -> Result<ResetOutcome> {
        self.disconnect();
        self.endpoint.reset(ResetKind::Function);
        self.link.master.store(false, Ordering::Release);
        Ok(ResetOutcome::Function)
    }

    fn close(&self) {
        self.link.closed.store(true, Ordering::Release);
    }

    fn removal(&self) -> &Arc<Removal> {
        &self.removal
    }
}

impl InProcess {
    fn msix(&self) -> Result<Option<Msix>> {
        Msix::find(&*self.endpoint)
    }

    /// Disconnects all descriptors.
    fn disconnect(&self) {
        self.link.vectors.write().unwrap_or_else(PoisonError::into_inner).clear();
        self.link.intx.connect(None, |counter| raise(counter));
    }

    /// Notes whether the function is bus master now.
    fn note_bus_master(&self) {
        self.link.master.store(is_bus_master(&*self.endpoint), Ordering::Release);
    }
}

/// State that both sides share. It must not hold the function: the endpoint holds the link, and the function holds the
/// endpoint.
#[derive(Debug, Default)]
struct Link {
    master: AtomicBool,
    closed: AtomicBool,
    vectors: RwLock<Vec<Arc<EventFd>>>,
    intx: Intx,
}

impl Link {
    #[inline]
    fn check(&self) -> std::result::Result<(), DmaFault> {
        if self.closed.load(Ordering::Acquire) {
            Err(DmaFault::HostGone)
        } else if !self.master.load(Ordering::Acquire) {
            Err(DmaFault::NotMaster)
        } else {
            Ok(())
        }
    }

    fn signal(&self, vector: u16) {
        let vectors = self.vectors.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(counter) = vectors.get(usize::from(vector)) {
            raise(counter);
        }
    }
}

impl InterruptPort for Link {
    fn raise(&self, vector: u16) {
        if self.check().is_ok() {
            self.signal(vector);
        }
    }

    // INTx is not a memory write, so it does not need bus mastering.
    fn set_intx(&self, asserted: bool) {
        self.intx.set_asserted(asserted, |counter| raise(counter));
    }
}

/// Access of the endpoint to host memory.
#[derive(Debug)]
struct Port {
    iommu: FunctionIommu,
    link: Arc<Link>,
    /// Last address that the endpoint can send.
    highest: u64,
}

impl Port {
    #[inline]
    fn check(&self, iova: Iova, bytes: usize) -> std::result::Result<(), DmaFault> {
        self.link.check()?;
        if bytes > 0 && (iova.0 > self.highest || bytes as u64 - 1 > self.highest - iova.0) {
            // Buffers are placed below, so the endpoint made up the address.
            return Err(self.fault_beyond(iova));
        }
        Ok(())
    }

    /// Returns the fault of a request that reaches beyond `highest`.
    #[cold]
    fn fault_beyond(&self, iova: Iova) -> DmaFault {
        let Some(more) = self.highest.checked_sub(iova.0) else { return DmaFault::Unmapped { iova } };
        let edge = DmaFault::Unmapped { iova: Iova(self.highest.wrapping_add(1)) };
        // An address below the edge may be unmapped too, and comes first.
        more.checked_add(1).map_or(edge, |below| self.iommu.check(iova, below).err().unwrap_or(edge))
    }
}

impl DmaPort for Port {
    fn read(&self, _tag: DmaTag, iova: Iova, data: &mut [u8]) -> DmaProgress {
        DmaProgress::Done(self.check(iova, data.len()).and_then(|()| self.iommu.read(iova, data)))
    }

    fn write(&self, _tag: DmaTag, iova: Iova, data: &[u8]) -> DmaProgress {
        DmaProgress::Done(self.check(iova, data.len()).and_then(|()| self.iommu.write(iova, data)))
    }
}

//! The bus inside this process: an adapter over any endpoint.
//!
//! DMA completes at once, through the domain's own IOMMU, and only while the command register says that the function is
//! bus master; interrupts, memory writes themselves, likewise. A vector goes to an eventfd, as it would from the kernel.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use nix::sys::eventfd::EventFd;

use crate::bus::{Bus, BusKind, Piece, ResetOutcome};
use crate::config;
use crate::endpoint::{BarLayout, DmaFault, DmaPort, DmaProgress, DmaTag, Endpoint, InterruptPort, Layout, ResetKind};
use crate::interrupt::InterruptKind;
use crate::intx::{Intx, raise};
use crate::iommu::InProcessIommu;
use crate::msix::Msix;
use crate::owner::Owner;
use crate::removal::Removal;
use crate::{BarIndex, Domain, Error, Function, Interrupt, Iova, Result};

/// Opens `endpoint` as a function of `domain` named `name`: connects its ports, resets it, reads its identity, and turns
/// on memory decoding. Bus mastering is off, as the kernel leaves it.
///
/// One function at a time has an endpoint: a second one is refused with [`Error::InUse`] until the first is closed. Fails if
/// the endpoint's layout is impossible, if it reads as all-ones ([`Error::Removed`]), or if it is no endpoint ([`Error::HeaderType`]).
pub fn attach(endpoint: Arc<dyn Endpoint>, domain: &Domain, name: &str) -> Result<Function> {
    let layout = endpoint.layout();
    check_layout(&layout)?;
    let iommu =
        domain.in_process_iommu().ok_or(Error::DomainKind { bus: BusKind::InProcess, domain: domain.kind() })?;
    let attached = Attached::new(&endpoint, name)?;
    let link = Arc::new(Link::default());
    let port = Port { iommu, link: Arc::clone(&link), highest: u64::MAX >> (64 - layout.dma_bits) };
    endpoint.attach(Arc::new(port), Arc::clone(&link) as Arc<dyn InterruptPort>);
    let attachment = domain.attach(name, layout.dma_bits);
    let bus = InProcess { _attached: attached, endpoint, layout, link, removal: Arc::default() };
    Function::open(Box::new(bus), attachment, name, false)
}

pub(crate) fn check_layout(layout: &Layout) -> Result<()> {
    let wrong = |reason: String| Err(Error::Layout { reason });
    if !(1..=64).contains(&layout.dma_bits) {
        return wrong(format!("it cannot master {} address bits", layout.dma_bits));
    }
    for (index, bar) in layout.bars.iter().enumerate() {
        let Some(bar) = bar else { continue };
        if bar.bytes < 16 || !bar.bytes.is_power_of_two() {
            return wrong(format!("BAR{index} has {} bytes, not a power of two of at least 16", bar.bytes));
        }
        if !bar.is_64_bit && bar.bytes > 1 << 31 {
            return wrong(format!("BAR{index} has {:#x} bytes but is not a 64-bit one", bar.bytes));
        }
        if bar.is_64_bit && !matches!(layout.bars.get(index + 1), Some(None)) {
            return wrong(format!("BAR{index} is a 64-bit one, but the register after it is not free"));
        }
    }
    Ok(())
}

/// The host's end.
struct InProcess {
    // Dropped first: the endpoint's address may be another's once it is gone.
    _attached: Attached,
    endpoint: Arc<dyn Endpoint>,
    layout: Layout,
    link: Arc<Link>,
    removal: Arc<Removal>,
}

/// Endpoints that functions of this process have, by address.
static ATTACHED: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// The right to an endpoint, which lives longer.
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
        // In a forked child a thread that is not there may hold the lock.
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
        let command = config::COMMAND..config::COMMAND + 2;
        if command.contains(&offset) || command.contains(&(offset + (data.len() as u16 - 1))) {
            self.note_bus_master();
        }
        Ok(())
    }

    fn bar(&self, bar: BarIndex) -> Option<BarLayout> {
        self.layout.bars[bar.index()]
    }

    fn bar_pieces(&self, bar: BarIndex) -> Result<Vec<Piece>> {
        let Some(memory) = self.endpoint.bar_memory(bar) else { return Ok(Vec::new()) };
        let bytes = self.bar(bar).map_or(0, |layout| layout.bytes);
        if memory.len() != bytes {
            let reason = format!("{bar} has {bytes} bytes, but the memory behind it {}", memory.len());
            return Err(Error::Layout { reason });
        }
        let (start, owner) = (memory.region().base(), memory.region().owner());
        // SAFETY: `SharedMemory` is page-aligned, as long as was just checked, lends no reference, and its size is sealed.
        Ok(vec![unsafe { Piece::new(0, bytes, start, owner, memory) }])
    }

    #[inline]
    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) -> Result<()> {
        self.endpoint.bar_read(bar, offset, data);
        Ok(())
    }

    #[inline]
    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) -> Result<()> {
        self.endpoint.bar_write(bar, offset, data);
        Ok(())
    }

    fn vectors(&self, kind: InterruptKind) -> Result<u16> {
        Ok(match kind {
            InterruptKind::Msix => self.msix()?.map_or(0, |msix| msix.vectors()),
            // Endpoints have no port for it.
            InterruptKind::Msi => 0,
            InterruptKind::Intx => {
                let mut pin = [0];
                self.endpoint.config_read(config::INTERRUPT_PIN, &mut pin);
                u16::from((1..=4).contains(&pin[0]))
            }
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
        self.note_bus_master();
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

    /// Descriptors given before are not raised any more.
    fn disconnect(&self) {
        self.link.vectors.write().unwrap_or_else(PoisonError::into_inner).clear();
        self.link.intx.connect(None, |counter| raise(counter));
    }

    /// The endpoint decides what its command register takes, so it is asked.
    fn note_bus_master(&self) {
        let mut command = [0; 2];
        self.endpoint.config_read(config::COMMAND, &mut command);
        // All-ones are not a register: a function that is gone masters nothing.
        let command = u16::from_le_bytes(command);
        let master = command != u16::MAX && command & config::COMMAND_MASTER != 0;
        self.link.master.store(master, Ordering::Release);
    }
}

/// What both ends know. It does not hold the function: the endpoint holds it, and the function the endpoint.
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
}

impl Link {
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

    // A line is no memory write: it does not need bus mastering.
    fn set_intx(&self, asserted: bool) {
        self.intx.set_asserted(asserted, |counter| raise(counter));
    }
}

/// The endpoint's way to host memory.
#[derive(Debug)]
struct Port {
    iommu: Arc<InProcessIommu>,
    link: Arc<Link>,
    /// Last address the endpoint can put on the bus.
    highest: u64,
}

impl Port {
    #[inline]
    fn check(&self, iova: Iova, bytes: usize) -> std::result::Result<(), DmaFault> {
        self.link.check()?;
        if bytes > 0 && (iova.0 > self.highest || bytes as u64 - 1 > self.highest - iova.0) {
            // Buffers are placed below, so this is the endpoint's own doing.
            return Err(self.fault_beyond(iova));
        }
        Ok(())
    }

    /// The fault of a request that reaches beyond `highest`.
    #[cold]
    fn fault_beyond(&self, iova: Iova) -> DmaFault {
        let Some(more) = self.highest.checked_sub(iova.0) else { return DmaFault::Unmapped { iova } };
        let edge = DmaFault::Unmapped { iova: Iova(self.highest.wrapping_add(1)) };
        // Up to the edge the range may not be mapped either.
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

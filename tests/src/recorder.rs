//! An endpoint that only records: what a driver does to a card, without what the card does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fpga_hal::endpoint::{DmaFault, DmaPort, DmaTag, Endpoint, InterruptPort, Layout, ResetKind};
use fpga_hal::{BarIndex, Iova};

/// A card whose accesses are passed on, or only counted while [`Recorder::hold`] is in force. The last doorbell held back
/// is rung by [`Recorder::release`], so that what was submitted completes.
pub struct Recorder {
    card: Arc<dyn Endpoint>,
    is_holding: AtomicBool,
    reads: AtomicU64,
    writes: AtomicU64,
    /// Offset and value of the last register write held back.
    last: AtomicU64,
}

/// MMIO accesses counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accesses {
    /// Register reads.
    pub reads: u64,
    /// Register writes.
    pub writes: u64,
}

impl Recorder {
    /// Records what reaches `card`.
    pub fn new(card: Arc<dyn Endpoint>) -> Arc<Self> {
        let zero = || AtomicU64::new(0);
        Arc::new(Recorder { card, is_holding: AtomicBool::new(false), reads: zero(), writes: zero(), last: zero() })
    }

    /// From now on accesses are counted and go no further.
    pub fn hold(&self) {
        self.is_holding.store(true, Ordering::Relaxed);
    }

    /// Passes accesses on again, and the last write that was held back.
    pub fn release(&self) {
        self.is_holding.store(false, Ordering::Relaxed);
        let last = self.last.swap(0, Ordering::Relaxed);
        if let Some(bar) = BarIndex::new(0).filter(|_| last != 0) {
            self.card.bar_write(bar, last >> 32, &(last as u32).to_le_bytes());
        }
    }

    /// What was counted since it was last asked.
    pub fn take(&self) -> Accesses {
        Accesses { reads: self.reads.swap(0, Ordering::Relaxed), writes: self.writes.swap(0, Ordering::Relaxed) }
    }
}

impl Endpoint for Recorder {
    fn layout(&self) -> Layout {
        self.card.layout()
    }

    fn attach(&self, dma: Arc<dyn DmaPort>, interrupts: Arc<dyn InterruptPort>) {
        self.card.attach(dma, interrupts);
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) {
        self.card.config_read(offset, data);
    }

    fn config_write(&self, offset: u16, data: &[u8]) {
        self.card.config_write(offset, data);
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.card.bar_read(bar, offset, data);
    }

    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        if !self.is_holding.load(Ordering::Relaxed) {
            return self.card.bar_write(bar, offset, data);
        }
        if let Ok(value) = data.try_into() {
            self.last.store(offset << 32 | u64::from(u32::from_le_bytes(value)), Ordering::Relaxed);
        }
    }

    fn reset(&self, kind: ResetKind) {
        self.card.reset(kind);
    }

    fn dma_complete(&self, tag: DmaTag, result: Result<&[u8], DmaFault>) {
        self.card.dma_complete(tag, result);
    }
}

/// A DMA port that answers later: each request waits until [`LatePort::answer_one`] makes it.
///
/// What a bus does whose DMA is a message, for models that must not notice the difference.
pub struct LatePort {
    inner: Arc<dyn DmaPort>,
    waiting: std::sync::Mutex<std::collections::VecDeque<Request>>,
}

enum Request {
    Read { tag: DmaTag, iova: Iova, bytes: usize },
    Write { tag: DmaTag, iova: Iova, data: Vec<u8> },
}

impl LatePort {
    /// Delays what goes through `inner`.
    pub fn new(inner: Arc<dyn DmaPort>) -> Arc<Self> {
        Arc::new(LatePort { inner, waiting: Default::default() })
    }

    /// Makes the oldest request and completes it at `card`; false if none waits.
    pub fn answer_one(&self, card: &dyn Endpoint) -> bool {
        use fpga_hal::endpoint::DmaProgress::{Done, Pending};
        let request = self.waiting.lock().ok().and_then(|mut waiting| waiting.pop_front());
        let Some(request) = request else { return false };
        let (tag, mut data, progress);
        match request {
            Request::Read { tag: its, iova, bytes } => {
                (tag, data) = (its, vec![0; bytes]);
                progress = self.inner.read(tag, iova, &mut data);
            }
            Request::Write { tag: its, iova, data: written } => {
                (tag, data) = (its, Vec::new());
                progress = self.inner.write(tag, iova, &written);
            }
        }
        match progress {
            Done(Ok(())) => card.dma_complete(tag, Ok(&data)),
            Done(Err(fault)) => card.dma_complete(tag, Err(fault)),
            Pending => {}
        }
        true
    }

    fn wait(&self, request: Request) -> fpga_hal::endpoint::DmaProgress {
        if let Ok(mut waiting) = self.waiting.lock() {
            waiting.push_back(request);
        }
        fpga_hal::endpoint::DmaProgress::Pending
    }
}

impl DmaPort for LatePort {
    fn read(&self, tag: DmaTag, iova: Iova, data: &mut [u8]) -> fpga_hal::endpoint::DmaProgress {
        self.wait(Request::Read { tag, iova, bytes: data.len() })
    }

    fn write(&self, tag: DmaTag, iova: Iova, data: &[u8]) -> fpga_hal::endpoint::DmaProgress {
        self.wait(Request::Write { tag, iova, data: data.to_vec() })
    }
}

/// An endpoint whose DMA is late: it wraps a card and answers its requests one by one after each register write.
pub struct LateCard {
    card: Arc<dyn Endpoint>,
    port: std::sync::OnceLock<Arc<LatePort>>,
}

impl LateCard {
    /// Makes the DMA of `card` late.
    pub fn new(card: Arc<dyn Endpoint>) -> Arc<Self> {
        Arc::new(LateCard { card, port: std::sync::OnceLock::new() })
    }

    /// Answers one request of this card; false if none waits.
    pub fn answer_one(&self) -> bool {
        self.port.get().is_some_and(|port| port.answer_one(&*self.card))
    }
}

impl Endpoint for LateCard {
    fn layout(&self) -> Layout {
        self.card.layout()
    }

    fn attach(&self, dma: Arc<dyn DmaPort>, interrupts: Arc<dyn InterruptPort>) {
        let port = self.port.get_or_init(|| LatePort::new(dma));
        self.card.attach(Arc::clone(port) as Arc<dyn DmaPort>, interrupts);
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) {
        self.card.config_read(offset, data);
    }

    fn config_write(&self, offset: u16, data: &[u8]) {
        self.card.config_write(offset, data);
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        self.card.bar_read(bar, offset, data);
    }

    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) {
        self.card.bar_write(bar, offset, data);
    }

    fn reset(&self, kind: ResetKind) {
        self.card.reset(kind);
    }

    fn dma_complete(&self, tag: DmaTag, result: Result<&[u8], DmaFault>) {
        self.card.dma_complete(tag, result);
    }
}

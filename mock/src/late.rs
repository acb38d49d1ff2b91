//! Host memory that answers late: what a bus does whose DMA takes its time, for models and drivers that must not notice.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use fpga_hal::endpoint::{DmaFault, DmaPort, DmaProgress, DmaTag, Endpoint, InterruptPort, Layout, ResetKind};
use fpga_hal::{BarIndex, Iova, SharedMemory};

/// A card whose DMA requests complete later, each after a time drawn at random, in the order they were made.
pub struct LateDma {
    card: Arc<dyn Endpoint>,
    seed: u64,
    longest: Duration,
    port: OnceLock<Arc<Port>>,
}

impl LateDma {
    /// Has each request of `card` wait for at most `longest`. Delays follow from `seed`.
    pub fn new(card: Arc<dyn Endpoint>, seed: u64, longest: Duration) -> Arc<Self> {
        Arc::new(LateDma { card, seed, longest, port: OnceLock::new() })
    }
}

impl Endpoint for LateDma {
    fn layout(&self) -> Layout {
        self.card.layout()
    }

    fn attach(&self, dma: Arc<dyn DmaPort>, interrupts: Arc<dyn InterruptPort>) {
        let port = self.port.get_or_init(|| Port::start(&self.card, self.seed, self.longest));
        *port.bus.lock().unwrap_or_else(PoisonError::into_inner) = Some(dma);
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

    fn bar_memory(&self, bar: BarIndex) -> Option<Arc<SharedMemory>> {
        self.card.bar_memory(bar)
    }
}

enum Request {
    Read { tag: DmaTag, iova: Iova, bytes: usize },
    Write { tag: DmaTag, iova: Iova, data: Vec<u8> },
}

/// What the card takes for the bus. The thread behind it ends when the card lets it go.
struct Port {
    bus: Arc<Mutex<Option<Arc<dyn DmaPort>>>>,
    requests: Mutex<Sender<Request>>,
}

impl Port {
    fn start(card: &Arc<dyn Endpoint>, seed: u64, longest: Duration) -> Arc<Self> {
        let (sender, receiver) = channel();
        let bus = Arc::new(Mutex::new(None));
        let (card, inner) = (Arc::downgrade(card), Arc::clone(&bus));
        let started = thread::Builder::new()
            .name("late dma".into())
            .spawn(move || answer(&receiver, &card, &inner, Delays { state: seed, longest }));
        if let Err(error) = started {
            log::error!("No thread for late DMA, so that none will be answered: {error}");
        }
        Arc::new(Port { bus, requests: Mutex::new(sender) })
    }

    fn wait(&self, request: Request) -> DmaProgress {
        match self.requests.lock().unwrap_or_else(PoisonError::into_inner).send(request) {
            Ok(()) => DmaProgress::Pending,
            Err(_) => DmaProgress::Done(Err(DmaFault::HostGone)),
        }
    }
}

impl DmaPort for Port {
    fn read(&self, tag: DmaTag, iova: Iova, data: &mut [u8]) -> DmaProgress {
        self.wait(Request::Read { tag, iova, bytes: data.len() })
    }

    fn write(&self, tag: DmaTag, iova: Iova, data: &[u8]) -> DmaProgress {
        self.wait(Request::Write { tag, iova, data: data.to_vec() })
    }
}

/// Makes requests one after another until nobody can make more.
fn answer(
    requests: &Receiver<Request>,
    card: &Weak<dyn Endpoint>,
    bus: &Mutex<Option<Arc<dyn DmaPort>>>,
    mut delays: Delays,
) {
    for request in requests {
        thread::sleep(delays.next());
        let port = bus.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (Some(card), Some(port)) = (card.upgrade(), port) else { return };
        let (tag, mut data, progress);
        match request {
            Request::Read { tag: its, iova, bytes } => {
                (tag, data) = (its, vec![0; bytes]);
                progress = port.read(tag, iova, &mut data);
            }
            Request::Write { tag: its, iova, data: written } => {
                (tag, data) = (its, Vec::new());
                progress = port.write(tag, iova, &written);
            }
        }
        match progress {
            DmaProgress::Done(Ok(())) => card.dma_complete(tag, Ok(&data)),
            DmaProgress::Done(Err(fault)) => card.dma_complete(tag, Err(fault)),
            // The bus will complete it.
            DmaProgress::Pending => {}
        }
    }
}

/// Times drawn at random: a Weyl sequence through the finaliser of MurmurHash3.
struct Delays {
    state: u64,
    longest: Duration,
}

impl Delays {
    fn next(&mut self) -> Duration {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.state;
        x = (x ^ x >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
        x = (x ^ x >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        let nanoseconds = u64::try_from(self.longest.as_nanos()).unwrap_or(u64::MAX).max(1);
        Duration::from_nanos((x ^ x >> 33) % nanoseconds)
    }
}

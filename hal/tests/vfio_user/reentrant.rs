//! An endpoint that calls its ports inside of every call of the server, and holds a lock of its own meanwhile. A server that
//! held a lock over such a call would block itself, or wait for the endpoint's other thread while this waits for the server.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use fpga_hal::endpoint::{DmaFault, DmaPort, DmaProgress, DmaTag, InterruptPort, Layout, ResetKind};
use fpga_hal::vfio_user::Server;
use fpga_hal::{BarIndex, Endpoint, Iova, SharedMemory};

use crate::card::{self, Card};
use crate::raw::*;
use crate::setting::{Directory, counter, memory, raised};

/// Where the client maps a file, and where memory that is accessed by messages.
const PASSED: u64 = 0x10_0000;
const BY_MESSAGE: u64 = 0x40_0000;
/// The tag of the endpoint's own requests.
const TAG: DmaTag = DmaTag(u64::MAX);
/// Its requests that may be pending: far fewer than the server accepts.
const MOST_PENDING: usize = 100;

type Ports = (Arc<dyn DmaPort>, Arc<dyn InterruptPort>);

/// A card that calls its ports whenever it is called.
struct Reentrant {
    card: Arc<Card>,
    /// Held while the ports are called.
    ports: Mutex<Option<Ports>>,
    /// Its own requests that are pending.
    pending: AtomicUsize,
}

impl Reentrant {
    fn lock(&self) -> MutexGuard<'_, Option<Ports>> {
        self.ports.lock().unwrap()
    }

    fn request(&self, dma: &dyn DmaPort, is_write: bool) -> DmaProgress {
        if is_write { dma.write(TAG, Iova(PASSED), &[1; 16]) } else { dma.read(TAG, Iova(PASSED), &mut [0; 16]) }
    }

    fn call_ports(&self) {
        let ports = self.lock();
        let Some((dma, interrupts)) = &*ports else { return };
        for is_write in [false, true] {
            if self.pending.fetch_add(1, Ordering::Relaxed) >= MOST_PENDING
                || self.request(&**dma, is_write) != DmaProgress::Pending
            {
                self.pending.fetch_sub(1, Ordering::Relaxed);
            }
        }
        interrupts.raise(1);
        interrupts.set_intx(true);
        interrupts.set_intx(false);
    }
}

impl Endpoint for Reentrant {
    fn layout(&self) -> Layout {
        self.call_ports();
        self.card.layout()
    }

    fn attach(&self, dma: Arc<dyn DmaPort>, interrupts: Arc<dyn InterruptPort>) {
        *self.lock() = Some((Arc::clone(&dma), Arc::clone(&interrupts)));
        self.call_ports();
        self.card.attach(dma, interrupts);
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) {
        self.call_ports();
        self.card.config_read(offset, data);
    }

    fn config_write(&self, offset: u16, data: &[u8]) {
        self.call_ports();
        self.card.config_write(offset, data);
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        self.call_ports();
        self.card.bar_read(bar, offset, data);
    }

    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) {
        self.call_ports();
        self.card.bar_write(bar, offset, data);
    }

    fn reset(&self, kind: ResetKind) {
        self.call_ports();
        self.card.reset(kind);
    }

    fn dma_complete(&self, tag: DmaTag, result: Result<&[u8], DmaFault>) {
        self.call_ports();
        if tag == TAG {
            self.pending.fetch_sub(1, Ordering::Relaxed);
        } else {
            self.card.dma_complete(tag, result);
        }
    }

    fn bar_memory(&self, bar: BarIndex) -> Option<Arc<SharedMemory>> {
        self.call_ports();
        self.card.bar_memory(bar)
    }
}

/// Every command of a client, with a copy by messages that the client replies to.
fn use_card(raw: &mut Raw) {
    assert_eq!(raw.call(VERSION, &version()).errno(), 0);
    raw.enable();
    let (file, done) = (memory(0x1_0000, true), counter());
    assert_eq!(raw.call_with(DMA_MAP, &map(3, 0, PASSED, 0x1_0000), &[file.as_fd()]).errno(), 0);
    for _ in 0..50 {
        assert_eq!(raw.call(DMA_MAP, &map(3, 0, BY_MESSAGE, 0x1_0000)).errno(), 0);
        raw.connect_vectors(0, &[&done, &done]);
        assert_eq!(raw.call_with(SET_IRQS, &set_irqs(0x24, 0, 0, 1, &[]), &[done.as_fd()]).errno(), 0);
        assert_eq!(raw.call(GET_REGION_INFO, &region_info(32, 2)).errno(), 0);
        assert_eq!(raw.call(GET_IRQ_INFO, &four(16, 0, 2, 0)).errno(), 0);
        assert_eq!(raw.read_u32(0, card::ID), card::ID_VALUE);
        crate::protocol::copy(raw, BY_MESSAGE, PASSED + 0x1000, 64);
        let asked = raw.receive().unwrap();
        assert_eq!((asked.command, asked.u64(0), asked.u64(8)), (DMA_READ, BY_MESSAGE, 64));
        let reply = body().u64(BY_MESSAGE).u64(64).bytes(&[7; 64]).0;
        raw.send(&message(asked.id, DMA_READ, 1, &reply)).unwrap();
        assert!(raised(&done) > 0);
        assert_eq!(raw.call(SET_IRQS, &set_irqs(0x21, 0, 0, 0, &[])).errno(), 0);
        assert_eq!(raw.call(SET_IRQS, &set_irqs(0x21, 2, 0, 0, &[])).errno(), 0);
        // This one first: then the client is not asked for the other.
        assert_eq!(raw.call(DMA_UNMAP, &unmap(0, BY_MESSAGE, 0x1_0000)).errno(), 0);
        assert_eq!(raw.call(DMA_UNMAP, &unmap(0, PASSED, 0x1_0000)).errno(), 0);
        assert_eq!(raw.call_with(DMA_MAP, &map(3, 0, PASSED, 0x1_0000), &[file.as_fd()]).errno(), 0);
        assert_eq!(raw.call(RESET, &[]).errno(), 0);
        raw.enable();
    }
}

#[test]
fn an_endpoint_may_call_its_ports_inside_of_every_call() {
    let endpoint = Arc::new(Reentrant { card: Card::new(), ports: Mutex::default(), pending: AtomicUsize::new(0) });
    let directory = Directory::new();
    let path = directory.0.join("card");
    let server = Server::bind(&path, Arc::clone(&endpoint) as Arc<dyn Endpoint>).unwrap();
    let serving = server.with_dma_patience(Duration::from_secs(20)).spawn().unwrap();
    // Not joined: after a deadlock, the test ends with the client's error.
    let stop = Arc::new(AtomicBool::new(false));
    let (other, stopped) = (Arc::clone(&endpoint), Arc::clone(&stop));
    thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            other.call_ports();
            thread::yield_now();
        }
    });
    use_card(&mut Raw::connect(&path));
    stop.store(true, Ordering::Relaxed);
    endpoint.card.wait("cleaning up", |card| card.owners_lost.load(Ordering::Relaxed) == 1);
    drop(serving);
}

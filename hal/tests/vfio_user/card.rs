//! A card to serve: BAR 0 has registers, a DMA engine and, at 0x800, the MSI-X table; BAR 2 is memory that can be mapped.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use fpga_hal::endpoint::{BarLayout, DmaFault, DmaPort, DmaProgress, DmaTag, InterruptPort, Layout, ResetKind};
use fpga_hal::{BarIndex, Endpoint, Iova, SharedMemory};

pub const BAR0_BYTES: u64 = 4096;
pub const BAR2_BYTES: u64 = 1 << 16;
pub const VECTORS: u16 = 40;
pub const TABLE: u64 = 0x800;
/// MSI-X capability.
pub const MSIX: u64 = 0x50;
/// PCI Express capability; bit 15 of its device control, at 8, resets the function.
pub const EXPRESS: u64 = 0x60;

pub const ID: u64 = 0x00;
pub const ID_VALUE: u32 = 0x6b69_7761;
/// A register of 64 bits that keeps what is written.
pub const SCRATCH: u64 = 0x08;
/// The 64-bit IOVAs that the engine copies from and to, and the bytes to copy.
pub const SOURCE: u64 = 0x10;
pub const TARGET: u64 = 0x18;
pub const BYTES: u64 = 0x20;
/// Starts a copy, and raises the written vector when it ends.
pub const DOORBELL: u64 = 0x24;
/// The number of copies that have ended, and the status of the last: 1 done, 2 unmapped, 3 not bus master, 4 no host.
pub const DONE: u64 = 0x28;
pub const STATUS: u64 = 0x2c;
/// The INTx line.
pub const LINE: u64 = 0x30;

#[derive(Default)]
pub struct Card {
    state: Mutex<State>,
    changed: Condvar,
    ports: Mutex<Option<Ports>>,
    memory: Option<Arc<SharedMemory>>,
    pub resets: AtomicU64,
    pub owners_lost: AtomicU64,
    /// Whether the card was removed.
    pub is_gone: AtomicBool,
    /// Whether reads of its registers panic.
    pub panics: AtomicBool,
    /// Whether its BARs respond only while memory decoding is on, as those of functions do.
    pub needs_decoding: AtomicBool,
    /// How long its configuration space reads as all-ones after a function-level reset.
    pub silence: Mutex<Duration>,
    /// Bytes of each access to its scratch register.
    widths: Mutex<Vec<usize>>,
}

#[derive(Clone)]
struct Ports {
    dma: Arc<dyn DmaPort>,
    interrupts: Arc<dyn InterruptPort>,
}

struct State {
    config: Vec<u8>,
    registers: Vec<u8>,
    copies: VecDeque<Copy>,
    next_tag: u64,
    silent_until: Option<Instant>,
}

struct Copy {
    tag: u64,
    target: u64,
    vector: u16,
    writing: bool,
}

impl Default for State {
    fn default() -> Self {
        let mut config = vec![0; 4096];
        config[0..4].copy_from_slice(&[0xee, 0x10, 0x20, 0x50]);
        config[6] = 0x10;
        config[8..12].copy_from_slice(&[0x03, 0x00, 0x00, 0x12]);
        config[0x18] = 0b1100; // BAR 2: 64 bits, prefetchable
        config[0x34] = MSIX as u8;
        config[0x3d] = 1;
        config[0x50..0x54].copy_from_slice(&[0x11, EXPRESS as u8, (VECTORS - 1) as u8, 0x00]);
        config[0x54..0x58].copy_from_slice(&(TABLE as u32).to_le_bytes());
        config[0x60..0x62].copy_from_slice(&[0x10, 0x00]);
        let (registers, copies) = (vec![0; BAR0_BYTES as usize], VecDeque::new());
        let mut state = State { config, registers, copies, next_tag: 0, silent_until: None };
        state.reset();
        state
    }
}

impl State {
    fn reset(&mut self) {
        self.config[4..6].fill(0);
        self.config[0x53] &= 0x3f;
        self.registers.fill(0);
        self.put(ID, &ID_VALUE.to_le_bytes());
        for vector in 0..u64::from(VECTORS) {
            self.put(TABLE + vector * 16 + 12, &1u32.to_le_bytes());
        }
        self.copies.clear();
    }

    fn put(&mut self, at: u64, data: &[u8]) {
        self.registers[at as usize..][..data.len()].copy_from_slice(data);
    }

    fn u32(&self, at: u64) -> u32 {
        u32::from_le_bytes(self.registers[at as usize..][..4].try_into().unwrap())
    }

    fn u64(&self, at: u64) -> u64 {
        u64::from(self.u32(at)) | u64::from(self.u32(at + 4)) << 32
    }

    fn delivers(&self, vector: u16) -> bool {
        let on = self.config[0x53] & 0xc0 == 0x80;
        on && vector < VECTORS && self.u32(TABLE + u64::from(vector) * 16 + 12) & 1 == 0
    }
}

fn status(result: Result<(), DmaFault>) -> u32 {
    match result {
        Ok(()) => 1,
        Err(DmaFault::Unmapped { .. }) => 2,
        Err(DmaFault::NotMaster) => 3,
        Err(DmaFault::HostGone) => 4,
    }
}

impl Card {
    pub fn new() -> Arc<Self> {
        Arc::new(Card { memory: Some(Arc::new(SharedMemory::new("card", BAR2_BYTES).unwrap())), ..Card::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn ports(&self) -> Option<Ports> {
        self.ports.lock().unwrap().clone()
    }

    pub fn memory(&self) -> &SharedMemory {
        self.memory.as_ref().unwrap()
    }

    pub fn msix_control(&self) -> u16 {
        u16::from_le_bytes(self.state().config[0x52..0x54].try_into().unwrap())
    }

    pub fn command(&self) -> u16 {
        u16::from_le_bytes(self.state().config[4..6].try_into().unwrap())
    }

    pub fn is_masked(&self, vector: u16) -> bool {
        !self.state().delivers(vector)
    }

    pub fn raise(&self, vector: u16) {
        if self.state().delivers(vector) {
            self.ports().unwrap().interrupts.raise(vector);
        }
    }

    pub fn dma_read(&self, iova: u64, data: &mut [u8]) -> DmaProgress {
        self.ports().unwrap().dma.read(DmaTag(u64::MAX), Iova(iova), data)
    }

    pub fn dma_write(&self, iova: u64, data: &[u8]) -> DmaProgress {
        self.ports().unwrap().dma.write(DmaTag(u64::MAX), Iova(iova), data)
    }

    /// Bytes of the accesses to its scratch register.
    pub fn widths(&self) -> Vec<usize> {
        self.widths.lock().unwrap().clone()
    }

    fn note_width(&self, offset: u64, bytes: usize) {
        if offset == SCRATCH {
            self.widths.lock().unwrap().push(bytes);
        }
    }

    fn decodes(&self) -> bool {
        self.command() & 2 != 0 || !self.needs_decoding.load(Ordering::Relaxed)
    }

    pub fn outstanding(&self) -> usize {
        self.state().copies.len()
    }

    /// Waits until `what` holds, for a long time.
    pub fn wait(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !holds(self) {
            assert!(Instant::now() < deadline, "{what} did not happen");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn ring(&self, vector: u16) {
        let Some(ports) = self.ports() else { return };
        let mut state = self.state();
        let (source, target, bytes) = (state.u64(SOURCE), state.u64(TARGET), state.u32(BYTES).min(4 << 20));
        state.next_tag += 1;
        let tag = state.next_tag;
        state.copies.push_back(Copy { tag, target, vector, writing: false });
        let mut data = vec![0; bytes as usize];
        // Under the lock, so that an early reply finds the copy.
        match ports.dma.read(DmaTag(tag), Iova(source), &mut data) {
            DmaProgress::Done(result) => self.went_on(state, tag, result.map(|()| &data[..])),
            DmaProgress::Pending => {}
        }
    }

    /// Handles the end of a copy's read or write.
    fn went_on(&self, mut state: MutexGuard<'_, State>, tag: u64, result: Result<&[u8], DmaFault>) {
        let Some(ports) = self.ports() else { return };
        let Some(at) = state.copies.iter().position(|copy| copy.tag == tag) else { return };
        let copy = &mut state.copies[at];
        let over = match result {
            Ok(data) if !copy.writing => {
                copy.writing = true;
                match ports.dma.write(DmaTag(tag), Iova(copy.target), data) {
                    DmaProgress::Done(result) => result,
                    DmaProgress::Pending => return,
                }
            }
            other => other.map(drop),
        };
        let vector = copy.vector;
        state.copies.remove(at);
        let done = state.u32(DONE).wrapping_add(1);
        state.put(STATUS, &status(over).to_le_bytes());
        state.put(DONE, &done.to_le_bytes());
        let delivers = state.delivers(vector);
        drop(state);
        self.changed.notify_all();
        if delivers {
            ports.interrupts.raise(vector);
        }
    }
}

impl Endpoint for Card {
    fn layout(&self) -> Layout {
        let mut bars = [None; BarIndex::COUNT];
        bars[0] = Some(BarLayout { bytes: BAR0_BYTES, is_64_bit: false, prefetchable: false });
        if self.memory.is_some() {
            bars[2] = Some(BarLayout { bytes: BAR2_BYTES, is_64_bit: true, prefetchable: true });
        }
        Layout { bars, dma_bits: 48 }
    }

    fn attach(&self, dma: Arc<dyn DmaPort>, interrupts: Arc<dyn InterruptPort>) {
        *self.ports.lock().unwrap() = Some(Ports { dma, interrupts });
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) {
        if !self.is_gone.load(Ordering::Relaxed) {
            assert!(data.len() <= 4 && usize::from(offset) % data.len() == 0, "{} at {offset:#x}", data.len());
            let state = self.state();
            if state.silent_until.is_some_and(|until| Instant::now() < until) {
                return data.fill(0xff);
            }
            data.copy_from_slice(&state.config[usize::from(offset)..][..data.len()]);
        }
    }

    fn config_write(&self, offset: u16, data: &[u8]) {
        assert!(data.len() <= 4 && usize::from(offset) % data.len() == 0, "{} at {offset:#x}", data.len());
        let mut state = self.state();
        for (at, byte) in (u64::from(offset)..).zip(data) {
            match at {
                0x04 => state.config[4] = byte & 0x06,
                0x05 => state.config[5] = byte & 0x04,
                0x3c => state.config[0x3c] = *byte,
                0x53 => state.config[0x53] = state.config[0x53] & 0x3f | byte & 0xc0,
                0x69 if byte & 0x80 != 0 => {
                    self.resets.fetch_add(1, Ordering::Relaxed);
                    state.reset();
                    state.silent_until = Some(Instant::now() + *self.silence.lock().unwrap());
                }
                _ => {}
            }
        }
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        assert!(!self.panics.load(Ordering::Relaxed), "as the test has asked for");
        assert!(data.len() <= 8 && offset % data.len() as u64 == 0, "{} at {offset:#x}", data.len());
        if !self.is_gone.load(Ordering::Relaxed) && bar.index() == 0 && self.decodes() {
            self.note_width(offset, data.len());
            data.copy_from_slice(&self.state().registers[offset as usize..][..data.len()]);
        }
    }

    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) {
        assert!(data.len() <= 8 && offset % data.len() as u64 == 0, "{} at {offset:#x}", data.len());
        assert_eq!(bar.index(), 0);
        if !self.decodes() {
            return;
        }
        self.note_width(offset, data.len());
        if offset == DOORBELL && data.len() == 4 {
            return self.ring(u32::from_le_bytes(data.try_into().unwrap()) as u16);
        }
        if offset == LINE {
            let ports = self.ports().unwrap();
            self.state().config[6] = 0x10 | (data[0] & 1) << 3;
            return ports.interrupts.set_intx(data[0] & 1 != 0);
        }
        let is_settable = (SCRATCH..DOORBELL).contains(&offset) || offset >= TABLE;
        if is_settable {
            self.state().put(offset, data);
        }
    }

    fn reset(&self, kind: ResetKind) {
        self.resets.fetch_add(1, Ordering::Relaxed);
        if kind == ResetKind::OwnerLost {
            self.owners_lost.fetch_add(1, Ordering::Relaxed);
        }
        self.state().reset();
    }

    fn dma_complete(&self, tag: DmaTag, result: Result<&[u8], DmaFault>) {
        self.went_on(self.state(), tag.0, result);
    }

    fn bar_memory(&self, bar: BarIndex) -> Option<Arc<SharedMemory>> {
        self.memory.clone().filter(|_| bar.index() == 2)
    }
}

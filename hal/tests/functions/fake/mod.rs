//! An endpoint that records what reaches it: BAR 0 holds registers and, at 0x800, the MSI-X table; BAR 2 is lent memory.
#![allow(dead_code, unreachable_pub, reason = "each test file compiles it, and none uses all of it")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use fpga_hal::endpoint::{BarLayout, DmaFault, DmaPort, DmaProgress, DmaTag, InterruptPort, Layout, ResetKind};
use fpga_hal::{BarIndex, Domain, Endpoint, Function, Iova, Result, SharedMemory, in_process};

pub const REGISTERS: u64 = 4096;
pub const MSIX: u16 = 0x50;
/// Any write of this register of configuration space resets the function.
pub const RESETS: u16 = 0x60;
pub const TABLE: u64 = 0x800;
pub const VECTORS: u16 = 4;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Attach,
    Reset(ResetKind),
    ConfigWrite(u16, u32),
    BarRead(u64, usize),
    BarWrite(u64, u64),
}

pub struct Fake {
    pub layout: Mutex<Layout>,
    pub config: Mutex<Vec<u8>>,
    pub registers: Mutex<Vec<u8>>,
    pub memory: Option<Arc<SharedMemory>>,
    pub events: Mutex<Vec<Event>>,
    /// Whether it was pulled out of its slot.
    pub gone: AtomicBool,
    ports: Mutex<Option<Ports>>,
}

#[derive(Clone)]
struct Ports {
    dma: Arc<dyn DmaPort>,
    interrupts: Arc<dyn InterruptPort>,
}

pub fn bar(index: u8) -> BarIndex {
    BarIndex::new(index).unwrap()
}

pub fn layout(dma_bits: u8) -> Layout {
    let mut bars = [None; BarIndex::COUNT];
    bars[0] = Some(BarLayout { bytes: REGISTERS, is_64_bit: false, prefetchable: false });
    bars[2] = Some(BarLayout { bytes: 1 << 16, is_64_bit: true, prefetchable: true });
    Layout { bars, dma_bits }
}

/// Configuration space with a power management capability at 0x40, then MSI-X at 0x50.
pub fn config() -> Vec<u8> {
    let mut config = vec![0; 4096];
    config[0..4].copy_from_slice(&[0xee, 0x10, 0x20, 0x50]);
    config[6] = 0x10;
    config[8..12].copy_from_slice(&[0x03, 0x00, 0x00, 0x12]);
    config[0x34] = 0x40;
    config[0x40..0x42].copy_from_slice(&[0x01, 0x50]);
    config[0x50..0x54].copy_from_slice(&[0x11, 0x00, (VECTORS - 1) as u8, 0x00]);
    config[0x54..0x58].copy_from_slice(&(TABLE as u32).to_le_bytes());
    config
}

impl Fake {
    pub fn new() -> Arc<Self> {
        Self::with(64, |_| {})
    }

    pub fn with(dma_bits: u8, change: impl FnOnce(&mut Self)) -> Arc<Self> {
        let mut fake = Fake {
            layout: Mutex::new(layout(dma_bits)),
            config: Mutex::new(config()),
            registers: Mutex::new(vec![0; REGISTERS as usize]),
            memory: Some(Arc::new(SharedMemory::new("fake", 1 << 16).unwrap())),
            events: Mutex::default(),
            gone: AtomicBool::new(false),
            ports: Mutex::default(),
        };
        change(&mut fake);
        Arc::new(fake)
    }

    pub fn open(self: &Arc<Self>, domain: &Domain, name: &str) -> Result<Function> {
        in_process::attach(Arc::clone(self) as Arc<dyn Endpoint>, domain, name)
    }

    /// What was recorded since the last time.
    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.events.lock().unwrap())
    }

    pub fn dma_read(&self, iova: u64, data: &mut [u8]) -> std::result::Result<(), DmaFault> {
        match self.ports().dma.read(DmaTag(1), Iova(iova), data) {
            DmaProgress::Done(result) => result,
            DmaProgress::Pending => panic!("DMA in process is over at once"),
        }
    }

    pub fn dma_write(&self, iova: u64, data: &[u8]) -> std::result::Result<(), DmaFault> {
        match self.ports().dma.write(DmaTag(2), Iova(iova), data) {
            DmaProgress::Done(result) => result,
            DmaProgress::Pending => panic!("DMA in process is over at once"),
        }
    }

    pub fn raise(&self, vector: u16) {
        self.ports().interrupts.raise(vector);
    }

    pub fn command(&self) -> u16 {
        let config = self.config.lock().unwrap();
        u16::from_le_bytes([config[4], config[5]])
    }

    pub fn msix_control(&self) -> u16 {
        let config = self.config.lock().unwrap();
        u16::from_le_bytes([config[usize::from(MSIX) + 2], config[usize::from(MSIX) + 3]])
    }

    /// Address, data and vector control of an entry of the MSI-X table.
    pub fn table_entry(&self, vector: u16) -> (u64, u32, u32) {
        let registers = self.registers.lock().unwrap();
        let at = TABLE as usize + usize::from(vector) * 16;
        let word = |at: usize| u32::from_le_bytes(registers[at..at + 4].try_into().unwrap());
        (u64::from(word(at)) | u64::from(word(at + 4)) << 32, word(at + 8), word(at + 12))
    }

    fn ports(&self) -> Ports {
        self.ports.lock().unwrap().clone().expect("the ports were connected")
    }

    fn record(&self, event: Event) {
        self.events.lock().unwrap().push(event);
    }

    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }
}

impl Endpoint for Fake {
    fn layout(&self) -> Layout {
        self.layout.lock().unwrap().clone()
    }

    fn attach(&self, dma: Arc<dyn DmaPort>, interrupts: Arc<dyn InterruptPort>) {
        self.record(Event::Attach);
        *self.ports.lock().unwrap() = Some(Ports { dma, interrupts });
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) {
        if self.is_gone() {
            return data.fill(0xff);
        }
        let at = usize::from(offset);
        data.copy_from_slice(&self.config.lock().unwrap()[at..at + data.len()]);
    }

    fn config_write(&self, offset: u16, data: &[u8]) {
        let mut value = [0; 4];
        value[..data.len()].copy_from_slice(data);
        self.record(Event::ConfigWrite(offset, u32::from_le_bytes(value)));
        // Only the command register and MSI-X control keep what is written, the size in the latter not.
        let mut config = self.config.lock().unwrap();
        match offset {
            4 => config[4..4 + data.len().min(2)].copy_from_slice(&data[..data.len().min(2)]),
            at if at == MSIX + 2 => config[usize::from(at) + 1] = data[1] & 0xc0,
            RESETS => config[4..6].fill(0),
            _ => {}
        }
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        self.record(Event::BarRead(offset, data.len()));
        // What is gone does not touch the data: the bus must have filled it with ones.
        if !self.is_gone() && bar.index() == 0 {
            let at = offset as usize;
            data.copy_from_slice(&self.registers.lock().unwrap()[at..at + data.len()]);
        }
    }

    fn bar_write(&self, _bar: BarIndex, offset: u64, data: &[u8]) {
        let mut value = [0; 8];
        value[..data.len()].copy_from_slice(data);
        self.record(Event::BarWrite(offset, u64::from_le_bytes(value)));
        let at = offset as usize;
        self.registers.lock().unwrap()[at..at + data.len()].copy_from_slice(data);
    }

    fn reset(&self, kind: ResetKind) {
        self.record(Event::Reset(kind));
        let mut config = self.config.lock().unwrap();
        config[4..6].fill(0);
        config[usize::from(MSIX) + 3] &= 0x3f;
    }

    fn dma_complete(&self, _tag: DmaTag, _result: std::result::Result<&[u8], DmaFault>) {
        panic!("DMA in process is over at once");
    }

    fn bar_memory(&self, bar: BarIndex) -> Option<Arc<SharedMemory>> {
        self.memory.clone().filter(|_| bar.index() == 2)
    }
}

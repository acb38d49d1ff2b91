//! An endpoint that looks like a card to the bus and answers as scripted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use cmdseq::{AddressSpace, Completion, Instruction, Operation, Status};
use fpga_driver::{Card, Result};
use fpga_hal::endpoint::{
    BarLayout, DmaFault, DmaPort, DmaProgress, DmaTag, Endpoint, InterruptPort, Layout, ResetKind,
};
use fpga_hal::{BarIndex, Domain, Function, Iova, in_process};

/// Where the fake has its sequencer's block.
pub(crate) const BLOCK: u32 = 0x1000;
pub(crate) const MEMORY_BYTES: usize = 4 << 20;
pub(crate) const ALIGN: usize = 64;
/// Where configuration space has the capability of advanced error reporting, if there is one.
const AER: usize = 0x100;
/// Counts what fakes note the order of.
static STEPS: AtomicU64 = AtomicU64::new(0);

/// What the fake does instead of completing an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Completes with this code and detail.
    Code(u8, u16),
    /// Completes with a tag that is not the instruction's.
    WrongTag,
    /// Completes with the other phase bit.
    WrongPhase,
    /// Completes, and once more, though nothing asked for it.
    Twice,
    /// Goes on without a word.
    Silence,
    /// Begins, and does not end until [`Fake::release`] or an abort.
    Hang,
    /// Begins, and completes with this code when somebody sleeps on the interrupt.
    OnceAwaited(u8),
    /// Begins, and does not end whatever is done.
    Deaf,
    /// Halts with these bits in the error register.
    Halt(u32),
    /// Completes with T2 before T1.
    Late,
}

/// What a completion says that an instruction took, in cycles from its issue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) t1: u64,
    pub(crate) t2: u64,
    pub(crate) arrival: u64,
    /// When the next is issued.
    pub(crate) next: u64,
}

impl Default for Times {
    fn default() -> Self {
        Times { t1: 10, t2: 20, arrival: 15, next: 100 }
    }
}

pub(crate) struct Fake {
    state: Mutex<State>,
    ports: Mutex<Option<Ports>>,
}

type Ports = (Arc<dyn DmaPort>, Arc<dyn InterruptPort>);

pub(crate) struct State {
    config: Vec<u8>,
    /// Vendor and device.
    ids: (u16, u16),
    msix: Vec<u8>,
    /// Words of BAR0 that read as they stand.
    pub(crate) registers: BTreeMap<u32, u32>,
    /// Words of BAR0 that read as given here, whatever they hold.
    pub(crate) forced: BTreeMap<u32, u32>,
    /// By count of the instruction since the queue was enabled.
    pub(crate) script: BTreeMap<u32, Reply>,
    /// What each instruction takes.
    pub(crate) times: Box<dyn FnMut(&Instruction) -> Times + Send>,
    pub(crate) memory: Vec<u8>,
    /// Operations run, in order.
    pub(crate) ran: Vec<Operation>,
    pub(crate) is_gone: bool,
    pub(crate) reads: u32,
    pub(crate) writes: u32,
    pub(crate) resets: u32,
    /// How often the interrupt was armed.
    pub(crate) arms: u32,
    /// Steps of all fakes: when this one was told to abort, and when it was first asked for its status after that.
    pub(crate) aborted_at: Option<u64>,
    pub(crate) asked_at: Option<u64>,
    /// Whether ERROR was read since a bit of it was set.
    is_error_seen: bool,
    tail: u32,
    fetched: u32,
    completed: u32,
    taken: u32,
    armed: Option<u32>,
    hanging: Option<(Instruction, Reply)>,
    pub(crate) clock: u64,
}

impl Fake {
    /// Node `node` of `nodes`, with rings of up to `depth` entries.
    pub(crate) fn node(node: u32, nodes: u32, depth: u32) -> Arc<Fake> {
        let mut registers = BTreeMap::new();
        let mut put = |offset: u32, value: u32| registers.insert(offset, value);
        // An accelerator function whose list goes on at 0x1000, and there a building block that ends it.
        put(0x0, 0x1000_0001);
        put(0x4, 0x1000_0000);
        put(BLOCK, 0x0000_0002);
        put(BLOCK + 0x4, 0x2000_0100);
        for (index, word) in [0xa65e_4f08, 0x8e0b_93d1, 0x2f64_47f5, 0xc7e3_b1d2].into_iter().enumerate() {
            put(BLOCK + 0x8 + 4 * index as u32, word);
        }
        for (offset, value) in [
            (0x020, 0x5145_5346),
            (0x024, 0x0001_0000),
            (0x028, 1),
            (0x02c, 0x101),
            (0x030, 200_000),
            (0x034, node),
            (0x038, nodes),
            (0x03c, nodes - 1),
            (0x040, 1),
            (0x044, (MEMORY_BYTES >> 20) as u32),
            (0x048, 32),
            (0x04c, 1),
            (0x050, 1),
            (0x054, depth),
            (0x058, 16),
            (0x05c, 64),
            (0x060, 4),
            (0x064, 8),
            (0x068, ALIGN as u32),
            (0x06c, 65536),
            (0x070, u32::MAX - 1),
            (0x074, 0x107),
            (0x0a4, 32),
            (0x104, 1),
            (0x10c, 16384),
            (0x124, u32::MAX),
        ] {
            put(BLOCK + offset, value);
        }
        let state = State {
            config: config(IDS),
            ids: IDS,
            msix: vec![0; 0x1000],
            registers,
            forced: BTreeMap::new(),
            script: BTreeMap::new(),
            times: Box::new(|_| Times::default()),
            memory: vec![0; MEMORY_BYTES],
            ran: Vec::new(),
            is_gone: false,
            reads: 0,
            writes: 0,
            resets: 0,
            arms: 0,
            aborted_at: None,
            asked_at: None,
            is_error_seen: false,
            tail: 0,
            fetched: 0,
            completed: 0,
            taken: 0,
            armed: None,
            hanging: None,
            clock: (1 << 48) - 1000,
        };
        Arc::new(Fake { state: Mutex::new(state), ports: Mutex::new(None) })
    }

    /// A lone card with rings of up to `depth` entries.
    pub(crate) fn new(depth: u32) -> Arc<Fake> {
        Fake::node(0, 1, depth)
    }

    pub(crate) fn function(self: &Arc<Self>) -> Function {
        self.try_function().unwrap()
    }

    pub(crate) fn try_function(self: &Arc<Self>) -> fpga_hal::Result<Function> {
        in_process::attach(Arc::clone(self) as Arc<dyn Endpoint>, &Domain::in_process(), "fake")
    }

    pub(crate) fn open(self: &Arc<Self>) -> Result<Card> {
        Card::open(self.function())
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Answers instruction `count` with `reply`.
    pub(crate) fn plant(&self, count: u32, reply: Reply) {
        self.state().script.insert(count, reply);
    }

    pub(crate) fn set(&self, offset: u32, value: u32) {
        self.state().registers.insert(offset, value);
    }

    /// Has the function be of this vendor and device.
    pub(crate) fn identify(&self, vendor: u16, device: u16) {
        self.state().ids = (vendor, device);
    }

    /// Has the sequencer run what nobody of this process has started, as one does that was not reset.
    pub(crate) fn run_what_was_left(&self, reply: Reply) {
        self.set(BLOCK + 0x100, 1);
        self.set(BLOCK + 0x414, 1);
        self.state().hanging = Some((Instruction::nop(), reply));
    }

    /// Has nothing to run, and waits for more.
    pub(crate) fn rest(&self) {
        self.state().hanging = None;
    }

    /// MMIO reads and writes since the last call.
    pub(crate) fn counts(&self) -> (u32, u32) {
        let mut state = self.state();
        (std::mem::take(&mut state.reads), std::mem::take(&mut state.writes))
    }

    /// Ends the instruction that hangs.
    pub(crate) fn release(&self) {
        let ports = self.ports();
        let mut state = self.state();
        let Some((instruction, _)) = state.hanging.take() else { panic!("nothing hangs") };
        state.complete(&ports, &instruction, 0, 0);
        state.run(&ports);
    }

    /// Has a register of the block read `value`, whatever it holds.
    pub(crate) fn force(&self, offset: u32, value: u32) {
        self.state().forced.insert(BLOCK + offset, value);
    }

    /// Stops by itself, with these bits in the error register.
    pub(crate) fn halt(&self, bits: u32) {
        let mut state = self.state();
        state.halt(bits);
    }

    /// Gives the function advanced error reporting, which has seen these errors.
    pub(crate) fn report(&self, uncorrectable: u32, correctable: u32) {
        let mut state = self.state();
        for (offset, word) in [(0, 0x0001_0001), (4, uncorrectable), (16, correctable)] {
            state.config[AER + offset..][..4].copy_from_slice(&u32::to_le_bytes(word));
        }
    }

    /// Raises the interrupt for nothing.
    pub(crate) fn raise(&self) {
        self.ports().1.raise(0);
    }

    fn ports(&self) -> Ports {
        self.ports.lock().unwrap().clone().unwrap()
    }
}

impl State {
    fn register(&self, offset: u32) -> u32 {
        self.registers.get(&(BLOCK + offset)).copied().unwrap_or(0)
    }

    fn base(&self, low: u32) -> u64 {
        u64::from(self.register(low)) | u64::from(self.register(low + 4)) << 32
    }

    fn halt(&mut self, bits: u32) {
        self.registers.insert(BLOCK + 0x108, bits);
        self.is_error_seen = false;
    }

    fn read(&mut self, offset: u32) -> u32 {
        if let Some(value) = self.forced.get(&offset) {
            return *value;
        }
        match offset.wrapping_sub(BLOCK) {
            0x108 => {
                self.is_error_seen = true;
                self.register(0x108)
            }
            0x104 => {
                if self.aborted_at.is_some() && self.asked_at.is_none() {
                    self.asked_at = Some(STEPS.fetch_add(1, Ordering::Relaxed));
                }
                let halted = u32::from(self.register(0x108) != 0) << 2;
                1 | u32::from(self.hanging.is_some()) << 1 | halted
            }
            0x120 => self.hanging.map_or(0, |(instruction, _)| {
                1 << 24 | u32::from(instruction.operation as u8) << 16 | u32::from(instruction.tag)
            }),
            0x428 => self.fetched,
            0x42c => self.completed,
            // What is written only reads as zero.
            0x110 | 0x418 | 0x41c | 0x420 => 0,
            _ => self.registers.get(&offset).copied().unwrap_or(0),
        }
    }

    fn write(&mut self, ports: &Ports, offset: u32, value: u32) {
        match offset.wrapping_sub(BLOCK) {
            0x108 => {
                assert!(self.is_error_seen, "ERROR is cleared unread");
                *self.registers.entry(offset).or_default() &= !value;
            }
            0x110 if value == 0x504f_5453 => {
                self.aborted_at = self.aborted_at.or_else(|| Some(STEPS.fetch_add(1, Ordering::Relaxed)));
                self.abort(ports);
            }
            0x414 => {
                self.registers.insert(offset, value & 1);
                if value & 1 == 1 {
                    (self.tail, self.fetched, self.completed, self.taken, self.armed) = (0, 0, 0, 0, None);
                }
            }
            0x418 => {
                assert!(value.wrapping_sub(self.fetched) <= self.register(0x410), "more than the ring has");
                self.tail = value;
                self.run(ports);
            }
            0x41c => {
                assert!(value.wrapping_sub(self.taken) <= self.completed.wrapping_sub(self.taken));
                self.taken = value;
            }
            0x420 => {
                self.armed = Some(value);
                self.arms += 1;
                if let Some((instruction, Reply::OnceAwaited(code))) = self.hanging {
                    self.hanging = None;
                    self.complete(ports, &instruction, code, 0);
                    self.run(ports);
                }
                self.interrupt(ports);
            }
            0x100 => {
                self.registers.insert(offset, value);
                self.run(ports);
            }
            _ => {
                self.registers.insert(offset, value);
            }
        }
    }

    fn abort(&mut self, ports: &Ports) {
        if self.hanging.is_some_and(|(_, reply)| reply == Reply::Deaf) {
            return;
        }
        self.registers.insert(BLOCK + 0x100, 0);
        // What was left by a user before has no ring to complete to.
        if let Some((instruction, _)) = self.hanging.take().filter(|_| self.registers.contains_key(&(BLOCK + 0x410))) {
            self.complete(ports, &instruction, 14, 0);
        }
    }

    fn run(&mut self, ports: &Ports) {
        let depth = self.register(0x410);
        while self.fetched != self.tail
            && self.hanging.is_none()
            && self.register(0x100) == 1
            && self.register(0x108) == 0
        {
            let mut word = [0; 64];
            let at = self.base(0x400) + 64 * u64::from(self.fetched & (depth - 1));
            assert_eq!(ports.0.read(DmaTag(0), Iova(at), &mut word), DmaProgress::Done(Ok(())));
            let count = self.fetched;
            self.fetched = self.fetched.wrapping_add(1);
            let instruction = Instruction::decode(&word).expect("a word that is whole");
            assert_eq!(instruction.tag, count as u16);
            self.ran.push(instruction.operation);
            match self.script.get(&count).copied() {
                None => {
                    let status = self.move_data(ports, &instruction);
                    self.complete(ports, &instruction, status.code(), 0);
                }
                Some(Reply::Code(code, detail)) => self.complete(ports, &instruction, code, detail),
                Some(Reply::WrongTag) => {
                    self.complete(ports, &instruction.with_tag(instruction.tag ^ 0x40), 0, 0);
                }
                Some(Reply::WrongPhase) => self.put(ports, &instruction, 0, 0, true),
                Some(Reply::Twice) => {
                    self.complete(ports, &instruction, 0, 0);
                    self.complete(ports, &instruction, 0, 0);
                }
                Some(Reply::Silence) => {}
                Some(reply @ (Reply::Hang | Reply::Deaf | Reply::OnceAwaited(_))) => {
                    self.hanging = Some((instruction, reply));
                }
                Some(Reply::Halt(bits)) => self.halt(bits),
                Some(Reply::Late) => self.late(ports, &instruction),
            }
        }
    }

    fn move_data(&mut self, ports: &Ports, instruction: &Instruction) -> Status {
        let bytes = instruction.bytes as usize;
        let (source, destination) = (instruction.source, instruction.destination);
        let is_aligned = |address: u64| address % ALIGN as u64 == 0;
        match instruction.operation {
            Operation::Copy => {
                assert!(is_aligned(source.address) && is_aligned(destination.address), "{instruction:?}");
                let mut data = vec![0; bytes];
                if source.space == AddressSpace::Host {
                    assert_eq!(ports.0.read(DmaTag(0), Iova(source.address), &mut data), DmaProgress::Done(Ok(())));
                } else {
                    data.copy_from_slice(&self.memory[source.address as usize..][..bytes]);
                }
                if destination.space == AddressSpace::Host {
                    let done = ports.0.write(DmaTag(0), Iova(destination.address), &data);
                    assert_eq!(done, DmaProgress::Done(Ok(())));
                } else {
                    self.memory[destination.address as usize..][..bytes].copy_from_slice(&data);
                }
            }
            Operation::Fill => {
                let pattern = instruction.extent.to_le_bytes();
                let range = &mut self.memory[destination.address as usize..][..bytes];
                range.iter_mut().zip(pattern.iter().cycle()).for_each(|(byte, value)| *byte = *value);
            }
            _ => {}
        }
        Status::Done
    }

    fn complete(&mut self, ports: &Ports, instruction: &Instruction, code: u8, detail: u16) {
        self.put(ports, instruction, code, detail, false);
        self.interrupt(ports);
    }

    /// Completes with T2 before T1.
    fn late(&mut self, ports: &Ports, instruction: &Instruction) {
        self.put(ports, instruction, 0, 0, false);
        let at = self.base(0x408) + 32 * u64::from((self.completed - 1) & (self.register(0x410) - 1));
        // The low 40 bits of the third word are T2.
        assert_eq!(ports.0.write(DmaTag(0), Iova(at + 16), &[9, 0, 0, 0, 0]), DmaProgress::Done(Ok(())));
        self.interrupt(ports);
    }

    fn put(&mut self, ports: &Ports, instruction: &Instruction, code: u8, detail: u16, wrong_phase: bool) {
        let depth = self.register(0x410);
        let count = self.completed;
        assert!(count.wrapping_sub(self.taken) < depth, "a completion that was not taken is written over");
        let Times { t1, t2, arrival, next } = (self.times)(instruction);
        let completion = Completion {
            tag: instruction.tag,
            status: Status::from_code(code),
            detail,
            issued: self.clock & ((1 << 48) - 1),
            t1,
            t2,
            arrival,
            bytes: instruction.bytes,
            phase: (count / depth).is_multiple_of(2) != wrong_phase,
        };
        self.clock += next;
        self.completed = count.wrapping_add(1);
        let at = self.base(0x408) + 32 * u64::from(count & (depth - 1));
        assert_eq!(ports.0.write(DmaTag(0), Iova(at), &completion.encode()), DmaProgress::Done(Ok(())));
    }

    fn interrupt(&mut self, ports: &Ports) {
        if self.armed.is_some_and(|seen| self.completed.wrapping_sub(seen).cast_signed() > 0) {
            self.armed = None;
            ports.1.raise(0);
        }
    }
}

impl Endpoint for Fake {
    fn layout(&self) -> Layout {
        let bar = |bytes| Some(BarLayout { bytes, is_64_bit: true, prefetchable: false });
        Layout { bars: [bar(0x1_0000), None, None, None, bar(0x1000), None], dma_bits: 48 }
    }

    fn attach(&self, dma: Arc<dyn DmaPort>, interrupts: Arc<dyn InterruptPort>) {
        *self.ports.lock().unwrap() = Some((dma, interrupts));
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) {
        let state = self.state();
        if state.is_gone {
            return data.fill(0xff);
        }
        data.copy_from_slice(&state.config[usize::from(offset)..][..data.len()]);
    }

    fn config_write(&self, offset: u16, data: &[u8]) {
        let mut state = self.state();
        assert!(!(AER..AER + 0x14).contains(&usize::from(offset)), "errors of PCIe are cleared");
        if offset == 4 && data[0] & 4 != 0 && state.config[4] & 4 == 0 {
            let runs = state.register(0x100) != 0 || state.register(0x414) != 0 || state.hanging.is_some();
            assert!(!runs, "a sequencer that runs is let onto the bus");
        }
        state.config[usize::from(offset)..][..data.len()].copy_from_slice(data);
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        let mut state = self.state();
        if state.is_gone {
            return data.fill(0xff);
        }
        if bar.index() == 4 {
            return data.copy_from_slice(&state.msix[offset as usize..][..data.len()]);
        }
        assert_eq!(data.len(), 4, "registers are 32 bits wide");
        state.reads += 1;
        let value = state.read(offset as u32);
        data.copy_from_slice(&value.to_le_bytes());
    }

    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) {
        let ports = self.ports();
        let mut state = self.state();
        if state.is_gone {
            return;
        }
        if bar.index() == 4 {
            return state.msix[offset as usize..][..data.len()].copy_from_slice(data);
        }
        state.writes += 1;
        let value = u32::from_le_bytes(data.try_into().expect("registers are 32 bits wide"));
        state.write(&ports, offset as u32, value);
    }

    fn reset(&self, _kind: ResetKind) {
        let mut state = self.state();
        let aer = state.config[AER..AER + 0x14].to_vec();
        state.config = config(state.ids);
        // These registers are sticky.
        state.config[AER..AER + 0x14].copy_from_slice(&aer);
        for offset in (0x400..0x430).step_by(4).chain([0x100, 0x108]) {
            state.registers.remove(&(BLOCK + offset));
        }
        state.hanging = None;
        state.resets += 1;
    }

    fn dma_complete(&self, _tag: DmaTag, _result: std::result::Result<&[u8], DmaFault>) {}
}

/// Vendor and device of a mock card.
const IDS: (u16, u16) = (0x1234, 0xf9a0);

/// Configuration space of a function with an MSI-X capability of 8 vectors in BAR4.
fn config((vendor, device): (u16, u16)) -> Vec<u8> {
    let mut config = vec![0; 4096];
    let mut put = |offset: usize, bytes: &[u8]| config[offset..offset + bytes.len()].copy_from_slice(bytes);
    put(0x00, &vendor.to_le_bytes());
    put(0x02, &device.to_le_bytes());
    put(0x06, &[0x10]);
    put(0x08, &[1, 0, 0, 0x12]);
    put(0x34, &[0x40]);
    put(0x40, &[0x11, 0, 7, 0, 4, 0, 0, 0, 4, 8, 0, 0]);
    config
}

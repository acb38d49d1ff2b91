//! An endpoint that looks like a card to the bus and answers as scripted.
//!
//! Its queue is where the host says: in host memory, or in a memory of the card that a BAR shows ([`RING_BAR`]). What is
//! written there arrives when the host reads there, and not before.
#![forbid(unsafe_code)]

mod endpoint;
mod sequencer;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard};

use cmdseq::{Instruction, Operation};
use fpga_hal::endpoint::{DmaPort, Endpoint, InterruptPort};
use fpga_hal::{Domain, Function, in_process};

/// Where the fake has its sequencer's block.
pub const BLOCK: u32 = 0x1000;
/// Bytes of card memory.
pub const MEMORY_BYTES: usize = 4 << 20;
/// Bytes that addresses must be a multiple of.
pub const ALIGN: usize = 64;
/// The BAR that shows the memory for rings, and where the sequencer has that memory: no address of the host is so high.
pub const RING_BAR: u8 = 2;
/// See [`RING_BAR`].
pub const RING_ADDRESS: u64 = 1 << 62;
/// Bytes of the memory for rings.
const RING_BYTES: usize = 128 << 10;
/// Where configuration space has the capability of advanced error reporting, if there is one.
const AER: usize = 0x100;
/// From here on, configuration space has only what tests put there.
const PLANTED: usize = 0x50;
/// Counts what fakes note the order of.
static STEPS: AtomicU64 = AtomicU64::new(0);

/// What the fake does instead of completing an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
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
pub struct Times {
    /// All beats counted out.
    pub t1: u64,
    /// Complete.
    pub t2: u64,
    /// The last byte counted in.
    pub arrival: u64,
    /// When the next is issued.
    pub next: u64,
}

impl Default for Times {
    fn default() -> Self {
        Times { t1: 10, t2: 20, arrival: 15, next: 100 }
    }
}

/// The card.
pub struct Fake {
    state: Mutex<State>,
    ports: Mutex<Option<Ports>>,
}

type Ports = (Arc<dyn DmaPort>, Arc<dyn InterruptPort>);

/// What the card has and does.
pub struct State {
    config: Vec<u8>,
    /// Vendor and device.
    ids: (u16, u16),
    msix: Vec<u8>,
    /// Words of BAR0 that read as they stand.
    pub registers: BTreeMap<u32, u32>,
    /// Words of BAR0 that read as given here, whatever they hold.
    pub forced: BTreeMap<u32, u32>,
    /// By count of the instruction since the queue was enabled.
    pub script: BTreeMap<u32, Reply>,
    /// What each instruction takes.
    pub times: Box<dyn FnMut(&Instruction) -> Times + Send>,
    /// Card memory.
    pub memory: Vec<u8>,
    /// The memory for rings, and what is on its way to it.
    ring_memory: Vec<u8>,
    posted: Vec<(usize, [u8; 4])>,
    /// Operations run, in order.
    pub ran: Vec<Operation>,
    /// Whether all reads are all-ones.
    pub is_gone: bool,
    /// Reads of registers after which it is gone.
    vanishes_after: Option<u32>,
    reads: u32,
    writes: u32,
    ring_reads: u32,
    ring_writes: u32,
    /// How often the function was reset.
    pub resets: u32,
    /// How often the interrupt was armed.
    pub arms: u32,
    /// Steps of all fakes: when this one was told to abort, and when it was first asked for its status after that.
    pub aborted_at: Option<u64>,
    /// See [`aborted_at`](State::aborted_at).
    pub asked_at: Option<u64>,
    /// Whether ERROR was read since a bit of it was set.
    is_error_seen: bool,
    tail: u32,
    fetched: u32,
    completed: u32,
    taken: u32,
    armed: Option<u32>,
    hanging: Option<(Instruction, Reply)>,
    /// Cycles at which the next instruction is issued.
    pub clock: u64,
}

impl Fake {
    /// Node `node` of `nodes`, with rings of up to `depth` entries.
    pub fn node(node: u32, nodes: u32, depth: u32) -> Arc<Fake> {
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
            // Rings in host memory or in card memory, as the host likes, and resident programs; a model.
            (0x02c, 0x4_0103),
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
            // No memory of a card is zeroed.
            ring_memory: vec![0xa5; RING_BYTES],
            posted: Vec::new(),
            ran: Vec::new(),
            is_gone: false,
            vanishes_after: None,
            reads: 0,
            writes: 0,
            ring_reads: 0,
            ring_writes: 0,
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
    pub fn new(depth: u32) -> Arc<Fake> {
        Fake::node(0, 1, depth)
    }

    /// Attaches it to a bus of its own.
    ///
    /// # Panics
    /// If the bus refuses it.
    pub fn function(self: &Arc<Self>) -> Function {
        self.try_function().expect("a function")
    }

    /// Attaches it to a bus of its own.
    ///
    /// # Errors
    /// The bus's.
    pub fn try_function(self: &Arc<Self>) -> fpga_hal::Result<Function> {
        in_process::attach(Arc::clone(self) as Arc<dyn Endpoint>, &Domain::in_process(), "fake")
    }

    /// What it has and does; it stands still as long as this is held.
    ///
    /// # Panics
    /// If the card has panicked.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("a card that has not panicked")
    }

    /// Answers instruction `count` with `reply`.
    pub fn plant(&self, count: u32, reply: Reply) {
        self.state().script.insert(count, reply);
    }

    /// Gives a word of BAR0 this value.
    pub fn set(&self, offset: u32, value: u32) {
        self.state().registers.insert(offset, value);
    }

    /// Has the function be of this vendor and device.
    pub fn identify(&self, vendor: u16, device: u16) {
        self.state().ids = (vendor, device);
    }

    /// Has the sequencer run what nobody of this process has started, as one does that was not reset.
    pub fn run_what_was_left(&self, reply: Reply) {
        self.set(BLOCK + 0x100, 1);
        self.set(BLOCK + 0x414, 1);
        self.state().hanging = Some((Instruction::nop(), reply));
    }

    /// Has nothing to run, and waits for more.
    pub fn rest(&self) {
        self.state().hanging = None;
    }

    /// Reads and writes of registers since the last call.
    pub fn counts(&self) -> (u32, u32) {
        let mut state = self.state();
        (std::mem::take(&mut state.reads), std::mem::take(&mut state.writes))
    }

    /// Reads and writes of the memory for rings since the last call.
    pub fn ring_counts(&self) -> (u32, u32) {
        let mut state = self.state();
        (std::mem::take(&mut state.ring_reads), std::mem::take(&mut state.ring_writes))
    }

    /// Ends the instruction that hangs.
    ///
    /// # Panics
    /// If none hangs.
    pub fn release(&self) {
        let ports = self.ports();
        let mut state = self.state();
        let Some((instruction, _)) = state.hanging.take() else { panic!("nothing hangs") };
        state.complete(&ports, &instruction, 0, 0);
        state.run(&ports);
    }

    /// Has a register of the block read `value`, whatever it holds.
    pub fn force(&self, offset: u32, value: u32) {
        self.state().forced.insert(BLOCK + offset, value);
    }

    /// Stops by itself, with these bits in the error register.
    pub fn halt(&self, bits: u32) {
        let mut state = self.state();
        state.halt(bits);
    }

    /// Is gone after this number of further reads of registers.
    pub fn vanish_after(&self, reads: u32) {
        self.state().vanishes_after = Some(reads);
    }

    /// Puts a word into configuration space, after the capability of MSI-X.
    pub fn set_config(&self, offset: u16, word: u32) {
        self.state().config[usize::from(offset)..][..4].copy_from_slice(&word.to_le_bytes());
    }

    /// Gives the function advanced error reporting, which has seen these errors.
    pub fn report(&self, uncorrectable: u32, correctable: u32) {
        let mut state = self.state();
        for (offset, word) in [(0, 0x0001_0001), (4, uncorrectable), (16, correctable)] {
            state.config[AER + offset..][..4].copy_from_slice(&u32::to_le_bytes(word));
        }
    }

    /// Raises the interrupt for nothing.
    pub fn raise(&self) {
        self.ports().1.raise(0);
    }

    fn ports(&self) -> Ports {
        self.ports.lock().expect("no panic").clone().expect("a card on a bus")
    }
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

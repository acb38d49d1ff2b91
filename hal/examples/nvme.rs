//! Drives an NVMe controller: identifies it, makes a queue pair with interrupt vectors of its own, writes 64 MiB at random
//! offsets and reads them back. Everything on the namespace may be overwritten: made for QEMU's `nvme`.
//!
//! ```text
//! cargo run -p fpga-hal --example nvme -- ADDRESS [SEED]
//! ```
//!
//! For each block it prints `block OFFSET BYTES HASH` (FNV-1a, 64 bits), so that who holds the medium can compare.
//! Registers, commands and structures: NVM Express Base Specification 1.4, sections 3.1, 4.2 to 4.6, 5 and 6.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fpga_hal::memory::barrier;
use fpga_hal::{BarIndex, DmaBuffer, Domain, Function, Interrupt, PciAddress, Window, vfio};

type Outcome<T> = Result<T, Box<dyn Error>>;

const CAPABILITIES: u64 = 0x00;
const VERSION: u64 = 0x08;
const CONFIGURATION: u64 = 0x14;
const STATUS: u64 = 0x1c;
const ADMIN_QUEUE_SIZES: u64 = 0x24;
const ADMIN_SUBMISSION_BASE: u64 = 0x28;
const ADMIN_COMPLETION_BASE: u64 = 0x30;
const DOORBELLS: u64 = 0x1000;

/// Controller configuration: enabled, pages of 4 KiB, submission entries of 2^6 and completion entries of 2^4 bytes.
const ENABLE: u32 = 1 | 6 << 16 | 4 << 20;
const SHUT_DOWN: u32 = 1 << 14;
const READY: u32 = 1;
const FATAL: u32 = 2;
const SHUTDOWN_MASK: u32 = 3 << 2;
const SHUTDOWN_COMPLETE: u32 = 2 << 2;

const CREATE_SUBMISSION_QUEUE: u8 = 0x01;
const CREATE_COMPLETION_QUEUE: u8 = 0x05;
const IDENTIFY: u8 = 0x06;
const SET_FEATURES: u8 = 0x09;
const FLUSH: u8 = 0x00;
const WRITE: u8 = 0x01;
const READ: u8 = 0x02;

const PAGE: usize = 4096;
/// Entries of a queue: 64-byte commands in one page.
const DEPTH: u16 = (PAGE / 64) as u16;
/// Bytes of one command.
const BLOCK: usize = 128 << 10;
/// Bytes written and read back.
const TOTAL: usize = 64 << 20;
/// Commands that are out at a time.
const SLOTS: usize = 8;
const NAMESPACE: u32 = 1;
const BOUND: Duration = Duration::from_secs(30);

/// One command of 64 bytes.
#[derive(Default)]
struct Command {
    opcode: u8,
    namespace: u32,
    /// Physical region pages: addresses of the data, or of the list of its pages.
    regions: [u64; 2],
    /// Double words 10 to 12.
    words: [u32; 3],
}

impl Command {
    fn encode(&self, id: u16) -> [u8; 64] {
        let mut entry = [0; 64];
        entry[0] = self.opcode;
        entry[2..4].copy_from_slice(&id.to_le_bytes());
        entry[4..8].copy_from_slice(&self.namespace.to_le_bytes());
        for (index, region) in self.regions.iter().enumerate() {
            entry[24 + 8 * index..][..8].copy_from_slice(&region.to_le_bytes());
        }
        for (index, word) in self.words.iter().enumerate() {
            entry[40 + 4 * index..][..4].copy_from_slice(&word.to_le_bytes());
        }
        entry
    }
}

/// A submission queue, its completion queue, and the interrupt of the latter.
struct Queue {
    number: u16,
    submissions: Arc<DmaBuffer>,
    completions: Arc<DmaBuffer>,
    interrupt: Interrupt,
    tail: u16,
    head: u16,
    /// Value of the phase bit in new completions.
    phase: u64,
    interrupts: u64,
}

impl Queue {
    fn new(number: u16, domain: &Domain, interrupt: Interrupt) -> Outcome<Self> {
        let (submissions, completions) = (domain.allocate(PAGE, PAGE)?, domain.allocate(PAGE, PAGE)?);
        Ok(Queue { number, submissions, completions, interrupt, tail: 0, head: 0, phase: 1, interrupts: 0 })
    }
}

/// The controller's registers.
struct Controller {
    function: Function,
    registers: Window,
    /// Bytes from one doorbell to the next.
    stride: u64,
}

impl Controller {
    /// Opens the controller of `address` and looks whether this program can drive it.
    fn open(address: PciAddress, domain: &Domain) -> Outcome<Self> {
        let function = vfio::open(address, domain)?;
        let identity = function.identity();
        if identity.class != 0x01_0802 {
            return Err(format!("{identity} is no NVMe controller").into());
        }
        let registers = function.window(BarIndex::new(0).ok_or("no BAR0")?)?;
        // NVM Express allows halves, and the window may be trapped.
        let half = |offset| registers.read_u32(CAPABILITIES + offset).map(u64::from);
        let capabilities = half(0)? | half(4)? << 32;
        if capabilities >> 48 & 0xf != 0 {
            return Err(format!("the controller wants pages of more than 4 KiB ({capabilities:#x})").into());
        }
        if (capabilities & 0xffff) + 1 < u64::from(DEPTH) {
            return Err(format!("the controller has no queues of {DEPTH} entries ({capabilities:#x})").into());
        }
        let version = registers.read_u32(VERSION)?;
        println!("{identity}, NVMe {}.{}.{}", version >> 16, version >> 8 & 0xff, version & 0xff);
        Ok(Controller { function, registers, stride: 4 << (capabilities >> 32 & 0xf) })
    }

    /// Resets the controller and enables it with `admin` as its admin queue.
    fn enable(&self, admin: &Queue) -> Outcome<()> {
        self.registers.write_u32(CONFIGURATION, 0)?;
        self.wait_status("to be disabled", READY, 0)?;
        self.registers.write_u32(ADMIN_QUEUE_SIZES, u32::from(DEPTH - 1) << 16 | u32::from(DEPTH - 1))?;
        for (base, ring) in [(ADMIN_SUBMISSION_BASE, &admin.submissions), (ADMIN_COMPLETION_BASE, &admin.completions)] {
            self.registers.write_u32(base, ring.iova().0 as u32)?;
            self.registers.write_u32(base + 4, (ring.iova().0 >> 32) as u32)?;
        }
        self.registers.write_u32(CONFIGURATION, ENABLE)?;
        self.wait_status("to be ready", READY, READY)
    }

    fn shut_down(&self) -> Outcome<()> {
        self.registers.write_u32(CONFIGURATION, ENABLE | SHUT_DOWN)?;
        self.wait_status("to shut down", SHUTDOWN_MASK, SHUTDOWN_COMPLETE)?;
        self.registers.write_u32(CONFIGURATION, 0)?;
        self.wait_status("to be disabled", READY, 0)
    }

    /// Waits until the bits of `mask` in the status register are `value`.
    fn wait_status(&self, what: &str, mask: u32, value: u32) -> Outcome<()> {
        let deadline = Instant::now() + BOUND;
        loop {
            let status = self.function.check_alive(self.registers.read_u32(STATUS)?)?;
            if status & FATAL != 0 {
                return Err(format!("the controller reports a fatal error ({status:#x})").into());
            }
            if status & mask == value {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("waited {BOUND:?} for the controller {what}; its status is {status:#x}").into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Puts a command into a queue, and rings. The caller sees to it that there is room.
    fn submit(&self, queue: &mut Queue, command: &Command, id: u16) -> Outcome<()> {
        queue.submissions.write(usize::from(queue.tail) * 64, &command.encode(id))?;
        queue.tail = (queue.tail + 1) % DEPTH;
        barrier::memory_before_mmio();
        Ok(self.registers.write_u32(DOORBELLS + 2 * u64::from(queue.number) * self.stride, queue.tail.into())?)
    }

    /// Sleeps until a completion is there, and returns its command's id. Fails if the command has.
    fn complete(&self, queue: &mut Queue) -> Outcome<u16> {
        let deadline = Instant::now() + BOUND;
        let word = loop {
            let word = queue.completions.load_acquire(usize::from(queue.head) * 16 + 8)?;
            if word >> 48 & 1 == queue.phase {
                break word;
            }
            if !queue.interrupt.wait(deadline.saturating_duration_since(Instant::now()))? {
                self.function.check_alive(self.registers.read_u32(STATUS)?)?;
                return Err(format!("no interrupt of queue {} in {BOUND:?}", queue.number).into());
            }
            queue.interrupts += 1;
        };
        // What was raised while nobody slept counts as well.
        queue.interrupts += queue.interrupt.drain()?;
        queue.head = (queue.head + 1) % DEPTH;
        if queue.head == 0 {
            queue.phase ^= 1;
        }
        let doorbell = DOORBELLS + (2 * u64::from(queue.number) + 1) * self.stride;
        self.registers.write_u32(doorbell, queue.head.into())?;
        let (id, status) = ((word >> 32) as u16, (word >> 49) as u16);
        if status != 0 {
            return Err(format!("command {id} of queue {} failed with status {status:#x}", queue.number).into());
        }
        Ok(id)
    }

    /// Runs one command by itself, and insists on its interrupt.
    fn run(&self, queue: &mut Queue, command: &Command) -> Outcome<()> {
        queue.interrupt.drain()?;
        self.submit(queue, command, 0)?;
        if !queue.interrupt.wait(BOUND)? {
            self.function.check_alive(self.registers.read_u32(STATUS)?)?;
            return Err(format!("no interrupt of queue {} in {BOUND:?}", queue.number).into());
        }
        queue.interrupts += 1;
        self.complete(queue).map(drop)
    }

    /// Says what controller and namespace are, and returns bytes and number of the namespace's logical blocks.
    fn identify(&self, admin: &mut Queue, domain: &Domain) -> Outcome<(usize, u64)> {
        let page = domain.allocate(PAGE, PAGE)?;
        let mut data = [0; PAGE];
        let regions = [page.iova().0, 0];
        self.run(admin, &Command { opcode: IDENTIFY, regions, words: [1, 0, 0], ..Command::default() })?;
        page.read(0, &mut data)?;
        let text = |range: std::ops::Range<usize>| String::from_utf8_lossy(&data[range]).trim().to_owned();
        println!("controller {:?}, serial number {:?}", text(24..64), text(4..24));
        let most = data[77];
        if most != 0 && (PAGE << most.min(20)) < BLOCK {
            return Err(format!("the controller transfers at most 2^{most} pages at once").into());
        }
        let command = Command { opcode: IDENTIFY, namespace: NAMESPACE, regions, ..Command::default() };
        self.run(admin, &command)?;
        page.read(0, &mut data)?;
        let blocks = u64::from_le_bytes(data[..8].try_into()?);
        let format = 128 + 4 * usize::from(data[26] & 0xf);
        let shift = data[format + 2];
        if !(9..=12).contains(&shift) {
            return Err(format!("logical blocks of 2^{shift} bytes").into());
        }
        println!("namespace of {blocks} blocks of {} bytes", 1 << shift);
        Ok((1 << shift, blocks))
    }

    /// Makes queue pair 1, whose completions raise interrupt vector 1.
    fn create_pair(&self, admin: &mut Queue, pair: &Queue) -> Outcome<()> {
        let size = u32::from(DEPTH - 1) << 16 | u32::from(pair.number);
        let number = u32::from(pair.number);
        let (contiguous, interrupt) = (1, 2);
        // Feature 7: how many queues of each kind, less one.
        self.run(admin, &Command { opcode: SET_FEATURES, words: [7, 0, 0], ..Command::default() })?;
        let (regions, words) = ([pair.completions.iova().0, 0], [size, number << 16 | interrupt | contiguous, 0]);
        self.run(admin, &Command { opcode: CREATE_COMPLETION_QUEUE, regions, words, ..Command::default() })?;
        let (regions, words) = ([pair.submissions.iova().0, 0], [size, number << 16 | contiguous, 0]);
        self.run(admin, &Command { opcode: CREATE_SUBMISSION_QUEUE, regions, words, ..Command::default() })
    }
}

/// Memory of one command: data, and the list of its pages.
struct Slot {
    data: Arc<DmaBuffer>,
    list: Arc<DmaBuffer>,
}

impl Slot {
    fn new(domain: &Domain) -> Outcome<Self> {
        let (data, list) = (domain.allocate(BLOCK, PAGE)?, domain.allocate(PAGE, PAGE)?);
        // The command itself names the first page.
        for page in 1..BLOCK / PAGE {
            list.write((page - 1) * 8, &(data.iova().0 + (page * PAGE) as u64).to_le_bytes())?;
        }
        Ok(Slot { data, list })
    }

    fn command(&self, opcode: u8, offset: u64, sector: usize) -> Command {
        let first = offset / sector as u64;
        let words = [first as u32, (first >> 32) as u32, (BLOCK / sector - 1) as u32];
        Command { opcode, namespace: NAMESPACE, regions: [self.data.iova().0, self.list.iova().0], words }
    }
}

/// Writes or reads all of `offsets`, several commands at a time. `prepare` fills the memory of a command, `finish` looks
/// at it; both are given the offset.
fn transfer(
    (controller, pair): (&Controller, &mut Queue),
    slots: &[Slot],
    (opcode, sector): (u8, usize),
    offsets: &[u64],
    prepare: impl Fn(u64, &DmaBuffer) -> Outcome<()>,
    mut finish: impl FnMut(u64, &DmaBuffer) -> Outcome<()>,
) -> Outcome<()> {
    let mut running = vec![None; slots.len()];
    let mut left = offsets.iter();
    let mut done = 0;
    while done < offsets.len() {
        for (index, (slot, running)) in slots.iter().zip(&mut running).enumerate() {
            if running.is_some() {
                continue;
            }
            let Some(&offset) = left.next() else { break };
            prepare(offset, &slot.data)?;
            controller.submit(pair, &slot.command(opcode, offset, sector), index as u16)?;
            *running = Some(offset);
        }
        // A program that is never idle has to look whether the kernel wants the device back: an unplug waits for it.
        if controller.function.is_removed() {
            return Err(fpga_hal::Error::Removed { source: controller.function.ending() }.into());
        }
        let id = usize::from(controller.complete(pair)?);
        let offset = running.get_mut(id).and_then(Option::take).ok_or("a completion of a command that is not out")?;
        finish(offset, &slots[id].data)?;
        done += 1;
    }
    Ok(())
}

/// One step of a generator of random numbers (splitmix64).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Where blocks go: one anywhere in each of equal parts of the medium, so that none hits another, in random order.
fn random_offsets(mut seed: u64, medium: u64, sector: u64) -> Outcome<Vec<u64>> {
    let count = (TOTAL / BLOCK) as u64;
    let part = medium / count / sector * sector;
    let places = part.checked_sub(BLOCK as u64).ok_or("the namespace is too small")? / sector + 1;
    let mut offsets: Vec<u64> = (0..count).map(|index| index * part + random(&mut seed) % places * sector).collect();
    for index in (1..offsets.len()).rev() {
        offsets.swap(index, (random(&mut seed) % (index as u64 + 1)) as usize);
    }
    Ok(offsets)
}

/// What is written at `offset`.
fn block(seed: u64, offset: u64) -> Vec<u8> {
    let mut state = seed ^ offset;
    (0..BLOCK / 8).flat_map(|_| random(&mut state).to_le_bytes()).collect()
}

fn fnv1a(data: &[u8]) -> u64 {
    data.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

fn run() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().ok_or("usage: nvme ADDRESS [SEED]")?.parse()?;
    let seed = arguments.next().as_deref().unwrap_or("1").parse()?;
    let domain = Domain::vfio()?;
    let controller = Controller::open(address, &domain)?;
    let mut interrupts = controller.function.enable_interrupts(2)?.into_iter();
    let (Some(first), Some(second)) = (interrupts.next(), interrupts.next()) else {
        return Err("not two interrupts".into());
    };
    let (mut admin, mut pair) = (Queue::new(0, &domain, first)?, Queue::new(1, &domain, second)?);
    controller.function.set_bus_master(true)?;
    controller.enable(&admin)?;
    let (sector, blocks) = controller.identify(&mut admin, &domain)?;
    controller.create_pair(&mut admin, &pair)?;

    let offsets = random_offsets(seed, blocks.saturating_mul(sector as u64), sector as u64)?;
    let slots = (0..SLOTS).map(|_| Slot::new(&domain)).collect::<Outcome<Vec<_>>>()?;
    let begin = Instant::now();
    let fill = |offset: u64, data: &DmaBuffer| Ok(data.write(0, &block(seed, offset))?);
    transfer((&controller, &mut pair), &slots, (WRITE, sector), &offsets, fill, |_, _| Ok(()))?;
    controller.run(&mut pair, &Command { opcode: FLUSH, namespace: NAMESPACE, ..Command::default() })?;
    let mut seen = vec![0; BLOCK];
    let spoil = |_: u64, data: &DmaBuffer| Ok(data.fill(0, BLOCK, 0xee)?);
    transfer((&controller, &mut pair), &slots, (READ, sector), &offsets, spoil, |offset, data| {
        data.read(0, &mut seen)?;
        if seen != block(seed, offset) {
            return Err(format!("the block at {offset:#x} is not what was written").into());
        }
        println!("block {offset} {BLOCK} {:016x}", fnv1a(&seen));
        Ok(())
    })?;
    println!("{} MiB written and read back in {:.1} s", TOTAL >> 20, begin.elapsed().as_secs_f64());
    controller.shut_down()?;
    println!("interrupts: {} of the admin queue, {} of the pair", admin.interrupts, pair.interrupts);
    Ok(())
}

fn main() -> ExitCode {
    let Err(error) = run() else { return ExitCode::SUCCESS };
    eprint!("nvme: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        eprint!(": {error}");
        cause = error.source();
    }
    eprintln!();
    ExitCode::FAILURE
}

//! Drives QEMU's educational device, `edu`: registers, interrupts and DMA of a card that nobody here wrote.
//!
//! ```text
//! cargo run -p fpga-hal --example edu -- ADDRESS msi|intx ROUNDS      everything it can do; DMA out and back ROUNDS times
//! cargo run -p fpga-hal --example edu -- ADDRESS msi|intx unmapped    one DMA to an address that is not mapped
//! ```
//!
//! Each of its transfers takes a tenth of a second, whatever its size. Registers: QEMU's page "EDU device" (docs/specs).

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fpga_hal::{BarIndex, DmaBuffer, Domain, Function, Interrupt, InterruptKind, PciAddress, Window, vfio};

type Outcome<T> = Result<T, Box<dyn Error>>;

const IDENTIFICATION: u64 = 0x00;
const INVERTED: u64 = 0x04;
const FACTORIAL: u64 = 0x08;
const STATUS: u64 = 0x20;
const INTERRUPT_STATUS: u64 = 0x24;
const INTERRUPT_ACKNOWLEDGE: u64 = 0x64;
const DMA_SOURCE: u64 = 0x80;
const DMA_DESTINATION: u64 = 0x88;
const DMA_COUNT: u64 = 0x90;
const DMA_COMMAND: u64 = 0x98;

/// Bit of [`STATUS`]: raise an interrupt when the factorial is there.
const STATUS_INTERRUPT: u32 = 0x80;
const CAUSE_FACTORIAL: u32 = 0x001;
const CAUSE_DMA: u32 = 0x100;
/// Bits of [`DMA_COMMAND`].
const DMA_START: u32 = 1;
const DMA_TO_HOST: u32 = 2;
const DMA_INTERRUPT: u32 = 4;

/// Where its own buffer of 4096 bytes lies, as it sees it.
const BUFFER: u64 = 0x4_0000;
/// Address bits it masters.
const ADDRESS_BITS: u8 = 28;
const BLOCK: usize = 2048;
/// The longest any step may take; a busy emulator is slow.
const BOUND: Duration = Duration::from_secs(20);

/// The device, opened.
struct Edu {
    function: Function,
    registers: Window,
    interrupt: Interrupt,
    interrupts: u64,
}

impl Edu {
    fn open(address: PciAddress, domain: &Domain, kind: InterruptKind) -> Outcome<Self> {
        // On the root complex it has no reset. Its engine moves nothing that it was not told to.
        let options = vfio::Options { without_reset: true, ..vfio::Options::default() };
        let function = vfio::open_with(address, domain, &options)?;
        let identity = function.identity();
        if (identity.vendor, identity.device) != (0x1234, 0x11e8) {
            return Err(format!("{identity} is no edu device").into());
        }
        function.limit_dma_bits(ADDRESS_BITS);
        let registers = function.window(BarIndex::new(0).ok_or("no BAR0")?)?;
        let interrupt = function.enable_interrupts_of(kind, 1)?.pop().ok_or("no interrupt")?;
        function.set_bus_master(true)?;
        Ok(Edu { function, registers, interrupt, interrupts: 0 })
    }

    /// Sleeps until the device says that `cause` has happened, and acknowledges it.
    fn wait_for(&mut self, cause: u32) -> Outcome<()> {
        let deadline = Instant::now() + BOUND;
        loop {
            let raised = self.interrupt.wait(deadline.saturating_duration_since(Instant::now()))?;
            let status = self.function.check_alive(self.registers.read_u32(INTERRUPT_STATUS)?)?;
            if !raised {
                return Err(format!("no interrupt {cause:#x} in {BOUND:?}; the status is {status:#x}").into());
            }
            self.interrupts += 1;
            self.registers.write_u32(INTERRUPT_ACKNOWLEDGE, status)?;
            // A level interrupt stays masked until its cause is gone and somebody says so.
            self.function.unmask_intx()?;
            if status & cause != 0 {
                return Ok(());
            }
        }
    }

    /// Starts one transfer of [`BLOCK`] bytes and waits for it.
    fn transfer(&mut self, source: u64, destination: u64, direction: u32) -> Outcome<()> {
        for (register, value) in [(DMA_SOURCE, source), (DMA_DESTINATION, destination), (DMA_COUNT, BLOCK as u64)] {
            self.registers.write_u32(register, u32::try_from(value)?)?;
        }
        self.registers.write_u32(DMA_COMMAND, DMA_START | DMA_INTERRUPT | direction)?;
        self.wait_for(CAUSE_DMA)
    }

    fn check_registers(&mut self) -> Outcome<()> {
        let identification = self.registers.read_u32(IDENTIFICATION)?;
        if identification & 0xff == 0xff || identification & 0xffff != 0x00ed {
            return Err(format!("identification {identification:#010x} does not end in 00ed").into());
        }
        println!("identification {identification:#010x}");
        for value in [0, 1, 0x1234_5678, 0x8000_0000, u32::MAX] {
            self.registers.write_u32(INVERTED, value)?;
            let read = self.registers.read_u32(INVERTED)?;
            if read != !value {
                return Err(format!("{value:#x} came back as {read:#x}, not inverted").into());
            }
        }
        println!("inverted register: 5 values");
        Ok(())
    }

    fn check_factorial(&mut self) -> Outcome<()> {
        self.registers.write_u32(STATUS, STATUS_INTERRUPT)?;
        for number in [0u32, 1, 5, 12, 13, 33] {
            self.registers.write_u32(FACTORIAL, number)?;
            self.wait_for(CAUSE_FACTORIAL)?;
            let found = self.registers.read_u32(FACTORIAL)?;
            let right = (1..=number).fold(1u32, u32::wrapping_mul);
            if found != right {
                return Err(format!("{number}! is {right}, not {found}").into());
            }
        }
        self.registers.write_u32(STATUS, 0)?;
        println!("factorials by interrupt: 6");
        Ok(())
    }

    /// Host to device and back, every block another one, at other places.
    fn check_dma(&mut self, buffer: &Arc<DmaBuffer>, rounds: u64) -> Outcome<()> {
        let iova = buffer.iova().0;
        let mut seen = vec![0; BLOCK];
        for round in 0..rounds {
            let block = pattern(round);
            let there = BUFFER + round % 2 * 1024;
            let (out, back) = ((round * 64 % 2048) as usize, 8192 - BLOCK - (round * 32 % 2048) as usize);
            buffer.fill(0, buffer.len(), 0x55)?;
            buffer.write(out, &block)?;
            self.transfer(iova + out as u64, there, 0)?;
            self.transfer(there, iova + back as u64, DMA_TO_HOST)?;
            buffer.read(back, &mut seen)?;
            if seen != block {
                let at = seen.iter().zip(&block).position(|(seen, sent)| seen != sent).unwrap_or(0);
                return Err(format!("round {round}: byte {at} is {:#x}, not {:#x}", seen[at], block[at]).into());
            }
        }
        println!("DMA of {BLOCK} bytes out and back, bit for bit: {rounds} rounds");
        Ok(())
    }

    /// A DMA to where a buffer was. Who is asked whether it was stopped is the IOMMU.
    fn check_unmapped(&mut self, domain: &Domain) -> Outcome<()> {
        let neighbour = domain.allocate(4096, 4096)?;
        neighbour.fill(0, 4096, 0x77)?;
        let gone = domain.allocate(4096, 4096)?.iova();
        self.transfer(BUFFER, gone.0, DMA_TO_HOST)?;
        let mut seen = vec![0; 4096];
        neighbour.read(0, &mut seen)?;
        if seen.iter().any(|&byte| byte != 0x77) {
            return Err("a neighbour of what was not mapped has changed".into());
        }
        println!("DMA to {gone}, which is not mapped: no memory of ours changed");
        Ok(())
    }
}

/// The block of one round.
fn pattern(round: u64) -> Vec<u8> {
    let mut state = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = (0..BLOCK / 8).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.collect()
}

fn run() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, kind, what] = arguments.as_slice() else {
        return Err("usage: edu ADDRESS msi|intx ROUNDS|unmapped".into());
    };
    let kind = match kind.as_str() {
        "msi" => InterruptKind::Msi,
        "intx" => InterruptKind::Intx,
        _ => return Err(format!("{kind:?} is neither msi nor intx").into()),
    };
    let domain = Domain::vfio()?;
    let mut edu = Edu::open(address.parse()?, &domain, kind)?;
    println!("{}", edu.function.identity());
    if what == "unmapped" {
        return edu.check_unmapped(&domain);
    }
    let rounds = what.parse()?;
    edu.check_registers()?;
    edu.check_factorial()?;
    let buffer = domain.allocate(8192, 4096)?;
    println!("buffer at {}: {}", buffer.iova(), buffer.backing());
    edu.check_dma(&buffer, rounds)?;
    println!("interrupts: {}", edu.interrupts);
    Ok(())
}

fn main() -> ExitCode {
    let Err(error) = run() else { return ExitCode::SUCCESS };
    eprint!("edu: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        eprint!(": {error}");
        cause = error.source();
    }
    eprintln!();
    ExitCode::FAILURE
}

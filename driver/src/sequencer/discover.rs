//! Finding the sequencer on a card, and reading what it can do.

use cmdseq::capability::{SwitchUnits, Timing};
use cmdseq::communicator::{GENERATIONS, INDICES};
use cmdseq::switch::Shape;
use cmdseq::{Capabilities, Topology, instruction};
use fpga_hal::{BarIndex, Function, Window};
use fpga_regs::bits::Features;
use fpga_regs::feature_list::SEQUENCER_GUID;
use fpga_regs::sequencer as registers;

use crate::board::{self, BlockKind, BoardFunction};
use crate::error::{Error, Result};
use crate::feature_list::{self, Place};
use crate::sequencer::block::{ALL_ONES, Block, bus_error, removed_or};

/// Largest alignment accepted: a page.
const ALIGN_MAX: u32 = 4096;
/// Limit of numbers that have 16 bits in an instruction: nodes, ranks, words of a resident program.
const NUMBERED_MAX: u32 = 1 << 16;
/// Fastest clock accepted: 10 GHz.
const CLOCK_KHZ_MAX: u32 = 10_000_000;
/// Largest card memory accepted: 16 TiB, so that no sum of stripes over all nodes overflows.
const MEMORY_MIB_MAX: u32 = 1 << 24;
/// Widest data path accepted.
const BEAT_BYTES_MAX: u32 = 4096;
/// Longest part of an instruction accepted.
const CYCLES_MAX: u32 = 1 << 24;

/// A sequencer's block, and the feature list that leads to it.
#[derive(Debug, Clone)]
pub struct Found {
    /// The BAR of both.
    pub bar: BarIndex,
    /// The BAR, from the list's first header on.
    pub list: Window,
    /// Offset of the block from the list's first header.
    pub offset: u64,
    /// Offset of the list's first header in the BAR.
    pub start: u64,
}

impl Found {
    /// Returns whether the sequencer says that it is a model in software. `None`: no sequencer answers there.
    pub fn is_model(&self) -> Option<bool> {
        let read = |register: u32| self.list.read_u32(self.offset + u64::from(register)).ok();
        let is_there = read(registers::MAGIC)? == registers::MAGIC_VALUE;
        let features = Features::from_bits_retain(read(registers::FEATURES)?);
        is_there.then(|| features.contains(Features::MODEL))
    }
}

/// Finds the sequencer of a function: where its board file has it, or else in its [feature lists](crate::feature_list::places), and in the
/// accelerators' behind the ports.
///
/// The lists are not trusted: every link is checked, and a walk ends after
/// [`HEADERS_MAX`](fpga_regs::feature_list::HEADERS_MAX) headers.
///
/// # Errors
/// [`Error::NoSequencer`], which says what was looked at; [`Error::Removed`] if the card is gone; or what the bus says.
pub fn find_sequencer(function: &Function) -> Result<Found> {
    find_on(function, board::of(function)?)
}

/// As [`find_sequencer`], on a board.
pub(crate) fn find_on(function: &Function, board: &BoardFunction) -> Result<Found> {
    // A card that is gone reads all-ones, which is no list either.
    look_on(function, board).map_err(|error| removed_or(function, error))
}

fn look_on(function: &Function, board: &BoardFunction) -> Result<Found> {
    let name = &function.identity().name;
    if let Some(block) = board.block(BlockKind::Sequencer) {
        // What is there tells whether it is one.
        let window = function.window(block.bar).map_err(|error| bus_error(name, error))?;
        let rest = window.len().saturating_sub(block.offset);
        let list = window.slice(block.offset, rest).map_err(|error| bus_error(name, error))?;
        return Ok(Found { bar: block.bar, list, offset: 0, start: block.offset });
    }
    let none = |looked| Error::NoSequencer { name: name.clone(), looked: board::with_foreign_shell(function, looked) };
    let refused = |error| match error {
        feature_list::Error::List(looked) => none(looked),
        feature_list::Error::Bus(error) => bus_error(name, error),
    };
    let mut looked = Vec::new();
    for reached in feature_list::places_with_accelerators(function, board).map_err(refused)? {
        let Place { bar, offset: start } = reached.place;
        let found = reached.list(function).and_then(|list| {
            let offset = feature_list::find_block(&list, SEQUENCER_GUID, registers::BLOCK_BYTES)?;
            Ok(Found { bar, list, offset, start })
        });
        match found {
            Ok(found) => return Ok(found),
            Err(feature_list::Error::List(why)) => looked.push((bar, start, why)),
            Err(error) => return Err(refused(error)),
        }
    }
    let looked = match looked.as_slice() {
        [(.., why)] => why.clone(),
        several => {
            let each = several.iter().map(|(bar, start, why)| format!("{bar} + {start:#x}: {why}"));
            each.collect::<Vec<_>>().join("; ")
        }
    };
    Err(none(looked))
}

/// The description that a card gives in its registers.
#[derive(Debug, Clone)]
pub(crate) struct Described {
    pub(crate) version: u32,
    pub(crate) features: Features,
    pub(crate) node: u32,
    /// Address bits it masters.
    pub(crate) dma_bits: u8,
    pub(crate) capabilities: Capabilities,
}

/// Reads and checks the description of the card. Its sequencer must be fed in one of the ways `rings`.
pub(crate) fn describe(block: &Block, rings: Features) -> Result<Described> {
    let version = check_version(block)?;
    let check = Checked { block };
    let features = Features::from_bits_retain(check.value(
        "FEATURES",
        registers::FEATURES,
        "a sequencer with rings in host memory, or in card memory",
        |bits| Features::from_bits_retain(bits).intersects(rings),
    )?);
    let nodes = check.up_to("NODES", registers::NODES, NUMBERED_MAX, "1 to 65536")?;
    let node = check.value("NODE", registers::NODE, "below NODES", |node| node < nodes)?;
    let topology = topology(&check, nodes)?;
    let has_programs = features.contains(Features::RESIDENT);
    let resident = |name, offset| if has_programs { check.numbered(name, offset) } else { Ok(0) };
    let eager_bytes = u64::from(check.count("EAGER_BYTES", registers::EAGER_BYTES)?);
    let memory_mib =
        check.up_to("MEMORY_MIB", registers::MEMORY_MIB, MEMORY_MIB_MAX, "1 to 16777216, which is 16 TiB")?;
    let capabilities = Capabilities {
        isa: u32::from(instruction::VERSION),
        clock_khz: check.up_to("CLOCK_KHZ", registers::CLOCK_KHZ, CLOCK_KHZ_MAX, "1 to 10000000")?,
        nodes,
        topology,
        ports: check.numbered("PORTS", registers::PORTS)?,
        memory_bytes: mebibytes(memory_mib),
        memory_channels: check.up_to("MEMORY_CHANNELS", registers::MEMORY_CHANNELS, NUMBERED_MAX, "1 to 65536")?,
        stripe_half_bytes: mebibytes(check.value(
            "STRIPE_MIB",
            registers::STRIPE_MIB,
            "at most MEMORY_MIB",
            |stripe| stripe <= memory_mib,
        )?),
        queue_depth_max: check.value(
            "QUEUE_DEPTH_MAX",
            registers::QUEUE_DEPTH_MAX,
            "a power of two from 2",
            |depth| depth >= 2 && depth.is_power_of_two(),
        )?,
        communicators: check.up_to("COMMUNICATORS", registers::COMMUNICATORS, INDICES, "1 to 32")?,
        communicator_ranks: check.up_to(
            "COMMUNICATOR_RANKS",
            registers::COMMUNICATOR_RANKS,
            NUMBERED_MAX,
            "1 to 65536",
        )?,
        communicator_generations: check
            .value(
                "COMMUNICATOR_GENERATIONS",
                registers::COMMUNICATOR_GENERATIONS,
                "at most as many as an id has room for",
                |generations| generations <= GENERATIONS,
            )?
            .max(1),
        resident_programs: resident("RESIDENT_PROGRAMS", registers::RESIDENT_PROGRAMS)?,
        resident_words: resident("RESIDENT_WORDS", registers::RESIDENT_WORDS)?,
        signals: check.numbered("SIGNALS", registers::SIGNALS)?,
        tables: check.numbered("TABLES", registers::TABLES)?,
        windows: check.numbered("WINDOWS", registers::WINDOWS)?,
        lanes: check.value("LANES", registers::LANES, "at most 256", |lanes| lanes <= 1 << 8)?.max(1),
        address_align: check.value(
            "ADDRESS_ALIGN",
            registers::ADDRESS_ALIGN,
            "a power of two up to 4096",
            |align| align.is_power_of_two() && align <= ALIGN_MAX,
        )?,
        eager_bytes,
        eager_limit: u64::from(check.value("EAGER_LIMIT", registers::EAGER_LIMIT, "at most EAGER_BYTES", |limit| {
            u64::from(limit) <= eager_bytes
        })?),
        operations: u64::from(block.read(registers::OPERATIONS_LO)?)
            | u64::from(block.read(registers::OPERATIONS_HI)?) << 32,
        element_types: block.read(registers::ELEMENT_TYPES)?,
        reductions: block.read(registers::REDUCTIONS)?,
        host_memory: true,
        reductions_extend: features.contains(Features::REDUCTIONS_EXTEND),
        extrapolated: features.contains(Features::EXTRAPOLATED),
        switch: switch_units(&check)?,
        timing: timing(&check)?,
    };
    check.up_to("QUEUES", registers::QUEUES, registers::queue::MAX, "1 to as many as the block has registers for")?;
    Ok(Described { version, features, node, dma_bits: dma_bits(&check)?, capabilities })
}

/// Makes sure that the block is a sequencer's, and that this driver knows its registers and its instructions. Returns the
/// version of the registers.
fn check_version(block: &Block) -> Result<u32> {
    let name = || block.name().to_owned();
    let magic = block.read_present(registers::MAGIC)?;
    if magic != registers::MAGIC_VALUE {
        let looked = format!("the block with its GUID begins with {magic:#010x} and not with FSEQ");
        return Err(Error::NoSequencer { name: name(), looked });
    }
    let version = block.read_present(registers::VERSION)?;
    if version >> 16 != registers::VERSION_VALUE >> 16 {
        let known = registers::VERSION_VALUE;
        return Err(Error::Version { name: name(), what: "version of the registers", found: version, known });
    }
    let isa = block.read(registers::ISA)?;
    let known = u32::from(instruction::VERSION);
    if isa != known {
        return Err(Error::Version { name: name(), what: "version of the instruction word", found: isa, known });
    }
    Ok(version)
}

fn timing(check: &Checked<'_>) -> Result<Timing> {
    let cycles = |name, offset| check.value(name, offset, "at most 16777216 cycles", |count| count <= CYCLES_MAX);
    Ok(Timing {
        dispatch_cycles: cycles("DISPATCH_CYCLES", registers::DISPATCH_CYCLES)?,
        memory_read_cycles: cycles("MEMORY_READ_CYCLES", registers::MEMORY_READ_CYCLES)?,
        handover_cycles: cycles("HANDOVER_CYCLES", registers::HANDOVER_CYCLES)?,
        switch_cycles: cycles("SWITCH_CYCLES", registers::SWITCH_CYCLES)?,
        control_ps: check.count("CONTROL_PS", registers::CONTROL_PS)?,
        data_ps: check.count("DATA_PS", registers::DATA_PS)?,
        acknowledge_ps: check.count("ACKNOWLEDGE_PS", registers::ACKNOWLEDGE_PS)?,
        hop_ps: check.count("HOP_PS", registers::HOP_PS)?,
        link_mbps: check.count("LINK_MBPS", registers::LINK_MBPS)?,
        channel_mbps: check.count("CHANNEL_MBPS", registers::CHANNEL_MBPS)?,
        host_mbps: check.count("HOST_MBPS", registers::HOST_MBPS)?,
        beat_bytes: check.up_to("BEAT_BYTES", registers::BEAT_BYTES, BEAT_BYTES_MAX, "1 to 4096")?,
        reduce_beat_cycles: cycles("REDUCE_BEAT_CYCLES", registers::REDUCE_BEAT_CYCLES)?,
        reduce_unit_cycles: cycles("REDUCE_UNIT_CYCLES", registers::REDUCE_UNIT_CYCLES)?,
    })
}

/// What the switches of the network compute.
fn switch_units(check: &Checked<'_>) -> Result<Option<SwitchUnits>> {
    let expected = "four bits for each of seven collectives";
    let collectives =
        check.value("NETWORK_COLLECTIVES", registers::NETWORK_COLLECTIVES, expected, |bits| bits >> 28 == 0)?;
    if collectives == 0 {
        return Ok(None);
    }
    let cycles = check
        .value("NETWORK_CYCLES", registers::NETWORK_CYCLES, "three counts of cycles", |counts| counts >> 24 == 0)?;
    let count = |first: u32| cycles >> first & 0xff;
    Ok(Some(SwitchUnits {
        collectives,
        reductions: check.block.read(registers::NETWORK_REDUCTIONS)?,
        element_types: check.block.read(registers::NETWORK_ELEMENT_TYPES)?,
        control_cycles: count(0),
        float_cycles: count(8),
        router_cycles: count(16),
        entry_ps: check.count("NETWORK_ENTRY_PS", registers::NETWORK_ENTRY_PS)?,
        phit_ps: check.count("NETWORK_PHIT_PS", registers::NETWORK_PHIT_PS)?,
        input_phits: check.count("NETWORK_FIFO_PHITS", registers::NETWORK_FIFO_PHITS)?,
    }))
}

/// Address bits the card masters.
fn dma_bits(check: &Checked<'_>) -> Result<u8> {
    let is_possible = |bits: u32| bits == 0 || (12..=64).contains(&bits);
    match check.value("DMA_BITS", registers::DMA_BITS, "12 to 64, or 0 for not said", is_possible)? {
        0 => Ok(64),
        bits => Ok(bits as u8),
    }
}

fn topology(check: &Checked<'_>, nodes: u32) -> Result<Topology> {
    let expected =
        "fully connected (1), Dragonfly (2), torus (3), torus of three dimensions (4), or leaf and spine switches (5)";
    let value = check.value("TOPOLOGY", registers::TOPOLOGY, expected, |value| matches!(value & 0xff, 1..=5))?;
    let rows = value >> 16;
    let switched = "a torus of as many cards as NODES, or switches of 8, 16 or 28 ports";
    let (topology, expected) = match value & 0xff {
        1 => (Topology::FullyConnected, "1 to 65536 NODES"),
        2 => (Topology::Dragonfly { groups: rows }, "a Dragonfly whose groups divide NODES"),
        3 => (Topology::Torus { rows }, "a torus whose rows divide NODES"),
        4 => (Topology::Switched(Shape::Torus { sides: [8, 16, 24].map(|first| value >> first & 0xff) }), switched),
        _ => (Topology::Switched(Shape::Fat { processors: nodes, radix: rows }), switched),
    };
    topology.check(nodes).map(|()| topology).map_err(|_| check.block.bad("TOPOLOGY", value, expected))
}

fn mebibytes(value: u32) -> u64 {
    u64::from(value) << 20
}

/// Reads registers and checks their values.
struct Checked<'a> {
    block: &'a Block,
}

impl Checked<'_> {
    fn value(
        &self,
        register: &'static str,
        offset: u32,
        expected: &'static str,
        is_valid: impl FnOnce(u32) -> bool,
    ) -> Result<u32> {
        let value = self.block.read(offset)?;
        if value != ALL_ONES && is_valid(value) { Ok(value) } else { Err(self.block.bad(register, value, expected)) }
    }

    /// A register that is neither 0 nor more than `most`.
    fn up_to(&self, register: &'static str, offset: u32, most: u32, expected: &'static str) -> Result<u32> {
        self.value(register, offset, expected, |value| (1..=most).contains(&value))
    }

    /// A number of things that are numbered by 16 bits.
    fn numbered(&self, register: &'static str, offset: u32) -> Result<u32> {
        self.value(register, offset, "at most 65536", |count| count <= NUMBERED_MAX)
    }

    fn count(&self, register: &'static str, offset: u32) -> Result<u32> {
        self.value(register, offset, "a count", |_| true)
    }
}

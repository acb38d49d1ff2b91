//! The command sequencer's register block: what it is, what it can do, how it is started, and its queues.
//!
//! The block is 4 KiB. Its first 24 bytes are its Device Feature Header (see [`crate::feature_list`]); capabilities
//! follow, then control and status, then one page of queue registers at [`QUEUES_OFFSET`].

use crate::registers;

/// Bytes of the whole block.
pub const BLOCK_BYTES: u32 = 0x1000;
/// Where the queue registers begin.
pub const QUEUES_OFFSET: u32 = 0x400;
/// What [`MAGIC`] reads: the letters FSEQ.
pub const MAGIC_VALUE: u32 = u32::from_le_bytes(*b"FSEQ");
/// Version of this register block, major in the upper half. A host refuses a card of another major version.
pub const VERSION_VALUE: u32 = 0x0001_0007;
/// What must be written to [`ABORT`] to take effect.
pub const ABORT_VALUE: u32 = u32::from_le_bytes(*b"STOP");
/// What [`WAITING_PEER`] reads when the sequencer waits for nobody.
pub const NO_PEER: u32 = u32::MAX;

registers! {
    FEATURE_HEADER_LO = 0x000, ReadOnly, None, "Device Feature Header, bits 31:0.";
    FEATURE_HEADER_HI = 0x004, ReadOnly, None, "Device Feature Header, bits 63:32.";
    GUID_0 = 0x008, ReadOnly, None, "GUID of the sequencer, low 64 bits, bits 31:0.";
    GUID_1 = 0x00c, ReadOnly, None, "GUID of the sequencer, low 64 bits, bits 63:32.";
    GUID_2 = 0x010, ReadOnly, None, "GUID of the sequencer, high 64 bits, bits 31:0.";
    GUID_3 = 0x014, ReadOnly, None, "GUID of the sequencer, high 64 bits, bits 63:32.";
    reserved 0x018..0x020;
    MAGIC = 0x020, ReadOnly, None, "The letters FSEQ, 0x51455346.";
    VERSION = 0x024, ReadOnly, None, "Version of this register block: 31:16 major, 15:0 minor.";
    ISA = 0x028, ReadOnly, None, "Version of the instruction word the sequencer decodes.";
    FEATURES = 0x02c, ReadOnly, None, "What the sequencer has: see the bits of FEATURES.";
    CLOCK_KHZ = 0x030, ReadOnly, None, "Clock of the sequencer and of its counters, in kHz.";
    NODE = 0x034, ReadOnly, None, "Number of this card in the fabric, from 0.";
    NODES = 0x038, ReadOnly, None, "Cards in the fabric.";
    PORTS = 0x03c, ReadOnly, None, "Links to other cards.";
    TOPOLOGY = 0x040, ReadOnly, None, "7:0 kind (1 fully connected, 2 Dragonfly, 3 torus with routers, since version 1.6; 4 torus of three dimensions, 5 leaf and spine switches, since version 1.7); 31:16 groups of a Dragonfly, rows of a torus, ports of a leaf; of kind 4, 15:8, 23:16 and 31:24 are the cards along each dimension.";
    MEMORY_MIB = 0x044, ReadOnly, None, "Card memory in MiB.";
    MEMORY_CHANNELS = 0x048, ReadOnly, None, "Pseudo channels of the card memory; two form one memory I/O.";
    STRIPE_MIB = 0x04c, ReadOnly, None, "K: MiB of half a stripe; a stripe has 2K.";
    QUEUES = 0x050, ReadOnly, None, "Queue pairs.";
    QUEUE_DEPTH_MAX = 0x054, ReadOnly, None, "Most entries of a ring; a power of two.";
    COMMUNICATORS = 0x058, ReadOnly, None, "Entries of the communicator table; entry 0 is fixed and has all cards.";
    COMMUNICATOR_RANKS = 0x05c, ReadOnly, None, "Most ranks of a communicator.";
    RESIDENT_PROGRAMS = 0x060, ReadOnly, None, "Slots for resident programs.";
    RESIDENT_WORDS = 0x064, ReadOnly, None, "Most instructions of a resident program.";
    ADDRESS_ALIGN = 0x068, ReadOnly, None, "Alignment of addresses, in bytes.";
    EAGER_BYTES = 0x06c, ReadOnly, None, "Bytes of the receive buffer of one link: the most that can be sent eagerly.";
    OPERATIONS_LO = 0x070, ReadOnly, None, "Bit n: the sequencer runs operation n.";
    OPERATIONS_HI = 0x074, ReadOnly, None, "Bit n: the sequencer runs operation 32 + n.";
    ELEMENT_TYPES = 0x078, ReadOnly, None, "Bit n: reductions support element type n.";
    REDUCTIONS = 0x07c, ReadOnly, None, "Bit n: the sequencer has reduction n.";
    DISPATCH_CYCLES = 0x080, ReadOnly, None, "Cycles from issue of an instruction until the switch is set.";
    MEMORY_READ_CYCLES = 0x084, ReadOnly, None, "Cycles from a read request until its first beat is at the switch.";
    HANDOVER_CYCLES = 0x088, ReadOnly, None, "Cycles from the end of one instruction to the issue of the next.";
    CONTROL_PS = 0x08c, ReadOnly, None, "Picoseconds of a control signal from switch to switch.";
    DATA_PS = 0x090, ReadOnly, None, "Picoseconds from the last beat counted out to the same beat counted in.";
    ACKNOWLEDGE_PS = 0x094, ReadOnly, None, "Picoseconds from the last beat counted in until its source is notified.";
    LINK_MBPS = 0x098, ReadOnly, None, "Effective rate of one link in one direction, Mb/s.";
    CHANNEL_MBPS = 0x09c, ReadOnly, None, "Rate of one pseudo channel, Mb/s, shared by reads and writes.";
    HOST_MBPS = 0x0a0, ReadOnly, None, "Effective rate of the host link for copies, Mb/s.";
    BEAT_BYTES = 0x0a4, ReadOnly, None, "Bytes of one beat of the data path.";
    DMA_BITS = 0x0a8, ReadOnly, None, "Address bits of the card's DMA: host memory must be below 2^DMA_BITS. 0 before version 1.1, meaning 64.";
    REDUCE_BEAT_CYCLES = 0x0ac, ReadOnly, None, "Cycles from one beat of a fold to the next; in each, one beat of every contribution is read. 0 without reductions. Since version 1.2.";
    REDUCE_UNIT_CYCLES = 0x0b0, ReadOnly, None, "Latency of each reduction unit, in cycles; a fold passes one unit less than it has contributions. Since version 1.2.";
    SIGNALS = 0x0b4, ReadOnly, None, "Number of signals, for put_signal and wait_signal. 0 before version 1.3.";
    TABLES = 0x0b8, ReadOnly, None, "Slots for tables of the vector forms, with COMMUNICATOR_RANKS entries each. 0 before version 1.3.";
    COMMUNICATOR_GENERATIONS = 0x0bc, ReadOnly, None, "Generations of each entry of the communicator table; an id is entry + 32 * generation. 0 before version 1.3, meaning 1 and no operation free.";
    SWITCH_CYCLES = 0x0c0, ReadOnly, None, "Cycles through the switch, one way. 0 before version 1.3, meaning unknown.";
    LANES = 0x0c4, ReadOnly, None, "Lanes, each of which runs one exchange at a time. 0 before version 1.4, meaning 1 and no flag fence.";
    WINDOWS = 0x0c8, ReadOnly, None, "Slots for windows, to which one-sided operations of other cards are limited. 0 before version 1.5, meaning that they reach all card memory and signals, and no operations open and close.";
    HOP_PS = 0x0cc, ReadOnly, None, "Picoseconds that each link after the first adds to CONTROL_PS, DATA_PS and ACKNOWLEDGE_PS, where routers lead over several. 0 without routers, and before version 1.6.";
    NETWORK_COLLECTIVES = 0x0d0, ReadOnly, None, "What the switches of the network compute: four bits each for reduce, allreduce, broadcast, scatter, gather, allgather and reduce_scatter, one for each form: tree, doubling, halving, ring. 0 if they only route, and before version 1.7.";
    NETWORK_REDUCTIONS = 0x0d4, ReadOnly, None, "Bit n: the units of the switches have reduction n. Since version 1.7.";
    NETWORK_ELEMENT_TYPES = 0x0d8, ReadOnly, None, "Bit n: the units of the switches support element type n. Since version 1.7.";
    NETWORK_CYCLES = 0x0dc, ReadOnly, None, "Cycles: 7:0 of the collective control, 15:8 of an aggregation unit on floats, 23:16 through a router. Since version 1.7.";
    NETWORK_ENTRY_PS = 0x0e0, ReadOnly, None, "Picoseconds between the sequencer and its switch. Since version 1.7.";
    NETWORK_PHIT_PS = 0x0e4, ReadOnly, None, "Picoseconds from one phit of 32 bytes that the sequencer gives its switch to the next. 0 if unknown, meaning half a cycle. Since version 1.7.";
    NETWORK_FIFO_PHITS = 0x0e8, ReadOnly, None, "Phits of the switch's FIFO for what the sequencer gives. 0 if unknown. Since version 1.7.";
    reserved 0x0ec..0x100;
    CONTROL = 0x100, ReadWrite, Some(0), "Bit 0 RUN: fetch and run. Clearing it stops after the running instructions.";
    STATUS = 0x104, ReadOnly, Some(1), "State of the sequencer: see the bits of STATUS.";
    ERROR = 0x108, WriteOneToClear, Some(0), "Errors outside of instructions: see the bits of ERROR.";
    EAGER_LIMIT = 0x10c, ReadWrite, Some(16384), "Largest piece in bytes that is sent eagerly; 0 forces rendezvous. Clamped to EAGER_BYTES.";
    ABORT = 0x110, WriteOnly, Some(0), "Writing the letters STOP (0x504f5453) ends the running instructions or resident program with status aborted, clears RUN, and drops data that arrived on links and was not used.";
    SCRATCH = 0x114, ReadWrite, Some(0), "Scratch value of the host, without effect.";
    CYCLES_LO = 0x118, ReadOnly, Some(0), "Free-running counter, bits 31:0. Reading it latches CYCLES_HI.";
    CYCLES_HI = 0x11c, ReadOnly, Some(0), "Free-running counter, bits 63:32, as of the last read of CYCLES_LO.";
    CURRENT = 0x120, ReadOnly, Some(0), "The running instruction; of several, the first of the program: 15:0 tag, 23:16 operation, 24 valid.";
    WAITING_PEER = 0x124, ReadOnly, Some(0xffff_ffff), "Lowest node that the current instruction waits for; all-ones if it waits for none.";
    RETIRED_LO = 0x128, ReadOnly, Some(0), "Instructions completed since reset, bits 31:0. Reading it latches RETIRED_HI.";
    RETIRED_HI = 0x12c, ReadOnly, Some(0), "Instructions completed since reset, bits 63:32, as of the last read of RETIRED_LO.";
    PENDING = 0x130, WriteOneToClear, Some(0), "Bit n: vector n was raised and not delivered. If MSI-X is off, INTx is asserted while a bit is set. Since version 1.1.";
    LINK_ERRORS = 0x134, ReadOnly, Some(0), "Blocks, bursts, signals and requests that came over links with a wrong checksum since reset, modulo 2^32. They are lost: there is no retry. Since version 1.6.";
    MEMORY_CORRECTED = 0x138, ReadOnly, Some(0), "Words of card memory with an error that was corrected, each time that they were read since reset, modulo 2^32. Since version 1.6.";
    reserved 0x13c..0x400;
}

/// The registers of one queue pair; queue `n` lies at [`queue::base`]`(n)` in the sequencer's block.
pub mod queue {
    use crate::registers;

    /// Bytes from one queue's registers to the next's.
    pub const STRIDE: u32 = 0x40;
    /// Queues that fit behind the sequencer's registers.
    pub const MAX: u32 = (super::BLOCK_BYTES - super::QUEUES_OFFSET) / STRIDE;

    /// Offset of queue `n`'s registers in the sequencer's block.
    pub const fn base(n: u32) -> u32 {
        super::QUEUES_OFFSET + n * STRIDE
    }

    registers! {
        SUBMISSION_BASE_LO = 0x00, ReadWrite, Some(0), "IOVA of the submission ring, bits 31:0; 64-byte aligned. Fixed while enabled.";
        SUBMISSION_BASE_HI = 0x04, ReadWrite, Some(0), "IOVA of the submission ring, bits 63:32. Fixed while enabled.";
        COMPLETION_BASE_LO = 0x08, ReadWrite, Some(0), "IOVA of the completion ring, bits 31:0; 64-byte aligned. Fixed while enabled.";
        COMPLETION_BASE_HI = 0x0c, ReadWrite, Some(0), "IOVA of the completion ring, bits 63:32. Fixed while enabled.";
        DEPTH = 0x10, ReadWrite, Some(0), "Entries of each ring, a power of two from 2 to QUEUE_DEPTH_MAX. Fixed while enabled.";
        ENABLE = 0x14, ReadWrite, Some(0), "Bit 0: the queue is enabled. Enabling a disabled queue zeroes all indices; it stays 0 if a base or the depth is invalid. After it is cleared, instructions that were issued, and launched programs, run on and write no completion; one that is being written may still arrive before BUSY is 0. Instructions that were not issued are forgotten.";
        SUBMISSION_TAIL = 0x18, WriteOnly, Some(0), "Doorbell: instructions stored since ENABLE, modulo 2^32.";
        COMPLETION_HEAD = 0x1c, WriteOnly, Some(0), "Doorbell: completions taken since ENABLE, modulo 2^32.";
        INTERRUPT_ARM = 0x20, WriteOnly, Some(0), "Raises the vector once, when more completions than the value written are in the ring; at once if they already are.";
        VECTOR = 0x24, ReadWrite, Some(0), "MSI-X vector of the queue.";
        SUBMISSION_HEAD = 0x28, ReadOnly, Some(0), "Instructions fetched since ENABLE, modulo 2^32.";
        COMPLETION_TAIL = 0x2c, ReadOnly, Some(0), "Completions written since ENABLE, modulo 2^32.";
        reserved 0x30..0x40;
    }
}

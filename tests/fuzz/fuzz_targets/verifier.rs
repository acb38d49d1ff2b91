//! Any programs of up to four ranks, with few distinct values so that instructions meet: accepted or refused, in bounded time
//! and memory; a refusal names a valid location.
#![no_main]

use cmdseq::capability::Timing;
use cmdseq::meaning::expect;
use cmdseq::plan::{Collective, Communicator, Order, Piece, Program, ProgramSet, Request};
use cmdseq::verify::{Stored, verify_launches, verify_resident};
use cmdseq::{
    AddressSpace, Capabilities, Combine, Element, Flags, Instruction, Operand, Operation, Reduction, Table, Topology,
    verify,
};
use libfuzzer_sys::fuzz_target;

const INSTRUCTIONS: usize = 64;

/// The input, byte by byte; zeros behind its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()]
    }

    /// Mostly small, sometimes as large as can be.
    fn number(&mut self) -> u64 {
        let byte = u64::from(self.byte());
        match byte {
            0..=199 => byte * 8,
            200..=239 => (byte - 200) << 12,
            240..=247 => (8 << 30) - (byte - 240) * 8,
            248..=251 => u64::MAX - (byte - 248),
            _ => u64::from_le_bytes(std::array::from_fn(|_| self.byte())),
        }
    }

    fn operand(&mut self) -> Operand {
        let kind = self.byte();
        let address = self.number();
        let space = match kind & 0x1f {
            1 => AddressSpace::Host,
            2 => AddressSpace::Stream0,
            3 => AddressSpace::Stream1,
            _ => AddressSpace::Card,
        };
        let operand = Operand { space, ..Operand::card(address) };
        let operand = if kind & 0xe0 == 0x20 { operand.striped() } else { operand };
        if kind & 0xe0 == 0x40 { operand.plus_argument(kind % 3) } else { operand }
    }

    fn instruction(&mut self) -> Instruction {
        let operation = self.of(Operation::ALL);
        let fields = operation.fields();
        let mut it = Instruction::new(operation);
        let is_wild = self.byte() == 255;
        if fields.communicator || is_wild {
            it.communicator = self.of(&[0, 0, 0, 1, 2, 33]);
        }
        if fields.root || is_wild {
            it.root = u16::from(self.byte()) % 5;
        }
        if fields.peer || is_wild {
            it.peer = u16::from(self.byte()) % 5;
        }
        if fields.source || is_wild {
            it.source = self.operand();
        }
        if fields.destination || is_wild {
            it.destination = self.operand();
        }
        if fields.bytes || is_wild {
            it.bytes = self.number();
        }
        if fields.extent || is_wild {
            it.extent = self.number();
        }
        // Few slots, keys and rights, of windows that may be open.
        if fields.window && self.byte() & 7 != 0 {
            it.extent = self.of(&[0, 0, 1, 5]) | self.of(&[1_u64, 1, 2]) << 32;
            it.extent |= if fields.rights { u64::from(self.byte() % 9) << 16 } else { 0 };
        }
        if fields.combine || is_wild {
            it.element = Some(self.of(Element::ALL));
            it.reduction = Some(self.of(Reduction::ALL));
        }
        if fields.signal || is_wild {
            it.signal_id = u16::from(self.byte()) % 5;
            it.signal_value = self.of(&[0, 1, 2, u32::MAX]);
        }
        if fields.rounds || is_wild {
            it.loop_count = self.of(&[0, 1, 2, 100, u16::MAX]);
            it.loop_body = u16::from(self.byte()) % 8;
        }
        if fields.extent_argument && self.byte() & 3 == 0 {
            it.extent_argument = Some(self.byte() % 3);
        }
        if fields.lane {
            it.lane = self.of(&[0, 0, 1, 2]);
        }
        it.tag = u16::from(self.byte()) % 3;
        it.flags = Flags::from_bits_truncate(self.of(&[0, 0, 0, 1, 2, 3, 4, 8, 16]));
        it
    }
}

fn capabilities(nodes: u32, topology: Topology) -> Capabilities {
    Capabilities {
        isa: 1,
        clock_khz: 200_000,
        nodes,
        topology,
        ports: nodes.saturating_sub(1),
        memory_bytes: 8 << 30,
        memory_channels: 32,
        stripe_half_bytes: 256 << 20,
        queue_depth_max: 1024,
        communicators: 32,
        communicator_ranks: 1024,
        communicator_generations: 256,
        resident_programs: 8,
        resident_words: 256,
        signals: 4,
        tables: 4,
        windows: 4,
        lanes: 2,
        address_align: 1,
        eager_bytes: 16 << 10,
        eager_limit: 16 << 10,
        operations: u64::MAX,
        element_types: u32::MAX,
        reductions: u32::MAX,
        host_memory: true,
        reductions_extend: false,
        extrapolated: false,
        switch: None,
        timing: Timing {
            dispatch_cycles: 7,
            switch_cycles: 3,
            memory_read_cycles: 54,
            handover_cycles: 12,
            control_ps: 360_000,
            data_ps: 390_000,
            acknowledge_ps: 390_000,
            hop_ps: 0,
            link_mbps: 45_000,
            channel_mbps: 51_200,
            host_mbps: 100_000,
            beat_bytes: 32,
            reduce_beat_cycles: 1,
            reduce_unit_cycles: 8,
        },
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let ranks = 1 + u32::from(input.byte()) % 4;
    let topology = if input.byte() == 255 { Topology::Dragonfly { groups: 2 } } else { Topology::FullyConnected };
    let capabilities = capabilities(ranks, topology);
    let group: Vec<u32> = (0..ranks).collect();
    let members: Vec<u32> = (0..ranks).filter(|_| input.byte() & 3 != 0).collect();
    let communicators =
        [Communicator { id: 1, members }, Communicator { id: 2, members: group.iter().rev().copied().collect() }];
    // The same for all, and then what is different: programs of equal instructions meet.
    let shared: Vec<Instruction> = (0..input.byte() % 16).map(|_| input.instruction()).collect();
    let mut programs = vec![Program { instructions: shared, ..Program::default() }; ranks as usize];
    for program in &mut programs {
        let lengths = (0..ranks).map(|_| input.number()).collect::<Vec<u64>>();
        program.tables.insert(u16::from(input.byte()) % 5, Table::packed(lengths, 8));
    }
    while !input.0.is_empty() {
        let rank = usize::from(input.byte()) % programs.len();
        let instruction = input.instruction();
        let instructions = &mut programs[rank].instructions;
        if instructions.len() >= INSTRUCTIONS {
            break;
        }
        let at = usize::from(input.byte()) % (instructions.len() + 1);
        instructions.insert(at, instruction);
    }
    let lengths: Vec<usize> = programs.iter().map(|one| one.instructions.len()).collect();
    let check = |refusal: &cmdseq::Refusal| {
        assert!(refusal.rank.is_none_or(|rank| rank < ranks), "{refusal}");
        if let (Some(rank), Some(index)) = (refusal.rank, refusal.instruction) {
            assert!(index <= lengths[rank as usize], "{refusal}");
        }
    };
    let mut set = ProgramSet::new(group, programs).with(communicators);
    let verified = verify(&set, &capabilities);
    if let Err(refusal) = &verified {
        check(refusal);
    }
    for program in &mut set.programs {
        program.input.push(Piece { offset: 0, address: 0, bytes: 512 });
        program.output.push(Piece { offset: 0, address: 4096, bytes: 512 });
    }
    let request = Request {
        combine: Some(Combine::new(Reduction::Sum, Element::F32)),
        order: Order::Rank,
        counts: vec![64; (ranks * ranks) as usize],
        ..Request::new(input_of(data, Collective::ALL), (0..ranks).collect(), 64)
    };
    let expected = expect(&set, &capabilities, &request);
    assert!(verified.is_ok() || expected.is_err());
    let arguments = vec![[0, 64, u64::MAX]; ranks as usize];
    if let Err(refusal) = verify_resident(&set, &arguments, &capabilities) {
        check(&refusal);
    }
    let stored: Vec<Vec<Stored>> =
        set.programs.iter().map(|one| vec![Stored { slot: 0, instructions: one.instructions.clone() }]).collect();
    set.programs = vec![vec![Instruction::launch(0, [0; 3])].into(); ranks as usize];
    let _ = verify_launches(&set, &stored, &capabilities);
});

fn input_of<T: Copy>(data: &[u8], all: &[T]) -> T {
    all[data.iter().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte))) % all.len()]
}

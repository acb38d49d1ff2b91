//! No instruction, doorbell or register write of a host makes the model panic: a panic removes the cards of all hosts.
//!
//! Takes seconds; longer with `FPGA_TESTS_FULL=1`.

use cmdseq::{AddressSpace, Element, Flags, Instruction, Layout, Operand, Operation, Reduction};
use fpga_mock::{CardMemory, Fabric, Profile, UserCall, UserLogic};
use fpga_regs::sequencer;
use fpga_tests::dice::{Dice, seed};
use fpga_tests::raw_host::{RINGS_BYTES, RawHost};
use fpga_tests::sweep::is_full;

const CARDS: u32 = 4;
const STEPS: usize = 400;
const HOST_BYTES: usize = 64 << 10;

/// A number from the edges of what fields hold.
fn edge(dice: &mut Dice) -> u64 {
    let edges = [0u64, 1, 2, 4, 31, 64, 4096, 16 << 10, 1 << 20, 256 << 20, 8 << 30, 1 << 36, 1 << 48, 1 << 63, !0];
    dice.of(&edges).wrapping_add(dice.of(&[0, 0, 0, 1, 2, !0]))
}

/// User logic that believes its caller.
struct Trusting;

impl UserLogic for Trusting {
    fn run(&mut self, memory: &mut CardMemory, call: UserCall) -> Result<u64, cmdseq::Status> {
        let first = memory.read(call.source, call.bytes.min(1))?.first().copied();
        memory.write(call.destination, &vec![first.unwrap_or(1); call.bytes.min(1 << 20) as usize])?;
        Ok(call.extent)
    }
}

fn operand(dice: &mut Dice, host: u64) -> Operand {
    let space = match dice.below(24) {
        0 => dice.of(&[AddressSpace::Stream0, AddressSpace::Stream1]),
        1..=8 => AddressSpace::Host,
        _ => AddressSpace::Card,
    };
    let layout = if dice.below(3) == 0 { Layout::Striped } else { Layout::Block };
    let argument = dice.of(&[None, None, Some(0), Some(2)]);
    let address = match space {
        AddressSpace::Host => host.wrapping_add(edge(dice) % (2 * HOST_BYTES as u64)),
        _ => edge(dice),
    };
    Operand { space, layout, argument, address }
}

/// An instruction with anything in the fields that its operation reads, mostly such that the card can decode it.
fn instruction(dice: &mut Dice, host: u64) -> Instruction {
    loop {
        let operation = dice.of(Operation::ALL);
        let fields = operation.fields();
        let when = |is_read: bool, value: u64| if is_read { value } else { 0 };
        let number = |dice: &mut Dice| dice.of(&[0, 1, 2, 3, 4, 5, 33, 0xffff]);
        let combine = (dice.of(Element::ALL), dice.of(Reduction::ALL));
        let instruction = Instruction {
            communicator: when(fields.communicator, dice.of(&[0, 0, 0, 1, 2, 0xffff])) as u16,
            root: when(fields.root, number(dice)) as u16,
            peer: when(fields.peer, number(dice)) as u16,
            flags: Flags::from_bits_truncate(dice.of(&[0, 0, 0, 1, 2, 3, 4, 8, 16])),
            source: if fields.source { operand(dice, host) } else { Operand::default() },
            destination: if fields.destination { operand(dice, host) } else { Operand::default() },
            bytes: when(fields.bytes, edge(dice)),
            element: fields.combine.then_some(combine.0),
            reduction: fields.combine.then_some(combine.1),
            extent: match fields.window {
                // Few slots and keys: some windows are found open.
                true => dice.below(3) | if fields.rights { dice.below(8) << 16 } else { 0 } | dice.below(3) << 32,
                false => when(fields.extent, if dice.below(2) == 0 { edge(dice) } else { dice.below(4) }),
            },
            extent_argument: if fields.extent_argument { dice.of(&[None, Some(0), Some(2)]) } else { None },
            signal_id: when(fields.signal, number(dice)) as u16,
            signal_value: when(fields.signal, edge(dice)) as u32,
            // Few rounds: they take the host's time.
            loop_count: when(fields.rounds, dice.below(4)) as u16,
            loop_body: when(fields.rounds, dice.below(4)) as u16,
            lane: if fields.lane { dice.of(&[0, 0, 1, 2, 255]) } else { 0 },
            tag: dice.roll() as u16,
            ..Instruction::nop()
        };
        // Those that no card decodes are worth a look now and then.
        if Instruction::decode(&instruction.encode()).is_ok() || dice.below(16) == 0 {
            return instruction;
        }
    }
}

/// A program of some instructions in the host's third page, to be stored.
fn program(dice: &mut Dice, host: &RawHost) -> Instruction {
    let words = 1 + dice.below(8);
    for place in 0..words {
        let mut step = instruction(dice, host.address());
        while matches!(step.operation, Operation::Launch | Operation::Store) {
            step = instruction(dice, host.address());
        }
        step.flags.set(Flags::LAST, place + 1 == words);
        host.memory.write(RINGS_BYTES + place as usize * 64, &step.encode()).unwrap();
    }
    Instruction {
        source: Operand::host(host.address()),
        bytes: words * 64,
        extent: dice.below(3),
        ..of(Operation::Store)
    }
}

fn of(operation: Operation) -> Instruction {
    Instruction { operation, ..Instruction::nop() }
}

/// A group or a table of whatever the host's memory holds.
fn table(dice: &mut Dice, host: &RawHost) -> Instruction {
    // Behind what programs are stored from.
    let (offset, iova) = (RINGS_BYTES + 4096, host.address() + 4096);
    for place in 0..CARDS as usize {
        host.memory.write(offset + 2 * place, &(dice.below(CARDS.into()) as u16).to_le_bytes()).unwrap();
    }
    if dice.below(2) == 0 {
        return Instruction::group(dice.below(3) as u16, iova, 1 + dice.below(4));
    }
    for place in 0..8 * CARDS as usize {
        host.memory.write(offset + 8 * place, &edge(dice).to_le_bytes()).unwrap();
    }
    Instruction {
        source: Operand::host(iova),
        bytes: 16 * (1 + dice.below(CARDS.into())),
        extent: dice.below(3),
        ..of(Operation::Table)
    }
}

fn step(dice: &mut Dice, hosts: &mut [RawHost]) {
    let card = dice.below(CARDS.into()) as usize;
    let address = hosts[card].address();
    match dice.below(40) {
        0 => hosts[card].write(sequencer::ABORT, sequencer::ABORT_VALUE),
        1 => drop(hosts[card].function.reset().unwrap()),
        2 => hosts[card].write(sequencer::CONTROL, dice.below(2) as u32),
        // Any register of the block or of the queue, with anything in it; mostly it has to be started again.
        3 => {
            let offset = 4 * dice.below(u64::from(sequencer::BLOCK_BYTES) / 4) as u32;
            let value = edge(dice);
            hosts[card].write(offset, value as u32);
        }
        4 => {
            let offset = 4 * dice.below(16) as u32;
            let value = edge(dice);
            hosts[card].write_queue(offset, value as u32);
        }
        5 | 6 => hosts[card].start(),
        7 => {
            let _ = hosts[card].function.set_bus_master(dice.below(2) == 0);
        }
        8..=10 => {
            let store = program(dice, &hosts[card]);
            hosts[card].push(&store);
        }
        11 | 12 => {
            let launch = Instruction::launch(dice.below(3), [edge(dice), edge(dice), edge(dice)]);
            hosts[card].push(&launch);
        }
        13 | 14 => {
            let table = table(dice, &hosts[card]);
            hosts[card].push(&table);
        }
        // The same on all cards: some fit together.
        15..=24 => {
            let together = instruction(dice, address);
            hosts.iter_mut().for_each(|host| host.push(&together));
        }
        _ => {
            let alone = instruction(dice, address);
            hosts[card].push(&alone);
        }
    }
}

/// Runs steps drawn from `seed` on a new fabric of one to three lanes, with windows or without; the instructions that came to an end.
fn run(seed: u64) -> u64 {
    let lanes = 1 + (seed % 3) as u32;
    let windows = if seed % 4 == 0 { 0 } else { 2 };
    let fabric = Fabric::new(Profile { lanes, windows, ..Profile::optweb(CARDS) }).unwrap();
    fabric.limit_memory(16 << 20);
    fabric.set_user_logic(1, Box::new(Trusting));
    let mut hosts: Vec<_> = (0..CARDS).map(|node| RawHost::attach(fabric.endpoint(node), HOST_BYTES)).collect();
    let mut dice = Dice(seed);
    for place in 0..STEPS {
        step(&mut dice, &mut hosts);
        // What is there is taken, so that there is mostly room.
        hosts.iter_mut().for_each(RawHost::take_all);
        assert_eq!(fabric.failure(), None, "step {place} of seed {seed}");
    }
    fabric.statistics().instructions
}

#[test]
fn nothing_that_a_host_does_panics_the_model() {
    let cases = if is_full() { 20_000 } else { 300 };
    let mut dice = Dice(seed());
    let instructions: u64 = (0..cases).map(|_| run(dice.roll())).sum();
    println!("{instructions} instructions");
    assert!(instructions > cases * 20, "most steps come to nothing");
}

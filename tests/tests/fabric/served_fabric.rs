//! A fabric with many hosts: the work of one host costs the others little time, none of their memory, and never their cards.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use cmdseq::completion::OUT_OF_MEMORY;
use cmdseq::instruction::{Rights, Window};
use cmdseq::{Combine, Element, Instruction, Operand, Reduction, Status};
use fpga_hal::endpoint::{DmaFault, DmaPort, DmaProgress, DmaTag, Interposer, InterruptPort};
use fpga_hal::{Endpoint, Iova};
use fpga_mock::{CardMemory, Fabric, Profile, UserCall, UserLogic};
use fpga_regs::bits::{self, Errors};
use fpga_regs::sequencer::{self, queue};
use fpga_tests::raw_host::RawHost;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn card(address: u64) -> Operand {
    Operand::card(address)
}

/// What another thread does takes milliseconds; a test that waits longer than this has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for what another thread does.
///
/// # Panics
///
/// When `holds` is still false after [`PATIENCE`]; `what` says what was awaited.
fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what} has not come within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A pattern without a zero byte.
const PATTERN: u64 = 0x0807_0605_0403_0201;

/// Runs long instructions of every kind that moves data, and gives what the cards counted.
fn long_instructions(fabric: &Fabric) -> Vec<(Status, u64, u64, u64)> {
    let mut hosts: Vec<_> = (0..4).map(|node| RawHost::attach(fabric.endpoint(node), 8 * MIB as usize)).collect();
    let host = hosts[0].address();
    let window = Window { slot: 0, key: 1 };
    let open = Instruction::open(window, Rights::all(), card(0), 8 * GIB);
    assert_eq!(hosts[1].run(&open).status, Status::Done);
    let mut all = Vec::new();
    for alone in [
        Instruction::fill(card(0), 64 * MIB + 5, PATTERN),
        Instruction::copy(card(0), card(GIB), 64 * MIB + 5),
        Instruction::copy(card(3), Operand::host(host), 8 * MIB),
        Instruction::copy(Operand::host(host), card(2 * GIB), 8 * MIB - 1),
        Instruction::copy(Operand::host(host), Operand::host(host + 4 * MIB), 4 * MIB),
        Instruction::rdma_write(1, card(0), card(GIB), 32 * MIB).through(window),
        Instruction::rdma_read(1, card(GIB), card(3 * GIB), 32 * MIB).through(window),
    ] {
        all.push(hosts[0].run(&alone));
    }
    let combine = Combine { reduction: Reduction::Sum, element: Element::F32 };
    let sum = |instruction: Instruction| Instruction {
        element: Some(combine.element),
        reduction: Some(combine.reduction),
        ..instruction
    };
    for together in [
        Instruction::broadcast(0, card(0), card(4 * GIB), 32 * MIB),
        Instruction::allgather(card(0), card(4 * GIB).striped(), 16 * MIB),
        sum(Instruction {
            operation: cmdseq::Operation::Allreduce,
            ..Instruction::broadcast(0, card(0), card(5 * GIB), 16 * MIB)
        }),
    ] {
        // After two barriers all begin at the same time, whenever their hosts came.
        let instructions = [Instruction::barrier(), Instruction::barrier(), together];
        hosts.iter_mut().for_each(|host| host.push_all(&instructions));
        let last = |host: &mut RawHost| [0; 3].map(|_| host.wait())[2];
        all.extend(hosts.iter_mut().map(last));
    }
    all.into_iter().map(|done| (done.status, done.t1, done.t2, done.arrival)).collect()
}

#[test]
fn the_lock_is_given_back_while_data_moves_and_cycles_are_the_same() {
    let (alone, served) = (Fabric::new(Profile::optweb(4)).unwrap(), Fabric::new(Profile::optweb(4)).unwrap());
    let _clock = served.start_clock().unwrap();
    let counted = long_instructions(&alone);
    assert!(counted.iter().all(|(status, ..)| *status == Status::Done), "{counted:?}");
    assert_eq!(long_instructions(&served), counted);
    // A mebibyte, and the last piece; without a clock all of it.
    let most = |fabric: &Fabric| fabric.statistics().most_held_bytes;
    assert!((MIB..=4 * MIB).contains(&most(&served)), "{}", most(&served));
    assert!(most(&alone) >= 64 * MIB);
}

#[test]
fn memory_is_bounded_and_each_card_keeps_its_share() {
    let fabric = Fabric::new(Profile::optweb(4)).unwrap();
    fabric.limit_memory(64 * MIB);
    let mut hosts: Vec<_> = (0..4).map(|node| RawHost::attach(fabric.endpoint(node), MIB as usize)).collect();
    let host = hosts[0].address();
    let all_of_it = Instruction::fill(card(0), 8 * GIB, PATTERN);
    let exhausted = (Status::OutOfRange, OUT_OF_MEMORY);
    let outcome = |host: &mut RawHost, instruction: &Instruction| {
        let done = host.run(instruction);
        (done.status, done.detail)
    };
    assert_eq!(outcome(&mut hosts[0], &all_of_it), exhausted);
    let window = Window { slot: 0, key: 1 };
    assert_eq!(outcome(&mut hosts[1], &Instruction::open(window, Rights::READ, card(0), KIB)), (Status::Done, 0));
    // Nothing is left beyond the shares, which are 8 MiB each; whatever needs memory says so.
    for instruction in [
        Instruction::copy(card(0), card(GIB), 4 * MIB),
        Instruction::copy(Operand::host(host), card(GIB), KIB),
        Instruction::fill(card(GIB), 1, 1),
        Instruction::rdma_read(1, card(0), card(GIB), KIB).through(window),
    ] {
        let outcome = outcome(&mut hosts[0], &instruction);
        // What a card reads out of memory nobody has written are zeros, and zeros need none.
        let zeros = instruction.operation == cmdseq::Operation::RdmaRead;
        assert_eq!(outcome, if zeros { (Status::Done, 0) } else { exhausted }, "{instruction:?}");
    }
    for host in &mut hosts[1..] {
        let memory = host.address();
        let fits = Instruction::fill(card(0), 7 * MIB, PATTERN);
        assert_eq!(outcome(host, &fits), (Status::Done, 0));
        assert_eq!(outcome(host, &Instruction::copy(card(6 * MIB), Operand::host(memory), MIB)), (Status::Done, 0));
        assert_eq!(outcome(host, &Instruction::fill(card(GIB), 7 * MIB, PATTERN)), exhausted);
    }
    // Zeros cost nothing, and a reset gives back.
    assert_eq!(outcome(&mut hosts[0], &Instruction::fill(card(0), 8 * GIB, 0)), (Status::Done, 0));
    hosts[0].function.reset().unwrap();
    hosts[0].start();
    assert_eq!(outcome(&mut hosts[0], &Instruction::fill(card(4 * GIB), 16 * MIB, PATTERN)), (Status::Done, 0));
}

/// User logic with a bug.
struct Buggy;

impl UserLogic for Buggy {
    fn run(&mut self, _: &mut CardMemory, call: UserCall) -> Result<u64, Status> {
        panic!("no logic for {} bytes", call.bytes);
    }
}

#[test]
fn a_model_that_panics_takes_its_cards_with_it() {
    for is_served in [false, true] {
        let fabric = Fabric::new(Profile::optweb(2)).unwrap();
        let clock = is_served.then(|| fabric.start_clock().unwrap());
        fabric.set_user_logic(0, Box::new(Buggy));
        let mut hosts: Vec<_> = (0..2).map(|node| RawHost::attach(fabric.endpoint(node), 4096)).collect();
        assert_eq!(hosts[1].run(&Instruction::nop()).status, Status::Done);
        assert_eq!(fabric.failure(), None);
        hosts[0].push(&Instruction::user(card(0), card(64), 77, 0));
        wait_until("the failure of the fabric", || fabric.failure().is_some());
        assert_eq!(fabric.failure().as_deref(), Some("no logic for 77 bytes"));
        for host in &mut hosts {
            assert_eq!(host.read(sequencer::STATUS), u32::MAX);
            host.push(&Instruction::nop());
            assert_eq!(host.take(), None);
        }
        // The thread still ends when it is told to.
        drop(clock);
    }
}

/// A card whose host does not answer requests for as many bytes as `KIB`, until it is said to be gone.
struct Unanswered {
    card: Arc<dyn Endpoint>,
    asked: Arc<Mutex<Vec<DmaTag>>>,
}

impl Unanswered {
    fn new(card: Arc<dyn Endpoint>) -> Arc<Self> {
        Arc::new(Unanswered { card, asked: Arc::default() })
    }

    /// Waits until the card has asked.
    fn await_request(&self) {
        wait_until("a request of the card", || !self.asked.lock().unwrap().is_empty());
    }

    fn fail(&self) {
        for tag in std::mem::take(&mut *self.asked.lock().unwrap()) {
            self.card.dma_complete(tag, Err(DmaFault::HostGone));
        }
    }
}

struct Port {
    bus: Arc<dyn DmaPort>,
    asked: Arc<Mutex<Vec<DmaTag>>>,
}

impl DmaPort for Port {
    fn read(&self, tag: DmaTag, iova: Iova, data: &mut [u8]) -> DmaProgress {
        if data.len() as u64 == KIB {
            self.asked.lock().unwrap().push(tag);
            return DmaProgress::Pending;
        }
        self.bus.read(tag, iova, data)
    }

    fn write(&self, tag: DmaTag, iova: Iova, data: &[u8]) -> DmaProgress {
        self.bus.write(tag, iova, data)
    }
}

impl Interposer for Unanswered {
    fn behind(&self) -> &dyn Endpoint {
        &*self.card
    }

    fn attach(&self, dma: Arc<dyn DmaPort>, interrupts: Arc<dyn InterruptPort>) {
        self.card.attach(Arc::new(Port { bus: dma, asked: Arc::clone(&self.asked) }), interrupts);
    }
}

#[test]
fn a_transfer_that_fails_late_fails_its_card_and_no_other() {
    let fabric = Fabric::new(Profile::optweb(4)).unwrap();
    let _clock = fabric.start_clock().unwrap();
    let silent = Unanswered::new(fabric.endpoint(0));
    let mut offender = RawHost::attach(Arc::clone(&silent) as Arc<dyn Endpoint>, MIB as usize);
    let mut others: Vec<_> = (1..4).map(|node| RawHost::attach(fabric.endpoint(node), 4096)).collect();
    let group = |host: &mut RawHost| {
        let members: Vec<u8> = [1u16, 2, 3].iter().flat_map(|node| node.to_le_bytes()).collect();
        host.memory.write(fpga_tests::raw_host::RINGS_BYTES, &members).unwrap();
        assert_eq!(host.run(&Instruction::group(1, host.address(), 3)).status, Status::Done);
        // The first after a reset finds the switch idle; from here on all are alike.
        host.push(&Instruction::barrier().on(1));
    };
    others.iter_mut().for_each(group);
    others.iter_mut().for_each(|host| assert_eq!(host.wait().status, Status::Done));
    let together = |others: &mut Vec<RawHost>| {
        let allgather = Instruction::allgather(card(0), card(GIB), 40_000).on(1);
        for instruction in [Instruction::barrier().on(1), allgather] {
            others.iter_mut().for_each(|host| host.push(&instruction));
        }
        let mut wait =
            |_| others.iter_mut().map(RawHost::wait).map(|done| (done.status, done.bytes)).collect::<Vec<_>>();
        [0, 1].map(&mut wait)
    };
    let before = together(&mut others);
    for unanswered in [
        Instruction::copy(Operand::host(offender.address()), card(0), KIB),
        Instruction::copy(Operand::host(offender.address()), Operand::host(offender.address() + MIB / 2), KIB),
    ] {
        offender.push(&unanswered);
        silent.await_request();
        thread::scope(|scope| {
            let neighbours = scope.spawn(|| together(&mut others));
            thread::sleep(Duration::from_millis(20));
            silent.fail();
            assert_eq!(neighbours.join().unwrap(), before);
        });
        assert_eq!(offender.wait().status, Status::HostReadFault);
    }
    // Instructions that cannot be fetched: the sequencer halts, and the others go on.
    offender.start();
    offender.write_queue(queue::SUBMISSION_TAIL, (KIB / 64) as u32);
    silent.await_request();
    silent.fail();
    assert_eq!(together(&mut others), before);
    assert_eq!(offender.read(sequencer::ERROR), Errors::FETCH_FAULT.bits());
    assert_eq!(offender.read(sequencer::STATUS) & bits::Status::HALTED.bits(), bits::Status::HALTED.bits());
    assert_eq!(fabric.failure(), None);
}

#[test]
fn a_queue_that_is_switched_off_takes_no_completion() {
    let fabric = Fabric::new(Profile::optweb(2)).unwrap();
    let mut host = RawHost::attach(fabric.endpoint(0), 4096);
    host.push(&Instruction::wait_signal(0, 1));
    host.write_queue(queue::ENABLE, 0);
    host.write_queue(queue::DEPTH, 0);
    host.write(sequencer::ABORT, sequencer::ABORT_VALUE);
    assert_eq!(fabric.failure(), None);
    assert_eq!(host.take(), None);
    assert_eq!(host.read(sequencer::STATUS) & bits::Status::BUSY.bits(), 0);
    host.start();
    assert_eq!(host.run(&Instruction::nop().with_tag(5)).tag, 5);
}

//! Windows of programs that name none: what the driver tells the cards, word by word.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use cmdseq::instruction::{Rights, Window};
use cmdseq::plan::ProgramSet;
use cmdseq::{Instruction, Operand, Operation, Reason, Status};
use fpga_driver::{Bound, Cluster, Error};

use crate::cards::open_all;
use fpga_fake::{BLOCK, Fake, Reply, Times};

const LONG: Duration = Duration::from_secs(60);

/// What a card ran.
type Ran = Arc<Mutex<Vec<Instruction>>>;

/// Cards with `windows` window slots, and what each runs.
fn open(nodes: u32, windows: u32) -> (Vec<Arc<Fake>>, Vec<Ran>, Cluster) {
    open_with_rings(nodes, windows, 64)
}

fn open_with_rings(nodes: u32, windows: u32, depth: u32) -> (Vec<Arc<Fake>>, Vec<Ran>, Cluster) {
    let fakes: Vec<_> = (0..nodes).map(|node| Fake::node(node, nodes, depth)).collect();
    let mut all = Vec::new();
    for fake in &fakes {
        fake.set(BLOCK + 0x70, u32::MAX);
        fake.set(BLOCK + 0x74, u32::MAX);
        fake.set(BLOCK + 0xc8, windows);
        let ran = Ran::default();
        all.push(Arc::clone(&ran));
        fake.state().times = Box::new(move |instruction| {
            ran.lock().unwrap().push(*instruction);
            Times::default()
        });
    }
    let cluster = open_all(fakes.iter().map(Fake::function).collect()).unwrap();
    (fakes, all, cluster)
}

/// Card 0 writes 64 bytes to card 1, and reads 8 from there.
fn programs() -> [Vec<Bound>; 2] {
    let write = Instruction::rdma_write(1, Operand::card(0), Operand::card(4096), 64);
    let read = Instruction::rdma_read(1, Operand::card(512), Operand::card(128), 8);
    [vec![write.into(), read.into()], vec![Instruction::nop().into()]]
}

fn take(ran: &Ran) -> Vec<Instruction> {
    std::mem::take(&mut *ran.lock().unwrap())
}

fn operations(ran: &Ran) -> Vec<Operation> {
    take(ran).iter().map(|one| one.operation).collect()
}

/// The keys of the windows that a run opens on card 1.
fn run(ran: &[Ran], cluster: &mut Cluster) -> Vec<u32> {
    cluster.run(&[0, 1], &programs(), LONG).unwrap().result.unwrap();
    let [issued, opened] = [0, 1].map(|node| take(&ran[node]));
    let [read, write, _, closed, closed_too] = opened[..] else { panic!("{opened:?}") };
    // Exactly what the operations reach, and what they do there.
    for (open, rights, address, bytes) in [(read, Rights::READ, 512, 8), (write, Rights::WRITE, 4096, 64)] {
        let window = open.window().unwrap();
        let expected = Instruction::open(window, rights, Operand::card(address), bytes);
        assert_eq!(open.with_tag(0), expected);
    }
    let [write, read] = [write, read].map(|open| open.window().unwrap());
    assert_eq!((read.slot, write.slot), (3, 2));
    assert_ne!(read.key, write.key);
    let named: Vec<Option<Window>> = issued.iter().map(Instruction::window).collect();
    assert_eq!(named, [Some(write), Some(read)]);
    let closed = [closed, closed_too].map(|close| (close.operation, close.window().unwrap()));
    assert_eq!(closed, [(Operation::Close, read), (Operation::Close, write)]);
    vec![read.key, write.key]
}

#[test]
fn windows_are_opened_named_and_closed() {
    let (_fakes, ran, mut cluster) = open(2, 4);
    let mut keys: Vec<u32> = (0..20).flat_map(|_| run(&ran, &mut cluster)).collect();
    keys.sort_unstable();
    keys.dedup();
    assert!(keys.len() >= 39 && !keys.contains(&0), "{keys:?}");
    // With a seed they are the same again.
    let [once, again] = [(), ()].map(|()| {
        cluster.seed_window_keys(7);
        run(&ran, &mut cluster)
    });
    assert_eq!(once, again);
    cluster.seed_window_keys(8);
    assert_ne!(run(&ran, &mut cluster), once);
}

#[test]
fn cards_without_windows_are_told_of_none() {
    let (_fakes, ran, mut cluster) = open(2, 0);
    cluster.run(&[0, 1], &programs(), LONG).unwrap().result.unwrap();
    assert_eq!(operations(&ran[1]), [Operation::Nop]);
    let issued = take(&ran[0]);
    assert!(issued.iter().all(|one| one.extent == 0), "{issued:?}");
}

#[test]
fn what_is_not_one_sided_costs_nothing() {
    let (_fakes, ran, mut cluster) = open(2, 4);
    let programs = [vec![Bound::from(Instruction::barrier())], vec![Instruction::barrier().into()]];
    cluster.run(&[0, 1], &programs, LONG).unwrap().result.unwrap();
    assert!(ran.iter().all(|ran| operations(ran) == [Operation::Barrier]));
}

#[test]
fn nothing_runs_unless_all_windows_are_open() {
    let (fakes, ran, mut cluster) = open(2, 4);
    // The second is refused: its slot is taken.
    fakes[1].plant(1, Reply::Code(20, 2));
    let error = cluster.run(&[0, 1], &programs(), LONG).unwrap_err();
    assert!(matches!(error, Error::Failed { node: 1, status: Status::BadWindow, detail: 2, .. }), "{error}");
    assert!(error.to_string().ends_with("(slot 2)"), "{error}");
    assert_eq!(operations(&ran[0]), []);
    assert!(!operations(&ran[1]).contains(&Operation::Nop));
    run(&ran, &mut cluster);
}

#[test]
fn a_window_that_is_not_closed_is_closed_later() {
    let (fakes, ran, mut cluster) = open(2, 4);
    fakes[1].plant(3, Reply::Code(14, 0));
    cluster.run(&[0, 1], &programs(), LONG).unwrap().result.unwrap();
    let first = take(&ran[1]);
    take(&ran[0]);
    // The close of the first window has failed, and is said again before the slot is used.
    cluster.run(&[0, 1], &programs(), LONG).unwrap().result.unwrap();
    let second = take(&ran[1]);
    assert_eq!((second[0].operation, second[0].window()), (Operation::Close, first[3].window()));
    assert_eq!(second[1].window().unwrap().slot, 3);
    cluster.close_windows().unwrap();
    assert_eq!(operations(&ran[1]), []);
}

#[test]
fn more_windows_than_a_queue_has_cells_are_closed() {
    let (_fakes, ran, mut cluster) = open_with_rings(2, 64, 4);
    let far = |n: u64| Instruction::rdma_write(1, Operand::card(0), Operand::card(4096 + 8192 * n), 64).into();
    let programs = [(0..20).map(far).collect(), vec![Bound::from(Instruction::nop())]];
    for _ in 0..2 {
        cluster.run(&[0, 1], &programs, LONG).unwrap().result.unwrap();
        assert_eq!(operations(&ran[1]).iter().filter(|one| **one == Operation::Close).count(), 20);
    }
}

/// The completion of a launch has no room for the peer, but the program tells it.
#[test]
fn a_launch_names_the_card_whose_window_it_missed() {
    let (fakes, ran, mut cluster) = open(3, 4);
    let write = Instruction::rdma_write(2, Operand::card(0), Operand::card(4096), 64);
    let barrier = Instruction::barrier();
    let set = ProgramSet::new([0, 1, 2], [vec![barrier, write], vec![barrier], vec![barrier]]);
    let mut prepared = cluster.prepare(&set.into()).unwrap();
    let opened = take(&ran[2]);
    assert_eq!(opened[0].operation, Operation::Open);
    // A store, and then the launch, which fails at its second instruction.
    fakes[0].plant(1, Reply::Code(20, 1));
    cluster.launch(&mut prepared).unwrap();
    let error = cluster.finish(&mut prepared, LONG).unwrap_err();
    let Error::Failed { node: 0, rank: Some(0), instruction: 1, operation, status, detail: 2 } = error else {
        panic!("{error}")
    };
    assert_eq!((operation, status), (Operation::RdmaWrite, Status::BadWindow));
    assert!(error.to_string().ends_with("(node 2)"), "{error}");
    drop(prepared);
    take(&ran[2]);
    cluster.close_windows().unwrap();
    assert_eq!(take(&ran[2]).iter().map(Instruction::window).collect::<Vec<_>>(), [opened[0].window()]);
}

#[test]
fn a_launch_opens_no_windows_for_what_it_runs() {
    let (_fakes, _ran, cluster) = open(2, 4);
    let write = Instruction::rdma_write(1, Operand::card(0), Operand::card(4096), 64);
    let set = ProgramSet::new([0, 1], [vec![Instruction::launch(0, [0; 3])], vec![]]);
    let stored = [vec![cmdseq::verify::Stored { slot: 0, instructions: vec![write] }], vec![]];
    let refusal = cmdseq::verify::verify_launches(&set, &stored, cluster.capabilities()).unwrap_err();
    assert_eq!((refusal.rank, refusal.instruction, refusal.reason), (Some(0), Some(0), Reason::Window));
}

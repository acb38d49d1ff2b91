//! A window that is closed while a transfer goes through it.

use cmdseq::instruction::Rights;
use cmdseq::{Completion, Instruction, Status};
use fpga_driver::{Bound, Cluster, Error};
use fpga_mock::Profile;
use fpga_tests::{pattern, run};

use super::*;

const MIB: u64 = 1 << 20;
/// Where the window begins, in another pseudo channel than the source.
const FAR: u64 = 512 * MIB;
/// Longest time that a close waits, cycles: typed by hand from `docs/isa.md`.
const CLOSE_CYCLES: u64 = 1 << 28;

fn programs(all: &[&[Instruction]]) -> Vec<Vec<Bound>> {
    all.iter().map(|program| program.iter().map(Bound::from).collect()).collect()
}

/// Three cards: card 1 has a window over 64 MiB, and card 0 has data for it.
fn cards() -> (fpga_mock::Fabric, Cluster, Vec<u8>) {
    let (fabric, mut cluster) = run::open(Profile::optweb(3));
    let mut data = vec![0; 64 * MIB as usize];
    pattern::fill(7, 0, 0, &mut data);
    cluster.card_mut(0).write_memory(0, &data).unwrap();
    let open = Instruction::open(WINDOW, Rights::all(), card(FAR), 64 * MIB);
    done(cluster.card_mut(1), open);
    (fabric, cluster, data)
}

fn written(cluster: &mut Cluster, bytes: u64) -> Vec<u8> {
    let mut found = vec![0; bytes as usize];
    cluster.card_mut(1).read_memory(FAR, &mut found).unwrap();
    found
}

/// Cycle of card `node` at which an instruction ended, on the time of the fabric: the mock's counters differ by this much.
fn end(node: u64, completion: &Completion) -> u64 {
    completion.issued + completion.t2 - node * 1_000_003
}

/// The transfer that runs ends well, and the close after it; one that begins meanwhile is refused.
#[test]
fn a_close_waits_for_the_transfers_that_run() {
    let put = Instruction::put_signal(1, card(0), card(FAR), 64 * MIB, 3, 1).through(WINDOW);
    let read = Instruction::rdma_read(1, card(FAR), card(FAR), 64 * MIB).through(WINDOW);
    for transfer in [put, read] {
        let (_fabric, mut cluster, data) = cards();
        let late = Instruction::rdma_write(1, card(0), card(FAR), 8).through(WINDOW);
        let outcome = cluster.run(
            &[0, 1, 2],
            &programs(&[
                &[Instruction::barrier(), transfer],
                &[Instruction::barrier(), Instruction::delay(1000), Instruction::close(WINDOW)],
                &[Instruction::barrier(), Instruction::delay(5000), late],
            ]),
            LONG,
        );
        let outcome = outcome.unwrap();
        let [transferred, closed, refused] = [(0, 1), (1, 2), (2, 2)].map(|(rank, at)| outcome.completions[rank][at]);
        assert_eq!([transferred.status, closed.status], [Status::Done; 2]);
        assert_eq!((refused.status, refused.detail), (Status::BadWindow, 1));
        assert!(matches!(outcome.result, Err(Error::Failed { node: 2, rank: Some(2), detail: 1, .. })));
        // It waits until the data is there, and no longer: the acknowledgement is still on its way.
        assert!(closed.t2 > 1_000_000, "{closed:?}");
        assert!(end(1, &closed) <= end(0, &transferred), "{closed:?} {transferred:?}");
        assert!(end(1, &closed) + 1000 > end(0, &transferred), "{closed:?} {transferred:?}");
        if transfer == put {
            assert!(written(&mut cluster, 64 * MIB) == data);
            assert_eq!(take_signal(cluster.card_mut(1), 3), 1);
        }
        assert_eq!(status(cluster.card_mut(2), late), (Status::BadWindow, 1));
        // The slot is free.
        done(cluster.card_mut(1), open(Rights::READ));
    }
}

/// A transfer that takes too long is cut off: nothing of it is written.
#[test]
fn a_close_does_not_wait_for_ever() {
    let transfers = [
        Instruction::put_signal(1, card(0), card(FAR), MIB, 3, 1).through(WINDOW),
        Instruction::rdma_read(1, card(FAR), card(2 * FAR), MIB).through(WINDOW),
    ];
    for transfer in transfers {
        let (fabric, mut cluster, _) = cards();
        // 8 seconds for a MiB.
        fabric.set_link_rate(0, 1, 1);
        fabric.set_link_rate(1, 0, 1);
        cluster.card_mut(1).write_memory(FAR, &[9; 4096]).unwrap();
        let outcome = cluster.run(
            &[0, 1, 2],
            &programs(&[
                &[Instruction::barrier(), transfer],
                &[Instruction::barrier(), Instruction::delay(1000), Instruction::close(WINDOW)],
                &[Instruction::barrier()],
            ]),
            LONG,
        );
        let outcome = outcome.unwrap();
        let (cut, closed) = (outcome.completions[0][1], outcome.completions[1][2]);
        assert_eq!((cut.status, cut.detail, closed.status), (Status::BadWindow, 1, Status::Done));
        assert_eq!(closed.t2, CLOSE_CYCLES);
        assert_eq!(written(&mut cluster, 4096), [9; 4096]);
        assert_eq!(take_signal(cluster.card_mut(1), 3), 0);
        let mut read = [0; 4096];
        cluster.card_mut(0).read_memory(2 * FAR, &mut read).unwrap();
        assert_eq!(read, [0; 4096]);
    }
}

/// A neighbour that never sends the rest holds no window open.
#[test]
fn a_transfer_that_never_ends_does_not_hold_back_a_close() {
    let (fabric, mut cluster, _) = cards();
    fabric.set_link_rate(0, 1, 0);
    let put = Instruction::put_signal(1, card(0), card(FAR), 64 * MIB, 3, 1).through(WINDOW);
    let outcome = cluster.run(
        &[0, 1, 2],
        &programs(&[
            &[Instruction::barrier(), put],
            &[Instruction::barrier(), Instruction::delay(1000), Instruction::close(WINDOW)],
            &[Instruction::barrier()],
        ]),
        Duration::from_millis(500),
    );
    let outcome = outcome.unwrap();
    assert!(matches!(outcome.result, Err(Error::Timeout { rank: Some(0), .. })), "{:?}", outcome.result);
    let closed = outcome.completions[1][2];
    assert_eq!((closed.status, closed.t2), (Status::Done, CLOSE_CYCLES));
    assert!(written(&mut cluster, 64 * MIB).iter().all(|byte| *byte == 0));
}

//! What connects the ranks may lie: that is an error, in every exchange.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cmdseq::graph::Schedule;
use cmdseq::plan::{Collective, ProgramSet, Request, plan};
use cmdseq::{Instruction, Operand};
use fpga_driver::{Cluster, Error, ErrorKind, Execution, Peers, PeersError};
use fpga_tests::threads;

use crate::processes::{execute, fabric, request};

/// What becomes of the data of all ranks.
type Lie = fn(&mut Vec<Vec<u8>>);

/// Longer than any test takes.
const LIMIT: Duration = Duration::from_secs(60);

/// Connects two ranks, and lies to rank 0 in one exchange.
#[derive(Debug)]
struct Lying {
    honest: threads::Thread,
    /// Exchanges until it lies.
    left: usize,
    lie: Lie,
    has_lied: Arc<AtomicBool>,
}

impl Peers for Lying {
    fn rank(&self) -> u32 {
        self.honest.rank()
    }

    fn size(&self) -> u32 {
        self.honest.size()
    }

    fn allgather(&mut self, data: &[u8], timeout: Duration) -> Result<Vec<Vec<u8>>, PeersError> {
        let mut all = self.honest.allgather(data, timeout)?;
        if self.left == 0 {
            (self.lie)(&mut all);
            self.has_lied.store(true, Ordering::Relaxed);
        }
        self.left = self.left.wrapping_sub(1);
        Ok(all)
    }

    fn raise(&mut self) {
        self.honest.raise();
    }

    fn raised(&mut self) -> Option<u32> {
        self.honest.raised()
    }
}

/// Lets two ranks `work`, and lies to rank 0 in one exchange: each time in another. Returns how rank 0 has ended, by exchange.
fn lied(lie: Lie, work: impl Fn(&mut Cluster, u32) -> Result<(), Error> + Sync) -> Vec<Result<(), Error>> {
    let outcomes = (0..100).map_while(|left| {
        let (fabric, has_lied) = (fabric(2), Arc::new(AtomicBool::new(false)));
        let outcomes = threads::ranks(2, |honest| {
            let (rank, has_lied) = (honest.rank(), Arc::clone(&has_lied));
            let peers: Box<dyn Peers> = match rank {
                0 => Box::new(Lying { honest, left, lie, has_lied }),
                _ => Box::new(honest),
            };
            let mut cluster = Cluster::join(threads::card(&fabric, rank).map(|card| vec![card]), peers, &[])?;
            cluster.set_timeout(LIMIT);
            work(&mut cluster, rank)
        });
        has_lied.load(Ordering::Relaxed).then(|| outcomes.into_iter().next().unwrap())
    });
    outcomes.collect()
}

/// Whatever connects the ranks may be wrong: no exchange of a rank's life ends with a panic or a hang.
#[test]
fn lies_of_what_connects_the_ranks_are_errors() {
    // And whether the first exchange tells.
    let lies: [(&str, Lie, bool); 7] = [
        ("too few", |all| all.truncate(1), true),
        ("too many", |all| all.push(Vec::new()), true),
        ("empty", |all| all[1].clear(), true),
        ("longer", |all| all[1].push(0), true),
        ("truncated", |all| all[1].truncate(1), false),
        ("the own twice", |all| all[1] = all[0].clone(), false),
        ("the other's twice", |all| all[0] = all[1].clone(), false),
    ];
    let request = request(Collective::Allreduce, 64);
    for (name, lie, is_told) in lies {
        let outcomes = lied(lie, |cluster, rank| {
            let plan = plan(&Request { group: vec![0, 1], ..request.clone() }, cluster.capabilities())?;
            execute(cluster, &plan)?;
            // A failure of rank 0, of which the lie may be that there is none.
            let failed = Error::Peer { rank: 1, kind: ErrorKind::Failed, message: String::new() };
            let agreed = cluster.agree(if rank == 0 { Err(failed) } else { Ok(()) });
            assert!(agreed.is_err(), "{name}, rank {rank}");
            Ok(())
        });
        let first = &outcomes[0];
        assert!(is_malformed(first) || !is_told, "{name}: {first:?}");
        assert!((5..100).contains(&outcomes.len()), "{name}: {} exchanges", outcomes.len());
    }
}

fn is_malformed(outcome: &Result<(), Error>) -> bool {
    matches!(outcome, Err(Error::Peers(PeersError::Malformed { .. })))
}

/// The lie is that the other rank needs an abort, and nothing of why.
#[test]
fn an_abort_without_a_reason_is_malformed() {
    let outcomes = lied(
        |all| all[1][0] ^= 1,
        |cluster, _| {
            let request = Request { group: vec![0, 1], ..request(Collective::Allreduce, 64) };
            let plan = plan(&request, cluster.capabilities())?;
            let mut prepared = cluster.prepare(&Schedule::of(&plan))?;
            cluster.launch(&mut prepared)?;
            cluster.finish(&mut prepared, LIMIT).map(drop)
        },
    );
    let last = outcomes.last().unwrap();
    assert!(is_malformed(last), "{last:?}");
}

/// After the exchange of how the programs have ended there are two, of which cards have stopped and which run again.
#[test]
fn a_card_that_has_failed_is_named_whatever_its_rank_is_told_later() {
    let outcomes = lied(
        |all| all.truncate(1),
        |cluster, _| {
            let beyond = cluster.capabilities().memory_bytes;
            let programs = [beyond, 0].map(|address| vec![Instruction::fill(Operand::card(address), 64, 0)]);
            let execution = Execution { timeout: LIMIT, ..Execution::default() };
            cluster.execute(&ProgramSet::new([0, 1], programs), &execution).map(drop)
        },
    );
    let [.., ends, stopped, runs] = &outcomes[..] else { panic!("{outcomes:?}") };
    for outcome in [ends, stopped, runs] {
        assert!(matches!(outcome, Err(Error::Failed { node: 0, .. })), "{outcome:?}");
    }
}

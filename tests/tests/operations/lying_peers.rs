//! What connects the ranks may lie: that is an error, in every exchange.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cmdseq::plan::{Collective, Request, plan};
use fpga_driver::{Cluster, Error, ErrorKind, Peers, PeersError};
use fpga_tests::threads;

use crate::processes::{execute, fabric, request};

/// What becomes of the data of all ranks.
type Lie = fn(&mut Vec<Vec<u8>>);

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
    let (request, limit) = (request(Collective::Allreduce, 64), Duration::from_secs(60));
    for (name, lie, is_told) in lies {
        let lied = (0..100).take_while(|left| {
            let (fabric, has_lied) = (fabric(2), Arc::new(AtomicBool::new(false)));
            let outcomes = threads::ranks(2, |honest| {
                let (rank, has_lied) = (honest.rank(), Arc::clone(&has_lied));
                let peers: Box<dyn Peers> = match rank {
                    0 => Box::new(Lying { honest, left: *left, lie, has_lied }),
                    _ => Box::new(honest),
                };
                let mut cluster = Cluster::join(threads::card(&fabric, rank).map(|card| vec![card]), peers, &[])?;
                cluster.set_timeout(limit);
                let plan = plan(&Request { group: vec![0, 1], ..request.clone() }, cluster.capabilities())?;
                execute(&mut cluster, &plan)?;
                // A failure of rank 0, of which the lie may be that there is none.
                let failed = Error::Peer { rank: 1, kind: ErrorKind::Failed, message: String::new() };
                let agreed = cluster.agree(if rank == 0 { Err(failed) } else { Ok(()) });
                assert!(agreed.is_err(), "{name}, exchange {left}, rank {rank}");
                Ok::<_, Error>(())
            });
            let (first, has_lied) = (&outcomes[0], has_lied.load(Ordering::Relaxed));
            let is_malformed = matches!(first, Err(Error::Peers(PeersError::Malformed { .. })));
            assert!(*left != 0 || is_malformed || !is_told, "{name}: {first:?}");
            has_lied
        });
        let lied = lied.count();
        assert!((5..100).contains(&lied), "{name}: {lied} exchanges");
    }
}

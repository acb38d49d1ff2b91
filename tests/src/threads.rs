//! Ranks of a job as threads of one process: what connects them, and a fabric of mock cards of which each opens one.

use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::run::domain;
use fpga_driver::{Card, Cluster, Error, Peers, PeersError};
use fpga_hal::in_process;
use fpga_mock::Fabric;

/// What ranks have sent, by rank.
#[derive(Debug)]
struct Board {
    /// Data of each rank, by exchange.
    sent: Vec<Vec<Vec<u8>>>,
    /// The exchange before which a rank has raised, and whether it is gone.
    raised: Vec<Option<usize>>,
    is_gone: Vec<bool>,
}

/// A rank that is a thread.
#[derive(Debug)]
pub struct Thread {
    rank: u32,
    board: Arc<(Mutex<Board>, Condvar)>,
    /// Exchanges so far.
    count: usize,
}

impl Thread {
    /// Connects `size` ranks.
    pub fn connect(size: u32) -> Vec<Thread> {
        let ranks = size as usize;
        let board = Board { sent: vec![Vec::new(); ranks], raised: vec![None; ranks], is_gone: vec![false; ranks] };
        let board = Arc::new((Mutex::new(board), Condvar::new()));
        (0..size).map(|rank| Thread { rank, board: Arc::clone(&board), count: 0 }).collect()
    }

    fn board(&self) -> std::sync::MutexGuard<'_, Board> {
        self.board.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Peers for Thread {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.board().sent.len() as u32
    }

    fn allgather(&mut self, data: &[u8], timeout: Duration) -> Result<Vec<Vec<u8>>, PeersError> {
        let began = Instant::now();
        let count = self.count;
        self.count += 1;
        let (rank, board) = (self.rank as usize, Arc::clone(&self.board));
        let mut guard = self.board();
        guard.sent[rank].push(data.to_vec());
        board.1.notify_all();
        loop {
            let missing = (0..).zip(&guard.sent).find(|(_, sent)| sent.len() <= count).map(|(rank, _)| rank);
            let Some(missing) = missing else {
                return Ok(guard.sent.iter().map(|sent| sent[count].clone()).collect());
            };
            if guard.is_gone[missing as usize] {
                return Err(PeersError::Gone { rank: missing, why: "its thread has ended".to_owned() });
            }
            let left = timeout.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Err(PeersError::Late { rank: missing, waited: began.elapsed() });
            }
            let woken = board.1.wait_timeout(guard, left.min(Duration::from_secs(1)));
            guard = woken.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }

    fn raise(&mut self) {
        let (rank, count) = (self.rank as usize, self.count);
        self.board().raised[rank] = Some(count);
    }

    fn raised(&mut self) -> Option<u32> {
        let board = self.board();
        let mut ranks = (0..).zip(board.raised.iter().zip(&board.is_gone));
        ranks.find(|(_, (raised, gone))| **gone || raised.is_some_and(|at| at >= self.count)).map(|(rank, _)| rank)
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        let rank = self.rank as usize;
        self.board().is_gone[rank] = true;
        self.board.1.notify_all();
    }
}

/// Opens the card of `node`.
///
/// # Errors
/// As [`Card::open`].
///
/// # Panics
/// If the card cannot be attached.
pub fn card(fabric: &Fabric, node: u32) -> Result<Card, Error> {
    let name = format!("mock {node}");
    Card::open(in_process::attach(fabric.endpoint(node), &domain(), &name).expect("a card"))
}

/// Joins the cluster of the cards of `fabric`, with that of the rank's node.
///
/// # Panics
/// If the cluster cannot be made.
pub fn join(fabric: &Fabric, peers: Thread) -> Cluster {
    Cluster::join(card(fabric, peers.rank()).map(|card| vec![card]), Box::new(peers), &[]).expect("a cluster")
}

/// Runs `rank` on a thread for each of `size` ranks, and returns what each has returned.
///
/// # Panics
/// If a thread does.
pub fn ranks<T: Send>(size: u32, rank: impl Fn(Thread) -> T + Sync) -> Vec<T> {
    let rank = &rank;
    thread::scope(|scope| {
        let threads: Vec<_> = Thread::connect(size).into_iter().map(|peers| scope.spawn(move || rank(peers))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a rank that ends")).collect()
    })
}

/// As [`ranks`], on clusters of the cards of `fabric`, of which rank r holds that of node r. Closes them at the end.
///
/// # Panics
/// If the cluster cannot be made, or a thread panics.
pub fn clusters<T: Send>(fabric: &Fabric, rank: impl Fn(&mut Cluster, u32) -> T + Sync) -> Vec<T> {
    let clock = fabric.start_clock();
    let all = ranks(fabric.profile().nodes, |peers| {
        let node = peers.rank();
        let mut cluster = join(fabric, peers);
        let value = rank(&mut cluster, node);
        cluster.close().expect("an end of all ranks");
        value
    });
    drop(clock);
    all
}

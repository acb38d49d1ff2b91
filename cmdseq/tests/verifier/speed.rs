//! What verifying a long set takes; `tests/benches/verifier.rs` measures more of them, and at the release's optimisation.

use std::time::Duration;

use cmdseq::plan::ProgramSet;
use cmdseq::{Instruction, Operand, verify};
use nix::time::{ClockId, clock_gettime};

use crate::cards::connected;

const RANKS: u16 = 64;

/// Of this thread: waiting for a core on a busy machine does not count.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

fn best(name: &str, step: impl Fn(u16, u64) -> Instruction) -> Duration {
    let of_rank = |rank| (0..1000).map(|number| step(rank, number)).collect::<Vec<_>>();
    let set = ProgramSet::new((0..RANKS.into()).collect::<Vec<_>>(), (0..RANKS).map(of_rank));
    let capabilities = connected(RANKS.into());
    let run = || {
        let start = processor_time();
        verify(&set, &capabilities).unwrap();
        processor_time() - start
    };
    let best = (0..12).map(|_| run()).min().unwrap_or_default();
    println!("{name}, 64 ranks x 1000 instructions: {:.2} ms", best.as_secs_f64() * 1e3);
    best
}

/// Far more than it takes: what would be wrong is a time that grows with the square of something.
#[test]
fn long_sets_take_milliseconds() {
    let at = Operand::card;
    let (next, last) = (|rank: u16| (rank + 1) % RANKS, |rank: u16| (rank + RANKS - 1) % RANKS);
    let far = 1 << 30;
    let times = [
        best("sendrecv in a ring", |rank, step| {
            Instruction::sendrecv(next(rank), last(rank), at(step * 4096), at(far + step * 4096), 4096)
        }),
        best("alltoall", |_, step| Instruction::alltoall(at(step * 4096), at(far + step * 4096), 64)),
        best("rdma_write and barrier", |rank, step| match step % 2 {
            0 => Instruction::rdma_write(next(rank), at(step * 4096), at(far + step * 4096), 4096),
            _ => Instruction::barrier(),
        }),
        best("put_signal and wait_signal", |rank, step| match step % 2 {
            0 => Instruction::put_signal(next(rank), at(step * 4096), at(far + step * 4096), 4096, 0, 1),
            _ => Instruction::wait_signal(0, 1),
        }),
    ];
    assert!(times.iter().all(|time| *time < Duration::from_secs(2)), "{times:?}");
}

//! A part of a call on its way through the card's queue: copies of the input from host memory, the program of this rank, and copies of
//! the output back.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cmdseq::plan::Piece;
use cmdseq::{Completion, Instruction, Operand, Operation};
use fpga_driver::{Bound, Error, QueuePair, Token, check};
use fpga_hal::DmaBuffer;

use crate::data::Data;
use crate::memory::Reached;
use crate::parts::{Parts, Run};

/// Alignment of copies in host memory.
const ALIGNMENT: usize = 64;
/// The wait for the card between times in which the MPI library makes progress: the shortest sleep on an interrupt.
const PAUSE: Duration = Duration::from_millis(1);
/// How long the MPI library makes progress at a time: long enough for a few messages whose sender waits for each.
const SERVICE: Duration = Duration::from_micros(50);

/// Where the data of one side lies. All of it is in one or the other list of copies.
#[derive(Debug, Default)]
struct Layout {
    /// Ranges that the card copies to or from the program's memory: the buffer, the address there, the address on the card, and bytes.
    reached: Vec<(Arc<DmaBuffer>, u64, u64, u64)>,
    /// Ranges that it copies to or from bounce buffers: offset there, address on the card, and bytes.
    bounced: Vec<(usize, u64, u64)>,
    /// What the host copies: offset in bounce buffers, and the place in the rank's data.
    runs: Vec<(usize, Run)>,
}

impl Layout {
    /// Finds the places of `pieces` of part `index`. Those that are bounced lie one after the other from `at` on. Returns where they end.
    fn lay(
        &mut self,
        pieces: &[Piece],
        (parts, index): (Parts, u64),
        reached: Option<&Reached>,
        align: u64,
        mut at: usize,
    ) -> usize {
        self.clear(pieces.iter().map(|piece| parts.runs(index, piece.offset, piece.bytes).count()).sum());
        for piece in pieces {
            let runs = || parts.runs(index, piece.offset, piece.bytes);
            let address = |run: &Run| reached.and_then(|reached| reached.address(run.offset, run.bytes));
            let is_aligned = |run: Run| {
                let card = piece.address + run.before;
                (run.before == 0 || card.is_multiple_of(align))
                    && address(&run).is_some_and(|address| address.is_multiple_of(align))
            };
            if let (Some(reached), true) = (reached, runs().all(is_aligned)) {
                let there = runs().filter_map(|run| {
                    Some((Arc::clone(&reached.buffer), address(&run)?, piece.address + run.before, run.bytes))
                });
                self.reached.extend(there);
            } else {
                self.bounced.push((at, piece.address, piece.bytes));
                self.runs.extend(runs().map(|run| (at + run.before as usize, run)));
                at += (piece.bytes as usize).next_multiple_of(ALIGNMENT);
            }
        }
        at
    }

    /// Empties the lists. Room for so many runs in each: wherever the data of the next call lies, nothing is allocated.
    fn clear(&mut self, runs: usize) {
        self.reached.clear();
        self.reached.reserve(runs);
        self.bounced.clear();
        self.bounced.reserve(runs);
        self.runs.clear();
        self.runs.reserve(runs);
    }

    /// Bytes that the host copies.
    fn copied(&self) -> u64 {
        self.runs.iter().map(|(_, run)| run.bytes).sum()
    }

    /// What the card copies, and the buffer of the host that each copy is in: host memory, card memory, and bytes.
    fn copies<'a>(
        &'a self,
        bounce: &'a Arc<DmaBuffer>,
        base: usize,
    ) -> impl Iterator<Item = (&'a Arc<DmaBuffer>, Operand, Operand, u64)> {
        let reached = self.reached.iter().map(|(held, host, card, bytes)| (held, *host, *card, *bytes));
        let address = move |at: usize| bounce.iova().0 + (base + at) as u64;
        let bounced = self.bounced.iter().map(move |(at, card, bytes)| (bounce, address(*at), *card, *bytes));
        reached.chain(bounced).map(|(held, host, card, bytes)| (held, Operand::host(host), Operand::card(card), bytes))
    }
}

/// Where the pieces of a program lie, and what is in flight for it.
#[derive(Debug, Default)]
pub(crate) struct Stage {
    input: Layout,
    output: Layout,
    flights: Flights,
}

impl Stage {
    /// Finds the places of the input and output of part `index`. Returns the bytes of bounce buffers that it needs.
    pub(crate) fn lay(
        &mut self,
        (input, output): (&[Piece], &[Piece]),
        part: (Parts, u64),
        (given, taken): (Option<&Reached>, Option<&Reached>),
        align: u64,
    ) -> usize {
        let outputs = self.input.lay(input, part, given, align, 0);
        self.output.lay(output, part, taken, align, outputs)
    }

    /// Bytes that the host copies, to bounce buffers and back.
    pub(crate) fn copied(&self) -> u64 {
        self.input.copied() + self.output.copied()
    }

    /// Copies the input to the bounce buffer, whose bytes for this stage begin at `base`.
    pub(crate) fn store(&self, bounce: &DmaBuffer, base: usize, data: &impl Data) -> Result<(), Error> {
        for (at, run) in &self.input.runs {
            bounce.write(base + at, data.input(run.offset as usize, run.bytes as usize)).map_err(Error::Bus)?;
        }
        Ok(())
    }

    /// Copies the output from the bounce buffer, but for what the card has written to the program's memory.
    pub(crate) fn fetch(&self, bounce: &DmaBuffer, base: usize, data: &mut impl Data) -> Result<(), Error> {
        for (at, run) in &self.output.runs {
            bounce.read(base + at, data.output(run.offset as usize, run.bytes as usize)).map_err(Error::Bus)?;
        }
        Ok(())
    }

    /// Puts the copies and the program of the card at `node` into the ring, and rings. Waits for room where there is none.
    pub(crate) fn submit(
        &mut self,
        queue: &mut QueuePair,
        (bounce, base): (&Arc<DmaBuffer>, usize),
        (program, node): (&[Instruction], u32),
        patience: &Patience<'_>,
    ) -> Result<(), Error> {
        let Stage { input, output, flights, .. } = self;
        let first = input.copies(bounce, base).count();
        flights.begin(node, first..first + program.len());
        for (held, host, card, bytes) in input.copies(bounce, base) {
            let copy = Bound::from(Instruction::copy(host, card, bytes)).holding(Arc::clone(held));
            flights.push(queue, copy, patience)?;
        }
        for instruction in program {
            flights.push(queue, Bound::from(instruction), patience)?;
        }
        for (held, host, card, bytes) in output.copies(bounce, base) {
            let copy = Bound::from(Instruction::copy(card, host, bytes)).holding(Arc::clone(held));
            flights.push(queue, copy, patience)?;
        }
        queue.ring()
    }

    /// Waits for all instructions. Returns the cycles of the program, from the issue of its first
    /// instruction to the end of its last.
    pub(crate) fn finish(&mut self, queue: &mut QueuePair, patience: &Patience<'_>) -> Result<u64, Error> {
        let began = Instant::now();
        while self.flights.settle_first(queue, began, patience)? {}
        Ok(self.flights.cycles())
    }
}

/// The instructions of a part that are in flight, in order.
#[derive(Debug, Default)]
struct Flights {
    node: u32,
    waiting: VecDeque<(Token, Operation)>,
    /// Those that are complete.
    settled: usize,
    /// Those of the program itself, among all.
    program: Range<usize>,
    /// When the first of them was issued, and the last ended, by the card's counter.
    issued: Option<u64>,
    ended: u64,
}

impl Flights {
    /// Forgets those of the part before.
    fn begin(&mut self, node: u32, program: Range<usize>) {
        self.waiting.clear();
        (self.node, self.settled, self.program, self.issued, self.ended) = (node, 0, program, None, 0);
    }

    /// Stores an instruction, and waits for room in the ring if there is none. The queue has room for twice its depth in tokens: each of
    /// two parts keeps at most half of them.
    fn push(&mut self, queue: &mut QueuePair, bound: Bound, patience: &Patience<'_>) -> Result<(), Error> {
        let operation = bound.instruction().operation;
        let began = Instant::now();
        if self.waiting.len() >= queue.depth() as usize {
            queue.ring()?;
            self.settle_first(queue, began, patience)?;
        }
        while !queue.has_room() {
            queue.ring()?;
            if queue.wait_progress(PAUSE)? == 0 {
                patience.serve();
            }
            patience.expect(began, || "room in the ring".to_owned())?;
        }
        self.waiting.push_back((queue.push(bound)?, operation));
        Ok(())
    }

    /// Waits for the first one. Returns whether there was one.
    fn settle_first(&mut self, queue: &mut QueuePair, began: Instant, patience: &Patience<'_>) -> Result<bool, Error> {
        let Some((token, operation)) = self.waiting.pop_front() else { return Ok(false) };
        let completion: Completion = loop {
            if let Some(completion) = queue.test(&token)? {
                break completion;
            }
            // The first wait comes before MPI is asked: most calls end in it.
            if queue.wait_progress(PAUSE)? == 0 {
                patience.serve();
            }
            patience.expect(began, || format!("{operation} to complete"))?;
        };
        check(completion, self.node, self.settled, operation)?;
        if self.program.contains(&self.settled) {
            self.issued.get_or_insert(completion.issued);
            self.ended = completion.issued.wrapping_add(completion.t2) & Completion::CYCLES_MASK;
        }
        self.settled += 1;
        Ok(true)
    }

    /// Cycles of the program, once all are complete.
    fn cycles(&self) -> u64 {
        self.issued.map_or(0, |issued| self.ended.wrapping_sub(issued) & Completion::CYCLES_MASK)
    }
}

/// How a call waits for its card.
pub(crate) struct Patience<'a> {
    /// The longest wait; `None` waits for as long as it takes.
    pub(crate) timeout: Option<Duration>,
    /// Gives the MPI library time while the card has nothing new.
    pub(crate) progress: &'a dyn Fn(),
}

impl Patience<'_> {
    /// Gives the MPI library time. One call moves one message a step at most, and a sender that waits for it sends the next one then.
    fn serve(&self) {
        let began = Instant::now();
        while began.elapsed() < SERVICE {
            (self.progress)();
        }
    }

    /// Fails once what `began` has taken too long.
    fn expect(&self, began: Instant, what: impl Fn() -> String) -> Result<(), Error> {
        match self.timeout {
            Some(timeout) if began.elapsed() > timeout => Err(Error::Timeout {
                what: what(),
                node: None,
                rank: None,
                instruction: None,
                waited: began.elapsed(),
                last_seen: "FPGA_MPI_TIMEOUT is over".to_owned(),
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use cmdseq::plan::Collective;
    use fpga_driver::Card;
    use fpga_hal::{Domain, in_process};
    use fpga_mock::{Fabric, Profile};

    use super::*;
    use crate::counted::{RANKS, ranks, shape};
    use crate::data::Apart;
    use crate::engine::Ends;

    /// The other rank comes when MPI was asked so often. With a call each 20 ms, the patience of the first would be over.
    #[test]
    fn a_rank_that_waits_asks_mpi_often() {
        const CALLS: u32 = 10_000;
        let calls = AtomicU32::new(0);
        let accesses: Vec<_> = (0..RANKS).map(|_| Arc::default()).collect();
        let came = ranks(&accesses, true, |rank, engine, registered| {
            let barrier = shape(Collective::Barrier, 0);
            assert!(engine.plan(registered, &barrier).unwrap());
            let began = Instant::now();
            while rank == 1 && calls.load(Ordering::SeqCst) < CALLS && began.elapsed() < Duration::from_secs(70) {
                thread::sleep(Duration::from_millis(1));
            }
            let progress = || {
                calls.fetch_add(1, Ordering::SeqCst);
            };
            let mut data = Apart { input: &[], output: &mut [] };
            engine.call(registered, &barrier, &Ends::default(), &mut data, &progress).is_ok()
        });
        assert_eq!(came, [true; RANKS as usize]);
    }

    /// Two parts are in flight, each with more instructions than the queue has tokens.
    #[test]
    fn parts_have_more_instructions_than_the_queue_has_tokens() {
        let fabric = Fabric::new(Profile::optweb(2)).unwrap();
        let function = in_process::attach(fabric.endpoint(0), &Domain::in_process(), "card").unwrap();
        let mut card = Card::open(function).unwrap();
        let bounce = card.allocate(64).unwrap();
        let (node, queue) = (card.node(), card.queue_mut());
        let program = vec![Instruction::nop(); 3 * queue.depth() as usize];
        let patience = Patience { timeout: Some(Duration::from_secs(5)), progress: &|| {} };
        let mut stages = [Stage::default(), Stage::default()];
        for stage in &mut stages {
            stage.submit(queue, (&bounce, 0), (&program, node), &patience).unwrap();
        }
        let cycles = stages.map(|mut stage| stage.finish(queue, &patience).unwrap());
        assert!(cycles[0] >= program.len() as u64 && cycles[0] == cycles[1], "{cycles:?}");
    }
}

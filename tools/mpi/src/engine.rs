//! The card of this rank: plans, and the way of one call through its queue.
//!
//! A call is one doorbell: copies of the input from host memory, the program of this rank, and copies of the output back go into the
//! ring together. A large call is cut into [parts](Parts) with a doorbell each. Two are on their way at a time: while the card runs
//! one, the host copies the input of the next and the output of the one before. Data goes through bounce buffers, in host memory that
//! is allocated once and grows, unless the card reaches the program's.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cmdseq::plan::{self, Order, Piece};
use cmdseq::{Instruction, Operation, Tables};
use fpga_driver::{Card, Cluster, Communicator, Contexts, Error, Peers, digest};
use fpga_hal::DmaBuffer;
use fpga_select::Selector;

use crate::data::Data;
use crate::memory::Reached;
use crate::parts::{PART_BYTES, Parts};
use crate::shape::Shape;
use crate::stage::{Patience, Stage};

/// Plans that a communicator keeps. All of them are dropped if there are more, on all ranks at the same call.
pub(crate) const PLANS_MAX: usize = 256;
/// Smallest buffer in host memory.
const BUFFER_MIN: usize = 1 << 20;
/// Longest wait for a server to open its card.
const OPEN: Duration = Duration::from_secs(5);
/// Parts of a call that are on their way at a time.
const STAGES: usize = 2;

/// The card of this process.
#[derive(Debug)]
pub(crate) struct Engine {
    cluster: Cluster,
    /// Bounce buffers of the stages.
    buffer: Option<Arc<DmaBuffer>>,
    stages: [Stage; STAGES],
    /// Bytes of a part of a large call.
    part_bytes: u64,
    /// Folds in the order of ranks.
    order: Order,
    timeout: Option<Duration>,
}

/// A communicator on the cards, and its plans.
#[derive(Debug)]
pub(crate) struct Registered {
    communicator: Communicator,
    rank: usize,
    plans: HashMap<Shape, Option<Planned>>,
}

/// What this rank does in a call.
#[derive(Debug)]
struct Planned {
    parts: Parts,
    part: Program,
    /// If it differs from the others.
    last: Option<Program>,
}

impl Planned {
    fn program(&self, index: u64) -> &Program {
        self.last.as_ref().filter(|_| index + 1 == self.parts.count()).unwrap_or(&self.part)
    }

    fn programs(&self) -> impl Iterator<Item = &Program> {
        (0..self.parts.count()).map(|index| self.program(index))
    }
}

/// What this rank does in a plan. The cards keep the communicators of the plan as long as this lives.
#[derive(Debug)]
struct Program {
    instructions: Vec<Instruction>,
    input: Vec<Piece>,
    output: Vec<Piece>,
    /// Those of a vector form, which the card has or is given before the call.
    tables: Tables,
    _contexts: Contexts,
}

impl Registered {
    fn planned(&self, shape: &Shape) -> Option<&Planned> {
        self.plans.get(shape).and_then(Option::as_ref)
    }

    /// Number of instructions of this rank, without the copies.
    #[cfg(test)]
    pub(crate) fn instructions(&self, shape: &Shape) -> usize {
        self.planned(shape).map_or(0, |planned| planned.programs().map(|one| one.instructions.len()).sum())
    }

    /// Drops the plans. Those of calls that come again are made anew, if the cards' tables then have room.
    pub(crate) fn forget_plans(&mut self) {
        self.plans.clear();
    }

    /// Drops the plan of calls that the cards are not to run, and what the cards keep for it.
    pub(crate) fn forget_plan(&mut self, shape: &Shape) {
        self.plans.remove(shape);
    }

    /// Number of parts of a call.
    #[cfg(test)]
    pub(crate) fn parts(&self, shape: &Shape) -> u64 {
        self.planned(shape).map_or(0, |planned| planned.parts.count())
    }

    /// Bytes of the input and of the output of this rank.
    pub(crate) fn bytes(&self, shape: &Shape) -> (usize, usize) {
        let sum = |pieces: &[Piece]| pieces.iter().map(|piece| piece.bytes as usize).sum::<usize>();
        let programs = self.planned(shape).into_iter().flat_map(Planned::programs);
        programs.fold((0, 0), |(input, output), one| (input + sum(&one.input), output + sum(&one.output)))
    }
}

/// What a call has cost.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    /// From the issue of the first instruction of the program to the end of the last, of all parts.
    pub(crate) cycles: u64,
    /// Bytes that the host copies, to memory that the card reaches and back.
    pub(crate) copied: u64,
}

/// Input and output of a call, where the card reaches them.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    pub(crate) input: Option<Reached>,
    pub(crate) output: Option<Reached>,
}

/// A call under way.
struct Flow<'a> {
    planned: &'a Planned,
    ends: &'a Ends,
    wants_output: bool,
    /// Bytes of the bounce buffers of a stage.
    room: usize,
    align: u64,
}

impl Flow<'_> {
    /// The stage of a part, and where its bounce buffers begin.
    fn slot(&self, index: u64) -> (usize, usize) {
        let slot = index as usize % STAGES;
        (slot, slot * self.room)
    }

    /// Finds the places of a part. Returns the bytes of bounce buffers that it needs.
    fn lay(&self, stage: &mut Stage, index: u64) -> usize {
        let Program { input, output, .. } = self.planned.program(index);
        let output = if self.wants_output { &output[..] } else { &[] };
        let ends = (self.ends.input.as_ref(), self.ends.output.as_ref());
        stage.lay((input, output), (self.planned.parts, index), ends, self.align)
    }
}

/// The plan of `shape`, which there must be.
fn known<'a>(registered: &'a Registered, shape: &Shape) -> Result<&'a Planned, Error> {
    registered.planned(shape).ok_or_else(|| Error::BadArgument {
        what: "shape",
        value: shape.collective.to_string(),
        expected: "one with a plan".to_owned(),
    })
}

impl Engine {
    /// Opens the card that `selector` selects: a single one.
    pub(crate) fn open(selector: &Selector, in_rank_order: bool, timeout: Option<Duration>) -> Result<Self, String> {
        let mut selection = selector.open_cards(OPEN).map_err(|error| with_causes(&error))?;
        let functions = selection.take_cards().pop().ok_or_else(|| format!("{} selects no card", selector.text()))?;
        let card = Card::open(functions).map_err(|error| with_causes(&error))?;
        // All data goes through it.
        if !card.capabilities().host_memory {
            return Err(format!("{}: the card's sequencer does not reach host memory", selector.text()));
        }
        Engine::on(card, in_rank_order, timeout).map_err(|error| with_causes(&error))
    }

    /// The engine on an open card.
    pub(crate) fn on(card: Card, in_rank_order: bool, timeout: Option<Duration>) -> Result<Self, Error> {
        let cluster = Cluster::of(vec![card])?;
        let order = if in_rank_order { Order::Rank } else { Order::default() };
        let stages = std::array::from_fn(|_| Stage::default());
        Ok(Engine { cluster, buffer: None, stages, part_bytes: PART_BYTES, order, timeout })
    }

    /// Cuts calls that are planned from now on into parts of so many bytes.
    #[cfg(test)]
    pub(crate) fn cut_into(&mut self, part_bytes: u64) {
        self.part_bytes = part_bytes;
    }

    /// Clock of the card's counters.
    pub(crate) fn clock_khz(&self) -> u32 {
        self.cluster.capabilities().clock_khz
    }

    /// Makes a communicator of the ranks of `peers`. Collective over them.
    pub(crate) fn register(&mut self, peers: Box<dyn Peers>) -> Result<Registered, Error> {
        let rank = peers.rank() as usize;
        let communicator = self.cluster.register(peers, &[])?;
        Ok(Registered { communicator, rank, plans: HashMap::new() })
    }

    /// Forgets a communicator. Sends nothing.
    pub(crate) fn forget(&mut self, mut registered: Registered) -> Result<(), Error> {
        registered.plans.clear();
        self.cluster.free(&registered.communicator)
    }

    /// Makes sure that there is a plan for `shape`: `false` if there is none. Collective if it is the first call of this shape.
    pub(crate) fn plan(&mut self, registered: &mut Registered, shape: &Shape) -> Result<bool, Error> {
        if let Some(known) = registered.plans.get(shape) {
            return Ok(known.is_some());
        }
        if registered.plans.len() >= PLANS_MAX {
            registered.forget_plans();
        }
        let planned = self.make_plan(registered, shape)?;
        let is_there = planned.is_some();
        registered.plans.insert(shape.clone(), planned);
        Ok(is_there)
    }

    /// The plans of the parts of a call of `shape`; `None` if one of them has none. Collective.
    fn make_plan(&mut self, registered: &Registered, shape: &Shape) -> Result<Option<Planned>, Error> {
        let ranks = registered.communicator.members().len() as u64;
        let parts = Parts::of(shape, ranks, self.part_bytes);
        let (first, last) = (parts.shape(shape, 0), parts.shape(shape, parts.count() - 1));
        let Some(part) = self.make_program(registered, &first, shape)? else { return Ok(None) };
        let mut planned = Planned { parts, part, last: None };
        if last != first {
            planned.last = self.make_program(registered, &last, shape)?;
            if planned.last.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(planned))
    }

    /// The program of a part with `shape` of `call`; `None` if it has no plan. Collective.
    fn make_program(&mut self, registered: &Registered, shape: &Shape, call: &Shape) -> Result<Option<Program>, Error> {
        let mut request = shape.request(registered.communicator.members().to_vec());
        request.order = self.order;
        // The cards of other ranks run nothing for this communicator.
        request.relays = Some(Vec::new());
        let set = plan::plan(&request, self.cluster.capabilities()).ok().map(|plan| plan.set);
        // What a call writes to a card must wait until the card's own call has begun.
        let set = set.filter(|set| !set.instructions().any(|one| is_one_sided(one.operation)));
        let mut among = self.cluster.among(&registered.communicator)?;
        let plan = set.as_ref().map_or_else(|| "none".to_owned(), digest);
        // The first that differs is named: ranks that make different calls read which.
        among.compare(&[("call", call.to_string()), ("plan", plan)])?;
        let Some(set) = set else { return Ok(None) };
        let contexts = match among.contexts(&set.communicators) {
            // All ranks have this error, as when the whole communicator is refused: the plan is one that the cards cannot run.
            Err(Error::TableFull { .. } | Error::IdsSpent { .. }) => return Ok(None),
            contexts => contexts?,
        };
        let (node, program) = (set.nodes[registered.rank], &set.programs[registered.rank]);
        let not_empty = |pieces: &[Piece]| pieces.iter().filter(|piece| piece.bytes != 0).cloned().collect();
        Ok(Some(Program {
            instructions: contexts.translate(node, &program.instructions).into_owned(),
            input: not_empty(&program.input),
            output: not_empty(&program.output),
            tables: program.tables.clone(),
            _contexts: contexts,
        }))
    }

    /// Has the card run its part of the plan of `shape`, which there must be, on `data`, but for what the card reaches at `ends`. Calls
    /// `progress` while it waits for long, and once at the end.
    pub(crate) fn call(
        &mut self,
        registered: &Registered,
        shape: &Shape,
        ends: &Ends,
        data: &mut impl Data,
        progress: &dyn Fn(),
    ) -> Result<Finished, Error> {
        let patience = Patience { timeout: self.timeout, progress };
        let planned = known(registered, shape)?;
        let count = planned.parts.count();
        let mut flow = Flow { planned, ends, wants_output: data.wants_output(), room: 0, align: self.alignment() };
        // No part needs more room than the first or the last.
        flow.room = [0, count - 1].map(|index| flow.lay(&mut self.stages[0], index)).into_iter().max().unwrap_or(0);
        self.reserve(flow.room * STAGES.min(count as usize))?;
        // No part is in flight when tables are replaced.
        let has_tables = planned.programs().any(|program| !program.tables.is_empty());
        let mut finished = Finished::default();
        for index in 0..count {
            if has_tables && index > 0 {
                self.end(&flow, index - 1, data, &patience, &mut finished)?;
            }
            self.begin(&flow, index, data, &patience)?;
            if !has_tables && index > 0 {
                self.end(&flow, index - 1, data, &patience, &mut finished)?;
            }
        }
        self.end(&flow, count - 1, data, &patience, &mut finished)?;
        // A program may rely on it: one that makes no other calls would never send the rest of a message.
        progress();
        Ok(finished)
    }

    /// Copies the input of a part, and submits it.
    fn begin(&mut self, flow: &Flow<'_>, index: u64, data: &impl Data, patience: &Patience<'_>) -> Result<(), Error> {
        let (program, (slot, base)) = (flow.planned.program(index), flow.slot(index));
        let Engine { cluster, buffer: Some(buffer), stages, .. } = self else { return Err(unreserved()) };
        flow.lay(&mut stages[slot], index);
        stages[slot].store(buffer, base, data)?;
        let card = cluster.card_mut(0);
        card.load_tables(&program.tables)?;
        let node = card.node();
        stages[slot].submit(card.queue_mut(), (buffer, base), (&program.instructions, node), patience)
    }

    /// Waits for a part, and copies its output.
    fn end(
        &mut self,
        flow: &Flow<'_>,
        index: u64,
        data: &mut impl Data,
        patience: &Patience<'_>,
        finished: &mut Finished,
    ) -> Result<(), Error> {
        let (slot, base) = flow.slot(index);
        let Engine { cluster, buffer: Some(buffer), stages, .. } = self else { return Err(unreserved()) };
        finished.cycles += stages[slot].finish(cluster.card_mut(0).queue_mut(), patience)?;
        finished.copied += stages[slot].copied();
        stages[slot].fetch(buffer, base, data)
    }

    /// Alignment of addresses in instructions.
    fn alignment(&self) -> u64 {
        self.cluster.capabilities().address_align.max(1).into()
    }

    /// Host memory of `bytes` bytes for the program; `None` if there is none, or if less than half of the card's mappings were left for
    /// the driver.
    pub(crate) fn allocate(&self, bytes: usize) -> Option<Arc<DmaBuffer>> {
        let card = &self.cluster.cards()[0];
        let buffer = card.allocate(bytes).ok()?;
        (buffer.domain().mappings() <= buffer.domain().entry_limit() / 2).then_some(buffer)
    }

    /// Makes sure that there are bounce buffers of at least `bytes` bytes. No call is in flight.
    fn reserve(&mut self, bytes: usize) -> Result<(), Error> {
        if self.buffer.as_ref().is_none_or(|buffer| buffer.len() < bytes) {
            // The smaller one goes first: both together may be more than there is.
            self.buffer = None;
            self.buffer = Some(self.cluster.cards()[0].allocate(bytes.next_power_of_two().max(BUFFER_MIN))?);
        }
        Ok(())
    }
}

/// There are no bounce buffers, which each call begins with.
fn unreserved() -> Error {
    Error::Stale { what: "bounce buffer" }
}

fn is_one_sided(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::RdmaRead | Operation::RdmaWrite | Operation::PutSignal | Operation::Open | Operation::Close
    )
}

/// An error with all its causes, on one line.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    cmdseq::text::with_causes(error).replace('\n', " ")
}

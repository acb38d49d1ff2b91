//! The card of this rank: plans, and the way of one call through its queue.
//!
//! A call is one doorbell: copies of the input from host memory, the program of this rank, and copies of the output back go into the
//! ring together. Data goes through host memory that is allocated once and grows, unless the card reaches the program's.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cmdseq::plan::{self, Order, Piece};
use cmdseq::{Completion, Instruction, Operand, Operation, Tables};
use fpga_driver::{Bound, Card, Cluster, Communicator, Contexts, Error, Peers, Token, check, digest};
use fpga_hal::DmaBuffer;
use fpga_select::Selector;

use crate::memory::Reached;
use crate::shape::Shape;

/// Plans that a communicator keeps. All of them are dropped if there are more, on all ranks at the same call.
pub(crate) const PLANS_MAX: usize = 256;
/// Alignment of copies in host memory.
const ALIGNMENT: usize = 64;
/// Smallest buffer in host memory.
const BUFFER_MIN: usize = 1 << 20;
/// Longest waits between checks that the MPI library makes progress.
const PAUSE_FIRST: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// Longest wait for a server to open its card.
const OPEN: Duration = Duration::from_secs(5);
/// Bits of the card's counter in a completion.
const CYCLES_MASK: u64 = (1 << 48) - 1;

/// The card of this process.
#[derive(Debug)]
pub(crate) struct Engine {
    cluster: Cluster,
    /// Inputs lie at its beginning, outputs after them.
    buffer: Option<Arc<DmaBuffer>>,
    flights: Vec<(Token, Operation)>,
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

/// What this rank does in a plan. The cards keep the communicators of the plan as long as this lives.
#[derive(Debug)]
struct Planned {
    instructions: Vec<Instruction>,
    input: Vec<Piece>,
    output: Vec<Piece>,
    /// Those of a vector form, which the card has or is given before the call.
    tables: Tables,
    /// Whether the cards are faster than the MPI library, once it was measured.
    is_faster: Option<bool>,
    _contexts: Contexts,
}

impl Registered {
    fn planned(&self, shape: &Shape) -> Option<&Planned> {
        self.plans.get(shape).and_then(Option::as_ref)
    }

    /// Whether the cards are faster than the MPI library; `None` if nobody has measured it.
    pub(crate) fn is_faster(&self, shape: &Shape) -> Option<bool> {
        self.planned(shape)?.is_faster
    }

    pub(crate) fn set_faster(&mut self, shape: &Shape, is_faster: bool) {
        if let Some(Some(planned)) = self.plans.get_mut(shape) {
            planned.is_faster = Some(is_faster);
        }
    }

    /// Number of instructions of this rank, without the copies.
    #[cfg(test)]
    pub(crate) fn instructions(&self, shape: &Shape) -> usize {
        self.planned(shape).map_or(0, |planned| planned.instructions.len())
    }

    /// Bytes of the input and of the output of this rank.
    pub(crate) fn bytes(&self, shape: &Shape) -> (usize, usize) {
        let sum = |pieces: &[Piece]| pieces.iter().map(|piece| piece.bytes as usize).sum();
        self.planned(shape).map_or((0, 0), |planned| (sum(&planned.input), sum(&planned.output)))
    }
}

/// A call whose instructions are done: its output is in host memory.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    /// From the issue of the first instruction of the program to the end of the last.
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

/// Where the card finds a piece of the input, or leaves one of the output.
enum At<'a> {
    /// In the program's memory.
    Reached(&'a Arc<DmaBuffer>, Operand),
    /// In the memory of this library, so many bytes from its beginning.
    Copied(usize),
}

impl<'a> At<'a> {
    /// What an instruction names, and the buffer that it is in, if `buffer` is the memory of this library.
    fn operand(self, buffer: &'a Arc<DmaBuffer>) -> (&'a Arc<DmaBuffer>, Operand) {
        match self {
            At::Reached(held, operand) => (held, operand),
            At::Copied(at) => (buffer, Operand::host(buffer.iova().0 + at as u64)),
        }
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

/// The places of pieces, of which those that are copied lie one after the other from `at` on.
fn places<'a>(
    pieces: &'a [Piece],
    reached: Option<&'a Reached>,
    align: u64,
    mut at: usize,
) -> impl Iterator<Item = (&'a Piece, At<'a>)> {
    pieces.iter().map(move |piece| {
        let address = |reached: &'a Reached| Some((&reached.buffer, reached.address(piece.offset, piece.bytes)?));
        let place = match reached.and_then(address).filter(|(_, address)| address.is_multiple_of(align)) {
            Some((buffer, address)) => At::Reached(buffer, Operand::host(address)),
            None => {
                at += aligned(piece.bytes);
                At::Copied(at - aligned(piece.bytes))
            }
        };
        (piece, place)
    })
}

/// Bytes of the pieces that are copied: of their data, and in host memory.
fn copied(pieces: &[Piece], reached: Option<&Reached>, align: u64) -> (u64, usize) {
    let copied = places(pieces, reached, align, 0).filter(|(_, place)| matches!(place, At::Copied(_)));
    copied.fold((0, 0), |(data, room), (piece, _)| (data + piece.bytes, room + aligned(piece.bytes)))
}

impl Engine {
    /// Opens the card that `selector` selects.
    pub(crate) fn open(selector: &str, in_rank_order: bool, timeout: Option<Duration>) -> Result<Self, String> {
        let opened = Selector::parse(selector).and_then(|parsed| parsed.open_within(OPEN));
        let mut functions = opened.map_err(|error| with_causes(&error))?.functions;
        let (Some(function), true) = (functions.pop(), functions.is_empty()) else {
            return Err(format!(
                "{selector} selects several cards: expected one for each rank, such as those of `fpgactl mock serve`"
            ));
        };
        let card = Card::open(function).map_err(|error| with_causes(&error))?;
        Engine::on(card, in_rank_order, timeout).map_err(|error| with_causes(&error))
    }

    /// The engine on an open card.
    pub(crate) fn on(card: Card, in_rank_order: bool, timeout: Option<Duration>) -> Result<Self, Error> {
        let cluster = Cluster::of(vec![card])?;
        let order = if in_rank_order { Order::Rank } else { Order::default() };
        Ok(Engine { cluster, buffer: None, flights: Vec::new(), order, timeout })
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
            registered.plans.clear();
        }
        let planned = self.make_plan(registered, shape)?;
        let is_there = planned.is_some();
        registered.plans.insert(shape.clone(), planned);
        Ok(is_there)
    }

    fn make_plan(&mut self, registered: &Registered, shape: &Shape) -> Result<Option<Planned>, Error> {
        let mut request = shape.request(registered.communicator.members().to_vec());
        request.order = self.order;
        // The cards of other ranks run nothing for this communicator.
        request.relays = Some(Vec::new());
        let set = plan::plan(&request, self.cluster.capabilities()).ok().map(|plan| plan.set);
        // What a call writes to a card must wait until the card's own call has begun.
        let set = set.filter(|set| !set.instructions().any(|one| is_one_sided(one.operation)));
        let mut among = self.cluster.among(&registered.communicator)?;
        let plan = set.as_ref().map_or_else(|| "none".to_owned(), digest);
        among.compare(&[("plan", plan)])?;
        let Some(set) = set else { return Ok(None) };
        let contexts = among.contexts(&set.communicators)?;
        let (node, program) = (set.nodes[registered.rank], &set.programs[registered.rank]);
        let not_empty = |pieces: &[Piece]| pieces.iter().filter(|piece| piece.bytes != 0).cloned().collect();
        Ok(Some(Planned {
            instructions: contexts.translate(node, &program.instructions).into_owned(),
            input: not_empty(&program.input),
            output: not_empty(&program.output),
            tables: program.tables.clone(),
            is_faster: None,
            _contexts: contexts,
        }))
    }

    /// Copies this rank's `input` to host memory that the card reaches, but for what it reaches at `ends`. There must be a plan.
    pub(crate) fn store(
        &mut self,
        registered: &Registered,
        shape: &Shape,
        input: &[u8],
        ends: &Ends,
    ) -> Result<(), Error> {
        let planned = known(registered, shape)?;
        let align = self.alignment();
        let (_, room) = copied(&planned.input, ends.input.as_ref(), align);
        let buffer = self.buffer(room + copied(&planned.output, ends.output.as_ref(), align).1)?;
        for (piece, place) in places(&planned.input, ends.input.as_ref(), align, 0) {
            if let At::Copied(at) = place {
                let data = &input[piece.offset as usize..][..piece.bytes as usize];
                buffer.write(at, data).map_err(Error::Bus)?;
            }
        }
        Ok(())
    }

    /// Has the card run its part of the plan of `shape`, on the input that [`store`](Engine::store) has stored. Calls `progress` while
    /// it waits.
    pub(crate) fn run(
        &mut self,
        registered: &Registered,
        shape: &Shape,
        ends: &Ends,
        progress: impl Fn(),
    ) -> Result<Finished, Error> {
        let planned = known(registered, shape)?;
        // No call is in flight, so that no instruction uses the tables that are replaced.
        self.cluster.card_mut(0).load_tables(&planned.tables)?;
        let align = self.alignment();
        let (given, outputs) = copied(&planned.input, ends.input.as_ref(), align);
        let (taken, room) = copied(&planned.output, ends.output.as_ref(), align);
        let buffer = self.buffer(outputs + room)?;
        for (piece, place) in places(&planned.input, ends.input.as_ref(), align, 0) {
            let (held, from) = place.operand(&buffer);
            let copy = Instruction::copy(from, Operand::card(piece.address), piece.bytes);
            self.push(Bound::from(copy).holding(Arc::clone(held)))?;
        }
        let first = self.flights.len();
        for instruction in &planned.instructions {
            self.push(Bound::from(instruction))?;
        }
        let last = self.flights.len();
        for (piece, place) in places(&planned.output, ends.output.as_ref(), align, outputs) {
            let (held, to) = place.operand(&buffer);
            let copy = Instruction::copy(Operand::card(piece.address), to, piece.bytes);
            self.push(Bound::from(copy).holding(Arc::clone(held)))?;
        }
        let cycles = self.finish(first..last, progress)?;
        Ok(Finished { cycles, copied: given + taken })
    }

    /// Stores an instruction, and waits for room in the ring if there is none.
    fn push(&mut self, bound: Bound) -> Result<(), Error> {
        let operation = bound.instruction().operation;
        let queue = self.cluster.card_mut(0).queue_mut();
        let began = Instant::now();
        while !queue.has_room() {
            queue.ring()?;
            queue.wait_progress(PAUSE_MAX)?;
            expect_before(self.timeout, began, || "room in the ring".to_owned())?;
        }
        self.flights.push((queue.push(bound)?, operation));
        Ok(())
    }

    /// Rings, and waits for all instructions. Returns the cycles of those in `program`.
    fn finish(&mut self, program: std::ops::Range<usize>, progress: impl Fn()) -> Result<u64, Error> {
        let node = self.cluster.cards()[0].node();
        let queue = self.cluster.card_mut(0).queue_mut();
        queue.ring()?;
        let began = Instant::now();
        let mut pause = PAUSE_FIRST;
        let (mut issued, mut ended) = (None, 0);
        for (index, (token, operation)) in self.flights.drain(..).enumerate() {
            let completion: Completion = loop {
                if let Some(completion) = queue.test(&token)? {
                    break completion;
                }
                // The first wait is short and comes before MPI is asked: most calls end in it.
                if queue.wait_progress(pause)? == 0 {
                    progress();
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                expect_before(self.timeout, began, || format!("{operation} to complete"))?;
            };
            check(completion, node, index, operation)?;
            if program.contains(&index) {
                issued.get_or_insert(completion.issued);
                ended = completion.issued.wrapping_add(completion.t2) & CYCLES_MASK;
            }
        }
        Ok(issued.map_or(0, |issued| ended.wrapping_sub(issued) & CYCLES_MASK))
    }

    /// Copies the output of the last call of this shape to `output`, but for what the card has written there.
    pub(crate) fn fetch(
        &self,
        registered: &Registered,
        shape: &Shape,
        output: &mut [u8],
        ends: &Ends,
    ) -> Result<(), Error> {
        let planned = known(registered, shape)?;
        let Some(buffer) = &self.buffer else { return Ok(()) };
        let align = self.alignment();
        let (_, outputs) = copied(&planned.input, ends.input.as_ref(), align);
        for (piece, place) in places(&planned.output, ends.output.as_ref(), align, outputs) {
            if let At::Copied(at) = place {
                let data = &mut output[piece.offset as usize..][..piece.bytes as usize];
                buffer.read(at, data).map_err(Error::Bus)?;
            }
        }
        Ok(())
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

    /// Host memory of at least `bytes` bytes.
    fn buffer(&mut self, bytes: usize) -> Result<Arc<DmaBuffer>, Error> {
        match &self.buffer {
            Some(buffer) if buffer.len() >= bytes => Ok(Arc::clone(buffer)),
            _ => {
                // The smaller one goes first: both together may be more than there is.
                self.buffer = None;
                let buffer = self.cluster.cards()[0].allocate(bytes.next_power_of_two().max(BUFFER_MIN))?;
                self.buffer = Some(Arc::clone(&buffer));
                Ok(buffer)
            }
        }
    }
}

fn is_one_sided(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::RdmaRead | Operation::RdmaWrite | Operation::PutSignal | Operation::Open | Operation::Close
    )
}

fn aligned(bytes: u64) -> usize {
    (bytes as usize).next_multiple_of(ALIGNMENT)
}

fn expect_before(timeout: Option<Duration>, began: Instant, what: impl Fn() -> String) -> Result<(), Error> {
    match timeout {
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

/// An error with all its causes, on one line.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text.replace('\n', " ")
}

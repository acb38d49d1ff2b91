//! Parts of running a collective that `coll` and `bench coll` share: writes the input, reads and checks the output.

use cmdseq::Operation;
use cmdseq::plan::{Collective, FoldOrder, Plan, Program};
use fpga_driver::{Release, Report};
use indicatif::ProgressBar;

use crate::ahead::one_ahead;
use crate::cards::Cards;
use crate::check::Expectation;
use crate::data::{self, Source};
use crate::exit::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::request;

/// Largest skew after the two barriers before a measurement, including 5 ns of rounding. The paper measured less than
/// 20 ns.
const SKEW_MAX_US: f64 = 0.02;

/// Returns the ranks that the collective gives an output, which may be empty.
pub(crate) fn ranks_with_output(plan: &Plan) -> Vec<u32> {
    let one = request::with_blocks_of_one(&plan.request);
    (0..one.ranks()).filter(|rank| one.output_bytes(*rank) > 0).collect()
}

/// Returns the ranks whose cards this process holds.
fn held_ranks(plan: &Plan, cards: &Cards) -> Vec<u32> {
    (0..plan.request.ranks()).filter(|rank| cards.holds(plan, *rank)).collect()
}

/// Returns the ranks with output whose cards this process holds.
pub(crate) fn held_ranks_with_output(plan: &Plan, cards: &Cards) -> Vec<u32> {
    ranks_with_output(plan).into_iter().filter(|rank| cards.holds(plan, *rank)).collect()
}

/// Returns the bytes of all inputs for cards held here.
pub(crate) fn input_bytes(plan: &Plan, cards: &Cards) -> u64 {
    held_ranks(plan, cards).into_iter().map(|rank| plan.request.input_bytes(rank)).sum()
}

/// Returns the bytes of all outputs of cards held here.
pub(crate) fn output_bytes(plan: &Plan, cards: &Cards) -> u64 {
    held_ranks(plan, cards).into_iter().map(|rank| plan.request.output_bytes(rank)).sum()
}

/// Writes the inputs of all ranks whose cards are held here.
pub(crate) fn write_inputs(
    cards: &mut Cards,
    plan: &Plan,
    source: &Source,
    interrupt: &Interrupt,
    bar: &ProgressBar,
) -> Result<()> {
    let parts = chunks(held_ranks(plan, cards), |rank| plan.request.input_bytes(rank));
    one_ahead(
        parts,
        |(rank, offset), data| source.fill(*rank, *offset, data),
        |(rank, offset), data| {
            interrupt.check()?;
            cards.cluster.write_input(&plan.set, *rank, *offset, data).map_err(|error| cards.failure(error))?;
            bar.inc(data.len() as u64);
            Ok(())
        },
    )
}

/// Reads the outputs of all ranks whose cards are held here, and passes each part with its rank and offset to `take`.
pub(crate) fn read_outputs(
    cards: &mut Cards,
    plan: &Plan,
    interrupt: &Interrupt,
    mut take: impl FnMut(u32, u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let parts = chunks(held_ranks_with_output(plan, cards), |rank| plan.request.output_bytes(rank));
    one_ahead(
        parts,
        |(rank, offset), data| {
            interrupt.check()?;
            cards.cluster.read_output(&plan.set, *rank, *offset, data).map_err(|error| cards.failure(error))
        },
        |(rank, offset), data| take(*rank, *offset, data),
    )
}

/// Splits what each of `ranks` has into chunks: rank, offset, and length of each.
fn chunks(ranks: Vec<u32>, bytes: impl Fn(u32) -> u64) -> Vec<((u32, u64), usize)> {
    let of = |rank| data::chunks(bytes(rank)).map(move |(offset, length)| ((rank, offset), length));
    ranks.into_iter().flat_map(of).collect()
}

/// Returns what the outputs must be.
pub(crate) fn expectation<'a>(plan: &'a Plan, cards: &Cards) -> Expectation<'a> {
    let request = &plan.request;
    Expectation {
        collective: request.collective,
        ranks: request.ranks(),
        bytes: request.bytes,
        counts: &request.counts,
        root: request.root,
        peer: request.peer,
        combine: request.combine,
        order: Some(FoldOrder::new(plan, cards.cluster.capabilities())),
    }
}

/// Returns the duration of a repetition: until the last byte has arrived, or until the last card left the barrier.
pub(crate) fn duration_cycles(plan: &Plan, t2_cycles: u64, arrival_cycles: u64) -> u64 {
    if plan.request.collective == Collective::Barrier { t2_cycles } else { arrival_cycles }
}

/// Checks that no card left a barrier before the last card arrived, in any repetition.
pub(crate) fn check_barrier(plan: &Plan, report: &Report) -> Result<()> {
    let Some(Release { rank, repetition, early_cycles }) = report.earliest_release else { return Ok(()) };
    if plan.request.collective != Collective::Barrier || report.microseconds(early_cycles) <= SKEW_MAX_US {
        return Ok(());
    }
    let message =
        format!("rank {rank}: released from the barrier before all ranks arrived, in repetition {repetition}");
    Err(Failure::new(Exit::Verification, message).of_rank(rank))
}

/// Refuses repetitions of a plan whose output replaces its input.
pub(crate) fn check_repeat(plan: &Plan, repeat: u32) -> Result<()> {
    if repeat > 1 && plan.replaces_input {
        return Err(Failure::refused("--repeat: the output replaces the input, because a card has no room for both"));
    }
    Ok(())
}

/// Refuses a group of one card in a larger fabric: the result would show nothing about the fabric.
pub(crate) fn check_group(group: &[u32], cards: &Cards) -> Result<()> {
    let (nodes, selector) = (cards.capabilities().nodes, &cards.selector);
    if group.len() != 1 || nodes == 1 {
        return Ok(());
    }
    Err(Failure::refused(format!(
        "a collective needs at least 2 cards: --cards {selector} and --group select 1 card of a fabric of {nodes}; \
         separate several cards by commas"
    )))
}

/// Returns the notes on a plan, and on its group if that is a part of the fabric.
pub(crate) fn notes(plan: &Plan, cards: &Cards) -> Vec<String> {
    let (ranks, nodes) = (plan.request.ranks(), cards.capabilities().nodes);
    let partial = (ranks < nodes).then(|| {
        let take = if ranks == 1 { "takes" } else { "take" };
        format!("{ranks} of the fabric's {nodes} cards {take} part")
    });
    plan.notes.iter().cloned().chain(partial).collect()
}

/// Whether only barriers before each repetition keep it apart from the one before. All ranks leave a barrier instruction together,
/// and so begin the next one together; they leave a tree of messages one after the other.
pub(crate) fn needs_barriers_between(plan: &Plan) -> bool {
    let ends_otherwise =
        |program: &Program| program.instructions.last().is_some_and(|last| last.operation != Operation::Barrier);
    plan.request.collective != Collective::Barrier || plan.set.programs.iter().any(ends_otherwise)
}

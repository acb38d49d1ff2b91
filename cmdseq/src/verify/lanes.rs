//! Memory of exchanges that a card may run at once.
//!
//! An instruction may still run when a later one is issued, unless that one, or one between them, waits for it. What each card's
//! program says is enough: without one-sided operations, a card's memory is accessed by its own instructions only.

use super::bounds::OperandBounds;
use crate::limits::{BLOCKS_MAX, too_long};
use crate::matching::{Claim, Job, Lanes};
use crate::ranges::{Access, Spans, card_ranges};
use crate::refusal::{Reason, Refusal};
use crate::{Context, Instruction};

/// Refuses exchanges that may run at once on a card if one writes bytes that the other reads or writes. `spans` are
/// the bounds of the tables, by rank.
pub(super) fn check(job: Job<'_>, spans: &[Spans]) -> Result<(), Refusal> {
    let mut lanes = Lanes::new(job);
    if lanes.count() == 1 {
        return Ok(());
    }
    let instructions = || job.programs.iter().flat_map(|program| &program.instructions);
    if instructions().any(|instruction| instruction.operation.fields().window) {
        let cause = "programs with one-sided operations or windows use lane 0 only: the verifier does not order other lanes with them";
        return Err(Refusal::general(cause.into()).because(Reason::Unsupported));
    }
    let mut blocks = 0;
    for (rank, program) in job.programs.iter().enumerate() {
        let mut running: Vec<Running<'_>> = Vec::new();
        for (index, instruction) in program.instructions.iter().enumerate() {
            let claim = lanes.claim(rank, index);
            running.retain(|earlier| !claim.waits_for(&earlier.claim));
            if !instruction.operation.fields().lane {
                continue;
            }
            let context = job.context(rank, instruction);
            let sides = OperandBounds::of(instruction, &context, &spans[rank]);
            let mut it = Running { index, instruction, claim, context, sides, accesses: None };
            for earlier in &mut running {
                if it.is_plainly_apart_from(earlier) {
                    continue;
                }
                blocks += it.list() + earlier.list();
                if blocks > BLOCKS_MAX {
                    return Err(too_long("BLOCKS_MAX", BLOCKS_MAX, "blocks of programs with several lanes"));
                }
                if let Some(cause) = it.conflict(earlier) {
                    return Err(Refusal::at(rank, index, cause).because(Reason::Race));
                }
            }
            running.push(it);
        }
    }
    Ok(())
}

/// Returns what `instruction` accesses, by address.
fn accesses(instruction: &Instruction, context: &Context<'_>) -> Vec<Access> {
    let mut all: Vec<Access> = card_ranges(instruction, context).unwrap_or_default().accesses().collect();
    all.sort_unstable_by_key(|access| access.range.address);
    all
}

/// An instruction that may still run.
struct Running<'a> {
    index: usize,
    instruction: &'a Instruction,
    claim: Claim,
    context: Context<'a>,
    /// Bounds of what it accesses, if they are known.
    sides: Option<OperandBounds>,
    /// All that it accesses, once it was needed.
    accesses: Option<Vec<Access>>,
}

impl Running<'_> {
    /// Whether the bounds alone show that the two have no conflict.
    fn is_plainly_apart_from(&self, other: &Running<'_>) -> bool {
        let sides = self.sides.as_ref().zip(other.sides.as_ref());
        sides.is_some_and(|(sides, others)| sides.are_apart_from(others, self.context.stripe_bytes))
    }

    /// Lists what it accesses; returns the number of accesses if they were not listed before.
    fn list(&mut self) -> u64 {
        if self.accesses.is_some() {
            return 0;
        }
        self.accesses.insert(accesses(self.instruction, &self.context)).len() as u64
    }

    /// Why this one and an earlier one, both listed, must not run at once.
    fn conflict(&self, earlier: &Running<'_>) -> Option<String> {
        let (here, there) = first_conflict(self.accesses.as_deref()?, earlier.accesses.as_deref()?)?;
        let does = |access: Access| if access.is_write { "writes" } else { "reads" };
        Some(format!(
            "{} in lane {} {} {} B at {:#x}, and instruction {} ({} in lane {}), which may run at the same time, {} {} B at \
             {:#x}; use one lane for both, or the flag fence",
            self.instruction.operation,
            self.instruction.lane,
            does(here),
            here.range.bytes,
            here.range.address,
            earlier.index,
            earlier.instruction.operation,
            earlier.instruction.lane,
            does(there),
            there.range.bytes,
            there.range.address
        ))
    }
}

/// Returns the first access of each list, both by address, of which one writes what the other accesses.
fn first_conflict(one: &[Access], other: &[Access]) -> Option<(Access, Access)> {
    let (mut one, mut other) = (one.iter().copied().peekable(), other.iter().copied().peekable());
    // Of each list, the read and the write that reach furthest.
    let mut last: [[Option<Access>; 2]; 2] = Default::default();
    loop {
        let side = match (one.peek(), other.peek()) {
            (Some(one), Some(other)) => usize::from(other.range.address < one.range.address),
            (Some(_), None) => 0,
            (None, Some(_)) => 1,
            (None, None) => return None,
        };
        let access = if side == 0 { one.next() } else { other.next() }?;
        let [read, written] = last[1 - side];
        let against = [written, read.filter(|_| access.is_write)];
        if let Some(hit) = against.into_iter().flatten().find(|last| last.range.overlaps(access.range)) {
            return Some(if side == 0 { (access, hit) } else { (hit, access) });
        }
        let reached = &mut last[side][usize::from(access.is_write)];
        if reached.is_none_or(|last| last.range.end() < access.range.end()) {
            *reached = Some(access);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ranges::Range;
    use crate::{Operand, Operation, Tables};

    fn any_accesses() -> impl Strategy<Value = Vec<Access>> {
        let access = (0..64_u64, 0..8_u64, any::<bool>())
            .prop_map(|(address, bytes, is_write)| Access { range: Range { address, bytes }, is_write });
        prop::collection::vec(access, 0..6).prop_map(|mut all| {
            all.sort_unstable_by_key(|access| access.range.address);
            all
        })
    }

    const STRIPE: u64 = 64;

    fn any_exchange() -> impl Strategy<Value = Instruction> {
        let operations: Vec<Operation> = Operation::ALL.iter().copied().filter(|one| one.fields().lane).collect();
        let operand = || {
            (0..300_u64, any::<bool>()).prop_map(|(address, is_striped)| {
                if is_striped { Operand::card(address).striped() } else { Operand::card(address) }
            })
        };
        let fields = (prop::sample::select(operations), 0..4_u16, 0..4_u16, 0..24_u64, 0..300_u64);
        (fields, operand(), operand()).prop_map(|((operation, root, peer, bytes, extent), source, destination)| {
            Instruction { root, peer, bytes, extent, source, destination, ..Instruction::new(operation) }
        })
    }

    /// The buffer of a piece lies beside the stripes of another.
    #[test]
    fn bounds_tell_pieces_of_a_pipeline_apart() {
        let tables = Tables::new();
        let context = Context { rank: 0, ranks: 4, stripe_bytes: STRIPE, tables: &tables };
        let sides = |instruction: &Instruction| OperandBounds::of(instruction, &context, &Spans::default()).unwrap();
        let scatter = Instruction::scatter(0, Operand::card(8).striped(), Operand::card(40), 8);
        for (destination, are_apart) in [(16, true), (15, false), (0, true), (1, false), (48, true), (47, false)] {
            let gather = Instruction::gather(0, Operand::card(32), Operand::card(destination).striped(), 8);
            assert_eq!(sides(&scatter).are_apart_from(&sides(&gather), STRIPE), are_apart, "{destination}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4000) })]

        #[test]
        fn what_is_apart_by_its_bounds_has_no_conflict(
            rank in 0..4_u32,
            one in any_exchange(),
            other in any_exchange(),
        ) {
            let tables = Tables::new();
            let context = Context { rank, ranks: 4, stripe_bytes: STRIPE, tables: &tables };
            let sides = [&one, &other].map(|it| OperandBounds::of(it, &context, &Spans::default()));
            if let [Some(here), Some(there)] = sides
                && here.are_apart_from(&there, STRIPE)
            {
                prop_assert_eq!(first_conflict(&accesses(&one, &context), &accesses(&other, &context)), None);
            }
        }

        #[test]
        fn a_conflict_is_found_if_any_two_accesses_conflict(one in any_accesses(), other in any_accesses()) {
            let conflicts =
                |one: &Access, other: &Access| (one.is_write || other.is_write) && one.range.overlaps(other.range);
            let expected = one.iter().any(|a| other.iter().any(|b| conflicts(a, b)));
            let found = first_conflict(&one, &other);
            prop_assert_eq!(found.is_some(), expected);
            if let Some((here, there)) = found {
                prop_assert!(one.contains(&here) && other.contains(&there) && conflicts(&here, &there));
            }
        }
    }
}

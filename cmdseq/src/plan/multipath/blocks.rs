//! A reduce_scatter among linked ranks whose blocks leave no pseudo channel for the result.
//!
//! Where stripes share pseudo channels, an instruction takes as long as its fullest channel, and the result is one stream more where
//! all channels are as full. So the last blocks wait: the others leave a channel for the result. Then each block that waited is cut
//! into parts, one for each of the ranks that have their block, which fold them in the same way, and is gathered at its rank.

use crate::plan::channels::{Spread, are_apart};
use crate::plan::draft::Draft;
use crate::plan::placement::{pieces_at, pieces_of, unit, whole};
use crate::refusal::Refusal;
use crate::request::Request;
use crate::{Capabilities, Combine, Instruction, Operand};

/// The programs of `request`, which is a reduce_scatter by `combine`.
pub(super) fn build(request: &Request, capabilities: &Capabilities, combine: Combine) -> Result<Draft, Refusal> {
    let refuse = |cause: &str| Err(Refusal::general(format!("multipath {cause}")));
    let (ranks, bytes) = (request.ranks(), request.bytes);
    if request.placement.is_some() || !capabilities.topology.all_reach(&request.group, capabilities.nodes) {
        return refuse("reduces blocks of linked ranks, and places them itself");
    }
    if are_apart(capabilities) || Spread::new(0, ranks, bytes, 1, capabilities).is_none_or(|all| !all.free.is_empty()) {
        return refuse("is for blocks that leave no pseudo channel for the result: use direct");
    }
    let unit = unit(request, capabilities);
    let Some(blocks) = (1..ranks).rev().find_map(|count| Blocks::new(request, count, unit, capabilities)) else {
        return refuse("has no room for blocks and parts of them");
    };
    let Blocks { count, block, part, .. } = blocks;
    let (late, stripe) = (ranks - count, capabilities.stripe_bytes());
    let mut instructions = vec![
        Instruction::reduce_scatter(combine, Operand::card(0).striped(), Operand::card(blocks.result), bytes)
            .dividing(bytes * u64::from(count)),
    ];
    let folded = |number: u32| Operand::card(blocks.result + block + part * u64::from(number));
    for number in 0..late {
        let parts = Operand::card(blocks.late(number)).striped();
        instructions.push(Instruction::reduce_scatter(combine, parts, folded(number), part).dividing(bytes));
    }
    let gathered = blocks.late(late);
    for number in 0..late {
        let root = (count + number) as u16;
        let one = Instruction::gather(root, folded(number), Operand::card(gathered).striped(), part);
        instructions.push(one.dividing(bytes));
    }
    let mut draft = Draft::on_one_communicator(request, capabilities);
    let communicator = draft.communicator;
    for program in &mut draft.programs {
        program.instructions = instructions.iter().map(|one| one.on(communicator)).collect();
    }
    let in_parts = |begin: u64| pieces_at(part, bytes, move |number| begin + stripe * u64::from(number));
    let of_late = |number: u32| in_parts(blocks.late(number)).into_iter().map(|one| (one.address, one.bytes));
    let first = (0..u64::from(count)).map(|number| (stripe * number, bytes));
    let input = pieces_of(first.chain((0..late).flat_map(of_late)));
    draft.lies(request, |rank| {
        (input.clone(), if rank < count { whole(blocks.result, bytes) } else { in_parts(gathered) })
    });
    Ok(draft)
}

/// Blocks that go first, and parts of those that wait.
struct Blocks {
    /// Number of blocks that go first, and of parts of each of the others.
    count: u32,
    /// From the beginning of a block to what lies behind it.
    block: u64,
    part: u64,
    /// Address of the results, in a channel without blocks.
    result: u64,
}

impl Blocks {
    fn new(request: &Request, count: u32, unit: u64, capabilities: &Capabilities) -> Option<Self> {
        let block = request.bytes.checked_next_multiple_of(unit)?;
        let part = request.bytes.div_ceil(count.into()).checked_next_multiple_of(unit)?;
        // Behind each block, a part of each block that waits, and one that is gathered.
        let held = part.checked_mul(u64::from(request.ranks() - count) + 1)?.checked_add(block)?;
        let result = *Spread::new(0, count, held, 1, capabilities)?.free.first()?;
        (request.bytes > 0 && held <= capabilities.channel_bytes()).then_some(Blocks { count, block, part, result })
    }

    /// Where the parts begin of block `number` of those that wait.
    fn late(&self, number: u32) -> u64 {
        self.block + self.part * u64::from(number)
    }
}

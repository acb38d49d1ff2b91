//! Where data lies in card memory.
//!
//! A pseudo channel that is read and written at once gives each half of its rate, so what one instruction reads and what
//! it writes lie in different ones: sources in the lower halves of the stripes and destinations in the upper, or the
//! other way round.

use std::ops;

use super::routing::goes_from_rank_to_rank;
use crate::matching::Job;
use crate::program::{Piece, joined};
use crate::ranges::{Range, card_ranges};
use crate::refusal::Refusal;
use crate::request::{Placement, Request};
use crate::table::Entry;
use crate::{AddressSpace, Capabilities, Instruction, Layout, Operand, Table};

impl Placement {
    /// Refuses what no plan can honour.
    pub(super) fn check(&self, capabilities: &Capabilities) -> Result<(), Refusal> {
        let align = u64::from(capabilities.address_align.max(1));
        let operands =
            [("input", self.input), ("output", self.output), ("between", Operand::card(self.between.address))];
        for (name, operand) in operands {
            if operand.space != AddressSpace::Card || operand.argument.is_some() {
                return Err(Refusal::general(format!("placement of {name}: expected an address in card memory")));
            }
            if !operand.address.is_multiple_of(align) {
                let cause =
                    format!("placement of {name} {:#x} is misaligned: expected a multiple of {align}", operand.address);
                return Err(Refusal::general(cause));
            }
        }
        Ok(())
    }

    /// The addresses of input and output, if what goes over other cards can use them: consecutive blocks of what goes from rank to rank,
    /// without a common byte.
    fn in_blocks(&self, request: &Request) -> Option<[u64; 2]> {
        let operands = [self.input, self.output];
        let overlap = |rank: u32| {
            let sizes = [request.input_bytes(rank), request.output_bytes(rank)];
            let [input, output] = [0, 1].map(|side| Range { address: operands[side].address, bytes: sizes[side] });
            input.overlaps(output)
        };
        let can_use = goes_from_rank_to_rank(request)
            && operands.iter().all(|operand| operand.layout == Layout::Block)
            && !(0..request.ranks()).any(overlap);
        can_use.then_some(operands.map(|operand| operand.address))
    }

    /// Where a rank has its input and its output. A card outside of the group has neither.
    pub(super) fn pieces(&self, request: &Request, capabilities: &Capabilities, rank: u32) -> [Vec<Piece>; 2] {
        if rank >= request.ranks() {
            return Default::default();
        }
        let stripes = Stripes::new(request, capabilities);
        let lie = |operand, total| stripes.lie_at(operand, request.bytes, total);
        [lie(self.input, request.input_bytes(rank)), lie(self.output, request.output_bytes(rank))]
    }

    /// Refuses `programs` that have the data elsewhere, or touch other memory: their algorithm does not honour a placement.
    pub(super) fn check_honoured(&self, request: &Request, job: Job<'_>) -> Result<(), Refusal> {
        for (rank, program) in job.programs.iter().enumerate() {
            let asked = self.pieces(request, job.capabilities, rank as u32);
            for (name, lie, asked) in [("input", &program.input, &asked[0]), ("output", &program.output, &asked[1])] {
                if joined(lie) != joined(asked) {
                    return Err(Refusal::of(rank, format!("the algorithm cannot use the placement of its {name}")));
                }
            }
            let range = |one: &Piece| Range { address: one.address, bytes: one.bytes };
            let [input, output] = asked.map(|pieces| pieces.iter().map(range).collect::<Vec<_>>());
            let is_outside = |touched: &&Range| {
                let holds = |area: &Range| area.address <= touched.address && touched.end() <= area.end();
                touched.bytes != 0 && !input.iter().chain(&output).chain([&self.between]).any(holds)
            };
            let mut written: Vec<Range> = Vec::new();
            for (index, instruction) in program.instructions.iter().enumerate() {
                let refuse = |cause: String| Refusal::at(rank, index, cause);
                let touched = card_ranges(instruction, &job.context(rank, instruction));
                let touched = touched.map_err(|error| refuse(error.to_string()))?;
                if let Some(Range { address, bytes }) = touched.reads.iter().chain(&touched.writes).find(is_outside) {
                    return Err(refuse(format!(
                        "{bytes} B at {address:#x} are outside of input, output and intermediate memory"
                    )));
                }
                // In place, what is written is no longer input; whether it is read as that, addresses do not say.
                let is_late = |range: &&Range| written.iter().any(|other: &Range| other.overlaps(**range));
                if let Some(Range { address, bytes }) = touched.reads.iter().find(is_late) {
                    return Err(refuse(format!(
                        "{bytes} B at {address:#x} of the input are read when the output may have replaced them: the algorithm does \
                         not work in place"
                    )));
                }
                let of_input = |range: &&Range| input.iter().any(|one| one.overlaps(**range));
                written.extend(touched.writes.iter().filter(of_input));
            }
        }
        Ok(())
    }
}

/// Places blocks in the stripes of a card's memory.
pub(super) struct Stripes {
    half_bytes: u64,
    memory_bytes: u64,
    ranks: u64,
}

impl Stripes {
    pub(super) fn new(request: &Request, capabilities: &Capabilities) -> Self {
        Stripes {
            half_bytes: capabilities.stripe_half_bytes,
            memory_bytes: capabilities.memory_bytes,
            ranks: u64::from(request.ranks()),
        }
    }

    /// Refuses blocks of `bytes`, one for each rank, that the stripes do not hold.
    pub(super) fn check(&self, bytes: u64) -> Result<(), Refusal> {
        let stripe = self.stripe();
        if self.ranks.saturating_mul(stripe) > self.memory_bytes {
            return Err(Refusal::general(format!(
                "{} blocks, one in each stripe of {stripe} B, exceed the {} B of card memory: at most {} ranks fit",
                self.ranks,
                self.memory_bytes,
                self.memory_bytes.checked_div(stripe).unwrap_or(0)
            )));
        }
        if bytes > self.half_bytes {
            return Err(Refusal::general(format!(
                "a block of {bytes} B exceeds half a stripe: striped blocks have at most {} B",
                self.half_bytes
            )));
        }
        Ok(())
    }

    /// The lower halves, with as many blocks as there are ranks.
    pub(super) fn lower(&self) -> Operand {
        Operand::card(0).striped()
    }

    /// The upper halves.
    pub(super) fn upper(&self) -> Operand {
        Operand::card(self.half_bytes).striped()
    }

    /// Block `number` of those at `operand`, one in each stripe.
    pub(super) fn block(&self, operand: Operand, number: u32) -> Operand {
        Operand::card(operand.address.saturating_add(self.stripe().saturating_mul(number.into())))
    }

    /// One block in the lowest upper half, or past a block of the same size at 0 if that is longer.
    pub(super) fn single_upper(&self, bytes: u64) -> Result<Operand, Refusal> {
        let address = if bytes <= self.half_bytes {
            Some(self.half_bytes)
        } else {
            let stripe = self.stripe().max(1);
            bytes.div_ceil(stripe).checked_mul(stripe)
        };
        let inside = |address: &u64| address.checked_add(bytes).is_some_and(|end| end <= self.memory_bytes);
        address.filter(inside).map(Operand::card).ok_or_else(|| {
            Refusal::general(format!(
                "{bytes} B of output, and as many for received data, exceed the {} B of card memory",
                self.memory_bytes
            ))
        })
    }

    fn stripe(&self) -> u64 {
        self.half_bytes.saturating_mul(2)
    }

    /// `total` bytes as blocks of `block` bytes that lie at `operand`, striped or not.
    pub(super) fn lie_at(&self, operand: Operand, block: u64, total: u64) -> Vec<Piece> {
        match operand.layout {
            Layout::Striped => pieces_at(block, total, |number| self.block(operand, number).address),
            Layout::Block => whole(operand.address, total),
        }
    }
}

/// Bytes of which a block of a cut vector is a multiple, so that all blocks begin at aligned addresses, with a beat and an
/// element.
pub(super) fn unit(request: &Request, capabilities: &Capabilities) -> u64 {
    let element = request.combine.map_or(1, |combine| combine.element.bytes());
    let unit = capabilities.aligned_beat();
    unit.checked_next_multiple_of(element).unwrap_or(unit)
}

/// `bytes` bytes in one piece at `address`; none if there are none.
pub(super) fn whole(address: u64, bytes: u64) -> Vec<Piece> {
    let piece = Piece { offset: 0, address, bytes };
    if bytes == 0 { Vec::new() } else { vec![piece] }
}

/// A vector of `total` bytes in blocks of `bytes`, the last perhaps short, block i at `address(i)`. Blocks that touch are one
/// piece.
pub(super) fn pieces_at(bytes: u64, total: u64, address: impl Fn(u32) -> u64) -> Vec<Piece> {
    let mut left = total;
    pieces_of((0..).map_while(|number| {
        let length = bytes.min(left);
        left -= length;
        (length != 0).then(|| (address(number), length))
    }))
}

/// A vector of blocks of these addresses and bytes, in order. Blocks that touch are one piece, and empty ones none.
pub(super) fn pieces_of(blocks: impl IntoIterator<Item = (u64, u64)>) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut offset = 0_u64;
    for (address, bytes) in blocks.into_iter().filter(|(_, bytes)| *bytes != 0) {
        match pieces.last_mut() {
            Some(last) if last.address.checked_add(last.bytes) == Some(address) => last.bytes += bytes,
            _ => pieces.push(Piece { offset, address, bytes }),
        }
        offset = offset.saturating_add(bytes);
    }
    pieces
}

/// Blocks of any lengths one behind the other, each beginning at a multiple of the alignment.
#[derive(Debug, Clone)]
pub(super) struct Packed {
    blocks: Table,
    /// Behind the last block, bytes from the first.
    total: u64,
}

impl Packed {
    pub(super) fn new(lengths: impl IntoIterator<Item = u64>, capabilities: &Capabilities) -> Self {
        // The place of a block behind the last is what all take.
        let mut blocks = Table::packed(lengths.into_iter().chain([0]), capabilities.address_align.into());
        let total = blocks.entries.pop().unwrap_or_default().displacement;
        Packed { blocks, total }
    }

    /// Bytes of all, with what lies between and behind them. Saturates.
    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    /// Where block `number` begins, bytes from the first.
    pub(super) fn offset(&self, number: u32) -> u64 {
        self.blocks.get(number).map_or(self.total, |block| block.displacement)
    }

    /// Bytes of block `number`.
    pub(super) fn length(&self, number: u32) -> u64 {
        self.blocks.get(number).unwrap_or_default().bytes
    }

    /// Bytes of the blocks `numbers`, with what lies between and behind them.
    pub(super) fn bytes(&self, numbers: ops::Range<u32>) -> u64 {
        self.offset(numbers.end).saturating_sub(self.offset(numbers.start))
    }

    /// The blocks `numbers`, with bytes from the first of all.
    pub(super) fn table(&self, numbers: ops::Range<u32>) -> Table {
        Table { entries: numbers.map(|number| self.blocks.get(number).unwrap_or_default()).collect() }
    }

    /// All blocks, if the first lies at `address`.
    pub(super) fn pieces(&self, address: u64) -> Vec<Piece> {
        let at = |block: &Entry| (address.saturating_add(block.displacement), block.bytes);
        pieces_of(self.blocks.entries.iter().map(at))
    }
}

/// Copies data that lies in the pieces `from` to the pieces `to`.
pub(super) fn copies(from: &[Piece], to: &[Piece]) -> Vec<Instruction> {
    let (from, to) = (joined(from), joined(to));
    let (mut from, mut to) = (from.iter().peekable(), to.iter().peekable());
    let mut at = 0;
    let mut copies = Vec::new();
    while let (Some(source), Some(destination)) = (from.peek(), to.peek()) {
        let ends = [source, destination].map(|piece| piece.offset + piece.bytes);
        let bytes = ends[0].min(ends[1]) - at;
        let address = |piece: &Piece| Operand::card(piece.address + (at - piece.offset));
        copies.push(Instruction::copy(address(source), address(destination), bytes));
        at += bytes;
        from.next_if(|_| ends[0] == at);
        to.next_if(|_| ends[1] == at);
    }
    copies.retain(|copy| copy.bytes != 0 && copy.source != copy.destination);
    copies
}

/// Hands out areas of memory one after another.
pub(super) struct Areas {
    unit: u64,
    next: Option<u64>,
    memory_bytes: u64,
}

impl Areas {
    /// As [`place`](Areas::place), with the memory behind all areas, which is free. With a placement, all areas are in its intermediate
    /// memory, but input and output that may be used where the request [places](Placement::in_blocks) them: data is copied from and to
    /// the others.
    pub(super) fn with_room<const COUNT: usize>(
        request: &Request,
        capabilities: &Capabilities,
        sizes: [u64; COUNT],
    ) -> Result<([u64; COUNT], Range), Refusal> {
        let Some(placement) = &request.placement else {
            let places = Areas::place(request, capabilities, sizes)?;
            let end = places.iter().zip(sizes).map(|(place, bytes)| place + bytes).max().unwrap_or(0);
            return Ok((places, Range { address: end, bytes: capabilities.memory_bytes.saturating_sub(end) }));
        };
        let (unit, end) = (capabilities.aligned_beat(), placement.between.end().min(capabilities.memory_bytes));
        let next = placement.between.address.checked_next_multiple_of(unit);
        let (places, next) =
            Areas { unit, next, memory_bytes: end }.take_all(placement, placement.in_blocks(request), sizes)?;
        let next = next.unwrap_or(end).min(end);
        Ok((places, Range { address: next, bytes: end - next }))
    }

    /// Places input, output, and areas between of these sizes, in this order: where `request` says, or each beginning in a
    /// pseudo channel of its own if they fit like that.
    pub(super) fn place<const COUNT: usize>(
        request: &Request,
        capabilities: &Capabilities,
        sizes: [u64; COUNT],
    ) -> Result<[u64; COUNT], Refusal> {
        if let Some(placement) = &request.placement {
            let Placement { input, output, between } = placement;
            if input.layout == Layout::Striped || output.layout == Layout::Striped {
                return Err(Refusal::general(
                    "the algorithm uses consecutive blocks: a striped placement is not supported".into(),
                ));
            }
            let (unit, next) = (capabilities.aligned_beat(), Some(between.address));
            let areas = Areas { unit, next, memory_bytes: between.end() };
            return Ok(areas.take_all(placement, Some([input.address, output.address]), sizes)?.0);
        }
        let apart = capabilities.stripe_half_bytes.max(capabilities.channel_bytes()).max(1);
        let close = capabilities.aligned_beat();
        let place = |unit| {
            let mut areas = Areas { unit, next: Some(0), memory_bytes: capabilities.memory_bytes };
            let mut places = [0; COUNT];
            for (place, bytes) in places.iter_mut().zip(sizes) {
                *place = areas.take(bytes)?;
            }
            Some(places)
        };
        place(apart).or_else(|| place(close)).ok_or_else(|| {
            let total = sizes.iter().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
            Refusal::general(format!(
                "input, output and intermediate data of {total} B exceed the {} B of card memory",
                capabilities.memory_bytes
            ))
        })
    }

    /// Areas of these sizes in the intermediate memory of `placement`, but the first two at the addresses `asked`, if any. Returns also
    /// where the memory behind them begins.
    fn take_all<const COUNT: usize>(
        mut self,
        placement: &Placement,
        asked: Option<[u64; 2]>,
        sizes: [u64; COUNT],
    ) -> Result<([u64; COUNT], Option<u64>), Refusal> {
        let Range { address, bytes: room } = placement.between;
        let mut places = [address; COUNT];
        let count = places.iter_mut().zip(asked.into_iter().flatten()).map(|(place, asked)| *place = asked).count();
        // What is empty needs no room, nor an address of its own.
        let others = places.iter_mut().zip(sizes).skip(count).filter(|(_, bytes)| *bytes != 0);
        for (place, bytes) in others {
            *place = self.take(bytes).ok_or_else(|| {
                let total = sizes.iter().skip(count).fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
                Refusal::general(format!("{total} B of intermediate data exceed the {room} B of intermediate memory"))
            })?;
        }
        Ok((places, self.next))
    }

    fn take(&mut self, bytes: u64) -> Option<u64> {
        let address = self.next?;
        let end = address.checked_add(bytes).filter(|end| *end <= self.memory_bytes)?;
        // An empty area needs no room, but two areas at one address would look like an exchange in place.
        self.next = end.max(address + 1).checked_next_multiple_of(self.unit);
        Some(address)
    }
}

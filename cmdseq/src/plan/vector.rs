//! The vector forms: one instruction for each rank, with blocks of lengths of their own that lie where tables say.

use super::draft::Draft;
use super::placement::{Areas, Stripes, pieces_of, whole};
use crate::program::{Piece, Program};
use crate::refusal::Refusal;
use crate::request::{Collective, Request};
use crate::table::Entry;
use crate::{Capabilities, Flags, Instruction, Layout, Operand, Table, Tables};

/// Slot of the table of blocks that are sent, or of the only table.
const FIRST: u16 = 0;
/// Slot of the table of blocks that an alltoallv receives.
const SECOND: u16 = 1;

/// The programs of `request`, which is for a vector form.
pub(super) fn build(request: &Request, capabilities: &Capabilities) -> Result<Draft, Refusal> {
    let ranks = 0..request.ranks();
    let root = request.root as u16;
    let blocks = Blocks::new(request, capabilities)?;
    let flags = flags(request, capabilities, request.counts.iter().copied().max().unwrap_or(0));
    let mut draft = Draft::on_one_communicator(request, capabilities);
    for (rank, program) in ranks.clone().zip(&mut draft.programs) {
        let (source, destination) = (blocks.source, blocks.destination);
        let sends = || ranks.clone().map(move |to| request.given(rank, to));
        let receives = || ranks.clone().map(move |from| request.given(from, rank));
        let (before, after) = (request.input_bytes(rank), request.output_bytes(rank));
        let (mut input, mut output) = (whole(source.address, before), whole(destination.address, after));
        let mut tables = Tables::new();
        let mut listed = |slot, operand, table| {
            let pieces = pieces(operand, &table);
            tables.insert(slot, table);
            pieces
        };
        // Only the root of a scatterv or gatherv has a table; the others name its slot.
        let is_root = rank == request.root;
        let instruction = match request.collective {
            Collective::Scatterv => {
                if is_root {
                    input = listed(FIRST, source, blocks.table(sends()));
                }
                Instruction::scatterv(root, source, destination, after, FIRST)
            }
            Collective::Gatherv => {
                if is_root {
                    output = listed(FIRST, destination, blocks.table(receives()));
                }
                Instruction::gatherv(root, source, destination, before, FIRST)
            }
            Collective::Allgatherv => {
                output = listed(FIRST, destination, blocks.table(receives()));
                Instruction::allgatherv(source, destination, before, FIRST)
            }
            _ => {
                input = listed(FIRST, source, blocks.table(sends()));
                output = listed(SECOND, destination, blocks.table(receives()));
                Instruction::alltoallv(source, destination, FIRST, SECOND)
            }
        };
        let instructions = vec![instruction.with_flags(flags).on(draft.communicator)];
        *program = Program { instructions, input, output, tables };
    }
    Ok(draft)
}

/// Whether instructions of which no block is longer than `longest` go eagerly. Not every card knows that, so it is decided
/// here.
pub(super) fn flags(request: &Request, capabilities: &Capabilities, longest: u64) -> Flags {
    let is_eager = longest <= request.eager_limit.unwrap_or(capabilities.eager_limit);
    if is_eager { Flags::EAGER } else { Flags::RENDEZVOUS }
}

/// Where the blocks of all ranks lie.
struct Blocks {
    source: Operand,
    destination: Operand,
    /// Bytes from one block to the next, if they are not packed.
    distance: Option<u64>,
    /// Packed blocks begin at multiples of this.
    align: u64,
}

impl Blocks {
    /// One in each stripe, as the blocks of one length lie, if they fit there; else one behind the other.
    fn new(request: &Request, capabilities: &Capabilities) -> Result<Self, Refusal> {
        if let Some(placement) = &request.placement {
            if placement.input.layout == Layout::Striped || placement.output.layout == Layout::Striped {
                let cause = format!(
                    "the blocks of {} are placed by a table: a striped placement is not supported",
                    request.collective
                );
                return Err(Refusal::general(cause));
            }
            return Ok(Blocks { source: placement.input, destination: placement.output, distance: None, align: 1 });
        }
        let stripes = Stripes::new(request, capabilities);
        let longest = request.counts.iter().copied().max().unwrap_or(0);
        if stripes.check(longest).is_ok() {
            let (source, destination) = (Operand::card(0), stripes.single_upper(longest)?);
            return Ok(Blocks { source, destination, distance: Some(capabilities.stripe_bytes()), align: 1 });
        }
        let align = capabilities.aligned_beat();
        let most = |bytes: &dyn Fn(u32) -> u64| {
            let padding = align.saturating_mul(request.ranks().into());
            (0..request.ranks()).map(|rank| bytes(rank).saturating_add(padding)).max().unwrap_or(0)
        };
        let sizes = [most(&|rank| request.input_bytes(rank)), most(&|rank| request.output_bytes(rank))];
        let [source, destination] = Areas::place(request, capabilities, sizes)?.map(Operand::card);
        Ok(Blocks { source, destination, distance: None, align })
    }

    fn table(&self, lengths: impl Iterator<Item = u64>) -> Table {
        let Some(distance) = self.distance else { return Table::packed(lengths, self.align) };
        let entry = |(number, bytes)| Entry { displacement: distance.saturating_mul(number), bytes };
        Table { entries: (0..).zip(lengths).map(entry).collect() }
    }
}

/// The blocks of `table`, which are a rank's data in this order.
fn pieces(operand: Operand, table: &Table) -> Vec<Piece> {
    pieces_of(table.entries.iter().map(|entry| (operand.address.saturating_add(entry.displacement), entry.bytes)))
}

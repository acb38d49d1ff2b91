//! Within the groups of a Dragonfly and across them, in turn.
//!
//! With g groups of a cards, a *row* is one group and a *column* the cards of one place in all groups; both are linked
//! fully. The extension is sketched in section 5.3 of the OPTWEB paper.

mod alltoall;
mod alltoall_channels;
mod channel_shares;
mod reduce;
mod scan;
mod vector;

use super::draft::Draft;
use super::grid::{COLUMN, Grid, ROW};
use super::phases::{self, Way};
use super::placement::{Areas, whole};
use crate::refusal::Refusal;
use crate::request::{Algorithm, Collective, Request};
use crate::{Capabilities, Instruction, Operand};

/// The programs of `request`, with a phase in the rows and a phase in the columns: one draft for each layout of the data.
pub(super) fn build(request: &Request, capabilities: &Capabilities) -> Result<Vec<Draft>, Refusal> {
    let grid = Grid::needed_by(Algorithm::TwoLevel, request, capabilities)?;
    if request.collective.has_counts() {
        return vector::build(request, capabilities, grid).map(|draft| vec![draft]);
    }
    let in_any_order = !request.needs_rank_order();
    if let Some(way) = Way::of_blocks(request).filter(|_| in_any_order) {
        return phases::build(request, capabilities, &grid.in_rank_order(request), way);
    }
    let draft = match (request.collective, request.combine) {
        (Collective::Alltoall, _) => return alltoall::build(request, capabilities, grid),
        (Collective::Scan | Collective::Exscan, Some(combine)) if in_any_order => {
            let in_blocks = scan::build(request, capabilities, combine, grid);
            return phases::possible([in_blocks, reduce::build(request, capabilities, combine, grid)]);
        }
        (_, Some(combine)) => reduce::build(request, capabilities, combine, grid),
        _ => whole_vectors(request, capabilities, grid),
    };
    draft.map(|draft| vec![draft])
}

/// Barrier, broadcast and the shift.
fn whole_vectors(request: &Request, capabilities: &Capabilities, grid: Grid) -> Result<Draft, Refusal> {
    let bytes = request.bytes;
    let areas = if request.collective == Collective::Barrier { [0; 3] } else { [bytes, bytes, bytes] };
    let areas = if request.collective == Collective::Broadcast { [bytes, bytes, 0] } else { areas };
    let [input, output, room] = Areas::place(request, capabilities, areas)?;
    let [source, destination, between] = [input, output, room].map(Operand::card);
    let (root_row, root_column) = grid.place(request.root);
    let shift = |place: u32, of: u32, from: Operand, to: Operand| {
        Instruction::sendrecv(((place + 1) % of) as u16, ((place + of - 1) % of) as u16, from, to, bytes)
    };
    let mut draft = grid.draft(request);
    for (rank, program) in (0..request.ranks()).zip(&mut draft.programs) {
        let (row, column) = grid.place(rank);
        program.instructions = match request.collective {
            Collective::Barrier => vec![Instruction::barrier().on(ROW), Instruction::barrier().on(COLUMN)],
            Collective::Broadcast => {
                let within = Instruction::broadcast(root_column as u16, source, destination, bytes).on(ROW);
                let across = Instruction::broadcast(root_row as u16, destination, destination, bytes).on(COLUMN);
                if row == root_row { vec![within, across] } else { vec![across] }
            }
            // What the last card of a row sends is for the first card of the next row: it goes to the first of its own, and
            // from there down the column.
            _ if column != 0 => vec![shift(column, grid.size, source, destination).on(ROW)],
            _ => vec![
                shift(column, grid.size, source, between).on(ROW),
                shift(row, grid.groups, between, destination).on(COLUMN),
            ],
        };
        program.input = whole(input, request.input_bytes(rank));
        program.output = whole(output, request.output_bytes(rank));
    }
    Ok(draft)
}

//! Within the groups of a Dragonfly and across them, in turn.
//!
//! With g groups of a cards, a *row* is one group and a *column* the cards of one place in all groups; both are linked
//! fully. The extension is sketched in section 5.3 of the OPTWEB paper.

use super::draft::Draft;
use super::grid::{COLUMN, Grid, ROW};
use super::phases::{self, Way};
use super::placement::{Areas, pieces_of, whole};
use super::{direct, two_level_reduce, two_level_scan, two_level_vector, vector};
use crate::instruction::WORLD;
use crate::refusal::Refusal;
use crate::request::{Collective, Request};
use crate::table::Entry;
use crate::{Capabilities, Instruction, Operand, Operation, Table};

/// The programs of `request`, with a phase in the rows and a phase in the columns: one draft for each layout of the data.
pub(super) fn build(request: &Request, capabilities: &Capabilities) -> Result<Vec<Draft>, Refusal> {
    let grid = Grid::of(request, capabilities)?;
    if request.collective.has_counts() {
        return two_level_vector::build(request, capabilities, grid).map(|draft| vec![draft]);
    }
    let in_any_order = !request.needs_rank_order();
    if let Some(way) = Way::of_blocks(request).filter(|_| in_any_order) {
        return phases::build(request, capabilities, &grid.in_rank_order(request), way);
    }
    let draft = match request.collective {
        Collective::Alltoall => {
            let drafts = [alltoall_in_stripes(request, capabilities, grid), alltoall(request, capabilities, grid)];
            return phases::possible(drafts);
        }
        Collective::Scan | Collective::Exscan if in_any_order => {
            let in_blocks = two_level_scan::build(request, capabilities, grid);
            return phases::possible([in_blocks, two_level_reduce::build(request, capabilities, grid)]);
        }
        _ if request.collective.reduces() => two_level_reduce::build(request, capabilities, grid),
        _ if request.collective.has_peer() => transfer(request, capabilities, grid),
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

/// Blocks go along the row to the column they are for, those for one row after those for another, and down the column all
/// those for one card as one.
fn alltoall(request: &Request, capabilities: &Capabilities, grid: Grid) -> Result<Draft, Refusal> {
    let block = request.bytes.checked_next_multiple_of(capabilities.address_align.max(1).into()).unwrap_or(u64::MAX);
    let row_bytes = block.saturating_mul(grid.size.into());
    let all = row_bytes.saturating_mul(grid.groups.into());
    let [source, destination, between] = Areas::place(request, capabilities, [all; 3])?;
    let along = |row: u32| {
        let [from, to] = [source, between].map(|area| Operand::card(area + u64::from(row) * row_bytes));
        Instruction::alltoall(from, to, block).on(ROW)
    };
    let down = Instruction::alltoall(Operand::card(between), Operand::card(destination), row_bytes).on(COLUMN);
    let mut draft = grid.draft(request);
    for program in &mut draft.programs {
        program.instructions = (0..grid.groups).map(along).chain([down]).collect();
        let place = |area: u64| {
            pieces_of((0..request.ranks().into()).map(|number: u64| (area + number * block, request.bytes)))
        };
        [program.input, program.output] = [source, destination].map(place);
    }
    Ok(draft)
}

/// The same blocks, with no two of an instruction in one stripe: what comes along the row from column c for row r lies in
/// stripe r + c. An instruction for each row, and one for each column.
fn alltoall_in_stripes(request: &Request, capabilities: &Capabilities, grid: Grid) -> Result<Draft, Refusal> {
    let refuse = |cause: &str| Err(Refusal::general(format!("two-level in stripes {cause}")));
    let (bytes, half, stripe) = (request.bytes, capabilities.stripe_half_bytes, capabilities.stripe_bytes());
    let block = bytes.checked_next_multiple_of(capabilities.address_align.max(1).into()).unwrap_or(u64::MAX);
    let of_rows = block.saturating_mul(grid.groups.into());
    if request.placement.is_some() {
        return refuse("has places of its own");
    }
    if stripe.saturating_mul((grid.groups + grid.size - 1).into()) > capabilities.memory_bytes {
        return refuse("needs a stripe for each row and column");
    }
    // The input and then the output in the lower halves, what comes along the rows in the upper.
    if of_rows.saturating_add(block.saturating_mul(grid.size.into())) > half {
        return refuse("has no room for blocks that long");
    }
    if !capabilities.runs(Operation::Alltoallv) || capabilities.tables < 2 {
        return refuse("needs alltoallv with two tables");
    }
    let at = |base: u64, stripes: u32, blocks: u32| base + stripe * u64::from(stripes) + block * u64::from(blocks);
    let spread = |distance: u64| Table {
        entries: (0..grid.groups).map(|row| Entry { displacement: distance * u64::from(row), bytes }).collect(),
    };
    let along = |row: u32| {
        let (source, destination) =
            (Operand::card(at(0, 0, row)).striped(), Operand::card(at(half, row, row)).striped());
        Instruction::alltoall(source, destination, bytes).on(ROW)
    };
    let flags = vector::flags(request, capabilities, bytes);
    let down = |column: u32| {
        let (source, destination) = (Operand::card(at(half, column, 0)), Operand::card(at(of_rows, 0, column)));
        Instruction::alltoallv(source, destination, 0, 1).with_flags(flags).on(COLUMN)
    };
    let mut draft = grid.draft(request);
    for program in &mut draft.programs {
        program.tables = [(0, spread(stripe + block)), (1, spread(stripe))].into();
        program.instructions = (0..grid.groups).map(along).chain((0..grid.size).map(down)).collect();
        let place = |rank: u32| grid.place(rank);
        program.input = pieces_of((0..request.ranks()).map(place).map(|(row, column)| (at(0, column, row), bytes)));
        program.output =
            pieces_of((0..request.ranks()).map(place).map(|(row, column)| (at(of_rows, row, column), bytes)));
    }
    Ok(draft)
}

/// From root to peer: direct if they are linked, else over the card of the root's row in the peer's column.
fn transfer(request: &Request, capabilities: &Capabilities, grid: Grid) -> Result<Draft, Refusal> {
    let (root, peer, bytes) = (request.root, request.peer, request.bytes);
    let (root_row, root_column) = grid.place(root);
    let (peer_row, peer_column) = grid.place(peer);
    if root_row == peer_row || root_column == peer_column {
        return direct::build(request, capabilities);
    }
    let middle = root_row * grid.size + peer_column;
    let [source, destination, between] = Areas::place(request, capabilities, [bytes; 3])?;
    let [source_at, destination_at, between_at] = [source, destination, between].map(Operand::card);
    let node = |rank: u32| request.group.get(rank as usize).copied().unwrap_or(0) as u16;
    let mut draft = Draft::empty(request);
    let mut set = |rank: u32, instructions: Vec<Instruction>| {
        if let Some(program) = draft.programs.get_mut(rank as usize) {
            program.instructions = instructions.into_iter().map(|one| one.on(WORLD)).collect();
        }
    };
    set(root, vec![Instruction::send(node(middle), source_at, bytes)]);
    let (receive, send) =
        (Instruction::recv(node(root), between_at, bytes), Instruction::send(node(peer), between_at, bytes));
    set(middle, vec![receive, send]);
    set(peer, vec![Instruction::recv(node(middle), destination_at, bytes)]);
    for (rank, program) in (0..request.ranks()).zip(&mut draft.programs) {
        program.input = whole(source, request.input_bytes(rank));
        program.output = whole(destination, request.output_bytes(rank));
    }
    Ok(draft)
}

//! Within the groups of a Dragonfly and across them, in turn.
//!
//! With g groups of a cards, a *row* is one group and a *column* the cards of one place in all groups; both are linked
//! fully. The extension is sketched in section 5.3 of the OPTWEB paper. Blocks lie one after another, because there
//! are more of them than memory I/Os.

use super::draft::Draft;
use super::grid::{COLUMN, Grid, ROW};
use super::placement::{Areas, spaced, whole};
use super::{direct, two_level_reduce, two_level_vector};
use crate::instruction::WORLD;
use crate::program::Piece;
use crate::refusal::Refusal;
use crate::request::{Collective, Request};
use crate::{Capabilities, Instruction, Operand, Topology};

/// The programs of `request`, with a phase in the rows and a phase in the columns.
pub(super) fn build(request: &Request, capabilities: &Capabilities) -> Result<Draft, Refusal> {
    let Topology::Dragonfly { groups } = capabilities.topology else {
        return Err(Refusal::general("two-level is for a Dragonfly: these cards are fully connected".into()));
    };
    let nodes = capabilities.nodes;
    let is_all = request.group.iter().copied().eq(0..nodes);
    if !is_all || groups == 0 || !nodes.is_multiple_of(groups) || groups > u32::from(u16::MAX) {
        return Err(Refusal::general(format!(
            "two-level needs all {nodes} cards in node order, in {groups} groups of one size"
        )));
    }
    let size = nodes / groups;
    let grid = Grid { groups, size };
    if request.collective.has_counts() {
        return two_level_vector::build(request, capabilities, grid);
    }
    if request.collective.reduces() {
        return two_level_reduce::build(request, capabilities, grid);
    }
    if request.collective.has_peer() {
        return transfer(request, capabilities, groups);
    }
    let align = u64::from(capabilities.address_align.max(1));
    let block = request.bytes.checked_next_multiple_of(align).unwrap_or(u64::MAX);
    let row_bytes = block.saturating_mul(u64::from(size));
    let all_bytes = block.saturating_mul(u64::from(nodes));
    let sizes = match request.collective {
        Collective::Barrier => [0, 0, 0],
        Collective::Scatter => [all_bytes, block, row_bytes],
        Collective::Gather => [block, all_bytes, row_bytes],
        Collective::Broadcast => [block, block, 0],
        Collective::Alltoall => [all_bytes; 3],
        Collective::Allgather => [block, all_bytes, 0],
        _ => [block; 3],
    };
    let [source, destination, between] = Areas::place(request, capabilities, sizes)?;
    let shape = Shape { groups, size, block, row_bytes, source, destination, between, root: request.root };
    let mut draft = Draft { communicators: grid.communicators(), ..Draft::empty(request) };
    for (rank, program) in (0..nodes).zip(&mut draft.programs) {
        program.instructions = shape.phases(request.collective, rank / size, rank % size);
        program.input = pieces(source, block, request, request.input_bytes(rank));
        program.output = pieces(destination, block, request, request.output_bytes(rank));
    }
    Ok(draft)
}

fn pieces(address: u64, block: u64, request: &Request, total: u64) -> Vec<Piece> {
    let count = total.checked_div(request.bytes).unwrap_or(0);
    spaced(address, request.bytes, block, count)
}

/// Geometry and addresses of one plan.
struct Shape {
    groups: u32,
    size: u32,
    /// Distance of two blocks, bytes.
    block: u64,
    row_bytes: u64,
    source: u64,
    destination: u64,
    between: u64,
    root: u32,
}

impl Shape {
    /// What the card at `column` of `row` runs.
    fn phases(&self, collective: Collective, row: u32, column: u32) -> Vec<Instruction> {
        let (root_row, root_column) = (self.root / self.size, self.root % self.size);
        let source = Operand::card(self.source);
        let destination = Operand::card(self.destination);
        let between = Operand::card(self.between);
        let own_row = u64::from(row).saturating_mul(self.row_bytes).saturating_add(self.destination);
        let own_row = Operand::card(own_row);
        let (block, row_bytes) = (self.block, self.row_bytes);
        match collective {
            Collective::Barrier => vec![Instruction::barrier().on(ROW), Instruction::barrier().on(COLUMN)],
            Collective::Allgather => vec![
                Instruction::allgather(source, own_row, block).on(ROW),
                Instruction::allgather(own_row, destination, row_bytes).on(COLUMN),
            ],
            Collective::Broadcast => {
                let within = Instruction::broadcast(root_column as u16, source, destination, block).on(ROW);
                let across = Instruction::broadcast(root_row as u16, destination, destination, block).on(COLUMN);
                if row == root_row { vec![within, across] } else { vec![across] }
            }
            Collective::Scatter => {
                let across = Instruction::scatter(root_row as u16, source, between, row_bytes).on(COLUMN);
                let within = Instruction::scatter(root_column as u16, between, destination, block).on(ROW);
                if column == root_column { vec![across, within] } else { vec![within] }
            }
            Collective::Gather => {
                let within = Instruction::gather(root_column as u16, source, between, block).on(ROW);
                let across = Instruction::gather(root_row as u16, between, destination, row_bytes).on(COLUMN);
                if column == root_column { vec![within, across] } else { vec![within] }
            }
            Collective::Alltoall => {
                let mut phases: Vec<Instruction> = (0..u64::from(self.groups))
                    .map(|group| {
                        let from = Operand::card(self.source + group * row_bytes);
                        let to = Operand::card(self.between + group * row_bytes);
                        Instruction::alltoall(from, to, block).on(ROW)
                    })
                    .collect();
                phases.push(Instruction::alltoall(between, destination, row_bytes).on(COLUMN));
                phases
            }
            Collective::Sendrecv => {
                let shift = |place: u32, of: u32, from: Operand, to: Operand| {
                    Instruction::sendrecv(((place + 1) % of) as u16, ((place + of - 1) % of) as u16, from, to, block)
                };
                // What the last card of a row sends is for the first card of the next row: it goes to the first of its
                // own, and from there down the column.
                if column != 0 {
                    return vec![shift(column, self.size, source, destination).on(ROW)];
                }
                vec![
                    shift(column, self.size, source, between).on(ROW),
                    shift(row, self.groups, between, destination).on(COLUMN),
                ]
            }
            // Sent point to point, or built in modules of their own.
            Collective::Send
            | Collective::Recv
            | Collective::Scatterv
            | Collective::Gatherv
            | Collective::Allgatherv
            | Collective::Alltoallv
            | Collective::Reduce
            | Collective::Allreduce
            | Collective::ReduceScatter
            | Collective::Scan
            | Collective::Exscan => Vec::new(),
        }
    }
}

/// From root to peer: direct if they are linked, else over the card of the root's row in the peer's column.
fn transfer(request: &Request, capabilities: &Capabilities, groups: u32) -> Result<Draft, Refusal> {
    let (root, peer, bytes) = (request.root, request.peer, request.bytes);
    if root == peer || capabilities.topology.linked(root, peer, capabilities.nodes) {
        return direct::build(request, capabilities);
    }
    let size = capabilities.nodes / groups;
    let middle = root / size * size + peer % size;
    let [source, destination, between] = Areas::place(request, capabilities, [bytes; 3])?;
    let [source_at, destination_at, between_at] = [source, destination, between].map(Operand::card);
    let mut draft = Draft::empty(request);
    let mut set = |rank: u32, instructions: Vec<Instruction>| {
        if let Some(program) = draft.programs.get_mut(rank as usize) {
            program.instructions = instructions.into_iter().map(|one| one.on(WORLD)).collect();
        }
    };
    set(root, vec![Instruction::send(middle as u16, source_at, bytes)]);
    set(
        middle,
        vec![Instruction::recv(root as u16, between_at, bytes), Instruction::send(peer as u16, between_at, bytes)],
    );
    set(peer, vec![Instruction::recv(middle as u16, destination_at, bytes)]);
    for (rank, program) in (0..request.ranks()).zip(&mut draft.programs) {
        program.input = whole(source, request.input_bytes(rank));
        program.output = whole(destination, request.output_bytes(rank));
    }
    Ok(draft)
}

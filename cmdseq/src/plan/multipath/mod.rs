//! Over all links: the data is distributed over all ranks and collected where it should be.
//!
//! Section 3.4 of the OPTWEB paper: a transfer between two cards is a scatter, then a gather. Broadcast is a scatter, then
//! an allgather. In the same way an allreduce is a reduce_scatter, then an allgather, and a reduce ends with a gather. Among
//! linked ranks each link carries twice the vector's Nth part, which is the least that N cards can do. On a Dragonfly both
//! parts go along the rows and the columns. Scans are in `scan`, and a reduce_scatter in `blocks`.

mod blocks;
mod scan;

use super::draft::Draft;
use super::factorisation::Factorisation;
use super::phases::{self, Way};
use crate::Capabilities;
use crate::refusal::Refusal;
use crate::request::{Collective, Request};

/// The programs of `request`, one draft for each layout of the data.
pub(super) fn build(request: &Request, capabilities: &Capabilities) -> Result<Vec<Draft>, Refusal> {
    match (request.collective, request.combine) {
        (Collective::Scan | Collective::Exscan, Some(combine)) => {
            return scan::build(request, capabilities, combine).map(|draft| vec![draft]);
        }
        (Collective::ReduceScatter, Some(combine)) => {
            return blocks::build(request, capabilities, combine).map(|draft| vec![draft]);
        }
        _ => {}
    }
    let Some(way) = Way::of_vector(request) else { return Ok(Vec::new()) };
    if request.ranks() < 2 || (request.collective.has_peer() && request.root == request.peer) {
        return Err(Refusal::general("multipath needs two different cards".into()));
    }
    let factorisation = Factorisation::of(request, capabilities)?;
    if factorisation.dimensions.len() > 1 && request.needs_rank_order() {
        return Err(Refusal::general("multipath folds rows first, which is not rank order; ring keeps it".into()));
    }
    phases::build(request, capabilities, &factorisation, way)
}

//! Scan and exscan over all links: an alltoall_scan, then an alltoall.
//!
//! Rank j folds block j of all vectors and keeps each partial result: the fold up to rank i is block j of what rank i should
//! have. An alltoall brings it there. Each link carries twice the vector's Nth part, where a single scan sends the whole vector
//! of each rank over each of its links.
//!
//! Blocks are in stripes: contributions and outputs in the lower halves, partial results in the upper. A vector too long for
//! one stripe of each rank is cut into pieces, which use the next stripes.

use crate::plan::draft::Draft;
use crate::plan::placement::pieces_at;
use crate::plan::scan_blocks::ScanBlocks;
use crate::refusal::Refusal;
use crate::request::{Collective, Request};
use crate::{Capabilities, Combine};

/// The programs of `request`, a scan or exscan of two ranks or more.
pub(super) fn build(request: &Request, capabilities: &Capabilities, combine: Combine) -> Result<Draft, Refusal> {
    let refuse = |cause| Err(Refusal::general(cause));
    if request.ranks() < 2 {
        return refuse("multipath needs two different cards".into());
    }
    if request.placement.is_some() {
        return refuse(format!("multipath places a {} in stripes: a placement is not supported", request.collective));
    }
    if !capabilities.topology.all_reach(&request.group, capabilities.nodes) {
        return refuse(format!("multipath needs a link between every two cards for a {}", request.collective));
    }
    // Contributions and outputs. Rank 0 of an exscan receives what nobody needs, next to its output.
    let in_half = if request.collective == Collective::Exscan { 3 } else { 2 };
    let blocks = ScanBlocks::new(request, capabilities, request.ranks(), in_half, u64::MAX)?;
    let mut draft = Draft::on_one_communicator(request, capabilities);
    let all = draft.communicator;
    draft.communicators.extend(blocks.shifted(all + 1, &request.group));
    for (rank, program) in (0..).zip(&mut draft.programs) {
        program
            .instructions
            .extend((0..blocks.pieces).flat_map(|piece| blocks.scan(combine, piece, rank, [all, all + 1])));
    }
    draft.lies(request, |rank| {
        let input = pieces_at(blocks.bytes, request.input_bytes(rank), |number| blocks.stripe(number));
        let output = pieces_at(blocks.bytes, request.output_bytes(rank), |number| blocks.scanned(number));
        (input, output)
    });
    Ok(draft)
}

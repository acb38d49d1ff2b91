//! Plans for cards with several lanes: exchanges over different links, or in different directions of them, run at once.
//!
//! A transfer from or to one rank uses all links of that rank, in pieces that follow each other ([`trees`]). What all ranks
//! exchange goes along both dimensions of a grid ([`halves`]); a scan along both, one after the other ([`scan`]).

mod halves;
mod scan;
mod ticks;
mod trees;

pub(super) use halves::Halves;
pub(super) use trees::{Trees, reduces as reduces_by_trees};

use super::draft::Draft;
use crate::Capabilities;
use crate::refusal::Refusal;
use crate::request::{Collective, Request};

/// The programs of `request`.
pub(super) fn build(request: &Request, capabilities: &Capabilities) -> Result<Vec<Draft>, Refusal> {
    let refuse = |cause: String| Err(Refusal::general(format!("lanes {cause}")));
    if capabilities.lanes < 2 {
        return refuse("needs cards with several lanes: these have one".into());
    }
    if request.placement.is_some() {
        return refuse("places its data itself: a placement is not supported".into());
    }
    match request.collective {
        Collective::Broadcast => trees::build(request, capabilities),
        Collective::Reduce if trees::reduces(capabilities) => trees::build(request, capabilities),
        one if one.has_peer() => trees::build(request, capabilities),
        Collective::Scan | Collective::Exscan => scan::build(request, capabilities),
        _ => halves::build(request, capabilities),
    }
}

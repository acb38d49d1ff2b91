//! Which algorithms keep the order of ranks that a request asks for.

use crate::refusal::Refusal;
use crate::request::{Algorithm, Request};

/// Refuses an algorithm that folds in another order than the request's.
pub(super) fn check(request: &Request, algorithm: Algorithm) -> Result<(), Refusal> {
    let Some(combine) = request.combine.filter(|_| request.needs_rank_order()) else { return Ok(()) };
    let cause = match algorithm {
        // One that does not fold is refused for that.
        Algorithm::Ring | Algorithm::TwoLevel | Algorithm::Relay => return Ok(()),
        Algorithm::Switch => "switch folds in the order of the switches; direct and ring keep rank order".into(),
        Algorithm::Lanes => "lanes folds in an order of its own; direct and ring keep rank order".into(),
        Algorithm::Direct | Algorithm::Multipath if !combine.element.is_narrow() => return Ok(()),
        Algorithm::Direct | Algorithm::Multipath => format!(
            "{algorithm} rounds a {combine} once, after the last rank; rank order rounds at each rank, as ring does"
        ),
        Algorithm::Binomial => format!(
            "{algorithm} folds pairs of ranks first, so the bits of a {combine} differ from rank order; {} rank order",
            if combine.element.is_narrow() { "ring keeps" } else { "direct, multipath and ring keep" }
        ),
    };
    Err(Refusal::general(cause))
}

//! What the links alone allow.

use crate::Capabilities;
use crate::request::{Collective, Request};

impl Request {
    /// Returns the lower bound of an allreduce on these links, in picoseconds: 2(N-1)/N of the vector must leave each card, over the
    /// links of the card with the fewest links within the group. `None` for all others, and without such links.
    pub fn bandwidth_bound_ps(&self, capabilities: &Capabilities) -> Option<u64> {
        let ranks = u64::from(self.ranks());
        let linked = |a: u32| {
            self.group.iter().filter(|b| capabilities.topology.linked(a, **b, capabilities.nodes)).count() as u64
        };
        let links = self.group.iter().map(|node| linked(*node)).min()?;
        let mbps = links * u64::from(capabilities.timing.link_mbps);
        if self.collective != Collective::Allreduce || mbps == 0 {
            return None;
        }
        let bits = u128::from(self.bytes) * 8 * 2 * u128::from(ranks - 1);
        u64::try_from((bits * 1_000_000).div_ceil(u128::from(ranks) * u128::from(mbps))).ok()
    }
}

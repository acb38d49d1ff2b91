//! What data passes between two cards: the link between them, or those on the way over routers.

use super::flow::Flows;
use crate::cost::{Bound, CostModel};
use crate::{Capabilities, Topology};

/// The links of one step. Over routers, data of several pairs of cards shares them.
#[derive(Debug)]
pub(super) struct Wires {
    topology: Topology,
    nodes: u32,
    /// Resources of the links that are in use, by their places. Empty without routers.
    known: Vec<Option<u32>>,
    /// Places in `known`.
    used: Vec<usize>,
}

impl Wires {
    pub(super) fn new(capabilities: &Capabilities) -> Self {
        let (topology, nodes) = (capabilities.topology, capabilities.nodes);
        let links = if topology.has_routers() { topology.links(nodes) } else { 0 };
        Wires { topology, nodes, known: vec![None; links as usize], used: Vec::new() }
    }

    /// For the next step: the resources of the flows are gone.
    pub(super) fn clear(&mut self) {
        self.used.drain(..).for_each(|place| self.known[place] = None);
    }

    /// Appends what data from node `from` to node `to` passes to `over`.
    pub(super) fn between(
        &mut self,
        (from, to): (u32, u32),
        flows: &mut Flows,
        model: &CostModel,
        over: &mut Vec<u32>,
    ) {
        if self.known.is_empty() {
            over.push(flows.resource(model.link_mbps(from, to).into(), Bound::Link));
            return;
        }
        let mut way = self.topology.way(from, to, self.nodes).peekable();
        while let Some(hop) = way.next() {
            let next = way.peek().map_or(to, |next| next.node);
            let place = self.topology.link(hop, self.nodes);
            let resource = *self.known[place].get_or_insert_with(|| {
                self.used.push(place);
                flows.resource(model.link_mbps(hop.node, next).into(), Bound::Link)
            });
            over.push(resource);
        }
    }
}

/// Picoseconds that the links after the first add on the way from `from` to `to`, in each direction.
pub(super) fn farther_ps((from, to): (u32, u32), capabilities: &Capabilities, model: &CostModel) -> u64 {
    if !capabilities.topology.has_routers() {
        return 0;
    }
    let links = capabilities.topology.hops(from, to, capabilities.nodes);
    u64::from(links.saturating_sub(1)) * u64::from(model.timing.hop_ps)
}

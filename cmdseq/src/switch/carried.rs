//! Which links the packets of a call pass, without a simulation.

use super::loggp::{blocks, plans};
use super::{Call, Chunk, Shape};
use crate::Hop;

/// Tells each link between cards and switches that a packet of piece `index` of any block of a checked call passes, once for each
/// packet.
pub(crate) fn each_hop(shape: Shape, call: &Call, nodes: &[u32], index: u16, mut tell: impl FnMut(Hop)) {
    let (size, processors) = (nodes.len() as u32, shape.processors());
    if !shape.is_direct() {
        // From each processor to its leaf.
        for (rank, node) in (0..size).zip(nodes) {
            call.inputs(rank, size).for_each(|_| tell(Hop { node: *node, port: 0 }));
        }
    }
    for block in 0..blocks(call, size) {
        for (switch, steps) in plans(shape, call, nodes, Chunk { block: block as u16, index }) {
            // Every step runs once.
            for target in steps.iter().flat_map(|step| &step.to) {
                let to = u32::from(target.address);
                let to_switch = to.checked_sub(processors);
                match to_switch {
                    Some(to) if to == switch => {}
                    Some(to) if shape.is_direct() => shape.way(switch, to).for_each(&mut tell),
                    // The processor of a card is behind no link.
                    None if shape.is_direct() => {}
                    // One link, to a processor or to the switch of the other level.
                    _ => {
                        let port =
                            to_switch.map_or_else(|| shape.toward(switch, to), |to| shape.toward_switch(switch, to));
                        tell(Hop { node: processors + switch, port: port.unwrap_or(0).into() });
                    }
                }
            }
        }
    }
}

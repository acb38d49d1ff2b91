//! What a card has at one of its ports.

use crate::engine::streams::ResourceId;
use crate::net::buffer::Inbound;

/// One port of a card: the end of a link, or of a way over routers.
#[derive(Debug)]
pub(crate) struct Link {
    /// The links on the way, away from this card.
    pub(crate) out: Box<[ResourceId]>,
    /// Picoseconds that the links after the first add on the way out.
    pub(crate) farther_ps: u64,
    /// Their rate while they are up.
    pub(crate) mbps: u64,
    pub(crate) is_up: bool,
    /// It does not come up again.
    pub(crate) is_cut: bool,
    /// Planted bit errors: each with the number of things that the link carries before.
    pub(crate) garbles: Vec<u64>,
    /// Number of times the link was trained or cut, the same at both ends: what was on it before is lost.
    pub(crate) session: u32,
    /// Signals and bursts that arrived and were not used yet.
    pub(crate) inbound: Inbound,
    /// The exchange that sends on the link, and the one that receives: its lane, and the place among its sends or receives.
    pub(crate) send: Option<(usize, usize)>,
    pub(crate) receive: Option<(usize, usize)>,
}

impl Link {
    pub(crate) fn new(out: Box<[ResourceId]>, mbps: u64, hop_ps: u64, lanes: usize) -> Self {
        Link {
            farther_ps: out.len().saturating_sub(1) as u64 * hop_ps,
            out,
            mbps,
            is_up: true,
            is_cut: false,
            garbles: Vec::new(),
            session: 0,
            inbound: Inbound::new(lanes),
            send: None,
            receive: None,
        }
    }

    /// Counts what the link carries next, and returns whether a planted bit error hits it.
    pub(crate) fn take_garble(&mut self) -> bool {
        let before = self.garbles.len();
        self.garbles.retain(|left| *left > 0);
        self.garbles.iter_mut().for_each(|left| *left -= 1);
        self.garbles.len() < before
    }

    /// Loses what is on the link, toward this card.
    pub(crate) fn begin_session(&mut self) {
        self.session = self.session.wrapping_add(1);
    }

    /// Returns the place among the sends of the exchange in `lane`, if it sends on the link.
    pub(crate) fn send(&self, lane: usize) -> Option<usize> {
        self.send.filter(|send| send.0 == lane).map(|send| send.1)
    }

    pub(crate) fn receive(&self, lane: usize) -> Option<usize> {
        self.receive.filter(|receive| receive.0 == lane).map(|receive| receive.1)
    }

    /// The exchange in `lane` has ended.
    pub(crate) fn release(&mut self, lane: usize) {
        self.send.take_if(|send| send.0 == lane);
        self.receive.take_if(|receive| receive.0 == lane);
    }
}

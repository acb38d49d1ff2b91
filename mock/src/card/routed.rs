//! The statically scheduled routers of all cards of a torus, and the user logic behind them.

use cmdseq::Topology;
use cmdseq::routing::Torus3;
use cmdseq::switch::Shape;

use crate::card::fft::FftBlock;
use crate::card::router::RouterBlock;
use crate::profile::{Profile, novog};
use crate::proto::novog::{Garbled, OnCard};

/// Routers and user logic, by node.
pub(crate) struct Routed {
    pub(crate) torus: Torus3,
    pub(crate) profile: novog::Profile,
    pub(crate) routers: Vec<RouterBlock>,
    pub(crate) units: Vec<FftBlock>,
    /// Runs since the fabric was made: the latencies of links are others in each.
    pub(crate) runs: u64,
    /// A bit error to come, in the next run.
    pub(crate) garbled: Option<Garbled>,
    pub(crate) ending: Option<Ending>,
}

/// The run that ends next.
pub(crate) struct Ending {
    /// Its number since the fabric was made, from 1, and the number that the host gave it.
    pub(crate) number: u64,
    pub(crate) run: u32,
    /// What the cards do if none is frozen, reset or gone before the end, that is, if they are in these epochs then.
    pub(crate) done: Vec<OnCard>,
    pub(crate) epochs: Vec<u64>,
}

impl Routed {
    /// Returns the routers of `profile` without tables; `None` if it has none.
    pub(crate) fn of(profile: &Profile) -> Option<Self> {
        let Topology::Switched(Shape::Torus { sides }) = profile.topology else { return None };
        let torus = Torus3::new(sides).ok()?;
        let nodes = torus.nodes() as usize;
        Some(Routed {
            torus,
            profile: profile.router?,
            routers: std::iter::repeat_with(RouterBlock::default).take(nodes).collect(),
            units: std::iter::repeat_with(FftBlock::default).take(nodes).collect(),
            runs: 0,
            garbled: None,
            ending: None,
        })
    }
}

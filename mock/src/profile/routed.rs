//! Cards on the links and statically scheduled routers of Novo-G#, under OPTWEB's command sequencer.
//!
//! The dissertation has user logic that sends packets, and no command sequencer. What `coll` does on these cards is an extension: its data
//! goes over the links and routers of this torus, in order of dimensions, and shares links with no packet of the tables.

use cmdseq::Topology;
use cmdseq::routing::Torus3;
use cmdseq::switch::Shape;

use super::{Profile, ProfileError, System, novog};

/// Cards of the largest torus that the dissertation simulates: 8 x 8 x 8.
const PUBLISHED_NODES: u32 = 512;
/// Bits of a packet, which a link carries in a cycle of the router.
const PACKET_BITS: u64 = 256;

impl Profile {
    /// Cards of Novo-G# in a torus.
    pub fn novo_g(torus: Torus3) -> Self {
        let router = novog::Profile::fft();
        let cycle_ps = 1_000_000_000_000 / router.router_hertz;
        let router_ps = novog::ROUTER_CYCLES * cycle_ps;
        Profile {
            system: System::NovoG,
            published_nodes: PUBLISHED_NODES,
            nodes: torus.nodes(),
            topology: Topology::Switched(Shape::Torus { sides: torus.sides() }),
            cycle_ps,
            link_ps: router.link_ps + 2 * router_ps,
            hop_ps: router.link_ps + router_ps,
            link_mbps: (router.router_hertz * PACKET_BITS / 1_000_000) as u32,
            channel_mbps: 102_400,
            beat_bytes: PACKET_BITS / 8,
            memory_bytes: 16 << 30,
            memory_channels: 2,
            router: Some(router),
            ..Profile::optweb(0)
        }
    }

    /// As [`Profile::novo_g`], for a shape such as `4x4x4`.
    ///
    /// # Errors
    /// [`ProfileError::Torus3`].
    pub fn novo_g_of(shape: &str) -> Result<Self, ProfileError> {
        read(shape).map(Profile::novo_g).ok_or_else(|| {
            let near = [format!("{shape}x1"), format!("{shape}x1x1")].into_iter().find(|near| read(near).is_some());
            let fits = near.map_or_else(String::new, |near| format!(": {near} would fit"));
            ProfileError::Torus3 { shape: shape.to_owned(), fits }
        })
    }
}

/// Reads three sides of a torus that the cards can be in.
fn read(shape: &str) -> Option<Torus3> {
    let sides: Option<Vec<u32>> = shape.split('x').map(|side| side.parse().ok()).collect();
    let torus = Torus3::new(sides?.try_into().ok()?).ok()?;
    (torus.nodes() <= PUBLISHED_NODES).then_some(torus)
}

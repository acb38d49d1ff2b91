//! Measures rows on mock links and routers.

use cmdseq::routing::{CollectiveKind, RoutedCollective, Torus3, Torus3Error, TreeAlgorithm, compile};
use fpga_select::novog::{LinkTimes, Network, Payload, Profile, Sampling};

use super::fft::Ffts;
use super::rows::Quantity;
use super::wormhole::Improvements;
use crate::exit::{Exit, Failure, Result};

/// Packets of a batch, for each collective.
const PACKETS: u32 = 64;
/// Packets whose latency is measured.
const SAMPLES: u32 = 100_000;

/// Which nodes a node's collective has.
#[derive(Debug, Clone, Copy)]
enum Pattern {
    AllToAll,
    /// The node whose number has the bits rotated by one.
    BitRotation,
    /// The 26 neighbours with diagonals.
    Neighbours,
}

/// Measurements on mock networks; each is made once.
#[derive(Debug, Default)]
pub(super) struct Lab {
    improvements: Improvements,
    pub(super) ffts: Ffts,
}

pub(super) fn measure(quantity: Quantity, lab: &mut Lab) -> Result<f64> {
    match quantity {
        Quantity::Best(size, metric) => lab.improvements.of(size, metric),
        Quantity::Fft(side, setting) => lab.ffts.us(side, setting),
        Quantity::Jitter(side) => lab.ffts.jitter_percent(side),
        Quantity::Model(system, side, nodes) => Ok(system.fft_us(side, nodes)),
        Quantity::BestNodes(system, side) => Ok(f64::from(system.best_nodes(side))),
        Quantity::Dynamics(simulation) => Ok(simulation.us_per_day()),
        Quantity::Link(profile) => Ok(link_ns(&profile())),
        Quantity::Router => {
            let cycles = cycles_to(2)? - cycles_to(1)?;
            let profile = fixed();
            let period_ns = 1e9 / profile.router_hertz as f64;
            // A packet is seen at the first edge after the link's latency.
            let link_cycles = (profile.link_ps as f64 / 1e3 / period_ns).ceil();
            Ok((cycles as f64 - link_cycles) * period_ns)
        }
        Quantity::Batch(kind) => {
            let patterns = [Pattern::AllToAll, Pattern::BitRotation, Pattern::Neighbours];
            let mut logarithm = 0.0;
            for pattern in patterns {
                let cycles = |algorithm| batch(pattern, kind, algorithm);
                logarithm += (cycles(TreeAlgorithm::Ocr)? / cycles(TreeAlgorithm::Rpm)?).ln();
            }
            Ok(100.0 * ((logarithm / patterns.len() as f64).exp() - 1.0))
        }
    }
}

fn link_ns(profile: &Profile) -> f64 {
    // Four links on each of two boards, as measured; without means of their own, which average out over more boards.
    let mut times = LinkTimes::new(&Profile { lane_sd_ps: 0, ..*profile }, 2, 8);
    let sum: f64 = (0..SAMPLES).map(|sample| times.latency(sample as usize % 8)).sum();
    sum / f64::from(SAMPLES) / 1e3
}

/// Links without jitter: batches are compared by their trees.
fn fixed() -> Profile {
    Profile { sampling: Sampling::Fixed, ..Profile::published() }
}

fn torus() -> Result<Torus3> {
    Torus3::new([4, 4, 4]).map_err(|error: Torus3Error| failure(&error))
}

fn failure(error: &dyn std::error::Error) -> Failure {
    Failure::chain(Exit::Failed, error)
}

fn cycles_to(member: u32) -> Result<u64> {
    let list = [RoutedCollective { kind: CollectiveKind::Unicast, root: 0, members: vec![member], packets: 1 }];
    run(torus()?, &list, TreeAlgorithm::Ocr)
}

fn run(torus: Torus3, list: &[RoutedCollective], algorithm: TreeAlgorithm) -> Result<u64> {
    let tables = compile(torus, list, algorithm).map_err(|error| failure(&error))?;
    let mut network = Network::new(fixed(), torus);
    network.stage(tables).map_err(|error| failure(&error))?;
    network.commit().map_err(|error| failure(&error))?;
    let data =
        |collective: usize, packet: u32, node: u32| -> Payload { [collective as u64, packet.into(), node.into(), 1] };
    let outcome = network.run(&data).filter(|outcome| outcome.lost + outcome.stray == 0);
    outcome.map(|outcome| outcome.cycles).ok_or_else(|| Failure::new(Exit::Verification, "packets were lost"))
}

fn batch(pattern: Pattern, kind: CollectiveKind, algorithm: TreeAlgorithm) -> Result<f64> {
    let torus = torus()?;
    let collective = |root| RoutedCollective { kind, root, members: members(torus, pattern, root), packets: PACKETS };
    let list: Vec<RoutedCollective> =
        (0..torus.nodes()).map(collective).filter(|collective| !collective.members.is_empty()).collect();
    Ok(run(torus, &list, algorithm)? as f64)
}

fn members(torus: Torus3, pattern: Pattern, root: u32) -> Vec<u32> {
    let nodes = torus.nodes();
    let others = (1..nodes).map(|ahead| (root + ahead) % nodes);
    match pattern {
        Pattern::AllToAll => others.collect(),
        Pattern::BitRotation => {
            let rotated = root >> 1 | (root & 1) << (nodes.trailing_zeros() - 1);
            if rotated == root { Vec::new() } else { vec![rotated] }
        }
        Pattern::Neighbours => others
            .filter(|other| {
                (0..3).all(|axis| {
                    let ahead = torus.ahead(root, *other, axis);
                    ahead.min(torus.sides()[axis] - ahead) <= 1
                })
            })
            .collect(),
    }
}

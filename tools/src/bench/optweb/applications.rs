//! The applications of figure 19 as traces, on 16 nodes of three networks with 800 Gb/s for each node: OPTWEB, a torus of
//! 4 x 4, and one switch.
//!
//! The time of an exchange is that of its most loaded link, and the latency of its longest way. So it is a bound, which no
//! order of packets is below: protocols, congestion and skew, which the paper's simulator may have, are not in it.

use cmdseq::Topology;

/// Nodes of the figure.
const NODES: u32 = 16;
/// Nodes of a row and of a column of the torus, and of SUMMA's grid.
const SIDE: u32 = 4;
/// Computing power of a node (section 5.2), in operations a microsecond.
const FLOPS_PER_US: f64 = 50e6;
/// Of a link, or through the switch; the paper states none. That of a hop of Cygnus, which it cites.
const HOP_US: f64 = 0.2;

/// A network of the figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Network {
    /// A link of 50 Gb/s between every two nodes.
    Optweb,
    /// Four links of 200 Gb/s for each node.
    Torus,
    /// One link of 800 Gb/s for each node, to one switch.
    Switch,
}

/// An application of the figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Application {
    /// Integer sort of NAS, class C: 2^27 keys, ten times.
    Is,
    /// 3-D FFT of NAS, class C: 512 x 512 x 512 points, twenty times.
    Ft,
    /// Breadth-first search: the new vertices of a level go to all.
    Graph500,
    /// Product of two matrices of 8192 x 8192 by blocks on a grid of 4 x 4 (SUMMA).
    Summa,
}

/// A step of a trace; bytes are those of one block.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    /// Operations of each node.
    Compute(f64),
    /// A block from each node to each.
    Alltoall(f64),
    /// A block of each node to all.
    Allgather(f64),
    /// A block of one node of each row to its row, and of one of each column to its column.
    Broadcasts(f64),
}

/// Data of one node for another: from, to, bytes.
type Flow = (u32, u32, f64);

impl Application {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Application::Is => "is",
            Application::Ft => "ft",
            Application::Graph500 => "graph500",
            Application::Summa => "summa",
        }
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Application::Is => "integer sort, class C",
            Application::Ft => "FT, class C",
            Application::Graph500 => "Graph500",
            Application::Summa => "SUMMA of 8192 x 8192",
        }
    }

    /// Returns the steps of one repetition: all repetitions are alike.
    fn trace(self) -> Vec<Step> {
        let nodes = f64::from(NODES);
        match self {
            // Sizes of 1024 buckets are added up (as an allgather), then numbers of keys, then keys of 4 B go to all. A key is read
            // and counted twice.
            Application::Is => {
                let keys = f64::from(1 << 27) / nodes;
                vec![
                    Step::Compute(2.0 * keys),
                    Step::Allgather(4096.0),
                    Step::Alltoall(4.0),
                    Step::Alltoall(4.0 * keys / nodes),
                    Step::Compute(2.0 * keys),
                ]
            }
            // 5 n log2 n operations, and one transposition of complex numbers of 16 B.
            Application::Ft => {
                let points = f64::from(1 << 27);
                vec![Step::Compute(5.0 * points * 27.0 / nodes), Step::Alltoall(16.0 * points / (nodes * nodes))]
            }
            // A level as a bitmap of 2^26 vertices with 16 edges each. The scale is not stated; 26 is Graph500's smallest class.
            Application::Graph500 => {
                let vertices = f64::from(1 << 26) / nodes;
                vec![Step::Compute(16.0 * vertices), Step::Allgather(vertices / 8.0)]
            }
            // Four steps; blocks of 2048 x 2048 numbers of 8 B.
            Application::Summa => {
                let block = f64::from(8192 / SIDE);
                vec![Step::Broadcasts(8.0 * block * block), Step::Compute(2.0 * block.powi(3))]
            }
        }
    }

    /// Returns the microseconds of a repetition.
    pub(super) fn us(self, network: Network) -> f64 {
        self.trace().into_iter().map(|step| network.step_us(step)).sum()
    }

    /// Returns how many times as long the application takes on `other` as on OPTWEB.
    pub(super) fn speed_up(self, other: Network) -> f64 {
        self.us(other) / self.us(Network::Optweb)
    }
}

/// Returns how many times as long a long alltoall takes on `other` as on OPTWEB.
pub(super) fn alltoall_ratio(other: Network) -> f64 {
    let us = |network: Network| network.step_us(Step::Alltoall(1e9));
    us(other) / us(Network::Optweb)
}

impl Network {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Network::Optweb => "optweb",
            Network::Torus => "torus",
            Network::Switch => "switch",
        }
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Network::Optweb => "OPTWEB",
            Network::Torus => "a torus of 4 x 4",
            Network::Switch => "one switch",
        }
    }

    const fn topology(self) -> Option<Topology> {
        match self {
            Network::Optweb => Some(Topology::FullyConnected),
            Network::Torus => Some(Topology::Torus { rows: SIDE }),
            Network::Switch => None,
        }
    }

    /// Gb/s of a link.
    const fn link_gbps(self) -> f64 {
        match self {
            Network::Optweb => 50.0,
            Network::Torus => 200.0,
            Network::Switch => 800.0,
        }
    }

    /// Returns the links from a node to another, by number. Between two linked nodes of OPTWEB it is one; to the switch and from
    /// it two.
    fn way(self, from: u32, to: u32) -> Vec<u32> {
        match self.topology() {
            None => vec![from, NODES + to],
            Some(Topology::FullyConnected) => vec![from * NODES + to],
            Some(topology) => topology.way(from, to, NODES).map(|hop| topology.link(hop, NODES) as u32).collect(),
        }
    }

    /// Returns the time of data that all goes at once.
    fn at_once_us(self, flows: &[Flow]) -> f64 {
        let mut loads = vec![0.0; (NODES * NODES) as usize];
        let mut hops = 0;
        for (from, to, bytes) in flows.iter().filter(|(from, to, _)| from != to) {
            let way = self.way(*from, *to);
            // Through the switch is one hop.
            hops = hops.max(if self == Network::Switch { 1 } else { way.len() });
            way.into_iter().for_each(|link| loads[link as usize] += bytes);
        }
        let most = loads.into_iter().fold(0.0, f64::max);
        most * 8.0 / self.link_gbps() / 1e3 + HOP_US * hops as f64
    }

    /// The torus and the switch use the usual algorithms of MPI for long messages: a ring for an allgather, and a binomial tree
    /// for a broadcast. OPTWEB sends blocks of an allgather directly, and broadcasts by multipath (section 5.2).
    fn step_us(self, step: Step) -> f64 {
        let pairs = |bytes| (0..NODES).flat_map(|from| (0..NODES).map(move |to| (from, to, bytes))).collect::<Vec<_>>();
        match step {
            Step::Compute(operations) => operations / FLOPS_PER_US,
            Step::Alltoall(bytes) => self.at_once_us(&pairs(bytes)),
            Step::Allgather(bytes) if self == Network::Optweb => self.at_once_us(&pairs(bytes)),
            Step::Allgather(bytes) => {
                let ring: Vec<Flow> = (0..NODES).map(|from| (from, (from + 1) % NODES, bytes)).collect();
                f64::from(NODES - 1) * self.at_once_us(&ring)
            }
            Step::Broadcasts(bytes) => self.broadcasts_us(bytes),
        }
    }

    /// SUMMA's broadcasts: first along the rows, then along the columns. The roots of the rows are on the diagonal.
    fn broadcasts_us(self, bytes: f64) -> f64 {
        let row = |root: u32, place: u32| root / SIDE * SIDE + place;
        let column = |root: u32, place: u32| place * SIDE + root % SIDE;
        let both: [&dyn Fn(u32, u32) -> u32; 2] = [&row, &column];
        let roots = (0..SIDE).map(|one| one * SIDE + one);
        both.into_iter()
            .map(|member| {
                let groups: Vec<(u32, Vec<u32>)> = roots
                    .clone()
                    .map(|root| (root, (0..SIDE).map(|place| member(root, place)).filter(|one| *one != root).collect()))
                    .collect();
                if self == Network::Optweb {
                    self.multipath_us(&groups, bytes)
                } else {
                    self.binomial_us(&groups, bytes)
                }
            })
            .sum()
    }

    /// The root's block in parts to all nodes, which send them on to the others of the group.
    fn multipath_us(self, groups: &[(u32, Vec<u32>)], bytes: f64) -> f64 {
        let part = bytes / f64::from(NODES - 1);
        let all = 0..NODES;
        let scatter: Vec<Flow> =
            groups.iter().flat_map(|(root, _)| all.clone().map(move |to| (*root, to, part))).collect();
        let collect: Vec<Flow> = groups
            .iter()
            .flat_map(|(root, others)| {
                all.clone()
                    .filter(move |from| from != root)
                    .flat_map(move |from| others.iter().map(move |to| (from, *to, part)))
            })
            .collect();
        self.at_once_us(&scatter) + self.at_once_us(&collect)
    }

    /// In each round, each node that has the block sends it to one that lacks it.
    fn binomial_us(self, groups: &[(u32, Vec<u32>)], bytes: f64) -> f64 {
        let mut us = 0.0;
        let mut has = 1;
        while has < SIDE {
            let round = |(root, others): &(u32, Vec<u32>)| -> Vec<Flow> {
                let members: Vec<u32> = std::iter::once(*root).chain(others.iter().copied()).collect();
                let (has, next) = members.split_at(has as usize);
                has.iter().zip(next).map(|(from, to)| (*from, *to, bytes)).collect()
            };
            us += self.at_once_us(&groups.iter().flat_map(round).collect::<Vec<_>>());
            has *= 2;
        }
        us
    }
}

/// The listed parts of 32 nodes with 800 Gb/s each (section 5.1), in dollars for each Gb/s: transceivers, light sources and filters
/// with shared amplifiers and splitters, and the part of an FPGA of 1250 $ whose logic the network takes.
pub(super) fn listed_cost() -> f64 {
    let (transceiver, shared_light) = (1.0, 3.0);
    let (fpga, share, node_gbps) = (1250.0, 0.577, 800.0);
    transceiver + shared_light + fpga * share / node_gbps
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a torus of 4 x 4 a block goes over two links on average, so each of a node's four links carries eight of its 16 blocks; a
    /// link of OPTWEB carries one.
    #[test]
    fn an_alltoall_is_bound_by_its_links() {
        assert!((alltoall_ratio(Network::Torus) - 8.0 / 4.0).abs() < 0.01, "{}", alltoall_ratio(Network::Torus));
        assert!((alltoall_ratio(Network::Switch) - 15.0 / 16.0).abs() < 0.01, "{}", alltoall_ratio(Network::Switch));
    }

    /// Parts of a fifteenth in two steps, against two rounds of the whole block.
    #[test]
    fn a_long_broadcast_takes_two_fifteenths_of_a_link_of_optweb_and_two_of_the_others() {
        let us = |network: Network| network.broadcasts_us(1e9) / 2.0;
        let link_us = |gbps: f64| 8e6 / gbps;
        assert!((us(Network::Optweb) / (2.0 * link_us(50.0) / 15.0) - 1.0).abs() < 0.01);
        assert!((us(Network::Switch) / (2.0 * link_us(800.0)) - 1.0).abs() < 0.01);
        assert!(us(Network::Torus) > 1.9 * link_us(200.0));
    }
}

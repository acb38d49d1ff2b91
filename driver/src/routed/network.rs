//! The routers of all cards of a torus.

use cmdseq::routing::{NodeTables, RouteKind, RoutedTables, RoutingReport, Torus3, verify};
use fpga_regs::router::source;

use crate::cluster::Cluster;
use crate::routed::error::{Error, Result};
use crate::routed::router::{Router, Words, split};

/// Tables that were taken into force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loaded {
    /// Their number.
    pub generation: u32,
    /// What the verifier found.
    pub report: RoutingReport,
    /// Words written to each card's window, of all cards, each of which was read back.
    pub words: u64,
}

/// Tables in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InForce {
    /// Their number; 0 if none were loaded since power-up.
    pub generation: u32,
    /// The tables, by node.
    pub nodes: Vec<NodeTables>,
}

/// The routers of all cards of a torus, which this process holds.
#[derive(Debug)]
pub struct Network {
    /// By node.
    pub(super) routers: Vec<Router>,
    torus: Torus3,
}

impl Network {
    /// Finds the routers of the cards of a cluster. Changes nothing.
    ///
    /// # Errors
    /// [`Error::NoBlock`] for a card without router, [`Error::MissingCard`] unless all cards of the torus are here; the cards'.
    pub fn of(cluster: &Cluster) -> Result<Self> {
        let mut routers = cluster.cards().iter().map(Router::open).collect::<Result<Vec<_>>>()?;
        routers.sort_by_key(|router| router.node);
        let [first, ..] = routers.as_slice() else {
            return Err(crate::error::Error::argument("number of cards", 0, "at least one card").into());
        };
        let torus = first.torus;
        if let Some(other) = routers.iter().find(|router| router.torus != torus) {
            return Err(Error::Shape { given: other.torus.sides(), has: torus.sides() });
        }
        let (nodes, sides) = (torus.nodes(), torus.sides());
        let held = |node: &u32| routers.get(*node as usize).is_some_and(|router| router.node == *node);
        match (0..nodes).find(|node| !held(node)) {
            Some(node) => Err(Error::MissingCard { node, nodes, sides }),
            None => Ok(Network { routers, torus }),
        }
    }

    /// Returns the shape of the network.
    pub fn torus(&self) -> Torus3 {
        self.torus
    }

    /// Verifies tables, writes them to the staged bank of every card, reads them back, and takes them into force on all cards at
    /// once.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::Tables`] and [`Error::Sources`] before anything is written. [`Error::Lost`], [`Error::NotStaged`]
    /// and [`Error::NotCommitted`], and the cards': then the tables that were in force are still. [`Error::Generations`] if a card
    /// did not follow the commit.
    pub fn load(&mut self, tables: &RoutedTables) -> Result<Loaded> {
        let (given, has) = (tables.torus.sides(), self.torus.sides());
        if given != has {
            return Err(Error::Shape { given, has });
        }
        let mut report = RoutingReport::default();
        // Cards may differ in what they have room for.
        for router in &self.routers {
            if router.node == 0 || router.capacity != self.routers[0].capacity {
                report = verify(tables, router.capacity)?;
            }
        }
        let sources = self.sources(tables)?;
        let mut generation = 0;
        for router in &self.routers {
            generation = generation.max(router.generation()?);
        }
        // A number that neither is none nor reads as if the card was gone.
        let generation = if generation >= u32::MAX - 1 { 1 } else { generation + 1 };
        let mut words = 0;
        for ((router, node), sources) in self.routers.iter().zip(&tables.nodes).zip(sources) {
            let all = encode(node, sources);
            router.write(&all)?;
            words += all.iter().map(|table| table.len() as u64).sum::<u64>();
        }
        self.routers.iter().try_for_each(|router| router.stage(generation))?;
        self.routers[0].commit(generation)?;
        self.check_generations(generation)?;
        Ok(Loaded { generation, report, words })
    }

    /// Reads the tables in force.
    ///
    /// # Errors
    /// [`Error::Generations`] if cards have different ones, [`Error::Entry`] for an entry in no format; the cards'.
    pub fn in_force(&self) -> Result<InForce> {
        let generation = self.routers[0].generation()?;
        self.check_generations(generation)?;
        let nodes = self.routers.iter().map(Router::read_in_force).collect::<Result<_>>()?;
        Ok(InForce { generation, nodes })
    }

    fn check_generations(&self, first: u32) -> Result<()> {
        for router in &self.routers {
            let (node, found) = (router.node, router.generation()?);
            if found != first {
                return Err(Error::Generations { node, found, first });
            }
        }
        Ok(())
    }

    /// Returns where packets of each node's user logic enter the network, in the order of the collectives and of their packets.
    fn sources(&self, tables: &RoutedTables) -> Result<Vec<Vec<u32>>> {
        let mut sources = vec![Vec::new(); self.routers.len()];
        for start in tables.collectives.iter().flat_map(|one| one.starts.iter().flatten()) {
            let place = start.node as usize;
            let route = tables.nodes[place].routes[usize::from(start.index)];
            // A router has an input for each link: what leaves by different links does not wait for each other.
            let is_link = route.kind == RouteKind::Unicast && usize::from(route.port) < Torus3::LINKS;
            sources[place].push(source::encode(start.index, if is_link { route.port } else { 0 }));
        }
        for (router, sources) in self.routers.iter().zip(&sources) {
            let (node, entries, most) = (router.node, sources.len(), router.capacity.entries);
            if entries > most {
                return Err(Error::Sources { node, entries, most: most as u32 });
            }
        }
        Ok(sources)
    }
}

/// Returns the words of a card's tables.
fn encode(node: &NodeTables, sources: Vec<u32>) -> Words {
    [
        node.routes.iter().map(|entry| entry.to_bits()).collect(),
        node.multicasts.iter().flat_map(|entry| split(entry.to_bits())).collect(),
        node.reductions.iter().map(|entry| entry.to_bits()).collect(),
        sources,
    ]
}

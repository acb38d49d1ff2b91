//! Turns trees into tables.

use std::collections::HashMap;

use super::entry::{CHILDREN_MAX, Child, Multicast, ReductionEntry, Route, RouteKind};
use super::scheduled::{CollectiveKind, NodeTables, RoutedCollective, RoutedTables, ScheduledCollective, Start};
use super::tree::{Edge, TreeAlgorithm, TreeBuilder};
use crate::topology::torus3::Torus3;

/// Refusal of a list of collectives.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("collective {collective}: {why}")]
pub struct CompileError {
    /// The collective, from 0.
    pub collective: usize,
    /// What is wrong.
    pub why: String,
}

/// Compiles collectives in their order: each tree is made with the loads of the earlier ones.
///
/// # Errors
/// [`CompileError`] names the first collective that is not valid, or that needs more entries than an index can name.
pub fn compile(
    torus: Torus3,
    collectives: &[RoutedCollective],
    algorithm: TreeAlgorithm,
) -> Result<RoutedTables, CompileError> {
    collectives.iter().enumerate().try_for_each(|(number, one)| check(torus, number, one))?;
    let mut builder = TreeBuilder::new(torus, algorithm);
    let mut tables = Writer::new(torus);
    let mut scheduled = Vec::with_capacity(collectives.len());
    for (number, collective) in collectives.iter().enumerate() {
        let edges = builder.tree(collective.root, &collective.members, collective.packets);
        let starts = tables.write(collective, &edges).map_err(|node| CompileError {
            collective: number,
            why: format!("node {node} needs more than 65536 entries in a table, which an index of 16 bits cannot name"),
        })?;
        scheduled.push(ScheduledCollective { collective: collective.clone(), starts });
    }
    Ok(RoutedTables { torus, collectives: scheduled, nodes: tables.nodes })
}

fn check(torus: Torus3, collective: usize, one: &RoutedCollective) -> Result<(), CompileError> {
    let RoutedCollective { kind, root, ref members, packets } = *one;
    let refuse = |why: String| Err(CompileError { collective, why });
    let nodes = torus.nodes();
    if let Some(node) = [root].iter().chain(members).find(|node| **node >= nodes) {
        return refuse(format!("no node {node} (available: 0 to {})", nodes - 1));
    }
    if members.is_empty() {
        return refuse(format!("a {kind} of no members (expected at least one)"));
    }
    if kind == CollectiveKind::Unicast && members.len() > 1 {
        return refuse(format!("a unicast to {} members (expected one; use a multicast)", members.len()));
    }
    let mut sorted = members.clone();
    sorted.sort_unstable();
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return refuse(format!("node {} is a member twice", pair[0]));
    }
    if kind != CollectiveKind::Reduction && members.contains(&root) {
        return refuse(format!("the root {root} is among the members: it has the data"));
    }
    if packets == 0 { refuse("no packets (expected at least 1)".into()) } else { Ok(()) }
}

/// Tables under construction.
struct Writer {
    nodes: Vec<NodeTables>,
    /// Entries that packets may share, by node.
    shared_routes: Vec<HashMap<Route, u16>>,
    shared_multicasts: Vec<HashMap<Multicast, u16>>,
    /// For each node of the tree at hand, its links away from the root.
    children: Vec<Vec<Edge>>,
    /// Its entry.
    index: Vec<u16>,
    /// Hops to the farthest destination beyond it.
    height: Vec<u8>,
}

/// The node whose table is full.
type FullNode = u32;

impl Writer {
    fn new(torus: Torus3) -> Self {
        let nodes = torus.nodes() as usize;
        Writer {
            nodes: vec![NodeTables::default(); nodes],
            shared_routes: vec![HashMap::new(); nodes],
            shared_multicasts: vec![HashMap::new(); nodes],
            children: vec![Vec::new(); nodes],
            index: vec![0; nodes],
            height: vec![0; nodes],
        }
    }

    fn write(&mut self, collective: &RoutedCollective, edges: &[Edge]) -> Result<Vec<Vec<Start>>, FullNode> {
        // From the leaves to the root: the reverse of how the tree was made.
        let order: Vec<u32> = edges.iter().rev().map(|edge| edge.to).chain([collective.root]).collect();
        order.iter().for_each(|node| self.children[*node as usize].clear());
        edges.iter().for_each(|edge| self.children[edge.from as usize].push(*edge));
        for node in &order {
            let beyond =
                self.children[*node as usize].iter().map(|edge| self.height[edge.to as usize].saturating_add(1));
            self.height[*node as usize] = beyond.max().unwrap_or(0);
        }
        let mut is_member = vec![false; self.nodes.len()];
        collective.members.iter().for_each(|member| is_member[*member as usize] = true);
        if collective.kind == CollectiveKind::Reduction {
            return (0..collective.packets).map(|_| self.gather(collective, &is_member, edges)).collect();
        }
        for node in &order {
            self.index[*node as usize] = self.spread(*node, is_member[*node as usize])?;
        }
        let root = collective.root;
        Ok(vec![vec![Start { node: root, index: self.index[root as usize] }]])
    }

    /// Writes the entry by which a node passes packets on, and delivers them if it is a member.
    fn spread(&mut self, node: u32, is_member: bool) -> Result<u16, FullNode> {
        let place = node as usize;
        let mut children: Vec<Child> = self.children[place]
            .iter()
            .map(|edge| Child { port: edge.port, next: self.index[edge.to as usize] })
            .collect();
        let local = Child { port: Torus3::LOCAL as u8, next: 0 };
        if is_member {
            children.push(local);
        }
        let priority = self.height[place];
        let route = match children[..] {
            [] => Route { kind: RouteKind::Unicast, port: local.port, next: 0, priority },
            [Child { port, next }] => Route { kind: RouteKind::Unicast, port, next, priority },
            _ => {
                debug_assert!(children.len() <= CHILDREN_MAX, "a node has five links ahead, and itself");
                let table = &mut self.nodes[place].multicasts;
                let next = shared(&mut self.shared_multicasts[place], table, Multicast { children }).ok_or(node)?;
                Route { kind: RouteKind::Multicast, port: 0, next, priority }
            }
        };
        shared(&mut self.shared_routes[place], &mut self.nodes[place].routes, route).ok_or(node)
    }

    /// Writes the entries of one packet of a reduction, from the root to the leaves: an entry names that of the node after it.
    fn gather(
        &mut self,
        collective: &RoutedCollective,
        is_member: &[bool],
        edges: &[Edge],
    ) -> Result<Vec<Start>, FullNode> {
        let root = (collective.root, Torus3::LOCAL as u8, None);
        // A ring's ports come in pairs: the way back has the number beside that of the way there.
        let others = edges.iter().map(|edge| (edge.to, edge.port ^ 1, Some(edge.from)));
        for (node, port, after) in [root].into_iter().chain(others) {
            let place = node as usize;
            let next = after.map_or(0, |after| self.index[after as usize]);
            let expected = self.children[place].len() + usize::from(is_member[place]);
            let distance = self.hops_to_root(after);
            let tables = &mut self.nodes[place];
            let route = if expected == 1 {
                Route { kind: RouteKind::Unicast, port, next, priority: distance }
            } else {
                let entry = ReductionEntry { expected: expected as u8, next };
                let next = push(&mut tables.reductions, entry).ok_or(node)?;
                Route { kind: RouteKind::Reduction, port, next, priority: distance }
            };
            self.height[place] = distance;
            self.index[place] = push(&mut tables.routes, route).ok_or(node)?;
        }
        let start = |member: &u32| Start { node: *member, index: self.index[*member as usize] };
        Ok(collective.members.iter().map(start).collect())
    }

    /// Returns the hops to the root of a node whose way there leads through `after`.
    fn hops_to_root(&self, after: Option<u32>) -> u8 {
        after.map_or(0, |after| self.height[after as usize].saturating_add(1))
    }
}

/// Returns the index of an entry, which is added if there is none like it; `None` if the table is full.
fn shared<E: Clone + Eq + std::hash::Hash>(known: &mut HashMap<E, u16>, table: &mut Vec<E>, entry: E) -> Option<u16> {
    if let Some(index) = known.get(&entry) {
        return Some(*index);
    }
    let index = push(table, entry.clone())?;
    known.insert(entry, index);
    Some(index)
}

fn push<E>(table: &mut Vec<E>, entry: E) -> Option<u16> {
    let index = u16::try_from(table.len()).ok()?;
    table.push(entry);
    Some(index)
}

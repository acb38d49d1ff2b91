//! Which cards relay, and the shortest paths between cards.

use std::collections::{BTreeSet, HashMap, VecDeque};

use crate::Capabilities;
use crate::plan::grid::Grid;
use crate::refusal::Refusal;
use crate::request::Request;

/// The cards of a plan, and their links.
#[derive(Debug, Clone)]
pub(crate) struct Routes {
    ranks: usize,
    /// The nodes of the ranks, then of those outside of the group that relay.
    pub(crate) nodes: Vec<u32>,
    /// By card, those with a link from it.
    linked: Vec<Vec<usize>>,
    /// By destination, the hops from each card; `None` if there is no path.
    hops: HashMap<usize, Vec<Option<u32>>>,
}

impl Routes {
    /// Finds the paths of a group that is no grid, or of a request that [goes from rank to rank](goes_from_rank_to_rank); `None` of
    /// any other, or if all ranks are linked.
    ///
    /// # Errors
    /// If two ranks need a path, and no cards that may relay make one.
    pub(crate) fn of(request: &Request, capabilities: &Capabilities) -> Result<Option<Self>, Refusal> {
        let (topology, all) = (capabilities.topology, capabilities.nodes);
        let has_phases = !goes_from_rank_to_rank(request) && Grid::of(request, capabilities).is_some();
        if topology.all_reach(&request.group, all) || has_phases {
            return Ok(None);
        }
        let relays = Lines::new(request, capabilities).relays(request)?;
        let nodes: Vec<u32> = request.group.iter().chain(&relays).copied().collect();
        let linked_to = |here: &u32| {
            let links = |there: &u32| topology.linked(*here, *there, all);
            nodes.iter().enumerate().filter(|(_, there)| links(there)).map(|(card, _)| card).collect()
        };
        let linked = nodes.iter().map(linked_to).collect();
        Ok(Some(Routes { ranks: request.group.len(), nodes, linked, hops: HashMap::new() }))
    }

    /// Number of cards.
    pub(super) fn cards(&self) -> usize {
        self.linked.len()
    }

    /// Number of hops from one card to another; `None` if there is no path.
    pub(crate) fn hops(&mut self, from: usize, to: usize) -> Option<u32> {
        let linked = &self.linked;
        self.hops.entry(to).or_insert_with(|| hops_to(to, linked))[from]
    }

    /// The cards that are one hop nearer to `to` than `at`: those of the group, or if there is none the others.
    pub(super) fn nearer(&mut self, at: usize, to: usize) -> Vec<usize> {
        let Some(hops) = self.hops(at, to) else { return Vec::new() };
        let of = &self.hops[&to];
        let nearer = self.linked[at].iter().copied().filter(|next| of[*next].is_some_and(|left| left < hops));
        let (inside, outside): (Vec<usize>, Vec<usize>) = nearer.partition(|next| *next < self.ranks);
        if inside.is_empty() { outside } else { inside }
    }
}

/// Whether a request has no phases along rows and columns: one from root to peer, and a reduction in the order of the ranks.
pub(crate) fn goes_from_rank_to_rank(request: &Request) -> bool {
    request.collective.has_peer() || request.needs_rank_order()
}

/// By card, the hops to `to`.
fn hops_to(to: usize, linked: &[Vec<usize>]) -> Vec<Option<u32>> {
    let mut hops = vec![None; linked.len()];
    hops[to] = Some(0);
    let mut seen = VecDeque::from([(to, 0)]);
    while let Some((at, so_far)) = seen.pop_front() {
        for next in &linked[at] {
            if hops[*next].is_none() {
                hops[*next] = Some(so_far + 1);
                seen.push_back((*next, so_far + 1));
            }
        }
    }
    hops
}

/// Rows and columns of a Dragonfly, numbered together. All cards of a line are linked, and each card joins its row and its
/// column: two cards have a path if cards join their lines.
struct Lines {
    rows: u32,
    columns: u32,
    /// By line, the lines that a card of the group joins to it.
    joined: Vec<Vec<u32>>,
    /// By line, the lines that a card which may relay joins to it, and the node of that card.
    to_join: Vec<Vec<(u32, u32)>>,
}

impl Lines {
    fn new(request: &Request, capabilities: &Capabilities) -> Self {
        let nodes = capabilities.nodes;
        let rows = capabilities.topology.rows();
        let columns = nodes / rows;
        let lines = (rows + columns) as usize;
        let mut found = Lines { rows, columns, joined: vec![Vec::new(); lines], to_join: vec![Vec::new(); lines] };
        let group: BTreeSet<u32> = request.group.iter().copied().collect();
        for node in &group {
            let [row, column] = found.of(*node);
            found.joined[row as usize].push(column);
            found.joined[column as usize].push(row);
        }
        let all = || (0..nodes).collect();
        let allowed: BTreeSet<u32> = request.relays.as_ref().map_or_else(all, |nodes| nodes.iter().copied().collect());
        for node in allowed.difference(&group) {
            let [row, column] = found.of(*node);
            found.to_join[row as usize].push((column, *node));
            found.to_join[column as usize].push((row, *node));
        }
        found
    }

    /// Row and column of a node.
    const fn of(&self, node: u32) -> [u32; 2] {
        [node / self.columns, self.rows + node % self.columns]
    }

    /// Adds cards until all ranks that take part have paths to each other, each time as few as join one more rank. Returns their nodes.
    fn relays(mut self, request: &Request) -> Result<Vec<u32>, Refusal> {
        let mut relays = Vec::new();
        let mut taking_part = (0..request.ranks()).filter(|rank| request.takes_part(*rank));
        let Some(first) = taking_part.next() else { return Ok(relays) };
        let from = request.group[first as usize];
        for rank in taking_part {
            let to = request.group[rank as usize];
            let Some(path) = self.path(from, to) else {
                let corners = [[self.of(from)[0], self.of(to)[1]], [self.of(to)[0], self.of(from)[1]]];
                let [one, other] = corners.map(|[row, column]| row * self.columns + column - self.rows);
                let cause = format!(
                    "no path from node {from} to node {to} over the group and the cards that may relay; let node {one} or node \
                     {other} relay"
                );
                return Err(Refusal::of(rank as usize, cause));
            };
            for node in path {
                let [row, column] = self.of(node);
                self.joined[row as usize].push(column);
                self.joined[column as usize].push(row);
                relays.push(node);
            }
        }
        relays.sort_unstable();
        Ok(relays)
    }

    /// The fewest nodes that have to relay so that there is a path; `None` if there is none.
    fn path(&self, from: u32, to: u32) -> Option<Vec<u32>> {
        let mut came: Vec<Option<Option<(u32, u32)>>> = vec![None; self.joined.len()];
        // Lines by the number of nodes it takes to join them.
        let mut reached = VecDeque::new();
        for line in self.of(from) {
            came[line as usize] = Some(None);
            reached.push_back(line);
        }
        let target = self.of(to)[0];
        let mut behind = VecDeque::new();
        loop {
            while let Some(line) = reached.pop_front() {
                for next in &self.joined[line as usize] {
                    if came[*next as usize].is_none() {
                        came[*next as usize] = came[line as usize];
                        reached.push_back(*next);
                    }
                }
                behind.push_back(line);
            }
            if came[target as usize].is_some() {
                break;
            }
            while let Some(line) = behind.pop_front() {
                for (next, node) in &self.to_join[line as usize] {
                    if came[*next as usize].is_none() {
                        came[*next as usize] = Some(Some((line, *node)));
                        reached.push_back(*next);
                    }
                }
            }
            if reached.is_empty() {
                return None;
            }
        }
        let mut nodes = Vec::new();
        let mut at = target;
        while let Some(Some((line, node))) = came[at as usize] {
            nodes.push(node);
            at = line;
        }
        Some(nodes)
    }
}

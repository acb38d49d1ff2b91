//! The folding order of each algorithm, from `docs/isa.md`, as trees of ranks. Independent of planner and cards.

use std::collections::BTreeSet;

use cmdseq::{Capabilities, Topology};

use crate::reduction::fold;

/// The folding order of one element of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tree {
    /// The contribution of this rank.
    Rank(u32),
    /// The left fold of these, rounded once after the last.
    Fold(Vec<Tree>),
}

/// Rows of a Dragonfly and cards of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Rows.
    pub rows: u32,
    /// Cards of each.
    pub size: u32,
    /// Whether half a stripe is smaller than what lies behind a pseudo channel.
    pub shares_channels: bool,
}

impl From<(u32, u32)> for Grid {
    /// Rows and cards of each, with pseudo channels for each half of a stripe.
    fn from((rows, size): (u32, u32)) -> Self {
        Grid { rows, size, shares_channels: false }
    }
}

/// Returns rows and ranks of each, of a group on a Dragonfly or torus that has both; else all ranks are in one row.
pub fn grid(capabilities: &Capabilities, group: &[u32]) -> Grid {
    let ranks = group.len() as u32;
    let channel_bytes = capabilities.memory_bytes / u64::from(capabilities.memory_channels);
    let shares_channels = capabilities.stripe_half_bytes < channel_bytes;
    let in_one_row = Grid { rows: 1, size: ranks, shares_channels };
    if capabilities.topology == Topology::FullyConnected {
        return in_one_row;
    }
    let row = |node: &u32| node / (capabilities.nodes / capabilities.topology.rows());
    let rows = group.iter().map(row).collect::<BTreeSet<u32>>().len() as u32;
    if rows == ranks { in_one_row } else { Grid { rows, size: ranks / rows, shares_channels } }
}

/// Whether all cards of a group are linked, or it is some rows of a Dragonfly and in each of them the same columns, row by row: then
/// every algorithm keeps the numbers of its ranks.
pub fn is_row_by_row(capabilities: &Capabilities, group: &[u32]) -> bool {
    let Topology::Dragonfly { groups } = capabilities.topology else { return true };
    let size = capabilities.nodes / groups;
    let row = |node: &u32| node / size;
    let columns = |row: &[u32]| row.iter().map(|node| node % size).collect::<Vec<u32>>();
    let rows: Vec<&[u32]> = group.chunk_by(|one, other| row(one) == row(other)).collect();
    let is_one_column = columns(group).iter().all(|column| *column == group[0] % size);
    is_one_column || rows.iter().all(|row| columns(row) == columns(rows[0]))
}

/// A reduction algorithm, by the names of the command line.
#[derive(Debug, Clone, Copy)]
pub struct Way<'a> {
    /// Name of the algorithm.
    pub algorithm: &'a str,
    /// Name of the operation.
    pub operation: &'a str,
    /// Ranks.
    pub ranks: u32,
    /// Root of a reduce.
    pub root: u32,
    /// Shape of the Dragonfly, for two-level, multipath and lanes; one row if all ranks are linked.
    pub grid: Grid,
    /// Whether the order of ranks was requested, and matters.
    pub in_order: bool,
}

impl Tree {
    /// The value, of blocks by rank.
    pub fn evaluate(&self, reduction: &str, element: &str, blocks: &[&[u8]]) -> Vec<u8> {
        match self {
            Tree::Rank(rank) => blocks[*rank as usize].to_vec(),
            Tree::Fold(parts) => {
                let parts: Vec<Vec<u8>> = parts.iter().map(|part| part.evaluate(reduction, element, blocks)).collect();
                fold(reduction, element, &parts.iter().map(Vec::as_slice).collect::<Vec<_>>())
            }
        }
    }
}

fn two(one: Tree, other: Tree) -> Tree {
    Tree::Fold(vec![one, other])
}

/// `(c0 . c1) . c2`, rounded at each.
fn chain(ranks: impl Iterator<Item = u32>) -> Tree {
    ranks.map(Tree::Rank).reduce(two).expect("a rank")
}

fn left(ranks: impl Iterator<Item = u32>) -> Tree {
    Tree::Fold(ranks.map(Tree::Rank).collect())
}

/// Folds neighbours first, then pairs of neighbours, and so on; a tree without a neighbour waits.
fn neighbours(mut level: Vec<Tree>) -> Tree {
    while level.len() > 1 {
        let mut next = Vec::new();
        let mut rest = level.into_iter();
        while let Some(one) = rest.next() {
            next.push(match rest.next() {
                Some(other) => two(one, other),
                None => one,
            });
        }
        level = next;
    }
    level.remove(0)
}

impl Way<'_> {
    /// Bytes of the chunks whose orders differ, of a vector of `bytes`, or of each block of a reduce_scatter.
    pub fn chunk_bytes(&self, bytes: u64) -> u64 {
        let Grid { rows: groups, size, .. } = self.grid;
        match (self.algorithm, self.operation) {
            ("lanes", "reduce") if !self.grid.shares_channels => {
                bytes.div_ceil(u64::from(groups + size - 2)).next_multiple_of(32)
            }
            ("lanes", "scan" | "exscan") => bytes.max(1),
            ("lanes", "reduce_scatter") if self.grid.shares_channels => bytes.max(1),
            ("lanes", _) => bytes * u64::from(groups) / u64::from(groups + size) / 32 * 32,
            ("ring", "allreduce") if !self.in_order => bytes.div_ceil(self.ranks.into()).next_multiple_of(32).max(1),
            _ => bytes.max(1),
        }
    }

    /// How chunk `chunk` of the result of rank `rank` is folded; nothing if it has none. The chunk of a reduce_scatter by ring is
    /// the block's number.
    pub fn tree(&self, rank: u32, chunk: u32) -> Option<Tree> {
        let ranks = self.ranks;
        let prefix = match self.operation {
            "scan" => rank + 1,
            "exscan" => rank,
            _ => ranks,
        };
        if prefix == 0 {
            return None;
        }
        if ranks == 1 {
            return Some(Tree::Rank(0));
        }
        if self.in_order {
            return Some(chain(0..prefix));
        }
        let Grid { rows: groups, size, .. } = self.grid;
        let row = |row: u32| left(row * size..(row + 1) * size);
        let columns = || Tree::Fold((0..size).map(|column| left((0..groups).map(|row| row * size + column))).collect());
        Some(match (self.algorithm, self.operation) {
            ("multipath", _) if groups > 1 => Tree::Fold((0..groups).map(row).collect()),
            ("direct" | "multipath", _) => left(0..prefix),
            ("binomial", _) => neighbours((0..ranks).map(Tree::Rank).collect()),
            ("ring", "allreduce" | "reduce_scatter") => chain((chunk + 1..=chunk + ranks).map(|place| place % ranks)),
            ("ring", _) => chain(0..prefix),
            ("lanes", "reduce") if !self.grid.shares_channels => self.with_root_last(chunk),
            ("two-level", "reduce" | "allreduce") => Tree::Fold((0..groups).map(row).collect()),
            ("two-level", "reduce_scatter") => columns(),
            ("two-level", _) | ("lanes", "scan" | "exscan") => {
                let before = Tree::Fold((0..rank / size).map(row).collect());
                let here = rank / size * size..prefix;
                match (rank / size, here.is_empty()) {
                    (0, _) => left(here),
                    (_, true) => before,
                    (_, false) => two(before, left(here)),
                }
            }
            ("lanes", "reduce_scatter") if self.grid.shares_channels => Tree::Fold((0..groups).map(row).collect()),
            ("lanes", _) if chunk == 0 => columns(),
            ("lanes", _) => Tree::Fold((0..groups).map(row).collect()),
            (other, _) => panic!("no algorithm {other}"),
        })
    }

    /// Chunks of columns fold rows first, those of rows columns; the root's row and column come last.
    fn with_root_last(&self, chunk: u32) -> Tree {
        let Grid { rows: groups, size, .. } = self.grid;
        let (last_row, last_column) = (self.root / size, self.root % size);
        let sorted = |count: u32, last: u32| (0..count).filter(move |one| *one != last).chain([last]);
        match chunk < size - 1 {
            true => Tree::Fold(
                sorted(groups, last_row)
                    .map(|row| left(sorted(size, last_column).map(|column| row * size + column)))
                    .collect(),
            ),
            false => Tree::Fold(
                sorted(size, last_column)
                    .map(|column| left(sorted(groups, last_row).map(|row| row * size + column)))
                    .collect(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(tree: &Tree) -> String {
        match tree {
            Tree::Rank(rank) => rank.to_string(),
            Tree::Fold(parts) => format!("({})", parts.iter().map(text).collect::<Vec<_>>().join(" ")),
        }
    }

    #[test]
    fn by_hand() {
        for (algorithm, operation, ranks, rank, chunk, expected) in [
            ("direct", "allreduce", 4, 0, 0, "(0 1 2 3)"),
            ("direct", "exscan", 4, 2, 0, "(0 1)"),
            ("binomial", "reduce", 5, 3, 0, "(((0 1) (2 3)) 4)"),
            ("ring", "allreduce", 4, 2, 1, "(((2 3) 0) 1)"),
            ("ring", "reduce", 4, 0, 0, "(((0 1) 2) 3)"),
            ("two-level", "allreduce", 6, 0, 0, "((0 1 2) (3 4 5))"),
            ("multipath", "reduce", 6, 4, 0, "((0 1 2) (3 4 5))"),
            ("two-level", "reduce_scatter", 6, 1, 1, "((0 3) (1 4) (2 5))"),
            ("lanes", "reduce", 6, 4, 1, "((0 2 1) (3 5 4))"),
            ("lanes", "reduce", 6, 4, 2, "((0 3) (2 5) (1 4))"),
            ("lanes", "allreduce", 6, 1, 0, "((0 3) (1 4) (2 5))"),
            ("lanes", "reduce_scatter", 6, 1, 1, "((0 1 2) (3 4 5))"),
            ("two-level", "scan", 6, 4, 0, "(((0 1 2)) (3 4))"),
            ("two-level", "exscan", 6, 3, 0, "((0 1 2))"),
            ("lanes", "scan", 6, 4, 0, "(((0 1 2)) (3 4))"),
            ("lanes", "exscan", 6, 2, 0, "(0 1)"),
        ] {
            let way = Way { algorithm, operation, ranks, root: 4, grid: (2, 3).into(), in_order: false };
            assert_eq!(text(&way.tree(rank, chunk).unwrap()), expected, "{algorithm} {operation}");
        }
        let grid = Grid { shares_channels: true, ..(2, 3).into() };
        let way = Way { algorithm: "lanes", operation: "reduce", ranks: 6, root: 4, grid, in_order: false };
        let chunks = [0, 1].map(|chunk| text(&way.tree(4, chunk).unwrap()));
        assert_eq!(
            (chunks, way.chunk_bytes(400)),
            (["((0 3) (1 4) (2 5))", "((0 1 2) (3 4 5))"].map(String::from), 160)
        );
        let way =
            Way { algorithm: "two-level", operation: "scan", ranks: 6, root: 4, grid: (2, 3).into(), in_order: true };
        assert_eq!(text(&way.tree(4, 0).unwrap()), "((((0 1) 2) 3) 4)");
    }
}

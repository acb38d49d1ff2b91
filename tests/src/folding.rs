//! The folding order of each algorithm, from `docs/isa.md`, as trees of ranks. Independent of planner and cards.

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
pub type Grid = (u32, u32);

/// A reduction algorithm, by the names of the command line.
#[derive(Debug, Clone, Copy)]
pub struct Way<'a> {
    /// Name of the algorithm.
    pub algorithm: &'a str,
    /// Name of the operation.
    pub operation: &'a str,
    /// Ranks.
    pub ranks: u32,
    /// Shape of the Dragonfly, for two-level and multipath; one row if all ranks are linked.
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
    /// Bytes of the chunks whose orders differ, of a vector of `bytes`; chunk i of an allreduce, or the block of rank i of a
    /// reduce_scatter, is folded as `tree` says for `chunk` i.
    pub fn chunk_bytes(&self, bytes: u64) -> u64 {
        match (self.algorithm, self.operation) {
            ("ring", "allreduce") if !self.in_order => bytes.div_ceil(self.ranks.into()).next_multiple_of(32).max(1),
            _ => bytes.max(1),
        }
    }

    /// How chunk `chunk` of the result of rank `rank` is folded; nothing if it has none.
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
        let (groups, size) = self.grid;
        let row = |row: u32| left(row * size..(row + 1) * size);
        Some(match (self.algorithm, self.operation) {
            ("multipath", _) if groups > 1 => Tree::Fold((0..groups).map(row).collect()),
            ("direct" | "multipath", _) => left(0..prefix),
            ("binomial", _) => neighbours((0..ranks).map(Tree::Rank).collect()),
            ("ring", "allreduce" | "reduce_scatter") => chain((chunk + 1..=chunk + ranks).map(|place| place % ranks)),
            ("ring", _) => chain(0..prefix),
            ("two-level", "reduce" | "allreduce") => Tree::Fold((0..groups).map(row).collect()),
            ("two-level", "reduce_scatter") => {
                Tree::Fold((0..size).map(|column| left((0..groups).map(|row| row * size + column))).collect())
            }
            ("two-level", _) => {
                let before = Tree::Fold((0..rank / size).map(row).collect());
                let here = rank / size * size..prefix;
                match (rank / size, here.is_empty()) {
                    (0, _) => left(here),
                    (_, true) => before,
                    (_, false) => two(before, left(here)),
                }
            }
            (other, _) => panic!("no algorithm {other}"),
        })
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
            ("two-level", "scan", 6, 4, 0, "(((0 1 2)) (3 4))"),
            ("two-level", "exscan", 6, 3, 0, "((0 1 2))"),
        ] {
            let way = Way { algorithm, operation, ranks, grid: (2, 3), in_order: false };
            assert_eq!(text(&way.tree(rank, chunk).unwrap()), expected, "{algorithm} {operation}");
        }
        let way = Way { algorithm: "two-level", operation: "scan", ranks: 6, grid: (2, 3), in_order: true };
        assert_eq!(text(&way.tree(4, 0).unwrap()), "((((0 1) 2) 3) 4)");
    }
}

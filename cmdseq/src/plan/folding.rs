//! How one element of a result is folded.

/// How one element of a result is folded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Folding {
    /// The contribution of this rank.
    Rank(u32),
    /// The left fold of these, rounded once at its end; a single one is unchanged.
    Left(Vec<Folding>),
}

impl Folding {
    pub(super) fn two(one: Folding, other: Folding) -> Folding {
        Folding::Left(vec![one, other])
    }

    /// The same with other ranks.
    pub(super) fn renumbered(self, rank: &impl Fn(u32) -> u32) -> Folding {
        match self {
            Folding::Rank(one) => Folding::Rank(rank(one)),
            Folding::Left(all) => Folding::Left(all.into_iter().map(|one| one.renumbered(rank)).collect()),
        }
    }

    pub(super) fn left(ranks: impl Iterator<Item = u32>) -> Folding {
        Folding::Left(ranks.map(Folding::Rank).collect())
    }

    /// A grid of `rows` rows of `size` ranks: the folds of the columns if `columns_first`, else of the rows.
    pub(super) fn of_grid(rows: u32, size: u32, columns_first: bool) -> Folding {
        Folding::Left(match columns_first {
            true => (0..size).map(|column| Folding::left((0..rows).map(|row| row * size + column))).collect(),
            false => (0..rows).map(|row| Folding::left(row * size..(row + 1) * size)).collect(),
        })
    }

    /// Each with what came of all before, rounded at each.
    pub(super) fn chain(ranks: impl Iterator<Item = u32>) -> Option<Folding> {
        ranks.map(Folding::Rank).reduce(Folding::two)
    }

    /// Neighbours first, then neighbours of what came of them.
    pub(super) fn pairwise(mut level: Vec<Folding>) -> Option<Folding> {
        while level.len() > 1 {
            let mut of_two = level.into_iter();
            level = Vec::new();
            while let Some(one) = of_two.next() {
                level.push(match of_two.next() {
                    Some(other) => Folding::two(one, other),
                    None => one,
                });
            }
        }
        level.pop()
    }
}

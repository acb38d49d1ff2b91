//! Paired instructions that have met.

/// Sets of ranks whose paired instructions have met: a union-find forest, with a circular list of each set.
#[derive(Debug)]
pub(super) struct PairSets {
    pub(super) parent: Vec<usize>,
    /// The next member of the same set, in a circle.
    pub(super) circle: Vec<usize>,
    /// For a root: transfers of its set whose partner has not arrived.
    pub(super) open: Vec<usize>,
    pub(super) is_here: Vec<bool>,
}

impl PairSets {
    pub(super) fn new(ranks: usize) -> Self {
        let each: Vec<usize> = (0..ranks).collect();
        PairSets { parent: each.clone(), circle: each, open: vec![0; ranks], is_here: vec![false; ranks] }
    }

    pub(super) fn arrive(&mut self, rank: usize, directions: usize) {
        (self.parent[rank], self.circle[rank], self.open[rank], self.is_here[rank]) = (rank, rank, directions, true);
    }

    pub(super) fn root(&mut self, mut rank: usize) -> usize {
        while self.parent[rank] != rank {
            self.parent[rank] = self.parent[self.parent[rank]];
            rank = self.parent[rank];
        }
        rank
    }

    /// Joins the sets of two ranks: a transfer has found its partner.
    pub(super) fn meet(&mut self, one: usize, other: usize) {
        let (one, other) = (self.root(one), self.root(other));
        if one != other {
            self.parent[other] = one;
            self.open[one] += self.open[other];
            self.circle.swap(one, other);
        }
        self.open[one] -= 2;
    }

    /// Removes the set of `rank` into `together`, if all its transfers have partners.
    pub(super) fn leave(&mut self, rank: usize, together: &mut Vec<usize>) -> bool {
        let root = self.root(rank);
        if self.open[root] != 0 {
            return false;
        }
        let mut at = root;
        loop {
            together.push(at);
            self.is_here[at] = false;
            at = self.circle[at];
            if at == root {
                return true;
            }
        }
    }
}

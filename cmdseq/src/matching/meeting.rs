//! Which paired instructions have met.

/// Ranks whose paired instructions have met, as far as is known: a forest with a list of each tree's members.
#[derive(Debug)]
pub(super) struct Meeting {
    pub(super) parent: Vec<usize>,
    /// The next member of the same tree, in a circle.
    pub(super) circle: Vec<usize>,
    /// Of a root: directions in which its members exchange something and have not met their partner.
    pub(super) open: Vec<usize>,
    pub(super) is_here: Vec<bool>,
}

impl Meeting {
    pub(super) fn new(ranks: usize) -> Self {
        let each: Vec<usize> = (0..ranks).collect();
        Meeting { parent: each.clone(), circle: each, open: vec![0; ranks], is_here: vec![false; ranks] }
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

    /// What one sends has met what the other receives.
    pub(super) fn meet(&mut self, one: usize, other: usize) {
        let (one, other) = (self.root(one), self.root(other));
        if one != other {
            self.parent[other] = one;
            self.open[one] += self.open[other];
            self.circle.swap(one, other);
        }
        self.open[one] -= 2;
    }

    /// All members of `rank`'s tree leave, if nothing of them is open.
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

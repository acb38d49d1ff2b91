//! Round-robin arbiters.

/// Grants one of several requests; whoever was granted comes last the next time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RoundRobin {
    /// The request that comes first.
    first: usize,
}

impl RoundRobin {
    /// Returns the first request, of those numbered below `requests`, that `is_raised`, and makes it the last.
    pub(crate) fn grant(&mut self, requests: usize, is_raised: impl Fn(usize) -> bool) -> Option<usize> {
        let first = self.first.min(requests);
        let granted = (first..requests).chain(0..first).find(|request| is_raised(*request))?;
        self.first = granted + 1;
        Some(granted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyone_who_asks_has_a_turn() {
        let mut arbiter = RoundRobin::default();
        let grants: Vec<_> = (0..6).filter_map(|_| arbiter.grant(4, |request| request != 2)).collect();
        assert_eq!(grants, [0, 1, 3, 0, 1, 3]);
        assert_eq!(arbiter.grant(4, |request| request == 1), Some(1));
        assert_eq!(arbiter.grant(4, |_| true), Some(2));
        assert_eq!(arbiter.grant(4, |_| false), None);
    }
}

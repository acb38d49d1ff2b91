//! Who uses a mapping.

/// A function of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Member(pub(crate) u64);

impl Member {
    /// Returns whether this function uses what is for the function `only`, or for all.
    pub(crate) fn uses(self, only: Option<Member>) -> bool {
        only.is_none_or(|only| only == self)
    }
}

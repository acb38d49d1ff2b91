//! Rules of a card that its host has broken.

/// Those that are kept. Nobody may ever ask for them.
const MOST: usize = 1024;

/// The first violations, each a `V`.
#[derive(Debug)]
pub(crate) struct Violations<V>(Vec<V>);

impl<V> Default for Violations<V> {
    fn default() -> Self {
        Violations(Vec::new())
    }
}

impl<V: Clone> Violations<V> {
    /// Notes a violation, unless there are many already.
    pub(crate) fn note(&mut self, violation: V) {
        if self.0.len() < MOST {
            self.0.push(violation);
        }
    }

    /// Returns those that were noted.
    pub(crate) fn list(&self) -> Vec<V> {
        self.0.clone()
    }

    /// Returns those that were noted, and forgets them.
    pub(crate) fn take(&mut self) -> Vec<V> {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_are_kept() {
        let mut violations = Violations::default();
        (0..10_000).for_each(|number| violations.note(number));
        let first: Vec<usize> = (0..MOST).collect();
        assert_eq!((violations.list(), violations.take(), violations.take()), (first.clone(), first, vec![]));
    }
}

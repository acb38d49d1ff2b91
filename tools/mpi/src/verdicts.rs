//! What was measured on a communicator with the policy `auto`. Kept longer than plans: all ranks have the same verdicts.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::shape::Shape;

/// Verdicts that a communicator keeps. All of them are dropped if there are more, on all ranks at the same call.
const VERDICTS_MAX: usize = 1 << 14;

/// Whether the cards are faster than the MPI library, by shape.
#[derive(Debug, Default)]
pub(crate) struct Verdicts(HashMap<Shape, bool>);

impl Verdicts {
    /// Whether the cards are faster; `None` if that was not measured.
    pub(crate) fn known(&self, shape: &Shape) -> Option<bool> {
        self.0.get(&*class(shape)).copied()
    }

    /// Whether the cards are faster, by `measure` if that was not measured.
    pub(crate) fn known_or<E>(&mut self, shape: &Shape, measure: impl FnOnce() -> Result<bool, E>) -> Result<bool, E> {
        if let Some(known) = self.known(shape) {
            return Ok(known);
        }
        let is_faster = measure()?;
        if self.0.len() >= VERDICTS_MAX {
            self.0.clear();
        }
        self.0.insert(class(shape).into_owned(), is_faster);
        Ok(is_faster)
    }
}

/// What stands for all shapes with one verdict: vector forms of about as many bytes, whatever their counts.
fn class(shape: &Shape) -> Cow<'_, Shape> {
    if !shape.collective.has_counts() {
        return Cow::Borrowed(shape);
    }
    let bytes = shape.counts.iter().sum::<u64>().next_power_of_two();
    Cow::Owned(Shape { collective: shape.collective, bytes, root: shape.root, combine: None, counts: Vec::new() })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use cmdseq::plan::Collective;

    use super::*;
    use crate::counted::{Accesses, RANKS, ranks, shape};
    use crate::engine::PLANS_MAX;

    #[test]
    fn a_shape_is_measured_once_however_many_plans_there_are() {
        let calls: Vec<Shape> = (1..=PLANS_MAX as u64 + 50).map(|bytes| shape(Collective::Broadcast, bytes)).collect();
        // Half of the calls are slower on the cards, and then none is.
        for kinds in [2, 1] {
            let accesses: Vec<Arc<Accesses>> = (0..RANKS).map(|_| Arc::default()).collect();
            let measured = ranks(&accesses, false, |_, engine, registered| {
                let (mut verdicts, mut measured) = (Verdicts::default(), [0; 2]);
                for count in &mut measured {
                    for (index, shape) in calls.iter().enumerate() {
                        if verdicts.known(shape) == Some(false) {
                            continue;
                        }
                        assert!(engine.plan(registered, shape).unwrap());
                        let measure = || {
                            *count += 1;
                            Ok::<_, Infallible>(index % kinds == 0)
                        };
                        let Ok(is_faster) = verdicts.known_or(shape, measure);
                        if !is_faster {
                            registered.forget_plan(shape);
                        }
                        assert_eq!(registered.bytes(shape) != (0, 0), is_faster);
                    }
                }
                measured
            });
            assert_eq!(measured, vec![[calls.len(), 0]; RANKS as usize]);
        }
    }

    #[test]
    fn vector_forms_of_about_as_many_bytes_have_one_verdict() {
        let alltoallv = |counts: [u64; 4]| Shape { counts: counts.to_vec(), ..shape(Collective::Alltoallv, 0) };
        let mut verdicts = Verdicts::default();
        let Ok(_) = verdicts.known_or(&alltoallv([1, 2, 3, 4]), || Ok::<_, Infallible>(true));
        for (counts, known) in [([0, 16, 0, 0], Some(true)), ([4, 4, 0, 0], None), ([17, 0, 0, 0], None)] {
            assert_eq!(verdicts.known(&alltoallv(counts)), known, "{counts:?}");
        }
        assert_eq!(verdicts.known(&shape(Collective::Alltoall, 16)), None);
    }
}

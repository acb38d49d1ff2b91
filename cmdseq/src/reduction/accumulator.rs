//! Folds contributions of ranks, as the cards do.

use super::fold::{Fold, fold, narrow, widen};
use super::{Combine, Element};

/// Folds contributions in order: `(((c0 . c1) . c2) . c3)`, element by element.
///
/// - f16 and bf16 are widened to f32, folded in f32, and rounded once at the end, to nearest, ties to even. All other
///   types are folded in their own type; every operation on f32 and f64 rounds to nearest, ties to even. Subnormals are kept.
/// - A NaN result is always the quiet NaN with positive sign and no payload.
/// - minloc and maxloc treat a NaN as beyond all values, and -0.0 as less than +0.0; bytes that belong to neither value nor index
///   are zero.
/// - A single contribution is copied bit for bit.
#[derive(Debug)]
pub struct Accumulator {
    element: Element,
    fold: Fold,
    /// The fold so far; in f32 for narrow floats, from the second contribution on.
    value: Vec<u8>,
    /// A contribution of narrow floats in f32.
    wide: Vec<u8>,
    count: u32,
}

impl Accumulator {
    /// Returns an empty accumulator; `None` if the reduction does not accept the element type.
    pub fn new(combine: Combine) -> Option<Self> {
        let element = if combine.element.is_narrow() { Element::F32 } else { combine.element };
        let fold = fold(combine.reduction, element).filter(|_| combine.is_defined())?;
        Some(Accumulator { element: combine.element, fold, value: Vec::new(), wide: Vec::new(), count: 0 })
    }

    /// Removes all contributions, but keeps the buffers.
    pub fn clear(&mut self) {
        self.value.clear();
        self.count = 0;
    }

    /// Adds the next contribution. All must have one length, in whole elements.
    pub fn add(&mut self, contribution: &[u8]) {
        if self.count == 0 {
            self.value.extend_from_slice(contribution);
        } else if self.element.is_narrow() {
            if self.count == 1 {
                widen(self.element, &self.value, &mut self.wide);
                std::mem::swap(&mut self.value, &mut self.wide);
            }
            widen(self.element, contribution, &mut self.wide);
            (self.fold)(&mut self.value, &self.wide);
        } else {
            (self.fold)(&mut self.value, contribution);
        }
        self.count += 1;
    }

    /// Writes the result into `result`, which is as long as a contribution.
    pub fn result(&self, result: &mut [u8]) {
        if self.element.is_narrow() && self.count > 1 {
            narrow(self.element, &self.value, result);
        } else {
            result.iter_mut().zip(&self.value).for_each(|(to, from)| *to = *from);
        }
    }
}

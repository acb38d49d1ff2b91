//! A card on which some registers of one BAR read otherwise.

use std::sync::Arc;

use fpga_hal::endpoint::Interposer;
use fpga_hal::{BarIndex, Endpoint};

/// See [`altered`].
struct Altered {
    card: Arc<dyn Endpoint>,
    bar: u8,
    values: Vec<(u64, u32)>,
}

/// Has the words of 32 bits at these offsets of a BAR read as these values.
#[must_use]
pub fn altered(card: Arc<dyn Endpoint>, bar: u8, values: &[(u64, u32)]) -> Arc<dyn Endpoint> {
    Arc::new(Altered { card, bar, values: values.to_vec() })
}

impl Interposer for Altered {
    fn behind(&self) -> &dyn Endpoint {
        &*self.card
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        self.card.bar_read(bar, offset, data);
        if bar.index() != usize::from(self.bar) {
            return;
        }
        for (word, at) in data.chunks_exact_mut(4).zip((offset..).step_by(4)) {
            if let Some((_, value)) = self.values.iter().find(|(altered, _)| *altered == at) {
                word.copy_from_slice(&value.to_le_bytes());
            }
        }
    }
}

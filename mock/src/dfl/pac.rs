//! The function of a card without OFS: configuration space and MSI-X are the accelerator's card's, the static region shows its
//! registers before it.

use std::sync::{Arc, Mutex, PoisonError};

use fpga_hal::BarIndex;
use fpga_hal::endpoint::{Endpoint, Interposer};
use fpga_regs::dfl::pac::{ACCELERATOR, FUNCTION, PORT_BAR};

use crate::card::config_space::Command;
use crate::dfl::accelerator::Accelerator;
use crate::dfl::attached::aligned;
use crate::dfl::static_region::{ERROR_VECTOR, StaticRegion};
use crate::fabric::Fabric;
use crate::msgdma::CardWithEngine;

/// A card in one function.
pub(super) struct Pac {
    fabric: Fabric,
    node: u32,
    accelerator: Arc<Accelerator>,
    region: Mutex<StaticRegion>,
}

/// Who answers an access of a BAR.
enum Answers {
    /// The static region, at this place.
    Region(u32),
    /// The accelerator's card, at this BAR and offset.
    Card(BarIndex, u64),
}

impl Pac {
    pub(super) fn new(fabric: &Fabric, node: u32, accelerator: Arc<Accelerator>, region: StaticRegion) -> Self {
        Pac { fabric: fabric.clone(), node, accelerator, region: Mutex::new(region) }
    }

    pub(super) fn engine(&self) -> Option<&CardWithEngine> {
        self.accelerator.engine()
    }

    /// Runs `access` on the static region, and sends its interrupt.
    pub(super) fn with_region<R>(&self, access: impl FnOnce(&mut StaticRegion) -> R) -> R {
        let mut region = self.region.lock().unwrap_or_else(PoisonError::into_inner);
        let result = access(&mut region);
        let interrupts = region.take_interrupt();
        drop(region);
        if interrupts {
            self.fabric.interrupt(self.node, ERROR_VECTOR);
        }
        result
    }

    fn answers(bar: BarIndex, offset: u64) -> Answers {
        let first = BarIndex::new(0).filter(|_| bar.index() == usize::from(PORT_BAR));
        match (bar.index(), first, offset.checked_sub(ACCELERATOR.into())) {
            (_, Some(registers), Some(inside)) => Answers::Card(registers, inside),
            (0, ..) | (_, Some(_), None) => Answers::Region((bar.index() as u32) << 24 | (offset & !7) as u32),
            _ => Answers::Card(bar, offset),
        }
    }

    /// Returns whether the function is there and decodes its BARs.
    fn decodes(&self) -> bool {
        Command::of(&*self.accelerator).decodes_memory()
    }
}

impl Interposer for Pac {
    fn behind(&self) -> &dyn Endpoint {
        &*self.accelerator
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        match Self::answers(bar, offset) {
            Answers::Card(bar, offset) => {
                let is_inside = bar.index() != 0 || offset + data.len() as u64 <= accelerator_bytes();
                match is_inside {
                    true => self.behind().bar_read(bar, offset, data),
                    false => data.fill(0xff),
                }
            }
            Answers::Region(place) => {
                let taken = aligned(&FUNCTION, bar, offset, data.len()).filter(|_| self.decodes());
                let value = taken.map_or(u64::MAX, |(_, shift)| self.with_region(|region| region.read(place)) >> shift);
                let bytes = data.len().min(8);
                data.fill(0xff);
                data[..bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
            }
        }
    }

    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) {
        match Self::answers(bar, offset) {
            Answers::Card(bar, offset) => {
                let is_inside = bar.index() != 0 || offset + data.len() as u64 <= accelerator_bytes();
                if is_inside {
                    self.behind().bar_write(bar, offset, data);
                }
            }
            Answers::Region(place) => {
                let Some((_, shift)) = aligned(&FUNCTION, bar, offset, data.len()) else { return };
                if self.decodes() {
                    let (value, mask) = crate::dfl::attached::shifted(data, shift);
                    self.with_region(|region| region.write(place, value, mask));
                }
            }
        }
    }
}

/// Bytes from the accelerator's list to the end of its BAR.
fn accelerator_bytes() -> u64 {
    FUNCTION.bar_bytes(PORT_BAR) - u64::from(ACCELERATOR)
}

//! Opens fakes by the transport that the tests of this binary are about: `crate::open_card`.

use std::sync::Arc;

use fpga_driver::{Card, Cluster, Result};
use fpga_fake::Fake;
use fpga_hal::Function;

pub(crate) trait Open {
    fn open(&self) -> Result<Card>;
}

impl Open for Arc<Fake> {
    fn open(&self) -> Result<Card> {
        crate::open_card(self.function())
    }
}

pub(crate) fn open_all(functions: Vec<Function>) -> Result<Cluster> {
    Cluster::of(functions.into_iter().map(crate::open_card).collect::<Result<_>>()?)
}

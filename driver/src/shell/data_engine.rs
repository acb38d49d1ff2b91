//! The engine that moves data between host memory and card memory, whichever a card has.

use std::time::Duration;

use crate::error::Result;
use crate::{msgdma, xdma};

/// The engine of a card's shell.
pub(crate) enum DataEngine<'a> {
    /// AMD's.
    Xdma(&'a mut xdma::Engine),
    /// Intel's.
    Msgdma(&'a mut msgdma::Engine),
}

impl DataEngine<'_> {
    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        match self {
            DataEngine::Xdma(engine) => engine.set_timeout(timeout),
            DataEngine::Msgdma(engine) => engine.set_timeout(timeout),
        }
    }

    pub(crate) fn write(&mut self, address: u64, data: &[u8]) -> Result<()> {
        match self {
            DataEngine::Xdma(engine) => Ok(engine.write(address, data)?),
            DataEngine::Msgdma(engine) => Ok(engine.write(address, data)?),
        }
    }

    pub(crate) fn read(&mut self, address: u64, data: &mut [u8]) -> Result<()> {
        match self {
            DataEngine::Xdma(engine) => Ok(engine.read(address, data)?),
            DataEngine::Msgdma(engine) => Ok(engine.read(address, data)?),
        }
    }
}

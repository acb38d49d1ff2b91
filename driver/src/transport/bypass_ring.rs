//! Rings in host memory, for a sequencer that masters the bus through channels of the shell's engine.

use cmdseq::{Completion, Status, completion, instruction};

use crate::board::Feed;
use crate::error::Result;
use crate::transport::Transport;
use crate::transport::host_ring::HostRing;
use crate::transport::queue_registers::QueueRegisters;
use crate::xdma::Bypass;

/// Rings in host memory, and the channels that reach them.
pub(crate) struct BypassRing {
    ring: HostRing,
    bypass: Bypass,
}

impl BypassRing {
    /// Has the sequencer reach `ring` through `bypass`.
    pub(crate) fn new(ring: HostRing, bypass: Bypass) -> Self {
        BypassRing { ring, bypass }
    }
}

impl Transport for BypassRing {
    fn feed(&self) -> Feed {
        self.ring.feed()
    }

    #[inline]
    fn registers(&self) -> &QueueRegisters {
        self.ring.registers()
    }

    #[inline]
    fn store(&self, count: u32, word: &[u8; instruction::BYTES]) -> Result<()> {
        self.ring.store(count, word)
    }

    #[inline]
    fn ring(&self, pushed: u32) -> Result<()> {
        self.ring.ring(pushed)
    }

    fn poll(&self, count: u32, word: &mut [u8; completion::BYTES]) -> Result<bool> {
        let has_come = self.ring.poll(count, word)?;
        // What an instruction asked for in vain has stopped its channel.
        if has_come && Completion::decode(word).status != Status::Done {
            self.bypass.restart_stopped()?;
        }
        Ok(has_come)
    }

    /// A level that an earlier completion has raised would hide the edge of the next.
    fn arm(&self, taken: u32) -> Result<()> {
        self.registers().acknowledge()?;
        self.registers().arm(taken)
    }

    fn start(&self) -> Result<()> {
        self.bypass.start()?;
        self.ring.start()
    }

    fn empty(&mut self, is_trusted: bool) -> Result<()> {
        self.ring.empty(is_trusted)
    }

    fn check(&self) -> Result<()> {
        Ok(self.bypass.check()?)
    }

    fn after_reset(&mut self) -> Result<()> {
        Ok(self.bypass.after_reset()?)
    }

    fn leak(&self) {
        self.ring.leak();
    }
}

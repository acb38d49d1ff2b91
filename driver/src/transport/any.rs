//! One of the transports there are.

use cmdseq::{completion, instruction};

use crate::error::Result;
use crate::transport::Transport;
use crate::transport::card_ring::CardRing;
use crate::transport::host_ring::HostRing;
use crate::transport::queue_registers::QueueRegisters;

/// The transports there are. An enum, because a type parameter of the queue would be one of every card and cluster.
pub(crate) enum AnyTransport {
    HostRing(HostRing),
    CardRing(Box<CardRing>),
}

/// Does the same with whichever transport it is: once for each kind, so that a loop in it has no dispatch.
macro_rules! each {
    ($transport:expr, $one:ident => $call:expr) => {
        match $transport {
            $crate::transport::any::AnyTransport::HostRing($one) => $call,
            $crate::transport::any::AnyTransport::CardRing($one) => {
                let $one = &**$one;
                $call
            }
        }
    };
}
pub(crate) use each;

impl Transport for AnyTransport {
    #[inline]
    fn registers(&self) -> &QueueRegisters {
        each!(self, one => one.registers())
    }

    #[inline(always)]
    fn store(&self, count: u32, word: [u8; instruction::BYTES]) -> Result<()> {
        each!(self, one => one.store(count, word))
    }

    #[inline(always)]
    fn ring(&self, pushed: u32) -> Result<()> {
        each!(self, one => one.ring(pushed))
    }

    #[inline(always)]
    fn poll(&self, count: u32, word: &mut [u8; completion::BYTES]) -> Result<bool> {
        each!(self, one => one.poll(count, word))
    }

    fn start(&self) -> Result<()> {
        each!(self, one => one.start())
    }

    fn empty(&mut self, is_trusted: bool) -> Result<()> {
        match self {
            AnyTransport::HostRing(one) => one.empty(is_trusted),
            AnyTransport::CardRing(one) => one.empty(is_trusted),
        }
    }

    fn leak(&self) {
        each!(self, one => one.leak());
    }
}

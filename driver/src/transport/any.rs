//! One of the transports there are.

use std::ops::{Deref, DerefMut};

use crate::transport::Transport;
use crate::transport::host_ring::HostRing;

/// The transports there are. An enum, because a type parameter of the queue would be one of every card and cluster.
pub(crate) enum AnyTransport {
    HostRing(HostRing),
    /// One that a shell needs. A call through a table is little beside its accesses to the bus.
    Shell(Box<dyn Transport + Send + Sync>),
}

/// Does the same with whichever transport it is: once for each kind, so that a loop in it has no dispatch.
macro_rules! each {
    ($transport:expr, $one:ident => $call:expr) => {
        match $transport {
            $crate::transport::any::AnyTransport::HostRing($one) => $call,
            $crate::transport::any::AnyTransport::Shell($one) => {
                let $one = &**$one;
                $call
            }
        }
    };
}
pub(crate) use each;

/// What is seldom done needs no match.
impl Deref for AnyTransport {
    type Target = dyn Transport + Send + Sync;

    fn deref(&self) -> &Self::Target {
        match self {
            AnyTransport::HostRing(one) => one,
            AnyTransport::Shell(one) => &**one,
        }
    }
}

impl DerefMut for AnyTransport {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            AnyTransport::HostRing(one) => one,
            AnyTransport::Shell(one) => &mut **one,
        }
    }
}

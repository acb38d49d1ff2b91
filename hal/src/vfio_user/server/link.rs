//! A client's connection, shared by its session's thread and the endpoint's ports.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;

use super::budget::{Charge, Item, Share};
use crate::endpoint::DmaFault;
use crate::owner::Owner;
use crate::vfio_user::wire::header::Header;
use crate::vfio_user::wire::polling::Wake;
use crate::vfio_user::wire::sender::Sender;
use crate::vfio_user::wire::socket::Socket;

/// The connection of a client that is served.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) socket: Socket,
    share: Arc<Share>,
    /// What waits to be sent is counted in the client's share.
    sender: Sender<[Charge; 2]>,
    wake: Wake,
    /// Whether the session must end.
    stopped: AtomicBool,
    /// Whether it ends because the server does.
    withdrawn: AtomicBool,
    /// Whether the function is bus master.
    master: AtomicBool,
    owner: Owner,
}

impl Link {
    pub(crate) fn new(socket: Socket, share: Arc<Share>) -> nix::Result<Self> {
        Ok(Link {
            socket,
            share,
            sender: Sender::new(),
            wake: Wake::new()?,
            stopped: AtomicBool::new(false),
            withdrawn: AtomicBool::new(false),
            master: AtomicBool::new(false),
            owner: Owner::current(),
        })
    }

    /// Returns whether this process serves the client. Ports that lock first check it before: in a forked child, the session's
    /// thread does not run, and locks may be held for ever.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.owner.is_here()
    }

    /// Sends a message from any thread, without waiting.
    pub(crate) fn send(&self, header: Header, parts: [&[u8]; 2], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let charge = |bytes, descriptors| {
            let bytes = self.share.take(Item::Buffered, bytes as u64)?;
            Ok([bytes, self.share.take(Item::Descriptors, descriptors as u64)?])
        };
        match self.sender.send(&self.socket, header, parts, descriptors, charge) {
            // The session's thread sends the rest.
            Ok(true) => self.wake.wake(),
            Ok(false) => {}
            Err(errno) => {
                self.stop();
                return Err(errno);
            }
        }
        Ok(())
    }

    /// Sends what waits to be sent, as far as the socket takes it.
    pub(crate) fn flush(&self) -> Result<(), Errno> {
        self.sender.flush(&self.socket).map(drop)
    }

    /// Bytes that wait to be sent.
    pub(crate) fn waiting(&self) -> usize {
        self.sender.waiting()
    }

    /// Wakes the session's thread.
    pub(crate) fn wake(&self) -> &Wake {
        &self.wake
    }

    /// Ends the session.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.wake.wake();
    }

    /// Ends the session, and raises the client's request interrupt, which asks it to release the function.
    pub(crate) fn withdraw(&self) {
        self.withdrawn.store(true, Ordering::Release);
        self.stop();
    }

    pub(crate) fn is_withdrawn(&self) -> bool {
        self.withdrawn.load(Ordering::Acquire)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    pub(crate) fn set_master(&self, on: bool) {
        self.master.store(on, Ordering::Release);
    }

    /// Checks that the endpoint may access memory.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), DmaFault> {
        if !self.is_here() || self.is_stopped() {
            Err(DmaFault::HostGone)
        } else if !self.master.load(Ordering::Acquire) {
            Err(DmaFault::NotMaster)
        } else {
            Ok(())
        }
    }
}

//! The memory of a domain, as its servers are told of it.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::connection::{Connection, Failure};
use super::waits::Slowness;
use crate::iommu::InProcessIommu;
use crate::region::Region;
use crate::vfio_user::wire::header::Command;
use crate::vfio_user::wire::memory::{DmaMap, DmaUnmap};
use crate::{Error, Iova, Result};

/// What the servers of one domain's functions are told of its memory.
#[derive(Debug, Default)]
pub(crate) struct Maps {
    /// For servers that ask for bytes.
    pub(super) memory: Arc<InProcessIommu>,
    /// What waiting for their answers has taken.
    pub(super) slowness: Arc<Slowness>,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    regions: Vec<(Iova, u64, Arc<Region>)>,
    /// Connections, and whether they are passed descriptors.
    connections: Vec<(Weak<Connection>, bool)>,
}

impl Maps {
    /// Tells all servers of the first `bytes` bytes of a region.
    pub(crate) fn map(&self, iova: Iova, bytes: u64, region: &Arc<Region>) -> Result<()> {
        let mut book = self.book();
        self.memory.map(iova, bytes, Arc::clone(region));
        book.connections.retain(|(connection, _)| connection.strong_count() > 0);
        for told in 0..book.connections.len() {
            let (connection, share) = &book.connections[told];
            let Some(connection) = connection.upgrade() else { continue };
            if let Err(Failure::Refused(errno)) = tell(&connection, iova, bytes, region, *share) {
                for (connection, _) in &book.connections[..told] {
                    if let Some(connection) = connection.upgrade() {
                        let _ = untell(&connection, iova, bytes);
                    }
                }
                self.memory.unmap(iova);
                return Err(Error::DmaMap { iova, bytes, source: errno.into() });
            }
        }
        book.regions.push((iova, bytes, Arc::clone(region)));
        Ok(())
    }

    /// Takes a mapping back from all servers. One that is gone has nothing to give back.
    pub(crate) fn unmap(&self, iova: Iova, bytes: u64) -> Result<()> {
        let mut book = self.book();
        self.memory.unmap(iova);
        let removed = book.regions.iter().position(|(at, ..)| *at == iova).map(|at| book.regions.swap_remove(at));
        let mut failed = None;
        for (connection, _) in &book.connections {
            if let Some(connection) = connection.upgrade()
                && let Err(Failure::Refused(errno)) = untell(&connection, iova, bytes)
            {
                failed = Some(errno);
            }
        }
        drop(book);
        drop(removed);
        failed.map_or(Ok(()), |errno| Err(Error::DmaUnmap { iova, bytes, source: errno.into() }))
    }

    /// Tells a new server of what there is already.
    pub(super) fn attach(&self, connection: &Arc<Connection>, share: bool) -> Result<()> {
        let mut book = self.book();
        for (iova, bytes, region) in &book.regions {
            match tell(connection, *iova, *bytes, region, share) {
                Ok(()) => {}
                Err(Failure::Gone) => return Err(Error::Removed),
                Err(Failure::Refused(errno)) => {
                    return Err(Error::DmaMap { iova: *iova, bytes: *bytes, source: errno.into() });
                }
            }
        }
        book.connections.push((Arc::downgrade(connection), share));
        Ok(())
    }

    pub(super) fn detach(&self, connection: &Arc<Connection>) {
        if !connection.is_here() {
            return;
        }
        self.book().connections.retain(|(other, _)| !std::ptr::eq(other.as_ptr(), Arc::as_ptr(connection)));
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tell(
    connection: &Connection,
    iova: Iova,
    bytes: u64,
    region: &Arc<Region>,
    share: bool,
) -> std::result::Result<(), Failure> {
    let flags = DmaMap::READABLE | DmaMap::WRITEABLE;
    let map = DmaMap { argsz: DmaMap::BYTES as u32, flags, offset: 0, address: iova.0, size: bytes };
    let descriptor = [region.as_fd()];
    let descriptors = if share { &descriptor[..] } else { &[] };
    connection.call(Command::DmaMap, [&map.encode(), &[]], descriptors).map(drop)
}

fn untell(connection: &Connection, iova: Iova, bytes: u64) -> std::result::Result<(), Failure> {
    let unmap = DmaUnmap { argsz: DmaUnmap::BYTES as u32, flags: 0, address: iova.0, size: bytes };
    connection.call(Command::DmaUnmap, [&unmap.encode(), &[]], &[]).map(drop)
}

//! The memory of a domain, as its servers are told of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::connection::{Connection, Failure};
use super::waits::Slowness;
use crate::memory::backend::{DomainBackend, Mapping};
use crate::memory::domain::{DEFAULT_ENTRY_LIMIT, DEFAULT_RANGES};
use crate::memory::table::InProcessIommu;
use crate::vfio_user::wire::header::Command;
use crate::vfio_user::wire::memory::{DmaMap, DmaUnmap};
use crate::{BusKind, Domain, Error, Iova, Result};

impl Domain {
    /// Creates a domain of functions behind vfio-user sockets, with [`DEFAULT_RANGES`] and [`DEFAULT_ENTRY_LIMIT`]. Servers
    /// get descriptors of its buffers ([`connect`](crate::vfio_user::connect)). So buffers have no reserved huge pages: a
    /// server could take these away.
    pub fn vfio_user() -> Self {
        Self::with_backend(Arc::<Maps>::default(), &DEFAULT_RANGES, DEFAULT_ENTRY_LIMIT)
    }
}

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
    mappings: Vec<Mapping>,
    /// Connections, and whether they are passed descriptors.
    connections: Vec<(Weak<Connection>, bool)>,
}

impl DomainBackend for Maps {
    fn kind(&self) -> BusKind {
        BusKind::VfioUser
    }

    fn shares_memory(&self) -> bool {
        true
    }

    /// Tells all servers of a mapping.
    fn map(&self, mapping: Mapping, _entry_limit: usize) -> Result<()> {
        let (iova, bytes) = (mapping.iova, mapping.bytes);
        let mut book = self.book();
        self.memory.map(mapping.clone());
        book.connections.retain(|(connection, _)| connection.strong_count() > 0);
        for told in 0..book.connections.len() {
            let (connection, share) = &book.connections[told];
            let Some(connection) = connection.upgrade() else { continue };
            if let Err(Failure::Refused(errno)) = tell(&connection, &mapping, *share) {
                for (connection, _) in &book.connections[..told] {
                    if let Some(connection) = connection.upgrade() {
                        let _ = untell(&connection, iova, bytes);
                    }
                }
                self.memory.unmap(iova);
                return Err(Error::DmaMap { iova, bytes, source: errno.into() });
            }
        }
        book.mappings.push(mapping);
        Ok(())
    }

    /// Takes a mapping back from all servers. One that is gone has nothing to give back.
    fn unmap(&self, iova: Iova, bytes: u64) -> Result<()> {
        let mut book = self.book();
        self.memory.unmap(iova);
        let removed = book.mappings.iter().position(|other| other.iova == iova);
        let removed = removed.map(|at| book.mappings.swap_remove(at));
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
}

impl Maps {
    /// Tells a new server of what there is already.
    pub(super) fn attach(&self, connection: &Arc<Connection>, share: bool) -> Result<()> {
        let mut book = self.book();
        for mapping in &book.mappings {
            match tell(connection, mapping, share) {
                Ok(()) => {}
                Err(Failure::Gone) => return Err(Error::Removed),
                Err(Failure::Refused(errno)) => {
                    return Err(Error::DmaMap { iova: mapping.iova, bytes: mapping.bytes, source: errno.into() });
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

fn tell(connection: &Connection, mapping: &Mapping, share: bool) -> std::result::Result<(), Failure> {
    let readable = if mapping.direction.lets_devices_read() { DmaMap::READABLE } else { 0 };
    let writeable = if mapping.direction.lets_devices_write() { DmaMap::WRITEABLE } else { 0 };
    let (flags, address, size) = (readable | writeable, mapping.iova.0, mapping.bytes);
    let map = DmaMap { argsz: DmaMap::BYTES as u32, flags, offset: 0, address, size };
    // A domain that shares its memory takes only memory with a file.
    let file = mapping.region.file().filter(|_| share);
    connection.call(Command::DmaMap, [&map.encode(), &[]], file.as_slice()).map(drop)
}

fn untell(connection: &Connection, iova: Iova, bytes: u64) -> std::result::Result<(), Failure> {
    let unmap = DmaUnmap { argsz: DmaUnmap::BYTES as u32, flags: 0, address: iova.0, size: bytes };
    connection.call(Command::DmaUnmap, [&unmap.encode(), &[]], &[]).map(drop)
}

//! A domain's memory, which is mapped at all of its servers.

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

/// The memory of one domain, and the servers of its functions.
#[derive(Debug, Default)]
pub(crate) struct Maps {
    /// For servers that transfer bytes by messages.
    pub(super) memory: Arc<InProcessIommu>,
    /// The time that slow replies of the servers have taken.
    pub(super) slowness: Arc<Slowness>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    mappings: Vec<Mapping>,
    /// Connections, and whether each is passed descriptors.
    connections: Vec<(Weak<Connection>, bool)>,
}

impl DomainBackend for Maps {
    fn kind(&self) -> BusKind {
        BusKind::VfioUser
    }

    fn shares_memory(&self) -> bool {
        true
    }

    /// Maps at all servers, or at none if one refuses.
    fn map(&self, mapping: Mapping, _entry_limit: usize) -> Result<()> {
        let (iova, bytes) = (mapping.iova, mapping.bytes);
        let mut state = self.state();
        self.memory.map(mapping.clone());
        state.connections.retain(|(connection, _)| connection.strong_count() > 0);
        for index in 0..state.connections.len() {
            let (connection, share) = &state.connections[index];
            let Some(connection) = connection.upgrade() else { continue };
            if let Err(Failure::Refused(errno)) = map_at(&connection, &mapping, *share) {
                for (connection, _) in &state.connections[..index] {
                    if let Some(connection) = connection.upgrade() {
                        let _ = unmap_at(&connection, iova, bytes);
                    }
                }
                self.memory.unmap(iova);
                return Err(Error::DmaMap { iova, bytes, source: errno.into() });
            }
        }
        state.mappings.push(mapping);
        Ok(())
    }

    /// Unmaps at all servers that are still there.
    fn unmap(&self, iova: Iova, bytes: u64) -> Result<()> {
        let mut state = self.state();
        self.memory.unmap(iova);
        let removed = state.mappings.iter().position(|other| other.iova == iova);
        let removed = removed.map(|at| state.mappings.swap_remove(at));
        let mut failed = None;
        for (connection, _) in &state.connections {
            if let Some(connection) = connection.upgrade()
                && let Err(Failure::Refused(errno)) = unmap_at(&connection, iova, bytes)
            {
                failed = Some(errno);
            }
        }
        drop(state);
        drop(removed);
        failed.map_or(Ok(()), |errno| Err(Error::DmaUnmap { iova, bytes, source: errno.into() }))
    }
}

impl Maps {
    /// Adds a server, and maps everything at it.
    pub(super) fn attach(&self, connection: &Arc<Connection>, share: bool) -> Result<()> {
        let mut state = self.state();
        for mapping in &state.mappings {
            match map_at(connection, mapping, share) {
                Ok(()) => {}
                Err(Failure::Gone) => return Err(Error::Removed),
                Err(Failure::Refused(errno)) => {
                    return Err(Error::DmaMap { iova: mapping.iova, bytes: mapping.bytes, source: errno.into() });
                }
            }
        }
        state.connections.push((Arc::downgrade(connection), share));
        Ok(())
    }

    pub(super) fn detach(&self, connection: &Arc<Connection>) {
        if !connection.is_here() {
            return;
        }
        self.state().connections.retain(|(other, _)| !std::ptr::eq(other.as_ptr(), Arc::as_ptr(connection)));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn map_at(connection: &Connection, mapping: &Mapping, share: bool) -> std::result::Result<(), Failure> {
    let readable = if mapping.direction.lets_devices_read() { DmaMap::READABLE } else { 0 };
    let writeable = if mapping.direction.lets_devices_write() { DmaMap::WRITEABLE } else { 0 };
    let (flags, address, size) = (readable | writeable, mapping.iova.0, mapping.bytes);
    let map = DmaMap { argsz: DmaMap::BYTES as u32, flags, offset: 0, address, size };
    // A domain that shares its memory takes only memory with a file.
    let file = mapping.region.file().filter(|_| share);
    connection.call(Command::DmaMap, [&map.encode(), &[]], file.as_slice()).map(drop)
}

fn unmap_at(connection: &Connection, iova: Iova, bytes: u64) -> std::result::Result<(), Failure> {
    let unmap = DmaUnmap { argsz: DmaUnmap::BYTES as u32, flags: 0, address: iova.0, size: bytes };
    connection.call(Command::DmaUnmap, [&unmap.encode(), &[]], &[]).map(drop)
}

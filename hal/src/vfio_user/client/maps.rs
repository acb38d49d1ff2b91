//! A domain's memory, which is mapped at all of its servers.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::connection::{Connection, Failure};
use super::waits::Slowness;
use crate::iommu::InProcessIommu;
use crate::region::Region;
use crate::vfio_user::wire::header::Command;
use crate::vfio_user::wire::memory::{DmaMap, DmaUnmap};
use crate::{Error, Iova, Result};

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
    regions: Vec<(Iova, u64, Arc<Region>)>,
    /// Connections, and whether each is passed descriptors.
    connections: Vec<(Weak<Connection>, bool)>,
}

impl Maps {
    /// Maps the first `bytes` bytes of a region at all servers, or at none if one refuses.
    pub(crate) fn map(&self, iova: Iova, bytes: u64, region: &Arc<Region>) -> Result<()> {
        let mut state = self.state();
        self.memory.map(iova, bytes, Arc::clone(region));
        state.connections.retain(|(connection, _)| connection.strong_count() > 0);
        for index in 0..state.connections.len() {
            let (connection, share) = &state.connections[index];
            let Some(connection) = connection.upgrade() else { continue };
            if let Err(Failure::Refused(errno)) = map_at(&connection, iova, bytes, region, *share) {
                for (connection, _) in &state.connections[..index] {
                    if let Some(connection) = connection.upgrade() {
                        let _ = unmap_at(&connection, iova, bytes);
                    }
                }
                self.memory.unmap(iova);
                return Err(Error::DmaMap { iova, bytes, source: errno.into() });
            }
        }
        state.regions.push((iova, bytes, Arc::clone(region)));
        Ok(())
    }

    /// Unmaps a region at all servers that are still there.
    pub(crate) fn unmap(&self, iova: Iova, bytes: u64) -> Result<()> {
        let mut state = self.state();
        self.memory.unmap(iova);
        let removed = state.regions.iter().position(|(at, ..)| *at == iova).map(|at| state.regions.swap_remove(at));
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

    /// Adds a server, and maps all regions at it.
    pub(super) fn attach(&self, connection: &Arc<Connection>, share: bool) -> Result<()> {
        let mut state = self.state();
        for (iova, bytes, region) in &state.regions {
            match map_at(connection, *iova, *bytes, region, share) {
                Ok(()) => {}
                Err(Failure::Gone) => return Err(Error::Removed),
                Err(Failure::Refused(errno)) => {
                    return Err(Error::DmaMap { iova: *iova, bytes: *bytes, source: errno.into() });
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

fn map_at(
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

fn unmap_at(connection: &Connection, iova: Iova, bytes: u64) -> std::result::Result<(), Failure> {
    let unmap = DmaUnmap { argsz: DmaUnmap::BYTES as u32, flags: 0, address: iova.0, size: bytes };
    connection.call(Command::DmaUnmap, [&unmap.encode(), &[]], &[]).map(drop)
}

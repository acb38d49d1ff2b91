//! A domain's memory, which is mapped at all of its servers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::connection::{Connection, Failure};
use super::waits::Slowness;
use crate::memory::backend::{DomainBackend, Mapping, NotMapped};
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
    fn map(&self, mapping: Mapping, _entry_limit: usize) -> std::result::Result<(), NotMapped> {
        let (iova, bytes) = (mapping.iova, mapping.bytes);
        let mut state = self.state();
        self.memory.map(mapping.clone());
        state.connections.retain(|(connection, _)| connection.strong_count() > 0);
        for index in 0..state.connections.len() {
            let (connection, share) = &state.connections[index];
            let Some(connection) = connection.upgrade() else { continue };
            let failure = match map_at(&connection, &mapping, *share) {
                Ok(()) | Err(Failure::Gone) => continue,
                Err(failure) => failure,
            };
            // A server that has not refused has mapped, too, whatever is wrong with its reply.
            let mapped = if matches!(failure, Failure::Descriptors(_)) { index + 1 } else { index };
            let not_undone = unmap_at_all(&state.connections[..mapped], iova, bytes).err().map(Box::new);
            self.memory.unmap(iova);
            return Err(NotMapped { error: not_mapped(&connection, &mapping, failure), not_undone });
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
        let unmapped = unmap_at_all(&state.connections, iova, bytes);
        drop(state);
        drop(removed);
        unmapped
    }
}

impl Maps {
    /// Adds a server, and maps everything at it.
    pub(super) fn attach(&self, connection: &Arc<Connection>, share: bool) -> Result<()> {
        let mut state = self.state();
        for mapping in &state.mappings {
            map_at(connection, mapping, share).map_err(|failure| not_mapped(connection, mapping, failure))?;
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

/// Returns the error of a server that has not mapped.
fn not_mapped(connection: &Connection, mapping: &Mapping, failure: Failure) -> Error {
    match failure {
        Failure::Gone => connection.removal().error(),
        Failure::Refused(errno) => Error::DmaMap { iova: mapping.iova, bytes: mapping.bytes, source: errno.into() },
        Failure::Descriptors(lost) => lost.error(),
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

/// Unmaps at all servers that are still there. Returns the last failure.
fn unmap_at_all(connections: &[(Weak<Connection>, bool)], iova: Iova, bytes: u64) -> Result<()> {
    let mut unmapped = Ok(());
    for connection in connections.iter().filter_map(|(connection, _)| connection.upgrade()) {
        match unmap_at(&connection, iova, bytes) {
            Ok(()) | Err(Failure::Gone) => {}
            Err(Failure::Refused(errno)) => unmapped = Err(Error::DmaUnmap { iova, bytes, source: errno.into() }),
            Err(Failure::Descriptors(lost)) => unmapped = Err(lost.error()),
        }
    }
    unmapped
}

fn unmap_at(connection: &Connection, iova: Iova, bytes: u64) -> std::result::Result<(), Failure> {
    let unmap = DmaUnmap { argsz: DmaUnmap::BYTES as u32, flags: 0, address: iova.0, size: bytes };
    connection.call(Command::DmaUnmap, [&unmap.encode(), &[]], &[]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Direction;
    use crate::memory::region::{Region, page_size};
    use crate::vfio_user::client::waits::Waits;
    use crate::vfio_user::wire::header::{HEADER_BYTES, Header};
    use nix::errno::Errno;
    use nix::sys::memfd::MFdFlags;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::thread;
    use std::time::{Duration, Instant};

    const AT: u64 = 0x10_0000;

    /// What a server was told of the range at [`AT`]: whether to map it, or else to unmap it.
    type Told = Arc<Mutex<Vec<bool>>>;

    /// Connects to a server, which does what it is told, or refuses to map.
    fn connect(refuses: bool) -> (Arc<Connection>, Told) {
        connect_to(move |is_map| refuses && is_map)
    }

    /// Connects to a server, which does what it is told unless `refuses`.
    fn connect_to(refuses: impl Fn(bool) -> bool + Send + 'static) -> (Arc<Connection>, Told) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let told = Told::default();
        let notes = Arc::clone(&told);
        thread::spawn(move || {
            let mut head = [0; HEADER_BYTES];
            while theirs.read_exact(&mut head).is_ok() {
                let header = Header::decode(&head);
                let mut body = vec![0; header.size as usize - HEADER_BYTES];
                theirs.read_exact(&mut body).unwrap();
                let is_map = header.command == Command::DmaMap as u16;
                let address = if is_map { &body[16..24] } else { &body[8..16] };
                assert_eq!(u64::from_ne_bytes(address.try_into().unwrap()), AT);
                notes.lock().unwrap().push(is_map);
                let reply = if refuses(is_map) { header.failure(Errno::ENOSPC) } else { header.reply(0) };
                theirs.write_all(&reply.encode()).unwrap();
            }
        });
        let waits = Waits::new(Arc::default(), Duration::from_secs(60), Instant::now());
        (Connection::new("test".to_owned(), ours, Arc::default(), waits).unwrap(), told)
    }

    fn told(of: &Told) -> Vec<bool> {
        of.lock().unwrap().clone()
    }

    fn mapping() -> Mapping {
        let region = Region::new("test", "test", page_size(), MFdFlags::empty()).unwrap();
        let direction = Direction::Both;
        Mapping { iova: Iova(AT), bytes: page_size() as u64, direction, region: Arc::new(region) }
    }

    #[test]
    fn what_one_server_refuses_is_mapped_at_none() {
        let maps = Maps::default();
        let servers = [false, true, false].map(connect);
        servers.iter().for_each(|(connection, _)| maps.attach(connection, false).unwrap());
        let NotMapped { error, not_undone } = maps.map(mapping(), 8).unwrap_err();
        assert!(matches!(error, Error::DmaMap { iova: Iova(AT), .. }) && not_undone.is_none(), "{error:?}");
        let each = servers.each_ref().map(|(_, of)| told(of));
        assert_eq!(each, [vec![true, false], vec![true], vec![]], "the first unmaps it, the third is not asked");
        assert!(maps.memory.check(Iova(AT), 1).is_err(), "and by messages nobody reaches it");
        let (late, of_late) = connect(false);
        maps.attach(&late, false).unwrap();
        assert!(told(&of_late).is_empty());
        servers.iter().for_each(|(connection, _)| connection.end());
        late.end();
    }

    #[test]
    fn what_a_server_does_not_unmap_again_stays_reachable() {
        let maps = Maps::default();
        let servers = [connect_to(|is_map| !is_map), connect(true)];
        servers.iter().for_each(|(connection, _)| maps.attach(connection, false).unwrap());
        let NotMapped { error, not_undone } = maps.map(mapping(), 8).unwrap_err();
        assert!(matches!(error, Error::DmaMap { iova: Iova(AT), .. }), "{error:?}");
        assert!(matches!(not_undone.as_deref(), Some(Error::DmaUnmap { iova: Iova(AT), .. })), "{not_undone:?}");
        servers.iter().for_each(|(connection, _)| connection.end());
    }

    #[test]
    fn a_server_that_was_detached_is_told_nothing() {
        let maps = Maps::default();
        let [(left, of_left), (other, of_other)] = [false, false].map(connect);
        maps.attach(&left, false).unwrap();
        maps.attach(&other, false).unwrap();
        maps.detach(&left);
        maps.map(mapping(), 8).unwrap();
        maps.unmap(Iova(AT), page_size() as u64).unwrap();
        assert_eq!((told(&of_left), told(&of_other)), (vec![], vec![true, false]));
        left.end();
        other.end();
    }
}

//! A domain's memory, which is mapped at its servers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::connection::{Connection, Failure};
use super::waits::Slowness;
use crate::memory::backend::{DomainBackend, Mapping, NotMapped};
use crate::memory::domain::{DEFAULT_ENTRY_LIMIT, DEFAULT_RANGES};
use crate::memory::member::Member;
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
    servers: Vec<Server>,
}

/// The server of one function.
#[derive(Debug)]
struct Server {
    connection: Weak<Connection>,
    member: Member,
    /// Whether it is passed descriptors.
    share: bool,
}

impl Server {
    /// Returns the connection, if the server is still there and its function uses the memory.
    fn using(&self, mapping: &Mapping) -> Option<Arc<Connection>> {
        self.member.uses(mapping.only).then(|| self.connection.upgrade()).flatten()
    }
}

impl DomainBackend for Maps {
    fn kind(&self) -> BusKind {
        BusKind::VfioUser
    }

    fn shares_memory(&self) -> bool {
        true
    }

    /// Maps at all servers whose functions use the memory, or at none if one refuses.
    fn map(&self, mapping: Mapping, _entry_limit: usize) -> std::result::Result<(), NotMapped> {
        let mut state = self.state();
        self.memory.map(mapping.clone());
        state.servers.retain(|server| server.connection.strong_count() > 0);
        for (index, server) in state.servers.iter().enumerate() {
            let Some(connection) = server.using(&mapping) else { continue };
            let failure = match map_at(&connection, &mapping, server.share) {
                Ok(()) | Err(Failure::Gone) => continue,
                Err(failure) => failure,
            };
            // A server that has not refused has mapped, too, whatever is wrong with its reply.
            let mapped = if matches!(failure, Failure::Descriptors(_)) { index + 1 } else { index };
            let not_undone = unmap_at_all(&state.servers[..mapped], &mapping).err().map(Box::new);
            self.memory.unmap(mapping.iova);
            return Err(NotMapped { error: not_mapped(&connection, &mapping, failure), not_undone });
        }
        state.mappings.push(mapping);
        Ok(())
    }

    fn unmap(&self, iova: Iova, _bytes: u64) -> Result<()> {
        let mut state = self.state();
        self.memory.unmap(iova);
        let Some(at) = state.mappings.iter().position(|other| other.iova == iova) else { return Ok(()) };
        let removed = state.mappings.swap_remove(at);
        let unmapped = unmap_at_all(&state.servers, &removed);
        // Freeing the memory may take time.
        drop(state);
        unmapped
    }
}

impl Maps {
    /// Adds the server of the function `member`, and maps at it what the function may use.
    pub(super) fn attach(&self, connection: &Arc<Connection>, member: Member, share: bool) -> Result<()> {
        let mut state = self.state();
        for mapping in state.mappings.iter().filter(|mapping| member.uses(mapping.only)) {
            map_at(connection, mapping, share).map_err(|failure| not_mapped(connection, mapping, failure))?;
        }
        state.servers.push(Server { connection: Arc::downgrade(connection), member, share });
        Ok(())
    }

    pub(super) fn detach(&self, connection: &Arc<Connection>) {
        if !connection.is_here() {
            return;
        }
        self.state().servers.retain(|server| !std::ptr::eq(server.connection.as_ptr(), Arc::as_ptr(connection)));
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

/// Unmaps at all servers that are still there and whose functions use the memory. Returns the last failure.
fn unmap_at_all(servers: &[Server], mapping: &Mapping) -> Result<()> {
    let &Mapping { iova, bytes, .. } = mapping;
    let mut unmapped = Ok(());
    for connection in servers.iter().filter_map(|server| server.using(mapping)) {
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
    use crate::memory::table::FunctionIommu;
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
        (Connection::new("test".to_owned(), ours, memory(&Maps::default()), waits).unwrap(), told)
    }

    fn memory(maps: &Maps) -> FunctionIommu {
        FunctionIommu { table: Arc::clone(&maps.memory), member: Member(0) }
    }

    fn attach(maps: &Maps, servers: &[(Arc<Connection>, Told)]) {
        for (member, (connection, _)) in (0..).map(Member).zip(servers) {
            maps.attach(connection, member, false).unwrap();
        }
    }

    fn told(of: &Told) -> Vec<bool> {
        of.lock().unwrap().clone()
    }

    fn mapping() -> Mapping {
        let region = Region::new("test", "test", page_size(), MFdFlags::empty()).unwrap();
        let direction = Direction::Both;
        Mapping { iova: Iova(AT), bytes: page_size() as u64, direction, region: Arc::new(region), only: None }
    }

    #[test]
    fn what_one_server_refuses_is_mapped_at_none() {
        let maps = Maps::default();
        let servers = [false, true, false].map(connect);
        attach(&maps, &servers);
        let NotMapped { error, not_undone } = maps.map(mapping(), 8).unwrap_err();
        assert!(matches!(error, Error::DmaMap { iova: Iova(AT), .. }) && not_undone.is_none(), "{error:?}");
        let each = servers.each_ref().map(|(_, of)| told(of));
        assert_eq!(each, [vec![true, false], vec![true], vec![]], "the first unmaps it, the third is not asked");
        assert!(memory(&maps).check(Iova(AT), 1).is_err(), "and by messages nobody reaches it");
        let (late, of_late) = connect(false);
        maps.attach(&late, Member(3), false).unwrap();
        assert!(told(&of_late).is_empty());
        servers.iter().for_each(|(connection, _)| connection.end());
        late.end();
    }

    #[test]
    fn what_a_server_does_not_unmap_again_stays_reachable() {
        let maps = Maps::default();
        let servers = [connect_to(|is_map| !is_map), connect(true)];
        attach(&maps, &servers);
        let NotMapped { error, not_undone } = maps.map(mapping(), 8).unwrap_err();
        assert!(matches!(error, Error::DmaMap { iova: Iova(AT), .. }), "{error:?}");
        assert!(matches!(not_undone.as_deref(), Some(Error::DmaUnmap { iova: Iova(AT), .. })), "{not_undone:?}");
        servers.iter().for_each(|(connection, _)| connection.end());
    }

    #[test]
    fn what_one_function_uses_alone_is_mapped_at_its_server() {
        let maps = Maps::default();
        let servers = [false, false].map(connect);
        attach(&maps, &servers);
        maps.map(Mapping { only: Some(Member(1)), ..mapping() }, 8).unwrap();
        let (late, of_late) = connect(false);
        maps.attach(&late, Member(2), false).unwrap();
        maps.unmap(Iova(AT), page_size() as u64).unwrap();
        let each = [&servers[0].1, &servers[1].1, &of_late].map(told);
        assert_eq!(each, [vec![], vec![true, false], vec![]]);
        // One that its server refuses is no other's either.
        let (refusing, of_refusing) = connect(true);
        maps.attach(&refusing, Member(3), false).unwrap();
        let NotMapped { not_undone, .. } = maps.map(Mapping { only: Some(Member(3)), ..mapping() }, 8).unwrap_err();
        assert!(not_undone.is_none());
        let after = [&servers[0].1, &servers[1].1, &of_late, &of_refusing].map(told);
        assert_eq!(after, [vec![], vec![true, false], vec![], vec![true]]);
        refusing.end();
        servers.iter().for_each(|(connection, _)| connection.end());
        late.end();
    }

    #[test]
    fn a_server_that_was_detached_is_told_nothing() {
        let maps = Maps::default();
        let [(left, of_left), (other, of_other)] = [false, false].map(connect);
        maps.attach(&left, Member(0), false).unwrap();
        maps.attach(&other, Member(1), false).unwrap();
        maps.detach(&left);
        maps.map(mapping(), 8).unwrap();
        maps.unmap(Iova(AT), page_size() as u64).unwrap();
        assert_eq!((told(&of_left), told(&of_other)), (vec![], vec![true, false]));
        left.end();
        other.end();
    }
}

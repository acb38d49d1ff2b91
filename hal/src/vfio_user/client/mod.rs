//! Functions on the far side of a socket.

mod connection;
mod mapped;
mod waits;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect as connect_socket, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};

use self::connection::{Connection, Failure, Reply, refused, unless_gone};
use self::waits::{Slowness, Waits};
use crate::bus::{Bus, Piece};
use crate::endpoint::BarLayout;
use crate::memory::backend::{DomainBackend, Mapping};
use crate::memory::domain::{DEFAULT_ENTRY_LIMIT, DEFAULT_RANGES};
use crate::memory::region::page_size;
use crate::memory::table::InProcessIommu;
use crate::removal::Removal;
use crate::vfio_user::wire::capabilities::{self, Capabilities};
use crate::vfio_user::wire::messages::{
    Area, CONFIG_REGION, Command, DESCRIPTORS, DeviceInfo, DmaMap, DmaUnmap, INTX, InterruptInfo, MSI, MSIX, REGIONS,
    RegionAccess, RegionInfo, SetInterrupts, Version, decode_areas,
};
use crate::{BarIndex, BusKind, Domain, Error, Function, Interrupt, InterruptKind, Iova, ResetOutcome, Result, config};

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a region's description that are taken: it lists up to a thousand stretches.
const DESCRIPTION_BYTES: u32 = 32 + 16 + 16 * 1024;

/// How a function is opened.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// How long the server may take (5 s): for all that opening asks of it; then for any one answer, less what slow answers
    /// of the domain's servers took before. An answer is slow that takes more than a fiftieth of this; a tenth of the time
    /// since is taken off. After that the function counts as removed.
    pub patience: Duration,
    /// Whether memory that the server passes is mapped, if its size is sealed; otherwise all accesses travel through the
    /// socket. When the server is gone, what was mapped reads as all-ones: by a handler of SIGBUS, which this installs.
    pub map_bars: bool,
    /// Whether buffers are passed to the server; otherwise it has to ask for their bytes one message at a time.
    pub share_memory: bool,
    /// Whether a function whose server cannot reset it is opened all the same: see
    /// [`vfio::Options`](crate::vfio::Options::without_reset).
    pub without_reset: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { patience: PATIENCE, map_bars: true, share_memory: true, without_reset: false }
    }
}

impl Domain {
    /// Creates a domain of functions behind vfio-user sockets, with [`DEFAULT_RANGES`] and [`DEFAULT_ENTRY_LIMIT`]. Servers
    /// get descriptors of its buffers ([`connect`]). So buffers have no reserved huge pages: a server could take these away.
    pub fn vfio_user() -> Self {
        Self::with_backend(Arc::<Maps>::default(), &DEFAULT_RANGES, DEFAULT_ENTRY_LIMIT)
    }
}

/// Opens the function that is served at the socket `path`, in a `domain` made by [`Domain::vfio_user`].
///
/// Fails with [`Error::Busy`] while another client has it, and with [`Error::Unresponsive`] if the server takes too long.
///
/// When the server is gone, so is the function: registers read as all-ones, what is written reaches nobody, and calls fail with
/// [`Error::Removed`]. Buffers of the domain stay with their contents, and are freed as ever.
pub fn connect(path: &Path, domain: &Domain) -> Result<Function> {
    connect_with(path, domain, &Options::default())
}

/// Opens the function that is served at the socket `path`, as [`connect`] does.
pub fn connect_with(path: &Path, domain: &Domain, options: &Options) -> Result<Function> {
    let maps = domain.backend::<Maps>().ok_or(Error::DomainKind { bus: BusKind::VfioUser, domain: domain.kind() })?;
    let failed = |source: io::Error| Error::Socket { action: "connect to", path: path.to_owned(), source };
    let late = || Error::Unresponsive { path: path.to_owned(), patience: options.patience };
    let begin = Instant::now();
    let stream = connect_stream(path, options.patience).map_err(|errno| match errno {
        Errno::ETIMEDOUT => late(),
        errno => failed(errno.into()),
    })?;
    let waits = Waits::new(Arc::clone(&maps.slowness), options.patience, begin);
    let connection = Connection::new(stream, Arc::clone(&maps.memory), waits).map_err(failed)?;
    let opened = open(path, domain, options, maps, Arc::clone(&connection));
    let opened = opened.map_err(|error| if connection.waits().were_too_long() { late() } else { error })?;
    connection.waits().opened();
    Ok(opened)
}

fn open(
    path: &Path,
    domain: &Domain,
    options: &Options,
    maps: Arc<Maps>,
    connection: Arc<Connection>,
) -> Result<Function> {
    // From here on, whatever fails ends the connection.
    let mut remote = Remote {
        connection,
        maps,
        regions: Vec::new(),
        layouts: [None; BarIndex::COUNT],
        vectors: [0; 3],
        can_reset: false,
        server: Capabilities::default(),
    };
    remote.agree(path)?;
    remote.describe(options)?;
    remote.read_layouts()?;
    remote.maps.attach(&remote.connection, options.share_memory)?;
    let name = format!("vfio-user:{}", path.display());
    Function::open(Box::new(remote), domain.attach(&name, 64), &name, options.without_reset)
}

/// Connects, waiting at most `patience` for a server that accepts.
fn connect_stream(path: &Path, patience: Duration) -> std::result::Result<UnixStream, Errno> {
    let descriptor = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    let limit = TimeVal::milliseconds(i64::try_from(patience.as_millis()).unwrap_or(i64::MAX).max(1));
    setsockopt(&descriptor, sockopt::SendTimeout, &limit)?;
    loop {
        match connect_socket(descriptor.as_raw_fd(), &UnixAddr::new(path)?) {
            Ok(()) => return Ok(UnixStream::from(descriptor)),
            Err(Errno::EINTR) => {}
            // What a full backlog gives after the limit.
            Err(Errno::EAGAIN) => return Err(Errno::ETIMEDOUT),
            Err(errno) => return Err(errno),
        }
    }
}

/// The host's end of a function on the far side of a socket.
struct Remote {
    connection: Arc<Connection>,
    maps: Arc<Maps>,
    regions: Vec<RemoteRegion>,
    layouts: [Option<BarLayout>; BarIndex::COUNT],
    /// Of MSI-X, MSI and INTx.
    vectors: [u16; 3],
    can_reset: bool,
    server: Capabilities,
}

/// A region as the server describes it.
#[derive(Default)]
struct RemoteRegion {
    bytes: u64,
    pieces: Vec<Piece>,
}

/// What a server's answer that cannot be right comes to.
fn nonsense(what: &'static str) -> Error {
    Error::Nonsense { what }
}

impl Remote {
    fn agree(&mut self, path: &Path) -> Result<()> {
        let offer = capabilities::offer();
        let proposed = Version { major: Version::MAJOR, minor: Version::MINOR, data: &offer }.encode();
        let reply = match self.connection.call(Command::Version, [&proposed, &[]], &[]) {
            Ok(reply) => reply,
            Err(Failure::Gone) => {
                let source = io::Error::from(io::ErrorKind::ConnectionAborted);
                return Err(Error::Socket { action: "connect to", path: path.to_owned(), source });
            }
            Err(Failure::Refused(Errno::EBUSY)) => return Err(Error::Busy { path: path.to_owned() }),
            Err(Failure::Refused(errno)) => return Err(refused("agree on a version for", errno)),
        };
        let agreed = Version::decode(&reply.body).ok_or(nonsense("version"))?;
        if agreed.major != Version::MAJOR || agreed.minor > Version::MINOR {
            return Err(nonsense("version"));
        }
        self.server = Capabilities::decode(agreed.data).ok_or(nonsense("version"))?;
        if self.server.page_sizes & page_size() as u64 == 0 && self.server.page_sizes & capabilities::PAGE == 0 {
            return Err(nonsense("list of page sizes"));
        }
        Ok(())
    }

    /// A command, without which nothing can go on.
    fn ask(&self, what: &'static str, command: Command, body: &[u8]) -> Result<Reply> {
        unless_gone(self.connection.call(command, [body, &[]], &[]), what)?.ok_or(Error::Removed)
    }

    fn describe(&mut self, options: &Options) -> Result<()> {
        let asked = DeviceInfo { argsz: DeviceInfo::BYTES as u32, flags: 0, regions: 0, interrupts: 0 };
        let reply = self.ask("describe", Command::GetInfo, &asked.encode())?;
        let info = DeviceInfo::decode(&reply.body).ok_or(nonsense("description"))?;
        if info.flags & DeviceInfo::PCI == 0 || info.regions <= CONFIG_REGION {
            return Err(nonsense("description"));
        }
        self.can_reset = info.flags & DeviceInfo::RESET != 0;
        for index in 0..info.regions.min(REGIONS) {
            let region = self.describe_region(index, options)?;
            self.regions.push(region);
        }
        if self.regions[CONFIG_REGION as usize].bytes < 256 {
            return Err(nonsense("configuration space"));
        }
        for (kind, count) in [(InterruptKind::Msix, MSIX), (InterruptKind::Msi, MSI), (InterruptKind::Intx, INTX)] {
            if count >= info.interrupts {
                continue;
            }
            let asked = InterruptInfo { argsz: InterruptInfo::BYTES as u32, flags: 0, index: count, count: 0 };
            let reply = self.ask("describe interrupts of", Command::GetInterruptInfo, &asked.encode())?;
            let info = InterruptInfo::decode(&reply.body).filter(|info| info.index == count && info.count <= 2048);
            let info = info.ok_or(nonsense("description of interrupts"))?;
            if info.flags & InterruptInfo::EVENTFD != 0 {
                self.vectors[slot(kind)] = info.count as u16;
            }
        }
        Ok(())
    }

    fn describe_region(&self, index: u32, options: &Options) -> Result<RemoteRegion> {
        let asked = RegionInfo { argsz: DESCRIPTION_BYTES, flags: 0, index, cap_offset: 0, size: 0, offset: 0 };
        let Reply { body, descriptors } = self.ask("describe a region of", Command::GetRegionInfo, &asked.encode())?;
        let wrong = || nonsense("description of a region");
        let info = RegionInfo::decode(&body).filter(|info| info.index == index).ok_or_else(wrong)?;
        let mut region = RemoteRegion { bytes: info.size, pieces: Vec::new() };
        let wanted = info.flags & RegionInfo::MMAP != 0 && options.map_bars && index < BarIndex::COUNT as u32;
        let descriptor = descriptors.into_iter().next().filter(|_| wanted).and_then(mapped::mappable);
        let Some(descriptor) = descriptor else { return Ok(region) };
        let areas = match info.flags & RegionInfo::CAPS {
            0 => None,
            _ => decode_areas(&body, info.cap_offset).ok_or_else(wrong)?,
        };
        let areas = areas.unwrap_or_else(|| vec![Area { offset: 0, size: info.size }]);
        for (piece, mapped) in mapped::map(&descriptor, &info, &areas, self.connection.removal())? {
            self.connection.removal().takes_along(&mapped);
            region.pieces.push(piece);
        }
        Ok(region)
    }

    /// What the BARs' registers say beside their size.
    fn read_layouts(&mut self) -> Result<()> {
        for index in 0..BarIndex::COUNT {
            let bytes = self.regions[index].bytes;
            if bytes > 0 {
                let mut low = [0xff];
                self.config_read(config::BARS + 4 * index as u16, &mut low)?;
                self.layouts[index] = Some(BarLayout::from_register(low[0], bytes));
            }
        }
        Ok(())
    }

    fn read(&self, region: u32, offset: u64, data: &mut [u8]) -> Result<()> {
        self.connection.check_owner()?;
        let access = RegionAccess { offset, region, count: data.len() as u32 };
        let reply = self.connection.call(Command::RegionRead, [&access.encode(), &[]], &[]);
        let Some(reply) = unless_gone(reply, "read")? else { return Ok(()) };
        match RegionAccess::decode(&reply.body) {
            Some((answered, read)) if answered == access && read.len() == data.len() => data.copy_from_slice(read),
            _ => return Err(nonsense("answer to a read")),
        }
        Ok(())
    }

    fn set_interrupts(
        &self,
        flags: u32,
        index: u32,
        range: std::ops::Range<u32>,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<()> {
        let (start, count) = (range.start, range.len() as u32);
        let set = SetInterrupts { argsz: SetInterrupts::BYTES as u32, flags, index, start, count, data: &[] };
        let reply = self.connection.call(Command::SetInterrupts, [&set.encode(), &[]], descriptors);
        unless_gone(reply, "set interrupts of")?.map(drop).ok_or(Error::Removed)
    }
}

/// Where the vectors of a kind are counted.
fn slot(kind: InterruptKind) -> usize {
    match kind {
        InterruptKind::Msix => 0,
        InterruptKind::Msi => 1,
        InterruptKind::Intx => 2,
    }
}

fn index(kind: InterruptKind) -> u32 {
    match kind {
        InterruptKind::Msix => MSIX,
        InterruptKind::Msi => MSI,
        InterruptKind::Intx => INTX,
    }
}

impl Bus for Remote {
    fn kind(&self) -> BusKind {
        BusKind::VfioUser
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) -> Result<()> {
        // A function without PCI Express has the first 256 bytes only; the rest reads as if nobody answered.
        if u64::from(offset) + data.len() as u64 > self.regions[CONFIG_REGION as usize].bytes {
            return Ok(());
        }
        self.read(CONFIG_REGION, u64::from(offset), data)
    }

    fn config_write(&self, offset: u16, data: &[u8]) -> Result<()> {
        if u64::from(offset) + data.len() as u64 > self.regions[CONFIG_REGION as usize].bytes {
            return Ok(());
        }
        let access = RegionAccess { offset: u64::from(offset), region: CONFIG_REGION, count: data.len() as u32 };
        unless_gone(self.connection.call(Command::RegionWrite, [&access.encode(), data], &[]), "write").map(drop)
    }

    fn bar(&self, bar: BarIndex) -> Option<BarLayout> {
        self.layouts[bar.index()]
    }

    fn bar_pieces(&self, bar: BarIndex) -> Result<Vec<Piece>> {
        Ok(self.regions[bar.index()].pieces.clone())
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) -> Result<()> {
        self.read(bar.index() as u32, offset, data)
    }

    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) -> Result<()> {
        self.connection.check_owner()?;
        // Posted, as on PCIe: it is on its way, and what is asked later sees its effect.
        let access = RegionAccess { offset, region: bar.index() as u32, count: data.len() as u32 };
        unless_gone(self.connection.post(Command::RegionWrite, [&access.encode(), data]), "write").map(drop)
    }

    fn vectors(&self, kind: InterruptKind) -> Result<u16> {
        if self.connection.removal().check() {
            return Err(Error::Removed);
        }
        Ok(self.vectors[slot(kind)])
    }

    fn enable_interrupts(&self, kind: InterruptKind, interrupts: &[Interrupt]) -> Result<()> {
        let counters: Vec<_> = interrupts.iter().map(Interrupt::counter).collect();
        let most = usize::try_from(self.server.descriptors).unwrap_or(DESCRIPTORS).min(DESCRIPTORS);
        if most == 0 {
            return Err(nonsense("limit of descriptors"));
        }
        let mut start = 0;
        for batch in counters.chunks(most) {
            let descriptors: Vec<_> = batch.iter().map(|counter| counter.as_fd()).collect();
            let range = start..start + batch.len() as u32;
            start = range.end;
            let flags = SetInterrupts::DATA_EVENTFD | SetInterrupts::TRIGGER;
            self.set_interrupts(flags, index(kind), range, &descriptors)?;
        }
        Ok(())
    }

    fn disable_interrupts(&self, kind: InterruptKind) -> Result<()> {
        self.set_interrupts(SetInterrupts::DATA_NONE | SetInterrupts::TRIGGER, index(kind), 0..0, &[])
    }

    fn trigger(&self, kind: InterruptKind, vector: u16) -> Result<()> {
        let range = u32::from(vector)..u32::from(vector) + 1;
        self.set_interrupts(SetInterrupts::DATA_NONE | SetInterrupts::TRIGGER, index(kind), range, &[])
    }

    fn unmask_intx(&self) -> Result<()> {
        self.set_interrupts(SetInterrupts::DATA_NONE | SetInterrupts::UNMASK, INTX, 0..1, &[])
    }

    fn can_reset(&self) -> ResetOutcome {
        if self.can_reset { ResetOutcome::Function } else { ResetOutcome::None }
    }

    fn reset(&self) -> Result<ResetOutcome> {
        for kind in InterruptKind::ALL {
            if self.vectors[slot(kind)] > 0 {
                self.disable_interrupts(kind)?;
            }
        }
        self.ask("reset", Command::Reset, &[])?;
        Ok(ResetOutcome::Function)
    }

    fn close(&self) {
        self.maps.detach(&self.connection);
        self.connection.end();
    }

    fn removal(&self) -> &Arc<Removal> {
        self.connection.removal()
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // Again, if it was opened; in a forked child it does nothing.
        self.close();
    }
}

/// What the servers of one domain's functions are told of its memory.
#[derive(Debug, Default)]
pub(crate) struct Maps {
    /// For servers that ask for bytes.
    memory: Arc<InProcessIommu>,
    /// What waiting for their answers has taken.
    slowness: Arc<Slowness>,
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
    fn attach(&self, connection: &Arc<Connection>, share: bool) -> Result<()> {
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

    fn detach(&self, connection: &Arc<Connection>) {
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
    let descriptor = [mapping.region.as_fd()];
    let descriptors = if share { &descriptor[..] } else { &[] };
    connection.call(Command::DmaMap, [&map.encode(), &[]], descriptors).map(drop)
}

fn untell(connection: &Connection, iova: Iova, bytes: u64) -> std::result::Result<(), Failure> {
    let unmap = DmaUnmap { argsz: DmaUnmap::BYTES as u32, flags: 0, address: iova.0, size: bytes };
    connection.call(Command::DmaUnmap, [&unmap.encode(), &[]], &[]).map(drop)
}

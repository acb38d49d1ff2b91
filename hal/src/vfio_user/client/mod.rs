//! The client: opens functions that a server serves on a socket.
//!
//! Locks, in the order in which a thread takes them: `Maps::state`, which is held while servers reply; then of a connection
//! `reader`, `state` and `Sender::queue`, of which only `reader` is held while the thread waits or takes another.

mod connection;
mod mapped;
mod maps;
mod memory;
mod options;
mod remote;
mod waits;

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect as connect_socket, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};

use self::connection::Connection;
use self::maps::Maps;
pub use self::options::Options;
use self::remote::Remote;
use self::waits::Waits;
use crate::memory::domain::Attachment;
use crate::memory::table::FunctionIommu;
use crate::vfio_user::wire::capabilities::Capabilities;
use crate::{BarIndex, BusKind, Domain, Ending, Error, Function, Result};

/// Opens the function that is served at the socket `path`, in a `domain` made by [`Domain::vfio_user`].
///
/// Fails with [`Error::Busy`] while another client has the function, and with [`Error::Unresponsive`] if the server takes too
/// long.
///
/// When the server ends, the function is removed: registers read as all-ones, writes have no effect, and calls fail with
/// [`Error::Removed`]. The domain's buffers and their contents stay, and are freed as usual.
pub fn connect(path: &Path, domain: &Domain) -> Result<Function> {
    connect_with(path, domain, &Options::default())
}

/// Opens the function that is served at the socket `path`, as [`connect`] does.
pub fn connect_with(path: &Path, domain: &Domain, options: &Options) -> Result<Function> {
    let maps = domain.backend::<Maps>().ok_or(Error::DomainKind { bus: BusKind::VfioUser, domain: domain.kind() })?;
    let failed = |source: io::Error| Error::Socket { action: "connect to", path: path.to_owned(), source };
    let late = || Error::Unresponsive { path: path.to_owned(), patience: options.patience };
    let waits = Waits::new(Arc::clone(&maps.slowness), options.patience, Instant::now());
    let stream = connect_stream(path, waits.patience()).map_err(|errno| match errno {
        Errno::ETIMEDOUT => late(),
        errno => failed(errno.into()),
    })?;
    let name = format!("vfio-user:{}", path.display());
    let attachment = domain.attach(&name, 64);
    let memory = FunctionIommu { table: Arc::clone(&maps.memory), member: attachment.member() };
    let connection = Connection::new(name.clone(), stream, memory, waits).map_err(failed)?;
    let opened = open((path, &name), attachment, options, maps, Arc::clone(&connection));
    let opened = opened.map_err(|error| match (error, connection.ending()) {
        _ if connection.waits().were_too_long() => late(),
        (Error::Removed { .. }, Some(ending @ Ending::Fault(_))) => failed(ending.into()),
        (error, _) => error,
    })?;
    connection.waits().opened();
    Ok(opened)
}

fn open(
    (path, name): (&Path, &str),
    attachment: Attachment,
    options: &Options,
    maps: Arc<Maps>,
    connection: Arc<Connection>,
) -> Result<Function> {
    // From here on, a failure drops `remote`, which ends the connection.
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
    let share = options.share_memory && remote.server.descriptors > 0;
    remote.maps.attach(&remote.connection, attachment.member(), share)?;
    Function::open(Box::new(remote), attachment, name, options.without_reset)
}

/// Connects, and waits at most `patience` until the server accepts, however many signals come.
fn connect_stream(path: &Path, patience: Duration) -> std::result::Result<UnixStream, Errno> {
    let deadline = Instant::now() + patience;
    let descriptor = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // A limit of zero would be none.
        let limit = TimeVal::milliseconds(i64::try_from(left.as_millis()).unwrap_or(i64::MAX).max(1));
        setsockopt(&descriptor, sockopt::SendTimeout, &limit)?;
        match connect_socket(descriptor.as_raw_fd(), &UnixAddr::new(path)?) {
            Ok(()) => return Ok(UnixStream::from(descriptor)),
            Err(Errno::EINTR) if Instant::now() < deadline => {}
            // The backlog is full, and the send timeout has passed.
            Err(Errno::EAGAIN | Errno::EINTR) => return Err(Errno::ETIMEDOUT),
            Err(errno) => return Err(errno),
        }
    }
}

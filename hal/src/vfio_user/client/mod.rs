//! Functions on the far side of a socket.

mod connection;
mod mapped;
mod maps;
mod memory;
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
use self::remote::Remote;
use self::waits::Waits;
use crate::vfio_user::wire::capabilities::Capabilities;
use crate::{BarIndex, BusKind, Domain, Error, Function, Result};

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

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

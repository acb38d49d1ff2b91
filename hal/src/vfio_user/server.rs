//! Endpoints served on sockets.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::geteuid;

use super::codec::{Command, Header};
use super::interrupts::Interrupts;
use super::link::Link;
use super::session::Session;
use super::signals::STUCK;
use super::stalls::Stalls;
use super::wire::{Reader, Sender as MessageSender, Socket, Wake, events, poll_until};
use crate::endpoint::Endpoint;
use crate::{Error, Result, in_process};

/// Connections that wait to be accepted. More than are ever refused at a time.
const BACKLOG: i32 = 64;
/// How long a client that is refused may take to say what it wants.
const REFUSAL: Duration = Duration::from_secs(1);
/// Clients that are being refused at a time; more are just hung up on.
const MOST_REFUSED: usize = 16;
/// How long a client may take to answer a request for its memory. Other clients of a fabric wait meanwhile, for as long
/// as their own timeouts of some seconds.
const DMA_PATIENCE: Duration = Duration::from_secs(1);
/// How long ending takes at most: endpoints return promptly, and nothing else is waited for.
const ENDING: Duration = Duration::from_secs(5);

/// An endpoint on a socket of its own, not served yet.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    path: SocketPath,
    endpoint: ServedEndpoint,
    dma_patience: Duration,
}

/// For `Debug`.
struct ServedEndpoint(Arc<dyn Endpoint>);

impl std::fmt::Debug for ServedEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Endpoint")
    }
}

impl Server {
    /// Makes the socket `path` for `endpoint`, for this user alone (mode 0600 from the first moment on).
    ///
    /// The directory must exist, and be one in which nobody else can exchange the file: owned by this user or root, and
    /// not writable by others unless it is sticky. A socket that a server has left behind is replaced; one that is
    /// being served is an error, as is any other file. Fails as well if the endpoint's layout is impossible.
    pub fn bind(path: impl AsRef<Path>, endpoint: Arc<dyn Endpoint>) -> Result<Self> {
        in_process::check_layout(&endpoint.layout())?;
        let path = path.as_ref();
        let failed = |source: io::Error| Error::Socket { action: "serve", path: path.to_owned(), source };
        let (listener, path) = make_socket(path).map_err(failed)?;
        Ok(Server { listener, path, endpoint: ServedEndpoint(endpoint), dma_patience: DMA_PATIENCE })
    }

    /// Limits how long a client may take to answer all messages of a request for its memory (1 s unless told otherwise, and
    /// as much again for each MiB of the request). Then the request fails, and the client is hung up on.
    ///
    /// A request that takes more than a tenth of that is slow. Once the slow requests of all clients of this endpoint took
    /// three times `patience` together, less a tenth of the time since, requests by message fail at once for 30 times
    /// `patience`. Memory that a client has passed a descriptor of is copied as before.
    #[must_use]
    pub fn with_dma_patience(mut self, patience: Duration) -> Self {
        self.dma_patience = patience;
        self
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        &self.path.path
    }

    /// Serves clients, one at a time, from threads of its own, until the result is dropped.
    pub fn spawn(self) -> Result<Serving> {
        let Server { listener, path, endpoint, dma_patience } = self;
        let failed = |source: io::Error| Error::Socket { action: "serve", path: path.path.clone(), source };
        listener.set_nonblocking(true).map_err(failed)?;
        let wake = Arc::new(Wake::new().map_err(|errno| failed(errno.into()))?);
        let stopped = Arc::new(AtomicBool::new(false));
        let (ended, done) = channel();
        let mut acceptor = Acceptor {
            listener,
            endpoint: endpoint.0,
            stalls: Arc::new(Stalls::new(path.path.display().to_string(), dma_patience)),
            wake: Arc::clone(&wake),
            stopped: Arc::clone(&stopped),
            session: None,
            next: None,
            refused: Vec::new(),
            _ended: ended,
        };
        let thread = thread::Builder::new().name("vfio-user".to_owned()).spawn(move || acceptor.run());
        let thread = Some(thread.map_err(failed)?);
        Ok(Serving { path, wake, stopped, thread, done: Mutex::new(done) })
    }
}

/// Serves one client that is connected already, until it goes. For sockets that were made elsewhere.
///
/// The endpoint is left clean: outstanding DMA is completed, its ports reach nobody, and it was reset.
pub fn serve_stream(stream: UnixStream, endpoint: Arc<dyn Endpoint>) -> Result<()> {
    in_process::check_layout(&endpoint.layout())?;
    let stalls = Arc::new(Stalls::new("A function on a stream".to_owned(), DMA_PATIENCE));
    let made = Session::new(stream, endpoint, stalls);
    let failed = |errno: Errno| Error::Socket { action: "serve", path: PathBuf::new(), source: errno.into() };
    let mut session = made.map_err(failed)?;
    let (link, interrupts) = (Arc::clone(session.link()), Arc::clone(session.interrupts()));
    let (ended, done) = channel::<()>();
    let serve = move || {
        let _ended = ended;
        let end = session.run();
        log::debug!("A client has gone: {end:?}");
        drop(session);
    };
    let builder = thread::Builder::new().name("vfio-user client".to_owned());
    let thread =
        builder.spawn(serve).map_err(|source| Error::Socket { action: "serve", path: PathBuf::new(), source })?;
    while done.recv_timeout(STUCK) == Err(RecvTimeoutError::Timeout) {
        free(&link, &interrupts);
    }
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
    Ok(())
}

/// Frees the thread of a session that its client keeps waiting at a descriptor, and hangs up on it.
fn free(link: &Link, interrupts: &Interrupts) {
    if interrupts.signals().free() {
        log::warn!("A client has made its interrupts block: it is hung up on");
        link.stop();
    }
}

/// An endpoint being served. Dropping it hangs up on the client, removes the socket and ends its threads, within seconds.
#[derive(Debug)]
pub struct Serving {
    path: SocketPath,
    wake: Arc<Wake>,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Nothing is sent: it ends when the thread does.
    done: Mutex<Receiver<()>>,
}

impl Serving {
    /// The socket.
    pub fn path(&self) -> &Path {
        &self.path.path
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        self.wake.wake();
        // No new clients meanwhile.
        self.path.remove();
        let Some(thread) = self.thread.take() else { return };
        let done = self.done.get_mut().unwrap_or_else(PoisonError::into_inner);
        if done.recv_timeout(ENDING) == Err(RecvTimeoutError::Timeout) {
            log::error!("The server of {} does not end: its endpoint does not return", self.path.path.display());
        } else if thread.join().is_err() {
            log::error!("The server of {} has panicked", self.path.path.display());
        }
    }
}

/// What accepts clients.
struct Acceptor {
    listener: UnixListener,
    endpoint: Arc<dyn Endpoint>,
    stalls: Arc<Stalls>,
    wake: Arc<Wake>,
    stopped: Arc<AtomicBool>,
    session: Option<Running>,
    /// A client that came when the one before was gone, but not yet cleaned up after.
    next: Option<UnixStream>,
    refused: Vec<Refused>,
    _ended: Sender<()>,
}

/// A session and its thread.
struct Running {
    thread: JoinHandle<()>,
    link: Arc<Link>,
    interrupts: Arc<Interrupts>,
}

/// A client that is to be told that another is being served.
struct Refused {
    socket: Socket,
    reader: Reader,
    deadline: Instant,
}

impl Acceptor {
    fn run(&mut self) {
        while !self.stopped.load(Ordering::Acquire) {
            let watch = self.session.is_some().then(|| Instant::now() + STUCK);
            let deadline = self.refused.iter().map(|refused| refused.deadline).chain(watch).min();
            let mut polled = vec![
                PollFd::new(self.wake.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
            ];
            let sockets = self.refused.iter().map(|refused| refused.socket.as_fd());
            polled.extend(sockets.map(|socket| PollFd::new(socket, PollFlags::POLLIN)));
            if let Err(errno) = poll_until(&mut polled, deadline) {
                log::error!("Waiting for clients: {errno}");
                break;
            }
            let happened: Vec<_> = polled.iter().map(|descriptor| !events(descriptor).is_empty()).collect();
            drop(polled);
            if happened[0] {
                self.wake.clear();
            }
            self.reap(false);
            self.refuse(&happened[2..]);
            if happened[1] {
                self.accept();
            }
            self.watch();
        }
        if let Some(session) = &self.session {
            session.link.withdraw();
        }
        // A thread that a client keeps waiting is freed here too.
        while self.session.as_ref().is_some_and(|session| !session.thread.is_finished()) {
            let mut descriptors = [PollFd::new(self.wake.as_fd(), PollFlags::POLLIN)];
            if poll_until(&mut descriptors, Some(Instant::now() + STUCK)).is_err() {
                break;
            }
            self.wake.clear();
            self.watch();
        }
        self.reap(true);
    }

    fn accept(&mut self) {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => self.welcome(stream),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // Out of descriptors, mostly. Others may close some; without a pause this would spin.
                    log::warn!("Accepting a client: {error}");
                    thread::sleep(Duration::from_millis(10));
                    return;
                }
            }
        }
    }

    /// Serves a client, or has it wait until the one that is gone was cleaned up after, or refuses it.
    fn welcome(&mut self, stream: UnixStream) {
        self.reap(false);
        match &self.session {
            None => self.begin(stream),
            Some(session)
                if (session.link.is_stopped() || has_hung_up(session.link.socket.as_fd()))
                    && self.next.as_ref().is_none_or(|next| has_hung_up(next.as_fd())) =>
            {
                self.next = Some(stream);
            }
            Some(_) if self.refused.len() < MOST_REFUSED => self.refused.push(Refused {
                socket: Socket::new(stream),
                reader: Reader::new(1 << 16),
                deadline: Instant::now() + REFUSAL,
            }),
            Some(_) => {}
        }
    }

    fn begin(&mut self, stream: UnixStream) {
        let made = Session::new(stream, Arc::clone(&self.endpoint), Arc::clone(&self.stalls));
        let mut session = match made {
            Ok(session) => session,
            Err(errno) => return log::warn!("Serving a client: {errno}"),
        };
        let (link, interrupts, wake) =
            (Arc::clone(session.link()), Arc::clone(session.interrupts()), Arc::clone(&self.wake));
        let serve = move || {
            // Whatever happens to the session, who accepts hears that it is over.
            let _wake = WakeAtEnd(wake);
            let end = session.run();
            log::debug!("A client has gone: {end:?}");
            drop(session);
        };
        match thread::Builder::new().name("vfio-user client".to_owned()).spawn(serve) {
            Ok(thread) => self.session = Some(Running { thread, link, interrupts }),
            Err(error) => log::warn!("Serving a client: {error}"),
        }
    }

    /// Cleans up after a session that is over, and serves who waited for that.
    fn reap(&mut self, wait: bool) {
        if !wait && self.session.as_ref().is_some_and(|session| !session.thread.is_finished()) {
            return;
        }
        let Some(session) = self.session.take() else { return };
        if session.thread.join().is_err() {
            log::error!("Serving a client has panicked");
        }
        if let Some(stream) = self.next.take()
            && !self.stopped.load(Ordering::Acquire)
        {
            self.begin(stream);
        }
    }

    /// Tells those who have said what they want, or were given the time, that another is being served.
    fn refuse(&mut self, happened: &[bool]) {
        let now = Instant::now();
        let mut happened = happened.iter();
        self.refused.retain_mut(|refused| {
            let heard = happened.next() == Some(&true);
            if !heard && refused.deadline > now {
                return true;
            }
            match refused.reader.advance(&refused.socket) {
                Ok(None) if refused.deadline > now => return true,
                Ok(Some(header)) => tell_busy(&refused.socket, &header),
                // What it wants is unknown, so what it gets is no answer to it.
                Ok(None) | Err(_) => {}
            }
            refused.socket.shut_down();
            false
        });
    }

    fn watch(&self) {
        if let Some(session) = &self.session {
            free(&session.link, &session.interrupts);
        }
    }
}

struct WakeAtEnd(Arc<Wake>);

impl Drop for WakeAtEnd {
    fn drop(&mut self) {
        self.0.wake();
    }
}

fn has_hung_up(socket: BorrowedFd<'_>) -> bool {
    let mut descriptors = [PollFd::new(socket, PollFlags::empty())];
    matches!(poll(&mut descriptors, PollTimeout::ZERO), Ok(1..))
}

fn tell_busy(socket: &Socket, header: &Header) {
    let is_version = header.command == Command::Version as u16;
    let errno = if is_version { Errno::EBUSY } else { Errno::EINVAL };
    if !header.is_silent() {
        // Sixteen bytes into an empty buffer: there is room, or nobody to read them.
        let _ = MessageSender::new().send(socket, header.failure(errno), [&[], &[]], &[]);
    }
}

/// A socket's file, removed with this unless it is another one by then.
#[derive(Debug)]
struct SocketPath {
    path: PathBuf,
    /// Device and inode.
    identity: Option<(u64, u64)>,
}

impl SocketPath {
    fn remove(&mut self) {
        let Some(identity) = self.identity.take() else { return };
        let is_ours = fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == identity);
        if is_ours && let Err(error) = fs::remove_file(&self.path) {
            log::warn!("Removing {}: {error}", self.path.display());
        }
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        self.remove();
    }
}

fn make_socket(path: &Path) -> io::Result<(UnixListener, SocketPath)> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    check_directory(parent)?;
    // Of two servers that find the same file left behind, one is first.
    let directory = fs::File::open(parent)?;
    let _lock = lock(directory)?;
    let address = UnixAddr::new(path)?;
    let flags = SockFlag::SOCK_CLOEXEC;
    let descriptor = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    // The file that `bind` makes has the mode of the socket, less the umask: so nobody else ever could connect.
    fchmod(&descriptor, Mode::S_IRUSR | Mode::S_IWUSR)?;
    match bind(descriptor.as_raw_fd(), &address) {
        Err(Errno::EADDRINUSE) => {
            remove_left_behind(path)?;
            bind(descriptor.as_raw_fd(), &address)?;
        }
        other => other?,
    }
    let found = fs::symlink_metadata(path)?;
    let path = SocketPath { path: path.to_owned(), identity: Some((found.dev(), found.ino())) };
    listen(&descriptor, Backlog::new(BACKLOG)?)?;
    Ok((UnixListener::from(descriptor), path))
}

fn lock(directory: fs::File) -> io::Result<Flock<fs::File>> {
    let deadline = Instant::now() + ENDING;
    let mut directory = directory;
    loop {
        match Flock::lock(directory, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((back, Errno::EWOULDBLOCK)) if Instant::now() < deadline => directory = back,
            Err((_, errno)) => return Err(errno.into()),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn check_directory(parent: &Path) -> io::Result<()> {
    let found = fs::metadata(parent)?;
    if !found.is_dir() {
        return Err(Errno::ENOTDIR.into());
    }
    let is_trusted = found.uid() == geteuid().as_raw() || found.uid() == 0;
    let mode = found.permissions().mode();
    let is_shared = mode & 0o022 != 0 && mode & 0o1000 == 0;
    if !is_trusted || is_shared {
        let why = "others can exchange files in the socket's directory";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(())
}

/// Removes a socket that nobody listens on.
fn remove_left_behind(path: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(Errno::EEXIST.into());
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Ok(_) => Err(Errno::EADDRINUSE.into()),
        Err(error) => Err(error),
    }
}

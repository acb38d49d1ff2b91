//! Endpoints served on sockets.

mod budget;
mod client_memory;
mod dma;
mod interrupts;
mod link;
mod regions;
mod session;
mod signals;
mod socket_path;
mod stalls;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

pub use self::budget::{Budget, Limits};
use self::budget::{Charge, Item, Member, Share};
use self::interrupts::Interrupts;
use self::link::Link;
use self::session::Session;
use self::signals::STUCK;
use self::socket_path::SocketPath;
use self::stalls::Stalls;
use crate::endpoint::Endpoint;
use crate::vfio_user::wire::closing::Closer;
use crate::vfio_user::wire::messages::{Command, Header};
use crate::vfio_user::wire::socket::{Sender as MessageSender, Socket, Wake, events, poll_until};
use crate::{Error, Result, in_process};

/// How long a client that is refused may take to say what it wants.
const REFUSAL: Duration = Duration::from_secs(1);
/// Clients that are being refused at a time; more are just hung up on.
const MOST_REFUSED: usize = 16;
/// How often it is looked whether more of a client's first header has come, and whether descriptors were closed.
const AGAIN: Duration = Duration::from_millis(20);
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
    budget: Option<Arc<Budget>>,
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
    /// The directory must exist, and nobody else may be able to exchange any step of the way to it: directories and symbolic
    /// links must belong to this user or root, and others may write only to directories that are sticky. A socket that a server has left behind is replaced; one that is
    /// being served is an error, as is any other file. Fails as well if the endpoint's layout is impossible.
    pub fn bind(path: impl AsRef<Path>, endpoint: Arc<dyn Endpoint>) -> Result<Self> {
        in_process::check_layout(&endpoint.layout())?;
        let path = path.as_ref();
        let failed = |source: io::Error| Error::Socket { action: "serve", path: path.to_owned(), source };
        let (listener, path) = socket_path::make(path).map_err(failed)?;
        Ok(Server { listener, path, endpoint: ServedEndpoint(endpoint), dma_patience: DMA_PATIENCE, budget: None })
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

    /// Shares `budget` with other servers of this process: then their clients hold no more together than it allows. Without
    /// this the client of each server alone may hold what [`Limits::of_process`] says.
    #[must_use]
    pub fn with_budget(mut self, budget: &Arc<Budget>) -> Self {
        self.budget = Some(Arc::clone(budget));
        self
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        self.path.path()
    }

    /// Serves clients, one at a time, from threads of its own, until the result is dropped.
    pub fn spawn(self) -> Result<Serving> {
        let Server { listener, path, endpoint, dma_patience, budget } = self;
        let failed = |source: io::Error| Error::Socket { action: "serve", path: path.path().to_owned(), source };
        listener.set_nonblocking(true).map_err(failed)?;
        let wake = Arc::new(Wake::new().map_err(|errno| failed(errno.into()))?);
        let stopped = Arc::new(AtomicBool::new(false));
        let (ended, done) = channel();
        let name = path.path().display().to_string();
        let budget = Member::new(&budget.unwrap_or_else(|| Budget::new(Limits::of_process())), name.clone());
        let acceptor = Acceptor {
            listener,
            endpoint: endpoint.0,
            stalls: Arc::new(Stalls::new(name, dma_patience)),
            share: budget.share(),
            budget,
            refusing: Closer::new(),
            serving: Closer::new(),
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
    let name = "A function on a stream".to_owned();
    let budget = Member::new(&Budget::new(Limits::of_process()), name.clone());
    let socket = Socket::new(stream, &Closer::new());
    let made = Session::new(socket, endpoint, Arc::new(Stalls::new(name, DMA_PATIENCE)), budget.share());
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
        self.path.path()
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
            log::error!("The server of {} does not end: its endpoint does not return", self.path.path().display());
        } else if thread.join().is_err() {
            log::error!("The server of {} has panicked", self.path.path().display());
        }
    }
}

/// What accepts clients.
struct Acceptor {
    listener: UnixListener,
    endpoint: Arc<dyn Endpoint>,
    stalls: Arc<Stalls>,
    budget: Member,
    /// Of those that are being refused.
    share: Arc<Share>,
    /// Closes what those have sent.
    refusing: Arc<Closer>,
    /// Closes what those have sent who are served.
    serving: Arc<Closer>,
    wake: Arc<Wake>,
    stopped: Arc<AtomicBool>,
    session: Option<Running>,
    /// A client that came when the one before was gone, but not yet cleaned up after.
    next: Option<Socket>,
    refused: Vec<Refused>,
    _ended: Sender<()>,
}

/// A session and its thread.
struct Running {
    thread: JoinHandle<()>,
    link: Arc<Link>,
    interrupts: Arc<Interrupts>,
}

/// A client that is to be told that another is being served. Nothing of what it sends is read: its descriptors might take
/// a while to close.
struct Refused {
    socket: Socket,
    deadline: Instant,
    /// Some of a header has come, which stays and would end every poll.
    is_amid: bool,
    _charge: Charge,
}

impl Acceptor {
    fn run(mut self) {
        while !self.stopped.load(Ordering::Acquire) {
            // While descriptors do not close, no more clients come in: they wait, or are turned away by the kernel.
            let has_room = self.has_room();
            let now = Instant::now();
            let watch = self.session.is_some().then(|| now + STUCK);
            let again = (!has_room || self.refused.iter().any(|refused| refused.is_amid)).then(|| now + AGAIN);
            let deadline = self.refused.iter().map(|refused| refused.deadline).chain(watch).chain(again).min();
            let listened = if has_room { PollFlags::POLLIN } else { PollFlags::empty() };
            let mut polled =
                vec![PollFd::new(self.wake.as_fd(), PollFlags::POLLIN), PollFd::new(self.listener.as_fd(), listened)];
            polled.extend(self.refused.iter().map(|refused| {
                let wanted = if refused.is_amid { PollFlags::empty() } else { PollFlags::POLLIN };
                PollFd::new(refused.socket.as_fd(), wanted)
            }));
            if let Err(errno) = poll_until(&mut polled, deadline) {
                log::error!("Waiting for clients: {errno}");
                break;
            }
            let happened: Vec<_> = polled.iter().map(events).collect();
            drop(polled);
            self.wake.clear();
            self.reap(false);
            self.refuse(&happened[2..]);
            self.accept();
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
        // Clients that were not accepted may have sent descriptors, too.
        let Acceptor { listener, refusing, .. } = self;
        refusing.close(listener.into());
    }

    /// Whether so few descriptors wait to be closed that clients may come in.
    fn has_room(&self) -> bool {
        !self.refusing.is_full() && !self.serving.is_full()
    }

    fn accept(&mut self) {
        while self.has_room() {
            match self.listener.accept() {
                Ok((stream, _)) => self.welcome(stream),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
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
            None => self.begin(Socket::new(stream, &self.serving)),
            Some(session)
                if (session.link.is_stopped() || has_hung_up(session.link.socket.as_fd()))
                    && self.next.as_ref().is_none_or(|next| has_hung_up(next.as_fd())) =>
            {
                self.next = Some(Socket::new(stream, &self.serving));
            }
            Some(_) if self.refused.len() < MOST_REFUSED => {
                let (socket, deadline) = (Socket::new(stream, &self.refusing), Instant::now() + REFUSAL);
                if let Ok(charge) = self.share.take(Item::Descriptors, 1) {
                    self.refused.push(Refused { socket, deadline, is_amid: false, _charge: charge });
                }
            }
            Some(_) => drop(Socket::new(stream, &self.refusing)),
        }
    }

    fn begin(&mut self, socket: Socket) {
        let (endpoint, stalls) = (Arc::clone(&self.endpoint), Arc::clone(&self.stalls));
        let made = Session::new(socket, endpoint, stalls, self.budget.share());
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
        if let Some(socket) = self.next.take()
            && !self.stopped.load(Ordering::Acquire)
        {
            self.begin(socket);
        }
    }

    /// Tells those who have said what they want, or were given the time, that another is being served.
    fn refuse(&mut self, happened: &[PollFlags]) {
        let now = Instant::now();
        let mut happened = happened.iter();
        self.refused.retain_mut(|refused| {
            let events = happened.next().copied().unwrap_or(PollFlags::empty());
            let is_late = now >= refused.deadline;
            if events.is_empty() && !refused.is_amid && !is_late {
                return true;
            }
            match refused.socket.peek() {
                Ok(Some(header)) => tell_busy(&refused.socket, &header),
                // Not whole yet, and its client is there.
                Ok(None) if !is_late && !events.contains(PollFlags::POLLHUP) => {
                    refused.is_amid = true;
                    return true;
                }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfio_user::server::regions::tests::Kept;
    use crate::vfio_user::wire::messages::HEADER_BYTES;
    use std::io::{Read, Write};

    /// An acceptor that serves a client already, and the client's end.
    fn busy() -> (Acceptor, UnixStream) {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("card")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let budget = Member::new(&Budget::new(Limits::of_process()), "test".into());
        let mut acceptor = Acceptor {
            listener,
            endpoint: Kept::new(),
            stalls: Arc::new(Stalls::new("test".into(), DMA_PATIENCE)),
            share: budget.share(),
            budget,
            refusing: Closer::new(),
            serving: Closer::new(),
            wake: Arc::new(Wake::new().unwrap()),
            stopped: Arc::default(),
            session: None,
            next: None,
            refused: Vec::new(),
            _ended: channel().0,
        };
        let client = come(&mut acceptor);
        assert!(acceptor.session.is_some() && acceptor.refused.is_empty());
        (acceptor, client)
    }

    fn come(acceptor: &mut Acceptor) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        acceptor.welcome(ours);
        theirs
    }

    /// All that is sent to one who is refused.
    fn told(client: &mut UnixStream) -> Option<Header> {
        let mut all = Vec::new();
        match client.read_to_end(&mut all) {
            Ok(_) => {}
            // What it sent was not read; what it was sent stays.
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
        }
        if all.is_empty() { None } else { Some(Header::decode(all[..].try_into().expect("a header alone"))) }
    }

    #[test]
    fn so_many_are_refused_at_a_time() {
        let (mut acceptor, _first) = busy();
        let mut clients: Vec<_> = (0..16).map(|_| come(&mut acceptor)).collect();
        assert_eq!(acceptor.refused.len(), 16);
        assert_eq!(told(&mut come(&mut acceptor)), None, "it is hung up on");
        assert_eq!(acceptor.refused.len(), 16);
        // Nobody has said anything, and nobody is late.
        acceptor.refuse(&[PollFlags::empty(); 16]);
        assert_eq!(acceptor.refused.len(), 16);
        assert!(acceptor.refused.iter().all(|refused| !refused.is_amid), "nor amid a header");
        acceptor.refused[3].deadline = Instant::now();
        acceptor.refuse(&[PollFlags::empty(); 16]);
        assert_eq!(acceptor.refused.len(), 15);
        assert_eq!(told(&mut clients.remove(3)), None);
        let _ = come(&mut acceptor);
        assert_eq!(acceptor.refused.len(), 16, "there was room for one");
    }

    #[test]
    fn who_is_refused_is_told_what_its_header_asks_for() {
        let version = Header::command(7, Command::Version, 4);
        let mut silent = version;
        silent.silence();
        let info = Header::command(8, Command::GetInfo, 16);
        for (header, expected) in
            [(version, Some(version.failure(Errno::EBUSY))), (info, Some(info.failure(Errno::EINVAL))), (silent, None)]
        {
            let (mut acceptor, _first) = busy();
            let mut client = come(&mut acceptor);
            client.write_all(&header.encode()).unwrap();
            acceptor.refuse(&[PollFlags::POLLIN]);
            assert!(acceptor.refused.is_empty());
            assert_eq!(told(&mut client), expected);
        }
        // In two parts, of which the second wakes nobody.
        let (mut acceptor, _first) = busy();
        let mut client = come(&mut acceptor);
        let bytes = version.encode();
        client.write_all(&bytes[..HEADER_BYTES - 1]).unwrap();
        acceptor.refuse(&[PollFlags::POLLIN]);
        assert!(acceptor.refused[0].is_amid);
        acceptor.refuse(&[PollFlags::empty()]);
        assert_eq!(acceptor.refused.len(), 1);
        client.write_all(&bytes[HEADER_BYTES - 1..]).unwrap();
        acceptor.refuse(&[PollFlags::empty()]);
        assert!(acceptor.refused.is_empty());
        assert_eq!(told(&mut client), Some(version.failure(Errno::EBUSY)));
        // Gone, or late, amid its header.
        for (events, is_late) in [(PollFlags::POLLIN.union(PollFlags::POLLHUP), false), (PollFlags::empty(), true)] {
            let mut client = come(&mut acceptor);
            client.write_all(&bytes[..5]).unwrap();
            acceptor.refuse(&[PollFlags::POLLIN]);
            assert_eq!(acceptor.refused.len(), 1);
            if is_late {
                acceptor.refused[0].deadline = Instant::now();
            }
            acceptor.refuse(&[events]);
            assert!(acceptor.refused.is_empty());
            assert_eq!(told(&mut client), None);
        }
    }

    #[test]
    fn no_client_comes_in_while_descriptors_do_not_close() {
        let full = || {
            let closer = Closer::new();
            closer.fill();
            closer
        };
        let (mut acceptor, _first) = busy();
        assert!(acceptor.has_room());
        acceptor.serving = full();
        assert!(!acceptor.has_room());
        acceptor.refusing = full();
        assert!(!acceptor.has_room());
        acceptor.serving = Closer::new();
        assert!(!acceptor.has_room());
        acceptor.refusing = Closer::new();
        assert!(acceptor.has_room());
    }
}

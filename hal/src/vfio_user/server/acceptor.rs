//! Accepts clients: one is served, the others are refused.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{io, mem};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::budget::{Charge, Item, Member, Share};
use super::interrupts::Interrupts;
use super::limits::RAISE_DESCRIPTORS;
use super::link::Link;
use super::session::Session;
use super::signals::STUCK;
use super::stalls::Stalls;
use crate::endpoint::Endpoint;
use crate::vfio_user::wire::closing::Closer;
use crate::vfio_user::wire::header::{Command, Header};
use crate::vfio_user::wire::polling::{Wake, events, poll_until};
use crate::vfio_user::wire::sender::{Sender as MessageSender, uncounted};
use crate::vfio_user::wire::socket::Socket;

/// How long a refused client may take to send a header.
const REFUSAL: Duration = Duration::from_secs(1);
/// Clients that are being refused at a time. The server disconnects others without a reply.
const MOST_REFUSED: usize = 16;
/// How often to check whether the rest of a refused client's header has arrived, and whether descriptors were closed.
const AGAIN: Duration = Duration::from_millis(20);

/// Accepts the clients of one endpoint.
pub(super) struct Acceptor {
    pub(super) listener: UnixListener,
    pub(super) endpoint: Arc<dyn Endpoint>,
    pub(super) stalls: Arc<Stalls>,
    pub(super) budget: Member,
    /// Counts the clients that are being refused.
    pub(super) share: Arc<Share>,
    /// Closes what refused clients have sent.
    pub(super) refusing: Arc<Closer>,
    /// Closes what served clients have sent.
    pub(super) serving: Arc<Closer>,
    pub(super) wake: Arc<Wake>,
    pub(super) stopped: Arc<AtomicBool>,
    pub(super) session: Option<Running>,
    /// A client that came after the last one had left, and before its session had ended.
    pub(super) next: Option<Socket>,
    pub(super) refused: Vec<Refused>,
    /// The log says that accepting fails. It does again only after a client was accepted.
    pub(super) has_told: bool,
    pub(super) _ended: Sender<()>,
}

/// A session and its thread.
pub(super) struct Running {
    thread: JoinHandle<()>,
    link: Arc<Link>,
    interrupts: Arc<Interrupts>,
}

/// A client that is refused once it has sent a header. What it sends is not read, since its descriptors might take long to
/// close.
pub(super) struct Refused {
    socket: Socket,
    deadline: Instant,
    /// Part of a header has arrived. It stays in the socket, so polling for input would return at once.
    is_amid: bool,
    _charge: Charge,
}

impl Acceptor {
    pub(super) fn run(mut self) {
        while !self.stopped.load(Ordering::Acquire) {
            // While descriptors do not close, clients are not accepted: they wait, and the kernel refuses more.
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
        // A thread that its client blocks is freed here, too.
        while self.session.as_ref().is_some_and(|session| !session.thread.is_finished()) {
            let mut descriptors = [PollFd::new(self.wake.as_fd(), PollFlags::POLLIN)];
            if poll_until(&mut descriptors, Some(Instant::now() + STUCK)).is_err() {
                break;
            }
            self.wake.clear();
            self.watch();
        }
        self.reap(true);
        // Clients that were not accepted may have sent descriptors as well.
        let Acceptor { listener, refusing, .. } = self;
        refusing.close(listener.into());
    }

    /// Whether few enough descriptors wait to be closed for another client.
    fn has_room(&self) -> bool {
        !self.refusing.is_full() && !self.serving.is_full()
    }

    fn accept(&mut self) {
        while self.has_room() {
            let accepted = self.listener.accept().map(|(stream, _)| stream);
            if !self.take(accepted) {
                return;
            }
        }
    }

    /// Welcomes a client that was accepted. False: none was.
    fn take(&mut self, accepted: io::Result<UnixStream>) -> bool {
        match accepted {
            Ok(stream) => {
                self.has_told = false;
                self.welcome(stream);
                return true;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                if !mem::replace(&mut self.has_told, true) {
                    let is_full = error.raw_os_error() == Some(Errno::EMFILE as i32);
                    let hint = if is_full { format!(": {RAISE_DESCRIPTORS}") } else { String::new() };
                    log::warn!("Accepting a client of {}: {error}{hint}", self.share.name());
                }
                // Mostly there are no more descriptors. Without a pause, this would spin until some are closed.
                thread::sleep(Duration::from_millis(10));
            }
        }
        false
    }

    /// Serves a client, keeps it for the end of a session whose client has left, or refuses it.
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
            // Also after a panic, the acceptor learns that the session has ended.
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

    /// Cleans up after a session that has ended, or, with `wait`, will; then serves the client that waited for this.
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

    /// Refuses clients that have sent a header, and disconnects those that did not in time.
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
                // Part of a header, and its client is still there.
                Ok(None) if !is_late && !events.contains(PollFlags::POLLHUP) => {
                    refused.is_amid = true;
                    return true;
                }
                // Without a header there is no command to reply to.
                Ok(None) | Err(_) => {}
            }
            refused.socket.shut_down();
            false
        });
    }

    fn watch(&self) {
        if let Some(session) = &self.session {
            session.interrupts.free_thread();
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
        // Sixteen bytes fit into an empty buffer, unless the client is gone.
        let _ = MessageSender::new().send(socket, header.failure(errno), [&[], &[]], &[], uncounted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfio_user::server::budget::{Budget, Limits};
    use crate::vfio_user::server::regions::tests::Kept;
    use crate::vfio_user::wire::header::HEADER_BYTES;
    use std::io::{Read, Write};
    use std::sync::mpsc::channel;

    /// An acceptor that serves a client, and the client's end.
    fn busy() -> (Acceptor, UnixStream) {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("card")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let budget = Member::new(&Budget::new(Limits::of_process()), "test".into());
        let mut acceptor = Acceptor {
            listener,
            endpoint: Kept::new(),
            stalls: Arc::new(Stalls::new("test".into(), Duration::from_secs(1))),
            share: budget.share(),
            budget,
            refusing: Closer::new(),
            serving: Closer::new(),
            wake: Arc::new(Wake::new().unwrap()),
            stopped: Arc::default(),
            session: None,
            next: None,
            refused: Vec::new(),
            has_told: false,
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

    /// Returns all that a refused client is sent.
    fn told(client: &mut UnixStream) -> Option<Header> {
        let mut all = Vec::new();
        match client.read_to_end(&mut all) {
            Ok(_) => {}
            // The server has closed the socket without reading, which resets it; what it sent before can be read.
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
        }
        if all.is_empty() { None } else { Some(Header::decode(all[..].try_into().expect("a header alone"))) }
    }

    #[test]
    fn sixteen_clients_are_refused_at_a_time() {
        let (mut acceptor, _first) = busy();
        let mut clients: Vec<_> = (0..16).map(|_| come(&mut acceptor)).collect();
        assert_eq!(acceptor.refused.len(), 16);
        assert_eq!(told(&mut come(&mut acceptor)), None, "disconnected without a reply");
        assert_eq!(acceptor.refused.len(), 16);
        // No client has sent anything, and none is late.
        acceptor.refuse(&[PollFlags::empty(); 16]);
        assert_eq!(acceptor.refused.len(), 16);
        assert!(acceptor.refused.iter().all(|refused| !refused.is_amid), "no part of a header");
        acceptor.refused[3].deadline = Instant::now();
        acceptor.refuse(&[PollFlags::empty(); 16]);
        assert_eq!(acceptor.refused.len(), 15);
        assert_eq!(told(&mut clients.remove(3)), None);
        let _ = come(&mut acceptor);
        assert_eq!(acceptor.refused.len(), 16, "there was room for one");
    }

    #[test]
    fn the_log_says_once_that_accepting_fails_until_a_client_was_accepted() {
        let lines = crate::logged::lines(|one| one.level() <= log::Level::Warn);
        let here = thread::current().id();
        let told = || lines.take(|thread, _| thread == here);
        let (mut acceptor, _first) = busy();
        let mut clients = Vec::new();
        told();
        // The system's limit is not the process's.
        for (errno, hint) in [(Errno::EMFILE, ": raise the limit of open files (`ulimit -n`)"), (Errno::ENFILE, "")] {
            for _ in 0..3 {
                assert!(!acceptor.take(Err(errno.into())));
                assert!(!acceptor.take(Err(Errno::EAGAIN.into())));
            }
            assert_eq!(told(), [format!("Accepting a client of test: {}{hint}", io::Error::from(errno))]);
            let (ours, theirs) = UnixStream::pair().unwrap();
            assert!(acceptor.take(Ok(ours)));
            clients.push(theirs);
            assert_eq!(told(), [""; 0]);
        }
    }

    #[test]
    fn a_refused_client_gets_the_reply_that_its_header_asks_for() {
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
        // A header in two parts; no poll reports the second.
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
        // Clients that leave, or are late, after part of a header.
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
    fn no_client_is_accepted_while_descriptors_do_not_close() {
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

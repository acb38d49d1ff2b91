//! Serves one client, from its first message to its last.

mod commands;
mod reply;
mod reset;
mod unread;

use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};

use self::reply::Reply;
use self::reset::through_reset;
use self::unread::{Unread, wanted};
use super::budget::{Item, Share};
use super::dma::{Dma, Finished};
use super::interrupts::Interrupts;
use super::limits::RAISE_DESCRIPTORS;
use super::link::Link;
use super::no_host::NoHost;
use super::regions::Regions;
use super::stalls::Stalls;
use crate::endpoint::msix::Msix;
use crate::endpoint::{DmaPort, Endpoint, InterruptPort, ResetKind, is_bus_master};
use crate::vfio_user::wire::capabilities::Capabilities;
use crate::vfio_user::wire::header::{Command, Header, Kind};
use crate::vfio_user::wire::polling::{events, poll_until};
use crate::vfio_user::wire::reader::{Ended, Reader};
use crate::vfio_user::wire::socket::{Lost, Socket};
use crate::vfio_user::wire::version::{DEFAULT_TRANSFER_BYTES, Version};

/// Bytes that a body may have: enough for a write of as much as one transfer may move, with its address.
const BODY_BYTES: usize = 32 + DEFAULT_TRANSFER_BYTES as usize;

/// How long a client may take to send its version.
const VERSION_PATIENCE: Duration = Duration::from_secs(5);
/// How long it may take to send the rest of a message, and to read what is sent to it.
const MESSAGE_PATIENCE: Duration = Duration::from_secs(30);

/// A client being served. Dropping it leaves the endpoint clean.
pub(crate) struct Session {
    endpoint: Arc<dyn Endpoint>,
    link: Arc<Link>,
    reader: Reader,
    stalls: Arc<Stalls>,
    share: Arc<Share>,
    interrupts: Arc<Interrupts>,
    msix: Option<Msix>,
    regions: Regions,
    dma_bits: u8,
    /// `None` until the version message.
    open: Option<Open>,
    /// A buffer for the data of region reads.
    scratch: Vec<u8>,
    /// The log says that this process has no free descriptors.
    has_told_none_free: bool,
}

/// What exists once a version is agreed on.
struct Open {
    dma: Arc<Dma>,
    descriptors: u64,
}

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The server ends, or sending failed.
    Stopped,
    /// The client has closed the connection, or sent a size that no message has.
    Wire(Ended),
    /// The client has broken the protocol, or was late.
    Client(&'static str),
}

impl Session {
    pub(crate) fn new(
        socket: Socket,
        endpoint: Arc<dyn Endpoint>,
        stalls: Arc<Stalls>,
        share: Arc<Share>,
    ) -> Result<Self, Errno> {
        let link = Arc::new(Link::new(socket, Arc::clone(&share))?);
        let layout = endpoint.layout();
        let msix = Msix::find(&*endpoint).unwrap_or_else(|error| {
            log::warn!("A served function has no MSI-X: {error}");
            None
        });
        let dma_bits = layout.dma_bits;
        let regions = Regions::new(Arc::clone(&endpoint), layout, msix);
        let interrupts = Arc::new(Interrupts::new(Arc::clone(&link), Arc::clone(&share)));
        Ok(Session {
            endpoint,
            link,
            reader: Reader::new(BODY_BYTES),
            stalls,
            share,
            interrupts,
            msix,
            regions,
            dma_bits,
            open: None,
            scratch: Vec::new(),
            has_told_none_free: false,
        })
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    pub(crate) fn interrupts(&self) -> &Arc<Interrupts> {
        &self.interrupts
    }

    /// Serves until the client leaves, or is disconnected.
    pub(crate) fn run(&mut self) -> End {
        self.interrupts.signals().adopt();
        let begin = Instant::now();
        loop {
            let deadline = self.open.is_none().then(|| begin + VERSION_PATIENCE);
            let served = self.next_message(deadline).and_then(|header| self.serve(&header));
            if let Err(end) = served {
                return end;
            }
        }
    }

    /// Waits for a whole message. Meanwhile raises interrupts, sends what waits to be sent, and checks all deadlines.
    fn next_message(&mut self, deadline: Option<Instant>) -> Result<Header, End> {
        let mut amid_since: Option<Instant> = None;
        let mut unread = Unread::default();
        loop {
            self.interrupts.signals().deliver();
            if self.link.is_stopped() {
                return Err(End::Stopped);
            }
            if !self.link.socket.closer().wait_for_room() {
                return Err(End::Client("closing the descriptors it sent takes too long"));
            }
            let now = Instant::now();
            amid_since = self.reader.is_amid().then(|| amid_since.unwrap_or(now));
            let waiting = self.link.waiting();
            let unread_since = unread.since(waiting, now);
            let dma = self.open.as_ref().and_then(|open| open.dma.deadline());
            let limits = [
                (deadline, "it did not send its version in time"),
                (amid_since.map(|since| since + MESSAGE_PATIENCE), "it did not send the rest of a message in time"),
                (unread_since.map(|since| since + MESSAGE_PATIENCE), "it does not read its replies"),
                (dma, "it does not reply to requests for its memory"),
            ];
            if let Some((_, why)) = limits.iter().find(|(limit, _)| limit.is_some_and(|limit| limit <= now)) {
                return Err(End::Client(why));
            }
            let next = limits.iter().filter_map(|(limit, _)| *limit).min();
            let limit = if waiting == 0 { u64::MAX } else { self.share.limit(Item::Buffered) };
            let mut polled = [
                PollFd::new(self.link.socket.as_fd(), wanted(waiting, limit)),
                PollFd::new(self.link.wake().as_fd(), PollFlags::POLLIN),
            ];
            poll_until(&mut polled, next).map_err(|errno| End::Wire(Ended::Failed(errno)))?;
            let [socket, wake] = polled.map(|descriptor| events(&descriptor));
            if !wake.is_empty() {
                self.link.wake().clear();
                self.interrupts.signals().deliver();
            }
            if socket.contains(PollFlags::POLLOUT) && self.link.flush().is_err() {
                return Err(End::Stopped);
            }
            // What a client sent before it hung up is read, even if replies are unread.
            if socket.intersects(PollFlags::POLLIN.union(PollFlags::POLLHUP).union(PollFlags::POLLERR))
                && let Some(header) = self.reader.advance(&self.link.socket).map_err(End::Wire)?
            {
                return Ok(header);
            }
        }
    }

    /// Answers one message.
    fn serve(&mut self, header: &Header) -> Result<(), End> {
        match header.kind() {
            Some(Kind::Command) => {}
            Some(Kind::Reply) => return self.take_reply(header),
            None => return Err(End::Client("it sent a message of unknown type")),
        }
        let descriptors = self.reader.take_descriptors();
        let command = Command::from_number(header.command);
        if self.open.is_none() {
            // The first message must be a version.
            if command != Some(Command::Version) {
                self.send(header, Err(Errno::EINVAL))?;
                return Err(End::Client("its first message is not its version"));
            }
            let agreed = if descriptors.is_empty() { self.agree() } else { Err(Errno::EINVAL) };
            let refused = agreed.is_err();
            self.send(header, agreed)?;
            return if refused { Err(End::Client("its version is not supported")) } else { Ok(()) };
        }
        match command {
            Some(Command::RegionRead) => self.region_read(header, descriptors),
            Some(Command::RegionWrite) => self.region_write(header, descriptors),
            _ => {
                let reply = self.answer(command, descriptors);
                self.send(header, reply)
            }
        }
    }

    /// Agrees on a version (section "`VFIO_USER_VERSION`"), and connects the endpoint's ports.
    fn agree(&mut self) -> Result<Reply, Errno> {
        let proposed = Version::decode(self.reader.body()).ok_or(Errno::EINVAL)?;
        if proposed.major != Version::MAJOR {
            return Err(Errno::EPROTONOSUPPORT);
        }
        let client = Capabilities::decode(proposed.data).ok_or(Errno::EINVAL)?;
        let answer = client.answer(self.share.limit(Item::Mappings));
        let agreed =
            Version { major: Version::MAJOR, minor: proposed.minor.min(Version::MINOR), data: &answer }.encode();
        let (link, stalls, share) = (Arc::clone(&self.link), Arc::clone(&self.stalls), Arc::clone(&self.share));
        let dma = Arc::new(Dma::new(link, stalls, share, self.dma_bits, client.transfer_bytes));
        self.open = Some(Open { dma: Arc::clone(&dma), descriptors: client.descriptors });
        self.endpoint.attach(dma as Arc<dyn DmaPort>, Arc::clone(&self.interrupts) as Arc<dyn InterruptPort>);
        // As the kernel does when it opens a device.
        through_reset(&*self.endpoint, || self.endpoint.reset(ResetKind::Function));
        self.note_bus_master();
        Ok(agreed.into())
    }

    /// Returns the errno for a command whose descriptors are lost. If this process is the cause, the log says so.
    fn lose(&mut self, lost: Lost) -> Errno {
        if lost == Lost::NoneFree && !mem::replace(&mut self.has_told_none_free, true) {
            let name = self.share.name();
            log::warn!("{name}: this process has no free descriptors for those of a client: {RAISE_DESCRIPTORS}");
        }
        lost.errno()
    }

    fn take_reply(&mut self, header: &Header) -> Result<(), End> {
        let unasked = End::Client("it sent a reply to no command");
        drop(self.reader.take_descriptors());
        let open = self.open.as_ref().ok_or(unasked)?;
        for finished in open.dma.answered(header, self.reader.body()).ok_or(unasked)? {
            complete(&*self.endpoint, finished);
        }
        Ok(())
    }

    fn send(&self, header: &Header, reply: Result<Reply, Errno>) -> Result<(), End> {
        if header.is_silent() {
            return Ok(());
        }
        let sent = match &reply {
            Ok(reply) => {
                let memory: Vec<BorrowedFd<'_>> = reply.memory.iter().map(|memory| memory.as_fd()).collect();
                self.link.send(header.reply(reply.body.len()), [&reply.body, &[]], &memory)
            }
            Err(errno) => self.link.send(header.failure(*errno), [&[], &[]], &[]),
        };
        sent.map_err(|_| End::Stopped)
    }

    /// Notes whether the function is bus master now. If not, for instance because it was reset, none of its requests goes on.
    fn note_bus_master(&self) {
        let is_master = is_bus_master(&*self.endpoint);
        self.link.set_master(is_master);
        if !is_master && let Some(open) = &self.open {
            open.dma.cancel().into_iter().for_each(|finished| complete(&*self.endpoint, finished));
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.link.stop();
        if let Some(open) = self.open.take() {
            for finished in open.dma.close() {
                complete(&*self.endpoint, finished);
            }
            if self.link.is_withdrawn() {
                self.interrupts.request_release();
            }
            self.interrupts.disconnect();
            // The next client finds an endpoint that answers.
            through_reset(&*self.endpoint, || self.endpoint.reset(ResetKind::OwnerLost));
            // The ports of this session keep its socket open, which looks as if the card were in use.
            self.endpoint.attach(Arc::new(NoHost), Arc::new(NoHost));
        }
        self.link.socket.shut_down();
    }
}

fn complete(endpoint: &dyn Endpoint, finished: Finished) {
    let Finished { tag, result } = finished;
    endpoint.dma_complete(tag, result.as_deref().map_err(|fault| *fault));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfio_user::server::budget::Limits;
    use crate::vfio_user::server::regions::tests::Kept;
    use crate::vfio_user::wire::closing::Closer;
    use std::os::unix::net::UnixStream;

    pub(super) fn session() -> (Arc<Kept>, Session) {
        let (kept, session, _) = connected();
        (kept, session)
    }

    /// A session, and its client's end of the connection.
    fn connected() -> (Arc<Kept>, Session, UnixStream) {
        let kept = Kept::new();
        let (socket, client) = UnixStream::pair().unwrap();
        let share = Share::alone(Limits::of_process());
        let stalls = Arc::new(Stalls::new("test".into(), Duration::from_secs(1)));
        let session = Session::new(Socket::new(socket, &Closer::new()), kept.clone(), stalls, share);
        (kept, session.unwrap(), client)
    }

    #[test]
    fn a_session_that_was_woken_waits_again() {
        let (_kept, mut session, client) = connected();
        let link = Arc::clone(session.link());
        let thread = std::thread::spawn(move || session.run());
        link.wake().wake();
        let is_raised = || {
            let mut polled = [PollFd::new(link.wake().as_fd(), PollFlags::POLLIN)];
            nix::poll::poll(&mut polled, nix::poll::PollTimeout::ZERO) == Ok(1)
        };
        let begin = Instant::now();
        while is_raised() && begin.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!is_raised(), "the session would not sleep");
        drop(client);
        thread.join().unwrap();
    }

    #[test]
    fn a_function_is_bus_master_if_its_command_register_says_so() {
        let (kept, session) = session();
        for (command, is_master) in
            [(0, false), (2, false), (4, true), (6, true), (0xfffb, false), (0xffff, false), (0, false)]
        {
            kept.config.lock().unwrap()[4..6].copy_from_slice(&u16::to_le_bytes(command));
            session.note_bus_master();
            assert_eq!(session.link.check().is_ok(), is_master, "{command:#x}");
        }
    }
}

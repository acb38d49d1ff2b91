//! The client's end of a connection: commands out, replies in, and the server's requests for memory between them.
//!
//! Whoever waits for a reply reads the socket itself, so that a round trip costs one wake. Of several who wait, one reads
//! for all. While nobody waits, a thread of the connection reads, so that requests are answered and a hang-up is noticed;
//! it steps back as soon as somebody calls, and comes back when it has been quiet for a moment.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};

use super::closing::{Closer, Received};
use super::codec::{Command, DEFAULT_TRANSFER_BYTES, DmaAccess, Header, Kind};
use super::waits::Waits;
use super::wire::{Reader, Sender, Socket, Wake, events, poll_until};
use crate::iommu::InProcessIommu;
use crate::owner::Owner;
use crate::removal::Removal;
use crate::{Iova, Result};

/// Bytes of a reply's body at most.
const BODY_BYTES: usize = 64 + DEFAULT_TRANSFER_BYTES as usize;
/// How long nobody may have called before the thread reads again.
const QUIET: Duration = Duration::from_millis(1);

/// Why a command failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The connection is over.
    Gone,
    /// The server has said no.
    Refused(Errno),
}

/// The reply to a command.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) body: Vec<u8>,
    pub(crate) descriptors: Vec<Received>,
}

/// A connection, shared by those who call on it and its thread.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: Socket,
    sender: Sender,
    /// Taken only by who leads.
    reader: Mutex<Reader>,
    state: Mutex<State>,
    /// A reply has come for another than who reads, or nobody reads any more.
    changed: Condvar,
    /// The connection is over; for the thread.
    over: Condvar,
    /// Wakes the thread.
    wake: Wake,
    removal: Arc<Removal>,
    /// The memory that the server may ask for.
    memory: Arc<InProcessIommu>,
    owner: Owner,
    waits: Waits,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether somebody reads.
    is_led: bool,
    waiting: Vec<Waiting>,
    next_id: u16,
    /// Commands so far.
    calls: u64,
    is_over: bool,
}

/// A command whose reply is awaited.
#[derive(Debug)]
struct Waiting {
    id: u16,
    command: Command,
    reply: Option<std::result::Result<Reply, Errno>>,
}

impl Connection {
    /// Takes over a connected stream. Every wait ends when `waits` says so.
    pub(crate) fn new(stream: UnixStream, memory: Arc<InProcessIommu>, waits: Waits) -> std::io::Result<Arc<Self>> {
        let signal = stream.as_fd().try_clone_to_owned()?;
        let connection = Arc::new(Connection {
            socket: Socket::new(stream, &Closer::new()),
            sender: Sender::new(),
            reader: Mutex::new(Reader::new(BODY_BYTES)),
            state: Mutex::default(),
            changed: Condvar::new(),
            over: Condvar::new(),
            wake: Wake::new()?,
            // A hang-up is told whatever is polled for.
            removal: Arc::new(Removal::signalled_by(signal, PollFlags::empty())),
            memory,
            owner: Owner::current(),
            waits,
            thread: Mutex::default(),
        });
        let theirs = Arc::clone(&connection);
        let thread = thread::Builder::new().name("vfio-user".to_owned()).spawn(move || theirs.read_when_quiet())?;
        *connection.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(connection)
    }

    pub(crate) fn removal(&self) -> &Arc<Removal> {
        &self.removal
    }

    pub(crate) fn waits(&self) -> &Waits {
        &self.waits
    }

    /// Whether this is the process that has the connection.
    pub(crate) fn is_here(&self) -> bool {
        self.owner.is_here()
    }

    /// Fails in a process forked from it.
    #[inline]
    pub(crate) fn check_owner(&self) -> Result<()> {
        self.owner.check()
    }

    /// Sends a command without wanting a reply: what is sent after it is served after it.
    pub(crate) fn post(&self, command: Command, parts: [&[u8]; 2]) -> std::result::Result<(), Failure> {
        self.check()?;
        let mut header = Header::command(0, command, parts[0].len() + parts[1].len());
        header.silence();
        self.send(header, parts, &[], self.waits.deadline(Instant::now()))
    }

    /// Sends a command and waits for its reply.
    pub(crate) fn call(
        &self,
        command: Command,
        parts: [&[u8]; 2],
        descriptors: &[BorrowedFd<'_>],
    ) -> std::result::Result<Reply, Failure> {
        self.check()?;
        let begin = Instant::now();
        let deadline = self.waits.deadline(begin);
        let id = {
            let mut state = self.state();
            if state.is_over {
                return Err(Failure::Gone);
            }
            let mut id = state.next_id;
            while state.waiting.iter().any(|waiting| waiting.id == id) {
                id = id.wrapping_add(1);
            }
            state.next_id = id.wrapping_add(1);
            state.calls += 1;
            state.waiting.push(Waiting { id, command, reply: None });
            id
        };
        let header = Header::command(id, command, parts[0].len() + parts[1].len());
        let replied = self.send(header, parts, descriptors, deadline).and_then(|()| self.wait_for(id, deadline));
        self.waits.note(begin);
        let mut state = self.state();
        state.waiting.retain(|waiting| waiting.id != id);
        replied
    }

    /// Ends the connection, and waits for its thread. A forked child does neither: both are its parent's.
    pub(crate) fn end(&self) {
        if !self.owner.is_here() {
            return;
        }
        self.give_up("it was closed");
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Never from the thread itself, which has no reason to drop a function.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id())
            && thread.join().is_err()
        {
            log::error!("A vfio-user connection's thread has panicked");
        }
    }

    fn check(&self) -> std::result::Result<(), Failure> {
        // A child must neither send nor read on its parent's connection.
        if self.owner.is_here() && !self.removal.is_marked() { Ok(()) } else { Err(Failure::Gone) }
    }

    /// Sends a message, waiting for room as long as it takes, up to `deadline`.
    fn send(
        &self,
        header: Header,
        parts: [&[u8]; 2],
        descriptors: &[BorrowedFd<'_>],
        deadline: Instant,
    ) -> std::result::Result<(), Failure> {
        let gone = |errno: Errno| self.give_up(errno.desc());
        let mut is_left = self.sender.send(&self.socket, header, parts, descriptors).map_err(gone)?;
        while is_left {
            if Instant::now() >= deadline {
                self.waits.end();
                return Err(self.give_up("it does not read"));
            }
            let mut polled = [PollFd::new(self.socket.as_fd(), PollFlags::POLLOUT)];
            poll_until(&mut polled, Some(deadline)).map_err(gone)?;
            is_left = self.sender.flush(&self.socket).map_err(gone)?;
        }
        Ok(())
    }

    fn wait_for(&self, id: u16, deadline: Instant) -> std::result::Result<Reply, Failure> {
        let mut state = self.state();
        loop {
            if let Some(waiting) = state.waiting.iter_mut().find(|waiting| waiting.id == id)
                && let Some(reply) = waiting.reply.take()
            {
                return reply.map_err(Failure::Refused);
            }
            if state.is_over {
                return Err(Failure::Gone);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(state);
                self.waits.end();
                return Err(self.give_up("it did not answer in time"));
            }
            if state.is_led {
                (state, _) = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.is_led = true;
            drop(state);
            self.lead(Some(deadline), || {
                let state = self.state();
                state.is_over || state.waiting.iter().any(|waiting| waiting.id == id && waiting.reply.is_some())
            });
            state = self.stop_leading();
        }
    }

    fn stop_leading(&self) -> MutexGuard<'_, State> {
        let mut state = self.state();
        state.is_led = false;
        self.changed.notify_all();
        state
    }

    /// Reads messages until `deadline`, or until after one of them `is_enough`.
    fn lead(&self, deadline: Option<Instant>, is_enough: impl Fn() -> bool) {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        while !is_enough() && deadline.is_none_or(|deadline| Instant::now() < deadline) {
            let mut polled = [
                PollFd::new(self.socket.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.wake.as_fd(), PollFlags::POLLIN),
            ];
            // Only the thread needs to be woken.
            let polled = if deadline.is_none() { &mut polled[..] } else { &mut polled[..1] };
            if let Err(errno) = poll_until(polled, deadline) {
                self.give_up(errno.desc());
                return;
            }
            if events(&polled[0]).is_empty() {
                continue;
            }
            if !self.socket.closer().wait_for_room() {
                self.give_up("descriptors it sent do not close");
                return;
            }
            match reader.advance(&self.socket) {
                Ok(None) => {}
                Ok(Some(header)) => self.take(&header, &mut reader),
                Err(ended) => {
                    self.give_up(&format!("{ended:?}"));
                    return;
                }
            }
        }
    }

    /// Deals with one message.
    fn take(&self, header: &Header, reader: &mut Reader) {
        let descriptors = reader.take_descriptors();
        match header.kind() {
            Some(Kind::Reply) => {
                let mut state = self.state();
                let waiting =
                    state.waiting.iter_mut().find(|waiting| waiting.id == header.id && waiting.reply.is_none());
                let Some(waiting) = waiting.filter(|waiting| waiting.command as u16 == header.command) else {
                    drop(state);
                    self.give_up("it answered what it was not asked");
                    return;
                };
                waiting.reply = Some(match (header.failed(), descriptors.all()) {
                    (Some(errno), _) => Err(errno),
                    (None, Some(descriptors)) => Ok(Reply { body: reader.body().to_vec(), descriptors }),
                    (None, None) => Err(Errno::EMFILE),
                });
                // It may be another's than who reads now. One alone reads itself, or hears when the thread steps back.
                if state.waiting.len() > 1 {
                    self.changed.notify_all();
                }
            }
            Some(Kind::Command) => {
                let served = self.serve(header, reader.body());
                let deadline = self.waits.deadline(Instant::now());
                let sent = match (served, header.is_silent()) {
                    (_, true) => Ok(()),
                    (Ok((head, data)), false) => {
                        self.send(header.reply(head.len() + data.len()), [&head, &data], &[], deadline)
                    }
                    (Err(errno), false) => self.send(header.failure(errno), [&[], &[]], &[], deadline),
                };
                if sent.is_err() {
                    self.give_up("it does not take answers");
                }
            }
            None => drop(self.give_up("it sent a message of no known kind")),
        }
    }

    /// Answers a request for memory.
    fn serve(&self, header: &Header, body: &[u8]) -> std::result::Result<([u8; DmaAccess::BYTES], Vec<u8>), Errno> {
        let (access, data) = DmaAccess::decode(body).ok_or(Errno::EINVAL)?;
        if access.count > DEFAULT_TRANSFER_BYTES {
            return Err(Errno::EINVAL);
        }
        let count = access.count as usize;
        match Command::from_number(header.command) {
            Some(Command::DmaRead) if data.is_empty() => {
                let mut read = vec![0; count];
                self.memory.read(Iova(access.address), &mut read).map_err(|_| Errno::EFAULT)?;
                Ok((access.encode(), read))
            }
            Some(Command::DmaWrite) if data.len() == count => {
                self.memory.write(Iova(access.address), data).map_err(|_| Errno::EFAULT)?;
                Ok((access.encode(), Vec::new()))
            }
            Some(Command::DmaRead | Command::DmaWrite) => Err(Errno::EINVAL),
            _ => Err(Errno::ENOTSUP),
        }
    }

    /// The thread: reads while nobody else does.
    fn read_when_quiet(&self) {
        let mut state = self.state();
        while !state.is_over {
            let calls = state.calls;
            // Callers do not wake it: that would cost each of them a system call.
            (state, _) = self.over.wait_timeout(state, QUIET).unwrap_or_else(PoisonError::into_inner);
            if state.is_over || state.calls != calls || state.is_led || !state.waiting.is_empty() {
                continue;
            }
            state.is_led = true;
            drop(state);
            self.lead(None, || {
                let state = self.state();
                state.is_over || state.calls != calls && state.waiting.iter().all(|waiting| waiting.reply.is_some())
            });
            state = self.stop_leading();
        }
    }

    /// The connection is of no use any more.
    fn give_up(&self, why: &str) -> Failure {
        let mut state = self.state();
        if !state.is_over {
            state.is_over = true;
            log::debug!("A vfio-user server is given up: {why}");
        }
        drop(state);
        self.removal.mark();
        self.socket.shut_down();
        self.wake.wake();
        self.changed.notify_all();
        self.over.notify_all();
        Failure::Gone
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What became of a command to a function that may be gone: nothing then.
pub(crate) fn unless_gone<T>(result: std::result::Result<T, Failure>, what: &'static str) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Failure::Gone) => Ok(None),
        Err(Failure::Refused(errno)) => Err(refused(what, errno)),
    }
}

/// A refusal as an error.
pub(crate) fn refused(what: &'static str, errno: Errno) -> crate::Error {
    crate::Error::Refused { what, source: errno.into() }
}

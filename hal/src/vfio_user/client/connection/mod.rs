//! The client's end of a connection: sends commands, and receives replies and the server's requests for memory.
//!
//! A caller that waits for a reply reads the socket itself, so a round trip wakes one thread. If several callers wait, one
//! of them leads: it reads for all. While no caller waits, the connection's own thread leads, so that requests are answered
//! and the end of the server is noticed. The thread stops leading after a call, and leads again once no call came for
//! [`QUIET`].

mod ending;
mod posted;
#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};

use self::posted::{FIRST_ID as FIRST_POSTED_ID, Posted, RefusedWrite};
use super::memory;
use super::waits::Waits;
use crate::Result;
use crate::ending::Ending;
use crate::memory::table::FunctionIommu;
use crate::owner::Owner;
use crate::removal::Removal;
use crate::vfio_user::wire::closing::{Closer, Received};
use crate::vfio_user::wire::header::{Command, Header, Kind};
use crate::vfio_user::wire::polling::{Wake, events, poll_until};
use crate::vfio_user::wire::reader::Reader;
use crate::vfio_user::wire::region::RegionAccess;
use crate::vfio_user::wire::sender::{Sender, uncounted};
use crate::vfio_user::wire::socket::{Descriptors, Lost, Socket};
use crate::vfio_user::wire::version::DEFAULT_TRANSFER_BYTES;

/// Bytes of a reply's body at most.
const BODY_BYTES: usize = 64 + DEFAULT_TRANSFER_BYTES as usize;
/// How long without a call until the thread leads again.
const QUIET: Duration = Duration::from_millis(1);
/// How long a reply may still be looked for after its time: if this process was stopped meanwhile, it is there and not read yet.
const GRACE: Duration = Duration::from_millis(50);

/// Why a command failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The connection has ended.
    Gone,
    /// The server replied with this errno.
    Refused(Errno),
    /// Descriptors of the server's reply are lost.
    Descriptors(Lost),
}

/// The reply to a command.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) body: Vec<u8>,
    pub(crate) descriptors: Vec<Received>,
}

/// A connection, shared by its callers and its thread.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Names the server in the log.
    name: String,
    /// Shared with `removal`, which may outlive the connection.
    socket: Arc<Socket>,
    sender: Sender<()>,
    /// Locked only by the thread that leads.
    reader: Mutex<Reader>,
    state: Mutex<State>,
    /// A reply came for a thread that does not lead, or no thread leads any more.
    changed: Condvar,
    /// The connection has ended; for the thread.
    over: Condvar,
    /// Wakes the thread while it leads.
    wake: Wake,
    removal: Arc<Removal>,
    /// The memory that the server may read and write by messages.
    memory: FunctionIommu,
    owner: Owner,
    waits: Waits,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether a thread leads.
    is_led: bool,
    waiting: Vec<Waiting>,
    next_id: u16,
    /// Commands so far.
    calls: u64,
    posted: Posted,
    /// Whether the connection has ended: see [`Connection::ending`].
    is_over: bool,
}

/// A command whose reply has not been taken yet.
#[derive(Debug)]
struct Waiting {
    id: u16,
    command: Command,
    reply: Option<std::result::Result<Reply, Failure>>,
}

impl Connection {
    /// Takes over a stream that is connected to the server `name`. `waits` bounds every wait.
    pub(crate) fn new(
        name: String,
        stream: UnixStream,
        memory: FunctionIommu,
        waits: Waits,
    ) -> std::io::Result<Arc<Self>> {
        let socket = Arc::new(Socket::new(stream, &Closer::new()));
        let signal = Arc::clone(&socket);
        let connection = Arc::new(Connection {
            name,
            socket,
            sender: Sender::new(),
            reader: Mutex::new(Reader::new(BODY_BYTES)),
            state: Mutex::default(),
            changed: Condvar::new(),
            over: Condvar::new(),
            wake: Wake::new()?,
            // Polling always reports that the peer has hung up.
            removal: Arc::new(Removal::signalled_by(signal, PollFlags::empty(), Ending::ServerClosed)),
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

    /// Whether this process opened the connection: a forked child did not.
    pub(crate) fn is_here(&self) -> bool {
        self.owner.is_here()
    }

    /// Fails in a forked child.
    #[inline]
    pub(crate) fn check_owner(&self) -> Result<()> {
        self.owner.check()
    }

    /// Writes to a region, without a reply. The server handles the write before later commands.
    pub(crate) fn post(&self, access: RegionAccess, data: &[u8]) -> std::result::Result<(), Failure> {
        self.check()?;
        let id = self.state().posted.add(access);
        let parts = [&access.encode()[..], data];
        let mut header = Header::command(id, Command::RegionWrite, parts[0].len() + parts[1].len());
        header.silence();
        self.send(header, parts, &[], self.waits.deadline(Instant::now()))
    }

    /// Returns the first refusal of a posted write since the last reset.
    pub(crate) fn refused(&self) -> Option<RefusedWrite> {
        self.state().posted.refused()
    }

    /// Forgets refusals: the function was reset.
    pub(crate) fn forget_refused(&self) {
        self.state().posted.forget_refused();
    }

    /// Returns why the connection has ended. `None`: it has not.
    pub(crate) fn ending(&self) -> Option<Ending> {
        self.removal.ending()
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
            let next = |id| (id + 1) % FIRST_POSTED_ID;
            while state.waiting.iter().any(|waiting| waiting.id == id) {
                id = next(id);
            }
            state.next_id = next(id);
            state.calls += 1;
            state.waiting.push(Waiting { id, command, reply: None });
            id
        };
        let header = Header::command(id, command, parts[0].len() + parts[1].len());
        let replied = self.send(header, parts, descriptors, deadline).and_then(|()| self.wait_for(id, deadline));
        self.waits.note(begin, Instant::now());
        let mut state = self.state();
        state.waiting.retain(|waiting| waiting.id != id);
        replied
    }

    /// Ends the connection, and waits for its thread. In a forked child this has no effect: both belong to the parent.
    pub(crate) fn end(&self) {
        if !self.owner.is_here() {
            return;
        }
        self.give_up(Ending::Closed);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The thread cannot wait for itself, though it has no reason to drop a function.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id())
            && thread.join().is_err()
        {
            log::error!("A vfio-user connection's thread has panicked");
        }
    }

    fn check(&self) -> std::result::Result<(), Failure> {
        // A forked child must not use its parent's connection.
        if self.owner.is_here() && !self.removal.is_marked() { Ok(()) } else { Err(Failure::Gone) }
    }

    /// Sends a message, and waits until `deadline` for the server to read.
    fn send(
        &self,
        header: Header,
        parts: [&[u8]; 2],
        descriptors: &[BorrowedFd<'_>],
        deadline: Instant,
    ) -> std::result::Result<(), Failure> {
        let gone = |errno: Errno| self.give_up(errno.into());
        let mut is_left = self.sender.send(&self.socket, header, parts, descriptors, uncounted).map_err(gone)?;
        while is_left {
            if Instant::now() >= deadline {
                self.waits.end();
                return Err(self.give_up(Ending::fault("does not read its messages")));
            }
            let mut polled = [PollFd::new(self.socket.as_fd(), PollFlags::POLLOUT)];
            poll_until(&mut polled, Some(deadline)).map_err(gone)?;
            is_left = self.sender.flush(&self.socket).map_err(gone)?;
        }
        Ok(())
    }

    fn wait_for(&self, id: u16, mut deadline: Instant) -> std::result::Result<Reply, Failure> {
        let mut state = self.state();
        let mut is_late = false;
        loop {
            if let Some(waiting) = state.waiting.iter_mut().find(|waiting| waiting.id == id)
                && let Some(reply) = waiting.reply.take()
            {
                return reply;
            }
            if state.is_over {
                return Err(Failure::Gone);
            }
            let now = Instant::now();
            if now >= deadline {
                if is_late {
                    drop(state);
                    self.waits.end();
                    return Err(self.give_up(Ending::fault(format_args!(
                        "did not reply in time: the limit of all slow replies is {:?}",
                        self.waits.patience()
                    ))));
                }
                is_late = true;
                deadline = now + GRACE;
            }
            let left = deadline - now;
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

    /// Reads messages until `deadline`, or until `is_enough` after one of them.
    fn lead(&self, deadline: Option<Instant>, is_enough: impl Fn() -> bool) {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |deadline| Instant::now() >= deadline;
        while !is_enough() && !deadline.is_some_and(is_over) {
            let mut polled = [
                PollFd::new(self.socket.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.wake.as_fd(), PollFlags::POLLIN),
            ];
            // Only the thread leads without a deadline, and only it is woken.
            let polled = if deadline.is_none() { &mut polled[..] } else { &mut polled[..1] };
            if let Err(errno) = poll_until(polled, deadline) {
                self.give_up(errno.into());
                return;
            }
            if events(&polled[0]).is_empty() {
                continue;
            }
            if !self.socket.closer().wait_for_room() {
                self.give_up(Ending::fault("sent descriptors that do not close"));
                return;
            }
            match reader.advance(&self.socket) {
                Ok(None) => {}
                Ok(Some(header)) => self.take(&header, &mut reader, deadline),
                Err(ended) => {
                    self.give_up(ended.into());
                    return;
                }
            }
        }
    }

    /// Handles one message. An answer to a request is sent by `deadline`, and within the limit of a command.
    fn take(&self, header: &Header, reader: &mut Reader, deadline: Option<Instant>) {
        let descriptors = reader.take_descriptors();
        let taken = match header.kind() {
            Some(Kind::Reply) => self.take_reply(header, reader.body(), descriptors),
            Some(Kind::Command) => {
                let limit = self.waits.deadline(Instant::now());
                self.answer(header, reader.body(), deadline.map_or(limit, |deadline| deadline.min(limit)));
                Ok(())
            }
            None => Err(Ending::fault(format_args!("sent a message of the unknown type {}", header.flags & 0xf))),
        };
        if let Err(ending) = taken {
            self.give_up(ending);
        }
    }

    fn take_reply(&self, header: &Header, body: &[u8], descriptors: Descriptors) -> std::result::Result<(), Ending> {
        let mut state = self.state();
        if header.command == Command::RegionWrite as u16 && state.posted.replied(header.id, header.failed()) {
            return Ok(());
        }
        let id = header.id;
        let waiting = state.waiting.iter_mut().find(|waiting| waiting.id == id && waiting.reply.is_none());
        let Some(waiting) = waiting else {
            return Err(Ending::fault(format_args!("sent a reply with the id {id}, which no command waits for")));
        };
        if waiting.command as u16 != header.command {
            let (found, asked) = (header.command, waiting.command);
            return Err(Ending::fault(format_args!(
                "replied with the command number {found} to command {} ({asked:?})",
                asked as u16
            )));
        }
        waiting.reply = Some(match (header.failed(), descriptors.all()) {
            (Some(errno), _) => Err(Failure::Refused(errno)),
            (None, Ok(descriptors)) => Ok(Reply { body: body.to_vec(), descriptors }),
            (None, Err(lost)) => Err(Failure::Descriptors(lost)),
        });
        // The reply may be for a thread that does not lead. A single caller leads itself, or is notified when the thread
        // stops leading.
        if state.waiting.len() != 1 {
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Answers a request for memory. If the server does not read the answer until `deadline`, the connection ends.
    fn answer(&self, header: &Header, body: &[u8], deadline: Instant) {
        let served = memory::answer(&self.memory, header, body);
        if header.is_silent() {
            return;
        }
        // A failure has ended the connection.
        let _ = match served {
            Ok((head, data)) => self.send(header.reply(head.len() + data.len()), [&head, &data], &[], deadline),
            Err(errno) => self.send(header.failure(errno), [&[], &[]], &[], deadline),
        };
    }

    /// Runs the thread: leads while no caller does.
    fn read_when_quiet(&self) {
        let mut state = self.state();
        while !state.is_over {
            let calls = state.calls;
            // Callers do not wake the thread: that would cost each of them a system call.
            (state, _) = self.over.wait_timeout(state, QUIET).unwrap_or_else(PoisonError::into_inner);
            // A command that waits is read for by its caller, which may not have come to that yet. The thread would take it
            // for one from before, and not stop at its reply.
            if state.is_led || state.calls != calls || !state.waiting.is_empty() {
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

    /// Ends the connection, unless it has ended before.
    fn give_up(&self, ending: Ending) -> Failure {
        let is_reason = self.removal.mark_because(ending.clone());
        // Who finds the connection over finds the reason.
        self.state().is_over = true;
        self.socket.shut_down();
        self.wake.wake();
        self.changed.notify_all();
        self.over.notify_all();
        if is_reason {
            // While a function is opened, the caller gets the reason.
            let is_told = matches!(ending, Ending::Fault(_)) && self.waits.is_open();
            let level = if is_told { log::Level::Warn } else { log::Level::Debug };
            log::log!(level, "{}: disconnected: {ending}", self.name);
        }
        Failure::Gone
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns `None` if the function is gone, else the reply or the refusal of the command `what`.
pub(crate) fn unless_gone<T>(result: std::result::Result<T, Failure>, what: &'static str) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Failure::Gone) => Ok(None),
        Err(Failure::Refused(errno)) => Err(crate::Error::Refused { what, source: errno.into() }),
        Err(Failure::Descriptors(lost)) => Err(lost.error()),
    }
}

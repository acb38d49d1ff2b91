//! The client's end of a connection: sends commands, and receives replies and the server's requests for memory.
//!
//! A caller that waits for a reply reads the socket itself, so a round trip wakes one thread. If several callers wait, one
//! of them leads: it reads for all. While no caller waits, the connection's own thread leads, so that requests are answered
//! and the end of the server is noticed. The thread stops leading after a call, and leads again once no call came for
//! [`QUIET`].

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};

use super::memory;
use super::waits::Waits;
use crate::Result;
use crate::memory::table::InProcessIommu;
use crate::owner::Owner;
use crate::removal::Removal;
use crate::vfio_user::wire::closing::{Closer, Received};
use crate::vfio_user::wire::header::{Command, Header, Kind};
use crate::vfio_user::wire::polling::{Wake, events, poll_until};
use crate::vfio_user::wire::reader::Reader;
use crate::vfio_user::wire::sender::{Sender, uncounted};
use crate::vfio_user::wire::socket::{Lost, Socket};
use crate::vfio_user::wire::version::DEFAULT_TRANSFER_BYTES;

/// Bytes of a reply's body at most.
const BODY_BYTES: usize = 64 + DEFAULT_TRANSFER_BYTES as usize;
/// How long without a call until the thread leads again.
const QUIET: Duration = Duration::from_millis(1);

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
    socket: Socket,
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
    memory: Arc<InProcessIommu>,
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
    /// Takes over a connected stream. `waits` bounds every wait.
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
            // Polling always reports that the peer has hung up.
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

    /// Whether this process opened the connection: a forked child did not.
    pub(crate) fn is_here(&self) -> bool {
        self.owner.is_here()
    }

    /// Fails in a forked child.
    #[inline]
    pub(crate) fn check_owner(&self) -> Result<()> {
        self.owner.check()
    }

    /// Sends a command that needs no reply. The server handles it before later commands.
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
        self.give_up("it was closed");
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
        let gone = |errno: Errno| self.give_up(errno.desc());
        let mut is_left = self.sender.send(&self.socket, header, parts, descriptors, uncounted).map_err(gone)?;
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
                return reply;
            }
            if state.is_over {
                return Err(Failure::Gone);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(state);
                self.waits.end();
                return Err(self.give_up("it did not reply in time"));
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
                self.give_up(errno.desc());
                return;
            }
            if events(&polled[0]).is_empty() {
                continue;
            }
            if !self.socket.closer().wait_for_room() {
                self.give_up("closing the descriptors it sent takes too long");
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

    /// Handles one message.
    fn take(&self, header: &Header, reader: &mut Reader) {
        let descriptors = reader.take_descriptors();
        match header.kind() {
            Some(Kind::Reply) => {
                let mut state = self.state();
                let waiting =
                    state.waiting.iter_mut().find(|waiting| waiting.id == header.id && waiting.reply.is_none());
                let Some(waiting) = waiting.filter(|waiting| waiting.command as u16 == header.command) else {
                    drop(state);
                    self.give_up("it sent a reply to no command");
                    return;
                };
                waiting.reply = Some(match (header.failed(), descriptors.all()) {
                    (Some(errno), _) => Err(Failure::Refused(errno)),
                    (None, Ok(descriptors)) => Ok(Reply { body: reader.body().to_vec(), descriptors }),
                    (None, Err(lost)) => Err(Failure::Descriptors(lost)),
                });
                // The reply may be for a thread that does not lead. A single caller leads itself, or is notified when the
                // thread stops leading.
                if state.waiting.len() != 1 {
                    self.changed.notify_all();
                }
            }
            Some(Kind::Command) => {
                let served = memory::answer(&self.memory, header, reader.body());
                let deadline = self.waits.deadline(Instant::now());
                let sent = match (served, header.is_silent()) {
                    (_, true) => Ok(()),
                    (Ok((head, data)), false) => {
                        self.send(header.reply(head.len() + data.len()), [&head, &data], &[], deadline)
                    }
                    (Err(errno), false) => self.send(header.failure(errno), [&[], &[]], &[], deadline),
                };
                if sent.is_err() {
                    self.give_up("it does not read replies");
                }
            }
            None => drop(self.give_up("it sent a message of unknown type")),
        }
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

    /// Ends the connection for the reason `why`.
    fn give_up(&self, why: &str) -> Failure {
        let mut state = self.state();
        if !state.is_over {
            state.is_over = true;
            log::debug!("Disconnecting from a vfio-user server: {why}");
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

/// Returns `None` if the function is gone, else the reply or the refusal of the command `what`.
pub(crate) fn unless_gone<T>(result: std::result::Result<T, Failure>, what: &'static str) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Failure::Gone) => Ok(None),
        Err(Failure::Refused(errno)) => Err(crate::Error::Refused { what, source: errno.into() }),
        Err(Failure::Descriptors(lost)) => Err(lost.error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfio_user::client::waits::Slowness;
    use crate::vfio_user::wire::header::HEADER_BYTES;
    use std::io::{Read, Write};
    use std::sync::mpsc::channel;

    /// A limit that no test should reach.
    const LONG: Duration = Duration::from_secs(20);

    /// The server's end.
    struct Peer(UnixStream);

    impl Peer {
        fn receive(&mut self) -> (Header, Vec<u8>) {
            let mut head = [0; HEADER_BYTES];
            self.0.read_exact(&mut head).unwrap();
            let header = Header::decode(&head);
            let mut body = vec![0; header.size as usize - HEADER_BYTES];
            self.0.read_exact(&mut body).unwrap();
            (header, body)
        }

        fn send(&mut self, header: Header, body: &[u8]) {
            // The client may disconnect first.
            let _ = self.0.write_all(&header.encode()).and_then(|()| self.0.write_all(body));
        }
    }

    fn open(patience: Duration) -> (Arc<Connection>, Peer) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_read_timeout(Some(LONG)).unwrap();
        let waits = Waits::new(Arc::<Slowness>::default(), patience, Instant::now());
        (Connection::new(ours, Arc::default(), waits).unwrap(), Peer(theirs))
    }

    fn ask(connection: &Connection) -> std::result::Result<Vec<u8>, Failure> {
        connection.call(Command::GetInfo, [&[1, 2], &[3]], &[]).map(|reply| reply.body)
    }

    /// Returns the outcome of a command whose request `answer` handles.
    fn answered(answer: impl FnOnce(&mut Peer, Header) + Send) -> std::result::Result<Vec<u8>, Failure> {
        let (connection, mut peer) = open(LONG);
        let result = thread::scope(|scope| {
            scope.spawn(|| {
                let (header, body) = peer.receive();
                assert_eq!((header.command, header.flags, body), (Command::GetInfo as u16, 0, vec![1, 2, 3]));
                answer(&mut peer, header);
            });
            ask(&connection)
        });
        assert_eq!(connection.removal().is_marked(), result == Err(Failure::Gone));
        connection.end();
        result
    }

    #[test]
    fn a_command_ends_with_its_own_reply_only() {
        let reply = |header: Header, body: &[u8]| (header.reply(body.len()), body.to_vec());
        let body = [5; 9];
        let of = |change: &(dyn Fn(Header) -> Header + Sync)| {
            answered(|peer, header| {
                let (header, body) = reply(header, &body);
                peer.send(change(header), &body);
            })
        };
        assert_eq!(of(&|header| header), Ok(body.to_vec()));
        let gone = Err(Failure::Gone);
        assert_eq!(of(&|header| Header { id: header.id + 1, ..header }), gone);
        assert_eq!(of(&|header| Header { command: Command::GetRegionInfo as u16, ..header }), gone);
        assert_eq!(of(&|header| Header { flags: 2, ..header }), gone);
        assert_eq!(of(&|header| Header { size: 15, ..header }), gone);
        assert_eq!(of(&|header| Header { flags: 0x21, error: 16, ..header }), Err(Failure::Refused(Errno::EBUSY)));
    }

    #[test]
    fn a_reply_has_a_size_at_most() {
        let most = 64 + (1 << 20);
        let of = |bytes: usize| answered(|peer, header| peer.send(header.reply(bytes), &vec![7; bytes]));
        assert_eq!(of(most).map(|body| body.len()), Ok(most));
        assert_eq!(of(most + 1), Err(Failure::Gone));
    }

    #[test]
    fn a_second_reply_ends_the_connection() {
        let (connection, mut peer) = open(LONG);
        thread::scope(|scope| {
            let asks = scope.spawn(|| ask(&connection));
            let (header, _) = peer.receive();
            peer.send(header.reply(0), &[]);
            assert_eq!(asks.join().unwrap(), Ok(Vec::new()));
        });
        peer.send(Header::command(0, Command::GetInfo, 0).reply(0), &[]);
        // No caller reads, so the connection's thread does.
        let deadline = Instant::now() + LONG;
        while !connection.removal().is_marked() {
            assert!(Instant::now() < deadline);
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(ask(&connection), Err(Failure::Gone));
        assert_eq!(connection.post(Command::Reset, [&[], &[]]), Err(Failure::Gone));
    }

    #[test]
    fn an_id_in_use_is_not_assigned_again() {
        let (connection, mut peer) = open(LONG);
        let waiting = |id| Waiting { id, command: Command::Reset, reply: None };
        let mut state = connection.state();
        state.next_id = u16::MAX;
        state.waiting.extend([waiting(u16::MAX), waiting(0), waiting(2)]);
        drop(state);
        for id in [1, 3, 4] {
            thread::scope(|scope| {
                let asks = scope.spawn(|| ask(&connection));
                let (header, _) = peer.receive();
                assert_eq!(header.id, id);
                peer.send(header.reply(0), &[]);
                assert_eq!(asks.join().unwrap(), Ok(Vec::new()));
            });
            let left: Vec<_> = connection.state().waiting.iter().map(|waiting| waiting.id).collect();
            assert_eq!(left, [u16::MAX, 0, 2], "only its own is over");
        }
        connection.end();
    }

    #[test]
    fn a_caller_that_does_not_lead_gets_its_reply_before_the_leader_does() {
        let (connection, mut peer) = open(LONG * 3);
        for _ in 0..20 {
            thread::scope(|scope| {
                let (ended, done) = channel();
                let reads = scope.spawn(|| ask(&connection));
                let (first, _) = peer.receive();
                let connection = &connection;
                scope.spawn(move || ended.send(ask(connection)).unwrap());
                let (second, _) = peer.receive();
                thread::sleep(Duration::from_millis(2));
                peer.send(second.reply(1), &[2]);
                assert_eq!(done.recv_timeout(LONG), Ok(Ok(vec![2])), "the other is not answered yet");
                peer.send(first.reply(1), &[1]);
                assert_eq!(reads.join().unwrap(), Ok(vec![1]));
            });
        }
        connection.end();
    }

    #[test]
    fn a_caller_that_was_held_up_after_its_command_gets_the_reply() {
        let (connection, mut peer) = open(LONG);
        let mut state = connection.state();
        state.calls += 1;
        state.waiting.push(Waiting { id: 7, command: Command::Reset, reply: None });
        drop(state);
        // Long enough for the thread to lead.
        thread::sleep(QUIET * 30);
        thread::scope(|scope| {
            let waits = scope.spawn(|| connection.wait_for(7, Instant::now() + LONG));
            thread::sleep(QUIET * 30);
            let begin = Instant::now();
            peer.send(Header::command(7, Command::Reset, 0).reply(1), &[3]);
            assert_eq!(waits.join().unwrap().map(|reply| reply.body), Ok(vec![3]));
            assert!(begin.elapsed() < LONG / 2, "the reply was there, and nobody said so");
        });
        connection.end();
    }

    #[test]
    fn a_silent_server_is_given_up_even_after_a_slow_answer() {
        let (connection, mut peer) = open(Duration::from_millis(300));
        connection.waits().opened();
        thread::scope(|scope| {
            scope.spawn(|| {
                let (header, _) = peer.receive();
                // Meanwhile the connection's thread checks whether it must lead.
                thread::sleep(Duration::from_millis(30));
                peer.send(header.reply(0), &[]);
                peer.receive();
            });
            assert_eq!(ask(&connection), Ok(Vec::new()));
            assert!(!connection.waits().were_too_long());
            assert_eq!(ask(&connection), Err(Failure::Gone));
            assert!(connection.waits().were_too_long());
        });
        connection.end();
    }

    #[test]
    fn a_server_that_does_not_read_is_given_up_once_it_is_late() {
        let patience = Duration::from_millis(200);
        let (connection, _peer) = open(patience);
        connection.waits().opened();
        let (begin, data) = (Instant::now(), vec![0; 1 << 20]);
        assert_eq!(connection.post(Command::RegionWrite, [&[], &data]), Err(Failure::Gone));
        assert!(begin.elapsed() >= patience && connection.waits().were_too_long());
        connection.end();
    }

    #[test]
    fn ending_waits_for_the_thread() {
        for _ in 0..50 {
            let (connection, _peer) = open(LONG);
            assert_eq!(Arc::strong_count(&connection), 2);
            connection.end();
            assert_eq!(Arc::strong_count(&connection), 1);
        }
    }
}

//! Endpoints served on sockets.
//!
//! # Threads
//!
//! Each server has an acceptor's thread, each client a session's thread, and descriptors that clients have sent are closed
//! by a thread of their own ([`closing`](super::wire::closing)). When a client connects, the acceptor's thread reads the
//! endpoint's layout and capabilities. From the version message on, only the session's thread calls the endpoint for its
//! client, and completes its DMA. The endpoint calls its ports ([`Dma`](dma::Dma), [`Interrupts`](interrupts::Interrupts))
//! from any thread.
//!
//! # Order of locks
//!
//! A thread that holds a lock takes only locks that are further down:
//!
//! 1. `Dma::queue`: the requests that wait for a client.
//! 2. `Dma::table`: what a client has mapped. Copies hold it for reading.
//! 3. `Sender::queue`, `Stalls::state`, and of `Interrupts` the vectors, the line, its charge, the error and the request
//!    descriptor: none of these while holding another of them.
//! 4. `Signals::due`: the descriptors to raise.
//! 5. `Share::used`, then `Budget::state`: what is counted.
//!
//! `Signals::writing` and `Closer::queue` are taken alone.
//!
//! **No lock is held over a call of the endpoint.** The endpoint's threads may hold its own locks when they call a port. So
//! ports neither call the endpoint nor wait for a client: a DMA request is copied or queued, and an interrupt is noted. The
//! session's thread does what may take long, and only this client waits for that thread.

mod acceptor;
mod budget;
mod client_memory;
mod dma;
mod interrupts;
mod limits;
mod link;
mod no_host;
mod regions;
mod session;
mod signals;
mod socket_path;
mod stalls;

use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use self::acceptor::Acceptor;
use self::budget::Member;
pub use self::budget::{Budget, Limits};
use self::socket_path::SocketPath;
use self::stalls::Stalls;
use crate::endpoint::Endpoint;
use crate::vfio_user::wire::closing::Closer;
use crate::vfio_user::wire::polling::Wake;
use crate::{Error, Result, in_process};

/// How long a client may take to reply to a request for its memory. Meanwhile the other clients of a fabric wait, with
/// timeouts of some seconds of their own.
const DMA_PATIENCE: Duration = Duration::from_secs(1);

/// How long ending may take: endpoints return promptly, and nothing else is waited for.
const ENDING: Duration = Duration::from_secs(5);

/// An endpoint and its socket, before it is served.
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
    /// Creates the socket `path` for `endpoint`, with mode 0600 from the start.
    ///
    /// The directory must exist, and only this user and root may be able to replace a component of its path: each directory
    /// and symbolic link belongs to one of them, and a directory that others can write to is sticky. A stale socket is
    /// replaced. Fails if the socket is being served, if `path` is another kind of file, or if the endpoint's layout is
    /// invalid.
    pub fn bind(path: impl AsRef<Path>, endpoint: Arc<dyn Endpoint>) -> Result<Self> {
        in_process::check_layout(&endpoint.layout())?;
        let path = path.as_ref();
        let failed = |source: io::Error| Error::Socket { action: "serve", path: path.to_owned(), source };
        let (listener, path) = socket_path::make(path).map_err(failed)?;
        Ok(Server { listener, path, endpoint: ServedEndpoint(endpoint), dma_patience: DMA_PATIENCE, budget: None })
    }

    /// Sets how long a client may take to reply to all messages of a DMA request: `patience`, by default 1 s, and as much
    /// again for each MiB of the request. After that the request fails, and the client is disconnected. Up to 1 s that the
    /// server waits for the endpoint after a reset is not the client's time.
    ///
    /// A request is slow if it takes more than a tenth of `patience`, without that wait. If the slow requests of all clients of this endpoint
    /// take three times `patience` in total, less a tenth of the time since, DMA by message fails at once for 30 times
    /// `patience`. DMA to memory that a client has passed as a file continues.
    #[must_use]
    pub fn with_dma_patience(mut self, patience: Duration) -> Self {
        self.dma_patience = patience;
        self
    }

    /// Shares `budget` with other servers of this process, so that it bounds what all their clients hold. By default each
    /// server has a budget of its own, with the limits of [`Limits::of_process`].
    #[must_use]
    pub fn with_budget(mut self, budget: &Arc<Budget>) -> Self {
        self.budget = Some(Arc::clone(budget));
        self
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        self.path.path()
    }

    /// Serves clients, one at a time, on its own threads until the result is dropped.
    pub fn spawn(self) -> Result<Serving> {
        let Server { listener, mut path, endpoint, dma_patience, budget } = self;
        // A child that its parent forked after `bind` serves the socket, and so removes it.
        path.own();
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
            has_told: false,
            _ended: ended,
        };
        let thread = thread::Builder::new().name("vfio-user".to_owned()).spawn(move || acceptor.run());
        let thread = Some(thread.map_err(failed)?);
        Ok(Serving { path, wake, stopped, thread, done: Mutex::new(done) })
    }
}

/// An endpoint being served. Dropping it disconnects the client, removes the socket and ends the threads, within seconds. In a
/// forked child, which has none of the threads, dropping it changes nothing.
#[derive(Debug)]
pub struct Serving {
    path: SocketPath,
    wake: Arc<Wake>,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Disconnected when the thread ends; nothing is sent.
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
        if !self.path.is_here() {
            // This process does not have the thread, so nothing may join or detach it.
            std::mem::forget(self.thread.take());
            return;
        }
        self.stopped.store(true, Ordering::Release);
        self.wake.wake();
        // So that no clients connect meanwhile.
        self.path.remove();
        let Some(thread) = self.thread.take() else { return };
        let done = self.done.get_mut().unwrap_or_else(PoisonError::into_inner);
        if done.recv_timeout(ENDING) == Err(RecvTimeoutError::Timeout) {
            log::error!(
                "The server of {} does not end, since a call of its endpoint does not return",
                self.path.path().display()
            );
        } else if thread.join().is_err() {
            log::error!("The server of {} has panicked", self.path.path().display());
        }
    }
}

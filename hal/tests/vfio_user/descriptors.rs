//! Descriptors that take long to close, and the limits of what clients hold.

use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fpga_hal::Domain;
use fpga_hal::vfio_user::{Budget, Limits, Options, Server, connect_with};
use nix::libc::linger;
use nix::sys::socket::{setsockopt, sockopt};

use crate::card::{self, Card};
use crate::raw::*;
use crate::setting::{Directory, QUICK, Served, counter, memory, pattern};

/// How long a [`Lingering`] socket takes to close, in seconds.
const LINGER: i32 = 120;

/// A socket whose last descriptor takes [`LINGER`] to close, since its peer does not read what is left to send.
struct Lingering {
    socket: TcpStream,
    _peer: TcpStream,
}

impl Lingering {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        while std::io::Write::write(&mut &socket, &[1; 1 << 16]).is_ok() {}
        setsockopt(&socket, sockopt::Linger, &linger { l_onoff: 1, l_linger: LINGER }).unwrap();
        Lingering { socket, _peer: peer }
    }

    /// Sends it with a message that is read, so that the server has the last descriptor. Returns the peer, to be kept open.
    fn send(self, raw: &Raw, bytes: &[u8]) -> TcpStream {
        self.send_beside(raw, bytes, &[])
    }

    fn send_beside(self, raw: &Raw, bytes: &[u8], others: &[BorrowedFd<'_>]) -> TcpStream {
        let descriptors: Vec<_> = others.iter().copied().chain([self.socket.as_fd()]).collect();
        // The server keeps it until the message is whole.
        raw.send_with(&bytes[..1], &descriptors).unwrap();
        drop(self.socket);
        raw.send(&bytes[1..]).unwrap();
        self._peer
    }

    /// Sends it with a message that nobody reads. The server closes it last, or a thread that nobody waits for.
    fn send_unread(self, raw: &Raw, bytes: &[u8]) -> TcpStream {
        raw.send_with(bytes, &[self.socket.as_fd()]).unwrap();
        thread::spawn(move || drop(self.socket));
        self._peer
    }
}

/// The time limit for what must not wait for such a socket.
const PROMPT: Duration = Duration::from_secs(LINGER as u64 / 2);

#[test]
fn descriptors_that_do_not_close_delay_neither_session_nor_acceptor() {
    let served = Served::new();
    let begin = Instant::now();
    let mut raw = Raw::open(served.path());
    let mut peers = Vec::new();
    // The wrong kind, an unexpected one, and one too many.
    for body in [message(1, DMA_MAP, 0, &map(3, 0, 0x1000, 0x1000)), message(2, GET_INFO, 0, &four(16, 0, 0, 0))] {
        peers.push(Lingering::new().send(&raw, &body));
        assert_eq!(raw.receive().unwrap().errno(), EINVAL);
    }
    let event = counter();
    let connect = message(3, SET_IRQS, 0, &set_irqs(0x24, 2, 0, 16, &[]));
    peers.push(Lingering::new().send_beside(&raw, &connect, &[event.as_fd(); 20]));
    assert_eq!(raw.receive().unwrap().errno(), EINVAL);
    assert_eq!(raw.read_u32(0, card::ID), card::ID_VALUE);
    // With a message of a refused client, and with one that nobody reads.
    let second = Raw::connect(served.path());
    peers.push(Lingering::new().send_unread(&second, &message(4, VERSION, 0, &version())));
    assert_eq!(second.receive().unwrap().errno(), EBUSY);
    peers.push(Lingering::new().send(&raw, &message(5, REGION_WRITE, 0, &access(0, 0, 64, &[0; 64]))[..40]));
    let third = Raw::connect(served.path());
    peers.push(Lingering::new().send_unread(&third, &[1; 5]));
    third.expect_end();
    drop(raw);
    let mut next = Raw::open(served.path());
    assert_eq!(next.read_u32(0, card::ID), card::ID_VALUE);
    drop(next);
    drop(served);
    assert!(begin.elapsed() < PROMPT, "{:?}", begin.elapsed());
}

#[test]
fn a_client_whose_descriptors_do_not_close_is_disconnected() {
    let (served, neighbour) = (Served::new(), Served::new());
    let raw = Raw::open(served.path());
    let mut peers = Vec::new();
    let mut sent = 0;
    loop {
        peers.push(Lingering::new().send(&raw, &message(1, GET_INFO, 0, &four(16, 0, 0, 0))));
        if raw.receive().is_none() {
            break;
        }
        sent += 1;
        assert!(sent < 1000, "any number of descriptors may wait to be closed");
    }
    assert!(sent > 16);
    drop(raw);
    assert_eq!(Raw::open(neighbour.path()).read_u32(0, card::ID), card::ID_VALUE);
    // Once their peers have closed, they close at once, and the next client is accepted.
    drop(peers);
    assert_eq!(Raw::open(served.path()).read_u32(0, card::ID), card::ID_VALUE);
}

#[test]
fn an_interrupt_that_outlives_its_function_is_dropped_at_once() {
    let (served, directory, lingering) = (Served::new(), Directory::new(), Lingering::new());
    let front = directory.0.join("front");
    let listener = UnixListener::bind(&front).unwrap();
    let is_last = AtomicBool::new(false);
    // After the last reply it sends a message of no size, which ends the connection, and the descriptor, which nobody
    // reads. `None`: the client had ended the connection before the descriptor.
    let relay = || {
        let client = Raw::over(listener.accept().unwrap().0);
        let server = Raw::over(UnixStream::connect(served.path()).unwrap());
        loop {
            let command = client.receive().unwrap();
            let passed: Vec<_> = command.descriptors.iter().map(AsFd::as_fd).collect();
            server.send_with(&message(command.id, command.command, command.flags, &command.body), &passed).unwrap();
            if command.flags & NO_REPLY == 0 {
                let reply = server.receive().unwrap();
                assert_eq!(reply.errno(), 0);
                let bytes = message(reply.id, reply.command, reply.flags, &reply.body);
                if is_last.load(Ordering::Relaxed) {
                    client.send(&[&bytes[..], &[0; 16]].concat()).unwrap();
                    return client.send_with(&[0], &[lingering.socket.as_fd()]).ok().map(|()| client);
                }
                client.send(&bytes).unwrap();
            }
        }
    };
    let open = || {
        thread::scope(|scope| {
            is_last.store(false, Ordering::Relaxed);
            let relaying = scope.spawn(relay);
            let mut options = Options::default();
            (options.share_memory, options.map_bars) = (false, false);
            let function = connect_with(&front, &Domain::vfio_user(), &options).unwrap();
            let interrupts = function.enable_interrupts(1).unwrap();
            is_last.store(true, Ordering::Relaxed);
            function.config_read_u16(0).unwrap();
            relaying.join().unwrap().map(|client| (function, interrupts, client))
        })
    };
    let (function, interrupts, _client) = (0..1000).find_map(|_| open()).expect("an unread descriptor");
    let begin = Instant::now();
    while !function.is_removed() {
        assert!(begin.elapsed() < PROMPT, "the message of no size ends the connection");
        thread::sleep(Duration::from_millis(1));
    }
    // From here on, only the unread message has the descriptor.
    drop(lingering.socket);
    drop(function);
    thread::sleep(QUICK);
    let begin = Instant::now();
    drop(interrupts);
    assert!(begin.elapsed() < PROMPT, "{:?}", begin.elapsed());
}

/// Two cards whose clients share `limits`.
fn pair(limits: Limits) -> (Directory, [(Arc<Card>, std::path::PathBuf, fpga_hal::vfio_user::Serving); 2]) {
    let (directory, budget) = (Directory::new(), Budget::new(limits));
    let served = [0, 1].map(|node| {
        let (card, path) = (Card::new(), directory.0.join(node.to_string()));
        let server = Server::bind(&path, card.clone()).unwrap().with_budget(&budget);
        let server = server.with_dma_patience(Duration::from_secs(20));
        (card, path, server.spawn().unwrap())
    });
    (directory, served)
}

/// Returns how often `more` succeeds, and then its error.
fn until_refused(mut more: impl FnMut(u64) -> u32) -> (u64, u32) {
    (0..1000).find_map(|count| Some((count, more(count))).filter(|(_, errno)| *errno != 0)).expect("a limit")
}

#[test]
fn clients_of_one_budget_have_equal_shares_of_mappings() {
    let (_directory, served) = pair(Limits { mappings: 20, ..Limits::of_process() });
    for (_, path, _) in &served {
        let mut raw = Raw::connect(path);
        let reply = raw.call(VERSION, &body().u16(0).u16(1).bytes(b"{\"capabilities\":{\"max_dma_maps\":99}}\0").0);
        assert_eq!(&reply.body[4..], b"{\"capabilities\":{\"max_dma_maps\":10}}\0");
        let (maps, errno) = until_refused(|at| raw.call(DMA_MAP, &map(3, 0, at * 4096, 4096)).errno());
        assert_eq!((maps, errno), (10, 28));
        assert_eq!(raw.call(DMA_UNMAP, &unmap(0, 0, 4096)).errno(), 0);
        assert_eq!(raw.call(DMA_MAP, &map(3, 0, 1 << 30, 4096)).errno(), 0);
        // Stays connected beside the next client.
        std::mem::forget(raw);
    }
}

#[test]
fn address_space_files_and_descriptors_have_limits() {
    let limits = Limits { address_space: 8 << 20, files: 8, descriptors: 12, ..Limits::of_process() };
    let (_directory, served) = pair(limits);
    let (card, path, _) = &served[0];
    let mut raw = Raw::open(path);
    raw.enable();
    let pass = |raw: &mut Raw, at: u64, bytes: u64, sealed| {
        raw.call_with(DMA_MAP, &map(3, 0, at << 24, 4096), &[memory(bytes, sealed).as_fd()]).errno()
    };
    assert_eq!(pass(&mut raw, 0, 5 << 20, true), 12, "address space");
    assert_eq!(until_refused(|at| pass(&mut raw, at, 4096, true)), (4, 12));
    assert_eq!(until_refused(|at| pass(&mut raw, 100 + at, 4096, false)), (6, 24));
    let event = counter();
    let connect = set_irqs(0x24, 2, 0, 1, &[]);
    assert_eq!(raw.call_with(SET_IRQS, &connect, &[event.as_fd()]).errno(), 24);
    assert_eq!(raw.call(DMA_UNMAP, &unmap(2, 0, 0)).errno(), 0);
    assert_eq!(raw.call_with(SET_IRQS, &connect, &[event.as_fd()]).errno(), 0);
    assert_eq!(until_refused(|at| pass(&mut raw, at, 4096, false)), (5, 24), "beside an interrupt");
    // The neighbour still has its share, and the next client gets what this one had.
    let mut other = Raw::open(&served[1].1);
    assert_eq!(until_refused(|at| pass(&mut other, at, 4096, true)), (4, 12));
    drop(raw);
    let lost = &card.owners_lost;
    card.wait("cleaning up", |_| lost.load(Ordering::Relaxed) == 1);
    let mut raw = Raw::open(path);
    assert_eq!(until_refused(|at| pass(&mut raw, at, 4096, false)), (6, 24));
}

#[test]
fn a_sparse_file_is_charged_to_its_client() {
    // More than one client may have, although none of its pages exists.
    let (_directory, served) = pair(Limits { memory: 4 << 20, ..Limits::of_process() });
    let (card, path, _) = &served[0];
    let mut raw = Raw::open(path);
    raw.enable();
    let (small, sparse) = (memory(1 << 20, true), memory(1 << 40, true));
    assert_eq!(raw.call_with(DMA_MAP, &map(3, 0, 0, 1 << 20), &[small.as_fd()]).errno(), 0);
    assert_eq!(raw.call_with(DMA_MAP, &map(3, 0, 1 << 40, 1 << 40), &[sparse.as_fd()]).errno(), 0);
    assert_eq!(card.dma_write(0, &pattern(1, 4096)), fpga_hal::endpoint::DmaProgress::Done(Ok(())));
    // The card writes to it by messages.
    raw.write(0, card::SOURCE, &0u64.to_le_bytes());
    raw.write(0, card::TARGET, &(1u64 << 40).to_le_bytes());
    raw.write_u32(0, card::BYTES, 4096);
    raw.send(&message(1, REGION_WRITE, NO_REPLY, &access(0, card::DOORBELL, 4, &[0; 4]))).unwrap();
    let asked = raw.receive().unwrap();
    assert_eq!((asked.command, asked.u64(0), asked.u64(8)), (DMA_WRITE, 1 << 40, 4096));
    assert_eq!(nix::sys::stat::fstat(&sparse).unwrap().st_blocks, 0);
}

/// Sends commands, and reads no reply.
fn leave_unread(raw: &Raw, commands: u16, command: u16, body: &[u8]) {
    for id in 0..commands {
        // The server may have disconnected.
        let _ = raw.send(&message(id, command, 0, body));
    }
}

/// Waits for the server to disconnect its first client, which has read nothing.
fn expect_disconnected(card: &Card, raw: &Raw) {
    card.wait("disconnecting", |card| card.owners_lost.load(Ordering::Relaxed) == 1);
    raw.expect_end();
}

#[test]
fn replies_that_are_not_read_have_a_limit_over_all_cards() {
    let large = access(2, 0, card::BAR2_BYTES as u32, &[]);
    for (buffered, is_served) in [(100 << 10, false), (1 << 20, true)] {
        let (_directory, served) = pair(Limits { buffered, ..Limits::of_process() });
        let (card, path, _) = &served[0];
        let mut raw = Raw::open(path);
        // A reply that is read may be larger than the share.
        for _ in 0..20 {
            assert_eq!(raw.read(2, 0, card::BAR2_BYTES as u32).len() as u64, card::BAR2_BYTES);
        }
        leave_unread(&raw, 100, REGION_READ, &large);
        if is_served {
            // The server stops reading in time.
            (0..100).for_each(|id| assert_eq!(raw.receive().unwrap().id, id));
            assert_eq!(raw.read_u32(0, card::ID), card::ID_VALUE);
        } else {
            expect_disconnected(card, &raw);
        }
        assert_eq!(Raw::open(&served[1].1).read_u32(0, card::ID), card::ID_VALUE);
    }
}

#[test]
fn descriptors_in_replies_that_are_not_read_have_a_limit() {
    let (_directory, served) = pair(Limits { descriptors: 20, ..Limits::of_process() });
    let (card, path, _) = &served[0];
    let raw = Raw::open(path);
    leave_unread(&raw, 20, REGION_READ, &access(2, 0, card::BAR2_BYTES as u32, &[]));
    leave_unread(&raw, 20, GET_REGION_INFO, &region_info(32, 2));
    expect_disconnected(card, &raw);
    assert_eq!(Raw::open(&served[1].1).read_u32(0, card::ID), card::ID_VALUE);
}

#[test]
fn dma_that_waits_for_replies_has_a_limit_over_all_cards() {
    use fpga_hal::endpoint::{DmaFault, DmaProgress};
    let (_directory, served) = pair(Limits { buffered: 2 << 20, ..Limits::of_process() });
    let clients = [0, 1].map(|node: usize| {
        let mut raw = Raw::open(&served[node].1);
        raw.enable();
        assert_eq!(raw.call(DMA_MAP, &map(3, 0, 0, 1 << 30)).errno(), 0);
        raw
    });
    let data = vec![1; 1 << 20];
    let gone = DmaProgress::Done(Err(DmaFault::HostGone));
    for (card, ..) in &served {
        assert_eq!(card.dma_write(0, &data[..data.len() - 256]), DmaProgress::Pending);
    }
    assert_eq!(served[0].0.dma_write(0, &data[..257]), gone);
    clients[0].expect_end();
    assert_eq!(served[1].0.dma_write(0, &data[..100]), DmaProgress::Pending);
}

#[test]
fn the_socket_of_a_busy_server_is_not_replaced() {
    use nix::errno::Errno;
    use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket};
    use std::os::fd::AsRawFd;
    let directory = Directory::new();
    let path = directory.0.join("card");
    let address = UnixAddr::new(&path).unwrap();
    let stream = |flags| socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
    let listener = stream(SockFlag::empty());
    bind(listener.as_raw_fd(), &address).unwrap();
    listen(&listener, Backlog::new(0).unwrap()).unwrap();
    let mut waiting = Vec::new();
    loop {
        let client = stream(SockFlag::SOCK_NONBLOCK);
        match connect(client.as_raw_fd(), &address) {
            Ok(()) => waiting.push(client),
            Err(errno) => break assert_eq!(errno, Errno::EAGAIN),
        }
    }
    let (ended, done) = std::sync::mpsc::channel();
    thread::spawn(move || drop(ended.send(Server::bind(&path, Card::new()).map(drop).unwrap_err())));
    let error = done.recv_timeout(PROMPT).expect("an error although the server does not accept");
    let source = std::error::Error::source(&error).unwrap().downcast_ref::<std::io::Error>().unwrap();
    assert_eq!(source.raw_os_error(), Some(98), "{error:?}");
}

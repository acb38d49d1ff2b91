//! The client with the server, and with servers that break the protocol.

use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fpga_hal::vfio_user::{Options, Server, connect, connect_with};
use fpga_hal::{
    BarIndex, BusKind, DmaBuffer, Domain, Error, Function, Interrupt, InterruptKind, Iova, ResetOutcome, Window,
};

use crate::card::{self, Card};
use crate::raw::*;
use crate::setting::{Directory, Served, pattern};

fn bar(index: u8) -> BarIndex {
    BarIndex::new(index).unwrap()
}

/// A function in use.
pub struct Used {
    pub function: Function,
    pub registers: Window,
    pub interrupts: Vec<Interrupt>,
    pub buffer: Arc<DmaBuffer>,
}

impl Used {
    pub fn new(path: &std::path::Path, options: &Options) -> fpga_hal::Result<Self> {
        let domain = Domain::vfio_user();
        let function = connect_with(path, &domain, options)?;
        Self::of(function, &domain)
    }

    pub fn of(function: Function, domain: &Domain) -> fpga_hal::Result<Self> {
        let registers = function.window(bar(0))?;
        let buffer = domain.allocate(1 << 20, 1)?;
        function.set_bus_master(true)?;
        let interrupts = function.enable_interrupts(4)?;
        Ok(Used { function, registers, interrupts, buffer })
    }

    /// Copies by the card's engine, waits for the interrupt, and returns the status register.
    pub fn copy(&self, source: u64, target: u64, bytes: u32, vector: u16) -> fpga_hal::Result<u32> {
        self.registers.write_u64(card::SOURCE, source)?;
        self.registers.write_u64(card::TARGET, target)?;
        self.registers.write_u32(card::BYTES, bytes)?;
        self.registers.write_u32(card::DOORBELL, u32::from(vector))?;
        if !self.interrupts[usize::from(vector)].wait(Duration::from_secs(20))? {
            panic!("no interrupt: done {}", self.registers.read_u32(card::DONE)?);
        }
        self.function.check_alive(self.registers.read_u32(card::STATUS)?)
    }

    /// Copies random bytes, and checks them.
    pub fn check(&self, seed: u64, bytes: usize) -> fpga_hal::Result<()> {
        let data = pattern(seed, bytes);
        let (from, to) = (seed as usize % 100, 500_000 + seed as usize % 77);
        self.buffer.write(from, &data)?;
        let base = self.buffer.iova().0;
        let status = self.copy(base + from as u64, base + to as u64, bytes as u32, (seed % 4) as u16)?;
        assert_eq!(status, 1);
        let mut read = vec![0; bytes];
        self.buffer.read(to, &mut read)?;
        assert!(read == data, "{bytes} bytes");
        Ok(())
    }
}

fn options(change: impl FnOnce(&mut Options)) -> Options {
    let mut options = Options::default();
    change(&mut options);
    options
}

#[test]
fn a_served_function_is_used_as_any_other() {
    let served = Served::new();
    for by_message in [false, true] {
        let options = options(|options| (options.share_memory, options.map_bars) = (!by_message, !by_message));
        let used = Used::new(served.path(), &options).unwrap();
        let function = &used.function;
        assert_eq!(function.bus(), BusKind::VfioUser);
        assert_eq!(function.identity().name, format!("vfio-user:{}", served.path().display()));
        assert_eq!((function.identity().vendor, function.identity().device), (0x10ee, 0x5020));
        assert_eq!(function.bar(bar(0)).map(|layout| (layout.bytes, layout.is_64_bit)), Some((4096, false)));
        let memory = function.bar(bar(2)).unwrap();
        assert_eq!((memory.bytes, memory.is_64_bit, memory.prefetchable), (1 << 16, true, true));
        assert!(function.bar(bar(1)).is_none());
        assert_eq!(used.registers.read_u32(card::ID).unwrap(), card::ID_VALUE);
        used.registers.write_u64(card::SCRATCH, 0x1122_3344_5566_7788).unwrap();
        assert_eq!(used.registers.read_u32(card::SCRATCH + 4).unwrap(), 0x1122_3344);
        let lent = function.window(bar(2)).unwrap();
        assert_eq!((lent.is_mapped(), used.registers.is_mapped()), (!by_message, false));
        lent.write_u32(0x100, 0xfeed).unwrap();
        lent.read_u32(0x100).unwrap();
        let mut seen = [0; 4];
        served.card.memory().read(0x100, &mut seen).unwrap();
        assert_eq!(u32::from_le_bytes(seen), 0xfeed);
        for (seed, bytes) in [1usize, 8, 64, 4096, 130_000, 400_000].into_iter().enumerate() {
            used.check(seed as u64, bytes).unwrap();
        }
        // The card reports an unmapped address, and nothing else happens.
        assert_eq!(used.copy(0x7fff_0000_0000, used.buffer.iova().0, 64, 0).unwrap(), 2);
        assert_eq!(function.vectors(InterruptKind::Msix).unwrap(), card::VECTORS);
        assert_eq!(function.enable_interrupts(card::VECTORS).unwrap().len(), usize::from(card::VECTORS));
        assert!(matches!(function.enable_interrupts(card::VECTORS + 1), Err(Error::VectorCount { .. })));
        assert_eq!(function.opening_reset(), ResetOutcome::Function);
        assert_eq!(function.reset().unwrap(), ResetOutcome::Function);
        assert_eq!((served.card.msix_control() & 0x8000, served.card.command()), (0, 2));
        let again = Used::of(function.clone(), function.domain()).unwrap();
        again.check(9, 5000).unwrap();
        drop((used, lent, again));
        served.wait_for_end(1 + u64::from(by_message));
        assert_eq!(served.card.command(), 0);
    }
}

#[test]
fn the_intx_line_of_a_served_function_is_used_as_any_other() {
    let served = Served::new();
    let domain = Domain::vfio_user();
    let function = connect(served.path(), &domain).unwrap();
    let registers = function.window(bar(0)).unwrap();
    let line = function.enable_interrupts_of(InterruptKind::Intx, 1).unwrap().pop().unwrap();
    for _ in 0..50 {
        registers.write_u32(card::LINE, 1).unwrap();
        assert!(line.wait(Duration::from_secs(20)).unwrap());
        registers.write_u32(card::LINE, 0).unwrap();
        function.unmask_intx().unwrap();
    }
    assert!(!line.wait(Duration::from_millis(20)).unwrap());
}

#[test]
fn functions_of_a_domain_share_its_buffers() {
    let (one, two) = (Served::new(), Served::new());
    let domain = Domain::vfio_user();
    let first = Used::of(connect(one.path(), &domain).unwrap(), &domain).unwrap();
    // Memory that exists already is mapped at the second.
    let second = Used::of(connect(two.path(), &domain).unwrap(), &domain).unwrap();
    assert_eq!(domain.mappings(), 2);
    let (a, b) = (first.buffer.iova().0, second.buffer.iova().0);
    first.buffer.write(0, b"from one to the other").unwrap();
    assert_eq!(second.copy(a, b, 21, 0).unwrap(), 1);
    let mut read = [0; 21];
    second.buffer.read(0, &mut read).unwrap();
    assert_eq!(&read, b"from one to the other");
    // A freed buffer is unmapped at both.
    let Used { buffer, .. } = first;
    drop(buffer);
    assert_eq!(second.copy(a, b, 21, 0).unwrap(), 2);
    assert_eq!(
        two.card.dma_read(a, &mut [0; 4]),
        fpga_hal::endpoint::DmaProgress::Done(Err(fpga_hal::endpoint::DmaFault::Unmapped { iova: Iova(a) }))
    );
    // When one function's server ends, the other works on, with new buffers as well.
    let mut one = one;
    drop(one.serving.take());
    let more = domain.allocate(8192, 1).unwrap();
    assert_eq!(second.copy(b, more.iova().0, 4096, 1).unwrap(), 1);
    assert!(matches!(connect(two.path(), &domain), Err(Error::Busy { .. })));
    assert!(matches!(connect(two.path(), &Domain::in_process()), Err(Error::DomainKind { .. })));
}

#[test]
fn buffers_of_one_function_are_not_mapped_for_others() {
    let served = [(); 2].map(|()| Served::new());
    let domain = Domain::vfio_user();
    let [first, second] =
        served.each_ref().map(|one| Used::of(connect(one.path(), &domain).unwrap(), &domain).unwrap());
    let alone = second.function.private_domain().allocate(4096, 1).unwrap();
    assert_eq!([&first, &second].map(|used| used.function.reaches(&alone)), [false, true]);
    alone.write(0, b"of the second").unwrap();
    let (from, to) = (alone.iova().0, second.buffer.iova().0);
    assert_eq!(second.copy(from, to, 13, 0).unwrap(), 1);
    assert_eq!(first.copy(from, to, 13, 0).unwrap(), 2, "the first has no mapping there");
    // A function that comes later is not told of it either.
    let third = Served::new();
    let late = Used::of(connect(third.path(), &domain).unwrap(), &domain).unwrap();
    assert_eq!(late.copy(from, to, 13, 0).unwrap(), 2);
    assert_eq!(late.copy(to, late.buffer.iova().0, 13, 0).unwrap(), 1);
    let mut read = [0; 13];
    late.buffer.read(0, &mut read).unwrap();
    assert_eq!(&read, b"of the second");
    drop(alone);
    assert_eq!(second.copy(from, to, 13, 0).unwrap(), 2);
}

#[test]
fn a_second_client_gets_the_error_that_the_card_is_busy() {
    let served = Served::new();
    let used = Used::new(served.path(), &Options::default()).unwrap();
    for _ in 0..20 {
        let error = connect(served.path(), &Domain::vfio_user()).unwrap_err();
        assert!(matches!(&error, Error::Busy { path } if path == served.path()), "{error:?}");
    }
    used.check(1, 1000).unwrap();
    drop(used);
    for _ in 0..20 {
        Used::new(served.path(), &Options::default()).unwrap().check(2, 1000).unwrap();
    }
    let error = connect(&served.path().with_extension("none"), &Domain::vfio_user()).unwrap_err();
    assert!(matches!(&error, Error::Socket { source, .. } if source.kind() == std::io::ErrorKind::NotFound));
}

#[test]
fn many_threads_use_one_connection() {
    let served = Served::new();
    let used = Used::new(served.path(), &options(|options| options.map_bars = false)).unwrap();
    let lent = used.function.window(bar(2)).unwrap();
    thread::scope(|scope| {
        for thread in 0..8u64 {
            let lent = lent.clone();
            scope.spawn(move || {
                for round in 0..400u32 {
                    lent.write_u32(thread * 8, round).unwrap();
                    assert_eq!(lent.read_u32(thread * 8).unwrap(), round);
                    if round % 64 == 0 {
                        // Longer than the connection's thread waits before it leads again.
                        thread::sleep(Duration::from_millis(3));
                    }
                }
            });
        }
        let domain = used.function.domain().clone();
        scope.spawn(move || {
            for _ in 0..60 {
                drop(domain.allocate(4096, 1).unwrap());
            }
        });
        for seed in 0..40 {
            used.check(seed, 3000).unwrap();
        }
    });
}

#[test]
fn a_function_whose_server_ends_is_removed_everywhere() {
    for sleeping in [false, true] {
        let mut served = Served::new();
        let used = Used::new(served.path(), &Options::default()).unwrap();
        let lent = used.function.window(bar(2)).unwrap();
        let begin = Instant::now();
        let serving = served.serving.take();
        if sleeping {
            thread::scope(|scope| {
                let sleeper = scope.spawn(|| used.interrupts[1].wait(Duration::from_secs(60)));
                thread::sleep(Duration::from_millis(50));
                drop(serving);
                assert!(matches!(sleeper.join().unwrap(), Err(Error::Removed { .. })));
            });
        } else {
            drop(serving);
        }
        assert!(used.function.is_removed());
        assert_eq!(used.registers.read_u32(card::ID).unwrap(), u32::MAX);
        assert!(matches!(used.function.check_alive(u32::MAX), Err(Error::Removed { .. })));
        // Writes have no effect, in configuration space as in a BAR.
        used.registers.write_u32(card::SCRATCH, 1).unwrap();
        used.function.config_write_u16(4, 6).unwrap();
        used.function.config_write_u32(0x3c, 0).unwrap();
        assert_eq!(used.function.config_read_u32(0).unwrap(), u32::MAX);
        assert!(used.function.window(bar(0)).is_ok());
        assert!(matches!(used.function.set_bus_master(true), Err(Error::Removed { .. })));
        assert!(matches!(used.function.vectors(InterruptKind::Msi), Ok(0) | Err(Error::Removed { .. })));
        assert!(matches!(used.function.reset(), Err(Error::Removed { .. })));
        assert!(matches!(used.function.enable_interrupts(1), Err(Error::Removed { .. })));
        assert!(matches!(used.interrupts[0].wait(Duration::from_secs(60)), Err(Error::Removed { .. })));
        // Mapped memory reads as all-ones, and accepts writes.
        assert_eq!(lent.read_u32(0).unwrap(), u32::MAX);
        lent.write_u32(0, 1).unwrap();
        used.buffer.write(0, b"kept").unwrap();
        drop((lent, used));
        assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
    }
}

#[test]
fn a_server_ends_during_transfers() {
    for round in 0..10 {
        let mut served = Served::new();
        let by_message = round % 2 == 1;
        let used = Used::new(served.path(), &options(|options| options.share_memory = !by_message)).unwrap();
        let serving = served.serving.take();
        let begin = Instant::now();
        thread::scope(|scope| {
            scope.spawn(move || {
                thread::sleep(Duration::from_millis(3 + round));
                drop(serving);
            });
            let error = (0..).find_map(|seed| used.check(seed, 100_000).err()).unwrap();
            assert!(matches!(error, Error::Removed { .. }), "{error:?}");
        });
        drop(used);
        assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    }
}

/// Opens a function whose server replies correctly to `before` commands, calls `what` with the next, and then replies to
/// none. Returns why the function could not be opened. If it was opened, checks that it is removed.
fn with_bad_server(before: usize, what: impl Fn(&UnixStream, &[u8]) + Send + 'static) -> Option<Error> {
    let directory = Directory::new();
    let (front, back) = (directory.0.join("front"), directory.0.join("back"));
    let serving = Server::bind(&back, Card::new()).unwrap().spawn().unwrap();
    let listener = UnixListener::bind(&front).unwrap();
    let relay = thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let (client, server) = (Raw::over(client), Raw::over(UnixStream::connect(&back).unwrap()));
        for _ in 0..before {
            let Some(command) = client.receive() else { return };
            let bytes = message(command.id, command.command, command.flags, &command.body);
            server.send(&bytes).unwrap();
            if command.flags & NO_REPLY != 0 {
                continue;
            }
            let reply = server.receive().unwrap();
            let mut bytes = message(reply.id, reply.command, reply.flags, &reply.body);
            bytes[12..16].copy_from_slice(&reply.error.to_ne_bytes());
            let _ = client.send(&bytes);
        }
        let Some(command) = client.receive() else { return };
        let bytes = message(command.id, command.command, command.flags, &command.body);
        what(&client.stream, &bytes);
        // No reply to later commands.
        while client.receive().is_some() {}
    });
    let options = options(|options| options.patience = Duration::from_millis(300));
    let opened = connect_with(&front, &Domain::vfio_user(), &options);
    let begin = Instant::now();
    if let Ok(function) = &opened {
        // The next command gets no reply, or an incorrect one.
        let _ = function.config_read_u32(0);
        assert!(function.is_removed() || matches!(function.reset(), Err(Error::Removed { .. })));
    }
    let error = opened.map(drop).err();
    assert!(begin.elapsed() < Duration::from_secs(20));
    relay.join().unwrap();
    drop(serving);
    error
}

#[test]
fn a_server_that_breaks_the_protocol_is_disconnected() {
    use std::io::Write;
    let (mut cases, mut opened) = (0, 0);
    // Opening sends more than twenty commands. Each of them in turn gets an incorrect reply, and then some of an open function.
    for before in 0..27 {
        // Silence takes the whole limit.
        for bad in usize::from(before % 4 != 0)..7 {
            let begin = Instant::now();
            let error = with_bad_server(before, move |mut stream, command| {
                let mut reply = command[..16].to_vec();
                reply[8] = 1;
                let _ = match bad {
                    // No reply; the end; half a header and the end.
                    0 => Ok(()),
                    1 => stream.shutdown(std::net::Shutdown::Both),
                    2 => stream.write_all(&reply[..7]).and_then(|()| stream.shutdown(std::net::Shutdown::Both)),
                    // A reply without its body; a reply to another command; a reply with an invalid size.
                    3 => {
                        reply[4..8].copy_from_slice(&16u32.to_ne_bytes());
                        stream.write_all(&reply)
                    }
                    4 => {
                        reply[0] ^= 0x55;
                        reply[4..8].copy_from_slice(&16u32.to_ne_bytes());
                        stream.write_all(&reply)
                    }
                    5 => {
                        reply[4..8].copy_from_slice(&0xffff_fff0u32.to_ne_bytes());
                        stream.write_all(&reply)
                    }
                    // An error with errno zero, as some servers send.
                    _ => {
                        reply[4..8].copy_from_slice(&16u32.to_ne_bytes());
                        reply[8] = 0x21;
                        stream.write_all(&reply)
                    }
                };
            });
            let is_expected = match &error {
                None => true,
                Some(Error::Unresponsive { .. }) => matches!(bad, 0 | 3 | 6),
                // The end may be seen by the reader, or by the next command.
                Some(Error::Removed { .. }) => matches!(bad, 1 | 2),
                Some(Error::Socket { .. }) => matches!(bad, 1 | 2 | 4 | 5),
                Some(Error::Nonsense { .. }) => bad == 3,
                Some(Error::Refused { .. }) => bad == 6,
                Some(_) => false,
            };
            assert!(is_expected, "reply {bad} to command {before}: {error:?}");
            opened += usize::from(error.is_none());
            assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
            cases += 1;
        }
    }
    println!("{cases} incorrect replies, {opened} of them after opening");
    assert!(0 < opened && opened < cases, "{opened} of {cases} after opening");
}

/// A function without reset: something of its last user may still run.
#[test]
fn a_function_without_reset_is_opened_only_on_request() {
    let directory = Directory::new();
    let (front, back) = (directory.0.join("front"), directory.0.join("back"));
    let _serving = Server::bind(&back, Card::new()).unwrap().spawn().unwrap();
    let listener = UnixListener::bind(&front).unwrap();
    let relay = |command: &Reply, server: &Raw| {
        assert_ne!(command.command, RESET, "no reset may be sent");
        server.send(&message(command.id, command.command, command.flags, &command.body)).unwrap();
        if command.flags & NO_REPLY != 0 {
            return None;
        }
        let mut reply = server.receive().unwrap();
        if command.command == GET_INFO {
            // VFIO_DEVICE_FLAGS_RESET, after argsz.
            reply.body[4] &= !1;
        }
        let mut bytes = message(reply.id, reply.command, reply.flags, &reply.body);
        bytes[12..16].copy_from_slice(&reply.error.to_ne_bytes());
        Some(bytes)
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..2 {
                let client = Raw::over(listener.accept().unwrap().0);
                let server = Raw::over(UnixStream::connect(&back).unwrap());
                while let Some(command) = client.receive() {
                    if let Some(bytes) = relay(&command, &server) {
                        let _ = client.send(&bytes);
                    }
                }
            }
        });
        let open = |without_reset| {
            let options = options(|options| {
                (options.share_memory, options.map_bars, options.without_reset) = (false, false, without_reset);
            });
            connect_with(&front, &Domain::vfio_user(), &options)
        };
        assert!(matches!(open(false), Err(Error::NotReset)));
        let function = open(true).unwrap();
        assert_eq!(function.opening_reset(), ResetOutcome::None);
        assert!(matches!(function.reset(), Err(Error::NoReset)));
    });
}

#[test]
fn a_server_reads_and_writes_only_mapped_memory() {
    let directory = Directory::new();
    let (front, back) = (directory.0.join("front"), directory.0.join("back"));
    let card = Card::new();
    let _serving = Server::bind(&back, card.clone()).unwrap().spawn().unwrap();
    let listener = UnixListener::bind(&front).unwrap();
    thread::scope(|scope| {
        let relay = scope.spawn(|| {
            let client = Raw::over(listener.accept().unwrap().0);
            let server = Raw::over(UnixStream::connect(&back).unwrap());
            let mut maps = 0;
            let mut base = 0;
            while maps == 0 {
                let command = client.receive().unwrap();
                maps += usize::from(command.command == DMA_MAP);
                if command.command == DMA_MAP {
                    base = command.u64(16);
                }
                server.send(&message(command.id, command.command, command.flags, &command.body)).unwrap();
                if command.flags & NO_REPLY == 0 {
                    let reply = server.receive().unwrap();
                    client.send(&message(reply.id, reply.command, reply.flags, &reply.body)).unwrap();
                }
            }
            // Without a call, the connection's own thread replies.
            let mut client = client;
            let mut ask = |command, address: u64, count: u64, data: &[u8]| {
                client.call(command, &body().u64(address).u64(count).bytes(data).0)
            };
            assert_eq!(ask(DMA_WRITE, base + 4, 5, b"hello").errno(), 0);
            let read = ask(DMA_READ, base, 12, &[]);
            assert_eq!((read.errno(), &read.body[16..]), (0, &b"\0\0\0\0hello\0\0\0"[..]));
            for (command, address, count, bytes) in [
                (DMA_READ, base - 1, 4, 0),
                (DMA_READ, base + 8190, 4, 0),
                (DMA_READ, base, u64::MAX, 0),
                (DMA_READ, base, (1 << 20) + 1, 0),
                (DMA_READ, base, 4, 4),
                (DMA_WRITE, base + 8190, 4, 4),
                (DMA_WRITE, base, 4, 5),
                (DMA_WRITE, base, 5, 4),
                (DMA_WRITE, u64::MAX, 4, 4),
                (RESET, 0, 0, 0),
                (77, 0, 0, 0),
            ] {
                assert_ne!(ask(command, address, count, &vec![1; bytes]).errno(), 0, "{command} {address:#x} {count}");
            }
        });
        let domain = Domain::vfio_user();
        let options = options(|options| (options.share_memory, options.map_bars) = (false, false));
        let function = connect_with(&front, &domain, &options).unwrap();
        let buffer = domain.allocate(8192, 1).unwrap();
        relay.join().unwrap();
        let mut data = [0; 9];
        buffer.read(0, &mut data).unwrap();
        assert_eq!(&data, b"\0\0\0\0hello");
        // The relay has ended, and with it the server.
        assert!(function.is_removed());
    });
}

//! Meetings of threads, and what strangers may send.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use cmdseq::text::is_harmful;
use fpga_driver::{Peers, PeersError};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::exit::{Exit, Failure};
use crate::meeting::address::Address;
use crate::meeting::frame::{End, EndKind, Frame, GREETING_MAX, VERSION};
use crate::meeting::hub::Hub;
use crate::meeting::meet;
use crate::meeting::part::{MeetError, Part};
use crate::meeting::stream::Listener;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn part(directory: &TempDir, rank: u32, of: u32) -> Part {
    let address = Address::Unix(directory.path().join("meet"));
    Part { rank, of, address, timeout: PATIENCE, stop: Arc::new(AtomicBool::new(false)) }
}

/// Runs the ranks of a job, each on a thread.
fn job<T: Send>(of: u32, rank: impl Fn(Box<dyn Peers>) -> T + Sync) -> Vec<T> {
    let directory = tempfile::tempdir().unwrap();
    let (rank, directory) = (&rank, &directory);
    thread::scope(|scope| {
        let run = |number| scope.spawn(move || rank(meet(&part(directory, number, of)).unwrap()));
        let ranks: Vec<_> = (0..of).map(run).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn all_have_what_each_has_sent() {
    for of in [2, 3, 8] {
        let all = job(of, |mut peers| {
            let rank = peers.rank();
            assert_eq!(peers.size(), of);
            for round in 0..20_u32 {
                // Up to a hundred KiB, more than a socket holds.
                let own = vec![rank as u8; (rank * round * 1000) as usize];
                let expected: Vec<Vec<u8>> =
                    (0..of).map(|rank| vec![rank as u8; (rank * round * 1000) as usize]).collect();
                assert_eq!(peers.allgather(&own, PATIENCE).unwrap(), expected);
            }
            peers
        });
        assert_eq!(all.len(), of as usize);
    }
}

fn wait_for_raised(peers: &mut dyn Peers) -> u32 {
    let began = Instant::now();
    loop {
        if let Some(rank) = peers.raised() {
            return rank;
        }
        assert!(began.elapsed() < PATIENCE, "nobody has raised");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn who_raises_is_known_until_the_next_exchange() {
    for raising in 0..3 {
        job(3, |mut peers| {
            for _ in 0..2 {
                assert_eq!(peers.raised(), None);
                // All have looked.
                peers.allgather(b"", PATIENCE).unwrap();
                if peers.rank() == raising {
                    peers.raise();
                } else {
                    assert_eq!(wait_for_raised(&mut *peers), raising);
                }
                peers.allgather(b"", PATIENCE).unwrap();
            }
        });
    }
}

#[test]
fn a_rank_that_leaves_is_named_by_all() {
    for leaving in 0..3 {
        job(3, |mut peers| {
            peers.allgather(b"all are here", PATIENCE).unwrap();
            if peers.rank() == leaving {
                return;
            }
            assert_eq!(wait_for_raised(&mut *peers), leaving);
            for _ in 0..2 {
                let error = peers.allgather(b"", PATIENCE).unwrap_err();
                assert!(matches!(error, PeersError::Gone { rank, .. } if rank == leaving), "{error}");
            }
        });
    }
}

#[test]
fn a_rank_that_is_late_is_named_by_all() {
    job(3, |mut peers| {
        if peers.rank() == 2 {
            // Until the others have given up.
            assert_eq!(wait_for_raised(&mut *peers), 2);
            return;
        }
        let error = peers.allgather(b"", Duration::from_millis(300)).unwrap_err();
        assert!(matches!(error, PeersError::Late { rank: 2, .. }), "{error}");
    });
}

#[test]
fn more_data_than_a_frame_holds_is_refused() {
    job(2, |mut peers| {
        let data = vec![0; if peers.rank() == 1 { (4 << 20) + 1 } else { 4 << 20 }];
        let error = peers.allgather(&data, PATIENCE).unwrap_err();
        // Rank 0 only sees that the other has left.
        assert!(matches!(error, PeersError::Malformed { rank: 1, .. } | PeersError::Gone { rank: 1, .. }), "{error}");
    });
}

/// Connects as soon as rank 0 listens.
fn connect(path: &Path) -> UnixStream {
    let began = Instant::now();
    loop {
        match UnixStream::connect(path) {
            Ok(stream) => return stream,
            Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// What rank `rank` of `of` sends first.
fn greeting(rank: u32, of: u32) -> Vec<u8> {
    Frame::Hello { version: VERSION, program: env!("CARGO_PKG_VERSION").to_owned(), rank, of }.encode()
}

#[test]
fn ranks_that_all_come_at_once_are_all_taken_in() {
    let directory = tempfile::tempdir().unwrap();
    let part = part(&directory, 0, 101);
    let listener = Listener::bind(&part).unwrap();
    let path = directory.path().join("meet");
    // All of them wait before the first is accepted.
    let _silent: Vec<UnixStream> = (0..20).map(|_| connect(&path)).collect();
    let come = |rank| {
        let mut stream = connect(&path);
        stream.write_all(&greeting(rank, 101)).unwrap();
        stream
    };
    let ranks: Vec<UnixStream> = (1..101).map(come).collect();
    let hub = Hub::meet_at(&listener, &part, Instant::now()).unwrap();
    for mut rank in ranks {
        let mut welcome = Frame::Welcome.encode();
        welcome.fill(0xff);
        rank.read_exact(&mut welcome).unwrap();
        assert_eq!(welcome, Frame::Welcome.encode());
    }
    drop(hub);
}

#[test]
fn silent_strangers_keep_no_rank_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("meet");
    thread::scope(|scope| {
        let rank_0 = scope.spawn(|| meet(&part(&directory, 0, 2)).map(drop));
        let _silent: Vec<UnixStream> = (0..200).map(|_| connect(&path)).collect();
        meet(&part(&directory, 1, 2)).map(drop).unwrap();
        rank_0.join().unwrap().unwrap();
    });
}

/// Listens where ranks meet. Nothing waits there.
fn listen(directory: &TempDir) -> UnixListener {
    let listener = UnixListener::bind(directory.path().join("meet")).unwrap();
    listener.set_nonblocking(true).unwrap();
    listener
}

/// Accepts whoever has connected, if anybody has.
fn accepted(listener: &UnixListener) -> Option<UnixStream> {
    match listener.accept() {
        Ok((stream, _)) => {
            stream.set_nonblocking(false).unwrap();
            Some(stream)
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
            None
        }
    }
}

/// Accepts the next connection of a rank.
fn accept<T>(listener: &UnixListener, rank: &ScopedJoinHandle<'_, T>) -> UnixStream {
    let began = Instant::now();
    loop {
        if let Some(stream) = accepted(listener) {
            return stream;
        }
        assert!(!rank.is_finished(), "the rank has ended, and does not connect");
        assert!(began.elapsed() < PATIENCE, "the rank does not connect");
        thread::sleep(Duration::from_millis(1));
    }
}

/// What rank 1 of 2 has of a rank 0 that drops `lost` connections, and sends `frame` on the next.
fn met_by(lost: usize, frame: &Frame) -> Result<(), MeetError> {
    let directory = tempfile::tempdir().unwrap();
    let listener = listen(&directory);
    thread::scope(|scope| {
        let rank_1 = scope.spawn(|| meet(&part(&directory, 1, 2)).map(drop));
        for _ in 0..lost {
            drop(accept(&listener, &rank_1));
        }
        let mut stream = accept(&listener, &rank_1);
        let mut hello = greeting(1, 2);
        stream.read_exact(&mut hello).unwrap();
        assert_eq!(hello, greeting(1, 2));
        stream.write_all(&frame.encode()).unwrap();
        rank_1.join().unwrap()
    })
}

#[test]
fn a_rank_that_is_dropped_before_all_have_come_connects_again() {
    met_by(3, &Frame::Welcome).unwrap();
}

/// Somebody listens, and drops the rank each time.
#[test]
fn a_rank_that_is_dropped_until_the_time_is_over_was_not_met() {
    let directory = tempfile::tempdir().unwrap();
    let listener = listen(&directory);
    thread::scope(|scope| {
        let part = Part { timeout: Duration::from_millis(200), ..part(&directory, 1, 2) };
        let expected = format!("rank 0 was not met at {} within 200.0ms", part.address);
        let rank_1 = scope.spawn(move || meet(&part).map(drop));
        while !rank_1.is_finished() {
            drop(accepted(&listener));
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(rank_1.join().unwrap().unwrap_err().to_string(), expected);
    });
}

#[test]
fn an_interrupt_of_rank_0_ends_those_who_have_come() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("meet");
    let part = part(&directory, 0, 3);
    thread::scope(|scope| {
        let rank_0 = scope.spawn(|| meet(&part).map(drop));
        let mut rank_1 = connect(&path);
        rank_1.write_all(&greeting(1, 3)).unwrap();
        // Who comes later is dropped: rank 1 has been taken in before.
        let mut stranger = connect(&path);
        stranger.write_all(b"no frame").unwrap();
        let _ = stranger.read_to_end(&mut Vec::new());
        part.stop.store(true, Ordering::Relaxed);
        let mut told = Vec::new();
        rank_1.read_to_end(&mut told).unwrap();
        let why = "it was interrupted".to_owned();
        assert_eq!(told, Frame::End(End { rank: 0, kind: EndKind::Gone, why }).encode());
        assert!(matches!(rank_0.join().unwrap(), Err(MeetError::Interrupted)));
    });
}

#[test]
fn an_end_names_a_rank_of_the_job_unless_it_is_refused() {
    let why = || "no".to_owned();
    for (rank, kind, expected) in [
        (0, EndKind::Gone, "Rank 0 is gone: no"),
        (2, EndKind::Gone, "a frame out of order"),
        (u32::MAX, EndKind::Late(1), "a frame out of order"),
        (2, EndKind::Refused, "rank 2: no"),
    ] {
        let error = met_by(0, &Frame::End(End { rank, kind, why: why() })).unwrap_err();
        let source = std::error::Error::source(&error).map_or(String::new(), ToString::to_string);
        assert!(format!("{error}: {source}").contains(expected), "{rank} {kind:?}: {error}: {source}");
    }
}

/// What rank 0 of 3 ends with if these greet it.
fn refused(greetings: &[Frame]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("meet");
    thread::scope(|scope| {
        let rank_0 = scope.spawn(|| meet(&part(&directory, 0, 3)).map(drop));
        let mut streams = Vec::new();
        for greeting in greetings {
            let mut stream = connect(&path);
            stream.write_all(&greeting.encode()).unwrap();
            streams.push(stream);
        }
        let error = rank_0.join().unwrap().unwrap_err();
        assert!(!path.exists(), "the socket is left");
        error.to_string()
    })
}

#[test]
fn a_rank_of_another_job_or_version_is_refused_by_name() {
    let own = env!("CARGO_PKG_VERSION");
    let hello = |version, program: &str, rank, of| Frame::Hello { version, program: program.to_owned(), rank, of };
    let good = |rank| hello(VERSION, own, rank, 3);
    for (greetings, expected) in [
        (vec![hello(VERSION, own, 1, 4)], "rank 1: it has --of 4, and rank 0 has --of 3"),
        (vec![good(1), good(1)], "rank 1: two processes have --rank 1"),
        (vec![good(3)], "rank 3: its rank is none of 1 to 2"),
        (vec![good(0)], "rank 0: its rank is none of 1 to 2"),
        (vec![hello(VERSION, "9.9.9", 2, 3)], &format!("rank 2: it is fpgactl 9.9.9, and rank 0 is fpgactl {own}")),
        (
            vec![hello(VERSION, "9\x1b]0;owned\x07\nfpgactl: verified", 2, 3)],
            &format!(
                "rank 2: it is fpgactl 9\u{fffd}]0;owned\u{fffd}\u{fffd}fpgactl: verified, and rank 0 is fpgactl {own}"
            ),
        ),
        (
            vec![hello(VERSION, "9\u{202e}9", 2, 3)],
            &format!("rank 2: it is fpgactl 9\u{fffd}9, and rank 0 is fpgactl {own}"),
        ),
        (
            vec![hello(VERSION + 1, own, 2, 3)],
            &format!(
                "rank 2: its meeting protocol is of version {}, and that of rank 0 of version {VERSION}",
                VERSION + 1
            ),
        ),
    ] {
        assert_eq!(refused(&greetings), expected);
    }
}

#[test]
fn who_never_comes_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let alone = |rank| Part { timeout: Duration::from_millis(200), ..part(&directory, rank, 3) };
    let error = meet(&alone(0)).unwrap_err();
    assert!(matches!(error, MeetError::Missing { rank: 1, .. }), "{error}");
    let error = meet(&alone(2)).unwrap_err();
    assert!(matches!(error, MeetError::Connect { .. }), "{error}");
    assert!(error.to_string().ends_with(" within 200.0ms"), "{error}");
    // A socket that a killed process has left is no obstacle.
    drop(UnixListener::bind(directory.path().join("meet")).unwrap());
    assert!(matches!(meet(&alone(0)).unwrap_err(), MeetError::Missing { .. }));
    // One at which somebody listens is.
    let listener = listen(&directory);
    assert!(matches!(meet(&alone(0)).unwrap_err(), MeetError::Listen { .. }));
    assert!(accepted(&listener).is_none(), "who listens there is connected to");
}

/// Not that there was no time to resolve the name once more.
#[test]
fn what_failed_before_the_time_was_up_is_the_cause() {
    let port = std::net::TcpListener::bind("localhost:0").unwrap().local_addr().unwrap().port();
    let directory = tempfile::tempdir().unwrap();
    let address = Address::Tcp(format!("localhost:{port}"));
    let alone = Part { timeout: Duration::from_secs(3), address, ..part(&directory, 1, 2) };
    let MeetError::Connect { source, .. } = meet(&alone).unwrap_err() else { panic!("rank 0 is met") };
    assert_eq!(source.kind(), ErrorKind::ConnectionRefused, "{source}");
}

/// All ranks say which rank is missing, where and for how long.
#[test]
fn who_never_comes_is_told_alike_by_all() {
    let directory = tempfile::tempdir().unwrap();
    let alone = Part { timeout: Duration::from_millis(200), ..part(&directory, 0, 3) };
    let expected = format!("rank 2 did not come to {} within 200.0ms", alone.address);
    let expected = Failure::new(Exit::Timeout, expected).of_rank(2);
    thread::scope(|scope| {
        let rank_1 = scope.spawn(|| meet(&part(&directory, 1, 3)).map(drop).unwrap_err());
        let mut told = Vec::new();
        // Until rank 1 has come in time.
        while !rank_1.is_finished() {
            told.push(Failure::from(meet(&alone).unwrap_err()));
        }
        assert_eq!(Failure::from(rank_1.join().unwrap()), expected);
        assert!(told.contains(&expected), "{told:?}");
    });
}

/// A socket with as many waiting connections as it holds takes no more, and the time limit holds.
#[test]
fn a_socket_that_accepts_nobody_is_left_in_time() {
    let directory = tempfile::tempdir().unwrap();
    let full = listen(&directory);
    nix::sys::socket::listen(&full, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
    let _waiting = connect(&directory.path().join("meet"));
    let (sender, receiver) = mpsc::channel();
    let short = Part { timeout: Duration::from_millis(100), ..part(&directory, 2, 3) };
    // Not joined: it may hang.
    thread::spawn(move || sender.send(meet(&short).map(drop)));
    let error = receiver.recv_timeout(PATIENCE).expect("the rank has given up").unwrap_err();
    assert!(matches!(&error, MeetError::Connect { source, .. } if source.kind() == ErrorKind::WouldBlock), "{error}");
}

/// Texts that reach the other side as they are.
const HARMLESS: &str = r"[^\pC\p{Zl}\p{Zp}]{0,20}";

fn any_frame() -> impl Strategy<Value = Frame> {
    let kind = prop_oneof![
        Just(EndKind::Gone),
        any::<u64>().prop_map(EndKind::Late),
        Just(EndKind::Refused),
        Just(EndKind::Malformed)
    ];
    prop_oneof![
        (any::<[u32; 3]>(), HARMLESS).prop_map(|([version, rank, of], program)| Frame::Hello {
            version,
            program,
            rank,
            of
        }),
        Just(Frame::Welcome),
        (any::<u64>(), any::<Vec<u8>>()).prop_map(|(count, data)| Frame::Data { count, data }),
        (0_u64..3, any::<Vec<Vec<u8>>>()).prop_map(|(count, data)| Frame::All { count, data }),
        (0_u32..4, 0_u64..3).prop_map(|(rank, count)| Frame::Raised { rank, count }),
        (any::<u32>(), kind, HARMLESS).prop_map(|(rank, kind, why)| Frame::End(End { rank, kind, why })),
    ]
}

fn text(frame: &Frame) -> &str {
    match frame {
        Frame::Hello { program, .. } => program,
        Frame::End(end) => &end.why,
        _ => "",
    }
}

/// Bytes that are nearly frames, or frames out of order.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let frames = prop::collection::vec(any_frame(), 1..4);
    let frames = frames.prop_map(|frames| frames.iter().flat_map(Frame::encode).collect::<Vec<u8>>());
    let changed =
        (frames, any::<prop::sample::Index>(), any::<u8>(), any::<bool>()).prop_map(|(mut bytes, at, to, cut)| {
            let at = at.index(bytes.len());
            bytes[at] = to;
            if cut {
                bytes.truncate(at);
            }
            bytes
        });
    prop_oneof![changed, any::<Vec<u8>>()]
}

proptest! {
    #[test]
    fn a_frame_is_read_as_it_was_written(frame in any_frame(), rest: Vec<u8>) {
        let bytes = frame.encode();
        for end in 0..bytes.len() {
            prop_assert_eq!(Frame::decode(&bytes[..end], 1 << 24), Ok(None));
            prop_assert!(!Frame::is_complete(&bytes[..end], 1 << 24));
        }
        let length = bytes.len();
        let followed = [bytes, rest].concat();
        prop_assert_eq!(Frame::decode(&followed, 1 << 24), Ok(Some((frame, length))));
    }

    #[test]
    fn any_bytes_are_a_frame_or_refused(bytes in hostile()) {
        let mut rest = &bytes[..];
        prop_assert_eq!(Frame::is_complete(rest, GREETING_MAX), Frame::decode(rest, GREETING_MAX) != Ok(None));
        while let Ok(Some((frame, length))) = Frame::decode(rest, GREETING_MAX) {
            prop_assert!(length <= GREETING_MAX + 4);
            // What could harm a terminal was replaced.
            if !text(&frame).contains('\u{fffd}') {
                prop_assert_eq!(frame.encode(), &rest[..length]);
            }
            prop_assert!(!text(&frame).contains(is_harmful));
            rest = &rest[length..];
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    /// Whatever strangers send, and ranks after they were taken in, nothing hangs or is taken for data.
    #[test]
    fn hostile_bytes_end_a_rank_and_never_a_meeting(strangers in prop::collection::vec(hostile(), 0..4), bytes in hostile()) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("meet");
        let is_greeting = |bytes: &Vec<u8>| matches!(Frame::decode(bytes, GREETING_MAX), Ok(Some((Frame::Hello { .. }, _))));
        prop_assume!(!strangers.iter().any(is_greeting));
        thread::scope(|scope| {
            let rank_0 = scope.spawn(|| {
                let mut peers = meet(&part(&directory, 0, 2)).unwrap();
                let first = peers.allgather(b"zero", PATIENCE);
                (first, peers.allgather(b"zero", PATIENCE))
            });
            for bytes in &strangers {
                // It may be dropped meanwhile.
                let _ = connect(&path).write_all(bytes);
            }
            let mut rank_1 = connect(&path);
            let program = env!("CARGO_PKG_VERSION").to_owned();
            rank_1.write_all(&Frame::Hello { version: VERSION, program, rank: 1, of: 2 }.encode()).unwrap();
            // It is welcome now: what comes before is a frame out of order.
            let mut welcome = [0; 5];
            rank_1.read_exact(&mut welcome).unwrap();
            rank_1.write_all(&Frame::Data { count: 0, data: b"one".to_vec() }.encode()).unwrap();
            let _ = rank_1.write_all(&bytes);
            drop(rank_1);
            let (first, second) = rank_0.join().unwrap();
            match first {
                Ok(all) => assert_eq!(all, [b"zero".to_vec(), b"one".to_vec()]),
                Err(PeersError::Gone { rank: 1, .. } | PeersError::Malformed { rank: 1, .. }) => {}
                Err(other) => panic!("{other}"),
            }
            match second {
                // What was sent was data for this exchange.
                Ok(all) => assert!(matches!(Frame::decode(&bytes, 1 << 24), Ok(Some((Frame::Data { count: 1, .. }, _)))), "{all:?}"),
                Err(PeersError::Gone { rank: 1, .. } | PeersError::Malformed { rank: 1, .. }) => {}
                Err(other) => panic!("{other}"),
            }
        });
    }
}

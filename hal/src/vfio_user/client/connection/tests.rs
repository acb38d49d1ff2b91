//! Tests of a connection, against a peer that sends bytes.

use super::*;
use crate::memory::member::Member;
use crate::vfio_user::client::waits::Slowness;
use crate::vfio_user::wire::header::HEADER_BYTES;
use std::io::{Read, Write};
use std::sync::mpsc::channel;

/// A limit that no test should reach.
const LONG: Duration = Duration::from_secs(20);

const WRITE: RegionAccess = RegionAccess { offset: 0x10, region: 0, count: 4 };
/// The last message id of a command that waits for its reply.
const LAST_ID: u16 = FIRST_POSTED_ID - 1;

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
    let memory = FunctionIommu { table: Arc::default(), member: Member(0) };
    (Connection::new("test".to_owned(), ours, memory, waits).unwrap(), Peer(theirs))
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
fn the_reason_for_an_ending_is_kept() {
    let of = |change: &(dyn Fn(&mut Peer, Header) + Sync)| {
        let (connection, mut peer) = open(LONG);
        thread::scope(|scope| {
            scope.spawn(|| {
                let (header, _) = peer.receive();
                change(&mut peer, header);
            });
            assert_eq!(ask(&connection), Err(Failure::Gone));
        });
        let ending = connection.ending().unwrap();
        connection.end();
        assert_eq!(connection.ending(), Some(ending.clone()), "the first reason is kept");
        (matches!(ending, Ending::Fault(_)), ending.to_string())
    };
    let sent = |change: &(dyn Fn(Header) -> Header + Sync)| of(&|peer, header| peer.send(change(header.reply(0)), &[]));
    let fault = |text: &str| (true, format!("the server {text}"));
    let id = |header| Header { id: 77, ..header };
    assert_eq!(sent(&id), fault("sent a reply with the id 77, which no command waits for"));
    let command = |header| Header { command: 5, ..header };
    assert_eq!(sent(&command), fault("replied with the command number 5 to command 4 (GetInfo)"));
    let kind = |header| Header { flags: 2, ..header };
    assert_eq!(sent(&kind), fault("sent a message of the unknown type 2"));
    let size = |header| Header { size: 15, ..header };
    assert_eq!(sent(&size), fault("sent a message with the invalid size 15"));
    let left = of(&|peer, _| peer.0.shutdown(std::net::Shutdown::Both).unwrap());
    assert_eq!(left, (false, "the server closed the connection".to_owned()));
    let (connection, _peer) = open(Duration::from_millis(100));
    connection.waits().opened();
    assert_eq!(ask(&connection), Err(Failure::Gone));
    let late = "the server did not reply in time: the limit of all slow replies is 100ms";
    assert_eq!(connection.ending().unwrap().to_string(), late);
    connection.end();
}

#[test]
fn a_reply_to_a_posted_write_is_no_other_commands() {
    let (connection, mut peer) = open(LONG);
    connection.post(WRITE, &[7; 4]).unwrap();
    let (write, body) = peer.receive();
    assert_eq!((write.command, write.is_silent(), body.len()), (Command::RegionWrite as u16, true, 20));
    for replies in [vec![], vec![write.reply(0)], vec![write.failure(Errno::EIO), write.failure(Errno::EBUSY)]] {
        let is_refused = replies.iter().any(|reply| reply.failed().is_some());
        thread::scope(|scope| {
            let asks = scope.spawn(|| ask(&connection));
            let (header, _) = peer.receive();
            assert_ne!(header.id, write.id);
            replies.into_iter().for_each(|reply| peer.send(reply, &[]));
            peer.send(header.reply(1), &[3]);
            assert_eq!(asks.join().unwrap(), Ok(vec![3]));
        });
        let refused = RefusedWrite { access: Some(WRITE), errno: Errno::EIO };
        assert_eq!([connection.refused(), connection.refused()], [is_refused.then_some(refused); 2]);
        connection.forget_refused();
        assert_eq!(connection.refused(), None);
    }
    connection.end();
}

#[test]
fn an_answer_that_the_server_does_not_read_ends_with_the_command() {
    let (connection, _peer) = open(LONG);
    let data = vec![0; 1 << 20];
    let header = Header::command(0, Command::RegionWrite, data.len());
    // More than the socket takes.
    assert_eq!(connection.sender.send(&connection.socket, header, [&data, &[]], &[], uncounted), Ok(true));
    let begin = Instant::now();
    let asked = Header::command(1, Command::DmaRead, 0);
    connection.take(&asked, &mut Reader::new(0), Some(begin + Duration::from_millis(50)));
    assert_eq!(connection.ending(), Some(Ending::fault("does not read its messages")));
    assert!(begin.elapsed() < LONG / 2);
    connection.end();
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
    assert_eq!(connection.post(WRITE, &[7; 4]), Err(Failure::Gone));
}

#[test]
fn an_id_in_use_is_not_assigned_again() {
    let (connection, mut peer) = open(LONG);
    let waiting = |id| Waiting { id, command: Command::Reset, reply: None };
    let mut state = connection.state();
    state.next_id = LAST_ID;
    state.waiting.extend([waiting(LAST_ID), waiting(0), waiting(2)]);
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
        assert_eq!(left, [LAST_ID, 0, 2], "only its own is over");
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
fn a_reply_that_is_there_is_not_late() {
    let (connection, mut peer) = loop {
        let (connection, peer) = open(LONG);
        let mut state = connection.state();
        if !state.is_led {
            // While a command waits, the thread does not begin to read.
            state.waiting.push(Waiting { id: 7, command: Command::Reset, reply: None });
            drop(state);
            break (connection, peer);
        }
    };
    peer.send(Header::command(7, Command::Reset, 0).reply(1), &[3]);
    let passed = Instant::now();
    assert_eq!(connection.wait_for(7, passed).map(|reply| reply.body), Ok(vec![3]));
    assert_eq!(connection.wait_for(7, passed).unwrap_err(), Failure::Gone);
    connection.end();
}

/// Another message is before it, and the connection's thread reads.
#[test]
fn a_reply_that_the_leader_has_yet_to_read_is_not_late() {
    let (connection, mut peer) = open(LONG);
    while !connection.state().is_led {
        thread::sleep(QUIET);
    }
    // The leader reads, but cannot hand over before the late caller may look.
    let mut state = connection.state();
    state.calls += 1;
    state.waiting.extend([7, 8].map(|id| Waiting { id, command: Command::Reset, reply: None }));
    peer.send(Header::command(8, Command::Reset, 0).reply(1), &[4]);
    peer.send(Header::command(7, Command::Reset, 0).reply(1), &[3]);
    thread::scope(|scope| {
        let waits = scope.spawn(|| connection.wait_for(7, Instant::now()));
        thread::sleep(QUIET * 30);
        drop(state);
        assert_eq!(waits.join().unwrap().map(|reply| reply.body), Ok(vec![3]));
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
    assert_eq!(connection.post(RegionAccess { count: data.len() as u32, ..WRITE }, &data), Err(Failure::Gone));
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

//! Requests that wait for a client: the first is being worked on, the others wait for it.

use std::collections::VecDeque;
use std::mem;
use std::time::{Duration, Instant};

use super::table::{Table, Target};
use crate::Iova;
use crate::endpoint::{DmaFault, DmaTag};
use crate::vfio_user::server::budget::Charge;
use crate::vfio_user::server::link::Link;
use crate::vfio_user::server::stalls::Stalls;
use crate::vfio_user::wire::header::{Command, Header};
use crate::vfio_user::wire::memory::DmaAccess;

/// Bytes that one message moves at most: few enough to be sent without waiting, and enough to be worth a message.
const PIECE_BYTES: u64 = 32 << 10;
/// Messages of one request that are out at a time. Their replies together fit into a socket's buffer (208 KiB): QEMU up to
/// 11.1 may not send the rest of a reply that does not fit.
const WINDOW: usize = 2;
/// Requests that wait for a client's replies at most, and their bytes.
const MOST_WAITING: usize = 4096;
const MOST_WAITING_BYTES: usize = 64 << 20;
/// The most by which a client's limit for one request is extended because the server waited for the endpoint. Otherwise a client
/// could delay its reply for ever by resets.
const MOST_EXCUSED: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Queue {
    waiting: VecDeque<Request>,
    waiting_bytes: usize,
    /// Messages that are out, all of the first request.
    out: Vec<Message>,
    /// When the client was first asked for the first request.
    pub(super) asked: Option<Instant>,
    /// How long the server has waited for the endpoint since then, which is not the client's time. At most [`MOST_EXCUSED`].
    excused: Duration,
    next_id: u16,
    /// Bytes that one message may move.
    piece: u64,
    closed: bool,
}

#[derive(Debug)]
pub(super) struct Request {
    tag: DmaTag,
    iova: u64,
    is_write: bool,
    data: Vec<u8>,
    /// Bytes that were copied or asked for.
    next: usize,
    fault: Option<DmaFault>,
    _charge: Charge,
}

/// A message that was not answered yet.
#[derive(Debug)]
struct Message {
    id: u16,
    offset: usize,
    bytes: usize,
}

/// A request that is complete.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) tag: DmaTag,
    /// The data of a read.
    pub(crate) result: Result<Vec<u8>, DmaFault>,
}

impl Request {
    pub(super) fn new(tag: DmaTag, iova: u64, target: &Target<'_>, charge: Charge) -> Self {
        let data = match target {
            Target::Write(data) => data.to_vec(),
            Target::Read(data) => vec![0; data.len()],
        };
        Request { tag, iova, is_write: target.is_write(), data, next: 0, fault: None, _charge: charge }
    }
}

impl Queue {
    /// An empty queue for a client that accepts `transfer_bytes` bytes in one message.
    pub(super) fn new(transfer_bytes: u64) -> Self {
        Queue {
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            out: Vec::new(),
            asked: None,
            excused: Duration::ZERO,
            next_id: 0,
            piece: transfer_bytes.min(PIECE_BYTES),
            closed: false,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether a request of `bytes` bytes may wait as well.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.waiting.len() < MOST_WAITING && self.waiting_bytes + bytes <= MOST_WAITING_BYTES
    }

    pub(super) fn push(&mut self, request: Request) {
        self.waiting_bytes += request.data.len();
        self.waiting.push_back(request);
    }

    /// Takes the reply to a message. `None`: it does not match any message that is out.
    pub(super) fn take_reply(&mut self, header: &Header, body: &[u8]) -> Option<()> {
        let at = self.out.iter().position(|message| message.id == header.id)?;
        let request = self.waiting.front_mut()?;
        let Message { offset, bytes, .. } = self.out[at];
        let command = if request.is_write { Command::DmaWrite } else { Command::DmaRead };
        if header.command != command as u16 {
            return None;
        }
        let iova = request.iova + offset as u64;
        let asked = DmaAccess { address: iova, count: bytes as u64 };
        if header.failed().is_some() {
            request.fault.get_or_insert(DmaFault::Unmapped { iova: Iova(iova) });
        } else if request.is_write {
            // Some clients reply without a body.
            if !body.is_empty() && DmaAccess::decode_written(body) != Some(asked) {
                return None;
            }
        } else {
            let (access, data) = DmaAccess::decode(body)?;
            if access != asked || data.len() != bytes {
                return None;
            }
            request.data[offset..offset + bytes].copy_from_slice(data);
        }
        self.out.swap_remove(at);
        Some(())
    }

    /// Works on the queue until a reply is needed to go on, and returns the requests that are complete.
    pub(super) fn advance(&mut self, table: &Table, link: &Link, stalls: &Stalls) -> Vec<Finished> {
        let mut finished = Vec::new();
        while !self.waiting.is_empty() {
            while self.step(table, link, stalls) {}
            if !self.out.is_empty() {
                break;
            }
            let Some(request) = self.waiting.pop_front() else { break };
            self.waiting_bytes -= request.data.len();
            let data = if request.is_write { Vec::new() } else { request.data };
            finished.push(Finished { tag: request.tag, result: request.fault.map_or(Ok(data), Err) });
            self.note_wait(stalls);
        }
        finished
    }

    /// Copies or asks for the next part of the first request. False: nothing more can be done for it now.
    fn step(&mut self, table: &Table, link: &Link, stalls: &Stalls) -> bool {
        let Some(request) = self.waiting.front_mut() else { return false };
        if request.fault.is_some() || request.next == request.data.len() || self.out.len() == WINDOW {
            return false;
        }
        let iova = request.iova + request.next as u64;
        let Some((left, is_file)) = table.reach(iova, request.is_write) else {
            request.fault = Some(DmaFault::Unmapped { iova: Iova(iova) });
            return false;
        };
        let left = left.min((request.data.len() - request.next) as u64);
        if is_file {
            // The bytes below must have arrived first.
            if !self.out.is_empty() {
                return false;
            }
            let data = &mut request.data[request.next..][..left as usize];
            let target = if request.is_write { Target::Write(data) } else { Target::Read(data) };
            request.fault = table.copy(iova, target).err();
            request.next += left as usize;
            return true;
        }
        if stalls.is_barred() {
            request.fault = Some(DmaFault::HostGone);
            return false;
        }
        let bytes = left.min(self.piece) as usize;
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        let access = DmaAccess { address: iova, count: bytes as u64 }.encode();
        let (command, data) = if request.is_write {
            (Command::DmaWrite, &request.data[request.next..][..bytes])
        } else {
            (Command::DmaRead, &[][..])
        };
        let header = Header::command(id, command, access.len() + data.len());
        if link.send(header, [&access, data], &[]).is_err() {
            request.fault = Some(DmaFault::HostGone);
            return false;
        }
        self.asked.get_or_insert_with(Instant::now);
        self.out.push(Message { id, offset: request.next, bytes });
        request.next += bytes;
        true
    }

    /// Until when the client must have answered all messages of the first request, if it was asked.
    pub(super) fn deadline(&self, stalls: &Stalls) -> Option<Instant> {
        (self.asked? + self.excused).checked_add(stalls.limit(self.waiting.front()?.data.len()))
    }

    /// Notes that the server has waited for the endpoint for `waited` until `now`, and read no reply meanwhile.
    pub(super) fn excuse(&mut self, waited: Duration, now: Instant) {
        if let Some(asked) = self.asked {
            // The client may have been asked meanwhile.
            let waited = waited.min(now.saturating_duration_since(asked));
            self.excused = (self.excused + waited).min(MOST_EXCUSED);
        }
    }

    /// Fails all that wait, as the function is no bus master now. The client answers what it was asked for the first of them all the same.
    pub(super) fn cancel(&mut self) {
        for request in &mut self.waiting {
            request.fault.get_or_insert(DmaFault::NotMaster);
        }
    }

    /// Accepts no more requests, and returns all that wait as failed.
    pub(super) fn close(&mut self, stalls: &Stalls) -> Vec<Finished> {
        self.closed = true;
        self.out.clear();
        self.note_wait(stalls);
        self.waiting_bytes = 0;
        let waiting = mem::take(&mut self.waiting);
        waiting.into_iter().map(|request| Finished { tag: request.tag, result: Err(DmaFault::HostGone) }).collect()
    }

    /// Notes how long the client was waited for, once the first request is complete or given up.
    fn note_wait(&mut self, stalls: &Stalls) {
        if let Some(asked) = self.asked.take() {
            stalls.note(asked.elapsed().saturating_sub(mem::take(&mut self.excused)));
        }
    }
}

//! The ranks of a meeting other than 0: each is connected to rank 0.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fpga_driver::{Peers, PeersError};

use crate::meeting::ending::{SLICE, error_of, meet_error, too_long};
use crate::meeting::frame::{DATA_MAX, End, EndKind, Frame, VERSION, longest};
use crate::meeting::link::{Link, pump};
use crate::meeting::part::{MeetError, Part};
use crate::meeting::stream::Stream;

/// Pause between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(20);
/// Rank 0 knows who is late: it ends an exchange first, and says so.
const LATER: Duration = Duration::from_secs(2);

/// Whether a later attempt to connect may succeed.
fn may_come(error: ErrorKind) -> bool {
    !matches!(error, ErrorKind::PermissionDenied | ErrorKind::InvalidInput | ErrorKind::InvalidFilename)
}

/// A rank other than 0.
#[derive(Debug)]
pub(super) struct Spoke {
    rank: u32,
    of: u32,
    link: Link,
    count: u64,
    all: Option<Vec<Vec<u8>>>,
    /// Who gave up before which exchange.
    raised: Option<(u32, u64)>,
    ended: Option<End>,
    stop: Arc<AtomicBool>,
}

impl Spoke {
    pub(super) fn meet(part: &Part) -> Result<Spoke, MeetError> {
        let began = Instant::now();
        let mut before: Option<io::Error> = None;
        loop {
            let source = match (Spoke::connect(part, began)?, before.take()) {
                (Ok(spoke), _) => return Ok(spoke),
                // What lacked time says less than what failed before.
                (Err(late), Some(before)) if late.kind() == ErrorKind::TimedOut => before,
                (Err(source), _) => source,
            };
            let waited = began.elapsed();
            if waited >= part.timeout || !may_come(source.kind()) {
                let waited = waited.min(part.timeout);
                return Err(MeetError::Connect { address: part.address.clone(), waited, source });
            }
            log::debug!("rank 0 cannot be met yet: {source}");
            if part.stop.load(Ordering::Relaxed) {
                return Err(MeetError::Interrupted);
            }
            before = Some(source);
            std::thread::sleep(PAUSE);
        }
    }

    /// Connects, and waits until all ranks have come. Returns an error inside if there is no connection, or it is lost: a later
    /// attempt may succeed.
    fn connect(part: &Part, began: Instant) -> Result<io::Result<Spoke>, MeetError> {
        let stream = match Stream::connect(part, part.timeout.saturating_sub(began.elapsed())) {
            Ok(stream) => stream,
            Err(error) => return Ok(Err(error)),
        };
        let mut link = Link::new(stream, longest(part.of));
        let program = env!("CARGO_PKG_VERSION").to_owned();
        link.send(&Frame::Hello { version: VERSION, program, rank: part.rank, of: part.of });
        let stop = Arc::clone(&part.stop);
        let (rank, of) = (part.rank, part.of);
        let mut spoke = Spoke { rank, of, link, count: 0, all: None, raised: None, ended: None, stop };
        let patience = part.timeout.saturating_add(LATER);
        loop {
            match spoke.link.next() {
                Ok(Some(Frame::Welcome)) => return Ok(Ok(spoke)),
                // Who is refused may be of a larger job.
                Ok(Some(Frame::End(end))) if end.rank < of || end.kind == EndKind::Refused => {
                    return Err(meet_error(end));
                }
                Ok(Some(_)) => return Err(meet_error(out_of_order())),
                // Too many strangers came to rank 0, or it ends and another may come.
                Err((EndKind::Gone, why)) => return Ok(Err(io::Error::new(ErrorKind::ConnectionReset, why))),
                Err((kind, why)) => return Err(meet_error(End { rank: 0, kind, why })),
                Ok(None) => {}
            }
            if part.stop.load(Ordering::Relaxed) {
                return Err(MeetError::Interrupted);
            }
            let waited = began.elapsed();
            if waited >= patience {
                return Err(MeetError::Peers(PeersError::Late { rank: 0, waited }));
            }
            spoke.pump_link(SLICE);
        }
    }

    fn pump_link(&mut self, timeout: Duration) {
        if let Err(error) = pump(std::iter::once(&mut self.link), None, timeout) {
            self.ended.get_or_insert(End { rank: self.rank, kind: EndKind::Gone, why: error.to_string() });
        }
    }

    /// Moves what there is, within `timeout`, and takes it.
    fn pump(&mut self, timeout: Duration) {
        self.pump_link(timeout);
        while self.ended.is_none() {
            match self.link.next() {
                Ok(None) => return,
                Ok(Some(Frame::All { count, data })) if count == self.count && self.is_of_all(&data) => {
                    self.all = Some(data);
                }
                Ok(Some(Frame::Raised { rank, count })) if rank < self.of => {
                    if self.raised.is_none_or(|(_, before)| before < count) {
                        self.raised = Some((rank, count));
                    }
                }
                Ok(Some(Frame::End(end))) if end.rank < self.of => self.ended = Some(end),
                Ok(Some(_)) => self.ended = Some(out_of_order()),
                Err((kind, why)) => self.ended = Some(End { rank: 0, kind, why }),
            }
        }
    }

    fn is_of_all(&self, data: &[Vec<u8>]) -> bool {
        self.all.is_none() && data.len() == self.of as usize
    }
}

impl Peers for Spoke {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.of
    }

    fn allgather(&mut self, data: &[u8], timeout: Duration) -> Result<Vec<Vec<u8>>, PeersError> {
        if data.len() > DATA_MAX {
            self.ended.get_or_insert(too_long(self.rank, data.len()));
        }
        if self.ended.is_none() {
            self.link.send(&Frame::Data { count: self.count, data: data.to_vec() });
        }
        let (began, timeout) = (Instant::now(), timeout.saturating_add(LATER));
        loop {
            if let Some(all) = self.all.take() {
                self.count += 1;
                return Ok(all);
            }
            if let Some(end) = &self.ended {
                return Err(error_of(end));
            }
            let waited = began.elapsed();
            if waited >= timeout {
                let kind = EndKind::Late(waited.as_millis() as u64);
                self.ended = Some(End { rank: 0, kind, why: "it did not answer".to_owned() });
            } else if self.stop.load(Ordering::Relaxed) {
                self.ended = Some(End { rank: self.rank, kind: EndKind::Gone, why: "it was interrupted".to_owned() });
            } else {
                self.pump(SLICE.min(timeout - waited));
            }
        }
    }

    fn raise(&mut self) {
        let (rank, count) = (self.rank, self.count);
        self.link.send(&Frame::Raised { rank, count });
    }

    fn raised(&mut self) -> Option<u32> {
        self.pump(Duration::ZERO);
        let ended = self.ended.as_ref().map(|end| end.rank);
        ended.or_else(|| self.raised.filter(|(_, count)| *count >= self.count).map(|(rank, _)| rank))
    }
}

fn out_of_order() -> End {
    End { rank: 0, kind: EndKind::Malformed, why: "a frame out of order".to_owned() }
}

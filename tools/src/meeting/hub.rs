//! Rank 0 of a meeting: it takes the others in, and passes on what they send.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fpga_driver::{Peers, PeersError};

use crate::meeting::ending::{SLICE, error_of, meet_error, too_long};
use crate::meeting::frame::{DATA_MAX, End, EndKind, Frame, GREETING_MAX, VERSION};
use crate::meeting::link::{Link, pump};
use crate::meeting::part::{MeetError, Part};
use crate::meeting::stream::Listener;

/// Connections that have not said who they are, besides one of each rank. More wait to be accepted.
const STRANGERS_MORE: usize = 64;
/// Time limit for a greeting.
const GREETING: Duration = Duration::from_secs(5);
/// The same while there is no room for more strangers. A rank that needs longer connects again.
const HASTY_GREETING: Duration = Duration::from_millis(200);
/// Time limit for telling the others of the end.
const FAREWELL: Duration = Duration::from_secs(1);

/// Rank 0.
#[derive(Debug)]
pub(super) struct Hub {
    /// By rank, from rank 1.
    links: Vec<Link>,
    /// Exchanges so far.
    count: u64,
    /// By rank, from rank 1: data for the next exchange.
    arrived: Vec<Option<Vec<u8>>>,
    /// Who gave up before which exchange.
    raised: Vec<Option<u64>>,
    ended: Option<End>,
    stop: Arc<AtomicBool>,
}

/// Who has come so far.
struct Gathering {
    links: Vec<Option<Link>>,
    strangers: Vec<(Link, Instant)>,
    strangers_max: usize,
}

impl Hub {
    pub(super) fn meet(part: &Part) -> Result<Hub, MeetError> {
        let (began, address) = (Instant::now(), part.address.clone());
        match Listener::bind(part) {
            Ok(listener) => Hub::meet_at(&listener, part, began),
            // The resolver is late. The other ranks say the same.
            Err(source) if source.kind() == ErrorKind::TimedOut => {
                Err(MeetError::Connect { address, waited: part.timeout, source })
            }
            Err(source) => Err(MeetError::Listen { address, source }),
        }
    }

    /// Meets whoever connects to `listener`. The meeting `began` when its name was resolved.
    pub(super) fn meet_at(listener: &Listener, part: &Part, began: Instant) -> Result<Hub, MeetError> {
        let mut gathering = Gathering::new(part.of);
        if let Err((end, error)) = gathering.complete(listener, part, began) {
            gathering.end(&end);
            return Err(error);
        }
        let mut links: Vec<Link> = gathering.links.into_iter().flatten().collect();
        links.iter_mut().for_each(|link| link.send(&Frame::Welcome));
        let others = links.len();
        let (arrived, raised) = (vec![None; others], vec![None; others]);
        Ok(Hub { links, count: 0, arrived, raised, ended: None, stop: Arc::clone(&part.stop) })
    }

    /// Moves what there is, within `timeout`, and takes it.
    fn pump(&mut self, timeout: Duration) {
        if let Err(error) = pump(self.links.iter_mut(), None, timeout) {
            self.end(End { rank: 0, kind: EndKind::Gone, why: error.to_string() });
        }
        for index in 0..self.links.len() {
            while self.ended.is_none() {
                match self.links[index].next() {
                    Ok(None) => break,
                    Ok(Some(frame)) => self.take(index, frame),
                    Err((kind, why)) => self.end(End { rank: index as u32 + 1, kind, why }),
                }
            }
        }
    }

    fn take(&mut self, index: usize, frame: Frame) {
        let rank = index as u32 + 1;
        match frame {
            Frame::Data { count, data } if count == self.count && self.arrived[index].is_none() => {
                self.arrived[index] = Some(data);
            }
            Frame::Raised { rank: of, count } if of == rank && count >= self.count => {
                self.raised[index] = Some(count);
                self.tell_others(index, &Frame::Raised { rank, count });
            }
            // It raised before an exchange that is over.
            Frame::Raised { rank: of, .. } if of == rank => {}
            _ => self.end(End { rank, kind: EndKind::Malformed, why: "a frame out of order".to_owned() }),
        }
    }

    fn tell_others(&mut self, except: usize, frame: &Frame) {
        let frame = frame.encode();
        let others = self.links.iter_mut().enumerate().filter(|(index, _)| *index != except);
        others.for_each(|(_, link)| link.send_encoded(&frame));
    }

    /// Ends the job, and tells all.
    fn end(&mut self, end: End) {
        if self.ended.is_none() {
            let frame = Frame::End(end.clone()).encode();
            self.links.iter_mut().for_each(|link| link.send_encoded(&frame));
            flush(self.links.iter_mut().collect());
            self.ended = Some(end);
        }
    }
}

impl Peers for Hub {
    fn rank(&self) -> u32 {
        0
    }

    fn size(&self) -> u32 {
        self.links.len() as u32 + 1
    }

    fn allgather(&mut self, data: &[u8], timeout: Duration) -> Result<Vec<Vec<u8>>, PeersError> {
        if data.len() > DATA_MAX {
            let end = too_long(0, data.len());
            self.end(end);
        }
        let began = Instant::now();
        loop {
            if let Some(end) = &self.ended {
                return Err(error_of(end));
            }
            let Some(missing) = self.arrived.iter().position(Option::is_none) else { break };
            let waited = began.elapsed();
            if waited >= timeout {
                let kind = EndKind::Late(waited.as_millis() as u64);
                self.end(End { rank: missing as u32 + 1, kind, why: "it did not take part in an exchange".to_owned() });
            } else if self.stop.load(Ordering::Relaxed) {
                self.end(End { rank: 0, kind: EndKind::Gone, why: "it was interrupted".to_owned() });
            } else {
                self.pump(SLICE.min(timeout - waited));
            }
        }
        let mut all = vec![data.to_vec()];
        all.extend(self.arrived.iter_mut().filter_map(Option::take));
        let frame = Frame::All { count: self.count, data: all };
        let encoded = frame.encode();
        self.links.iter_mut().for_each(|link| link.send_encoded(&encoded));
        self.count += 1;
        // The others wait for it.
        while self.links.iter().any(Link::is_sending) && self.ended.is_none() && began.elapsed() < timeout {
            self.pump(SLICE);
        }
        let Frame::All { data: all, .. } = frame else { unreachable!("made above") };
        self.ended.as_ref().map_or(Ok(all), |end| Err(error_of(end)))
    }

    fn raise(&mut self) {
        let (rank, count) = (0, self.count);
        self.tell_others(usize::MAX, &Frame::Raised { rank, count });
    }

    fn raised(&mut self) -> Option<u32> {
        self.pump(Duration::ZERO);
        let raised = |at: &Option<u64>| at.is_some_and(|at| at >= self.count);
        let ended = self.ended.as_ref().map(|end| end.rank);
        ended.or_else(|| self.raised.iter().position(raised).map(|index| index as u32 + 1))
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        // The last data of all.
        flush(self.links.iter_mut().collect());
    }
}

/// Sends what is queued, within a bound.
fn flush(mut links: Vec<&mut Link>) {
    let began = Instant::now();
    while links.iter().any(|link| link.is_sending()) && began.elapsed() < FAREWELL {
        if pump(links.iter_mut().map(|link| &mut **link), None, SLICE).is_err() {
            return;
        }
    }
}

impl Gathering {
    fn new(of: u32) -> Self {
        let links = (1..of).map(|_| None).collect();
        Gathering { links, strangers: Vec::new(), strangers_max: of as usize + STRANGERS_MORE }
    }

    /// Waits until all ranks have come, within the time limit since the meeting `began`.
    ///
    /// # Errors
    /// What the others are told, and why they did not meet.
    fn complete(&mut self, listener: &Listener, part: &Part, began: Instant) -> Result<(), (End, MeetError)> {
        let failed = |source: io::Error| {
            let end = End { rank: 0, kind: EndKind::Gone, why: source.to_string() };
            (end, MeetError::Listen { address: part.address.clone(), source })
        };
        while let Some(missing) = self.links.iter().position(Option::is_none) {
            let rank = missing as u32 + 1;
            let waited = began.elapsed();
            if waited >= part.timeout {
                let kind = EndKind::Late(part.timeout.as_millis() as u64);
                let why = format!("did not come to {} within {:.1?}", part.address, part.timeout);
                let end = End { rank, kind, why };
                return Err((end.clone(), meet_error(end)));
            }
            if part.stop.load(Ordering::Relaxed) {
                let end = End { rank: 0, kind: EndKind::Gone, why: "it was interrupted".to_owned() };
                return Err((end, MeetError::Interrupted));
            }
            self.pump(listener, SLICE.min(part.timeout - waited)).map_err(failed)?;
            // Of those that were accepted before, all that has arrived is read now.
            if let Some(end) = self.strangers_greet(part).or_else(|| self.first_gone()) {
                return Err((end.clone(), meet_error(end)));
            }
            while self.has_room()
                && let Some(stream) = listener.accept().map_err(failed)?
            {
                self.strangers.push((Link::new(stream, GREETING_MAX), Instant::now()));
            }
        }
        Ok(())
    }

    fn has_room(&self) -> bool {
        self.strangers.len() < self.strangers_max
    }

    /// Moves what there is, and waits for at most `timeout` until there is something or somebody who can be accepted.
    fn pump(&mut self, listener: &Listener, timeout: Duration) -> io::Result<()> {
        let accepted = self.has_room().then(|| listener.as_fd());
        pump(self.connections(), accepted, timeout)
    }

    fn connections(&mut self) -> impl Iterator<Item = &mut Link> {
        self.links.iter_mut().flatten().chain(self.strangers.iter_mut().map(|(link, _)| link))
    }

    /// Takes those in that have said who they are, and drops others. Returns why the meeting ends, if somebody is refused.
    fn strangers_greet(&mut self, part: &Part) -> Option<End> {
        let mut refused = None;
        let patience = if self.has_room() { GREETING } else { HASTY_GREETING };
        for (mut link, since) in std::mem::take(&mut self.strangers) {
            match link.next() {
                Ok(None) if since.elapsed() < patience => self.strangers.push((link, since)),
                Ok(Some(Frame::Hello { version, program, rank, of })) => {
                    match self.refusal(part, version, &program, rank, of) {
                        None => {
                            // Data of a rank, and the rest of its frame.
                            link.set_limit(DATA_MAX + 64);
                            self.links[rank as usize - 1] = Some(link);
                        }
                        Some(why) => {
                            let end = End { rank, kind: EndKind::Refused, why };
                            link.send(&Frame::End(end.clone()));
                            flush(vec![&mut link]);
                            refused.get_or_insert(end);
                        }
                    }
                }
                // Not one of us.
                outcome => log::debug!("a connection to the meeting point is dropped: {outcome:?}"),
            }
        }
        refused
    }

    /// Why a rank is refused, if it is.
    fn refusal(&self, part: &Part, version: u32, program: &str, rank: u32, of: u32) -> Option<String> {
        let own = env!("CARGO_PKG_VERSION");
        if version != VERSION {
            return Some(format!(
                "its meeting protocol is of version {version}, and that of rank 0 of version {VERSION}"
            ));
        }
        if program != own {
            return Some(format!("it is fpgactl {program}, and rank 0 is fpgactl {own}"));
        }
        if of != part.of {
            return Some(format!("it has --of {of}, and rank 0 has --of {}", part.of));
        }
        match rank.checked_sub(1).and_then(|index| self.links.get(index as usize)) {
            None => Some(format!("its rank is none of 1 to {}", part.of - 1)),
            Some(Some(_)) => Some(format!("two processes have --rank {rank}")),
            Some(None) => None,
        }
    }

    /// Returns the end of a rank that has left already, if one has.
    fn first_gone(&mut self) -> Option<End> {
        for (rank, link) in (1..).zip(&mut self.links) {
            match link.as_mut().map(Link::next) {
                None | Some(Ok(None)) => {}
                Some(Ok(Some(_))) => {
                    let why = "a frame before all ranks have come".to_owned();
                    return Some(End { rank, kind: EndKind::Malformed, why });
                }
                Some(Err((kind, why))) => return Some(End { rank, kind, why }),
            }
        }
        None
    }

    /// Tells all that the meeting has ended, also those whose greeting has not arrived yet.
    fn end(&mut self, end: &End) {
        let mut links: Vec<&mut Link> = self.connections().collect();
        links.iter_mut().for_each(|link| link.send(&Frame::End(end.clone())));
        flush(links);
    }
}

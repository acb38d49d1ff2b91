//! The endpoint's way to a client's memory: by copies where the client has passed it, else by messages.
//!
//! Messages take a while, and are never waited for here: the request is pending, and the session's thread completes it
//! when the reply arrives. While one is pending, requests after it wait in line, so that writes stay in order and a read
//! sees the writes before it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use nix::errno::Errno;

use super::budget::{Charge, Item, Share};
use super::capabilities::PAGE;
use super::client_memory::{ClientFile, ClientFiles, InMemory};
use super::closing::Received;
use super::codec::{Command, DEFAULT_MAPS, DmaAccess, DmaMap, DmaUnmap, Header};
use super::link::Link;
use super::stalls::Stalls;
use crate::Iova;
use crate::endpoint::{DmaFault, DmaPort, DmaProgress, DmaTag};

/// Bytes that one message moves at most: small enough to be sent without waiting, large enough to be worth it.
const PIECE_BYTES: u64 = 32 << 10;
/// Messages of one request that are out at a time. Their answers together fit into a socket's buffer (208 KiB): QEMU up to
/// 11.1 may forget to send the rest of what did not.
const WINDOW: usize = 2;
/// Requests and bytes that wait for a client's answers at most.
const MOST_WAITING: usize = 4096;
const MOST_WAITING_BYTES: usize = 64 << 20;

/// The memory of one client, and what its function does with it.
#[derive(Debug)]
pub(crate) struct Dma {
    link: Arc<Link>,
    stalls: Arc<Stalls>,
    /// Copies hold it for reading, so what was taken out of it is touched no more.
    table: RwLock<Table>,
    line: Mutex<Line>,
    /// Whether requests wait in line.
    is_busy: AtomicBool,
    /// Last address the endpoint can put on the bus.
    highest: u64,
}

/// What is mapped, by its first address; disjoint.
#[derive(Debug)]
struct Table {
    maps: BTreeMap<u64, Mapping>,
    /// Those of them that are reached by messages.
    by_message: usize,
    share: Arc<Share>,
    files: ClientFiles,
}

#[derive(Debug)]
struct Mapping {
    last: u64,
    readable: bool,
    writeable: bool,
    /// The file it lies in and where, if the client has passed one.
    file: Option<(Arc<ClientFile>, u64)>,
    _charge: Charge,
}

/// Requests that wait for the client, the first of them at work.
#[derive(Debug)]
struct Line {
    waiting: VecDeque<Request>,
    waiting_bytes: usize,
    /// Messages that are out, all of the first request.
    out: Vec<Message>,
    /// When the client was first asked for the first request.
    asked: Option<Instant>,
    next_id: u16,
    /// Bytes that one message may move.
    piece: u64,
    closed: bool,
}

#[derive(Debug)]
struct Request {
    tag: DmaTag,
    iova: u64,
    is_write: bool,
    data: Vec<u8>,
    /// Bytes that were copied or asked for.
    next: usize,
    fault: Option<DmaFault>,
}

/// A message that was not answered yet.
#[derive(Debug)]
struct Message {
    id: u16,
    offset: usize,
    bytes: usize,
}

/// A request that is over.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) tag: DmaTag,
    /// What was read.
    pub(crate) result: Result<Vec<u8>, DmaFault>,
}

impl Dma {
    pub(crate) fn new(
        link: Arc<Link>,
        stalls: Arc<Stalls>,
        share: Arc<Share>,
        dma_bits: u8,
        transfer_bytes: u64,
    ) -> Self {
        let line = Line {
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            out: Vec::new(),
            asked: None,
            next_id: 0,
            piece: transfer_bytes.min(PIECE_BYTES),
            closed: false,
        };
        Dma {
            link,
            stalls,
            table: RwLock::new(Table::new(share)),
            line: Mutex::new(line),
            is_busy: AtomicBool::new(false),
            highest: u64::MAX >> (64 - u32::from(dma_bits.clamp(1, 64))),
        }
    }

    /// Section "`VFIO_USER_DMA_MAP`".
    pub(crate) fn map(&self, map: &DmaMap, descriptors: Vec<Received>) -> Result<(), Errno> {
        let known = DmaMap::READABLE | DmaMap::WRITEABLE;
        if (map.argsz as usize) < DmaMap::BYTES || map.flags & !known != 0 || map.flags & known == 0 {
            return Err(Errno::EINVAL);
        }
        if map.size == 0 || !map.size.is_multiple_of(PAGE) || !map.address.is_multiple_of(PAGE) {
            return Err(Errno::EINVAL);
        }
        let last = map.address.checked_add(map.size - 1).ok_or(Errno::EINVAL)?;
        let end = map.offset.checked_add(map.size).ok_or(Errno::EINVAL)?;
        let mut descriptors = descriptors.into_iter();
        let descriptor = descriptors.next();
        if descriptors.next().is_some() {
            return Err(Errno::EINVAL);
        }
        let passed = descriptor.map_or(Ok(None), |descriptor| InMemory::of(descriptor, end))?;
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        if table.maps.range(..=last).next_back().is_some_and(|(_, other)| other.last >= map.address) {
            return Err(Errno::EEXIST);
        }
        if table.maps.len() as u64 >= DEFAULT_MAPS {
            return Err(Errno::ENOSPC);
        }
        let charge = table.share.take(Item::Mappings, 1)?;
        let file = passed.map_or(Ok(None), |passed| table.files.open(passed))?;
        let writeable = map.flags & DmaMap::WRITEABLE != 0;
        if writeable && file.as_ref().is_some_and(|file| !file.is_writeable()) {
            drop(file);
            let unused = table.files.take_unused();
            drop(table);
            drop(unused);
            return Err(Errno::EACCES);
        }
        let mapping = Mapping {
            last,
            readable: map.flags & DmaMap::READABLE != 0,
            writeable,
            file: file.map(|file| (file, map.offset)),
            _charge: charge,
        };
        table.by_message += usize::from(mapping.file.is_none());
        table.maps.insert(map.address, mapping);
        Ok(())
    }

    /// Section "`VFIO_USER_DMA_UNMAP`", but as the kernel does it: all mappings that lie in the range go, were it none;
    /// only to cut one in two is an error. Once this returns, the endpoint touches the memory no more.
    pub(crate) fn unmap(&self, unmap: &DmaUnmap) -> Result<(), Errno> {
        if (unmap.argsz as usize) < DmaUnmap::BYTES {
            return Err(Errno::EINVAL);
        }
        if unmap.flags == DmaUnmap::GET_DIRTY {
            return Err(Errno::ENOTSUP);
        }
        let all = unmap.flags & DmaUnmap::ALL != 0;
        if unmap.flags & !DmaUnmap::ALL != 0 || all != (unmap.size == 0) || all && unmap.address != 0 {
            return Err(Errno::EINVAL);
        }
        // Of "all", both lie at the last address there is.
        let last = unmap.address.checked_add(unmap.size.wrapping_sub(1)).ok_or(Errno::EINVAL)?;
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let straddles = |at: u64| table.maps.range(..=at).next_back().filter(|(_, map)| map.last >= at);
        let cut_below = straddles(unmap.address).is_some_and(|(first, _)| *first < unmap.address);
        let cut_above = straddles(last).is_some_and(|(_, map)| map.last > last);
        if cut_below || cut_above {
            return Err(Errno::EINVAL);
        }
        let mut removed = table.maps.split_off(&unmap.address);
        if let Some(after) = last.checked_add(1) {
            table.maps.append(&mut removed.split_off(&after));
        }
        let had_files = removed.values().any(|map| map.file.is_some());
        table.by_message -= removed.values().filter(|map| map.file.is_none()).count();
        drop(removed);
        let unused = if had_files { table.files.take_unused() } else { Vec::new() };
        // The kernel may have many pages to free, and the endpoint's DMA need not wait for that.
        drop(table);
        drop(unused);
        Ok(())
    }

    /// Takes the reply to a message; the requests that are over by it. `None`: it answers nothing that was asked, or not
    /// what was asked.
    pub(crate) fn answered(&self, header: &Header, body: &[u8]) -> Option<Vec<Finished>> {
        let mut line = self.line();
        let at = line.out.iter().position(|message| message.id == header.id)?;
        let line = &mut *line;
        let request = line.waiting.front_mut()?;
        let Message { offset, bytes, .. } = line.out[at];
        let command = if request.is_write { Command::DmaWrite } else { Command::DmaRead };
        if header.command != command as u16 {
            return None;
        }
        let iova = request.iova + offset as u64;
        let asked = DmaAccess { address: iova, count: bytes as u64 };
        if header.failed().is_some() {
            request.fault.get_or_insert(DmaFault::Unmapped { iova: Iova(iova) });
        } else if request.is_write {
            // One client has it that a reply without a body will do.
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
        line.out.swap_remove(at);
        let mut finished = Vec::new();
        self.go_on(line, &mut finished);
        Some(finished)
    }

    /// Until when the client must have answered all messages of the request at work, if it was asked.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        if !self.is_busy.load(Ordering::Acquire) {
            return None;
        }
        let line = self.line();
        line.asked?.checked_add(self.stalls.limit(line.waiting.front()?.data.len()))
    }

    /// The client is gone: nothing is touched any more. Gives back what had not been completed.
    pub(crate) fn close(&self) -> Vec<Finished> {
        self.link.stop();
        let mut line = self.line();
        line.closed = true;
        line.out.clear();
        self.note_wait(&mut line);
        line.waiting_bytes = 0;
        let waiting = std::mem::take(&mut line.waiting);
        drop(line);
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let empty = Table::new(Arc::clone(&table.share));
        let taken = std::mem::replace(&mut *table, empty);
        drop(table);
        drop(taken);
        waiting.into_iter().map(|request| Finished { tag: request.tag, result: Err(DmaFault::HostGone) }).collect()
    }

    fn request(&self, tag: DmaTag, iova: Iova, target: Target<'_>) -> DmaProgress {
        let bytes = target.len();
        let is_write = matches!(target, Target::Write(_));
        if let Err(fault) = self.link.check() {
            return DmaProgress::Done(Err(fault));
        }
        if bytes == 0 {
            return DmaProgress::Done(Ok(()));
        }
        {
            let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
            let by_copy = match table.cover(iova, bytes as u64, self.highest, is_write) {
                Ok(by_copy) => by_copy,
                Err(fault) => return DmaProgress::Done(Err(fault)),
            };
            if by_copy && !self.is_busy.load(Ordering::Acquire) {
                return DmaProgress::Done(table.copy(iova.0, target));
            }
        }
        let mut line = self.line();
        if line.closed {
            return DmaProgress::Done(Err(DmaFault::HostGone));
        }
        if line.waiting.len() >= MOST_WAITING || line.waiting_bytes + bytes > MOST_WAITING_BYTES {
            log::warn!("A client answers DMA too slowly: {} requests wait for it", line.waiting.len());
            self.link.stop();
            return DmaProgress::Done(Err(DmaFault::HostGone));
        }
        let data = match &target {
            Target::Write(data) => data.to_vec(),
            Target::Read(data) => vec![0; data.len()],
        };
        let was_idle = line.waiting.is_empty();
        line.waiting.push_back(Request { tag, iova: iova.0, is_write, data, next: 0, fault: None });
        line.waiting_bytes += bytes;
        self.is_busy.store(true, Ordering::Release);
        if !was_idle {
            return DmaProgress::Pending;
        }
        let mut finished = Vec::new();
        self.go_on(&mut line, &mut finished);
        drop(line);
        // Alone in the line, it may be over at once: unmapped meanwhile, or mapped.
        let Some(finished) = finished.pop() else {
            // The session's thread did not know that it has to look at the clock.
            self.link.wake().wake();
            return DmaProgress::Pending;
        };
        DmaProgress::Done(finished.result.map(|read| {
            if let Target::Read(data) = target {
                data.copy_from_slice(&read);
            }
        }))
    }

    /// Does of the line what can be done now.
    fn go_on(&self, line: &mut Line, finished: &mut Vec<Finished>) {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        while let Some(request) = line.waiting.front_mut() {
            while request.fault.is_none() && request.next < request.data.len() && line.out.len() < WINDOW {
                let iova = request.iova + request.next as u64;
                let Some((left, is_file)) = table.reach(iova, request.is_write) else {
                    request.fault = Some(DmaFault::Unmapped { iova: Iova(iova) });
                    break;
                };
                let left = left.min((request.data.len() - request.next) as u64);
                if is_file {
                    // Not before what lies below it has arrived.
                    if !line.out.is_empty() {
                        break;
                    }
                    let data = &mut request.data[request.next..][..left as usize];
                    let target = if request.is_write { Target::Write(data) } else { Target::Read(data) };
                    request.fault = table.copy(iova, target).err();
                    request.next += left as usize;
                    continue;
                }
                if self.stalls.is_barred() {
                    request.fault = Some(DmaFault::HostGone);
                    break;
                }
                let bytes = left.min(line.piece) as usize;
                let id = line.next_id;
                line.next_id = id.wrapping_add(1);
                let access = DmaAccess { address: iova, count: bytes as u64 }.encode();
                let (command, data) = if request.is_write {
                    (Command::DmaWrite, &request.data[request.next..][..bytes])
                } else {
                    (Command::DmaRead, &[][..])
                };
                let header = Header::command(id, command, access.len() + data.len());
                if self.link.send(header, [&access, data], &[]).is_err() {
                    request.fault = Some(DmaFault::HostGone);
                    break;
                }
                line.asked.get_or_insert_with(Instant::now);
                line.out.push(Message { id, offset: request.next, bytes });
                request.next += bytes;
            }
            if !line.out.is_empty() {
                return;
            }
            let Some(request) = line.waiting.pop_front() else { return };
            line.waiting_bytes -= request.data.len();
            let data = if request.is_write { Vec::new() } else { request.data };
            finished.push(Finished { tag: request.tag, result: request.fault.map_or(Ok(data), Err) });
            self.note_wait(line);
        }
        self.is_busy.store(false, Ordering::Release);
    }

    /// The first request is over, or given up: notes how long the client was waited for.
    fn note_wait(&self, line: &mut Line) {
        if let Some(asked) = line.asked.take() {
            self.stalls.note(asked.elapsed());
        }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DmaPort for Dma {
    fn read(&self, tag: DmaTag, iova: Iova, data: &mut [u8]) -> DmaProgress {
        self.request(tag, iova, Target::Read(data))
    }

    fn write(&self, tag: DmaTag, iova: Iova, data: &[u8]) -> DmaProgress {
        self.request(tag, iova, Target::Write(data))
    }
}

/// Where data goes, or comes from.
enum Target<'a> {
    Read(&'a mut [u8]),
    Write(&'a [u8]),
}

impl Target<'_> {
    fn len(&self) -> usize {
        match self {
            Target::Read(data) => data.len(),
            Target::Write(data) => data.len(),
        }
    }
}

impl Table {
    fn new(share: Arc<Share>) -> Self {
        Table { maps: BTreeMap::new(), by_message: 0, files: ClientFiles::new(Arc::clone(&share)), share }
    }

    /// The mapping of an address, and how many bytes of it lie there.
    #[inline]
    fn find(&self, iova: u64, is_write: bool) -> Option<(u64, &Mapping)> {
        let (_, mapping) = self.maps.range(..=iova).next_back()?;
        let allowed = if is_write { mapping.writeable } else { mapping.readable };
        // The last byte may be the last there is: then one less is told of, which a later look makes up for.
        (allowed && mapping.last >= iova).then(|| ((mapping.last - iova).saturating_add(1), mapping))
    }

    /// How many bytes from an address on are reached in the same way, and whether that is by copies.
    ///
    /// A client that has its memory reached by messages is asked for what it has not mapped, too: it refuses by itself,
    /// and can tell of it. A virtual machine's IOMMU reports the access to its guest, as one of metal would.
    #[inline]
    fn reach(&self, iova: u64, is_write: bool) -> Option<(u64, bool)> {
        if let Some((left, mapping)) = self.find(iova, is_write) {
            return Some((left, mapping.file.is_some()));
        }
        let is_mapped = self.maps.range(..=iova).next_back().is_some_and(|(_, mapping)| mapping.last >= iova);
        let next = self.maps.range(iova..).next().map_or(u64::MAX, |(first, _)| *first);
        (!is_mapped && self.by_message > 0 && next > iova).then(|| (next - iova, false))
    }

    /// Whether all of a range is reached by copies, or the fault at its first byte that is not reached at all.
    #[inline]
    fn cover(&self, iova: Iova, bytes: u64, highest: u64, is_write: bool) -> Result<bool, DmaFault> {
        let (mut next, mut left, mut by_copy) = (iova.0, bytes, true);
        loop {
            let found = self.reach(next, is_write).filter(|_| next <= highest);
            let (here, is_file) = found.ok_or(DmaFault::Unmapped { iova: Iova(next) })?;
            by_copy &= is_file;
            let here = here.min((highest - next).saturating_add(1));
            if here >= left {
                return Ok(by_copy);
            }
            left -= here;
            // Past the last address lies nothing; address 0 stands for that.
            next = next.checked_add(here).ok_or(DmaFault::Unmapped { iova: Iova(0) })?;
        }
    }

    /// Copies a range that [`cover`](Self::cover) has found to lie in files.
    fn copy(&self, iova: u64, target: Target<'_>) -> Result<(), DmaFault> {
        let unmapped = |iova| DmaFault::Unmapped { iova: Iova(iova) };
        let mut next = iova;
        match target {
            Target::Read(mut data) => {
                while !data.is_empty() {
                    let (file, offset, bytes) = self.piece(next, data.len(), false).ok_or(unmapped(next))?;
                    let (head, tail) = std::mem::take(&mut data).split_at_mut(bytes);
                    file.read(offset, head).map_err(|_| unmapped(next))?;
                    (data, next) = (tail, next.wrapping_add(bytes as u64));
                }
            }
            Target::Write(mut data) => {
                while !data.is_empty() {
                    let (file, offset, bytes) = self.piece(next, data.len(), true).ok_or(unmapped(next))?;
                    let (head, tail) = data.split_at(bytes);
                    file.write(offset, head).map_err(|_| unmapped(next))?;
                    (data, next) = (tail, next.wrapping_add(bytes as u64));
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn piece(&self, iova: u64, bytes: usize, is_write: bool) -> Option<(&ClientFile, u64, usize)> {
        let (first, _) = self.maps.range(..=iova).next_back()?;
        let (left, mapping) = self.find(iova, is_write)?;
        let (file, offset) = mapping.file.as_ref()?;
        Some((file, offset + (iova - first), left.min(bytes as u64) as usize))
    }
}

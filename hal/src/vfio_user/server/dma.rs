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
use super::client_memory::{ClientFile, ClientFiles, InMemory};
use super::link::Link;
use super::stalls::Stalls;
use crate::Iova;
use crate::endpoint::{DmaFault, DmaPort, DmaProgress, DmaTag};
use crate::vfio_user::wire::capabilities::PAGE;
use crate::vfio_user::wire::closing::Received;
use crate::vfio_user::wire::messages::{Command, DEFAULT_MAPS, DmaAccess, DmaMap, DmaUnmap, Header};

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
        if is_mapped || self.by_message == 0 {
            return None;
        }
        let last = self.maps.range(iova..).next().map_or(u64::MAX, |(first, _)| first - 1);
        Some(((last - iova).saturating_add(1), false))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfio_user::server::budget::{Budget, Limits, Member};
    use crate::vfio_user::wire::closing::Closer;
    use crate::vfio_user::wire::socket::{Reader, Socket};
    use nix::fcntl::{FcntlArg, SealFlag, fcntl};
    use nix::sys::memfd::{MFdFlags, memfd_create};
    use nix::unistd::ftruncate;
    use std::fs::File;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::os::unix::fs::FileExt;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    const MINUTE: Duration = Duration::from_secs(60);
    const FINE: DmaProgress = DmaProgress::Done(Ok(()));
    const GONE: DmaProgress = DmaProgress::Done(Err(DmaFault::HostGone));

    fn unmapped(iova: u64) -> DmaProgress {
        DmaProgress::Done(Err(DmaFault::Unmapped { iova: Iova(iova) }))
    }

    /// A client and the memory of its function.
    struct Client {
        dma: Dma,
        socket: Socket,
        reader: Reader,
    }

    impl Client {
        fn new(dma_bits: u8, transfer_bytes: u64, stalls: Stalls) -> Self {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let link = Arc::new(Link::new(Socket::new(ours, &Closer::new())).unwrap());
            link.set_master(true);
            let share = Member::new(&Budget::new(Limits::of_process()), "test".into()).share();
            let dma = Dma::new(link, Arc::new(stalls), share, dma_bits, transfer_bytes);
            let (socket, reader) = (Socket::new(theirs, &Closer::new()), Reader::new(1 << 20));
            Client { dma, socket, reader }
        }

        fn patient() -> Self {
            Client::new(64, 1 << 20, Stalls::new("test".into(), MINUTE))
        }

        fn map(&self, address: u64, size: u64, file: Option<(&OwnedFd, u64)>) {
            self.try_map(3, address, size, file).unwrap();
        }

        fn try_map(&self, flags: u32, address: u64, size: u64, file: Option<(&OwnedFd, u64)>) -> Result<(), Errno> {
            let offset = file.map_or(0, |(_, offset)| offset);
            let received = file.map(|(file, _)| Received::new(file.try_clone().unwrap(), &Closer::new()));
            self.dma.map(&DmaMap { argsz: 32, flags, offset, address, size }, Vec::from_iter(received))
        }

        fn unmap(&self, address: u64, size: u64) -> Result<(), Errno> {
            self.dma.unmap(&DmaUnmap { argsz: 24, flags: 0, address, size })
        }

        fn read(&self, iova: u64, bytes: usize) -> DmaProgress {
            self.dma.read(DmaTag(iova), Iova(iova), &mut vec![0; bytes])
        }

        fn write(&self, iova: u64, bytes: usize) -> DmaProgress {
            self.dma.write(DmaTag(iova), Iova(iova), &vec![3; bytes])
        }

        /// The next message asked, if any: command, address, count, data, and what answers it.
        fn asked(&mut self) -> Option<(Header, u64, u64, Vec<u8>)> {
            let header = self.reader.advance(&self.socket).unwrap()?;
            let (access, data) = DmaAccess::decode(self.reader.body()).unwrap();
            Some((header, access.address, access.count, data.to_vec()))
        }

        /// Answers a read with so many bytes of `value`; addresses of the requests that are over.
        fn answer(
            &self,
            (header, address, count, _): &(Header, u64, u64, Vec<u8>),
            value: u8,
        ) -> Option<Vec<Finished>> {
            let is_read = header.command == Command::DmaRead as u16;
            let data = vec![value; if is_read { *count as usize } else { 0 }];
            let body = [&DmaAccess { address: *address, count: *count }.encode()[..], &data].concat();
            self.dma.answered(&header.reply(body.len()), &body)
        }
    }

    fn memory(bytes: u64) -> OwnedFd {
        let file = memfd_create("test", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap();
        ftruncate(&file, bytes as i64).unwrap();
        fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).unwrap();
        file
    }

    #[test]
    fn what_can_be_mapped_has_exact_limits() {
        const LAST: u64 = u64::MAX - 0xfff;
        let (client, file) = (Client::patient(), memory(0x4000));
        let read_only: OwnedFd = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap().into();
        let (fine, wrong) = (Ok(()), Err(Errno::EINVAL));
        for (flags, address, size, offset, expected) in [
            (3, 0x1000, 0x1000, 0, fine),
            (1, 0x1000, 0x1000, 0x3000, fine),
            (2, 0, 0x4000, 0, fine),
            (3, LAST, 0x1000, 0, fine),
            (3, LAST, 0x2000, 0, wrong),
            (3, LAST - 0x1000, 0x2000, 0, fine),
            (3, 0x1000, 0x2000, 0x3000, wrong),
            (3, 0x1000, 0x1000, 0x3001, wrong),
            (3, 0x1000, 0x1000, u64::MAX - 0xffe, wrong),
            (0, 0x1000, 0x1000, 0, wrong),
            (4, 0x1000, 0x1000, 0, wrong),
            (7, 0x1000, 0x1000, 0, wrong),
            (0x8000_0003, 0x1000, 0x1000, 0, wrong),
            (3, 0x1000, 0, 0, wrong),
            (3, 0x1000, 0x800, 0, wrong),
            (3, 0x1800, 0x1000, 0, wrong),
        ] {
            let case = format!("{flags} {address:#x} {size:#x} {offset:#x}");
            assert_eq!(client.try_map(flags, address, size, Some((&file, offset))), expected, "{case}");
            assert_eq!(client.dma.unmap(&DmaUnmap { argsz: 24, flags: 2, address: 0, size: 0 }), Ok(()), "{case}");
        }
        let map = DmaMap { argsz: 32, flags: 3, offset: 0, address: 0, size: 0x1000 };
        assert_eq!(client.dma.map(&DmaMap { argsz: 31, ..map }, Vec::new()), wrong);
        let two = [(); 2].map(|()| Received::new(file.try_clone().unwrap(), &Closer::new()));
        assert_eq!(client.dma.map(&map, two.into()), wrong);
        assert_eq!(client.dma.map(&DmaMap { argsz: 33, ..map }, Vec::new()), fine);
        // What may only be read is not mapped to be written.
        assert_eq!(client.try_map(3, 0x1000, 0x1000, Some((&read_only, 0))), Err(Errno::EACCES));
        assert_eq!(client.try_map(2, 0x1000, 0x1000, Some((&read_only, 0))), Err(Errno::EACCES));
        assert_eq!(client.dma.table.read().unwrap().files.len(), 0, "and not held");
        assert_eq!(client.try_map(1, 0x1000, 0x1000, Some((&read_only, 0))), fine);
        assert_eq!((client.read(0x1000, 8), client.write(0x1000, 8)), (FINE, unmapped(0x1000)));
        // Beside one another, but not over one another.
        for (address, size, expected) in [
            (0x1000, 0x1000, Err(Errno::EEXIST)),
            (0, 0x3000, Err(Errno::EEXIST)),
            (0, 0x1000, Err(Errno::EEXIST)),
            (0x2000, 0x1000, fine),
        ] {
            assert_eq!(client.try_map(3, address, size, None), expected, "{address:#x} {size:#x}");
        }
    }

    #[test]
    fn what_can_be_unmapped_has_exact_limits() {
        let client = Client::patient();
        let (fine, wrong) = (Ok(()), Err(Errno::EINVAL));
        let of = |argsz, flags, address, size| client.dma.unmap(&DmaUnmap { argsz, flags, address, size });
        for (argsz, flags, address, size, expected) in [
            (24, 0, 0x1000, 0x1000, fine),
            (25, 0, 0x1000, 0x1000, fine),
            (23, 0, 0x1000, 0x1000, wrong),
            (24, 2, 0, 0, fine),
            (24, 2, 0x1000, 0, wrong),
            (24, 2, 0, 0x1000, wrong),
            (24, 0, 0, 0, wrong),
            (24, 0, 0x1000, 0, wrong),
            (24, 1, 0, 0x1000, Err(Errno::ENOTSUP)),
            (24, 3, 0, 0, wrong),
            (24, 4, 0, 0x1000, wrong),
            (24, 6, 0, 0, wrong),
            (24, 0, u64::MAX, 1, fine),
            (24, 0, u64::MAX, 2, wrong),
        ] {
            assert_eq!(of(argsz, flags, address, size), expected, "{argsz} {flags} {address:#x} {size:#x}");
        }
        // Of 0x1000..0x2000, 0x2000..0x4000 and 0x4000..0x5000, what may go without one being cut.
        for (address, size, expected, left) in [
            (0x1000, 0x1000, fine, vec![0x2000, 0x4000]),
            (0x2000, 0x2000, fine, vec![0x1000, 0x4000]),
            (0x1001, 0xfff, wrong, vec![0x1000, 0x2000, 0x4000]),
            (0x1000, 0xfff, wrong, vec![0x1000, 0x2000, 0x4000]),
            (0x1000, 0x1001, wrong, vec![0x1000, 0x2000, 0x4000]),
            (0x1fff, 0x2001, wrong, vec![0x1000, 0x2000, 0x4000]),
            (0x0, 0x4000, fine, vec![0x4000]),
            (0xfff, 0x3001, fine, vec![0x4000]),
            (0x4000, u64::MAX - 0x3fff, fine, vec![0x1000, 0x2000]),
            (0x5000, 0x1000, fine, vec![0x1000, 0x2000, 0x4000]),
            (0, 0x1000, fine, vec![0x1000, 0x2000, 0x4000]),
        ] {
            of(24, 2, 0, 0).unwrap();
            for (at, size) in [(0x1000, 0x1000), (0x2000, 0x2000), (0x4000, 0x1000)] {
                client.map(at, size, None);
            }
            assert_eq!(client.unmap(address, size), expected, "{address:#x} {size:#x}");
            let table = client.dma.table.read().unwrap();
            assert_eq!(table.maps.keys().copied().collect::<Vec<_>>(), left, "{address:#x} {size:#x}");
            assert_eq!(table.by_message, left.len());
        }
    }

    #[test]
    fn mappings_without_a_file_are_counted() {
        let (mut client, file) = (Client::patient(), memory(0x1000));
        client.map(0x1000, 0x1000, Some((&file, 0)));
        assert_eq!(client.read(0x8000, 4), unmapped(0x8000), "nobody can be asked");
        for address in [0x2000, 0x3000, 0x4000] {
            client.map(address, 0x1000, None);
        }
        for address in [0x2000, 0x3000] {
            client.unmap(address, 0x1000).unwrap();
            // Who answers for some of its memory is asked for what it has not mapped, too.
            assert_eq!(client.read(0x8000, 4), DmaProgress::Pending);
            let asked = client.asked().unwrap();
            assert_eq!(client.answer(&asked, 1).unwrap().len(), 1);
        }
        client.unmap(0x4000, 0x1000).unwrap();
        assert_eq!(client.read(0x8000, 4), unmapped(0x8000));
        assert_eq!(client.dma.table.read().unwrap().by_message, 0);
    }

    #[test]
    fn who_is_asked_for_memory_is_asked_for_what_is_not_mapped() {
        let (mut client, file) = (Client::patient(), memory(0x1000));
        client.map(0x2000, 0x1000, None);
        client.map(0x4000, 0x1000, Some((&file, 0)));
        assert_eq!(client.try_map(1, 0x8000, 0x1000, None), Ok(()));
        for (iova, bytes, expected) in [
            (0, 0x1000, vec![(0, 0x1000)]),
            (0x1000, 0x2000, vec![(0x1000, 0x1000), (0x2000, 0x1000)]),
            (0x3000, 0x1800, vec![(0x3000, 0x1000)]),
            (0x4fff, 2, vec![(0x5000, 1)]),
            (u64::MAX - 1, 1, vec![(u64::MAX - 1, 1)]),
            (u64::MAX - 1, 2, vec![(u64::MAX - 1, 2)]),
            (u64::MAX, 1, vec![(u64::MAX, 1)]),
        ] {
            assert_eq!(client.read(iova, bytes), DmaProgress::Pending, "{bytes:#x} bytes at {iova:#x}");
            let mut asked = Vec::new();
            while let Some(message) = client.asked() {
                asked.push((message.1, message.2));
                client.answer(&message, 1).unwrap();
            }
            assert_eq!(asked, expected, "{bytes:#x} bytes at {iova:#x}");
        }
        // What it has mapped to be read alone is not asked to be written.
        assert_eq!(client.write(0x8000, 4), unmapped(0x8000));
        assert_eq!(client.write(0x7ffe, 4), unmapped(0x8000));
    }

    #[test]
    fn a_request_reaches_so_far_and_no_further() {
        let (client, file) = (Client::new(16, 1 << 20, Stalls::new("test".into(), MINUTE)), memory(0x4000));
        client.map(0x1000, 0x1000, Some((&file, 0x3000)));
        client.map(0x2000, 0x1000, Some((&file, 0)));
        client.map(0xf000, 0x2000, Some((&file, 0x1000)));
        for (iova, bytes, expected) in [
            (0x1000, 0, FINE),
            (0x9000, 0, FINE),
            (0x1000, 0x2000, FINE),
            (0x1000, 0x2001, unmapped(0x3000)),
            (0x2fff, 1, FINE),
            (0x2fff, 2, unmapped(0x3000)),
            (0xfff, 1, unmapped(0xfff)),
            (0xfff, 2, unmapped(0xfff)),
            (0xf000, 0x1000, FINE),
            (0xffff, 1, FINE),
            // It is mapped, but the function puts no such address on the bus.
            (0xf000, 0x1001, unmapped(0x1_0000)),
            (0x1_0000, 1, unmapped(0x1_0000)),
        ] {
            assert_eq!(client.read(iova, bytes), expected, "{bytes:#x} bytes at {iova:#x}");
            assert_eq!(client.write(iova, bytes), expected, "{bytes:#x} bytes at {iova:#x}");
        }
        // What is not reached as a whole is not touched.
        let all = File::from(file.try_clone().unwrap());
        all.write_all_at(&[9; 0x4000], 0).unwrap();
        assert_eq!(client.write(0x1000, 0x2001), unmapped(0x3000));
        let mut data = vec![0; 0x4000];
        file_at(&file, 0, &mut data);
        assert!(data == [9; 0x4000]);
        assert_eq!(client.dma.write(DmaTag(0), Iova(0x1ffe), &[1, 2, 3, 4]), FINE);
        let mut data = [0; 2];
        file_at(&file, 0x3ffe, &mut data);
        assert_eq!(data, [1, 2]);
        file_at(&file, 0, &mut data);
        assert_eq!(data, [3, 4]);
        let mut data = [0; 4];
        assert_eq!((client.dma.read(DmaTag(0), Iova(0x1ffe), &mut data), data), (FINE, [1, 2, 3, 4]));
        client.dma.link.set_master(false);
        assert_eq!(client.read(0x1000, 1), DmaProgress::Done(Err(DmaFault::NotMaster)));
        client.dma.link.stop();
        assert_eq!(client.read(0x1000, 1), GONE);
    }

    fn file_at(file: &OwnedFd, offset: u64, data: &mut [u8]) {
        File::from(file.try_clone().unwrap()).read_exact_at(data, offset).unwrap();
    }

    #[test]
    fn the_last_address_there_is_can_be_reached() {
        const LAST: u64 = u64::MAX - 0xfff;
        let (mut client, file) = (Client::patient(), memory(0x1000));
        client.map(LAST, 0x1000, Some((&file, 0)));
        assert_eq!((client.write(LAST, 0x1000), client.read(u64::MAX, 1)), (FINE, FINE));
        assert_eq!(client.read(u64::MAX, 2), unmapped(0));
        assert_eq!(client.write(LAST, 0x1001), unmapped(0));
        client.unmap(LAST, 0x1000).unwrap();
        client.map(LAST, 0x1000, None);
        assert_eq!(client.read(LAST, 0x1000), DmaProgress::Pending);
        let (_, address, count, _) = client.asked().unwrap();
        assert_eq!((address, count), (LAST, 0x1000));
    }

    #[test]
    fn messages_are_two_at_a_time_and_of_a_piece_each() {
        for (transfer_bytes, piece) in [(1 << 20, 32 << 10), (32 << 10, 32 << 10), (1000, 1000)] {
            let mut client = Client::new(64, transfer_bytes, Stalls::new("test".into(), MINUTE));
            client.map(0x10_0000, 0x10_0000, None);
            let bytes = 3 * piece as usize + 5;
            assert_eq!(client.dma.deadline(), None);
            assert_eq!(client.write(0x10_0008, bytes), DmaProgress::Pending);
            let begin = Instant::now();
            assert!(client.dma.deadline().is_some_and(|deadline| deadline <= begin + MINUTE));
            let mut out = VecDeque::new();
            for (index, count) in [piece, piece, piece, 5].into_iter().enumerate() {
                while let Some(asked) = client.asked() {
                    out.push_back(asked);
                }
                assert_eq!(out.len(), if index < 3 { 2 } else { 1 });
                let (header, address, asked, data) = out.pop_front().unwrap();
                assert_eq!((header.command, header.id), (Command::DmaWrite as u16, index as u16));
                assert_eq!((address, asked, data.len()), (0x10_0008 + index as u64 * piece, count, count as usize));
                let finished = client.answer(&(header, address, asked, data), 0).unwrap();
                assert_eq!(finished.len(), usize::from(index == 3));
            }
            assert_eq!(client.dma.deadline(), None);
        }
    }

    #[test]
    fn what_is_read_lies_where_it_was_asked_for() {
        let (mut client, file) = (Client::patient(), memory(0x1000));
        // Asked for, copied, asked for.
        client.map(0x1000, 0x1000, None);
        client.map(0x2000, 0x1000, Some((&file, 0)));
        client.map(0x3000, 0x1000, None);
        File::from(file.try_clone().unwrap()).write_all_at(&[2; 0x1000], 0).unwrap();
        assert_eq!(client.read(0x1800, 0x2000), DmaProgress::Pending);
        // What comes later waits, though it could be copied.
        assert_eq!(client.read(0x2000, 16), DmaProgress::Pending);
        let first = client.asked().unwrap();
        assert_eq!((first.1, first.2), (0x1800, 0x800));
        assert!(client.asked().is_none(), "not before what lies below it has arrived");
        assert_eq!(client.answer(&first, 1).unwrap().len(), 0);
        assert!(client.answer(&first, 1).is_none(), "it was answered");
        let last = client.asked().unwrap();
        assert_eq!((last.1, last.2), (0x3000, 0x800));
        let [whole, later] = <[Finished; 2]>::try_from(client.answer(&last, 3).unwrap()).unwrap();
        assert_eq!((whole.tag, later.tag), (DmaTag(0x1800), DmaTag(0x2000)));
        assert_eq!(whole.result.unwrap(), [[1; 0x800].as_slice(), &[2; 0x1000], &[3; 0x800]].concat());
        assert_eq!(later.result.unwrap(), [2; 16]);
        assert_eq!(client.read(0x2000, 16), FINE, "nothing waits any more");
    }

    #[test]
    fn requests_that_wait_have_a_limit() {
        let mut client = Client::patient();
        client.map(0, 1 << 30, None);
        for request in 0..4096 {
            assert_eq!(client.read(request, 1), DmaProgress::Pending, "{request}");
        }
        let first = client.asked().unwrap();
        assert_eq!(client.answer(&first, 0).unwrap().len(), 1);
        assert_eq!(client.read(0, 1), DmaProgress::Pending, "there was room for one");
        assert!(!client.dma.link.is_stopped());
        assert_eq!(client.read(0, 1), GONE);
        assert!(client.dma.link.is_stopped());
        assert_eq!(client.dma.close().len(), 4096);
    }

    #[test]
    fn bytes_that_wait_have_a_limit() {
        let mut client = Client::patient();
        client.map(0, 1 << 30, None);
        let (all, small) = (64 << 20, 4096);
        assert_eq!(client.read(0, small), DmaProgress::Pending);
        assert_eq!(client.read(0x1000, all - small), DmaProgress::Pending);
        let first = client.asked().unwrap();
        assert_eq!(client.answer(&first, 0).unwrap().len(), 1);
        assert_eq!(client.read(0x2000, small), DmaProgress::Pending, "they have made room");
        assert!(!client.dma.link.is_stopped());
        assert_eq!(client.write(0x3000, 1), GONE);
        assert!(client.dma.link.is_stopped());
        let left = client.dma.close();
        assert_eq!(left.iter().map(|it| it.tag.0).collect::<Vec<_>>(), [0x1000, 0x2000]);
        assert!(left.iter().all(|it| it.result == Err(DmaFault::HostGone)));
        assert_eq!(client.dma.deadline(), None);
    }

    #[test]
    fn a_client_that_is_slow_is_asked_no_more() {
        let mut client = Client::new(64, 1 << 20, Stalls::new("test".into(), Duration::from_secs(5)));
        client.map(0, 1 << 30, None);
        let minute_ago = Instant::now().checked_sub(MINUTE).expect("the machine has run for a minute");
        assert_eq!(client.read(0, 1), DmaProgress::Pending);
        let first = client.asked().unwrap();
        // As if the answer had taken a minute.
        client.dma.line().asked = Some(minute_ago);
        assert_eq!(client.answer(&first, 0).unwrap().len(), 1);
        assert_eq!(client.read(0, 1), GONE);
        assert!(client.asked().is_none());
    }
}

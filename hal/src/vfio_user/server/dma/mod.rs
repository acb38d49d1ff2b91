//! The endpoint's access to a client's memory: by copies where the client has passed a file, else by messages.
//!
//! A call of the port never waits for a message. Its request is pending, and the session's thread completes it when the
//! replies have arrived. While a request is pending, later requests are queued, even those that could be copied: so writes
//! stay in order, and a read sees the writes before it.

mod queue;
mod table;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use nix::errno::Errno;

pub(crate) use self::queue::Finished;
use self::queue::{Queue, Request};
use self::table::{Table, Target};
use super::budget::{Item, Share};
use super::client_memory::InMemory;
use super::link::Link;
use super::stalls::Stalls;
use crate::Iova;
use crate::endpoint::{DmaFault, DmaPort, DmaProgress, DmaTag};
use crate::vfio_user::wire::capabilities::PAGE;
use crate::vfio_user::wire::closing::Received;
use crate::vfio_user::wire::header::Header;
use crate::vfio_user::wire::memory::{DmaMap, DmaUnmap};

/// The memory of one client, and the requests of its function.
#[derive(Debug)]
pub(crate) struct Dma {
    link: Arc<Link>,
    stalls: Arc<Stalls>,
    share: Arc<Share>,
    /// Copies hold it for reading: once a mapping is taken out of the table, its memory is no longer accessed.
    table: RwLock<Table>,
    queue: Mutex<Queue>,
    /// Whether requests are queued.
    is_busy: AtomicBool,
    /// The last address that the endpoint can put on the bus.
    highest: u64,
}

impl Dma {
    pub(crate) fn new(
        link: Arc<Link>,
        stalls: Arc<Stalls>,
        share: Arc<Share>,
        dma_bits: u8,
        transfer_bytes: u64,
    ) -> Self {
        Dma {
            link,
            stalls,
            table: RwLock::new(Table::new(Arc::clone(&share))),
            share,
            queue: Mutex::new(Queue::new(transfer_bytes)),
            is_busy: AtomicBool::new(false),
            highest: u64::MAX >> (64 - u32::from(dma_bits)),
        }
    }

    /// Maps a range (section "`VFIO_USER_DMA_MAP`").
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
        let mut table = self.table_mut();
        let mapped = table.insert(map, last, passed);
        let unused = if mapped.is_err() { table.files.take_unused() } else { Vec::new() };
        drop(table);
        drop(unused);
        mapped
    }

    /// Unmaps a range (section "`VFIO_USER_DMA_UNMAP`"), with the kernel's rules: removes all mappings inside of the range,
    /// which may be none; a mapping that is only partly inside is an error. When this returns, the endpoint no longer
    /// accesses the memory.
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
        // With ALL, address and size are 0, and this is the last address of all.
        let last = unmap.address.checked_add(unmap.size.wrapping_sub(1)).ok_or(Errno::EINVAL)?;
        let mut table = self.table_mut();
        let unused = table.remove(unmap.address, last)?;
        // Freeing the pages may take the kernel long, and the endpoint's DMA need not wait for that.
        drop(table);
        drop(unused);
        Ok(())
    }

    /// Takes the reply to a message, and returns the requests that are complete now. `None`: the reply does not match any
    /// message that is out.
    pub(crate) fn answered(&self, header: &Header, body: &[u8]) -> Option<Vec<Finished>> {
        let mut queue = self.queue();
        queue.take_reply(header, body)?;
        Some(self.advance(&mut queue))
    }

    /// Until when the client must have answered all messages of the first request, if it was asked.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        if !self.is_busy.load(Ordering::Acquire) {
            return None;
        }
        self.queue().deadline(&self.stalls)
    }

    /// Extends the client's limit by `waited`: the session's thread has waited for the endpoint, and read no reply meanwhile.
    pub(crate) fn excuse(&self, waited: Duration) {
        if self.is_busy.load(Ordering::Acquire) {
            self.queue().excuse(waited, Instant::now());
        }
    }

    /// Ends all access, as the function is no bus master now, and returns the requests that are complete. When this returns, the
    /// endpoint no longer accesses the memory, but for what the client was asked before.
    pub(crate) fn cancel(&self) -> Vec<Finished> {
        // Copies that began before have ended.
        drop(self.table_mut());
        let mut queue = self.queue();
        queue.cancel();
        self.advance(&mut queue)
    }

    /// Ends all access, as the client is gone, and returns the requests that were not complete.
    pub(crate) fn close(&self) -> Vec<Finished> {
        self.link.stop();
        let unfinished = self.queue().close(&self.stalls);
        let mut table = self.table_mut();
        let taken = table.take_all();
        drop(table);
        drop(taken);
        unfinished
    }

    fn request(&self, tag: DmaTag, iova: Iova, target: Target<'_>) -> DmaProgress {
        if !self.link.is_here() {
            return DmaProgress::Done(Err(DmaFault::HostGone));
        }
        let bytes = target.len();
        {
            // Bus mastering is looked at within the locks that `cancel` takes.
            let table = self.table();
            if let Err(fault) = self.link.check() {
                return DmaProgress::Done(Err(fault));
            }
            if bytes == 0 {
                return DmaProgress::Done(Ok(()));
            }
            let by_copy = match table.cover(iova, bytes as u64, self.highest, target.is_write()) {
                Ok(by_copy) => by_copy,
                Err(fault) => return DmaProgress::Done(Err(fault)),
            };
            if by_copy && !self.is_busy.load(Ordering::Acquire) {
                return DmaProgress::Done(table.copy(iova.0, target));
            }
        }
        let mut queue = self.queue();
        if queue.is_closed() {
            return DmaProgress::Done(Err(DmaFault::HostGone));
        }
        if let Err(fault) = self.link.check() {
            return DmaProgress::Done(Err(fault));
        }
        if !queue.has_room(bytes) {
            log::warn!("A client answers DMA too slowly: {} requests wait for it", queue.len());
            self.link.stop();
            return DmaProgress::Done(Err(DmaFault::HostGone));
        }
        let Ok(charge) = self.share.take(Item::Buffered, bytes as u64) else {
            self.link.stop();
            return DmaProgress::Done(Err(DmaFault::HostGone));
        };
        let was_idle = queue.len() == 0;
        queue.push(Request::new(tag, iova.0, &target, charge));
        self.is_busy.store(true, Ordering::Release);
        if !was_idle {
            return DmaProgress::Pending;
        }
        let finished = self.advance(&mut queue).pop();
        drop(queue);
        // Alone in the queue, the request may be complete already: its range was mapped or unmapped meanwhile.
        let Some(finished) = finished else {
            // The session's thread has a deadline now, which it did not have before.
            self.link.wake().wake();
            return DmaProgress::Pending;
        };
        DmaProgress::Done(finished.result.map(|read| {
            if let Target::Read(data) = target {
                data.copy_from_slice(&read);
            }
        }))
    }

    /// Does what can be done of the queue now, and returns the requests that are complete.
    fn advance(&self, queue: &mut Queue) -> Vec<Finished> {
        let finished = queue.advance(&self.table(), &self.link, &self.stalls);
        if queue.len() == 0 {
            self.is_busy.store(false, Ordering::Release);
        }
        finished
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn table_mut(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
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

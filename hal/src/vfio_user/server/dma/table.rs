//! What a client has mapped, and copies into it and out of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use nix::errno::Errno;

use crate::Iova;
use crate::endpoint::DmaFault;
use crate::vfio_user::server::budget::{Charge, Item, Share};
use crate::vfio_user::server::client_memory::{ClientFile, ClientFiles, InMemory};
use crate::vfio_user::wire::memory::DmaMap;
use crate::vfio_user::wire::version::DEFAULT_MAPS;

/// The mappings of a client.
#[derive(Debug)]
pub(super) struct Table {
    /// By first address; disjoint.
    pub(super) maps: BTreeMap<u64, Mapping>,
    /// How many of them are accessed by messages.
    pub(super) by_message: usize,
    share: Arc<Share>,
    pub(super) files: ClientFiles,
}

#[derive(Debug)]
pub(super) struct Mapping {
    last: u64,
    readable: bool,
    writeable: bool,
    /// The file that the client has passed, and the mapping's offset in it.
    file: Option<(Arc<ClientFile>, u64)>,
    _charge: Charge,
}

/// Where the data of a request goes to, or comes from.
pub(super) enum Target<'a> {
    Read(&'a mut [u8]),
    Write(&'a [u8]),
}

impl Target<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Target::Read(data) => data.len(),
            Target::Write(data) => data.len(),
        }
    }

    pub(super) fn is_write(&self) -> bool {
        matches!(self, Target::Write(_))
    }
}

impl Table {
    pub(super) fn new(share: Arc<Share>) -> Self {
        Table { maps: BTreeMap::new(), by_message: 0, files: ClientFiles::new(Arc::clone(&share)), share }
    }

    /// Adds a mapping that ends with address `last`, and lies in the file `passed` if there is one. After a failure, the file
    /// may be [unused](ClientFiles::take_unused).
    pub(super) fn insert(&mut self, map: &DmaMap, last: u64, passed: Option<InMemory>) -> Result<(), Errno> {
        if self.maps.range(..=last).next_back().is_some_and(|(_, other)| other.last >= map.address) {
            return Err(Errno::EEXIST);
        }
        if self.maps.len() as u64 >= DEFAULT_MAPS {
            return Err(Errno::ENOSPC);
        }
        let charge = self.share.take(Item::Mappings, 1)?;
        let file = passed.map_or(Ok(None), |passed| self.files.open(passed))?;
        let writeable = map.flags & DmaMap::WRITEABLE != 0;
        if writeable && file.as_ref().is_some_and(|file| !file.is_writeable()) {
            return Err(Errno::EACCES);
        }
        let mapping = Mapping {
            last,
            readable: map.flags & DmaMap::READABLE != 0,
            writeable,
            file: file.map(|file| (file, map.offset)),
            _charge: charge,
        };
        self.by_message += usize::from(mapping.file.is_none());
        self.maps.insert(map.address, mapping);
        Ok(())
    }

    /// Removes all mappings inside of `first..=last`, and returns the files that are unused now. Fails if a mapping lies only
    /// partly inside.
    pub(super) fn remove(&mut self, first: u64, last: u64) -> Result<Vec<Arc<ClientFile>>, Errno> {
        let straddles = |at: u64| self.maps.range(..=at).next_back().filter(|(_, map)| map.last >= at);
        let cut_below = straddles(first).is_some_and(|(start, _)| *start < first);
        let cut_above = straddles(last).is_some_and(|(_, map)| map.last > last);
        if cut_below || cut_above {
            return Err(Errno::EINVAL);
        }
        let mut removed = self.maps.split_off(&first);
        if let Some(after) = last.checked_add(1) {
            self.maps.append(&mut removed.split_off(&after));
        }
        let had_files = removed.values().any(|map| map.file.is_some());
        self.by_message -= removed.values().filter(|map| map.file.is_none()).count();
        drop(removed);
        Ok(if had_files { self.files.take_unused() } else { Vec::new() })
    }

    /// Takes out everything. Dropping it may take long.
    #[must_use]
    pub(super) fn take_all(&mut self) -> Table {
        let empty = Table::new(Arc::clone(&self.share));
        std::mem::replace(self, empty)
    }

    /// Finds the mapping of an address, and how many bytes from there on lie in it.
    #[inline]
    fn find(&self, iova: u64, is_write: bool) -> Option<(u64, &Mapping)> {
        let (_, mapping) = self.maps.range(..=iova).next_back()?;
        let allowed = if is_write { mapping.writeable } else { mapping.readable };
        // A mapping of all 2^64 bytes counts one less: the next look finds the rest.
        (allowed && mapping.last >= iova).then(|| ((mapping.last - iova).saturating_add(1), mapping))
    }

    /// Returns how many bytes from an address on are accessed in the same way, and whether that is by copies.
    ///
    /// A client with memory that is accessed by messages is also asked for addresses that it has not mapped: it refuses
    /// them itself, and can report the access. So the IOMMU of a virtual machine reports it to its guest, as a real one
    /// would.
    #[inline]
    pub(super) fn reach(&self, iova: u64, is_write: bool) -> Option<(u64, bool)> {
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

    /// Checks that all of a range can be accessed, up to address `highest`, and returns whether copies suffice. Fails with
    /// the first byte that cannot be accessed.
    #[inline]
    pub(super) fn cover(&self, iova: Iova, bytes: u64, highest: u64, is_write: bool) -> Result<bool, DmaFault> {
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
            // Behind the last address there is none: the fault says 0.
            next = next.checked_add(here).ok_or(DmaFault::Unmapped { iova: Iova(0) })?;
        }
    }

    /// Copies a range that lies in files, as [`cover`](Self::cover) or [`reach`](Self::reach) has found.
    pub(super) fn copy(&self, iova: u64, target: Target<'_>) -> Result<(), DmaFault> {
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

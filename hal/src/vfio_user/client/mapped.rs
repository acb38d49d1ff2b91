//! Mapped memory of a server.
//!
//! A server may end at any time, and its mapped memory would keep its last contents. So the mapping is then replaced by a
//! mapping of an empty file: every access raises SIGBUS, whose handler makes it read all-ones, as for a removed function.

use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use memmap2::{Advice, MmapOptions, MmapRaw};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::fstat;
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};

use crate::bus::Piece;
use crate::memory::region::page_size;
use crate::owner::Owner;
use crate::removal::{Removal, Vanish};
use crate::sigbus::{self, Watch};
use crate::vfio_user::wire::closing::Received;
use crate::vfio_user::wire::region::{Area, RegionInfo};
use crate::{Error, Result};

/// A mapped part of a server's memory.
#[derive(Debug)]
pub(crate) struct Mapped {
    // The first field, so that it ends before the memory that it watches.
    _watch: Watch,
    /// Not unmapped in a forked child, which may have other memory at this address.
    map: Option<MmapRaw>,
    owner: Owner,
}

impl Vanish for Mapped {
    fn vanish(&self) {
        let (Some(map), Some(empty), true) = (&self.map, empty(), self.owner.is_here()) else { return };
        let (start, bytes) = (map.as_mut_ptr().cast::<libc::c_void>(), map.len());
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        // SAFETY: the range is exactly the mapping that `self.map` owns, and unmaps later. No reference to the memory
        // exists: `Piece` accesses it by volatile accesses through raw pointers, and `self._watch` handles their SIGBUS.
        let replaced = unsafe { libc::mmap(start, bytes, access, flags, empty.as_raw_fd(), 0) };
        if replaced == libc::MAP_FAILED {
            return log::error!(
                "Replacing {bytes:#x} mapped bytes of a server that has ended: they keep their last contents"
            );
        }
        if let Err(error) = map.advise(Advice::DontFork) {
            log::warn!("Forked children inherit a replaced mapping: {error}");
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if !self.owner.is_here() {
            std::mem::forget(self.map.take());
        }
    }
}

/// Returns an empty file.
fn empty() -> Option<&'static OwnedFd> {
    static EMPTY: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let make = || {
        let file = memfd_create("fpga-gone", MFdFlags::MFD_CLOEXEC.union(MFdFlags::MFD_ALLOW_SEALING)).ok()?;
        fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_GROW.union(SealFlag::F_SEAL_SEAL))).ok()?;
        Some(file)
    };
    EMPTY.get_or_init(make).as_ref()
}

/// Returns the descriptor if its memory is safe to map: the server can neither shrink it nor punch holes that fault. A file
/// without seals is not touched otherwise, since it may be in a file system that the server itself runs.
pub(crate) fn mappable(descriptor: Received) -> Option<OwnedFd> {
    let seals = SealFlag::from_bits_retain(fcntl(&descriptor, FcntlArg::F_GET_SEALS).ok()?);
    let is_safe = seals.contains(SealFlag::F_SEAL_SHRINK) && empty().is_some();
    let descriptor = is_safe.then(|| descriptor.into_owned())?;
    (fstatfs(&descriptor).ok()?.filesystem_type() == TMPFS_MAGIC).then_some(descriptor)
}

/// Maps the `areas` of the region that the server's `description` has. Leaves out areas beyond the number that the handler of SIGBUS
/// can watch, and those that may not be written.
pub(crate) fn map(
    descriptor: &OwnedFd,
    info: &RegionInfo,
    areas: &[Area],
    description: &'static str,
    removal: &Arc<Removal>,
) -> Result<Vec<(Piece, Arc<Mapped>)>> {
    let wrong = || Error::Nonsense { what: description };
    let len = fstat(descriptor).map_or(0, |status| status.st_size as u64);
    let page = page_size() as u64;
    let owner = Owner::current();
    let mut pieces = Vec::new();
    let mut next = 0;
    for area in areas {
        let end = area.offset.checked_add(area.size).ok_or_else(wrong)?;
        let at = info.offset.checked_add(area.offset).ok_or_else(wrong)?;
        let file_end = at.checked_add(area.size).ok_or_else(wrong)?;
        if area.offset < next || end > info.size || file_end > len {
            return Err(wrong());
        }
        next = end;
        if area.size == 0 || !area.offset.is_multiple_of(page) || !at.is_multiple_of(page) {
            continue;
        }
        let bytes = usize::try_from(area.size).map_err(|_| wrong())?;
        let failed = |source| Error::Memory { what: "a mapped BAR", bytes: area.size, source };
        let map = match MmapOptions::new().offset(at).len(bytes).map_raw(descriptor) {
            // A descriptor that is only for reading, or a seal against writing. Messages reach the area.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => continue,
            map => map.map_err(failed)?,
        };
        map.advise(Advice::DontFork).map_err(failed)?;
        let start = map.as_mut_ptr();
        let Some(watch) = sigbus::watch(start, bytes, removal) else { continue };
        let mapped = Arc::new(Mapped { _watch: watch, map: Some(map), owner });
        let memory = Arc::clone(&mapped) as Arc<_>;
        // SAFETY: `memory` owns the mapping of `area.size` bytes and lends no references to it. Both the mapping and
        // `area.offset` begin on a page. The file cannot shrink: `mappable` checked its seals.
        pieces.push((unsafe { Piece::new(area.offset, area.size, start, owner, memory) }, mapped));
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfio_user::wire::closing::Closer;
    use nix::unistd::ftruncate;
    use std::fs;

    const PAGE: u64 = 4096;

    fn memory(name: &str, pages: u64, seals: SealFlag) -> OwnedFd {
        let file = memfd_create(name, MFdFlags::MFD_CLOEXEC.union(MFdFlags::MFD_ALLOW_SEALING)).unwrap();
        ftruncate(&file, (pages * PAGE) as i64).unwrap();
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).unwrap();
        file
    }

    /// Returns the line and the flags that the kernel lists for the mapping that begins at an address.
    fn mapping(start: usize) -> Option<(String, String)> {
        let text = fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = text.lines().skip_while(|line| !line.starts_with(&format!("{start:x}-")));
        let line = lines.next()?.to_owned();
        Some((line, lines.find(|line| line.starts_with("VmFlags"))?.to_owned()))
    }

    #[test]
    fn only_memory_that_cannot_shrink_is_mapped() {
        let is_mappable = |file: OwnedFd| mappable(Received::new(file, &Closer::new())).is_some();
        assert!(is_mappable(memory("test", 1, SealFlag::F_SEAL_SHRINK)));
        assert!(is_mappable(memory("test", 1, SealFlag::F_SEAL_SHRINK.union(SealFlag::F_SEAL_GROW))));
        assert!(!is_mappable(memory("test", 1, SealFlag::empty())));
        assert!(!is_mappable(memory("test", 1, SealFlag::F_SEAL_GROW)));
        assert!(!is_mappable(nix::unistd::pipe().unwrap().0));
        assert!(!is_mappable(fs::File::open("/proc/self/maps").unwrap().into()));
    }

    #[test]
    fn areas_inside_the_region_and_the_file_are_mapped() {
        let file = memory("test", 4, SealFlag::F_SEAL_SHRINK);
        let area = |offset, size| Area { offset, size };
        let of = |offset: u64, size: u64, areas: &[Area]| {
            let info = RegionInfo { argsz: 0, flags: 0, index: 2, cap_offset: 0, size, offset };
            let pieces = map(&file, &info, areas, "a region", &Arc::new(Removal::default()));
            pieces.map(|pieces| pieces.iter().map(|(_, mapped)| mapped.map.as_ref().unwrap().len()).collect::<Vec<_>>())
        };
        let size = 4 * PAGE;
        for (offset, size, areas, mapped) in [
            (0, size, vec![area(0, size)], vec![4]),
            (0, size, vec![area(0, PAGE), area(PAGE, PAGE), area(3 * PAGE, PAGE)], vec![1, 1, 1]),
            (PAGE, 3 * PAGE, vec![area(0, 3 * PAGE)], vec![3]),
            (PAGE, 3 * PAGE, vec![area(PAGE, 2 * PAGE)], vec![2]),
            (0, 0, vec![area(0, 0)], vec![]),
            (0, size, vec![], vec![]),
            // Areas that do not begin on a page, or are empty, are left out.
            (0, size, vec![area(0, 0), area(8, PAGE), area(2 * PAGE, PAGE)], vec![1]),
            (8, 2 * PAGE, vec![area(0, PAGE)], vec![]),
        ] {
            let mapped: Vec<_> = mapped.iter().map(|pages| pages * PAGE as usize).collect();
            assert_eq!(of(offset, size, &areas).unwrap(), mapped, "{offset:#x} {size:#x} {areas:?}");
        }
        for (offset, size, areas) in [
            // Beyond the region, beyond the file, overlapping, out of order, and overflowing.
            (0, size - 1, vec![area(0, size)]),
            (0, 8 * PAGE, vec![area(0, size + 1)]),
            (1, size, vec![area(0, size)]),
            (PAGE, size, vec![area(0, size)]),
            (0, size, vec![area(0, 2 * PAGE), area(PAGE, PAGE)]),
            (0, size, vec![area(PAGE, PAGE), area(0, PAGE)]),
            (0, u64::MAX, vec![area(u64::MAX, 2)]),
            (u64::MAX, u64::MAX, vec![area(2, 2)]),
        ] {
            assert!(matches!(of(offset, size, &areas), Err(Error::Nonsense { .. })), "{offset:#x} {size:#x} {areas:?}");
        }
    }

    #[test]
    fn memory_that_may_not_be_written_is_not_mapped() {
        let shrink = SealFlag::F_SEAL_SHRINK;
        let only_read = memory("test", 1, shrink);
        let path = format!("/proc/self/fd/{}", only_read.as_raw_fd());
        let only_read = fs::File::open(path).unwrap().into();
        let info = RegionInfo { argsz: 0, flags: 0, index: 2, cap_offset: 0, size: PAGE, offset: 0 };
        for (file, pieces) in [
            (memory("test", 1, shrink), 1),
            (memory("test", 1, shrink.union(SealFlag::F_SEAL_WRITE)), 0),
            (memory("test", 1, shrink.union(SealFlag::F_SEAL_FUTURE_WRITE)), 0),
            (only_read, 0),
        ] {
            let mapped =
                map(&file, &info, &[Area { offset: 0, size: PAGE }], "a region", &Arc::new(Removal::default()));
            assert_eq!(mapped.unwrap().len(), pieces);
        }
    }

    #[test]
    fn the_replacement_of_a_servers_memory_is_empty_and_not_inherited() {
        let file = memory("servers-memory", 2, SealFlag::F_SEAL_SHRINK);
        let info = RegionInfo { argsz: 0, flags: 0, index: 2, cap_offset: 0, size: 2 * PAGE, offset: 0 };
        let areas = [Area { offset: 0, size: 2 * PAGE }];
        let mut mapped = map(&file, &info, &areas, "a region", &Arc::new(Removal::default())).unwrap();
        let (piece, mapped) = mapped.pop().unwrap();
        let start = mapped.map.as_ref().unwrap().as_mut_ptr().addr();
        let (line, flags) = mapping(start).unwrap();
        assert!(line.contains("servers-memory") && line.contains(" rw-s "), "{line}");
        assert!(flags.contains(" dc"), "{flags}");
        mapped.vanish();
        let (line, flags) = mapping(start).unwrap();
        assert!(line.contains("fpga-gone") && line.contains(" rw-s "), "{line}");
        assert!(line.starts_with(&format!("{start:x}-{:x}", start + 2 * PAGE as usize)), "{line}");
        assert!(flags.contains(" dc"), "{flags}");
        assert_eq!(fstat(empty().unwrap()).unwrap().st_size, 0);
        assert!(ftruncate(empty().unwrap(), 4096).is_err(), "and stays so");
        drop((piece, mapped));
        assert!(mapping(start).is_none_or(|(line, _)| !line.contains("fpga-gone")));
    }
}

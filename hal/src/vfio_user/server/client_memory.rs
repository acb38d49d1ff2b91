//! Memory that a client has passed as a file.
//!
//! The client keeps the descriptor, and may be hostile: access to a mapped file that has shrunk raises SIGBUS, and a read
//! from a file system that the client runs may never end. So the server maps a file only if it is sealed against shrinking,
//! and touches it at all only if it is in memory. Huge pages can be punched out of a sealed file while the pool is empty, so
//! these files are mapped, but the kernel copies: it returns an error instead of raising a signal.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, SealFlag, fcntl};
use nix::sys::stat::{SFlag, fstat};
use nix::sys::statfs::{HUGETLBFS_MAGIC, TMPFS_MAGIC, fstatfs};
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::getpid;

use super::budget::{Charge, Item, Share};
use crate::memory::region::Region;
use crate::vfio_user::wire::closing::Received;

/// A descriptor of a file in memory, before it is used.
#[derive(Debug)]
pub(crate) struct InMemory {
    descriptor: OwnedFd,
    /// The bytes that the mapping needs, and the bytes of the file.
    end: u64,
    len: u64,
    /// Device and inode.
    identity: (u64, u64),
    is_huge: bool,
    is_sealed: bool,
}

impl InMemory {
    /// Checks a descriptor, of which the bytes up to `end` are mapped. `Ok(None)`: the file must not be touched, and its bytes
    /// are transferred by messages.
    ///
    /// Only files in memory have seals, so a file without seals is not touched again: calls on a file system that the client
    /// runs might never return, even if this process is killed.
    pub(crate) fn of(descriptor: Received, end: u64) -> Result<Option<Self>, Errno> {
        let Ok(seals) = fcntl(descriptor.as_fd(), FcntlArg::F_GET_SEALS) else {
            return if is_path(&descriptor) { Ok(None) } else { Err(Errno::EINVAL) };
        };
        // A file in memory closes at once.
        let descriptor = descriptor.into_owned();
        let status = fstat(&descriptor)?;
        if SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT != SFlag::S_IFREG {
            return Err(Errno::EINVAL);
        }
        let magic = fstatfs(&descriptor)?.filesystem_type();
        let len = u64::try_from(status.st_size).map_err(|_| Errno::EINVAL)?;
        if end > len {
            return Err(Errno::EINVAL);
        }
        let is_huge = magic == HUGETLBFS_MAGIC;
        let is_sealed = SealFlag::from_bits_retain(seals).contains(SealFlag::F_SEAL_SHRINK);
        let identity = (status.st_dev, status.st_ino);
        let passed = InMemory { descriptor, end, len, identity, is_huge, is_sealed };
        Ok((is_huge || magic == TMPFS_MAGIC).then_some(passed))
    }
}

/// Whether a descriptor is a file with a path, by [`described`].
fn is_path(descriptor: &Received) -> bool {
    described(descriptor.as_fd()).is_some_and(|text| text.is_absolute())
}

/// Returns the path or the kind of a descriptor from the kernel's list of descriptors, which does not touch the file.
pub(crate) fn described(descriptor: BorrowedFd<'_>) -> Option<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd())).ok()
}

/// A file of a client.
#[derive(Debug)]
pub(crate) struct ClientFile {
    access: Access,
    /// Bytes of the file when it was opened. A mapped file keeps them.
    len: u64,
    writeable: bool,
    /// Counts it.
    _charges: Vec<Charge>,
}

#[derive(Debug)]
enum Access {
    /// Mapped, all of it.
    Mapped(Region),
    /// Mapped, all of it, but copied by the kernel.
    Huge(Region),
    /// Read and written by system calls.
    Open(File),
}

impl ClientFile {
    /// Copies out of the file. Fails if the client has shrunk the file or punched the memory out. The caller is the process that
    /// opened the file: a forked child does not inherit the mapping.
    pub(crate) fn read(&self, offset: u64, data: &mut [u8]) -> Result<(), Errno> {
        let offset = self.check(offset, data.len())?;
        match &self.access {
            // `InMemory::of` saw the seal against shrinking, so no access faults.
            Access::Mapped(region) => region.read(region.len(), offset, data).map_err(|_| Errno::EFAULT),
            Access::Huge(region) => {
                let (remote, wanted) = (remote(region, offset, data.len()), data.len());
                whole(process_vm_readv(getpid(), &mut [IoSliceMut::new(data)], &[remote]), wanted)
            }
            Access::Open(file) => file.read_exact_at(data, offset as u64).map_err(errno),
        }
    }

    /// Copies into the file, and fails as [`read`](Self::read) does; the last aligned eight bytes become visible last.
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Result<(), Errno> {
        if !self.writeable {
            return Err(Errno::EACCES);
        }
        let offset = self.check(offset, data.len())?;
        if let Access::Mapped(region) = &self.access {
            return region.write(region.len(), offset, data).map_err(|_| Errno::EFAULT);
        }
        let (bulk, last) = data.split_at(before_last_word(offset, data.len()));
        self.write_by_call(offset, bulk)?;
        self.write_by_call(offset + bulk.len(), last)
    }

    fn write_by_call(&self, offset: usize, data: &[u8]) -> Result<(), Errno> {
        match &self.access {
            Access::Mapped(region) | Access::Huge(region) => {
                let remote = remote(region, offset, data.len());
                whole(process_vm_writev(getpid(), &[IoSlice::new(data)], &[remote]), data.len())
            }
            Access::Open(file) => {
                // The client may have shrunk the file. A write past its end would extend it, charged to this process.
                let len = fstat(file)?.st_size as u64;
                if (offset + data.len()) as u64 > len {
                    return Err(Errno::EFAULT);
                }
                file.write_all_at(data, offset as u64).map_err(errno)
            }
        }
    }

    /// Whether it may be written.
    pub(crate) fn is_writeable(&self) -> bool {
        self.writeable
    }

    fn check(&self, offset: u64, bytes: usize) -> Result<usize, Errno> {
        let bytes = bytes as u64;
        if bytes > self.len || offset > self.len - bytes {
            return Err(Errno::EFAULT);
        }
        usize::try_from(offset).map_err(|_| Errno::EFAULT)
    }
}

/// Describes the `len` bytes at `offset` of a region to the kernel.
fn remote(region: &Region, offset: usize, len: usize) -> RemoteIoVec {
    RemoteIoVec { base: region.base().addr() + offset, len }
}

/// Returns how many of the bytes written to `offset` are before the last aligned eight of them.
fn before_last_word(offset: usize, bytes: usize) -> usize {
    let end = offset + bytes;
    (end - end % 8).saturating_sub(8).saturating_sub(offset)
}

/// Returns the errno. An error without one means that the file is shorter than the read.
fn errno(error: io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EFAULT, Errno::from_raw)
}

fn whole(copied: nix::Result<usize>, wanted: usize) -> Result<(), Errno> {
    if copied? == wanted { Ok(()) } else { Err(Errno::EFAULT) }
}

/// The files of one client, each opened once for all mappings in it.
#[derive(Debug)]
pub(crate) struct ClientFiles {
    share: Arc<Share>,
    /// By device, inode and whether it may be written.
    files: HashMap<(u64, u64, bool), Arc<ClientFile>>,
}

impl ClientFiles {
    pub(crate) fn new(share: Arc<Share>) -> Self {
        ClientFiles { share, files: HashMap::new() }
    }

    /// Opens the file of a descriptor, or returns the open one. `Ok(None)`: its bytes are transferred by messages. Fails
    /// beyond the client's share.
    pub(crate) fn open(&mut self, passed: InMemory) -> Result<Option<Arc<ClientFile>>, Errno> {
        let InMemory { descriptor, end, len, identity, is_huge, is_sealed } = passed;
        let flags = OFlag::from_bits_retain(fcntl(&descriptor, FcntlArg::F_GETFL)?);
        let writeable = match flags & OFlag::O_ACCMODE {
            OFlag::O_RDONLY => false,
            OFlag::O_RDWR => true,
            _ => return Err(Errno::EACCES),
        };
        let key = (identity.0, identity.1, writeable);
        if let Some(file) = self.files.get(&key)
            && file.len >= end
        {
            return Ok(Some(Arc::clone(file)));
        }
        let is_mapped = is_sealed && writeable;
        if is_huge && !is_mapped {
            // Files of huge pages have no write system call.
            return Ok(None);
        }
        // Beyond the limit, only the client touches the file, so its pages are charged to the client.
        let Ok(memory) = self.share.take_memory(identity, len) else { return Ok(None) };
        let mut charges = vec![memory];
        let access = if is_mapped {
            charges.push(self.share.take(Item::Files, 1)?);
            charges.push(self.share.take(Item::AddressSpace, len)?);
            let map = map(&descriptor, len).inspect_err(|errno| {
                log::warn!("Mapping {len:#x} bytes of a client's memory: {errno}");
            })?;
            if is_huge { Access::Huge(map) } else { Access::Mapped(map) }
        } else {
            charges.push(self.share.take(Item::Descriptors, 1)?);
            let file = if writeable { reopen(&descriptor) } else { Ok(File::from(descriptor)) };
            match file {
                Ok(file) => Access::Open(file),
                Err(error) => {
                    log::debug!("A client's memory that is not sealed is transferred by messages: {error}");
                    return Ok(None);
                }
            }
        };
        let file = Arc::new(ClientFile { access, len, writeable, _charges: charges });
        self.files.insert(key, Arc::clone(&file));
        Ok(Some(file))
    }

    /// Takes out the files without a mapping. Dropping them may take long.
    #[must_use]
    pub(crate) fn take_unused(&mut self) -> Vec<Arc<ClientFile>> {
        self.files.extract_if(|_, file| Arc::strong_count(file) == 1).map(|(_, file)| file).collect()
    }

    /// Files that are held.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }
}

/// Opens a file in memory anew, for a description of this process's own. The client can set O_APPEND on its description at any time,
/// and a write would then extend the file.
fn reopen(descriptor: &OwnedFd) -> io::Result<File> {
    File::options().read(true).write(true).open(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))
}

fn map(descriptor: &OwnedFd, len: u64) -> Result<Region, Errno> {
    let len = usize::try_from(len).map_err(|_| Errno::ENOMEM)?;
    Region::map("a client's memory", descriptor, len).map_err(errno)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfio_user::server::budget::Limits;
    use crate::vfio_user::wire::closing::Closer;
    use nix::sys::memfd::{MFdFlags, memfd_create};
    use nix::unistd::ftruncate;

    fn memory(bytes: i64, seals: SealFlag) -> OwnedFd {
        let file = memfd_create("test", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap();
        ftruncate(&file, bytes).unwrap();
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).unwrap();
        file
    }

    fn round_trip(file: &ClientFile) {
        let data: Vec<u8> = (0..1000).map(|index| (index % 251) as u8).collect();
        for (offset, bytes) in [(0, 1000), (4090, 16), (1, 7), (4096, 64), (8184, 8), (8191, 1), (13, 0)] {
            file.write(offset, &data[..bytes]).unwrap();
            let mut read = vec![0; bytes];
            file.read(offset, &mut read).unwrap();
            assert_eq!(read, data[..bytes], "{bytes} bytes at {offset}");
        }
        for (offset, bytes) in [(8192, 1), (8185, 8), (u64::MAX, 1), (0, 8193)] {
            assert_eq!(file.write(offset, &vec![0; bytes]), Err(Errno::EFAULT));
            assert_eq!(file.read(offset, &mut vec![0; bytes]), Err(Errno::EFAULT));
        }
    }

    /// The files of the one client of a server with these limits.
    fn files(limits: Limits) -> ClientFiles {
        ClientFiles::new(Share::alone(limits))
    }

    fn open(files: &mut ClientFiles, descriptor: OwnedFd, end: u64) -> Result<Option<Arc<ClientFile>>, Errno> {
        InMemory::of(Received::new(descriptor, &Closer::new()), end)?.map_or(Ok(None), |passed| files.open(passed))
    }

    #[test]
    fn sealed_memory_is_mapped_once() {
        let mut files = files(Limits::of_process());
        let descriptor = memory(8192, SealFlag::F_SEAL_SHRINK);
        let first = open(&mut files, descriptor.try_clone().unwrap(), 4096).unwrap().unwrap();
        assert!(matches!(first.access, Access::Mapped(_)));
        round_trip(&first);
        for _ in 0..100 {
            let again = open(&mut files, descriptor.try_clone().unwrap(), 8192).unwrap().unwrap();
            assert!(Arc::ptr_eq(&first, &again));
        }
        assert_eq!(open(&mut files, descriptor.try_clone().unwrap(), 8193).unwrap_err(), Errno::EINVAL);
        // The file may grow: then it is mapped again.
        ftruncate(&descriptor, 16384).unwrap();
        let larger = open(&mut files, descriptor, 16384).unwrap().unwrap();
        larger.write(16380, &[1; 4]).unwrap();
        first.write(0, b"same").unwrap();
        let mut data = [0; 4];
        larger.read(0, &mut data).unwrap();
        assert_eq!(&data, b"same");
        drop((first, larger));
        drop(files.take_unused());
        assert_eq!(files.len(), 0);
    }

    #[test]
    fn memory_that_may_shrink_is_accessed_by_system_calls() {
        let mut files = files(Limits::of_process());
        let descriptor = memory(8192, SealFlag::empty());
        let file = open(&mut files, descriptor.try_clone().unwrap(), 8192).unwrap().unwrap();
        assert!(matches!(file.access, Access::Open(_)));
        fcntl(&descriptor, FcntlArg::F_SETFL(OFlag::O_APPEND)).unwrap();
        round_trip(&file);
        assert_eq!(fstat(&descriptor).unwrap().st_size, 8192, "whatever the client's description appends");
        ftruncate(&descriptor, 4096).unwrap();
        assert_eq!(file.read(4096, &mut [0; 4]), Err(Errno::EFAULT));
        assert_eq!(file.read(4094, &mut [0; 4]), Err(Errno::EFAULT));
        assert_eq!(file.write(4096, &[0; 4]), Err(Errno::EFAULT));
        assert_eq!(fstat(&descriptor).unwrap().st_size, 4096, "and it was not made longer");
        assert!(file.read(0, &mut [0; 4]).is_ok());
    }

    #[test]
    fn a_file_beyond_the_share_is_refused_or_transferred_by_messages() {
        let page = 4096;
        let limits =
            Limits { address_space: 4 * page, memory: 16 * page, files: 3, mappings: 0, descriptors: 2, buffered: 0 };
        let mut files = files(limits);
        let sealed = |pages: u64| memory((pages * page) as i64, SealFlag::F_SEAL_SHRINK);
        let small: Vec<_> = (0..2).map(|_| open(&mut files, sealed(1), 1).unwrap().unwrap()).collect();
        assert_eq!(open(&mut files, sealed(3), 1).unwrap_err(), Errno::ENOMEM, "address space");
        let third = open(&mut files, sealed(1), 1).unwrap().unwrap();
        assert_eq!(open(&mut files, sealed(1), 1).unwrap_err(), Errno::ENOMEM, "files");
        let open_ones = [(); 2].map(|()| open(&mut files, memory(4096, SealFlag::empty()), 1).unwrap().unwrap());
        assert_eq!(open(&mut files, memory(4096, SealFlag::empty()), 1).unwrap_err(), Errno::EMFILE);
        // Five pages are counted, and the client may have eight.
        assert!(open(&mut files, sealed(4), 1).unwrap().is_none(), "it is charged to its client");
        assert!(open(&mut files, memory(1 << 50, SealFlag::empty()), 1).unwrap().is_none());
        drop((small, third, open_ones));
        drop(files.take_unused());
        assert!(open(&mut files, sealed(4), 1).unwrap().is_some());
    }

    /// Not every machine has huge pages. Small ones are copied in the same way.
    #[test]
    fn pages_that_the_kernel_copies_may_vanish() {
        let descriptor = memory(8192, SealFlag::empty());
        let file = ClientFile {
            access: Access::Huge(map(&descriptor, 8192).unwrap()),
            len: 8192,
            writeable: true,
            _charges: Vec::new(),
        };
        round_trip(&file);
        // A load from here would raise SIGBUS now.
        ftruncate(&descriptor, 4096).unwrap();
        assert_eq!(file.read(4096, &mut [0; 4]), Err(Errno::EFAULT));
        assert_eq!(file.read(4090, &mut [0; 16]), Err(Errno::EFAULT));
        assert_eq!(file.write(4096, &[0; 4]), Err(Errno::EFAULT));
        assert!(file.read(0, &mut [0; 4]).is_ok());
    }

    /// A client that sees the last word sees all bytes before it.
    #[test]
    fn the_last_aligned_word_is_written_last() {
        for (offset, bytes, before) in [
            (0, 0, 0),
            (0, 8, 0),
            (0, 16, 8),
            (0, 23, 8),
            (0, 24, 16),
            (3, 5, 0),
            (3, 12, 0),
            (3, 13, 5),
            (3, 21, 13),
            (4090, 4, 0),
            (4090, 16, 6),
            (4090, 22, 14),
            (13, 1, 0),
        ] {
            assert_eq!(before_last_word(offset, bytes), before, "{bytes} bytes at {offset}");
        }
        for offset in 0..20 {
            for bytes in 0..40 {
                // The last part begins with its only aligned word, or has no whole one.
                let last: Vec<_> = (offset..offset + bytes).skip(before_last_word(offset, bytes)).collect();
                let words = last.iter().filter(|at| *at % 8 == 0 && *at + 8 <= offset + bytes).count();
                let is_whole = (offset..offset + bytes).any(|at| at % 8 == 0 && at + 8 <= offset + bytes);
                assert_eq!(words, usize::from(is_whole), "{bytes} bytes at {offset}");
                assert!(last.first().is_none_or(|at| at % 8 == 0 || *at == offset), "{bytes} bytes at {offset}");
            }
        }
    }

    #[test]
    fn a_file_that_was_shrunk_is_not_extended() {
        let mut files = files(Limits::of_process());
        let descriptor = memory(8192, SealFlag::empty());
        let file = open(&mut files, descriptor.try_clone().unwrap(), 8192).unwrap().unwrap();
        ftruncate(&descriptor, 4096).unwrap();
        for (offset, bytes) in [(4088, 9), (4090, 16), (4095, 2), (4096, 1), (8191, 1)] {
            assert_eq!(file.write(offset, &vec![1; bytes]), Err(Errno::EFAULT), "{bytes} bytes at {offset}");
            assert_eq!(file.read(offset, &mut vec![1; bytes]), Err(Errno::EFAULT), "{bytes} bytes at {offset}");
            assert_eq!(fstat(&descriptor).unwrap().st_size, 4096);
        }
        assert_eq!(file.write(4088, &[1; 8]), Ok(()));
        assert_eq!(file.read(4088, &mut [0; 8]), Ok(()));
    }

    /// Not every machine has huge pages, so the test marks other files as huge.
    #[test]
    fn huge_pages_are_mapped_or_transferred_by_messages() {
        let mut files = files(Limits::of_process());
        let mut open = |seals, read_only| {
            let mut descriptor = memory(8192, seals);
            if read_only {
                let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
                descriptor = File::open(path).unwrap().into();
            }
            let passed = InMemory::of(Received::new(descriptor, &Closer::new()), 8192).unwrap().unwrap();
            assert!(!passed.is_huge);
            files.open(InMemory { is_huge: true, ..passed }).unwrap()
        };
        let file = open(SealFlag::F_SEAL_SHRINK, false).unwrap();
        assert!(matches!(file.access, Access::Huge(_)));
        round_trip(&file);
        assert!(open(SealFlag::empty(), false).is_none(), "they have no write system call");
        assert!(open(SealFlag::F_SEAL_SHRINK, true).is_none(), "a read-only file is not mapped");
    }

    #[test]
    fn only_files_in_memory_are_touched() {
        let mut files = files(Limits::of_process());
        let (pipe, _other) = nix::unistd::pipe().unwrap();
        assert_eq!(open(&mut files, pipe, 0).unwrap_err(), Errno::EINVAL);
        let proc = File::open("/proc/self/stat").unwrap();
        assert!(open(&mut files, proc.into(), 0).unwrap().is_none());
        let zero = File::open("/dev/zero").unwrap();
        assert!(open(&mut files, zero.into(), 0).unwrap().is_none());
        // More than this machine has memory.
        let huge = memory(1 << 50, SealFlag::F_SEAL_SHRINK);
        assert!(open(&mut files, huge, 4096).unwrap().is_none());
        // A read-only file is not written.
        let descriptor = memory(4096, SealFlag::F_SEAL_SHRINK);
        let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
        let read_only = File::open(path).unwrap();
        let file = open(&mut files, read_only.into(), 4096).unwrap().unwrap();
        assert_eq!(file.write(0, &[1]), Err(Errno::EACCES));
        assert!(file.read(0, &mut [1]).is_ok());
    }
}

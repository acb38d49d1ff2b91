//! Memory of a client that came as a descriptor.
//!
//! The client keeps the descriptor, and may be hostile: a file that shrinks under a mapping means SIGBUS, one on a file
//! system of its own making means a read that never ends. So a file is mapped only if it is sealed against shrinking,
//! and touched at all only if it lies in memory. Huge pages can be taken away although the file is sealed (punched out
//! while the pool is empty): those are mapped but copied by the kernel, which gives an error where we would get a signal.

use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use memmap2::{Advice, MmapOptions, MmapRaw};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, SealFlag, fcntl};
use nix::sys::stat::{SFlag, fstat};
use nix::sys::statfs::{HUGETLBFS_MAGIC, TMPFS_MAGIC, fstatfs};
use nix::sys::uio::{RemoteIoVec, pread, process_vm_readv, process_vm_writev, pwrite};
use nix::unistd::getpid;

use crate::copy;

/// Files of one client that are mapped at a time. The kernel allows 65530 mappings to all of this process.
const MOST_MAPPED: usize = 8192;
/// Address space that one client's files take at most: a process has 128 TiB.
const MOST_MAPPED_BYTES: u64 = 4 << 40;
/// Files of one client that are kept open at a time: descriptors are few.
const MOST_OPEN: usize = 16;

/// A descriptor that was looked at, and lies in memory.
///
/// To look at one of a file system of the client's own making may wait for the client, so it is done where nobody else
/// waits for it.
#[derive(Debug)]
pub(crate) struct InMemory {
    descriptor: OwnedFd,
    /// Bytes of it that are wanted, and those there are.
    end: u64,
    len: u64,
    /// Device and inode.
    identity: (u64, u64),
    is_huge: bool,
}

impl InMemory {
    /// Looks at a descriptor, of which bytes up to `end` are wanted. `Ok(None)`: it is not to be touched, so its memory is to
    /// be asked for by message.
    pub(crate) fn of(descriptor: OwnedFd, end: u64) -> Result<Option<Self>, Errno> {
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
        let passed = InMemory { descriptor, end, len, identity: (status.st_dev, status.st_ino), is_huge };
        Ok((is_huge || magic == TMPFS_MAGIC).then_some(passed))
    }
}

/// One file.
#[derive(Debug)]
pub(crate) struct ClientFile {
    access: Access,
    /// Bytes it has, and keeps.
    len: u64,
    writeable: bool,
}

#[derive(Debug)]
enum Access {
    /// Mapped as a whole.
    Mapped(MmapRaw),
    /// Mapped as a whole, but copied by the kernel.
    Huge(MmapRaw),
    /// Read and written by call.
    Open(OwnedFd),
}

impl ClientFile {
    /// Copies out of the file. Fails if the client has taken the memory away.
    pub(crate) fn read(&self, offset: u64, data: &mut [u8]) -> Result<(), Errno> {
        let offset = self.check(offset, data.len())?;
        match &self.access {
            Access::Mapped(map) => {
                // SAFETY: `check` has checked the range against `len`, which is the mapping's.
                let at = unsafe { map.as_mut_ptr().add(offset) };
                // SAFETY: as above; the file is sealed against shrinking, so its pages stay. `data` is our own memory.
                unsafe { copy::copy_out(at, data) };
                Ok(())
            }
            Access::Huge(map) => {
                let remote = RemoteIoVec { base: map.as_mut_ptr().addr() + offset, len: data.len() };
                let wanted = data.len();
                whole(process_vm_readv(getpid(), &mut [IoSliceMut::new(data)], &[remote]), wanted)
            }
            Access::Open(file) => {
                let mut done = 0;
                while done < data.len() {
                    match pread(file, &mut data[done..], (offset + done) as i64) {
                        Ok(0) => return Err(Errno::EFAULT),
                        Ok(bytes) => done += bytes,
                        Err(Errno::EINTR) => {}
                        Err(errno) => return Err(errno),
                    }
                }
                Ok(())
            }
        }
    }

    /// Copies into the file; the last aligned eight bytes become visible last.
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Result<(), Errno> {
        if !self.writeable {
            return Err(Errno::EACCES);
        }
        let offset = self.check(offset, data.len())?;
        if let Access::Mapped(map) = &self.access {
            // SAFETY: `check` has checked the range against `len`, which is the mapping's.
            let at = unsafe { map.as_mut_ptr().add(offset) };
            // SAFETY: as above; the file is sealed against shrinking, so its pages stay. `data` is our own memory.
            unsafe { copy::copy_in(at, data) };
            return Ok(());
        }
        let word = ((offset + data.len()) & !7).saturating_sub(8).clamp(offset, offset + data.len());
        let (bulk, last) = data.split_at(word - offset);
        self.write_by_call(offset, bulk)?;
        self.write_by_call(word, last)
    }

    fn write_by_call(&self, offset: usize, data: &[u8]) -> Result<(), Errno> {
        match &self.access {
            Access::Mapped(map) | Access::Huge(map) => {
                let remote = RemoteIoVec { base: map.as_mut_ptr().addr() + offset, len: data.len() };
                whole(process_vm_writev(getpid(), &[IoSlice::new(data)], &[remote]), data.len())
            }
            Access::Open(file) => {
                // Writing past the end would make the file longer, at our cost: it may have been cut meanwhile.
                let len = fstat(file)?.st_size as u64;
                if (offset + data.len()) as u64 > len {
                    return Err(Errno::EFAULT);
                }
                let mut done = 0;
                while done < data.len() {
                    match pwrite(file, &data[done..], (offset + done) as i64) {
                        Ok(0) => return Err(Errno::EFAULT),
                        Ok(bytes) => done += bytes,
                        Err(Errno::EINTR) => {}
                        Err(errno) => return Err(errno),
                    }
                }
                Ok(())
            }
        }
    }

    /// Bytes it has.
    pub(crate) fn len(&self) -> u64 {
        self.len
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

fn whole(copied: nix::Result<usize>, wanted: usize) -> Result<(), Errno> {
    if copied? == wanted { Ok(()) } else { Err(Errno::EFAULT) }
}

/// The files of one client, each held once however many mappings lie in it.
#[derive(Debug, Default)]
pub(crate) struct ClientFiles {
    /// By device, inode and whether it may be written.
    files: HashMap<(u64, u64, bool), Arc<ClientFile>>,
}

impl ClientFiles {
    /// The file of a descriptor. `Ok(None)`: it is one too many, so its memory is to be asked for by message.
    pub(crate) fn open(&mut self, passed: InMemory) -> Result<Option<Arc<ClientFile>>, Errno> {
        let InMemory { descriptor, end, len, identity, is_huge } = passed;
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
        self.forget_unused();
        let seals = fcntl(&descriptor, FcntlArg::F_GET_SEALS).map_or(SealFlag::empty(), SealFlag::from_bits_retain);
        let sealed = seals.contains(SealFlag::F_SEAL_SHRINK);
        let is_open = |file: &&Arc<ClientFile>| matches!(file.access, Access::Open(_));
        let open = self.files.values().filter(is_open).count();
        let mapped = self.files.len() - open;
        let mapped_bytes: u64 = self.files.values().filter(|file| !is_open(file)).map(|file| file.len).sum();
        let access = if sealed && writeable {
            if mapped >= MOST_MAPPED || len > MOST_MAPPED_BYTES.saturating_sub(mapped_bytes) {
                return Ok(None);
            }
            match map(&descriptor, len) {
                Ok(map) if is_huge => Access::Huge(map),
                Ok(map) => Access::Mapped(map),
                Err(errno) => {
                    log::warn!("Mapping {len:#x} bytes of a client's memory: {errno}");
                    return Ok(None);
                }
            }
        } else if is_huge || open >= MOST_OPEN {
            // Huge pages cannot be written by call.
            return Ok(None);
        } else {
            Access::Open(descriptor)
        };
        let file = Arc::new(ClientFile { access, len, writeable });
        self.files.insert(key, Arc::clone(&file));
        Ok(Some(file))
    }

    /// Lets go of files in which no mapping lies any more.
    pub(crate) fn forget_unused(&mut self) {
        self.files.retain(|_, file| Arc::strong_count(file) > 1);
    }

    /// Files that are held.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }
}

fn map(descriptor: &OwnedFd, len: u64) -> Result<MmapRaw, Errno> {
    let errno = |error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(Errno::EIO as i32));
    let len = usize::try_from(len).map_err(|_| Errno::ENOMEM)?;
    let map = MmapOptions::new().len(len).map_raw(&descriptor.as_fd()).map_err(errno)?;
    map.advise(Advice::DontFork).map_err(errno)?;
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;
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

    fn open(files: &mut ClientFiles, descriptor: OwnedFd, end: u64) -> Result<Option<Arc<ClientFile>>, Errno> {
        InMemory::of(descriptor, end)?.map_or(Ok(None), |passed| files.open(passed))
    }

    #[test]
    fn sealed_memory_is_mapped_once() {
        let mut files = ClientFiles::default();
        let descriptor = memory(8192, SealFlag::F_SEAL_SHRINK);
        let first = open(&mut files, descriptor.try_clone().unwrap(), 4096).unwrap().unwrap();
        assert!(matches!(first.access, Access::Mapped(_)));
        round_trip(&first);
        for _ in 0..100 {
            let again = open(&mut files, descriptor.try_clone().unwrap(), 8192).unwrap().unwrap();
            assert!(Arc::ptr_eq(&first, &again));
        }
        assert_eq!(open(&mut files, descriptor.try_clone().unwrap(), 8193).unwrap_err(), Errno::EINVAL);
        // It may still grow: then it is mapped anew.
        ftruncate(&descriptor, 16384).unwrap();
        let larger = open(&mut files, descriptor, 16384).unwrap().unwrap();
        larger.write(16380, &[1; 4]).unwrap();
        first.write(0, b"same").unwrap();
        let mut data = [0; 4];
        larger.read(0, &mut data).unwrap();
        assert_eq!(&data, b"same");
        drop((first, larger));
        files.forget_unused();
        assert_eq!(files.len(), 0);
    }

    #[test]
    fn memory_that_may_shrink_is_accessed_by_call() {
        let mut files = ClientFiles::default();
        let descriptor = memory(8192, SealFlag::empty());
        let file = open(&mut files, descriptor.try_clone().unwrap(), 8192).unwrap().unwrap();
        assert!(matches!(file.access, Access::Open(_)));
        round_trip(&file);
        ftruncate(&descriptor, 4096).unwrap();
        assert_eq!(file.read(4096, &mut [0; 4]), Err(Errno::EFAULT));
        assert_eq!(file.read(4094, &mut [0; 4]), Err(Errno::EFAULT));
        assert_eq!(file.write(4096, &[0; 4]), Err(Errno::EFAULT));
        assert_eq!(fstat(&descriptor).unwrap().st_size, 4096, "and it was not made longer");
        assert!(file.read(0, &mut [0; 4]).is_ok());
        let others: Vec<_> =
            (0..MOST_OPEN).map(|_| open(&mut files, memory(4096, SealFlag::empty()), 1).unwrap()).collect();
        assert!(others.last().unwrap().is_none(), "one too many");
        assert_eq!(others.iter().flatten().count(), MOST_OPEN - 1);
    }

    /// Huge pages are not to be had everywhere; how they are copied is the same for small ones.
    #[test]
    fn what_is_copied_by_the_kernel_may_vanish() {
        let descriptor = memory(8192, SealFlag::empty());
        let file = ClientFile { access: Access::Huge(map(&descriptor, 8192).unwrap()), len: 8192, writeable: true };
        round_trip(&file);
        // A load from here would be a SIGBUS now.
        ftruncate(&descriptor, 4096).unwrap();
        assert_eq!(file.read(4096, &mut [0; 4]), Err(Errno::EFAULT));
        assert_eq!(file.read(4090, &mut [0; 16]), Err(Errno::EFAULT));
        assert_eq!(file.write(4096, &[0; 4]), Err(Errno::EFAULT));
        assert!(file.read(0, &mut [0; 4]).is_ok());
    }

    #[test]
    fn only_files_in_memory_are_touched() {
        let mut files = ClientFiles::default();
        let (pipe, _other) = nix::unistd::pipe().unwrap();
        assert_eq!(open(&mut files, pipe, 0).unwrap_err(), Errno::EINVAL);
        let proc = std::fs::File::open("/proc/self/stat").unwrap();
        assert!(open(&mut files, proc.into(), 0).unwrap().is_none());
        let zero = std::fs::File::open("/dev/zero").unwrap();
        assert_eq!(open(&mut files, zero.into(), 0).unwrap_err(), Errno::EINVAL);
        // More than there are addresses for.
        let huge = memory(1 << 50, SealFlag::F_SEAL_SHRINK);
        assert!(open(&mut files, huge, 4096).unwrap().is_none());
        // What may only be read is not written.
        let descriptor = memory(4096, SealFlag::F_SEAL_SHRINK);
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&descriptor));
        let read_only = std::fs::File::open(path).unwrap();
        let file = open(&mut files, read_only.into(), 4096).unwrap().unwrap();
        assert_eq!(file.write(0, &[1]), Err(Errno::EACCES));
        assert!(file.read(0, &mut [1]).is_ok());
    }
}

//! A socket's file: created for this user only, where nobody else can replace it, and removed afterwards.

use std::ffi::OsString;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::geteuid;

use crate::owner::Owner;

/// Connections that wait to be accepted: more than are refused at a time.
const BACKLOG: i32 = 64;
/// How long to wait for the lock of the directory.
const LOCKED: Duration = Duration::from_secs(5);
/// Symbolic links that a path may follow, as in the kernel.
const MOST_LINKS: usize = 40;

/// A socket's file. Dropping this removes the file, unless another has replaced it, or the file belongs to another process.
#[derive(Debug)]
pub(crate) struct SocketPath {
    path: PathBuf,
    /// Device and inode.
    identity: Option<(u64, u64)>,
    owner: Owner,
}

impl SocketPath {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes this process the one that removes the file.
    pub(crate) fn own(&mut self) {
        self.owner = Owner::current();
    }

    /// Returns whether the file belongs to this process.
    pub(crate) fn is_here(&self) -> bool {
        self.owner.is_here()
    }

    pub(crate) fn remove(&mut self) {
        if !self.is_here() {
            return;
        }
        let Some(identity) = self.identity.take() else { return };
        let is_ours = fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == identity);
        if is_ours && let Err(error) = fs::remove_file(&self.path) {
            log::warn!("Removing {}: {error}", self.path.display());
        }
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Creates a listening socket. Replaces a stale socket; any other file is an error.
pub(crate) fn make(path: &Path) -> io::Result<(UnixListener, SocketPath)> {
    let absolute = std::path::absolute(path)?;
    let parent = absolute.parent().unwrap_or(&absolute);
    check_path(parent)?;
    // So that of two servers that find the same stale socket, one is first.
    let directory = fs::File::open(parent)?;
    let _lock = lock(directory, LOCKED)?;
    // The kernel shows a socket by the path that it was bound to, in `/proc/net/unix`. That takes at most 107 bytes.
    let (path, address) = match UnixAddr::new(&absolute) {
        Ok(address) => (&*absolute, address),
        Err(_) => (path, UnixAddr::new(path)?),
    };
    let flags = SockFlag::SOCK_CLOEXEC;
    let descriptor = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    // `bind` creates the file with the mode of the socket, less the umask: other users can connect at no time.
    fchmod(&descriptor, Mode::S_IRUSR.union(Mode::S_IWUSR))?;
    match bind(descriptor.as_raw_fd(), &address) {
        Err(Errno::EADDRINUSE) => {
            remove_stale(path, &address)?;
            bind(descriptor.as_raw_fd(), &address)?;
        }
        other => other?,
    }
    let found = fs::symlink_metadata(path)?;
    let identity = Some((found.dev(), found.ino()));
    let path = SocketPath { path: path.to_owned(), identity, owner: Owner::current() };
    listen(&descriptor, Backlog::new(BACKLOG)?)?;
    Ok((UnixListener::from(descriptor), path))
}

fn lock(mut directory: fs::File, patience: Duration) -> io::Result<Flock<fs::File>> {
    let deadline = Instant::now() + patience;
    loop {
        let (back, errno) = match Flock::lock(directory, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err(failed) => failed,
        };
        if errno != Errno::EWOULDBLOCK || Instant::now() >= deadline {
            return Err(errno.into());
        }
        directory = back;
        thread::sleep(Duration::from_millis(5));
    }
}

/// Checks that only this user and root can replace a component of the path to a directory: each directory and symbolic link
/// belongs to one of them, and a directory that others can write to is sticky.
fn check_path(directory: &Path) -> io::Result<()> {
    let refused = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    let mut at = PathBuf::from("/");
    // The next component is the last of these.
    let mut steps = steps(directory);
    let mut links = 0;
    check_directory(&at)?;
    while let Some(step) = steps.pop() {
        if step == ".." {
            at.pop();
            continue;
        }
        let next = at.join(step);
        let found = fs::symlink_metadata(&next)?;
        if !found.is_symlink() {
            at = next;
            check_directory(&at)?;
            continue;
        }
        if !is_trusted(found.uid(), geteuid().as_raw()) {
            return refused(format!("{} is a symbolic link of user {}", next.display(), found.uid()));
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(Errno::ELOOP.into());
        }
        let target = fs::read_link(&next)?;
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        steps.extend(self::steps(&target));
    }
    Ok(())
}

/// Returns the components of a path, the last one first.
fn steps(path: &Path) -> Vec<OsString> {
    let step = |component: Component<'_>| match component {
        Component::Normal(_) | Component::ParentDir => Some(component.as_os_str().to_owned()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    };
    path.components().rev().filter_map(step).collect()
}

/// Whether what `owner` owns is safe for `user`.
fn is_trusted(owner: u32, user: u32) -> bool {
    owner == user || owner == 0
}

fn check_directory(directory: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(directory)?;
    if !found.is_dir() {
        return Err(Errno::ENOTDIR.into());
    }
    let (shown, mode) = (directory.display(), found.mode() & 0o7777);
    let why = if !is_trusted(found.uid(), geteuid().as_raw()) {
        format!("{shown} belongs to user {}", found.uid())
    } else if mode & 0o022 != 0 && mode & 0o1000 == 0 {
        format!("others can write to {shown} (mode {mode:o}): allowed are modes such as 755, and 1777 (sticky)")
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// Removes a socket on which no process listens.
fn remove_stale(path: &Path, address: &UnixAddr) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(Errno::EEXIST.into());
    }
    // Non-blocking, since a busy server may not accept.
    let flags = SockFlag::SOCK_CLOEXEC.union(SockFlag::SOCK_NONBLOCK);
    let probe = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    match connect(probe.as_raw_fd(), address) {
        Err(Errno::ECONNREFUSED) => fs::remove_file(path),
        Ok(()) | Err(Errno::EAGAIN) => Err(Errno::EADDRINUSE.into()),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_the_user_and_root_are_trusted() {
        assert!(is_trusted(1000, 1000) && is_trusted(0, 1000) && is_trusted(0, 0));
        assert!(!is_trusted(1001, 1000) && !is_trusted(1000, 0));
    }

    #[test]
    fn the_lock_of_a_directory_is_waited_for_with_a_limit() {
        let directory = tempfile::tempdir().unwrap();
        let open = || fs::File::open(directory.path()).unwrap();
        let held = lock(open(), Duration::ZERO).unwrap();
        let error = lock(open(), Duration::ZERO).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::EWOULDBLOCK as i32));
        let (begin, patience) = (Instant::now(), Duration::from_millis(50));
        assert!(lock(open(), patience).is_err() && begin.elapsed() >= patience);
        thread::scope(|scope| {
            let waits = scope.spawn(|| lock(open(), Duration::from_secs(60)).map(drop));
            thread::sleep(patience);
            assert!(!waits.is_finished());
            drop(held);
            assert!(waits.join().unwrap().is_ok());
        });
        // No other error is waited for.
        let pipe = fs::File::from(nix::unistd::pipe().unwrap().0);
        let other = nix::fcntl::open("/", nix::fcntl::OFlag::O_PATH, Mode::empty()).unwrap();
        assert!(lock(pipe, Duration::from_secs(60)).is_ok());
        let error = lock(fs::File::from(other), Duration::from_secs(60)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::EBADF as i32));
    }

    #[test]
    fn as_many_links_are_followed_as_by_the_kernel() {
        let directory = tempfile::tempdir().unwrap();
        let link = |number: usize| directory.path().join(number.to_string());
        fs::create_dir(link(0)).unwrap();
        for number in 1..=41 {
            symlink(link(number - 1), link(number)).unwrap();
        }
        assert_eq!(check_path(&link(40)).map_err(|error| error.raw_os_error()), Ok(()));
        assert_eq!(check_path(&link(41)).map_err(|error| error.raw_os_error()), Err(Some(Errno::ELOOP as i32)));
        assert!(fs::metadata(link(40)).is_ok() && fs::metadata(link(41)).is_err());
    }

    #[test]
    fn a_file_is_removed_unless_another_has_replaced_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("card");
        let (listener, made) = make(&path).unwrap();
        drop((listener, made));
        assert!(!path.exists());
        let (_listener, mut made) = make(&path).unwrap();
        fs::rename(&path, directory.path().join("elsewhere")).unwrap();
        fs::write(&path, "another").unwrap();
        made.remove();
        assert_eq!(fs::read(&path).unwrap(), b"another");
        assert_eq!(make(&path).unwrap_err().raw_os_error(), Some(Errno::EEXIST as i32));
    }
}

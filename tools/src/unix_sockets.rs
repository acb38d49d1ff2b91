//! UNIX sockets, asked without connecting: a connection resets a card, and takes the place of a rank that comes to a meeting.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

/// Most bytes of a socket's path: an address has 108, with a null byte at the end.
const PATH_BYTES_MAX: usize = 107;

/// Who is behind a UNIX socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behind {
    /// A server, as far as this process sees: it sees no server of another network namespace.
    Server,
    /// Somebody whom this user may not ask.
    Denied,
    /// A process that does not listen, not yet or never.
    Deaf,
    /// Nobody: the process that made it was killed, and has left it.
    Nobody,
    /// A process that takes datagrams or packets, as no server of cards does.
    OtherType,
}

/// Finds who is behind `socket`, of those in `table`. A file that is no socket has nobody behind it. Fails for a socket that cannot be
/// asked, as one with a path longer than a socket's address holds.
///
/// Sends nothing: a datagram socket is refused as of the wrong type by a server, which does not notice, and as unconnected by the
/// socket that a killed process has left.
pub(crate) fn behind(socket: &Path, table: &Table) -> io::Result<Behind> {
    match UnixDatagram::unbound().and_then(|probe| probe.connect(socket)) {
        Ok(()) => Ok(Behind::OtherType),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(Behind::Nobody),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(Behind::Denied),
        Err(error) if is_of_wrong_type(&error) => Ok(by_table(table, socket)),
        Err(error) if error.kind() == ErrorKind::InvalidInput => Err(too_long(socket)),
        Err(error) => Err(error),
    }
}

fn too_long(socket: &Path) -> io::Error {
    let bytes = socket.as_os_str().len();
    let message = format!("the path has {bytes} bytes: a socket's has at most {PATH_BYTES_MAX}; use a shorter one");
    io::Error::new(ErrorKind::InvalidInput, message)
}

fn is_of_wrong_type(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::EPROTOTYPE as i32)
}

/// Finds what `socket`, which takes no datagrams, is.
fn by_table(table: &Table, socket: &Path) -> Behind {
    let there = table.at(socket);
    let mut streams = there.iter().filter(|entry| entry.kind == STREAM).peekable();
    match (there.is_empty(), streams.peek().is_some()) {
        (true, _) => Behind::Server,
        (false, false) => Behind::OtherType,
        (false, true) if streams.any(|entry| entry.listens) => Behind::Server,
        (false, true) => Behind::Deaf,
    }
}

/// The sockets in this network namespace by their paths, as `/proc/net/unix` lists them: also the ends of connections that their
/// servers have accepted. Those that were bound by a relative path are missing: nobody tells relative to what.
#[derive(Debug, Default)]
pub(crate) struct Table(HashMap<PathBuf, Vec<Entry>>);

#[derive(Debug)]
struct Entry {
    kind: u32,
    listens: bool,
    is_connected: bool,
}

/// `SOCK_STREAM`, `__SO_ACCEPTCON` and `SS_CONNECTED` of Linux `include/linux/net.h` and `include/uapi/linux/net.h`.
const STREAM: u32 = 1;
const LISTENS: u32 = 1 << 16;
const CONNECTED: u32 = 3;

impl Table {
    /// Reads the table below `root`, a directory with `proc`; empty if it cannot be read.
    pub(crate) fn read(root: &Path) -> Self {
        let text = fs::read(root.join("proc/net/unix")).unwrap_or_default();
        let mut table = HashMap::<_, Vec<Entry>>::new();
        for (path, entry) in text.split(|byte| *byte == b'\n').filter_map(Entry::parse) {
            // What a socket that is gone was bound to leads nowhere.
            if let Ok(path) = path.canonicalize() {
                table.entry(path).or_default().push(entry);
            }
        }
        Table(table)
    }

    /// Whether a client is connected to the server of `socket`.
    pub(crate) fn has_client(&self, socket: &Path) -> bool {
        self.at(socket).iter().any(|entry| entry.is_connected)
    }

    fn at(&self, socket: &Path) -> &[Entry] {
        let whole = socket.canonicalize();
        whole.ok().and_then(|whole| self.0.get(&whole)).map_or(&[], Vec::as_slice)
    }
}

impl Entry {
    /// Parses a line, and returns the path too. Columns: number, references, protocol, flags, type and state (all hexadecimal), inode,
    /// path. A path is any bytes.
    fn parse(line: &[u8]) -> Option<(&Path, Self)> {
        let mut rest = line;
        let mut column = || {
            let from = rest.trim_ascii_start();
            let end = from.iter().position(u8::is_ascii_whitespace)?;
            rest = &from[end..];
            std::str::from_utf8(&from[..end]).ok()
        };
        let [_number, _references, _protocol] = [column()?, column()?, column()?];
        let mut hexadecimal = || u32::from_str_radix(column()?, 16).ok();
        let (flags, kind, state) = (hexadecimal()?, hexadecimal()?, hexadecimal()?);
        let _inode = column()?;
        let path = rest.trim_ascii_start();
        let entry = Entry { kind, listens: flags & LISTENS != 0, is_connected: kind == STREAM && state == CONNECTED };
        path.starts_with(b"/").then(|| (Path::new(OsStr::from_bytes(path)), entry))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

    use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};

    use super::*;

    fn table() -> Table {
        Table::read(Path::new("/"))
    }

    fn found(socket: &Path) -> Behind {
        behind(socket, &table()).unwrap()
    }

    #[test]
    fn who_is_behind_a_socket_is_found_without_connecting() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let server = UnixListener::bind(path("server")).unwrap();
        server.set_nonblocking(true).unwrap();
        assert_eq!(found(&path("server")), Behind::Server);
        assert_eq!(server.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(server);
        assert_eq!(found(&path("server")), Behind::Nobody);
        let datagrams = UnixDatagram::bind(path("datagrams")).unwrap();
        assert_eq!(found(&path("datagrams")), Behind::OtherType);
        // The kernel notes that it was asked, and there was no client.
        assert!(!table().has_client(&path("datagrams")));
        drop(datagrams);
        assert_eq!(found(&path("datagrams")), Behind::Nobody);
    }

    #[test]
    fn a_socket_that_cannot_serve_is_told_from_one_that_can() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("card");
        let bound = |kind| {
            let address = UnixAddr::new(&path).unwrap();
            let socket = socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC, None).unwrap();
            bind(socket.as_raw_fd(), &address).unwrap();
            socket
        };
        let stream = bound(SockType::Stream);
        // The process may listen later.
        assert_eq!(found(&path), Behind::Deaf);
        listen(&stream, Backlog::new(1).unwrap()).unwrap();
        let listener = UnixListener::from(stream);
        assert_eq!(found(&path), Behind::Server);
        assert!(!table().has_client(&path));
        let client = UnixStream::connect(&path).unwrap();
        let accepted = listener.accept().unwrap();
        assert!(table().has_client(&path));
        assert_eq!(found(&path), Behind::Server);
        drop((listener, client, accepted));
        std::fs::remove_file(&path).unwrap();
        let packets = bound(SockType::SeqPacket);
        listen(&packets, Backlog::new(1).unwrap()).unwrap();
        assert_eq!(found(&path), Behind::OtherType);
    }

    #[test]
    fn sockets_whose_names_are_no_text_hide_no_others() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &[u8]| directory.path().join(OsStr::from_bytes(name));
        let abstract_name = [&[0xff, 0xfe], path(b"card").as_os_str().as_bytes()].concat();
        let _unnamed = UnixListener::bind_addr(&SocketAddr::from_abstract_name(abstract_name).unwrap()).unwrap();
        let mut held = Vec::new();
        for name in [b"card" as &[u8], b"\xff.sock"] {
            let server = UnixListener::bind(path(name)).unwrap();
            let client = UnixStream::connect(path(name)).unwrap();
            let accepted = server.accept().unwrap();
            held.push((server, client, accepted));
            assert!(table().has_client(&path(b"card")) && table().has_client(&path(name)));
        }
    }

    #[test]
    fn the_table_of_sockets_is_parsed() {
        let line = "0000000000000000: 00000002 00000000 00010000 0001 01 30127 /run/fpga/a b.sock";
        // Also an inode whose digits are in another column.
        for line in [line, &line.replace("30127", "10000"), &line.replace("30127", "    1")] {
            let (path, entry) = Entry::parse(line.as_bytes()).unwrap();
            assert!(entry.listens && entry.kind == STREAM && !entry.is_connected);
            assert_eq!(path, Path::new("/run/fpga/a b.sock"));
        }
        let head = "Num       RefCount Protocol Flags    Type St Inode Path";
        for other in [head, "", &line.replace("/run", "@/run"), &line.replace("/run", "run"), &line[..50]] {
            assert!(Entry::parse(other.as_bytes()).is_none(), "{other:?}");
        }
    }
}

//! A client that sends bytes. Its layouts come from the specification, not from the code under test.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nix::cmsg_space;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

pub const VERSION: u16 = 1;
pub const DMA_MAP: u16 = 2;
pub const DMA_UNMAP: u16 = 3;
pub const GET_INFO: u16 = 4;
pub const GET_REGION_INFO: u16 = 5;
pub const GET_REGION_IO_FDS: u16 = 6;
pub const GET_IRQ_INFO: u16 = 7;
pub const SET_IRQS: u16 = 8;
pub const REGION_READ: u16 = 9;
pub const REGION_WRITE: u16 = 10;
pub const DMA_READ: u16 = 11;
pub const DMA_WRITE: u16 = 12;
pub const RESET: u16 = 13;

pub const EINVAL: u32 = 22;
pub const EEXIST: u32 = 17;
pub const EBUSY: u32 = 16;
pub const ENOTSUP: u32 = 95;
pub const EPROTONOSUPPORT: u32 = 93;

pub const NO_REPLY: u32 = 0x10;
pub const JSON: &[u8] = b"{\"capabilities\":{\"max_msg_fds\":16,\"max_data_xfer_size\":1048576,\"pgsizes\":4096}}\0";

#[derive(Default, Clone)]
pub struct Body(pub Vec<u8>);

impl Body {
    pub fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }
    pub fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }
    pub fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }
}

pub fn body() -> Body {
    Body::default()
}

pub fn message(id: u16, command: u16, flags: u32, body: &[u8]) -> Vec<u8> {
    let head = self::body().u16(id).u16(command).u32(16 + body.len() as u32).u32(flags).u32(0);
    head.bytes(body).0
}

pub fn version() -> Vec<u8> {
    body().u16(0).u16(1).bytes(JSON).0
}

pub fn map(flags: u32, offset: u64, address: u64, size: u64) -> Vec<u8> {
    body().u32(32).u32(flags).u64(offset).u64(address).u64(size).0
}

pub fn unmap(flags: u32, address: u64, size: u64) -> Vec<u8> {
    body().u32(24).u32(flags).u64(address).u64(size).0
}

pub fn region_info(argsz: u32, index: u32) -> Vec<u8> {
    body().u32(argsz).u32(0).u32(index).u32(0).u64(0).u64(0).0
}

pub fn four(argsz: u32, flags: u32, index: u32, count: u32) -> Vec<u8> {
    body().u32(argsz).u32(flags).u32(index).u32(count).0
}

pub fn set_irqs(flags: u32, index: u32, start: u32, count: u32, data: &[u8]) -> Vec<u8> {
    body().u32(20 + data.len() as u32).u32(flags).u32(index).u32(start).u32(count).bytes(data).0
}

pub fn access(region: u32, offset: u64, count: u32, data: &[u8]) -> Vec<u8> {
    body().u64(offset).u32(region).u32(count).bytes(data).0
}

pub struct Reply {
    pub id: u16,
    pub command: u16,
    pub flags: u32,
    pub error: u32,
    pub body: Vec<u8>,
    pub descriptors: Vec<OwnedFd>,
}

impl Reply {
    pub fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.body[at..at + 4].try_into().unwrap())
    }
    pub fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.body[at..at + 8].try_into().unwrap())
    }
    /// Returns zero, or the errno of an error reply, which must have one.
    pub fn errno(&self) -> u32 {
        if self.flags & 0x20 == 0 {
            assert_eq!(self.error, 0);
            return 0;
        }
        assert!((1..4096).contains(&self.error), "an error reply with errno {}", self.error);
        assert!(self.body.is_empty(), "an error reply has no body");
        self.error
    }
}

pub struct Raw {
    pub stream: UnixStream,
    next_id: u16,
}

impl Raw {
    /// Connects, and sends nothing.
    pub fn connect(path: &Path) -> Self {
        Self::over(UnixStream::connect(path).unwrap())
    }

    pub fn over(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
        Raw { stream, next_id: 0x1000 }
    }

    /// Connects, and agrees on the version.
    pub fn open(path: &Path) -> Self {
        let mut raw = Self::connect(path);
        assert_eq!(raw.call(VERSION, &version()).errno(), 0);
        raw
    }

    pub fn send_with(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let numbers: Vec<_> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&numbers)];
        let control = if numbers.is_empty() { &[] } else { &rights[..] };
        let sent =
            sendmsg::<()>(self.stream.as_raw_fd(), &[IoSlice::new(bytes)], control, MsgFlags::MSG_NOSIGNAL, None)?;
        (&self.stream).write_all(&bytes[sent..])
    }

    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.send_with(bytes, &[])
    }

    /// Receives the next message of any kind. `None`: the end.
    pub fn receive(&self) -> Option<Reply> {
        let mut head = [0u8; 16];
        let mut filled = 0;
        let mut descriptors = Vec::new();
        while filled < 16 {
            let mut control = cmsg_space!([i32; 32]);
            let mut parts = [std::io::IoSliceMut::new(&mut head[filled..])];
            let received =
                recvmsg::<()>(self.stream.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::MSG_CMSG_CLOEXEC);
            let received = match received {
                Ok(received) => received,
                Err(nix::errno::Errno::ECONNRESET) => return None,
                Err(nix::errno::Errno::EINTR) => continue,
                Err(errno) => panic!("no reply: {errno}"),
            };
            for control in received.cmsgs().unwrap() {
                if let ControlMessageOwned::ScmRights(numbers) = control {
                    // SAFETY: the kernel has just installed these descriptors in this process, and nothing else uses them.
                    descriptors.extend(numbers.into_iter().map(|number| unsafe { OwnedFd::from_raw_fd(number) }));
                }
            }
            if received.bytes == 0 {
                assert_eq!(filled, 0, "the end inside a header");
                return None;
            }
            filled += received.bytes;
        }
        let word = |at: usize| u32::from_ne_bytes(head[at..at + 4].try_into().unwrap());
        let half = |at: usize| u16::from_ne_bytes(head[at..at + 2].try_into().unwrap());
        let size = word(4) as usize;
        assert!((16..=(2 << 20)).contains(&size), "a message of {size} bytes");
        let mut body = vec![0; size - 16];
        match (&self.stream).read_exact(&mut body) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
            Err(error) => panic!("no body: {error}"),
        }
        Some(Reply { id: half(0), command: half(2), flags: word(8), error: word(12), body, descriptors })
    }

    /// Sends a command, and returns its reply.
    pub fn call_with(&mut self, command: u16, body: &[u8], descriptors: &[BorrowedFd<'_>]) -> Reply {
        self.try_call(command, body, descriptors).expect("a reply, not the end")
    }

    pub fn call(&mut self, command: u16, body: &[u8]) -> Reply {
        self.call_with(command, body, &[])
    }

    pub fn try_call(&mut self, command: u16, body: &[u8], descriptors: &[BorrowedFd<'_>]) -> Option<Reply> {
        self.next_id = self.next_id.wrapping_add(1);
        self.send_with(&message(self.next_id, command, 0, body), descriptors).ok()?;
        let reply = self.receive()?;
        assert_eq!((reply.id, reply.command), (self.next_id, command));
        assert_eq!(reply.flags & 0xf, 1, "a reply");
        Some(reply)
    }

    /// Waits until the server disconnects, and drops what it sends before.
    pub fn expect_end(&self) {
        let mut dropped = [0; 4096];
        loop {
            match (&self.stream).read(&mut dropped) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::Interrupted) => {}
                Err(error) => panic!("the server did not disconnect: {error}"),
            }
        }
    }

    pub fn read(&mut self, region: u32, offset: u64, count: u32) -> Vec<u8> {
        let reply = self.call(REGION_READ, &access(region, offset, count, &[]));
        assert_eq!(reply.errno(), 0);
        assert_eq!((reply.u64(0), reply.u32(8), reply.u32(12)), (offset, region, count));
        assert_eq!(reply.body.len(), 16 + count as usize);
        reply.body[16..].to_vec()
    }

    pub fn read_u32(&mut self, region: u32, offset: u64) -> u32 {
        u32::from_le_bytes(self.read(region, offset, 4).try_into().unwrap())
    }

    pub fn write(&mut self, region: u32, offset: u64, data: &[u8]) {
        let reply = self.call(REGION_WRITE, &access(region, offset, data.len() as u32, data));
        assert_eq!(reply.errno(), 0);
        assert_eq!((reply.u64(0), reply.u32(8), reply.u32(12)), (offset, region, data.len() as u32));
        assert_eq!(reply.body.len(), 16);
    }

    pub fn write_u32(&mut self, region: u32, offset: u64, value: u32) {
        self.write(region, offset, &value.to_le_bytes());
    }

    /// Turns on memory decoding and bus mastering.
    pub fn enable(&mut self) {
        self.write(7, 4, &[0x06, 0x00]);
    }

    pub fn connect_vectors(&mut self, start: u32, counters: &[impl AsFd]) {
        let descriptors: Vec<_> = counters.iter().map(AsFd::as_fd).collect();
        let body = set_irqs(0x24, 2, start, counters.len() as u32, &[]);
        assert_eq!(self.call_with(SET_IRQS, &body, &descriptors).errno(), 0);
    }
}

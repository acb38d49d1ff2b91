//! What a client can map, and what its function can do with it.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::ftruncate;

use super::*;
use crate::vfio_user::server::budget::Limits;
use crate::vfio_user::wire::closing::Closer;
use crate::vfio_user::wire::header::Command;
use crate::vfio_user::wire::memory::DmaAccess;
use crate::vfio_user::wire::reader::Reader;
use crate::vfio_user::wire::socket::Socket;

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
        let share = Share::alone(Limits::of_process());
        let link = Arc::new(Link::new(Socket::new(ours, &Closer::new()), Arc::clone(&share)).unwrap());
        link.set_master(true);
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

    /// Returns the next request for memory, if any: header, address, count and data.
    fn asked(&mut self) -> Option<(Header, u64, u64, Vec<u8>)> {
        let header = self.reader.advance(&self.socket).unwrap()?;
        let (access, data) = DmaAccess::decode(self.reader.body()).unwrap();
        Some((header, access.address, access.count, data.to_vec()))
    }

    /// Replies to a request, to a read with bytes of `value`, and returns the requests that are complete.
    fn answer(&self, (header, address, count, _): &(Header, u64, u64, Vec<u8>), value: u8) -> Option<Vec<Finished>> {
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
    // A read-only file is not mapped writeable.
    assert_eq!(client.try_map(3, 0x1000, 0x1000, Some((&read_only, 0))), Err(Errno::EACCES));
    assert_eq!(client.try_map(2, 0x1000, 0x1000, Some((&read_only, 0))), Err(Errno::EACCES));
    assert_eq!(client.dma.table().files.len(), 0, "and not held");
    assert_eq!(client.try_map(1, 0x1000, 0x1000, Some((&read_only, 0))), fine);
    assert_eq!((client.read(0x1000, 8), client.write(0x1000, 8)), (FINE, unmapped(0x1000)));
    // Mappings may touch, but not overlap.
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
    // Ranges that cut none of the mappings 0x1000..0x2000, 0x2000..0x4000 and 0x4000..0x5000, and others.
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
        let table = client.dma.table();
        assert_eq!(table.maps.keys().copied().collect::<Vec<_>>(), left, "{address:#x} {size:#x}");
        assert_eq!(table.by_message, left.len());
    }
}

#[test]
fn mappings_without_a_file_are_counted() {
    let (mut client, file) = (Client::patient(), memory(0x1000));
    client.map(0x1000, 0x1000, Some((&file, 0)));
    assert_eq!(client.read(0x8000, 4), unmapped(0x8000), "no client memory is accessed by messages");
    for address in [0x2000, 0x3000, 0x4000] {
        client.map(address, 0x1000, None);
    }
    for address in [0x2000, 0x3000] {
        client.unmap(address, 0x1000).unwrap();
        // A client with memory accessed by messages is also asked for unmapped addresses.
        assert_eq!(client.read(0x8000, 4), DmaProgress::Pending);
        let asked = client.asked().unwrap();
        assert_eq!(client.answer(&asked, 1).unwrap().len(), 1);
    }
    client.unmap(0x4000, 0x1000).unwrap();
    assert_eq!(client.read(0x8000, 4), unmapped(0x8000));
    assert_eq!(client.dma.table().by_message, 0);
}

#[test]
fn a_client_accessed_by_messages_is_asked_for_unmapped_addresses_too() {
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
    // A write to a read-only mapping is not sent.
    assert_eq!(client.write(0x8000, 4), unmapped(0x8000));
    assert_eq!(client.write(0x7ffe, 4), unmapped(0x8000));
}

#[test]
fn a_request_reaches_the_end_of_the_mappings_and_no_further() {
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
        // Mapped, but beyond the addresses of the function.
        (0xf000, 0x1001, unmapped(0x1_0000)),
        (0x1_0000, 1, unmapped(0x1_0000)),
    ] {
        assert_eq!(client.read(iova, bytes), expected, "{bytes:#x} bytes at {iova:#x}");
        assert_eq!(client.write(iova, bytes), expected, "{bytes:#x} bytes at {iova:#x}");
    }
    // A write that fails writes nothing.
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
fn the_last_address_can_be_reached() {
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
fn two_messages_of_a_piece_each_are_out_at_a_time() {
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
fn a_function_that_is_no_bus_master_asks_for_nothing_more() {
    let (mut client, file) = (Client::patient(), memory(0x1000));
    client.map(0x10_0000, 0x10_0000, None);
    client.map(0x1000, 0x1000, Some((&file, 0)));
    assert_eq!(client.write(0x10_0000, 8 * (32 << 10)), DmaProgress::Pending);
    assert_eq!(client.write(0x1000, 16), DmaProgress::Pending, "it waits for the other");
    let out = [client.asked().unwrap(), client.asked().unwrap()];
    client.dma.link.set_master(false);
    assert_eq!(client.dma.cancel().len(), 0, "the client has yet to answer");
    // The function is bus master again before the client has answered.
    client.dma.link.set_master(true);
    assert_eq!(client.answer(&out[0], 0).unwrap().len(), 0);
    let finished = client.answer(&out[1], 0).unwrap();
    let results: Vec<_> = finished.into_iter().map(|one| (one.tag, one.result)).collect();
    let failed = |tag| (DmaTag(tag), Err(DmaFault::NotMaster));
    assert_eq!(results, [failed(0x10_0000), failed(0x1000)]);
    assert!(client.asked().is_none() && client.dma.deadline().is_none());
    let mut found = [1; 16];
    file_at(&file, 0, &mut found);
    assert_eq!(found, [0; 16]);
    assert_eq!(client.write(0x1000, 16), FINE);
    assert_eq!(client.dma.cancel().len(), 0);
}

#[test]
fn parts_of_a_read_arrive_at_their_offsets() {
    let (mut client, file) = (Client::patient(), memory(0x1000));
    // By messages, by copies, by messages.
    client.map(0x1000, 0x1000, None);
    client.map(0x2000, 0x1000, Some((&file, 0)));
    client.map(0x3000, 0x1000, None);
    File::from(file.try_clone().unwrap()).write_all_at(&[2; 0x1000], 0).unwrap();
    assert_eq!(client.read(0x1800, 0x2000), DmaProgress::Pending);
    // A later request is queued, although it could be copied.
    assert_eq!(client.read(0x2000, 16), DmaProgress::Pending);
    let first = client.asked().unwrap();
    assert_eq!((first.1, first.2), (0x1800, 0x800));
    assert!(client.asked().is_none(), "the bytes below must arrive first");
    assert_eq!(client.answer(&first, 1).unwrap().len(), 0);
    assert!(client.answer(&first, 1).is_none(), "a second reply");
    let last = client.asked().unwrap();
    assert_eq!((last.1, last.2), (0x3000, 0x800));
    let [whole, later] = <[Finished; 2]>::try_from(client.answer(&last, 3).unwrap()).unwrap();
    assert_eq!((whole.tag, later.tag), (DmaTag(0x1800), DmaTag(0x2000)));
    assert_eq!(whole.result.unwrap(), [[1; 0x800].as_slice(), &[2; 0x1000], &[3; 0x800]].concat());
    assert_eq!(later.result.unwrap(), [2; 16]);
    assert_eq!(client.read(0x2000, 16), FINE, "the queue is empty");
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
    assert_eq!(client.read(0x2000, small), DmaProgress::Pending, "the first has made room");
    assert!(!client.dma.link.is_stopped());
    assert_eq!(client.write(0x3000, 1), GONE);
    assert!(client.dma.link.is_stopped());
    let left = client.dma.close();
    assert_eq!(left.iter().map(|it| it.tag.0).collect::<Vec<_>>(), [0x1000, 0x2000]);
    assert!(left.iter().all(|it| it.result == Err(DmaFault::HostGone)));
    assert_eq!(client.dma.deadline(), None);
}

#[test]
fn a_slow_client_is_not_asked_again() {
    let mut client = Client::new(64, 1 << 20, Stalls::new("test".into(), Duration::from_secs(5)));
    client.map(0, 1 << 30, None);
    let minute_ago = Instant::now().checked_sub(MINUTE).expect("the machine has run for a minute");
    assert_eq!(client.read(0, 1), DmaProgress::Pending);
    let first = client.asked().unwrap();
    // As if the reply had taken a minute.
    client.dma.queue().asked = Some(minute_ago);
    assert_eq!(client.answer(&first, 0).unwrap().len(), 1);
    assert_eq!(client.read(0, 1), GONE);
    assert!(client.asked().is_none());
}

#[test]
fn the_time_that_the_server_waits_for_the_endpoint_is_not_the_clients() {
    let mut client = Client::patient();
    client.map(0, 1 << 30, None);
    client.dma.excuse(MINUTE);
    let asked = Instant::now().checked_sub(MINUTE).expect("the machine has run for a minute");
    for round in 0..2 {
        assert_eq!(client.read(0, 1), DmaProgress::Pending);
        let message = client.asked().unwrap();
        client.dma.queue().asked = Some(asked);
        for (waited, excused) in [(0, 0), (300, 300), (400, 700), (400, 1000), (5000, 1000)] {
            client.dma.excuse(Duration::from_millis(waited));
            let expected = asked + MINUTE + Duration::from_millis(excused);
            assert_eq!(client.dma.deadline(), Some(expected), "{round}");
        }
        assert_eq!(client.answer(&message, 0).unwrap().len(), 1);
    }
    // The client was asked while the server waited.
    assert_eq!(client.read(0, 1), DmaProgress::Pending);
    let now = Instant::now();
    let mut queue = client.dma.queue();
    queue.asked = Some(now);
    queue.excuse(MINUTE, now);
    assert_eq!(queue.deadline(&client.dma.stalls), Some(now + MINUTE));
}

/// Otherwise nobody would end it: the session's thread has collected what waited.
#[test]
fn a_request_that_meets_the_end_of_its_session_fails() {
    let client = Client::patient();
    client.map(0, 1 << 30, None);
    let dma = &client.dma;
    let mut queue = dma.queue();
    let result = thread::scope(|scope| {
        let request = scope.spawn(|| dma.read(DmaTag(0), Iova(0), &mut [0]));
        // It has found the client there, and waits for the queue. If it is late, it finds the client gone.
        thread::sleep(Duration::from_millis(50));
        dma.link.stop();
        assert!(queue.close(&dma.stalls).is_empty());
        drop(queue);
        request.join().unwrap()
    });
    assert_eq!(result, GONE);
}

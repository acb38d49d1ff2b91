//! One client served, from its first message to its last.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};

use super::budget::{Item, Share};
use super::dma::{Dma, Finished};
use super::interrupts::{self, Interrupts};
use super::link::Link;
use super::regions::{Described, Place, Regions};
use super::stalls::Stalls;
use crate::Iova;
use crate::SharedMemory;
use crate::config;
use crate::endpoint::msix::Msix;
use crate::endpoint::{DmaFault, DmaPort, DmaProgress, DmaTag, Endpoint, InterruptPort, ResetKind};
use crate::vfio_user::wire::capabilities::Capabilities;
use crate::vfio_user::wire::messages::{
    Command, DEFAULT_TRANSFER_BYTES, DeviceInfo, DmaMap, DmaUnmap, Header, INTERRUPT_INDICES, InterruptInfo, Kind,
    REGIONS, RegionAccess, RegionInfo, RegionIoDescriptors, SetInterrupts, Version, encode_areas,
};
use crate::vfio_user::wire::socket::{Descriptors, Ended, Reader, Socket, events, poll_until};

/// Bytes of a message's body at most: a write of all that one transfer may move.
const BODY_BYTES: usize = 32 + DEFAULT_TRANSFER_BYTES as usize;
/// Bytes of unread replies from which on a client is not listened to.
const ENOUGH_UNREAD: usize = 4 << 20;

/// How long a client may take for its first message.
const VERSION_PATIENCE: Duration = Duration::from_secs(5);
/// How long it may take for the rest of a message it has begun, and to read what is sent to it.
const MESSAGE_PATIENCE: Duration = Duration::from_secs(30);

/// A client being served. Dropping it leaves the endpoint clean.
pub(crate) struct Session {
    endpoint: Arc<dyn Endpoint>,
    link: Arc<Link>,
    reader: Reader,
    stalls: Arc<Stalls>,
    share: Arc<Share>,
    interrupts: Arc<Interrupts>,
    msix: Option<Msix>,
    regions: Regions,
    dma_bits: u8,
    /// From the version message on.
    open: Option<Open>,
    /// Data of region reads.
    scratch: Vec<u8>,
}

/// What there is once a version was agreed on.
struct Open {
    dma: Arc<Dma>,
    descriptors: u64,
}

/// The answer to a command.
#[derive(Default)]
struct Reply {
    body: Vec<u8>,
    memory: Option<Arc<SharedMemory>>,
}

impl From<Vec<u8>> for Reply {
    fn from(body: Vec<u8>) -> Self {
        Reply { body, memory: None }
    }
}

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It was told to, or sending failed.
    Stopped,
    /// The client has closed the connection, or what it sent has no end.
    Wire(Ended),
    /// What it sent cannot be answered, or it was late.
    Client(&'static str),
}

impl Session {
    pub(crate) fn new(
        socket: Socket,
        endpoint: Arc<dyn Endpoint>,
        stalls: Arc<Stalls>,
        share: Arc<Share>,
    ) -> Result<Self, Errno> {
        let link = Arc::new(Link::new(socket)?);
        let layout = endpoint.layout();
        let msix = Msix::find(&*endpoint).unwrap_or_else(|error| {
            log::warn!("A served function has no MSI-X: {error}");
            None
        });
        let dma_bits = layout.dma_bits;
        let regions = Regions::new(Arc::clone(&endpoint), layout, msix);
        let interrupts = Arc::new(Interrupts::new(Arc::clone(&link), Arc::clone(&share)));
        Ok(Session {
            endpoint,
            link,
            reader: Reader::new(BODY_BYTES),
            stalls,
            share,
            interrupts,
            msix,
            regions,
            dma_bits,
            open: None,
            scratch: Vec::new(),
        })
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    pub(crate) fn interrupts(&self) -> &Arc<Interrupts> {
        &self.interrupts
    }

    /// Serves until the client goes, or must.
    pub(crate) fn run(&mut self) -> End {
        self.interrupts.signals().adopt();
        let begin = Instant::now();
        loop {
            let deadline = self.open.is_none().then(|| begin + VERSION_PATIENCE);
            let served = self.next_message(deadline).and_then(|header| self.serve(&header));
            if let Err(end) = served {
                return end;
            }
        }
    }

    /// Waits for a whole message, and meanwhile raises interrupts, sends what could not be sent, and minds the clock.
    fn next_message(&mut self, deadline: Option<Instant>) -> Result<Header, End> {
        let mut amid_since: Option<Instant> = None;
        let mut unread = Unread::default();
        loop {
            self.interrupts.signals().deliver();
            if self.link.is_stopped() {
                return Err(End::Stopped);
            }
            if !self.link.socket.closer().wait_for_room() {
                return Err(End::Client("descriptors it sent do not close"));
            }
            let now = Instant::now();
            amid_since = self.reader.is_amid().then(|| amid_since.unwrap_or(now));
            let waiting = self.link.sender().waiting();
            let unread_since = unread.since(waiting, now);
            let dma = self.open.as_ref().and_then(|open| open.dma.deadline());
            let limits = [
                (deadline, "it did not name its version in time"),
                (amid_since.map(|since| since + MESSAGE_PATIENCE), "it began a message and did not go on"),
                (unread_since.map(|since| since + MESSAGE_PATIENCE), "it does not read its replies"),
                (dma, "it does not answer requests for its memory"),
            ];
            if let Some((_, why)) = limits.iter().find(|(limit, _)| limit.is_some_and(|limit| limit <= now)) {
                return Err(End::Client(why));
            }
            let next = limits.iter().filter_map(|(limit, _)| *limit).min();
            let mut polled = [
                PollFd::new(self.link.socket.as_fd(), wanted(waiting)),
                PollFd::new(self.link.wake().as_fd(), PollFlags::POLLIN),
            ];
            poll_until(&mut polled, next).map_err(|errno| End::Wire(Ended::Failed(errno)))?;
            let [socket, wake] = polled.map(|descriptor| events(&descriptor));
            if !wake.is_empty() {
                self.link.wake().clear();
                self.interrupts.signals().deliver();
            }
            if socket.contains(PollFlags::POLLOUT) && self.link.sender().flush(&self.link.socket).is_err() {
                return Err(End::Stopped);
            }
            // A client that hangs up is read to the end, unless it is not listened to.
            if socket.intersects(PollFlags::POLLIN.union(PollFlags::POLLHUP).union(PollFlags::POLLERR))
                && let Some(header) = self.reader.advance(&self.link.socket).map_err(End::Wire)?
            {
                return Ok(header);
            }
        }
    }

    /// Answers one message.
    fn serve(&mut self, header: &Header) -> Result<(), End> {
        match header.kind() {
            Some(Kind::Command) => {}
            Some(Kind::Reply) => return self.take_reply(header),
            None => return Err(End::Client("it sent a message of no known kind")),
        }
        let descriptors = self.reader.take_descriptors();
        let command = Command::from_number(header.command);
        if self.open.is_none() {
            // Nothing but a version can be first.
            if command != Some(Command::Version) {
                self.send(header, Err(Errno::EINVAL))?;
                return Err(End::Client("it did not begin with its version"));
            }
            let agreed =
                if descriptors.len() > 0 || descriptors.are_lost() { Err(Errno::EINVAL) } else { self.agree() };
            let refused = agreed.is_err();
            self.send(header, agreed)?;
            return if refused { Err(End::Client("its version cannot be agreed to")) } else { Ok(()) };
        }
        match command {
            Some(Command::RegionRead) => self.region_read(header, descriptors),
            Some(Command::RegionWrite) => self.region_write(header, descriptors),
            _ => {
                let reply = self.answer(command, descriptors);
                self.send(header, reply)
            }
        }
    }

    /// Section "`VFIO_USER_VERSION`".
    fn agree(&mut self) -> Result<Reply, Errno> {
        let proposed = Version::decode(self.reader.body()).ok_or(Errno::EINVAL)?;
        if proposed.major != Version::MAJOR {
            return Err(Errno::EPROTONOSUPPORT);
        }
        let client = Capabilities::decode(proposed.data).ok_or(Errno::EINVAL)?;
        let answer = client.answer(self.share.limit(Item::Mappings));
        let agreed =
            Version { major: Version::MAJOR, minor: proposed.minor.min(Version::MINOR), data: &answer }.encode();
        let (link, stalls, share) = (Arc::clone(&self.link), Arc::clone(&self.stalls), Arc::clone(&self.share));
        let dma = Arc::new(Dma::new(link, stalls, share, self.dma_bits, client.transfer_bytes));
        self.open = Some(Open { dma: Arc::clone(&dma), descriptors: client.descriptors });
        self.endpoint.attach(dma as Arc<dyn DmaPort>, Arc::clone(&self.interrupts) as Arc<dyn InterruptPort>);
        // As the kernel does when a device is opened.
        self.endpoint.reset(ResetKind::Function);
        self.note_bus_master();
        Ok(agreed.into())
    }

    fn answer(&mut self, command: Option<Command>, descriptors: Descriptors) -> Result<Reply, Errno> {
        let takes_descriptors = matches!(command, Some(Command::DmaMap | Command::SetInterrupts));
        let descriptors = descriptors.all().ok_or(Errno::EINVAL)?;
        if !descriptors.is_empty() && !takes_descriptors {
            return Err(Errno::EINVAL);
        }
        let (Some(command), Some(open)) = (command, &self.open) else { return Err(Errno::ENOTSUP) };
        let body = self.reader.body();
        match command {
            Command::DmaMap => {
                let map = DmaMap::decode(exactly(body, DmaMap::BYTES)?).ok_or(Errno::EINVAL)?;
                open.dma.map(&map, descriptors).map(|()| Reply::default())
            }
            Command::DmaUnmap => {
                let unmap = DmaUnmap::decode(body).ok_or(Errno::EINVAL)?;
                if unmap.flags & DmaUnmap::GET_DIRTY == 0 {
                    exactly(body, DmaUnmap::BYTES)?;
                }
                open.dma.unmap(&unmap)?;
                Ok(unmap.encode().into())
            }
            Command::GetInfo => {
                let asked = DeviceInfo::decode(exactly(body, DeviceInfo::BYTES)?).ok_or(Errno::EINVAL)?;
                room(asked.argsz, DeviceInfo::BYTES)?;
                let info = DeviceInfo {
                    argsz: DeviceInfo::BYTES as u32,
                    flags: DeviceInfo::RESET | DeviceInfo::PCI,
                    regions: REGIONS,
                    interrupts: INTERRUPT_INDICES,
                };
                Ok(info.encode().into())
            }
            Command::GetRegionInfo => {
                let asked = RegionInfo::decode(exactly(body, RegionInfo::BYTES)?).ok_or(Errno::EINVAL)?;
                room(asked.argsz, RegionInfo::BYTES)?;
                self.region_info(&asked, open.descriptors)
            }
            Command::GetRegionIoDescriptors => {
                let decoded = RegionIoDescriptors::decode(exactly(body, RegionIoDescriptors::BYTES)?);
                let asked = decoded.ok_or(Errno::EINVAL)?;
                room(asked.argsz, RegionIoDescriptors::BYTES)?;
                if asked.index >= REGIONS || asked.flags != 0 || asked.count != 0 {
                    return Err(Errno::EINVAL);
                }
                // "At least one file descriptor" must come with a reply, and there is none to give.
                Err(Errno::ENOTSUP)
            }
            Command::GetInterruptInfo => {
                let asked = InterruptInfo::decode(exactly(body, InterruptInfo::BYTES)?).ok_or(Errno::EINVAL)?;
                room(asked.argsz, InterruptInfo::BYTES)?;
                if asked.index >= INTERRUPT_INDICES {
                    return Err(Errno::EINVAL);
                }
                Ok(self.interrupt_info(asked.index).encode().into())
            }
            Command::SetInterrupts => {
                let set = SetInterrupts::decode(body).ok_or(Errno::EINVAL)?;
                if set.index >= INTERRUPT_INDICES {
                    return Err(Errno::EINVAL);
                }
                let available = self.interrupt_info(set.index).count;
                let (msix, endpoint) = (self.msix.as_ref(), &*self.endpoint);
                self.interrupts.set(&set, descriptors, available, msix, endpoint).map(|()| Reply::default())
            }
            Command::Reset => {
                exactly(body, 0)?;
                self.endpoint.reset(ResetKind::Function);
                self.after_config_write();
                Ok(Reply::default())
            }
            // A second version; or what only a server asks for.
            Command::Version | Command::DmaRead | Command::DmaWrite => Err(Errno::EINVAL),
            Command::RegionRead | Command::RegionWrite => Err(Errno::ENOTSUP),
        }
    }

    fn interrupt_info(&self, index: u32) -> InterruptInfo {
        let vectors = self.msix.as_ref().map_or(0, Msix::vectors);
        interrupts::info(index, vectors, interrupts::has_intx(&*self.endpoint))
    }

    fn region_info(&self, asked: &RegionInfo, most_descriptors: u64) -> Result<Reply, Errno> {
        let Described { mut info, mut memory, areas } = self.regions.info(asked.index)?;
        if most_descriptors == 0 {
            info.flags &= !RegionInfo::MMAP;
            memory = None;
        }
        if memory.is_none() || areas.is_empty() {
            return Ok(Reply { body: info.encode(), memory });
        }
        let capability = encode_areas(&areas);
        info.flags |= RegionInfo::CAPS;
        info.cap_offset = RegionInfo::BYTES as u32;
        info.argsz += capability.len() as u32;
        let mut body = info.encode();
        // "in that case, the full payload is not included in the reply" (section "Message sizes").
        if asked.argsz >= info.argsz {
            body.extend(capability);
        }
        Ok(Reply { body, memory })
    }

    fn region_read(&mut self, header: &Header, descriptors: Descriptors) -> Result<(), End> {
        let checked = self.region_access(descriptors, |_, rest| rest.is_empty());
        let (access, place) = match checked {
            Ok(checked) => checked,
            Err(errno) => return self.send(header, Err(errno)),
        };
        let mut data = std::mem::take(&mut self.scratch);
        data.resize(access.count as usize, 0);
        self.regions.read(place, access.offset, &mut data);
        let sent = if header.is_silent() {
            Ok(())
        } else {
            let reply = header.reply(RegionAccess::BYTES + data.len());
            self.link.send(reply, [&access.encode(), &data], &[]).map_err(|_| End::Stopped)
        };
        self.scratch = data;
        sent
    }

    fn region_write(&mut self, header: &Header, descriptors: Descriptors) -> Result<(), End> {
        let checked = self.region_access(descriptors, |access, rest| rest.len() == access.count as usize);
        let (access, place) = match checked {
            Ok(checked) => checked,
            Err(errno) => return self.send(header, Err(errno)),
        };
        let data = &self.reader.body()[RegionAccess::BYTES..];
        // A write to a BAR is posted, as on PCIe: its writer does not wait for what it sets off. What is sent after it
        // is served after it.
        if place != Place::Config {
            self.send(header, Ok(access.encode().to_vec().into()))?;
            self.regions.write(place, access.offset, data);
            return Ok(());
        }
        self.regions.write(place, access.offset, data);
        self.after_config_write();
        self.send(header, Ok(access.encode().to_vec().into()))
    }

    fn region_access(
        &self,
        descriptors: Descriptors,
        is_right: impl Fn(&RegionAccess, &[u8]) -> bool,
    ) -> Result<(RegionAccess, Place), Errno> {
        if descriptors.len() > 0 || descriptors.are_lost() {
            return Err(Errno::EINVAL);
        }
        let (access, rest) = RegionAccess::decode(self.reader.body()).ok_or(Errno::EINVAL)?;
        if !is_right(&access, rest) {
            return Err(Errno::EINVAL);
        }
        let place = self.regions.place(&access, DEFAULT_TRANSFER_BYTES)?;
        Ok((access, place))
    }

    fn take_reply(&mut self, header: &Header) -> Result<(), End> {
        let unasked = End::Client("it answered what it was not asked");
        drop(self.reader.take_descriptors());
        let open = self.open.as_ref().ok_or(unasked)?;
        for finished in open.dma.answered(header, self.reader.body()).ok_or(unasked)? {
            complete(&*self.endpoint, finished);
        }
        Ok(())
    }

    fn send(&self, header: &Header, reply: Result<Reply, Errno>) -> Result<(), End> {
        if header.is_silent() {
            return Ok(());
        }
        let sent = match &reply {
            Ok(reply) => {
                let memory: Vec<BorrowedFd<'_>> = reply.memory.iter().map(|memory| memory.as_fd()).collect();
                self.link.send(header.reply(reply.body.len()), [&reply.body, &[]], &memory)
            }
            Err(errno) => self.link.send(header.failure(*errno), [&[], &[]], &[]),
        };
        sent.map_err(|_| End::Stopped)
    }

    /// A write may have changed who masters the bus, or have reset the function, and MSI-X with it.
    fn after_config_write(&self) {
        self.note_bus_master();
        if let Some(msix) = &self.msix {
            self.interrupts.keep_programmed(msix, &*self.endpoint);
        }
    }

    fn note_bus_master(&self) {
        let mut command = [0; 2];
        self.endpoint.config_read(config::COMMAND, &mut command);
        // All-ones are not a register: a function that is gone masters nothing.
        let command = u16::from_le_bytes(command);
        self.link.set_master(command != u16::MAX && command & config::COMMAND_MASTER != 0);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.link.stop();
        if let Some(open) = self.open.take() {
            for finished in open.dma.close() {
                complete(&*self.endpoint, finished);
            }
            if self.link.is_withdrawn() {
                self.interrupts.request_release();
            }
            self.interrupts.disconnect();
            self.endpoint.reset(ResetKind::OwnerLost);
            // The ports of this session keep its socket: while that is open, the card looks held to the machine.
            self.endpoint.attach(Arc::new(NoHost), Arc::new(NoHost));
        }
        self.link.socket.shut_down();
    }
}

/// Since when a client has read nothing of what waits for it.
#[derive(Default)]
struct Unread(Option<(Instant, usize)>);

impl Unread {
    /// Notes that `bytes` bytes wait now. It is late once none of them has gone for a while.
    fn since(&mut self, bytes: usize, now: Instant) -> Option<Instant> {
        let since = match self.0 {
            Some((since, before)) if bytes >= before => since,
            _ => now,
        };
        self.0 = (bytes > 0).then_some((since, bytes));
        self.0.map(|(since, _)| since)
    }
}

/// What is waited for at a client's socket while `unread` bytes wait to be sent.
fn wanted(unread: usize) -> PollFlags {
    let mut wanted = PollFlags::empty();
    wanted.set(PollFlags::POLLIN, unread < ENOUGH_UNREAD);
    wanted.set(PollFlags::POLLOUT, unread > 0);
    wanted
}

/// Ports of an endpoint without a client.
struct NoHost;

impl DmaPort for NoHost {
    fn read(&self, _tag: DmaTag, _iova: Iova, _data: &mut [u8]) -> DmaProgress {
        DmaProgress::Done(Err(DmaFault::HostGone))
    }

    fn write(&self, _tag: DmaTag, _iova: Iova, _data: &[u8]) -> DmaProgress {
        DmaProgress::Done(Err(DmaFault::HostGone))
    }
}

impl InterruptPort for NoHost {
    fn raise(&self, _vector: u16) {}

    fn set_intx(&self, _asserted: bool) {}
}

fn complete(endpoint: &dyn Endpoint, finished: Finished) {
    let Finished { tag, result } = finished;
    endpoint.dma_complete(tag, result.as_deref().map_err(|fault| *fault));
}

/// A body that must have so many bytes.
fn exactly(body: &[u8], bytes: usize) -> Result<&[u8], Errno> {
    if body.len() == bytes { Ok(body) } else { Err(Errno::EINVAL) }
}

/// Checks that a reply of so many bytes fits into what the client has room for.
fn room(argsz: u32, bytes: usize) -> Result<(), Errno> {
    if argsz as usize >= bytes { Ok(()) } else { Err(Errno::EINVAL) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfio_user::server::budget::{Budget, Limits, Member};
    use crate::vfio_user::server::regions::tests::Kept;
    use crate::vfio_user::wire::closing::Closer;
    use crate::vfio_user::wire::messages::decode_areas;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_client_is_late_since_the_last_byte_went() {
        let (begin, mut unread) = (Instant::now(), Unread::default());
        let steps = [
            (0, None),
            (5, Some(1)),
            (5, Some(1)),
            (9, Some(1)),
            (8, Some(4)),
            (8, Some(4)),
            (0, None),
            (0, None),
            (1, Some(8)),
            (2, Some(8)),
        ];
        for (second, (bytes, since)) in (0..).zip(steps) {
            let at = |second| begin + Duration::from_secs(second);
            assert_eq!(unread.since(bytes, at(second)), since.map(at), "{bytes} bytes after {second} s");
        }
    }

    fn session() -> (Arc<Kept>, Session) {
        let kept = Kept::new();
        let (socket, _) = UnixStream::pair().unwrap();
        let share = Member::new(&Budget::new(Limits::of_process()), "test".into()).share();
        let stalls = Arc::new(Stalls::new("test".into(), Duration::from_secs(1)));
        let session = Session::new(Socket::new(socket, &Closer::new()), kept.clone(), stalls, share);
        (kept, session.unwrap())
    }

    #[test]
    fn a_region_that_holds_the_table_is_described_with_its_areas() {
        let (_, session) = session();
        let asked = |argsz| RegionInfo { argsz, flags: 0, index: 2, cap_offset: 0, size: 0, offset: 0 };
        // Two areas: the capability's header, their count, and each with its offset and size.
        let whole = 32 + 8 + 8 + 2 * 16;
        for (argsz, bytes) in [(32, 32), (whole - 1, 32), (whole, whole), (u32::MAX, whole)] {
            let Reply { body, memory } = session.region_info(&asked(argsz), 1).unwrap();
            assert!(memory.is_some());
            assert_eq!(body.len(), bytes as usize, "{argsz}");
            let info = RegionInfo::decode(&body).unwrap();
            assert_eq!((info.argsz, info.flags, info.cap_offset, info.size), (whole, 0xf, 32, 0x4000));
            if bytes == whole {
                let areas = decode_areas(&body, 32).unwrap().unwrap();
                assert_eq!(
                    areas.iter().map(|area| (area.offset, area.size)).collect::<Vec<_>>(),
                    [(0, 0x1000), (0x2000, 0x2000)]
                );
            }
        }
        // Without descriptors there is nothing to map.
        let Reply { body, memory } = session.region_info(&asked(whole), 0).unwrap();
        let expected = RegionInfo { argsz: 32, flags: 3, index: 2, cap_offset: 0, size: 0x4000, offset: 0 };
        assert_eq!((RegionInfo::decode(&body), body.len(), memory.is_none()), (Some(expected), 32, true));
    }

    #[test]
    fn a_function_masters_the_bus_if_its_command_register_says_so() {
        let (kept, session) = session();
        for (command, is_master) in
            [(0, false), (2, false), (4, true), (6, true), (0xfffb, false), (0xffff, false), (0, false)]
        {
            kept.config.lock().unwrap()[4..6].copy_from_slice(&u16::to_le_bytes(command));
            session.note_bus_master();
            assert_eq!(session.link.check().is_ok(), is_master, "{command:#x}");
        }
    }

    #[test]
    fn a_body_and_its_room_are_checked() {
        assert_eq!([15, 16, 17].map(|bytes| exactly(&[0; 20][..bytes], 16).is_ok()), [false, true, false]);
        assert_eq!([15, 16, 17].map(|argsz| room(argsz, 16).is_ok()), [false, true, true]);
    }

    #[test]
    fn who_reads_nothing_is_not_listened_to() {
        let (read, write) = (PollFlags::POLLIN, PollFlags::POLLOUT);
        let all = 4 << 20;
        assert_eq!([0, 1, all - 1, all].map(wanted), [read, read | write, read | write, write]);
    }
}

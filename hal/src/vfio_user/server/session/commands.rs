//! Commands of a client.

use nix::errno::Errno;

use super::reply::Reply;
use super::reset::through_reset;
use super::{End, Session};
use crate::endpoint::msix::Msix;
use crate::endpoint::{ResetKind, has_intx};
use crate::vfio_user::server::interrupts;
use crate::vfio_user::server::regions::{Described, Location};
use crate::vfio_user::wire::device::DeviceInfo;
use crate::vfio_user::wire::header::{Command, Header};
use crate::vfio_user::wire::interrupt::{INTERRUPT_INDICES, InterruptInfo, SetInterrupts};
use crate::vfio_user::wire::memory::{DmaMap, DmaUnmap};
use crate::vfio_user::wire::region::{REGIONS, RegionAccess, RegionInfo, encode_areas};
use crate::vfio_user::wire::socket::{Descriptors, Lost};

impl Session {
    pub(super) fn answer(&mut self, command: Option<Command>, descriptors: Descriptors) -> Result<Reply, Errno> {
        // The client library of SPDK sends the descriptor of a mapping again to unmap it.
        let takes_descriptors = matches!(command, Some(Command::DmaMap | Command::DmaUnmap | Command::SetInterrupts));
        if !descriptors.is_empty() && !takes_descriptors {
            return Err(Errno::EINVAL);
        }
        let descriptors = match (command, descriptors.all()) {
            // They are not used, so none is missing.
            (Some(Command::DmaUnmap), Err(Lost::NoneFree)) => Vec::new(),
            (_, all) => all.map_err(|lost| self.lose(lost))?,
        };
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
            // The bodies of the commands for descriptions may be longer: clients send a whole buffer for the reply.
            Command::GetInfo => {
                let asked = DeviceInfo::decode(body).ok_or(Errno::EINVAL)?;
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
                let asked = RegionInfo::decode(body).ok_or(Errno::EINVAL)?;
                room(asked.argsz, RegionInfo::BYTES)?;
                self.region_info(&asked, open.descriptors)
            }
            Command::GetInterruptInfo => {
                let asked = InterruptInfo::decode(body).ok_or(Errno::EINVAL)?;
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
                open.dma.excuse(through_reset(&*self.endpoint, || self.endpoint.reset(ResetKind::Function)));
                self.after_config_write();
                Ok(Reply::default())
            }
            // A second version, or a command that only a server sends.
            Command::Version | Command::DmaRead | Command::DmaWrite => Err(Errno::EINVAL),
            // A reply to the first must have "at least one file descriptor", and there is none.
            Command::GetRegionIoDescriptors | Command::RegionRead | Command::RegionWrite => Err(Errno::ENOTSUP),
        }
    }

    fn interrupt_info(&self, index: u32) -> InterruptInfo {
        let vectors = self.msix.as_ref().map_or(0, Msix::vectors);
        interrupts::info(index, vectors, has_intx(&*self.endpoint))
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

    pub(super) fn region_read(&mut self, header: &Header, descriptors: Descriptors) -> Result<(), End> {
        let checked = self.region_access(descriptors, |_, rest| rest.is_empty());
        let (access, location) = match checked {
            Ok(checked) => checked,
            Err(errno) => return self.send(header, Err(errno)),
        };
        let mut data = std::mem::take(&mut self.scratch);
        data.resize(access.count as usize, 0);
        self.regions.read(location, access.offset, &mut data);
        let sent = if header.is_silent() {
            Ok(())
        } else {
            let reply = header.reply(RegionAccess::BYTES + data.len());
            self.link.send(reply, [&access.encode(), &data], &[]).map_err(|_| End::Stopped)
        };
        self.scratch = data;
        sent
    }

    pub(super) fn region_write(&mut self, header: &Header, descriptors: Descriptors) -> Result<(), End> {
        let checked = self.region_access(descriptors, |access, rest| rest.len() == access.count as usize);
        let (access, location) = match checked {
            Ok(checked) => checked,
            Err(errno) => return self.send(header, Err(errno)),
        };
        let data = &self.reader.body()[RegionAccess::BYTES..];
        // A write to a BAR is posted, as on PCIe: the reply does not wait for its effects. Later messages are handled
        // after it.
        if location != Location::Config {
            self.send(header, Ok(access.encode().to_vec().into()))?;
            self.regions.write(location, access.offset, data);
            return Ok(());
        }
        // It may begin a function-level reset.
        let waited = through_reset(&*self.endpoint, || self.regions.write(location, access.offset, data));
        if let Some(open) = &self.open {
            open.dma.excuse(waited);
        }
        self.after_config_write();
        self.send(header, Ok(access.encode().to_vec().into()))
    }

    fn region_access(
        &self,
        descriptors: Descriptors,
        is_right: impl Fn(&RegionAccess, &[u8]) -> bool,
    ) -> Result<(RegionAccess, Location), Errno> {
        if !descriptors.is_empty() {
            return Err(Errno::EINVAL);
        }
        let (access, rest) = RegionAccess::decode(self.reader.body()).ok_or(Errno::EINVAL)?;
        if !is_right(&access, rest) {
            return Err(Errno::EINVAL);
        }
        let location = self.regions.locate(&access)?;
        Ok((access, location))
    }

    /// Notes a new value of the bus master bit, and programs MSI-X again if the write has reset the function.
    fn after_config_write(&self) {
        self.note_bus_master();
        if let Some(msix) = &self.msix {
            self.interrupts.keep_programmed(msix, &*self.endpoint);
        }
    }
}

/// Checks that a body has exactly so many bytes.
fn exactly(body: &[u8], bytes: usize) -> Result<&[u8], Errno> {
    if body.len() == bytes { Ok(body) } else { Err(Errno::EINVAL) }
}

/// Checks that the client accepts a reply of so many bytes.
fn room(argsz: u32, bytes: usize) -> Result<(), Errno> {
    if argsz as usize >= bytes { Ok(()) } else { Err(Errno::EINVAL) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::session;
    use super::*;
    use crate::vfio_user::wire::region::decode_areas;
    use crate::vfio_user::wire::socket::tests::received;

    #[test]
    fn a_region_that_holds_the_table_is_described_with_its_areas() {
        let (_, session) = session();
        let asked = |argsz| RegionInfo { argsz, flags: 0, index: 2, cap_offset: 0, size: 0, offset: 0 };
        // The structure, and two areas: the capability's header, the count, and offset and size of each.
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
        // A client that accepts no descriptors can map nothing.
        let Reply { body, memory } = session.region_info(&asked(whole), 0).unwrap();
        let expected = RegionInfo { argsz: 32, flags: 3, index: 2, cap_offset: 0, size: 0x4000, offset: 0 };
        assert_eq!((RegionInfo::decode(&body), body.len(), memory.is_none()), (Some(expected), 32, true));
    }

    #[test]
    fn descriptors_that_this_process_has_lost_are_not_the_clients_fault() {
        let lines = crate::logged::lines(|one| one.level() <= log::Level::Warn);
        let here = std::thread::current().id();
        let told = || lines.take(|thread, _| thread == here);
        let (_, mut session) = session();
        told();
        let mut answer =
            |command, installed, is_cut_off| session.answer(Some(command), received(installed, is_cut_off)).err();
        let takes = [Command::DmaMap, Command::SetInterrupts];
        assert_eq!(takes.map(|command| answer(command, 17, true)), [Some(Errno::EINVAL); 2]);
        assert_eq!(answer(Command::GetInfo, 0, true), Some(Errno::EINVAL), "none belong to this command");
        assert_eq!(answer(Command::DmaUnmap, 17, true), Some(Errno::EINVAL));
        assert_eq!(
            answer(Command::DmaUnmap, 1, true),
            Some(Errno::ENOTSUP),
            "they are not used; there is no version yet"
        );
        assert_eq!(told(), [""; 0]);
        for _ in 0..2 {
            assert_eq!(takes.map(|command| answer(command, 1, true)), [Some(Errno::EMFILE); 2]);
        }
        let raise = "raise the limit of open files (`ulimit -n`)";
        assert_eq!(told(), [format!("test: this process has no free descriptors for those of a client: {raise}")]);
    }

    #[test]
    fn a_body_and_its_room_are_checked() {
        assert_eq!([15, 16, 17].map(|bytes| exactly(&[0; 20][..bytes], 16).is_ok()), [false, true, false]);
        assert_eq!([15, 16, 17].map(|argsz| room(argsz, 16).is_ok()), [false, true, true]);
    }
}

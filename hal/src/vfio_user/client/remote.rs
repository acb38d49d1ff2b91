//! A function that a server serves, as a bus.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

use nix::errno::Errno;

use super::connection::{Connection, Failure, Reply, unless_gone};
use super::mapped;
use super::maps::Maps;
use super::options::Options;
use crate::bus::{Bus, Piece};
use crate::endpoint::BarLayout;
use crate::memory::region::page_size;
use crate::removal::Removal;
use crate::vfio_user::wire::capabilities::{self, Capabilities};
use crate::vfio_user::wire::device::DeviceInfo;
use crate::vfio_user::wire::header::Command;
use crate::vfio_user::wire::interrupt::{INTX, InterruptInfo, MSI, MSIX, SetInterrupts};
use crate::vfio_user::wire::region::{Area, CONFIG_REGION, REGIONS, RegionAccess, RegionInfo, decode_areas};
use crate::vfio_user::wire::version::{DESCRIPTORS, Version};
use crate::{BarIndex, BusKind, Error, Interrupt, InterruptKind, ResetOutcome, Result, config};

/// Bytes of the largest description of a region that is accepted: enough for a thousand areas.
const DESCRIPTION_BYTES: u32 = 32 + 16 + 16 * 1024;

/// The client of a served function.
pub(super) struct Remote {
    pub(super) connection: Arc<Connection>,
    pub(super) maps: Arc<Maps>,
    pub(super) regions: Vec<RemoteRegion>,
    pub(super) layouts: [Option<BarLayout>; BarIndex::COUNT],
    /// Vectors of each kind, by its [index](index).
    pub(super) vectors: [u16; 3],
    pub(super) can_reset: bool,
    pub(super) server: Capabilities,
}

/// A region as the server describes it.
#[derive(Default)]
pub(super) struct RemoteRegion {
    bytes: u64,
    pieces: Vec<Piece>,
}

/// Returns the error for a reply that cannot be right.
fn nonsense(what: &'static str) -> Error {
    Error::Nonsense { what }
}

impl Remote {
    pub(super) fn agree(&mut self, path: &Path) -> Result<()> {
        let offer = capabilities::offer();
        let proposed = Version { major: Version::MAJOR, minor: Version::MINOR, data: &offer }.encode();
        let replied = self.connection.call(Command::Version, [&proposed, &[]], &[]);
        if matches!(replied, Err(Failure::Refused(Errno::EBUSY))) {
            return Err(Error::Busy { path: path.to_owned() });
        }
        let Some(reply) = unless_gone(replied, "agree on a version for")? else {
            let aborted = io::ErrorKind::ConnectionAborted;
            let source = self.connection.ending().map_or_else(|| aborted.into(), io::Error::from);
            return Err(Error::Socket { action: "connect to", path: path.to_owned(), source });
        };
        let agreed = Version::decode(&reply.body).ok_or(nonsense("version"))?;
        if agreed.major != Version::MAJOR || agreed.minor > Version::MINOR {
            return Err(nonsense("version"));
        }
        self.server = Capabilities::decode(agreed.data).ok_or(nonsense("version"))?;
        if self.server.page_sizes & page_size() as u64 == 0 && self.server.page_sizes & capabilities::PAGE == 0 {
            return Err(nonsense("list of page sizes"));
        }
        Ok(())
    }

    /// Sends a command that must succeed, and returns its reply.
    fn ask(&self, what: &'static str, command: Command, body: &[u8]) -> Result<Reply> {
        unless_gone(self.connection.call(command, [body, &[]], &[]), what)?
            .ok_or_else(|| self.connection.removal().error())
    }

    pub(super) fn describe(&mut self, options: &Options) -> Result<()> {
        let asked = DeviceInfo { argsz: DeviceInfo::BYTES as u32, flags: 0, regions: 0, interrupts: 0 };
        let reply = self.ask("describe", Command::GetInfo, &asked.encode())?;
        let info = DeviceInfo::decode(&reply.body).ok_or(nonsense("description"))?;
        if info.flags & DeviceInfo::PCI == 0 || info.regions <= CONFIG_REGION {
            return Err(nonsense("description"));
        }
        self.can_reset = info.flags & DeviceInfo::RESET != 0;
        self.regions.resize_with(REGIONS as usize, RemoteRegion::default);
        for index in (0..BarIndex::COUNT as u32).chain([CONFIG_REGION]) {
            self.regions[index as usize] = self.describe_region(index, options)?;
        }
        if self.regions[CONFIG_REGION as usize].bytes < 256 {
            return Err(nonsense("configuration space"));
        }
        for kind in InterruptKind::ALL {
            let index = index(kind);
            if index >= info.interrupts {
                continue;
            }
            let asked = InterruptInfo { argsz: InterruptInfo::BYTES as u32, flags: 0, index, count: 0 };
            let reply = match self.ask("describe interrupts of", Command::GetInterruptInfo, &asked.encode()) {
                // As a function without interrupts of this kind.
                Err(Error::Refused { source, .. }) if is_absent(&source) => {
                    log::info!("The server refused to describe {kind} interrupts: {source}");
                    continue;
                }
                reply => reply?,
            };
            let info = InterruptInfo::decode(&reply.body).filter(|info| info.index == index && info.count <= 2048);
            let info = info.ok_or(nonsense("description of interrupts"))?;
            if info.flags & InterruptInfo::EVENTFD != 0 {
                self.vectors[index as usize] = info.count as u16;
            }
        }
        Ok(())
    }

    fn describe_region(&self, index: u32, options: &Options) -> Result<RemoteRegion> {
        let is_bar = index < BarIndex::COUNT as u32;
        let asked = RegionInfo { argsz: DESCRIPTION_BYTES, flags: 0, index, cap_offset: 0, size: 0, offset: 0 };
        let (describe, description) = ABOUT_REGIONS[index as usize];
        let Reply { body, descriptors } = match self.ask(describe, Command::GetRegionInfo, &asked.encode()) {
            // Some servers refuse the index of a BAR that is not implemented.
            Err(Error::Refused { source, .. }) if is_bar && is_absent(&source) => {
                log::info!("The server refused to {describe} the function: {source}");
                return Ok(RemoteRegion::default());
            }
            reply => reply?,
        };
        let wrong = || nonsense(description);
        let info = RegionInfo::decode(&body).filter(|info| info.index == index).ok_or_else(wrong)?;
        let mut region = RemoteRegion { bytes: info.size, pieces: Vec::new() };
        let wanted = info.flags & RegionInfo::MMAP != 0 && options.map_bars && is_bar;
        let descriptor = descriptors.into_iter().next().filter(|_| wanted).and_then(mapped::mappable);
        let Some(descriptor) = descriptor else { return Ok(region) };
        let areas = match info.flags & RegionInfo::CAPS {
            0 => None,
            _ => decode_areas(&body, info.cap_offset).ok_or_else(wrong)?,
        };
        let areas = areas.unwrap_or_else(|| vec![Area { offset: 0, size: info.size }]);
        for (piece, mapped) in mapped::map(&descriptor, &info, &areas, description, self.connection.removal())? {
            self.connection.removal().takes_along(&mapped);
            region.pieces.push(piece);
        }
        Ok(region)
    }

    /// Reads the kinds of BARs from their registers.
    pub(super) fn read_layouts(&mut self) -> Result<()> {
        for index in 0..BarIndex::COUNT {
            let bytes = self.regions[index].bytes;
            if bytes > 0 {
                let mut low = [0xff];
                self.config_read(config::BARS + 4 * index as u16, &mut low)?;
                self.layouts[index] = Some(BarLayout::from_register(low[0], bytes));
            }
        }
        Ok(())
    }

    fn read(&self, region: u32, offset: u64, data: &mut [u8]) -> Result<()> {
        self.connection.check_owner()?;
        let access = RegionAccess { offset, region, count: data.len() as u32 };
        let reply = self.connection.call(Command::RegionRead, [&access.encode(), &[]], &[]);
        let Some(reply) = unless_gone(reply, "read")? else { return Ok(()) };
        match RegionAccess::decode(&reply.body) {
            Some((answered, read)) if answered == access && read.len() == data.len() => data.copy_from_slice(read),
            _ => return Err(nonsense("answer to a read")),
        }
        Ok(())
    }

    /// Fails once the server has refused a posted write, until the function is reset: what the function does without the write is
    /// unknown, and a caller that tolerates an error must not hide it from the others.
    fn check_writes(&self) -> Result<()> {
        self.connection.refused().map_or(Ok(()), |refused| Err(refused.into()))
    }

    fn set_interrupts(
        &self,
        flags: u32,
        index: u32,
        range: std::ops::Range<u32>,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<()> {
        let (start, count) = (range.start, range.len() as u32);
        let set = SetInterrupts { argsz: SetInterrupts::BYTES as u32, flags, index, start, count, data: &[] };
        let reply = self.connection.call(Command::SetInterrupts, [&set.encode(), &[]], descriptors);
        unless_gone(reply, "set interrupts of")?.map(drop).ok_or_else(|| self.connection.removal().error())
    }
}

/// Whether a server refuses to describe what it does not implement.
fn is_absent(refusal: &io::Error) -> bool {
    refusal.raw_os_error() == Some(Errno::EINVAL as i32)
}

/// For errors about each region: the action of asking for its description, and the description. The ROM is not asked for.
const ABOUT_REGIONS: [(&str, &str); CONFIG_REGION as usize + 1] = [
    ("describe BAR0 of", "description of BAR0"),
    ("describe BAR1 of", "description of BAR1"),
    ("describe BAR2 of", "description of BAR2"),
    ("describe BAR3 of", "description of BAR3"),
    ("describe BAR4 of", "description of BAR4"),
    ("describe BAR5 of", "description of BAR5"),
    ("describe the ROM of", "description of the ROM"),
    ("describe the configuration space of", "description of the configuration space"),
];

fn index(kind: InterruptKind) -> u32 {
    match kind {
        InterruptKind::Msix => MSIX,
        InterruptKind::Msi => MSI,
        InterruptKind::Intx => INTX,
    }
}

impl Bus for Remote {
    fn kind(&self) -> BusKind {
        BusKind::VfioUser
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) -> Result<()> {
        // A function without PCI Express has only the first 256 bytes. The rest reads as all-ones.
        if u64::from(offset) + data.len() as u64 > self.regions[CONFIG_REGION as usize].bytes {
            return Ok(());
        }
        self.read(CONFIG_REGION, u64::from(offset), data)
    }

    fn config_write(&self, offset: u16, data: &[u8]) -> Result<()> {
        if u64::from(offset) + data.len() as u64 > self.regions[CONFIG_REGION as usize].bytes {
            return Ok(());
        }
        let access = RegionAccess { offset: u64::from(offset), region: CONFIG_REGION, count: data.len() as u32 };
        unless_gone(self.connection.call(Command::RegionWrite, [&access.encode(), data], &[]), "write").map(drop)
    }

    fn bar(&self, bar: BarIndex) -> Option<BarLayout> {
        self.layouts[bar.index()]
    }

    fn bar_pieces(&self, bar: BarIndex) -> Result<Vec<Piece>> {
        Ok(self.regions[bar.index()].pieces.clone())
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) -> Result<()> {
        self.read(bar.index() as u32, offset, data)?;
        self.check_writes()
    }

    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) -> Result<()> {
        self.connection.check_owner()?;
        self.check_writes()?;
        // Posted, as on PCIe: the server handles it before any later command.
        let access = RegionAccess { offset, region: bar.index() as u32, count: data.len() as u32 };
        unless_gone(self.connection.post(access, data), "write").map(drop)
    }

    fn vectors(&self, kind: InterruptKind) -> Result<u16> {
        if self.connection.removal().check() {
            return Err(self.connection.removal().error());
        }
        Ok(self.vectors[index(kind) as usize])
    }

    fn enable_interrupts(&self, kind: InterruptKind, interrupts: &[Interrupt]) -> Result<()> {
        let counters: Vec<_> = interrupts.iter().map(Interrupt::counter).collect();
        let most = usize::try_from(self.server.descriptors).unwrap_or(DESCRIPTORS).min(DESCRIPTORS);
        if most == 0 {
            return Err(nonsense("limit of descriptors"));
        }
        let mut start = 0;
        for batch in counters.chunks(most) {
            let descriptors: Vec<_> = batch.iter().map(|counter| counter.as_fd()).collect();
            let range = start..start + batch.len() as u32;
            start = range.end;
            let flags = SetInterrupts::DATA_EVENTFD | SetInterrupts::TRIGGER;
            self.set_interrupts(flags, index(kind), range, &descriptors)?;
        }
        Ok(())
    }

    fn disable_interrupts(&self, kind: InterruptKind) -> Result<()> {
        self.set_interrupts(SetInterrupts::DATA_NONE | SetInterrupts::TRIGGER, index(kind), 0..0, &[])
    }

    fn trigger(&self, kind: InterruptKind, vector: u16) -> Result<()> {
        let range = u32::from(vector)..u32::from(vector) + 1;
        self.set_interrupts(SetInterrupts::DATA_NONE | SetInterrupts::TRIGGER, index(kind), range, &[])
    }

    fn unmask_intx(&self) -> Result<()> {
        self.set_interrupts(SetInterrupts::DATA_NONE | SetInterrupts::UNMASK, INTX, 0..1, &[])
    }

    fn can_reset(&self) -> ResetOutcome {
        if self.can_reset { ResetOutcome::Function } else { ResetOutcome::None }
    }

    fn reset(&self) -> Result<ResetOutcome> {
        for kind in InterruptKind::ALL {
            if self.vectors[index(kind) as usize] > 0 {
                self.disable_interrupts(kind)?;
            }
        }
        self.ask("reset", Command::Reset, &[])?;
        // Replies to the writes before have come.
        self.connection.forget_refused();
        Ok(ResetOutcome::Function)
    }

    fn close(&self) {
        self.maps.detach(&self.connection);
        self.connection.end();
    }

    fn removal(&self) -> &Arc<Removal> {
        self.connection.removal()
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // A function that was opened was closed before: then this has no effect, as in a forked child.
        self.close();
    }
}

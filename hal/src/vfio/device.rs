//! A function that the kernel's VFIO driver has.

use std::fs::File;
use std::io;
use std::mem::{ManuallyDrop, offset_of};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use memmap2::{Advice, MmapOptions, MmapRaw};
use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::eventfd::{EfdFlags, EventFd};
use vfio_bindings::bindings::vfio::{
    VFIO_DEVICE_FLAGS_PCI, VFIO_DEVICE_FLAGS_RESET, VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_ERR_IRQ_INDEX,
    VFIO_PCI_INTX_IRQ_INDEX, VFIO_PCI_MSI_IRQ_INDEX, VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_REQ_IRQ_INDEX, vfio_device_info,
};

use super::container::Membership;
use super::error::OpenError;
use super::info::RegionInfo;
use super::ioctl;
use crate::bus::{Bus, Piece};
use crate::config::Space;
use crate::ending::Ending;
use crate::endpoint::BarLayout;
use crate::memory::region::page_size;
use crate::owner::Owner;
use crate::removal::Removal;
use crate::sigbus::{self, Watch};
use crate::{BarIndex, BusKind, Error, Interrupt, InterruptKind, PciAddress, ResetOutcome, Result, config, sysfs};

/// Number of used regions: BARs, ROM, configuration space.
const REGIONS: usize = VFIO_PCI_CONFIG_REGION_INDEX as usize + 1;

/// Widest access to a register that is not mapped, in bytes.
const TRAPPED_BYTES: usize = 4;

/// Attempts of a reset while the device is locked, and the pause between them.
const RESET_TRIES: u32 = 5;
const RESET_PAUSE: Duration = Duration::from_millis(20);

/// The host side of a function that the kernel's VFIO driver has.
pub(super) struct Device {
    // Fields are dropped in this order: mappings, the device's descriptor, the membership in the group.
    pieces: [OnceLock<Vec<Piece>>; BarIndex::COUNT],
    regions: [RegionInfo; REGIONS],
    layouts: [Option<BarLayout>; BarIndex::COUNT],
    /// BAR and bytes of the MSI-X table.
    msix: Option<(BarIndex, Range<u64>)>,
    removal: Arc<Removal>,
    /// Raised when the function reports an uncorrected error.
    errors: Option<EventFd>,
    enabled: Mutex<Option<InterruptKind>>,
    /// Scope of the kernel's reset of this function; [`ResetOutcome::None`]: it has no reset for this function alone.
    own_reset: ResetOutcome,
    owner: Owner,
    file: Arc<File>,
    membership: Membership,
}

impl Device {
    pub(super) fn new(
        address: PciAddress,
        device: OwnedFd,
        membership: Membership,
        reset_methods: &[String],
    ) -> Result<Self> {
        let file = File::from(device);
        let kernel = |action| move |source| OpenError::Kernel { address, action, source };
        let info = ioctl::device_info(&file).map_err(kernel("describe"))?;
        if info.flags & VFIO_DEVICE_FLAGS_PCI == 0 || (info.num_regions as usize) < REGIONS {
            return Err(OpenError::Info { what: "device", at: offset_of!(vfio_device_info, flags) }.into());
        }
        let mut regions: [RegionInfo; REGIONS] = Default::default();
        for (index, region) in (0..).zip(&mut regions) {
            let bytes = ioctl::region_info(&file, index).map_err(kernel("describe the regions of"))?;
            *region = RegionInfo::parse(&bytes).map_err(|broken| OpenError::Info { what: "region", at: broken.at })?;
        }
        let has = |index| index < info.num_irqs && ioctl::irq_count(&file, index).is_ok_and(|count| count > 0);
        let connected = |index| -> Result<Option<EventFd>> {
            if !has(index) {
                return Ok(None);
            }
            let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
                .map_err(|errno| kernel("signal for")(errno.into()))?;
            let descriptor = event.as_fd().as_raw_fd();
            ioctl::connect_irqs(&file, index, &[descriptor]).map_err(kernel("signal for"))?;
            Ok(Some(event))
        };
        let errors = connected(VFIO_PCI_ERR_IRQ_INDEX)?;
        let removal = match connected(VFIO_PCI_REQ_IRQ_INDEX)? {
            Some(request) => Removal::signalled_by(Arc::new(request), PollFlags::POLLIN, Ending::ReleaseRequested),
            None => Removal::default(),
        };
        let mut device = Device {
            pieces: Default::default(),
            regions,
            layouts: Default::default(),
            msix: None,
            removal: Arc::new(removal),
            errors,
            enabled: Mutex::default(),
            own_reset: own_reset(info.flags, reset_methods),
            owner: Owner::current(),
            file: Arc::new(file),
            membership,
        };
        device.read_layouts()?;
        device.msix = device.find_msix_table()?;
        Ok(device)
    }

    /// Reads types of BARs from their registers. The kernel reported their sizes.
    fn read_layouts(&mut self) -> Result<()> {
        for index in 0..BarIndex::COUNT {
            let bytes = self.regions[index].size;
            if bytes > 0 {
                let mut low = [0xff];
                self.config_read(config::BARS + 4 * index as u16, &mut low)?;
                self.layouts[index] = Some(BarLayout::from_register(low[0], bytes));
            }
        }
        Ok(())
    }

    /// Returns the BAR and the bytes of the MSI-X table. A function with a broken list of capabilities has none.
    fn find_msix_table(&self) -> Result<Option<(BarIndex, Range<u64>)>> {
        let space = Space::read(|offset| {
            let mut word = [0xff; 4];
            self.config_read(offset, &mut word).map(|()| word)
        })?;
        if let Err(error) = space.capabilities().find(config::CAPABILITY_MSIX.into()) {
            log::warn!("Cannot find the MSI-X table, if there is one: {error}");
        }
        Ok(space.msix().and_then(|msix| msix.table_bytes()))
    }

    fn config_region(&self) -> &RegionInfo {
        &self.regions[VFIO_PCI_CONFIG_REGION_INDEX as usize]
    }

    /// Returns the offset of a register of configuration space in the device's file.
    fn config_at(&self, offset: u16, width: usize) -> Result<u64> {
        let region = self.config_region();
        if u64::from(offset) + width as u64 > region.size {
            return Err(Error::ConfigAccess { offset, width: width as u16 });
        }
        Ok(region.offset + u64::from(offset))
    }

    fn map_pieces(&self, bar: BarIndex) -> Result<Vec<Piece>> {
        let region = &self.regions[bar.index()];
        let table = self.msix.clone().filter(|(index, _)| *index == bar).map(|(_, table)| table);
        let stretches = region.mappable_stretches(table, page_size() as u64);
        stretches.into_iter().map(|stretch| self.map_piece(region, stretch)).collect()
    }

    fn map_piece(&self, region: &RegionInfo, stretch: Range<u64>) -> Result<Piece> {
        let failed = kernel("map a BAR of");
        let bytes = usize::try_from(stretch.end - stretch.start).map_err(|_| failed(Errno::ENOMEM.into()))?;
        let owner = Owner::current();
        let map = MmapOptions::new().offset(region.offset + stretch.start).len(bytes).map_raw(&*self.file);
        let map = map.map_err(failed)?;
        map.advise(Advice::DontFork).map_err(kernel("keep from children a BAR of"))?;
        let start = map.as_mut_ptr();
        let watch = sigbus::watch(start, bytes, &self.removal);
        if watch.is_none() {
            log::warn!("Too many BARs are mapped: accesses to this BAR raise SIGBUS after a removal");
        }
        let mapping = Mapping { watch, map: ManuallyDrop::new(map), owner, _file: Arc::clone(&self.file) };
        // SAFETY: the mapping has `bytes` bytes and starts on a page, as the range does. `mapping` keeps it alive and creates no
        // references into it. `watch` resolves a SIGBUS of a removed device.
        Ok(unsafe { Piece::new(stretch.start, bytes as u64, start, owner, Arc::new(mapping)) })
    }

    fn enabled(&self) -> MutexGuard<'_, Option<InterruptKind>> {
        self.enabled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A mapped part of a BAR. Keeps the device open.
struct Mapping {
    watch: Option<Watch>,
    // Not unmapped in a forked child: there, other memory may lie at this address by now.
    map: ManuallyDrop<MmapRaw>,
    owner: Owner,
    _file: Arc<File>,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.watch = None;
        if self.owner.is_here() {
            // SAFETY: `map` is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.map) }
        }
    }
}

impl Bus for Device {
    fn kind(&self) -> BusKind {
        BusKind::Vfio
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) -> Result<()> {
        let at = self.config_at(offset, data.len())?;
        read(&self.file, data, at).map_err(kernel("read configuration space of"))
    }

    fn config_write(&self, offset: u16, data: &[u8]) -> Result<()> {
        let at = self.config_at(offset, data.len())?;
        write(&self.file, data, at).map_err(kernel("write configuration space of"))
    }

    fn bar(&self, bar: BarIndex) -> Option<BarLayout> {
        self.layouts[bar.index()]
    }

    fn bar_pieces(&self, bar: BarIndex) -> Result<Vec<Piece>> {
        let pieces = &self.pieces[bar.index()];
        if let Some(pieces) = pieces.get() {
            return Ok(pieces.clone());
        }
        // Two threads may map at the same time. One of the mappings is dropped.
        let mapped = self.map_pieces(bar)?;
        Ok(pieces.get_or_init(|| mapped).clone())
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) -> Result<()> {
        self.owner.check()?;
        let at = bar_at(&self.regions[bar.index()], offset, data.len())?;
        read(&self.file, data, at).map_err(kernel("read a BAR of"))
    }

    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) -> Result<()> {
        self.owner.check()?;
        let at = bar_at(&self.regions[bar.index()], offset, data.len())?;
        write(&self.file, data, at).map_err(kernel("write a BAR of"))
    }

    fn vectors(&self, kind: InterruptKind) -> Result<u16> {
        let count = ioctl::irq_count(&*self.file, irq_index(kind)).map_err(kernel("count the interrupts of"))?;
        Ok(u16::try_from(count).unwrap_or(u16::MAX))
    }

    fn enable_interrupts(&self, kind: InterruptKind, interrupts: &[Interrupt]) -> Result<()> {
        let descriptors: Vec<_> = interrupts.iter().map(|interrupt| interrupt.as_fd().as_raw_fd()).collect();
        let mut enabled = self.enabled();
        let fewer = ioctl::connect_irqs(&*self.file, irq_index(kind), &descriptors);
        match fewer.map_err(kernel("enable the interrupts of"))? {
            Some(fewer) => {
                let available = u16::try_from(fewer).unwrap_or(u16::MAX);
                Err(Error::VectorCount { asked: interrupts.len() as u16, available })
            }
            None => {
                *enabled = Some(kind);
                Ok(())
            }
        }
    }

    fn disable_interrupts(&self, kind: InterruptKind) -> Result<()> {
        let mut enabled = self.enabled();
        if *enabled == Some(kind) {
            ioctl::disconnect_irqs(&*self.file, irq_index(kind)).map_err(kernel("disable the interrupts of"))?;
            *enabled = None;
        }
        Ok(())
    }

    fn trigger(&self, kind: InterruptKind, vector: u16) -> Result<()> {
        ioctl::trigger_irq(&*self.file, irq_index(kind), u32::from(vector)).map_err(kernel("trigger an interrupt of"))
    }

    fn unmask_intx(&self) -> Result<()> {
        ioctl::unmask_irq(&*self.file, VFIO_PCI_INTX_IRQ_INDEX).map_err(kernel("unmask the interrupt of"))
    }

    fn can_reset(&self) -> ResetOutcome {
        match self.own_reset {
            ResetOutcome::None => self.membership.can_hot_reset(&*self.file),
            own => own,
        }
    }

    fn reset(&self) -> Result<ResetOutcome> {
        // The kernel restores interrupts after a reset, so they are disabled first.
        let enabled = *self.enabled();
        enabled.map_or(Ok(()), |kind| self.disable_interrupts(kind))?;
        let reset = || match self.own_reset {
            ResetOutcome::None => self.membership.hot_reset(&*self.file),
            own => ioctl::reset(&*self.file).map(|()| own),
        };
        for _ in 1..RESET_TRIES {
            match reset() {
                // A remover holds the lock until this process closes the device, so waiting is useless then.
                Err(error) if error.raw_os_error() == Some(Errno::EAGAIN as i32) && !self.removal.check() => {
                    thread::sleep(RESET_PAUSE);
                }
                other => return other.map_err(kernel("reset")),
            }
        }
        reset().map_err(kernel("reset"))
    }

    // Dropping the fields closes the descriptor, and that is sufficient.
    fn close(&self) {}

    fn removal(&self) -> &Arc<Removal> {
        &self.removal
    }

    fn take_error(&self) -> bool {
        self.errors.as_ref().is_some_and(|errors| errors.read().is_ok())
    }
}

/// Returns the scope of `VFIO_DEVICE_RESET`: that of the kernel's methods, if one worked when the function was opened.
fn own_reset(flags: u32, methods: &[String]) -> ResetOutcome {
    if flags & VFIO_DEVICE_FLAGS_RESET == 0 { ResetOutcome::None } else { sysfs::reset_by(methods) }
}

/// Returns the offset of a register of a BAR in the device's file, if the kernel does not split the access.
///
/// Older kernels, and newer ones on some architectures, split an access of 64 bits in two, and do not report that
/// (`drivers/vfio/pci/vfio_pci_rdwr.c`, `vfio_pci_core_do_io_rw`).
fn bar_at(region: &RegionInfo, offset: u64, bytes: usize) -> Result<u64> {
    if bytes > TRAPPED_BYTES {
        return Err(Error::AccessWidth { offset, bytes: bytes as u64, most: TRAPPED_BYTES as u64 });
    }
    if bytes as u64 > region.size || offset > region.size - bytes as u64 {
        return Err(Error::OutOfBounds { what: "BAR", offset, bytes: bytes as u64, len: region.size });
    }
    Ok(region.offset + offset)
}

fn irq_index(kind: InterruptKind) -> u32 {
    match kind {
        InterruptKind::Msix => VFIO_PCI_MSIX_IRQ_INDEX,
        InterruptKind::Msi => VFIO_PCI_MSI_IRQ_INDEX,
        InterruptKind::Intx => VFIO_PCI_INTX_IRQ_INDEX,
    }
}

fn kernel(action: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::Kernel { action, source }
}

/// Returns whether the kernel's error means that the function does not answer, so it reads as all-ones: it is unplugged, without
/// power, or does not decode memory.
fn nobody_answers(error: &io::Error) -> bool {
    matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::EIO | Errno::ENODEV | Errno::ENXIO))
}

/// Reads a register in one access.
fn read(file: &File, data: &mut [u8], at: u64) -> io::Result<()> {
    match file.read_at(data, at) {
        Ok(bytes) if bytes == data.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(error) if nobody_answers(&error) => {
            data.fill(0xff);
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Writes a register in one access. Without an answer the write is lost, as on the bus.
fn write(file: &File, data: &[u8], at: u64) -> io::Result<()> {
    match file.write_at(data, at) {
        Ok(bytes) if bytes == data.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(error) if nobody_answers(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::memfd::{MFdFlags, memfd_create};

    #[test]
    fn what_nobody_answers_reads_all_ones_and_is_lost() {
        // The kernel refuses to read a process's memory where there is none, with the error that it gives for a device
        // that does not answer.
        let nowhere = File::open("/proc/self/mem").unwrap();
        let mut data = [0; 4];
        read(&nowhere, &mut data, 0).unwrap();
        assert_eq!(data, [0xff; 4]);
        let nowhere = File::options().write(true).open("/proc/self/mem").unwrap();
        assert_eq!(nowhere.write_at(&data, 0).unwrap_err().raw_os_error(), Some(Errno::EIO as i32));
        write(&nowhere, &data, 0).unwrap();
        for (errno, answers) in
            [(Errno::EIO, false), (Errno::ENODEV, false), (Errno::EINVAL, true), (Errno::EPERM, true)]
        {
            assert_eq!(nobody_answers(&errno.into()), !answers, "{errno}");
        }
    }

    #[test]
    fn what_is_reset_is_what_the_kernel_names_first() {
        let outcome = |flags, methods: &[&str]| {
            own_reset(flags, &methods.iter().map(|method| (*method).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(outcome(VFIO_DEVICE_FLAGS_RESET, &["flr", "bus"]), ResetOutcome::Function);
        assert_eq!(outcome(VFIO_DEVICE_FLAGS_RESET, &["bus"]), ResetOutcome::Bus);
        assert_eq!(outcome(VFIO_DEVICE_FLAGS_RESET, &["cxl_bus"]), ResetOutcome::Bus);
        assert_eq!(outcome(VFIO_DEVICE_FLAGS_RESET, &["unnamed"]), ResetOutcome::Function, "kernels before 5.15");
        assert_eq!(outcome(VFIO_DEVICE_FLAGS_RESET, &[]), ResetOutcome::Function);
        assert_eq!(outcome(VFIO_DEVICE_FLAGS_PCI, &["flr"]), ResetOutcome::None, "VFIO has tried, and it did not work");
    }

    #[test]
    fn a_trapped_access_is_one_or_refused() {
        let region = RegionInfo { size: 64, offset: 1 << 40, ..RegionInfo::default() };
        assert_eq!(bar_at(&region, 60, 4).unwrap(), (1 << 40) + 60);
        let refused = bar_at(&region, 0, 8).unwrap_err();
        assert!(matches!(refused, Error::AccessWidth { offset: 0, bytes: 8, most: 4 }), "{refused}");
        assert!(matches!(bar_at(&region, 61, 4), Err(Error::OutOfBounds { len: 64, .. })));
        assert!(matches!(bar_at(&region, u64::MAX, 4), Err(Error::OutOfBounds { .. })));
    }

    #[test]
    fn accesses_are_whole_or_fail() {
        let file = File::from(memfd_create("accesses", MFdFlags::MFD_CLOEXEC).unwrap());
        write(&file, &[1, 2, 3, 4, 5, 6], 0).unwrap();
        let mut data = [0; 4];
        read(&file, &mut data, 2).unwrap();
        assert_eq!(data, [3, 4, 5, 6]);
        assert_eq!(read(&file, &mut data, 3).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let folder = File::open("/").unwrap();
        assert_eq!(read(&folder, &mut data, 0).unwrap_err().raw_os_error(), Some(Errno::EISDIR as i32));
        assert!(write(&folder, &data, 0).is_err());
    }
}

//! The kernel's VFIO container: DMA mappings, and the groups that share them.
//!
//! vfio-ioctls opens the container and unmaps. Mapping is done here, because vfio-ioctls has no directions. Groups and devices
//! are opened here too, because `VfioDevice` of vfio-ioctls
//! - releases the group with every device, so with two functions in a group the kernel refuses, or drops all mappings;
//! - unwraps a link in sysfs that an unplugged function no longer has;
//! - hides the kernel's errors.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use vfio_bindings::bindings::vfio::{
    VFIO_GROUP_FLAGS_CONTAINER_SET, VFIO_GROUP_FLAGS_VIABLE, VFIO_NOIOMMU_IOMMU, VFIO_TYPE1v2_IOMMU,
};
use vfio_ioctls::{VfioContainer, VfioError};

use super::error::OpenError;
use super::hot_reset::{self, Reached};
use super::info::IommuInfo;
use super::token::VfToken;
use super::{ioctl, memlock};
use crate::memory::backend::{self, DomainBackend, NotMapped};
use crate::memory::direction::Direction;
use crate::owner::Owner;
use crate::sysfs::{Group as IommuGroup, Member, Sysfs};
use crate::{BusKind, Error, Iova, PciAddress, ResetOutcome};

type Result<T, E = Error> = std::result::Result<T, E>;

const CONTAINER: &str = "/dev/vfio/vfio";

/// An open container. It closes, with all mappings, when the domain and its functions are dropped.
pub(crate) struct Container {
    vfio: VfioContainer,
    owner: Owner,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    groups: Vec<Group>,
    /// Mappings that exist or are being created.
    mapped: BTreeMap<Iova, Mapping>,
    /// Mappings that the kernel dropped with the last group, which was unplugged. Their buffers still exist, so they are
    /// restored before another function is opened: the function must find its buffers at their addresses.
    lost: BTreeMap<Iova, Mapping>,
}

/// Memory that is mapped until its buffer is dropped.
#[derive(Debug, Clone, Copy)]
struct Mapping {
    bytes: usize,
    start: *mut u8,
    direction: Direction,
    /// Whether to restore the mapping if it is lost. False while it is being created, and once it is being unmapped.
    is_settled: bool,
}

// SAFETY: the pointer is only passed to the kernel, never dereferenced. The domain keeps the memory in place.
unsafe impl Send for Mapping {}

struct Group {
    number: u32,
    has_iommu: bool,
    /// Addresses of the functions that are open.
    open: Vec<PciAddress>,
    /// Functions that a hot reset of another function reset, and that were not opened since.
    reset: BTreeSet<PciAddress>,
    file: Arc<File>,
}

/// Parameters for opening a function.
pub(super) struct Request<'a> {
    pub(super) address: PciAddress,
    pub(super) group: &'a IommuGroup,
    pub(super) token: Option<VfToken>,
    pub(super) sysfs: &'a Sysfs,
}

impl Container {
    /// Opens a container without groups.
    pub(crate) fn new() -> Result<Self> {
        let owner = Owner::current();
        let vfio = VfioContainer::new(None).map_err(|source| match source {
            VfioError::OpenContainer(source) => node_error(&Sysfs::new("/"), Path::new(CONTAINER), source, None),
            source => OpenError::Container { source },
        })?;
        Ok(Container { vfio, owner, state: Mutex::default() })
    }

    /// Opens a function's device. Before that, opens its group and sets the container's IOMMU, if it is the first.
    ///
    /// If a group is added, `adopt` receives the limits of the IOMMU and whether the group is the only one, before any other
    /// thread can use them.
    pub(super) fn join(
        self: &Arc<Self>,
        request: &Request<'_>,
        adopt: impl FnOnce(&IommuInfo, bool),
    ) -> Result<(OwnedFd, Membership)> {
        self.owner.check()?;
        let (address, number, has_iommu) = (request.address, request.group.number, !request.group.is_unprotected);
        let mut state = self.state();
        forget_unplugged(&mut state);
        if state.groups.iter().any(|group| group.open.contains(&address)) {
            return Err(OpenError::AlreadyOpen { address }.into());
        }
        if state.groups.iter().any(|group| group.has_iommu != has_iommu) {
            return Err(OpenError::Mixed { address }.into());
        }
        let is_first = state.groups.is_empty();
        let index = match state.groups.iter().position(|group| group.number == number) {
            Some(index) => index,
            None => {
                let group = self.open_group(request, is_first)?;
                if has_iommu {
                    // SAFETY: mappings in `lost` were not unmapped, so the domain still keeps their memory in place.
                    let map = |iova: Iova, mapping: Mapping| unsafe {
                        ioctl::map_dma(&self.vfio, iova.0, mapping.bytes, mapping.start, mapping.direction)
                    };
                    let limits = map_again(&mut state, map, || self.ask_iommu(address))?;
                    // Last: those of a group that is refused do not count.
                    adopt(&limits, is_first);
                }
                state.groups.push(group);
                state.groups.len() - 1
            }
        };
        let group = &mut state.groups[index];
        group.open.push(address);
        let was_reset = group.reset.remove(&address);
        let file = Arc::clone(&group.file);
        // From here on, an error drops the membership.
        let membership = Membership { container: Arc::clone(self), number, address, was_reset: was_reset.into() };
        // The kernel resets the device now. That takes long, so other threads get the lock.
        drop(state);
        let device = open_device(&file, request)?;
        Ok((device, membership))
    }

    fn open_group(&self, request: &Request<'_>, is_first: bool) -> Result<Group> {
        let (address, number, has_iommu) = (request.address, request.group.number, !request.group.is_unprotected);
        let node = request.group.node();
        let file = OpenOptions::new().read(true).write(true).open(&node);
        let file = file.map_err(|source| node_error(request.sysfs, &node, source, Some(address)))?;
        let kernel = |action| move |source| OpenError::Kernel { address, action, source };
        let status = ioctl::group_status(&file).map_err(kernel("tell the state of the group of"))?;
        if status & VFIO_GROUP_FLAGS_VIABLE == 0 {
            let others = others(&request.group.members, address);
            return Err(OpenError::NotViable { address, group: number, others }.into());
        }
        ioctl::set_container(&file, &self.vfio).map_err(|source| OpenError::Iommu { address, source })?;
        if is_first {
            let kind = if has_iommu { VFIO_TYPE1v2_IOMMU } else { VFIO_NOIOMMU_IOMMU };
            ioctl::set_iommu(&self.vfio, kind).map_err(|source| OpenError::Iommu { address, source })?;
        }
        Ok(Group { number, has_iommu, open: Vec::new(), reset: BTreeSet::new(), file: Arc::new(file) })
    }

    fn ask_iommu(&self, address: PciAddress) -> Result<IommuInfo> {
        let bytes = ioctl::iommu_info(&self.vfio);
        let bytes = bytes.map_err(|source| OpenError::Kernel { address, action: "describe the IOMMU of", source })?;
        Ok(IommuInfo::parse(&bytes).map_err(|broken| OpenError::Info { what: "IOMMU", at: broken.at })?)
    }

    /// Maps memory that stays in place until [`unmap`](DomainBackend::unmap) succeeds. `entry_limit` is for the error.
    fn map_settled(&self, mapping: &backend::Mapping, entry_limit: usize) -> Result<()> {
        let &backend::Mapping { iova, bytes, direction, ref region, only: _ } = mapping;
        let size = usize::try_from(bytes).map_err(|_| Error::BufferSize { bytes })?;
        let start = region.base();
        // Recorded first, so that no other thread releases the groups.
        self.state().mapped.insert(iova, Mapping { bytes: size, start, direction, is_settled: false });
        // SAFETY: the region is at least `bytes` long, and no references into it exist. `Domain::release` drops it only after
        // `unmap` succeeded, and leaks it otherwise.
        let mapped = unsafe { ioctl::map_dma(&self.vfio, iova.0, size, start, direction) };
        mapped.and_then(|()| self.settle(iova, size)).map_err(|source| {
            self.forget(iova);
            match source.raw_os_error().map(Errno::from_raw) {
                Some(Errno::ENOSPC) => Error::EntryLimit { limit: entry_limit },
                Some(Errno::ENOMEM) => memlock::refused(bytes, source),
                _ => Error::DmaMap { iova, bytes, source },
            }
        })
    }

    /// Records that a mapping is complete. If all mappings were lost meanwhile, unmaps it again.
    fn settle(&self, iova: Iova, bytes: usize) -> io::Result<()> {
        match self.state().mapped.get_mut(&iova) {
            Some(mapping) => {
                mapping.is_settled = true;
                Ok(())
            }
            None => {
                let _ = self.vfio.vfio_dma_unmap(iova.0, bytes);
                Err(Errno::ENODEV.into())
            }
        }
    }

    fn forget(&self, iova: Iova) {
        let mut state = self.state();
        state.mapped.remove(&iova);
        sweep(&mut state);
    }

    /// Returns the functions that a hot reset of `device`, the function at `address`, would reset, and the groups that prove
    /// that this process has them.
    fn hot_reset_of(
        &self,
        state: &State,
        address: PciAddress,
        device: impl AsFd,
    ) -> Option<(Vec<Reached>, BTreeSet<u32>)> {
        let reached = match ioctl::hot_reset_info(device) {
            Ok(words) => Reached::parse(&words?)?,
            Err(error) => {
                log::debug!("Cannot list what a hot reset of {address} resets: {error}");
                return None;
            }
        };
        let held = state.groups.iter().map(|group| group.number).collect();
        let open = state.groups.iter().flat_map(|group| group.open.iter().copied()).collect();
        let groups = hot_reset::groups_to_prove(&reached, address, &held, &open)?;
        Some((reached, groups))
    }

    fn hot_reset(&self, address: PciAddress, device: impl AsFd) -> io::Result<()> {
        // Locked until the end, so that no function of the slot is opened meanwhile.
        let mut state = self.state();
        let (reached, groups) = self.hot_reset_of(&state, address, &device).ok_or(io::Error::from(Errno::EPERM))?;
        let proofs: Vec<_> = state.groups.iter().filter(|group| groups.contains(&group.number)).collect();
        let proofs: Vec<_> = proofs.iter().map(|group| group.file.as_raw_fd()).collect();
        ioctl::hot_reset(&device, &proofs)?;
        note_reset(&mut state, address, &reached);
        Ok(())
    }

    fn leave(&self, number: u32, address: PciAddress) {
        let mut state = self.state();
        for group in state.groups.iter_mut().filter(|group| group.number == number) {
            group.open.retain(|open| *open != address);
        }
        sweep(&mut state);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DomainBackend for Container {
    fn kind(&self) -> BusKind {
        BusKind::Vfio
    }

    fn admit(&self, bytes: u64) -> Result<()> {
        let mut state = self.state();
        forget_unplugged(&mut state);
        match state.groups.first() {
            None => return Err(Error::EmptyDomain),
            Some(group) if !group.has_iommu => return Err(Error::NotTranslated),
            Some(_) => {}
        }
        drop(state);
        memlock::check(bytes)
    }

    fn map(&self, mapping: backend::Mapping, entry_limit: usize) -> std::result::Result<(), NotMapped> {
        Ok(self.map_settled(&mapping, entry_limit)?)
    }

    fn unmap(&self, iova: Iova, bytes: u64) -> Result<()> {
        let size = usize::try_from(bytes).map_err(|_| Error::BufferSize { bytes })?;
        let is_mapped = || {
            let mut state = self.state();
            forget_unplugged(&mut state);
            // No longer restored from here on.
            state.lost.remove(&iova);
            state.mapped.get_mut(&iova).map(|mapping| mapping.is_settled = false).is_some()
        };
        if is_mapped()
            && let Err(error) = self.vfio.vfio_dma_unmap(iova.0, size)
            && is_mapped()
        {
            return Err(Error::DmaUnmap { iova, bytes, source: cause(error) });
        }
        self.forget(iova);
        Ok(())
    }
}

fn open_device(group: &File, request: &Request<'_>) -> Result<OwnedFd, OpenError> {
    let &Request { address, token, .. } = request;
    let kernel = |action| move |source| OpenError::Kernel { address, action, source };
    let name = match token {
        Some(token) => format!("{address} vf_token={token}"),
        None => address.to_string(),
    };
    let name = CString::new(name).map_err(|error| kernel("name")(error.into()))?;
    ioctl::device_fd(group, &name).map_err(|source| match (source.raw_os_error().map(Errno::from_raw), token) {
        (Some(Errno::EACCES), _) => OpenError::Token { address, source },
        (Some(Errno::EINVAL), Some(_)) => OpenError::NeedlessToken { address, source },
        (Some(Errno::EBUSY), _) => node_error(request.sysfs, &request.group.node(), source, Some(address)),
        _ => kernel("open")(source),
    })
}

/// Releases groups without open functions. If no function at all is open, groups stay while mappings exist: functions may be
/// closed and opened again while buffers exist.
fn sweep(state: &mut State) {
    if state.mapped.is_empty() || state.groups.iter().any(|group| !group.open.is_empty()) {
        // A group leaves the container when its descriptor is closed.
        state.groups.retain(|group| !group.open.is_empty());
    }
}

/// Records the other functions that a hot reset of the function at `own` reset.
fn note_reset(state: &mut State, own: PciAddress, reached: &[Reached]) {
    for function in reached.iter().filter(|function| function.address != own) {
        for group in state.groups.iter_mut().filter(|group| group.number == function.group) {
            group.reset.insert(function.address);
        }
    }
}

/// Restores lost mappings, then asks for the limits of the IOMMU, against which the restored mappings count. If a mapping or the
/// question is refused, all stay lost: the kernel drops the restored ones with the group, which is released now.
fn map_again<L>(
    state: &mut State,
    mut map: impl FnMut(Iova, Mapping) -> io::Result<()>,
    ask: impl FnOnce() -> Result<L>,
) -> Result<L> {
    for (&iova, &mapping) in &state.lost {
        let bytes = mapping.bytes as u64;
        map(iova, mapping).map_err(|source| match source.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOMEM) => memlock::refused(bytes, source),
            _ => Error::DmaMap { iova, bytes, source },
        })?;
    }
    let limits = ask()?;
    if !state.lost.is_empty() {
        log::info!("Restored {} mappings of the domain after its functions were unplugged", state.lost.len());
    }
    state.mapped.append(&mut state.lost);
    Ok(limits)
}

/// Drops groups that left the container because their functions were unplugged. All mappings are lost with the last group.
fn forget_unplugged(state: &mut State) {
    if state.groups.is_empty() {
        return;
    }
    state.groups.retain(|group| !group.open.is_empty() || is_attached(ioctl::group_status(&group.file)));
    if state.groups.is_empty() {
        lose_mappings(state);
    }
}

/// Records that the kernel dropped all mappings.
fn lose_mappings(state: &mut State) {
    state.mapped.retain(|_, mapping| mapping.is_settled);
    state.lost.append(&mut state.mapped);
}

/// Returns whether a group with this status is still in the container.
fn is_attached(status: io::Result<u32>) -> bool {
    match status {
        Ok(flags) => flags & VFIO_GROUP_FLAGS_CONTAINER_SET != 0,
        Err(error) => error.raw_os_error() != Some(Errno::ENODEV as i32),
    }
}

/// Membership of an open function in its group. Dropped after its device is closed.
pub(super) struct Membership {
    container: Arc<Container>,
    number: u32,
    address: PciAddress,
    /// Whether a hot reset of another function reset this function before it was opened, and it was not reset since.
    was_reset: AtomicBool,
}

impl Membership {
    /// Returns [`ResetOutcome::Hot`] if a hot reset of `device`, this function, is possible: this process has all functions of
    /// the slot and uses no other, or the function was reset already and not used since.
    pub(super) fn can_hot_reset(&self, device: impl AsFd) -> ResetOutcome {
        let is_possible = self.was_reset.load(Ordering::Acquire)
            || self.container.hot_reset_of(&self.container.state(), self.address, device).is_some();
        if is_possible { ResetOutcome::Hot } else { ResetOutcome::None }
    }

    /// Resets the slot or bus, unless another function just did.
    pub(super) fn hot_reset(&self, device: impl AsFd) -> io::Result<ResetOutcome> {
        if !self.was_reset.swap(false, Ordering::AcqRel) {
            self.container.hot_reset(self.address, device)?;
        }
        Ok(ResetOutcome::Hot)
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        // A forked child only closes its copies of the descriptors.
        if self.container.owner.is_here() {
            self.container.leave(self.number, self.address);
        }
    }
}

/// Returns the other members that prevent the use of a group; all other members if none stands out.
fn others(members: &[Member], address: PciAddress) -> Vec<Member> {
    let foreign: Vec<Member> = members.iter().filter(|member| member.is_foreign()).cloned().collect();
    if !foreign.is_empty() {
        return foreign;
    }
    members.iter().filter(|member| member.address != Some(address)).cloned().collect()
}

/// Returns why a node cannot be opened. `address` is that of the function, for the node of its group.
fn node_error(sysfs: &Sysfs, node: &Path, source: io::Error, address: Option<PciAddress>) -> OpenError {
    let path = node.to_owned();
    match (source.raw_os_error().map(Errno::from_raw), address) {
        (Some(Errno::EACCES), _) => {
            let group = owning_group(sysfs, node);
            OpenError::Permission { path, group, source }
        }
        (Some(Errno::EPERM), _) => OpenError::NotPermitted { path, source },
        (Some(Errno::EBUSY), Some(address)) => {
            let holders = sysfs.owners(&[node.to_owned()]).map(|owners| owners.found).unwrap_or_default();
            OpenError::Busy { address, path, holders, source }
        }
        (_, Some(address)) => OpenError::Kernel { address, action: "open the group of", source },
        (_, None) => OpenError::NoDriver { path, source },
    }
}

/// Returns the name of the user group that owns a node, or its number.
fn owning_group(sysfs: &Sysfs, node: &Path) -> String {
    let Ok(metadata) = fs::metadata(node) else { return "unknown".to_owned() };
    let number = metadata.gid();
    sysfs.group_name(number).unwrap_or_else(|| number.to_string())
}

/// Returns the kernel's error in an error of vfio-ioctls.
fn cause(error: VfioError) -> io::Error {
    match error {
        VfioError::IommuDmaMap(cause) | VfioError::IommuDmaUnmap(cause) => io::Error::from_raw_os_error(cause.errno()),
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn what_keeps_a_node_shut() {
        let address: PciAddress = "3b:00.0".parse().unwrap();
        let sysfs = Sysfs::new("/");
        let error = |number: Errno, address| node_error(&sysfs, Path::new("/proc/1"), io::Error::from(number), address);
        assert!(matches!(error(Errno::EACCES, Some(address)), OpenError::Permission { group, .. } if group == "root"));
        for address in [Some(address), None] {
            let refused = error(Errno::EPERM, address);
            assert!(matches!(refused, OpenError::NotPermitted { .. }) && refused.to_string().contains("CAP_SYS_RAWIO"));
        }
        assert!(matches!(error(Errno::EBUSY, Some(address)), OpenError::Busy { .. }));
        assert!(matches!(error(Errno::ENOENT, None), OpenError::NoDriver { .. }));
        assert!(matches!(error(Errno::ENOENT, Some(address)), OpenError::Kernel { .. }));
    }

    #[test]
    fn a_group_is_kept_for_the_mappings_of_the_domain() {
        let group = |number, open: &[&str]| Group {
            number,
            has_iommu: true,
            open: open.iter().map(|address| address.parse().unwrap()).collect(),
            reset: BTreeSet::new(),
            file: Arc::new(File::open("/dev/null").unwrap()),
        };
        let left = |mappings, groups: Vec<Group>| {
            let mapping =
                Mapping { bytes: 4096, start: std::ptr::null_mut(), direction: Direction::Both, is_settled: true };
            let mapped = (0..mappings).map(|at| (Iova(at), mapping)).collect();
            let mut state = State { groups, mapped, lost: BTreeMap::new() };
            sweep(&mut state);
            state.groups.iter().map(|group| group.number).collect::<Vec<_>>()
        };
        assert_eq!(left(0, vec![group(1, &[]), group(2, &["3b:00.0"])]), [2]);
        assert_eq!(left(3, vec![group(1, &[]), group(2, &["3b:00.0"])]), [2], "the other holds the mappings");
        assert_eq!(left(3, vec![group(1, &[]), group(2, &[])]), [1, 2]);
        assert_eq!(left(0, vec![group(1, &[]), group(2, &[])]), [0u32; 0]);
    }

    #[test]
    fn a_group_of_which_all_was_unplugged_is_not_attached() {
        assert!(is_attached(Ok(0b11)) && !is_attached(Ok(0b01)));
        assert!(!is_attached(Err(Errno::ENODEV.into())) && is_attached(Err(Errno::EINTR.into())));
    }

    /// The domain's last function was unplugged while buffers live: another function finds them at their addresses, or is
    /// refused.
    #[test]
    fn what_went_with_the_last_group_is_mapped_again_or_refused() {
        let start = std::ptr::null_mut();
        let mapping = |pages, is_settled| Mapping { bytes: pages << 12, start, direction: Direction::Both, is_settled };
        let mapped = [1, 2, 3].map(|at| (Iova(at << 12), mapping(at as usize, true)));
        let mut state = State { mapped: mapped.into(), ..State::default() };
        // One that is being made or unmapped at that moment is nobody's to make again.
        state.mapped.insert(Iova(4 << 12), mapping(4, false));
        lose_mappings(&mut state);
        assert!(state.mapped.is_empty());
        // A buffer that is dropped meanwhile is not mapped again.
        state.lost.remove(&Iova(2 << 12));
        let refuse = |iova: Iova, _: Mapping| if iova.0 == 3 << 12 { Err(Errno::EINVAL.into()) } else { Ok(()) };
        let failed = map_again(&mut state, refuse, || Ok(()));
        assert!(matches!(failed, Err(Error::DmaMap { iova: Iova(0x3000), bytes: 0x3000, .. })), "{failed:?}");
        assert!(matches!(
            map_again(&mut state, |_, _| Err(Errno::ENOMEM.into()), || Ok(())),
            Err(Error::Memlock { bytes: 0x1000, .. })
        ));
        let unanswered = map_again(&mut state, |_, _| Ok(()), || Err::<(), _>(Error::EmptyDomain));
        assert!(matches!(unanswered, Err(Error::EmptyDomain)));
        assert_eq!((state.lost.len(), state.mapped.len()), (2, 0), "a function that was refused changes nothing");
        let asked = RefCell::new(Vec::new());
        let map = |iova: Iova, mapping: Mapping| {
            asked.borrow_mut().push((iova.0, mapping.bytes));
            Ok(())
        };
        let available = map_again(&mut state, map, || Ok(10 - asked.borrow().len())).unwrap();
        assert_eq!(*asked.borrow(), [(0x1000, 0x1000), (0x3000, 0x3000)]);
        assert_eq!(available, 8, "the restored mappings count");
        assert_eq!((state.lost.len(), state.mapped.len()), (0, 2));
        map_again(&mut state, |_, _| panic!("once"), || Ok(())).unwrap();
    }

    #[test]
    fn a_function_that_was_reset_with_another_is_known() {
        let address = |text: &str| text.parse::<PciAddress>().unwrap();
        let group = Group {
            number: 7,
            has_iommu: true,
            open: vec![address("3b:00.0")],
            reset: BTreeSet::new(),
            file: Arc::new(File::open("/dev/null").unwrap()),
        };
        let mut state = State { groups: vec![group], ..State::default() };
        let reached = ["3b:00.0", "3b:00.1"].map(|at| Reached { group: 7, address: address(at) });
        note_reset(&mut state, address("3b:00.0"), &reached);
        assert_eq!(state.groups[0].reset, BTreeSet::from([address("3b:00.1")]), "not the one that asked");
    }

    #[test]
    fn those_who_hinder_are_named() {
        let member = |name: &str, driver: Option<&str>| Member {
            name: name.to_owned(),
            address: name.parse().ok(),
            class: Some(0x12_0000),
            driver: driver.map(str::to_owned),
        };
        let named = |members: Vec<Member>| {
            let others = others(&members, "3b:00.0".parse().unwrap());
            others.into_iter().map(|member| member.name).collect::<Vec<_>>()
        };
        let own = member("0000:3b:00.0", Some("vfio-pci"));
        let (taken, free) = (member("0000:3b:00.1", Some("xocl")), member("0000:3b:00.2", None));
        assert_eq!(named(vec![own.clone(), taken, free.clone()]), ["0000:3b:00.1"]);
        assert_eq!(named(vec![own, free]), ["0000:3b:00.2"]);
    }
}

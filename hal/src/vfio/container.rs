//! The kernel's container: what DMA mappings belong to, and the groups in it.
//!
//! vfio-ioctls opens the container and maps and unmaps. Groups and devices are opened here: its `VfioDevice` takes every
//! drop for the last of its group (with two functions in one, the kernel refuses and the mappings of the domain may go
//! with it), unwraps a link in sysfs that an unplugged function no longer has, and keeps the kernel's reasons to itself.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use vfio_bindings::bindings::vfio::{
    VFIO_GROUP_FLAGS_CONTAINER_SET, VFIO_GROUP_FLAGS_VIABLE, VFIO_NOIOMMU_IOMMU, VFIO_TYPE1v2_IOMMU,
};
use vfio_ioctls::{VfioContainer, VfioError};

use super::error::OpenError;
use super::info::IommuInfo;
use super::token::VfToken;
use super::{ioctl, memlock};
use crate::owner::Owner;
use crate::sysfs::{self, Member, Sysfs};
use crate::{Error, Iova, PciAddress};

type Result<T, E = Error> = std::result::Result<T, E>;

const CONTAINER: &str = "/dev/vfio/vfio";

/// An open container. It closes, and with it all mappings, when the domain and its functions are gone.
pub(crate) struct Container {
    vfio: VfioContainer,
    owner: Owner,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    groups: Vec<Group>,
    /// Addresses of the mappings that exist or are being made. The kernel drops them all when the last group leaves.
    mapped: BTreeSet<Iova>,
}

struct Group {
    number: u32,
    has_iommu: bool,
    /// Addresses of the functions that are open.
    open: Vec<PciAddress>,
    file: Arc<File>,
}

/// What a function is opened with.
pub(super) struct Request<'a> {
    pub(super) address: PciAddress,
    pub(super) group: &'a sysfs::Group,
    pub(super) token: Option<VfToken>,
    pub(super) sysfs: &'a Sysfs,
}

impl Container {
    /// Opens a container that has no group yet.
    pub(crate) fn new() -> Result<Self> {
        let owner = Owner::current();
        let vfio = VfioContainer::new(None).map_err(|source| match source {
            VfioError::OpenContainer(source) => node_error(&Sysfs::new("/"), Path::new(CONTAINER), source, None),
            source => OpenError::Container { source },
        })?;
        Ok(Container { vfio, owner, state: Mutex::default() })
    }

    /// Opens a function's device, after its group and the container's IOMMU where it is the first.
    ///
    /// If a group is added, `adopt` is told what the IOMMU does from now on, and whether it is the only group: before
    /// anybody else can use either.
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
                    adopt(&self.ask_iommu(address)?, is_first);
                }
                state.groups.push(group);
                state.groups.len() - 1
            }
        };
        let group = &mut state.groups[index];
        group.open.push(address);
        let file = Arc::clone(&group.file);
        // From here on, whatever fails gives the place back.
        let membership = Membership { container: Arc::clone(self), number, address };
        // The kernel resets the device now, which takes as long as it takes: others need not wait.
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
            return Err(OpenError::NotViable { address, group: number, others: others(request) }.into());
        }
        ioctl::set_container(&file, &self.vfio).map_err(|source| OpenError::Iommu { address, source })?;
        if is_first {
            let kind = if has_iommu { VFIO_TYPE1v2_IOMMU } else { VFIO_NOIOMMU_IOMMU };
            ioctl::set_iommu(&self.vfio, kind).map_err(|source| OpenError::Iommu { address, source })?;
        }
        Ok(Group { number, has_iommu, open: Vec::new(), file: Arc::new(file) })
    }

    fn ask_iommu(&self, address: PciAddress) -> Result<IommuInfo> {
        let bytes = ioctl::iommu_info(&self.vfio);
        let bytes = bytes.map_err(|source| OpenError::Kernel { address, action: "describe the IOMMU of", source })?;
        Ok(IommuInfo::parse(&bytes).map_err(|broken| OpenError::Info { what: "IOMMU", at: broken.at })?)
    }

    /// Whether memory of `bytes` bytes could be mapped, as far as can be told.
    pub(crate) fn admit(&self, bytes: u64) -> Result<()> {
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

    /// Maps `bytes` bytes of memory at `start` for reading and writing. `entry_limit` is for the error.
    ///
    /// # Safety
    /// Until [`unmap`](Self::unmap) succeeded, the memory stays where it is, and no reference to it is made.
    pub(crate) unsafe fn map(&self, iova: Iova, bytes: u64, start: *mut u8, entry_limit: usize) -> Result<()> {
        let size = usize::try_from(bytes).map_err(|_| Error::BufferSize { bytes })?;
        // Noted first, so that the groups stay whatever happens meanwhile.
        self.state().mapped.insert(iova);
        // SAFETY: as the caller promises.
        let mapped = unsafe { self.vfio.vfio_dma_map(iova.0, size, start) };
        mapped.map_err(|error| {
            self.forget(iova);
            let source = cause(error);
            match source.raw_os_error().map(Errno::from_raw) {
                Some(Errno::ENOSPC) => Error::EntryLimit { limit: entry_limit },
                Some(Errno::ENOMEM) => memlock::refused(bytes, source),
                _ => Error::DmaMap { iova, bytes, source },
            }
        })
    }

    /// Unmaps what was mapped at `iova`.
    pub(crate) fn unmap(&self, iova: Iova, bytes: u64) -> Result<()> {
        let size = usize::try_from(bytes).map_err(|_| Error::BufferSize { bytes })?;
        let is_mapped = || {
            let mut state = self.state();
            forget_unplugged(&mut state);
            state.mapped.contains(&iova)
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

    fn forget(&self, iova: Iova) {
        let mut state = self.state();
        state.mapped.remove(&iova);
        sweep(&mut state);
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

/// Gives groups back of which nothing is open, unless they are the last and mappings would go with them: functions may
/// be closed and opened again while buffers live.
fn sweep(state: &mut State) {
    if state.mapped.is_empty() || state.groups.iter().any(|group| !group.open.is_empty()) {
        // A group leaves the container when its descriptor is closed.
        state.groups.retain(|group| !group.open.is_empty());
    }
}

/// Gives groups up that have left the container by themselves, because their functions were unplugged. With the last one
/// all mappings went.
fn forget_unplugged(state: &mut State) {
    if state.groups.is_empty() {
        return;
    }
    state.groups.retain(|group| !group.open.is_empty() || is_attached(ioctl::group_status(&group.file)));
    if state.groups.is_empty() {
        state.mapped.clear();
    }
}

/// What a group's state says of its place in the container.
fn is_attached(status: io::Result<u32>) -> bool {
    match status {
        Ok(flags) => flags & VFIO_GROUP_FLAGS_CONTAINER_SET != 0,
        Err(error) => error.raw_os_error() != Some(Errno::ENODEV as i32),
    }
}

/// A function's place in its group; dropped after its device was closed.
pub(super) struct Membership {
    container: Arc<Container>,
    number: u32,
    address: PciAddress,
}

impl Drop for Membership {
    fn drop(&mut self) {
        // A forked child's copies of the descriptors are just closed.
        if self.container.owner.is_here() {
            self.container.leave(self.number, self.address);
        }
    }
}

/// The others of the group that keep it from being used; all others if none stands out.
fn others(request: &Request<'_>) -> Vec<Member> {
    let foreign: Vec<Member> = request.group.foreign().cloned().collect();
    if !foreign.is_empty() {
        return foreign;
    }
    let is_other = |member: &&Member| member.address != Some(request.address);
    request.group.members.iter().filter(is_other).cloned().collect()
}

/// Why a node cannot be opened; `address` of the function if it is its group's.
fn node_error(sysfs: &Sysfs, node: &Path, source: io::Error, address: Option<PciAddress>) -> OpenError {
    let path = node.to_owned();
    match (source.raw_os_error().map(Errno::from_raw), address) {
        (Some(Errno::EACCES | Errno::EPERM), _) => {
            let group = owning_group(sysfs, node);
            OpenError::Permission { path, group, source }
        }
        (Some(Errno::EBUSY), Some(address)) => {
            let holders = sysfs.owners(&[node.to_owned()]).map(|owners| owners.found).unwrap_or_default();
            OpenError::Busy { address, path, holders, source }
        }
        (_, Some(address)) => OpenError::Kernel { address, action: "open the group of", source },
        (_, None) => OpenError::NoDriver { path, source },
    }
}

/// Name of the group that owns a node, or its number.
fn owning_group(sysfs: &Sysfs, node: &Path) -> String {
    let Ok(metadata) = fs::metadata(node) else { return "unknown".to_owned() };
    let number = metadata.gid();
    sysfs.group_name(number).unwrap_or_else(|| number.to_string())
}

/// The kernel's reason in an error of vfio-ioctls.
fn cause(error: VfioError) -> io::Error {
    match error {
        VfioError::IommuDmaMap(cause) | VfioError::IommuDmaUnmap(cause) => io::Error::from_raw_os_error(cause.errno()),
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_a_node_shut() {
        let address: PciAddress = "3b:00.0".parse().unwrap();
        let sysfs = Sysfs::new("/");
        let error = |number: Errno, address| node_error(&sysfs, Path::new("/proc/1"), io::Error::from(number), address);
        assert!(matches!(error(Errno::EACCES, Some(address)), OpenError::Permission { group, .. } if group == "root"));
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
            file: Arc::new(File::open("/dev/null").unwrap()),
        };
        let left = |mappings, groups: Vec<Group>| {
            let mut state = State { groups, mapped: (0..mappings).map(Iova).collect() };
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

    #[test]
    fn those_who_hinder_are_named() {
        let member = |name: &str, driver: Option<&str>| Member {
            name: name.to_owned(),
            address: name.parse().ok(),
            class: Some(0x12_0000),
            driver: driver.map(str::to_owned),
        };
        let named = |members| {
            let group = sysfs::Group { number: 7, members, is_unprotected: false, unread: Vec::new() };
            let address = "3b:00.0".parse().unwrap();
            let request = Request { address, group: &group, token: None, sysfs: &Sysfs::new("/") };
            others(&request).into_iter().map(|member| member.name).collect::<Vec<_>>()
        };
        let own = member("0000:3b:00.0", Some("vfio-pci"));
        let (taken, free) = (member("0000:3b:00.1", Some("xocl")), member("0000:3b:00.2", None));
        assert_eq!(named(vec![own.clone(), taken, free.clone()]), ["0000:3b:00.1"]);
        assert_eq!(named(vec![own, free]), ["0000:3b:00.2"]);
    }
}

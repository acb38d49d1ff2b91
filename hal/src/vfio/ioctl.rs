//! System calls of VFIO that vfio-ioctls lacks, or whose errors it hides.
//!
//! Numbers and structures are from vfio-bindings.

use std::ffi::CStr;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::libc::c_char;
use nix::{ioctl_none_bad, ioctl_readwrite_bad, ioctl_write_int_bad, ioctl_write_ptr_bad, request_code_none};
use vfio_bindings::bindings::vfio::{
    VFIO_BASE, VFIO_DMA_MAP_FLAG_READ, VFIO_DMA_MAP_FLAG_WRITE, VFIO_IRQ_SET_ACTION_TRIGGER,
    VFIO_IRQ_SET_ACTION_UNMASK, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_NONE, VFIO_TYPE, vfio_device_info,
    vfio_group_status, vfio_iommu_type1_dma_map, vfio_iommu_type1_info, vfio_irq_info, vfio_irq_set,
    vfio_pci_hot_reset, vfio_pci_hot_reset_info, vfio_region_info,
};

use crate::memory::direction::Direction;

const fn request(number: u32) -> u8 {
    (VFIO_BASE + number) as u8
}

ioctl_write_int_bad!(container_set_iommu, request_code_none!(VFIO_TYPE, request(2)));
ioctl_readwrite_bad!(group_get_status, request_code_none!(VFIO_TYPE, request(3)), vfio_group_status);
ioctl_write_ptr_bad!(group_set_container, request_code_none!(VFIO_TYPE, request(4)), RawFd);
ioctl_write_ptr_bad!(group_get_device_fd, request_code_none!(VFIO_TYPE, request(6)), c_char);
ioctl_readwrite_bad!(device_get_info, request_code_none!(VFIO_TYPE, request(7)), vfio_device_info);
ioctl_readwrite_bad!(device_get_region_info, request_code_none!(VFIO_TYPE, request(8)), vfio_region_info);
ioctl_readwrite_bad!(device_get_irq_info, request_code_none!(VFIO_TYPE, request(9)), vfio_irq_info);
ioctl_write_ptr_bad!(device_set_irqs, request_code_none!(VFIO_TYPE, request(10)), vfio_irq_set);
ioctl_none_bad!(device_reset, request_code_none!(VFIO_TYPE, request(11)));
ioctl_readwrite_bad!(device_hot_reset_info, request_code_none!(VFIO_TYPE, request(12)), vfio_pci_hot_reset_info);
ioctl_write_ptr_bad!(device_hot_reset, request_code_none!(VFIO_TYPE, request(13)), vfio_pci_hot_reset);
ioctl_readwrite_bad!(iommu_get_info, request_code_none!(VFIO_TYPE, request(12)), vfio_iommu_type1_info);

ioctl_write_ptr_bad!(iommu_map_dma, request_code_none!(VFIO_TYPE, request(13)), vfio_iommu_type1_dma_map);

/// Longest accepted answer. Thousands of capabilities fit.
const LONGEST_INFO: usize = 1 << 16;
/// Limit of functions that a hot reset resets: a bus has 256.
const MOST_REACHED: u32 = 1 << 10;

/// Sets the type of IOMMU of a container.
pub(super) fn set_iommu(container: &impl AsRawFd, kind: u32) -> io::Result<()> {
    // SAFETY: the argument is a number, not a pointer.
    unsafe { container_set_iommu(container.as_raw_fd(), kind as i32) }?;
    Ok(())
}

/// Returns the flags of a group: viable, part of a container.
pub(super) fn group_status(group: impl AsFd) -> io::Result<u32> {
    let mut status = vfio_group_status { argsz: size_of::<vfio_group_status>() as u32, ..Default::default() };
    // SAFETY: `argsz` is the size of the structure, which the kernel reads and writes.
    unsafe { group_get_status(group.as_fd().as_raw_fd(), &mut status) }?;
    Ok(status.flags)
}

/// Adds a group to a container. The group leaves when its descriptor and those of its devices are closed.
pub(super) fn set_container(group: impl AsFd, container: &impl AsRawFd) -> io::Result<()> {
    let container = container.as_raw_fd();
    // SAFETY: the kernel reads one descriptor number.
    unsafe { group_set_container(group.as_fd().as_raw_fd(), &container) }?;
    Ok(())
}

/// Opens a device of a group. `name` is its address, with options of the driver.
pub(super) fn device_fd(group: impl AsFd, name: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads a string, which ends with NUL.
    let descriptor = unsafe { group_get_device_fd(group.as_fd().as_raw_fd(), name.as_ptr()) }?;
    // SAFETY: the kernel created this descriptor for the caller; no other value owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Returns flags and counts of a device.
pub(super) fn device_info(device: impl AsFd) -> io::Result<vfio_device_info> {
    let mut info = vfio_device_info { argsz: size_of::<vfio_device_info>() as u32, ..Default::default() };
    // SAFETY: `argsz` is the size of the structure, which the kernel reads and writes.
    unsafe { device_get_info(device.as_fd().as_raw_fd(), &mut info) }?;
    Ok(info)
}

/// Returns the description of a region, with its capabilities.
pub(super) fn region_info(device: impl AsFd, index: u32) -> io::Result<Vec<u8>> {
    let at = offset_of!(vfio_region_info, index);
    whole_info(size_of::<vfio_region_info>(), &[(at, index)], |bytes| {
        // SAFETY: the buffer is aligned for the structure, and its first word is its length (`whole_info`).
        unsafe { device_get_region_info(device.as_fd().as_raw_fd(), bytes.cast()) }
    })
}

/// Returns the description of a container's IOMMU, with its capabilities.
pub(super) fn iommu_info(container: &impl AsRawFd) -> io::Result<Vec<u8>> {
    whole_info(size_of::<vfio_iommu_type1_info>(), &[], |bytes| {
        // SAFETY: the buffer is aligned for the structure, and its first word is its length (`whole_info`).
        unsafe { iommu_get_info(container.as_raw_fd(), bytes.cast()) }
    })
}

/// Maps memory for devices, which access it in this direction.
///
/// # Safety
/// Until it is unmapped, the `bytes` bytes at `start` stay in place, and no reference into them is created.
pub(super) unsafe fn map_dma(
    container: &impl AsRawFd,
    iova: u64,
    bytes: usize,
    start: *mut u8,
    direction: Direction,
) -> io::Result<()> {
    let map = vfio_iommu_type1_dma_map {
        argsz: size_of::<vfio_iommu_type1_dma_map>() as u32,
        flags: map_flags(direction),
        vaddr: start.expose_provenance() as u64,
        iova,
        size: bytes as u64,
    };
    // SAFETY: `map` is as long as its first field says. The caller keeps the memory in place.
    unsafe { iommu_map_dma(container.as_raw_fd(), &map) }?;
    Ok(())
}

fn map_flags(direction: Direction) -> u32 {
    let read = if direction.lets_devices_read() { VFIO_DMA_MAP_FLAG_READ } else { 0 };
    let write = if direction.lets_devices_write() { VFIO_DMA_MAP_FLAG_WRITE } else { 0 };
    read | write
}

/// Requests `bytes` bytes, and repeats the request if the answer is longer. The first word is the length of the buffer in a
/// request, and the length of the whole answer in an answer. `words` are other words of the request: offsets and values.
fn whole_info(
    bytes: usize,
    words: &[(usize, u32)],
    mut ask: impl FnMut(*mut u64) -> Result<i32, Errno>,
) -> io::Result<Vec<u8>> {
    let mut bytes = bytes;
    loop {
        // Words of eight bytes are aligned for any structure.
        let mut buffer = vec![0u64; bytes.div_ceil(8)];
        let set = |buffer: &mut [u64], at: usize, value: u32| {
            let mut whole = buffer[at / 8].to_ne_bytes();
            whole[at % 8..at % 8 + 4].copy_from_slice(&value.to_ne_bytes());
            buffer[at / 8] = u64::from_ne_bytes(whole);
        };
        words.iter().for_each(|&(at, value)| set(&mut buffer, at, value));
        set(&mut buffer, 0, bytes as u32);
        ask(buffer.as_mut_ptr())?;
        let mut answer: Vec<u8> = buffer.into_iter().flat_map(u64::to_ne_bytes).collect();
        answer.truncate(bytes);
        let there = answer.first_chunk().map_or(0, |word| u32::from_ne_bytes(*word)) as usize;
        if there <= bytes {
            return Ok(answer);
        }
        if there > LONGEST_INFO {
            return Err(io::Error::from(Errno::EMSGSIZE));
        }
        bytes = there;
    }
}

/// Returns the number of interrupts of an index.
pub(super) fn irq_count(device: impl AsFd, index: u32) -> io::Result<u32> {
    let mut info = vfio_irq_info { argsz: size_of::<vfio_irq_info>() as u32, index, ..Default::default() };
    // SAFETY: `argsz` is the size of the structure, which the kernel reads and writes.
    unsafe { device_get_irq_info(device.as_fd().as_raw_fd(), &mut info) }?;
    Ok(info.count)
}

/// Connects interrupts of an index to descriptors, from the first on. Returns the number that the kernel supports, if it
/// supports fewer.
pub(super) fn connect_irqs(device: impl AsFd, index: u32, descriptors: &[RawFd]) -> io::Result<Option<u32>> {
    let flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
    let fewer = set_irqs(device, &irq_set(flags, index, 0, descriptors.len() as u32, descriptors))?;
    Ok(u32::try_from(fewer).ok().filter(|&fewer| fewer > 0))
}

/// Disconnects all interrupts of an index.
pub(super) fn disconnect_irqs(device: impl AsFd, index: u32) -> io::Result<()> {
    let flags = VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_TRIGGER;
    set_irqs(device, &irq_set(flags, index, 0, 0, &[])).map(|_| ())
}

/// Raises the descriptor of one interrupt.
pub(super) fn trigger_irq(device: impl AsFd, index: u32, vector: u32) -> io::Result<()> {
    let flags = VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_TRIGGER;
    set_irqs(device, &irq_set(flags, index, vector, 1, &[])).map(|_| ())
}

/// Unmasks an interrupt that the kernel masked.
pub(super) fn unmask_irq(device: impl AsFd, index: u32) -> io::Result<()> {
    let flags = VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_UNMASK;
    set_irqs(device, &irq_set(flags, index, 0, 1, &[])).map(|_| ())
}

/// Builds a `vfio_irq_set` followed by numbers, as words of its alignment.
fn irq_set(flags: u32, index: u32, start: u32, count: u32, numbers: &[i32]) -> Vec<u32> {
    let bytes = size_of::<vfio_irq_set>() + size_of_val(numbers);
    let mut words = vec![0; bytes / 4];
    let fields = [
        (offset_of!(vfio_irq_set, argsz), bytes as u32),
        (offset_of!(vfio_irq_set, flags), flags),
        (offset_of!(vfio_irq_set, index), index),
        (offset_of!(vfio_irq_set, start), start),
        (offset_of!(vfio_irq_set, count), count),
    ];
    for (at, value) in fields {
        words[at / 4] = value;
    }
    for (word, &number) in words[offset_of!(vfio_irq_set, data) / 4..].iter_mut().zip(numbers) {
        *word = number as u32;
    }
    words
}

fn set_irqs(device: impl AsFd, words: &[u32]) -> io::Result<i32> {
    // SAFETY: `irq_set` built `words`: aligned for the structure, with the length in the first word.
    Ok(unsafe { device_set_irqs(device.as_fd().as_raw_fd(), words.as_ptr().cast()) }?)
}

/// Returns the functions that a hot reset would reset, two words each, in the kernel's layout. `None`: the kernel names them by
/// device ids instead of groups.
pub(super) fn hot_reset_info(device: impl AsFd) -> io::Result<Option<Vec<u32>>> {
    reached(|words| {
        // SAFETY: the words are aligned for the structure, and the first word is their length in bytes.
        unsafe { device_hot_reset_info(device.as_fd().as_raw_fd(), words.as_mut_ptr().cast()) }
    })
}

/// Requests a list of unknown length. The kernel refuses a short buffer, and returns the length.
fn reached(mut ask: impl FnMut(&mut [u32]) -> Result<i32, Errno>) -> io::Result<Option<Vec<u32>>> {
    let mut count = 0;
    loop {
        let mut words = vec![0; 3 + 2 * count as usize];
        words[0] = 4 * words.len() as u32;
        match ask(&mut words) {
            Ok(_) if words[2] <= count => {
                let flags = words[1];
                words.truncate(3 + 2 * words[2] as usize);
                return Ok((flags == 0).then(|| words.split_off(3)));
            }
            Err(Errno::ENOSPC) if words[2] > count && words[2] <= MOST_REACHED => count = words[2],
            Ok(_) => return Err(Errno::EMSGSIZE.into()),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Resets the slot or bus of the device. `groups` prove that the caller has all its functions.
pub(super) fn hot_reset(device: impl AsFd, groups: &[RawFd]) -> io::Result<()> {
    let mut words = vec![0, 0, groups.len() as u32];
    words.extend(groups.iter().map(|group| *group as u32));
    words[0] = 4 * words.len() as u32;
    // SAFETY: the words are aligned for the structure, and the first word is their length in bytes.
    unsafe { device_hot_reset(device.as_fd().as_raw_fd(), words.as_ptr().cast()) }?;
    Ok(())
}

/// Resets the device.
pub(super) fn reset(device: impl AsFd) -> io::Result<()> {
    // SAFETY: the call has no argument.
    unsafe { device_reset(device.as_fd().as_raw_fd()) }?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_set_as_the_kernel_reads_them() {
        // argsz, flags DATA_EVENTFD | ACTION_TRIGGER, index, start, count, then descriptors; from linux/vfio.h.
        assert_eq!(irq_set(4 | 32, 2, 0, 3, &[7, -1, 9]), [32, 36, 2, 0, 3, 7, u32::MAX, 9]);
        assert_eq!(irq_set(1 | 32, 0, 5, 1, &[]), [20, 33, 0, 5, 1]);
    }

    #[test]
    fn directions_are_the_flags_of_the_kernel() {
        // linux/vfio.h: VFIO_DMA_MAP_FLAG_READ is bit 0 ("readable from device"), VFIO_DMA_MAP_FLAG_WRITE is bit 1.
        assert_eq!([Direction::ToDevice, Direction::FromDevice, Direction::Both].map(map_flags), [1, 2, 3]);
    }

    #[test]
    fn info_is_asked_for_until_it_fits() {
        let mut asked = Vec::new();
        let answer = whole_info(32, &[(8, 6)], |bytes| {
            // SAFETY: `whole_info` gives at least 32 bytes.
            let words = unsafe { std::slice::from_raw_parts_mut(bytes.cast::<u32>(), 8) };
            asked.push((words[0], words[2]));
            words[0] = 52;
            words[7] = asked.len() as u32;
            Ok(0)
        });
        assert_eq!(asked, [(32, 6), (52, 6)]);
        let answer = answer.unwrap();
        assert_eq!((answer.len(), answer[28]), (52, 2));
    }

    #[test]
    fn absurd_and_failed_answers_are_errors() {
        let answer = whole_info(24, &[], |bytes| {
            // SAFETY: `whole_info` gives at least 24 bytes.
            unsafe { bytes.cast::<u32>().write(u32::MAX) };
            Ok(0)
        });
        assert_eq!(answer.unwrap_err().raw_os_error(), Some(Errno::EMSGSIZE as i32));
        assert_eq!(whole_info(24, &[], |_| Err(Errno::EPERM)).unwrap_err().raw_os_error(), Some(Errno::EPERM as i32));
    }

    #[test]
    fn a_list_is_asked_for_until_it_fits() {
        let mut asked = Vec::new();
        let mut kernel = |words: &mut [u32]| {
            asked.push((words[0], words.len()));
            words[2] = 2;
            if words.len() < 7 {
                return Err(Errno::ENOSPC);
            }
            words[3..].copy_from_slice(&[1, 2, 3, 4]);
            Ok(0)
        };
        assert_eq!(reached(&mut kernel).unwrap(), Some(vec![1, 2, 3, 4]));
        assert_eq!(asked, [(12, 3), (28, 7)]);
        let refused = |count: u32, errno: Option<Errno>| {
            reached(|words| {
                words[2] = count;
                errno.map_or(Ok(0), Err)
            })
        };
        let errno = |result: io::Result<Option<Vec<u32>>>| result.unwrap_err().raw_os_error();
        assert_eq!(errno(refused(u32::MAX, Some(Errno::ENOSPC))), Some(Errno::ENOSPC as i32));
        assert_eq!(errno(refused(0, Some(Errno::ENOSPC))), Some(Errno::ENOSPC as i32));
        assert_eq!(errno(refused(3, None)), Some(Errno::EMSGSIZE as i32), "more than there was room for");
        assert_eq!(errno(refused(0, Some(Errno::ENODEV))), Some(Errno::ENODEV as i32));
        // Flags say that the numbers are device ids.
        let by_device = reached(|words| {
            words[1] = 1;
            Ok(0)
        });
        assert_eq!(by_device.unwrap(), None);
    }

    #[test]
    fn the_numbers_are_those_of_the_kernel() {
        // linux/vfio.h: _IO(';', 100 + n), which is 0x3b64 + n.
        assert_eq!(request_code_none!(VFIO_TYPE, request(0)), 0x3b64);
        assert_eq!(request_code_none!(VFIO_TYPE, request(11)), 0x3b6f);
        assert_eq!(request_code_none!(VFIO_TYPE, request(13)), 0x3b71);
    }
}

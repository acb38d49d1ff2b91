//! NUMA nodes of memory.
//!
//! The system calls are those of `linux/mempolicy.h`; nix has no wrappers for them.

use std::io;
use std::ptr;

use nix::errno::Errno;
use nix::libc;

use super::region::Region;

/// Highest number of nodes that a kernel is built for (`CONFIG_NODES_SHIFT` is at most 10).
const MOST_NODES: usize = 1024;
/// Flags of `get_mempolicy`, which libc lacks: return the node, of the page at an address.
const MPOL_F_NODE: libc::c_ulong = 1 << 0;
const MPOL_F_ADDR: libc::c_ulong = 1 << 1;
const WORD_BITS: usize = usize::BITS as usize;

/// Sets the node on which the pages of `region` are allocated. Call it before the pages are present. If the node has no free
/// memory, the kernel uses others.
///
/// A kernel without NUMA or a filter of system calls may refuse it: a note in the log, and no error.
pub(crate) fn prefer(region: &Region, node: u32) -> io::Result<()> {
    let index = usize::try_from(node).ok().filter(|index| *index < MOST_NODES).ok_or(Errno::EINVAL)?;
    let mut nodes = [0usize; MOST_NODES / WORD_BITS];
    nodes[index / WORD_BITS] = 1 << (index % WORD_BITS);
    let (start, bytes) = (region.base(), region.len());
    // The kernel reads one bit less than it is told.
    let (mode, most, flags) = (libc::MPOL_PREFERRED as libc::c_ulong, MOST_NODES + 1, 0 as libc::c_ulong);
    // SAFETY: the kernel reads `MOST_NODES` bits of `nodes`. The policy changes where pages of the region are allocated, not
    // their content.
    let set = unsafe { libc::syscall(libc::SYS_mbind, start, bytes, mode, nodes.as_ptr(), most, flags) };
    match Errno::result(set) {
        Ok(_) => Ok(()),
        Err(errno @ (Errno::ENOSYS | Errno::EPERM)) => {
            log::info!("Cannot choose the NUMA node of {bytes} bytes: {errno}");
            Ok(())
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Returns the node of the first page of `region`, if the kernel reports it.
pub(crate) fn node_of(region: &Region) -> Option<u32> {
    let mut node: libc::c_int = -1;
    let (nodes, most, flags) = (ptr::null_mut::<usize>(), 0usize, MPOL_F_NODE | MPOL_F_ADDR);
    // SAFETY: the kernel writes one number to `node`, and no nodes: there are none to write to. It only looks at the page.
    let asked = unsafe { libc::syscall(libc::SYS_get_mempolicy, &raw mut node, nodes, most, region.base(), flags) };
    Errno::result(asked).ok()?;
    u32::try_from(node).ok()
}

/// Notes in the log if `region` is not on the preferred node.
pub(crate) fn report(region: &Region, preferred: u32) {
    if let Some(node) = node_of(region).filter(|node| *node != preferred) {
        log::info!("{} bytes are on NUMA node {node}: node {preferred} has no free memory", region.len());
    }
}

//! The page ladder: the largest pages that a DMA buffer can be had of.

use std::fs;
use std::io;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::memfd::MFdFlags;

use crate::dma::{Backing, Pages, PagesRefused, PagesTried};
use crate::region::{Region, page_size};
use crate::{Error, Result};

pub(crate) const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;
const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// Zeroed memory of at least `bytes` bytes, all of it present.
///
/// Memory that other processes are passed (`is_lent`) is never made of reserved huge pages. Seals keep a file's size, but
/// not its pages: whoever has the descriptor can punch huge pages out of it, and once the reserve is used up the next
/// access is a SIGBUS. Ordinary pages that are punched out come back as zeros.
pub(crate) fn allocate(bytes: usize, is_lent: bool) -> Result<(Region, Backing)> {
    let mut tried = Vec::new();
    for (pages, page_bytes) in
        [(Pages::Gigantic, GIB), (Pages::Huge, 2 * MIB), (Pages::Transparent, transparent_page_size())]
    {
        let is_reserved = matches!(pages, Pages::Gigantic | Pages::Huge);
        if !worth_trying(bytes, page_bytes) || is_lent && is_reserved {
            continue;
        }
        match step(pages, bytes, page_bytes) {
            Ok(region) => {
                tried.push(PagesTried { pages, outcome: Ok(()) });
                return Ok((region, Backing { pages, page_bytes, tried }));
            }
            Err(refused) => tried.push(PagesTried { pages, outcome: Err(refused) }),
        }
    }
    let region = base(bytes).map_err(|source| Error::Memory { what: "DMA memory", bytes: bytes as u64, source })?;
    tried.push(PagesTried { pages: Pages::Base, outcome: Ok(()) });
    Ok((region, Backing { pages: Pages::Base, page_bytes: page_size(), tried }))
}

/// Whether a buffer fills pages of `page_bytes`: at least one, and at most a quarter more than it needs.
fn worth_trying(bytes: usize, page_bytes: usize) -> bool {
    let waste = bytes.next_multiple_of(page_bytes) - bytes;
    bytes >= page_bytes && waste <= bytes / 4
}

fn step(pages: Pages, bytes: usize, page_bytes: usize) -> std::result::Result<Region, PagesRefused> {
    let flags = match pages {
        Pages::Gigantic => MFdFlags::MFD_HUGETLB | MFdFlags::MFD_HUGE_1GB,
        Pages::Huge => MFdFlags::MFD_HUGETLB | MFdFlags::MFD_HUGE_2MB,
        Pages::Transparent | Pages::Base => MFdFlags::empty(),
    };
    if pages == Pages::Transparent && !shared_memory_is_joined(Path::new(THP), page_bytes) {
        return Err(PagesRefused::Policy);
    }
    let errno = |error: io::Error| PagesRefused::Errno(error.raw_os_error().unwrap_or(Errno::EIO as i32));
    let region = Region::new("DMA buffer", "fpga-dma", bytes.next_multiple_of(page_bytes), flags).map_err(errno)?;
    if pages == Pages::Transparent {
        region.ask_for_huge_pages().map_err(errno)?;
    }
    region.populate().map_err(errno)?;
    Ok(region)
}

fn base(bytes: usize) -> io::Result<Region> {
    let region = Region::new("DMA buffer", "fpga-dma", bytes.next_multiple_of(page_size()), MFdFlags::empty())?;
    region.populate()?;
    Ok(region)
}

/// Bytes of the pages that the kernel joins ordinary ones into: 2 MiB, or 512 MiB where those have 64 KiB.
fn transparent_page_size() -> usize {
    let text = fs::read_to_string(Path::new(THP).join("hpage_pmd_size")).unwrap_or_default();
    text.trim().parse().ok().filter(|bytes: &usize| bytes.is_power_of_two()).unwrap_or(2 * MIB)
}

/// What the kernel's policy says of shared memory. It does not refuse the advice where the policy is against it.
fn shared_memory_is_joined(sysfs: &Path, page_bytes: usize) -> bool {
    let chosen = |path: &str| {
        let text = fs::read_to_string(sysfs.join(path)).ok()?;
        let (_, rest) = text.split_once('[')?;
        Some(rest.split_once(']')?.0.to_owned())
    };
    // Since Linux 6.10 there is a policy for each size, which by default defers to the one for all.
    let of_size = chosen(&format!("hugepages-{}kB/shmem_enabled", page_bytes / 1024));
    let policy = of_size.filter(|policy| policy != "inherit").or_else(|| chosen("shmem_enabled"));
    !matches!(policy.as_deref(), Some("never" | "deny"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_for_buffers_that_fill_them() {
        assert!(!worth_trying(2 * MIB - 1, 2 * MIB));
        assert!(worth_trying(2 * MIB, 2 * MIB));
        assert!(!worth_trying(2 * MIB + 1, 2 * MIB));
        assert!(worth_trying(64 * MIB + 1, 2 * MIB));
        assert!(!worth_trying(GIB + MIB, GIB));
        assert!(worth_trying(4 * GIB - MIB, GIB));
    }

    #[test]
    fn small_buffers_try_ordinary_pages_only() {
        let (region, backing) = allocate(100, false).unwrap();
        assert_eq!(region.len(), page_size());
        assert_eq!((backing.pages, backing.page_bytes), (Pages::Base, page_size()));
        assert_eq!(backing.tried, [PagesTried { pages: Pages::Base, outcome: Ok(()) }]);
        assert!(backing.to_string().starts_with("The buffer is made of ordinary pages ("), "{backing}");
    }

    #[test]
    fn larger_ones_say_what_they_got_and_what_was_tried() {
        let (region, backing) = allocate(4 * MIB, false).unwrap();
        assert!(region.len() >= 4 * MIB);
        assert_eq!(backing.tried[0].pages, Pages::Huge);
        let (last, before) = backing.tried.split_last().unwrap();
        assert_eq!(last, &PagesTried { pages: backing.pages, outcome: Ok(()) });
        for tried in before {
            let refused = tried.outcome.expect_err("only the last step was had");
            assert!(backing.to_string().contains(&refused.to_string()), "{backing}");
        }
    }

    #[test]
    fn the_kernels_policy_is_read() {
        let sysfs = std::env::temp_dir().join(format!("fpga-hal-thp-{}", std::process::id()));
        fs::create_dir_all(sysfs.join("hugepages-2048kB")).unwrap();
        assert!(shared_memory_is_joined(&sysfs, 2 * MIB), "no such file: the advice decides");
        let all = |text: &str| fs::write(sysfs.join("shmem_enabled"), text).unwrap();
        let one = |text: &str| fs::write(sysfs.join("hugepages-2048kB/shmem_enabled"), text).unwrap();
        all("always within_size advise [never] deny force\n");
        assert!(!shared_memory_is_joined(&sysfs, 2 * MIB));
        one("always [inherit] within_size advise never\n");
        assert!(!shared_memory_is_joined(&sysfs, 2 * MIB));
        one("always inherit within_size [advise] never\n");
        assert!(shared_memory_is_joined(&sysfs, 2 * MIB));
        one("always [inherit] within_size advise never\n");
        all("always within_size [advise] never deny force\n");
        assert!(shared_memory_is_joined(&sysfs, 2 * MIB));
        fs::remove_dir_all(&sysfs).unwrap();
    }
}

//! Allocates DMA buffers from the largest available pages.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use fpga_sysfs::Sysfs;
use nix::errno::Errno;
use nix::sys::memfd::MFdFlags;

use super::numa;
use super::region::{Region, page_size};
use crate::{Error, Result};

const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;
/// Buffers of at least this size are compared with the available memory. Smaller ones are not worth reading it.
const LARGE: usize = 64 * MIB;
const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// Kinds of pages, from the fewest IOMMU and TLB entries to the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// Reserved huge pages of 1 GiB.
    Gigantic,
    /// Reserved huge pages of 2 MiB.
    Huge,
    /// Ordinary pages that the kernel may merge into huge pages.
    Transparent,
    /// Ordinary pages.
    Base,
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pages::Gigantic => "1 GiB huge pages",
            Pages::Huge => "2 MiB huge pages",
            Pages::Transparent => "transparent huge pages",
            Pages::Base => "ordinary pages",
        })
    }
}

/// Why a kind of pages was not available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PagesRefused {
    /// The kernel's error number.
    Errno(i32),
    /// The kernel's policy (`shmem_enabled`) is to merge no pages of shared memory.
    Policy,
}

impl fmt::Display for PagesRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PagesRefused::Errno(number) => io::Error::from_raw_os_error(*number).fmt(f),
            PagesRefused::Policy => f.write_str("the kernel's policy for shared memory is never"),
        }
    }
}

/// One attempt to allocate a kind of pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PagesTried {
    /// The kind.
    pub pages: Pages,
    /// Whether the allocation succeeded.
    pub outcome: std::result::Result<(), PagesRefused>,
}

/// Pages of a buffer, and the attempts that led there. Displays as a sentence.
///
/// Huge pages are tried only for buffers that fill them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backing {
    /// Kind of pages of the buffer.
    pub pages: Pages,
    /// Bytes of one such page.
    pub page_bytes: usize,
    /// Attempts in order; the last entry succeeded.
    pub tried: Vec<PagesTried>,
}

impl fmt::Display for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "The buffer is made of {}", self.pages)?;
        match self.page_bytes {
            bytes if bytes >= MIB => write!(f, " ({} MiB)", bytes / MIB)?,
            bytes => write!(f, " ({} KiB)", bytes / 1024)?,
        }
        for tried in &self.tried {
            if let Err(refused) = &tried.outcome {
                write!(f, "; {} were tried: {refused}", tried.pages)?;
            }
        }
        f.write_str(".")
    }
}

/// What a domain needs of memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needs {
    /// Other processes get its descriptor.
    pub(crate) is_shared: bool,
    /// All pages are present. If not, ordinary pages come with their first access.
    pub(crate) is_present: bool,
    /// The preferred NUMA node.
    pub(crate) node: Option<u32>,
}

/// Allocates at least `bytes` bytes of zeroed memory.
///
/// Memory whose descriptor other processes get ([`Needs::is_shared`]) never has reserved huge pages. Seals keep the size of a file,
/// but not its pages: a process with the descriptor can punch holes into it, and once the reserve is empty the next access
/// to a hole raises SIGBUS. A hole in ordinary pages reads as zeros.
pub(crate) fn allocate(bytes: usize, needs: Needs) -> Result<(Region, Backing)> {
    let (region, backing) = largest(bytes, needs)?;
    needs.node.inspect(|node| numa::report(&region, *node));
    Ok((region, backing))
}

fn largest(bytes: usize, Needs { is_shared, is_present, node }: Needs) -> Result<(Region, Backing)> {
    let mut tried = Vec::new();
    for (pages, page_bytes) in
        [(Pages::Gigantic, GIB), (Pages::Huge, 2 * MIB), (Pages::Transparent, transparent_page_size())]
    {
        let is_reserved = matches!(pages, Pages::Gigantic | Pages::Huge);
        if !worth_trying(bytes, page_bytes) || is_shared && is_reserved {
            continue;
        }
        match step(pages, bytes, page_bytes, node) {
            Ok(region) => {
                tried.push(PagesTried { pages, outcome: Ok(()) });
                return Ok((region, Backing { pages, page_bytes, tried }));
            }
            Err(refused) => tried.push(PagesTried { pages, outcome: Err(refused) }),
        }
    }
    let failed = |source| Error::Memory { what: "DMA memory", bytes: bytes as u64, source };
    if is_present {
        check_available(bytes, available_memory).map_err(failed)?;
    }
    let region = create(bytes.next_multiple_of(page_size()), MFdFlags::empty()).map_err(failed)?;
    if let Some(node) = node {
        numa::prefer(&region, node).map_err(|source| Error::NumaNode { node, source })?;
    }
    if is_present {
        region.populate().map_err(failed)?;
    }
    tried.push(PagesTried { pages: Pages::Base, outcome: Ok(()) });
    Ok((region, Backing { pages: Pages::Base, page_bytes: page_size(), tried }))
}

/// Returns whether a buffer fills pages of `page_bytes`: at least one page, and at most a quarter of the bytes wasted.
fn worth_trying(bytes: usize, page_bytes: usize) -> bool {
    let waste = bytes.next_multiple_of(page_bytes) - bytes;
    bytes >= page_bytes && waste <= bytes / 4
}

fn step(pages: Pages, bytes: usize, page_bytes: usize, node: Option<u32>) -> std::result::Result<Region, PagesRefused> {
    let flags = match pages {
        Pages::Gigantic => MFdFlags::MFD_HUGETLB | MFdFlags::MFD_HUGE_1GB,
        Pages::Huge => MFdFlags::MFD_HUGETLB | MFdFlags::MFD_HUGE_2MB,
        Pages::Transparent | Pages::Base => MFdFlags::empty(),
    };
    if pages == Pages::Transparent && check_available(bytes, available_memory).is_err() {
        return Err(PagesRefused::Errno(Errno::ENOMEM as i32));
    }
    if pages == Pages::Transparent && !shared_memory_is_joined(Path::new(THP), page_bytes) {
        return Err(PagesRefused::Policy);
    }
    let errno = |error: io::Error| PagesRefused::Errno(error.raw_os_error().unwrap_or(Errno::EIO as i32));
    let region = create(bytes.next_multiple_of(page_bytes), flags).map_err(errno)?;
    node.map_or(Ok(()), |node| numa::prefer(&region, node)).map_err(errno)?;
    if pages == Pages::Transparent {
        region.ask_for_huge_pages().map_err(errno)?;
    }
    region.populate().map_err(errno)?;
    Ok(region)
}

/// Fails if a large buffer needs more than the `available` memory: to make its pages present, the kernel would swap, or end a
/// process.
fn check_available(bytes: usize, available: impl FnOnce() -> Option<u64>) -> io::Result<()> {
    if bytes < LARGE {
        return Ok(());
    }
    match available() {
        Some(available) if bytes as u64 > available => {
            Err(io::Error::new(io::ErrorKind::OutOfMemory, format!("{available} bytes of memory are available")))
        }
        _ => Ok(()),
    }
}

/// Returns the available bytes; `None` if the kernel does not report them.
fn available_memory() -> Option<u64> {
    Sysfs::new("/").available_memory().ok()
}

fn create(bytes: usize, flags: MFdFlags) -> io::Result<Region> {
    Region::new("DMA buffer", "fpga-dma", bytes, flags)
}

/// Returns the size of transparent huge pages: 2 MiB, or 512 MiB where ordinary pages have 64 KiB.
fn transparent_page_size() -> usize {
    let text = fs::read_to_string(Path::new(THP).join("hpage_pmd_size")).unwrap_or_default();
    text.trim().parse().ok().filter(|bytes: &usize| bytes.is_power_of_two()).unwrap_or(2 * MIB)
}

/// Returns whether the kernel's policy lets it merge pages of shared memory. The kernel accepts `MADV_HUGEPAGE` anyway.
fn shared_memory_is_joined(sysfs: &Path, page_bytes: usize) -> bool {
    let chosen = |path: &str| {
        let text = fs::read_to_string(sysfs.join(path)).ok()?;
        let (_, rest) = text.split_once('[')?;
        Some(rest.split_once(']')?.0.to_owned())
    };
    // Since Linux 6.10 each size has a policy, by default "inherit" from the global policy.
    let of_size = chosen(&format!("hugepages-{}kB/shmem_enabled", page_bytes / 1024));
    let policy = of_size.filter(|policy| policy != "inherit").or_else(|| chosen("shmem_enabled"));
    !matches!(policy.as_deref(), Some("never" | "deny"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDS: Needs = Needs { is_shared: false, is_present: true, node: None };

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
        let (region, backing) = allocate(100, NEEDS).unwrap();
        assert_eq!(region.len(), page_size());
        assert_eq!((backing.pages, backing.page_bytes), (Pages::Base, page_size()));
        assert_eq!(backing.tried, [PagesTried { pages: Pages::Base, outcome: Ok(()) }]);
        assert!(backing.to_string().starts_with("The buffer is made of ordinary pages ("), "{backing}");
    }

    #[test]
    fn larger_ones_say_what_they_got_and_what_was_tried() {
        let (region, backing) = allocate(4 * MIB, NEEDS).unwrap();
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
    fn a_large_buffer_needs_available_memory() {
        let check = |bytes, available| check_available(bytes, || available).map_err(|error| error.to_string());
        assert_eq!(check(LARGE, Some(LARGE as u64)), Ok(()));
        assert_eq!(check(LARGE, None), Ok(()));
        assert_eq!(check(LARGE - 1, Some(0)), Ok(()), "the kernel decides");
        assert_eq!(check(LARGE, Some(4096)), Err("4096 bytes of memory are available".to_owned()));
        assert!(check_available(usize::MAX, available_memory).is_err());
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

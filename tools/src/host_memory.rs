//! How much memory of the host there is, for buffers of a program and for the memory of mock cards.

use std::fs;
use std::path::Path;

use cmdseq::plan::Plan;

use crate::exit::{Failure, Result};
use crate::size;

const MEMINFO: &str = "/proc/meminfo";
/// Where control groups are mounted, version 2.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Refuses host buffers that take `bytes` together, if that is more than half of the memory that is available. All their
/// pages are taken at once, and the other half is for mock cards that copy them, and for whatever else the machine does.
pub(crate) fn check(bytes: u64) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let available = available()?;
    if bytes <= available / 2 {
        return Ok(());
    }
    Err(Failure::refused(format!(
        "the host buffers of all ranks need {}: the limit is half of the {} of available memory",
        size::show(bytes),
        size::show(available)
    )))
}

/// Refuses a plan on mock cards of this process whose data takes more than half of the memory that is available: mock cards
/// keep what they hold in memory of the host, and would fail in the middle of the work where it ends.
pub(crate) fn check_mock(plan: &Plan) -> Result<()> {
    let request = &plan.request;
    let data = |rank| request.input_bytes(rank).saturating_add(request.output_bytes(rank));
    let bytes = (0..request.ranks()).fold(0_u64, |sum, rank| sum.saturating_add(data(rank)));
    let available = available()?;
    if bytes <= available / 2 {
        return Ok(());
    }
    Err(Failure::refused(format!(
        "the inputs and outputs of all ranks need {} on mock cards: the limit is half of the {} of available memory; \
         reduce --bytes or --counts",
        size::show(bytes),
        size::show(available)
    )))
}

/// Bytes that can be had: those of the machine, and what the control groups of this process leave.
fn available() -> Result<u64> {
    let text = fs::read_to_string(MEMINFO).map_err(|error| Failure::file(Path::new(MEMINFO), &error))?;
    let of_machine = of_machine(&text).ok_or_else(|| Failure::refused(format!("{MEMINFO} has no MemAvailable")))?;
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let groups = Path::new(group).ancestors().map(|group| Path::new(CGROUPS).join(group));
    Ok(groups.filter_map(|group| left_by(&group)).fold(of_machine, u64::min))
}

/// Bytes that can be had without swapping, as the kernel estimates them. Huge pages that are set aside do not count.
fn of_machine(meminfo: &str) -> Option<u64> {
    let value = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    value.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
}

/// Bytes that a control group leaves to its processes; `None` without a limit. File pages that are not in use count as free.
fn left_by(group: &Path) -> Option<u64> {
    let read = |name| fs::read_to_string(group.join(name)).ok();
    let most: u64 = read("memory.max")?.trim().parse().ok()?;
    let used: u64 = read("memory.current")?.trim().parse().ok()?;
    let stat = read("memory.stat").unwrap_or_default();
    let idle = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.trim().parse().ok()).unwrap_or(0);
    Some(most.saturating_sub(used.saturating_sub(idle)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_read_from_what_the_kernel_writes() {
        let text =
            "MemTotal:       24684084 kB\nMemFree:         9412540 kB\nMemAvailable:   20465676 kB\nBuffers: 1 kB\n";
        assert_eq!(of_machine(text), Some(20_465_676 << 10));
        for wrong in
            ["", "MemAvailable:", "MemAvailable: 1", "MemAvailable: x kB", "MemAvailable: 99999999999999999 kB"]
        {
            assert_eq!(of_machine(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_control_group_leaves_what_is_not_in_use() {
        let group = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(group.path().join(name), text).unwrap();
        assert_eq!(left_by(group.path()), None);
        write("memory.max", "max\n");
        write("memory.current", "600\n");
        assert_eq!(left_by(group.path()), None);
        write("memory.max", "1000\n");
        assert_eq!(left_by(group.path()), Some(400));
        write("memory.stat", "anon 500\ninactive_file 100\n");
        assert_eq!(left_by(group.path()), Some(500));
    }

    #[test]
    fn more_than_any_machine_has_is_refused() {
        assert!(check(0).is_ok() && check(4096).is_ok());
        let message = check(1 << 60).unwrap_err().message().to_owned();
        assert!(message.starts_with("the host buffers of all ranks need 1048576 TiB"), "{message}");
    }
}

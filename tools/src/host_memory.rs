//! Limits host memory for host buffers of programs and for mock cards.

use std::fs;
use std::path::Path;

use cmdseq::plan::Plan;

use crate::exit::{Failure, Result};
use crate::size;

const MEMINFO: &str = "/proc/meminfo";
/// Mount point of control groups, version 2.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Refuses host buffers of `bytes` in total if they exceed half of the available memory. Their pages are allocated at
/// once; the other half is for mock cards, which copy them, and for other processes.
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

/// Refuses a plan on in-process mock cards if its data exceeds half of the available memory. Mock cards keep their memory
/// on the host; without this check they would fail in the middle of a run.
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

/// Returns the available bytes: the minimum over the machine and the control groups of this process.
fn available() -> Result<u64> {
    let text = fs::read_to_string(MEMINFO).map_err(|error| Failure::file(Path::new(MEMINFO), &error))?;
    let of_machine = of_machine(&text).ok_or_else(|| Failure::refused(format!("{MEMINFO} has no MemAvailable")))?;
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let groups = Path::new(group).ancestors().map(|group| Path::new(CGROUPS).join(group));
    Ok(groups.filter_map(|group| available_in_group(&group)).fold(of_machine, u64::min))
}

/// Returns the kernel's estimate of the bytes available without swapping. Reserved huge pages are excluded.
fn of_machine(meminfo: &str) -> Option<u64> {
    let value = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    value.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the bytes that a control group has available; `None` without a limit. Inactive file pages count as available.
fn available_in_group(group: &Path) -> Option<u64> {
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
    fn available_memory_is_parsed() {
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
    fn a_control_group_has_its_unused_memory_available() {
        let group = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(group.path().join(name), text).unwrap();
        assert_eq!(available_in_group(group.path()), None);
        write("memory.max", "max\n");
        write("memory.current", "600\n");
        assert_eq!(available_in_group(group.path()), None);
        write("memory.max", "1000\n");
        assert_eq!(available_in_group(group.path()), Some(400));
        write("memory.stat", "anon 500\ninactive_file 100\n");
        assert_eq!(available_in_group(group.path()), Some(500));
    }

    #[test]
    fn more_than_any_machine_has_is_refused() {
        assert!(check(0).is_ok() && check(4096).is_ok());
        let message = check(1 << 60).unwrap_err().message().to_owned();
        assert!(message.starts_with("the host buffers of all ranks need 1048576 TiB"), "{message}");
    }
}

//! Limits host memory for host buffers of programs and for mock cards.

use std::fs;
use std::ops::Range;
use std::path::Path;

use cmdseq::plan::{Piece, Plan, Program};
use fpga_select::CardMemory;
use nix::sys::resource::{Resource, getrlimit};

use crate::exit::{Failure, Result};
use crate::size;

const MEMINFO: &str = "/proc/meminfo";
/// Mount point of control groups, version 2.
const CGROUPS: &str = "/sys/fs/cgroup";
/// Bytes in which mock cards allocate their memory.
const FRAME: u64 = CardMemory::FRAME_BYTES;

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

/// Refuses a plan on in-process mock cards if the memory for its data exceeds half of the available memory. Mock cards keep
/// their memory on the host; without this check they would fail in the middle of a run.
pub(crate) fn check_mock(plan: &Plan) -> Result<()> {
    let frames = plan.set.programs.iter().fold(0_u64, |sum, program| sum.saturating_add(frames(program)));
    let bytes = frames.saturating_mul(FRAME);
    let available = available()?;
    if bytes <= available / 2 {
        return Ok(());
    }
    Err(Failure::refused(format!(
        "the inputs and outputs of all ranks need {} on mock cards, in frames of {}: the limit is half of the {} of \
         available memory; reduce --bytes or --counts, or select fewer cards",
        size::show(bytes),
        size::show(FRAME),
        size::show(available)
    )))
}

/// Returns the number of frames with inputs and outputs of a program. Striped blocks lie in stripes of their own, and so in frames
/// of their own, however small they are.
fn frames(program: &Program) -> u64 {
    let touched = |piece: &Piece| {
        let end = piece.address.saturating_add(piece.bytes).div_ceil(FRAME);
        Some(piece.address / FRAME..end).filter(|_| piece.bytes > 0)
    };
    let mut ranges: Vec<Range<u64>> = program.input.iter().chain(&program.output).filter_map(touched).collect();
    ranges.sort_unstable_by_key(|range| range.start);
    let (mut count, mut counted_to) = (0, 0);
    for range in ranges {
        count += range.end.saturating_sub(range.start.max(counted_to));
        counted_to = counted_to.max(range.end);
    }
    count
}

/// Returns the available bytes: the minimum over the machine, the control groups of this process, and its limit of memory.
fn available() -> Result<u64> {
    let text = fs::read_to_string(MEMINFO).map_err(|error| Failure::file(Path::new(MEMINFO), &error))?;
    let of_machine = of_machine(&text).ok_or_else(|| Failure::refused(format!("{MEMINFO} has no MemAvailable")))?;
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let groups = Path::new(group).ancestors().map(|group| Path::new(CGROUPS).join(group));
    let of_process = getrlimit(Resource::RLIMIT_AS).map_or(u64::MAX, |(limit, _)| limit);
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let left = of_process.saturating_sub(kib(&status, "VmSize:").unwrap_or(0));
    Ok(groups.filter_map(|group| available_in_group(&group)).fold(of_machine.min(left), u64::min))
}

/// Returns the kernel's estimate of the bytes available without swapping. Reserved huge pages are excluded.
fn of_machine(meminfo: &str) -> Option<u64> {
    kib(meminfo, "MemAvailable:")
}

/// Returns the bytes of a line of KiB, such as `VmSize:  3892 kB`.
fn kib(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
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
    fn a_frame_is_counted_once_however_many_pieces_lie_in_it() {
        let pieces = |all: &[(u64, u64)]| {
            all.iter().map(|&(address, bytes)| Piece { offset: 0, address, bytes }).collect::<Vec<_>>()
        };
        let of = |input: &[(u64, u64)], output: &[(u64, u64)]| {
            frames(&Program { input: pieces(input), output: pieces(output), ..Program::from(Vec::new()) })
        };
        assert_eq!(of(&[], &[(5, 0)]), 0);
        assert_eq!(of(&[(0, 1), (1, 1), (4095, 1)], &[(64, 64)]), 1);
        assert_eq!(of(&[(4095, 2)], &[]), 2);
        assert_eq!(of(&[(0, 1 << 20)], &[(4096, 1), (1 << 20, 1)]), 257);
        assert_eq!(of(&[(0, 1), (1 << 29, 1)], &[(1 << 28, 1), (3 << 28, 1)]), 4, "one in each stripe");
        assert_eq!(of(&[(0, u64::MAX)], &[(u64::MAX - 1, u64::MAX)]), 1 << 52);
    }

    #[test]
    fn more_than_any_machine_has_is_refused() {
        assert!(check(0).is_ok() && check(4096).is_ok());
        let message = check(1 << 60).unwrap_err().message().to_owned();
        assert!(message.starts_with("the host buffers of all ranks need 1048576 TiB"), "{message}");
    }
}

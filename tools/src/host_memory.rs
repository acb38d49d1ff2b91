//! How much memory of the host there is for buffers of a program.

use std::fs;

use crate::exit::{Failure, Result};
use crate::size;

const MEMINFO: &str = "/proc/meminfo";

/// Refuses host buffers that take `bytes` together, if that is more than half of the memory that is available. All their
/// pages are taken at once, and the other half is for mock cards that copy them, and for whatever else the machine does.
pub(crate) fn check(bytes: u64) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let text = fs::read_to_string(MEMINFO).map_err(|error| Failure::refused(format!("{MEMINFO}: {error}")))?;
    let available = available(&text).ok_or_else(|| Failure::refused(format!("{MEMINFO} has no MemAvailable")))?;
    if bytes <= available / 2 {
        return Ok(());
    }
    Err(Failure::refused(format!(
        "the host buffers of all ranks take {}, and may take half of the {} of memory that this machine has available",
        size::show(bytes),
        size::show(available)
    )))
}

/// Bytes that can be had without swapping, as the kernel estimates them. Huge pages that are set aside do not count.
fn available(meminfo: &str) -> Option<u64> {
    let value = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    value.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_read_from_what_the_kernel_writes() {
        let text =
            "MemTotal:       24684084 kB\nMemFree:         9412540 kB\nMemAvailable:   20465676 kB\nBuffers: 1 kB\n";
        assert_eq!(available(text), Some(20_465_676 << 10));
        for wrong in
            ["", "MemAvailable:", "MemAvailable: 1", "MemAvailable: x kB", "MemAvailable: 99999999999999999 kB"]
        {
            assert_eq!(available(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn more_than_any_machine_has_is_refused() {
        assert!(check(0).is_ok() && check(4096).is_ok());
        let message = check(1 << 60).unwrap_err().message().to_owned();
        assert!(message.starts_with("the host buffers of all ranks take 1048576 TiB"), "{message}");
    }
}

//! Parsers of attributes. Each accepts any text.

use fpga_pci::BarIndex;
use fpga_pci::config::LinkSpeed;

use crate::bar::{Bar, BarKind};

/// Flags of a resource (Linux `include/linux/ioport.h`): its type, and how it can be mapped.
const RESOURCE_IO: u64 = 0x100;
const RESOURCE_MEMORY: u64 = 0x200;
const RESOURCE_PREFETCH: u64 = 0x2000;
const RESOURCE_64_BIT: u64 = 0x10_0000;
/// It has no address.
const RESOURCE_UNSET: u64 = 0x2000_0000;
/// Limit of counters in a file of AER statistics. There are fewer than 32 of each kind.
const MOST_COUNTERS: usize = 64;
/// Limit of the length of a counter's name, in bytes.
const LONGEST_NAME: usize = 64;

/// The parsers by themselves, for tests and fuzzing.
pub mod parsers {
    pub use super::{aer_counters, bars, hex, limit, link_speed, link_width, process_ids};
}

/// Parses a hexadecimal number of at most `digits` digits, with or without `0x`.
pub fn hex(text: &str, digits: usize) -> Option<u64> {
    let text = text.strip_prefix("0x").unwrap_or(text);
    let is_hex = (1..=digits.min(16)).contains(&text.len()) && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    if is_hex { u64::from_str_radix(text, 16).ok() } else { None }
}

/// Parses the BARs of a `resource` file. Each of the first six lines has first address, last address and flags. A line of zeros
/// is no BAR, or the upper half of a 64-bit BAR.
pub fn bars(text: &str) -> Option<Vec<Bar>> {
    let mut bars = Vec::new();
    let mut lines = text.lines();
    for index in 0..BarIndex::COUNT as u8 {
        let mut words = lines.next()?.split_ascii_whitespace().map(|word| hex(word, 16));
        let (first, last, flags) = (words.next()??, words.next()??, words.next()??);
        if words.next().is_some() {
            return None;
        }
        if flags == 0 {
            continue;
        }
        let bytes = last.checked_sub(first)?.checked_add(1)?;
        let kind = if flags & RESOURCE_IO != 0 {
            BarKind::Ports
        } else if flags & RESOURCE_MEMORY == 0 {
            return None;
        } else if flags & RESOURCE_64_BIT != 0 {
            BarKind::Memory64
        } else {
            BarKind::Memory32
        };
        let is_assigned = flags & RESOURCE_UNSET == 0 && first != 0;
        let address = is_assigned.then_some(first);
        let is_prefetchable = flags & RESOURCE_PREFETCH != 0;
        bars.push(Bar { index: BarIndex::new(index)?, address, bytes, kind, is_prefetchable });
    }
    Some(bars)
}

/// Parses the speed of a link: `8.0 GT/s PCIe`. `Some(None)`: the kernel does not know.
pub fn link_speed(text: &str) -> Option<Option<LinkSpeed>> {
    if text.starts_with("Unknown") {
        return Some(None);
    }
    let (number, unit) = text.trim().split_once(char::is_whitespace)?;
    if !unit.trim_start().starts_with("GT/s") {
        return None;
    }
    let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
    let is_digits =
        |text: &str, most: usize| (1..=most).contains(&text.len()) && text.bytes().all(|d| d.is_ascii_digit());
    if !is_digits(whole, 4) || !is_digits(tenths, 1) {
        return None;
    }
    let mega_transfers = whole.parse::<u32>().ok()? * 1000 + tenths.parse::<u32>().ok()? * 100;
    LinkSpeed::from_mega_transfers(mega_transfers).map(Some)
}

/// Parses the width of a link: `16`. `Some(None)`: no link, or the kernel does not know.
pub fn link_width(text: &str) -> Option<Option<u8>> {
    match text.parse::<u8>().ok()? {
        0 | 255 => Some(None),
        width if width <= 32 => Some(Some(width)),
        _ => None,
    }
}

/// Parses a file of AER statistics: a name and a count per line. The total (`TOTAL_…`) is left out.
pub fn aer_counters(text: &str) -> Option<Vec<(String, u64)>> {
    let mut counters = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (name, count) = line.trim().rsplit_once(char::is_whitespace)?;
        let (name, count) = (name.trim(), count.parse().ok()?);
        if name.is_empty() || name.len() > LONGEST_NAME || counters.len() == MOST_COUNTERS {
            return None;
        }
        if !name.starts_with("TOTAL_") {
            counters.push((name.to_owned(), count));
        }
    }
    Some(counters)
}

/// Parses soft and hard limit in the line of `/proc/PID/limits` that begins with `name`. An inner `None`: unlimited.
pub fn limit(text: &str, name: &str) -> Option<(Option<u64>, Option<u64>)> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let mut words = line.split_ascii_whitespace();
    let mut number = || match words.next()? {
        "unlimited" => Some(None),
        digits => digits.parse().ok().map(Some),
    };
    Some((number()?, number()?))
}

/// Parses the numbers after `name` in `/proc/PID/status`, such as `Uid:` or `Groups:`.
pub fn process_ids(text: &str, name: &str) -> Option<Vec<u32>> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().map(|word| word.parse().ok()).collect()
}

/// Parses the effective capabilities in `/proc/PID/status`, one bit each.
pub(crate) fn capabilities(text: &str) -> Option<u64> {
    hex(text.lines().find_map(|line| line.strip_prefix("CapEff:"))?.trim(), 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RESOURCE: &str = "0x00000000e0000000 0x00000000e1ffffff 0x000000000014220c\n\
         0x0000000000000000 0x0000000000000000 0x0000000000000000\n\
         0x00000000e2000000 0x00000000e200ffff 0x0000000000040200\n\
         0x000000000000e000 0x000000000000e07f 0x0000000000040101\n\
         0x0000000000000000 0x000000000000ffff 0x0000000020040200\n\
         0x0000000000000000 0x0000000000000000 0x0000000000000000\n\
         0x0000000000000000 0x0000000000000000 0x0000000000000000\n";

    #[test]
    fn resources() {
        let bars = bars(RESOURCE).unwrap();
        let shown: Vec<_> =
            bars.iter().map(|bar| (bar.index.index(), bar.address, bar.bytes, bar.kind, bar.is_prefetchable)).collect();
        let expected = [
            (0, Some(0xe000_0000), 32 << 20, BarKind::Memory64, true),
            (2, Some(0xe200_0000), 1 << 16, BarKind::Memory32, false),
            (3, Some(0xe000), 128, BarKind::Ports, false),
            (4, None, 1 << 16, BarKind::Memory32, false),
        ];
        assert_eq!(shown, expected);
        for wrong in ["", "0x0 0x0", "0x1 0x0 0x200\n", "0x0 0xffffffffffffffff 0x200\n", "0x0 0x1 0x200 0x0"] {
            let text = format!("{wrong}\n{RESOURCE}");
            assert!(super::bars(if wrong.is_empty() { "" } else { &text }).is_none(), "{wrong}");
        }
    }

    #[test]
    fn links() {
        let speed = |text| link_speed(text).map(|speed| speed.map(LinkSpeed::mega_transfers));
        assert_eq!(speed("8.0 GT/s PCIe"), Some(Some(8000)));
        assert_eq!(speed("2.5 GT/s PCIe"), Some(Some(2500)));
        // Kernels before 5.8.
        assert_eq!(speed("8 GT/s"), Some(Some(8000)));
        assert_eq!(speed("Unknown"), Some(None));
        for wrong in ["", "8.0", "8.0 Gb/s", "9.0 GT/s", "8.05 GT/s", "-8 GT/s", "99999999999 GT/s", "é GT/s", "\rߚߚ"]
        {
            assert_eq!(speed(wrong), None, "{wrong}");
        }
        assert_eq!(["16", "0", "255", "33", "x"].map(link_width), [Some(Some(16)), Some(None), Some(None), None, None]);
    }

    #[test]
    fn statistics() {
        let text = "Undefined 0\nDLP 3\nAdvisory Non-Fatal 1\nTOTAL_ERR_FATAL 4\n";
        let expected = [("Undefined", 0), ("DLP", 3), ("Advisory Non-Fatal", 1)].map(|(name, n)| (name.to_owned(), n));
        assert_eq!(aer_counters(text).unwrap(), expected);
        assert!(aer_counters("DLP\n").is_none() && aer_counters("DLP -1\n").is_none());
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max locked memory         8388608              unlimited            bytes     \n";
        assert_eq!(limit(limits, "Max locked memory"), Some((Some(8 << 20), None)));
        assert_eq!(limit(limits, "Max nothing"), None);
        assert_eq!(process_ids("Uid:\t1000\t1000\t0\t0\nGroups:\t4 27 \n", "Groups:"), Some(vec![4, 27]));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        /// Any regions, written as the kernel writes them, come back.
        #[test]
        fn written_resources_come_back(
            regions in prop::collection::vec((1u64..1 << 48, 0u64..1 << 40, 0usize..4), 6),
        ) {
            let flags = [0, 0x4_0200, 0x14_220c, 0x4_0101];
            let line = |(first, more, kind): &(u64, u64, usize)| match flags[*kind] {
                0 => format!("0x{:016x} 0x{:016x} 0x{:016x}\n", 0, 0, 0),
                flags => format!("0x{first:016x} 0x{:016x} 0x{flags:016x}\n", first + more),
            };
            let bars = bars(&regions.iter().map(line).collect::<String>()).unwrap();
            let found: Vec<_> = bars.iter().map(|bar| (bar.index.index(), bar.address, bar.bytes)).collect();
            let expected: Vec<_> = regions.iter().enumerate().filter(|(_, region)| region.2 != 0)
                .map(|(index, region)| (index, Some(region.0), region.1 + 1)).collect();
            prop_assert_eq!(found, expected);
        }

        /// Text near the real thing, and any text: nothing panics, and what is accepted is in range.
        #[test]
        fn any_text(text in prop_oneof!["(?s).{0,80}", "[ \r\nߚ]{0,9}", "[0-9a-fx \\n.GT/sPUnkow-]{0,200}", "([A-Z]{1,8} [0-9]{1,22}\\n){0,8}"]) {
            let _ = (link_speed(&text), aer_counters(&text), limit(&text, "M"), process_ids(&text, "U"), hex(&text, 16));
            for bar in bars(&text).unwrap_or_default() {
                prop_assert!(bar.bytes > 0);
            }
            if let Some(Some(width)) = link_width(&text) {
                prop_assert!((1..=32).contains(&width));
            }
        }

        #[test]
        fn any_lines(text in "(0x[0-9a-f]{1,17} 0x[0-9a-f]{1,17} 0x[0-9a-f]{1,17}\\n){0,8}") {
            for bar in bars(&text).unwrap_or_default() {
                prop_assert!(bar.bytes > 0);
            }
        }
    }
}

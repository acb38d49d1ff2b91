//! Sizes in bytes on the command line: `16384`, `64KiB`, `64K`, `1MiB`.

const UNITS: [(&str, u32); 5] = [("B", 0), ("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
/// Binary as well, as in MPI benchmarks: 1K is 1024 bytes.
const SHORT: [(&str, u32); 4] = [("K", 10), ("M", 20), ("G", 30), ("T", 40)];

/// Parses a number of bytes. All units are binary; `1MB` is ambiguous and refused.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = text[digits.len()..].trim_start();
    let refuse = || {
        format!("invalid number of bytes {text:?}: expected a form like 16384, 64KiB, 64K or 1MiB (1K = 1KiB = 1024)")
    };
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(refuse());
    }
    let shift = match unit {
        "" => 0,
        _ => UNITS.iter().chain(&SHORT).find(|(name, _)| *name == unit).ok_or_else(refuse)?.1,
    };
    let too_large = || format!("invalid number of bytes {text:?}: expected at most 2^64 - 1");
    let number = digits.parse::<u64>().map_err(|_| too_large())?;
    number.checked_mul(1 << shift).ok_or_else(too_large)
}

/// Formats a number of bytes in the largest unit that divides it.
pub(crate) fn show(bytes: u64) -> String {
    let whole = |(_, shift): &&(&str, u32)| bytes != 0 && bytes.trailing_zeros() >= *shift;
    let (name, shift) = UNITS.iter().rev().find(whole).unwrap_or(&UNITS[0]);
    format!("{} {name}", bytes >> shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_units() {
        for (text, bytes) in [
            ("0", 0),
            ("16384", 16384),
            ("64KiB", 65536),
            ("1MiB", 1 << 20),
            ("1 MiB", 1 << 20),
            ("8GiB", 8 << 30),
            ("7B", 7),
            ("64K", 64 << 10),
            ("2M", 2 << 20),
            ("1G", 1 << 30),
            ("1 T", 1 << 40),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "MiB",
            "-1",
            "+1",
            "1.5MiB",
            "1MB",
            "1KB",
            "1k",
            "1kib",
            "0x10",
            "1 2",
            "99999999999999999999",
            "16777216TiB",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn shown_in_the_largest_whole_unit() {
        assert_eq!(show(0), "0 B");
        assert_eq!(show(1 << 20), "1 MiB");
        assert_eq!(show((1 << 20) + 3), "1048579 B");
        assert_eq!(show(48 << 10), "48 KiB");
    }
}

//! Numbers on the command line.

pub(crate) fn unsigned(text: &str) -> Option<u64> {
    let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16));
    let is_number = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix));
    if is_number { u64::from_str_radix(digits, radix).ok() } else { None }
}

/// Parses a 32-bit value on the command line.
pub(crate) fn word(text: &str) -> std::result::Result<u32, String> {
    unsigned(text)
        .and_then(|value| u32::try_from(value).ok())
        .ok_or_else(|| format!("invalid value {text:?}: expected a 32-bit number, such as 42 or 0x2a"))
}

/// Parses a 64-bit pattern on the command line.
pub(crate) fn pattern(text: &str) -> std::result::Result<u64, String> {
    unsigned(text)
        .ok_or_else(|| format!("invalid pattern {text:?}: expected a 64-bit number, such as 42 or 0xdeadbeef"))
}

/// Parses the seed of data.
pub(crate) fn seed(text: &str) -> std::result::Result<u64, String> {
    unsigned(text).ok_or_else(|| format!("invalid seed {text:?}: expected a 64-bit number, such as 42 or 0x2a"))
}

/// Parses an address in card memory.
pub(crate) fn address(text: &str) -> std::result::Result<u64, String> {
    unsigned(text).ok_or_else(|| format!("invalid address {text:?}: expected a number, such as 0x100000"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_32_bits() {
        assert_eq!((word("0xffffffff"), word("42")), (Ok(u32::MAX), Ok(42)));
        assert!(word("0x100000000").is_err());
    }
}

//! What a shell says of itself.

use std::fmt;

/// The shell of a card: its static logic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// BITSTREAM_ID: version, variant, and hash of the sources.
    pub bitstream: u64,
    /// BITSTREAM_MD: the day it was made.
    pub date: u64,
    /// What images must be made for, if the shell takes any.
    pub interface: Option<u128>,
}

impl Identity {
    /// Returns the version: major, minor, patch.
    pub fn version(&self) -> [u8; 3] {
        [60, 56, 52].map(|shift| (self.bitstream >> shift & 0xf) as u8)
    }

    /// Returns year, month and day, or `None` if the digits are no date.
    pub fn day(&self) -> Option<(u16, u8, u8)> {
        let decimal = |shift: u32| {
            let (tens, ones) = ((self.date >> (shift + 4) & 0xf) as u8, (self.date >> shift & 0xf) as u8);
            (tens < 10 && ones < 10).then_some(10 * tens + ones)
        };
        let (year, month, day) = (decimal(20)?, decimal(12)?, decimal(4)?);
        let is_date = (1..=12).contains(&month) && (1..=31).contains(&day);
        is_date.then_some((2000 + u16::from(year), month, day))
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.version();
        write!(f, "shell {major}.{minor}.{patch}, bitstream {:016x}", self.bitstream)?;
        if let Some((year, month, day)) = self.day() {
            write!(f, " of {year}-{month:02}-{day:02}")?;
        }
        match self.interface {
            Some(interface) => write!(f, ", interface {interface:032x}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_is_printed_with_its_version_and_its_day() {
        let identity = Identity { bitstream: 0x1230_0000_89ab_cdef, date: 0x0261_1011, interface: Some(0xfeed) };
        assert_eq!(identity.version(), [1, 2, 3]);
        let shell = "shell 1.2.3, bitstream 1230000089abcdef";
        assert_eq!(identity.to_string(), format!("{shell} of 2026-11-01, interface 0000000000000000000000000000feed"));
        assert_eq!(Identity { date: 0, interface: None, ..identity }.to_string(), shell);
    }

    #[test]
    fn digits_that_are_no_date_are_none() {
        let day = |date| Identity { bitstream: 0, date, interface: None }.day();
        assert_eq!(day(0x0261_1011), Some((2026, 11, 1)));
        for bad in [0, 0x026a_1011, 0x0261_3011, 0x0261_1321, 0x0261_1001, 0xffff_ffff] {
            assert_eq!(day(bad), None, "{bad:#x}");
        }
    }
}

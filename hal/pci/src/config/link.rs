//! Speed and width of links.

use std::fmt;

/// Transfer rate of one lane. Displays as `8 GT/s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkSpeed {
    mega_transfers: u32,
}

impl LinkSpeed {
    /// Decodes the 4-bit code of a link register: 1 to 6 are 2.5, 5, 8, 16, 32 and 64 GT/s.
    pub const fn from_code(code: u8) -> Option<Self> {
        let mega_transfers = match code {
            1 => 2_500,
            2 => 5_000,
            3 => 8_000,
            4 => 16_000,
            5 => 32_000,
            6 => 64_000,
            _ => return None,
        };
        Some(LinkSpeed { mega_transfers })
    }

    /// Returns the speed with this many millions of transfers per second, or `None` if links do not have that rate.
    pub fn from_mega_transfers(mega_transfers: u32) -> Option<Self> {
        (1..=6).filter_map(LinkSpeed::from_code).find(|speed| speed.mega_transfers == mega_transfers)
    }

    /// Returns the millions of transfers per second.
    pub const fn mega_transfers(self) -> u32 {
        self.mega_transfers
    }
}

impl fmt::Display for LinkSpeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} GT/s", f64::from(self.mega_transfers) / 1e3)
    }
}

/// Speed and width of a link. Displays as `8 GT/s x16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lanes {
    /// Transfer rate of each lane.
    pub speed: LinkSpeed,
    /// Number of lanes, 1 to 32.
    pub width: u8,
}

impl Lanes {
    /// Decodes the low ten bits of a link register: speed in 3:0, width in 9:4. `None`: there is no link.
    pub(super) const fn from_register(bits: u32) -> Option<Self> {
        let width = (bits >> 4 & 0x3f) as u8;
        match LinkSpeed::from_code((bits & 0xf) as u8) {
            Some(speed) if width > 0 => Some(Lanes { speed, width }),
            _ => None,
        }
    }

    /// Returns the slower speed and the smaller width: the best link between two such ends.
    pub fn between(self, other: Lanes) -> Lanes {
        Lanes { speed: self.speed.min(other.speed), width: self.width.min(other.width) }
    }

    /// Returns whether `self` is slower or narrower than `other`.
    pub fn is_below(self, other: Lanes) -> bool {
        self.speed < other.speed || self.width < other.width
    }
}

impl fmt::Display for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x{}", self.speed, self.width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds() {
        let speeds: Vec<_> = (0..16).filter_map(LinkSpeed::from_code).map(|speed| speed.to_string()).collect();
        assert_eq!(speeds, ["2.5 GT/s", "5 GT/s", "8 GT/s", "16 GT/s", "32 GT/s", "64 GT/s"]);
        assert_eq!(LinkSpeed::from_mega_transfers(8000), LinkSpeed::from_code(3));
        assert_eq!(LinkSpeed::from_mega_transfers(8001), None);
    }
}

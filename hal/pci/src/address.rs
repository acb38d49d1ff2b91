//! Addresses of functions, and indices of BARs.

use std::fmt;
use std::str::FromStr;

/// Index of a base address register: 0 to 5.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BarIndex(u8);

impl BarIndex {
    /// Number of base address registers of a function.
    pub const COUNT: usize = 6;

    /// Returns BAR `index`, or `None` if the index is over 5.
    pub const fn new(index: u8) -> Option<Self> {
        if (index as usize) < Self::COUNT { Some(BarIndex(index)) } else { None }
    }

    /// Returns the index, 0 to 5.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for BarIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BAR{}", self.0)
    }
}

/// Address of a function: `segment:bus:device.function`, all hexadecimal, such as `0000:3b:00.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    segment: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl PciAddress {
    /// Returns an address, or `None` if `device` is over 31 or `function` over 7.
    pub const fn new(segment: u32, bus: u8, device: u8, function: u8) -> Option<Self> {
        if device < 32 && function < 8 { Some(PciAddress { segment, bus, device, function }) } else { None }
    }

    /// The segment, which Linux calls domain.
    pub const fn segment(self) -> u32 {
        self.segment
    }

    /// The bus.
    pub const fn bus(self) -> u8 {
        self.bus
    }

    /// The device, 0 to 31.
    pub const fn device(self) -> u8 {
        self.device
    }

    /// The function, 0 to 7.
    pub const fn function(self) -> u8 {
        self.function
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.segment, self.bus, self.device, self.function)
    }
}

/// The text is not a PCI address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid PCI address {0:?}: expected a form like 0000:3b:00.0 or 3b:00.0")]
pub struct NotAnAddress(pub String);

impl FromStr for PciAddress {
    type Err = NotAnAddress;

    /// Parses an address. The default segment is 0.
    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        let hex = |digits: &str, most: usize| {
            let is_hex = (1..=most).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            is_hex.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
        };
        let parse = || {
            let (rest, function) = text.rsplit_once('.')?;
            let (rest, device) = rest.rsplit_once(':')?;
            let (segment, bus) = rest.rsplit_once(':').unwrap_or(("0", rest));
            // Segments behind some host bridges have up to eight digits.
            let (segment, bus) = (hex(segment, 8)?, hex(bus, 2)? as u8);
            PciAddress::new(segment, bus, hex(device, 2)? as u8, hex(function, 1)? as u8)
        };
        parse().ok_or_else(|| NotAnAddress(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_pci_address_survives_its_text(segment: u32, bus: u8, device in 0u8..32, function in 0u8..8) {
            let address = PciAddress::new(segment, bus, device, function).unwrap();
            prop_assert_eq!(address.to_string().parse(), Ok(address));
        }

        #[test]
        fn any_text_is_an_address_or_is_not(text in "[0-9a-g:.]{0,16}") {
            if let Ok(address) = text.parse::<PciAddress>() {
                prop_assert_eq!(address.to_string().parse(), Ok(address));
            }
        }
    }

    #[test]
    fn pci_addresses() {
        let address: PciAddress = "0000:3b:00.0".parse().unwrap();
        assert_eq!((address.segment(), address.bus(), address.device(), address.function()), (0, 0x3b, 0, 0));
        assert_eq!("3b:1f.7".parse(), Ok(PciAddress::new(0, 0x3b, 0x1f, 7).unwrap()));
        assert_eq!("10000:E1:00.0".parse::<PciAddress>().unwrap().to_string(), "10000:e1:00.0");
        for text in [
            "",
            "3b",
            "3b:00",
            "3b:20.0",
            "3b:00.8",
            "3b:00.00",
            "+3b:00.0",
            "0:3b:00.0.0",
            "0000:3b:00.0 ",
            "::.",
            "100:00.0",
        ] {
            assert!(text.parse::<PciAddress>().is_err(), "{text:?}");
        }
    }
}

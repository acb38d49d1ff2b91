//! The token that a physical function and its virtual functions share.

use std::fmt;
use std::str::FromStr;

/// The secret that a physical function and its virtual functions are opened with. Written as a UUID,
/// `00112233-4455-6677-8899-aabbccddeeff`.
///
/// The kernel requires it if a physical function is bound to vfio-pci and has virtual functions (vfio-pci's parameter
/// `enable_sriov`). The first process that opens one of them sets it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct VfToken(pub [u8; 16]);

impl fmt::Display for VfToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

// A secret must not appear in logs.
impl fmt::Debug for VfToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VfToken(…)")
    }
}

/// The text is not a VF token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid VF token: expected a UUID, such as 00112233-4455-6677-8899-aabbccddeeff")]
pub struct NotAToken;

impl FromStr for VfToken {
    type Err = NotAToken;

    fn from_str(text: &str) -> Result<Self, NotAToken> {
        let bytes: [u8; 36] = text.as_bytes().try_into().map_err(|_| NotAToken)?;
        let mut digits = bytes.iter().enumerate().filter(|(index, _)| !matches!(index, 8 | 13 | 18 | 23));
        if [8, 13, 18, 23].iter().any(|&index: &usize| bytes[index] != b'-') {
            return Err(NotAToken);
        }
        let mut digit = || {
            let (_, &digit) = digits.next()?;
            char::from(digit).to_digit(16)
        };
        let mut token = [0; 16];
        for byte in &mut token {
            let (high, low) = (digit().ok_or(NotAToken)?, digit().ok_or(NotAToken)?);
            *byte = (high << 4 | low) as u8;
        }
        Ok(VfToken(token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_token_survives_its_text(bytes: [u8; 16]) {
            let text = VfToken(bytes).to_string();
            prop_assert_eq!(text.len(), 36);
            prop_assert_eq!(text.parse(), Ok(VfToken(bytes)));
            prop_assert_eq!(text.to_uppercase().parse(), Ok(VfToken(bytes)));
        }

        #[test]
        fn any_text_is_a_token_or_is_not(text in "[0-9a-g-]{36}|\\PC{0,40}") {
            if let Ok(token) = text.parse::<VfToken>() {
                prop_assert_eq!(token.to_string(), text.to_lowercase());
            }
        }
    }

    #[test]
    fn tokens() {
        let token: VfToken = "00112233-4455-6677-8899-aabbccddeeff".parse().unwrap();
        assert_eq!(token.0[..5], [0x00, 0x11, 0x22, 0x33, 0x44]);
        assert!(!format!("{token:?}").contains("11"));
        for text in [
            "",
            "00112233445566778899aabbccddeeff",
            "0011223-34455-6677-8899-aabbccddeeff",
            "g0112233-4455-6677-8899-aabbccddeeff",
        ] {
            assert_eq!(text.parse::<VfToken>(), Err(NotAToken), "{text:?}");
        }
    }
}

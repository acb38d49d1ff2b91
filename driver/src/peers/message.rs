//! What ranks tell each other, as bytes: postcard's format.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Returns the bytes of `value`.
pub(crate) fn bytes<T: Serialize>(value: &T) -> Vec<u8> {
    // Only types that do not know their length before they are written fail; a rank that has no bytes is refused by all.
    postcard::to_allocvec(value).unwrap_or_default()
}

/// Reads what another rank has sent, all of it; `None` if it has another form.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let (value, rest) = postcard::take_from_bytes(bytes).ok()?;
    rest.is_empty().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Said = (u8, u64, String, Vec<Option<u32>>, [u8; 32]);

    proptest! {
        #[test]
        fn what_is_written_is_read(said: Said) {
            let written = bytes(&said);
            let (shorter, mut longer) = (&written[..written.len() - 1], written.clone());
            longer.push(0);
            prop_assert_eq!(read::<Said>(shorter), None);
            prop_assert_eq!(read::<Said>(&longer), None);
            prop_assert_eq!(read(&written), Some(said));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = read::<Said>(&bytes);
        }
    }

    #[test]
    fn a_length_beyond_the_data_allocates_nothing() {
        // 2^63 elements, as a variable-length integer.
        let length = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01];
        assert_eq!(read::<Vec<u64>>(&length), None);
        assert_eq!(read::<String>(&length), None);
    }
}

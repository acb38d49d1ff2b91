//! The bits of error registers, in words.

/// Returns what the bits of an error register say.
pub(crate) fn meanings(bits: u64, known: &[(u32, &str)]) -> String {
    let mut words: Vec<String> =
        known.iter().filter(|(bit, _)| bits >> bit & 1 == 1).map(|(_, meaning)| (*meaning).to_owned()).collect();
    let unknown = known.iter().fold(bits, |left, (bit, _)| left & !(1 << bit));
    words.extend((0..u64::BITS).filter(|bit| unknown >> bit & 1 == 1).map(|bit| format!("bit {bit}")));
    match words.is_empty() {
        true => "no reason given".to_owned(),
        false => words.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_bits_come_before_unknown_ones() {
        let known = [(3, "three"), (1, "one")];
        assert_eq!(meanings(0b1110, &known), "three, one, bit 2");
        assert_eq!(meanings(1 << 63, &known), "bit 63");
        assert_eq!(meanings(0, &known), "no reason given");
    }
}

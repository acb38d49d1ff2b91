//! A published sensor: eight words.

use std::ops::Range;

use super::SENSOR_WORDS;
use crate::readings::{Unit, Value};

/// Part of the card, name and unit: bytes of UTF-8, padded with zeros.
pub(super) const W_PART: Range<usize> = 0..1;
pub(super) const W_NAME: Range<usize> = 1..5;
pub(super) const W_UNIT: Range<usize> = 5..6;
/// State in the upper 8 bits, value below.
pub(super) const VALUE: usize = 6;
/// Place of the state.
const STATE: u32 = 56;
/// The largest value that fits.
const VALUE_MAX: u64 = (1 << STATE) - 1;

/// A sensor, as it was last read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SensedValue {
    /// Part of the card that measures: `cms`, `board`.
    pub part: String,
    /// What is measured.
    pub name: String,
    /// In which unit.
    pub unit: Unit,
    /// The value; stale also if it could not be read the last time.
    pub value: Value,
}

/// Returns the word of a value. One that does not fit is the largest that does.
pub(super) fn encoded(value: Value) -> u64 {
    let (state, value) = match value {
        Value::Good(value) => (1, value),
        Value::Absent => (2, 0),
        Value::Stale(value) => (3, value),
        Value::Implausible(value) => (4, value),
    };
    state << STATE | value.min(VALUE_MAX)
}

fn decoded(word: u64) -> Option<Value> {
    let value = word & VALUE_MAX;
    match word >> STATE {
        1 => Some(Value::Good(value)),
        2 => Some(Value::Absent),
        3 => Some(Value::Stale(value)),
        4 => Some(Value::Implausible(value)),
        _ => None,
    }
}

/// Returns the sensor in the words of one; `None` if a name is not printable text, or the unit or the state is none.
pub(super) fn read(words: &[u64; SENSOR_WORDS], text: impl Fn(&[u64]) -> Option<String>) -> Option<SensedValue> {
    let unit = text(&words[W_UNIT])?;
    Some(SensedValue {
        part: text(&words[W_PART])?,
        name: text(&words[W_NAME])?,
        unit: Unit::ALL.into_iter().find(|one| one.name() == unit)?,
        value: decoded(words[VALUE])?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_one_word() {
        for value in
            [Value::Good(0), Value::Good(12_180), Value::Absent, Value::Stale(7), Value::Implausible(VALUE_MAX)]
        {
            assert_eq!(decoded(encoded(value)), Some(value));
        }
        assert_eq!(decoded(encoded(Value::Good(u64::MAX))), Some(Value::Good(VALUE_MAX)));
        assert!(decoded(0).is_none() && decoded(5 << STATE).is_none() && decoded(u64::MAX).is_none());
    }
}

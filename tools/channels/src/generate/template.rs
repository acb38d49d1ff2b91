//! Fills templates.

use std::borrow::Cow;

/// Returns `template` with each `@KEY@` replaced.
pub(super) fn fill(template: &str, values: &[(&str, Cow<'_, str>)]) -> String {
    let mut text = String::with_capacity(template.len());
    for (place, part) in template.split('@').enumerate() {
        // Every other part is a key.
        let value = values.iter().find(|(key, _)| place % 2 == 1 && *key == part);
        text += value.map_or(part, |(_, value)| value);
    }
    text
}

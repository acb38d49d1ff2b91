//! Lists of cards in a selector.

use std::collections::BTreeSet;

use crate::error::Error;

/// Parses the parts of `text` that commas separate, each of the `form`.
pub(crate) fn parse<T>(text: &str, form: &str, one: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, Error> {
    let wrong = |part| Error::Syntax { selector: text.into(), why: format!("expected {form}, found {part:?}") };
    text.split(',').map(|part| one(part).ok_or_else(|| wrong(part))).collect()
}

/// Refuses a card that is given twice.
pub(crate) fn check_distinct<T: Ord>(text: &str, cards: &[T], name: impl Fn(&T) -> String) -> Result<(), Error> {
    let mut seen = BTreeSet::new();
    match cards.iter().find(|card| !seen.insert(*card)) {
        Some(twice) => Err(Error::Syntax { selector: text.into(), why: format!("duplicate card {}", name(twice)) }),
        None => Ok(()),
    }
}

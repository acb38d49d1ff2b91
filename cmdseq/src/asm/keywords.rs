//! Keywords.

/// Words that begin a statement, apart from operations.
pub(super) const STATEMENTS: [&str; 12] =
    ["ranks", "const", "buffer", "communicator", "blocks", "include", "for", "repeat", "if", "else", "end", "assert"];
/// Words that are not available as names, because they occur in expressions and operands.
const RESERVED: [&str; 7] = ["rank", "ranks", "card", "host", "and", "or", "not"];

/// Whether a word is not available as a name.
pub(super) fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&word)
}

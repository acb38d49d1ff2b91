//! Words that cannot be names.

/// Words that begin a statement, apart from operations.
pub(super) const STATEMENTS: [&str; 12] =
    ["ranks", "const", "buffer", "communicator", "blocks", "include", "for", "repeat", "if", "else", "end", "assert"];
/// Words that cannot be names, because an expression or an operand may begin or go on with them.
const RESERVED: [&str; 7] = ["rank", "ranks", "card", "host", "and", "or", "not"];

/// Whether a word cannot be a name.
pub(super) fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&word)
}

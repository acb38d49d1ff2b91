//! Splits a line into words, numbers, texts and signs.

use super::diagnostic::{Finding, Span};

/// Largest number of characters in a name.
pub(super) const NAME_MAX: usize = 64;
/// Largest number of words, numbers, texts and signs in a line. A table of as many blocks as there may be has a quarter of them.
const TOKENS_MAX: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Word(String),
    Number(u64),
    Text(String),
    /// An operator or another sign; the longest match.
    Sign(&'static str),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) span: Span,
}

/// Longer ones first.
const SIGNS: [&str; 23] = [
    "..", "==", "!=", "<=", ">=", "<<", ">>", "+", "-", "*", "/", "%", "&", "|", "^", "<", ">", "=", ",", ":", "(",
    ")", "@",
];

/// Units of numbers.
const UNITS: [(&str, u32); 4] = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];

pub(super) fn is_name_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

pub(super) fn is_name_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The tokens of line `line` (from 1), up to its end or a comment; those before the first error, if there is one.
pub(super) fn line(text: &str, file: u32, line: u32) -> (Vec<Token>, Option<Finding>) {
    let characters: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(&c) = characters.get(at) {
        if c == '#' {
            break;
        }
        if c.is_whitespace() {
            at += 1;
            continue;
        }
        let start = at;
        let (kind, end) = token(&characters, start);
        let span = Span { file, line, column: start as u32 + 1, width: (end - start) as u32 };
        match kind {
            Ok(_) if tokens.len() == TOKENS_MAX => {
                let message = format!("line too long: at most {TOKENS_MAX} tokens");
                return (tokens, Some(Finding::new(span, message)));
            }
            Ok(kind) => tokens.push(Token { kind, span }),
            Err(message) => return (tokens, Some(Finding::new(span, message))),
        }
        at = end;
    }
    (tokens, None)
}

/// The token at `start`, or why there is none, and the end of its characters.
fn token(characters: &[char], start: usize) -> (Result<Kind, String>, usize) {
    let c = characters[start];
    let text = |from: usize, end: usize| -> String { characters[from..end].iter().collect() };
    let name_end = || start + characters[start..].iter().take_while(|c| is_name_part(**c)).count();
    if is_name_start(c) {
        let end = name_end();
        let is_short = end - start <= NAME_MAX;
        let word = is_short.then(|| Kind::Word(text(start, end)));
        return (word.ok_or_else(|| format!("name too long: at most {NAME_MAX} characters")), end);
    }
    if c.is_ascii_digit() {
        let end = name_end();
        return (number(&text(start, end)).map(Kind::Number), end);
    }
    if c == '"' {
        return match characters[start + 1..].iter().position(|c| *c == '"') {
            Some(length) => (Ok(Kind::Text(text(start + 1, start + 1 + length))), start + length + 2),
            None => (Err("text without closing `\"`".to_owned()), characters.len()),
        };
    }
    let fits = |sign: &&&str| sign.chars().enumerate().all(|(i, c)| characters.get(start + i) == Some(&c));
    match SIGNS.iter().find(fits) {
        Some(sign) => (Ok(Kind::Sign(sign)), start + sign.len()),
        None => (Err(format!("unexpected {c:?} (a comment begins with `#`)")), start + 1),
    }
}

/// A number of 64 bits: decimal with or without a unit, `0x` or `0b`, with `_` between digits.
fn number(word: &str) -> Result<u64, String> {
    let unit = UNITS.iter().find_map(|(unit, shift)| Some((word.strip_suffix(unit)?, *shift)));
    let (digits, shift) = unit.unwrap_or((word, 0));
    let (digits, radix) = match (digits.get(..2), shift) {
        (Some("0x" | "0X"), 0) => (&digits[2..], 16),
        (Some("0b" | "0B"), 0) => (&digits[2..], 2),
        _ => (digits, 10),
    };
    let digits: String = digits.chars().filter(|c| *c != '_').collect();
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return Err(format!("invalid number `{word}`: expected a form like 4096, 4KiB, 0x1000 or 0b11"));
    }
    let value = u64::from_str_radix(&digits, radix).ok();
    value
        .and_then(|value| value.checked_mul(1 << shift))
        .ok_or_else(|| format!("number `{word}` too large: at most {:#x}", u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for (word, value) in
            [("0", 0), ("64", 64), ("1_000", 1000), ("0x_ff", 255), ("0b101", 5), ("4KiB", 4096), ("1GiB", 1 << 30)]
        {
            assert_eq!(number(word), Ok(value), "{word}");
        }
        assert_eq!(number("0xffffffffffffffff"), Ok(u64::MAX));
        for word in ["0x", "0b2", "12a", "4kb", "99999999999999999999", "16777216TiB", "0x1KiB", "0x1ffffffffffffffff"]
        {
            assert!(number(word).is_err(), "{word}");
        }
    }

    #[test]
    fn a_line_has_a_limit() {
        let text = "0,".repeat(TOKENS_MAX / 2);
        assert!(line(&text, 0, 1).1.is_none());
        let (_, error) = line(&format!("{text} 0"), 0, 1);
        let error = error.expect("one number more");
        assert_eq!(error.message, "line too long: at most 1048576 tokens");
        assert_eq!(error.span.column as usize, TOKENS_MAX + 2);
    }

    #[test]
    fn places_are_of_characters() {
        let (tokens, error) = line("a\t<<\"ä\" .. b # c", 0, 7);
        assert!(error.is_none());
        let places: Vec<_> = tokens.iter().map(|token| (token.span.column, token.span.width)).collect();
        assert_eq!(places, [(1, 1), (3, 2), (5, 3), (9, 2), (12, 1)]);
        assert_eq!(tokens[2].kind, Kind::Text("ä".into()));
        for text in ["a \"b", "a ä b"] {
            let (tokens, error) = line(text, 0, 1);
            assert_eq!((tokens.len(), error.map(|error| error.span.column)), (1, Some(3)));
        }
    }
}

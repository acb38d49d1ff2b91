//! Splits a line into words, numbers, texts and signs.

use super::diagnostic::{Finding, Span};

/// Largest number of characters in a name.
pub(super) const NAME_MAX: usize = 64;

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

/// The tokens of line `line` (from 1), up to its end or a comment.
pub(super) fn line(text: &str, file: u32, line: u32) -> Result<Vec<Token>, Finding> {
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
        let span = |end: usize| Span { file, line, column: start as u32 + 1, width: (end - start) as u32 };
        let run = |from: usize, belongs: fn(char) -> bool| {
            from + characters[from..].iter().take_while(|c| belongs(**c)).count()
        };
        let kind = if is_name_start(c) {
            at = run(at, is_name_part);
            if at - start > NAME_MAX {
                return Err(Finding::new(span(at), format!("name too long: at most {NAME_MAX} characters")));
            }
            Kind::Word(characters[start..at].iter().collect())
        } else if c.is_ascii_digit() {
            at = run(at, is_name_part);
            let word: String = characters[start..at].iter().collect();
            Kind::Number(number(&word).map_err(|message| Finding::new(span(at), message))?)
        } else if c == '"' {
            let length = characters[at + 1..].iter().take_while(|c| **c != '"').count();
            at += length + 2;
            if at > characters.len() {
                return Err(Finding::new(span(characters.len()), "text without closing `\"`"));
            }
            Kind::Text(characters[start + 1..at - 1].iter().collect())
        } else {
            let fits = |sign: &&&str| sign.chars().enumerate().all(|(i, c)| characters.get(at + i) == Some(&c));
            let Some(sign) = SIGNS.iter().find(fits) else {
                let message = format!("unexpected {c:?} (a comment begins with `#`)");
                return Err(Finding::new(span(at + 1), message));
            };
            at += sign.len();
            Kind::Sign(sign)
        };
        tokens.push(Token { kind, span: span(at) });
    }
    Ok(tokens)
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
    fn places_are_of_characters() {
        let tokens = line("a\t<<\"ä\" .. b # c", 0, 7).unwrap();
        let places: Vec<_> = tokens.iter().map(|token| (token.span.column, token.span.width)).collect();
        assert_eq!(places, [(1, 1), (3, 2), (5, 3), (9, 2), (12, 1)]);
        assert_eq!(tokens[2].kind, Kind::Text("ä".into()));
        assert_eq!(line("a \"b", 0, 1).unwrap_err().span.column, 3);
        assert_eq!(line("a ä", 0, 1).unwrap_err().span.column, 3);
    }
}

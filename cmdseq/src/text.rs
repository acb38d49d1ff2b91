//! Texts of others, as they are shown.

/// Whether a character would steer a terminal, or break or reorder a line, rather than be shown: control characters, separators of
/// lines and paragraphs, and marks of the direction of text. Tabs and ends of lines are control characters too: a caller who
/// prints them excepts them.
pub fn is_harmful(letter: char) -> bool {
    let is_mark =
        matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    letter.is_control() || is_mark
}

/// Returns a text as it is shown: what [is harmful](is_harmful) is replaced.
pub fn printable(text: &str) -> String {
    text.replace(is_harmful, "\u{fffd}")
}

/// As [`printable`], of a text of several lines. Tabs stay too.
pub fn printable_lines(text: &str) -> String {
    text.replace(|letter| !matches!(letter, '\n' | '\t') && is_harmful(letter), "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_harmful() {
        let ranges = ['\0'..='\u{1f}', '\u{7f}'..='\u{9f}', '\u{61c}'..='\u{61c}', '\u{200e}'..='\u{200f}'];
        let ranges = ranges.into_iter().chain(['\u{2028}'..='\u{202e}', '\u{2066}'..='\u{2069}']);
        let expected: Vec<char> = ranges.flatten().collect();
        let found: Vec<char> = ('\0'..=char::MAX).filter(|letter| is_harmful(*letter)).collect();
        assert_eq!(found, expected);
    }
}

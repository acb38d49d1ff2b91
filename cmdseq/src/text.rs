//! Texts of others, as they are shown, and errors with their causes.

use std::iter::successors;

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

/// Returns the texts of the causes of an error, the nearest first, without a text that is part of the one before.
pub fn causes(error: &dyn std::error::Error) -> Vec<String> {
    let (mut causes, mut before) = (Vec::new(), error.to_string());
    for text in successors(error.source(), |cause| cause.source()).map(ToString::to_string) {
        if !before.contains(&text) {
            causes.push(text.clone());
            before = text;
        }
    }
    causes
}

/// Returns an error and its [causes], separated by colons.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    causes(error).iter().fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[derive(Debug)]
    struct Chain(&'static [&'static str], Option<Box<Chain>>);

    impl Chain {
        fn of(texts: &'static [&'static str]) -> Self {
            Chain(texts, (texts.len() > 1).then(|| Box::new(Chain::of(&texts[1..]))))
        }
    }

    impl std::fmt::Display for Chain {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0[0])
        }
    }

    impl Error for Chain {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn a_cause_that_was_told_is_not_told_again() {
        let error = Chain::of(&["cannot open /a: denied", "denied", "denied", "errno 13", "denied"]);
        assert_eq!(causes(&error), ["errno 13", "denied"]);
        assert_eq!(with_causes(&error), "cannot open /a: denied: errno 13: denied");
        assert_eq!(with_causes(&Chain::of(&["alone"])), "alone");
    }

    #[test]
    fn what_steers_a_terminal_is_harmful() {
        let ranges = ['\0'..='\u{1f}', '\u{7f}'..='\u{9f}', '\u{61c}'..='\u{61c}', '\u{200e}'..='\u{200f}'];
        let ranges = ranges.into_iter().chain(['\u{2028}'..='\u{202e}', '\u{2066}'..='\u{2069}']);
        let expected: Vec<char> = ranges.flatten().collect();
        let found: Vec<char> = ('\0'..=char::MAX).filter(|letter| is_harmful(*letter)).collect();
        assert_eq!(found, expected);
    }
}

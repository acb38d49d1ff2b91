//! Errors and warnings, with their places in the source.

use std::fmt;

use crate::text::is_harmful;

/// A place in a source, by the number of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(super) struct Span {
    pub(super) file: u32,
    /// From 1.
    pub(super) line: u32,
    /// In characters, from 1.
    pub(super) column: u32,
    /// In characters.
    pub(super) width: u32,
}

impl Span {
    /// Extends `self` to the end of `last`, if both are on one line.
    pub(super) fn to(self, last: Span) -> Span {
        let end = last.column + last.width;
        if self.file != last.file || self.line != last.line || end < self.column {
            return self;
        }
        Span { width: end - self.column, ..self }
    }
}

/// A message about a place in a source. [`Display`](fmt::Display) prints both, with the line and a caret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Name of the file.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// Number of characters.
    pub width: u32,
    /// The line itself.
    pub source: String,
    /// The error and its fix.
    pub message: String,
    /// The rank, if not all ranks have it.
    pub rank: Option<u32>,
}

/// Characters of a line that are printed.
const SHOWN: usize = 140;
/// Characters printed before the place if the line is longer.
const BEFORE: usize = 60;

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The content of a file must not control the terminal. A tab stays.
        let safe = |text: &str| text.replace(|c| c != '\t' && is_harmful(c), "\u{fffd}");
        write!(f, "{}:{}:{}: ", safe(&self.file), self.line, self.column)?;
        if let Some(rank) = self.rank {
            write!(f, "on rank {rank}: ")?;
        }
        writeln!(f, "{}", safe(&self.message))?;
        let number = self.line.to_string();
        let margin = number.len();
        let column = (self.column as usize).saturating_sub(1);
        let skip = if self.source.chars().nth(SHOWN).is_some() { column.saturating_sub(BEFORE) } else { 0 };
        let is_tab = |c: char| if c == '\t' { '\t' } else { ' ' };
        let shown = safe(&self.source.chars().skip(skip).take(SHOWN).collect::<String>());
        let indent: String = shown.chars().take(column - skip).map(is_tab).collect();
        let room = SHOWN.saturating_sub(column - skip).max(1);
        let carets = "^".repeat((self.width as usize).clamp(1, room));
        writeln!(f, "{number} | {shown}")?;
        write!(f, "{:margin$} | {indent}{carets}", "")
    }
}

/// Findings after which parsing, or the evaluation of ranks, stops: a file or loop may be wrong in every line or round.
pub(super) const FINDINGS_MAX: usize = 1000;

/// The errors of a source, by place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Errors {
    /// The first ones.
    pub errors: Vec<Diagnostic>,
    /// Number of errors found beyond these.
    pub more: usize,
    /// Whether the search ended early, so that there may be errors that were not found.
    pub is_partial: bool,
}

impl std::error::Error for Errors {}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            error.fmt(f)?;
        }
        match (self.more, self.is_partial) {
            (0, _) => Ok(()),
            (more, false) => write!(f, "\nand {more} more"),
            (more, true) => write!(f, "\nand at least {more} more"),
        }
    }
}

/// A finding whose place is still a [`Span`].
#[derive(Debug, Clone)]
pub(super) struct Finding {
    pub(super) span: Span,
    pub(super) message: String,
    pub(super) rank: Option<u32>,
    /// The undefined name it is about, if any.
    pub(super) unknown: Option<Unknown>,
}

/// An undefined name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unknown {
    pub(super) name: String,
    pub(super) is_label: bool,
}

impl Finding {
    pub(super) fn new(span: Span, message: impl Into<String>) -> Self {
        Finding { span, message: message.into(), rank: None, unknown: None }
    }

    /// About an undefined name.
    pub(super) fn unknown(span: Span, message: String, name: &str, is_label: bool) -> Self {
        Finding { unknown: Some(Unknown { name: name.to_owned(), is_label }), ..Finding::new(span, message) }
    }
}

/// The files of a source: name and text.
#[derive(Debug, Default)]
pub(super) struct Files(pub(super) Vec<(String, String)>);

impl Files {
    pub(super) fn add(&mut self, name: &str, text: String) -> u32 {
        self.0.push((name.to_owned(), text));
        self.0.len() as u32 - 1
    }

    pub(super) fn diagnostic(&self, finding: Finding) -> Diagnostic {
        let Span { file, line, column, width } = finding.span;
        let (name, text) = self.0.get(file as usize).map_or(("", ""), |(name, text)| (name, text));
        let source = text.lines().nth((line as usize).saturating_sub(1)).unwrap_or("").to_owned();
        Diagnostic { file: name.to_owned(), line, column, width, source, message: finding.message, rank: finding.rank }
    }

    /// Converts findings to errors: one for each place, in order, at most `most`. `hint` corrects undefined names in these.
    pub(super) fn errors(
        &self,
        mut findings: Vec<Finding>,
        most: usize,
        hint: impl Fn(Span, &Unknown) -> String,
    ) -> Errors {
        findings.sort_by_key(|finding| finding.span);
        findings.dedup_by_key(|finding| finding.span);
        let more = findings.len().saturating_sub(most);
        findings.truncate(most);
        let hinted = |mut finding: Finding| {
            finding.message += &finding.unknown.as_ref().map_or_else(String::new, |it| hint(finding.span, it));
            self.diagnostic(finding)
        };
        Errors { errors: findings.into_iter().map(hinted).collect(), more, is_partial: false }
    }

    /// Converts findings that are not about undefined names.
    pub(super) fn plain_errors(&self, findings: Vec<Finding>, most: usize) -> Errors {
        self.errors(findings, most, |_, _| String::new())
    }
}

/// Largest edit distance of a suggested name.
const NEAR: usize = 2;

/// Returns the nearest of `names`, within [`NEAR`] edits and fewer edits than the word has letters.
pub(super) fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let letters: Vec<char> = word.chars().collect();
    let near =
        names.filter_map(|name| Some((distance(&letters, name)?, name))).min_by_key(|(distance, _)| *distance)?;
    (near.0 < letters.len()).then_some(near.1)
}

/// Returns `; did you mean X?`, or an empty text.
pub(super) fn did_you_mean<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> String {
    nearest(word, names).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

/// Returns the edit distance, with swaps of neighbours; `None` above [`NEAR`].
fn distance(a: &[char], b: &str) -> Option<usize> {
    // Most names differ in length already.
    if b.len() < a.len().saturating_sub(NEAR) {
        return None;
    }
    let b: Vec<char> = b.chars().take(a.len() + NEAR + 1).collect();
    if a.len().abs_diff(b.len()) > NEAR {
        return None;
    }
    let far = NEAR + 1;
    let mut two_before = vec![far; b.len() + 1];
    let mut before: Vec<usize> = (0..=b.len()).map(|letters| letters.min(far)).collect();
    let mut row = vec![far; b.len() + 1];
    for i in 1..=a.len() {
        // Cells farther from the diagonal exceed the distance.
        let (first, last) = (i.saturating_sub(NEAR).max(1), (i + NEAR).min(b.len()));
        row.fill(far);
        row[0] = i.min(far);
        for j in first..=last {
            let change = before[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = change.min(before[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(two_before[j - 2] + 1);
            }
            row[j] = best.min(far);
        }
        std::mem::swap(&mut two_before, &mut before);
        std::mem::swap(&mut before, &mut row);
    }
    Some(before[b.len()]).filter(|distance| *distance <= NEAR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found() {
        let away = |a: &str, b: &str| distance(&a.chars().collect::<Vec<char>>(), b);
        assert_eq!(away("kitten", "sitting"), None);
        assert_eq!(away("kitten", "sittin"), Some(2));
        assert_eq!(away("sned", "send"), Some(1));
        assert_eq!((away("", "ab"), away("ab", ""), away("abc", "")), (Some(2), Some(2), None));
        assert_eq!((away("abcd", "cdab"), away("abcdef", "cdefab")), (None, None));
        assert_eq!(nearest("sorce", ["source", "bytes"].into_iter()), Some("source"));
        assert_eq!(nearest("x", ["y"].into_iter()), None);
    }

    #[test]
    fn a_file_does_not_steer_the_terminal() {
        let source = format!("\u{1b}[2J{}", " x".repeat(300));
        let place =
            Diagnostic { file: "a".into(), line: 1, column: 400, width: 900, source, message: "m".into(), rank: None };
        let shown = place.to_string();
        assert!(!shown.contains('\u{1b}'));
        assert!(shown.lines().all(|line| line.chars().count() < 160), "{shown}");
        let message = "a\u{1b}]0;b\u{7}\r\nc\u{202e}d\u{2066}e".to_owned();
        let place = Diagnostic { file: "f\u{1b}[2J\n".into(), message, width: 1, column: 1, ..place };
        let shown = place.to_string();
        let expected = "f\u{fffd}[2J\u{fffd}:1:1: a\u{fffd}]0;b\u{fffd}\u{fffd}\u{fffd}c\u{fffd}d\u{fffd}e";
        assert_eq!(shown.lines().next(), Some(expected));
        let source = "\ta\u{61c}b\u{200e}c\u{200f}d\u{2028}e\u{2029}f".to_owned();
        let shown = Diagnostic { source, ..place }.to_string();
        assert!(shown.contains("1 | \ta\u{fffd}b\u{fffd}c\u{fffd}d\u{fffd}e\u{fffd}f\n"), "{shown}");
    }
}

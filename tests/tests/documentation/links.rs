//! Links and anchors of a page in Markdown.

use std::collections::{BTreeMap, BTreeSet};

/// The page's lines outside of code: blocks between fences, and lines that are indented by four blanks after an empty line.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let (mut is_fenced, mut is_code, mut is_after_empty) = (false, false, true);
    page.lines().filter(move |line| {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
            return false;
        }
        is_code = line.starts_with("    ") && (is_after_empty || is_code);
        is_after_empty = line.is_empty();
        !is_fenced && !is_code
    })
}

/// Leaves out what is between backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// What the links and pictures of a page lead to.
pub(crate) fn links(page: &str) -> Vec<String> {
    let text: String = prose(page).map(|line| without_code(line) + "\n").collect();
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.split_whitespace().collect()).collect()
}

/// The anchors of the page's headings, as forges and mdbook make them: small letters, digits, `-` and `_`; blanks become `-`.
pub(crate) fn anchors(page: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let headings = prose(page).filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    headings
        .map(|heading| {
            let kept = heading.chars().filter(|one| one.is_alphanumeric() || " -_".contains(*one));
            let anchor: String = kept.map(|one| if one == ' ' { '-' } else { one.to_ascii_lowercase() }).collect();
            let before = *seen.entry(anchor.clone()).and_modify(|count| *count += 1).or_insert(0);
            if before == 0 { anchor } else { format!("{anchor}-{before}") }
        })
        .collect()
}

#[test]
fn links_are_found_outside_of_code() {
    let page =
        "# One `two`: three_4 -- five\n[a](b.md#c) `[x](y)` ![d](e.svg)\n```\n[f](g)\n```\n\n    [h](i)\n\n# A\n# A\n";
    assert_eq!(links(page), ["b.md#c", "e.svg"]);
    assert_eq!(anchors(page), ["a", "a-1", "one-two-three_4----five"].map(String::from).into());
}

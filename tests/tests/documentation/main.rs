//! The documentation: its pictures are drawn from their text, its links lead somewhere, and the book has all pages.
#![forbid(unsafe_code)]

mod faults;
mod links;
mod overview;

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

#[test]
fn the_picture_is_drawn_from_its_text() {
    let text = fs::read_to_string(root().join("docs/overview.txt")).unwrap();
    let committed = fs::read_to_string(root().join("docs/overview.svg")).unwrap_or_default();
    assert!(
        committed == overview::draw(&text),
        "docs/overview.svg is not drawn from docs/overview.txt: \
         cargo run -p fpga-tests --example overview > docs/overview.svg"
    );
}

/// All pages of the project, as paths from its root.
fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && !name.starts_with('.') && name != "target" {
                folders.push(path);
            } else if name.ends_with(".md") {
                pages.push(path.strip_prefix(root()).unwrap().to_owned());
            }
        }
    }
    pages.sort();
    pages
}

#[test]
fn every_link_leads_somewhere() {
    let pages = pages();
    let read = |page: &Path| fs::read_to_string(root().join(page)).unwrap();
    let (mut broken, mut count) = (Vec::new(), 0);
    for page in &pages {
        for link in links::links(&read(page)) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            count += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let is_page = target.extension().is_some_and(|extension| extension == "md");
            let has_anchor = || is_page && links::anchors(&read(&target)).contains(anchor);
            if !(root().join(&target).exists() && (anchor.is_empty() || has_anchor())) {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
    assert!(count > 100, "only {count} links found");
}

#[test]
fn every_test_of_the_table_of_faults_exists() {
    let rows = faults::rows(&fs::read_to_string(root().join("docs/faults.md")).unwrap());
    assert!(rows.len() >= 40, "{} faults", rows.len());
    for (place, row) in rows.iter().enumerate() {
        assert_eq!(row.number, place + 1, "rows are numbered");
        assert!(!row.tests.is_empty(), "row {} names no test", row.number);
        for (file, test) in &row.tests {
            let text = fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
            assert!(faults::has_test(&text, test), "row {}: {file} has no test {test}", row.number);
        }
    }
}

#[test]
fn the_book_has_every_page_of_the_documentation() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let listed = links::links(&summary);
    for page in pages().iter().filter_map(|page| page.strip_prefix("docs").ok()) {
        let page = page.to_str().unwrap();
        assert!(page == "SUMMARY.md" || listed.iter().any(|one| one == page), "docs/SUMMARY.md has no {page}");
    }
}

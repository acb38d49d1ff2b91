//! The table of planted faults.

/// A row: its number, and its tests as file and name.
pub(crate) struct Row {
    pub(crate) number: usize,
    pub(crate) tests: Vec<(String, String)>,
}

/// The rows of all tables of the page.
pub(crate) fn rows(page: &str) -> Vec<Row> {
    page.lines().filter_map(row).collect()
}

fn row(line: &str) -> Option<Row> {
    let cells: Vec<&str> = line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect();
    let [number, _, _, _, tests] = cells[..] else { return None };
    let named = tests.split(", ").filter_map(|test| test.strip_prefix('`')?.strip_suffix('`')?.split_once("::"));
    let tests = named.map(|(file, test)| (file.to_owned(), test.to_owned())).collect();
    Some(Row { number: number.parse().ok()?, tests })
}

/// Returns whether `text` has this test: a function with the attribute, or one that a guest of the virtual machine runs.
pub(crate) fn has_test(text: &str, test: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let Some(place) = lines.iter().position(|line| line.starts_with(&format!("fn {test}("))) else { return false };
    let has_attribute = lines[place.saturating_sub(3)..place].contains(&"#[test]");
    has_attribute || lines.contains(&format!("{test},").as_str())
}

//! Reads `docs/architecture.md`: rooms, steps, the arrangement of the picture, and names in the text.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A part of a crate: some of its files.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) name: String,
    /// Files and folders, relative to the repository.
    pub(crate) files: Vec<PathBuf>,
    pub(crate) holds: String,
    /// Rooms of the same crate that this room uses, and other crates.
    pub(crate) uses: BTreeSet<String>,
}

/// A crate in the picture.
#[derive(Debug)]
pub(crate) struct Crate {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
}

#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) text: String,
    pub(crate) rooms: Vec<Room>,
    /// Numbers of the steps in each room.
    pub(crate) steps: BTreeMap<String, Vec<String>>,
    /// Rows of columns of crates.
    pub(crate) arrangement: Vec<Vec<Vec<Crate>>>,
}

/// The folder of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder above")
}

impl Page {
    pub(crate) fn read() -> Page {
        let file = root().join("docs/architecture.md");
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let rooms = table(&text, "## Rooms").map(Room::read).collect();
        let mut steps: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for row in table(&text, "## One collective") {
            let [step, room, ..] = &row[..] else { panic!("a step has no room: {row:?}") };
            steps.entry(room.clone()).or_default().push(step.clone());
        }
        let arrangement = arrangement(&text);
        Page { text, rooms, steps, arrangement }
    }

    /// The room of a file: of several, the one that names the longest path.
    pub(crate) fn room_of(&self, file: &Path) -> Option<&Room> {
        let length = |room: &Room| {
            let fitting = room.files.iter().filter(|path| file.starts_with(path));
            fitting.map(|path| path.components().count()).max()
        };
        self.rooms
            .iter()
            .filter_map(|room| Some((length(room)?, room)))
            .max_by_key(|(length, _)| *length)
            .map(|one| one.1)
    }

    /// The rooms of a crate, in the order of the page.
    pub(crate) fn rooms_in<'a>(&'a self, folder: &'a Path) -> impl Iterator<Item = &'a Room> {
        // `tools/src` has no `select`: a crate's folder is the one with its `lib.rs` or `main.rs`.
        self.rooms.iter().filter(move |room| room.files.iter().any(|file| file.starts_with(folder)))
    }

    pub(crate) fn crates(&self) -> impl Iterator<Item = &Crate> {
        self.arrangement.iter().flatten().flatten()
    }

    /// What stands in backquotes, and the targets of links.
    pub(crate) fn quoted(&self) -> BTreeSet<&str> {
        let in_fence = |(fenced, _): &(bool, &str)| !fenced;
        let mut fenced = false;
        let lines = self.text.lines().map(|line| {
            fenced ^= line.starts_with("```");
            (fenced || line.starts_with("```"), line)
        });
        let mut quoted = BTreeSet::new();
        for (_, line) in lines.filter(in_fence) {
            quoted.extend(line.split('`').skip(1).step_by(2));
            quoted.extend(line.split("](").skip(1).filter_map(|rest| rest.split(')').next()));
        }
        quoted
    }
}

impl Room {
    fn read(row: Vec<String>) -> Room {
        let [name, files, holds, uses] = &row[..] else { panic!("a room has four columns: {row:?}") };
        let list = |text: &str| -> Vec<String> {
            text.split(", ").filter(|one| !one.is_empty()).map(|one| one.trim_matches('`').to_owned()).collect()
        };
        Room {
            name: name.clone(),
            files: list(files).into_iter().map(PathBuf::from).collect(),
            holds: holds.clone(),
            uses: list(uses).into_iter().collect(),
        }
    }
}

/// The rows of the table in the section with this heading.
fn table<'a>(text: &'a str, heading: &str) -> impl Iterator<Item = Vec<String>> + use<'a> {
    let mut lines = text.lines();
    assert!(lines.any(|line| line == heading), "docs/architecture.md has no section \"{heading}\"");
    let section = lines.take_while(|line| !line.starts_with("## "));
    section
        .filter(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
}

/// Reads the block ```` ```picture ````: a line is a row, `|` separates columns, and `,` crates in a column.
fn arrangement(text: &str) -> Vec<Vec<Vec<Crate>>> {
    let block = text.split("```picture\n").nth(1).and_then(|rest| rest.split("```").next());
    let block = block.expect("docs/architecture.md has a block ```picture");
    let read = |text: &str| {
        let (name, folder) =
            text.split_once(" = ").unwrap_or_else(|| panic!("expected CRATE = FOLDER, found {text:?}"));
        Crate { name: name.trim().to_owned(), folder: folder.trim().into() }
    };
    let column = |text: &str| text.split(',').map(read).collect();
    block.lines().map(|row| row.split('|').map(column).collect()).collect()
}

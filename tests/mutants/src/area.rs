//! The parts of the project that are tested by mutation.

use std::path::Path;

use crate::Result;

pub struct Area {
    pub name: String,
    /// Files, as globs of cargo-mutants.
    pub files: Vec<String>,
}

const AREAS: [(&str, &[&str]); 5] = [
    ("driver", &["driver/src/**"]),
    ("verify", &["cmdseq/src/verify/**"]),
    ("matching", &["cmdseq/src/matching*", "cmdseq/src/matching/**"]),
    ("iova", &["hal/src/memory/iova.rs"]),
    ("vfio_user", &["hal/src/vfio_user/**"]),
];

impl Area {
    pub fn has(&self, file: &str) -> bool {
        self.files.iter().any(|glob| file.starts_with(glob.trim_end_matches('*')))
    }
}

/// The areas of these names, or all of them if there are no names. A name may also be the path of a file or a folder.
pub fn named(names: &[String]) -> Result<Vec<Area>> {
    if names.is_empty() {
        return Ok(AREAS.into_iter().map(known).collect());
    }
    names.iter().map(|name| one(name)).collect()
}

fn one(name: &str) -> Result<Area> {
    if let Some(area) = AREAS.into_iter().find(|area| area.0 == name) {
        return Ok(known(area));
    }
    let path = Path::new(name);
    let file = match (path.is_file(), path.is_dir()) {
        (true, _) => name.to_owned(),
        (_, true) => format!("{}/**", name.trim_end_matches('/')),
        _ => {
            let all = AREAS.map(|area| area.0).join(", ");
            return Err(format!("unknown area \"{name}\" (available: {all}, or a path)").into());
        }
    };
    Ok(Area { name: name.to_owned(), files: vec![file] })
}

fn known((name, files): (&str, &[&str])) -> Area {
    Area { name: name.to_owned(), files: files.iter().map(|file| (*file).to_owned()).collect() }
}

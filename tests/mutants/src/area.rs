//! The parts of the project that are tested by mutation.

use crate::Result;

pub struct Area {
    pub name: &'static str,
    /// Files, as globs of cargo-mutants.
    pub files: &'static [&'static str],
}

const AREAS: [Area; 5] = [
    Area { name: "driver", files: &["driver/src/**"] },
    Area { name: "verify", files: &["cmdseq/src/verify/**"] },
    Area { name: "matching", files: &["cmdseq/src/matching*", "cmdseq/src/matching/**"] },
    Area { name: "iova", files: &["hal/src/memory/iova.rs"] },
    Area { name: "vfio_user", files: &["hal/src/vfio_user/**"] },
];

impl Area {
    pub fn has(&self, file: &str) -> bool {
        self.files.iter().any(|glob| file.starts_with(glob.trim_end_matches('*')))
    }
}

/// The areas of these names, or all of them if there are no names.
pub fn named(names: &[String]) -> Result<Vec<Area>> {
    let known = AREAS.map(|area| area.name).join(", ");
    if let Some(name) = names.iter().find(|name| !AREAS.iter().any(|area| area.name == name.as_str())) {
        return Err(format!("unknown area \"{name}\" (available: {known})").into());
    }
    Ok(AREAS.into_iter().filter(|area| names.is_empty() || names.iter().any(|name| name == area.name)).collect())
}

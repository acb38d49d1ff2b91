//! Verdicts on file as they come, so that a run that was cut short goes on where it ended.
//!
//! A verdict holds as long as the changed file is the same. One that says "survived" holds only as long as all code of the project is
//! the same, and MUTANTS_SECONDS too, because another test may notice the change.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::attempt::{Verdict, far_seconds};
use crate::list::Mutant;
use crate::tree;

#[derive(Serialize, Deserialize)]
struct Entry {
    mutant: String,
    /// Hash of the changed file.
    file: u64,
    /// Hash of all code, and of the time for tests of other crates.
    project: u64,
    verdict: Verdict,
}

pub struct Kept {
    log: Mutex<File>,
    files: HashMap<String, u64>,
    project: u64,
}

impl Kept {
    /// Opens the log, and returns the verdicts of earlier runs that still hold.
    pub fn open(path: &Path, mutants: &[Mutant]) -> Result<(Self, BTreeMap<u32, Verdict>)> {
        let mut files = HashMap::new();
        let mut project = DefaultHasher::new();
        far_seconds().to_bits().hash(&mut project);
        for file in tree::files()?.into_iter().filter(|file| file.ends_with(".rs")) {
            let text = fs::read(&file)?;
            (&file, &text).hash(&mut project);
            let mut hasher = DefaultHasher::new();
            text.hash(&mut hasher);
            files.insert(file, hasher.finish());
        }
        let log = OpenOptions::new().append(true).create(true).open(path)?;
        let kept = Self { log: Mutex::new(log), files, project: project.finish() };

        let ids: HashMap<&str, &Mutant> = mutants.iter().map(|mutant| (mutant.name.as_str(), mutant)).collect();
        let mut verdicts = BTreeMap::new();
        for line in fs::read_to_string(path)?.lines() {
            let Ok(entry) = serde_json::from_str::<Entry>(line) else { continue };
            let Some(mutant) = ids.get(entry.mutant.as_str()) else { continue };
            let is_project_same = entry.project == kept.project || !matches!(entry.verdict, Verdict::Survived { .. });
            if kept.files.get(&mutant.file) == Some(&entry.file) && is_project_same {
                verdicts.insert(mutant.id, entry.verdict);
            }
        }
        Ok((kept, verdicts))
    }

    pub fn add(&self, mutant: &Mutant, verdict: &Verdict) {
        let file = self.files.get(&mutant.file).copied().unwrap_or_default();
        let entry = Entry { mutant: mutant.name.clone(), file, project: self.project, verdict: verdict.clone() };
        // The line break comes first, so that a line that was cut short spoils no other.
        let line = format!("\n{}", serde_json::to_string(&entry).unwrap());
        if let Err(error) = self.log.lock().unwrap().write_all(line.as_bytes()) {
            eprintln!("{} is not kept: {error}", mutant.name);
        }
    }
}

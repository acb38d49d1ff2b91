//! Who holds a card: processes that have its VFIO node open, as far as this user may look.

use std::fs;
use std::path::{Path, PathBuf};

use crate::attribute;
use crate::error::Result;
use crate::root::Sysfs;

/// Descriptors of one process that are looked at.
const MOST_DESCRIPTORS: usize = 1 << 20;

/// A process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub id: u32,
    /// Its name, as `/proc/PID/comm` has it.
    pub name: String,
}

/// Processes that have one of some nodes open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owners {
    /// Those found, by id.
    pub found: Vec<Process>,
    /// Processes that this user may not look into.
    pub hidden: usize,
}

impl Sysfs {
    /// Processes that have one of `nodes` open, named as the kernel names them (`/dev/vfio/12`).
    ///
    /// # Errors
    /// If `/proc` is there and cannot be read.
    pub fn owners(&self, nodes: &[PathBuf]) -> Result<Owners> {
        let (found, hidden) = self.holders(&|target, _| nodes.iter().any(|node| node == target).then_some(()))?;
        Ok(Owners { found: found.into_iter().map(|(process, ())| process).collect(), hidden })
    }

    /// Processes of which a descriptor is wanted, each with what `wanted` gives for the first such one, and how many this
    /// user may not look into. `wanted` is given what a descriptor points to, and the path by which that can be looked at.
    pub(crate) fn holders<T>(&self, wanted: &dyn Fn(&Path, &Path) -> Option<T>) -> Result<(Vec<(Process, T)>, usize)> {
        let processes = self.path("/proc");
        let names = attribute::names(&processes)?.unwrap_or_default();
        let mut ids: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
        ids.sort_unstable();
        let (mut found, mut hidden) = (Vec::new(), 0);
        for id in ids {
            match first_open(&processes.join(id.to_string()), wanted) {
                Ok(Some(open)) => found.push((self.process(id), open)),
                Ok(None) => {}
                // One that has ended meanwhile holds nothing.
                Err(error) if attribute::is_absence(&error) => {}
                Err(_) => hidden += 1,
            }
        }
        Ok((found, hidden))
    }

    /// The process `id`, which may have ended.
    pub(crate) fn process(&self, id: u32) -> Process {
        let directory = self.path("/proc").join(id.to_string());
        Process { id, name: attribute::text(&directory.join("comm")).ok().flatten().unwrap_or_default() }
    }
}

fn first_open<T>(process: &Path, wanted: &dyn Fn(&Path, &Path) -> Option<T>) -> std::io::Result<Option<T>> {
    for entry in fs::read_dir(process.join("fd"))?.take(MOST_DESCRIPTORS) {
        // A descriptor may be closed while they are read.
        let Ok(path) = entry.map(|entry| entry.path()) else { continue };
        if let Some(open) = fs::read_link(&path).ok().and_then(|target| wanted(&target, &path)) {
            return Ok(Some(open));
        }
    }
    Ok(None)
}

//! Processes that have the VFIO node of a card open, as far as this user may see.

use std::fs;
use std::path::{Path, PathBuf};

use crate::attribute;
use crate::error::Result;
use crate::root::Sysfs;

/// A process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub id: u32,
    /// Name, from `/proc/PID/comm`.
    pub name: String,
}

/// Processes that have one of some nodes open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owners {
    /// The processes found, by id.
    pub found: Vec<Process>,
    /// Number of processes that this user may not examine.
    pub hidden: usize,
}

impl Sysfs {
    /// Returns the processes that have one of `nodes` open. Nodes are paths of the kernel (`/dev/vfio/12`).
    ///
    /// # Errors
    /// If `/proc` exists and cannot be read.
    pub fn owners(&self, nodes: &[PathBuf]) -> Result<Owners> {
        let (found, hidden) = self.holders(&|target, _| nodes.iter().any(|node| node == target).then_some(()))?;
        Ok(Owners { found: found.into_iter().map(|(process, ())| process).collect(), hidden })
    }

    /// Returns processes with a wanted descriptor, each with the result of `wanted` for the first such descriptor, and the number
    /// of processes that this user may not examine. `wanted` receives the target of a descriptor, and a path to examine it.
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
                // A process that ended meanwhile has no descriptors.
                Err(error) if attribute::is_absence(&error) => {}
                Err(_) => hidden += 1,
            }
        }
        Ok((found, hidden))
    }

    /// Returns the process `id`, which may have ended.
    pub(crate) fn process(&self, id: u32) -> Process {
        let directory = self.path("/proc").join(id.to_string());
        Process { id, name: attribute::text(&directory.join("comm")).ok().flatten().unwrap_or_default() }
    }
}

fn first_open<T>(process: &Path, wanted: &dyn Fn(&Path, &Path) -> Option<T>) -> std::io::Result<Option<T>> {
    for entry in fs::read_dir(process.join("fd"))? {
        // A descriptor may be closed while they are read.
        let Ok(path) = entry.map(|entry| entry.path()) else { continue };
        if let Some(open) = fs::read_link(&path).ok().and_then(|target| wanted(&target, &path)) {
            return Ok(Some(open));
        }
    }
    Ok(None)
}

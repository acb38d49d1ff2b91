//! Who holds a card: processes that have its VFIO node open, as far as this user may look.

use std::fs;
use std::path::{Path, PathBuf};

use super::attribute;
use super::{Result, Sysfs};

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
        let processes = self.path("/proc");
        let names = attribute::names(&processes)?.unwrap_or_default();
        let mut ids: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
        ids.sort_unstable();
        let mut owners = Owners::default();
        for id in ids {
            let directory = processes.join(id.to_string());
            match has_open(&directory, nodes) {
                Ok(true) => {
                    let name = attribute::text(&directory.join("comm")).ok().flatten().unwrap_or_default();
                    owners.found.push(Process { id, name });
                }
                Ok(false) => {}
                // One that has ended meanwhile holds nothing.
                Err(error) if attribute::is_absence(&error) => {}
                Err(_) => owners.hidden += 1,
            }
        }
        Ok(owners)
    }
}

fn has_open(process: &Path, nodes: &[PathBuf]) -> std::io::Result<bool> {
    for entry in fs::read_dir(process.join("fd"))?.take(MOST_DESCRIPTORS) {
        let target = entry.and_then(|entry| fs::read_link(entry.path()));
        // A descriptor may be closed while they are read.
        if target.is_ok_and(|target| nodes.contains(&target)) {
            return Ok(true);
        }
    }
    Ok(false)
}

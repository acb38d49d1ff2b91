//! Which mutant of this build is on: the one that FPGA_MUTANT names. With FPGA_MUTANTS_REACHED, no mutant is on, and the ids that
//! are reached are added to that file.
//!
//! Copied into each switched crate; not part of this program.
#![allow(missing_docs)]
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

const NONE: u32 = u32::MAX;
const RECORD: u32 = u32::MAX - 1;

static ACTIVE: OnceLock<u32> = OnceLock::new();
static REACHED: [AtomicBool; 8192] = [const { AtomicBool::new(false) }; 8192];

#[inline(never)]
pub fn on(id: u32) -> bool {
    let active = *ACTIVE.get_or_init(|| match std::env::var("FPGA_MUTANT") {
        Ok(id) => id.parse().unwrap_or(NONE),
        Err(_) if std::env::var_os("FPGA_MUTANTS_REACHED").is_some() => RECORD,
        Err(_) => NONE,
    });
    if active == RECORD {
        reached(id);
    }
    active == id
}

#[cold]
fn reached(id: u32) {
    if REACHED[id as usize].swap(true, Ordering::Relaxed) {
        return;
    }
    let Some(path) = std::env::var_os("FPGA_MUTANTS_REACHED") else { return };
    if let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(path) {
        let _ = file.write_all(format!("{id}\n").as_bytes());
    }
}

//! The mutants that cargo-mutants knows.

use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::Result;
use crate::area::Area;

/// What a mutant changes, by cargo-mutants' names.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Genre {
    FnValue,
    BinaryOperator,
    UnaryOperator,
    MatchArm,
    MatchArmGuard,
    StructField,
}

/// A place in a file; lines and columns count from 1.
#[derive(Deserialize, Clone, Copy)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

#[derive(Deserialize, Clone, Copy)]
pub struct Span {
    pub start: Place,
    pub end: Place,
}

#[derive(Deserialize)]
pub struct Mutant {
    /// Number of its switch: its place in the list.
    #[serde(default)]
    pub id: u32,
    pub name: String,
    pub file: String,
    pub package: String,
    pub genre: Genre,
    pub replacement: String,
    pub span: Span,
}

pub fn mutants(areas: &[Area]) -> Result<Vec<Mutant>> {
    let files = areas.iter().flat_map(|area| &area.files).flat_map(|file| ["--file", file]);
    let output =
        Command::new("cargo").args(["mutants", "--list", "--json"]).args(files).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err("cargo mutants --list failed".into());
    }
    let mut mutants: Vec<Mutant> = serde_json::from_slice(&output.stdout)?;
    for (id, mutant) in mutants.iter_mut().enumerate() {
        mutant.id = id as u32;
    }
    Ok(mutants)
}

//! Gives the command the commit it was built from, for `--version`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let version = env!("CARGO_PKG_VERSION");
    let version = match packed_commit().or_else(commit) {
        Some(commit) => format!("{version} ({})", &commit[..12]),
        None => version.to_owned(),
    };
    println!("cargo:rustc-env=FPGACTL_VERSION={version}");
}

/// The commit that cargo notes in a packed source.
fn packed_commit() -> Option<String> {
    let note = fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, rest) = note.split_once("\"sha1\"")?;
    rest.split('"').nth(1).and_then(hexadecimal)
}

/// The commit that is checked out, if this is a checkout and git is installed.
fn commit() -> Option<String> {
    // A checkout of another project may hold this source, in a folder that git ignores.
    git(&["ls-files", "--error-unmatch", "Cargo.toml"])?;
    // HEAD names a branch or a commit; the others change if the branch moves. Some of them may not exist.
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
    for name in ["HEAD", "logs/HEAD", "packed-refs"].into_iter().chain(branch.as_deref()) {
        let file = PathBuf::from(git(&["rev-parse", "--git-path", name])?);
        if file.exists() {
            println!("cargo:rerun-if-changed={}", file.display());
        }
    }
    hexadecimal(&git(&["rev-parse", "HEAD"])?)
}

/// What git prints in this folder, or `None` if it fails.
fn git(arguments: &[&str]) -> Option<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn hexadecimal(text: &str) -> Option<String> {
    let is_commit = text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_commit.then(|| text.to_owned())
}

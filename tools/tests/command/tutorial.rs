//! The commands of `docs/tutorial.md`, in order, in one folder. Each prints what the page says it prints. With UPDATE=1 in the
//! environment the page is written anew.

use std::path::Path;
use std::process::Command;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/tutorial.md");

/// A line of the page, and what a reader does with it.
enum Part<'p> {
    /// Kept as it is.
    Text(&'p str),
    /// A command for the shell, with the lines that show it.
    Command { script: String, shown: Vec<&'p str> },
}

/// Splits the page at its `console` blocks. What the commands printed is left out.
fn parts(page: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut is_console = false;
    for line in page.lines() {
        match (is_console, line.strip_prefix("$ "), line.strip_prefix("> ")) {
            (true, Some(script), _) => parts.push(Part::Command { script: script.to_owned(), shown: vec![line] }),
            (true, None, Some(more)) => {
                let Some(Part::Command { script, shown }) = parts.last_mut() else {
                    panic!("no command before {line:?}")
                };
                script.push('\n');
                script.push_str(more);
                shown.push(line);
            }
            (true, None, None) if line != "```" => {}
            _ => {
                is_console = line == "```console";
                parts.push(Part::Text(line));
            }
        }
    }
    parts
}

/// Runs `script` with the command under test first in the path. Returns all that it prints.
fn printed(script: &str, folder: &Path) -> String {
    let command = Path::new(env!("CARGO_BIN_EXE_fpgactl")).parent().unwrap();
    let path = format!("{}:{}", command.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    for name in ["FPGACTL_CARDS", "FPGACTL_CALIBRATION", "COLUMNS", "RUST_LOG"] {
        shell.env_remove(name);
    }
    let shell = shell.env("FPGACTL_SYSFS_ROOT", "/nowhere").env("PATH", path).current_dir(folder);
    let output = shell.args(["-c", &format!("exec 2>&1\n{script}")]).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_command_of_the_tutorial_prints_what_the_page_says() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut now = String::new();
    let mut commands = 0;
    for part in parts(&page) {
        match part {
            Part::Text(line) => {
                now.push_str(line);
                now.push('\n');
            }
            Part::Command { script, shown } => {
                commands += 1;
                now.push_str(&shown.join("\n"));
                now.push('\n');
                now.push_str(&printed(&script, folder.path()));
            }
        }
    }
    assert!(commands > 0, "no commands in {PAGE}");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(PAGE, now).unwrap();
        return;
    }
    for (number, (expected, line)) in page.lines().zip(now.lines()).enumerate() {
        assert_eq!(line, expected, "docs/tutorial.md, line {}: UPDATE=1 writes the page anew", number + 1);
    }
    assert_eq!(page.lines().count(), now.lines().count(), "docs/tutorial.md: UPDATE=1 writes the page anew");
}

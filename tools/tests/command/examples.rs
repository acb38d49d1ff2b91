//! The examples for shells and sequencers: each file has a line `Run: COMMAND`, and `examples/README.md` has the same command.

use std::fs;
use std::path::Path;
use std::process::Command;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples");

/// Runs the command of a file in the folder of the examples. Returns what it prints.
fn run(file: &str) -> String {
    let text = fs::read_to_string(Path::new(EXAMPLES).join(file)).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("# Run: ")).unwrap_or_else(|| panic!("{file}: no Run:"));
    let index = fs::read_to_string(Path::new(EXAMPLES).join("README.md")).unwrap();
    assert!(index.contains(&format!("| `{line}` |")), "README.md has no `{line}`");
    let mut shell = Command::new("sh");
    for name in ["FPGACTL_CARDS", "FPGACTL_CALIBRATION", "COLUMNS", "RUST_LOG"] {
        shell.env_remove(name);
    }
    let command = Path::new(env!("CARGO_BIN_EXE_fpgactl")).parent().unwrap();
    let path = format!("{}:{}", command.display(), std::env::var("PATH").unwrap());
    shell.env("FPGACTL_STATS_DIR", "none").env("FPGACTL_SYSFS_ROOT", "/nowhere").env("PATH", path);
    let output = shell.current_dir(EXAMPLES).args(["-c", line]).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_program_computes_what_it_says() {
    let mut count = 0;
    for entry in fs::read_dir(Path::new(EXAMPLES).join("seq")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let printed = run(&format!("seq/{name}"));
        // The command line has `--expect`, which refuses a program that computes anything else.
        assert!(printed.contains("  done  "), "{name} prints {printed}");
        count += 1;
    }
    assert!(count > 0, "no programs");
}

/// Large broadcasts are fastest over several paths, small ones are not.
#[test]
fn the_sweep_finds_the_crossover() {
    let printed = run("shell/crossover.sh");
    let rows: Vec<Vec<&str>> = printed.lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!(rows.iter().map(|row| row[0]).collect::<Vec<_>>(), ["64", "1024", "16384", "262144", "4194304"]);
    assert_eq!((rows[0][1], rows[4][1]), ("direct", "multipath"));
    assert!(rows.iter().all(|row| row[2].parse::<f64>().unwrap() > 0.0), "{printed}");
}

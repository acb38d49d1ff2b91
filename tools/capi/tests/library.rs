//! The libraries as C and C++ programs use them: header, symbols, pkg-config, examples.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Runs a command that must succeed, and returns what it prints.
fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{stdout}{stderr}");
    stdout.into_owned()
}

/// A folder with the libraries that cargo has built with this test: beside it, the static one with a hash in its name.
fn libraries() -> TempDir {
    let own = std::env::current_exe().unwrap();
    let folder = own.parent().unwrap();
    let newest = |extension: &str| -> PathBuf {
        let is_one = |path: &Path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let stem = name.strip_suffix(extension).and_then(|name| name.strip_prefix("libfpga"));
            stem.is_some_and(|stem| stem.is_empty() || stem.starts_with('-'))
        };
        let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| is_one(path));
        all.max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap()).expect("cargo has built the library")
    };
    let found = tempfile::tempdir().unwrap();
    for extension in [".so", ".a"] {
        fs::copy(newest(extension), found.path().join(format!("libfpga{extension}"))).unwrap();
    }
    found
}

/// libfpga as `tools/capi/install` installs it.
fn installed() -> TempDir {
    let (libraries, prefix) = (libraries(), tempfile::tempdir().unwrap());
    run(Command::new(format!("{HERE}/install")).arg(prefix.path()).arg(libraries.path()));
    prefix
}

/// What pkg-config says, as arguments.
fn pkg_config(prefix: &TempDir, arguments: &[&str]) -> Vec<String> {
    let folder = prefix.path().join("lib/pkgconfig");
    let said = run(Command::new("pkg-config").args(arguments).arg("fpga").env("PKG_CONFIG_PATH", folder));
    said.split_whitespace().map(str::to_owned).collect()
}

/// Compiles an example with all warnings as errors.
fn compile(prefix: &TempDir, compiler: &str, standard: &str, source: &str, link: &[String]) -> PathBuf {
    let name = Path::new(source).file_name().unwrap().to_str().unwrap();
    let program = prefix.path().join(name.replace('.', "-"));
    let mut command = Command::new(compiler);
    command.args([standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-D_POSIX_C_SOURCE=200809L", "-pthread"]);
    command.args(pkg_config(prefix, &["--cflags"])).arg(format!("{HERE}/{source}"));
    run(command.args(link).arg("-o").arg(&program));
    program
}

fn shared(prefix: &TempDir) -> Vec<String> {
    pkg_config(prefix, &["--libs"])
}

/// Generates the header, in C89: without comments that begin with `//`, and without a comma after the last enumerator.
fn header() -> String {
    let mut generated = Vec::new();
    cbindgen::generate(HERE).unwrap().write(&mut generated);
    let generated = String::from_utf8(generated).unwrap().replace(",\n}", "\n}");
    let in_c89 = |line: &str| match line.split_once("// ") {
        Some((code, comment)) => format!("{code}/* {comment} */\n"),
        None => format!("{line}\n"),
    };
    generated.lines().map(in_c89).collect()
}

/// To take a change over: the command that the failure prints.
#[test]
fn the_header_is_up_to_date() {
    let generated = header();
    let committed = fs::read_to_string(format!("{HERE}/include/fpga.h")).unwrap_or_default();
    let new = format!("{}/fpga.h", env!("CARGO_TARGET_TMPDIR"));
    fs::write(&new, &generated).unwrap();
    assert!(committed == generated, "fpga.h differs from the code: cp {new} {HERE}/include/fpga.h");
}

/// Programs in C89 and C++98 may include it, and every program more than once, before and after the headers of the system.
#[test]
fn the_header_is_for_old_programs_too() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    let program = "#include <fpga.h>\n#include <pthread.h>\n#include <fpga.h>\nint main(void) { return FPGA_OK; }\n";
    fs::write(&source, program).unwrap();
    for (compiler, language, standard) in
        [("cc", "c", "-std=c89"), ("cc", "c", "-std=c99"), ("c++", "c++", "-std=c++98"), ("c++", "c++", "-std=c++11")]
    {
        let mut command = Command::new(compiler);
        command.args([standard, "-pedantic-errors", "-fsyntax-only", "-x", language, "-I"]);
        run(command.arg(format!("{HERE}/include")).arg(&source));
    }
}

/// Both libraries have what the list says, and the shared one nothing else.
#[test]
fn the_symbols_are_those_of_the_list() {
    let listed = fs::read_to_string(format!("{HERE}/symbols")).unwrap();
    let libraries = libraries();
    let symbols = |arguments: &[&str], library: &str| -> Vec<String> {
        let printed = run(Command::new("nm").args(arguments).arg(libraries.path().join(library)));
        let mut names: Vec<String> =
            printed.lines().filter_map(|line| line.split_once(" T ")).map(|(_, name)| name.to_owned()).collect();
        names.sort();
        names
    };
    let shared = run(Command::new("nm").args(["-D", "--defined-only"]).arg(libraries.path().join("libfpga.so")));
    assert_eq!(shared.lines().count(), listed.lines().count(), "other symbols than functions:\n{shared}");
    assert_eq!(symbols(&["-D", "--defined-only"], "libfpga.so").join("\n"), listed.trim_end());
    let in_archive = symbols(&["--defined-only"], "libfpga.a");
    let of_ours: Vec<&str> = in_archive.iter().map(String::as_str).filter(|name| name.starts_with("fpga_")).collect();
    assert_eq!(of_ours.join("\n"), listed.trim_end());
    let header = fs::read_to_string(format!("{HERE}/include/fpga.h")).unwrap();
    for name in listed.lines() {
        assert!(header.contains(&format!("{name}(")), "{name} is not in fpga.h");
    }
}

#[test]
fn the_examples_run() {
    let prefix = installed();
    let static_library = vec![format!("{}/lib/libfpga.a", prefix.path().display())];
    let private = pkg_config(&prefix, &["--libs", "--static"]).into_iter().filter(|word| word != "-lfpga");
    let static_libraries = [static_library, private.collect()].concat();
    let programs = [
        ("cc", "-std=c99", "../../examples/c/allreduce.c", shared(&prefix), "allreduce of 1024 floats on 4 cards"),
        ("cc", "-std=c11", "../../examples/c/allreduce.c", static_libraries, "allreduce of 1024 floats on 4 cards"),
        ("c++", "-std=c++17", "../../examples/c/broadcast.cpp", shared(&prefix), "broadcast of 65536 bytes to 4 cards"),
        ("cc", "-std=c11", "tests/misuse.c", shared(&prefix), "every misuse was an error"),
    ];
    for (compiler, standard, source, link, expected) in programs {
        let program = compile(&prefix, compiler, standard, source, &link);
        let printed = run(Command::new(&program).env("LD_LIBRARY_PATH", prefix.path().join("lib")));
        assert!(printed.contains(expected), "{source} prints:\n{printed}");
    }
}

/// The command's exit codes are the library's statuses.
#[test]
fn errors_have_their_statuses() {
    let prefix = installed();
    let program = compile(&prefix, "cc", "-std=c99", "../../examples/c/allreduce.c", &shared(&prefix));
    for (selector, status, text) in [
        ("moc:optweb:4", 2, "invalid selector"),
        ("mock:optweb:65", 4, "invalid fabric"),
        ("mock:alveo-xdma:1", 1, "no command sequencer"),
        ("vfio-user:/nowhere/0.sock", 4, "cannot open"),
        ("mock:optweb:4+cut=0-1", 6, "link"),
    ] {
        let output =
            Command::new(&program).arg(selector).env("LD_LIBRARY_PATH", prefix.path().join("lib")).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{selector}: {error}");
        assert!(error.contains(text), "{selector}: {error}");
    }
}

/// The guide shows the example as it is.
#[test]
fn the_guide_has_the_example() {
    let guide = fs::read_to_string(format!("{HERE}/../../docs/c.md")).unwrap();
    let example = fs::read_to_string(format!("{HERE}/../../examples/c/allreduce.c")).unwrap();
    assert!(guide.contains(&format!("```c\n{example}```\n")), "docs/c.md differs from examples/c/allreduce.c");
}

//! Generated files, beside `tests/generated`, and what is refused. With UPDATE=1 in the environment the files are written
//! anew. `fpga-tests` runs the code.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;

use fpga_channels::{Definition, Part, Refusal, generate, parse};

fn mixed() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/generated/mixed.xml")).unwrap()
}

fn definition(text: &str) -> Definition {
    parse(text.as_bytes()).unwrap()
}

/// Renames two ends, and generates these parts.
fn renamed(first: &str, second: &str, parts: &[Part]) -> Result<usize, Refusal> {
    let text = mixed().replace("simple_out", first).replace("simple_in", second);
    generate(&definition(&text), "app", parts, &[]).map(|files| files.len())
}

#[test]
fn files_are_as_expected() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/generated");
    let files = generate(&definition(&mixed()), "mixed", &Part::ALL, &[]).unwrap();
    let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["mixed_cl.h", "mixed_host.h", "mixed_host.c", "mixed_channels.rs"]);
    let mut wrong = Vec::new();
    for file in &files {
        let path = directory.join(&file.name);
        assert!(!file.text.contains('@'), "{}: a template is not filled", file.name);
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, &file.text).unwrap();
        } else if fs::read_to_string(&path).ok().as_deref() != Some(&file.text) {
            wrong.push(format!("{} is not what is generated:\n{}", path.display(), file.text));
        }
    }
    assert!(wrong.is_empty(), "{}\nUPDATE=1 writes the files anew", wrong.join("\n"));
}

#[test]
fn only_what_is_asked_for_is_generated() {
    let mixed = definition(&mixed());
    for (part, names) in [
        (Part::Device, &["a-b_cl.h"] as &[&str]),
        (Part::Host, &["a-b_host.h", "a-b_host.c"]),
        (Part::Rust, &["a_b_channels.rs"]),
    ] {
        let files = generate(&mixed, "a-b", &[part], &[]).unwrap();
        assert_eq!(files.iter().map(|file| file.name.as_str()).collect::<Vec<_>>(), names);
        assert!(files.iter().all(|file| file.part == part));
    }
    assert_eq!(generate(&mixed, "app", &[], &[]), Ok(Vec::new()));
    let text = &generate(&mixed, "app", &[Part::Device], &["wide_in".into()]).unwrap()[0].text;
    assert!(text.contains("circus_receive_wide_in") && text.contains("circus_demultiplexer"), "{text}");
    for other in ["simple_", "match", "wide_out", "multiplexer(void)\n{\n    uint16 held", "fp16"] {
        assert!(!text.contains(other), "{other}: {text}");
    }
    let unknown = generate(&mixed, "app", &Part::ALL, &["wide_in".into(), "wide".into()]);
    let message = "no end wide in the definition (available: simple_out, simple_in, match, self, wide_out, wide_in)";
    assert_eq!(unknown.unwrap_err().to_string(), message);
}

#[test]
fn names_that_generated_code_cannot_have_are_refused() {
    for name in ["float", "uint4", "kernel", "channel", "while", "_out", "__x", "circus_x", "Circus_Out", "max", "NULL"]
    {
        let refusal = renamed(name, "simple_in", &[Part::Device]).unwrap_err();
        let Refusal::Reserved { name: refused, .. } = &refusal else { panic!("{refusal}") };
        assert_eq!(refused, name);
    }
    // Ends that are not generated may have any name.
    let text = mixed().replace("simple_out", "kernel");
    let files = generate(&definition(&text), "app", &Part::ALL, &["simple_in".into()]).unwrap();
    assert_eq!(files.len(), 4);
    // Words of Rust and C++ are not words of OpenCL.
    for name in ["fn", "Self", "crate", "new", "class", "Writer", "circus"] {
        assert_eq!(renamed(name, "simple_in", &Part::ALL), Ok(4), "{name}");
    }
    let application = |name: &str| generate(&definition(&mixed()), name, &[Part::Host], &[]).map(|files| files.len());
    for name in ["", "-x", "a b", "a\"", "a/b", "..", "a.b", "ｘ", "*/", &"x".repeat(65)] {
        assert_eq!(application(name), Err(Refusal::Application(name.into())));
    }
    assert_eq!(application("9-a_B"), Ok(2));
}

#[test]
fn two_names_are_not_one_type_in_rust() {
    let first = renamed("wide__out", "simple_in", &Part::ALL).unwrap_err();
    assert_eq!(
        first.to_string(),
        "channels wide__out and wide_out are both WideOutWriter in Rust: rename one, or generate no Rust"
    );
    assert_eq!(renamed("wide__out", "simple_in", &[Part::Device, Part::Host]), Ok(3));
    // A writer and a reader are different types.
    assert_eq!(renamed("x_y", "xY", &Part::ALL), Ok(4));
}

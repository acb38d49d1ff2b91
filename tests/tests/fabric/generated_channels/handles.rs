//! Generated Rust compiles without a warning, and moves typed words.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use fpga_channels::{Definition, Part, Scalar, generate};

/// A program that writes two words to each channel and reads them back.
fn program(definition: &Definition) -> String {
    let mut text = String::from("mod app_channels;\nuse app_channels::*;\nuse std::time::Duration;\nfn main() {\n");
    text += "let second = Duration::from_secs(1);\n";
    for channel in definition.channels() {
        let id = channel.id;
        let (element, other) = match channel.word.scalar() {
            Scalar::Float => ("-1.5_f32", "2.5"),
            Scalar::Double => ("-1.5_f64", "2.5"),
            Scalar::Char | Scalar::Short | Scalar::Int | Scalar::Long => ("-3", "100"),
            _ => ("200", "9"),
        };
        let elements = channel.word.elements();
        let word = |last: &str| match elements {
            1 => last.to_owned(),
            _ => format!("std::array::from_fn(|at| if at == {} {{ {last} }} else {{ {element} }})", elements - 1),
        };
        let (first, second) = (word(element), word(other));
        let bytes = channel.word.bits() / 8;
        let _ = write!(
            text,
            "{{ let network = fpga_driver::channel::Network::default();
            let mut writer = Out{id}Writer::open(&network, 1, 2).unwrap();
            let mut reader = In{id}Reader::open(&network, 2).unwrap();
            let words = [{first}, {second}];
            writer.write(&words, second).unwrap();
            writer.write_more(&words, second).unwrap();
            assert_eq!(writer.try_write(&words).unwrap(), 1);
            writer.flush(second).unwrap();
            writer.close(second).unwrap();
            let mut found = [words[0]; 5];
            assert_eq!(reader.read(&mut found[..2], second).unwrap(), 2);
            assert_eq!(found[..2], words);
            assert_eq!(reader.try_read(&mut found[2..3]).unwrap(), 1);
            assert_eq!(found[2], words[0]);
            found = [words[0]; 5];
            let error = reader.read_exact(&mut found[1..], second).unwrap_err();
            assert!(matches!(error, fpga_driver::channel::Error::TimedOut {{ done, .. }} if done == 2 * {bytes}));
            assert_eq!(found[..4], [words[0], words[1], words[0], words[0]]);
            let settings = Out{id}Writer::SETTINGS;
            assert_eq!((settings.id, settings.word_bytes, settings.depth), ({id}, {bytes}, 16));
            assert_eq!(In{id}Reader::SETTINGS, settings); }}\n"
        );
    }
    text + "}\n"
}

/// Runs the compiler that builds these tests.
#[track_caller]
fn rustc(directory: &Path, arguments: &[&str]) {
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut command = Command::new(compiler);
    command.args(["--edition=2024", "-Dwarnings"]).args(arguments).current_dir(directory);
    let output = command.output().expect("the compiler starts");
    assert!(output.status.success(), "{arguments:?}:\n{}", String::from_utf8_lossy(&output.stderr));
}

#[track_caller]
pub(crate) fn check(definition: &Definition) {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let [file] = &generate(definition, "app", &[Part::Rust], &[]).unwrap()[..] else { panic!("more than a file") };
    std::fs::write(at.join(&file.name), &file.text).unwrap();
    std::fs::write(at.join("main.rs"), program(definition)).unwrap();
    let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fabric/generated_channels/rust/driver.rs");
    rustc(at, &["--crate-type=rlib", "--crate-name=fpga_driver", driver.to_str().unwrap()]);
    rustc(at, &["main.rs", "--extern=fpga_driver=libfpga_driver.rlib"]);
    let output = Command::new(at.join("main")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

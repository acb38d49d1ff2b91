//! Channel definitions: what is refused, and where.

use std::fs;

use crate::{json, run, stdout};

#[test]
fn errors_of_definitions_are_7_and_have_their_place() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("app.xml");
    let valid = fs::read_to_string("tests/command/programs/pingpong.xml").unwrap();
    let name = path.to_str().unwrap();
    for (text, place, message) in [
        (valid.replacen("<width>512", "<width>256", 1), "6:12", "channel ping_out: width 256 does not fit uint16"),
        (valid.replace("pong_in", "ping_in"), "22:3", "channel ping_in: second channel of this name"),
        (valid.replace("<channels>", "<!DOCTYPE a [<!ENTITY b 'c'>]><channels>"), "3:1", "no document type"),
        (valid.replace("<depth>32", "<depth>\u{1b}[31m"), "25:12", "channel pong_in: invalid depth"),
        (String::new(), "1:1", "found the end of the file"),
        (" ".repeat(2 << 20), "1:1", "at most 1048576 bytes"),
    ] {
        fs::write(&path, text).unwrap();
        let output = run(&["channel", "check", name]);
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(7), "{printed}");
        assert!(output.stdout.is_empty() && !printed.contains('\u{1b}'), "{printed}");
        let (_, second) = printed.split_once('\n').unwrap();
        assert!(second.contains(message), "{printed}");
        assert!(second.starts_with(&format!("{name}:{place}: ")), "{printed}");
    }
    let output = run(&["channel", "check", directory.path().to_str().unwrap()]);
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(7), "{printed}");
    assert!(printed.contains("not a regular file"), "{printed}");
}

#[test]
fn code_is_generated_as_a_whole_or_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let definition = "tests/command/programs/pingpong.xml";
    let output = at("new/folder");
    let generate = |more: &[&'static str]| -> Vec<String> {
        [&["channel", "generate", definition, "--output", &output] as &[&str], more]
            .concat()
            .iter()
            .map(|one| one.to_string())
            .collect()
    };
    fn words(owned: &[String]) -> Vec<&str> {
        owned.iter().map(String::as_str).collect()
    }
    let printed = stdout(&words(&generate(&[])));
    let names = ["pingpong_cl.h", "pingpong_host.h", "pingpong_host.c", "pingpong_channels.rs"];
    for name in names {
        let text = fs::read_to_string(at(&format!("new/folder/{name}"))).unwrap();
        assert!(text.contains("pingpong") && printed.contains(&format!("{output}/{name}")), "{printed}");
    }
    // Files are replaced; others stay.
    fs::write(at("new/folder/pingpong_cl.h"), "old").unwrap();
    fs::write(at("new/folder/pingpong_host.c"), "mine").unwrap();
    let printed = json(&words(&generate(&["--only", "rust,device", "--ends", "pong_in,ping_out"])));
    assert_eq!(printed["schema"], "fpgactl.channel-generate/1");
    for (file, (part, name)) in
        printed["files"].as_array().unwrap().iter().zip([("device", names[0]), ("rust", names[3])])
    {
        let text = fs::read_to_string(at(&format!("new/folder/{name}"))).unwrap();
        assert_eq!((&file["part"], &file["bytes"]), (&part.into(), &text.len().into()));
        assert_eq!(file["file"], format!("{output}/{name}"));
        assert!(text.contains("ping_out") && text.contains("pong_in") && !text.contains("ping_in"), "{text}");
    }
    assert_eq!(fs::read_to_string(at("new/folder/pingpong_host.c")).unwrap(), "mine");
    // One file that cannot be written: none changes.
    fs::write(at("new/folder/pingpong_cl.h"), "old").unwrap();
    fs::remove_file(at("new/folder/pingpong_channels.rs")).unwrap();
    fs::create_dir(at("new/folder/pingpong_channels.rs")).unwrap();
    let failed = run(&words(&generate(&[])));
    assert_eq!(failed.status.code(), Some(7));
    assert_eq!(fs::read_to_string(at("new/folder/pingpong_cl.h")).unwrap(), "old");
    assert_eq!(fs::read_dir(at("new/folder")).unwrap().count(), 4);
}

#[test]
fn what_cannot_be_generated_is_7_and_writes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let valid = fs::read_to_string("tests/command/programs/pingpong.xml").unwrap();
    fs::write(at("keyword.xml"), valid.replace("ping_out", "kernel")).unwrap();
    fs::write(at("a b.xml"), &valid).unwrap();
    fs::write(at("wrong.xml"), valid.replacen("512", "511", 1)).unwrap();
    fs::write(at("file"), "").unwrap();
    for (name, output, ends, message) in [
        ("keyword.xml", "out", "kernel", "channel kernel: generated code cannot have this name"),
        ("a b.xml", "out", "ping_in", "invalid name \"a b\" of an application"),
        ("wrong.xml", "out", "ping_in", "width 511 does not fit"),
        ("keyword.xml", "file", "ping_in", "is a file: expected a directory"),
    ] {
        let output = run(&["channel", "generate", &at(name), "--output", &at(output), "--ends", ends]);
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(7), "{printed}");
        assert!(printed.contains(message), "{printed}");
        assert!(!directory.path().join("out").exists(), "{name}");
    }
    let unknown = run(&["channel", "generate", &at("keyword.xml"), "--output", &at("out"), "--ends", "ping_out"]);
    let printed = String::from_utf8(unknown.stderr).unwrap();
    assert_eq!(unknown.status.code(), Some(2), "{printed}");
    assert!(printed.contains("no end ping_out in the definition (available: kernel, ping_in"), "{printed}");
    assert!(!directory.path().join("out").exists());
}

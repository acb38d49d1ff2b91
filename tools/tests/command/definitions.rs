//! Channel definitions: what is refused, and where.

use std::fs;

use crate::run;

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

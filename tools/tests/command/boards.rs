//! Board files of a user: which one is used, and what is refused.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::{command, json, parsed, run, stdout};

/// The board file of Alveo cards, with one part changed.
fn alveo(from: &str, to: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../driver/boards/alveo-xdma.toml");
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{from}");
    text.replace(from, to)
}

/// The board that `info` names for one card, and the offset of card management.
fn used(printed: &Value) -> (String, Option<u64>) {
    let file = match &printed["readings"] {
        Value::Array(cards) => &cards[0]["board_file"],
        one => &one["board_file"],
    };
    let cms = file["blocks"].as_array().unwrap().iter().find(|block| block["kind"] == "cms");
    (file["name"].as_str().unwrap().to_owned(), cms.map(|cms| cms["offset"].as_u64().unwrap()))
}

#[test]
fn info_names_the_board_file_of_each_mock() {
    for (cards, board) in [
        ("mock:optweb:2", "mock"),
        ("mock:alveo-xdma:2/1", "alveo-xdma"),
        ("mock:s10-dfl:2/1", "s10-dfl"),
        ("mock:s10-dfl:2/1.control", "s10-dfl"),
        ("mock:s10-pac:2/0", "s10-pac"),
    ] {
        assert_eq!(used(&json(&["info", "--cards", cards])).0, board, "{cards}");
        assert!(stdout(&["info", "--cards", cards]).contains(&format!("\nboard file {board} (function of role ")));
    }
    let text = stdout(&["info", "--cards", "mock:alveo-xdma:1"]);
    assert!(text.contains("\ncms           0    0x80000  choice  this project; AMD PG348"), "{text}");
}

#[test]
fn a_named_board_wins_over_a_directory_and_that_over_this_projects() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    fs::write(file("b.toml"), alveo("name = \"alveo-xdma\"", "name = \"lab\"")).unwrap();
    fs::write(file("c.toml"), alveo("name = \"alveo-xdma\"", "name = \"third\"")).unwrap();
    fs::write(file("read.me"), "no board file").unwrap();
    let info = |more: &[&str], boards: &Path| {
        let arguments = [&["info", "--json", "--cards", "mock:alveo-xdma:1"], more].concat();
        let output = command(&arguments).env("FPGACTL_BOARDS", boards).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        used(&serde_json::from_slice(&output.stdout).unwrap())
    };
    let none = tempfile::tempdir().unwrap();
    assert_eq!(info(&[], none.path()), ("alveo-xdma".to_owned(), Some(0x8_0000)));
    assert_eq!(info(&[], directory.path()).0, "lab");
    let named = file("c.toml");
    assert_eq!(info(&["--board", named.to_str().unwrap()], directory.path()).0, "third");
    assert_eq!(info(&["--board", "any"], directory.path()), ("any".to_owned(), None));
}

/// Cards would be opened by other board files than those that the user has named.
#[test]
fn a_named_directory_that_is_missing_is_an_error() {
    let info = command(&["info", "--json"]).env("FPGACTL_BOARDS", "/nowhere").output().unwrap();
    let error = parsed(&info.stderr);
    assert_eq!((info.status.code(), &error["kind"]), (Some(4), &"no-file".into()), "{error}");
    assert!(error["message"].as_str().unwrap().starts_with("/nowhere: "), "{error}");
    // The default need not exist, and a command that opens no card reads no board files.
    assert!(run(&["info", "--board-dir", "/etc/fpga/boards.d"]).status.success());
    assert!(command(&["list"]).env("FPGACTL_BOARDS", "/nowhere").status().unwrap().success());
}

/// A file with the right ids, for a card with a larger BAR: another is used, and `info` says why.
#[test]
fn a_file_that_does_not_fit_is_not_passed_over_in_silence() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("large.toml");
    fs::write(&path, alveo("bytes = 0x100000", "bytes = 0x200000").replace("name = \"alveo-xdma\"", "name = \"lab\""))
        .unwrap();
    let printed = |more: &[&str]| {
        let arguments = [&["info"], more].concat();
        let output = command(&arguments).env("FPGACTL_BOARDS", directory.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let why = format!("lab ({}): BAR0 has 0x100000 bytes; expected 0x200000 or more", path.display());
    for cards in ["mock:alveo-xdma:1", "mock:alveo-xdma:2"] {
        let text = printed(&["--cards", cards]);
        assert!(
            text.contains("board file alveo-xdma (") && text.contains(&format!("board file not used: {why}\n")),
            "{text}"
        );
    }
    let object: Value = serde_json::from_str(&printed(&["--json", "--cards", "mock:alveo-xdma:1"])).unwrap();
    assert_eq!(object["readings"]["board_file"]["passed_over"], serde_json::json!([why]));
    // Of other cards it says nothing.
    assert!(!printed(&["--cards", "mock:s10-dfl:2"]).contains("not used"));
}

#[test]
fn a_board_without_blocks_is_said_to_have_none() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bare.toml");
    let text = "name = \"bare\"\nabout = \"x\"\n[[function]]\nrole = \"card\"\nids = []\nbars = [{ bar = 0, bytes = 0x1000 }]\n";
    fs::write(&path, text).unwrap();
    let text = stdout(&["info", "--cards", "mock:alveo-xdma:1", "--board", path.to_str().unwrap()]);
    assert!(text.contains("board file bare (function of role card)\nit places no blocks\n"), "{text}");
}

/// Card management where there is none: the file says where to look, and the card decides.
#[test]
fn a_wrong_place_is_told_by_the_card() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("moved.toml");
    fs::write(&path, alveo("offset = 0x80000", "offset = 0xc0000")).unwrap();
    let output = run(&["selftest", "mock:alveo-xdma:1", "--json", "--board", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let failed: Vec<&Value> =
        printed["checks"].as_array().unwrap().iter().filter(|check| check["ok"] == false).collect();
    assert_eq!(failed.len(), 1, "{printed}");
    assert!(failed[0]["found"].as_str().unwrap().starts_with("cms: "), "{}", failed[0]);
}

#[test]
fn wrong_files_are_refused_by_line_and_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("board.toml");
    let shown = path.to_str().unwrap();
    for (text, why) in [
        (
            alveo("offset = 0x20000", "offset = 0x10100"),
            "block decoupler has 0x40 bytes at 0x10100 of BAR0, where block hwicap is",
        ),
        (
            alveo("offset = 0x80000", "offset = 0xf0000"),
            "block cms: 0x40000 bytes at 0xf0000 of BAR0, which has 0x100000 bytes",
        ),
        (alveo("kind = \"cms\"", "kind = \"qdma\""), "unknown variant `qdma`"),
        (alveo("basis = \"choice\"", "certain = true"), "unknown field `certain`"),
        (alveo("role = \"card\"", "role = \"card\"\nfeed = \"mailbox\""), "unknown variant `mailbox`"),
    ] {
        fs::write(&path, text).unwrap();
        let output = run(&["info", "--cards", "mock:alveo-xdma:1", "--board", shown]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(7), "{error}");
        assert!(error.starts_with(&format!("fpgactl: {shown}, line ")) && error.contains(why), "{error}");
        // In a directory too, but not for what opens no card.
        let by_directory = |arguments: &[&str]| {
            command(arguments).env("FPGACTL_BOARDS", directory.path()).output().unwrap().status.code()
        };
        assert_eq!(by_directory(&["info", "--cards", "mock:optweb:2"]), Some(7));
        assert_eq!(by_directory(&["schema"]), Some(0));
        assert_eq!(by_directory(&["topo", "--dragonfly", "8"]), Some(0));
        assert_eq!(by_directory(&["doctor", "mock:optweb:4"]), Some(0));
        assert_eq!(by_directory(&["info", "0000:00:00.0"]), Some(4));
    }
    for (board, code, why) in [
        ("nothing", 2, "unknown board \"nothing\": expected a file, or one of alveo-xdma, s10-dfl,"),
        ("/nowhere/board.toml", 4, "/nowhere/board.toml: "),
        ("s10-pac", 7, "it is not for functions 10ee:903f"),
        ("bittware-520n", 1, "but must be"),
    ] {
        let output = run(&["coll", "barrier", "--cards", "mock:alveo-xdma:2", "--board", board]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{error}");
        assert!(error.contains(why), "{board}: {error}");
    }
    for arguments in [
        &["asm", "--board", "any", "x.seq"][..],
        &["list", "--board", "any"],
        &["doctor", "--board", "any"],
        &["info", "0000:3b:00.0", "--board-dir", shown],
        &["bind", "0000:3b:00.0", "--board", "any"],
        &["unbind", "0000:3b:00.0", "--board-dir", shown],
        &["reset", "mock:s10-dfl:2/0.control", "--board", "any"],
        &["reset", "mock:s10-dfl:2/0.control", "--board-dir", shown],
    ] {
        assert_eq!(run(arguments).status.code(), Some(2), "{arguments:?}");
    }
    // Before anything is tested, reset, read or written.
    for arguments in [
        &["selftest", "mock:alveo-xdma:1"][..],
        &["reset", "mock:s10-dfl:2/0.control", "--errors"],
        &["reg", "mock:alveo-xdma:1", "0x0"],
        &["reg", "mock:alveo-xdma:1", "0x4000", "1"],
    ] {
        let output = run(&[arguments, &["--board", "s10-pac"]].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains("it is not for functions "), "{error}");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(7), 0), "{error}");
    }
    assert!(run(&["reset", "mock:s10-dfl:2/0.control", "--errors", "--board", "s10-dfl"]).status.success());
}

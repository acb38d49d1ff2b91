//! What `udev/` puts on a machine, in a directory instead of one, and whom its helper gives cards to.
#![forbid(unsafe_code)]

#[path = "../../hal/sysfs/tests/tree/mod.rs"]
mod tree;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tree::Tree;

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../udev")
}

fn script(name: &str, variables: &[(&str, &Path)], arguments: &[&str]) -> Output {
    let mut command = Command::new("sh");
    command.arg(source().join(name)).args(arguments).envs(variables.iter().copied());
    command.output().unwrap()
}

/// Mode and content of all files below a directory.
fn files(directory: &Path) -> BTreeMap<String, (u32, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(directory).unwrap().to_str().unwrap().to_owned();
                let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
                all.insert(name, (mode, fs::read(&path).unwrap()));
            }
        }
    }
    all
}

fn run(name: &str, directory: &Path) {
    let output = script(name, &[("DESTDIR", directory)], &[]);
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn what_is_installed_is_uninstalled() {
    let directory = tempfile::tempdir().unwrap();
    run("install", directory.path());
    let installed = files(directory.path());
    let modes: Vec<_> = installed.iter().map(|(name, (mode, _))| (name.as_str(), *mode)).collect();
    let expected = [
        ("etc/fpga/bind.conf", 0o644),
        ("etc/fpga/cards", 0o644),
        ("etc/security/limits.d/60-fpga.conf", 0o644),
        ("etc/systemd/system/fpga-bind.service", 0o644),
        ("etc/udev/rules.d/60-fpga.rules", 0o644),
        ("usr/local/lib/fpga/bind-cards", 0o755),
        ("usr/local/lib/fpga/only-cards", 0o755),
    ];
    assert_eq!(modes, expected);
    run("install", directory.path());
    assert_eq!(files(directory.path()), installed);
    run("uninstall", directory.path());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    run("uninstall", directory.path());
}

#[test]
fn a_relative_destination_is_below_the_callers_directory() {
    let directory = tempfile::tempdir().unwrap();
    let run = |name: &str| {
        let mut command = Command::new("sh");
        let output = command.arg(source().join(name)).env("DESTDIR", "stage").current_dir(directory.path()).output();
        assert!(output.unwrap().status.success(), "{name}");
    };
    run("install");
    assert!(!source().join("stage").exists());
    assert_eq!(files(&directory.path().join("stage")).len(), 7);
    run("uninstall");
    assert_eq!(files(directory.path()).len(), 0);
}

/// Whatever the caller's umask: members of the group read and run what is installed. What is there keeps its mode.
#[test]
fn directories_are_open_to_readers_and_others_keep_their_mode() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let mode = |name: &str| fs::metadata(path(name)).unwrap().permissions().mode() & 0o777;
    fs::create_dir_all(path("etc/security/limits.d")).unwrap();
    fs::set_permissions(path("etc/security/limits.d"), fs::Permissions::from_mode(0o700)).unwrap();
    let line = format!("umask 077; exec sh {}", source().join("install").display());
    let status = Command::new("sh").args(["-c", &line]).env("DESTDIR", directory.path()).status().unwrap();
    assert!(status.success());
    for made in ["etc/fpga", "etc/systemd", "etc/systemd/system", "etc/udev/rules.d", "usr", "usr/local/lib/fpga"] {
        assert_eq!(mode(made), 0o755, "{made}");
    }
    assert_eq!(mode("etc/security/limits.d"), 0o700);
}

#[test]
fn locked_memory_has_a_limit() {
    let text = fs::read_to_string(source().join("60-fpga.conf")).unwrap();
    let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let [line] = &lines[..] else { panic!("{lines:?}") };
    let words: Vec<_> = line.split_whitespace().collect();
    let ["@fpga", "-", "memlock", kib] = &words[..] else { panic!("{line}") };
    let kib: u64 = kib.parse().expect("a number of KiB");
    // What `doctor` wants at the least, and not as much as a machine has.
    assert!((64 << 10..=16 << 20).contains(&kib), "{kib} KiB");
}

#[test]
fn settings_are_kept_and_what_is_not_ours_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::create_dir_all(path("etc/udev/rules.d")).unwrap();
    fs::write(path("etc/udev/rules.d/10-other.rules"), "# other\n").unwrap();
    run("install", directory.path());
    fs::write(path("etc/fpga/bind.conf"), "0000:3b:00.0\n").unwrap();
    fs::write(path("etc/udev/rules.d/60-fpga.rules"), "# of an older version\n").unwrap();
    run("install", directory.path());
    assert_eq!(fs::read_to_string(path("etc/fpga/bind.conf")).unwrap(), "0000:3b:00.0\n");
    assert!(fs::read_to_string(path("etc/udev/rules.d/60-fpga.rules")).unwrap().contains("only-cards"));
    run("uninstall", directory.path());
    let left: Vec<_> = files(directory.path()).into_keys().collect();
    assert_eq!(left, ["etc/udev/rules.d/10-other.rules"]);
}

/// What rules and unit run is what install puts there.
#[test]
fn what_is_run_is_installed() {
    let directory = tempfile::tempdir().unwrap();
    run("install", directory.path());
    let all = files(directory.path());
    let mut found = 0;
    for (_, content) in all.values() {
        let text = String::from_utf8(content.clone()).unwrap();
        for rest in text.split("/usr/local/lib/fpga/").skip(1) {
            let name: String =
                rest.chars().take_while(|letter| letter.is_ascii_lowercase() || *letter == '-').collect();
            if name != "made-group" {
                assert!(all.contains_key(&format!("usr/local/lib/fpga/{name}")), "{name}");
                found += 1;
            }
        }
    }
    assert!(found >= 3);
    // Nothing is opened to everybody, and nothing but nodes of groups is opened at all.
    let rules = String::from_utf8(all["etc/udev/rules.d/60-fpga.rules"].1.clone()).unwrap();
    let opening: Vec<_> = rules.lines().filter(|line| line.contains("MODE=") || line.contains("GROUP=")).collect();
    assert_eq!(opening.len(), 1);
    for part in ["SUBSYSTEM==\"vfio\"", "KERNEL==\"[0-9]*\"", "only-cards $kernel", "GROUP=\"fpga\"", "MODE=\"0660\""] {
        assert!(opening[0].contains(part), "{part}");
    }
}

fn machine(listings: &[&str]) -> Tree {
    let tree = Tree::new(listings);
    fs::create_dir_all(tree.path("etc/fpga")).unwrap();
    fs::copy(source().join("cards"), tree.path("etc/fpga/cards")).unwrap();
    tree
}

fn only_cards(tree: &Tree, arguments: &[&str]) -> Option<i32> {
    script("only-cards", &[("FPGA_ROOT", tree.root())], arguments).status.code()
}

/// Takes the # from the card's line, as its owner does.
fn enable(tree: &mut Tree) {
    let cards = fs::read_to_string(tree.path("etc/fpga/cards")).unwrap();
    assert!(cards.contains("\n#10ee:903f "));
    fs::write(tree.path("etc/fpga/cards"), cards.replace("\n#10ee:903f ", "\n10ee:903f ")).unwrap();
}

#[test]
fn subsystem_ids_tell_boards_apart() {
    let given = |lines: &str, board: &str| {
        let mut tree = machine(&["machine"]);
        tree.apply(board);
        fs::write(tree.path("etc/fpga/cards"), lines).unwrap();
        only_cards(&tree, &["42"])
    };
    assert_eq!(given("10ee:903f:10ee:0007  # mine\n", ""), Some(0));
    assert_eq!(given("10ee:903f:10ee:0008\n10ee:903f:1bd4:0007\n10ee:9038:10ee:0007\n", ""), Some(1), "other boards");
    assert_eq!(given("10ee:903f\n", ""), Some(0), "any board");
    let bare = "- $card/subsystem_vendor\n- $card/subsystem_device";
    assert_eq!(given("10ee:903f:10ee:0007\n", bare), Some(1));
    assert_eq!(given("10ee:903f\n", bare), Some(0));
    // Upper case, and the line ends of other systems.
    assert_eq!(given("10EE:903F\n", ""), Some(0));
    assert_eq!(given("# mine\r\n10ee:903F:10eE:0007\r\n", ""), Some(0));
    assert_eq!(given("10EE:903E\r\n\r\n", ""), Some(1));
}

#[test]
fn a_list_from_before_that_gives_any_board_is_pointed_out() {
    let directory = tempfile::tempdir().unwrap();
    let cards = directory.path().join("etc/fpga/cards");
    fs::create_dir_all(cards.parent().unwrap()).unwrap();
    let install = |list: &str| {
        fs::write(&cards, list).unwrap();
        let output = script("install", &[("DESTDIR", directory.path())], &[]);
        assert!(output.status.success() && fs::read_to_string(&cards).unwrap() == list, "it is kept");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(install("10ee:5001\n10ee:903f  # a shell\n").contains("default ids"));
    assert!(install("10EE:903F\n").contains("default ids"));
    assert_eq!(install("#10ee:903f\n10ee:903f:10ee:0007\n10ee:5001\n"), "");
}

#[test]
fn only_groups_of_cards_are_given() {
    let mut tree = machine(&["machine", "edu", "one-group"]);
    // Its ids are those that AMD's tools give any design.
    assert_eq!(only_cards(&tree, &["42"]), Some(1), "no board with default ids is given");
    enable(&mut tree);
    // The Alveo's, now with the D5005 in it; the virtual function's.
    assert_eq!(only_cards(&tree, &["42"]), Some(0));
    assert_eq!(only_cards(&tree, &["58"]), Some(0));
    // The disk's, the display's, the network's, that of a device which only happens to be bound to vfio-pci, none.
    for group in ["1", "2", "3", "4", "99"] {
        assert_eq!(only_cards(&tree, &[group]), Some(1), "group {group}");
    }
    for arguments in [&[] as &[&str], &["42x"], &["../42"], &["-1"], &["--revoke"], &["--revoke", "../x"]] {
        assert_eq!(only_cards(&tree, arguments), Some(2), "{arguments:?}");
    }
    // A card beside a disk would open the disk.
    let tree = machine(&["machine", "group-shared"]);
    assert_eq!(only_cards(&tree, &["42"]), Some(1));
    // Beside the bridge above it, it opens nothing else.
    let mut tree = machine(&["machine"]);
    enable(&mut tree);
    tree.apply("sys/kernel/iommu_groups/42/devices/0000:3a:00.0 -> ../../../../devices/pci0000:3a/0000:3a:00.0");
    assert_eq!(only_cards(&tree, &["42"]), Some(0));
    tree.apply("- sys/kernel/iommu_groups/42/devices/0000:3b:00.0");
    assert_eq!(only_cards(&tree, &["42"]), Some(1));
    // A device of another kind is not ours to give.
    let mut tree = machine(&["machine"]);
    tree.apply("sys/kernel/iommu_groups/42/devices/platform.0/");
    assert_eq!(only_cards(&tree, &["42"]), Some(1));
    // Without the list nothing is given; with a line of the user's, its card is.
    let tree = machine(&["machine", "edu"]);
    fs::write(tree.path("etc/fpga/cards"), "# mine\n1234:11e8  # edu").unwrap();
    assert_eq!(only_cards(&tree, &["4"]), Some(0));
    assert_eq!(only_cards(&tree, &["42"]), Some(1));
    fs::remove_file(tree.path("etc/fpga/cards")).unwrap();
    assert_eq!(only_cards(&tree, &["4"]), Some(1));
    assert_eq!(only_cards(&tree, &["--revoke", "0000:3b:00.0"]), Some(1));
}

#[test]
fn a_node_of_another_group_is_not_taken_back() {
    let tree = machine(&["machine", "group-shared"]);
    let mode = || fs::metadata(tree.path("dev/vfio/42")).unwrap().permissions().mode() & 0o777;
    let before = mode();
    assert_eq!(only_cards(&tree, &["--revoke", "0000:01:00.0"]), Some(0));
    assert_eq!(only_cards(&tree, &["--revoke", "0000:3b:00.0"]), Some(0));
    assert_eq!(mode(), before);
}

/// What `bind-cards` runs on a machine, a command a line, and how it ends. `fpgactl` and `modprobe` are the ends of scripts for these
/// commands. Without an end for `modprobe`, its script succeeds but is only in the path.
fn run_by(listings: &[&str], config: &str, fpgactl: &str, modprobe: Option<&str>) -> (Vec<String>, Option<i32>) {
    let tree = machine(listings);
    fs::write(tree.path("etc/fpga/bind.conf"), config).unwrap();
    let log = tree.path("log");
    let command = |name: &str, end: &str| {
        let path = tree.path(name);
        fs::write(&path, format!("#!/bin/sh\necho {name} \"$@\" >>\"{}\"\n{end}\n", log.display())).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    let (fpgactl, loader) = (command("fpgactl", fpgactl), command("modprobe", modprobe.unwrap_or("true")));
    let path = format!("{}:{}", tree.root().display(), std::env::var("PATH").unwrap());
    let mut variables = vec![("FPGA_ROOT", tree.root()), ("FPGACTL", &*fpgactl), ("PATH", Path::new(&path))];
    variables.extend(modprobe.map(|_| ("MODPROBE", &*loader)));
    let output = script("bind-cards", &variables, &[]);
    let log = fs::read_to_string(log).unwrap_or_default();
    (log.lines().map(str::to_owned).collect(), output.status.code())
}

/// The arguments of `bind`, for each time that `bind-cards` runs it, and how it ends. Before the first, the module is loaded.
fn bound_by(config: &str, fpgactl: &str) -> (Vec<String>, Option<i32>) {
    let (lines, status) = run_by(&["machine", "module-missing"], config, fpgactl, Some("true"));
    let bound: Vec<_> = lines.iter().filter_map(|line| line.strip_prefix("fpgactl bind ")).map(str::to_owned).collect();
    let loaded = (!bound.is_empty()).then(|| "modprobe vfio-pci".to_owned());
    assert_eq!(lines.len(), bound.len() + usize::from(loaded.is_some()), "{lines:?}");
    assert_eq!(lines.first(), loaded.as_ref());
    (bound, status)
}

#[test]
fn cards_of_the_configuration_are_bound() {
    let config = "# by address\n0000:3b:00.0  # a card\n\n8086:bcce 8086:bccf\n5e:00.0";
    let expected = ["0000:3b:00.0", "0000:5e:00.0 0000:5e:00.1", "0000:5e:00.0"].map(str::to_owned);
    assert_eq!(bound_by(config, "true"), (expected.to_vec(), Some(0)));
    let other_ends = config.to_uppercase().replace('\n', "\r\n");
    assert_eq!(bound_by(&other_ends, "true"), (expected.to_vec(), Some(0)));
    assert_eq!(bound_by("8086:BCCE\r\n\r\n", "true"), (vec!["0000:5e:00.0".to_owned()], Some(0)));
    // The next line comes although one fails, and the failure is told.
    let (lines, status) = bound_by(config, "false");
    assert_eq!((lines.len(), status), (3, Some(1)));
    // What is not there and what is nonsense is told too.
    assert_eq!(bound_by("10ee:9999\n", "true"), (Vec::new(), Some(1)));
    // The functions of a line are bound together, or none is.
    assert_eq!(bound_by("0000:3b:00.0 10ee:9999\n5e:00.0", "true"), (vec!["0000:5e:00.0".to_owned()], Some(1)));
    assert_eq!(bound_by("card\n0000:3b:00.0\n", "true"), (vec!["0000:3b:00.0".to_owned()], Some(1)));
    let example = fs::read_to_string(source().join("bind.conf")).unwrap();
    assert_eq!(bound_by(&example, "false"), (Vec::new(), Some(0)));
    // A machine without the module binds nothing. If it has no card to bind, that is no failure.
    let without = |config| run_by(&["machine", "module-missing"], config, "true", Some("false"));
    assert_eq!(without(config), (vec!["modprobe vfio-pci".to_owned()], Some(1)));
    assert_eq!(without(&example), (Vec::new(), Some(0)));
}

#[test]
fn a_driver_in_the_kernel_is_not_loaded() {
    let bound = (vec!["fpgactl bind 0000:3b:00.0".to_owned()], Some(0));
    assert_eq!(run_by(&["machine"], "0000:3b:00.0\n", "true", Some("false")), bound);
    // Another root has not the modules of this machine.
    let missing = run_by(&["machine", "module-missing"], "0000:3b:00.0\n", "true", None);
    assert_eq!(missing, (Vec::new(), Some(1)));
}

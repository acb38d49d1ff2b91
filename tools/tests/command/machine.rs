//! Cards of a machine, as a directory has them that is made from a listing.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::printed::are_as_expected;
use crate::tree::Tree;
use crate::{command, run};

const CARD: &str = "0000:3b:00.0";

/// Faults of a card, each by a listing, with the checks that find it, and what the mend must name.
const FAULTS: &[(&str, &[&str], &str)] = &[
    ("iommu-off", &["iommu"], "intel_iommu=on"),
    ("group-shared", &["iommu-group"], "fpgactl unbind 0000:01:00.0"),
    ("memlock-low", &["memlock"], "udev/install ada"),
    ("no-hugepages", &["hugepages"], "sysctl vm.nr_hugepages=64"),
    ("wrong-driver", &["driver"], "fpgactl bind 0000:3b:00.0"),
    ("no-permission", &["node"], "udev/install ada"),
    ("bus-master-off", &["owner", "bus-master"], "setpci -s 0000:3b:00.0 COMMAND=4:4"),
    ("link-below", &["link"], "setpci -s 0000:3a:00.0 CAP_EXP+10.w=20:20"),
    ("msix-absent", &["msix"], "load an image"),
    ("module-missing", &["module", "driver", "container"], "modprobe vfio-pci"),
    // Not of the ten.
    ("slot-narrow", &["link"], "a slot with 8 GT/s x16"),
    ("asleep", &["power"], "echo on > /sys/bus/pci/devices/0000:3b:00.0/power/control"),
    ("held", &["owner"], "kill 815"),
    ("silent", &["card"], "echo 1 > /sys/bus/pci/devices/0000:3b:00.0/remove"),
];

fn on(tree: &Tree, arguments: &[&str]) -> Output {
    command(arguments).env("FPGACTL_SYSFS_ROOT", tree.root()).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn checks(tree: &Tree) -> Vec<serde_json::Value> {
    let output = on(tree, &["doctor", CARD, "--json"]);
    let printed = crate::parsed(&output.stdout);
    assert_eq!(printed["schema"], "fpgactl.doctor/1");
    let checks = printed["checks"].as_array().unwrap().clone();
    let all_ok = checks.iter().all(|check| check["ok"] == true);
    assert_eq!(output.status.code(), Some(if all_ok { 0 } else { 1 }));
    checks
}

/// Ids of the checks that fail.
fn failing(checks: &[serde_json::Value]) -> Vec<&str> {
    checks.iter().filter(|check| check["ok"] == false).map(|check| check["id"].as_str().unwrap()).collect()
}

#[test]
fn is_as_expected() {
    let healthy = Tree::new(&["machine"]);
    let garbage = Tree::new(&["machine", "garbage"]);
    let ordinary = Tree::new(&["machine", "ordinary-user"]);
    let edu = Tree::new(&["machine", "edu"]);
    let printed =
        |tree: &Tree, arguments: &[&str]| stdout(&on(tree, arguments)).replace(tree.root().to_str().unwrap(), "ROOT");
    let mut all = vec![
        ("machine/list".to_owned(), printed(&edu, &["list"])),
        ("machine/list-all".to_owned(), printed(&edu, &["list", "--all"])),
        ("machine/list-json".to_owned(), printed(&healthy, &["list", "--json"])),
        ("machine/list-one".to_owned(), printed(&healthy, &["list", "--cards", "vfio:0000:5e:00.1"])),
        ("machine/info".to_owned(), printed(&healthy, &["info", CARD])),
        ("machine/info-json".to_owned(), printed(&healthy, &["info", CARD, "--json"])),
        ("machine/info-physical".to_owned(), printed(&healthy, &["info", "0000:5e:00.0"])),
        ("machine/info-virtual".to_owned(), printed(&healthy, &["info", "0000:5e:00.1"])),
        ("machine/info-ordinary-user".to_owned(), printed(&ordinary, &["info", CARD])),
        ("machine/info-garbage".to_owned(), printed(&garbage, &["info", CARD])),
        ("machine/doctor".to_owned(), printed(&healthy, &["doctor", CARD])),
        ("machine/doctor-json".to_owned(), printed(&healthy, &["doctor", CARD, "--json"])),
        ("machine/doctor-all".to_owned(), printed(&healthy, &["doctor"])),
        ("machine/doctor-ordinary-user".to_owned(), printed(&ordinary, &["doctor", CARD])),
    ];
    for (fault, _, _) in FAULTS {
        let tree = Tree::new(&["machine", fault]);
        all.push((format!("machine/doctor-{fault}"), printed(&tree, &["doctor", CARD])));
        all.push((format!("machine/list-{fault}"), printed(&tree, &["list", "--cards", CARD])));
    }
    are_as_expected(all.iter().map(|(name, text)| (name.as_str(), text.clone())));
}

#[test]
fn a_healthy_card_has_nothing_to_mend() {
    let tree = Tree::new(&["machine"]);
    let checks = checks(&tree);
    assert_eq!(failing(&checks), [""; 0]);
    assert!(checks.iter().all(|check| check["cause"].is_null() && check["mend"].is_null()));
    let output = on(&tree, &["doctor", "vfio:0000:3b:00.0"]);
    assert!(output.status.success() && stdout(&output).contains("no problem found"));
}

/// Each fault is found by its checks and by no other, with a cause and its mend.
#[test]
fn each_planted_fault_is_found() {
    for (fault, ids, mend) in FAULTS {
        let tree = Tree::new(&["machine", fault]);
        let checks = checks(&tree);
        assert_eq!(failing(&checks), *ids, "{fault}");
        let bad: Vec<_> = checks.iter().filter(|check| check["ok"] == false).collect();
        for check in &bad {
            assert!(check["cause"].is_string() && check["mend"].is_string(), "{check}");
            assert!(["user", "root", "hand"].contains(&check["by"].as_str().unwrap()), "{check}");
        }
        assert!(bad.iter().any(|check| check["mend"].as_str().unwrap().contains(mend)), "{fault}: {bad:#?}");
    }
}

/// Two faults at once are both found, in the order in which they are mended.
#[test]
fn faults_do_not_hide_each_other() {
    let tree = Tree::new(&["machine", "wrong-driver", "link-below", "memlock-low", "no-hugepages"]);
    assert_eq!(failing(&checks(&tree)), ["driver", "link", "memlock", "hugepages"]);
}

#[test]
fn permission_is_mended_by_the_group_once_the_rules_are_there() {
    let mut tree = Tree::new(&["machine"]);
    let own_group = std::os::unix::fs::MetadataExt::gid(&fs::metadata(tree.path("dev/vfio/42")).unwrap());
    tree.apply("dev/vfio/42 mode 660");
    let mend = |tree: &Tree| {
        let checks = checks(tree);
        assert_eq!(failing(&checks), ["node"]);
        checks.iter().find(|check| check["id"] == "node").unwrap()["mend"].as_str().unwrap().to_owned()
    };
    // Files of these trees belong to whoever runs the tests; that the group of root is no group for users is known.
    if own_group == 0 {
        assert_eq!(mend(&tree), "udev/install ada");
    } else {
        tree.apply(&format!("etc/group = fpga:x:{own_group}:"));
        assert_eq!(mend(&tree), "usermod -aG fpga ada");
    }
}

/// The rules are there, and the node is root's all the same.
#[test]
fn a_node_that_the_rules_keep_back_says_why() {
    let trigger = "udevadm trigger --action=add --subsystem-match=vfio";
    let listed = |ids: &str| format!("printf '%s\\n' {ids} >> /etc/fpga/cards && {trigger}");
    let disk = "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/driver -> ../../../../bus/pci/drivers/vfio-pci";
    let pac = "$pac/driver -> ../../../../bus/pci/drivers/vfio-pci";
    let alone = "move the card to a slot with its own IOMMU group";
    let cases: [(&[&str], &str, &str, String, &str); 7] = [
        (&[], "- etc/fpga/cards", "/etc/fpga/cards is unreadable", "udev/install ada".into(), "root"),
        (&[], "etc/fpga/cards = 10ee:903f  # Alveo", "have not been applied", trigger.into(), "root"),
        (&[], "etc/fpga/cards = # 10ee:903f", "0000:3b:00.0 (10ee:903f) is not in", listed("10ee:903f"), "root"),
        // Another card of the group is what is missing, and then both.
        (&["one-group"], "etc/fpga/cards = 10ee:903f", "0000:5e:00.0 (8086:bcce) is not", listed("8086:bcce"), "root"),
        (&["one-group"], "etc/fpga/cards =", "is not in", listed("10ee:903f 8086:bcce"), "root"),
        (&["one-group"], "etc/fpga/cards = 8086:bcce\\n10ee:903f", "have not been applied", trigger.into(), "root"),
        // Who has this node has the disk.
        (
            &["group-shared"],
            "etc/fpga/cards = 10ee:903f",
            "also gives access to 0000:01:00.0 (144d:a808), which is no known card",
            format!("{alone}; or give all of them to the group fpga: add 144d:a808 to /etc/fpga/cards"),
            "hand",
        ),
    ];
    for (listings, cards, cause, mend, by) in cases {
        let mut tree = Tree::new(&[&["machine", "no-permission"], listings].concat());
        tree.apply("etc/udev/rules.d/60-fpga.rules = x\netc/fpga/cards =");
        [disk, pac, cards].iter().for_each(|lines| tree.apply(lines));
        let checks = checks(&tree);
        assert_eq!(failing(&checks), ["node"]);
        let check = checks.iter().find(|check| check["id"] == "node").unwrap();
        assert!(check["cause"].as_str().unwrap().contains(cause), "{cards}: {check}");
        assert_eq!((check["mend"].as_str(), check["by"].as_str()), (Some(mend.as_str()), Some(by)), "{cards}");
    }
}

/// The package has its rules where packages do, and no `udev/install`.
#[test]
fn rules_of_the_package_are_rules() {
    let mut tree = Tree::new(&["machine", "no-permission"]);
    for folder in ["lib", "usr/lib"] {
        tree.apply(&format!("{folder}/udev/rules.d/60-fpga.rules = x\netc/fpga/cards = # 10ee:903f"));
        let mended = |tree: &Tree| {
            let check = checks(tree).into_iter().find(|check| check["id"] == "node").unwrap();
            (check["cause"].as_str().unwrap().to_owned(), check["mend"].as_str().unwrap().to_owned())
        };
        let (cause, mend) = mended(&tree);
        assert!(cause.contains("(10ee:903f) is not in") && mend.contains(">> /etc/fpga/cards"), "{cause}: {mend}");
        tree.apply("- etc/fpga/cards");
        let (cause, mend) = mended(&tree);
        assert!(cause.contains("/etc/fpga/cards is unreadable"), "{cause}");
        assert!(mend.starts_with("apt-get install --reinstall") && mend.ends_with(".deb"), "{mend}");
        // As an administrator switches off what a package has.
        for off in ["etc/udev/rules.d/60-fpga.rules -> /dev/null", "etc/udev/rules.d/60-fpga.rules x 0"] {
            tree.apply(off);
            let (cause, mend) = mended(&tree);
            assert!(cause.contains("/etc/udev/rules.d/60-fpga.rules is empty"), "{cause}");
            assert!(mend.starts_with("rm /etc/udev/rules.d/60-fpga.rules && udevadm "), "{mend}");
            tree.apply("- etc/udev/rules.d/60-fpga.rules");
        }
        tree.apply(&format!("- {folder}/udev/rules.d/60-fpga.rules"));
    }
}

/// What turns an IOMMU on depends on whose it is, and on where it is switched off.
#[test]
fn each_iommu_is_turned_on_in_its_way() {
    const INTEL: &str = "proc/cpuinfo = vendor_id\\t: GenuineIntel";
    const AMD: &str = "proc/cpuinfo = vendor_id\\t: AuthenticAMD\nsys/firmware/acpi/tables/IVRS =";
    const ARM: &str = "proc/cpuinfo = processor\\t: 0\\nCPU implementer\\t: 0x41";
    const HIDDEN: &str = "- sys/firmware/acpi/tables";
    let grub = |edit: &str| format!("sed -i '{edit}' /etc/default/grub && update-grub && reboot");
    let setup = |name: &str| format!("enable {name} in the firmware setup");
    let dmesg = |tag: &str, name: &str| format!("dmesg | grep {tag} shows why the kernel does not use {name}");
    let added = || grub("s/^GRUB_CMDLINE_LINUX=\"/&intel_iommu=on iommu=pt /");
    let cases: [(&[&str], &str, String); 14] = [
        (&[INTEL], "command line lacks intel_iommu=on", added()),
        (&[INTEL, HIDDEN], "command line lacks intel_iommu=on", added()),
        (&[INTEL, "- sys/firmware/acpi/tables/DMAR"], "no ACPI table DMAR", setup("VT-d")),
        (
            &[INTEL, "proc/cmdline = quiet intel_iommu=off"],
            "command line has intel_iommu=off",
            grub("s/\\bintel_iommu=off\\b/intel_iommu=on/"),
        ),
        (&[INTEL, "proc/cmdline = iommu=off"], "has iommu=off", grub("s/\\biommu=off\\b/intel_iommu=on/")),
        (&[INTEL, "proc/cmdline = intel_iommu=on,sm_on"], "the kernel does not use it", dmesg("DMAR", "VT-d")),
        (
            &[INTEL, HIDDEN, "proc/cmdline = intel_iommu=on"],
            "VT-d is probably disabled",
            format!("{}; {}", setup("VT-d"), dmesg("DMAR", "VT-d")),
        ),
        (&[AMD], "the firmware reports AMD-Vi, but the kernel does not use it", dmesg("AMD-Vi", "AMD-Vi")),
        (&[AMD, "- sys/firmware/acpi/tables/IVRS"], "no ACPI table IVRS", setup("AMD-Vi")),
        (&[AMD, "proc/cmdline = amd_iommu=off"], "has amd_iommu=off", grub("s/\\bamd_iommu=off\\b//")),
        (&[AMD, HIDDEN], "is probably disabled", format!("{}; {}", setup("AMD-Vi"), dmesg("AMD-Vi", "AMD-Vi"))),
        (&[ARM], "the firmware reports no SMMU", setup("the SMMU")),
        // Without a known processor, the tables show the maker.
        (&["- proc/cpuinfo"], "command line lacks intel_iommu=on", added()),
        (
            &["- proc/cpuinfo", HIDDEN],
            "the IOMMU is disabled in the firmware or the kernel",
            format!("{}; dmesg | grep -i iommu shows whether the kernel uses the IOMMU", setup("the IOMMU")),
        ),
    ];
    for (lines, cause, mend) in cases {
        let mut tree = Tree::new(&["machine", "iommu-off"]);
        lines.iter().for_each(|line| tree.apply(line));
        let checks = checks(&tree);
        assert_eq!(failing(&checks), ["iommu"]);
        let check = checks.iter().find(|check| check["id"] == "iommu").unwrap();
        assert!(check["cause"].as_str().unwrap().contains(cause), "{lines:?}: {check}");
        let by = if mend.starts_with("sed") { "root" } else { "hand" };
        assert_eq!((check["mend"].as_str(), check["by"].as_str()), (Some(mend.as_str()), Some(by)), "{lines:?}");
    }
    // It is on for others: no switch helps.
    let mut tree = Tree::new(&["machine", "iommu-off"]);
    tree.apply("sys/kernel/iommu_groups/1/devices/");
    let checks = checks(&tree);
    let check = checks.iter().find(|check| check["id"] == "iommu").unwrap();
    assert_eq!((&check["found"], &check["by"]), (&"on, but not for this card".into(), &"hand".into()));
}

#[test]
fn what_is_not_there_is_4() {
    let tree = Tree::new(&["machine"]);
    for arguments in [
        &["info", "0000:77:00.0"] as &[&str],
        &["doctor", "0000:77:00.0"],
        &["doctor", "--cards", "0000:77:00.0"],
        &["bind", "0000:77:00.0"],
        &["unbind", "0000:77:00.0"],
        &["reset", "0000:77:00.0"],
        &["list", "--cards", "vfio:0000:77:00.0"],
        &["reg", "mock:optweb:4/4", "NODE"],
    ] {
        let output = on(&tree, arguments);
        assert_eq!(output.status.code(), Some(4), "{arguments:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty());
    }
    for arguments in [
        &["info", "card"] as &[&str],
        &["bind"],
        &["bind", "3b:00"],
        &["bind", CARD, "--driver", "../x"],
        &["reg", "mock:optweb:4", "NOTHING"],
        &["reg", "mock:optweb:4", "SCRATCH", "x"],
    ] {
        assert_eq!(on(&tree, arguments).status.code(), Some(2), "{arguments:?}");
    }
    for arguments in [&["reg", "mock:optweb:4", "NODE", "1"] as &[&str], &["reg", "mock:optweb:4", "ABORT"]] {
        assert_eq!(run(arguments).status.code(), Some(7), "{arguments:?}");
    }
}

/// Whoever may not open a card is told what helps, in the same sentence.
#[test]
fn a_card_that_cannot_be_opened_is_4_and_what_helps_is_said() {
    for (fault, words) in [
        ("no-permission", "rules that give cards to the group fpga are not installed; as root: udev/install ada"),
        ("wrong-driver", "as root: fpgactl bind 0000:3b:00.0 (programs on /dev/xdma* lose the card"),
        ("iommu-off", "as root: sed -i"),
    ] {
        let tree = Tree::new(&["machine", fault]);
        for selector in ["vfio:0000:3b:00.0", "3b:00.0", "vfio:0000:3b:00.0,vfio:0000:5e:00.0"] {
            let output = on(&tree, &["coll", "barrier", "--cards", selector]);
            assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
            assert!(stderr(&output).contains(words), "{}", stderr(&output));
        }
    }
}

/// The card that the command line names, not that of the environment.
#[test]
fn what_helps_is_said_of_the_card_that_is_opened() {
    let tree = Tree::new(&["machine", "iommu-off"]);
    for (arguments, is_said) in [
        (&["reg", "vfio:0000:3b:00.0", "CLOCK_KHZ"] as &[&str], true),
        (&["mem", "read", "3b:00.0", "0", "16"], true),
        (&["mem", "read", "vfio-user:/nowhere/0.sock", "0", "16"], false),
        (&["selftest", "vfio-user:/nowhere/0.sock"], false),
        (&["reset", "3b:00.0", "--errors"], true),
        (&["reset", "vfio-user:/nowhere/0.sock"], false),
    ] {
        for cards in [None, Some("vfio:0000:3b:00.0"), Some("vfio-user:/nowhere/0.sock")] {
            let mut command = command(arguments);
            command.env("FPGACTL_SYSFS_ROOT", tree.root());
            let output = command.envs(cards.map(|cards| ("FPGACTL_CARDS", cards))).output().unwrap();
            assert_eq!(output.status.code(), Some(4), "{arguments:?}: {}", stderr(&output));
            assert_eq!(stderr(&output).contains("as root: sed -i"), is_said, "{arguments:?}: {}", stderr(&output));
        }
    }
}

/// The kernel's side of binding: it acts when an attribute is written, as the kernel does, only a little later.
struct Kernel {
    is_done: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Kernel {
    fn over(tree: &Tree) -> Self {
        let is_done = Arc::new(AtomicBool::new(false));
        let (root, done) = (tree.root().to_owned(), Arc::clone(&is_done));
        let work = move || {
            while !done.load(Ordering::Relaxed) {
                for driver in ["vfio-pci", "xdma"] {
                    act(&root, driver);
                }
                thread::sleep(Duration::from_millis(1));
            }
        };
        Kernel { is_done, thread: Some(thread::spawn(work)) }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.is_done.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn taken(path: PathBuf) -> Option<PathBuf> {
    let text = fs::read_to_string(&path).ok()?;
    let address = text.trim();
    if address.is_empty() {
        return None;
    }
    fs::write(&path, "").unwrap();
    Some(path.ancestors().nth(4)?.join("pci/devices").join(address).join("driver"))
}

fn act(root: &Path, driver: &str) {
    let directory = root.join("sys/bus/pci/drivers").join(driver);
    if let Some(link) = taken(directory.join("unbind")) {
        fs::remove_file(link).unwrap();
    }
    if let Some(link) = taken(directory.join("bind")) {
        symlink(Path::new("../../../../bus/pci/drivers").join(driver), link).unwrap();
    }
}

#[test]
fn bind_and_unbind() {
    let tree = Tree::new(&["machine", "wrong-driver"]);
    let kernel = Kernel::over(&tree);
    let output = on(&tree, &["bind", CARD]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output), "0000:3b:00.0: vfio-pci, was xdma, /dev/vfio/42\n");
    let output = on(&tree, &["bind", CARD, "--json"]);
    let printed = crate::parsed(&output.stdout);
    assert_eq!(
        (&printed["schema"], &printed["functions"][0]["driver"]),
        (&"fpgactl.bind/1".into(), &"vfio-pci".into())
    );
    assert_eq!(failing(&checks(&tree)), [""; 0]);
    let output = on(&tree, &["unbind", CARD, "--json"]);
    let printed = crate::parsed(&output.stdout);
    let function = &printed["functions"][0];
    assert_eq!((&function["before"], &function["driver"]), (&"vfio-pci".into(), &serde_json::Value::Null));
    drop(kernel);
}

/// What is refused says why, names what helps, and changes nothing.
#[test]
fn refusals_help() {
    let written = |tree: &Tree| {
        let attributes = ["drivers_probe", "drivers/vfio-pci/bind", "drivers/xdma/unbind", "drivers/nvme/unbind"];
        let read = |name| fs::read_to_string(tree.path("sys/bus/pci").join(name)).unwrap_or_default();
        attributes.map(read).concat().trim().to_owned()
    };
    for (listings, arguments, exit, words) in [
        (&["module-missing"] as &[&str], &["bind", CARD] as &[&str], 7, "its module is not loaded (modprobe vfio-pci)"),
        (&["wrong-driver", "group-shared"], &["bind", CARD], 7, "0000:01:00.0 is bound to nvme"),
        (&["wrong-driver", "iommu-off"], &["bind", CARD], 7, "fpgactl doctor 0000:3b:00.0 shows how"),
        (&["held"], &["unbind", CARD], 7, "process 815 (simulate) has it open"),
        (&["held"], &["reset", CARD], 7, "process 815 (simulate) has it open"),
        (&[], &["unbind", "0000:01:00.0"], 7, "mounted at /boot/efi"),
        (&[], &["unbind", "0000:00:1f.6"], 7, "its network interface eno1 is up"),
        (&[], &["unbind", "0000:00:02.0"], 7, "it drives a display"),
        (&[], &["reset", "0000:5e:00.1", "--force"], 7, "cannot be reset"),
        (&["silent"], &["reset", CARD], 6, "is gone"),
    ] {
        let listings = [&["machine"], listings].concat();
        let tree = Tree::new(&listings);
        let output = on(&tree, arguments);
        assert_eq!(output.status.code(), Some(exit), "{listings:?} {arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
        assert_eq!(written(&tree), "", "{arguments:?}");
    }
}

/// The kernel takes what is written and does nothing: all is put back, and the command fails.
#[test]
fn a_kernel_that_does_nothing_fails_the_command() {
    let tree = Tree::new(&["machine", "wrong-driver"]);
    let output = on(&tree, &["bind", CARD, "--timeout", "3"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let device = tree.path("sys/bus/pci/devices").join(CARD);
    assert_eq!(fs::read_to_string(device.join("driver_override")).unwrap().trim(), "");
    assert!(fs::read_link(device.join("driver")).unwrap().ends_with("xdma"));
}

/// `fpgactl bind` of the card, amid its transaction.
struct Binding {
    tree: Tree,
    process: Child,
}

impl Binding {
    /// Begins one, and waits until `attribute` of drivers or devices has `text`. Nobody is the kernel.
    fn until(tree: Tree, attribute: &str, text: &str) -> Self {
        let mut command = command(&["bind", CARD, "--timeout", "120"]);
        command.env("FPGACTL_SYSFS_ROOT", tree.root()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let binding = Binding { process: command.spawn().unwrap(), tree };
        binding.wait_for(attribute, text);
        binding
    }

    fn wait_for(&self, attribute: &str, text: &str) {
        let path = self.tree.path("sys/bus/pci").join(attribute);
        let deadline = Instant::now() + Duration::from_secs(60);
        while fs::read_to_string(&path).unwrap_or_default().trim() != text {
            assert!(Instant::now() < deadline, "{attribute} is not {text}");
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.process.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Its exit code and what it said, once driver and override are what they were.
    fn end(self) -> (Option<i32>, String) {
        let Binding { tree, process } = self;
        let output = process.wait_with_output().unwrap();
        let device = tree.path("sys/bus/pci/devices").join(CARD);
        assert_eq!(fs::read_to_string(device.join("driver_override")).unwrap().trim(), "", "{}", stderr(&output));
        assert!(fs::read_link(device.join("driver")).unwrap().ends_with("xdma"), "{}", stderr(&output));
        assert!(output.stdout.is_empty());
        (output.status.code(), stderr(&output))
    }
}

/// A signal comes before the kernel has taken the card from its driver. That the terminal is gone as well does not matter.
#[test]
fn a_terminated_bind_leaves_the_card_where_it_was() {
    let binding = Binding::until(Tree::new(&["machine", "wrong-driver"]), "drivers/xdma/unbind", CARD);
    binding.signal("HUP");
    binding.signal("TERM");
    let (exit, said) = binding.end();
    assert_eq!(exit, Some(130), "{said}");
    assert!(said.contains("every function has its previous driver again"), "{said}");
}

/// It comes when the card has no driver at all. An impatient second one does not end the command there.
#[test]
fn an_interrupted_bind_gives_the_card_back() {
    let binding = Binding::until(Tree::new(&["machine", "wrong-driver"]), "drivers/xdma/unbind", CARD);
    act(binding.tree.root(), "xdma");
    binding.wait_for("drivers/vfio-pci/bind", CARD);
    binding.signal("INT");
    binding.signal("INT");
    binding.wait_for("drivers/xdma/bind", CARD);
    binding.signal("INT");
    act(binding.tree.root(), "xdma");
    let (exit, said) = binding.end();
    assert_eq!(exit, Some(130), "{said}");
}

/// The kernel sleeps in a write, and goes on sleeping: nobody knows how that ends, and it is said.
#[test]
fn a_kernel_that_does_not_answer_may_still_do_what_it_was_told() {
    let tree = Tree::new(&["machine", "wrong-driver"]);
    // A pipe that nobody reads is opened by nobody who writes.
    let attribute = tree.path("sys/bus/pci/drivers/xdma/unbind");
    fs::remove_file(&attribute).unwrap();
    assert!(Command::new("mkfifo").arg(&attribute).status().unwrap().success());
    let output = on(&tree, &["bind", CARD, "--timeout", "0.5"]);
    assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
    for words in ["how 0000:3b:00.0 ends is not known", "restore it with fpgactl bind 0000:3b:00.0 --driver xdma"] {
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
    let device = tree.path("sys/bus/pci/devices").join(CARD);
    assert_eq!(fs::read_to_string(device.join("driver_override")).unwrap().trim(), "");
}

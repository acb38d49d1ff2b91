//! `fpgactl bind` and `unbind`: on any failure the device keeps its driver.

use std::time::Duration;

use crate::command::{Output, User, run};
use crate::pci::PciFunction;
use crate::{Guest, tests};

tests! {
    ["devices"] => [
        bind_and_unbind_go_there_and_back,
        a_failed_bind_leaves_the_device_where_it_was,
        a_group_is_bound_as_a_whole,
    ],
}

const BOUND: Duration = Duration::from_secs(60);
/// Two functions of one IOMMU group, which the kernel's own driver has.
const TWINS: [&str; 2] = ["0000:00:16.0", "0000:00:16.1"];

fn fpgactl(user: User, words: &[&str]) -> Output {
    run(user, &[&["fpgactl"], words].concat(), BOUND)
}

fn drivers() -> [Option<String>; 2] {
    TWINS.map(|address| PciFunction::at(address).driver())
}

fn both(driver: &str) -> [Option<String>; 2] {
    [Some(driver.to_owned()), Some(driver.to_owned())]
}

fn bind_and_unbind_go_there_and_back(guest: &Guest) {
    let device = PciFunction::all("0x1234", "0x11e8").remove(0);
    assert_eq!(device.driver(), None);
    for _ in 0..3 {
        guest.log(fpgactl(User::Root, &["bind", &device.address]).good().stdout);
        assert_eq!(device.driver().as_deref(), Some("vfio-pci"));
        guest.log(fpgactl(User::Root, &["unbind", &device.address]).good().stdout);
        assert_eq!(device.driver(), None);
        assert_eq!(device.attribute("driver_override"), "(null)");
    }
}

fn a_failed_bind_leaves_the_device_where_it_was(guest: &Guest) {
    assert_eq!(drivers(), both("nvme"));
    for (what, user, words) in [
        ("the driver is missing", User::Root, &["bind", TWINS[0], TWINS[1], "--driver", "no-such-driver"][..]),
        ("the driver does not take it", User::Root, &["bind", TWINS[0], TWINS[1], "--driver", "ahci"]),
        ("the group is not viable", User::Root, &["bind", TWINS[0]]),
        ("there is no permission", User::Worker, &["bind", TWINS[0], TWINS[1]]),
        ("a device is not there", User::Root, &["bind", TWINS[0], TWINS[1], "0000:00:16.7"]),
        ("there is no permission to unbind", User::Worker, &["unbind", TWINS[0]]),
    ] {
        let output = fpgactl(user, words);
        guest.log(format!("{what}: {}", output.stderr.trim()));
        assert!(!output.status.success(), "{what}: {output}");
        assert_eq!(drivers(), both("nvme"), "{what}: {output}");
        for address in TWINS {
            assert_eq!(PciFunction::at(address).attribute("driver_override"), "(null)", "{what}");
        }
    }
}

fn a_group_is_bound_as_a_whole(guest: &Guest) {
    assert_eq!(drivers(), both("nvme"));
    guest.log(fpgactl(User::Root, &["bind", TWINS[0], TWINS[1]]).good().stdout);
    assert_eq!(drivers(), both("vfio-pci"));
    guest.log(fpgactl(User::Root, &["unbind", TWINS[0], TWINS[1]]).good().stdout);
    assert_eq!(drivers(), both("nvme"));
}

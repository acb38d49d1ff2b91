//! Checks whether this user may open the node of a card's IOMMU group, and if not, why.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use fpga_hal::sysfs::{Access, Group, VFIO_PCI};

use super::checks::Examination;
use super::finding::{Finding, Fix};
use crate::known;

/// udev rules that give cards to the group.
const RULES: &str = "udev/rules.d/60-fpga.rules";
/// Where udev looks for them, in this order: `udev/install` installs them in the first, the package in one of the last two.
const FOLDERS: [&str; 5] = ["etc", "run", "usr/local/lib", "usr/lib", "lib"];
/// Installs the package again, with its files in /etc that are missing.
const REINSTALL: &str = "apt-get install --reinstall -o Dpkg::Options::=--force-confmiss ./fpgactl_*.deb";
/// PCI ids of the cards in the rules.
const CARDS: &str = "etc/fpga/cards";
/// Applies the rules to existing nodes.
const TRIGGER: &str = "udevadm trigger --action=add --subsystem-match=vfio";

/// A member of the IOMMU group whose ids the rules do not list.
struct Unlisted {
    name: String,
    /// `None` for a device that is not a PCI function.
    ids: Option<String>,
    is_card: bool,
}

impl Unlisted {
    fn text(&self) -> String {
        match &self.ids {
            Some(ids) => format!("{} ({ids})", self.name),
            None => self.name.clone(),
        }
    }
}

impl Examination<'_> {
    pub(super) fn node(&self) -> Finding {
        let Some(group) = &self.group else { return Finding::Unknown("not checked: the card has no group".into()) };
        let node = group.node();
        let shown = node.display();
        match self.sysfs.access(&node) {
            Ok(Access::Granted) => Finding::Good(format!("{shown} is accessible")),
            Ok(Access::Missing) if self.function.driver.as_deref() != Some(VFIO_PCI) => {
                Finding::Unknown("not checked: vfio-pci creates the node".into())
            }
            Ok(Access::Missing) => Finding::Bad {
                found: format!("{shown} is missing"),
                cause: "the node was not created, or not passed to this container".into(),
                fix: Fix::Root(TRIGGER.into()),
            },
            Ok(Access::Denied { mode, group: owner, group_name }) => {
                let name = group_name.clone().unwrap_or_else(|| owner.to_string());
                let found = format!("{shown} has mode {mode:04o} and group {name}");
                let is_for_group = mode & 0o060 == 0o060 && owner != 0;
                let (cause, fix) = match group_name.filter(|_| is_for_group) {
                    Some(name) => self.not_in_group(&name),
                    None => self.owned_by_root(group),
                };
                Finding::Bad { found, cause, fix }
            }
            Err(error) => Finding::Unknown(format!("not checked: {error}")),
        }
    }

    /// Returns cause and fix for a node that belongs to a group without this user.
    fn not_in_group(&self, group: &str) -> (String, Fix) {
        let user = self.user();
        let cause = format!("{user} is not in the group {group}, or must log in again");
        (cause, Fix::Root(format!("usermod -aG {group} {user}")))
    }

    /// Returns the udev rules that udev uses, if there are some.
    fn rules(&self) -> Option<PathBuf> {
        let mut named = FOLDERS.iter().map(|folder| Path::new(folder).join(RULES));
        named.find(|path| self.sysfs.root().join(path).symlink_metadata().is_ok())
    }

    /// Returns the command that installs rules, limits and the list of cards.
    pub(super) fn install(&self) -> String {
        let is_packaged = |rules: PathBuf| rules.starts_with("usr/lib") || rules.starts_with("lib");
        if self.rules().is_some_and(is_packaged) { REINSTALL.into() } else { format!("udev/install {}", self.user()) }
    }

    /// Returns cause and fix for a node that belongs to root.
    fn owned_by_root(&self, group: &Group) -> (String, Fix) {
        let Some(rules) = self.rules() else {
            let cause = "the udev rules that give cards to the group fpga are not installed";
            return (cause.into(), Fix::Root(self.install()));
        };
        let file = self.sysfs.root().join(&rules);
        let leads_nowhere = file.read_link().is_ok_and(|target| target == Path::new("/dev/null"));
        if leads_nowhere || file.metadata().is_ok_and(|found| found.len() == 0) {
            let rules = rules.display();
            let cause = format!("the udev rules are switched off: /{rules} is empty");
            return (cause, Fix::Root(format!("rm /{rules} && udevadm control --reload && {TRIGGER}")));
        }
        let Ok(listed) = fs::read_to_string(self.sysfs.root().join(CARDS)) else {
            return (format!("the udev rules are installed, but /{CARDS} is unreadable"), Fix::Root(self.install()));
        };
        let listed: BTreeSet<&str> = listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
        let unlisted = self.unlisted(group, &listed);
        let named = |members: &[&Unlisted]| members.iter().map(|one| one.text()).collect::<Vec<_>>().join(", ");
        let ids = |members: &[&Unlisted]| {
            let ids: BTreeSet<&str> = members.iter().filter_map(|one| one.ids.as_deref()).collect();
            ids.into_iter().collect::<Vec<_>>().join(" ")
        };
        let foreign: Vec<&Unlisted> = unlisted.iter().filter(|one| !one.is_card).collect();
        let all: Vec<&Unlisted> = unlisted.iter().collect();
        if !foreign.is_empty() {
            let cause = format!("the node also gives access to {}, which is no known card", named(&foreign));
            let mut fix = "move the card to a slot with its own IOMMU group".to_owned();
            if foreign.iter().all(|one| one.ids.is_some()) {
                fix += &format!("; or give all of them to the group fpga: add {} to /{CARDS}", ids(&all));
            }
            return (cause, Fix::Hand(fix));
        }
        if all.is_empty() {
            let cause = "the udev rules have not been applied to the node since it was created or changed";
            return (cause.into(), Fix::Root(TRIGGER.into()));
        }
        let cause = format!("{} is not in /{CARDS}", named(&all));
        (cause, Fix::Root(format!("printf '%s\\n' {} >> /{CARDS} && {TRIGGER}", ids(&all))))
    }

    /// Returns the members that `only-cards` of the rules refuses: every function except bridges must be listed.
    fn unlisted(&self, group: &Group, listed: &BTreeSet<&str>) -> Vec<Unlisted> {
        let members = group.members.iter().filter(|member| member.class.is_none_or(|class| class >> 8 != 0x0604));
        let unlisted = members.filter_map(|member| {
            let name = member.name.clone();
            let Some(function) = member.address.and_then(|address| self.sysfs.function(address).ok()) else {
                return Some(Unlisted { name, ids: None, is_card: false });
            };
            let ids = format!("{:04x}:{:04x}", function.vendor, function.device);
            // The user selected this function as a card.
            let is_card = function.address == self.function.address
                || known::name(&function).is_some()
                || known::is_accelerator(&function);
            let with_subsystem = function.subsystem.map(|(vendor, device)| format!("{ids}:{vendor:04x}:{device:04x}"));
            let is_listed =
                [Some(ids.as_str()), with_subsystem.as_deref()].into_iter().flatten().any(|ids| listed.contains(ids));
            (!is_listed).then_some(Unlisted { name, ids: Some(ids), is_card })
        });
        unlisted.collect()
    }
}

//! The node of a card's IOMMU group: whether this user may open it, and if not, who or what keeps it back.

use std::collections::BTreeSet;
use std::fs;

use fpga_hal::sysfs::{Access, Group, VFIO_PCI};

use super::checks::Examination;
use super::{Finding, Mend};
use crate::known;

/// The rules that give cards to their group.
const RULES: &str = "etc/udev/rules.d/60-fpga.rules";
/// PCI ids of the cards that they give.
const CARDS: &str = "etc/fpga/cards";
/// Has them applied to nodes that are there already.
const TRIGGER: &str = "udevadm trigger --action=add --subsystem-match=vfio";

/// A member of the group that the rules do not know as a card.
struct Unlisted {
    name: String,
    /// `None` if it is no PCI function.
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
                mend: Mend::Root(TRIGGER.into()),
            },
            Ok(Access::Denied { mode, group: owner, group_name }) => {
                let name = group_name.clone().unwrap_or_else(|| owner.to_string());
                let found = format!("{shown} has mode {mode:04o} and group {name}");
                let is_for_group = mode & 0o060 == 0o060 && owner != 0;
                let (cause, mend) = match group_name.filter(|_| is_for_group) {
                    Some(name) => self.outside(&name),
                    None => self.kept_back(group),
                };
                Finding::Bad { found, cause, mend }
            }
            Err(error) => Finding::Unknown(format!("not checked: {error}")),
        }
    }

    /// The node is a group's.
    fn outside(&self, group: &str) -> (String, Mend) {
        let user = self.user();
        let cause = format!("{user} is not in the group {group}, or must log in again");
        (cause, Mend::Root(format!("usermod -aG {group} {user}")))
    }

    /// The node is root's.
    fn kept_back(&self, group: &Group) -> (String, Mend) {
        let install = || Mend::Root(format!("udev/install {}", self.user()));
        if !self.sysfs.root().join(RULES).exists() {
            return ("the udev rules that give cards to the group fpga are not installed".into(), install());
        }
        let Ok(listed) = fs::read_to_string(self.sysfs.root().join(CARDS)) else {
            return (format!("the udev rules are installed, but /{CARDS} is unreadable"), install());
        };
        let listed: BTreeSet<&str> = listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
        let unlisted = self.unlisted(group, &listed);
        let named = |members: &[&Unlisted]| members.iter().map(|one| one.text()).collect::<Vec<_>>().join(", ");
        let ids = |members: &[&Unlisted]| {
            let ids: BTreeSet<&str> = members.iter().filter_map(|one| one.ids.as_deref()).collect();
            ids.into_iter().collect::<Vec<_>>().join(" ")
        };
        let foreign: Vec<&Unlisted> = unlisted.iter().filter(|one| !one.is_card).collect();
        let cards: Vec<&Unlisted> = unlisted.iter().collect();
        if !foreign.is_empty() {
            let cause = format!("the node also gives access to {}, which is no known card", named(&foreign));
            let mut mend = "move the card to a slot with its own IOMMU group".to_owned();
            if foreign.iter().all(|one| one.ids.is_some()) {
                mend += &format!("; or give all of them to the group fpga: add {} to /{CARDS}", ids(&cards));
            }
            return (cause, Mend::Hand(mend));
        }
        if cards.is_empty() {
            let cause = "the udev rules have not been applied to the node since it was created or changed";
            return (cause.into(), Mend::Root(TRIGGER.into()));
        }
        let cause = format!("{} is not in /{CARDS}", named(&cards));
        (cause, Mend::Root(format!("printf '%s\\n' {} >> /{CARDS} && {TRIGGER}", ids(&cards))))
    }

    /// What `only-cards` of the rules stumbles over, by the same rule: each function but bridges has to be listed.
    fn unlisted(&self, group: &Group, listed: &BTreeSet<&str>) -> Vec<Unlisted> {
        let members = group.members.iter().filter(|member| member.class.is_none_or(|class| class >> 8 != 0x0604));
        let unlisted = members.filter_map(|member| {
            let name = member.name.clone();
            let Some(function) = member.address.and_then(|address| self.sysfs.function(address).ok()) else {
                return Some(Unlisted { name, ids: None, is_card: false });
            };
            let ids = format!("{:04x}:{:04x}", function.vendor, function.device);
            // Whoever asks says that the function asked about is one.
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

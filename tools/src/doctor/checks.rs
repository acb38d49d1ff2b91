//! The checks of a PCI function.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use fpga_hal::config::{self, Lanes};
use fpga_hal::sysfs::{Access, Group, Host, Owners, PciFunction, Sysfs, VFIO_PCI};

use super::{Finding, Mend, iommu};
use crate::{functions, known, size};

/// Rings and staging buffers of a card, which are locked in memory, fit into this.
const LOCKED_BYTES: u64 = 64 << 20;
/// The limit that the group gets, as `udev/install` puts it in place.
const LIMIT: &str = include_str!("../../../udev/60-fpga.conf");
/// The node that all groups are opened with.
const CONTAINER: &str = "/dev/vfio/vfio";

/// Whether a vfio-user socket is there and may be used. It is not connected to: that would reset the card behind it.
pub(super) fn socket(path: &Path) -> Finding {
    let bad = |found: String, cause: &str| Finding::Bad {
        found,
        cause: cause.into(),
        mend: Mend::User(format!("fpgactl mock serve --socket-dir {}", path.parent().unwrap_or(path).display())),
    };
    match path.metadata() {
        Ok(found) if found.file_type().is_socket() => {
            Finding::Good("a socket; who serves it is asked at opening".into())
        }
        Ok(_) => bad("no socket, but another file".into(), "the selector names the wrong file"),
        Err(error) => bad(error.to_string(), "nobody serves a card there, or this user may not look"),
    }
}

/// A function and what its checks look at.
pub(super) struct Examination<'a> {
    pub(super) sysfs: &'a Sysfs,
    pub(super) function: &'a PciFunction,
    pub(super) group: Option<Group>,
    owners: Owners,
    host: Host,
}

impl<'a> Examination<'a> {
    pub(super) fn new(sysfs: &'a Sysfs, function: &'a PciFunction) -> Self {
        let group = function.group.and_then(|number| sysfs.group(number).ok());
        let owners = functions::owners(sysfs, function);
        Examination { sysfs, function, group, owners, host: sysfs.host() }
    }

    /// All checks, in the order in which things are needed.
    pub(super) fn all(&self) -> Vec<(&'static str, Finding)> {
        vec![
            ("card", self.card()),
            ("power", self.power()),
            ("iommu", iommu::check(self.sysfs, self.function, self.group.as_ref())),
            ("module", self.module()),
            // Before the driver: nothing can be bound beside a member that the kernel has.
            ("iommu-group", self.iommu_group()),
            ("driver", self.driver()),
            ("container", self.container()),
            ("node", self.node()),
            ("owner", self.owner()),
            ("bus-master", self.bus_master()),
            ("link", self.link()),
            ("msix", self.msix()),
            ("memlock", self.memlock()),
            ("hugepages", self.huge_pages()),
        ]
    }

    fn address(&self) -> String {
        self.function.address.to_string()
    }

    fn card(&self) -> Finding {
        let is_silent = self.function.config.as_ref().is_some_and(|config| config.is_gone());
        if is_silent && !self.is_asleep() {
            let device = format!("/sys/bus/pci/devices/{}", self.address());
            return Finding::Bad {
                found: "its configuration space reads as all-ones".into(),
                cause: "the card has left the bus: its link is down, or its image is gone".into(),
                mend: Mend::Root(format!("echo 1 > {device}/remove; echo 1 > /sys/bus/pci/rescan")),
            };
        }
        let ids = format!("{:04x}:{:04x}", self.function.vendor, self.function.device);
        Finding::Good(known::name(self.function).map_or_else(|| ids.clone(), |name| format!("{ids} {name}")))
    }

    fn is_asleep(&self) -> bool {
        self.function.power.state.as_deref() == Some("D3cold")
    }

    fn power(&self) -> Finding {
        let state = self.function.power.state.as_deref();
        if self.is_asleep() {
            let device = format!("/sys/bus/pci/devices/{}", self.address());
            return Finding::Bad {
                found: "D3cold".into(),
                cause: "runtime power management has taken its power away".into(),
                mend: Mend::Root(format!("echo on > {device}/power/control")),
            };
        }
        Finding::Good(state.unwrap_or("not told by this kernel").to_owned())
    }

    fn module(&self) -> Finding {
        if self.sysfs.has_driver(VFIO_PCI) {
            return Finding::Good("vfio-pci is there".into());
        }
        Finding::Bad {
            found: "there is no driver vfio-pci".into(),
            cause: "its module is not loaded".into(),
            mend: Mend::Root("modprobe vfio-pci".into()),
        }
    }

    fn driver(&self) -> Finding {
        if self.function.driver.as_deref() == Some(VFIO_PCI) {
            return Finding::Good("vfio-pci".into());
        }
        let cause = match &self.function.driver {
            Some(driver) => format!("the card belongs to the kernel's driver {driver}"),
            None => "nobody has bound it".into(),
        };
        let mend = Mend::Root(format!("fpgactl bind {}", self.address()));
        Finding::Bad { found: functions::driver(self.function), cause, mend }
    }

    fn iommu_group(&self) -> Finding {
        let Some(group) = &self.group else { return Finding::Good("not examined: there is none".into()) };
        // Itself is the driver check's.
        let foreign: Vec<_> = group.foreign().filter(|member| member.address != Some(self.function.address)).collect();
        if foreign.is_empty() {
            let others = group.members.len().saturating_sub(1);
            let shared = if others == 0 { String::new() } else { format!(", shared with {others} that do not matter") };
            return Finding::Good(format!("{}{shared}", group.number));
        }
        let name = |member: &&fpga_hal::sysfs::Member| {
            format!("{} ({})", member.name, member.driver.as_deref().unwrap_or("no driver"))
        };
        let named: Vec<String> = foreign.iter().map(name).collect();
        let names: Vec<&str> = foreign.iter().map(|member| member.name.as_str()).collect();
        let is_card = |member: &&fpga_hal::sysfs::Member| {
            let function = member.address.and_then(|address| self.sysfs.function(address).ok());
            function.is_some_and(|function| known::name(&function).is_some() || known::may_be_card(&function))
        };
        let mend = if foreign.iter().all(is_card) {
            format!("fpgactl bind {} {}", self.address(), names.join(" "))
        } else {
            format!("fpgactl unbind {}", names.join(" "))
        };
        Finding::Bad {
            found: format!("{}, shared with {}", group.number, named.join(", ")),
            cause: "the bridge above cannot keep their DMA apart (no ACS), so VFIO wants all of them or none".into(),
            mend: Mend::Root(mend),
        }
    }

    fn container(&self) -> Finding {
        let missing = || Finding::Bad {
            found: format!("there is no {CONTAINER}"),
            cause: "the module vfio is not loaded".into(),
            mend: Mend::Root("modprobe vfio-pci".into()),
        };
        match self.sysfs.access(Path::new(CONTAINER)) {
            Ok(Access::Granted) => Finding::Good(format!("{CONTAINER} can be opened")),
            Ok(Access::Missing) => missing(),
            Ok(Access::Denied { mode, .. }) => Finding::Bad {
                found: format!("{CONTAINER} has mode {mode:04o}"),
                cause: "it should be open to everybody: it gives nothing without a group".into(),
                mend: Mend::Root(format!("chmod 0666 {CONTAINER}")),
            },
            Err(error) => Finding::Good(format!("not examined: {error}")),
        }
    }

    /// Name of whoever asks.
    pub(super) fn user(&self) -> String {
        let user = self.host.credentials.as_ref().map(|who| who.user);
        let name = user.and_then(|user| self.sysfs.user_name(user));
        name.or_else(|| user.map(|user| user.to_string())).unwrap_or_else(|| "\"$USER\"".into())
    }

    fn owner(&self) -> Finding {
        let Some(owner) = self.owners.found.first() else {
            let hidden = match self.owners.hidden {
                0 => String::new(),
                hidden => format!(" of those you may see; {hidden} processes are hidden from you"),
            };
            return Finding::Good(format!("nobody{hidden}"));
        };
        Finding::Bad {
            found: format!("process {} ({})", owner.id, owner.name),
            cause: "a card belongs to one process at a time, until that ends".into(),
            mend: Mend::User(format!("kill {}", owner.id)),
        }
    }

    fn bus_master(&self) -> Finding {
        let Some(config) = self.function.config.as_ref().filter(|config| !config.is_gone()) else {
            return Finding::Good("not examined: its configuration space cannot be read".into());
        };
        let is_on = config.header().command & config::COMMAND_MASTER != 0;
        match (is_on, self.owners.found.is_empty()) {
            (true, _) => Finding::Good("on".into()),
            (false, true) => Finding::Good("off, as it should be while nobody has it open".into()),
            (false, false) => Finding::Bad {
                found: "off, while a process has it open".into(),
                cause: "somebody has cleared the bit: its DMA and interrupts are dropped".into(),
                mend: Mend::Root(format!("setpci -s {} COMMAND=4:4", self.address())),
            },
        }
    }

    fn link(&self) -> Finding {
        let link = self.function.link;
        let (Some(now), Some(card)) = (link.now, link.card) else {
            let why = if self.is_asleep() { "the card is asleep" } else { "the kernel tells of no link" };
            return Finding::Good(format!("not examined: {why}"));
        };
        let found = |than: &str, best: Lanes| format!("{now}, below the {best} of {than}");
        match link.best() {
            Some(best) if now.is_below(best) => Finding::Bad {
                found: found("card and slot", best),
                cause: "it was trained down: a bad contact or riser, or power saving".into(),
                mend: match self.function.upstream {
                    Some(bridge) => Mend::Root(format!("setpci -s {bridge} CAP_EXP+10.w=20:20")),
                    None => Mend::Hand("seat the card anew".into()),
                },
            },
            Some(best) if best.is_below(card) => Finding::Bad {
                found: found("the card", card),
                cause: "the slot has no more".into(),
                mend: Mend::Hand(format!("put the card into a slot of {card}")),
            },
            _ => Finding::Good(now.to_string()),
        }
    }

    fn msix(&self) -> Finding {
        let Some(config) = self.function.config.as_ref().filter(|config| !config.is_gone()) else {
            return Finding::Good("not examined: its configuration space cannot be read".into());
        };
        if let Some(msix) = config.msix() {
            return Finding::Good(format!("{} vectors", msix.vectors));
        }
        if !config.capabilities().lacks(config::CAPABILITY_MSIX.into()) {
            return Finding::Good(format!(
                "not examined: {} bytes of configuration are seen, root sees all",
                config.len()
            ));
        }
        Finding::Bad {
            found: "none".into(),
            cause: "the image on the card has no MSI-X capability, so its completions cannot interrupt".into(),
            mend: Mend::Hand("load an image whose shell has MSI-X; until then completions are polled for".into()),
        }
    }

    fn memlock(&self) -> Finding {
        let Some(limit) = self.host.memlock else { return Finding::Good("not examined: no limit is told".into()) };
        if self.host.credentials.as_ref().is_some_and(|who| who.locks_without_limit()) {
            return Finding::Good("no limit for this user".into());
        }
        let Some(soft) = limit.soft else { return Finding::Good("unlimited".into()) };
        if soft >= LOCKED_BYTES {
            return Finding::Good(size::show(soft));
        }
        let mend = if limit.hard.is_none_or(|hard| hard >= LOCKED_BYTES) {
            Mend::User("ulimit -l \"$(ulimit -H -l)\"".into())
        } else {
            let line = LIMIT.lines().find(|line| line.starts_with('@')).unwrap_or_default();
            Mend::Root(format!(
                "echo '{line}' > /etc/security/limits.d/60-fpga.conf && usermod -aG fpga {}",
                self.user()
            ))
        };
        Finding::Bad {
            found: size::show(soft),
            cause: format!("memory that a card writes is locked, and {} are wanted", size::show(LOCKED_BYTES)),
            mend,
        }
    }

    fn huge_pages(&self) -> Finding {
        let pools = self.host.huge_pages.iter().filter(|pool| pool.free > 0);
        let free: Vec<String> = pools.map(|pool| format!("{} of {} free", pool.free, size::show(pool.bytes))).collect();
        if !free.is_empty() {
            return Finding::Good(free.join(", "));
        }
        let total: u64 = self.host.huge_pages.iter().map(|pool| pool.total).sum();
        let (found, cause) = match total {
            0 => ("none".to_owned(), "none are reserved"),
            total => (format!("{total}, none free"), "all are in use"),
        };
        Finding::Bad {
            found,
            cause: format!("{cause}: buffers are made of small pages, one IOMMU entry each"),
            mend: Mend::Root(format!("sysctl vm.nr_hugepages={}", total.saturating_add(64))),
        }
    }
}

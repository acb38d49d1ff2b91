//! The checks of a PCI function.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use fpga_hal::config::{self, Lanes};
use fpga_hal::sysfs::{Access, Group, Host, Owners, PciFunction, Sysfs, VFIO_PCI};

use super::finding::{Finding, Fix, SEQUENCER};
use super::iommu;
use crate::known::{self, Sequencer};
use crate::unix_sockets::{self, Behind, Table};
use crate::{functions, input_file, size};

/// Locked memory that a card needs for rings and staging buffers, in bytes.
const LOCKED_BYTES: u64 = 64 << 20;
/// Limits of the group with access to cards, installed with the udev rules.
const LIMITS: &str = "etc/security/limits.d/60-fpga.conf";
/// VFIO's container node, needed to open any group.
const CONTAINER: &str = "/dev/vfio/vfio";

/// Checks for a vfio-user socket without connecting: a connection would reset the card.
pub(super) fn socket(path: &Path, table: &Table) -> Finding {
    let bad = |found: String, cause: &str| Finding::Bad {
        found,
        cause: cause.into(),
        fix: Fix::User(format!("fpgactl mock serve --socket-dir {}", input_file::folder(path).display())),
    };
    match path.metadata() {
        Ok(found) if !found.file_type().is_socket() => bad("not a socket".into(), "the selector names the wrong file"),
        Ok(_) => match unix_sockets::behind(path, table) {
            Ok(Behind::Server) => Finding::Good("a socket; the server is identified when the card is opened".into()),
            Ok(Behind::Nobody) => {
                bad("no process listens".into(), "the server was killed, and has left its socket: start the server")
            }
            Ok(Behind::Deaf) => {
                bad("no process listens".into(), "the process that has made the socket does not serve: start a server")
            }
            Ok(Behind::OtherType) => bad("not a stream socket".into(), "the selector names the wrong file"),
            Ok(Behind::Denied) => Finding::Bad {
                found: "this user may not open the socket".into(),
                cause: "it belongs to a server of another user".into(),
                fix: Fix::Hand(format!(
                    "start the server as this user, or give this user the right to write {}",
                    path.display()
                )),
            },
            Err(error) => Finding::Bad {
                found: error.to_string(),
                cause: "the socket cannot be opened by this path".into(),
                fix: Fix::Hand("select the socket by another path".into()),
            },
        },
        Err(error) => {
            bad(error.to_string(), "no server has created the socket, or this user may not read the directory")
        }
    }
}

/// Finding for a card that may have the sequencer.
pub(super) fn unknown_until_opened(card: &str) -> Finding {
    Finding::Unknown(format!("unknown until opened; fpgactl info --cards {card} opens and resets the card"))
}

/// Vendor drivers, and the programs that use a card through them. Sources: XRT `src/runtime_src/core/pcie/driver`, Linux
/// `drivers/fpga`, AMD's `dma_ip_drivers`.
const VENDOR_DRIVERS: &[(&str, &str)] = &[
    ("xocl", "XRT and its programs (/dev/dri/renderD*)"),
    ("xclmgmt", "XRT's management of the card (xbmgmt)"),
    ("dfl-pci", "OPAE and its programs (/dev/dfl-*)"),
    ("intel-fpga-pci", "OPAE and its programs (/dev/intel-fpga-*)"),
    ("xdma", "programs on /dev/xdma*"),
    ("qdma-pf", "programs on /dev/qdma*"),
    ("qdma-vf", "programs on /dev/qdma*"),
];

/// A function, and the data for its checks.
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

    /// Runs all checks, each after those it depends on.
    pub(super) fn all(&self) -> Vec<(&'static str, Finding)> {
        vec![
            ("card", self.card()),
            ("power", self.power()),
            ("iommu", iommu::check(self.sysfs, self.function, self.group.as_ref())),
            ("module", self.module()),
            // Before the driver: VFIO needs the whole group.
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
            (SEQUENCER, self.sequencer()),
        ]
    }

    fn address(&self) -> String {
        self.function.address.to_string()
    }

    fn card(&self) -> Finding {
        let is_silent = self.function.config.as_ref().is_some_and(|config| config.is_gone());
        if is_silent && !self.is_asleep() {
            // A scan of the bus does not find virtual functions.
            let card = self.function.physical_function.unwrap_or(self.function.address);
            return Finding::Bad {
                found: "the configuration space reads as all-ones".into(),
                cause: "the card has left the bus: its link is down, or its image is gone".into(),
                fix: Fix::Root(format!("echo 1 > /sys/bus/pci/devices/{card}/remove; echo 1 > /sys/bus/pci/rescan")),
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
                cause: "runtime power management has switched the card off".into(),
                fix: Fix::Root(format!("echo on > {device}/power/control")),
            };
        }
        state
            .map_or_else(|| Finding::Unknown("not reported by this kernel".into()), |state| Finding::Good(state.into()))
    }

    fn module(&self) -> Finding {
        if self.sysfs.has_driver(VFIO_PCI) {
            return Finding::Good("vfio-pci is available".into());
        }
        Finding::Bad {
            found: "the driver vfio-pci is missing".into(),
            cause: "the module is not loaded".into(),
            fix: Fix::Root("modprobe vfio-pci".into()),
        }
    }

    fn driver(&self) -> Finding {
        if self.function.driver.as_deref() == Some(VFIO_PCI) {
            return Finding::Good("vfio-pci".into());
        }
        let found = functions::driver(self.function);
        let bind = format!("fpgactl bind {}", self.address());
        let Some(driver) = &self.function.driver else {
            return Finding::Bad { found, cause: "the card is not bound to a driver".into(), fix: Fix::Root(bind) };
        };
        let cause = format!("the card is bound to the kernel driver {driver}");
        let back = format!("until fpgactl unbind {} returns the card", self.address());
        let users = VENDOR_DRIVERS.iter().find(|one| one.0 == driver).map(|one| one.1);
        let cost = format!("{} lose the card {back}", users.unwrap_or("programs that use this driver"));
        // A vendor's driver may be in use, and no vendor shell is known to have the sequencer.
        let fix = match users {
            Some(_) => {
                Fix::Hand(format!("keep {driver} unless the card's image has the sequencer; then, as root: {bind}"))
            }
            None => Fix::Root(bind),
        };
        Finding::Costly { found, cause, fix, cost }
    }

    /// Checks by PCI ids whether the function can have the sequencer. Opening the card would tell, but would reset it.
    fn sequencer(&self) -> Finding {
        match known::sequencer(self.function) {
            Sequencer::Mock => Finding::Good("mock sequencer, by PCI ids; its times are simulated".into()),
            Sequencer::Channels => {
                Finding::Good("none, but CIRCUS channels, by PCI ids of a mock card (docs/circus.md)".into())
            }
            Sequencer::Unknown => unknown_until_opened(&format!("vfio:{}", self.address())),
            Sequencer::None(why) => Finding::Bad {
                found: format!("no sequencer: {why}"),
                cause: "coll needs a function whose image has the sequencer; no such image ships yet".into(),
                fix: Fix::Hand("select another function; fpgactl list shows known cards".into()),
            },
        }
    }

    fn iommu_group(&self) -> Finding {
        let Some(group) = &self.group else { return Finding::Unknown("not checked: the card has no group".into()) };
        // The driver check covers the function itself.
        let foreign: Vec<_> = group.foreign().filter(|member| member.address != Some(self.function.address)).collect();
        if foreign.is_empty() {
            let others = group.members.len().saturating_sub(1);
            let shared = if others == 0 { String::new() } else { format!(", shared with {others} that do not block") };
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
        let fix = if foreign.iter().all(is_card) {
            format!("fpgactl bind {} {}", self.address(), names.join(" "))
        } else {
            format!("fpgactl unbind {}", names.join(" "))
        };
        Finding::Bad {
            found: format!("{}, shared with {}", group.number, named.join(", ")),
            cause: "the upstream bridge does not isolate their DMA (no ACS), so VFIO needs the whole group".into(),
            fix: Fix::Root(fix),
        }
    }

    fn container(&self) -> Finding {
        let missing = || Finding::Bad {
            found: format!("{CONTAINER} is missing"),
            cause: "the module vfio is not loaded".into(),
            fix: Fix::Root("modprobe vfio-pci".into()),
        };
        match self.sysfs.access(Path::new(CONTAINER)) {
            Ok(Access::Granted) => Finding::Good(format!("{CONTAINER} is accessible")),
            Ok(Access::Missing) => missing(),
            Ok(Access::Denied { mode, .. }) => Finding::Bad {
                found: format!("{CONTAINER} has mode {mode:04o}"),
                cause: "every user needs the node; alone it gives access to no card".into(),
                fix: Fix::Root(format!("chmod 0666 {CONTAINER}")),
            },
            Err(error) => Finding::Unknown(format!("not checked: {error}")),
        }
    }

    /// Returns the name of this user.
    pub(super) fn user(&self) -> String {
        let user = self.host.credentials.as_ref().map(|who| who.user);
        let name = user.and_then(|user| self.sysfs.user_name(user));
        name.or_else(|| user.map(|user| user.to_string())).unwrap_or_else(|| "\"$USER\"".into())
    }

    fn owner(&self) -> Finding {
        let Some(owner) = self.owners.found.first() else {
            let hidden = match self.owners.hidden {
                0 => String::new(),
                hidden => format!(" found; {hidden} processes are hidden from this user"),
            };
            return Finding::Good(format!("none{hidden}"));
        };
        Finding::Bad {
            found: format!("process {} ({})", owner.id, owner.name),
            cause: "only one process at a time can open a card".into(),
            fix: Fix::User(format!("kill {}", owner.id)),
        }
    }

    fn bus_master(&self) -> Finding {
        let Some(config) = self.function.config.as_ref().filter(|config| !config.is_gone()) else {
            return Finding::Unknown("not checked: the configuration space is unreadable".into());
        };
        let is_on = config.header().command & config::COMMAND_MASTER != 0;
        match (is_on, self.owners.found.is_empty()) {
            (true, _) => Finding::Good("on".into()),
            (false, true) => Finding::Good("off, as expected while the card is not open".into()),
            (false, false) => Finding::Bad {
                found: "off while a process has the card open".into(),
                cause: "another program cleared the bit: DMA and interrupts of the card are dropped".into(),
                fix: Fix::Root(format!("setpci -s {} COMMAND=4:4", self.address())),
            },
        }
    }

    fn link(&self) -> Finding {
        let link = self.function.link;
        let (Some(now), Some(card)) = (link.now, link.card) else {
            let why = if self.is_asleep() { "the card is in D3cold" } else { "the kernel reports no link" };
            return Finding::Unknown(format!("not checked: {why}"));
        };
        let found = |than: &str, best: Lanes| format!("{now}, below the {best} of {than}");
        match link.best() {
            Some(best) if now.is_below(best) => Finding::Bad {
                found: found("card and slot", best),
                cause: "the link trained down: bad contact or riser, or power saving".into(),
                fix: match self.function.upstream {
                    Some(bridge) => Fix::Root(format!("setpci -s {bridge} CAP_EXP+10.w=20:20")),
                    None => Fix::Hand("reseat the card".into()),
                },
            },
            Some(best) if best.is_below(card) => Finding::Bad {
                found: found("the card", card),
                cause: "the slot supports no more".into(),
                fix: Fix::Hand(format!("move the card to a slot with {card}")),
            },
            _ => Finding::Good(now.to_string()),
        }
    }

    fn msix(&self) -> Finding {
        let Some(config) = self.function.config.as_ref().filter(|config| !config.is_gone()) else {
            return Finding::Unknown("not checked: the configuration space is unreadable".into());
        };
        if let Some(msix) = config.msix() {
            return Finding::Good(format!("{} vectors", msix.vectors));
        }
        if !config.capabilities().lacks(config::CAPABILITY_MSIX.into()) {
            return Finding::Unknown(format!(
                "not checked: only {} bytes of configuration are readable; root reads all",
                config.len()
            ));
        }
        Finding::Bad {
            found: "none".into(),
            cause: "the card's image has no MSI-X capability, so completions raise no interrupts".into(),
            fix: Fix::Hand("load an image whose shell has MSI-X; until then completions are polled".into()),
        }
    }

    fn memlock(&self) -> Finding {
        let Some(limit) = self.host.memlock else {
            return Finding::Unknown("not checked: the kernel reports no limit".into());
        };
        if limit.is_exempt {
            return Finding::Good("no limit for this user".into());
        }
        let Some(soft) = limit.soft else { return Finding::Good("unlimited".into()) };
        if soft >= LOCKED_BYTES {
            return Finding::Good(size::show(soft));
        }
        let fix = if limit.hard.is_none_or(|hard| hard >= LOCKED_BYTES) {
            Fix::User("ulimit -l \"$(ulimit -H -l)\"".into())
        } else {
            self.raise_memlock()
        };
        Finding::Bad {
            found: size::show(soft),
            cause: format!("DMA memory is locked; a card needs {}", size::show(LOCKED_BYTES)),
            fix,
        }
    }

    /// Returns the fix for a low limit: membership in the group with a higher limit, or installing that limit.
    fn raise_memlock(&self) -> Fix {
        let user = self.user();
        let limits = fs::read_to_string(self.sysfs.root().join(LIMITS)).unwrap_or_default();
        let mut groups =
            limits.lines().filter_map(|line| line.trim_start().strip_prefix('@')?.split_whitespace().next());
        match groups.next() {
            Some(group) => Fix::Root(format!(
                "usermod -aG {group} {user}  # then log in again: /{LIMITS} raises the group's limit"
            )),
            None => Fix::Root(format!("{}  # then log in again: this installs /{LIMITS}", self.install())),
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
            cause: format!("{cause}: buffers use small pages, one IOMMU entry each"),
            fix: Fix::Root(format!("sysctl vm.nr_hugepages={}", total.saturating_add(64))),
        }
    }
}

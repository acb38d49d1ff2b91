//! One PCI function, as sysfs tells of it.

use std::path::Path;

use super::attribute::{self, Notes};
use super::{Error, Result, Sysfs, parse};
use crate::ResetOutcome;
use crate::config::{Lanes, Space};
use crate::{BarIndex, PciAddress};

/// Base class of bridges.
const CLASS_BRIDGE: u32 = 0x06;

/// One PCI function. What is `None` the function does not have, or `unread` says why it cannot be told.
#[derive(Debug)]
#[non_exhaustive]
pub struct PciFunction {
    /// Where it sits.
    pub address: PciAddress,
    /// Vendor id.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// Class code, 24 bits.
    pub class: u32,
    /// Subsystem vendor and subsystem device id.
    pub subsystem: Option<(u16, u16)>,
    /// Revision.
    pub revision: Option<u8>,
    /// Its BARs, by index.
    pub bars: Vec<Bar>,
    /// A copy of its configuration space: 64 bytes of it, unless this user may see all (CAP_SYS_ADMIN). `None` in D3cold:
    /// to read it is to wake the function.
    pub config: Option<Space>,
    /// Its link.
    pub link: Link,
    /// The bridge it sits behind; `None` on a root bus.
    pub upstream: Option<PciAddress>,
    /// The memory node it is near to.
    pub numa_node: Option<u32>,
    /// Number of its IOMMU group; without one there is no IOMMU for it.
    pub group: Option<u32>,
    /// The driver it is bound to.
    pub driver: Option<String>,
    /// The driver that alone may take it.
    pub driver_override: Option<String>,
    /// Names of character devices of its own: `vfio0` for `/dev/vfio/devices/vfio0`. Kernels before 6.6 have none.
    pub vfio_devices: Vec<String>,
    /// Virtual functions, of a physical function.
    pub virtual_functions: Option<VirtualFunctions>,
    /// The physical function that it is a virtual one of.
    pub physical_function: Option<PciAddress>,
    /// Ways to reset it, in the order the kernel tries them. None: it cannot be reset.
    pub reset_methods: Vec<String>,
    /// Power.
    pub power: RuntimePower,
    /// Errors counted by the kernel.
    pub errors: Errors,
    /// What could not be read or understood.
    pub unread: Vec<Error>,
}

/// A base address register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bar {
    /// Which.
    pub index: BarIndex,
    /// Its bus address; `None` if it has not been given one.
    pub address: Option<u64>,
    /// Its length.
    pub bytes: u64,
    /// What it decodes.
    pub kind: BarKind,
    /// Whether reads have no side effects.
    pub is_prefetchable: bool,
}

/// What a BAR decodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BarKind {
    /// I/O ports.
    Ports,
    /// Memory below 4 GiB.
    Memory32,
    /// Memory anywhere.
    Memory64,
}

impl BarKind {
    /// Name in output.
    pub const fn name(self) -> &'static str {
        match self {
            BarKind::Ports => "ports",
            BarKind::Memory32 => "memory 32-bit",
            BarKind::Memory64 => "memory 64-bit",
        }
    }
}

/// The link to the bridge above; of a virtual function, that of its physical one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Link {
    /// What it is now; `None` if it is down or asleep, and if there is none.
    pub now: Option<Lanes>,
    /// What the card can.
    pub card: Option<Lanes>,
    /// What the slot can: the bridge above.
    pub slot: Option<Lanes>,
}

impl Link {
    /// What it should be: the best that card and slot have in common.
    pub fn best(&self) -> Option<Lanes> {
        match (self.card, self.slot) {
            (Some(card), Some(slot)) => Some(card.between(slot)),
            (card, slot) => card.or(slot),
        }
    }
}

/// Virtual functions of a physical function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualFunctions {
    /// How many there can be.
    pub total: u16,
    /// How many there should be now.
    pub enabled: u16,
    /// Where those are that there are.
    pub addresses: Vec<PciAddress>,
}

/// Power of a function.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuntimePower {
    /// `D0` to `D3hot`, `D3cold`, or `unknown`.
    pub state: Option<String>,
    /// What runtime power management says: `active`, `suspended`, …
    pub runtime_status: Option<String>,
    /// `auto` if the kernel may suspend it, `on` if not.
    pub control: Option<String>,
}

/// Errors that the kernel has counted since the function appeared: name and count of those that are not zero.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Errors {
    /// Whether the kernel counts them.
    pub is_counted: bool,
    /// Corrected by hardware.
    pub correctable: Vec<(String, u64)>,
    /// Not corrected; the link goes on.
    pub nonfatal: Vec<(String, u64)>,
    /// Not corrected; the link does not go on.
    pub fatal: Vec<(String, u64)>,
}

impl PciFunction {
    /// Whether it is a bridge.
    pub fn is_bridge(&self) -> bool {
        self.class >> 16 == CLASS_BRIDGE
    }
}

/// What a function is and who drives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ids {
    /// Where it sits.
    pub address: PciAddress,
    /// Vendor id.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// Class code, 24 bits.
    pub class: u32,
    /// The driver it is bound to.
    pub driver: Option<String>,
}

/// Reads what a function is.
pub(super) fn ids(sysfs: &Sysfs, address: PciAddress) -> Result<Ids> {
    let directory = sysfs.directory(address);
    if !directory.is_dir() {
        return Err(Error::NoFunction { address });
    }
    let id = |name: &str, digits: usize| {
        let path = directory.join(name);
        let value = attribute::parsed(&path, "a hexadecimal number", |text| parse::hex(text, digits))?;
        value.ok_or_else(|| {
            // It went while it was read, or this is no function's directory.
            if sysfs.is_there(address) {
                attribute::malformed(&directory, "no ids", "the attributes of a function")
            } else {
                Error::NoFunction { address }
            }
        })
    };
    let (vendor, device, class) = (id("vendor", 4)? as u16, id("device", 4)? as u16, id("class", 6)? as u32);
    Ok(Ids { address, vendor, device, class, driver: sysfs.driver(address)? })
}

/// Reads everything of one function.
pub(super) fn read(sysfs: &Sysfs, address: PciAddress) -> Result<PciFunction> {
    let Ids { vendor, device, class, driver, .. } = ids(sysfs, address)?;
    let directory = sysfs.directory(address);
    let mut notes = Notes::default();
    let power = RuntimePower {
        state: notes.keep(attribute::text(&directory.join("power_state"))),
        runtime_status: notes.keep(attribute::text(&directory.join("power/runtime_status"))),
        control: notes.keep(attribute::text(&directory.join("power/control"))),
    };
    // To read its configuration space, the kernel would give it power again.
    let is_without_power = power.state.as_deref() == Some("D3cold");
    let mut optional_id = |name: &str, digits| {
        let path = directory.join(name);
        notes.keep(attribute::parsed(&path, "a hexadecimal number", |text| parse::hex(text, digits)))
    };
    let subsystem = optional_id("subsystem_vendor", 4).zip(optional_id("subsystem_device", 4));
    let revision = optional_id("revision", 2);
    let bars = attribute::parsed(&directory.join("resource"), "three numbers a line", parse::bars);
    let physical = directory.join("physfn");
    let physical_function = notes.keep(address_of_link(&physical));
    let of_link = if physical_function.is_some() { &physical } else { &directory };
    let upstream = upstream(of_link);
    Ok(PciFunction {
        address,
        vendor,
        device,
        class,
        subsystem: subsystem.map(|(vendor, device)| (vendor as u16, device as u16)),
        revision: revision.map(|revision| revision as u8),
        bars: notes.keep(bars).unwrap_or_default(),
        config: if is_without_power {
            None
        } else {
            notes.keep(attribute::bytes(&directory.join("config"))).and_then(Space::new)
        },
        link: Link {
            now: lanes(of_link, "current", &mut notes),
            card: lanes(of_link, "max", &mut notes),
            slot: upstream.and_then(|bridge| lanes(&sysfs.directory(bridge), "max", &mut notes)),
        },
        upstream,
        numa_node: notes.keep(numa_node(&directory)),
        group: notes.keep(group_number(&directory)),
        driver,
        driver_override: notes.keep(sysfs.driver_override(address)),
        vfio_devices: notes.keep(attribute::names(&directory.join("vfio-dev"))).unwrap_or_default(),
        virtual_functions: virtual_functions(&directory, &mut notes),
        physical_function,
        reset_methods: reset_methods(&directory, &mut notes),
        power,
        errors: errors(&directory, &mut notes),
        unread: notes.0,
    })
}

/// The function that a link points to.
fn address_of_link(path: &Path) -> Result<Option<PciAddress>> {
    let Some(name) = attribute::link_name(path)? else { return Ok(None) };
    name.parse().map(Some).map_err(|_| attribute::malformed(path, &name, "the address of a function"))
}

/// The bridge above: the directory that the function's own lies in, if that is a function's.
fn upstream(directory: &Path) -> Option<PciAddress> {
    let real = directory.canonicalize().ok()?;
    real.parent()?.file_name()?.to_str()?.parse().ok()
}

/// Speed and width, `current` or `max`. A link that is not there, or whose state is not known, has none.
fn lanes(directory: &Path, which: &str, notes: &mut Notes) -> Option<Lanes> {
    let path = |what: &str| directory.join(format!("{which}_link_{what}"));
    let speed = attribute::parsed(&path("speed"), "the speed of a link", parse::link_speed);
    let width = attribute::parsed(&path("width"), "the width of a link", parse::link_width);
    let (speed, width) = (notes.keep(speed).flatten()?, notes.keep(width).flatten()?);
    Some(Lanes { speed, width })
}

/// The memory node; −1 says that the firmware does not tell.
fn numa_node(directory: &Path) -> Result<Option<u32>> {
    let parse = |text: &str| if text == "-1" { Some(None) } else { text.parse().ok().map(Some) };
    Ok(attribute::parsed(&directory.join("numa_node"), "the number of a memory node", parse)?.flatten())
}

/// The number of the IOMMU group that a device's directory links to.
pub(super) fn group_number(directory: &Path) -> Result<Option<u32>> {
    let path = directory.join("iommu_group");
    let Some(name) = attribute::link_name(&path)? else { return Ok(None) };
    name.parse().map(Some).map_err(|_| attribute::malformed(&path, &name, "the number of an IOMMU group"))
}

fn virtual_functions(directory: &Path, notes: &mut Notes) -> Option<VirtualFunctions> {
    let number = |text: &str| text.parse().ok();
    let total = notes.keep(attribute::parsed(&directory.join("sriov_totalvfs"), "a number", number))?;
    let enabled = notes.keep(attribute::parsed(&directory.join("sriov_numvfs"), "a number", number)).unwrap_or(0);
    let names = notes.keep(attribute::names(directory)).unwrap_or_default();
    let links = names.iter().filter(|name| name.starts_with("virtfn")).map(|name| directory.join(name));
    let mut addresses: Vec<_> = links.filter_map(|link| notes.keep(address_of_link(&link))).collect();
    addresses.sort_unstable();
    Some(VirtualFunctions { total, enabled, addresses })
}

/// What a reset by the kernel resets that has these methods. It goes through them in order, and stops at the first that the
/// function has (Linux `drivers/pci/pci.c`, `__pci_reset_function_locked`).
pub(crate) fn reset_by(methods: &[String]) -> ResetOutcome {
    match methods.first().map(String::as_str) {
        // The bus above it; the kernel does that only where the function is alone on it.
        Some("bus" | "cxl_bus") => ResetOutcome::Bus,
        _ => ResetOutcome::Function,
    }
}

/// Kernels before 5.15 have no list, only a file that is there if there is any way.
pub(super) fn reset_methods(directory: &Path, notes: &mut Notes) -> Vec<String> {
    let methods = notes.keep(attribute::text(&directory.join("reset_method")));
    let methods = methods.or_else(|| directory.join("reset").exists().then(|| "unnamed".to_owned()));
    methods.unwrap_or_default().split_ascii_whitespace().map(str::to_owned).collect()
}

fn errors(directory: &Path, notes: &mut Notes) -> Errors {
    let mut counted = |kind: &str| {
        let path = directory.join(format!("aer_dev_{kind}"));
        notes.keep(attribute::parsed(&path, "a name and a count a line", parse::aer_counters))
    };
    let all = [counted("correctable"), counted("nonfatal"), counted("fatal")];
    let is_counted = all.iter().any(Option::is_some);
    let [correctable, nonfatal, fatal] =
        all.map(|counters| counters.unwrap_or_default().into_iter().filter(|(_, count)| *count > 0).collect());
    Errors { is_counted, correctable, nonfatal, fatal }
}

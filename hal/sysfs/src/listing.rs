//! Reading functions.

use std::path::Path;

use fpga_pci::config::{Lanes, Space};
use fpga_pci::{PciAddress, ResetOutcome};

use crate::attribute::{self, Notes};
use crate::error::{Error, Result};
use crate::function::{Errors, Ids, Link, PciFunction, RuntimePower, VirtualFunctions};
use crate::parse;
use crate::root::Sysfs;

/// All functions, by address.
#[derive(Debug)]
pub struct Listing {
    /// Functions that can be read.
    pub functions: Vec<PciFunction>,
    /// Errors of other functions.
    pub unread: Vec<Error>,
}

impl Sysfs {
    /// Returns the addresses of all functions, sorted. Empty: the machine has no PCI.
    ///
    /// # Errors
    /// If the directory exists and cannot be read.
    pub fn addresses(&self) -> Result<Vec<PciAddress>> {
        let names = attribute::names(&self.path("/sys/bus/pci/devices"))?.unwrap_or_default();
        let mut addresses: Vec<PciAddress> = names.iter().filter_map(|name| name.parse().ok()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        Ok(addresses)
    }

    /// Reads all functions. A function that is removed meanwhile is left out.
    ///
    /// # Errors
    /// If their directory cannot be read.
    pub fn functions(&self) -> Result<Listing> {
        self.functions_where(|_| true)
    }

    /// Reads the functions whose ids are wanted, and only the ids of the others.
    ///
    /// # Errors
    /// If their directory cannot be read.
    pub fn functions_where(&self, is_wanted: impl Fn(&Ids) -> bool) -> Result<Listing> {
        let mut listing = Listing { functions: Vec::new(), unread: Vec::new() };
        for address in self.addresses()? {
            let function =
                self.ids(address).and_then(|ids| is_wanted(&ids).then(|| self.function(address)).transpose());
            match function {
                Ok(function) => listing.functions.extend(function),
                Err(Error::NoFunction { .. }) => {}
                Err(error) => listing.unread.push(error),
            }
        }
        Ok(listing)
    }

    /// Reads ids and driver of a function.
    ///
    /// # Errors
    /// [`Error::NoFunction`], or if they cannot be read.
    pub fn ids(&self, address: PciAddress) -> Result<Ids> {
        ids(self, address)
    }

    /// Reads one function.
    ///
    /// # Errors
    /// [`Error::NoFunction`], or if its ids cannot be read. Errors of other values are in [`PciFunction::unread`].
    pub fn function(&self, address: PciAddress) -> Result<PciFunction> {
        read(self, address)
    }

    /// Returns the name of the driver that a function is bound to.
    ///
    /// # Errors
    /// [`Error::NoFunction`], or if the link cannot be read.
    pub fn driver(&self, address: PciAddress) -> Result<Option<String>> {
        let directory = self.directory(address);
        let driver = attribute::link_name(&directory.join("driver"))?;
        if driver.is_none() && !directory.exists() {
            return Err(Error::NoFunction { address });
        }
        Ok(driver)
    }

    /// Returns the number of a function's IOMMU group, if an IOMMU translates for it.
    ///
    /// # Errors
    /// If the link cannot be read.
    pub fn group_number(&self, address: PciAddress) -> Result<Option<u32>> {
        group_number(&self.directory(address))
    }

    /// Returns the NUMA node of a function, if the firmware reports it.
    ///
    /// # Errors
    /// If the attribute cannot be read.
    pub fn numa_node(&self, address: PciAddress) -> Result<Option<u32>> {
        numa_node(&self.directory(address))
    }

    /// Returns the reset methods of a function, in the order in which the kernel tries them. Empty if they cannot be read.
    pub fn reset_methods(&self, address: PciAddress) -> Vec<String> {
        reset_methods(&self.directory(address), &mut attribute::Notes::default())
    }

    /// Returns the driver override of a function.
    ///
    /// # Errors
    /// If the attribute cannot be read.
    pub fn driver_override(&self, address: PciAddress) -> Result<Option<String>> {
        let text = attribute::text(&self.directory(address).join("driver_override"))?;
        Ok(text.filter(|text| !text.is_empty() && text != "(null)"))
    }
}

/// Reads ids and driver of a function.
fn ids(sysfs: &Sysfs, address: PciAddress) -> Result<Ids> {
    let directory = sysfs.directory(address);
    if !directory.is_dir() {
        return Err(Error::NoFunction { address });
    }
    let id = |name: &str, digits: usize| {
        let path = directory.join(name);
        let value = attribute::parsed(&path, "a hexadecimal number", |text| parse::hex(text, digits))?;
        value.ok_or_else(|| {
            // It was removed meanwhile, or this is not the directory of a function.
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

/// Reads all values of one function.
fn read(sysfs: &Sysfs, address: PciAddress) -> Result<PciFunction> {
    let Ids { vendor, device, class, driver, .. } = ids(sysfs, address)?;
    let directory = sysfs.directory(address);
    let mut notes = Notes::default();
    let power = RuntimePower {
        state: notes.keep(attribute::text(&directory.join("power_state"))),
        runtime_status: notes.keep(attribute::text(&directory.join("power/runtime_status"))),
        control: notes.keep(attribute::text(&directory.join("power/control"))),
    };
    // A read of configuration space would power it up.
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

/// Returns the function that a link points to.
fn address_of_link(path: &Path) -> Result<Option<PciAddress>> {
    let Some(name) = attribute::link_name(path)? else { return Ok(None) };
    name.parse().map(Some).map_err(|_| attribute::malformed(path, &name, "the address of a function"))
}

/// Returns the bridge above: the parent directory, if that is the directory of a function.
fn upstream(directory: &Path) -> Option<PciAddress> {
    let real = directory.canonicalize().ok()?;
    real.parent()?.file_name()?.to_str()?.parse().ok()
}

/// Returns speed and width, `current` or `max`. `None`: no link, or the kernel does not know.
fn lanes(directory: &Path, which: &str, notes: &mut Notes) -> Option<Lanes> {
    let path = |what: &str| directory.join(format!("{which}_link_{what}"));
    let speed = attribute::parsed(&path("speed"), "the speed of a link", parse::link_speed);
    let width = attribute::parsed(&path("width"), "the width of a link", parse::link_width);
    let (speed, width) = (notes.keep(speed).flatten()?, notes.keep(width).flatten()?);
    Some(Lanes { speed, width })
}

/// Returns the NUMA node. −1 means that the firmware does not report it.
fn numa_node(directory: &Path) -> Result<Option<u32>> {
    let parse = |text: &str| if text == "-1" { Some(None) } else { text.parse().ok().map(Some) };
    Ok(attribute::parsed(&directory.join("numa_node"), "the number of a memory node", parse)?.flatten())
}

/// Returns the number of the IOMMU group that a device's directory links to.
fn group_number(directory: &Path) -> Result<Option<u32>> {
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

/// Returns the scope of a reset by the kernel with these methods. The kernel tries them in order and stops at the first that
/// works (Linux `drivers/pci/pci.c`, `__pci_reset_function_locked`).
pub fn reset_by(methods: &[String]) -> ResetOutcome {
    match methods.first().map(String::as_str) {
        // The bus above. The kernel does that only if the function is alone on the bus.
        Some("bus" | "cxl_bus") => ResetOutcome::Bus,
        _ => ResetOutcome::Function,
    }
}

/// Reads the reset methods. Kernels before 5.15 have no list, only a file that exists if there is any method.
fn reset_methods(directory: &Path, notes: &mut Notes) -> Vec<String> {
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

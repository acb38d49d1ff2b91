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
    /// Those that can be read.
    pub functions: Vec<PciFunction>,
    /// Why others cannot be.
    pub unread: Vec<Error>,
}

impl Sysfs {
    /// Addresses of all functions, in order. None if the machine has no PCI.
    ///
    /// # Errors
    /// If the directory is there and cannot be read.
    pub fn addresses(&self) -> Result<Vec<PciAddress>> {
        let names = attribute::names(&self.path("/sys/bus/pci/devices"))?.unwrap_or_default();
        let mut addresses: Vec<PciAddress> = names.iter().filter_map(|name| name.parse().ok()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        Ok(addresses)
    }

    /// All functions. One that goes while they are read is left out.
    ///
    /// # Errors
    /// If their directory cannot be read.
    pub fn functions(&self) -> Result<Listing> {
        self.functions_where(|_| true)
    }

    /// All functions whose ids are wanted. Of others nothing else is read.
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

    /// What a function is and who drives it.
    ///
    /// # Errors
    /// [`Error::NoFunction`], or if that cannot be read.
    pub fn ids(&self, address: PciAddress) -> Result<Ids> {
        ids(self, address)
    }

    /// One function.
    ///
    /// # Errors
    /// [`Error::NoFunction`], or if its ids cannot be read. Of everything else the reason stands in
    /// [`PciFunction::unread`].
    pub fn function(&self, address: PciAddress) -> Result<PciFunction> {
        read(self, address)
    }

    /// Name of the driver a function is bound to.
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

    /// Number of the IOMMU group a function is in, if an IOMMU translates for it.
    pub fn group_number(&self, address: PciAddress) -> Result<Option<u32>> {
        group_number(&self.directory(address))
    }

    /// The kernel's ways to reset a function, in the order it tries them. None if that cannot be read.
    pub fn reset_methods(&self, address: PciAddress) -> Vec<String> {
        reset_methods(&self.directory(address), &mut attribute::Notes::default())
    }

    /// The driver that alone may take a function, if one is set.
    ///
    /// # Errors
    /// If the attribute cannot be read.
    pub fn driver_override(&self, address: PciAddress) -> Result<Option<String>> {
        let text = attribute::text(&self.directory(address).join("driver_override"))?;
        Ok(text.filter(|text| !text.is_empty() && text != "(null)"))
    }
}

/// Reads what a function is.
fn ids(sysfs: &Sysfs, address: PciAddress) -> Result<Ids> {
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
fn read(sysfs: &Sysfs, address: PciAddress) -> Result<PciFunction> {
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

/// What a reset by the kernel resets that has these methods. It goes through them in order, and stops at the first that the
/// function has (Linux `drivers/pci/pci.c`, `__pci_reset_function_locked`).
pub fn reset_by(methods: &[String]) -> ResetOutcome {
    match methods.first().map(String::as_str) {
        // The bus above it; the kernel does that only where the function is alone on it.
        Some("bus" | "cxl_bus") => ResetOutcome::Bus,
        _ => ResetOutcome::Function,
    }
}

/// Kernels before 5.15 have no list, only a file that is there if there is any way.
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

//! `fpgactl info ADDRESS`: shows everything the kernel reports about a PCI function. Opens no card.

use fpga_hal::PciAddress;
use fpga_hal::config::{self, End, Lanes, Space};
use fpga_hal::sysfs::{Group, PciFunction, Sysfs};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::Cli;
use crate::exit::Result;
use crate::functions::{self, Owner, State};
use crate::{known, output, size};

#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed {
    schema: &'static str,
    selector: String,
    address: String,
    name: Option<&'static str>,
    vendor: String,
    device: String,
    subsystem_vendor: Option<String>,
    subsystem_device: Option<String>,
    class: String,
    revision: Option<u8>,
    state: &'static str,
    #[serde(skip)]
    state_text: String,
    owner: Option<Owner>,
    /// Number of processes whose files this user may not see; one of them may be the owner.
    hidden_processes: usize,
    driver: Option<String>,
    driver_override: Option<String>,
    iommu_group: Option<IommuGroup>,
    numa_node: Option<u32>,
    link: Link,
    upstream: Option<String>,
    bars: Vec<Bar>,
    config_bytes: Option<usize>,
    capabilities: Vec<Capability>,
    capabilities_complete: bool,
    msix_vectors: Option<u16>,
    bus_master: Option<bool>,
    sriov: Option<Sriov>,
    physical_function: Option<String>,
    reset_methods: Vec<String>,
    power: Power,
    errors: Option<Errors>,
    unread: Vec<String>,
}

#[derive(JsonSchema, Serialize)]
struct IommuGroup {
    number: u32,
    node: String,
    viable: bool,
    protected: bool,
    members: Vec<Member>,
}

#[derive(JsonSchema, Serialize)]
struct Member {
    device: String,
    driver: Option<String>,
    foreign: bool,
}

#[derive(JsonSchema, Serialize)]
struct Link {
    now: Option<OneLink>,
    card: Option<OneLink>,
    slot: Option<OneLink>,
}

#[derive(JsonSchema, Serialize)]
struct OneLink {
    gigatransfers: f64,
    width: u8,
    #[serde(skip)]
    shown: String,
}

#[derive(JsonSchema, Serialize)]
struct Bar {
    bar: usize,
    kind: &'static str,
    prefetchable: bool,
    bytes: u64,
    address: Option<u64>,
}

#[derive(JsonSchema, Serialize)]
struct Capability {
    id: u16,
    extended: bool,
    offset: u16,
    name: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vendor_id: Option<u16>,
}

#[derive(JsonSchema, Serialize)]
struct Sriov {
    total: u16,
    enabled: u16,
    functions: Vec<String>,
}

#[derive(JsonSchema, Serialize)]
struct Power {
    state: Option<String>,
    runtime_status: Option<String>,
    control: Option<String>,
}

#[derive(JsonSchema, Serialize)]
struct Errors {
    correctable: Vec<Counter>,
    nonfatal: Vec<Counter>,
    fatal: Vec<Counter>,
}

#[derive(JsonSchema, Serialize)]
struct Counter {
    name: String,
    count: u64,
}

pub(crate) fn run(cli: &Cli, address: PciAddress) -> Result<()> {
    let sysfs = functions::sysfs(cli);
    let function = functions::find(&sysfs, address)?;
    let printed = describe(&sysfs, &function);
    output::print(cli.json, &printed, || text(&printed))
}

fn describe(sysfs: &Sysfs, function: &PciFunction) -> Printed {
    let state = State::of(sysfs, function);
    let mut unread: Vec<String> = function.unread.iter().map(ToString::to_string).collect();
    let group =
        function.group.and_then(|number| sysfs.group(number).inspect_err(|error| unread.push(error.to_string())).ok());
    let config = function.config.as_ref().filter(|config| !config.is_gone());
    let (capabilities, capabilities_complete) = config.map_or((Vec::new(), false), capabilities);
    let hex = |id: u16| format!("{id:04x}");
    let sriov = function.virtual_functions.as_ref().map(|of| Sriov {
        total: of.total,
        enabled: of.enabled,
        functions: of.addresses.iter().map(PciAddress::to_string).collect(),
    });
    let power = &function.power;
    Printed {
        schema: "fpgactl.function/1",
        selector: format!("vfio:{}", function.address),
        address: function.address.to_string(),
        name: known::name(function),
        vendor: hex(function.vendor),
        device: hex(function.device),
        subsystem_vendor: function.subsystem.map(|ids| hex(ids.0)),
        subsystem_device: function.subsystem.map(|ids| hex(ids.1)),
        class: format!("{:06x}", function.class),
        revision: function.revision,
        state: state.name(),
        state_text: state.text(),
        owner: state.owner(),
        hidden_processes: functions::owners(sysfs, function).hidden,
        driver: function.driver.clone(),
        driver_override: function.driver_override.clone(),
        iommu_group: group.as_ref().map(iommu_group),
        numa_node: function.numa_node,
        link: Link {
            now: function.link.now.map(one_link),
            card: function.link.card.map(one_link),
            slot: function.link.slot.map(one_link),
        },
        upstream: function.upstream.map(|bridge| bridge.to_string()),
        bars: function.bars.iter().map(bar).collect(),
        config_bytes: config.map(Space::len),
        capabilities,
        capabilities_complete,
        msix_vectors: config.and_then(Space::msix).map(|msix| msix.vectors),
        bus_master: config.map(|config| config.header().command & config::COMMAND_MASTER != 0),
        sriov,
        physical_function: function.physical_function.map(|address| address.to_string()),
        reset_methods: function.reset_methods.clone(),
        power: Power {
            state: power.state.clone(),
            runtime_status: power.runtime_status.clone(),
            control: power.control.clone(),
        },
        errors: function.errors.is_counted.then(|| Errors {
            correctable: counters(&function.errors.correctable),
            nonfatal: counters(&function.errors.nonfatal),
            fatal: counters(&function.errors.fatal),
        }),
        unread,
    }
}

fn iommu_group(group: &Group) -> IommuGroup {
    let member = |member: &fpga_hal::sysfs::Member| Member {
        device: member.name.clone(),
        driver: member.driver.clone(),
        foreign: member.is_foreign(),
    };
    IommuGroup {
        number: group.number,
        node: group.node().display().to_string(),
        viable: group.is_viable(),
        protected: !group.is_unprotected,
        members: group.members.iter().map(member).collect(),
    }
}

fn one_link(lanes: Lanes) -> OneLink {
    let gigatransfers = f64::from(lanes.speed.mega_transfers()) / 1e3;
    OneLink { gigatransfers, width: lanes.width, shown: lanes.to_string() }
}

fn bar(bar: &fpga_hal::sysfs::Bar) -> Bar {
    Bar {
        bar: bar.index.index(),
        kind: bar.kind.name(),
        prefetchable: bar.is_prefetchable,
        bytes: bar.bytes,
        address: bar.address,
    }
}

fn capabilities(config: &Space) -> (Vec<Capability>, bool) {
    let (short, long) = (config.capabilities(), config.extended_capabilities());
    let vendors = config.vendor_specific();
    let vendor_id = |offset| vendors.iter().find(|one| one.offset == offset).and_then(|one| one.id);
    let first = short.found.iter().map(|one| Capability {
        id: one.id,
        extended: false,
        offset: one.offset,
        name: config::name(one.id),
        vendor_id: None,
    });
    let extended = long.found.iter().map(|one| Capability {
        id: one.id,
        extended: true,
        offset: one.offset,
        name: config::extended_name(one.id),
        vendor_id: vendor_id(one.offset),
    });
    (first.chain(extended).collect(), short.end == End::Complete && long.end == End::Complete)
}

fn counters(counters: &[(String, u64)]) -> Vec<Counter> {
    counters.iter().map(|(name, count)| Counter { name: name.clone(), count: *count }).collect()
}

fn text(of: &Printed) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row = |name: &str, value: String| rows.push(vec![name.to_owned(), value]);
    let dash = || "-".to_owned();
    let or_dash = |value: &Option<String>| value.clone().unwrap_or_else(dash);

    let subsystem = of.subsystem_vendor.as_ref().zip(of.subsystem_device.as_ref());
    let subsystem = subsystem.map(|(vendor, device)| format!(", subsystem {vendor}:{device}")).unwrap_or_default();
    let revision = of.revision.map(|revision| format!(", revision {revision:02x}")).unwrap_or_default();
    row("ids", format!("{}:{}{subsystem}, class {}{revision}", of.vendor, of.device, of.class));
    row("state", of.state_text.clone());
    let only = of.driver_override.as_ref().map(|only| format!(" (override: {only})")).unwrap_or_default();
    row("driver", format!("{}{only}", of.driver.as_deref().unwrap_or("none")));
    match &of.iommu_group {
        None => row("IOMMU group", "none: the IOMMU is off".to_owned()),
        Some(group) => {
            let viable = if group.viable { "viable" } else { "not viable" };
            let protected = if group.protected { "" } else { ", WITHOUT AN IOMMU" };
            row("IOMMU group", format!("{} ({}), {viable}{protected}", group.number, group.node));
            for member in group.members.iter().filter(|member| member.device != of.address) {
                let foreign = if member.foreign { ": blocks the group" } else { "" };
                row("", format!("shared with {}, {}{foreign}", member.device, or_dash(&member.driver)));
            }
        }
    }
    if of.hidden_processes > 0 {
        row("owner", format!("unknown: {} processes are hidden from this user", of.hidden_processes));
    }
    row("NUMA node", of.numa_node.map_or_else(dash, |node| node.to_string()));
    let shown = |link: &Option<OneLink>| link.as_ref().map_or_else(dash, |link| link.shown.clone());
    let link = &of.link;
    row("link", format!("{}; card {}, slot {}", shown(&link.now), shown(&link.card), shown(&link.slot)));
    row("upstream", or_dash(&of.upstream));
    for bar in &of.bars {
        let address = bar.address.map_or_else(|| "no address".to_owned(), |address| format!("{address:#x}"));
        let prefetchable = if bar.prefetchable { ", prefetchable" } else { "" };
        row(&format!("BAR{}", bar.bar), format!("{}, {}{prefetchable}, at {address}", size::show(bar.bytes), bar.kind));
    }
    let seen = of.config_bytes.map_or_else(dash, |bytes| {
        let rest = if bytes < 256 { " (root reads all)" } else { "" };
        format!("{bytes} bytes read{rest}")
    });
    row("configuration", seen);
    for one in &of.capabilities {
        let name = one.name.map_or_else(|| format!("id {:#06x}", one.id), str::to_owned);
        let vendor = one.vendor_id.map(|id| format!(" {id:#06x}")).unwrap_or_default();
        row(if one.extended { "  extended" } else { "  capability" }, format!("{:#05x} {name}{vendor}", one.offset));
    }
    row(
        "MSI-X",
        match of.msix_vectors {
            Some(vectors) => format!("{vectors} vectors"),
            None if of.capabilities_complete => "none".to_owned(),
            None => "unknown".to_owned(),
        },
    );
    row("bus master", of.bus_master.map_or_else(dash, |on| if on { "on" } else { "off" }.to_owned()));
    if let Some(sriov) = &of.sriov {
        row("SR-IOV", format!("{} of {} virtual functions {}", sriov.enabled, sriov.total, sriov.functions.join(" ")));
    }
    if let Some(physical) = &of.physical_function {
        row("VF of", physical.clone());
    }
    let methods = if of.reset_methods.is_empty() { "none".to_owned() } else { of.reset_methods.join(" ") };
    row("resets", methods);
    let power = &of.power;
    let runtime = power.runtime_status.as_ref().map(|status| format!(", {status}")).unwrap_or_default();
    let control = power.control.as_ref().map(|control| format!(", control {control}")).unwrap_or_default();
    row("power", format!("{}{runtime}{control}", or_dash(&power.state)));
    row("errors", of.errors.as_ref().map_or_else(|| "not counted".to_owned(), errors));
    for note in &of.unread {
        row("unreadable", note.clone());
    }
    let name = of.name.map(|name| format!(": {name}")).unwrap_or_default();
    format!("{}{name}\n\n{}", of.address, output::table(&rows))
}

fn errors(errors: &Errors) -> String {
    let list = |kind: &str, counters: &[Counter]| {
        counters.iter().map(|one| format!("{} {kind} {}", one.count, one.name)).collect::<Vec<_>>()
    };
    let all =
        [list("correctable", &errors.correctable), list("nonfatal", &errors.nonfatal), list("fatal", &errors.fatal)];
    let all = all.concat();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

//! `fpgactl info`: shows capabilities, and a mock fabric's parameters with their sources.

use cmdseq::capability::SwitchUnits;
use cmdseq::switch::{Collective, Form};
use cmdseq::{Capabilities, Element, Operation, Reduction};
use fpga_driver::{Card, Error, Feed};
use fpga_hal::Function;
use fpga_select::{Basis, Selector};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cards::{self, Cards};
use crate::cli::Cli;
use crate::exit::Result;
use crate::{boards, channel_info, control_info, output, readings, size};

#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed<'a> {
    schema: &'static str,
    selector: &'a str,
    kind: &'static str,
    mock: bool,
    cards: usize,
    register_version: String,
    feed: &'static str,
    /// Channels of the DMA engine through which the sequencer masters the bus.
    bypass: Option<Bypass>,
    /// The engine that moves data between the host and card memory; null if copy instructions do.
    engine: Option<&'static str>,
    capabilities: Described,
    components: Vec<Component>,
    /// Of one card whose function is its control function, too.
    control: Option<control_info::Described>,
    /// Of each card.
    readings: Vec<readings::Described>,
}

/// Numbers of channels, as in `fpgactl.info/1`.
#[derive(JsonSchema, Serialize)]
struct Bypass {
    h2c: u32,
    c2h: u32,
}

/// Capabilities, as in `fpgactl.info/1`.
#[derive(JsonSchema, Serialize)]
struct Described {
    instruction_version: u32,
    clock_khz: u32,
    nodes: u32,
    topology: &'static str,
    groups: u32,
    ports: u32,
    memory_bytes: u64,
    memory_channels: u32,
    stripe_half_bytes: u64,
    queue_depth_max: u32,
    communicators: u32,
    communicator_ranks: u32,
    communicator_generations: u32,
    resident_programs: u32,
    resident_words: u32,
    signals: u32,
    tables: u32,
    windows: u32,
    lanes: u32,
    address_align: u32,
    host_memory: bool,
    eager_bytes: u64,
    eager_limit: u64,
    extrapolated: bool,
    operations: Vec<&'static str>,
    unknown_operations: Vec<u32>,
    element_types: Vec<&'static str>,
    reductions: Vec<&'static str>,
    /// What the switches of the network compute; absent if they only route.
    #[serde(skip_serializing_if = "Option::is_none")]
    switch: Option<SwitchDescribed>,
}

/// What the switches of a network compute.
#[derive(JsonSchema, Serialize)]
struct SwitchDescribed {
    collectives: Vec<InSwitch>,
    element_types: Vec<&'static str>,
    reductions: Vec<&'static str>,
    control_cycles: u32,
    float_cycles: u32,
    router_cycles: u32,
    entry_ps: u32,
}

/// A collective that switches compute, and the forms in which they do.
#[derive(JsonSchema, Serialize)]
struct InSwitch {
    operation: &'static str,
    forms: Vec<&'static str>,
}

#[derive(JsonSchema, Serialize)]
struct Component {
    name: &'static str,
    value: u64,
    unit: &'static str,
    basis: &'static str,
    source: &'static str,
}

pub(crate) fn run(cli: &Cli) -> Result<()> {
    let selector = Selector::parse(&cards::selector(cli)?)?;
    let selection = selector.open()?;
    // Whoever finds out what a function is gives it back: the next one may take it into use.
    let control = match selection.functions.as_slice() {
        [function] => control_info::describe(function)?,
        _ => None,
    };
    let readings = selection.functions.iter().map(readings::describe).collect::<Result<Vec<_>>>()?;
    if let Some(first) = selection.functions.first()
        && !has_sequencer(first)?
    {
        let (name, kind) = (selection.selector.as_str(), selection.kind.name());
        if let (Some(control), [readings]) = (&control, readings.as_slice()) {
            return control_info::print(control, readings, name, kind, cli.json);
        }
        if let Some(channels) = channel_info::describe(&selection.functions)? {
            return channel_info::print(&channels, &readings, name, kind, cli.json);
        }
        if let [readings] = readings.as_slice()
            && readings.has_parts()
        {
            return readings::print(readings, name, kind, cli.json);
        }
    }
    let components = components(&selector);
    let cards = Cards::of(selection)?;
    let first = cards.cluster.cards().first();
    let (major, minor) = first.map_or((0, 0), |card| card.version());
    let feed = first.map_or(Feed::HostRing, |card| card.feed());
    let printed = Printed {
        schema: "fpgactl.info/1",
        selector: &cards.selector,
        kind: cards.kind.name(),
        mock: cards.are_mock(),
        cards: cards.cluster.cards().len(),
        register_version: format!("{major}.{minor}"),
        feed: feed.name(),
        bypass: first.and_then(|card| card.bypass_channels()).map(|(h2c, c2h)| Bypass { h2c, c2h }),
        engine: first.and_then(|card| card.data_engine()),
        capabilities: described(cards.capabilities()),
        components,
        control,
        readings,
    };
    output::print(cli.json, &printed, || text(&printed, feed))
}

/// Returns whether a function has a sequencer. If a port of the function holds it in reset, it is released.
fn has_sequencer(function: &Function) -> Result<bool> {
    match Card::open(function.clone()) {
        Ok(_) => Ok(true),
        Err(Error::NoSequencer { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn described(capabilities: &Capabilities) -> Described {
    let is_unknown =
        |code: &u32| Operation::from_code(*code as u8).is_none() && capabilities.operations >> code & 1 == 1;
    Described {
        instruction_version: capabilities.isa,
        clock_khz: capabilities.clock_khz,
        nodes: capabilities.nodes,
        topology: capabilities.topology.name(),
        groups: capabilities.topology.rows(),
        ports: capabilities.ports,
        memory_bytes: capabilities.memory_bytes,
        memory_channels: capabilities.memory_channels,
        stripe_half_bytes: capabilities.stripe_half_bytes,
        queue_depth_max: capabilities.queue_depth_max,
        communicators: capabilities.communicators,
        communicator_ranks: capabilities.communicator_ranks,
        communicator_generations: capabilities.communicator_generations,
        resident_programs: capabilities.resident_programs,
        resident_words: capabilities.resident_words,
        signals: capabilities.signals,
        tables: capabilities.tables,
        windows: capabilities.windows,
        lanes: capabilities.lanes,
        address_align: capabilities.address_align,
        host_memory: capabilities.host_memory,
        eager_bytes: capabilities.eager_bytes,
        eager_limit: capabilities.eager_limit,
        extrapolated: capabilities.extrapolated,
        operations: Operation::in_bits(capabilities.operations).map(Operation::name).collect(),
        unknown_operations: (0..u64::BITS).filter(is_unknown).collect(),
        element_types: Element::in_bits(capabilities.element_types).map(Element::name).collect(),
        reductions: Reduction::in_bits(capabilities.reductions).map(Reduction::name).collect(),
        switch: capabilities.switch.as_ref().map(in_switches),
    }
}

fn in_switches(units: &SwitchUnits) -> SwitchDescribed {
    let forms = |collective: Collective| -> Vec<&'static str> {
        Form::ALL.iter().filter(|form| units.has(collective, **form)).map(|form| form.name()).collect()
    };
    let of = |collective: Collective| InSwitch { operation: collective.name(), forms: forms(collective) };
    SwitchDescribed {
        collectives: Collective::ALL.iter().copied().map(of).filter(|one| !one.forms.is_empty()).collect(),
        element_types: Element::in_bits(units.element_types).map(Element::name).collect(),
        reductions: Reduction::in_bits(units.reductions).map(Reduction::name).collect(),
        control_cycles: units.control_cycles,
        float_cycles: units.float_cycles,
        router_cycles: units.router_cycles,
        entry_ps: units.entry_ps,
    }
}

/// Lists what switches compute, in lines that follow those of the card.
fn switch_rows(of: &SwitchDescribed) -> [[String; 2]; 3] {
    let collective = |one: &InSwitch| format!("{} ({})", one.operation, one.forms.join(" "));
    let collectives: Vec<String> = of.collectives.iter().map(collective).collect();
    [
        ["in the switches".to_owned(), collectives.join(", ")],
        ["  element types".to_owned(), of.element_types.join(" ")],
        ["  reductions".to_owned(), of.reductions.join(" ")],
    ]
}

fn components(selector: &Selector) -> Vec<Component> {
    let components = selector.profile().map(|profile| profile.components()).unwrap_or_default();
    let printed = components.into_iter().map(|component| {
        let (name, source) = match component.basis {
            Basis::Source(place) => ("source", place),
            Basis::Fitted(row) => ("fitted", row),
            Basis::Assumed(why) => ("assumed", why),
        };
        Component { name: component.name, value: component.value, unit: component.unit, basis: name, source }
    });
    printed.collect()
}

/// Says how instructions reach the card.
fn fed(feed: Feed) -> &'static str {
    match feed {
        Feed::HostRing => "host ring: rings in host memory, one register write for the doorbell",
        Feed::CardRing => {
            "card ring: words stored on the card, completions brought by its DMA engine; no register is read"
        }
        Feed::Registers => "registers: words stored on the card, completions read from it one register at a time",
    }
}

/// Says what moves data between the host and card memory.
fn moved_by(engine: Option<&str>) -> &str {
    match engine {
        Some("xdma") => "AMD's DMA engine (XDMA)",
        Some("msgdma") => "Intel's DMA engine (mSGDMA)",
        Some(other) => other,
        None => "copy instructions",
    }
}

fn text(printed: &Printed<'_>, feed: Feed) -> String {
    let Printed { selector, cards, register_version, capabilities: of, components, control, .. } = printed;
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let groups = match of.topology {
        "dragonfly" => format!(" of {} groups", of.groups),
        "torus" => format!(" of {} rows", of.groups),
        _ => String::new(),
    };
    let bypass = printed.bypass.as_ref().map_or(String::new(), |Bypass { h2c, c2h }| {
        format!("; the card reaches them through H2C channel {h2c} and C2H channel {c2h} of its DMA engine")
    });
    let mut rows = vec![
        row("registers", format!("version {register_version}")),
        row("instructions", format!("version {}", of.instruction_version)),
        row("clock", format!("{} MHz", f64::from(of.clock_khz) / 1e3)),
        row("fabric", format!("{} cards, {}{groups}, {} links per card", of.nodes, of.topology, of.ports)),
        row("memory", format!("{} in {} pseudo channels", size::show(of.memory_bytes), of.memory_channels)),
        row("stripe", format!("{} (2K)", size::show(2 * of.stripe_half_bytes))),
        row(
            "receive buffer",
            format!("{} per link, eager up to {}", size::show(of.eager_bytes), size::show(of.eager_limit)),
        ),
        row("queue", format!("at most {} instructions", of.queue_depth_max)),
        row("fed by", fed(feed).to_owned() + &bypass),
        row("data moved by", moved_by(printed.engine).to_owned()),
        row(
            "communicators",
            format!(
                "{}, each with at most {} ranks and {} generations",
                of.communicators, of.communicator_ranks, of.communicator_generations
            ),
        ),
        row("programs", format!("{}, each with at most {} instructions", of.resident_programs, of.resident_words)),
        row("signals", of.signals.to_string()),
        row("tables", format!("{}, each with at most {} entries", of.tables, of.communicator_ranks)),
        row("windows", of.windows.to_string()),
        row("lanes", of.lanes.to_string()),
        row("alignment", size::show(of.address_align.into())),
        row("operations", of.operations.join(" ")),
        row("element types", of.element_types.join(" ")),
        row("reductions", of.reductions.join(" ")),
    ];
    rows.extend(of.switch.iter().flat_map(switch_rows).map(Vec::from));
    if !of.unknown_operations.is_empty() {
        let codes: Vec<String> = of.unknown_operations.iter().map(u32::to_string).collect();
        rows.push(row("not known here", format!("operations {}", codes.join(" "))));
    }
    let kind = cards::kind(printed.kind, printed.mock);
    let mut text = format!("{selector}: {cards} cards ({kind})\n\n{}", output::table(&rows));
    if of.extrapolated {
        text += "\nextrapolated: the fabric is larger than the published system\n";
    }
    if !components.is_empty() {
        let rows = components.iter().map(|one| {
            let value = format!("{} {}", one.value, one.unit);
            [one.name.to_owned(), value, one.basis.to_owned(), one.source.to_owned()]
        });
        text = text + "\n" + &output::headed(["COMPONENT", "VALUE", "BASIS", "SOURCE"], rows);
    }
    if let Some(control) = control {
        text = text + "\n" + &control_info::text(control, selector);
    }
    match printed.readings.as_slice() {
        [one] => text = text + "\n" + &readings::text(one),
        several => {
            let files = several.first().map(|first| {
                let file = first.board_file();
                format!("\nboard file {}\n{}", boards::name(file), boards::unused(file))
            });
            text = text + &files.unwrap_or_default() + &readings::alarms(several);
        }
    }
    text
}

//! `fpgactl image inspect`: shows what an image file holds.

use cmdseq::text::printable;
use fpga_image::bit::Bit;
use fpga_image::gbs::Gbs;
use fpga_image::xclbin::{self, ClockKind, Xclbin, ip_kind_name, kind_name, memory_kind_name, mode_name};
use fpga_image::{Format, Image};
use fpga_select::Selector;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::{Cli, ImageInspect};
use crate::exit::Result;
use crate::image::card::{ImageCard, is_for_emulation};
use crate::image::{parse, read};
use crate::{output, size};

/// A file, as in `fpgactl.image-inspect/1`: fields that its format lacks are null or empty.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed {
    schema: &'static str,
    file: String,
    format: &'static str,
    bytes: u64,
    /// UUID of the interface that it is made for.
    interface: Option<String>,
    platform: Option<String>,
    /// UUID of the file.
    id: Option<String>,
    version: Option<String>,
    /// Seconds since 1970.
    timestamp: Option<u64>,
    rom_timestamp: Option<u64>,
    mode: Option<u16>,
    mode_name: Option<&'static str>,
    signature_bytes: Option<u64>,
    user_signature_bytes: Option<u64>,
    bitstream: Option<Bitstream>,
    clock_mhz_high: Option<f64>,
    clock_mhz_low: Option<f64>,
    power_w: Option<f64>,
    accelerators: Vec<Accelerator>,
    sections: Vec<Section>,
    memories: Vec<Memory>,
    kernels: Vec<Kernel>,
    connections: Vec<Connection>,
    clocks: Vec<Clock>,
    /// Device tree of the partition.
    partition: Option<Partition>,
    card: Option<Card>,
}

/// The card that the file is compared with.
#[derive(JsonSchema, Serialize)]
struct Card {
    selector: String,
    interface: String,
    /// Null if the file does not say what it is for.
    fits: Option<bool>,
}

#[derive(JsonSchema, Serialize)]
struct Bitstream {
    bytes: u64,
    signed: bool,
    design: Option<String>,
    device: Option<String>,
    date: Option<String>,
    time: Option<String>,
}

#[derive(JsonSchema, Serialize)]
struct Accelerator {
    name: String,
    guid: String,
    contexts: u64,
}

#[derive(JsonSchema, Serialize)]
struct Section {
    kind: u32,
    kind_name: Option<&'static str>,
    name: String,
    offset: u64,
    bytes: u64,
}

#[derive(JsonSchema, Serialize)]
struct Memory {
    name: String,
    kind: u8,
    kind_name: Option<&'static str>,
    used: bool,
    address: u64,
    bytes: u64,
}

#[derive(JsonSchema, Serialize)]
struct Kernel {
    name: String,
    kind: u32,
    kind_name: Option<&'static str>,
    address: Option<u64>,
    properties: u32,
}

#[derive(JsonSchema, Serialize)]
struct Connection {
    kernel: u32,
    argument: u32,
    memory: u32,
}

#[derive(JsonSchema, Serialize)]
struct Clock {
    name: String,
    kind: String,
    mhz: u16,
}

#[derive(JsonSchema, Serialize)]
struct Partition {
    /// UUID of the logic.
    logic: Option<String>,
    /// UUIDs of the interfaces.
    interfaces: Vec<String>,
    /// All nodes, each before those inside of it.
    nodes: Vec<Node>,
}

#[derive(JsonSchema, Serialize)]
struct Node {
    path: String,
    properties: Vec<Property>,
}

/// A property: texts and numbers are null if its bytes are none.
#[derive(JsonSchema, Serialize)]
struct Property {
    name: String,
    /// All bytes, in hexadecimal digits.
    hex: String,
    texts: Option<Vec<String>>,
    /// Numbers of 32 bits.
    numbers: Option<Vec<u32>>,
}

pub(crate) fn run(cli: &Cli, arguments: &ImageInspect) -> Result<()> {
    let data = read(&arguments.file)?;
    let image = parse(&arguments.file, &data)?;
    let mut printed = printed(arguments.file.display().to_string(), data.len() as u64, &image);
    if let Some(selector) = &arguments.card {
        let card = ImageCard::open(&Selector::parse(selector)?)?;
        let (interface, fits) = (card.interface().to_string(), card.fits(&image));
        printed.card = Some(Card { selector: selector.clone(), interface, fits });
    }
    output::print(cli.json, &printed, || text(&printed, &image))
}

fn printed(file: String, bytes: u64, image: &Image<'_>) -> Printed {
    let empty = Printed {
        schema: "fpgactl.image-inspect/1",
        file,
        format: image.format().name(),
        bytes,
        interface: None,
        platform: None,
        id: None,
        version: None,
        timestamp: None,
        rom_timestamp: None,
        mode: None,
        mode_name: None,
        signature_bytes: None,
        user_signature_bytes: None,
        bitstream: None,
        clock_mhz_high: None,
        clock_mhz_low: None,
        power_w: None,
        accelerators: Vec::new(),
        sections: Vec::new(),
        memories: Vec::new(),
        kernels: Vec::new(),
        connections: Vec::new(),
        clocks: Vec::new(),
        partition: None,
        card: None,
    };
    match image {
        Image::Xclbin(xclbin) => of_xclbin(xclbin, empty),
        Image::Gbs(gbs) => of_gbs(gbs, empty),
        Image::Bit(bit) => Printed { bitstream: Some(of_bit(bit)), ..empty },
        other => {
            let signed = other.format() == Format::Signed;
            Printed { bitstream: Some(plain(bytes, signed)), ..empty }
        }
    }
}

/// A bitstream of which nothing more is known.
fn plain(bytes: u64, signed: bool) -> Bitstream {
    Bitstream { bytes, signed, design: None, device: None, date: None, time: None }
}

fn of_bit(bit: &Bit<'_>) -> Bitstream {
    Bitstream {
        design: Some(bit.design.to_owned()),
        device: Some(bit.part.to_owned()),
        date: Some(bit.date.to_owned()),
        time: Some(bit.time.to_owned()),
        ..plain(bit.stream.len() as u64, false)
    }
}

fn of_gbs(gbs: &Gbs<'_>, empty: Printed) -> Printed {
    let [high, low] = gbs.clock_mhz;
    let accelerator = |one: &fpga_image::gbs::Accelerator| Accelerator {
        name: one.name.clone(),
        guid: one.guid.to_string(),
        contexts: one.contexts,
    };
    Printed {
        interface: gbs.interface.map(|interface| interface.to_string()),
        platform: gbs.platform.clone(),
        bitstream: Some(plain(gbs.bitstream.len() as u64, gbs.is_signed)),
        clock_mhz_high: high,
        clock_mhz_low: low,
        power_w: gbs.power_w,
        accelerators: gbs.accelerators.iter().map(accelerator).collect(),
        ..empty
    }
}

fn of_xclbin(xclbin: &Xclbin<'_>, empty: Printed) -> Printed {
    let (major, minor, patch) = xclbin.version;
    let length = |signature: Option<&[u8]>| signature.map(|signature| signature.len() as u64);
    let sections = xclbin.sections.iter().map(|one| Section {
        kind: one.kind,
        kind_name: kind_name(one.kind),
        name: one.name.to_owned(),
        offset: one.offset,
        bytes: one.bytes.len() as u64,
    });
    let memories = xclbin.memories.iter().map(|one| Memory {
        name: one.name.to_owned(),
        kind: one.kind,
        kind_name: memory_kind_name(one.kind),
        used: one.is_used,
        address: one.address,
        bytes: one.bytes,
    });
    let kernels = xclbin.ips.iter().map(|one| Kernel {
        name: one.name.to_owned(),
        kind: one.kind,
        kind_name: ip_kind_name(one.kind),
        address: one.address,
        properties: one.properties,
    });
    let connections =
        xclbin.connections.iter().map(|one| Connection { kernel: one.ip, argument: one.argument, memory: one.memory });
    let clocks = xclbin.clocks.iter().map(|one| Clock {
        name: one.name.to_owned(),
        kind: match one.kind {
            ClockKind::Unused => "unused".to_owned(),
            ClockKind::Data => "data".to_owned(),
            ClockKind::Kernel => "kernel".to_owned(),
            ClockKind::System => "system".to_owned(),
            ClockKind::Unknown(code) => code.to_string(),
        },
        mhz: one.mhz,
    });
    Printed {
        interface: (!xclbin.interface.is_nil()).then(|| xclbin.interface.to_string()),
        platform: (!xclbin.platform.is_empty()).then(|| xclbin.platform.to_owned()),
        id: Some(xclbin.id.to_string()),
        version: Some(format!("{major}.{minor}.{patch}")),
        timestamp: Some(xclbin.timestamp),
        rom_timestamp: Some(xclbin.rom_timestamp),
        mode: Some(xclbin.mode),
        mode_name: mode_name(xclbin.mode),
        signature_bytes: length(xclbin.signature),
        user_signature_bytes: length(xclbin.user_signature),
        bitstream: xclbin.bitstream.as_ref().map(of_bit),
        sections: sections.collect(),
        memories: memories.collect(),
        kernels: kernels.collect(),
        connections: connections.collect(),
        clocks: clocks.collect(),
        partition: xclbin.partition.as_ref().map(of_partition),
        ..empty
    }
}

fn of_partition(partition: &xclbin::Partition<'_>) -> Partition {
    let property = |one: &xclbin::Property<'_>| Property {
        name: one.name.to_owned(),
        hex: one.value.iter().map(|byte| format!("{byte:02x}")).collect(),
        texts: one.texts().map(|texts| texts.into_iter().map(str::to_owned).collect()),
        numbers: one.numbers(),
    };
    let node = |one: &xclbin::Node<'_>| Node {
        path: one.path.clone(),
        properties: one.properties.iter().map(property).collect(),
    };
    Partition {
        logic: partition.logic.map(|id| id.to_string()),
        interfaces: partition.interfaces.iter().map(ToString::to_string).collect(),
        nodes: partition.nodes.iter().map(node).collect(),
    }
}

/// Shows the value of a property as a source of a device tree would have it.
fn shown(property: &Property) -> String {
    match (&property.texts, &property.numbers) {
        (Some(texts), _) => texts.join(", ").replace('\n', "\\n").replace('\t', "\\t"),
        (None, Some(numbers)) => {
            let numbers: Vec<String> = numbers.iter().map(|number| format!("{number:#x}")).collect();
            format!("<{}>", numbers.join(" "))
        }
        (None, None) if property.hex.is_empty() => "(empty)".to_owned(),
        (None, None) => format!("[{}]", property.hex),
    }
}

fn text(printed: &Printed, image: &Image<'_>) -> String {
    let mut rows = Vec::new();
    let mut row = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            rows.push(vec![name.to_owned(), printable(&value)]);
        }
    };
    let bytes = |bytes: u64| format!("{bytes} bytes");
    let named = |name: Option<&str>, code: u32| name.map_or_else(|| code.to_string(), str::to_owned);
    row("file", Some(format!("{} ({}, {} bytes)", printed.file, printed.format, printed.bytes)));
    row("platform", printed.platform.clone());
    row("interface", printed.interface.clone());
    row("uuid", printed.id.clone());
    row("mode", printed.mode.map(|mode| named(printed.mode_name, mode.into())));
    row("written by", printed.version.as_ref().map(|version| format!("version {version} of AMD's tools")));
    row("signature", printed.signature_bytes.map(bytes));
    row("user's signature", printed.user_signature_bytes.map(bytes));
    row("clock", printed.clock_mhz_high.map(|mhz| format!("{mhz} MHz")));
    row("slow clock", printed.clock_mhz_low.map(|mhz| format!("{mhz} MHz")));
    row("power", printed.power_w.map(|watts| format!("{watts} W")));
    row("bitstream", printed.bitstream.as_ref().map(bitstream));
    for one in &printed.accelerators {
        row("accelerator", Some(format!("{} ({})", one.guid, one.name)));
    }
    row("card", printed.card.as_ref().map(|card| compared(card, image)));
    let mut text = output::table(&rows);
    let mut table = |heading: &[&str], rows: Vec<Vec<String>>| {
        if !rows.is_empty() {
            let heading = heading.iter().map(|word| (*word).to_owned()).collect();
            text += "\n";
            text += &output::table(&[vec![heading], rows].concat());
        }
    };
    let hex = |value: u64| format!("{value:#x}");
    let sections = printed.sections.iter();
    table(
        &["SECTION", "NAME", "OFFSET", "BYTES"],
        sections
            .map(|one| vec![named(one.kind_name, one.kind), one.name.clone(), hex(one.offset), one.bytes.to_string()])
            .collect(),
    );
    let memory = |one: &Memory| {
        let used = if one.used { "yes" } else { "no" };
        let kind = named(one.kind_name, one.kind.into());
        vec![one.name.clone(), kind, hex(one.address), size::show(one.bytes), used.to_owned()]
    };
    table(&["MEMORY", "KIND", "ADDRESS", "SIZE", "USED"], printed.memories.iter().map(memory).collect());
    let mut memories = vec![Vec::new(); printed.kernels.len()];
    for one in &printed.connections {
        memories[one.kernel as usize].push(format!("{}={}", one.argument, printed.memories[one.memory as usize].name));
    }
    let kernel = |(one, memories): (&Kernel, Vec<String>)| {
        let address = one.address.map_or("-".to_owned(), hex);
        vec![one.name.clone(), named(one.kind_name, one.kind), address, memories.join(" ")]
    };
    table(&["BLOCK", "KIND", "ADDRESS", "ARGUMENTS"], printed.kernels.iter().zip(memories).map(kernel).collect());
    let clock = |one: &Clock| vec![one.name.clone(), one.kind.clone(), format!("{} MHz", one.mhz)];
    table(&["CLOCK", "KIND", "RATE"], printed.clocks.iter().map(clock).collect());
    let nodes = printed.partition.iter().flat_map(|partition| &partition.nodes);
    let properties = nodes.flat_map(|node| node.properties.iter().map(move |property| (node, property)));
    let property = |(node, one): (&Node, &Property)| vec![node.path.clone(), one.name.clone(), shown(one)];
    table(&["NODE", "PROPERTY", "VALUE"], properties.map(property).collect());
    text + note(image.format())
}

/// What the format does not tell, or this program does not do.
fn note(format: Format) -> &'static str {
    match format {
        Format::Xclbin => {
            "\nnote: fpgactl loads xclbin files into shells of its own only: on XRT's cards clocks, calibration and\nsignatures are XRT's (xrt-smi, xbutil)\n"
        }
        Format::Bit | Format::Bin => {
            "\nnote: fpgactl loads bitstreams of AMD into shells of its own only, with --unchecked\n"
        }
        Format::Raw => "\nnote: the file is of no known format: it does not say which card it is for\n",
        Format::Signed => "\nnote: what a signed image holds, only the card can check\n",
        Format::Gbs => "",
    }
}

fn compared(card: &Card, image: &Image<'_>) -> String {
    let fits = match card.fits {
        Some(true) => "the file is for it",
        Some(false) if is_for_emulation(image) => "the file is for emulation, not for a card",
        Some(false) => "the file is NOT for it",
        None => "the file does not say whether it is for it",
    };
    format!("{}, interface {}: {fits}", card.selector, card.interface)
}

fn bitstream(bitstream: &Bitstream) -> String {
    let names = [&bitstream.design, &bitstream.device, &bitstream.date, &bitstream.time];
    let names: Vec<&str> = names.into_iter().flatten().map(String::as_str).collect();
    let signed = if bitstream.signed { ", signed" } else { "" };
    let separator = if names.is_empty() { "" } else { ": " };
    format!("{} bytes{signed}{separator}{}", bitstream.bytes, names.join(", "))
}

//! `fpgactl route`: compiles, verifies, loads and shows tables of statically scheduled routers.

pub(crate) mod file;
pub(crate) mod load;

use cmdseq::routing::{
    Capacity, Child, NodeTables, Route as Entry, RouteKind, RoutedTables, RoutingReport, Torus3,
    compile as compile_tables, verify as verify_tables,
};
use fpga_driver::routed::InForce;
use schemars::JsonSchema;
use serde::Serialize;

use crate::atomic_file;
use crate::cli::{Cli, Route, RouteCompile, RouteRoom, RouteShow, RouteVerify};
use crate::exit::{Exit, Failure, Result};
use crate::{input_file, output};

pub(crate) fn run(cli: &Cli, command: &Route) -> Result<()> {
    match command {
        Route::Compile(arguments) => compile(cli, arguments),
        Route::Verify(arguments) => verify(cli, arguments),
        Route::Load(arguments) => load::run(cli, arguments),
        Route::Show(arguments) => show(cli, arguments),
    }
}

/// What `compile` and `verify` print.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed {
    schema: &'static str,
    torus: [u32; 3],
    collectives: usize,
    hops: u64,
    links: u64,
    link_packets_max: u64,
    depth: u64,
    node_bits_max: u64,
    bits: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    algorithm: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<String>,
}

impl Printed {
    fn new(schema: &'static str, tables: &RoutedTables, report: RoutingReport, depth: u64) -> Self {
        let RoutingReport { hops, link_packets_max, links, node_bits_max, bits } = report;
        let (torus, collectives) = (tables.torus.sides(), tables.collectives.len());
        let (algorithm, output) = (None, None);
        Printed {
            schema,
            torus,
            collectives,
            hops,
            links,
            link_packets_max,
            depth,
            node_bits_max,
            bits,
            algorithm,
            output,
        }
    }

    fn print(&self, cli: &Cli) -> Result<()> {
        if cli.json {
            return output::json(self);
        }
        let [x, y, z] = self.torus;
        let mut text = format!(
            "verified: {} collectives on a torus of {x} x {y} x {z}\n  packets on links     {} over {} links, at most {} on one \
             (a buffer holds {})\n  tables               {} bits, at most {} on one node\n",
            self.collectives, self.hops, self.links, self.link_packets_max, self.depth, self.bits, self.node_bits_max
        );
        if let (Some(algorithm), Some(output)) = (self.algorithm, &self.output) {
            text += &format!("wrote {output} ({algorithm})\n");
        }
        output::text(&text)
    }
}

impl From<&RouteRoom> for Capacity {
    fn from(room: &RouteRoom) -> Self {
        Capacity { entries: room.entries as usize, depth: room.depth }
    }
}

fn compile(cli: &Cli, arguments: &RouteCompile) -> Result<()> {
    let RouteCompile { file: path, output, algorithm, room } = arguments;
    let refuse = |error: &dyn std::error::Error| Failure::refused(format!("{}: {error}", path.display()));
    let (torus, list) = file::collectives(path)?;
    input_file::check_outputs(&[path], &[output])?;
    let tables = compile_tables(torus, &list, *algorithm).map_err(|error| refuse(&error))?;
    let report = verify_tables(&tables, room.into()).map_err(|error| refuse(&error))?;
    let mut bytes = file::to_json(&tables, algorithm.name())?;
    bytes.push(b'\n');
    atomic_file::write(output, &bytes)?;
    Printed {
        algorithm: Some(algorithm.name()),
        output: Some(output.display().to_string()),
        ..Printed::new("fpgactl.route-compile/1", &tables, report, room.depth)
    }
    .print(cli)
}

fn verify(cli: &Cli, arguments: &RouteVerify) -> Result<()> {
    let RouteVerify { file: path, room } = arguments;
    let tables = file::tables(path)?;
    let report = verify_tables(&tables, room.into())
        .map_err(|error| Failure::refused(format!("{}: {error}", path.display())))?;
    Printed::new("fpgactl.route-verify/1", &tables, report, room.depth).print(cli)
}

#[derive(JsonSchema, Serialize)]
pub(crate) struct Shown {
    schema: &'static str,
    /// The cards whose tables these are, and their number.
    #[serde(skip_serializing_if = "Option::is_none")]
    selector: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<u32>,
    torus: [u32; 3],
    nodes: Vec<ShownNode>,
}

#[derive(JsonSchema, Serialize)]
struct ShownNode {
    node: u32,
    routes: usize,
    multicasts: usize,
    reductions: usize,
    bits: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    entries: Vec<String>,
}

fn show(cli: &Cli, arguments: &RouteShow) -> Result<()> {
    let (torus, tables, source) = match &arguments.file {
        Some(path) => {
            let RoutedTables { torus, nodes, .. } = file::tables(path)?;
            (torus, nodes, None)
        }
        None => {
            let (selector, torus, InForce { generation, nodes }) = load::in_force(cli)?;
            (torus, nodes, Some((selector, generation)))
        }
    };
    let nodes = torus.nodes();
    if let Some(node) = arguments.node.filter(|node| *node >= nodes) {
        return Err(Failure::new(Exit::NoCard, format!("no node {node} (available: 0 to {})", nodes - 1)));
    }
    let shown = (0..nodes).zip(&tables).filter(|(node, _)| arguments.node.is_none_or(|one| one == *node));
    let nodes: Vec<ShownNode> = shown.map(|(node, one)| shown_node(node, one, arguments.node.is_some())).collect();
    if cli.json {
        let (selector, generation) = source.unzip();
        let (schema, torus) = ("fpgactl.route-show/1", torus.sides());
        return output::json(&Shown { schema, selector, generation, torus, nodes });
    }
    let rows = nodes.iter().map(|ShownNode { node, routes, multicasts, reductions, bits, .. }| {
        let [routes, multicasts, reductions] = [*routes, *multicasts, *reductions].map(|entries| entries.to_string());
        [node.to_string(), routes, multicasts, reductions, bits.to_string()]
    });
    let mut text = match source {
        Some((selector, 0)) => format!("no tables in force on {selector}\n"),
        Some((selector, generation)) => format!("tables {generation} in force on {selector}\n"),
        None => String::new(),
    };
    text += &output::headed(["NODE", "ROUTES", "MULTICASTS", "REDUCTIONS", "BITS"], rows);
    for entry in nodes.iter().flat_map(|node| &node.entries) {
        text += &format!("\n{entry}");
    }
    text.truncate(text.trim_end().len());
    output::text(&(text + "\n"))
}

fn shown_node(node: u32, one: &NodeTables, with_entries: bool) -> ShownNode {
    let NodeTables { routes, multicasts, reductions } = one;
    let all = routes.iter().enumerate().map(|(index, route)| format!("{index:5}  {}", describe(one, *route)));
    ShownNode {
        node,
        routes: routes.len(),
        multicasts: multicasts.len(),
        reductions: reductions.len(),
        bits: one.bits(),
        entries: if with_entries { all.collect() } else { Vec::new() },
    }
}

/// Describes a routing entry, with the entry of another table that it names.
fn describe(tables: &NodeTables, route: Entry) -> String {
    let to = |port: u8, next: u16| match usize::from(port) {
        Torus3::LOCAL => "local".to_owned(),
        port => format!("{} {next}", Torus3::port_name(port)),
    };
    let Entry { kind, port, next, priority } = route;
    let what = match kind {
        RouteKind::Unicast => format!("unicast to {}", to(port, next)),
        RouteKind::Multicast => {
            let children = tables.multicasts.get(usize::from(next)).map_or(&[] as &[Child], |entry| &entry.children);
            let children: Vec<String> = children.iter().map(|child| to(child.port, child.next)).collect();
            format!("multicast {next} to {}", children.join(", "))
        }
        RouteKind::Reduction => {
            let entry = tables.reductions.get(usize::from(next));
            let (expected, after) = entry.map_or((0, 0), |entry| (entry.expected, entry.next));
            format!("reduction {next} of {expected} packets to {}", to(port, after))
        }
    };
    format!("{what}, priority {priority}")
}

//! Files of collectives and of tables.

use std::path::Path;

use cmdseq::routing::{
    CollectiveKind, EntryError, Multicast, NodeTables, ReductionEntry, Route, RoutedCollective, RoutedTables,
    ScheduledCollective, Start, Torus3,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::exit::{Exit, Failure, Result};
use crate::input_file;

/// Most bytes of a file.
const BYTES_MAX: u64 = 256 << 20;
const SCHEMA: &str = "fpgactl.route-tables/1";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CollectivesFile {
    torus: [u32; 3],
    collectives: Vec<Listed>,
}

/// A collective of a list.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    kind: Kind,
    root: u32,
    members: Vec<u32>,
    #[serde(default = "one")]
    packets: u32,
}

#[derive(JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Collective {
    kind: Kind,
    root: u32,
    members: Vec<u32>,
    #[serde(default = "one")]
    packets: u32,
    /// Node and index, for each packet: only in files of tables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    starts: Vec<Vec<(u32, u16)>>,
}

const fn one() -> u32 {
    1
}

#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Unicast,
    Multicast,
    Reduction,
}

#[derive(JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TablesFile {
    schema: String,
    algorithm: String,
    torus: [u32; 3],
    collectives: Vec<Collective>,
    nodes: Vec<Node>,
}

/// The entries of a node, as hexadecimal numbers.
#[derive(JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Node {
    routes: Vec<String>,
    multicasts: Vec<String>,
    reductions: Vec<String>,
}

impl From<Kind> for CollectiveKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Unicast => CollectiveKind::Unicast,
            Kind::Multicast => CollectiveKind::Multicast,
            Kind::Reduction => CollectiveKind::Reduction,
        }
    }
}

impl From<CollectiveKind> for Kind {
    fn from(kind: CollectiveKind) -> Self {
        match kind {
            CollectiveKind::Unicast => Kind::Unicast,
            CollectiveKind::Multicast => Kind::Multicast,
            CollectiveKind::Reduction => Kind::Reduction,
        }
    }
}

impl From<Listed> for RoutedCollective {
    fn from(one: Listed) -> Self {
        let Listed { kind, root, members, packets } = one;
        RoutedCollective { kind: kind.into(), root, members, packets }
    }
}

impl From<Collective> for ScheduledCollective {
    fn from(one: Collective) -> Self {
        let Collective { kind, root, members, packets, starts } = one;
        let start = |(node, index)| Start { node, index };
        let starts = starts.into_iter().map(|list| list.into_iter().map(start).collect()).collect();
        ScheduledCollective { collective: RoutedCollective { kind: kind.into(), root, members, packets }, starts }
    }
}

/// Reads a list of collectives. Whether they are valid is checked when they are compiled.
pub(super) fn collectives(path: &Path) -> Result<(Torus3, Vec<RoutedCollective>)> {
    let CollectivesFile { torus, collectives } = read(path)?;
    let torus = shape(path, torus)?;
    Ok((torus, collectives.into_iter().map(RoutedCollective::from).collect()))
}

/// Reads tables. Whether they route the collectives is checked by [`cmdseq::routing::verify`].
pub(super) fn tables(path: &Path) -> Result<RoutedTables> {
    let TablesFile { schema, torus, collectives, nodes, .. } = read(path)?;
    let refuse = |why: String| Failure::refused(format!("{}: {why}", path.display()));
    if schema != SCHEMA {
        return Err(refuse(format!("schema {schema:?} (expected {SCHEMA:?})")));
    }
    let torus = shape(path, torus)?;
    if nodes.len() != torus.nodes() as usize {
        let (tables, nodes) = (nodes.len(), torus.nodes());
        return Err(refuse(format!("tables of {tables} nodes do not fit a torus of {nodes}")));
    }
    let read = |(node, one): (usize, Node)| {
        let place = |table, index| format!("node {node}: entry {index} of the {table} table");
        let each = |table: &'static str, texts: Vec<String>, width: u32| {
            let one = move |(index, text): (usize, String)| {
                hexadecimal(&text).filter(|bits| bits >> width == 0).ok_or_else(|| {
                    refuse(format!("{}: {text:?} is no hexadecimal number of {width} bits", place(table, index)))
                })
            };
            texts.into_iter().enumerate().map(one).collect::<Result<Vec<u128>>>()
        };
        let at = |table, index, error: EntryError| refuse(format!("{}: {error}", place(table, index)));
        Ok(NodeTables {
            routes: entries(each("routing", one.routes, Route::BITS)?, |bits| Route::from_bits(bits as u32))
                .map_err(|(index, error)| at("routing", index, error))?,
            multicasts: entries(each("multicast", one.multicasts, Multicast::BITS)?, Multicast::from_bits)
                .map_err(|(index, error)| at("multicast", index, error))?,
            reductions: entries(each("reduction", one.reductions, ReductionEntry::BITS)?, |bits| {
                ReductionEntry::from_bits(bits as u32)
            })
            .map_err(|(index, error)| at("reduction", index, error))?,
        })
    };
    let nodes = nodes.into_iter().enumerate().map(read).collect::<Result<_>>()?;
    Ok(RoutedTables { torus, collectives: collectives.into_iter().map(ScheduledCollective::from).collect(), nodes })
}

/// Reads a number of hexadecimal digits alone: the standard library takes a sign too.
fn hexadecimal(text: &str) -> Option<u128> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u128::from_str_radix(text, 16).ok().filter(|_| is_digits)
}

/// Reads all entries of a table; the error has the index.
fn entries<E>(
    bits: Vec<u128>,
    read: impl Fn(u128) -> std::result::Result<E, EntryError>,
) -> std::result::Result<Vec<E>, (usize, EntryError)> {
    bits.into_iter().enumerate().map(|(index, bits)| read(bits).map_err(|error| (index, error))).collect()
}

/// Returns tables as a file.
pub(super) fn to_json(tables: &RoutedTables, algorithm: &str) -> Result<Vec<u8>> {
    let collective = |one: &ScheduledCollective| {
        let RoutedCollective { kind, root, ref members, packets } = one.collective;
        let list = |list: &Vec<Start>| list.iter().map(|start| (start.node, start.index)).collect();
        let starts = one.starts.iter().map(list).collect();
        Collective { kind: kind.into(), root, members: members.clone(), packets, starts }
    };
    let node = |one: &NodeTables| Node {
        routes: one.routes.iter().map(|entry| format!("{:08x}", entry.to_bits())).collect(),
        multicasts: one.multicasts.iter().map(|entry| format!("{:031x}", entry.to_bits())).collect(),
        reductions: one.reductions.iter().map(|entry| format!("{:05x}", entry.to_bits())).collect(),
    };
    let file = TablesFile {
        schema: SCHEMA.to_owned(),
        algorithm: algorithm.to_owned(),
        torus: tables.torus.sides(),
        collectives: tables.collectives.iter().map(collective).collect(),
        nodes: tables.nodes.iter().map(node).collect(),
    };
    serde_json::to_vec(&file).map_err(|error| Failure::new(Exit::Failed, format!("tables as JSON: {error}")))
}

fn shape(path: &Path, sides: [u32; 3]) -> Result<Torus3> {
    Torus3::new(sides).map_err(|error| Failure::refused(format!("{}: {error}", path.display())))
}

fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T> {
    let text = input_file::read(path, ("a file of routes", BYTES_MAX))?;
    serde_json::from_slice(&text).map_err(|error| Failure::refused(format!("{}: {error}", path.display())))
}

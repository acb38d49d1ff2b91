//! Device trees in sections with the metadata of a partition: which interfaces it offers and needs, and where its blocks are.
//!
//! A tree is a flattened device tree (Devicetree Specification 0.4, chapter 5), big-endian. AMD names nodes more freely than the
//! specification, such as `@0`, and gives them long names. Source of what AMD puts there: files that xclbinutil makes.

use uuid::Uuid;

use crate::error::Result;
use crate::reader::Reader;

/// What a tree begins with.
const MAGIC: u32 = 0xd00d_feed;
/// The version of the format that this crate knows.
const VERSION: u32 = 17;
/// Bytes of the header.
const HEADER_BYTES: u32 = 40;
/// Offsets in the header.
const TOTAL: u64 = 4;
const STRUCTURE: u64 = 8;
const STRINGS: u64 = 12;
const RESERVED: u64 = 16;
const VERSIONS: u64 = 20;
const STRINGS_BYTES: u64 = 32;
const STRUCTURE_BYTES: u64 = 36;
/// Bytes of an entry of the list of reserved memory.
const RESERVED_ENTRY: u64 = 16;
/// Tokens of the structure.
const BEGIN_NODE: u32 = 1;
const END_NODE: u32 = 2;
const PROPERTY: u32 = 3;
const NOP: u32 = 4;
const END: u32 = 9;
/// Most bytes of a tree, nodes inside of one another, nodes, properties of a node, and bytes of a name with its NUL: far more than AMD's
/// trees have.
const TREE_MAX: u64 = 1 << 20;
const DEPTH_MAX: usize = 16;
const NODES_MAX: usize = 4096;
const PROPERTIES_MAX: usize = 256;
const NAME_MAX: u64 = 128;

/// A device tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Partition<'a> {
    /// Its nodes, each before those inside of it. The first is the root.
    pub nodes: Vec<Node<'a>>,
    /// UUIDs of the interfaces: property `interface_uuid` of nodes in `/interfaces`.
    pub interfaces: Vec<Uuid>,
    /// UUID of the logic: property `logic_uuid` of the root.
    pub logic: Option<Uuid>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node<'a> {
    /// The names of the nodes that it is in and its own, each behind a slash. The root's is one slash.
    pub path: String,
    /// Its properties, in the order of the file.
    pub properties: Vec<Property<'a>>,
}

/// A property. What its bytes mean, its name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Property<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its value, which may be empty.
    pub value: &'a [u8],
}

impl<'a> Property<'a> {
    /// Returns the value as texts, which may have line ends and tabs; `None` if it is none, or more than texts that end with a NUL.
    pub fn texts(&self) -> Option<Vec<&'a str>> {
        let texts = std::str::from_utf8(self.value.strip_suffix(&[0])?).ok()?;
        let is_text =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\t'));
        texts.split('\0').map(|text| is_text(text).then_some(text)).collect()
    }

    /// Returns the value as numbers of 32 bits; `None` if it is empty or no multiple of four bytes.
    pub fn numbers(&self) -> Option<Vec<u32>> {
        let (words, rest) = self.value.as_chunks();
        (rest.is_empty() && !words.is_empty()).then(|| words.iter().map(|word| u32::from_be_bytes(*word)).collect())
    }
}

/// Where the parts of a tree are.
struct Tree<'a> {
    structure: Reader<'a>,
    strings: Reader<'a>,
}

fn u32_at(reader: Reader<'_>, offset: u64, what: &str) -> Result<u32> {
    reader.array(offset, what).map(u32::from_be_bytes)
}

/// Reads the tree in a section.
pub(super) fn partition(section: Reader<'_>) -> Result<Partition<'_>> {
    let Tree { structure, strings } = tree(section)?;
    let mut partition = Partition::default();
    // Places in `nodes` of those that are open.
    let mut open: Vec<usize> = Vec::new();
    let mut at = 0;
    loop {
        let token = at;
        let kind = u32_at(structure, token, "a token of the device tree")?;
        at += 4;
        match kind {
            NOP => {}
            BEGIN_NODE => {
                let name = structure.text(at, NAME_MAX.min(structure.len() - at), "a node's name")?;
                at = aligned(at + name.len() as u64 + 1);
                let path = path(&structure, token, &partition, &open, name)?;
                open.push(partition.nodes.len());
                partition.nodes.push(Node { path, properties: Vec::new() });
            }
            PROPERTY => {
                let bytes = u32_at(structure, at, "a property")?;
                let name = u64::from(u32_at(structure, at + 4, "a property")?);
                let name = strings.text(name, NAME_MAX.min(strings.len().saturating_sub(name)), "a property's name")?;
                let value = structure.slice(at + 8, bytes.into(), "a property's value")?;
                let Some(node) = open.last().map(|place| &mut partition.nodes[*place]) else {
                    return Err(structure.error(token, format!("property {name:?} is in no node")));
                };
                if node.properties.len() == PROPERTIES_MAX {
                    let what = format!("node {:?} has more than {PROPERTIES_MAX} properties", node.path);
                    return Err(structure.error(token, what));
                }
                if node.properties.iter().any(|other| other.name == name) {
                    return Err(structure.error(token, format!("a second property {name:?} of node {:?}", node.path)));
                }
                node.properties.push(Property { name, value });
                at = aligned(at + 8 + u64::from(bytes));
            }
            END_NODE if open.pop().is_some() => {}
            END if open.is_empty() && !partition.nodes.is_empty() && at == structure.len() => break,
            END_NODE | END => {
                let what = "the device tree ends here, but a node is open, there is none, or bytes are left";
                return Err(structure.error(token, what));
            }
            other => {
                return Err(
                    structure.error(token, format!("a token {other:#x} of the device tree, which there is not"))
                );
            }
        }
    }
    identify(section, &mut partition)?;
    Ok(partition)
}

/// Checks the header, and finds the parts.
fn tree(section: Reader<'_>) -> Result<Tree<'_>> {
    let read = |offset| u32_at(section, offset, "the header of the device tree");
    if read(0)? != MAGIC {
        return Err(section.error(0, "no device tree begins here, which the section PARTITION_METADATA holds"));
    }
    let total = read(TOTAL)?;
    if u64::from(total) != section.len() {
        let what = format!("the device tree says that it has {total} bytes, but its section has {}", section.len());
        return Err(section.error(TOTAL, what));
    }
    if section.len() > TREE_MAX {
        return Err(section.error(TOTAL, format!("the device tree has {total} bytes, more than {TREE_MAX}")));
    }
    let (version, oldest) = (read(VERSIONS)?, read(VERSIONS + 4)?);
    if version < VERSION || oldest > VERSION {
        let what = format!("a device tree of version {version}, for readers from {oldest} on: expected {VERSION}");
        return Err(section.error(VERSIONS, what));
    }
    let part = |at: u64, bytes: u32, align: u32, what: &str| {
        let offset = read(at)?;
        if offset < HEADER_BYTES || offset % align != 0 {
            return Err(section.error(
                at,
                format!("{what} begins at {offset:#x}: expected {align} or a multiple, behind the header"),
            ));
        }
        section.part(offset.into(), bytes.into(), what)
    };
    let structure = part(STRUCTURE, read(STRUCTURE_BYTES)?, 4, "the structure of the device tree")?;
    let strings = part(STRINGS, read(STRINGS_BYTES)?, 1, "the names of the device tree")?;
    let mut reserved = u64::from(read(RESERVED)?);
    if reserved < HEADER_BYTES.into() || !reserved.is_multiple_of(8) {
        return Err(
            section.error(RESERVED, format!("reserved memory is listed at {reserved:#x}: expected a multiple of 8"))
        );
    }
    // The list ends with an entry of zeros.
    while section.slice(reserved, RESERVED_ENTRY, "the list of reserved memory")?.iter().any(|byte| *byte != 0) {
        reserved += RESERVED_ENTRY;
    }
    Ok(Tree { structure, strings })
}

/// Returns the next place at which a token can begin.
fn aligned(at: u64) -> u64 {
    at.next_multiple_of(4)
}

/// Returns the path of a node in the open ones.
fn path(structure: &Reader<'_>, token: u64, partition: &Partition<'_>, open: &[usize], name: &str) -> Result<String> {
    let refused = |what: &str| Err(structure.error(token, format!("node {name:?} {what}")));
    let path = match open.last().map(|place| partition.nodes[*place].path.as_str()) {
        None if !partition.nodes.is_empty() => return refused("is beside the root"),
        None if name.is_empty() => return Ok("/".to_owned()),
        _ if partition.nodes.len() == NODES_MAX => return refused("is one of too many"),
        None => return refused("is the root, which has no name"),
        Some(_) if name.is_empty() || name.contains('/') => return refused("has no name, or a slash in it"),
        Some(_) if open.len() >= DEPTH_MAX => return refused("is inside of too many others"),
        Some("/") => format!("/{name}"),
        Some(parent) => format!("{parent}/{name}"),
    };
    match partition.nodes.iter().any(|other| other.path == path) {
        true => refused("is there twice"),
        false => Ok(path),
    }
}

/// Reads the UUIDs.
fn identify(section: Reader<'_>, partition: &mut Partition<'_>) -> Result<()> {
    let uuid = |node: &Node<'_>, name: &str| {
        let Some(property) = node.properties.iter().find(|property| property.name == name) else { return Ok(None) };
        let id = match property.texts().as_deref() {
            Some([text]) => Uuid::try_parse(text).ok(),
            _ => None,
        };
        let what = || format!("property {name:?} of node {:?} is no UUID", node.path);
        id.map(Some).ok_or_else(|| section.error(0, what()))
    };
    for node in &partition.nodes {
        let is_interface = node.path.strip_prefix("/interfaces/").is_some_and(|name| !name.contains('/'));
        if is_interface && let Some(id) = uuid(node, "interface_uuid")? {
            partition.interfaces.push(id);
        }
    }
    partition.logic = partition.nodes.first().map_or(Ok(None), |root| uuid(root, "logic_uuid"))?;
    Ok(())
}

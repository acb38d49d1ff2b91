//! Device trees in the metadata of a partition.
#![forbid(unsafe_code)]

mod xclbin_writer;

use fpga_image::xclbin::{Partition, Property};
use fpga_image::{Error, Image, Uuid};
use proptest::prelude::*;

use xclbin_writer::{PARTITION_METADATA, Tree};

const INTERFACE: &str = "862c7020a250293e32036f19956669e5";

/// What a shell of AMD's with two interfaces says, shortened.
fn right() -> Tree {
    Tree::default()
        .node("")
        .property("logic_uuid", b"f465b0a3ae8c64f619bc150384ace69b\0")
        .node("schema_version")
        .property("major", &1_u32.to_be_bytes())
        .end()
        .token(4)
        .node("interfaces")
        .node("@0")
        .property("interface_uuid", format!("{INTERFACE}\0").as_bytes())
        .end()
        .end()
        .node("addressable_endpoints")
        .node("ep_reconfigurable_clock_counter_00_of_the_region")
        .property("compatible", b"xilinx.com,reg_abs-freq_counter-1.0\0freq_counter\0")
        .property("reg", &[0, 0, 0, 0, 1, 0xf0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0x10, 0])
        .property("pcie_physical_function", &[0])
        .property("firmware", &[])
        .end()
        .end()
        .end()
        .token(9)
}

/// An xclbin file whose only section is PARTITION_METADATA.
fn xclbin(tree: &[u8]) -> Vec<u8> {
    xclbin_writer::xclbin(Uuid::nil(), &[(PARTITION_METADATA, tree.to_vec())])
}

fn refusal(tree: &[u8]) -> String {
    match Image::parse(&xclbin(tree)) {
        Err(error @ Error::Invalid { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_node_and_property_is_read() {
    let file = xclbin(&right().bytes());
    let Image::Xclbin(read) = Image::parse(&file).unwrap() else { panic!("no xclbin file") };
    let Partition { nodes, interfaces, logic } = read.partition.unwrap();
    assert_eq!(
        interfaces.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["862c7020-a250-293e-3203-6f19956669e5"]
    );
    assert_eq!(logic.unwrap().to_string(), "f465b0a3-ae8c-64f6-19bc-150384ace69b");
    let paths: Vec<&str> = nodes.iter().map(|node| node.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "/",
            "/schema_version",
            "/interfaces",
            "/interfaces/@0",
            "/addressable_endpoints",
            "/addressable_endpoints/ep_reconfigurable_clock_counter_00_of_the_region",
        ]
    );
    let endpoint = &nodes[5].properties;
    assert_eq!(
        endpoint.iter().map(|one| one.name).collect::<Vec<_>>(),
        ["compatible", "reg", "pcie_physical_function", "firmware"]
    );
    assert_eq!(endpoint[0].texts().unwrap(), ["xilinx.com,reg_abs-freq_counter-1.0", "freq_counter"]);
    assert_eq!((endpoint[1].texts(), endpoint[1].numbers().unwrap()), (None, vec![0, 0x01f0_4000, 0, 0x1000]));
    for neither in &endpoint[2..] {
        assert_eq!((neither.texts(), neither.numbers()), (None, None));
    }
    let long = Tree::default().node("").property("x", &[0; (1 << 20) - 100]).end().token(9).bytes();
    assert!(Image::parse(&xclbin(&long)).is_ok());
    // A NUL that ends nothing, and what is not printed.
    for value in [&b"\0"[..], b"a\0\0", b"a", b"a\x1b[2J\0"] {
        assert_eq!(Property { name: "x", value }.texts(), None);
    }
}

/// Made by xclbinutil from the description in `data/make`.
#[test]
fn a_file_of_xclbinutil_has_what_it_prints_and_what_it_was_made_of() {
    let (file, text) = (include_bytes!("data/partition.xclbin"), include_str!("data/partition.txt"));
    let Image::Xclbin(read) = Image::parse(file).unwrap() else { panic!("no xclbin file") };
    let Partition { nodes, interfaces, logic } = read.partition.unwrap();
    let printed = text.lines().filter_map(|line| line.split_once("UUID (IINTF):")).map(|(_, id)| id.trim().to_owned());
    let found = interfaces.iter().map(|id| id.simple().to_string());
    assert_eq!(found.collect::<Vec<_>>(), printed.collect::<Vec<_>>());
    assert_eq!((interfaces[0], interfaces.len()), (read.interface, 2));
    assert_eq!(logic.unwrap().simple().to_string(), "f465b0a3ae8c64f619bc150384ace69b");
    let property = |path: &str, name: &str| {
        let node = nodes.iter().find(|node| node.path == path).unwrap();
        *node.properties.iter().find(|property| property.name == name).unwrap()
    };
    let endpoint = "/addressable_endpoints/ep_firewall_user_00";
    assert_eq!(property(endpoint, "reg").numbers().unwrap(), [0, 0x01f0_5000, 0, 0x1000]);
    assert_eq!(property(endpoint, "compatible").texts().unwrap()[0], "xilinx.com,reg_abs-axi_firewall-1.0");
    assert_eq!(property(endpoint, "pcie_physical_function").numbers().unwrap(), [1]);
    assert_eq!(property("/pcie/bars/0", "reg").numbers().unwrap(), [0, 0, 0, 0x0200_0000]);
    assert_eq!(property("/schema_version", "major").numbers().unwrap(), [1]);
    assert_eq!(property("/partition_info", "__INFO").texts().unwrap(), ["{\"type\":\"plp\"}\n"]);
}

#[test]
fn a_file_without_a_tree_has_none() {
    let mut file = xclbin(&[]);
    let none = |file: &[u8]| match Image::parse(file).unwrap() {
        Image::Xclbin(read) => read.partition.is_none(),
        other => panic!("{other:?}"),
    };
    assert!(none(&file));
    file[448] = 0;
    assert!(none(&file));
}

#[test]
fn every_truncation_is_refused() {
    let tree = right().bytes();
    for bytes in 1..tree.len() {
        let mut cut = tree[..bytes].to_vec();
        refusal(&cut);
        // The same with a length that is right.
        if bytes >= 8 {
            cut[4..8].copy_from_slice(&(bytes as u32).to_be_bytes());
            refusal(&cut);
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let root = || Tree::default().node("");
    let deep = (0..20).fold(root(), |tree, _| tree.node("a"));
    let wide = (0..5000).fold(root(), |tree, number| tree.node(&format!("n{number}")).end());
    let full = (0..300).fold(root(), |tree, number| tree.property(&format!("p{number}"), &[]));
    let long = "n".repeat(200);
    for (tree, why) in [
        (Tree::default().token(9), "the device tree ends here"),
        (root().token(9), "the device tree ends here"),
        (root().end().end(), "the device tree ends here"),
        (root().end().token(9).token(4), "the device tree ends here"),
        (root().end(), "a token of the device tree has 4 bytes, but only 0 are left"),
        (root().token(7), "a token 0x7 of the device tree"),
        (root().end().node("b"), "is beside the root"),
        (Tree::default().node("root"), "is the root, which has no name"),
        (root().node("").end(), "has no name"),
        (root().node("a/b"), "a slash in it"),
        (root().node("a").end().node("a"), "node \"a\" is there twice"),
        (root().node(&long), "a node's name does not end within"),
        (root().node("\x1b[2J"), "a node's name is no printable ASCII text"),
        (root().end().property("x", &[]), "property \"x\" is in no node"),
        (root().property("x", &[]).property("x", &[]), "a second property \"x\" of node \"/\""),
        (root().token(3).token(u32::MAX).token(0), "a property's value has 4294967295 bytes"),
        (root().property("y", &[]).token(3).token(0).token(9), "a property's name"),
        (root().property("logic_uuid", b"7\0").end().token(9), "property \"logic_uuid\" of node \"/\" is no UUID"),
        (
            root().node("interfaces").node("@1").property("interface_uuid", &[1]).end().end().end().token(9),
            "is no UUID",
        ),
        (deep, "is inside of too many others"),
        (wide, "is one of too many"),
        (full, "more than 256 properties"),
        (root().property("x", &[0; 1 << 20]).end().token(9), "bytes, more than 1048576"),
    ] {
        // Names are needed where a property has one.
        let tree = if tree.strings.is_empty() { Tree { strings: vec![0], ..tree } } else { tree };
        let found = refusal(&tree.bytes());
        assert!(found.contains(why), "{why}: {found}");
    }
    let words = |changes: &[(usize, u32)]| {
        let mut tree = right().bytes();
        for (word, value) in changes {
            tree[4 * word..4 * word + 4].copy_from_slice(&value.to_be_bytes());
        }
        refusal(&tree)
    };
    for (changes, why) in [
        (&[(0, 0xd00d_feee)][..], "no device tree begins here"),
        (&[(1, 7)], "the device tree says that it has 7 bytes"),
        (&[(5, 16)], "a device tree of version 16"),
        (&[(6, 18)], "for readers from 18 on"),
        (&[(2, 0)], "the structure of the device tree begins at 0x0"),
        (&[(2, 58)], "the structure of the device tree begins at 0x3a"),
        (&[(2, 0xffff_fffc)], "the structure of the device tree has"),
        (&[(9, u32::MAX)], "the structure of the device tree has 4294967295 bytes"),
        (&[(3, 39)], "the names of the device tree begins at 0x27"),
        (&[(8, u32::MAX)], "the names of the device tree has 4294967295 bytes"),
        (&[(4, 44)], "reserved memory is listed at 0x2c"),
        (&[(4, 0xffff_fff8)], "the list of reserved memory has 16 bytes, but only 0 are left"),
    ] {
        let found = words(changes);
        assert!(found.contains(why), "{why}: {found}");
    }
}

#[test]
fn every_flipped_bit_is_read_or_refused() {
    let tree = right().bytes();
    let mut refused = 0;
    for bit in 0..8 * tree.len() {
        let mut flipped = tree.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        refused += usize::from(Image::parse(&xclbin(&flipped)).is_err());
    }
    // Most bits are of values and names.
    assert!(refused > tree.len(), "{refused} of {}", 8 * tree.len());
}

proptest! {
    #[test]
    fn any_tokens_are_read_or_refused(
        tokens in prop::collection::vec(prop_oneof![4 => 0_u32..10, 1 => any::<u32>()], 0..60),
        strings in prop::collection::vec(prop_oneof![Just(0_u8), b'a'..b'f'], 0..20),
    ) {
        let structure = tokens.iter().flat_map(|token| token.to_be_bytes()).collect();
        let file = xclbin(&Tree { structure, strings }.bytes());
        if let Ok(Image::Xclbin(read)) = Image::parse(&file) {
            let nodes = read.partition.map_or(Vec::new(), |partition| partition.nodes);
            prop_assert!(nodes.first().is_none_or(|root| root.path == "/"));
            prop_assert!(nodes.iter().skip(1).all(|node| node.path.len() > 1));
        }
    }
}

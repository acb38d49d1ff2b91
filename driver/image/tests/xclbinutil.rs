//! Files that AMD's xclbinutil made hold what it prints about them (`data/make`).
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use fpga_image::xclbin::{ClockKind, Xclbin, ip_kind_name, kind_name, memory_kind_name};
use fpga_image::{Format, Image};

/// A file of xclbinutil, and what it prints.
macro_rules! made {
    ($name:literal) => {
        (include_bytes!(concat!("data/", $name, ".xclbin")).as_slice(), include_str!(concat!("data/", $name, ".txt")))
    };
}

const FILES: [(&[u8], &str); 4] = [made!("plain"), made!("signed"), made!("user-signed"), made!("memories")];

fn parse(file: &[u8]) -> Box<Xclbin<'_>> {
    match Image::parse(file).unwrap() {
        Image::Xclbin(xclbin) => xclbin,
        other => panic!("{other:?}"),
    }
}

/// Lines `Key: value` of a part of the text, in groups that begin with the key `Name`.
fn groups(text: &str, heading: &str, end: &str) -> Vec<BTreeMap<String, String>> {
    let mut groups: Vec<BTreeMap<String, String>> = Vec::new();
    let lines = text.lines().skip_while(|line| *line != heading).skip(2).take_while(|line| !line.starts_with(end));
    for (key, value) in lines.filter_map(|line| line.split_once(": ")) {
        let (key, value) = (key.trim(), value.trim());
        if key == "Name" || groups.is_empty() {
            groups.push(BTreeMap::new());
        }
        groups.last_mut().unwrap().insert(key.to_owned(), value.to_owned());
    }
    groups
}

/// The value behind a key, with its continuation lines.
fn value(text: &str, key: &str) -> String {
    let mut lines = text.lines().skip_while(|line| !line.trim_start().starts_with(key));
    let first = lines.next().unwrap().split_once(':').unwrap().1.trim().to_owned();
    let more = lines.take_while(|line| line.starts_with("                   ")).map(str::trim);
    std::iter::once(first).chain(more.map(str::to_owned)).collect::<Vec<_>>().join(" ")
}

#[test]
fn every_field_is_the_one_that_is_printed() {
    for (file, text) in FILES {
        let xclbin = parse(file);
        assert_eq!(xclbin.id.to_string(), value(text, "UUID (xclbin)"));
        assert_eq!(xclbin.interface.to_string(), value(text, "Static UUID"));
        assert_eq!(xclbin.platform, value(text, "Platform VBNV").replace("<not defined>", ""));
        assert_eq!(xclbin.rom_timestamp.to_string(), value(text, "Feature ROM TimeStamp"));
        let (major, minor, patch) = xclbin.version;
        assert_eq!(format!("{major}.{minor}.{patch}"), value(text, "Version"));
        let sections: Vec<&str> = xclbin.sections.iter().map(|section| kind_name(section.kind).unwrap()).collect();
        assert_eq!(sections.join(", "), value(text, "Sections"));
        assert_eq!(xclbin.bitstream.is_some(), value(text, "Content") == "Bitstream");
    }
}

#[test]
fn memories_are_the_printed_ones() {
    for (file, text) in FILES {
        let xclbin = parse(file);
        let printed = groups(text, "Memory Configuration", "====");
        assert_eq!(printed.len(), 4);
        assert_eq!(xclbin.memories.len(), printed.len());
        for (memory, printed) in xclbin.memories.iter().zip(printed) {
            assert_eq!(memory.name, printed["Name"]);
            assert_eq!(memory_kind_name(memory.kind).unwrap(), printed["Type"]);
            assert_eq!(format!("{:#x}", memory.address), printed["Base Address"]);
            assert_eq!(format!("{:#x}", memory.bytes), printed["Address Size"]);
            assert_eq!(if memory.is_used { "Yes" } else { "No" }, printed["Bank Used"]);
        }
    }
}

#[test]
fn clocks_are_the_printed_ones() {
    for (file, text) in &FILES[..3] {
        let xclbin = parse(file);
        let printed = groups(text, "Scalable Clocks", "System Clocks");
        assert_eq!(printed.len(), 3);
        for (clock, printed) in xclbin.clocks.iter().zip(&printed) {
            assert_eq!(
                (clock.name, format!("{} MHz", clock.mhz)),
                (printed["Name"].as_str(), printed["Frequency"].clone())
            );
            let kind = match clock.kind {
                ClockKind::Data => "DATA",
                ClockKind::Kernel => "KERNEL",
                ClockKind::System => "SYSTEM",
                other => panic!("{other:?}"),
            };
            assert_eq!(kind, printed["Type"]);
        }
    }
}

/// Not printed: typed from the files of JSON that they were made of.
#[test]
fn kernels_and_their_connections_are_those_of_the_source() {
    let xclbin = parse(FILES[0].0);
    let ips: Vec<_> =
        xclbin.ips.iter().map(|ip| (ip.name, ip_kind_name(ip.kind).unwrap(), ip.properties, ip.address)).collect();
    assert_eq!(
        ips,
        [
            ("reduce:reduce_1", "IP_KERNEL", 0x107, Some(0x180_0000)),
            ("bcast:bcast_1", "IP_KERNEL", 0, Some(0x181_0000)),
            ("DDR4", "IP_MEM_DDR4", 0, None)
        ]
    );
    let connections: Vec<_> = xclbin.connections.iter().map(|one| (one.argument, one.ip, one.memory)).collect();
    assert_eq!(connections, [(1, 0, 0), (2, 0, 2), (0, 1, 3)]);
    let bit = xclbin.bitstream.unwrap();
    assert_eq!((bit.design, bit.part), ("top;UserID=0XFFFFFFFF;Version=22.2", "xcu250-figd2104-2L-e"));
    assert_eq!((bit.date, bit.time, bit.stream.len()), ("2026/11/24", "12:00:00", 256));
    assert_eq!(bit.stream[32..36], [0xaa, 0x99, 0x55, 0x66]);
}

#[test]
fn signatures_are_found() {
    let [plain, signed, user, _] = FILES.map(|(file, _)| parse(file));
    assert_eq!((plain.signature, plain.user_signature), (None, None));
    // PKCS#7 begins with a sequence.
    assert_eq!((signed.signature.unwrap()[0], signed.user_signature), (0x30, None));
    assert_eq!(user.user_signature, Some(b"a signature of the user's".as_slice()));
    assert_eq!(Image::Xclbin(plain).format(), Format::Xclbin);
}

//! What selectors select, and what is refused.

use std::fs;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

use fpga_mock::{Fault, Hardware, Moved, When};

use crate::selector::{Cards, if_usable};
use crate::vfio_card::VfioCard;
use crate::{Error, Kind, Part, Selector, select};

fn nodes(text: &str) -> u32 {
    Selector::parse(text).unwrap().profile().unwrap().nodes
}

#[test]
fn shapes() {
    assert_eq!(nodes("mock:optweb:8"), 8);
    assert_eq!(nodes("mock:optweb:22x44"), 968);
}

/// A profile has only the product of the sides.
#[test]
fn shapes_out_of_range_are_named_as_typed() {
    for (shape, why) in [
        ("circus:0x3", "invalid torus of 0 x 3 cards (a torus has 2 to 256 cards)"),
        ("circus:3x0", "invalid torus of 3 x 0 cards"),
        ("circus:65536x65536", "invalid torus of 65536 x 65536 cards"),
        ("circus:16x17", "invalid torus of 16 x 17 cards"),
        ("circus:1", "invalid torus of 1 x 1 cards"),
        ("bluelink:0x3", "invalid torus of 0 x 3 cards"),
        ("s10-pac:0x3@circus/2", "invalid torus of 0 x 3 cards"),
        ("optweb:0x4", "invalid Dragonfly of 0 x 4 cards"),
        ("optweb:4x0", "invalid Dragonfly of 4 x 0 cards"),
        ("optweb:65536x65536", "65536 groups of 65536 cards need 131070 links per card, a card has 64"),
        ("novo-g:1x1x1", "invalid torus \"1x1x1\""),
    ] {
        let error = Selector::parse(&format!("mock:{shape}")).unwrap_err();
        assert!(matches!(error, Error::Syntax { .. }) && error.to_string().contains(why), "{shape}: {error}");
    }
    for (shape, cards) in [("circus:16x16", 256), ("bluelink:1x2", 2), ("bluelink:2", 2), ("optweb:22x44", 968)] {
        assert_eq!(nodes(&format!("mock:{shape}")), cards);
    }
}

#[test]
fn functions_of_a_card() {
    let selected = |text: &str| Selector::parse(text).map(|selector| (selector.part(), selector.mock_selectors()));
    for (text, part) in [
        ("mock:s10-dfl:4/1", Part::Card),
        ("mock:s10-dfl:4/1.control", Part::Control),
        ("mock:s10-dfl:2x2@optweb/1.he-lb", Part::Exerciser),
        ("mock:s10-dfl:4/3.control+lanes=2", Part::Control),
        ("mock:s10-pac:4@circus/2", Part::Card),
    ] {
        assert_eq!(selected(text).unwrap(), (part, vec![text.to_owned()]));
        assert_eq!(select(text).unwrap().functions[0].identity().name, text);
    }
    for text in [
        "mock:optweb:4/0.control",
        "mock:s10-dfl:4/0.other",
        "mock:s10-dfl:4/.control",
        "mock:s10-dfl:4.control",
        "mock:s10-pac:4/0.control",
        "mock:s10-pac:4/0.he-lb",
        "mock:s10-dfl:4/0,mock:s10-dfl:4/1.control",
    ] {
        assert!(matches!(selected(text), Err(Error::Syntax { .. })), "{text}");
    }
    let (_, functions) = Selector::parse("mock:s10-dfl:3").unwrap().fabric_with_all_functions().unwrap();
    let parts: Vec<(u32, Part)> = functions.iter().map(|function| (function.node, function.part)).collect();
    assert_eq!(parts, Part::ALL.map(|part| [0, 1, 2].map(|node| (node, part))).concat());
}

#[test]
fn lanes() {
    let lanes = |text: &str| Selector::parse(text).map(|selector| selector.profile().unwrap().lanes);
    assert_eq!(lanes("mock:optweb:8").unwrap(), 1);
    assert_eq!(lanes("mock:optweb:2x4/3+lanes=64+slow=1").unwrap(), 64);
    for text in ["mock:optweb:8+lanes=0", "mock:optweb:8+lanes=65"] {
        let error = lanes(text).unwrap_err();
        assert!(matches!(error, Error::Syntax { .. }) && error.to_string().contains("1 to 64"), "{text:?}: {error}");
    }
    let listed = Selector::parse("mock:optweb:4+lanes=2").unwrap().mock_selectors();
    assert_eq!(listed[3], "mock:optweb:4/3+lanes=2");
    assert_eq!(lanes(&listed.join(",")).unwrap(), 2);
    let error = Selector::parse("mock:optweb:4/0,mock:optweb:4/1+lanes=2").unwrap_err().to_string();
    assert!(error.contains("found optweb:4 and optweb:4+lanes=2"), "{error}");
}

#[test]
fn windows() {
    let windows = |text: &str| Selector::parse(text).map(|selector| selector.profile().unwrap().windows);
    assert_eq!(windows("mock:optweb:8").unwrap(), 16);
    assert_eq!(windows("mock:optweb:8+windows=0").unwrap(), 0);
    assert_eq!(windows("mock:optweb:2x4/3+windows=1024+lanes=2").unwrap(), 1024);
    assert!(matches!(windows("mock:optweb:8+windows=1025"), Err(Error::Syntax { .. })));
    for text in ["mock:optweb:8+windows=", "mock:optweb:8+windows=-1", "mock:optweb:8+windows=some"] {
        assert!(matches!(windows(text), Err(Error::Syntax { .. })), "{text:?}");
    }
    let listed = Selector::parse("mock:optweb:4+windows=0+lanes=2").unwrap().mock_selectors();
    assert_eq!(listed[3], "mock:optweb:4/3+lanes=2+windows=0");
    assert_eq!(windows(&listed.join(",")).unwrap(), 0);
}

#[test]
fn hardware() {
    let hardware = |text: &str| Selector::parse(text).map(|selector| selector.profile().unwrap().hardware);
    assert_eq!(hardware("mock:optweb:4").unwrap(), Hardware::default());
    let all =
        Hardware { posted_writes: Some(3), split_dma: Some(7), drift_ppm: 300, bits_per_error: Some(9), reset_ms: 20 };
    assert_eq!(hardware("mock:optweb:4+errors=9+reset=20+drift=300+split=7+posted=3").unwrap(), all);
    let listed =
        Selector::parse("mock:optweb:4+posted=3+split=7+drift=300+errors=9+reset=20").unwrap().mock_selectors();
    assert_eq!(listed[3], "mock:optweb:4/3+posted=3+split=7+drift=300+errors=9+reset=20");
    assert_eq!(hardware(&listed.join(",")).unwrap(), all);
    for text in ["posted=", "posted=-1", "split=x", "errors=0", "drift=0.5", "drift", "reset=-1"] {
        assert!(matches!(hardware(&format!("mock:optweb:8+{text}")), Err(Error::Syntax { .. })), "{text:?}");
    }
    assert!(matches!(Selector::parse("mock:optweb:4/0,mock:optweb:4/1+drift=1"), Err(Error::Syntax { .. })));
}

#[test]
fn faults() {
    let selector = Selector::parse("mock:optweb:4+stop=2@100+cut=0-1+late=50").unwrap();
    let slow = Selector::parse("mock:optweb:4+slow=20").unwrap();
    assert_eq!(slow.mock().unwrap().faults, [Fault::Slow { mbps: 20_000 }]);
    let stop = Fault::Freeze { node: 2, when: When::After(100_000_000) };
    let mock = selector.mock().unwrap();
    assert_eq!(mock.faults, [stop, Fault::Cut { a: 0, b: 1, when: When::After(0) }]);
    assert_eq!(mock.late, Some(Duration::from_micros(50)));
    let misanswered = Selector::parse("mock:optweb:4+unanswered=2@10+poisoned=3").unwrap();
    let expected = [Fault::Unanswered { node: 2, after: 10 }, Fault::Poisoned { node: 3, after: 0 }];
    assert_eq!(misanswered.mock().unwrap().faults, expected);
    let hit = Selector::parse("mock:optweb:4+garble=2-0@7+flip=3@0x1000+flap=0-1@50").unwrap();
    let expected = [
        Fault::Garble { from: 2, to: 0, after: 7 },
        Fault::FlipBits { node: 3, address: 4096, bits: 2 },
        Fault::Flap { a: 0, b: 1, when: When::After(50_000_000), down_ps: 10_000_000, count: 16 },
    ];
    assert_eq!(hit.mock().unwrap().faults, expected);
    let amid = Selector::parse("mock:optweb:4+stop=2@1.0.65536").unwrap();
    let when = When::Moved(Moved { node: 1, tag: None, transfer: 0, bytes: 65_536 });
    assert_eq!(amid.mock().unwrap().faults, [Fault::Freeze { node: 2, when }]);
    for text in ["1.0", "1.0.", "1.0.-1", "1.0.5.6", ".0.5"] {
        let parsed = Selector::parse(&format!("mock:optweb:4+stop=2@{text}"));
        assert!(matches!(parsed, Err(Error::Syntax { .. })), "{text:?}");
    }
    assert!(matches!(Selector::parse("mock:optweb:4+stop=2@4.0.1"), Err(Error::NoCard { .. })));
}

/// An option that is known is named with its form and its range alone, whatever is wrong with its value.
#[test]
fn options_out_of_range_are_named_with_their_range() {
    for (option, why) in [
        ("slow=0", "+slow=GBPS, a whole number from 1 to 4294967"),
        ("slow=1e9", "+slow=GBPS, a whole number from 1 to 4294967"),
        ("errors=0", "+errors=BITS, from 1 on"),
        ("posted=65", "posted writes out of range (at most 64)"),
        ("posted=-1", "+posted=N, at most 64"),
        ("drift=1001", "clock drift in ppm out of range (at most 1000)"),
        ("reset=101", "milliseconds of a reset out of range (at most 100)"),
        ("windows=1025", "at most 1024"),
        ("lanes=65", "1 to 64"),
        ("late=86400000001", "+late=US, at most 86400000000 (a day)"),
        ("stop=0@86400000001", "WHEN is US, at most 86400000000 (a day)"),
        ("flip=2@0x200000000", "no address 0x200000000 (a card has 0 to 0x1ffffffff)"),
        ("flip=2@0xg", "ADDRESS is decimal, or begins with 0x"),
        ("bypass=1", "expected +bypass"),
        ("fast=1", "unknown option +fast=1 (available: lanes, windows"),
    ] {
        let error = Selector::parse(&format!("mock:optweb:4+{option}")).unwrap_err();
        assert!(matches!(error, Error::Syntax { .. }) && error.to_string().contains(why), "{option}: {error}");
    }
    assert!(Selector::parse("mock:optweb:4+slow=4294967+flip=2@0x1ffffffff+late=86400000000").is_ok());
}

/// The selectors that `list` prints select the same cards, one by one and together.
#[test]
fn single_cards_of_a_fabric() {
    let whole = Selector::parse("mock:optweb:4+stop=2").unwrap();
    assert_eq!(whole.nodes(), [0, 1, 2, 3]);
    assert_eq!(whole.mock_selectors()[2], "mock:optweb:4/2");
    for (node, text) in whole.mock_selectors().iter().enumerate() {
        assert_eq!(Selector::parse(text).unwrap().nodes(), [node as u32]);
    }
    let listed = Selector::parse(&whole.mock_selectors().join(",")).unwrap();
    assert_eq!((listed.nodes(), listed.profile()), (whole.nodes(), whole.profile()));
    let two = select("mock:optweb:4/3,mock:optweb:4/1+cut=1-3").unwrap();
    let names: Vec<&str> = two.functions.iter().map(|one| one.identity().name.as_str()).collect();
    assert_eq!(names, ["mock:optweb:4/3", "mock:optweb:4/1"]);
}

#[test]
fn missing_cards_and_links_are_refused() {
    for (text, why) in [
        ("mock:optweb:4/4", "no card 4"),
        ("mock:optweb:4+stop=4", "no card 4"),
        ("mock:optweb:4+poisoned=4@1", "no card 4"),
        ("mock:optweb:4+garble=1-1@5", "no link between cards 1 and 1"),
        ("mock:optweb:4+stop=9@100", "no card 9 (available: 0 to 3)"),
        ("mock:optweb:4+cut=0-4", "no card 4"),
        ("mock:optweb:4+cut=1-1@5", "no link between cards 1 and 1"),
        // Groups 0 1, 2 3 of a Dragonfly: a card has one link to each other group.
        ("mock:optweb:2x2+cut=0-3", "no link between cards 0 and 3"),
    ] {
        let error = Selector::parse(text).unwrap_err();
        assert!(matches!(error, Error::NoCard { .. }) && error.to_string().contains(why), "{text}: {error}");
    }
}

#[test]
fn a_directory_selects_its_sockets_by_number() {
    let directory = tempfile::tempdir().unwrap();
    let text = format!("vfio-user:{}", directory.path().display());
    assert!(matches!(Selector::parse(&text), Err(Error::NoCard { .. })));
    for name in ["10.sock", "9.sock", "0.sock", "spare.sock"] {
        std::os::unix::net::UnixListener::bind(directory.path().join(name)).unwrap();
    }
    fs::write(directory.path().join("1.sock"), "").unwrap();
    let expected = ["0.sock", "9.sock", "10.sock", "spare.sock"].map(|name| directory.path().join(name));
    assert_eq!(Selector::parse(&text).unwrap().sockets(), expected);
    let missing = Selector::parse("vfio-user:/nowhere/0.sock").unwrap();
    assert_eq!(missing.sockets(), [PathBuf::from("/nowhere/0.sock")]);
}

#[test]
fn cards_on_a_bus() {
    let addresses = |text: &str| Selector::parse(text).unwrap().addresses().to_vec();
    let card = "0000:3b:00.0".parse().unwrap();
    assert_eq!(addresses("vfio:0000:3b:00.0"), [card]);
    assert_eq!(addresses("3b:00.0"), [card]);
    assert_eq!(addresses("vfio:0000:3b:00.0,0000:5e:00.1"), [card, "5e:00.1".parse().unwrap()]);
    let token = "83a1b1c0-1d2e-4f3a-8b4c-5d6e7f809102";
    let options = Selector::parse(&format!("vfio:3b:00.0+vf-token={token}+no-iommu")).unwrap().cards;
    let vf_token = Some(token.parse().unwrap());
    let (no_iommu, without_reset) = (true, false);
    assert_eq!(options, Cards::Vfio(vec![VfioCard { address: card, vf_token, no_iommu, without_reset }]));
    let unreset = VfioCard { address: card, vf_token: None, no_iommu: false, without_reset: true };
    assert_eq!(Selector::parse("3b:00.0+without-reset").unwrap().cards, Cards::Vfio(vec![unreset]));
    let sockets = Selector::parse("vfio-user:/run/a.sock,vfio-user:b.sock").unwrap();
    assert_eq!(sockets.kind(), Kind::VfioUser);
    assert_eq!(sockets.cards, Cards::VfioUser(vec!["/run/a.sock".into(), "b.sock".into()]));
}

#[test]
fn invalid_selectors_are_refused() {
    for text in [
        "",
        "mock",
        "mock:optweb",
        "mock:optweb:",
        "mock:optweb:four",
        "mock:novo:4",
        "mock:optweb:4:5",
        "moc:optweb:4",
        "vfio:",
        "vfio:3b",
        "0000:3b:00.9",
        "0000:3b:00.0,",
        "0000:3b:00.0,mock:optweb:4",
        "vfio-user:",
        "vfio:3b:00.0+vf-token=secret",
        "vfio:3b:00.0+fast",
        "vfio-user:/a,vfio:0000:3b:00.0",
        "mock:optweb:4+stop=x",
        "mock:optweb:4+slow=0",
        "mock:optweb:4+late=soon",
        "mock:optweb:4+lanes=two",
        "mock:optweb:4+late=86400000001",
        "mock:optweb:4+stop=0@18446744073709",
        "mock:optweb:4/",
        "mock:optweb:4/x",
        "mock:optweb:4/0,mock:optweb:4",
        "mock:optweb:4/0,mock:optweb:4/0",
        "mock:optweb:4/0,mock:optweb:5/1",
        "mock:optweb:4/0,0000:3b:00.0",
        "mock:optweb:4+lanes=2+lanes=3",
        "mock:alveo-xdma:4+bypass+bypass",
        "mock:alveo-xdma:1+posted=4",
    ] {
        assert!(matches!(Selector::parse(text), Err(Error::Syntax { .. })), "{text:?}");
    }
    let why = |text| Selector::parse(text).unwrap_err().to_string();
    assert!(why("mock:alveo-xdma:2@nothing").ends_with("(available: optweb, circus, bluelink)"));
    assert!(why("mock:alveo-xdma:1+posted=4").ends_with("no options and no faults"));
    assert!(Selector::parse("mock:optweb:4+stop=0+stop=1").is_ok(), "several faults");
    assert!(matches!(Selector::parse("mock:optweb:1"), Err(Error::Profile { .. })));
    let card = Selector::parse("0000:3b:00.0").unwrap();
    assert!(matches!(card.fabric(), Err(Error::NotMock { .. })));
}

#[test]
fn cards_given_twice_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let _socket = UnixListener::bind(directory.path().join("0.sock")).unwrap();
    let path = directory.path().display();
    for (text, card) in [
        ("mock:optweb:4/0,mock:optweb:4/2,mock:optweb:4/2".to_owned(), "2".to_owned()),
        ("3b:00.0,5e:00.0,vfio:0000:3b:00.0+no-iommu".to_owned(), "vfio:0000:3b:00.0".to_owned()),
        ("vfio-user:/nowhere/0.sock,vfio-user:/nowhere//0.sock".to_owned(), "vfio-user:/nowhere//0.sock".to_owned()),
        (format!("vfio-user:{path},vfio-user:{path}/0.sock"), format!("vfio-user:{path}/0.sock")),
    ] {
        let error = Selector::parse(&text).unwrap_err();
        let is_named = error.to_string().ends_with(&format!("duplicate card {card}"));
        assert!(matches!(error, Error::Syntax { .. }) && is_named, "{error}");
    }
}

#[test]
fn a_card_goes_without_its_control_function_but_not_for_lack_of_resources() {
    let failed = |source| Err(Error::Open { selector: "vfio-user:/0.control.sock".into(), source });
    let socket = |errno| fpga_hal::Error::Socket {
        action: "connect to",
        path: "/0.control.sock".into(),
        source: io::Error::from_raw_os_error(errno),
    };
    assert!(if_usable(failed(fpga_hal::Error::Busy { path: "/0.control.sock".into() })).unwrap().is_none());
    let (emfile, econnrefused) = (24, 111);
    assert!(if_usable(failed(socket(econnrefused))).unwrap().is_none());
    assert!(if_usable(failed(socket(emfile))).unwrap_err().is_out_of_resources());
}

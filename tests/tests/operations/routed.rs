//! Cards of Novo-G# on a bus: collectives over their links, tables that a host loads into their routers, transforms on them.

#[path = "../../../mock/tests/networks/direct_transform/mod.rs"]
mod direct_transform;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cmdseq::plan::{Request, candidates};
use cmdseq::routing::{
    CollectiveKind, FftMappingError, Route, RouteKind, RoutedCollective, RoutedTables, Torus3, TreeAlgorithm, compile,
};
use cmdseq::{Combine, Element, Reduction};
use fpga_driver::routed::{Error, Network, Transform, Transformed};
use fpga_driver::{Cluster, Error as CardError};
use fpga_hal::endpoint::Interposer;
use fpga_hal::{BarIndex, Endpoint, Function, in_process};
use fpga_mock::{Fabric, Fault, Hardware, Profile, When};
use fpga_regs::{fft, router};
use fpga_tests::altered::altered;
use fpga_tests::dice::{Dice, seed};
use fpga_tests::oracle::{Case, Moving, OPERATIONS};
use fpga_tests::reduction::{self, Reducing, combinations, element_bytes};
use fpga_tests::run::{domain, open};
use fpga_tests::sweep::Sweep;

use direct_transform::{Point, bound, distance};

/// Where the blocks of a card are.
const ROUTER: u64 = 0x2000;
const FFT: u64 = 0x4000;

fn novo_g(shape: &str) -> Profile {
    Profile::novo_g_of(shape).unwrap()
}

fn collective(kind: CollectiveKind, root: u32, members: &[u32], packets: u32) -> RoutedCollective {
    RoutedCollective { kind, root, members: members.to_vec(), packets }
}

fn tables(torus: Torus3, list: &[RoutedCollective]) -> RoutedTables {
    compile(torus, list, TreeAlgorithm::Ocr).unwrap()
}

/// A unicast, a multicast and a reduction of some packets.
fn some(torus: Torus3, packets: u32) -> RoutedTables {
    let last = torus.nodes() - 1;
    let list = [
        collective(CollectiveKind::Unicast, last, &[0], packets),
        collective(CollectiveKind::Multicast, 0, &[1, 2, last], packets),
        collective(CollectiveKind::Reduction, 1, &[1, 3, last], packets),
    ];
    tables(torus, &list)
}

#[test]
fn every_collective_gives_the_oracles_bits() {
    for shape in ["2x2x2", "3x2x1"] {
        let mut sweep = Sweep::new(&format!("mock:novo-g:{shape}"));
        let ranks = sweep.cluster.capabilities().nodes;
        let group: Vec<u32> = (0..ranks).collect();
        for operation in OPERATIONS {
            for (root, bytes) in [(0, 0), (1, 63), (ranks - 1, 16_385)] {
                let case = Case { operation, ranks, bytes, root, peer: (root + 1) % ranks };
                let request =
                    Request { root, peer: case.peer, ..Request::new(operation.parse().unwrap(), group.clone(), bytes) };
                for (_, plan) in candidates(&request, sweep.cluster.capabilities()) {
                    plan.into_iter().for_each(|plan| sweep.check_plan(&plan, |seed| Moving { case, seed }));
                }
            }
        }
        for (number, (reduction, element)) in combinations().into_iter().enumerate() {
            for operation in reduction::OPERATIONS {
                let root = number as u32 % ranks;
                let bytes = [1, 77][number % 2] * element_bytes(element) as u64;
                let case = reduction::Case { operation, reduction, element, ranks, bytes, root };
                let combine =
                    Combine::new(reduction.parse::<Reduction>().unwrap(), element.parse::<Element>().unwrap());
                let request = Request {
                    root,
                    combine: Some(combine),
                    ..Request::new(operation.parse().unwrap(), group.clone(), bytes)
                };
                let grid = fpga_tests::folding::grid(sweep.cluster.capabilities(), &group);
                for (_, plan) in candidates(&request, sweep.cluster.capabilities()) {
                    plan.into_iter().for_each(|plan| sweep.check_plan(&plan, |seed| Reducing::new(case, grid, seed)));
                }
            }
        }
        println!("{shape}: {} cases", sweep.cases);
        assert!(sweep.cases > 106 * 5, "{}", sweep.cases);
    }
}

#[test]
fn what_was_loaded_is_in_force_on_all_cards() {
    let posted = Hardware { posted_writes: Some(3), ..Hardware::default() };
    for hardware in [Hardware::default(), posted] {
        let (_fabric, mut cluster) = open(Profile { hardware, ..novo_g("4x2x2") });
        let mut network = Network::of(&cluster).unwrap();
        assert_eq!(network.torus().sides(), [4, 2, 2]);
        assert_eq!(network.in_force().unwrap().generation, 0);
        for packets in [1, 300, 7] {
            let tables = some(network.torus(), packets);
            let loaded = network.load(&tables).unwrap();
            let in_force = network.in_force().unwrap();
            assert_eq!((in_force.generation, &in_force.nodes), (loaded.generation, &tables.nodes));
            assert_eq!(loaded.report.bits, tables.nodes.iter().map(|node| node.bits()).sum::<u64>());
        }
        // A reset of the function leaves the tables, because packets of other cards pass.
        cluster.card_mut(3).reset().unwrap();
        assert_eq!(network.in_force().unwrap().nodes, some(network.torus(), 7).nodes);
    }
}

#[test]
fn wrong_tables_are_refused_with_their_place_and_change_nothing() {
    let (_fabric, cluster) = open(novo_g("2x2x2"));
    let mut network = Network::of(&cluster).unwrap();
    let torus = network.torus();
    let right = some(torus, 2);
    network.load(&right).unwrap();
    let mut refuse = |change: &dyn Fn(&mut RoutedTables), message: &str| {
        let mut changed = right.clone();
        change(&mut changed);
        let error = network.load(&changed).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
        let in_force = network.in_force().unwrap();
        assert!(in_force.generation == 1 && in_force.nodes == right.nodes, "{message}");
    };
    // Everything goes to X+, and there again to X+.
    let round = Route { kind: RouteKind::Unicast, port: 0, next: 0, priority: 0 };
    refuse(
        &|tables| tables.nodes.iter_mut().for_each(|node| node.routes = vec![round; 8]),
        "packets loop: they return to node",
    );
    refuse(&|tables| tables.nodes[0].multicasts.clear(), "node 0 has no entry 0 in its multicast table");
    refuse(&|tables| tables.collectives[0].collective.members = vec![8], "no node 8 (available: 0 to 7)");
    refuse(&|tables| tables.nodes[1].reductions[0].expected = 7, "reduction entry 0 of node 1 gets");
    refuse(&|changed| *changed = some(torus, 9000), "packets wait at the input from");
    let other = Torus3::new([4, 2, 1]).unwrap();
    refuse(&|changed| *changed = some(other, 1), "expected cards such as mock:novo-g:4x2x1");
}

/// A card that reads a word of its window with a bit wrong, while told so.
struct WrongWord {
    card: Arc<dyn Endpoint>,
    is_wrong: Arc<AtomicBool>,
}

impl Interposer for WrongWord {
    fn behind(&self) -> &dyn Endpoint {
        &*self.card
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        self.card.bar_read(bar, offset, data);
        let is_window = bar.index() == 0 && offset == ROUTER + u64::from(router::WINDOW_OFFSET);
        if is_window && self.is_wrong.load(Ordering::Relaxed) {
            data[0] ^= 1;
        }
    }
}

#[test]
fn a_failure_in_the_middle_leaves_the_old_tables_in_force() {
    let fabric = Fabric::new(novo_g("2x2x2")).unwrap();
    let (domain, is_wrong) = (domain(), Arc::new(AtomicBool::new(false)));
    let function = |node: u32| -> Function {
        let card = fabric.endpoint(node);
        let card = match node {
            5 => Arc::new(WrongWord { card, is_wrong: Arc::clone(&is_wrong) }) as Arc<dyn Endpoint>,
            _ => card,
        };
        in_process::attach(card, &domain, &format!("card {node}")).unwrap()
    };
    let cluster = Cluster::open((0..8).map(function).collect()).unwrap();
    let mut network = Network::of(&cluster).unwrap();
    let (old, new) = (some(network.torus(), 2), some(network.torus(), 3));
    network.load(&old).unwrap();
    // The first cards have the new tables in their staged bank when card 5 fails.
    is_wrong.store(true, Ordering::Relaxed);
    let error = network.load(&new).unwrap_err();
    assert!(matches!(&error, Error::Lost { name, word: 0, .. } if name == "card 5"), "{error}");
    is_wrong.store(false, Ordering::Relaxed);
    assert_eq!(network.in_force().unwrap().nodes, old.nodes);
    // Nor do the others follow a commit that one card has not staged.
    let first = register(&cluster, 0, ROUTER);
    first(router::COMMIT, Some(2));
    assert_eq!(first(router::REFUSED, None) & 0xffff, router::NOT_STAGED);
    fabric.plant(Fault::Vanish { node: 6 });
    let error = network.load(&new).unwrap_err();
    assert!(matches!(&error, Error::Card(CardError::Removed { name, .. }) if name == "card 6"), "{error}");
    for node in [0, 1, 5, 7] {
        assert_eq!(register(&cluster, node, ROUTER)(router::GENERATION, None), 1, "card {node}");
    }
}

/// A torus of eight cards, on one of which some registers read otherwise: offsets in its register BAR, and values.
fn with_altered(node: u32, values: &[(u64, u32)]) -> (Fabric, Cluster) {
    let fabric = Fabric::new(novo_g("2x2x2")).unwrap();
    let domain = domain();
    let function = |one: u32| {
        let values = if one == node { values } else { &[] };
        in_process::attach(altered(fabric.endpoint(one), 0, values), &domain, &format!("card {one}")).unwrap()
    };
    let cluster = Cluster::open((0..8).map(function).collect()).unwrap();
    (fabric, cluster)
}

#[test]
fn what_a_card_refuses_is_told() {
    let at = |block: u64, register: u32, value: u32| [(block + u64::from(register), value)];
    let loaded = |node: u32, values: &[(u64, u32)]| {
        let (_fabric, cluster) = with_altered(node, values);
        let mut network = Network::of(&cluster)?;
        network.load(&some(network.torus(), 2)).map(|loaded| loaded.generation)
    };
    let refused = |block: u64, register: u32, reason: u32| at(block, register, 6 << 16 | reason);
    for (reason, expected) in [
        (router::NOT_STAGED, "card 6 has not staged them"),
        (router::RUN_UNDER_WAY, "the user logic of card 6 has not ended a run"),
        (99, "unknown reason 99"),
    ] {
        let error = loaded(0, &refused(ROUTER, router::REFUSED, reason)).unwrap_err();
        assert!(matches!(error, Error::NotCommitted { .. }) && error.to_string().contains(expected), "{error}");
    }
    let error = loaded(4, &at(ROUTER, router::STAGED, 9)).unwrap_err();
    assert!(matches!(&error, Error::NotStaged { name, written: 1, found: 9 } if name == "card 4"), "{error:?}");
    // One that does not follow the commit.
    let error = loaded(5, &at(ROUTER, router::GENERATION, 77)).unwrap_err();
    assert!(matches!(error, Error::Generations { node: 5, found: 77, first: 78 }), "{error:?}");
    for (reason, expected) in [
        (fft::NOT_ARMED, "card 6 is not armed for this transform"),
        (fft::NO_SOURCES, "the sources of card 6 are not those of this transform"),
        (fft::NO_FIT, "it does not fit the cards"),
        (fft::MEMORY, "the memory of card 6 lacks the range, or has an error there"),
        (99, "unknown reason 99"),
    ] {
        let (_fabric, mut cluster) = with_altered(0, &refused(FFT, fft::REFUSED, reason));
        let error = transform(&mut cluster, 16, SECONDS, &random(16, 1)).unwrap_err();
        assert!(matches!(error, Error::NotStarted { .. }) && error.to_string().contains(expected), "{error}");
    }
    let (_fabric, mut cluster) = with_altered(3, &at(FFT, fft::STATE, fft::DONE));
    let error = transform(&mut cluster, 16, SECONDS, &random(16, 1)).unwrap_err().to_string();
    assert!(error.contains("card 3 is not armed"), "{error}");
}

#[test]
fn what_a_router_says_of_itself_is_checked() {
    for (register, value, name) in [
        (router::NODE, 2, "NODE"),
        (router::NODE, 8, "NODE"),
        (router::SIDES, 0x0002_0200, "SIDES"),
        (router::SIDES, 0x0102_0202, "SIDES"),
        (router::ENTRIES, 0, "ENTRIES"),
        (router::ENTRIES, 65_537, "ENTRIES"),
        (router::INPUT_PACKETS, 0, "INPUT_PACKETS"),
    ] {
        let (_fabric, cluster) = with_altered(3, &[(ROUTER + u64::from(register), value)]);
        let error = Network::of(&cluster).unwrap_err();
        assert!(
            matches!(&error, Error::Card(CardError::BadCapability { register, .. }) if *register == name),
            "{error:?}"
        );
    }
    // A torus of other sides, and an entry more than there is room for.
    let (_fabric, cluster) = with_altered(3, &[(ROUTER + u64::from(router::SIDES), 0x0001_0204)]);
    assert!(matches!(Network::of(&cluster).unwrap_err(), Error::Shape { given: [4, 2, 1], has: [2, 2, 2] }));
    let (_fabric, cluster) = with_altered(3, &[(ROUTER + u64::from(router::ROUTES), 65_537)]);
    let mut network = Network::of(&cluster).unwrap();
    let error = network.load(&some(network.torus(), 2)).unwrap_err();
    assert!(matches!(error, Error::Card(CardError::BadCapability { .. })), "{error:?}");
}

/// Returns a function that writes, and then reads, a register of a block of a card.
fn register(cluster: &Cluster, node: usize, block: u64) -> impl Fn(u32, Option<u32>) -> u32 {
    let window = cluster.cards()[node].function().window(BarIndex::new(0).unwrap()).unwrap();
    move |offset, value| {
        let offset = block + u64::from(offset);
        value.into_iter().for_each(|value| window.write_u32(offset, value).unwrap());
        window.read_u32(offset).unwrap()
    }
}

#[test]
fn tables_of_a_part_of_the_cards_are_refused() {
    let fabric = Fabric::new(novo_g("2x2x2")).unwrap();
    let domain = domain();
    let function = |node: &u32| in_process::attach(fabric.endpoint(*node), &domain, &format!("card {node}")).unwrap();
    let cluster = Cluster::open([0, 1, 2, 4, 5, 6, 7].iter().map(function).collect()).unwrap();
    let error = Network::of(&cluster).unwrap_err();
    assert!(matches!(error, Error::MissingCard { node: 3, nodes: 8, .. }), "{error}");
    let (_fabric, cluster) = open(Profile::optweb(2));
    assert!(matches!(Network::of(&cluster).unwrap_err(), Error::NoBlock { .. }));
}

#[test]
fn a_cluster_of_other_cards_than_the_network_is_refused() {
    let (_fabric, cluster) = open(novo_g("2x2x2"));
    let mut network = Network::of(&cluster).unwrap();
    drop(cluster);
    let larger = Fabric::new(novo_g("4x2x2")).unwrap();
    // More cards, and as many, but others.
    for nodes in [0..16, 8..16] {
        let function =
            |node: u32| in_process::attach(larger.endpoint(node), &domain(), &format!("card {node}")).unwrap();
        let mut cluster = Cluster::open(nodes.map(function).collect()).unwrap();
        let transform = Transform { side: 16, cores: 16, timeout: SECONDS };
        let error = network.transform(&mut cluster, &transform, &random(16, 1)).unwrap_err();
        assert!(matches!(error, Error::Card(CardError::BadArgument { .. })), "{error}");
    }
}

/// Numbers from -1 to 1, as the bytes of complex64.
fn random(side: usize, seed: u64) -> Vec<u8> {
    let mut dice = Dice(seed);
    let number = |_| (dice.below(1 << 24) as f32 / (1 << 23) as f32 - 1.0).to_le_bytes();
    (0..2 * side.pow(3)).flat_map(number).collect()
}

fn points(bytes: &[u8]) -> Vec<Point> {
    let number = |bytes: &[u8]| f64::from(f32::from_le_bytes(bytes.try_into().unwrap()));
    bytes.chunks_exact(8).map(|point| (number(&point[..4]), number(&point[4..]))).collect()
}

fn transform(cluster: &mut Cluster, side: u32, timeout: Duration, input: &[u8]) -> Result<Transformed, Error> {
    Network::of(cluster)?.transform(cluster, &Transform { side, cores: 16, timeout }, input)
}

const SECONDS: Duration = Duration::from_secs(60);

#[test]
fn transforms_are_those_of_the_definition() {
    let mut differ = 0;
    let posted = Hardware { posted_writes: Some(3), ..Hardware::default() };
    for (side, shape, hardware) in
        [(16, "2x2x2", posted), (32, "4x4x4", Hardware::default()), (16, "4x4x4", Hardware::default())]
    {
        let (_fabric, mut cluster) = open(Profile { hardware, ..novo_g(shape) });
        let mut times = Vec::new();
        for run in 0..2 {
            let input = random(side as usize, seed() + run);
            let done = transform(&mut cluster, side, SECONDS, &input).unwrap();
            let off = distance(side as usize, points(&input), &points(&done.output));
            assert!(off > 0.0 && off < bound(side), "{side} on {shape}: {off}");
            for turn in &done.turns {
                assert!(turn.seen == turn.expected && turn.expected.iter().all(|packets| *packets > 0));
            }
            assert_eq!(done.hops, done.report.hops);
            times.push((done.phases, done.turns.map(|turn| turn.span)));
        }
        differ += usize::from(times[0] != times[1]);
    }
    assert!(differ > 0, "the latencies of links are others in each run");
}

#[test]
fn a_dropped_packet_is_named_and_the_next_transform_is_right() {
    let (fabric, mut cluster) = open(novo_g("4x4x4"));
    let torus = Torus3::new([4; 3]).unwrap();
    let input = random(32, 5);
    // With 32 points on 4 cards a side, XY uses links along X and Y, YZ those along X, Y and Z.
    for (to, turn) in [([1, 2, 3], "XY"), ([1, 1, 0], "YZ")] {
        let [from, to] = [[1, 1, 3], to].map(|place| torus.node(place));
        fabric.plant(Fault::Drop { from, to, after: 0 });
        let error = transform(&mut cluster, 32, Duration::from_secs(2), &input).unwrap_err();
        let Error::Stalled(stall) = error else { panic!("{error}") };
        assert_eq!((stall.turn, stall.dropped, stall.lost, stall.stray), (turn, 1, 0, 0), "{stall}");
        let card = &stall.cards[0];
        assert_eq!((stall.cards.len(), card.seen + 1), (1, card.expected), "{stall}");
        assert!((1..=3).contains(&card.points), "{stall}");
        let hops = |one, other| torus.distance(one, other);
        assert_eq!(hops(card.from, from) + 1 + hops(to, card.node), hops(card.from, card.node), "{stall}");
        // Its run holds the tables.
        let mut network = Network::of(&cluster).unwrap();
        let error = network.load(&some(torus, 1)).unwrap_err();
        assert!(matches!(&error, Error::NotCommitted { why } if why.contains("has not ended a run")), "{error}");
        let done = transform(&mut cluster, 32, SECONDS, &input).unwrap();
        assert!(distance(32, points(&input), &points(&done.output)) < bound(32));
    }
}

/// A stopped sequencer copies no points: the limit is the transform's, and the card's own is as before.
#[test]
fn the_time_limit_is_that_of_copies_too() {
    let (fabric, mut cluster) = open(novo_g("2x2x2"));
    fabric.plant(Fault::Freeze { node: 3, when: When::After(0) });
    cluster.set_timeout(Duration::from_secs(600));
    let limit = Duration::from_millis(50);
    let error = transform(&mut cluster, 16, limit, &random(16, 1)).unwrap_err();
    let Error::Card(CardError::Timeout { waited, .. }) = &error else { panic!("{error}") };
    assert!(*waited < Duration::from_secs(300), "{error}");
    assert!(cluster.cards().iter().all(|card| card.timeout() == Duration::from_secs(600)));
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_written() {
    let (_fabric, mut cluster) = open(novo_g("2x2x2"));
    let mut refuse = |side: u32, cores: u32, message: &str| {
        let mut network = Network::of(&cluster).unwrap();
        let input = random(side as usize, 1);
        let transform = Transform { side, cores, timeout: SECONDS };
        let error = network.transform(&mut cluster, &transform, &input).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
        assert_eq!(network.in_force().unwrap().generation, 0);
    };
    refuse(48, 16, "no core transforms lines of this length (these fit: 16, 32, 64)");
    refuse(16, 76, "76 cores for lines of 16 points in a card (expected 1 to 75)");
    refuse(16, 0, "0 cores for lines of 16 points");
    let (_fabric, mut cluster) = open(Profile {
        router: Some(fpga_mock::novog::Profile { input_packets: 10, ..fpga_mock::novog::Profile::fft() }),
        ..novo_g("2x2x2")
    });
    let error = transform(&mut cluster, 16, SECONDS, &random(16, 1)).unwrap_err();
    let Error::Mapping(FftMappingError::Buffers { side: 16, packets, depth: 10, fitting }) = &error else {
        panic!("{error}")
    };
    assert!(*packets > 10 && fitting.is_empty(), "{error}");
    assert!(error.to_string().ends_with("packets, the cards' hold 10 (these fit: none)"), "{error}");
}

/// Tables that no host verified: packets go round for ever, and the run ends all the same.
#[test]
fn loops_that_nobody_verified_end() {
    let (_fabric, mut cluster) = open(novo_g("2x2x2"));
    transform(&mut cluster, 16, SECONDS, &random(16, 1)).unwrap();
    let sources = register(&cluster, 0, ROUTER)(router::SOURCES, None);
    assert_eq!(sources, 0, "the staged bank");
    for node in 0..8 {
        let write = register(&cluster, node, ROUTER);
        write(router::SELECT, Some(3 | router::IN_FORCE));
        let sources = write(router::SOURCES, None);
        write(router::SOURCES, Some(sources));
        write(router::SELECT, Some(0));
        write(router::PAGE, Some(0));
        // To X+, and there again to X+.
        write(router::ROUTES, Some(1));
        write(router::WINDOW_OFFSET, Some(0));
        assert_eq!(write(router::STAGED, Some(77)), 77);
        let unit = register(&cluster, node, FFT);
        unit(fft::ARM, Some(0));
        assert_eq!(unit(fft::ARM, Some(77)), 77);
    }
    register(&cluster, 2, ROUTER)(router::COMMIT, Some(77));
    register(&cluster, 1, FFT)(fft::START, Some(77));
    assert_eq!(register(&cluster, 1, FFT)(fft::REFUSED, None), fft::STARTED);
    for node in 0..8 {
        assert_eq!(register(&cluster, node, FFT)(fft::STATE, None), fft::RUNNING);
        assert!(register(&cluster, node, ROUTER)(router::STRAY, None) > 0);
    }
    transform(&mut cluster, 16, SECONDS, &random(16, 1)).unwrap();
}

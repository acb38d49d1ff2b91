//! Novo-G#'s wormhole routers: every packet arrives once, buffers never overflow, and a deadlock is found where rules allow one.

use cmdseq::routing::Torus3;
use fpga_mock::novog::wormhole::{
    Arbitration, Classes, Configuration, Message, Pattern, Routing, Rules, Trace, TraceError, Traffic, Uniform,
    WormholeError, WormholeNetwork, WormholeOutcome, WormholeProfile,
};
use proptest::prelude::*;

const LIMIT: u64 = 1 << 40;
const DOR_FF: Configuration = Configuration { routing: Routing::Dor, arbitration: Arbitration::Ff };

fn torus(sides: [u32; 3]) -> Torus3 {
    Torus3::new(sides).unwrap()
}

/// Two virtual channels that hold hardly more than a packet: what deadlocks most easily.
fn tight() -> WormholeProfile {
    WormholeProfile { channels: 2, channel_flits: 125, ..WormholeProfile::published() }
}

fn run(profile: WormholeProfile, torus: Torus3, configuration: Configuration, mut trace: Trace) -> WormholeOutcome {
    WormholeNetwork::new(profile, torus).unwrap().run(configuration, &mut trace, LIMIT).unwrap()
}

fn one(torus: Torus3, to: u32, flits: u16) -> WormholeOutcome {
    let message = Message { cycle: 7, from: 0, to, flits };
    run(WormholeProfile::published(), torus, DOR_FF, Trace::new(torus, [message]).unwrap())
}

#[test]
fn a_packet_takes_a_link_and_a_router_for_each_hop() {
    let torus = torus([8, 8, 8]);
    // Nine virtual channels: four levels; a link of 175.7 ns is 25 cycles of 142 MHz; RC and VA.
    let hop = 4 + 25 + 2;
    for (to, hops) in [([1, 0, 0], 1), ([3, 0, 0], 3), ([3, 7, 2], 6)] {
        for flits in [1, 2, 32] {
            let outcome = one(torus, torus.node(to), flits);
            // Ejected before a virtual channel would be allocated. The last flit follows the first one, but for credit flits.
            let least = hops * hop - 1 + u64::from(flits) - 1;
            assert!(
                (least..=least + 2).contains(&outcome.latency_max),
                "{to:?}, {flits} flits: {}",
                outcome.latency_max
            );
            assert_eq!((outcome.first, outcome.flit_hops), (7, hops * u64::from(flits)));
        }
    }
}

#[test]
fn neighbours_get_all_of_the_links_but_credits() {
    let torus = torus([4, 4, 4]);
    let trace = Pattern::Neighbours.batch(torus, 400, 8, 6.0, 1).unwrap();
    let outcome = run(WormholeProfile::published(), torus, DOR_FF, trace);
    // One of 100 flits tells credits. The first and last packets do not fill the network.
    assert!((5.8..=5.94).contains(&outcome.throughput()), "{}", outcome.throughput());
    assert_eq!(outcome.channels_max, 0, "nothing is stored");
}

#[test]
fn bypassing_packets_go_before_injected_ones() {
    let line = torus([8, 1, 1]);
    // Node 1 has much to send to node 2; one packet of node 0 passes through.
    let many = (0..50).map(|_| Message { cycle: 0, from: 1, to: 2, flits: 16 });
    let passing = Message { cycle: 40, from: 0, to: 2, flits: 16 };
    let mut list: Vec<Message> = many.collect();
    list.push(passing);
    let all = run(WormholeProfile::published(), line, DOR_FF, Trace::new(line, list).unwrap());
    assert_eq!(all.packets, 51);
    let sum = |trace: Vec<Message>| {
        run(WormholeProfile::published(), line, DOR_FF, Trace::new(line, trace).unwrap()).latency_sum
    };
    let alone = sum((0..50).map(|_| Message { cycle: 0, from: 1, to: 2, flits: 16 }).collect());
    // It waits for at most one packet of node 1, and delays those behind it by its own length.
    let hops = 2 * 31 + 16;
    let delayed = all.latency_sum - alone - hops;
    assert!(delayed <= 50 * 18, "{delayed}");
}

/// A packet's sources, destinations and lengths.
fn messages(nodes: u32) -> impl Strategy<Value = Vec<Message>> {
    let one = (0_u64..2_000, 0..nodes, 1..nodes, 1_u16..=60);
    let one =
        one.prop_map(move |(cycle, from, ahead, flits)| Message { cycle, from, to: (from + ahead) % nodes, flits });
    prop::collection::vec(one, 1..400)
}

fn networks() -> impl Strategy<Value = (Torus3, Vec<Message>)> {
    let shape = [1_u32..=5, 1..=4, 1..=3].prop_filter_map("a torus", |sides| Torus3::new(sides).ok());
    shape.prop_flat_map(|torus| (Just(torus), messages(torus.nodes())))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_packet_arrives_once_and_no_buffer_overflows(
        (torus, list) in networks(), channels in 4_usize..=9, slack in 0_u32..200, seed in any::<u64>(),
    ) {
        let profile = WormholeProfile { channels, channel_flits: 125 + slack, seed, ..WormholeProfile::published() };
        let mut right = vec![0; torus.nodes() as usize];
        list.iter().for_each(|message| right[message.to as usize] += 1);
        let flits: u64 = list.iter().map(|message| u64::from(message.flits)).sum();
        for configuration in Configuration::all() {
            let least: u64 = list.iter().map(|one| u64::from(torus.distance(one.from, one.to)) * u64::from(one.flits)).sum();
            let outcome = run(profile, torus, configuration, Trace::new(torus, list.iter().copied()).unwrap());
            prop_assert_eq!((&outcome.received, outcome.flits), (&right, flits));
            prop_assert!(u32::from(outcome.depth_max) <= profile.channel_flits);
            prop_assert!(usize::from(outcome.channels_max) <= channels);
            prop_assert!(outcome.flit_hops == least || (configuration.routing == Routing::Rlb && outcome.flit_hops > least));
        }
    }
}

fn is_full() -> bool {
    std::env::var_os("FPGA_TESTS_FULL").is_some_and(|value| value != "0")
}

#[test]
fn random_traffic_never_deadlocks() {
    let flits: u64 = if is_full() { 100_000_000 } else { 400_000 };
    let torus = torus([8, 4, 4]);
    for configuration in Configuration::all() {
        let channels = Rules::safe(configuration.routing).count(torus);
        for profile in [WormholeProfile { channels, ..tight() }, WormholeProfile::published()] {
            let (length, load) = (32, 3.0);
            let packets = flits / 2 / u64::from(torus.nodes()) / (u64::from(length) / 2);
            let mut traffic = Uniform::new(torus, packets, length, load, 5);
            let outcome = WormholeNetwork::new(profile, torus).unwrap().run(configuration, &mut traffic, LIMIT);
            let outcome = outcome.unwrap_or_else(|error| panic!("{}: {error}", configuration.name()));
            assert_eq!(outcome.packets, packets * u64::from(torus.nodes()), "{}", configuration.name());
        }
    }
}

#[test]
fn the_published_rules_are_those_of_a_mesh() {
    let torus = torus([8, 4, 4]);
    for routing in Routing::ALL {
        let found = deadlock(tight(), torus, routing, Rules::published(), &mut Uniform::new(torus, 500, 32, 3.0, 5));
        // Whoever leaves a dimension and returns to it has its first class again.
        assert_eq!(found.is_some(), Rules::safe(routing) != Rules::published(), "{routing:?}: {found:?}");
    }
}

/// Runs traffic; returns the text of the deadlock.
fn deadlock(
    profile: WormholeProfile,
    torus: Torus3,
    routing: Routing,
    rules: Rules,
    traffic: &mut impl Traffic,
) -> Option<String> {
    let network = WormholeNetwork::new(profile, torus).unwrap().with_rules(rules);
    let configuration = Configuration { routing, ..DOR_FF };
    match network.run(configuration, traffic, LIMIT) {
        Ok(_) => None,
        Err(WormholeError::Deadlock(found)) => {
            assert!(found.circle.len() > 1 && found.stuck >= found.circle.len());
            // Each waits for a channel of the node that its packets go to next.
            for (one, next) in found.circle.iter().zip(found.circle.iter().cycle().skip(1)) {
                assert_eq!(torus.neighbour(one.node, next.port), Some(next.node));
            }
            Some(found.to_string())
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_ring_without_dateline_deadlocks() {
    let ring = torus([16, 1, 1]);
    for routing in Routing::ALL {
        // Seven links ahead: every node stores packets that need room at the next one.
        let run = |rules| {
            let mut batch = Pattern::Tornado.batch(ring, 2_000, 8, 2.0, 1).unwrap();
            deadlock(tight(), ring, routing, rules, &mut batch)
        };
        let found = run(Rules { classes: Classes::Off, ..Rules::published() })
            .unwrap_or_else(|| panic!("{routing:?} without a deadlock"));
        assert!(found.contains(" into node 3, channel 0 (packet to "), "{found}");
        assert_eq!(found.lines().count(), 18, "16 nodes, of which the first one is named again: {found}");
        assert_eq!(run(Rules::safe(routing)), None);
    }
}

#[test]
fn a_forbidden_turn_that_is_allowed_deadlocks() {
    for turn in Rules::published().forbidden {
        // The plane of the turn, with rules that are right without it.
        let mut sides = [1; 3];
        (sides[turn.0 / 2], sides[turn.1 / 2]) = (8, 8);
        let torus = torus(sides);
        let mut rules = Rules::safe(Routing::Romm);
        let profile = WormholeProfile { channels: rules.count(torus), ..tight() };
        let run = |rules| deadlock(profile, torus, Routing::Romm, rules, &mut Uniform::new(torus, 4_000, 60, 6.0, 3));
        assert_eq!(run(rules.clone()), None);
        rules.forbidden.retain(|one| *one != turn);
        assert!(run(rules).is_some(), "{turn:?}");
    }
}

#[test]
fn wrong_networks_and_packets_are_refused() {
    let ring = torus([4, 1, 1]);
    for (profile, text) in [
        (WormholeProfile { channels: 1, ..tight() }, "invalid number of virtual channels: 1 (a router has 2 to 9)"),
        (WormholeProfile { channels: 10, ..tight() }, "invalid number of virtual channels: 10 (a router has 2 to 9)"),
        (
            WormholeProfile { channel_flits: 124, ..tight() },
            "invalid router: a buffer holds fewer flits than the threshold of its credits",
        ),
        (
            WormholeProfile { credit_cycles: 20, ..tight() },
            "invalid router: the next credit flit is sent before the last one arrives",
        ),
    ] {
        assert_eq!(WormholeNetwork::new(profile, ring).unwrap_err().to_string(), text);
    }
    let message = |to, flits| Message { cycle: 0, from: 0, to, flits };
    assert_eq!(Trace::new(ring, [message(4, 1)]), Err(TraceError::Node { node: 4, last: 3 }));
    assert_eq!(Trace::new(ring, [message(0, 1)]), Err(TraceError::Itself { node: 0 }));
    assert_eq!(Trace::new(ring, [message(1, 0)]), Err(TraceError::Empty));
    let network = WormholeNetwork::new(tight(), ring).unwrap();
    let mut long = Trace::new(ring, [message(1, 100)]).unwrap();
    assert_eq!(network.run(DOR_FF, &mut long, LIMIT), Err(WormholeError::Long { flits: 100, most: 65 }));
    let romm = Configuration { routing: Routing::Romm, ..DOR_FF };
    let cube = torus([4, 4, 4]);
    let few = WormholeNetwork::new(tight(), cube).unwrap().run(romm, &mut Uniform::new(cube, 1, 1, 1.0, 1), LIMIT);
    assert_eq!(few, Err(WormholeError::Channels { channels: 2, least: 4 }));
    // The limit is a cycle, not a number of cycles: this packet begins late.
    let mut trace = Trace::new(ring, [Message { cycle: 1000, ..message(2, 60) }]).unwrap();
    let late = network.run(DOR_FF, &mut trace, 1010).unwrap_err();
    assert_eq!(late, WormholeError::Late { cycle: 1010, packets: 1 });
    assert_eq!(late.to_string(), "1 packets are still under way in cycle 1010");
}

#[test]
fn classes_are_those_of_the_rules() {
    let network = WormholeNetwork::new(WormholeProfile::published(), torus([4, 4, 1])).unwrap();
    assert_eq!(Routing::ALL.map(|routing| network.classes(routing)), [2, 3, 3, 2, 3]);
    let published = network.with_rules(Rules::published());
    assert_eq!(Routing::ALL.map(|routing| published.classes(routing)), [2; 5]);
}

#[test]
fn a_trace_knows_its_last_cycle() {
    let message = |cycle, from| Message { cycle, from, to: 2, flits: 1 };
    let trace = Trace::new(torus([4, 1, 1]), [message(9, 0), message(3, 1), message(4, 0)]).unwrap();
    assert_eq!(trace.last_cycle(), 9);
    assert_eq!(Trace::new(torus([4, 1, 1]), []).unwrap().last_cycle(), 0);
}

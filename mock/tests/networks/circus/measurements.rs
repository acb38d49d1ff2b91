//! What the network measures follows from its parts.

use fpga_mock::circus::{Channel, Design, Network, Overhead, Placement, Profile, Torus, link_gbps};

use super::{bytes, forward, network};

/// Picoseconds from the first word sent to the first one back, and from there to the last one back.
fn ping_pong(profile: &Profile, torus: Torus, other: u32, length: usize) -> (f64, f64) {
    let mut design = Design::new(torus);
    let there = design.channel(Channel::wide(0, other)).unwrap();
    let back = design.channel(Channel::wide(other, 0)).unwrap();
    let placement = Placement { node: other, reads: &[there], writes: &[back], latency_cycles: 1 };
    design.kernel(placement, forward).unwrap();
    let mut network = Network::new(profile, design).unwrap();
    let message = bytes(1, length);
    network.push(there, &message).unwrap();
    network.run().unwrap();
    assert!(network.take(back).unwrap() == message);
    let (sent, received) = (network.written(there), network.read(back));
    let (t0, t1, t2) = (sent.first_put.unwrap(), received.first_taken.unwrap(), received.last_taken.unwrap());
    ((t1 - t0) as f64, (t2 - t1) as f64)
}

#[test]
fn a_hop_takes_as_long_as_its_parts() {
    let profile = Profile::published();
    let torus = Torus::new(16, 1).unwrap();
    let latency = |hops| ping_pong(&profile, torus, hops, 64).0 / 2.0;
    // Router, link, and at most a row of the link's clock and a cycle of the router's.
    let router = (profile.lookup_cycles + profile.arbiter_cycles + profile.crossbar_cycles) as f64;
    let least = router * 1e12 / profile.router_hertz as f64 + profile.link_ps as f64;
    for hops in 1..7 {
        let hop = latency(hops + 1) - latency(hops);
        assert!((least..least + 10_000.0).contains(&hop), "hop {hops}: {hop} ps, parts {least} ps");
    }
}

#[test]
fn a_flit_takes_the_cycles_of_the_router() {
    let (mut network, channels) = network(&Profile::published(), Torus::new(3, 1).unwrap(), &[(0, 1)]);
    network.push(channels[0], &bytes(1, 1000)).unwrap();
    network.run().unwrap();
    let counters = network.router(1).unwrap();
    assert_eq!((counters.least_cycles, counters.least_crossbar_cycles), (9, 5));
    assert_eq!((counters.packets_in, counters.packets_out), (17, 17));
}

#[test]
fn a_long_message_goes_at_the_rate_of_the_link() {
    let profile = Profile::published();
    let payload = link_gbps(&profile, Overhead::Header);
    for hops in [1, 4] {
        let (_, stream) = ping_pong(&profile, Torus::new(8, 8).unwrap(), hops, 1 << 20);
        let gbps = (1 << 23) as f64 * 1e3 / stream;
        assert!((gbps / payload - 1.0).abs() < 2e-3, "{hops} hops: {gbps} Gb/s, link {payload} Gb/s");
    }
}

#[test]
fn senders_share_a_link_in_equal_parts() {
    let profile = Profile { has_credits: true, ..Profile::published() };
    let pairs = [(0, 3), (1, 3), (2, 3)];
    let (mut network, channels) = network(&profile, Torus::new(8, 1).unwrap(), &pairs);
    channels.iter().for_each(|channel| network.push(*channel, &bytes(1, 1 << 20)).unwrap());
    let mut arrived = |until| {
        network.run_until(until);
        [0, 1, 2].map(|place| network.read(channels[place]).bytes as f64)
    };
    let (begin, end) = (arrived(20_000_000), arrived(60_000_000));
    let rates = [0, 1, 2].map(|place| (end[place] - begin[place]) * 8e3 / 40e6);
    let all: f64 = rates.iter().sum();
    assert!((all / link_gbps(&profile, Overhead::Header) - 1.0).abs() < 0.01, "{rates:?}");
    // The last router has two inputs for one output: the nearest sender has one of them to itself.
    for (rate, share) in rates.iter().zip([0.25, 0.25, 0.5]) {
        assert!((rate / all / share - 1.0).abs() < 0.02, "{rates:?}");
    }
}

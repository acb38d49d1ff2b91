//! The gaps that section 4.5 of the paper states: seen and reported, and closed by options.

use fpga_mock::circus::{
    Channel, ChannelId, Channels, Design, Loss, LossPlace, Network, Place, Placement, Profile, Stall, Torus,
};

use super::{bytes, forward, network};

/// Two cards send to one, each as fast as its link.
fn overrun(profile: &Profile) -> (Network, Vec<ChannelId>) {
    let (mut network, channels) = network(profile, Torus::new(8, 1).unwrap(), &[(0, 2), (1, 2)]);
    for (channel, seed) in channels.iter().zip(1..) {
        network.push(*channel, &bytes(seed, 200_000)).unwrap();
    }
    network.run().unwrap();
    (network, channels)
}

#[test]
fn an_overrun_loses_packets_and_says_how_many_and_where() {
    let (mut network, channels) = overrun(&Profile::published());
    let losses = network.losses();
    let [
        Loss { node: 1, place: LossPlace::FullBuffer { port: "west" }, packets },
        Loss { node: 2, place: LossPlace::CutMessage, packets: behind },
    ] = losses[..]
    else {
        panic!("{losses:?}");
    };
    assert!(packets > 100);
    assert!(losses[0].to_string().starts_with("card 1 lost "), "{}", losses[0]);
    // What card 1 sends itself enters the router only if there is room.
    assert!(network.take(channels[1]).unwrap() == bytes(2, 200_000));
    // Of the other message, the whole words before the first packet that was lost.
    let taken = 200_000_usize.div_ceil(60) - (packets + behind) as usize;
    assert!(taken > 0 && behind > 0, "{losses:?}");
    assert!(network.take(channels[0]).unwrap() == bytes(1, 200_000)[..taken * 60 / 64 * 64], "{losses:?}");
}

#[test]
fn credits_lose_nothing() {
    let (mut network, channels) = overrun(&Profile { has_credits: true, ..Profile::published() });
    assert!(network.losses().is_empty());
    for (channel, seed) in channels.iter().zip(1..) {
        assert!(network.take(*channel).unwrap() == bytes(seed, 200_000));
    }
}

/// A ring of six cards, each of which sends to the one so many further, all the same way round.
#[derive(Debug, Clone, Copy)]
struct Ring {
    width: u32,
    height: u32,
    further: u32,
    /// Input of each card that the ring comes in by.
    input: &'static str,
}

/// One ring in each direction of a torus.
const RINGS: [Ring; 4] = [
    Ring { width: 6, height: 1, further: 3, input: "west" },
    Ring { width: 6, height: 1, further: 4, input: "east" },
    Ring { width: 1, height: 6, further: 3, input: "south" },
    Ring { width: 1, height: 6, further: 4, input: "north" },
];

fn cyclic(profile: &Profile, ring: Ring) -> (Network, Vec<ChannelId>) {
    let torus = Torus::new(ring.width, ring.height).unwrap();
    let pairs: Vec<(u32, u32)> = (0..6).map(|node| (node, (node + ring.further) % 6)).collect();
    let (mut network, channels) = network(profile, torus, &pairs);
    for (channel, seed) in channels.iter().zip(1..) {
        network.push(*channel, &bytes(seed, 100_000)).unwrap();
    }
    (network, channels)
}

/// With small buffers, so that the circle closes soon.
const TIGHT: Profile = Profile { input_flits: 16, ..Profile::published() };

#[test]
fn a_cyclic_route_without_virtual_channels_deadlocks_and_says_who_waits() {
    for ring in RINGS {
        let (mut network, _) = cyclic(&Profile { has_credits: true, ..TIGHT }, ring);
        let stall = network.run().unwrap_err();
        let node = |place: &Place| match place {
            Place::Input { node, port, virtual_channel: 0 } if *port == ring.input => *node,
            _ => panic!("{ring:?}: {place}"),
        };
        let inputs: Vec<u32> = stall.circle.iter().map(node).collect();
        // Each card waits for the next one, all round the ring.
        let step = if ring.further == 3 { 1 } else { 5 };
        let next = inputs.iter().cycle().skip(1);
        assert!(inputs.iter().zip(next).all(|(one, next)| *next == (*one + step) % 6), "{ring:?}: {inputs:?}");
        assert_eq!(inputs.len(), 6);
        let begin = format!("deadlock: input {} of card {} (virtual channel 0) waits for ", ring.input, inputs[0]);
        assert!(stall.to_string().starts_with(&begin), "{stall}");
    }
}

#[test]
fn the_published_network_loses_what_would_deadlock() {
    for ring in RINGS {
        let (mut network, _) = cyclic(&TIGHT, ring);
        network.run().unwrap();
        let mut losses = network.losses();
        losses.retain(|loss| loss.place != LossPlace::CutMessage);
        assert!(losses.iter().all(|loss| loss.place == LossPlace::FullBuffer { port: ring.input }), "{losses:?}");
        assert_eq!(losses.len(), 6, "{losses:?}");
    }
}

#[test]
fn datelines_undo_the_circle() {
    for ring in RINGS {
        let (mut network, channels) = cyclic(&Profile { has_credits: true, virtual_channels: 2, ..TIGHT }, ring);
        network.run().unwrap();
        assert!(network.losses().is_empty());
        for (channel, seed) in channels.iter().zip(1..) {
            assert!(network.take(*channel).unwrap() == bytes(seed, 100_000), "{ring:?}");
        }
    }
}

/// A kernel on card 1 wants all of one channel before it takes from another one, which comes first.
fn head_of_line(profile: &Profile) -> (Network, ChannelId) {
    let mut design = Design::new(Torus::new(4, 1).unwrap());
    let wanted = design.channel(Channel::wide(0, 1)).unwrap();
    let other = design.channel(Channel::wide(0, 1)).unwrap();
    let out = design.channel(Channel::wide(1, 0)).unwrap();
    let mut is_open = false;
    let placement = Placement { node: 1, reads: &[wanted, other], writes: &[out], latency_cycles: 1 };
    let kernel = move |channels: &mut Channels<'_>| {
        if channels.can_put(0)
            && let Some(word) = channels.take(usize::from(is_open))
        {
            is_open |= word.is_last();
            channels.put(0, word);
        }
    };
    design.kernel(placement, kernel).unwrap();
    let mut network = Network::new(profile, design).unwrap();
    network.push(other, &bytes(1, 100_000)).unwrap();
    network.run_until(3_000_000);
    network.push(wanted, &bytes(2, 1_000)).unwrap();
    (network, other)
}

#[test]
fn a_channel_that_nobody_reads_blocks_and_is_named() {
    let (mut network, other) = head_of_line(&Profile { has_credits: true, ..Profile::published() });
    let stall: Stall = network.run().unwrap_err();
    assert!(stall.circle.is_empty());
    let last = stall.waits.iter().map(|(_, to)| *to).find(|to| matches!(to, Place::Reader { .. })).unwrap();
    assert_eq!(last, Place::Reader { node: 1, channel: Some(other) });
    assert!(stall.to_string().contains("waits for the reader of channel 1 on card 1, which takes nothing"), "{stall}");
}

#[test]
fn without_credits_a_reader_that_takes_nothing_costs_packets() {
    let (mut network, other) = head_of_line(&TIGHT);
    let stall = network.run().unwrap_err();
    assert!(stall.waits.iter().any(|(_, to)| *to == Place::Reader { node: 1, channel: Some(other) }), "{stall}");
    let [Loss { node: 1, place: LossPlace::FullBuffer { port: "west" }, packets }] = network.losses()[..] else {
        panic!("{:?}", network.losses());
    };
    // All but those in the buffers of card 1, and all of the channel that its kernel wants.
    assert!((1_500..1_684).contains(&packets), "{packets}");
}

#[test]
fn a_host_that_takes_nothing_holds_its_sender() {
    let (mut network, channels) =
        network(&Profile { has_credits: true, ..Profile::published() }, Torus::new(2, 1).unwrap(), &[(0, 1)]);
    network.limit(channels[0], 1_000).unwrap();
    network.push(channels[0], &bytes(5, 100_000)).unwrap();
    let mut taken = Vec::new();
    let mut stalls = 0;
    while network.run().is_err() {
        let part = network.take(channels[0]).unwrap();
        assert!((1_000..1_064).contains(&part.len()));
        taken.extend(part);
        stalls += 1;
    }
    taken.extend(network.take(channels[0]).unwrap());
    assert!(taken == bytes(5, 100_000));
    assert!(stalls > 10, "{stalls}");
}

#[test]
fn bit_errors_do_harm_and_retransmission_undoes_it() {
    let run = |profile: &Profile| {
        let mut design = Design::new(Torus::new(4, 4).unwrap());
        let there = design.channel(Channel::wide(0, 10)).unwrap();
        let back = design.channel(Channel::wide(10, 0)).unwrap();
        let placement = Placement { node: 10, reads: &[there], writes: &[back], latency_cycles: 3 };
        design.kernel(placement, forward).unwrap();
        let mut network = Network::new(profile, design).unwrap();
        network.push(there, &bytes(1, 200_000)).unwrap();
        network.run().unwrap();
        (network.take(back).unwrap(), network.links(), network.losses())
    };
    let noisy = Profile { bit_error_rate: 1e-5, ..Profile::published() };
    let (arrived, links, _) = run(&noisy);
    assert!(arrived != bytes(1, 200_000));
    // Where a header is wrong, the message ends: the way back carries less.
    assert!(links.bad_flits > 30 && links.sent_again == 0, "{links:?}");
    let (_, _, losses) = run(&Profile { bit_error_rate: 1e-3, ..Profile::published() });
    let lost = |place| losses.iter().filter(|loss| loss.place == place).map(|loss| loss.packets).sum::<u64>();
    assert!(lost(LossPlace::NoRoute) > 10 && lost(LossPlace::NoChannel) > 10, "{losses:?}");
    for rate in [1e-5, 1e-3] {
        let (arrived, links, losses) = run(&Profile { bit_error_rate: rate, ..Profile::complete() });
        assert!(arrived == bytes(1, 200_000), "at a rate of {rate}: {links:?}");
        assert!(links.sent_again > links.bad_flits && losses.is_empty(), "{links:?} {losses:?}");
    }
}

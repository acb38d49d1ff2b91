//! Kernels of several cards form one pipeline: communication and computation overlap.

use fpga_mock::circus::{
    Channel, ChannelId, Channels, Design, DesignError, HostError, Network, Placement, PortTables, Profile, Torus,
};

use super::forward;

/// Numbers of 32 bits.
fn numbers(seed: u32, count: u32) -> Vec<u32> {
    (0..count).map(|index| (index + seed).wrapping_mul(0x9e37_79b1) ^ seed << 7).collect()
}

fn to_bytes(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// A pipeline over `cards` cards of a torus, each of which adds numbers of its own; returns the sums and the time of all.
fn chain(profile: &Profile, cards: u32, word_bytes: usize, count: u32) -> (Vec<u8>, u128) {
    let mut design = Design::new(Torus::new(4, 4).unwrap());
    let channel = |from, to| Channel { word_bytes, ..Channel::wide(from, to) };
    let links: Vec<ChannelId> =
        (0..cards).map(|card| design.channel(channel(card, (card + 1) % cards)).unwrap()).collect();
    for card in 1..cards {
        let own = numbers(card, count);
        let mut own = own.into_iter();
        let kernel = move |channels: &mut Channels<'_>| {
            if channels.can_put(0)
                && let Some(word) = channels.take(0)
            {
                channels.put(0, word.map_u32(|number| number.wrapping_add(own.next().unwrap())));
            }
        };
        let (reads, writes) = ([links[card as usize - 1]], [links[card as usize]]);
        let placement = Placement { node: card, reads: &reads, writes: &writes, latency_cycles: 5 };
        design.kernel(placement, kernel).unwrap();
    }
    let mut network = Network::new(profile, design).unwrap();
    network.push(links[0], &to_bytes(&numbers(0, count))).unwrap();
    network.run().unwrap();
    (network.take(links[cards as usize - 1]).unwrap(), network.now())
}

#[test]
fn sums_of_many_cards_are_right_and_take_hardly_longer_than_one() {
    let count = 50_000;
    for profile in [Profile::pipeline(), Profile::complete()] {
        let (_, of_two) = chain(&profile, 2, 64, count);
        for cards in [3, 8] {
            let sum = |index: u32| {
                (0..cards)
                    .fold(0_u32, |sum, card| sum.wrapping_add((index + card).wrapping_mul(0x9e37_79b1) ^ card << 7))
            };
            let expected: Vec<u32> = (0..count).map(sum).collect();
            let (sums, time) = chain(&profile, cards, 64, count);
            assert!(sums == to_bytes(&expected), "{cards} cards");
            // Every further card adds a latency, not the time of a stream, which is 17 us.
            let latencies = u128::from(cards - 2) * 1_000_000;
            assert!((of_two..of_two + latencies).contains(&time), "{cards} cards: {time} ps, two: {of_two} ps");
        }
    }
}

#[test]
fn a_narrow_channel_gives_a_word_a_cycle() {
    let (profile, count) = (Profile::published(), 3_000);
    let (sums, time) = chain(&profile, 2, 4, count);
    assert_eq!(sums.len(), 4 * count as usize);
    let cycle = 1e12 / profile.kernel_hertz as f64;
    let words = time as f64 / cycle;
    // A word a cycle, and some microseconds of latency.
    assert!((f64::from(count)..f64::from(count) + 1_000.0).contains(&words), "{words} cycles for {count} words");
}

#[test]
fn what_does_not_fit_is_refused() {
    let torus = Torus::new(3, 1).unwrap();
    let mut design = Design::new(torus);
    assert_eq!(design.channel(Channel::wide(0, 3)), Err(DesignError::Node { node: 3, nodes: 3 }));
    assert_eq!(design.channel(Channel { word_bytes: 65, ..Channel::wide(0, 1) }), Err(DesignError::Width(65)));
    assert_eq!(design.channel(Channel { depth: 0, ..Channel::wide(0, 1) }), Err(DesignError::Depth));
    let (in_, out) = (design.channel(Channel::wide(0, 1)).unwrap(), design.channel(Channel::wide(1, 2)).unwrap());
    let (reads, writes) = ([in_], [out]);
    let place = |node| Placement { node, reads: &reads, writes: &writes, latency_cycles: 1 };
    assert_eq!(design.kernel(place(2), forward), Err(DesignError::Elsewhere { node: 2, channel: 0, other: 1 }));
    assert_eq!(design.kernel(place(1), forward), Ok(()));
    assert_eq!(design.kernel(place(1), forward), Err(DesignError::Shared(0)));
    let error = design.kernel(Placement { reads: &[], ..place(1) }, forward);
    assert_eq!(error, Err(DesignError::Shared(1)));
    for _ in 0..255 {
        design.channel(Channel::wide(2, 1)).unwrap();
    }
    assert_eq!(design.channel(Channel::wide(0, 1)), Err(DesignError::Channels(1)));
    let mut network = Network::new(&Profile::published(), design).unwrap();
    assert_eq!(network.push(out, &[1]), Err(HostError::Kernel { channel: 1, access: "write" }));
    assert_eq!(network.take(in_), Err(HostError::Kernel { channel: 0, access: "read" }));
}

#[test]
fn tables_and_values_that_cannot_work_are_refused_before_they_are_loaded() {
    let torus = Torus::new(4, 4).unwrap();
    let complete = torus.dimension_order();
    let mut tables = complete.clone();
    tables.set(1, 2, None);
    let refusal = |profile: &Profile, tables: &PortTables| {
        Network::with_tables(profile, Design::new(torus), tables).err().unwrap()
    };
    let text = refusal(&Profile::published(), &tables).to_string();
    assert_eq!(text, "no route from node 0 to node 2: the table of node 1 has no entry for node 2");
    let narrow = Profile { destination_bits: 3, ..Profile::published() };
    let text = refusal(&narrow, &complete).to_string();
    assert_eq!(text, "too many cards: 16 (a destination of 3 bits names 8)");
    let text = refusal(&Profile { virtual_channels: 3, ..narrow }, &complete).to_string();
    assert_eq!(text, "invalid number of virtual channels in the profile");
    let large = Torus::new(16, 16).unwrap();
    assert!(Network::new(&Profile::published(), Design::new(large)).is_err());
    assert!(Network::new(&Profile::complete(), Design::new(large)).is_ok());
}

//! With the options on, every byte of every channel arrives, in order, once.

use fpga_mock::circus::{Channel, ChannelId, Design, Network, Profile, Torus};
use proptest::prelude::*;

use super::bytes;

/// A channel, and the messages on it.
#[derive(Debug, Clone)]
struct Flow {
    from: u32,
    to: u32,
    word_bytes: usize,
    depth: usize,
    messages: Vec<usize>,
}

#[derive(Debug, Clone)]
struct Case {
    torus: (u32, u32),
    flows: Vec<Flow>,
    profile: Profile,
}

fn case() -> impl Strategy<Value = Case> {
    let torus = (1..=16_u32, 1..=16_u32).prop_filter("a torus has two nodes", |(x, y)| x * y > 1);
    (torus, 2..64_usize, 1..=600_usize, prop_oneof![Just(0.0), Just(1e-4), Just(1e-3)], any::<u64>()).prop_flat_map(
        |(torus, input_flits, replay, bit_error_rate, seed)| {
            let nodes = torus.0 * torus.1;
            let word = prop_oneof![Just(64_usize), Just(4), 1..=64_usize];
            let messages = prop::collection::vec(prop_oneof![0..200_usize, 0..5_000_usize], 1..4);
            let flow = (0..nodes, 0..nodes, word, 1..20_usize, messages)
                .prop_map(|(from, to, word_bytes, depth, messages)| Flow { from, to, word_bytes, depth, messages });
            let profile = Profile {
                input_flits,
                replay_flits: Some(replay),
                bit_error_rate,
                seed,
                io_channel_packets: 1 + input_flits / 8,
                ..Profile::complete()
            };
            prop::collection::vec(flow, 1..30).prop_map(move |flows| Case { torus, flows, profile })
        },
    )
}

fn build(case: &Case) -> (Network, Vec<ChannelId>) {
    let mut design = Design::new(Torus::new(case.torus.0, case.torus.1).unwrap());
    let channel =
        |flow: &Flow| Channel { from: flow.from, to: flow.to, word_bytes: flow.word_bytes, depth: flow.depth };
    let channels = case.flows.iter().map(|flow| design.channel(channel(flow)).unwrap()).collect();
    (Network::new(&case.profile, design).unwrap(), channels)
}

/// Runs a case, and returns what came out of each channel, and when all was done.
fn run(case: &Case) -> Result<(Vec<Vec<u8>>, u128), TestCaseError> {
    let (mut network, channels) = build(case);
    for (flow, (channel, number)) in case.flows.iter().zip(channels.iter().zip(0_u64..)) {
        for (length, message) in flow.messages.iter().zip(0..) {
            network.push(*channel, &bytes(number << 8 | message, *length)).unwrap();
        }
    }
    let result = network.run();
    prop_assert!(result.is_ok(), "{}", result.unwrap_err());
    prop_assert_eq!(network.losses(), vec![]);
    let arrived = channels.iter().map(|channel| network.take(*channel).unwrap()).collect();
    Ok((arrived, network.now()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn every_byte_arrives_in_order_and_once(case in case()) {
        let (arrived, _) = run(&case)?;
        // The model of a channel is a queue of bytes.
        for (flow, (arrived, number)) in case.flows.iter().zip(arrived.iter().zip(0_u64..)) {
            let sent: Vec<u8> = flow.messages.iter().zip(0..).flat_map(|(length, one)| bytes(number << 8 | one, *length)).collect();
            prop_assert!(*arrived == sent, "{} of {} bytes of {:?}", arrived.len(), sent.len(), flow);
        }
    }

    #[test]
    fn the_same_case_gives_the_same_bytes_at_the_same_time(mut case in case(), is_published: bool) {
        if is_published && case.torus.0 * case.torus.1 <= 64 {
            // Losses and bit errors included.
            let Profile { input_flits, bit_error_rate, seed, .. } = case.profile;
            case.profile = Profile { input_flits, bit_error_rate, seed, ..Profile::published() };
            let run = || {
                let (mut network, channels) = build(&case);
                channels.iter().zip(1..).for_each(|(channel, seed)| network.push(*channel, &bytes(seed, 3_000)).unwrap());
                let result = network.run();
                let arrived: Vec<Vec<u8>> = channels.iter().map(|channel| network.take(*channel).unwrap()).collect();
                (result, arrived, network.losses(), network.links(), network.now())
            };
            prop_assert!(run() == run());
        } else {
            prop_assert!(run(&case)? == run(&case)?);
        }
    }
}

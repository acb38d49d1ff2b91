//! Predictions of the LogGP model beside the simulation.

use cmdseq::reduction::{Combine, Element, Reduction};
use cmdseq::switch::{BLOCK_BYTES_MAX, Shape, times};
use fpga_mock::mpi_fpga::{Call, Collective, Form, Network, Profile, predicted_ps};
use proptest::prelude::*;

use super::oracle::{case, leaves};

const SHAPES: [&str; 16] = [
    "2x1x1",
    "3x1x1",
    "2x2x2",
    "3x2x1",
    "3x3x1",
    "4x2x2",
    "5x1x1",
    "5x3x1",
    "5x3x2",
    "6x2x1",
    "7x2x1",
    "fat:2",
    "fat:5",
    "fat:8",
    "fat:13",
    "fat:30:28",
];

/// A shape, a call on all of its nodes, and the seed of its data. Most blocks are short; a few are of up to 64 KiB in all.
/// A reduce_scatter by the tree on 5x3x1 is not among them: see docs/mpi-fpga.md.
fn calls() -> impl Strategy<Value = (&'static str, Collective, Form, u32, u32, u64)> {
    let collective = prop::sample::select(Collective::ALL);
    let one = (prop::sample::select(SHAPES.to_vec()), collective, any::<prop::sample::Index>(), 0..=13_u32);
    let calls = one.prop_flat_map(|(shape, collective, form, doubled)| {
        let parsed: Shape = shape.parse().unwrap();
        let nodes = parsed.processors();
        let forms: Vec<Form> = match parsed.is_direct() {
            true => {
                collective.forms().iter().copied().filter(|one| *one != Form::Ring || nodes.is_power_of_two()).collect()
            }
            false => vec![Form::Tree],
        };
        let blocks = match collective {
            Collective::Reduce | Collective::Allreduce | Collective::Broadcast => 1,
            _ => nodes,
        };
        let most = (8_u32 << doubled).min((64 << 10) / blocks);
        (Just(shape), Just(collective), Just(*form.get(&forms)), 0..nodes, (most / 16).max(1)..=most / 8, 0..u64::MAX)
    });
    calls.prop_filter("is not held to 5 %", |call| {
        (call.0, call.1, call.2) != ("5x3x1", Collective::ReduceScatter, Form::Tree)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn loggp_predicts_all_collectives_within_five_percent(
        (shape, collective, form, root, elements, seed) in calls(),
    ) {
        compare(shape, (collective, form, root), 8 * elements, seed);
    }
}

/// Runs a call on all nodes, and holds its predicted time to the simulated one.
fn compare(shape: &str, (collective, form, root): (Collective, Form, u32), bytes: u32, seed: u64) {
    let (profile, parsed): (_, Shape) = (Profile::published(), shape.parse().unwrap());
    let mut network = Network::new(&profile, parsed).unwrap();
    let members: Vec<u32> = (0..parsed.processors()).collect();
    let context = network.create(&members).unwrap();
    let combine = collective.combines().then_some(Combine::new(Reduction::Sum, Element::F64));
    let call = Call { context, collective, form, combine, root: root as u16, bytes };
    let (inputs, outputs) = case(&call, members.len(), seed, leaves(shape, &members).as_deref());
    let outcome = network.run(&call, &inputs).unwrap();
    assert!(outcome.outputs == outputs, "{shape} {call:?}");
    let (predicted, simulated) = (predicted_ps(&profile, parsed, &call).unwrap(), outcome.last_ps());
    let percent = 100.0 * (predicted as f64 / simulated as f64 - 1.0);
    assert!(percent.abs() <= 5.0, "{shape} {call:?}: {predicted} ps, simulated {simulated}, {percent:+.1} %");
}

/// Long blocks, for which packets of both virtual channels of a ring pass one output, or of which only the first pieces are followed.
#[test]
fn loggp_predicts_long_blocks_within_five_percent() {
    let of = |shape, collective, form, kib: u32| compare(shape, (collective, form, 0), kib << 10, 14);
    of("5x3x1", Collective::Reduce, Form::Tree, 64);
    of("5x3x1", Collective::Reduce, Form::Halving, 64);
    of("6x2x1", Collective::Allreduce, Form::Halving, 64);
    of("3x2x1", Collective::Allreduce, Form::Doubling, 256);
    of("4x2x2", Collective::Allreduce, Form::Doubling, 256);
    of("5x3x2", Collective::Allgather, Form::Doubling, 16);
    of("3x3x1", Collective::ReduceScatter, Form::Halving, 64);
    of("4x2x2", Collective::ReduceScatter, Form::Halving, 16);
    of("5x3x1", Collective::ReduceScatter, Form::Tree, 64);
    of("5x3x2", Collective::ReduceScatter, Form::Halving, 16);
}

/// As many pieces as a block can have, all of which are followed for one rank.
#[test]
fn the_longest_block_of_one_rank_takes_as_long_as_its_phits() {
    let (profile, shape): (_, Shape) = (Profile::published(), "2x1x1".parse().unwrap());
    let mut network = Network::new(&profile, shape).unwrap();
    let context = network.create(&[0]).unwrap();
    let predicted = |bytes: u32| {
        let (collective, form, combine) = (Collective::Broadcast, Form::Tree, None);
        let call = Call { context, collective, form, combine, root: 0, bytes };
        times((shape, profile.parameters(shape)), &call, &[0], &[]).got_ps[0]
    };
    let (half, whole) = (predicted(BLOCK_BYTES_MAX / 2), predicted(BLOCK_BYTES_MAX));
    assert!(half.abs_diff(whole / 2) < half / 100, "{half} ps for half of {whole}");
}

//! MPI-FPGA: every collective against an oracle with arithmetic and an order of combination of its own, any communicators.

use cmdseq::reduction::{Combine, Element, Reduction};
use fpga_mock::mpi_fpga::{COMMUNICATORS, Call, Collective, Form, Network, NetworkError, Profile};
use proptest::prelude::*;

mod oracle;
mod predictions;

use oracle::{case, leaves};

fn network(shape: &str) -> Network {
    Network::new(&Profile::published(), shape.parse().unwrap()).unwrap()
}

fn check(network: &mut Network, shape: &str, members: &[u32], call: &Call, seed: u64) {
    let leaves = leaves(shape, members);
    let (inputs, outputs) = case(call, members.len(), seed, leaves.as_deref());
    let outcome = network.run(call, &inputs).unwrap_or_else(|error| panic!("{shape} {members:?} {call:?}: {error}"));
    assert!(outcome.outputs == outputs, "{shape} {members:?} {call:?} seed {seed}");
}

fn operations() -> Vec<Combine> {
    use Reduction::{And, Max, Min, Or, Sum, Xor};
    let is_narrow = |one: &Combine| matches!(one.element, Element::F16 | Element::Bf16);
    Combine::all().filter(|one| matches!(one.reduction, Sum | Min | Max | Xor | And | Or) && !is_narrow(one)).collect()
}

const SHAPES: [&str; 8] = ["2x1x1", "3x1x1", "2x2x2", "3x2x1", "5x3x2", "fat:2", "fat:13", "fat:40:16"];

#[test]
fn every_collective_form_type_and_operation_gives_the_oracles_bits() {
    assert_eq!(operations().len(), 8 * 6 + 2 * 3);
    for shape in SHAPES {
        let mut network = network(shape);
        let members: Vec<u32> = (0..network.shape().processors()).collect();
        let context = network.create(&members).unwrap();
        for collective in Collective::ALL.iter().copied() {
            for form in collective.forms() {
                if *form == Form::Ring && !members.len().is_power_of_two() {
                    continue;
                }
                let operations =
                    if collective.combines() { operations().into_iter().map(Some).collect() } else { vec![None] };
                for (number, combine) in (0..).zip(operations) {
                    let bytes = [8, 24, 264][number as usize % 3];
                    let root = (number * 5 % members.len() as u64) as u16;
                    let call = Call { context, collective, form: *form, combine, root, bytes };
                    check(&mut network, shape, &members, &call, number + 7);
                }
            }
        }
    }
}

/// Nodes in any order.
fn members(nodes: u32) -> impl Strategy<Value = Vec<u32>> {
    (Just((0..nodes).collect::<Vec<u32>>()).prop_shuffle(), 1..=nodes).prop_map(|(mut all, size)| {
        all.truncate(size as usize);
        all
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn any_members_roots_and_sizes(
        shape in prop::sample::select(vec!["4x2x2", "3x3x3", "fat:27", "fat:30:28"]),
        all in members(16), collective in prop::sample::select(Collective::ALL),
        form in 0_usize..3, root in any::<u16>(), bytes in prop_oneof![1_u32..200, 1_u32..3000], seed in any::<u64>(),
        combine in prop::sample::select(operations()),
    ) {
        let mut network = network(shape);
        let context = network.create(&all).unwrap();
        let form = collective.forms()[form % collective.forms().len()];
        prop_assume!(form != Form::Ring || all.len().is_power_of_two());
        let combine = collective.combines().then_some(combine);
        let bytes = bytes * combine.map_or(1, |one| one.element.bytes() as u32);
        let call = Call { context, collective, form, combine, root: root % all.len() as u16, bytes };
        check(&mut network, shape, &all, &call, seed);
    }
}

/// A thousand communicators through 32 entries: filled, used, freed in any order; each run uses one of those that stand.
#[test]
fn a_thousand_random_communicators_share_32_entries() {
    for shape in ["4x4x2", "fat:32"] {
        let mut network = network(shape);
        let empty = network.table_bytes(5).map(<[u8]>::to_vec);
        let (mut alive, mut state, mut made, mut refused) = (Vec::new(), 99_u64, 0, 0);
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        while made < 1000 {
            let mut nodes: Vec<u32> = (0..32).collect();
            (1..32).rev().for_each(|place| nodes.swap(place, next(place as u64 + 1) as usize));
            nodes.truncate(1 + next(32) as usize);
            match network.create(&nodes) {
                Ok(context) => {
                    made += 1;
                    alive.push((context, nodes));
                }
                Err(error) => {
                    assert!(matches!(error, NetworkError::Full { node } if node < 32), "{error}");
                    assert!(error.to_string().contains("is full: 32 communicators"), "{error}");
                    refused += 1;
                    for _ in 0..1 + next(8) {
                        let place = next(alive.len() as u64) as usize;
                        let (context, _) = alive.swap_remove(place);
                        network.free(context).unwrap();
                        assert_eq!(network.free(context), Err(NetworkError::Unknown(context)));
                    }
                    continue;
                }
            }
            let (context, nodes) = alive[next(alive.len() as u64) as usize].clone();
            let combine = Some(Combine::new(Reduction::Sum, Element::F32));
            let root = next(nodes.len() as u64) as u16;
            let collective = [Collective::Allreduce, Collective::Reduce][made % 2];
            let call = Call { context, collective, form: collective.forms()[0], combine, root, bytes: 64 };
            check(&mut network, shape, &nodes, &call, made as u64);
        }
        assert!(refused > 0 && alive.len() <= COMMUNICATORS as usize * 32);
        for (context, _) in alive {
            network.free(context).unwrap();
        }
        assert_eq!(network.table_bytes(5).map(occupied), empty.as_deref().map(occupied));
    }
}

/// Own rank and size of each entry: a free one has own rank 1 of 1.
fn occupied(table: &[u8]) -> Vec<Vec<u8>> {
    table.chunks(37).map(|entry| entry[1..5].to_vec()).collect()
}

#[test]
fn a_full_table_is_refused_and_names_the_node() {
    let mut network = network("2x2x1");
    let first = network.create(&[0, 1]).unwrap();
    (1..COMMUNICATORS).for_each(|_| assert!(network.create(&[1, 2]).is_ok()));
    assert_eq!(network.create(&[1, 3]), Err(NetworkError::Full { node: 1 }));
    network.create(&[0, 3]).unwrap();
    network.free(first).unwrap();
    network.create(&[3, 1]).unwrap();
    assert_eq!(network.create(&[4]), Err(NetworkError::Member { node: 4, nodes: 4 }));
    assert_eq!(network.create(&[2, 2]), Err(NetworkError::Member { node: 2, nodes: 4 }));
}

#[test]
fn what_the_units_lack_is_refused_before_anything_is_sent() {
    let mut network = network("3x1x1");
    let context = network.create(&[0, 1, 2]).unwrap();
    let sum = Combine::new(Reduction::Sum, Element::F64);
    let call = Call {
        context,
        collective: Collective::Allreduce,
        form: Form::Doubling,
        combine: Some(sum),
        root: 0,
        bytes: 8,
    };
    let data = vec![vec![0; 8]; 3];
    let mut refused = |call: Call, data: &[Vec<u8>]| match network.run(&call, data) {
        Err(NetworkError::Call(error)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let prod = Combine::new(Reduction::Prod, Element::F64);
    assert_eq!(
        refused(Call { combine: Some(prod), ..call }, &data),
        "no prod of f64 in the units (operations: sum, min, max, xor, and, or; of integers, f32 and f64)"
    );
    assert_eq!(refused(Call { combine: None, ..call }, &data), "allreduce needs an operation and an element type");
    assert_eq!(
        refused(Call { form: Form::Ring, ..call }, &data),
        "no Ring form of allreduce (available: [Doubling, Halving, Tree])"
    );
    let ring = Call { collective: Collective::Allgather, form: Form::Ring, combine: None, ..call };
    assert!(
        refused(ring, &data).starts_with("no ring of 3 ranks: an entry of the table holds the neighbours only if ")
    );
    assert_eq!(
        refused(Call { bytes: 12, ..call }, &data),
        "invalid block of 12 bytes (expected 1 to 15728640 bytes, in whole elements of 8)"
    );
    assert_eq!(refused(Call { root: 3, ..call }, &data), "no root 3 in a communicator of 3 ranks");
    assert_eq!(refused(call, &data[..2]), "rank 2 gives 0 bytes, expected 8");
}

/// The model of section 5 against the simulation: short messages, all collectives and forms.
#[test]
fn loggp_predicts_short_messages_within_five_percent() {
    for shape in ["4x4x2", "4x4x4", "fat:32", "fat:64:16"] {
        let mut network = network(shape);
        let members: Vec<u32> = (0..network.shape().processors()).collect();
        let context = network.create(&members).unwrap();
        for collective in Collective::ALL.iter().copied() {
            let combine = collective.combines().then_some(Combine::new(Reduction::Sum, Element::F64));
            for bytes in [8, 64, 240] {
                let call = Call { context, collective, form: collective.forms()[0], combine, root: 0, bytes };
                let (inputs, _) = case(&call, members.len(), 3, leaves(shape, &members).as_deref());
                let simulated = network.run(&call, &inputs).unwrap().last_ps() as f64;
                let predicted =
                    fpga_mock::mpi_fpga::predicted_ps(network.profile(), network.shape(), &call).unwrap() as f64;
                let off = predicted / simulated - 1.0;
                assert!(
                    off.abs() <= 0.05,
                    "{shape} {} {bytes} B: {predicted} ps, simulated {simulated}",
                    collective.name()
                );
            }
        }
    }
}

/// Table 3 and section 3.1 of the paper.
#[test]
fn units_and_table_have_the_published_sizes() {
    let designs = [(6, 6, 144), (8, 8, 256), (16, 8, 512), (28, 4, 448)];
    for (radix, units, published) in designs {
        assert_eq!(fpga_mock::mpi_fpga::logic_units(radix, units), published);
    }
    assert_eq!(network("4x4x2").table_bytes(31).map(<[u8]>::len), Some(1184));
    assert_eq!(network("fat:32").table_bytes(0), None);
}

/// A FIFO that is too small holds the processor back, and nothing is lost.
#[test]
fn a_small_input_fifo_holds_processors_back() {
    let members: Vec<u32> = (0..8).collect();
    let held_back = |input_phits| {
        let profile = Profile { input_phits, ..Profile::published() };
        let mut network = Network::new(&profile, "2x2x2".parse().unwrap()).unwrap();
        let context = network.create(&members).unwrap();
        let combine = Some(Combine::new(Reduction::Sum, Element::F64));
        let call = Call { context, collective: Collective::Reduce, form: Form::Tree, combine, root: 0, bytes: 24_000 };
        let (inputs, outputs) = case(&call, 8, 11, None);
        let outcome = network.run(&call, &inputs).unwrap();
        assert!(outcome.outputs == outputs, "{input_phits} phits");
        outcome.waits.held_back
    };
    assert_eq!(held_back(Profile::published().input_phits), 0);
    assert!(held_back(64) > 0 && held_back(9) > 0);
}

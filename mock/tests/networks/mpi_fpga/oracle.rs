//! Results of collectives of MPI-FPGA, with arithmetic and orders of combination of their own.

use cmdseq::reduction::{Combine, Element, Reduction};
use fpga_mock::mpi_fpga::{Call, Collective, Form};

/// The binary operation on one element, from its definition.
fn apply(combine: Combine, a: &[u8], b: &[u8]) -> Vec<u8> {
    macro_rules! integer {
        ($t:ty) => {{
            let [a, b] = [a, b].map(|x| <$t>::from_le_bytes(x.try_into().unwrap()));
            let result = match combine.reduction {
                Reduction::Sum => a.wrapping_add(b),
                Reduction::Min => {
                    if b < a {
                        b
                    } else {
                        a
                    }
                }
                Reduction::Max => {
                    if b > a {
                        b
                    } else {
                        a
                    }
                }
                Reduction::Xor => a ^ b,
                Reduction::And => a & b,
                Reduction::Or => a | b,
                other => panic!("{other}"),
            };
            result.to_le_bytes().to_vec()
        }};
    }
    macro_rules! float {
        ($t:ty) => {{
            let [a, b] = [a, b].map(|x| <$t>::from_le_bytes(x.try_into().unwrap()));
            let result = match combine.reduction {
                _ if a.is_nan() || b.is_nan() => <$t>::NAN,
                Reduction::Sum => a + b,
                Reduction::Min => {
                    if b.total_cmp(&a).is_lt() {
                        b
                    } else {
                        a
                    }
                }
                Reduction::Max => {
                    if b.total_cmp(&a).is_gt() {
                        b
                    } else {
                        a
                    }
                }
                other => panic!("{other}"),
            };
            let result = if result.is_nan() { <$t>::NAN.abs() } else { result };
            result.to_le_bytes().to_vec()
        }};
    }
    match combine.element {
        Element::I8 => integer!(i8),
        Element::U8 => integer!(u8),
        Element::I16 => integer!(i16),
        Element::U16 => integer!(u16),
        Element::I32 => integer!(i32),
        Element::U32 => integer!(u32),
        Element::I64 => integer!(i64),
        Element::U64 => integer!(u64),
        Element::F32 => float!(f32),
        Element::F64 => float!(f64),
        other => panic!("{other}"),
    }
}

fn vectors(combine: Combine, a: &[u8], b: &[u8]) -> Vec<u8> {
    let size = combine.element.bytes() as usize;
    a.chunks(size).zip(b.chunks(size)).flat_map(|(a, b)| apply(combine, a, b)).collect()
}

/// A unit has two chains: the first half of its inputs, rounded up, and the rest.
fn unit(combine: Combine, inputs: &[Vec<u8>]) -> Vec<u8> {
    let chain = |inputs: &[Vec<u8>]| inputs.iter().cloned().reduce(|a, b| vectors(combine, &a, &b));
    let (first, second) = inputs.split_at(inputs.len().div_ceil(2));
    match (chain(first), chain(second)) {
        (Some(first), Some(second)) => vectors(combine, &first, &second),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => panic!("no input"),
    }
}

/// The next rank on the way to the root: bits that the root lacks first, lowest first.
fn parent(rank: usize, root: usize) -> usize {
    let lowest = |bits: usize| bits & bits.wrapping_neg();
    let (lacks, has) = (rank & !root, root & !rank);
    rank ^ lowest(if lacks != 0 { lacks } else { has })
}

fn tree(combine: Combine, values: &[Vec<u8>], at: usize, root: usize) -> Vec<u8> {
    let below = (0..values.len()).filter(|rank| *rank != root && parent(*rank, root) == at);
    let mut inputs: Vec<(usize, Vec<u8>)> = below.map(|rank| (rank, tree(combine, values, rank, root))).collect();
    inputs.push((at, values[at].clone()));
    inputs.sort();
    unit(combine, &inputs.into_iter().map(|input| input.1).collect::<Vec<_>>())
}

/// Ranks beyond the largest power of two are combined with their companions first.
fn folded(combine: Combine, values: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let power = 1 << values.len().ilog2();
    let pair = |rank: usize| match values.get(rank + power) {
        Some(beyond) => vectors(combine, &values[rank], beyond),
        None => values[rank].clone(),
    };
    (0..power).map(pair).collect()
}

/// Combines across bits in this order, the lower rank first.
fn across(combine: Combine, values: &[Vec<u8>], bits: impl Iterator<Item = u32>) -> Vec<u8> {
    let mut values = folded(combine, values);
    for bit in bits {
        let one = |rank: usize| vectors(combine, &values[rank & !(1 << bit)], &values[rank | 1 << bit]);
        values = (0..values.len()).map(one).collect();
    }
    assert!(values.iter().all(|value| *value == values[0]), "all ranks have the same bits");
    values.swap_remove(0)
}

/// Contributions of one chunk, combined as documented for this form. `None` for the leaves of an indirect network.
fn combined(call: &Call, values: &[Vec<u8>], leaves: Option<&[usize]>) -> Vec<u8> {
    let combine = call.combine.unwrap();
    let bits = values.len().ilog2();
    if let Some(leaves) = leaves {
        let mut used: Vec<usize> = leaves.to_vec();
        used.sort_unstable();
        used.dedup();
        let of = |leaf: usize| {
            (0..values.len()).filter(|rank| leaves[*rank] == leaf).map(|rank| values[rank].clone()).collect::<Vec<_>>()
        };
        let partial: Vec<Vec<u8>> = used.into_iter().map(|leaf| unit(combine, &of(leaf))).collect();
        return unit(combine, &partial);
    }
    match (call.form, call.collective) {
        (Form::Tree, Collective::Reduce) => tree(combine, values, call.root.into(), call.root.into()),
        (Form::Tree, _) => tree(combine, values, 0, 0),
        (Form::Doubling, _) => across(combine, values, 0..bits),
        (Form::Halving, _) => across(combine, values, (0..bits).rev()),
        (Form::Ring, _) => panic!("no reduction"),
    }
}

/// What each rank gives, and what it must get.
pub(crate) fn case(call: &Call, size: usize, seed: u64, leaves: Option<&[usize]>) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let (bytes, root) = (call.bytes as usize, usize::from(call.root));
    let mut state = seed | 1;
    let mut data = |blocks: usize| -> Vec<u8> {
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        };
        let mut data: Vec<u8> = (0..blocks * bytes).map(|_| next()).collect();
        // Floats of moderate size, so that sums are rounded; some others remain.
        let width = call
            .combine
            .filter(|one| matches!(one.element, Element::F32 | Element::F64))
            .map(|one| one.element.bytes() as usize);
        if let Some(width) = width {
            data.chunks_mut(width)
                .filter(|element| element[0] % 16 != 0)
                .for_each(|element| element[width - 1] = element[width - 1] & 0x80 | 0x3f);
        }
        data
    };
    let all = |data: &mut dyn FnMut(usize) -> Vec<u8>, blocks| (0..size).map(|_| data(blocks)).collect::<Vec<_>>();
    let only = |value: Vec<u8>| {
        (0..size).map(|rank| if rank == root { value.clone() } else { Vec::new() }).collect::<Vec<_>>()
    };
    let cut = |value: &[u8]| value.chunks(bytes).map(<[u8]>::to_vec).collect::<Vec<_>>();
    let sum = |inputs: &[Vec<u8>]| combined(call, inputs, leaves);
    match call.collective {
        Collective::Reduce => {
            let inputs = all(&mut data, 1);
            let result = sum(&inputs);
            (inputs, only(result))
        }
        Collective::Allreduce => {
            let inputs = all(&mut data, 1);
            let result = sum(&inputs);
            (inputs, vec![result; size])
        }
        Collective::Broadcast => {
            let value = data(1);
            (only(value.clone()), vec![value; size])
        }
        Collective::Scatter => {
            let value = data(size);
            (only(value.clone()), cut(&value))
        }
        Collective::Gather => {
            let inputs = all(&mut data, 1);
            let whole = inputs.concat();
            (inputs, only(whole))
        }
        Collective::Allgather => {
            let inputs = all(&mut data, 1);
            let whole = inputs.concat();
            (inputs, vec![whole; size])
        }
        Collective::ReduceScatter => {
            let inputs = all(&mut data, size);
            let result = sum(&inputs);
            (inputs, cut(&result))
        }
    }
}

/// Leaves of the members: three ports in four of a leaf lead to processors.
pub(crate) fn leaves(shape: &str, members: &[u32]) -> Option<Vec<usize>> {
    let rest = shape.strip_prefix("fat:")?;
    let radix: u32 = rest.split_once(':').map_or(8, |rest| rest.1.parse().unwrap());
    Some(members.iter().map(|node| (node / (radix / 4 * 3)) as usize).collect())
}

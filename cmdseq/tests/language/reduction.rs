//! Results of folds, bit for bit.

use cmdseq::reduction::Accumulator;
use cmdseq::{Combine, Element, Reduction};

fn reduce(reduction: Reduction, element: Element, contributions: &[&[u8]]) -> Vec<u8> {
    let mut accumulator = Accumulator::new(Combine::new(reduction, element)).unwrap();
    contributions.iter().for_each(|one| accumulator.add(one));
    let mut result = vec![0; contributions[0].len()];
    accumulator.result(&mut result);
    result
}

#[test]
fn accumulators_are_there_for_what_is_defined() {
    for reduction in Reduction::ALL {
        for element in Element::ALL {
            let combine = Combine::new(*reduction, *element);
            assert_eq!(Accumulator::new(combine).is_some(), combine.is_defined(), "{combine}");
        }
    }
    // 8 integers with 10, 4 floats with 4, 5 pairs with 2.
    assert_eq!(Combine::all().count(), 80 + 16 + 10);
}

/// 2048 + 1 + 1 in f16 would be 2048 if each sum were rounded.
#[test]
fn halves_are_rounded_once() {
    let (large, one) = (0x6800_u16.to_le_bytes(), 0x3c00_u16.to_le_bytes());
    assert_eq!(reduce(Reduction::Sum, Element::F16, &[&large, &one, &one]), 0x6801_u16.to_le_bytes());
}

#[test]
fn the_order_is_that_of_the_contributions() {
    let [large, small] = [1e8_f32, 1.0].map(f32::to_le_bytes);
    let minus = (-1e8_f32).to_le_bytes();
    assert_eq!(reduce(Reduction::Sum, Element::F32, &[&large, &small, &minus]), 0.0_f32.to_le_bytes());
    assert_eq!(reduce(Reduction::Sum, Element::F32, &[&large, &minus, &small]), small);
}

#[test]
fn nans_are_one_and_zeros_are_two() {
    let nan = f32::from_bits(0xff80_0001).to_le_bytes();
    let (plus, minus) = (0.0_f32.to_le_bytes(), (-0.0_f32).to_le_bytes());
    for reduction in [Reduction::Sum, Reduction::Prod, Reduction::Min, Reduction::Max] {
        assert_eq!(reduce(reduction, Element::F32, &[&plus, &nan]), f32::from_bits(0x7fc0_0000).to_le_bytes());
        assert_eq!(reduce(reduction, Element::F32, &[&nan]), nan, "alone it stays what it was");
    }
    assert_eq!(reduce(Reduction::Min, Element::F32, &[&plus, &minus]), minus);
    assert_eq!(reduce(Reduction::Max, Element::F32, &[&minus, &plus]), plus);
}

#[test]
fn pairs_have_indices_and_clean_gaps() {
    let pair = |value: f64, index: i32, gap: u8| {
        let mut pair = [gap; 16];
        pair[..8].copy_from_slice(&value.to_le_bytes());
        pair[8..12].copy_from_slice(&index.to_le_bytes());
        pair
    };
    let minloc = |one: [u8; 16], other: [u8; 16]| reduce(Reduction::Minloc, Element::F64Index, &[&one, &other]);
    assert_eq!(minloc(pair(1.0, 5, 9), pair(1.0, -2, 9)), pair(1.0, -2, 0));
    assert_eq!(minloc(pair(0.0, 1, 9), pair(-0.0, 2, 9)), pair(-0.0, 2, 0));
    let nan = pair(f64::from_bits(0xfff0_0000_0000_0001), 7, 9);
    assert_eq!(minloc(nan, pair(-1e300, 2, 9)), pair(f64::from_bits(0x7ff8_0000_0000_0000), 7, 0));
    assert_eq!(minloc(pair(f64::INFINITY, 2, 9), nan), pair(f64::from_bits(0x7ff8_0000_0000_0000), 7, 0));
}

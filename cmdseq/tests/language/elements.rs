//! Elements of several folds: each is rounded as a whole, so parts of two are none.

use cmdseq::meaning::expect;
use cmdseq::plan::{Collective, Piece, Program, ProgramSet, Request};
use cmdseq::switch::Shape;
use cmdseq::{Combine, Element, Flags, Instruction, Operand, Reason, Reduction};
use proptest::prelude::*;

use super::cards::{connected, mpi_fpga};

/// Three ranks. Rank 0 folds their 16 B in two orders, and copies the output together byte by byte: all of the second result, or if
/// `is_mixed`, bytes `from` to before `end` of the first.
fn put_together(combine: Combine, from: u64, end: u64, is_mixed: bool) -> Result<(), Reason> {
    let at = Operand::card;
    let (input, first, all, between, second, output) = (0, 0x1000, 0x2000, 0x3000, 0x4000, 0x5000);
    let mut programs = vec![Program::default(); 3];
    for program in &mut programs {
        program.instructions = vec![
            Instruction::reduce(combine, 0, at(input), at(first), 16),
            Instruction::gather(0, at(input), at(all), 16),
        ];
        program.input = vec![Piece { offset: 0, address: input, bytes: 16 }];
    }
    let root = &mut programs[0];
    root.instructions.push(Instruction::fold(combine, at(all + 16), at(all + 32), at(between), 16));
    root.instructions.push(Instruction::fold(combine, at(all), at(between), at(second), 16));
    for byte in 0..16 {
        let result = if is_mixed && (from..end).contains(&byte) { first } else { second };
        root.instructions.push(Instruction::copy(at(result + byte), at(output + byte), 1));
    }
    // The pieces of the output are cut inside of elements too.
    let piece = |(offset, bytes)| Piece { offset, address: output + offset, bytes };
    root.output = [(0, from), (from, end - from), (end, 16 - end)].map(piece).into();
    root.output.retain(|piece| piece.bytes > 0);
    let request = Request { combine: Some(combine), ..Request::new(Collective::Reduce, vec![0, 1, 2], 16) };
    expect(&ProgramSet::new([0, 1, 2], programs), &connected(3), &request).map_err(|refusal| refusal.reason)
}

/// Half an element that is rounded in one order, and half of one that is rounded in another, is neither.
#[test]
fn an_element_of_two_folds_is_refused() {
    let sum = |element| Combine::new(Reduction::Sum, element);
    assert_eq!(put_together(sum(Element::F32), 0, 4, true), Ok(()));
    assert_eq!(put_together(sum(Element::F32), 0, 2, true), Err(Reason::Expectation));
    assert_eq!(put_together(sum(Element::F32), 0, 2, false), Ok(()));
    assert_eq!(put_together(sum(Element::U32), 0, 2, true), Ok(()));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn elements_are_put_together_whole_where_the_order_affects_the_bits(
        combine in prop::sample::select(Combine::all().collect::<Vec<_>>()),
        (from, bytes) in (0..16_u64, 1..=16_u64),
        is_mixed in any::<bool>(),
    ) {
        let end = (from + bytes).min(16);
        let element = combine.element.bytes();
        let is_whole = from.is_multiple_of(element) && end.is_multiple_of(element);
        let expected = match is_mixed && combine.depends_on_order() && !is_whole {
            true => Err(Reason::Expectation),
            false => Ok(()),
        };
        prop_assert_eq!(put_together(combine, from, end, is_mixed), expected);
    }
}

/// Each form has an order of its own, so half an element of each is neither.
#[test]
fn an_element_of_two_calls_of_the_switches_is_refused() {
    let capabilities = mpi_fpga(Shape::Torus { sides: [2, 2, 2] });
    let at = Operand::card;
    let (input, first, output) = (0, 0x1000, 0x2000);
    let mixed = |element: Element, bytes: u64| {
        let sum = Combine::new(Reduction::Sum, element);
        let reduce = |form, to| Instruction::allreduce(sum, at(input), at(to), 16).with_flags(form);
        let copy = Instruction::copy(at(first), at(output), bytes);
        let piece = |address| vec![Piece { offset: 0, address, bytes: 16 }];
        let program = Program {
            instructions: vec![reduce(Flags::TREE, first), reduce(Flags::DOUBLING, output), copy],
            input: piece(input),
            output: piece(output),
            ..Program::default()
        };
        let group: Vec<u32> = (0..8).collect();
        let request = Request { combine: Some(sum), ..Request::new(Collective::Allreduce, group.clone(), 16) };
        expect(&ProgramSet::new(group, vec![program; 8]), &capabilities, &request).map_err(|refusal| refusal.reason)
    };
    assert_eq!(mixed(Element::F32, 4), Ok(()));
    assert_eq!(mixed(Element::F32, 2), Err(Reason::Expectation));
    assert_eq!(mixed(Element::U32, 2), Ok(()));
}

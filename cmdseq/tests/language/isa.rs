//! The words of the sequencer: what is written is read, and nothing else is.

use cmdseq::completion;
use cmdseq::instruction::{self, AddressSpace, Layout, offset, seal};
use cmdseq::{
    Combine, Completion, DecodeError, Element, Encoded, Flags, Instruction, Operand, Operation, Reduction, Status,
};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

/// The operands byte of every pair of spaces, retyped from `docs/isa.md`: bits 0 and 3 are the space of the source, 4 and 7 that
/// of the destination. A copy accepts the two memories, and no operation another space.
#[test]
fn spaces_have_two_bits_and_two_of_four_are_reserved() {
    let code =
        |space: AddressSpace| [0x0, 0x1, 0x8, 0x9][AddressSpace::ALL.iter().position(|one| *one == space).unwrap()];
    let pairs = AddressSpace::ALL.iter().flat_map(|one| AddressSpace::ALL.iter().map(move |two| (*one, *two)));
    for (source, destination) in pairs {
        let at = |space, address| Operand { space, ..Operand::card(address) };
        let copy = Instruction::copy(at(source, 0x1000), at(destination, 0x2000), 64);
        let word = copy.encode();
        assert_eq!(word[13], code(source) | code(destination) << 4, "{source:?} to {destination:?}");
        let are_memory = source.is_memory() && destination.is_memory();
        let refused = Err(DecodeError::Field { offset: offset::OPERANDS, name: "operands" });
        assert_eq!(Instruction::decode(&word), if are_memory { Ok(copy) } else { refused });
    }
    for operation in Operation::ALL {
        for space in [AddressSpace::Stream0, AddressSpace::Stream1] {
            let operand = Operand { space, ..Operand::card(0) };
            let of = |source, destination| Instruction { source, destination, ..Instruction::new(*operation) };
            for wrong in [of(operand, Operand::card(0)), of(Operand::card(0), operand)] {
                assert!(wrong.check_fields().is_err(), "{wrong:?}");
                assert!(Instruction::decode(&wrong.encode()).is_err(), "{wrong:?}");
            }
        }
    }
}

#[test]
fn flags_that_exclude_each_other_are_refused() {
    for flags in [Flags::EAGER | Flags::RENDEZVOUS, Flags::all()] {
        let send = Instruction::send(1, Operand::card(0), 64).with_flags(flags);
        let refused = DecodeError::Field { offset: offset::FLAGS, name: "flags" };
        assert_eq!((send.check_fields(), Instruction::decode(&send.encode())), (Err(refused), Err(refused)));
    }
}

/// A gather of 13000 B in blocks of 4096 B, typed by hand from `docs/isa.md`. The checksum was computed bit by bit with the
/// Castagnoli polynomial, without this crate.
#[rustfmt::skip]
const GOLDEN: [u8; 64] = [
    0x01, 0x07, 0xcd, 0xab, 0x03, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x20, 0x06, 0x00,
    0x00, 0x10, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x10, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xc8, 0x32, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xe0, 0xb5, 0x15, 0x99,
];

#[test]
fn the_golden_word() {
    let gather = Instruction::gather(2, Operand::card(0x1000), Operand::card(0x1000_0000).striped(), 4096)
        .dividing(13000)
        .with_tag(0xabcd)
        .on(3)
        .with_flags(Flags::RENDEZVOUS | Flags::INTERRUPT);
    assert_eq!(gather.encode(), GOLDEN);
    assert_eq!(Instruction::decode(&GOLDEN), Ok(gather));
}

/// A fold of 8 elements, typed by hand from `docs/isa.md`, but for the checksum.
#[test]
fn the_golden_fold() {
    let sum = Combine::new(Reduction::Sum, Element::F32);
    let second = Operand::card(0x3000).plus_argument(1);
    let fold = Instruction::fold(sum, Operand::card(0x1000), second, Operand::card(0x2000), 32).in_lane(5);
    let word = fold.encode();
    let mut expected = [0; 64];
    expected[..2].copy_from_slice(&[1, 22]);
    expected[10..13].copy_from_slice(&[11, 1, 5]);
    (expected[17], expected[25], expected[32], expected[41], expected[59]) = (0x10, 0x20, 32, 0x30, 2);
    assert_eq!(word[..60], expected[..60]);
    let bound = fold.with_arguments(&[1, 16, 256]);
    assert_eq!((bound.extent, bound.extent_argument), (0x3010, None));
}

/// An allreduce of 13 pairs with maxloc, typed by hand from `docs/isa.md`, but for the checksum.
#[test]
fn the_golden_reduction() {
    let maxloc = Combine::new(Reduction::Maxloc, Element::F64Index);
    let word = Instruction::allreduce(maxloc, Operand::card(0x1000), Operand::card(0x2000), 13 * 16).encode();
    let mut expected = [0; 64];
    expected[..2].copy_from_slice(&[1, 12]);
    expected[10..12].copy_from_slice(&[20, 12]);
    (expected[17], expected[25], expected[32]) = (0x10, 0x20, 208);
    assert_eq!(word[..60], expected[..60]);
}

#[test]
fn reductions_need_an_element_type_that_they_take() {
    let sum = Combine::new(Reduction::Sum, Element::F32);
    let good = Instruction::reduce_scatter(sum, Operand::card(0), Operand::card(64), 8).dividing(12).encode();
    assert!(Instruction::decode(&good).is_ok());
    let field = |offset, name| Err(DecodeError::Field { offset, name });
    for element in (0..=u8::MAX).filter(|code| Element::from_code(*code).is_none()) {
        assert_eq!(Instruction::decode(&resealed(good, 10, &[element])), field(10, "element type"), "{element}");
    }
    for reduction in (0..=u8::MAX).filter(|code| Reduction::from_code(*code).is_none()) {
        assert_eq!(Instruction::decode(&resealed(good, 11, &[reduction])), field(11, "reduction"), "{reduction}");
    }
    for (reduction, element) in Reduction::ALL.iter().flat_map(|one| Element::ALL.iter().map(move |two| (*one, *two))) {
        let word = resealed(good, 10, &[element as u8, reduction as u8]);
        // 8 and 12 are multiples of 4.
        let fits = element.bytes() <= 4;
        assert_eq!(Instruction::decode(&word).is_ok(), reduction.takes(element) && fits, "{reduction} of {element}");
    }
    assert_eq!(Instruction::decode(&resealed(good, 32, &[7])), field(32, "bytes"));
    assert_eq!(Instruction::decode(&resealed(good, 40, &[13])), field(40, "extent"));
}

fn operand(is_read: bool, is_host: BoxedStrategy<bool>, striped: bool, argument: bool) -> BoxedStrategy<Operand> {
    if !is_read {
        return Just(Operand::card(0)).boxed();
    }
    (is_host, any::<bool>(), any::<Option<u8>>(), any::<u64>())
        .prop_map(move |(is_host, is_striped, index, address)| Operand {
            space: if is_host { AddressSpace::Host } else { AddressSpace::Card },
            layout: if striped && is_striped { Layout::Striped } else { Layout::Block },
            argument: index.map(|index| index % 3).filter(|_| argument),
            address,
        })
        .boxed()
}

fn instruction(operation: Operation) -> BoxedStrategy<Instruction> {
    let fields = operation.fields();
    let is_host = || match operation {
        Operation::Copy => any::<bool>().boxed(),
        Operation::Group | Operation::Store | Operation::Table => Just(true).boxed(),
        _ => Just(false).boxed(),
    };
    let tables = [Operation::Scatterv, Operation::Gatherv, Operation::Allgatherv, Operation::Alltoallv];
    let blocks =
        [Operation::Group, Operation::Open, Operation::PutSignal, Operation::RecvReduce, Operation::SendrecvReduce];
    let striped = fields.communicator && !tables.contains(&operation) && !blocks.contains(&operation);
    let argument = operation != Operation::Launch;
    let flags = (0_u16..32).prop_map(|bits| {
        let flags = Flags::from_bits_truncate(bits);
        if flags.contains(Flags::EAGER | Flags::RENDEZVOUS) { flags - Flags::EAGER } else { flags }
    });
    let operands = (
        operand(fields.source, is_host(), striped, argument),
        operand(fields.destination, is_host(), striped, argument),
    );
    let combine = prop::sample::select(Combine::all().collect::<Vec<_>>());
    let window = (any::<u16>(), 1..=u32::MAX, 1..8_u16, any::<bool>());
    let more = (any::<[u16; 3]>(), any::<u32>(), prop::option::of(0..3_u8), any::<u8>(), window);
    (any::<[u16; 4]>(), any::<[u64; 2]>(), flags, operands, combine, more)
        .prop_map(move |([tag, communicator, root, peer], sizes, flags, (source, destination), combine, more)| {
            let ([signal_id, loop_count, loop_body], signal_value, extent_argument, lane, window) = more;
            // Typed by hand from docs/isa.md.
            let (slot, key, rights, is_named) = window;
            let window =
                u64::from(slot) | u64::from(key) << 32 | if fields.rights { u64::from(rights) << 16 } else { 0 };
            let window = if fields.window && (is_named || !fields.peer) { window } else { 0 };
            let combine = Some(combine).filter(|_| fields.combine);
            let [bytes, extent] = sizes.map(|size| size - size % combine.map_or(1, |one| one.element.bytes()));
            Instruction {
                operation,
                tag,
                communicator: if fields.communicator { communicator } else { 0 },
                root: if fields.root { root } else { 0 },
                peer: if fields.peer { peer } else { 0 },
                flags,
                source,
                destination,
                bytes: if fields.bytes { bytes } else { 0 },
                element: combine.map(|one| one.element),
                reduction: combine.map(|one| one.reduction),
                extent: if fields.extent { extent } else { window },
                extent_argument: extent_argument.filter(|_| fields.extent_argument),
                signal_id: if fields.signal { signal_id } else { 0 },
                signal_value: if fields.signal { signal_value } else { 0 },
                loop_count: if fields.rounds { loop_count } else { 0 },
                loop_body: if fields.rounds { loop_body } else { 0 },
                lane: if fields.lane { lane } else { 0 },
            }
        })
        .boxed()
}

fn any_instruction() -> impl Strategy<Value = Instruction> {
    prop::sample::select(Operation::ALL).prop_flat_map(instruction)
}

fn flipped(mut word: [u8; 64], bits: &[usize]) -> [u8; 64] {
    for bit in bits {
        word[bit / 8] ^= 1 << (bit % 8);
    }
    word
}

#[test]
fn every_operation_comes_back() {
    let mut runner = TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() });
    for operation in Operation::ALL {
        runner
            .run(&instruction(*operation), |instruction| {
                prop_assert_eq!(Instruction::decode(&instruction.encode()), Ok(instruction));
                Ok(())
            })
            .unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_an_instruction_or_an_error(low: [u8; 32], high: [u8; 32], is_sealed: bool, operation in 0_u8..48) {
        let mut word = [0; 64];
        word[..32].copy_from_slice(&low);
        word[32..].copy_from_slice(&high);
        if is_sealed {
            (word[0], word[1]) = (1, operation);
            seal(&mut word);
        }
        if let Ok(instruction) = Instruction::decode(&word) {
            prop_assert_eq!(instruction.encode(), word);
        }
    }

    #[test]
    fn the_checksum_is_the_crc_32c_of_the_bytes_before_it(low: [u8; 32], high: [u8; 32]) {
        let mut word = [0; 64];
        word[..32].copy_from_slice(&low);
        word[32..].copy_from_slice(&high);
        seal(&mut word);
        let sum = crc_32c(&word[..60]);
        prop_assert_eq!(&word[60..], &sum.to_le_bytes());
        // What is used on a processor without the instruction.
        prop_assert_eq!(crc32c::crc32c(&word[..60]), sum);
    }

    #[test]
    fn any_change_of_one_or_two_bits_is_refused(instruction in any_instruction(), pairs: [(u16, u16); 64]) {
        let word = instruction.encode();
        for bit in 0..512 {
            let refused = matches!(Instruction::decode(&flipped(word, &[bit])), Err(DecodeError::Checksum { .. }));
            prop_assert!(refused, "bit {}", bit);
        }
        for (one, two) in pairs.map(|(one, two)| (usize::from(one) % 512, usize::from(two) % 512)) {
            let result = Instruction::decode(&flipped(word, &[one, two]));
            prop_assert!(one == two || matches!(result, Err(DecodeError::Checksum { .. })), "bits {} and {}", one, two);
        }
    }

    #[test]
    fn completions_come_back(
        tag: u16, code: u8, detail in 0_u16..1 << 15, issued in 0_u64..1 << 48, t1 in 0_u64..1 << 40, t2 in 0_u64..1 << 40,
        arrival in 0_u64..1 << 40, bytes in 0_u64..1 << 48, phase: bool,
    ) {
        let status = Status::from_code(code);
        let completion = Completion { tag, status, detail, issued, t1, t2, arrival, bytes, phase };
        let word = completion.encode();
        prop_assert_eq!(Completion::decode(&word), completion);
        let last = u64::from_le_bytes(word[completion::PHASE_WORD..].try_into().unwrap());
        prop_assert_eq!(completion::phase_of(last), phase);
    }

    #[test]
    fn any_32_bytes_are_a_completion(word: [u8; 32]) {
        prop_assert_eq!(Completion::decode(&word).encode(), word);
    }
}

#[test]
fn every_status_code_comes_back() {
    for code in 0..=u8::MAX {
        let status = Status::from_code(code);
        assert_eq!(status.code(), code);
        let known = Status::ALL.contains(&status);
        assert_eq!(matches!(status, Status::Unknown(_)), !known, "code {code}");
        assert_eq!(known, code <= 22, "code {code}");
        let word =
            Completion { tag: 0, status, detail: 0, issued: 0, t1: 0, t2: 0, arrival: 0, bytes: 0, phase: false }
                .encode();
        assert_eq!(Completion::decode(&word).status, status);
    }
}

/// `word` with other bytes at `at`, sealed again.
fn resealed(word: [u8; 64], at: usize, bytes: &[u8]) -> [u8; 64] {
    let mut word = word;
    word[at..at + bytes.len()].copy_from_slice(bytes);
    seal(&mut word);
    word
}

#[test]
fn versions_and_operations_that_are_not_known_are_refused() {
    for version in (0..=u8::MAX).filter(|version| *version != instruction::VERSION) {
        let word = resealed(GOLDEN, offset::VERSION, &[version]);
        assert_eq!(Instruction::decode(&word), Err(DecodeError::Version(version)));
    }
    for code in (0..=u8::MAX).filter(|code| Operation::from_code(*code).is_none()) {
        let word = resealed(GOLDEN, offset::OPERATION, &[code]);
        assert_eq!(Instruction::decode(&word), Err(DecodeError::Operation(code)));
    }
}

#[test]
fn fields_that_must_be_zero_are_refused_by_name() {
    let nop = Instruction::nop().encode();
    for (at, bytes, name) in [
        (4, 2, "communicator"),
        (6, 2, "root"),
        (8, 2, "peer"),
        (10, 1, "element type"),
        (11, 1, "reduction"),
        (12, 1, "lane"),
        (16, 8, "source"),
        (24, 8, "destination"),
        (32, 8, "bytes"),
        (40, 8, "extent"),
        (48, 2, "signal id"),
        (50, 2, "loop count"),
        (52, 4, "signal value"),
        (56, 2, "loop body"),
        (59, 1, "extent argument"),
    ] {
        for byte in at..at + bytes {
            for bit in 0..8 {
                let refused = Instruction::decode(&resealed(nop, byte, &[1 << bit]));
                assert_eq!(refused, Err(DecodeError::Field { offset: at, name }), "byte {byte}, bit {bit}");
            }
        }
    }
    let field = |offset, name| Err(DecodeError::Field { offset, name });
    assert_eq!(Instruction::decode(&resealed(nop, 14, &[3, 0])), field(14, "flags"), "eager and rendezvous");
    for bit in 5..16 {
        let refused = Instruction::decode(&resealed(nop, 14, &(1_u16 << bit).to_le_bytes()));
        assert_eq!(refused, field(14, "flags"), "flag {bit}");
    }
    // Striped as before, but a side in a space that is reserved.
    for bits in [0x08, 0x09, 0x80, 0x90] {
        assert_eq!(Instruction::decode(&resealed(GOLDEN, 13, &[0x20 | bits])), field(13, "operands"), "{bits:#x}");
    }
    for (operands, index) in [(0x20, 0x01), (0x20, 0x10), (0x24, 0x03), (0x60, 0x30), (0x60, 0x40)] {
        let word = resealed(resealed(GOLDEN, 13, &[operands]), 58, &[index]);
        assert_eq!(Instruction::decode(&word), field(58, "argument index"), "{operands:#x} {index:#x}");
    }
}

#[test]
fn operands_are_in_spaces_and_layouts_that_the_operation_takes() {
    let host = Operand::host(0);
    let card = Operand::card(64);
    let field = |offset, name| Err(DecodeError::Field { offset, name });
    for wrong in [
        Instruction::scatter(0, host, card, 8),
        Instruction::fill(host, 8, 0),
        Instruction::copy(card.striped(), host, 8),
        Instruction { source: card, ..Instruction::store(0, 0, 1) },
        Instruction { source: card.plus_argument(1), ..Instruction::launch(0, [0; 3]) },
    ] {
        assert_eq!(Instruction::decode(&wrong.encode()), field(13, "operands"), "{}", wrong.operation);
    }
}

#[test]
fn any_tag_makes_the_word_that_encoding_makes() {
    for instruction in [Instruction::nop(), Instruction::launch(7, [1, u64::MAX, 3]), Instruction::delay(99)] {
        let encoded = Encoded::new(&instruction.with_tag(1234));
        for tag in 0..=u16::MAX {
            assert_eq!(encoded.with_tag(tag), instruction.with_tag(tag).encode(), "{tag}");
        }
    }
}

/// Bit by bit, from the Castagnoli polynomial.
fn crc_32c(bytes: &[u8]) -> u32 {
    let shifted = |sum: u32| if sum & 1 == 1 { sum >> 1 ^ 0x82f6_3b78 } else { sum >> 1 };
    !bytes.iter().fold(u32::MAX, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), |sum, _| shifted(sum)))
}

//! The tables of `docs/isa.md`, made from the code.

use crate::instruction::{
    self, AddressSpace, DESTINATION_SHIFT, FIELDS, OPERAND_ARGUMENT, OPERAND_SPACE_HIGH, OPERAND_SPACE_LOW,
    OPERAND_STRIPED, SOURCE_SHIFT, offset,
};
use crate::{Element, Flags, Operation, Reduction, Status, completion};

/// Begins the line that names the table below it.
const MARKER: &str = "<!-- table: ";

/// Returns `document` with every table below a line `<!-- table: NAME -->` made anew. A table ends before an empty line. An
/// unknown name leaves its table empty.
pub fn render(document: &str) -> String {
    let mut text = String::new();
    let mut is_replaced = false;
    for line in document.lines() {
        is_replaced &= !line.is_empty();
        if is_replaced {
            continue;
        }
        text += &format!("{line}\n");
        if let Some(name) = line.strip_prefix(MARKER).and_then(|rest| rest.strip_suffix(" -->")) {
            text += &table(name);
            is_replaced = true;
        }
    }
    text
}

fn table(name: &str) -> String {
    match name {
        "instruction" => words(&instruction_fields(), 8 * instruction::BYTES),
        "operands" => rows(["bit", "meaning"], operands()),
        "address spaces" => {
            rows(["code", "space", "meaning"], (0..).zip(AddressSpace::ALL.iter().copied()).map(address_space))
        }
        "flags" => rows(["bit", "flag", "meaning"], flags()),
        "operations" => rows(["code", "name", "reads", "meaning"], Operation::ALL.iter().map(|one| operation(*one))),
        "element types" => rows(
            ["code", "name", "meaning"],
            Element::ALL.iter().map(|one| [(*one as u8).to_string(), one.to_string(), one.meaning().to_owned()]),
        ),
        "reductions" => {
            rows(["code", "name", "element types", "meaning"], Reduction::ALL.iter().map(|one| reduction(*one)))
        }
        "completion" => words(&COMPLETION.map(|(bit, name, meaning)| (bit, name, meaning)), 8 * completion::BYTES),
        "statuses" => rows(
            ["code", "name", "meaning"],
            Status::ALL.iter().map(|one| [one.code().to_string(), format!("{one:?}"), one.to_string()]),
        ),
        _ => String::new(),
    }
}

/// A table with these columns.
fn rows<const N: usize>(columns: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let head = format!("| {} |\n|{}\n", columns.join(" | "), "---|".repeat(N));
    rows.into_iter().fold(head, |text, row| text + &line(&row))
}

/// The layout of a word of `bits`: each field, with its first bit, name and meaning, ends where the next begins.
fn words(fields: &[(usize, &'static str, &'static str)], bits: usize) -> String {
    let span = |first: usize, last: usize| if first == last { first.to_string() } else { format!("{first} to {last}") };
    let ends = fields.iter().skip(1).map(|field| field.0).chain([bits]);
    let row = |((first, name, meaning), end): (&(usize, &str, &str), usize)| {
        let last = end - 1;
        [span(first / 8, last / 8), span(*first, last), (*name).to_owned(), (*meaning).to_owned()]
    };
    rows(["byte", "bits", "field", "meaning"], fields.iter().zip(ends).map(row))
}

fn instruction_fields() -> Vec<(usize, &'static str, &'static str)> {
    let always = [
        (offset::VERSION, "version", "version of the word"),
        (offset::OPERATION, "operation", "what to do (Operations)"),
        (offset::TAG, "tag", "returned in the completion"),
        (offset::OPERANDS, "operands", "space and layout of source and destination (Operands)"),
        (offset::FLAGS, "flags", "how to run it (Flags)"),
        (
            offset::ARGUMENT_INDEX,
            "argument index",
            "bits 0 to 3: launch argument added to source; bits 4 to 7: to destination; zero if the operand names none",
        ),
        (offset::CHECKSUM, "checksum", "CRC-32C (Castagnoli) of the bytes before it"),
    ];
    let read_by_some = FIELDS.iter().map(|field| (field.offset, field.name, field.meaning));
    let mut fields: Vec<_> = always.into_iter().chain(read_by_some).map(|(at, name, it)| (8 * at, name, it)).collect();
    fields.sort_unstable();
    // Slot, rights and key of a window are parts of the extent.
    fields.dedup_by_key(|field| field.0);
    fields
}

fn operands() -> Vec<[String; 2]> {
    let sides = [("source", SOURCE_SHIFT), ("destination", DESTINATION_SHIFT)];
    let bits = |(side, shift): (&str, u32)| {
        let number = |bit: u8| bit.trailing_zeros() + shift;
        [
            (OPERAND_SPACE_LOW, format!("space of the {side}, low bit (Address spaces)")),
            (OPERAND_STRIPED, format!("layout of the {side}: 0 block, 1 striped")),
            (OPERAND_ARGUMENT, format!("a launch argument is added to the {side}; only in a resident program")),
            (OPERAND_SPACE_HIGH, format!("space of the {side}, high bit")),
        ]
        .map(|(bit, meaning)| [number(bit).to_string(), meaning])
    };
    sides.into_iter().flat_map(bits).collect()
}

fn address_space((code, space): (usize, AddressSpace)) -> [String; 3] {
    let meaning = match space {
        AddressSpace::Card => "card memory",
        AddressSpace::Host => "host memory at an IOVA",
        AddressSpace::Stream0 | AddressSpace::Stream1 => "reserved for a stream port: BadField",
    };
    [code.to_string(), space.name().to_owned(), meaning.to_owned()]
}

fn flags() -> impl Iterator<Item = [String; 3]> {
    Flags::all().iter_names().map(|(name, flag)| {
        [flag.bits().trailing_zeros().to_string(), name.to_lowercase(), flag_meaning(flag).to_owned()]
    })
}

const fn flag_meaning(flag: Flags) -> &'static str {
    match flag {
        Flags::EAGER => "send eagerly at any size; refused above the receive buffer of a link",
        Flags::RENDEZVOUS => "use rendezvous at any size",
        Flags::INTERRUPT => "raise the queue's interrupt with the completion",
        Flags::LAST => "last instruction of a resident program",
        Flags::FENCE => "wait until all instructions before it have ended; needs a card with more than one lane",
        Flags::TREE => "the switches of the network compute the collective, along a tree (In the switches)",
        Flags::DOUBLING => "the switches compute it by recursive doubling",
        Flags::HALVING => "the switches compute it by recursive halving",
        Flags::RING => "the switches compute it around a ring; for a power of two of ranks",
        _ => "",
    }
}

fn operation(operation: Operation) -> [String; 4] {
    let reads: Vec<&str> = FIELDS.iter().filter(|field| field.is_read_by(operation)).map(|field| field.name).collect();
    [(operation as u8).to_string(), operation.to_string(), reads.join(", "), operation.meaning().to_owned()]
}

fn reduction(reduction: Reduction) -> [String; 4] {
    let types: Vec<&str> = Element::ALL.iter().filter(|one| reduction.takes(**one)).map(|one| one.name()).collect();
    [(reduction as u8).to_string(), reduction.to_string(), types.join(" "), reduction.meaning().to_owned()]
}

/// The completion's fields: first bit, name, meaning.
const COMPLETION: [(usize, &str, &str); 10] = [
    (0, "issued", "free-running cycle counter when the instruction was issued"),
    (48, "tag", "tag of the instruction"),
    (64, "t1", "T1: cycles from issue until all beats were counted out"),
    (104, "bytes, low", "bytes counted out and in on links, bits 0 to 23"),
    (128, "t2", "T2: cycles from issue until complete, including the returning signals of all destinations"),
    (168, "bytes, high", "bits 24 to 47 of the same"),
    (192, "arrival", "cycles from issue until the last byte for this card was counted in; 0 without data"),
    (232, "status", "result of the instruction (Status)"),
    (
        240,
        "detail",
        "depends on the status: the node of a peer, the offset of a field, or as described with the operation",
    ),
    (255, "phase", "inverts each time the ring wraps; 1 in the first pass"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_of_the_document_are_those_of_the_code() {
        let document = include_str!("../../docs/isa.md");
        assert!(document == render(document), "run: cargo run -p cmdseq --example isa");
        let named = document.lines().filter(|line| line.starts_with(MARKER)).count();
        assert_eq!(named, 9);
    }

    #[test]
    fn everything_has_a_meaning() {
        assert!(Flags::all().iter().all(|flag| !flag_meaning(flag).is_empty()));
        assert!(Operation::ALL.iter().all(|operation| !operation.meaning().is_empty()));
    }
}

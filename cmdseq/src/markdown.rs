//! Renders the instruction and the completion as `docs/isa.md`.

use std::fmt::Write;

use crate::instruction::{
    self, ARGUMENTS, DESTINATION_SHIFT, Fields, OPERAND_ARGUMENT, OPERAND_HOST, OPERAND_STRIPED, SOURCE_SHIFT, VERSION,
    WORLD, offset,
};
use crate::{Flags, Operation, Status, completion};

/// The whole document. A test compares it with the file that is checked in.
pub fn render() -> String {
    let mut out = String::from(INTRODUCTION);
    instruction_table(&mut out);
    operands(&mut out);
    flags(&mut out);
    operations(&mut out);
    out.push_str(LAYOUTS);
    out.push_str(EAGER);
    completion_table(&mut out);
    statuses(&mut out);
    out
}

const INTRODUCTION: &str = "# Instructions and completions

Made from the code of `cmdseq` (`cargo run -p cmdseq --example isa > docs/isa.md`); a test compares the two.

The host hands a card's command sequencer *instructions* of 64 bytes and gets *completions* of 32 bytes. All fields are
little-endian. The sequencer runs instructions one after another; the next is issued when the one before is complete.
";

/// The instruction's fields: offset, bytes, name, meaning.
const FIELDS: [(usize, usize, &str, &str); 20] = [
    (offset::VERSION, 1, "version", "version of the word"),
    (offset::OPERATION, 1, "operation", "what to do; see below"),
    (offset::TAG, 2, "tag", "comes back in the completion"),
    (offset::COMMUNICATOR, 2, "communicator", "index into the card's table of communicators"),
    (offset::ROOT, 2, "root", "rank that distributes or collects; of a sendrecv, the rank received from"),
    (offset::PEER, 2, "peer", "the other rank of a point to point operation; of a sendrecv, the rank sent to"),
    (offset::ELEMENT, 1, "element type", "zero: room for reductions"),
    (offset::REDUCTION, 1, "reduction", "zero: room for reductions"),
    (offset::ALGORITHM, 1, "algorithm", "zero: room for a choice by the card"),
    (offset::OPERANDS, 1, "operands", "space and layout of source and destination; see below"),
    (offset::FLAGS, 2, "flags", "how to run it; see below"),
    (offset::SOURCE, 8, "source", "byte address data comes from"),
    (offset::DESTINATION, 8, "destination", "byte address data goes to"),
    (offset::BYTES, 8, "bytes", "bytes of one block: what one pair exchanges in one direction"),
    (
        offset::EXTENT,
        8,
        "extent",
        "scatter, gather, allgather: bytes of a divided vector whose last blocks are short or empty (0: all blocks are \
         full); a fill's pattern; a delay's cycles; a resident program's slot",
    ),
    (offset::SIGNAL_ID, 2, "signal id", "zero: room for signals"),
    (offset::LOOP_COUNT, 2, "loop count", "zero: room for loops"),
    (offset::SIGNAL_VALUE, 4, "signal value", "zero: room for signals"),
    (offset::LOOP_BODY, 2, "loop body", "zero: room for loops"),
    (
        offset::ARGUMENT_INDEX,
        1,
        "argument index",
        "bits 0 to 3: launch argument added to source, bits 4 to 7: to destination; zero if the operand names none",
    ),
];

fn instruction_table(out: &mut String) {
    let _ = writeln!(out, "\n## Instruction, {} bytes, version {VERSION}\n", instruction::BYTES);
    let _ = writeln!(out, "| byte | bits | field | meaning |\n|---|---|---|---|");
    for (at, bytes, name, meaning) in FIELDS {
        row(out, at, bytes, name, meaning);
    }
    row(out, offset::RESERVED, 1, "reserved", "zero");
    row(out, offset::CHECKSUM, 4, "checksum", "CRC-32C (Castagnoli) of the bytes before it");
    let _ = writeln!(
        out,
        "\nThe card checks, in this order: checksum, version, operation, fields. A field that an operation does not read \
         must be zero.\nCommunicator {WORLD} always exists: all cards of the fabric in the order of their nodes."
    );
}

fn row(out: &mut String, at: usize, bytes: usize, name: &str, meaning: &str) {
    let last = at + bytes - 1;
    let place = if bytes == 1 { at.to_string() } else { format!("{at} to {last}") };
    let _ = writeln!(out, "| {place} | {} to {} | {name} | {meaning} |", 8 * at, 8 * last + 7);
}

fn operands(out: &mut String) {
    let _ = writeln!(out, "\n### Operands (byte {})\n\n| bit | meaning |\n|---|---|", offset::OPERANDS);
    for (name, shift) in [("source", SOURCE_SHIFT), ("destination", DESTINATION_SHIFT)] {
        for (bit, meaning) in [
            (OPERAND_HOST, "space: 0 card memory, 1 host memory at an IOVA"),
            (OPERAND_STRIPED, "layout: 0 block, 1 striped"),
            (OPERAND_ARGUMENT, "a launch argument is added to the address; only in a resident program"),
        ] {
            let _ = writeln!(out, "| {} | {name} {meaning} |", bit.trailing_zeros() + shift);
        }
        let _ = writeln!(out, "| {} | zero |", shift + 3);
    }
    let _ = writeln!(
        out,
        "\nOnly copy takes either space on either side; group and store read host memory; all others work on card memory. \
         Only\noperations on a communicator (group is none) take the striped layout. A launch names no argument; it \
         passes {ARGUMENTS}, numbered from 0."
    );
}

fn flags(out: &mut String) {
    let _ = writeln!(out, "\n### Flags (bytes {} to {})\n", offset::FLAGS, offset::FLAGS + 1);
    let _ = writeln!(out, "| bit | flag | meaning |\n|---|---|---|");
    for (name, flag) in Flags::all().iter_names() {
        let bit = flag.bits().trailing_zeros();
        let _ = writeln!(out, "| {bit} | {} | {} |", name.to_lowercase(), flag_meaning(flag));
    }
    let _ = writeln!(out, "\nThe other bits are zero. Eager and rendezvous together are refused.");
}

const fn flag_meaning(flag: Flags) -> &'static str {
    match flag {
        Flags::EAGER => "send eagerly whatever the size; refused past the receive buffer of a link",
        Flags::RENDEZVOUS => "use rendezvous whatever the size",
        Flags::INTERRUPT => "raise the queue's interrupt with the completion",
        Flags::LAST => "last instruction of a resident program",
        _ => "",
    }
}

fn operations(out: &mut String) {
    let _ = writeln!(out, "\n## Operations\n\n| code | name | reads | meaning |\n|---|---|---|---|");
    for operation in Operation::ALL {
        let reads = field_names(operation.fields()).join(", ");
        let _ = writeln!(out, "| {} | {operation} | {reads} | {} |", *operation as u8, operation.meaning());
    }
    let _ = writeln!(
        out,
        "\nSend and recv of a pair, and what the members of a communicator run on it, must come in one order on all cards, \
         with the same\nbytes, extent and root, and all eager or all rendezvous. A sendrecv may meet a send or recv, and \
         one to and from its own rank copies."
    );
}

fn field_names(fields: Fields) -> Vec<&'static str> {
    let Fields { communicator, root, peer, source, destination, bytes, extent } = fields;
    let named = [
        (communicator, "communicator"),
        (root, "root"),
        (peer, "peer"),
        (source, "source"),
        (destination, "destination"),
        (bytes, "bytes"),
        (extent, "extent"),
    ];
    named.into_iter().filter(|(is_read, _)| *is_read).map(|(_, name)| name).collect()
}

const LAYOUTS: &str = "
## Where blocks lie

Card memory is cut into stripes of 2K bytes; the lower K bytes of a stripe are in one pseudo channel and the upper K in
another (with more cards than memory I/Os, K is smaller and stripes share channels). The card says K in its registers. A pseudo
channel that is read and written at once gives each half of its rate:
sources in the lower halves and destinations in the upper ones, or the reverse, do not share.

| layout | a side of several blocks | a side of one block |
|---|---|---|
| block | block i at address + i * bytes | at address |
| striped | block i at address + 2K * i | the block exchanged with rank i at address + 2K * i |

A striped block has at most K bytes. The one source of broadcast and allgather, which goes to all, counts as exchanged with
the card's own rank. The block a rank keeps for itself is copied on the card, unless source and destination of it are the
same address. Apart from that nothing that is written may overlap what is read or written by the same instruction on the
same card, and alltoall never works in place.

With extent E not zero, block i of scatter, gather and allgather has the bytes from i * bytes to (i + 1) * bytes of a vector
of E bytes: the last ones may be short or empty. Empty blocks are neither sent nor waited for.
";

const EAGER: &str = "
## Eager and rendezvous

Each card decides once for an instruction, by `bytes`, its largest block. Up to the card's eager limit it sends at once, into the
receive buffers of the destinations. Past it, or with the flag rendezvous, each destination signals its sources that it is ready,
and a source sends when all of its destinations have. The flag eager sends at once past the limit too, up to the size of the
receive buffer. When a destination has counted all of a block, it signals the source.
";

/// The completion's fields: first bit, bits, name, meaning.
const COMPLETION: [(usize, usize, &str, &str); 10] = [
    (0, 48, "issued", "value of the free-running cycle counter when the instruction was issued"),
    (48, 16, "tag", "tag of the instruction"),
    (64, 40, "t1", "T1: cycles from issue until all beats were counted out"),
    (104, 24, "bytes, low", "bytes counted out and in on links, bits 0 to 23"),
    (128, 40, "t2", "T2: cycles from issue until complete, with the signals of all destinations back"),
    (168, 24, "bytes, high", "bits 24 to 47 of the same"),
    (192, 40, "arrival", "cycles from issue until the last byte for this card was counted in; 0 if none was"),
    (232, 8, "status", "what became of the instruction; see below"),
    (240, 15, "detail", "what the status is about: the node of a peer, or the offset of a field"),
    (255, 1, "phase", "turns each time the ring wraps; 1 in the first pass"),
];

fn completion_table(out: &mut String) {
    let _ = writeln!(out, "\n## Completion, {} bytes\n", completion::BYTES);
    let _ = writeln!(out, "| byte | bits | field | meaning |\n|---|---|---|---|");
    for (first, bits, name, meaning) in COMPLETION {
        let last = first + bits - 1;
        let (from, to) = (first / 8, last / 8);
        let bytes = if from == to { from.to_string() } else { format!("{from} to {to}") };
        let bits = if first == last { first.to_string() } else { format!("{first} to {last}") };
        let _ = writeln!(out, "| {bytes} | {bits} | {name} | {meaning} |");
    }
    let _ = writeln!(
        out,
        "\nThe card writes the eight bytes from {} last; they hold the phase bit. A slot of the ring is new when its phase bit is \
         that of the\npass the host is in: 1 in the first, then 0, and so on; the ring starts zeroed. Counts wrap.",
        completion::PHASE_WORD
    );
}

fn statuses(out: &mut String) {
    let _ = writeln!(out, "\n## Status\n\n| code | name | meaning |\n|---|---|---|");
    for status in Status::ALL {
        let _ = writeln!(out, "| {} | {status:?} | {status} |", status.code());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_what_the_code_says() {
        let file = include_str!("../../docs/isa.md");
        assert!(file == render(), "run: cargo run -p cmdseq --example isa > docs/isa.md");
    }

    #[test]
    fn fields_fill_the_words_without_gaps() {
        let mut next = 0;
        for (at, bytes, name, _) in FIELDS {
            assert_eq!(at, next, "{name}");
            next = at + bytes;
        }
        assert_eq!((next, offset::RESERVED + 1), (offset::RESERVED, offset::CHECKSUM));
        assert_eq!(offset::CHECKSUM + 4, instruction::BYTES);
        let mut next = 0;
        for (first, bits, name, _) in COMPLETION {
            assert_eq!(first, next, "{name}");
            next = first + bits;
        }
        assert_eq!(next, 8 * completion::BYTES);
    }

    #[test]
    fn everything_is_explained() {
        assert!(Flags::all().iter().all(|flag| !flag_meaning(flag).is_empty()));
        assert!(Operation::ALL.iter().all(|operation| !operation.meaning().is_empty()));
    }
}

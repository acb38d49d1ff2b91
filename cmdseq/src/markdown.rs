//! Renders the instruction and the completion as `docs/isa.md`.

use std::fmt::Write;

use crate::communicator::{Format, GENERATION_BITS, GENERATIONS, INDEX_BITS};
use crate::instruction::{
    self, ARGUMENTS, DESTINATION_SHIFT, Fields, OPERAND_ARGUMENT, OPERAND_HOST, OPERAND_STRIPED, SOURCE_SHIFT, VERSION,
    WORLD, offset,
};
use crate::{Element, Flags, Operation, Reduction, Status, completion};

/// The whole document. A test compares it with the file that is checked in.
pub fn render() -> String {
    let mut out = String::from(INTRODUCTION);
    instruction_table(&mut out);
    operands(&mut out);
    flags(&mut out);
    operations(&mut out);
    communicators(&mut out);
    out.push_str(LOOPS);
    out.push_str(LAYOUTS);
    out.push_str(TABLES);
    out.push_str(SIGNALS);
    reductions(&mut out);
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
const FIELDS: [(usize, usize, &str, &str); 21] = [
    (offset::VERSION, 1, "version", "version of the word"),
    (offset::OPERATION, 1, "operation", "what to do; see below"),
    (offset::TAG, 2, "tag", "comes back in the completion"),
    (offset::COMMUNICATOR, 2, "communicator", "the communicator: entry and generation; see below"),
    (offset::ROOT, 2, "root", "rank that distributes or collects; of a sendrecv, the rank received from"),
    (offset::PEER, 2, "peer", "the other rank of a point to point operation; of a sendrecv, the rank sent to"),
    (offset::ELEMENT, 1, "element type", "type of what a reduction folds; see below"),
    (offset::REDUCTION, 1, "reduction", "what is done with the elements; see below"),
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
        "scatter, gather, allgather, reduce_scatter: bytes of a divided vector whose last blocks are short or empty (0: all blocks are \
         full); a fill's pattern; a delay's cycles; a resident program's or a table's slot; address of the own contribution to a \
         sendrecv_reduce; what a loop adds to a launch argument",
    ),
    (offset::SIGNAL_ID, 2, "signal id", "number of a signal of a card"),
    (offset::LOOP_COUNT, 2, "loop count", "how often a loop's body is run"),
    (offset::SIGNAL_VALUE, 4, "signal value", "what is added to a signal, or waited for and subtracted"),
    (offset::LOOP_BODY, 2, "loop body", "instructions of a loop's body, which follow it"),
    (
        offset::ARGUMENT_INDEX,
        1,
        "argument index",
        "bits 0 to 3: launch argument added to source, bits 4 to 7: to destination; zero if the operand names none",
    ),
    (
        offset::EXTENT_ARGUMENT,
        1,
        "extent argument",
        "1 more than the launch argument that is added to the extent of a sendrecv_reduce, or to which a loop adds its extent; \
         zero if there is none",
    ),
];

fn instruction_table(out: &mut String) {
    let _ = writeln!(out, "\n## Instruction, {} bytes, version {VERSION}\n", instruction::BYTES);
    let _ = writeln!(out, "| byte | bits | field | meaning |\n|---|---|---|---|");
    for (at, bytes, name, meaning) in FIELDS {
        row(out, at, bytes, name, meaning);
    }
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
        "\nOnly copy takes either space on either side; group, store and table read host memory; all others work on card memory. \
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
         with the same\nbytes, extent, root, element type and reduction, and all eager or all rendezvous. A sendrecv may meet a send or recv, and \
         one to and from its own rank copies."
    );
}

fn field_names(fields: Fields) -> Vec<&'static str> {
    let Fields {
        communicator,
        root,
        peer,
        source,
        destination,
        bytes,
        extent,
        combine,
        signal,
        rounds,
        extent_argument,
    } = fields;
    let named = [
        (communicator, "communicator"),
        (root, "root"),
        (peer, "peer"),
        (source, "source"),
        (destination, "destination"),
        (bytes, "bytes"),
        (extent, "extent"),
        (extent_argument, "extent argument"),
        (combine, "element type, reduction"),
        (signal, "signal id, signal value"),
        (rounds, "loop count, loop body"),
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

A striped block has at most K bytes. The one source of broadcast, allgather, allreduce, scan and exscan, which goes to several
cards, and the result of every reduction count as exchanged with the card's own rank. The block a rank keeps for itself is copied on the card, unless source and destination of it are the
same address. Apart from that nothing that is written may overlap what is read or written by the same instruction on the
same card, in card memory or in host memory, and alltoall never works in place.

With extent E not zero, block i of scatter, gather, allgather and reduce_scatter has the bytes from i * bytes to (i + 1) * bytes of a vector
of E bytes: the last ones may be short or empty. Empty blocks are neither sent nor waited for;
so a send, receive or exchange of 0 bytes ends by itself, whether or not the other rank has one.
";

const TABLES: &str = "
## Tables of the vector forms

A table has an entry for each rank of the communicator: displacement and length of its block, 8 bytes each, in bytes. The
block begins at the operand's address plus the displacement; of an empty block, the displacement does not matter. Displacements
are multiples of the alignment of addresses. The card says how many slots for tables it has; a reset empties them.

| operation | table | is read by | lists |
|---|---|---|---|
| scatterv | extent | the root; for others extent is zero | blocks of the root's source |
| gatherv | extent | the root; for others extent is zero | blocks of the root's destination |
| allgatherv | extent | every rank; the lengths are the same on all | blocks of the destination |
| alltoallv | extent, bits 0 to 15 | every rank | blocks of the source |
| alltoallv | extent, bits 16 to 31 | every rank | blocks of the destination |

`bytes` is the length of the own block, and has to be that of its entry; an alltoallv's own block has one length in both tables. A table
that is missing, has another number of entries or another length of the own block is refused, with the slot as detail. What two cards think of the
length of a block between them has to be the same too: a card that gets another number of bytes fails. The layout is
block; blocks that are sent may overlap one another.
";

const SIGNALS: &str = "
## Signals

A card has counters of 32 bits, zero after a reset; it says how many. put_signal adds to one of another card's when the bytes that it has
written are counted there, and so can be read; `bytes` may be 0. wait_signal waits until a signal of its own card is at
least the value, and subtracts it: what is left stays. An abort ends a wait and changes no signal. A signal that would exceed 32 bits stays
as it is, and the put_signal fails, with the signal as detail. Between cards that meet in nothing else, this is what puts their instructions in order.
";

fn reductions(out: &mut String) {
    out.push_str(REDUCTIONS);
    let _ = writeln!(out, "\n### Element types (byte {})\n\n| code | name | meaning |\n|---|---|---|", offset::ELEMENT);
    for element in Element::ALL {
        let _ = writeln!(out, "| {} | {element} | {} |", *element as u8, element.meaning());
    }
    let _ = writeln!(out, "\n### Reductions (byte {})\n", offset::REDUCTION);
    let _ = writeln!(out, "| code | name | takes | meaning |\n|---|---|---|---|");
    for reduction in Reduction::ALL {
        let types: Vec<&str> = Element::ALL.iter().filter(|one| reduction.takes(**one)).map(|one| one.name()).collect();
        let (code, types) = (*reduction as u8, types.join(" "));
        let _ = writeln!(out, "| {code} | {reduction} | {types} | {} |", reduction.meaning());
    }
    out.push_str(ARITHMETIC);
    out.push_str(ORDERS);
}

const REDUCTIONS: &str = "
## Reductions

Reduce, allreduce, reduce_scatter, scan and exscan fold vectors of `bytes`, element by element, where they come in: each rank's
contribution goes straight to every card that needs it, and the units behind the receiving side of the switch make one stream of
all, which is written to memory. With `a . b` for the reduction of two elements and c_r for the contribution of rank r of N:

| operation | result | at |
|---|---|---|
| reduce | (((c_0 . c_1) . c_2) ... . c_(N-1)) | rank root |
| allreduce | the same, with the same bits | every rank |
| reduce_scatter | the same of block i of each source | rank i |
| scan | (((c_0 . c_1) . c_2) ... . c_i) | rank i |
| exscan | (((c_0 . c_1) . c_2) ... . c_(i-1)) | rank i > 0; the destination of rank 0 is not written |

This left fold in the order of ranks is what each of these instructions is defined to give: on every run, every card and whatever
comes in first. The result may be written over the own contribution if that is not sent to another card (reduce at the root,
reduce_scatter, the last rank of a scan); otherwise a reduction does not work in place. A contribution is acknowledged when the
result of all is counted: until then its source must not change. A card says in its registers which element types and reductions
it has; others, types that a reduction does not take, and `bytes` or `extent` that are not whole elements are refused.
";

const ARITHMETIC: &str = "
Floating-point sums and products round to nearest, ties to even; subnormal numbers are kept. Elements of f16 and bf16 are widened to
f32, folded in f32, and rounded once, when all contributions are folded. A NaN that comes out of a fold is the quiet NaN with
positive sign and no payload (f16 0x7e00, bf16 0x7fc0, f32 0x7fc00000, f64 0x7ff8000000000000), whichever NaN went in. minloc and
maxloc take a NaN for a value beyond all others, and -0.0 for less than +0.0; the bytes of a result pair that belong to neither
value nor index are zero. A single contribution (one rank, rank 0 of a scan, rank 1 of an exscan) is copied bit for bit.
";

const ORDERS: &str = "
### Orders of the planner's algorithms

One instruction folds in the order of ranks. An algorithm of several instructions folds what came of folds, in an order of its
own: the same on every run and at every rank. `[a b c]` stands for the left fold `((a . b) . c)` that is rounded once behind the
last, `[a]` alone for a itself, and a `. b` between two for `[a b]`. Every fold in these is rounded to the type of the elements
before it goes on: with f16 and bf16, each hop rounds.

| algorithm | operations | result |
|---|---|---|
| direct, multipath | all that reduce; reduce and allreduce | `[c_0 c_1 ... c_(N-1)]`; of scan and exscan, as far as they go |
| binomial | reduce, allreduce | P(c_0, ..., c_(N-1)), whatever the root |
| recursive-doubling | allreduce | P(d_0, ..., d_(M-1)) |
| | scan | S(i, k) with the least k of which 2^k > i, where S(i, 0) = c_i, and S(i, k) = S(i - 2^(k-1), k-1) . S(i, k-1), or S(i, k-1) if there is no rank i - 2^(k-1) |
| halving-doubling | reduce, allreduce, reduce_scatter | Q(d_0, ..., d_(M-1)), whatever the root |
| ring | reduce | (((c_0 . c_1) . c_2) ... . c_(N-1)) |
| | scan | (((c_0 . c_1) . c_2) ... . c_i) |
| | reduce_scatter | of the block of rank b: (((c_(b+1) . c_(b+2)) ... . c_(N-1)) . c_0) ... . c_b |
| | allreduce | the same of chunk b. Chunks have ceil(B / N) bytes of the B, rounded up to whole beats |
| two-level | reduce, allreduce | `[R_0 R_1 ... R_(G-1)]` with the fold R_g = `[c_g0 c_g1 ... ]` of row g |
| | reduce_scatter | `[K_0 K_1 ... ]` with the fold K_i = `[c_0i c_1i ... ]` of column i |
| | scan | in row 0 `[c_00 ... c_0i]`; in row g `[R_0 ... R_(g-1)]` . `[c_g0 ... c_gi]` |
| | exscan | in row 0 `[c_00 ... c_0(i-1)]`; in row g `[R_0 ... R_(g-1)]` . `[c_g0 ... c_g(i-1)]`, and without the second at column 0 |

exscan at rank i is scan at rank i - 1, but for two-level. c_gi is the contribution of the card in row g and column i of a
Dragonfly of G rows.
P folds neighbours, then neighbours of what came of them, until one is left: P(a, b, c, d, e) = ((a . b) . (c . d)) . e.
Q folds the lower half with the upper: Q(a, b, c, d) = (a . c) . (b . d). M is the greatest power of two that is not above N; with
X = N - M, d_i = c_2i . c_(2i+1) for i < X, and d_i = c_(i+X) for the others.

All elements of f16, bf16, f32 and f64 can show the order in sums and products, which round. Nothing else can: integers wrap, and
minimum, maximum, minloc and maxloc are the same in any order, NaNs and signs of zeros too.

### The order of ranks (`--order rank`)

Asked for the order of ranks, the planner gives (((c_0 . c_1) . c_2) ... . c_(N-1)), of scan and exscan as far as they go, with
each fold of two rounded to the type of the elements: what a loop over the ranks in that type gives. It is the one order that
every fabric has: cards fold two at a time wherever there is a link, over another card from one row of a Dragonfly to the next.
ring and two-level go from rank to rank for it. direct and multipath take it for f32 and f64, where rounding at each rank and
rounding once are the same; of f16 and bf16 they are refused. The others are refused, for sums and products of floats by more than
two ranks. What cannot show the order is left to any algorithm. All that take it give the same bits.
";

fn communicators(out: &mut String) {
    let Format { rank_bits, entries } = Format::PUBLISHED;
    let (bits, entry) = (Format::PUBLISHED.bits(), Format::PUBLISHED.entry_bits());
    let (size, nodes) = (GENERATION_BITS, GENERATION_BITS + 2 * rank_bits);
    let ranks = Format::PUBLISHED.ranks();
    let _ = write!(
        out,
        "
## Communicators

A card keeps the communicators that it is a member of in a table. Of the id that an instruction names, bits 0 to {} are the entry,
bits {INDEX_BITS} to {} the *generation*, and the rest is zero. The card runs an instruction only if its id is exactly the one in the entry;
otherwise it refuses it as BadCommunicator. So as long as a host gives a card no id twice, no instruction means another communicator than
it was made for. The driver does so with those that it chooses, from one reset of a card to the next: of the entries that are free it takes the one with most of its {GENERATIONS}
generations left, and if none is left on the cards of a new communicator, it refuses that, until they are reset. Between two resets that is {} communicators on the
same cards. Only what no one but plans was told is given to plans again.

Group fills an entry that is free. Once more with the same id and members it changes nothing; over another communicator, or with
other members, it is refused, and detail is the id in the entry. Free empties the entry of exactly that id. Neither takes the id of all cards,
0, nor another generation of entry 0. A reset frees all entries but that.

An entry is what MPI-FPGA keeps (sections 3.1 to 3.3): the ranks that a card talks to in binomial trees, recursive doubling and recursive
halving are those that differ from its own in one bit, and no more than log2 of the size. With L bits to a rank and N entries, the
table has (L (L + 2) + 8) N bits: {bits} for {ranks} ranks and {entries} entries, {entry} to each:

| bits of an entry | |
|---|---|
| 0 to {} | generation |
| {size} to {} | size - 1 |
| {} to {} | own rank; larger than size - 1 in an entry that is free |
| {nodes} to {} | node of rank own ^ 2^i at i times {rank_bits}, for i from 0; 0 if there is no such rank |

What an instruction uses of the entry is the own rank, and that the id is there. The operations of this instruction set go straight to any
member: root, peer, and in a collective all of them, over links of their own. For those a card keeps, beside the table, the whole list of
members by rank: 2 bytes to a member, of as many members as its registers say (COMMUNICATOR_RANKS), so for {entries} communicators of {ranks} ranks 4 MiB where the
table has {} B. The nodes in the entry are stored, and compared when the same id is defined again; nothing else reads them. In MPI-FPGA it is the switch that runs tree and recursive
algorithms, and it finds the partner of each step there. Here such algorithms are programs, one instruction to a step, and the
planner names the partner in each by its rank.
",
        INDEX_BITS - 1,
        INDEX_BITS + GENERATION_BITS - 1,
        (entries - 1) * GENERATIONS,
        size - 1,
        size + rank_bits - 1,
        size + rank_bits,
        nodes - 1,
        entry - 1,
        bits / 8,
    );
}

const LOOPS: &str = "
## Loops

Loop stands in a resident program only; from the ring it is refused as BadOperation. Its body, the next `body` instructions, runs `count`
times, and with each round launch argument `extent argument` grows by `extent`, wrapping: what the body adds to its addresses moves on, and
what is behind the loop sees the argument after the last round. The loop is an
instruction like others before its first round, and takes one more dispatch before each other round. Store refuses a program in which a loop has no round or no body, the body goes on behind the program, or there is a loop in
it; detail is the place of the loop. So every resident program ends.
";

const EAGER: &str = "
## Eager and rendezvous

Each card decides once for an instruction, by `bytes`, its largest block. A vector form, of which not every card knows the largest, uses
rendezvous unless it has the flag eager. Up to the card's eager limit it sends at once, into the
receive buffers of the destinations. Past it, or with the flag rendezvous, each destination signals its sources that it is ready,
and a source sends when all of its destinations have. The flag eager sends at once past the limit too, up to the size of the
receive buffer. When a destination has counted all of a block, it signals the source; of a fold, when it has counted the result.

One-sided transfers do not go through receive buffers. The data of an rdma_write or put_signal, and the reply to an rdma_read, is
written to memory when it comes in, and shares the link with blocks. So it passes an eager piece that was sent before it on the same link and
still lies in the receive buffer: the order on a link orders nothing between the two. A barrier, a signal or another exchange does.
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
    let (status, detail) = (Status::OutOfRange, completion::OUT_OF_MEMORY);
    let _ = writeln!(
        out,
        "\nThe detail of {status:?} is {detail} on a mock card if the range lies inside card memory, and the fabric's memory \
         budget does not hold\nit; otherwise the detail is 0."
    );
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
        assert_eq!(next, offset::CHECKSUM);
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

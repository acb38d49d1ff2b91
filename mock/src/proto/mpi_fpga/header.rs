//! Headers: 8 bytes of a processor packet, 6 bytes of a network packet (figure 4B of the paper).
//!
//! The paper gives the widths of context id (5 bits), operation (4), algorithm (2) and destination (16), and the sizes of both
//! headers. What else a switch needs stands in fields of our choice, and behind the headers: the number of the call in 4 bytes,
//! and in a network packet block, chunk and root in 6 bytes more. The number tells calls on one communicator apart: a rank that
//! only gives data may be calls ahead of the others.

use cmdseq::communicator::ContextId;
use cmdseq::reduction::{Combine, Element, Reduction};
use cmdseq::switch::{
    Call, Chunk, Collective, Form, HEADER_BYTES, Head, NAMES_BYTES, PHIT_BYTES, PROCESSOR_HEADER_BYTES,
};

use crate::net::flit::{FLIT_BYTES, Flit, train};

// A flit of the routers is a phit.
const _: () = assert!(FLIT_BYTES == PHIT_BYTES);
/// Place of the number of the call behind block, chunk and root.
const NUMBER_AT: usize = 6;

/// Operations by their code; 0 is none.
const OPERATIONS: [Reduction; 6] =
    [Reduction::Sum, Reduction::Min, Reduction::Max, Reduction::Xor, Reduction::And, Reduction::Or];

/// A packet between switches, or from a switch to a processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) head: Head,
    /// Address that it goes to.
    pub(crate) destination: u16,
    /// The sender, as its receiver knows it.
    pub(crate) tag: u8,
    pub(crate) payload: Vec<u8>,
}

impl Packet {
    /// Returns the phits: a power of two of bytes, as the header has the binary logarithm of the size only.
    pub(crate) fn flits(&self) -> Vec<Flit> {
        let used = HEADER_BYTES + NAMES_BYTES + self.payload.len();
        let size = used.next_power_of_two().max(PHIT_BYTES);
        let fields = fields(self.head.context, self.head.collective, self.head.form, self.head.combine);
        let word =
            fields | u64::from(self.destination) << 18 | u64::from(size.ilog2()) << 34 | u64::from(self.tag) << 38;
        let mut bytes = vec![0; size];
        bytes[..HEADER_BYTES].copy_from_slice(&word.to_le_bytes()[..HEADER_BYTES]);
        let names = [self.head.chunk.block, self.head.chunk.index, self.head.root];
        for (to, name) in bytes[HEADER_BYTES..].chunks_mut(2).zip(names) {
            to.copy_from_slice(&name.to_le_bytes());
        }
        bytes[HEADER_BYTES + NUMBER_AT..][..4].copy_from_slice(&self.head.number.to_le_bytes());
        bytes[HEADER_BYTES + NAMES_BYTES..used].copy_from_slice(&self.payload);
        train(&bytes).collect()
    }

    /// Reads a packet back; `None` if no packet has these bytes. The payload is as long as the packet has room for.
    pub(crate) fn read(bytes: &[u8]) -> Option<Packet> {
        let word = bytes.first_chunk::<8>().map(|word| u64::from_le_bytes(*word))?;
        let (context, collective, form, combine) = read_fields(word)?;
        let name = |at: usize| bytes.get(HEADER_BYTES + 2 * at..)?.first_chunk().map(|name| u16::from_le_bytes(*name));
        let chunk = Chunk { block: name(0)?, index: name(1)? };
        let number = u32::from_le_bytes(*bytes.get(HEADER_BYTES + NUMBER_AT..)?.first_chunk()?);
        let head = Head { context, collective, form, combine, root: name(2)?, number, chunk };
        let payload = bytes.get(HEADER_BYTES + NAMES_BYTES..)?.to_vec();
        Some(Packet { head, destination: destination(word), tag: (word >> 38) as u8, payload })
    }
}

/// Returns the destination in the first phit of a packet.
pub(crate) fn destination_of(flit: &Flit) -> u16 {
    flit.word.first_chunk::<8>().map_or(0, |word| destination(u64::from_le_bytes(*word)))
}

fn destination(word: u64) -> u16 {
    (word >> 18) as u16
}

/// Bits of the number of a call, from the lowest: the calls counted before it, the lowest node of the communicator, how often its
/// calls were ended, and its generation.
const COUNT_BITS: u32 = 16;
const LEADER_BITS: u32 = 9;
const ENDED_BITS: u32 = 3;

/// Returns the number of the first call on a communicator whose lowest node is `leader`, after its calls were ended `ended` times.
pub(crate) fn first_number(id: ContextId, leader: u32, ended: u32) -> u32 {
    let era = id.generation() << ENDED_BITS | ended & ((1 << ENDED_BITS) - 1);
    (era << LEADER_BITS | leader) << COUNT_BITS
}

/// Returns the era of a call: the part of its number that is another after calls were ended, and in another communicator.
pub(crate) fn era_of(number: u32) -> u16 {
    (number >> COUNT_BITS) as u16
}

/// Returns the lowest node of the communicator of a call.
pub(crate) fn leader_of(number: u32) -> u16 {
    era_of(number) & ((1 << LEADER_BITS) - 1)
}

/// Returns how often the calls on the communicator were ended before a call, modulo 8.
pub(crate) fn ended_of(number: u32) -> u32 {
    number >> (COUNT_BITS + LEADER_BITS) & ((1 << ENDED_BITS) - 1)
}

/// Returns the header of a processor packet, with the number of the call behind it.
pub(crate) fn processor_header(call: &Call, number: u32) -> [u8; PROCESSOR_HEADER_BYTES] {
    let fields = fields(call.context.index() as u8, call.collective, call.form, call.combine);
    let word = fields | u64::from(call.root) << 18 | u64::from(call.bytes) << 34;
    let mut bytes = [0; PROCESSOR_HEADER_BYTES];
    bytes[..8].copy_from_slice(&word.to_le_bytes());
    bytes[8..].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Reads the header of a processor packet; `None` if no call has it.
pub(crate) fn read_processor_header(bytes: [u8; PROCESSOR_HEADER_BYTES]) -> Option<(Call, u32)> {
    let word = u64::from_le_bytes(*bytes.first_chunk()?);
    let number = u32::from_le_bytes(*bytes.last_chunk()?);
    let (context, collective, form, combine) = read_fields(word)?;
    let context = ContextId::new(context.into(), 0)?;
    let call = Call { context, collective, form, combine, root: destination(word), bytes: (word >> 34) as u32 };
    Some((call, number))
}

/// The 18 bits that both headers begin with.
fn fields(context: u8, collective: Collective, form: Form, combine: Option<Combine>) -> u64 {
    let code = |found: Option<usize>| found.unwrap_or(0) as u64;
    let operation =
        combine.map_or(0, |one| 1 + code(OPERATIONS.iter().position(|operation| *operation == one.reduction)));
    let element = combine.map_or(0, |one| code(Element::ALL.iter().position(|element| *element == one.element)));
    let collective = code(Collective::ALL.iter().position(|one| *one == collective));
    let form = code(Form::ALL.iter().position(|one| *one == form));
    u64::from(context) | operation << 5 | form << 9 | collective << 11 | element << 14
}

fn read_fields(word: u64) -> Option<(u8, Collective, Form, Option<Combine>)> {
    let field = |first: u32, bits: u32| (word >> first) as usize & ((1 << bits) - 1);
    let collective = *Collective::ALL.get(field(11, 3))?;
    let combine = match field(5, 4) {
        0 => None,
        code => Some(Combine::new(*OPERATIONS.get(code - 1)?, *Element::ALL.get(field(14, 4))?)),
    };
    Some((field(0, 5) as u8, collective, *Form::ALL.get(field(9, 2))?, combine))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_the_published_sizes_and_come_back() {
        let combine = Some(Combine::new(Reduction::Xor, Element::U64));
        let (collective, form) = (Collective::ReduceScatter, Form::Halving);
        for payload in [1, 16, 17, 48, 240] {
            let head = Head {
                context: 31,
                collective,
                form,
                combine,
                root: 0xabcd,
                number: 0x1234_5678,
                chunk: Chunk { block: 7, index: 0xffff },
            };
            let packet = Packet { head, destination: 0x8001, tag: 0xa5, payload: vec![9; payload] };
            let flits = packet.flits();
            assert_eq!(flits.len(), (payload + 16).next_power_of_two().max(32) / 32);
            assert_eq!(destination_of(&flits[0]), 0x8001);
            let bytes: Vec<u8> = flits.iter().flat_map(|flit| flit.word).collect();
            let mut back = Packet::read(&bytes).unwrap();
            assert!(back.payload[payload..].iter().all(|byte| *byte == 0));
            back.payload.truncate(payload);
            assert_eq!(back, packet);
        }
        let context = ContextId::new(17, 0).unwrap();
        let call = Call { context, collective, form, combine, root: 65_535, bytes: (1 << 30) - 1 };
        assert_eq!(read_processor_header(processor_header(&call, 99)), Some((call, 99)));
    }
}

//! The fields that only some operations read: one description for the check of a word, `docs/isa.md`, and the assembler.

use super::operation::{Fields, Operation};
use super::{Instruction, Operand, Rights, offset};
use crate::named::named;
use crate::reduction::{Element, Reduction};

/// A field that only some operations read. The others require it to be zero.
pub(crate) struct Field {
    /// Name in `docs/isa.md` and in [`DecodeError::Field`](super::DecodeError::Field).
    pub(crate) name: &'static str,
    /// Name in sources.
    pub(crate) keyword: &'static str,
    /// Offset in the word, bytes.
    pub(crate) offset: usize,
    is_read: fn(&Fields) -> bool,
    pub(crate) value: Value,
    pub(crate) meaning: &'static str,
}

/// The value of a field in an [`Instruction`].
pub(crate) enum Value {
    /// A number up to `max`.
    Number { max: u64, get: fn(&Instruction) -> u64, set: fn(&mut Instruction, u64) },
    /// The index of a launch argument.
    Argument { get: fn(&Instruction) -> Option<u8>, set: fn(&mut Instruction, u8) },
    /// An address.
    Operand(Side),
    /// One of several names; `set` ignores other names.
    Name {
        get: fn(&Instruction) -> Option<&'static str>,
        set: fn(&mut Instruction, &str),
        all: fn() -> Vec<&'static str>,
    },
}

named! {
    /// The two operands of an instruction.
    Side {
        /// Where data is read.
        Source, "source";
        /// Where data is written.
        Destination, "destination";
    }
}

impl Side {
    /// The operand of `instruction` on this side.
    pub const fn operand(self, instruction: &Instruction) -> &Operand {
        match self {
            Side::Source => &instruction.source,
            Side::Destination => &instruction.destination,
        }
    }

    /// The operand of `instruction` on this side.
    pub const fn operand_mut(self, instruction: &mut Instruction) -> &mut Operand {
        match self {
            Side::Source => &mut instruction.source,
            Side::Destination => &mut instruction.destination,
        }
    }
}

impl Field {
    /// Whether `operation` reads the field.
    pub(crate) fn is_read_by(&self, operation: Operation) -> bool {
        (self.is_read)(&operation.fields())
    }

    /// Whether its value in `instruction` is one that the operation allows: zero if it does not read the field; not zero if it
    /// needs one of several names.
    #[inline(always)]
    fn is_allowed_in(&self, instruction: &Instruction, fields: &Fields) -> bool {
        let is_read = (self.is_read)(fields);
        match &self.value {
            Value::Number { get, .. } => is_read || get(instruction) == 0,
            Value::Argument { get, .. } => is_read || get(instruction).is_none(),
            Value::Operand(side) => is_read || *side.operand(instruction) == Operand::card(0),
            Value::Name { get, .. } => is_read == get(instruction).is_some(),
        }
    }
}

/// A row of [`FIELDS`] with a number of type `$type`, the member `$member` of [`Instruction`].
macro_rules! number {
    ($name:literal, $keyword:literal, $offset:ident, $reads:ident, $member:ident: $type:ty, $meaning:literal) => {
        Field {
            name: $name,
            keyword: $keyword,
            offset: offset::$offset,
            is_read: |fields| fields.$reads,
            value: Value::Number {
                max: <$type>::MAX as u64,
                get: |instruction| instruction.$member.into(),
                set: |instruction, value| instruction.$member = value as $type,
            },
            meaning: $meaning,
        }
    };
}

/// A row of [`FIELDS`] with the code of a `$type`.
macro_rules! code {
    ($name:literal, $offset:ident, $member:ident: $type:ident, $meaning:literal) => {
        Field {
            name: $name,
            keyword: stringify!($member),
            offset: offset::$offset,
            is_read: |fields| fields.combine,
            value: Value::Name {
                get: |instruction| instruction.$member.map($type::name),
                set: |instruction, name| instruction.$member = name.parse().ok(),
                all: || $type::ALL.iter().map(|one| one.name()).collect(),
            },
            meaning: $meaning,
        }
    };
}

/// Defines [`FIELDS`], and the check of each field as code of its own: a loop over the table would call through pointers, which
/// takes the verifier a sixth of its time.
macro_rules! fields {
    ($($field:expr,)*) => {
        /// Every field that only some operations read, in the order in which the disassembler writes them.
        pub(crate) const FIELDS: &[Field] = &[$($field,)*];

        /// Returns the first field of `instruction` with a value that its operation does not allow.
        pub(super) fn first_invalid(instruction: &Instruction) -> Option<&'static Field> {
            let fields = instruction.operation.fields();
            $({
                const FIELD: &Field = &$field;
                if !FIELD.is_allowed_in(instruction, &fields) {
                    return Some(FIELD);
                }
            })*
            None
        }
    };
}

fields! {
    number!(
        "communicator", "communicator", COMMUNICATOR, communicator, communicator: u16,
        "the communicator: table entry and generation (Communicators)"
    ),
    number!("root", "root", ROOT, root, root: u16, "rank that distributes or collects; for sendrecv, the rank received from"),
    number!("peer", "peer", PEER, peer, peer: u16, "the other rank of a point-to-point operation; for sendrecv, the rank sent to"),
    Field {
        name: "source",
        keyword: "source",
        offset: offset::SOURCE,
        is_read: |fields| fields.source,
        value: Value::Operand(Side::Source),
        meaning: "byte address where data is read",
    },
    Field {
        name: "destination",
        keyword: "destination",
        offset: offset::DESTINATION,
        is_read: |fields| fields.destination,
        value: Value::Operand(Side::Destination),
        meaning: "byte address where data is written",
    },
    number!("bytes", "bytes", BYTES, bytes, bytes: u64, "bytes of one block: from one rank to one other"),
    Field {
        name: "extent",
        keyword: "extent",
        offset: offset::EXTENT,
        is_read: |fields| fields.extent,
        value: Value::Number {
            max: u64::MAX,
            // Slot, rights and key of a window are fields of their own.
            get: |instruction| if instruction.operation.fields().window { 0 } else { instruction.extent },
            set: |instruction, value| instruction.extent = value,
        },
        meaning: "scatter, gather, allgather, reduce_scatter: bytes of a divided vector whose last blocks are short or empty (0: all \
                  blocks are full); pattern of a fill; cycles of a delay; slot of a resident program or table; address of the own \
                  contribution to a sendrecv_reduce, and of the second operand of a fold; increment of a loop; slot, rights and key of \
                  a window (Windows)",
    },
    Field {
        name: "window",
        keyword: "window",
        offset: offset::EXTENT,
        is_read: |fields| fields.window,
        value: Value::Number {
            max: u16::MAX as u64,
            get: |instruction| instruction.window().map_or(0, |window| window.slot.into()),
            set: Instruction::set_slot,
        },
        meaning: "slot of a window",
    },
    Field {
        name: "rights",
        keyword: "rights",
        offset: offset::EXTENT,
        is_read: |fields| fields.rights,
        value: Value::Name {
            get: |instruction| instruction.rights().name(),
            set: |instruction, name| {
                if let Some((rights, _)) = Rights::NAMED.iter().find(|(_, known)| *known == name) {
                    instruction.set_rights(*rights);
                }
            },
            all: || Rights::NAMED.iter().map(|(_, name)| *name).collect(),
        },
        meaning: "what a window allows",
    },
    Field {
        name: "key",
        keyword: "key",
        offset: offset::EXTENT,
        is_read: |fields| fields.window,
        value: Value::Number {
            max: u32::MAX as u64,
            get: |instruction| instruction.window().map_or(0, |window| window.key.into()),
            set: Instruction::set_key,
        },
        meaning: "key of a window",
    },
    code!("element type", ELEMENT, element: Element, "type of the elements of a reduction (Element types)"),
    code!("reduction", REDUCTION, reduction: Reduction, "how two elements are combined (Reductions)"),
    number!("signal id", "signal", SIGNAL_ID, signal, signal_id: u16, "number of a signal of a card"),
    number!("signal value", "value", SIGNAL_VALUE, signal, signal_value: u32, "added to a signal, or awaited and subtracted"),
    number!("loop count", "count", LOOP_COUNT, rounds, loop_count: u16, "rounds of a loop"),
    number!("loop body", "body", LOOP_BODY, rounds, loop_body: u16, "instructions in the body of a loop, which follow it"),
    Field {
        name: "extent argument",
        keyword: "extent_argument",
        offset: offset::EXTENT_ARGUMENT,
        is_read: |fields| fields.extent_argument,
        value: Value::Argument {
            get: |instruction| instruction.extent_argument,
            set: |instruction, index| instruction.extent_argument = Some(index),
        },
        meaning: "1 + index of the launch argument that is added to the extent of a sendrecv_reduce or fold, or to which a loop adds \
                  its extent; 0 for none",
    },
    number!("lane", "lane", LANE, lane, lane: u8, "the lane of an exchange or fold (Lanes)"),
}

/// Does not compile when there is a field that [`FIELDS`] may lack. Add it there first.
const _: fn(Fields, Instruction) = |fields, instruction| {
    #[rustfmt::skip]
    let Fields {
        communicator: _, root: _, peer: _, source: _, destination: _, bytes: _, extent: _, combine: _, signal: _, rounds: _,
        extent_argument: _, lane: _, window: _, rights: _,
    } = fields;
    #[rustfmt::skip]
    let Instruction {
        communicator: _, root: _, peer: _, source: _, destination: _, bytes: _, extent: _, element: _, reduction: _,
        extent_argument: _, lane: _, signal_id: _, signal_value: _, loop_count: _, loop_body: _,
        // Every operation reads these.
        operation: _, tag: _, flags: _,
    } = instruction;
};

//! The words by which a source names the fields of an instruction, in the order of the word on the card.
//!
//! This is the one place that has to know each field: the check below does not compile when the instruction gets another.

use crate::instruction::Fields;
use crate::reduction::{Element, Reduction};
use crate::{Flags, Instruction, Operand, Operation};

/// A field that only some operations read.
pub(super) struct Field {
    /// As in [`Fields`] and `docs/isa.md`.
    pub(super) name: &'static str,
    is_read: fn(&Fields) -> bool,
    pub(super) place: Place,
    /// Whether a source may leave it out, and what is left out is zero.
    is_optional: fn(&Fields) -> bool,
}

/// Where the value goes: how to read and how to write it.
pub(super) enum Place {
    Short(fn(&Instruction) -> u16, fn(&mut Instruction, u16)),
    Long(fn(&Instruction) -> u32, fn(&mut Instruction, u32)),
    Wide(fn(&Instruction) -> u64, fn(&mut Instruction, u64)),
    /// Number of a launch argument.
    Argument(fn(&Instruction) -> Option<u8>, fn(&mut Instruction, u8)),
    Operand(fn(&Instruction) -> &Operand, fn(&mut Instruction) -> &mut Operand),
    /// A word: which it is, all there are, and how one is set; false if there is no such word.
    Word(fn(&Instruction) -> Option<&'static str>, fn() -> Vec<&'static str>, fn(&mut Instruction, &str) -> bool),
}

impl Field {
    pub(super) fn is_read_by(&self, operation: Operation) -> bool {
        (self.is_read)(&operation.fields())
    }

    pub(super) fn may_be_left_out_of(&self, operation: Operation) -> bool {
        (self.is_optional)(&operation.fields())
    }
}

/// Every field that an operation may read.
pub(super) const FIELDS: [Field; 14] = [
    Field {
        name: "communicator",
        is_read: |fields| fields.communicator,
        place: Place::Short(|word| word.communicator, |word, value| word.communicator = value),
        is_optional: |_| true,
    },
    Field {
        name: "root",
        is_read: |fields| fields.root,
        place: Place::Short(|word| word.root, |word, value| word.root = value),
        is_optional: |_| false,
    },
    Field {
        name: "peer",
        is_read: |fields| fields.peer,
        place: Place::Short(|word| word.peer, |word, value| word.peer = value),
        is_optional: |_| false,
    },
    Field {
        name: "source",
        is_read: |fields| fields.source,
        place: Place::Operand(|word| &word.source, |word| &mut word.source),
        is_optional: |_| false,
    },
    Field {
        name: "destination",
        is_read: |fields| fields.destination,
        place: Place::Operand(|word| &word.destination, |word| &mut word.destination),
        is_optional: |_| false,
    },
    Field {
        name: "bytes",
        is_read: |fields| fields.bytes,
        place: Place::Wide(|word| word.bytes, |word, value| word.bytes = value),
        is_optional: |_| false,
    },
    Field {
        name: "extent",
        is_read: |fields| fields.extent,
        place: Place::Wide(|word| word.extent, |word, value| word.extent = value),
        // Of a collective it is the exception; of all others it is what they are about.
        is_optional: |fields| fields.communicator && !fields.extent_argument,
    },
    Field {
        name: "element",
        is_read: |fields| fields.combine,
        place: Place::Word(
            |word| word.element.map(Element::name),
            || Element::ALL.iter().map(|one| one.name()).collect(),
            |word, name| {
                word.element = name.parse().ok();
                word.element.is_some()
            },
        ),
        is_optional: |_| false,
    },
    Field {
        name: "reduction",
        is_read: |fields| fields.combine,
        place: Place::Word(
            |word| word.reduction.map(Reduction::name),
            || Reduction::ALL.iter().map(|one| one.name()).collect(),
            |word, name| {
                word.reduction = name.parse().ok();
                word.reduction.is_some()
            },
        ),
        is_optional: |_| false,
    },
    Field {
        name: "signal",
        is_read: |fields| fields.signal,
        place: Place::Short(|word| word.signal_id, |word, value| word.signal_id = value),
        is_optional: |_| false,
    },
    Field {
        name: "value",
        is_read: |fields| fields.signal,
        place: Place::Long(|word| word.signal_value, |word, value| word.signal_value = value),
        is_optional: |_| false,
    },
    Field {
        name: "count",
        is_read: |fields| fields.rounds,
        place: Place::Short(|word| word.loop_count, |word, value| word.loop_count = value),
        is_optional: |_| false,
    },
    Field {
        name: "body",
        is_read: |fields| fields.rounds,
        place: Place::Short(|word| word.loop_body, |word, value| word.loop_body = value),
        is_optional: |_| false,
    },
    Field {
        name: "extent_argument",
        is_read: |fields| fields.extent_argument,
        place: Place::Argument(|word| word.extent_argument, |word, value| word.extent_argument = Some(value)),
        is_optional: |_| true,
    },
];

/// A field of all operations.
pub(super) const TAG: &str = "tag";

/// Does not compile when there is a field that [`FIELDS`] may not have; add it there, and then here.
const _: fn(Fields) = |fields| {
    let Fields {
        communicator: _,
        root: _,
        peer: _,
        source: _,
        destination: _,
        bytes: _,
        extent: _,
        combine: _,
        signal: _,
        rounds: _,
        extent_argument: _,
    } = fields;
};

/// As above, of the instruction itself; the disassembler would lose what is not listed.
const _: fn(Instruction) = |instruction| {
    let Instruction {
        operation: _,
        tag: _,
        flags: _,
        communicator: _,
        root: _,
        peer: _,
        source: _,
        destination: _,
        bytes: _,
        extent: _,
        element: _,
        reduction: _,
        extent_argument: _,
        signal_id: _,
        signal_value: _,
        loop_count: _,
        loop_body: _,
    } = instruction;
};

/// The fields that `operation` reads, in order.
pub(super) fn of(operation: Operation) -> impl Iterator<Item = &'static Field> {
    const { &FIELDS }.iter().filter(move |field| field.is_read_by(operation))
}

/// The flag of this name.
pub(super) fn flag(name: &str) -> Option<Flags> {
    flags().find(|(known, _)| known == name).map(|(_, flag)| flag)
}

/// All flags with their names.
pub(super) fn flags() -> impl Iterator<Item = (String, Flags)> {
    Flags::all().iter_names().map(|(name, flag)| (name.to_ascii_lowercase(), flag))
}

/// The operation of this name.
pub(super) fn operation(name: &str) -> Option<Operation> {
    Operation::ALL.iter().copied().find(|operation| operation.name() == name)
}

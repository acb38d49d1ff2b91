//! Names of fields, flags and operations in a source.

use crate::instruction::{FIELDS, Field, has_forms};
use crate::{Flags, Operation};

/// A field of every operation.
pub(super) const TAG: &str = "tag";

/// Returns the fields that `operation` reads, in the order in which they are written.
pub(super) fn of(operation: Operation) -> impl Iterator<Item = &'static Field> {
    FIELDS.iter().filter(move |field| field.is_read_by(operation))
}

/// Whether a source may omit a field of `operation`; it is zero then.
pub(super) fn is_optional(field: &Field, operation: Operation) -> bool {
    let fields = operation.fields();
    match field.keyword {
        "communicator" | "extent_argument" | "lane" => true,
        // One-sided operations of a program's own data name no window.
        "window" | "key" => fields.peer,
        // Collectives rarely divide a vector; all other operations need their extent.
        "extent" => fields.communicator && !fields.extent_argument,
        _ => false,
    }
}

/// Returns the flag of this name, if `operation` has it.
pub(super) fn flag(name: &str, operation: Operation) -> Option<Flags> {
    flags(operation).find(|(known, _)| known == name).map(|(_, flag)| flag)
}

/// Returns the flags that `operation` may have, with their names.
pub(super) fn flags(operation: Operation) -> impl Iterator<Item = (String, Flags)> {
    let all = if has_forms(operation) { Flags::all() } else { Flags::all() - Flags::FORMS };
    all.iter_names().map(|(name, flag)| (name.to_ascii_lowercase(), flag))
}

/// Returns the operation of this name.
pub(super) fn operation(name: &str) -> Option<Operation> {
    Operation::ALL.iter().copied().find(|operation| operation.name() == name)
}

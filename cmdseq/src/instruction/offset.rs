//! Byte offsets of the fields, as in `docs/isa.md`.
#![allow(missing_docs)]
pub const VERSION: usize = 0;
pub const OPERATION: usize = 1;
pub const TAG: usize = 2;
pub const COMMUNICATOR: usize = 4;
pub const ROOT: usize = 6;
pub const PEER: usize = 8;
pub const ELEMENT: usize = 10;
pub const REDUCTION: usize = 11;
pub const LANE: usize = 12;
pub const OPERANDS: usize = 13;
pub const FLAGS: usize = 14;
pub const SOURCE: usize = 16;
pub const DESTINATION: usize = 24;
pub const BYTES: usize = 32;
pub const EXTENT: usize = 40;
pub const SIGNAL_ID: usize = 48;
pub const LOOP_COUNT: usize = 50;
pub const SIGNAL_VALUE: usize = 52;
pub const LOOP_BODY: usize = 56;
pub const ARGUMENT_INDEX: usize = 58;
pub const EXTENT_ARGUMENT: usize = 59;
pub const CHECKSUM: usize = 60;

//! Pipes between programs on the hosts of two cards, with the semantics of Linux (pipe(7)), as BlueLink has them (section VI,
//! "Software pipes"): here over one-sided writes and signals, so on every card that has windows.
//!
//! The writer's card writes messages into slots of the reader's card memory, each with a signal. The reader's card waits for the
//! signal, copies the slot to its host, and gives the slot back by a signal of its own. Neither host takes part in a message of
//! the other, and no card writes a slot before it was given back. Data leaves one slot free, so that a writer can end a full pipe.
//!
//! Before that the writer draws the key of their windows and greets the reader with it, again and again until it answers: either card
//! may be opened first, or anew by another program, and their link may go down meanwhile.
//!
//! ```text
//!   host ─ copy ─▶ writer's card ─ put_signal: slot, SIGNAL ─────────▶ reader's card ─ copy ─▶ host
//!                                ◀─ put_signal: SIGNAL, 1 (slot free) ─
//! ```

pub(crate) mod end;
pub(crate) mod error;
pub(crate) mod reader;
mod slot;
pub(crate) mod writer;

//! Configuration space: registers, a checked copy, and its capabilities.
//!
//! [`Space`] is a copy of the bytes. It parses the header, walks both lists of capabilities, and parses the capabilities.

mod capability;
mod link;
mod registers;
mod space;

pub use capability::{Aer, Express, Msix, Vendor, extended_name, name};
pub use link::{Lanes, LinkSpeed};
pub use registers::*;
pub use space::{BrokenList, Capability, End, HEADER_BYTES, Header, Space, Walk};

//! OPTWEB: blocks between cards and the signals that order them, one-sided transfers, and what is moved at one instant.

pub(crate) mod lane;
pub(crate) mod moving;
pub(crate) mod one_sided;
pub(crate) mod signal;
pub(crate) mod stream;
pub(crate) mod transfer;

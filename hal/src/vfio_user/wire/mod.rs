//! What both ends of a connection use: messages as bytes, and the socket they travel on.
//!
//! Nothing here knows of a client or a server.

pub(crate) mod capabilities;
pub(crate) mod closing;
pub(crate) mod debt;
pub(crate) mod messages;
pub(crate) mod socket;

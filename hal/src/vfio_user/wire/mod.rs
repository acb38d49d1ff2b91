//! What both ends of a connection use. Nothing here uses the client or the server.
//!
//! Messages as bytes: layouts, numbers and flags of the "vfio-user Protocol Specification" (`docs/interop/vfio-user.rst` of
//! QEMU), named here by its sections. What it takes over from `<linux/vfio.h>` comes from there. Decoding checks everything:
//! `None` is a body that is too short, or of the wrong size where the size is fixed.
//!
//! | modules | section |
//! |---|---|
//! | [`fields`], [`header`] | "Header" |
//! | [`version`], [`capabilities`] | "`VFIO_USER_VERSION`" |
//! | [`memory`] | "`VFIO_USER_DMA_*`" |
//! | [`device`], [`region`] | "`VFIO_USER_DEVICE_GET_*`", "`VFIO_USER_REGION_*`" |
//! | [`interrupt`] | "`VFIO_USER_DEVICE_GET_IRQ_INFO`", "`VFIO_USER_DEVICE_SET_IRQS`" |
//!
//! Messages on a socket: [`socket`], [`reader`], [`sender`] and [`polling`]; [`closing`] closes what a peer has sent, and
//! [`debt`] counts the time that a peer has made others wait.

pub(crate) mod capabilities;
pub(crate) mod closing;
pub(crate) mod debt;
pub(crate) mod device;
mod fields;
pub(crate) mod header;
pub(crate) mod interrupt;
pub(crate) mod memory;
pub(crate) mod polling;
pub(crate) mod reader;
pub(crate) mod region;
pub(crate) mod sender;
pub(crate) mod socket;
#[cfg(test)]
mod tests;
pub(crate) mod version;

//! Kinds of buses.

use std::fmt;

/// How the host reaches a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BusKind {
    /// An endpoint in this process.
    InProcess,
    /// The kernel's VFIO driver.
    Vfio,
    /// A vfio-user server, through a socket.
    VfioUser,
}

impl fmt::Display for BusKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BusKind::InProcess => "in process",
            BusKind::Vfio => "on kernel VFIO",
            BusKind::VfioUser => "over vfio-user",
        })
    }
}

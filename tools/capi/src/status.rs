//! What functions return.

use fpga_collective::Class;

/// What functions return. 1 to 7 mean what the exit codes of fpgactl mean; 3 is fpgactl's alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "the name in C")]
pub enum fpga_status {
    /// Done.
    FPGA_OK = 0,
    /// The operation failed.
    FPGA_FAILED = 1,
    /// An argument is invalid: NULL, an unknown name, a handle that was closed or that belongs to the process that forked this one.
    FPGA_USAGE = 2,
    /// A card does not exist, or this user may not open it.
    FPGA_NO_CARD = 4,
    /// A time limit expired.
    FPGA_TIMEOUT = 5,
    /// A card or a link is gone.
    FPGA_GONE = 6,
    /// Refused before anything was launched.
    FPGA_REFUSED = 7,
    /// Another thread is using the cluster. Nothing was done.
    FPGA_BUSY = 8,
    /// An error of the library itself: close the cluster, and report the text.
    FPGA_INTERNAL = 9,
}

use fpga_status::{FPGA_FAILED, FPGA_GONE, FPGA_NO_CARD, FPGA_REFUSED, FPGA_TIMEOUT, FPGA_USAGE};

impl From<Class> for fpga_status {
    fn from(class: Class) -> Self {
        match class {
            Class::Failed => FPGA_FAILED,
            Class::Usage => FPGA_USAGE,
            Class::NoCard => FPGA_NO_CARD,
            Class::Timeout => FPGA_TIMEOUT,
            Class::Gone => FPGA_GONE,
            Class::Refused => FPGA_REFUSED,
        }
    }
}

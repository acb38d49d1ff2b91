//! State of an update of a board's flash memory (RSU). The driver shows the state, and starts no update.

use fpga_regs::dfl::board::{UPDATE_PROGRESS_SHIFT, UPDATE_STATUS_SHIFT};

/// What an update does, by number (Linux `include/linux/mfd/intel-m10-bmc.h`).
const PROGRESS: [(u32, &str); 8] = [
    (0, "idle"),
    (1, "preparing"),
    (3, "ready for data"),
    (4, "authenticating"),
    (5, "copying"),
    (6, "being cancelled"),
    (7, "writing the hash of a key"),
    (8, "done"),
];
/// How the last update ended, by number; 0 is no error.
const STATUS: [(u32, &str); 7] = [
    (1, "timeout"),
    (2, "authentication failed"),
    (3, "copying failed"),
    (4, "fatal error"),
    (6, "version not incremental"),
    (7, "erasing failed"),
    (8, "flash memory worn out"),
];

/// Says in words what the doorbell register of the board's controller holds.
pub(super) fn state(doorbell: u32) -> String {
    let named = |table: &[(u32, &'static str)], number: u32| {
        let known = table.iter().find(|(one, _)| *one == number);
        known.map_or_else(|| format!("state {number}"), |(_, name)| (*name).to_owned())
    };
    let progress = named(&PROGRESS, doorbell >> UPDATE_PROGRESS_SHIFT & 0xf);
    match doorbell >> UPDATE_STATUS_SHIFT & 0xff {
        0 => progress,
        status => format!("{progress}; the last update ended with: {}", named(&STATUS, status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers retyped by hand.
    #[test]
    fn states_are_those_of_linux() {
        for (doorbell, text) in [
            (0x0000_0000, "idle"),
            (0x0000_0041, "authenticating"),
            (0x2000_0f53, "copying"),
            (0x0000_0020, "state 2"),
            (0x0002_0000, "idle; the last update ended with: authentication failed"),
            (0x0008_0080, "done; the last update ended with: flash memory worn out"),
            (0x0005_0010, "preparing; the last update ended with: state 5"),
        ] {
            assert_eq!(state(doorbell), text, "{doorbell:#x}");
        }
    }
}

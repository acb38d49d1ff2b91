//! Microseconds and gigabits a second, as they are printed.

/// Picoseconds in microseconds.
pub(crate) fn microseconds(ps: u64) -> f64 {
    ps as f64 / 1e6
}

/// Gigabits a second that `bytes` in `us` microseconds are; 0 if there is no time.
pub(crate) fn gbps(bytes: u64, us: f64) -> f64 {
    if us > 0.0 { rounded(bytes as f64 * 8e-3 / us) } else { 0.0 }
}

/// Without the digits that only the arithmetic has put there.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

//! Converts to microseconds and gigabits per second, rounded for output.

/// Converts picoseconds to microseconds.
pub(crate) fn us_of_ps(ps: u64) -> f64 {
    ps as f64 / 1e6
}

/// Returns the rate of `bytes` in `us` microseconds in gigabits per second; 0 for no time.
pub(crate) fn gbps(bytes: u64, us: f64) -> f64 {
    if us > 0.0 { rounded(bytes as f64 * 8e-3 / us) } else { 0.0 }
}

/// Rounds to six decimals, to hide rounding errors of the arithmetic.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

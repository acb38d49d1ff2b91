//! Times on the command line.

/// Parses a delay in microseconds, at most a day.
pub(super) fn delay(text: &str) -> Result<f64, String> {
    let is_possible = |us: &f64| (0.0..=8.64e10).contains(us);
    text.parse()
        .ok()
        .filter(is_possible)
        .ok_or_else(|| format!("invalid delay {text:?}: expected 0 to 86400000000 microseconds (a day)"))
}

/// Parses a time limit in seconds, at most a day.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    within_a_day(text, "time limit")
}

/// Parses an interval in seconds, at most a day.
pub(super) fn interval(text: &str) -> Result<f64, String> {
    within_a_day(text, "interval")
}

fn within_a_day(text: &str, what: &str) -> Result<f64, String> {
    let is_possible = |seconds: &f64| *seconds > 0.0 && *seconds <= 86_400.0;
    text.parse()
        .ok()
        .filter(is_possible)
        .ok_or_else(|| format!("invalid {what} {text:?}: expected more than 0 and at most 86400 seconds (a day)"))
}

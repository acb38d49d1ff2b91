//! Test of the readings: sensors answer and are plausible, and no error is noted.

use cmdseq::text::with_causes;
use fpga_driver::readings::{Readings, Value};
use fpga_hal::Function;

use crate::selftest::checks::{Checks, Failed};

/// Reads everything.
pub(super) fn test(checks: &mut Checks<'_>, function: &Function) {
    checks.run("readings", || {
        let readings = Readings::of(function).map_err(|error| Failed::other(with_causes(&error)))?;
        let alarms = readings.alarms().map(|one| {
            let note = one.meaning().unwrap_or_else(|| one.value.state().to_owned());
            format!("{} {}: {note}", one.part, one.name)
        });
        let failures = readings.failures.iter().map(|(part, error)| format!("{part}: {}", with_causes(error)));
        let wrong: Vec<String> = alarms.chain(failures).collect();
        if !wrong.is_empty() {
            return Err(Failed::other(wrong.join("; ")));
        }
        let absent = readings.rows.iter().filter(|row| row.value == Value::Absent).count();
        let there = readings.rows.len() - absent;
        Ok(format!("{there} plausible, {absent} sensors of the table absent, no error noted"))
    });
}

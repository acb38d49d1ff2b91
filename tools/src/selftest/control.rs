//! Tests of a control function: what its shell says, the reset of its accelerator, and its errors.

use fpga_driver::dfl::{Control, Error};
use fpga_hal::Function;

use crate::selftest::checks::{Checks, Failed, Result};

/// Tests the control function. Returns whether it is one.
pub(super) fn test(checks: &mut Checks<'_>, function: &Function) -> bool {
    if checks.is_interrupted() {
        return false;
    }
    let mut control = match Control::open(function.clone()) {
        Ok(control) => control,
        Err(Error::NoControl { .. }) => return false,
        Err(error) => {
            checks.run("control function", || Err::<String, _>(error));
            return true;
        }
    };
    checks.run("control function", || {
        Ok::<_, Error>(format!("{} features; {}", control.features().len(), control.identity()?))
    });
    checks.run("accelerator reset", || reset(&mut control));
    checks.run("control errors", || errors(&control));
    true
}

/// Resets the accelerator, and holds it in reset afterwards if it was held before.
fn reset(control: &mut Control) -> Result<String> {
    let was_held = control.is_held()?;
    control.reset_accelerator()?;
    if control.is_held()? {
        return Err(Failed::other("the accelerator is held in reset after it was released"));
    }
    if was_held {
        control.hold_accelerator()?;
    }
    let before = if was_held { "held in reset, as before" } else { "released, as before" };
    Ok(format!("acknowledged; {before}"))
}

fn errors(control: &Control) -> Result<String> {
    let errors = control.errors()?;
    match errors.as_slice() {
        [] => Ok("none reported".to_owned()),
        some => {
            let texts: Vec<String> = some.iter().map(ToString::to_string).collect();
            Err(Failed::other(format!("{} (fpgactl reset --errors clears them)", texts.join("; "))))
        }
    }
}

//! The port: the accelerator's reset.

use std::time::Duration;

use fpga_hal::Function;
use fpga_regs::dfl::port::errors::{ERROR, FIRST, ID, SCRATCHPAD};
use fpga_regs::dfl::port::{CONTROL, POWER_OFF, POWER_SHIFT, SOFT_RESET, SOFT_RESET_ACK, STATUS};

use crate::board::BoardFunction;
use crate::dfl::block::Block;
use crate::dfl::error::{Error, Result};
use crate::feature_list::{self, AcceleratorPort, Unit, Walk};
use crate::sequencer::block::bus_error;

/// Time limit for the port to acknowledge. It does so within microseconds; a busy machine may look seldom.
const ACKNOWLEDGE: Duration = Duration::from_secs(2);

/// The port.
#[derive(Debug)]
pub(super) struct Port(pub(super) Block);

impl Port {
    /// Returns whether the accelerator is held in reset.
    pub(super) fn is_held(&self) -> Result<bool> {
        Ok(self.0.read(CONTROL)? & SOFT_RESET != 0)
    }

    /// Holds the accelerator in reset.
    pub(super) fn hold(&self) -> Result<()> {
        self.set(SOFT_RESET, "hold the accelerator in reset")
    }

    /// Releases the accelerator from reset.
    pub(super) fn release(&self) -> Result<()> {
        self.set(0, "release the accelerator from reset")
    }

    fn set(&self, reset: u64, to: &'static str) -> Result<()> {
        let before = self.0.read(CONTROL)?;
        self.0.write(CONTROL, before & !SOFT_RESET | reset)?;
        let is_done = |value| (value & SOFT_RESET_ACK != 0) == (reset != 0);
        self.0.poll((CONTROL, "port CONTROL"), to, ACKNOWLEDGE, is_done).map(drop)
    }

    /// Makes sure that the accelerator has power.
    pub(super) fn check_power(&self) -> Result<()> {
        match self.0.read(STATUS)? >> POWER_SHIFT & 0xf {
            POWER_OFF => {
                let what = "the accelerator is switched off, because the board is too hot or draws too much".to_owned();
                Err(Error::Refused { name: self.0.name(), what })
            }
            _ => Ok(()),
        }
    }
}

/// The port of a function that reaches the accelerator behind it, too.
#[derive(Debug)]
pub(crate) struct OwnPort {
    port: Port,
    errors: Option<Block>,
}

impl OwnPort {
    /// Finds the first such port of a function. `None`: it has none, or its lists are wrong, of which whoever looks for something in
    /// them tells.
    pub(crate) fn find(function: &Function, board: &BoardFunction) -> Result<Option<Self>> {
        let ports = match feature_list::accelerator_ports(function, board) {
            Ok(ports) => ports,
            Err(feature_list::Error::List(_)) => return Ok(None),
            Err(feature_list::Error::Bus(error)) => return Err(bus_error(&function.identity().name, error).into()),
        };
        let Some(AcceleratorPort { window, feature, .. }) = ports.into_iter().next() else { return Ok(None) };
        let Some(port) = Block::new(&window, function, &feature, STATUS + 8) else { return Ok(None) };
        let mut behind = Walk::new(&window, feature.offset).skip(1).map_while(std::result::Result::ok);
        let errors = behind.find(|feature| feature.unit != Unit::Port || feature.id == ID);
        let errors = errors.filter(|feature| feature.unit == Unit::Port);
        let errors = errors.and_then(|feature| Block::new(&window, function, &feature, FIRST + 8));
        Ok(Some(OwnPort { port: Port(port), errors }))
    }

    /// Returns the errors that the port has noted, and the first of them.
    fn noted(&self) -> Result<(u64, u64)> {
        let read = |register| self.errors.as_ref().map_or(Ok(0), |errors| errors.read(register));
        Ok((read(ERROR)?, read(FIRST)?))
    }

    /// Holds the accelerator in reset, and clears the errors that the port has noted since they were as `before`.
    fn hold_again(&self, before: (u64, u64)) -> Result<()> {
        self.port.hold()?;
        let (bits, first) = self.noted()?;
        match &self.errors {
            Some(errors) if (bits, first) != before => clear_noted(errors, bits & !before.0, first & !before.1),
            _ => Ok(()),
        }
    }
}

/// Calls `look` while the accelerator behind `port`, if there is one, is released. If the port held it in reset and `look` fails, the
/// port holds it again, and notes no error of `look`'s accesses: the region may hold nothing.
pub(crate) fn released<T, E: From<Error>>(
    port: Option<&OwnPort>,
    look: impl FnOnce() -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    let Some(own) = port else { return look() };
    if !own.port.is_held()? {
        return look();
    }
    let before = own.noted()?;
    let found = own.port.release().map_err(E::from).and_then(|()| look());
    if found.is_err()
        && let Err(also) = own.hold_again(before)
    {
        log::warn!("{}: after a failed search for the accelerator: {also}", own.port.0.name());
    }
    found
}

/// Clears errors that a port has noted, while it holds the accelerator in reset.
pub(super) fn clear_noted(errors: &Block, bits: u64, first: u64) -> Result<()> {
    // Masked meanwhile, as Linux does. With an OFS shell the mask is a scratchpad.
    errors.masked(SCRATCHPAD, || {
        errors.write(ERROR, bits)?;
        errors.write(FIRST, first)
    })
}

//! The functions of a card, and what its control function does for it: reset of the accelerator, errors of the shell, sensors.

use fpga_hal::Function;

use crate::dfl::{Control, Reported};
use crate::error::{Error, Result};

/// The functions of one card: that with the sequencer, and its control function, if it has one of its own and this process may have it.
#[derive(Clone)]
pub struct CardFunctions {
    /// The function with the sequencer.
    pub data: Function,
    /// The control function.
    pub control: Option<Function>,
}

impl From<Function> for CardFunctions {
    /// A card without a control function.
    fn from(data: Function) -> Self {
        CardFunctions { data, control: None }
    }
}

impl From<(Function, Option<Function>)> for CardFunctions {
    fn from((data, control): (Function, Option<Function>)) -> Self {
        CardFunctions { data, control }
    }
}

/// The control function of a card in use.
#[derive(Debug)]
pub(super) struct Management {
    control: Control,
    name: String,
}

impl Management {
    /// Takes the control function of the card `name` into use, and releases the accelerator if it is held in reset.
    pub(super) fn open(function: Function, name: &str) -> Result<Self> {
        let control = Control::open(function)?;
        let mut management = Management { control, name: name.to_owned() };
        if management.control.is_held()? {
            management.reset_accelerator()?;
        }
        Ok(management)
    }

    pub(super) fn function(&self) -> &Function {
        self.control.function()
    }

    /// Resets the accelerator by its port, and waits for the acknowledgement.
    pub(super) fn reset_accelerator(&mut self) -> Result<()> {
        Ok(self.control.reset_accelerator()?)
    }

    /// Returns the error registers of the shell that are not zero, and clears nothing.
    pub(super) fn errors(&self) -> Result<Vec<Reported>> {
        Ok(self.control.errors()?)
    }
}

impl Drop for Management {
    /// What the shell has reported goes with the function, which is reset as it is closed.
    fn drop(&mut self) {
        for error in self.control.errors().unwrap_or_default() {
            log::warn!("{}: {error}", self.name);
        }
    }
}

impl From<crate::dfl::Error> for Error {
    fn from(error: crate::dfl::Error) -> Self {
        match error {
            crate::dfl::Error::Card(error) => error,
            error => Error::Control { kind: error.kind(), source: Box::new(error) },
        }
    }
}

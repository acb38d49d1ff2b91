//! Readings of a card: what its sensors measure, its PCIe link, and its error registers, in one table.
//!
//! ```
//! use fpga_driver::readings::{Readings, Value};
//! # use fpga_hal::{Domain, in_process};
//! # use fpga_mock::xdma::{Shape, XdmaCards};
//! # let cards = XdmaCards::new(1, Shape::default());
//! # let function = in_process::attach(cards.endpoint(0), &Domain::in_process(), "card 0")?;
//!
//! let readings = Readings::of(&function)?;
//! for reading in &readings.rows {
//!     if let Value::Good(value) = reading.value {
//!         println!("{} {}: {value} {}", reading.part, reading.name, reading.unit.name());
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A part that does not answer costs the others nothing: it is in [`Readings::failures`].

mod pcie;
mod reading;
pub(crate) mod sensors;
mod update;

pub use fpga_regs::sensor::Unit;
pub use reading::{Reading, Value};

use fpga_hal::Function;
use fpga_regs::dfl::board::{SENSORS, SYSTEM, UPDATE};

use crate::alveo::{self, Cms};
use crate::dfl::{self, Control};
use crate::sequencer::block::bus_error;
use crate::xdma;

/// Why a part of a card has no readings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Card management of an Alveo card.
    #[error(transparent)]
    Alveo(#[from] alveo::Error),
    /// The control function of an Intel card.
    #[error(transparent)]
    Control(#[from] dfl::Error),
    /// The DMA engine.
    #[error(transparent)]
    Engine(#[from] xdma::Error),
    /// The card or the bus.
    #[error(transparent)]
    Card(#[from] crate::Error),
}

/// Readings of one function of a card.
#[derive(Debug, Default)]
pub struct Readings {
    /// What was read.
    pub rows: Vec<Reading>,
    /// What the board says of itself: names, and their values as text.
    pub board: Vec<(&'static str, String)>,
    /// Parts that did not answer, or not as they must, each with why.
    pub failures: Vec<(&'static str, Error)>,
}

impl Readings {
    /// Reads everything that a function has, and clears nothing. Card management that is held in reset is started.
    ///
    /// Every wait is bounded: a few seconds for each part that does not answer.
    ///
    /// # Errors
    /// The bus's, with [`fpga_hal::Error::InUse`] if the function has a driver; [`crate::Error::Removed`].
    pub fn of(function: &Function) -> Result<Self, Error> {
        let outcome = Self::read(function);
        if function.is_removed() {
            // What was read of a card that vanished is garbage, and no part has failed by itself.
            return Err(crate::Error::removed(function).into());
        }
        outcome
    }

    fn read(function: &Function) -> Result<Self, Error> {
        let mut readings = Readings { rows: pcie::read(function)?, ..Readings::default() };
        match Control::open(function.clone()) {
            Ok(control) => {
                readings.control(&control);
                return Ok(readings);
            }
            Err(dfl::Error::NoControl { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let bus = |error| bus_error(&function.identity().name, error);
        let _claim = function.claim().map_err(bus)?;
        let noted = xdma::noted_errors(function)?.unwrap_or_default();
        readings.rows.extend(noted.into_iter().map(reading::of_channel));
        match dfl::describe_exerciser(function) {
            Ok(None) => {}
            Ok(Some(described)) => readings.exerciser(described),
            Err(error) => readings.failures.push(("he-lb", error.into())),
        }
        match Cms::start(function) {
            Ok(cms) => readings.management(&cms),
            Err(alveo::Error::NoShell { .. }) => {}
            Err(error) => readings.failures.push(("cms", error.into())),
        }
        Ok(readings)
    }

    /// Takes what does not read as good: sensors that fail, and error registers with bits.
    pub fn alarms(&self) -> impl Iterator<Item = &Reading> {
        self.rows.iter().filter(|row| row.is_alarm())
    }

    fn control(&mut self, control: &Control) {
        match control.errors() {
            Ok(errors) => self.rows.extend(errors.into_iter().map(reading::of_register)),
            Err(error) => self.failures.push(("errors", error.into())),
        }
        let Some(board) = control.board() else { return };
        for sensor in SENSORS {
            match board.read(SYSTEM + sensor.offset) {
                Ok(raw) => self.rows.push(reading::of_board(sensor, raw)),
                // The others would not answer either, and each would be waited for.
                Err(error) => return self.failures.push(("board", error.into())),
            }
        }
        match board.read(SYSTEM + UPDATE) {
            Ok(state) => self.board.push(("flash update (RSU)", update::state(state))),
            Err(error) => self.failures.push(("board", error.into())),
        }
    }

    fn exerciser(&mut self, described: dfl::Described) {
        let dfl::Described { version, clock_mhz, errors } = described;
        self.rows.push(reading::of_exerciser(errors));
        self.board
            .push(("host exerciser", format!("HE-LB, version {version} of its registers, clock {clock_mhz} MHz")));
    }

    fn management(&mut self, cms: &Cms) {
        let mut failed = |error: alveo::Error| self.failures.push(("cms", error.into()));
        match (cms.is_alive(), cms.sensors()) {
            (Ok(is_alive), Ok(sensors)) => {
                self.rows.extend(sensors.into_iter().map(|sensed| reading::of_management(sensed, is_alive)));
            }
            (Err(error), _) | (_, Err(error)) => failed(error),
        }
        match cms.board() {
            Ok(board) => self.board = board,
            Err(error) => self.failures.push(("cms", error.into())),
        }
    }
}

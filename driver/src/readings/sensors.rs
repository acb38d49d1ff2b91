//! The sensors of a card in use: read again and again, without waiting for anything but the card's answer.

use fpga_hal::Function;
use fpga_regs::dfl::board::{SENSORS, SYSTEM};

use crate::alveo::{self, Cms};
use crate::dfl::{BoardController, find_board};
use crate::readings::Error;
use crate::readings::reading::{self, Reading};

/// The sensors of one function, which its owner has in use.
#[derive(Debug)]
pub(crate) struct Sensors(Source);

#[derive(Debug)]
enum Source {
    /// Card management, and its heartbeat at the last reading.
    Management(Cms, Option<u32>),
    /// The controller of the board.
    Board(BoardController),
}

impl Sensors {
    /// Finds the sensors of a function; `None` if it has none.
    ///
    /// # Errors
    /// The bus's.
    pub(crate) fn find(function: &Function) -> Result<Option<Self>, Error> {
        match Cms::find(function) {
            Ok(cms) => return Ok(Some(Sensors(Source::Management(cms, None)))),
            Err(alveo::Error::NoShell { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(find_board(function)?.map(|board| Sensors(Source::Board(board))))
    }

    /// Reads all sensors, always the same ones in the same order. `None` while the firmware that measures starts.
    ///
    /// # Errors
    /// Those of the part that measures, and the bus's.
    pub(crate) fn read(&mut self) -> Result<Option<Vec<Reading>>, Error> {
        match &mut self.0 {
            Source::Management(cms, heartbeat) => {
                if !cms.is_ready()? {
                    return Ok(None);
                }
                let now = cms.heartbeat()?;
                let is_alive = heartbeat.replace(now) != Some(now);
                Ok(Some(cms.sensors()?.into_iter().map(|sensed| reading::of_management(sensed, is_alive)).collect()))
            }
            Source::Board(board) => {
                let read = |sensor: fpga_regs::sensor::Sensor| {
                    board.read(SYSTEM + sensor.offset).map(|raw| reading::of_board(sensor, raw))
                };
                Ok(Some(SENSORS.into_iter().map(read).collect::<Result<_, _>>()?))
            }
        }
    }
}

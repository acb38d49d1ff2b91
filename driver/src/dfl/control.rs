//! The control function.

use std::ops::ControlFlow;
use std::time::Duration;

use fpga_hal::{BarIndex, Claim, Function, Window};
use fpga_regs::dfl::{fme, port, reconfiguration};
use fpga_regs::feature_list::TYPE_FIU;

use crate::dfl::block::Block;
use crate::dfl::board::BoardController;
use crate::dfl::engine::Engine;
use crate::dfl::error::{Error, Result};
use crate::dfl::identity::Identity;
use crate::dfl::port::{Port, clear_noted};
use crate::dfl::reported::Reported;
use crate::error::Error as CardError;
use crate::feature_list::{self, Feature, Unit, Walk, places};
use crate::progress::Progress;
use crate::sequencer::block::bus_error;
use crate::sequencer::preserved::Preserved;

/// Default time limit for each answer of the reconfiguration engine, as in Linux.
const TIMEOUT: Duration = Duration::from_secs(8);

/// A control function, held by this process.
///
/// A call that fails leaves the function usable.
#[derive(Debug)]
pub struct Control {
    features: Vec<(BarIndex, Feature)>,
    management: Block,
    errors: Option<Block>,
    pcie: Option<Block>,
    board: Option<BoardController>,
    engine: Option<Engine>,
    port: Option<Port>,
    port_errors: Option<Block>,
    has_begun: bool,
    timeout: Duration,
    function: Function,
    /// Dropped last: until then the function takes no other driver.
    _claim: Claim,
}

/// Features of a function's lists, each with the BAR that it is in.
type Listed = Vec<(Feature, BarIndex, Window)>;

fn read_lists(function: &Function) -> std::result::Result<Listed, feature_list::Error> {
    let mut listed = Vec::new();
    for place in places(function)? {
        let window = function.window(place.bar)?;
        for feature in Walk::new(&window, place.offset) {
            listed.push((feature?, place.bar, window.clone()));
        }
    }
    Ok(listed)
}

/// Whether a feature is the one with `id` of a unit, or the unit itself if `id` is `None`.
fn is_meant(feature: &Feature, unit: Unit, id: Option<u16>) -> bool {
    let is_unit = feature.kind == TYPE_FIU;
    feature.unit == unit && id.map_or(is_unit, |id| !is_unit && feature.id == id)
}

/// Returns the controller of the board that a function in use leads to; `None` if its first list does not begin with a management
/// engine, or has no controller.
///
/// # Errors
/// The bus's.
pub(crate) fn find_board(function: &Function) -> Result<Option<BoardController>> {
    let bus = |error| Error::from(bus_error(&function.identity().name, error));
    let listed = |error| match error {
        feature_list::Error::List(_) => Ok(None),
        feature_list::Error::Bus(error) => Err(bus(error)),
    };
    let place = match places(function) {
        Ok(places) => places.first().copied(),
        Err(error) => return listed(error),
    };
    let Some(place) = place else { return Ok(None) };
    let window = function.window(place.bar).map_err(bus)?;
    for feature in Walk::new(&window, place.offset) {
        match feature {
            Ok(feature) if is_meant(&feature, Unit::Management, Some(fme::board::ID)) => {
                let block = Block::new(&window, function, &feature, fme::board::WRITE_DATA + 8);
                return Ok(block.map(BoardController::new));
            }
            Ok(feature) if feature.unit == Unit::Management => {}
            Ok(_) => return Ok(None),
            Err(error) => return listed(error),
        }
    }
    Ok(None)
}

impl Control {
    /// Takes the control function of a card into use. The first port counts.
    ///
    /// # Errors
    /// [`Error::NoControl`], which says what was looked at; the bus's, with [`fpga_hal::Error::InUse`] if the function has another
    /// driver.
    pub fn open(function: Function) -> Result<Self> {
        let name = function.identity().name.clone();
        let claim = function.claim().map_err(|error| bus_error(&name, error))?;
        let listed = read_lists(&function).map_err(|error| match error {
            _ if function.is_removed() => CardError::removed(&function).into(),
            feature_list::Error::List(looked) => Error::NoControl { name: name.clone(), looked },
            feature_list::Error::Bus(error) => bus_error(&name, error).into(),
        })?;
        let block = |unit, id, last| {
            let (feature, _, window) = listed.iter().find(|(feature, ..)| is_meant(feature, unit, id))?;
            Block::new(window, &function, feature, last + 8)
        };
        let (management, behind) = (Unit::Management, Unit::Port);
        let Some(first) = block(management, None, fme::BITSTREAM_MD) else {
            let looked = format!("none of its {} features is a management engine", listed.len());
            return Err(Error::NoControl { name, looked });
        };
        // On a D5005 the engine stands before the port, and so belongs to the management engine; the port's features stand behind it.
        Ok(Control {
            management: first,
            errors: block(management, Some(fme::errors::ID), fme::errors::INJECT),
            pcie: block(management, Some(fme::pcie::ID), fme::pcie::ERROR),
            board: block(management, Some(fme::board::ID), fme::board::WRITE_DATA).map(BoardController::new),
            engine: block(management, Some(reconfiguration::ID), reconfiguration::INTERFACE_HI).map(Engine),
            port: block(behind, None, port::STATUS).map(Port),
            port_errors: block(behind, Some(port::errors::ID), port::errors::FIRST),
            features: listed.into_iter().map(|(feature, bar, _)| (bar, feature)).collect(),
            has_begun: false,
            timeout: TIMEOUT,
            function,
            _claim: claim,
        })
    }

    /// Returns the function.
    pub fn function(&self) -> &Function {
        &self.function
    }

    /// Returns all features of the shell, in the order of the lists, each with its BAR.
    pub fn features(&self) -> &[(BarIndex, Feature)] {
        &self.features
    }

    /// Sets the time limit of each answer of the reconfiguration engine, which is 8 s at first.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Reads what the shell says of itself.
    pub fn identity(&self) -> Result<Identity> {
        Ok(Identity {
            bitstream: self.management.read(fme::BITSTREAM_ID)?,
            date: self.management.read(fme::BITSTREAM_MD)?,
            interface: self.engine.as_ref().map(Engine::interface).transpose()?,
        })
    }

    /// Returns the controller of the board, if the shell leads to one.
    pub(crate) fn board(&self) -> Option<&BoardController> {
        self.board.as_ref()
    }

    /// Returns whether the port holds the accelerator in reset, as it does after power-up.
    pub fn is_held(&self) -> Result<bool> {
        self.port()?.is_held()
    }

    /// Returns the GUID of the accelerator, if this function reaches it: on cards with virtual functions those do. `None` also while
    /// the port holds it in reset.
    pub fn accelerator(&self) -> Result<Option<u128>> {
        feature_list::accelerator(&self.function).map_err(|error| match error {
            feature_list::Error::List(looked) => Error::NoControl { name: self.name(), looked },
            feature_list::Error::Bus(error) => bus_error(&self.name(), error).into(),
        })
    }

    /// Resets the accelerator, and releases it.
    ///
    /// # Errors
    /// [`Error::Missing`] without a port; [`Error::TimedOut`] if the port does not acknowledge: the accelerator may be held in
    /// reset then.
    pub fn reset_accelerator(&mut self) -> Result<()> {
        let port = self.port()?;
        port.hold()?;
        port.release()
    }

    /// Holds the accelerator in reset until [`reset_accelerator`](Self::reset_accelerator) or [`load`](Self::load) releases it.
    ///
    /// # Errors
    /// As [`reset_accelerator`](Self::reset_accelerator).
    pub fn hold_accelerator(&mut self) -> Result<()> {
        self.port()?.hold()
    }

    /// Reads the error registers. Returns those that are not zero, and clears nothing.
    pub fn errors(&self) -> Result<Vec<Reported>> {
        use fme::errors::{CATFAT, CATFAT_MEANINGS, ERROR, NONFATAL, NONFATAL_MEANINGS, PCIE0_ERROR, PCIE1_ERROR};
        let registers: [(_, &'static str, u32, &'static str, &'static [_]); 8] = [
            (&self.errors, "management engine", ERROR, "ERROR", &[]),
            (&self.errors, "management engine", PCIE0_ERROR, "PCIE0_ERROR", &fme::pcie::MEANINGS),
            (&self.errors, "management engine", PCIE1_ERROR, "PCIE1_ERROR", &fme::pcie::MEANINGS),
            (&self.errors, "management engine", NONFATAL, "NONFATAL", &NONFATAL_MEANINGS),
            (&self.errors, "management engine", CATFAT, "CATFAT", &CATFAT_MEANINGS),
            (&self.pcie, "PCIe", fme::pcie::ERROR, "ERROR", &fme::pcie::MEANINGS),
            (&self.port_errors, "port", port::errors::ERROR, "ERROR", &port::errors::MEANINGS),
            (&self.port_errors, "port", port::errors::FIRST, "FIRST", &port::errors::MEANINGS),
        ];
        let mut found = Vec::new();
        for (block, part, offset, register, meanings) in registers {
            let bits = block.as_ref().map_or(Ok(0), |block| block.read(offset))?;
            if bits != 0 {
                found.push(Reported { part, register, bits, meanings });
            }
        }
        Ok(found)
    }

    /// Clears the error registers. If the port has errors, the accelerator is reset: they cannot be cleared while it works.
    ///
    /// # Errors
    /// [`Error::Refused`] if the accelerator has no power; [`Error::TimedOut`] if the port does not acknowledge.
    pub fn clear_errors(&mut self) -> Result<()> {
        use fme::errors::{ERROR, INJECT, MASK, PCIE0_ERROR, PCIE0_MASK, PCIE1_ERROR, PCIE1_MASK};
        if let Some(errors) = &self.errors {
            errors.write(INJECT, 0)?;
            for (mask, error) in [(MASK, ERROR), (PCIE0_MASK, PCIE0_ERROR), (PCIE1_MASK, PCIE1_ERROR)] {
                // An error that comes between the two accesses is reported when the mask goes.
                errors.masked(mask, || errors.write(error, errors.read(error)?))?;
            }
        }
        if let Some(pcie) = &self.pcie {
            pcie.write(fme::pcie::ERROR, pcie.read(fme::pcie::ERROR)?)?;
        }
        let Some(errors) = &self.port_errors else { return Ok(()) };
        let bits = errors.read(port::errors::ERROR)?;
        let first = errors.read(port::errors::FIRST)?;
        if bits | first == 0 {
            return Ok(());
        }
        let port = self.port()?;
        port.check_power()?;
        let was_held = port.is_held()?;
        port.hold()?;
        let cleared = clear_noted(errors, bits, first);
        if was_held { cleared } else { cleared.and(port.release()) }
    }

    /// Loads an accelerator: raw bytes of an image for partial reconfiguration. The accelerator is held in reset meanwhile, and
    /// released once the new one is configured. Configuration space that the card loses meanwhile is restored. `on_progress` is
    /// called for every queue full of words, and may break off.
    ///
    /// # Errors
    /// [`Error::Refused`] for an empty image; [`Error::Failed`]; [`Error::Interrupted`]; [`Error::TimedOut`]. After an error no
    /// accelerator is loaded, and the port holds the empty region in reset, if the load had [begun](Self::has_begun); otherwise the
    /// same accelerator is loaded, and was reset. The engine takes the next image.
    pub fn load(&mut self, image: &[u8], on_progress: impl FnMut(Progress) -> ControlFlow<()>) -> Result<()> {
        self.has_begun = false;
        let (port, engine) = (self.port()?, self.engine()?);
        if image.is_empty() {
            return Err(Error::Refused { name: self.name(), what: "the image is empty".to_owned() });
        }
        let preserved = Preserved::save(&self.function)?;
        let port = Port(port.0.preserving(&preserved));
        let engine = Engine(engine.0.preserving(&preserved));
        let limit = self.timeout;
        let loaded = prepare(&port, &engine, limit).and_then(|()| {
            self.has_begun = true;
            reconfigure(&port, &engine, image, limit, on_progress)
        });
        // Also what no read has told.
        preserved.restore()?;
        loaded
    }

    /// Returns whether the last load has begun to write its image. If not, the card holds the accelerator that it held.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    fn name(&self) -> String {
        self.function.identity().name.clone()
    }

    fn port(&self) -> Result<&Port> {
        self.port.as_ref().ok_or_else(|| Error::Missing { name: self.name(), what: "port" })
    }

    fn engine(&self) -> Result<&Engine> {
        self.engine
            .as_ref()
            .ok_or_else(|| Error::Missing { name: self.name(), what: "engine for partial reconfiguration" })
    }
}

/// Holds the accelerator in reset, and resets the engine. If that fails, releases the accelerator, unless it was held before.
fn prepare(port: &Port, engine: &Engine, limit: Duration) -> Result<()> {
    let was_held = port.is_held()?;
    let prepared = port.hold().and_then(|()| engine.reset(limit));
    if prepared.is_err()
        && !was_held
        && let Err(also) = port.release()
    {
        log::warn!("{}: after a failed reconfiguration: {also}", engine.0.name());
    }
    prepared
}

/// Loads an image into an engine that was reset, while the accelerator is held in reset, and releases the accelerator.
fn reconfigure(
    port: &Port,
    engine: &Engine,
    image: &[u8],
    limit: Duration,
    on_progress: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<()> {
    if let Err(error) = engine.push(image, limit, on_progress) {
        if let Err(also) = engine.reset(limit) {
            log::warn!("{}: after a failed reconfiguration: {also}", engine.0.name());
        }
        return Err(error);
    }
    port.release()
}

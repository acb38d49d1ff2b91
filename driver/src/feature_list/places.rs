//! Where the lists of a function begin.

use fpga_hal::{BarIndex, Function, Window, config};
use fpga_regs::dfl::{fme, port};
use fpga_regs::feature_list::{TYPE_AFU, TYPE_FIU, VSEC_COUNT, VSEC_ID, VSEC_PLACES, VSEC_VENDOR};

use crate::board::{self, BlockKind, BoardFunction};
use crate::feature_list::error::Error;
use crate::feature_list::walk::{Feature, Walk, read_u64};

/// Where a list begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The BAR.
    pub bar: BarIndex,
    /// Offset of the first header.
    pub offset: u64,
}

/// Returns where the lists of `function` begin: where Intel's capability in its configuration space says, or else where its board file
/// has the first, at the beginning of BAR 0 unless it says otherwise, and where the ports of its management engine are.
///
/// # Errors
/// [`Error::List`] for a capability or a port with an impossible place, and for a function without that BAR; the bus's.
pub fn places(function: &Function) -> Result<Vec<Place>, Error> {
    places_on(function, board::of(function).map_err(|wrong| Error::List(wrong.why))?)
}

/// As [`places`], on a board.
pub(crate) fn places_on(function: &Function, board: &BoardFunction) -> Result<Vec<Place>, Error> {
    match (capability(function)?, board.block(BlockKind::FeatureList)) {
        (Some(capability), _) => from_capability(function, capability),
        (None, Some(list)) => from_first(function, list.bar, list.offset),
        (None, None) => Err(Error::List(format!("board {} has no block feature-list", board.board))),
    }
}

/// A list that may lead to an accelerator's registers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reached {
    /// Where it begins.
    pub(crate) place: Place,
    /// Whether the port that leads to it holds the accelerator in reset. Then it answers no access, and the port notes an error.
    is_held: bool,
}

impl Reached {
    /// Returns the BAR from the list's first header on, to read it.
    ///
    /// # Errors
    /// [`Error::List`] if the port holds the accelerator in reset; the bus's.
    pub(crate) fn list(&self, function: &Function) -> Result<Window, Error> {
        if self.is_held {
            return Err(Error::List("its port holds the accelerator in reset".to_owned()));
        }
        let window = function.window(self.place.bar)?;
        Ok(window.slice(self.place.offset, window.len() - self.place.offset)?)
    }
}

/// A port, and the accelerator behind it that the function with the port reaches itself.
#[derive(Debug)]
pub(crate) struct AcceleratorPort {
    /// The BAR with the port.
    pub(crate) window: Window,
    /// The port.
    pub(crate) feature: Feature,
    /// Where the accelerator's list begins.
    accelerator: Place,
}

/// Returns where the lists of `function` begin that may lead to an accelerator's registers: those of [`places`], and where its ports
/// say that the accelerators behind them are.
///
/// # Errors
/// As [`places`].
pub(crate) fn places_with_accelerators(function: &Function, board: &BoardFunction) -> Result<Vec<Reached>, Error> {
    let places = places_on(function, board)?;
    let mut reached: Vec<_> = places.iter().map(|place| Reached { place: *place, is_held: false }).collect();
    for port in ports_in(function, &places)? {
        let control = read_u64(&port.window, port.feature.offset + u64::from(port::CONTROL))?;
        reached.push(Reached { place: port.accelerator, is_held: control & port::SOFT_RESET != 0 });
    }
    Ok(reached)
}

/// Returns the ports of a function behind which it reaches accelerators itself.
///
/// # Errors
/// As [`places`].
pub(crate) fn accelerator_ports(function: &Function, board: &BoardFunction) -> Result<Vec<AcceleratorPort>, Error> {
    ports_in(function, &places_on(function, board)?)
}

fn ports_in(function: &Function, places: &[Place]) -> Result<Vec<AcceleratorPort>, Error> {
    let mut ports = Vec::new();
    for Place { bar, offset } in places.iter().copied() {
        let window = function.window(bar)?;
        for feature in Walk::new(&window, offset) {
            // What is wrong with a list tells who looks for something in it.
            let Ok(feature) = feature else { break };
            let is_port = (feature.kind, feature.id) == (TYPE_FIU, port::ID);
            if !is_port || feature.offset + u64::from(port::STATUS) + 8 > window.len() {
                continue;
            }
            let next = read_u64(&window, feature.offset + u64::from(port::NEXT_AFU))? & fme::port_offset(u64::MAX);
            if next != 0 {
                let accelerator = place(function, bar.index() as u32, feature.offset + next, "an accelerator")?;
                ports.push(AcceleratorPort { window: window.clone(), feature, accelerator });
            }
        }
    }
    Ok(ports)
}

/// Returns the GUID of the first accelerator that a function reaches behind its ports. `None`: it reaches none, or the port holds it in
/// reset.
///
/// # Errors
/// As [`places`].
pub(crate) fn accelerator(function: &Function) -> Result<Option<u128>, Error> {
    let board = board::of(function).map_err(|wrong| Error::List(wrong.why))?;
    for reached in places_with_accelerators(function, board)? {
        let list = match reached.list(function) {
            Ok(list) => list,
            Err(Error::List(_)) => continue,
            Err(error) => return Err(error),
        };
        match Walk::new(&list, 0).next() {
            Some(Ok(feature)) if feature.kind == TYPE_AFU => return Ok(feature.guid),
            Some(Err(Error::Bus(error))) => return Err(error.into()),
            _ => {}
        }
    }
    Ok(None)
}

/// Returns the offset of Intel's capability.
fn capability(function: &Function) -> Result<Option<u16>, Error> {
    if function.config_read_u16(config::VENDOR)? != VSEC_VENDOR {
        return Ok(None);
    }
    for (id, offset) in function.extended_capabilities() {
        if id == config::EXTENDED_VENDOR && function.config_read_u32(offset + 4)? as u16 == VSEC_ID {
            return Ok(Some(offset));
        }
    }
    Ok(None)
}

fn from_capability(function: &Function, capability: u16) -> Result<Vec<Place>, Error> {
    let count = function.config_read_u32(capability + VSEC_COUNT)?;
    if !(1..=BarIndex::COUNT as u32).contains(&count) {
        return Err(Error::List(format!(
            "its capability {VSEC_ID:#x} counts {count} lists, but there are 1 to 6 BARs"
        )));
    }
    let mut places: Vec<Place> = Vec::new();
    for number in 0..count as u16 {
        let at = capability + VSEC_PLACES + 4 * number;
        if at + 4 > config::BYTES {
            return Err(Error::List("its capability with the places of lists leaves configuration space".to_owned()));
        }
        let word = function.config_read_u32(at)?;
        let place = place(function, word & 7, u64::from(word & !7), "its capability")?;
        if places.iter().any(|other| other.bar == place.bar) {
            let bar = place.bar.index();
            return Err(Error::List(format!("its capability has two lists in BAR{bar}")));
        }
        places.push(place);
    }
    Ok(places)
}

fn from_first(function: &Function, bar: BarIndex, offset: u64) -> Result<Vec<Place>, Error> {
    let first = place(function, bar.index() as u32, offset, "the list")?;
    let window = function.window(first.bar)?;
    let mut places = vec![first];
    let Some(feature) = Walk::new(&window, first.offset).next().transpose()? else { return Ok(places) };
    let last_port = first.offset + u64::from(fme::PORT_3) + 8;
    if (feature.kind, feature.id) != (TYPE_FIU, fme::ID) || window.len() < last_port {
        return Ok(places);
    }
    for offset in [fme::PORT_0, fme::PORT_1, fme::PORT_2, fme::PORT_3].map(u64::from) {
        let port = read_u64(&window, first.offset + offset)?;
        let bar = fme::port_bar(port);
        if port & fme::PORT_IMPLEMENTED != 0 && bar != fme::PORT_IN_THIS_LIST {
            places.push(place(function, bar, fme::port_offset(port), "a port")?);
        }
    }
    Ok(places)
}

/// Makes sure that the function has this BAR, and this offset in it.
fn place(function: &Function, bar: u32, offset: u64, whose: &str) -> Result<Place, Error> {
    let index = u8::try_from(bar).ok().and_then(BarIndex::new);
    let bytes = index.and_then(|index| function.bar(index)).map(|layout| layout.bytes);
    match (index, bytes) {
        (Some(bar), Some(bytes)) if offset < bytes => Ok(Place { bar, offset }),
        (_, Some(bytes)) => {
            Err(Error::List(format!("{whose} begins at {offset:#x} of BAR{bar}, which has {bytes:#x} bytes")))
        }
        (_, None) => Err(Error::List(format!("{whose} begins in BAR{bar}, which the function does not have"))),
    }
}

//! Where the lists of a function begin.

use fpga_hal::{BarIndex, Function, config};
use fpga_regs::dfl::{fme, port};
use fpga_regs::feature_list::{TYPE_AFU, TYPE_FIU, VSEC_COUNT, VSEC_ID, VSEC_PLACES, VSEC_VENDOR};

use crate::board::{self, BlockKind, BoardFunction};
use crate::feature_list::error::Error;
use crate::feature_list::walk::{Walk, read_u64};

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

/// Returns where the lists of `function` begin that may lead to an accelerator's registers: those of [`places`], and where its ports
/// say that the accelerators behind them are. Those read all-ones while a port holds its accelerator in reset.
///
/// # Errors
/// As [`places`].
pub(crate) fn places_with_accelerators(function: &Function, board: &BoardFunction) -> Result<Vec<Place>, Error> {
    let mut places = places_on(function, board)?;
    for index in 0..places.len() {
        let Place { bar, offset } = places[index];
        let window = function.window(bar)?;
        for feature in Walk::new(&window, offset) {
            // What is wrong with a list tells who looks for something in it.
            let Ok(feature) = feature else { break };
            let is_port = (feature.kind, feature.id) == (TYPE_FIU, port::ID);
            if !is_port || feature.offset + u64::from(port::NEXT_AFU) + 8 > window.len() {
                continue;
            }
            let next = read_u64(&window, feature.offset + u64::from(port::NEXT_AFU))? & fme::port_offset(u64::MAX);
            if next != 0 {
                places.push(place(function, bar.index() as u32, feature.offset + next, "an accelerator")?);
            }
        }
    }
    Ok(places)
}

/// Returns the GUID of the first accelerator that a function reaches behind its ports. `None`: it reaches none, or the port holds it in
/// reset.
///
/// # Errors
/// As [`places`].
pub(crate) fn accelerator(function: &Function) -> Result<Option<u128>, Error> {
    let board = board::of(function).map_err(|wrong| Error::List(wrong.why))?;
    for Place { bar, offset } in places_with_accelerators(function, board)? {
        match Walk::new(&function.window(bar)?, offset).next() {
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

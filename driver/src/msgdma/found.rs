//! Finding the building block in a feature list, and what its header says of its interrupt.

use fpga_hal::{Function, Window};
use fpga_regs::feature_list::TYPE_BBB;
use fpga_regs::msgdma::{
    BLOCK_BYTES, FIRST_PARAMETER, FROM_STREAM_GUID, GUID, HAS_PARAMETERS, LAST_PARAMETER, MSIX_PARAMETER, PARAMETERS,
    TO_STREAM_GUID,
};

use crate::board::{self, BoardFunction};
use crate::dfl::{OwnPort, released};
use crate::feature_list::{self, Feature, Place, Walk};
use crate::msgdma::error::{Error, Result};
use crate::sequencer::block::bus_error;

/// Parameters of a header that are looked at.
const PARAMETERS_MAX: usize = 16;
/// Vectors that a function has at most.
const VECTORS_MAX: u64 = 2048;

/// A building block that was found.
#[derive(Debug)]
pub(super) struct Found {
    /// Its registers, from its header on.
    pub(super) window: Window,
    /// Its vector of MSI-X, if its header says which.
    pub(super) vector: Option<u16>,
}

/// Looks for the block in all feature lists of a function. If the function has a port that holds the accelerator in reset, releases it.
///
/// # Errors
/// [`Error::NoEngine`]; [`Error::BadRegister`]; the bus's.
pub(super) fn in_lists(function: &Function) -> Result<Found> {
    let name = &function.identity().name;
    let none = |looked: String| Error::NoEngine { name: name.clone(), looked };
    let board = board::of(function).map_err(|wrong| none(wrong.why))?;
    let port = OwnPort::find(function, board)?;
    released(port.as_ref(), || look_in_lists(function, board))
}

fn look_in_lists(function: &Function, board: &BoardFunction) -> Result<Found> {
    let name = &function.identity().name;
    let none = |looked: String| Error::NoEngine { name: name.clone(), looked };
    let refused = |error| match error {
        feature_list::Error::List(looked) => none(looked),
        feature_list::Error::Bus(error) => bus_error(name, error).into(),
    };
    let mut looked = Vec::new();
    for reached in feature_list::places_with_accelerators(function, board).map_err(refused)? {
        let Place { bar, offset } = reached.place;
        match reached.list(function).map_err(refused).and_then(|list| in_list(name, &list)) {
            Ok(found) => return Ok(found),
            Err(Error::NoEngine { looked: why, .. }) => looked.push(format!("{bar} + {offset:#x}: {why}")),
            Err(error) => return Err(error),
        }
    }
    Err(none(looked.join("; ")))
}

/// Looks for the block in the feature list at the beginning of `list`.
///
/// # Errors
/// As [`in_lists`].
pub(super) fn in_list(name: &str, list: &Window) -> Result<Found> {
    let none = |looked: &str| Error::NoEngine { name: name.to_owned(), looked: looked.to_owned() };
    let mut has_stream = false;
    for feature in Walk::new(list, 0) {
        let feature = match feature {
            Ok(feature) => feature,
            Err(feature_list::Error::List(looked)) => return Err(none(&looked)),
            Err(feature_list::Error::Bus(error)) => return Err(bus_error(name, error).into()),
        };
        let guid = feature.guid.filter(|_| feature.kind == TYPE_BBB);
        has_stream |= matches!(guid, Some(TO_STREAM_GUID | FROM_STREAM_GUID));
        if guid == Some(GUID) {
            return block(name, list, &feature);
        }
    }
    Err(none(match has_stream {
        true => "the feature list has one for a stream, which this driver does not drive",
        false => "the feature list does not have its GUID",
    }))
}

fn block(name: &str, list: &Window, feature: &Feature) -> Result<Found> {
    let offset = feature.offset;
    if offset + u64::from(BLOCK_BYTES) > list.len() {
        let looked = format!("its block at {offset:#x} does not fit into the BAR");
        return Err(Error::NoEngine { name: name.to_owned(), looked });
    }
    let window = list.slice(offset, BLOCK_BYTES.into()).map_err(|error| bus_error(name, error))?;
    let vector = if feature.version == 1 { vector(name, &window)? } else { None };
    Ok(Found { window, vector })
}

/// Reads the vector of MSI-X from the parameters of a header of version 1.
fn vector(name: &str, window: &Window) -> Result<Option<u16>> {
    let read = |offset: u64| {
        let halves = [window.read_u32(offset), window.read_u32(offset + 4)];
        let [low, high] = halves.map(|half| half.map_err(|error| Error::from(bus_error(name, error))));
        Ok::<_, Error>(u64::from(low?) | u64::from(high?) << 32)
    };
    if read(HAS_PARAMETERS)? & PARAMETERS == 0 {
        return Ok(None);
    }
    let mut at = FIRST_PARAMETER;
    for _ in 0..PARAMETERS_MAX {
        let parameter = read(at)?;
        if parameter & 0xffff == MSIX_PARAMETER {
            let value = read(at + 8)?;
            let (first, count) = (value & 0xffff_ffff, value >> 32);
            if count == 0 || first + count > VECTORS_MAX {
                let (register, expected) = ("MSI-X of the feature header", "1 to 2048 vectors");
                return Err(Error::BadRegister { name: name.to_owned(), register, value, expected });
            }
            return Ok(Some(first as u16));
        }
        let next = (parameter >> 35) * 8;
        let is_last = parameter & LAST_PARAMETER != 0 || next == 0;
        match at.checked_add(next).filter(|at| *at + 16 <= window.len()) {
            Some(next) if !is_last => at = next,
            _ => break,
        }
    }
    Ok(None)
}

//! Masks the errors of the port above a card while an image is loaded, so that the port reports none of a card that is being
//! changed.

use fpga_hal::PciAddress;
use fpga_hal::sysfs::{ErrorMasks, Port, PortError, Sysfs};
use fpga_select::Selector;
use schemars::JsonSchema;
use serde::Serialize;

use crate::exit::{Exit, Failure, Result, with_causes};
use crate::image::kept::{Kept, MaskNote};

/// What was done with the port above, as in `fpgactl.image-load/1`.
#[derive(Debug, Clone, JsonSchema, Serialize)]
pub(crate) struct PortAbove {
    /// Address of the port.
    port: String,
    /// Whether its errors were masked during the load.
    masked: bool,
    /// Why they were not; null if they were.
    reason: Option<String>,
}

/// The port above a card, during a load.
pub(super) struct Upstream<'a> {
    kept: &'a Kept,
    address: PciAddress,
    state: State,
}

enum State {
    /// Its errors are masked. The masks are those from before.
    Masked(Port, ErrorMasks),
    /// They are not: the port cannot be read or written.
    Refused(String),
    /// An earlier load has masked them, and they cannot be restored.
    StillMasked(String),
}

impl<'a> Upstream<'a> {
    /// Masks the errors of `port`, or else of the port above the card. `None`: there is none, or it reports no errors.
    ///
    /// The masks are in the journal before they change. A port that this user may not write is left as it is.
    pub(super) fn mask(
        sysfs: &Sysfs,
        selector: &Selector,
        port: Option<PciAddress>,
        kept: &'a Kept,
    ) -> Result<Option<Self>> {
        let above = || match selector.addresses().as_slice() {
            [card, ..] => sysfs.port_above(*card),
            [] => Ok(None),
        };
        let noted = restore_noted(sysfs, kept);
        let Some(address) = port.map_or_else(above, |port| Ok(Some(port)))? else { return noted.map(|_| None) };
        let state = match noted {
            Err(failure) => State::StillMasked(failure.message().to_owned()),
            Ok(_) => match masked(sysfs, address, kept) {
                Ok(Some((port, before))) => State::Masked(port, before),
                Ok(None) => return Ok(None),
                Err(Refused::Port(error)) => State::Refused(with_causes(&error)),
                Err(Refused::Journal(failure)) => return Err(failure),
            },
        };
        Ok(Some(Upstream { kept, address, state }))
    }

    /// Returns why this load does not mask the errors.
    pub(super) fn refusal(&self) -> Option<String> {
        match &self.state {
            State::Masked(..) => None,
            State::Refused(reason) => Some(format!("errors of port {} are not masked: {reason}", self.address)),
            State::StillMasked(reason) => Some(reason.clone()),
        }
    }

    /// Returns what `--json` prints.
    pub(super) fn printed(&self) -> PortAbove {
        let reason = match &self.state {
            State::Masked(..) => None,
            State::Refused(reason) | State::StillMasked(reason) => Some(reason.clone()),
        };
        PortAbove { port: self.address.to_string(), masked: reason.is_none(), reason }
    }

    /// Restores the masks, and takes them out of the journal.
    pub(super) fn restore(self) -> Result<()> {
        let State::Masked(port, before) = self.state else { return Ok(()) };
        port.restore(before).map_err(|error| still_masked(self.address, &error))?;
        self.kept.masks_restored()
    }
}

/// Why errors were not masked.
enum Refused {
    /// The port cannot be read or written: the load goes on.
    Port(PortError),
    /// The masks cannot be noted: nothing is loaded.
    Journal(Failure),
}

/// Masks the errors of a port; returns it with the masks from before.
fn masked(sysfs: &Sysfs, address: PciAddress, kept: &Kept) -> std::result::Result<Option<(Port, ErrorMasks)>, Refused> {
    let Some(port) = sysfs.open_port(address).map_err(Refused::Port)? else { return Ok(None) };
    let before = port.masks().map_err(Refused::Port)?;
    let ErrorMasks { uncorrectable, correctable } = before;
    let note = MaskNote { port: address.to_string(), uncorrectable, correctable, boot: sysfs.boot() };
    kept.note_masks(&note).map_err(Refused::Journal)?;
    if let Err(error) = port.mask_all() {
        // One of the two may have been written. If they cannot be restored, the note stays for the next command.
        if port.restore(before).is_ok() {
            kept.masks_restored().map_err(Refused::Journal)?;
        }
        return Err(Refused::Port(error));
    }
    Ok(Some((port, before)))
}

/// Restores the masks of a port that a killed load left in the journal. Returns the port, if there was one.
pub(super) fn restore_noted(sysfs: &Sysfs, kept: &Kept) -> Result<Option<PciAddress>> {
    let Some(note) = kept.noted_masks()? else { return Ok(None) };
    let Ok(address) = note.port.parse::<PciAddress>() else {
        return Err(Failure::refused(format!("the journal names port {:?}: expected a PCI address", note.port)));
    };
    // A reset of the machine has set the masks anew, and the address may be another port's.
    if note.boot != sysfs.boot() {
        kept.masks_restored()?;
        return Ok(None);
    }
    let before = ErrorMasks { uncorrectable: note.uncorrectable, correctable: note.correctable };
    match sysfs.open_port(address) {
        Ok(Some(port)) => port.restore(before).map_err(|error| still_masked(address, &error))?,
        // A port that was removed, or has become another, has lost its masks.
        Ok(None) | Err(PortError::NoPort { .. }) => {}
        Err(error) => return Err(still_masked(address, &error)),
    }
    kept.masks_restored()?;
    Ok(Some(address))
}

fn still_masked(port: PciAddress, error: &PortError) -> Failure {
    let exit = match error {
        PortError::NoPermission { .. } | PortError::Hidden { .. } => Exit::NoCard,
        PortError::Gone { .. } => Exit::Gone,
        _ => Exit::Failed,
    };
    let message = format!("errors of port {port} are still masked: {}", with_causes(error));
    Failure::new(exit, message).with_help("use `fpgactl image recover` as root")
}

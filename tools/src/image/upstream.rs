//! Masks the errors of the port above a card while an image is loaded, so that the port reports none of a card that is being
//! changed.
//!
//! A port belongs to all cards below it, so its masks from before are noted per port, not per card. Whoever masks it holds its lock from
//! before the first note until the masks are restored and the notes are gone ([`Sysfs::open_port`]; a killed process loses the lock). So at
//! most one load masks a port at a time. Another one under the same port, meanwhile, goes on without masking, says so, and restores
//! nothing. A note that is found under the lock is of a killed load, of whichever card: its masks are the ones from before, and what
//! the port has now is not.

use cmdseq::text::with_causes;
use fpga_hal::PciAddress;
use fpga_hal::sysfs::{ErrorMasks, Port, PortError, Sysfs};
use fpga_select::Selector;
use schemars::JsonSchema;
use serde::Serialize;

use crate::exit::{Exit, Failure, Result};
use crate::image::kept::{Kept, MaskNote, PortNote};

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
                Err(Refused::Note(failure)) => State::StillMasked(failure.message().to_owned()),
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
        // The port stays locked until the journal is right.
        let State::Masked(port, before) = self.state else { return Ok(()) };
        port.restore(before).map_err(|error| still_masked(self.address, &error))?;
        forget(self.kept, self.address)
    }
}

/// Why errors were not masked.
enum Refused {
    /// The port cannot be read or written: the load goes on.
    Port(PortError),
    /// A killed load has noted masks that cannot be read: the load goes on.
    Note(Failure),
    /// The masks cannot be noted: nothing is loaded.
    Journal(Failure),
}

/// Masks the errors of a port; returns it with the masks from before.
fn masked(sysfs: &Sysfs, address: PciAddress, kept: &Kept) -> std::result::Result<Option<(Port, ErrorMasks)>, Refused> {
    let Some(port) = sysfs.open_port(address).map_err(Refused::Port)? else { return Ok(None) };
    let before = match noted_masks(sysfs, kept, address).map_err(Refused::Note)? {
        Some(before) => before,
        None => port.masks().map_err(Refused::Port)?,
    };
    let ErrorMasks { uncorrectable, correctable } = before;
    // The card's note first: if the masks are noted, it leads to them.
    kept.note_port(&PortNote { port: address.to_string(), boot: sysfs.boot() }).map_err(Refused::Journal)?;
    let note = MaskNote { uncorrectable, correctable, boot: sysfs.boot() };
    kept.note_masks(address, &note).map_err(Refused::Journal)?;
    if let Err(error) = port.mask_all() {
        // One of the two may have been written. If they cannot be restored, the notes stay for the next command.
        if port.restore(before).is_ok() {
            forget(kept, address).map_err(Refused::Journal)?;
        }
        return Err(Refused::Port(error));
    }
    Ok(Some((port, before)))
}

/// Takes a port out of the journal, the masks first: a card's note alone does no harm.
fn forget(kept: &Kept, port: PciAddress) -> Result<()> {
    kept.masks_restored(port)?;
    kept.forget_port()
}

/// Returns the masks from before that a killed load has noted since the machine was started: a reset has set the masks anew, and the
/// address may be another port's.
fn noted_masks(sysfs: &Sysfs, kept: &Kept, port: PciAddress) -> Result<Option<ErrorMasks>> {
    let note = kept.noted_masks(port)?.filter(|note| note.boot == sysfs.boot());
    Ok(note.map(|MaskNote { uncorrectable, correctable, .. }| ErrorMasks { uncorrectable, correctable }))
}

/// What a killed load of a card has left of the port above.
pub(super) struct Left {
    /// The port.
    pub(super) port: PciAddress,
    /// Whether this command has restored its masks. If not, a command for another card has, or will.
    pub(super) is_restored: bool,
}

/// Restores the masks of the port that a killed load of this card left in the journal. Returns the port, if there was one.
pub(super) fn restore_noted(sysfs: &Sysfs, kept: &Kept) -> Result<Option<Left>> {
    let Some(note) = kept.noted_port()? else { return Ok(None) };
    let Ok(address) = note.port.parse::<PciAddress>() else {
        return Err(Failure::refused(format!("the journal names port {:?}: expected a PCI address", note.port)));
    };
    // As for the masks. Stale masks of the port stay: whoever masks it next replaces them.
    if note.boot != sysfs.boot() {
        kept.forget_port()?;
        return Ok(None);
    }
    let port = sysfs.open_port(address);
    let before = noted_masks(sysfs, kept, address)?;
    match (&port, before) {
        (Ok(Some(port)), Some(before)) => port.restore(before).map_err(|error| still_masked(address, &error))?,
        // A port that was removed, or has become another, has lost its masks.
        (Ok(_) | Err(PortError::NoPort { .. }), _) => {}
        // Without the lock, the notes may be of a load under way. Whoever has taken the masks away has restored them.
        (Err(_), None) => return Ok(Some(Left { port: address, is_restored: false })),
        (Err(error), Some(_)) => return Err(still_masked(address, error)),
    }
    forget(kept, address)?;
    Ok(Some(Left { port: address, is_restored: before.is_some() }))
}

fn still_masked(port: PciAddress, error: &PortError) -> Failure {
    let exit = match error {
        PortError::NoPermission { .. } | PortError::Hidden { .. } => Exit::NoCard,
        PortError::Gone { .. } => Exit::Gone,
        _ => Exit::Failed,
    };
    let help = match error {
        PortError::InUse { .. } => "use `fpgactl image recover` after it has ended",
        _ => "use `fpgactl image recover` as root",
    };
    let message = format!("errors of port {port} are still masked: {}", with_causes(error));
    Failure::new(exit, message).with_help(help)
}

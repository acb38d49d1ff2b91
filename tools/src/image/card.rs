//! A card that images are loaded into.

use std::ops::ControlFlow;
use std::path::Path;

use fpga_driver::dfl::{Control, Progress};
use fpga_image::{Image, Uuid};
use fpga_select::Selector;

use crate::exit::{Failure, Result};
use crate::interrupt::Interrupt;
use crate::progress;

/// A control function, opened.
pub(super) struct ImageCard {
    control: Control,
    pub(super) interface: Uuid,
}

impl ImageCard {
    /// Opens the one function that a selector selects.
    pub(super) fn open(selector: &Selector, text: &str) -> Result<Self> {
        let selection = selector.open()?;
        let [function] = selection.functions.as_slice() else {
            let count = selection.functions.len();
            return Err(Failure::usage(format!("{text} selects {count} functions: select one")));
        };
        let control = Control::open(function.clone())?;
        match control.identity()?.interface {
            Some(interface) => Ok(ImageCard { control, interface: Uuid::from_u128(interface) }),
            None => Err(Failure::refused(format!("{text} takes no images"))),
        }
    }

    /// Returns whether an image is for the card's interface; `None` if it does not say what it is for.
    pub(super) fn fits(&self, image: &Image<'_>) -> Option<bool> {
        match image {
            Image::Gbs(gbs) => gbs.interface.map(|interface| interface == self.interface),
            Image::Signed(_) | Image::Raw(_) => None,
            // AMD's.
            _ => Some(false),
        }
    }

    /// Returns what of an image goes to the card, if the image is for its interface.
    pub(super) fn checked<'a>(&self, path: &Path, image: &Image<'a>, unchecked: bool) -> Result<&'a [u8]> {
        let (path, card) = (path.display(), self.interface);
        let (bitstream, made_for) = match image {
            Image::Gbs(gbs) => (gbs.bitstream, gbs.interface),
            Image::Signed(bytes) | Image::Raw(bytes) => (*bytes, None),
            other => {
                let format = other.format().name();
                let what = format!("{path}: {format} files are for AMD's cards, and this card is Intel's");
                return Err(Failure::refused(what));
            }
        };
        match (self.fits(image), made_for) {
            (Some(false), Some(interface)) => {
                Err(Failure::refused(format!("{path}: made for interface {interface}; the card has {card}")))
            }
            (None, _) if !unchecked => Err(Failure::refused(format!(
                "{path}: the file does not say which interface it is made for, and the card has {card}; if you know that they \
                 match, use --unchecked"
            ))),
            _ => Ok(bitstream),
        }
    }

    /// Loads a bitstream, with a bar on a terminal.
    pub(super) fn load(
        &mut self,
        bitstream: &[u8],
        what: &'static str,
        interrupt: &Interrupt,
    ) -> std::result::Result<(), fpga_driver::dfl::Error> {
        let bar = progress::bytes(bitstream.len() as u64, what);
        let loaded = self.control.load(bitstream, |Progress { pushed, .. }| {
            bar.set_position(pushed);
            match interrupt.check() {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        });
        bar.finish_and_clear();
        loaded
    }
}

/// Returns what an image holds, for people.
pub(super) fn accelerators(image: &Image<'_>) -> Vec<String> {
    match image {
        Image::Gbs(gbs) => gbs.accelerators.iter().map(|one| one.guid.to_string()).collect(),
        _ => Vec::new(),
    }
}

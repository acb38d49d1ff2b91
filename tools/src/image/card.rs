//! A card that images are loaded into.

use std::ops::ControlFlow;
use std::path::Path;

use cmdseq::text::printable;
use fpga_driver::region::{Maker, Region};
use fpga_image::{Format, Image, Uuid};
use fpga_select::Selector;

use crate::exit::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::{cards, progress};

/// What is said of a card into which no load has begun.
pub(super) const UNCHANGED: &str = "the card was not changed";

/// A card, opened.
pub(super) struct ImageCard {
    region: Region,
    /// Whether a load of this command has begun.
    is_changed: bool,
}

/// Returns whose cards take files of a format.
fn maker(format: Format) -> Maker {
    match format {
        Format::Xclbin | Format::Bit | Format::Bin => Maker::Amd,
        Format::Gbs | Format::Signed | Format::Raw => Maker::Intel,
    }
}

fn possessive(maker: Maker) -> &'static str {
    match maker {
        Maker::Amd => "AMD's",
        Maker::Intel => "Intel's",
    }
}

/// Whether an image is for an emulator, and for no card.
pub(super) fn is_for_emulation(image: &Image<'_>) -> bool {
    matches!(image, Image::Xclbin(xclbin) if xclbin.is_for_emulation())
}

/// Writes GUIDs one after the other.
fn listed(guids: &[Uuid]) -> String {
    guids.iter().map(Uuid::to_string).collect::<Vec<_>>().join(", ")
}

impl ImageCard {
    /// Opens the one function that a selector selects.
    pub(super) fn open(selector: &Selector) -> Result<Self> {
        let function = cards::single(&selector.open()?)?.clone();
        Ok(ImageCard { region: Region::open(function)?, is_changed: false })
    }

    /// Returns the interface that images must be made for.
    pub(super) fn interface(&self) -> Uuid {
        Uuid::from_u128(self.region.interface())
    }

    /// Returns whether an image is for the card's interface; `None` if it does not say what it is for.
    pub(super) fn fits(&self, image: &Image<'_>) -> Option<bool> {
        if maker(image.format()) != self.region.maker() || is_for_emulation(image) {
            return Some(false);
        }
        let interfaces = image.interfaces();
        (!interfaces.is_empty()).then(|| interfaces.contains(&self.interface()))
    }

    /// Returns what of an image goes to the card, if the image is for its interface.
    pub(super) fn checked<'a>(&self, path: &Path, image: &Image<'a>, unchecked: bool) -> Result<&'a [u8]> {
        let (path, card, format) = (printable(&path.to_string_lossy()), self.interface(), image.format());
        let refused = |what: String| Err(Failure::refused(format!("{path}: {what}")));
        let (theirs, ours) = (maker(format), self.region.maker());
        if theirs != ours {
            let (theirs, ours) = (possessive(theirs), possessive(ours));
            return refused(format!("{} files are for {theirs} cards, and this card is {ours}", format.name()));
        }
        if is_for_emulation(image) {
            return refused("the file is for emulation, not for a card".to_owned());
        }
        match self.fits(image) {
            Some(false) => {
                return refused(format!("made for interface {}; the card has {card}", listed(&image.interfaces())));
            }
            None if !unchecked => {
                return refused(format!(
                    "the file does not say which interface it is made for, and the card has {card}; if you know that they match, \
                     use --unchecked"
                ));
            }
            Some(true) | None => {}
        }
        match image.bitstream() {
            Some(bitstream) => Ok(bitstream),
            None => refused(format!("the {} holds no .bit file", format.name())),
        }
    }

    /// Loads a bitstream, with a bar on a terminal.
    pub(super) fn load(&mut self, bitstream: &[u8], what: &'static str, interrupt: &Interrupt) -> Result<()> {
        let bar = progress::bytes(bitstream.len() as u64, what);
        let loaded = self.region.load(bitstream, |progress| {
            bar.set_position(progress.pushed);
            match interrupt.check() {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        });
        bar.finish_and_clear();
        self.is_changed |= self.region.has_begun();
        Ok(loaded?)
    }

    /// Returns whether the card may hold something else than when it was opened.
    pub(super) fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Says that the card was not changed, and what it holds if it tells.
    pub(super) fn unchanged(&self) -> String {
        match self.contents() {
            Ok(Some(holds)) => format!("{UNCHANGED}, and holds accelerator {holds}"),
            _ => UNCHANGED.to_owned(),
        }
    }

    /// Makes sure that the card holds what the image says, as far as the card tells.
    pub(super) fn check_loaded(&self, image: &Image<'_>) -> Result<()> {
        let (holds, named) = (self.contents()?, image.contents());
        match holds {
            Some(holds) if !named.is_empty() && !named.contains(&holds) => {
                let what = format!("the card holds {holds} now; the file names {}", listed(&named));
                Err(Failure::new(Exit::Failed, what))
            }
            _ => Ok(()),
        }
    }

    /// Returns what an image that was just loaded has brought: what the card says, or else the file.
    pub(super) fn brought(&self, image: &Image<'_>) -> Result<Vec<String>> {
        let brought = self.contents()?.map_or_else(|| image.contents(), |holds| vec![holds]);
        Ok(brought.iter().map(Uuid::to_string).collect())
    }

    fn contents(&self) -> Result<Option<Uuid>> {
        Ok(self.region.contents()?.map(Uuid::from_u128))
    }
}

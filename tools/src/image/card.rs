//! A card that images are loaded into.

use std::ops::ControlFlow;
use std::path::Path;

use fpga_driver::alveo::{self, Loader};
use fpga_driver::dfl::{self, Control};
use fpga_image::{Image, Uuid};
use fpga_select::Selector;

use crate::exit::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::progress;

/// A card, opened.
pub(super) struct ImageCard {
    region: Region,
    pub(super) interface: Uuid,
}

/// What takes the images.
enum Region {
    /// The control function of an Intel card.
    Intel(Box<Control>),
    /// This project's shell of an Alveo card.
    Alveo(Box<Loader>),
}

impl ImageCard {
    /// Opens the one function that a selector selects.
    pub(super) fn open(selector: &Selector, text: &str) -> Result<Self> {
        let selection = selector.open()?;
        let [function] = selection.functions.as_slice() else {
            let count = selection.functions.len();
            return Err(Failure::usage(format!("{text} selects {count} functions: select one")));
        };
        let no_control = match Control::open(function.clone()) {
            Ok(control) => {
                return match control.identity()?.interface {
                    Some(interface) => Ok(ImageCard {
                        region: Region::Intel(Box::new(control)),
                        interface: Uuid::from_u128(interface),
                    }),
                    None => Err(Failure::refused(format!("{text} takes no images"))),
                };
            }
            Err(error @ dfl::Error::NoControl { .. }) => error,
            Err(error) => return Err(error.into()),
        };
        match Loader::open(function.clone()) {
            Ok(loader) => {
                let interface = Uuid::from_u128(loader.interface()?);
                Ok(ImageCard { region: Region::Alveo(Box::new(loader)), interface })
            }
            Err(alveo::Error::NoShell { looked, .. }) => Err(Failure::refused(format!("{no_control}; {looked}"))),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether an image is for the card's interface; `None` if it does not say what it is for.
    pub(super) fn fits(&self, image: &Image<'_>) -> Option<bool> {
        match (&self.region, image) {
            (Region::Intel(_), Image::Gbs(gbs)) => gbs.interface.map(|interface| interface == self.interface),
            (Region::Intel(_), Image::Signed(_) | Image::Raw(_)) => None,
            (Region::Alveo(_), Image::Xclbin(xclbin)) => {
                let offered = xclbin.partition.iter().flat_map(|partition| &partition.interfaces);
                Some(offered.chain([&xclbin.interface]).any(|interface| *interface == self.interface))
            }
            (Region::Alveo(_), Image::Bit(_) | Image::Bin(_)) => None,
            // The other maker's.
            _ => Some(false),
        }
    }

    /// Returns what of an image goes to the card, if the image is for its interface.
    pub(super) fn checked<'a>(&self, path: &Path, image: &Image<'a>, unchecked: bool) -> Result<&'a [u8]> {
        let (path, card) = (path.display(), self.interface);
        let (bitstream, made_for) = match (&self.region, image) {
            (Region::Intel(_), Image::Gbs(gbs)) => (gbs.bitstream, gbs.interface),
            (Region::Intel(_), Image::Signed(bytes) | Image::Raw(bytes)) => (*bytes, None),
            (Region::Alveo(_), Image::Bit(bit)) => (bit.stream, None),
            (Region::Alveo(_), Image::Bin(stream)) => (*stream, None),
            (Region::Alveo(_), Image::Xclbin(xclbin)) => match &xclbin.bitstream {
                Some(bit) => (bit.stream, Some(xclbin.interface)),
                None => return Err(Failure::refused(format!("{path}: the xclbin holds no .bit file"))),
            },
            (region, other) => {
                let format = other.format().name();
                let (theirs, ours) = match region {
                    Region::Intel(_) => ("AMD's", "Intel's"),
                    Region::Alveo(_) => ("Intel's", "AMD's"),
                };
                let what = format!("{path}: {format} files are for {theirs} cards, and this card is {ours}");
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
    pub(super) fn load(&mut self, bitstream: &[u8], what: &'static str, interrupt: &Interrupt) -> Result<()> {
        let bar = progress::bytes(bitstream.len() as u64, what);
        let on_progress = |pushed| {
            bar.set_position(pushed);
            match interrupt.check() {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        };
        let loaded = match &mut self.region {
            Region::Intel(control) => {
                control.load(bitstream, |progress| on_progress(progress.pushed)).map_err(Failure::from)
            }
            Region::Alveo(loader) => {
                loader.load(bitstream, |progress| on_progress(progress.pushed)).map_err(Failure::from)
            }
        };
        bar.finish_and_clear();
        loaded
    }

    /// Makes sure that the card holds what the image says, as far as the card tells.
    pub(super) fn check_loaded(&self, image: &Image<'_>) -> Result<()> {
        let (holds, named) = match (&self.region, image) {
            // Cards with virtual functions show the accelerator there alone.
            (Region::Intel(control), Image::Gbs(gbs)) => {
                (control.accelerator()?, gbs.accelerators.iter().map(|one| one.guid).collect::<Vec<_>>())
            }
            (Region::Alveo(loader), Image::Xclbin(xclbin)) => {
                (loader.logic()?, xclbin.partition.iter().filter_map(|partition| partition.logic).collect())
            }
            _ => return Ok(()),
        };
        let Some(holds) = holds.map(Uuid::from_u128) else { return Ok(()) };
        if named.is_empty() || named.contains(&holds) {
            return Ok(());
        }
        let named: Vec<String> = named.iter().map(Uuid::to_string).collect();
        let what = format!("the card holds {holds} now; the file names {}", named.join(", "));
        Err(Failure::new(Exit::Failed, what))
    }

    /// Returns what an image that was just loaded has brought, for people.
    pub(super) fn accelerators(&self, image: &Image<'_>) -> Result<Vec<String>> {
        match (&self.region, image) {
            (Region::Alveo(loader), _) => {
                Ok(loader.logic()?.into_iter().map(|guid| Uuid::from_u128(guid).to_string()).collect())
            }
            (Region::Intel(_), Image::Gbs(gbs)) => {
                Ok(gbs.accelerators.iter().map(|one| one.guid.to_string()).collect())
            }
            (Region::Intel(_), _) => Ok(Vec::new()),
        }
    }
}

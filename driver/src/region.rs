//! The region of a card that takes images, whoever made the card.
//!
//! What a function answers decides which of the two ways of loading it has, never its PCI ids: a management engine at the head of
//! Intel's feature list ([`dfl::Control`]), or this project's shell behind AMD's engine ([`alveo::Loader`]).
//!
//! ```
//! use std::ops::ControlFlow;
//!
//! use fpga_driver::region::{Maker, Region};
//! # use fpga_hal::{Domain, in_process};
//! # use fpga_mock::xdma::{IDCODE, Shape, XdmaCards, stream};
//! # let cards = XdmaCards::new(1, Shape::default());
//! # let function = in_process::attach(cards.endpoint(0), &Domain::in_process(), "card 0")?;
//! # let image = stream(7, IDCODE, 4096);
//!
//! let mut region = Region::open(function)?;
//! assert_eq!(region.maker(), Maker::Amd);
//! println!("takes images for interface {:032x}", region.interface());
//! region.load(&image, |progress| {
//!     println!("{} of {} bytes", progress.pushed, progress.total);
//!     ControlFlow::Continue(())
//! })?;
//! assert_eq!(region.contents()?, Some(7));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::ops::ControlFlow;

use fpga_hal::Function;

use crate::alveo::{self, Loader};
use crate::dfl::{self, Control};
pub use crate::progress::Progress;

/// Who made a card's FPGA: bitstreams of one are nothing to the other's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maker {
    /// AMD, formerly Xilinx.
    Amd,
    /// Intel, formerly and now again Altera.
    Intel,
}

/// Why a region was not opened, or did not do what was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The function takes no images.
    #[error("{name} takes no images: {looked}")]
    NoRegion {
        /// The function.
        name: String,
        /// What was looked at, and found.
        looked: String,
    },
    /// The control function of an Intel card.
    #[error(transparent)]
    Control(#[from] dfl::Error),
    /// This project's shell of an Alveo card.
    #[error(transparent)]
    Alveo(#[from] alveo::Error),
}

/// Result with an [`enum@Error`] of a region.
pub type Result<T> = std::result::Result<T, Error>;

/// The region of a card that takes images, held by this process.
#[derive(Debug)]
pub struct Region {
    loader: AnyLoader,
    interface: u128,
}

#[derive(Debug)]
enum AnyLoader {
    Control(Box<Control>),
    Alveo(Box<Loader>),
}

impl Region {
    /// Takes the region behind a function into use.
    ///
    /// # Errors
    /// [`Error::NoRegion`]; the bus's, with [`fpga_hal::Error::InUse`] if the function has another driver.
    pub fn open(function: Function) -> Result<Self> {
        let name = function.identity().name.clone();
        let no_control = match Control::open(function.clone()) {
            Ok(control) => {
                let Some(interface) = control.identity()?.interface else {
                    let looked = "its management engine leads to no engine for partial reconfiguration".to_owned();
                    return Err(Error::NoRegion { name, looked });
                };
                return Ok(Region { loader: AnyLoader::Control(Box::new(control)), interface });
            }
            Err(dfl::Error::NoControl { looked, .. }) => looked,
            Err(error) => return Err(error.into()),
        };
        match Loader::open(function) {
            Ok(loader) => {
                let interface = loader.interface()?;
                Ok(Region { loader: AnyLoader::Alveo(Box::new(loader)), interface })
            }
            Err(alveo::Error::NoShell { looked, .. }) => {
                let looked =
                    format!("it is no control function ({no_control}), and has no shell for Alveo cards ({looked})");
                Err(Error::NoRegion { name, looked })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns who made the card.
    pub fn maker(&self) -> Maker {
        match &self.loader {
            AnyLoader::Control(_) => Maker::Intel,
            AnyLoader::Alveo(_) => Maker::Amd,
        }
    }

    /// Returns the id of the interface that images must be made for.
    pub fn interface(&self) -> u128 {
        self.interface
    }

    /// Returns the GUID of what the region holds. `None` if it holds nothing, and if this function does not see it: on Intel cards
    /// with virtual functions those do.
    pub fn contents(&self) -> Result<Option<u128>> {
        match &self.loader {
            AnyLoader::Control(control) => Ok(control.accelerator()?),
            AnyLoader::Alveo(loader) => Ok(loader.logic()?),
        }
    }

    /// Loads a bitstream. What the region held is held in reset or cut off meanwhile; configuration space that the card loses is
    /// restored. `on_progress` is called for every queue full of words, and may break off.
    ///
    /// # Errors
    /// Those of [`Control::load`] and [`Loader::load`]. After an error the region holds nothing, if the load had
    /// [begun](Self::has_begun); otherwise it holds what it held. It takes the next image.
    pub fn load(&mut self, bitstream: &[u8], on_progress: impl FnMut(Progress) -> ControlFlow<()>) -> Result<()> {
        match &mut self.loader {
            AnyLoader::Control(control) => Ok(control.load(bitstream, on_progress)?),
            AnyLoader::Alveo(loader) => Ok(loader.load(bitstream, on_progress)?),
        }
    }

    /// Returns whether the last load has begun to write its bitstream. If not, as after one that was refused, the region holds what it
    /// held.
    pub fn has_begun(&self) -> bool {
        match &self.loader {
            AnyLoader::Control(control) => control.has_begun(),
            AnyLoader::Alveo(loader) => loader.has_begun(),
        }
    }
}

//! This project's own shell for Alveo cards: the parts in its user BAR that no identifier of AMD's tells.

mod block;
mod cms;
mod error;
mod icap;
mod loader;
mod shell;

pub use error::{Error, Result};
pub use loader::Loader;

pub(crate) use cms::{Cms, Sensed};

//! The control function of an Intel card with a Device Feature List: its port, its errors, and partial reconfiguration.
//!
//! A [`Control`] is found by the list, so it works on every card whose shell has a management engine.
//!
//! ```
//! use std::ops::ControlFlow;
//!
//! use fpga_driver::dfl::Control;
//! # use fpga_hal::{Domain, in_process};
//! # use fpga_mock::{Fabric, Profile, Shell, dfl};
//! # let fabric = Fabric::new(Profile { shell: Shell::S10Dfl, ..Profile::optweb(2) })?;
//! # let card = dfl::D5005::new(&fabric, 0);
//! # let function = in_process::attach(card.control(), &Domain::in_process(), "control of card 0")?;
//! # let image = dfl::image(7, 4096);
//!
//! let mut control = Control::open(function)?;
//! println!("{}", control.identity()?);
//! for error in control.errors()? {
//!     println!("{error}");
//! }
//! control.load(&image, |progress| {
//!     println!("{} of {} bytes", progress.pushed, progress.total);
//!     ControlFlow::Continue(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! OFS shells have a host exerciser on a function of its own, which needs no image: [`Exerciser`].
//!
//! Who loads an image sees to it that nobody uses the accelerator: its function belongs to another driver, which this one does not
//! know.
mod block;
mod board;
mod control;
mod engine;
mod error;
mod exerciser;
mod identity;
mod port;
mod reported;

pub(crate) use board::BoardController;
pub use control::Control;
pub(crate) use control::find_board;
pub use error::{Error, Result};
pub(crate) use exerciser::{Described, describe as describe_exerciser};
pub use exerciser::{Exercise, Exercised, Exerciser};
pub use identity::Identity;
pub(crate) use port::{OwnPort, released};
pub use reported::Reported;

//! Intel's modular scatter-gather DMA (mSGDMA): bytes between host memory and card memory, on cards whose accelerator brings the
//! building block of OPAE's DMA examples.
//!
//! An [`Engine`] is found by its GUID in the feature list of an accelerator, never by the ids of the function.
//!
//! ```
//! use fpga_driver::msgdma::{Completion, Direction, Engine, Piece};
//! # use fpga_hal::{Domain, in_process};
//! # use fpga_mock::{Fabric, Profile, Shell, dfl::D5005};
//! # let fabric = Fabric::new(Profile { shell: Shell::S10Pac, ..Profile::optweb(2) })?;
//! # let card = D5005::new(&fabric, 0);
//! # let function = in_process::attach(card.accelerator(), &Domain::in_process(), "card 0")?;
//!
//! let mut engine = Engine::open(function, Completion::Poll)?;
//! engine.write(0x1001, b"to the card")?;
//! let mut data = [0; 11];
//! engine.read(0x1001, &mut data)?;
//! assert_eq!(&data, b"to the card");
//!
//! // From a buffer of one's own, without a copy: in lines of 64 bytes.
//! let buffer = engine.allocate(1 << 20)?;
//! buffer.write(0, &[7; 4096])?;
//! engine.transfer(Direction::ToCard, &[Piece { buffer, offset: 0, address: 0, bytes: 4096 }])?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Buffers and a card that hangs
//!
//! The engine holds its buffers until it is idle. If an access is never answered, it stays busy even through a reset of the
//! dispatcher: its buffers stay mapped until the function was reset.
mod direction;
mod dispatcher;
mod engine;
mod error;
mod found;
mod list;
mod registers;
mod span;

pub use crate::completion::Completion;
pub use direction::Direction;
pub use engine::{Engine, Piece};
pub use error::{Error, Result};

//! AMD's XDMA engine: bytes between host memory and card memory, by scatter-gather over all of its channels.
//!
//! An [`Engine`] is found by the identifiers in its registers, so it works on every card whose shell has one.
//!
//! ```
//! use fpga_driver::xdma::{Completion, Direction, Engine, Piece};
//! # use fpga_hal::{Domain, in_process};
//! # use fpga_mock::xdma::{Shape, XdmaCards};
//! # let cards = XdmaCards::new(1, Shape::default());
//! # let function = in_process::attach(cards.endpoint(0), &Domain::in_process(), "card 0")?;
//!
//! let mut engine = Engine::open(function, Completion::Poll)?;
//! engine.write(0x1000, b"to the card")?;
//! let mut data = [0; 11];
//! engine.read(0x1000, &mut data)?;
//! assert_eq!(&data, b"to the card");
//!
//! // From a buffer of one's own, without a copy.
//! let buffer = engine.allocate(1 << 20)?;
//! buffer.write(0, &[7; 4096])?;
//! engine.transfer(Direction::H2c, &[Piece { buffer, offset: 0, address: 0, bytes: 4096 }])?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Buffers and a card that hangs
//!
//! A channel holds its buffers until it is idle. If card memory does not answer, the channel stays busy even after it was told to
//! stop: its buffers stay mapped until the function was reset.
mod bypass;
mod channel;
mod direction;
mod engine;
mod error;
mod list;
mod reader;
mod registers;

pub use crate::completion::Completion;
pub(crate) use bypass::Bypass;
pub use direction::Direction;
pub use engine::{Engine, Piece};
pub(crate) use engine::{has_engine, noted_errors};
pub use error::{ChannelName, Error, Result};
pub(crate) use reader::Reader;

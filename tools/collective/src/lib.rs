//! Cards of a selector and collectives on them: what the libraries for C and Python have in common.
//!
//! A collective is planned once, stored on the cards and launched any number of times.
//!
//! ```
//! use std::time::Duration;
//!
//! use fpga_collective::{Cards, Request};
//!
//! let mut cards = Cards::open("mock:optweb:4")?;
//! let request = Request { operation: "broadcast", bytes: 4096, root: 1, ..Request::default() };
//! let collective = cards.plan(&request)?;
//! cards.write_input(collective, 1, 0, &[7; 4096])?;
//! cards.launch(collective)?;
//! let times = cards.wait(collective, Duration::from_secs(10))?;
//! println!("arrived after {} us", times.arrival_us);
//! let mut output = vec![0; 4096];
//! cards.read_output(collective, 3, 0, &mut output)?;
//! assert_eq!(output, [7; 4096]);
//! # Ok::<(), fpga_collective::Error>(())
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod cards;
mod collective;
mod error;
mod event;
mod host_memory;

pub use cards::{CardInfo, CardStatus, Cards};
pub use collective::{CollectiveId, Description, Request, Times, element_bytes};
pub use error::{Class, Error, Result};
pub use fpga_hal::DmaBuffer;

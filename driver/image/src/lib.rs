//! Files that configure FPGAs, taken apart: AMD's xclbin and .bit, Intel's GBS, and raw bitstreams.
//!
//! ```
//! use fpga_image::Image;
//!
//! // A GBS file in the format of OPAE: GUID, length of the description, description, bitstream.
//! let mut file = b"XeonFPGA\xb7GBSv001".to_vec();
//! let description = br#"{"version":1,"afu-image":{"magic-no":488605312,"accelerator-clusters":[]}}"#;
//! file.extend((description.len() as u32).to_le_bytes());
//! file.extend(description);
//! file.extend([0x12; 64]);
//!
//! let Image::Gbs(gbs) = Image::parse(&file)? else { panic!("another format") };
//! assert_eq!(gbs.bitstream.len(), 64);
//! # Ok::<(), fpga_image::Error>(())
//! ```
//!
//! Files are not trusted: every offset, length and count is checked before it is used, and what makes no sense is refused, with the place
//! in the file. Nothing is copied but names. What a bitstream does, nobody can tell from it: its makers keep the format secret.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod bit;
mod error;
pub mod gbs;
mod image;
mod reader;
mod signed;
pub mod xclbin;

pub use error::{Error, Result};
pub use image::{BYTES_MAX, Format, Image};
pub use uuid::Uuid;

//! CIRCUS channel definitions: which channels the kernels of an application have (Fujita et al., 2020, section 4.2), and the
//! code for them.
//!
//! A definition is XML:
//!
//! ```
//! let text = "
//! <channels>
//!   <channel name='simple_out'><type>float</type><width>32</width><depth>16</depth><write-to>0</write-to></channel>
//!   <channel name='simple_in'><type>float</type><width>32</width><depth>16</depth><read-from>0</read-from></channel>
//! </channels>";
//! let definition = fpga_channels::parse(text.as_bytes())?;
//! let channel = &definition.channels()[0];
//! assert_eq!((channel.writer.name.as_str(), channel.reader.name.as_str()), ("simple_out", "simple_in"));
//!
//! // OpenCL kernels that send and receive.
//! let files = fpga_channels::generate(&definition, "app", &[fpga_channels::Part::Device], &[])?;
//! assert_eq!(files[0].name, "app_cl.h");
//! assert!(files[0].text.contains("__kernel void circus_send_simple_out("));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Each tag `channel` is one end, as a kernel sees it. The two ends with one id are one [`Channel`]. On which card a kernel
//! runs is no part of a definition.
#![forbid(unsafe_code)]

mod definition;
mod ends;
mod error;
mod generate;
mod parse;
mod word;
mod xml;

pub use definition::{BYTES_MAX, Channel, Definition, End};
pub use error::{Error, Problem};
pub use generate::{File, Part, Refusal, generate};
pub use parse::parse;
pub use word::{BITS_MAX, Scalar, Word};

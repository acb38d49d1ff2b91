//! The Device Feature List: which blocks of registers a function has, and where.
//!
//! ```
//! use fpga_driver::feature_list::{Walk, places};
//! # use fpga_hal::{Domain, in_process};
//! # use fpga_mock::{Fabric, Profile, Shell, dfl::D5005};
//! # let fabric = Fabric::new(Profile { shell: Shell::S10Dfl, ..Profile::optweb(2) })?;
//! # let function = in_process::attach(D5005::new(&fabric, 0).control(), &Domain::in_process(), "control of card 0")?;
//!
//! for place in places(&function)? {
//!     for feature in Walk::new(&function.window(place.bar)?, place.offset) {
//!         let feature = feature?;
//!         println!("BAR{} {:#x}: {feature}", place.bar.index(), feature.offset);
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Nothing in a list is trusted: every link is checked, and every walk ends.

mod error;
mod find;
mod places;
mod walk;

pub use error::Error;
pub(crate) use find::{find_block, find_feature, register_bar};
pub(crate) use places::{AcceleratorPort, accelerator, accelerator_ports, places_with_accelerators};
pub use places::{Place, places};
pub use walk::{Feature, Unit, Walk};

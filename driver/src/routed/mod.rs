//! Cards of Novo-G#: statically scheduled routers, whose tables a host loads, and three-dimensional FFTs on them.
//!
//! ```
//! use cmdseq::routing::{CollectiveKind, RoutedCollective, TreeAlgorithm, compile};
//! use fpga_driver::Cluster;
//! use fpga_driver::routed::Network;
//! # use fpga_hal::{Domain, in_process};
//! # use fpga_mock::{Fabric, Profile};
//! # let fabric = Fabric::new(Profile::novo_g_of("2x2x2")?)?;
//! # let domain = Domain::in_process();
//! # let functions = (0..8).map(|node| in_process::attach(fabric.endpoint(node), &domain, &format!("card {node}")).unwrap());
//!
//! // All cards of a torus.
//! let cluster = Cluster::open(functions.collect())?;
//! let mut network = Network::of(&cluster)?;
//! let multicast = RoutedCollective { kind: CollectiveKind::Multicast, root: 0, members: vec![1, 6], packets: 8 };
//! let tables = compile(network.torus(), &[multicast], TreeAlgorithm::Ocr)?;
//! let loaded = network.load(&tables)?;
//! assert_eq!(network.in_force()?.generation, loaded.generation);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A card has two banks of tables. [`Network::load`] verifies tables, writes them to the staged bank of every card, reads them back, and
//! takes them into force on all cards by one register write. Whatever fails before that write leaves the old tables in force.

mod error;
mod fft;
mod network;
mod router;
mod transform;

pub use error::{Error, Missing, Result, Stall};
pub use network::{InForce, Loaded, Network};
pub use transform::{Span, Transform, Transformed, Turn};

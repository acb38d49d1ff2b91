//! Collectives of statically scheduled routers: trees, the tables that route them, and a check of tables that knows nothing of
//! how they were made.
//!
//! ```
//! use cmdseq::routing::{Capacity, CollectiveKind, RoutedCollective, Torus3, TreeAlgorithm, compile, verify};
//!
//! let torus = Torus3::new([4, 4, 4])?;
//! let multicast = RoutedCollective { kind: CollectiveKind::Multicast, root: 0, members: vec![1, 2, 5], packets: 8 };
//! let mut tables = compile(torus, &[multicast], TreeAlgorithm::Ocr)?;
//! let report = verify(&tables, Capacity::default())?;
//! assert_eq!(report.hops, 8 * 3);
//! tables.nodes[5].routes.clear();
//! assert!(verify(&tables, Capacity::default()).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod compile;
mod entry;
mod scheduled;
mod tree;
mod verify;

pub use compile::{CompileError, compile};
pub use entry::{CHILDREN_MAX, Child, EntryError, Multicast, ReductionEntry, Route, RouteKind};
pub use scheduled::{CollectiveKind, NodeTables, RoutedCollective, RoutedTables, ScheduledCollective, Start};
pub use tree::TreeAlgorithm;
pub use verify::{Capacity, RoutingReport, VerifyError, verify};

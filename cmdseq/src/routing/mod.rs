//! Networks of cards with routers: tori, routing tables, and their check.
//!
//! ```
//! use cmdseq::routing::{RouteError, Torus};
//!
//! let torus = Torus::new(4, 2)?;
//! let mut tables = torus.dimension_order();
//! assert_eq!(tables.check(torus), Ok(()));
//! // A packet from node 0 to node 2 passes node 1. Without an entry there, no route is left.
//! tables.set(1, 2, None);
//! assert_eq!(tables.check(torus), Err(RouteError::Missing { from: 0, to: 2, at: 1 }));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod collective;
mod fft;
mod tables;
mod torus;

pub use crate::topology::torus3::{Torus3, Torus3Error};
pub use collective::{
    CHILDREN_MAX, Capacity, Child, CollectiveKind, CompileError, EntryError, Multicast, NodeTables, ReductionEntry,
    Route, RouteKind, RoutedCollective, RoutedTables, RoutingReport, ScheduledCollective, Start, TreeAlgorithm,
    VerifyError, compile, verify,
};
pub use fft::{FftAxis, FftMapping, FftMappingError, FftPlace, FftTransfer};
pub use tables::{PortTables, RouteError};
pub use torus::{Torus, TorusError};

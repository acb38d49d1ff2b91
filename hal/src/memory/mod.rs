//! Host memory that devices reach.
//!
//! A [`domain`] places memory at [`iova`]s and has the bus map it (`backend`). Its memory is a [`buffer`] that it allocates
//! (`pages`), or memory that two processes share (`shared`). All memory is a `region`: accessed by `copy`, ordered by
//! [`barrier`]s. `table` is the IOMMU of buses that have none.

pub(crate) mod backend;
pub mod barrier;
pub mod buffer;
pub(crate) mod copy;
pub mod direction;
pub mod domain;
pub mod iova;
mod pages;
pub(crate) mod region;
mod shared;
pub(crate) mod table;

pub use direction::Direction;
pub use shared::SharedMemory;

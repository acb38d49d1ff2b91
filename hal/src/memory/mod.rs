//! Host memory that devices reach.
//!
//! A [`domain::Domain`] places memory at IOVAs ([`iova`]) and has the bus map it ([`backend`]). Its memory is allocated
//! ([`buffer`], from the largest available [`pages`]) or shared ([`shared`]). All of it is a [`region`]: accessed by [`copy`], and
//! ordered by [`barrier`]s. [`table`] is the IOMMU of buses without one.

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

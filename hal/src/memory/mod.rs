//! Host memory that devices reach.
//!
//! A [`domain`] places memory at [`iova`]s and has the bus map it (`backend`). Its memory is a [`buffer`] that it allocates (`pages`,
//! `numa`), which may be divided into a [`ring`], or memory that the caller owns ([`registered`]), which two processes may share
//! (`shared`). All memory is a `region`: accessed by `copy`, ordered by [`barrier`]s. `table` is the IOMMU of buses that have none.
//! `published` and `freed` have nothing to do with devices: files that processes watch, and memory that the allocator keeps.

pub(crate) mod backend;
pub mod barrier;
pub mod buffer;
pub(crate) mod copy;
pub mod direction;
pub mod domain;
mod freed;
pub mod iova;
pub(crate) mod member;
mod numa;
mod pages;
mod published;
pub(crate) mod region;
pub mod registered;
pub mod ring;
mod shared;
pub(crate) mod table;

pub use direction::Direction;
pub use freed::release_freed;
pub use memmap2::MmapMut;
pub use published::{PublishedWords, read_words};
pub use registered::{HostMemory, NotRegistered, RawMemory, Registered};
pub use shared::SharedMemory;

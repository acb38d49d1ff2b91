//! The interface between a domain and the bus that maps its memory.

use std::any::Any;
use std::sync::Arc;

use super::direction::Direction;
use super::iova::Iova;
use super::member::Member;
use super::region::Region;
use crate::{BusKind, Error, Result};

/// The first `bytes` bytes of `region`, at `iova`.
#[derive(Debug, Clone)]
pub(crate) struct Mapping {
    pub(crate) iova: Iova,
    pub(crate) bytes: u64,
    pub(crate) direction: Direction,
    pub(crate) region: Arc<Region>,
    /// The function that uses it, if no other does. A backend may let all functions reach it.
    pub(crate) only: Option<Member>,
}

/// Why memory was not mapped.
#[derive(Debug)]
pub(crate) struct NotMapped {
    pub(crate) error: Error,
    /// Why devices may reach the memory all the same, if they may.
    pub(crate) not_undone: Option<Box<Error>>,
}

impl From<Error> for NotMapped {
    fn from(error: Error) -> Self {
        NotMapped { error, not_undone: None }
    }
}

/// Maps the memory of one domain for its functions. Each bus implements it.
pub(crate) trait DomainBackend: Any + Send + Sync {
    /// Returns how the functions are reached.
    fn kind(&self) -> BusKind;

    /// Fails if it is known already that `bytes` more bytes cannot be mapped. Called before memory is allocated.
    fn admit(&self, _bytes: u64) -> Result<()> {
        Ok(())
    }

    /// Returns whether other processes get descriptors of the memory.
    fn shares_memory(&self) -> bool {
        false
    }

    /// Returns whether all pages of the memory must be present before it is mapped, because devices do not wait for pages.
    fn needs_pages(&self) -> bool {
        true
    }

    /// Maps memory. The caller unmaps it before it drops the region's last handle, or leaks the region. `entry_limit` is for
    /// the error.
    fn map(&self, mapping: Mapping, entry_limit: usize) -> std::result::Result<(), NotMapped>;

    /// Unmaps the `bytes` bytes that were mapped at `iova`.
    fn unmap(&self, iova: Iova, bytes: u64) -> Result<()>;
}

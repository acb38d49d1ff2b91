//! The meeting point of `coll --meet`: rank 0 listens on a UNIX or TCP socket, the other ranks connect, and all data goes through rank 0.
//! No thread, except one that resolves a name: each rank moves data while it waits.

pub(crate) mod address;
mod ending;
mod frame;
mod hub;
mod link;
pub(crate) mod part;
mod resolver;
mod spoke;
mod stream;

use fpga_driver::Peers;

use crate::meeting::hub::Hub;
use crate::meeting::part::{MeetError, Part};
use crate::meeting::spoke::Spoke;

/// Waits for all ranks, and connects them.
pub(crate) fn meet(part: &Part) -> Result<Box<dyn Peers>, MeetError> {
    match part.rank {
        0 => Ok(Box::new(Hub::meet(part)?)),
        _ => Ok(Box::new(Spoke::meet(part)?)),
    }
}

#[cfg(test)]
mod tests;

//! Messages between processors and switches.

use crate::net::flit::Flit;
use crate::proto::mpi_fpga::units::Emitted;

/// What happens to a component.
#[derive(Debug)]
pub(crate) enum Message {
    /// A cycle of the router, or of a DMA engine.
    Cycle,
    /// The processor begins a call.
    Start,
    /// A flit comes out of a link.
    Flit { port: usize, flit: Flit },
    /// The FIFO at the other end of a link has room for more flits.
    Credit { port: usize, virtual_channel: usize, phits: usize },
    /// Calls on the communicator of an entry are over, except those of an era.
    EndCalls { entry: u8, era: u16 },
    /// The units have a result.
    Emit(Box<Emitted>),
}

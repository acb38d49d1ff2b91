//! BlueLink: reliable links of small flits between boards, after Markettos, Fox, Moore and Moore, "Interconnect for commodity
//! FPGA clusters: standardized or customized?" (FPL 2014).
//!
//! A [`Fabric`] is boards and cables on one clock of virtual time. An [`End`] is one end of a link alone, without I/O and
//! clock. `docs/bluelink.md` has the protocol, with the reasons for what the paper leaves open.

mod address;
mod application;
mod board;
mod cable;
mod error;
mod fabric;
mod memory_unit;
mod message;
mod packet;
mod packet_port;
mod pipe;
mod pipe_unit;
mod port;
mod remote_memory;
mod routes;

pub use address::{BOARDS_MAX, CHANNELS, Target};
pub use board::BoardStatistics;
pub use error::{FabricError, PORTS_MAX};
pub use fabric::Fabric;
pub use memory_unit::MemoryStatistics;
pub use packet::{PACKET_BYTES_MAX, Packet, PacketError, PacketReader};
pub use packet_port::PacketPort;
pub use pipe::{PIPE_BUF, PipeError, PipeReader, PipeWriter, pipe};
pub use pipe_unit::PIPE_BYTES;
pub use remote_memory::{MemoryError, RemoteMemory};

pub use crate::net::line::{Coding, LineConfig};
pub use crate::profile::bluelink::Parameters;
pub use crate::proto::bluelink::{
    Acknowledgement, Address, Aligner, Damage, Datum, End, EndConfig, Event, Flit, FlitError, HEADER, Payload,
    Received, Receiver, Sender, Sequence, Session, Violation, WINDOW, Word, serialize,
};

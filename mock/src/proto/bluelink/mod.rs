//! BlueLink: a reliable link of flits, after Markettos, Fox, Moore and Moore, "Interconnect for commodity FPGA clusters:
//! standardized or customized?" (FPL 2014).
//!
//! An [`End`] is one end of a link. It has no I/O and no clock: [`End::transmit`] gives the next flit for the wire,
//! [`End::receive`] takes one from the wire, and the caller says what time it is. `docs/bluelink.md` has the protocol, with
//! the reasons for what the paper leaves open.
//!
//! ```
//! use fpga_mock::bluelink::{Address, Datum, End, EndConfig, Session};
//!
//! let config = EndConfig { timeout: 100, input: 8, receive_buffer: 32 };
//! let mut ends = [1, 2].map(|session| End::<u64>::new(config, Session::new(session).unwrap()));
//! let datum = Datum { address: Address::new(5).unwrap(), payload: 0xb10e };
//! ends[0].send(datum).unwrap();
//! for now in 0..10 {
//!     for (from, to) in [(0, 1), (1, 0)] {
//!         if let Some(flit) = ends[from].transmit(now) {
//!             ends[to].receive(now, flit)?;
//!         }
//!     }
//! }
//! assert_eq!(ends[1].take(), Some(datum));
//! # Ok::<(), fpga_mock::bluelink::Violation>(())
//! ```

mod end;
mod flit;
mod receiver;
mod sender;
mod sequence;
mod word;

pub use end::{End, EndConfig, Event};
pub use flit::{Acknowledgement, Address, Damage, Datum, Flit, FlitError, HEADER, Payload, Session, Violation};
pub use receiver::{Received, Receiver};
pub use sender::Sender;
pub use sequence::{Sequence, WINDOW};
pub use word::{Aligner, Word, serialize};

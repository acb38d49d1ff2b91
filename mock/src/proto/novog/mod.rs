//! Novo-G#: statically scheduled routers, links with measured jitter, and the 3-D FFT on them.

mod fft;
mod link;
mod network;
mod router;
pub mod wormhole;

pub use crate::profile::novog::{FftCores, Profile, Sampling};
pub(crate) use fft::{CardsTask, OnCard, Span, run_on_cards};
pub use fft::{Fft3d, FftError, FftMissing, FftOutcome, FftPhase, FftStall, FftTurn};
pub use link::LinkTimes;
pub(crate) use network::Counts;
pub use network::{Garbled, Injection, LoadError, Network, Outcome};
pub use router::{Delivery, Payload};
pub use rustfft::num_complex::Complex32;

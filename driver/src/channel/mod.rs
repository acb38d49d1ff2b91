//! CIRCUS channels: streams of words between programs on the hosts of cards, and kernels on the cards.
//!
//! A card of a CIRCUS network sends words as packets of 64 bytes, which routers bring to their destination. A program opens
//! an end of a channel on a card, and writes or reads words through a ring in host memory. At the other end is a program on
//! the host of another card, or a kernel of user logic.
//!
//! ```
//! use std::time::Duration;
//!
//! use fpga_driver::channel::{Network, Settings};
//! # use fpga_hal::{Domain, in_process};
//! # use fpga_mock::ChannelCards;
//! # use fpga_mock::circus::{Design, Profile, Torus};
//! # let cards = ChannelCards::new(&Profile::published(), Design::new(Torus::new(4, 2)?))?;
//! # let domain = Domain::in_process();
//! # let functions = (0..8).map(|node| in_process::attach(cards.endpoint(node), &domain, &format!("card {node}")).unwrap());
//!
//! // All cards of a torus, or those of this host.
//! let mut network = Network::open(functions)?;
//! network.load()?; // routing tables in order of dimensions
//!
//! // Channel 3, with words of a u32, from the host of card 0 to the host of card 6.
//! let settings = Settings { id: 3, word_bytes: 4, depth: 1024 };
//! let second = Duration::from_secs(1);
//! let mut reader = network.reader(6, settings)?;
//! let mut writer = network.writer(0, 6, settings)?;
//! writer.write(&42_u32.to_le_bytes(), second)?;
//! let mut word = [0; 4];
//! reader.read_exact(&mut word, second)?;
//! assert_eq!(u32::from_le_bytes(word), 42);
//! writer.close(second)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Open the reader first: a card drops packets of a channel that nobody reads, and counts them ([`Network::losses`]).
//!
//! # Back-pressure
//!
//! Rings are bounded. While the reader's ring is full, its card takes nothing from the network. What happens next depends on
//! the links: with credits, routers hold packets back up to the writer's card, whose ring fills, and
//! [`Writer::write`] waits. The published system has no credits: buffers on the way fill, and then its routers lose packets.
//!
//! # Losses
//!
//! Words whose size does not divide the payload of a packet cross packets, so their message ends for its reader with the last whole
//! word before the first packet that is lost. The rest of the message is dropped, and its packets are counted in
//! [`Losses::no_channel`]. Neither an error nor a mark shows the cut: who must know sends the number of words, or numbers them.
//! Packets are numbered modulo 256: a loss of a multiple of 256 in a row is not seen, and words that cross packets are wrong there.
mod card;
mod end;
mod error;
mod network;
mod reader;
mod writer;

pub use card::{Limits, is_model};
pub use end::Settings;
pub use error::{Error, Result};
pub use network::{Losses, Network};
pub use reader::Reader;
pub use writer::Writer;

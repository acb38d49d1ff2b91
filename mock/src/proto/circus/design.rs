//! What runs on a network: channels from card to card, and kernels of user logic between them.

use cmdseq::routing::Torus;

use crate::proto::circus::fifo::WORD_BYTES_MAX;
use crate::proto::circus::user_logic::Kernel;
/// Channels into one card: an id has 8 bits.
const CHANNELS_MAX: usize = 256;

/// A CIRCUS channel from user logic or host of one card to that of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Channel {
    /// The card that writes.
    pub from: u32,
    /// The card that reads; it may be the same one.
    pub to: u32,
    /// Width of a word in bytes: 1 to 64.
    pub word_bytes: usize,
    /// Words in the FIFO at each end, at least 1.
    pub depth: usize,
}

impl Channel {
    /// Returns a channel of OpenCL's uint16: words of 64 bytes.
    pub fn wide(from: u32, to: u32) -> Self {
        Channel { from, to, word_bytes: WORD_BYTES_MAX, depth: 16 }
    }

    /// Returns a channel of OpenCL's uint: words of 4 bytes.
    pub fn narrow(from: u32, to: u32) -> Self {
        Channel { word_bytes: 4, ..Channel::wide(from, to) }
    }
}

/// A channel of a [`Design`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub(crate) usize);

/// Refusal of a channel or kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DesignError {
    /// A card that the network does not have.
    #[error("invalid card: {node} (the network has cards 0 to {})", nodes - 1)]
    Node {
        /// Number of the card.
        node: u32,
        /// Cards of the network.
        nodes: u32,
    },
    /// A word of no or too many bytes.
    #[error("invalid width of a channel: {0} bytes (a word has 1 to 64)")]
    Width(usize),
    /// A FIFO without room.
    #[error("invalid depth of a channel: 0 words (a FIFO has at least 1)")]
    Depth,
    /// Too many channels into one card.
    #[error("too many channels into card {0}: an id has 8 bits, so 256 are possible")]
    Channels(u32),
    /// A kernel reads a channel that ends at another card, or writes one that begins at another card.
    #[error("a kernel on card {node} cannot use channel {channel}: that end of it is on card {other}")]
    Elsewhere {
        /// Card of the kernel.
        node: u32,
        /// Number of the channel.
        channel: usize,
        /// Card of the channel's end.
        other: u32,
    },
    /// Two kernels read, or two write, one channel.
    #[error("channel {0} has two readers or two writers")]
    Shared(usize),
}

/// Where a kernel runs.
#[derive(Debug, Clone, Copy)]
pub struct Placement<'a> {
    /// The card.
    pub node: u32,
    /// Channels that the kernel reads, in the order of its indexes.
    pub reads: &'a [ChannelId],
    /// Channels that the kernel writes, in the order of its indexes.
    pub writes: &'a [ChannelId],
    /// Cycles of its pipeline.
    pub latency_cycles: u64,
}

pub(crate) struct PlacedKernel {
    pub(crate) node: u32,
    pub(crate) reads: Vec<usize>,
    pub(crate) writes: Vec<usize>,
    pub(crate) latency_cycles: u64,
    pub(crate) kernel: Box<dyn Kernel>,
}

/// Channels and kernels on a torus. An end of a channel that no kernel uses is the host's.
pub struct Design {
    pub(crate) torus: Torus,
    pub(crate) channels: Vec<Channel>,
    pub(crate) kernels: Vec<PlacedKernel>,
}

impl Design {
    /// Returns a design without channels.
    pub fn new(torus: Torus) -> Self {
        Design { torus, channels: Vec::new(), kernels: Vec::new() }
    }

    /// Adds a channel.
    ///
    /// # Errors
    /// [`DesignError`] if a card does not exist, has too many channels, or a number is out of range.
    pub fn channel(&mut self, channel: Channel) -> Result<ChannelId, DesignError> {
        let nodes = self.torus.nodes();
        if let Some(node) = [channel.from, channel.to].into_iter().find(|node| *node >= nodes) {
            return Err(DesignError::Node { node, nodes });
        }
        if !(1..=WORD_BYTES_MAX).contains(&channel.word_bytes) {
            return Err(DesignError::Width(channel.word_bytes));
        }
        if channel.depth == 0 {
            return Err(DesignError::Depth);
        }
        if self.channels.iter().filter(|other| other.to == channel.to).count() == CHANNELS_MAX {
            return Err(DesignError::Channels(channel.to));
        }
        self.channels.push(channel);
        Ok(ChannelId(self.channels.len() - 1))
    }

    /// Returns the id of a channel among those into its card: what the host names if it opens an end of it.
    ///
    /// # Panics
    /// If the channel is of another design and this one has fewer.
    pub fn id(&self, channel: ChannelId) -> u8 {
        let to = self.channels[channel.0].to;
        self.channels[..channel.0].iter().filter(|other| other.to == to).count() as u8
    }

    /// Adds a kernel.
    ///
    /// # Errors
    /// [`DesignError`] if a channel has its end on another card, or another kernel uses that end.
    ///
    /// # Panics
    /// If a channel is of another design and this one has fewer.
    pub fn kernel(&mut self, placement: Placement<'_>, kernel: impl Kernel + 'static) -> Result<(), DesignError> {
        let Placement { node, reads, writes, latency_cycles } = placement;
        let numbers = |channels: &[ChannelId]| channels.iter().map(|channel| channel.0).collect::<Vec<_>>();
        let (reads, writes) = (numbers(reads), numbers(writes));
        let ends = reads.iter().map(|channel| (*channel, self.channels[*channel].to));
        let ends = ends.chain(writes.iter().map(|channel| (*channel, self.channels[*channel].from)));
        if let Some((channel, other)) = ends.into_iter().find(|(_, other)| *other != node) {
            return Err(DesignError::Elsewhere { node, channel, other });
        }
        let twice = |mine: &[usize], theirs: fn(&PlacedKernel) -> &[usize]| {
            let all: Vec<usize> = self.kernels.iter().flat_map(theirs).chain(mine).copied().collect();
            all.iter().copied().find(|channel| all.iter().filter(|other| *other == channel).count() > 1)
        };
        if let Some(channel) = twice(&reads, |kernel| &kernel.reads).or_else(|| twice(&writes, |kernel| &kernel.writes))
        {
            return Err(DesignError::Shared(channel));
        }
        self.kernels.push(PlacedKernel { node, reads, writes, latency_cycles, kernel: Box::new(kernel) });
        Ok(())
    }
}

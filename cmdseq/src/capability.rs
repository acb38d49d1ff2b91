//! What a card says of itself: the only thing planner and verifier go by.

use crate::Operation;

/// How the cards of a fabric are linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Topology {
    /// A link between every two cards.
    FullyConnected,
    /// `groups` groups of equal size, linked fully inside, and the cards of equal place in all groups linked fully (OPTWEB
    /// paper, section 5.3 and figure 20). Node `g * size + i` is card i of group g.
    Dragonfly {
        /// Groups.
        groups: u32,
    },
}

impl Topology {
    /// Whether a link leads from node `a` to node `b` in a fabric of `nodes` cards.
    pub fn linked(self, a: u32, b: u32, nodes: u32) -> bool {
        match self {
            _ if a == b || a >= nodes || b >= nodes => false,
            Topology::FullyConnected => true,
            Topology::Dragonfly { groups } => {
                let size = nodes / groups.max(1);
                size != 0 && (a / size == b / size || a % size == b % size)
            }
        }
    }

    /// Links of one card in a fabric of `nodes` cards.
    pub fn ports(self, nodes: u32) -> u32 {
        match self {
            Topology::FullyConnected => nodes.saturating_sub(1),
            Topology::Dragonfly { groups } => (nodes / groups.max(1)).saturating_sub(1) + groups.saturating_sub(1),
        }
    }

    /// Cards of a Dragonfly of `groups` groups whose cards have `ports` links: g(k - g + 2), with k - g + 2 to a group.
    /// `None` if the links do not reach.
    pub fn dragonfly_nodes(groups: u32, ports: u32) -> Option<u32> {
        let size = (ports + 2).checked_sub(groups).filter(|size| *size > 0)?;
        (groups > 0).then(|| groups.checked_mul(size)).flatten()
    }
}

/// Capabilities of a card and of the fabric it is in, as read from its registers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Capabilities {
    /// Version of the instruction word.
    pub isa: u32,
    /// Clock of the sequencer, kHz.
    pub clock_khz: u32,
    /// Cards in the fabric.
    pub nodes: u32,
    /// How they are linked.
    pub topology: Topology,
    /// Links of this card.
    pub ports: u32,
    /// Card memory, bytes.
    pub memory_bytes: u64,
    /// Pseudo channels of the card memory.
    pub memory_channels: u32,
    /// K, bytes: a stripe is 2K, its lower half in one pseudo channel and its upper half in another.
    pub stripe_half_bytes: u64,
    /// Entries of the deepest ring.
    pub queue_depth_max: u32,
    /// Entries of the communicator table.
    pub communicators: u32,
    /// Ranks a communicator may have.
    pub communicator_ranks: u32,
    /// Slots for resident programs; 0 if the card has none.
    pub resident_programs: u32,
    /// Instructions a resident program may have.
    pub resident_words: u32,
    /// Addresses must be multiples of this.
    pub address_align: u32,
    /// Receive buffer of a link, bytes.
    pub eager_bytes: u64,
    /// Largest piece sent eagerly as the card is set now, bytes.
    pub eager_limit: u64,
    /// Bit n: the card runs the operation of code n.
    pub operations: u64,
    /// The fabric is larger than the published system was built.
    pub extrapolated: bool,
    /// What operations take.
    pub timing: Timing,
}

impl Capabilities {
    /// Whether the card runs `operation`.
    pub fn runs(&self, operation: Operation) -> bool {
        self.operations >> (operation as u8) & 1 == 1
    }
}

/// What the card says its parts take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Timing {
    /// Cycles from issue until the switch is set.
    pub dispatch_cycles: u32,
    /// Cycles from a read request until its first beat is at the switch.
    pub memory_read_cycles: u32,
    /// Cycles from the end of an instruction to the issue of the next.
    pub handover_cycles: u32,
    /// Picoseconds of a control signal from switch to switch.
    pub control_ps: u32,
    /// Picoseconds from the last beat counted out to the same counted in.
    pub data_ps: u32,
    /// Picoseconds from the last beat counted in until its source knows.
    pub acknowledge_ps: u32,
    /// Effective rate of a link, Mb/s.
    pub link_mbps: u32,
    /// Rate of a pseudo channel, Mb/s.
    pub channel_mbps: u32,
    /// Rate of the host link, Mb/s.
    pub host_mbps: u32,
    /// Bytes of a beat.
    pub beat_bytes: u32,
}

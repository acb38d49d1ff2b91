//! Faults that tests plant: what happens, and when.

/// A fault, planted by a test.
///
/// Cards before version 1.6 of the registers report no bit errors and no missing answers: there [`Unanswered`](Fault::Unanswered),
/// [`Poisoned`](Fault::Poisoned), [`Garble`](Fault::Garble) and [`FlipBits`](Fault::FlipBits) do nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Stops the clock of a card's sequencer and switch.
    Freeze {
        /// The card.
        node: u32,
        /// When.
        when: When,
    },
    /// Cuts the link between two cards, in both directions. What is on it is lost.
    Cut {
        /// One end.
        a: u32,
        /// The other end.
        b: u32,
        /// When.
        when: When,
    },
    /// Takes the link between two cards down and up again. What is on it is lost; what needs it fails.
    Flap {
        /// One end.
        a: u32,
        /// The other end.
        b: u32,
        /// When, and when again: so much later each time, or in the middle of the next such transfer.
        when: When,
        /// For how many picoseconds.
        down_ps: u64,
        /// How often. Ignored for [`When::Now`] and `When::After(0)`: once.
        count: u32,
    },
    /// Resets the card, as a function level reset does, without its host's knowledge.
    Reset {
        /// The card.
        node: u32,
        /// When.
        when: When,
    },
    /// Sets the actual rate of all links; the cards still report the nominal rate.
    Slow {
        /// Megabits a second.
        mbps: u32,
    },
    /// Never answers a read of host memory: the card's completion timeout ends it.
    Unanswered {
        /// The card.
        node: u32,
        /// How many reads it makes before.
        after: u64,
    },
    /// Answers a read of host memory with poisoned data.
    Poisoned {
        /// The card.
        node: u32,
        /// How many reads it makes before.
        after: u64,
    },
    /// Hits something that the link from one card to another carries with a bit error, in this direction.
    Garble {
        /// The card that sends.
        from: u32,
        /// The card that it comes to.
        to: u32,
        /// How many blocks, bursts, signals and requests the link carries before.
        after: u64,
    },
    /// Hits a packet that the link from one card of Novo-G# to its neighbour carries with a bit error, in this direction: the
    /// neighbour's router drops the packet without notice.
    Drop {
        /// The card that sends.
        from: u32,
        /// Its neighbour.
        to: u32,
        /// How many packets the links from the one to the other carry before.
        after: u64,
    },
    /// Flips bits of a word of card memory, whatever is written there, until the card is reset.
    FlipBits {
        /// The card.
        node: u32,
        /// An address in the word of 32 bytes.
        address: u64,
        /// How many bits: one is corrected, more are not.
        bits: u8,
    },
    /// Removes the card: reads return all-ones, writes are dropped.
    Vanish {
        /// The card.
        node: u32,
    },
}

/// The time at which a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// At once.
    Now,
    /// After so many picoseconds of fabric time.
    After(u64),
    /// In the middle of a transfer.
    Moved(Moved),
}

/// A point in a transfer: its source has moved so many bytes. It is reached once, by the first transfer that has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// The card that runs the instruction.
    pub node: u32,
    /// Tag of the instruction; `None` for any.
    pub tag: Option<u16>,
    /// The transfer: the number of the destination among those of the instruction, in the order of ranks. A multicast is all of
    /// them; a one-sided transfer, and a copy or fold within the card, is 0.
    pub transfer: u32,
    /// Bytes moved, rounded up to a beat.
    pub bytes: u64,
}

impl Fault {
    /// The card whose reset undoes the fault, if a reset does.
    pub(crate) fn undone_by_reset(&self) -> Option<u32> {
        match *self {
            Fault::Freeze { node, .. } | Fault::FlipBits { node, .. } => Some(node),
            _ => None,
        }
    }

    /// Whether only cards that count bit errors report the fault.
    pub(crate) fn needs_bit_errors(&self) -> bool {
        matches!(
            self,
            Fault::Unanswered { .. } | Fault::Poisoned { .. } | Fault::Garble { .. } | Fault::FlipBits { .. }
        )
    }

    pub(crate) fn when(&self) -> When {
        match *self {
            Fault::Freeze { when, .. }
            | Fault::Cut { when, .. }
            | Fault::Flap { when, .. }
            | Fault::Reset { when, .. } => when,
            Fault::Slow { .. }
            | Fault::Unanswered { .. }
            | Fault::Poisoned { .. }
            | Fault::Garble { .. }
            | Fault::Drop { .. }
            | Fault::FlipBits { .. }
            | Fault::Vanish { .. } => When::Now,
        }
    }
}

//! Capabilities that a card reports: the only facts about cards that planner and verifier use.

use crate::switch::{Collective, Form};
use crate::{Combine, Operation, Topology};

/// Capabilities of a card and of the fabric it is in, as read from its registers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Capabilities {
    /// Version of the instruction word.
    pub isa: u32,
    /// Clock of the sequencer, kHz.
    pub clock_khz: u32,
    /// Cards in the fabric.
    pub nodes: u32,
    /// Their links.
    pub topology: Topology,
    /// Links of this card.
    pub ports: u32,
    /// Card memory, bytes.
    pub memory_bytes: u64,
    /// Pseudo channels of the card memory.
    pub memory_channels: u32,
    /// K, bytes: a stripe is 2K, its lower half in one pseudo channel and its upper half in another.
    pub stripe_half_bytes: u64,
    /// Largest number of entries of a ring.
    pub queue_depth_max: u32,
    /// Entries of the communicator table.
    pub communicators: u32,
    /// Largest number of ranks of a communicator.
    pub communicator_ranks: u32,
    /// Generations of an entry of the communicator table; 1 if the card does not distinguish them.
    pub communicator_generations: u32,
    /// Slots for resident programs; 0 if the card has none.
    pub resident_programs: u32,
    /// Largest number of instructions of a resident program.
    pub resident_words: u32,
    /// Signals that put_signal adds to; 0 if the card has none.
    pub signals: u32,
    /// Slots for tables of the vector forms; 0 if the card has none.
    pub tables: u32,
    /// Slots for windows, which limit what one-sided operations of other cards reach; 0 if the card has none, and others reach all
    /// of its memory.
    pub windows: u32,
    /// Lanes, each of which runs one exchange at a time; at least 1.
    pub lanes: u32,
    /// Addresses must be multiples of this.
    pub address_align: u32,
    /// Receive buffer of a link, bytes.
    pub eager_bytes: u64,
    /// Largest piece sent eagerly with the card's present setting, bytes.
    pub eager_limit: u64,
    /// Bit n: the card runs the operation of code n.
    pub operations: u64,
    /// Bit n: reductions take elements of the type of code n.
    pub element_types: u32,
    /// Bit n: the card has the reduction of code n.
    pub reductions: u32,
    /// The sequencer reaches host memory: instructions may name it.
    pub host_memory: bool,
    /// The reduction units, and their times, extend a published system without reductions.
    pub reductions_extend: bool,
    /// The fabric is larger than the published system.
    pub extrapolated: bool,
    /// What the switches of the network compute; `None` if they only route.
    pub switch: Option<SwitchUnits>,
    /// Times and rates.
    pub timing: Timing,
}

impl Capabilities {
    /// Whether the card supports `operation`.
    pub fn runs(&self, operation: Operation) -> bool {
        self.operations & operation.bit() != 0
    }

    /// From one stripe of card memory to the next: 2K, bytes.
    pub const fn stripe_bytes(&self) -> u64 {
        self.stripe_half_bytes.saturating_mul(2)
    }

    /// What lengths and distances are a multiple of so that data begins at aligned addresses, with a beat. Bytes, at least 1.
    pub(crate) fn aligned_beat(&self) -> u64 {
        self.address_align.max(self.timing.beat_bytes).max(1).into()
    }

    /// Card memory behind one pseudo channel, bytes.
    pub(crate) fn channel_bytes(&self) -> u64 {
        self.memory_bytes / u64::from(self.memory_channels.max(1))
    }

    /// Whether the card supports `combine`.
    pub fn combines(&self, combine: Combine) -> bool {
        self.reductions & combine.reduction.bit() != 0 && self.element_types & combine.element.bit() != 0
    }
}

/// Bits of [`SwitchUnits::collectives`] for each collective: one for each form.
const FORM_BITS: u32 = Form::ALL.len() as u32;

/// What the switches of a network compute, and the times of their parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SwitchUnits {
    /// Four bits for each collective, in the order of [`Collective::ALL`]: the forms, in the order of [`Form::ALL`].
    pub collectives: u32,
    /// Bit n: the units have the reduction of code n.
    pub reductions: u32,
    /// Bit n: they take elements of the type of code n.
    pub element_types: u32,
    /// Cycles of the collective control.
    pub control_cycles: u32,
    /// Cycles of an aggregation unit on floats.
    pub float_cycles: u32,
    /// Cycles through a router.
    pub router_cycles: u32,
    /// Picoseconds between a sequencer and its switch.
    pub entry_ps: u32,
    /// Picoseconds from one phit that a sequencer gives its switch to the next; 0 if unknown, meaning half a cycle.
    pub phit_ps: u32,
    /// Phits of the FIFO of the switch for each sequencer; 0 if unknown.
    pub input_phits: u32,
}

impl SwitchUnits {
    /// Returns the bit of a collective and a form in [`SwitchUnits::collectives`].
    pub fn bit(collective: Collective, form: Form) -> u32 {
        let place = Collective::ALL.iter().position(|one| *one == collective).unwrap_or(0) as u32;
        1 << (place * FORM_BITS + form as u32)
    }

    /// Whether the switches compute `collective` in this form.
    pub fn has(&self, collective: Collective, form: Form) -> bool {
        self.collectives & SwitchUnits::bit(collective, form) != 0
    }

    /// Whether the units support `combine`.
    pub fn combines(&self, combine: Combine) -> bool {
        self.reductions & combine.reduction.bit() != 0 && self.element_types & combine.element.bit() != 0
    }
}

/// One of the numbers in a [`Timing`].
#[derive(Debug, Clone, Copy)]
pub struct TimingField {
    /// Its name in files and messages, which ends with the unit.
    pub name: &'static str,
    /// Whether it is a rate: not zero, and larger is faster.
    pub is_rate: bool,
    get: fn(&Timing) -> u32,
    get_mut: fn(&mut Timing) -> &mut u32,
}

impl TimingField {
    /// Returns the field `name`.
    pub fn named(name: &str) -> Option<&'static TimingField> {
        Timing::FIELDS.iter().find(|field| field.name == name)
    }

    /// Returns its value.
    pub fn of(&self, timing: &Timing) -> u32 {
        (self.get)(timing)
    }

    /// Sets its value.
    pub fn set(&self, timing: &mut Timing, value: u32) {
        *(self.get_mut)(timing) = value;
    }
}

/// Declares [`Timing`]: of each number the name, and whether it is a rate.
macro_rules! timing {
    ($($(#[$doc:meta])* $name:ident $is_rate:literal,)*) => {
        /// Times and rates that the card reports.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub struct Timing {
            $($(#[$doc])* pub $name: u32,)*
        }

        impl Timing {
            /// All of its numbers.
            pub const FIELDS: &[TimingField] = &[$(TimingField {
                name: stringify!($name),
                is_rate: $is_rate,
                get: |timing| timing.$name,
                get_mut: |timing| &mut timing.$name,
            },)*];
        }
    };
}

timing! {
    /// Cycles from issue until the switch is set.
    dispatch_cycles false,
    /// Cycles from a read request until its first beat is at the switch.
    memory_read_cycles false,
    /// Cycles from the end of an instruction to the issue of the next.
    handover_cycles false,
    /// Cycles through the switch, one way; 0 if unknown.
    switch_cycles false,
    /// Picoseconds of a control signal from switch to switch.
    control_ps false,
    /// Picoseconds from the last beat counted out to the same counted in.
    data_ps false,
    /// Picoseconds from the last beat counted in until the source is notified.
    acknowledge_ps false,
    /// Picoseconds that each link after the first adds to these three, where routers lead over several.
    hop_ps false,
    /// Effective rate of a link, Mb/s.
    link_mbps true,
    /// Rate of a pseudo channel, Mb/s.
    channel_mbps true,
    /// Rate of the host link, Mb/s.
    host_mbps true,
    /// Bytes of a beat.
    beat_bytes true,
    /// Cycles from one beat of a fold to the next.
    reduce_beat_cycles false,
    /// Cycles of a beat through each unit of the chain that folds contributions; the chain has one unit less than contributions.
    reduce_unit_cycles false,
}

//! The outputs of switches: packets leave an input in their order, and an output takes those of its inputs in turn.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Where packets wait in their order: switch, port and virtual channel. Results of the units wait for each output by themselves.
pub(super) type Input = (u32, u8, u8);

/// First port of the inputs for results: that of output `n` is `RESULTS + n`.
pub(super) const RESULTS: u8 = 128;

/// A packet at a switch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packet<P> {
    /// The output by which it leaves.
    pub(super) output: u8,
    /// For how long it occupies input and output, picoseconds.
    pub(super) takes_ps: u64,
    /// What it is.
    pub(super) of: P,
}

#[derive(Debug)]
struct Waiting<P> {
    packets: VecDeque<Packet<P>>,
    /// Whether a packet is leaving.
    is_busy: bool,
}

#[derive(Debug, Default)]
struct Output {
    /// Inputs whose first packet leaves here.
    wanted_by: BTreeSet<Input>,
    last: Option<Input>,
    is_busy: bool,
    occupied_ps: u64,
}

/// A packet that begins to leave.
#[derive(Debug)]
pub(super) struct Leaving<P> {
    pub(super) input: Input,
    pub(super) packet: Packet<P>,
}

/// Inputs and outputs of all switches.
#[derive(Debug)]
pub(super) struct Ports<P> {
    inputs: BTreeMap<Input, Waiting<P>>,
    outputs: BTreeMap<(u32, u8), Output>,
    /// For how long the output that sends most is occupied, in picoseconds.
    pub(super) busiest_ps: u64,
}

impl<P> Default for Ports<P> {
    fn default() -> Self {
        Ports { inputs: BTreeMap::new(), outputs: BTreeMap::new(), busiest_ps: 0 }
    }
}

impl<P: Copy> Ports<P> {
    /// Takes a packet, and returns it if it begins to leave at once.
    pub(super) fn enter(&mut self, input: Input, packet: Packet<P>) -> Option<Leaving<P>> {
        let waiting = self.inputs.entry(input).or_insert_with(|| Waiting { packets: VecDeque::new(), is_busy: false });
        waiting.packets.push_back(packet);
        if waiting.is_busy || waiting.packets.len() > 1 { None } else { self.want(input) }
    }

    /// A packet has left an input and its output. Returns the packets that begin to leave.
    pub(super) fn left(&mut self, input: Input, output: u8) -> [Option<Leaving<P>>; 2] {
        if let Some(waiting) = self.inputs.get_mut(&input) {
            waiting.is_busy = false;
        }
        if let Some(output) = self.outputs.get_mut(&(input.0, output)) {
            output.is_busy = false;
        }
        // The input's next packet takes part in the choice of the output.
        let first = self.want(input);
        [first, self.serve((input.0, output))]
    }

    /// The first packet of an input wants its output.
    fn want(&mut self, input: Input) -> Option<Leaving<P>> {
        let port = self.inputs.get(&input)?.packets.front()?.output;
        let output = self.outputs.entry((input.0, port)).or_default();
        output.wanted_by.insert(input);
        self.serve((input.0, port))
    }

    /// Lets the next input in turn use an output, if it is free.
    fn serve(&mut self, place: (u32, u8)) -> Option<Leaving<P>> {
        let output = self.outputs.get_mut(&place).filter(|output| !output.is_busy)?;
        let after = output.last.and_then(|last| output.wanted_by.iter().find(|input| **input > last).copied());
        let input = after.or_else(|| output.wanted_by.first().copied())?;
        output.wanted_by.remove(&input);
        let waiting = self.inputs.get_mut(&input)?;
        let packet = waiting.packets.pop_front()?;
        waiting.is_busy = true;
        (output.last, output.is_busy) = (Some(input), true);
        output.occupied_ps += packet.takes_ps;
        self.busiest_ps = self.busiest_ps.max(output.occupied_ps);
        Some(Leaving { input, packet })
    }
}

//! The outputs of switches: packets leave an input in their order, and an output takes those of its inputs in turn.
//!
//! Each virtual channel of an output belongs to one packet from its first phit to its last one. Two packets that leave by one output, or
//! from one port, pass phit by phit in turn, each at half the rate; and none leaves before its last phit is there. Behind a link
//! there is a FIFO for each virtual channel, and a packet begins to leave only if the FIFO has room for it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Where packets wait in their order: switch, port and virtual channel. Results of the units wait for each output by themselves.
pub(super) type Input = (u32, u8, u8);

/// Where packets leave: switch, output and virtual channel there.
pub(super) type Exit = (u32, u8, u8);

/// First port of the inputs for results: that of output `n` is `RESULTS + n`.
pub(super) const RESULTS: u8 = 128;

/// Virtual channels of a link.
const CHANNELS: u8 = 2;

/// A packet at a switch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packet<P> {
    pub(super) exit: Exit,
    pub(super) phits: u64,
    /// When it can have left if nothing is in its way: its last phit has come through then. Picoseconds.
    pub(super) whole_at: u64,
    /// Whether it needs room in a FIFO behind the output.
    pub(super) is_limited: bool,
    /// What it is.
    pub(super) of: P,
}

/// A packet that leaves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leaving<P> {
    pub(super) input: Input,
    pub(super) packet: Packet<P>,
    pub(super) began: u64,
    /// For how long it would still take an output of its own, as of `since`, and how many share port or output. Picoseconds.
    rest: u64,
    since: u64,
    sharers: u64,
    /// Of the [`Due`] that is not out of date.
    number: u64,
}

/// When a packet will have left, unless that changes meanwhile: its exit, and a number.
pub(super) type Due = (u64, (Exit, u64));

#[derive(Debug, Default)]
struct Channel {
    /// Inputs whose first packet leaves here.
    wanted_by: BTreeSet<Input>,
    /// The port that had it last.
    last: Option<u8>,
    /// Phits on the way to the FIFO behind the link, and in it.
    behind: u64,
}

/// Inputs and outputs of all switches.
#[derive(Debug)]
pub(super) struct Ports<P> {
    inputs: BTreeMap<Input, VecDeque<Packet<P>>>,
    channels: BTreeMap<Exit, Channel>,
    leaving: BTreeMap<Exit, Leaving<P>>,
    /// Inputs of packets that leave, and their exits.
    exits: BTreeMap<Input, Exit>,
    /// The virtual channel of each port of a switch that began to leave last.
    turns: BTreeMap<(u32, u8), u8>,
    /// Exits that may be free, and wanted.
    asked: BTreeSet<Exit>,
    /// Phits that went to each output of a switch, and the most of them.
    sent: BTreeMap<(u32, u8), u64>,
    pub(super) most_sent: u64,
    /// Phits of a FIFO behind a link.
    room: u64,
    cycle_ps: u64,
    number: u64,
    /// Packets that will have left, to be taken from here.
    pub(super) due: Vec<Due>,
}

impl<P: Copy> Ports<P> {
    /// Ports that take a phit in a cycle, with FIFOs of `room` phits for each virtual channel of a link.
    pub(super) fn new(room: u64, cycle_ps: u64) -> Self {
        Ports {
            inputs: BTreeMap::new(),
            channels: BTreeMap::new(),
            leaving: BTreeMap::new(),
            exits: BTreeMap::new(),
            turns: BTreeMap::new(),
            asked: BTreeSet::new(),
            sent: BTreeMap::new(),
            most_sent: 0,
            room,
            cycle_ps,
            number: 0,
            due: Vec::new(),
        }
    }

    /// Takes a packet.
    pub(super) fn enter(&mut self, input: Input, packet: Packet<P>) {
        let waiting = self.inputs.entry(input).or_default();
        waiting.push_back(packet);
        if waiting.len() == 1 && !self.exits.contains_key(&input) {
            self.want(input);
        }
    }

    /// Returns the packet that has left an exit; `None` if the number is out of date.
    pub(super) fn left(&mut self, at: u64, (exit, number): (Exit, u64)) -> Option<Leaving<P>> {
        if self.leaving.get(&exit)?.number != number {
            return None;
        }
        let left = self.leaving.remove(&exit)?;
        self.exits.remove(&left.input);
        self.want(left.input);
        self.asked.insert(exit);
        self.share(at, left.input, exit);
        Some(left)
    }

    /// Places in the FIFO behind an exit became free.
    pub(super) fn freed(&mut self, exit: Exit, phits: u64) {
        if let Some(channel) = self.channels.get_mut(&exit) {
            channel.behind = channel.behind.saturating_sub(phits);
        }
        self.asked.insert(exit);
    }

    /// Lets packets begin to leave, after all else that happens at this time: so all of them take part in the choice.
    pub(super) fn settle(&mut self, at: u64) {
        for exit in std::mem::take(&mut self.asked) {
            self.serve(at, exit);
        }
    }

    /// The first packet of an input wants to leave.
    fn want(&mut self, input: Input) {
        let Some(exit) = self.inputs.get(&input).and_then(|waiting| Some(waiting.front()?.exit)) else { return };
        self.channels.entry(exit).or_default().wanted_by.insert(input);
        self.asked.insert(exit);
    }

    /// Lets the next input in turn use an exit, if it is free.
    fn serve(&mut self, at: u64, exit: Exit) {
        if self.leaving.contains_key(&exit) {
            return;
        }
        let Some(channel) = self.channels.get_mut(&exit) else { return };
        let can_leave = |input: &&Input| {
            let first = self.inputs.get(input).and_then(VecDeque::front);
            first.is_some_and(|packet| !packet.is_limited || channel.behind + packet.phits <= self.room)
        };
        // The next port in turn, and of its virtual channels the one that it did not use last.
        let ports = channel.wanted_by.iter().filter(can_leave).copied();
        let turn = |input: &Input| {
            let (_, port, at) = *input;
            (channel.last.is_some_and(|last| port <= last), port, self.turns.get(&(exit.0, port)) == Some(&at))
        };
        let Some(input) = ports.min_by_key(turn) else { return };
        let Some(packet) = self.inputs.get_mut(&input).and_then(VecDeque::pop_front) else { return };
        channel.wanted_by.remove(&input);
        channel.last = Some(input.1);
        self.turns.insert((input.0, input.1), input.2);
        channel.behind += if packet.is_limited { packet.phits } else { 0 };
        let sent = self.sent.entry((exit.0, exit.1)).or_default();
        *sent += packet.phits;
        self.most_sent = self.most_sent.max(*sent);
        let rest = packet.phits * self.cycle_ps;
        self.leaving.insert(exit, Leaving { input, packet, began: at, rest, since: at, sharers: 1, number: 0 });
        self.exits.insert(input, exit);
        self.share(at, input, exit);
    }

    /// The number of packets that leave from a port or by an output has changed: says anew when these will have left.
    fn share(&mut self, at: u64, (switch, port, _): Input, (_, output, _): Exit) {
        let from = [0, 1].map(|channel| self.exits.get(&(switch, port, channel)).copied());
        let from = from.into_iter().flatten().filter(|exit| exit.1 != output);
        let by = (0..CHANNELS).map(|channel| (switch, output, channel));
        for exit in from.chain(by) {
            let Some(leaving) = self.leaving.get(&exit) else { continue };
            let ((_, port, _), (_, output, _)) = (leaving.input, exit);
            let at_port = (0..CHANNELS).filter(|channel| self.exits.contains_key(&(switch, port, *channel))).count();
            let at_output =
                (0..CHANNELS).filter(|channel| self.leaving.contains_key(&(switch, output, *channel))).count();
            let sharers = at_port.max(at_output).max(1) as u64;
            let Some(leaving) = self.leaving.get_mut(&exit) else { continue };
            if leaving.number != 0 && leaving.sharers == sharers {
                continue;
            }
            leaving.rest = leaving.rest.saturating_sub((at - leaving.since) / leaving.sharers);
            (leaving.since, leaving.sharers) = (at, sharers);
            self.number += 1;
            leaving.number = self.number;
            let left = (at + leaving.rest * sharers).max(leaving.packet.whole_at);
            self.due.push((left, (exit, self.number)));
        }
    }
}

//! The outputs of switches: packets leave an input in their order, and an output takes those of its inputs in turn.
//!
//! Each virtual channel of an output belongs to one packet from its first phit to its last one. Two packets that leave by one output, or
//! from one port, pass phit by phit in turn, each at half the rate; and none leaves before its last phit is there. Behind a link
//! there is a FIFO for each virtual channel, and a packet begins to leave only if the FIFO has room for it.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

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
    wanted_by: Vec<Input>,
    /// The port that had it last.
    last: Option<u8>,
    /// Phits on the way to the FIFO behind the link, and in it.
    behind: u64,
}

/// Something for each virtual channel of each port of each switch, and of its inputs for results.
#[derive(Debug)]
struct ByChannel<T> {
    of: Vec<T>,
    /// Ports of a switch.
    ports: usize,
}

impl<T: Default> ByChannel<T> {
    fn new(switches: usize, ports: usize) -> Self {
        let count = switches * 2 * ports * usize::from(CHANNELS);
        ByChannel { of: std::iter::repeat_with(T::default).take(count).collect(), ports }
    }
}

impl<T> ByChannel<T> {
    fn place(&self, (switch, port, channel): (u32, u8, u8)) -> usize {
        let port = port.checked_sub(RESULTS).map_or(port.into(), |output| self.ports + usize::from(output));
        (switch as usize * 2 * self.ports + port) * usize::from(CHANNELS) + usize::from(channel)
    }
}

impl<T> Index<(u32, u8, u8)> for ByChannel<T> {
    type Output = T;

    fn index(&self, channel: (u32, u8, u8)) -> &T {
        &self.of[self.place(channel)]
    }
}

impl<T> IndexMut<(u32, u8, u8)> for ByChannel<T> {
    fn index_mut(&mut self, channel: (u32, u8, u8)) -> &mut T {
        let place = self.place(channel);
        &mut self.of[place]
    }
}

/// Inputs and outputs of all switches.
#[derive(Debug)]
pub(super) struct Ports<P> {
    /// By input, the packets that wait.
    inputs: ByChannel<VecDeque<Packet<P>>>,
    /// By exit.
    channels: ByChannel<Channel>,
    /// By exit, the packet that leaves.
    leaving: ByChannel<Option<Leaving<P>>>,
    /// By input, the exit of the packet that leaves.
    exits: ByChannel<Option<Exit>>,
    /// By first virtual channel of a port, the one that began to leave last.
    turns: ByChannel<Option<u8>>,
    /// Exits that may be free, and wanted.
    asked: Vec<Exit>,
    /// By first virtual channel of an output, phits that went there.
    sent: ByChannel<u64>,
    /// The most of them.
    pub(super) most_sent: u64,
    /// Phits of a FIFO behind a link.
    room: u64,
    cycle_ps: u64,
    number: u64,
    /// Packets that will have left, to be taken from here.
    pub(super) due: Vec<Due>,
}

impl<P: Copy> Ports<P> {
    /// Up to `ports` ports of each of so many switches, which take a phit in a cycle, with FIFOs of `room` phits for each virtual
    /// channel of a link.
    pub(super) fn new((switches, ports): (usize, usize), room: u64, cycle_ps: u64) -> Self {
        Ports {
            inputs: ByChannel::new(switches, ports),
            channels: ByChannel::new(switches, ports),
            leaving: ByChannel::new(switches, ports),
            exits: ByChannel::new(switches, ports),
            turns: ByChannel::new(switches, ports),
            asked: Vec::new(),
            sent: ByChannel::new(switches, ports),
            most_sent: 0,
            room,
            cycle_ps,
            number: 0,
            due: Vec::new(),
        }
    }

    /// Takes a packet.
    pub(super) fn enter(&mut self, input: Input, packet: Packet<P>) {
        let waiting = &mut self.inputs[input];
        waiting.push_back(packet);
        if waiting.len() == 1 && self.exits[input].is_none() {
            self.want(input);
        }
    }

    /// Returns the packet that has left an exit; `None` if the number is out of date.
    pub(super) fn left(&mut self, at: u64, (exit, number): (Exit, u64)) -> Option<Leaving<P>> {
        let left = self.leaving[exit].take_if(|leaving| leaving.number == number)?;
        self.exits[left.input] = None;
        self.want(left.input);
        self.asked.push(exit);
        self.share(at, left.input, exit);
        Some(left)
    }

    /// Places in the FIFO behind an exit became free.
    pub(super) fn freed(&mut self, exit: Exit, phits: u64) {
        let channel = &mut self.channels[exit];
        channel.behind = channel.behind.saturating_sub(phits);
        self.asked.push(exit);
    }

    /// Lets packets begin to leave, after all else that happens at this time: so all of them take part in the choice.
    pub(super) fn settle(&mut self, at: u64) {
        let mut asked = std::mem::take(&mut self.asked);
        asked.sort_unstable();
        asked.dedup();
        asked.drain(..).for_each(|exit| self.serve(at, exit));
        self.asked = asked;
    }

    /// The first packet of an input wants to leave.
    fn want(&mut self, input: Input) {
        let Some(Packet { exit, .. }) = self.inputs[input].front().copied() else { return };
        self.channels[exit].wanted_by.push(input);
        self.asked.push(exit);
    }

    /// Lets the next input in turn use an exit, if it is free.
    fn serve(&mut self, at: u64, exit: Exit) {
        if self.leaving[exit].is_some() {
            return;
        }
        let channel = &mut self.channels[exit];
        let can_leave = |(_, input): &(usize, &Input)| {
            let first = self.inputs[**input].front();
            first.is_some_and(|packet| !packet.is_limited || channel.behind + packet.phits <= self.room)
        };
        // The next port in turn, and of its virtual channels the one that it did not use last.
        let turn = |(_, input): &(usize, &Input)| {
            let (switch, port, at) = **input;
            (channel.last.is_some_and(|last| port <= last), port, self.turns[(switch, port, 0)] == Some(at), at)
        };
        let next = channel.wanted_by.iter().enumerate().filter(can_leave).min_by_key(turn);
        let Some((place, input)) = next.map(|(place, input)| (place, *input)) else { return };
        let Some(packet) = self.inputs[input].pop_front() else { return };
        channel.wanted_by.swap_remove(place);
        channel.last = Some(input.1);
        self.turns[(input.0, input.1, 0)] = Some(input.2);
        channel.behind += if packet.is_limited { packet.phits } else { 0 };
        let sent = &mut self.sent[(exit.0, exit.1, 0)];
        *sent += packet.phits;
        self.most_sent = self.most_sent.max(*sent);
        let rest = packet.phits * self.cycle_ps;
        self.leaving[exit] = Some(Leaving { input, packet, began: at, rest, since: at, sharers: 1, number: 0 });
        self.exits[input] = Some(exit);
        self.share(at, input, exit);
    }

    /// The number of packets that leave from a port or by an output has changed: says anew when these will have left.
    fn share(&mut self, at: u64, (switch, port, _): Input, (_, output, _): Exit) {
        let from = [0, 1].map(|channel| self.exits[(switch, port, channel)]);
        let from = from.into_iter().flatten().filter(|exit| exit.1 != output);
        let by = (0..CHANNELS).map(|channel| (switch, output, channel));
        for exit in from.chain(by) {
            let Some(leaving) = &self.leaving[exit] else { continue };
            let ((_, port, _), (_, output, _)) = (leaving.input, exit);
            let at_port = (0..CHANNELS).filter(|channel| self.exits[(switch, port, *channel)].is_some()).count();
            let at_output = (0..CHANNELS).filter(|channel| self.leaving[(switch, output, *channel)].is_some()).count();
            let sharers = at_port.max(at_output).max(1) as u64;
            let Some(leaving) = &mut self.leaving[exit] else { continue };
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

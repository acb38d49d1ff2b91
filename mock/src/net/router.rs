//! A router: input buffers, table lookup, arbiters and a crossbar, as a pipeline of flits.
//!
//! A packet takes its output port, and a virtual channel of it, with its first flit and releases both with its last one. A flit
//! passes only if the output and the buffer behind the link have room for it.

use std::collections::VecDeque;

use crate::engine::{Clock, Clocked, Cycle, Time};
use crate::net::arbiter::RoundRobin;
use crate::net::flit::Flit;

/// What a router is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) clock: Clock,
    /// Cycles from the input to the arbiter: input register and table lookup.
    pub(crate) lookup_cycles: u64,
    pub(crate) arbiter_cycles: u64,
    pub(crate) crossbar_cycles: u64,
    /// Flits that wait at an output, behind the crossbar.
    pub(crate) output_flits: usize,
    /// Flits of the buffer of an input, for each virtual channel.
    pub(crate) input_flits: usize,
    /// Flits of the longest packet: an input without flow control loses a packet for which it has no room.
    pub(crate) packet_flits: usize,
    pub(crate) virtual_channels: usize,
    /// Whether an output counts the places of the buffer behind its link.
    pub(crate) has_credits: bool,
    /// Links that a packet crosses at most: one with more goes round, which the tables of two routers may make it do, and is dropped.
    pub(crate) most_links: u32,
}

/// One input or output port.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Port {
    /// Direction of a ring; `None` without datelines.
    pub(crate) dimension: Option<usize>,
    pub(crate) crosses_dateline: bool,
    /// Whether a link is behind it, whose other end has a buffer of its own.
    pub(crate) is_link: bool,
}

/// What is behind the outputs of a router.
pub(crate) trait Exits {
    /// Returns when the port takes a flit: `now`, a later time, or `None` if that depends on something else.
    fn room_at(&mut self, port: usize, now: Time) -> Option<Time>;

    /// Takes a flit.
    fn give(&mut self, port: usize, now: Time, flit: Flit);

    /// A place in an input buffer became free.
    fn freed(&mut self, now: Time, port: usize, virtual_channel: usize);

    /// Returns the destination in a packet's header.
    fn destination(&self, head: &Flit) -> usize;
}

/// A packet's way through the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Way {
    output: usize,
    virtual_channel: usize,
}

#[derive(Debug)]
struct Waiting {
    flit: Flit,
    arrived: Cycle,
    /// When the table has answered.
    ready: Cycle,
}

/// The buffer of one virtual channel of an input.
#[derive(Debug, Default)]
struct Input {
    waiting: VecDeque<Waiting>,
    /// Way of the packet whose first flit has passed.
    way: Option<Way>,
    /// Whether the rest of a packet is dropped, as its first flit was, on its arrival or in the router.
    drops_arriving: bool,
    drops_waiting: bool,
}

/// A flit in the crossbar or behind it.
#[derive(Debug)]
struct Crossing {
    flit: Flit,
    arrived: Cycle,
    entered: Cycle,
}

#[derive(Debug)]
struct Output {
    crossing: VecDeque<Crossing>,
    arbiter: RoundRobin,
    /// By virtual channel: the input that a packet comes from, and the places behind the link.
    held: Vec<Option<(usize, usize)>>,
    credits: Vec<usize>,
}

/// What a router has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RouterCounters {
    /// Packets that came in.
    pub packets_in: u64,
    /// Packets that went out.
    pub packets_out: u64,
    /// Packets lost because an input buffer was full.
    pub lost_full: u64,
    /// Packets dropped because the table has no entry for their destination, or they go round.
    pub lost_no_route: u64,
    /// Fewest cycles of a flit from an input to an output; 0 before the first one.
    pub least_cycles: u64,
    /// Fewest cycles of a flit in the crossbar.
    pub least_crossbar_cycles: u64,
}

/// Why a flit does not pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// The output belongs to a packet from this input and virtual channel.
    Held(usize, usize),
    /// The buffer behind the link is full.
    NoCredit,
    /// What is behind the output takes nothing.
    NoRoom,
}

/// A flit that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) input: usize,
    pub(crate) virtual_channel: usize,
    pub(crate) output: usize,
    pub(crate) output_channel: usize,
    pub(crate) why: Why,
}

#[derive(Debug)]
pub(crate) struct Router {
    settings: Settings,
    ports: Vec<Port>,
    /// By destination.
    table: Vec<Option<u8>>,
    /// By port, then virtual channel.
    inputs: Vec<Vec<Input>>,
    outputs: Vec<Output>,
    /// By input: whose turn it is of its virtual channels, and which one it proposes in this cycle for which output.
    turns: Vec<RoundRobin>,
    proposals: Vec<Option<(usize, usize)>>,
    /// Whether a flit passed in this cycle.
    is_active: bool,
    pub(crate) counters: RouterCounters,
    /// Packets lost at each input because its buffer was full.
    pub(crate) lost_at: Vec<u64>,
}

impl Router {
    pub(crate) fn new(settings: Settings, ports: Vec<Port>, table: Vec<Option<u8>>) -> Self {
        let channels = settings.virtual_channels;
        let output = || Output {
            crossing: VecDeque::new(),
            arbiter: RoundRobin::default(),
            held: vec![None; channels],
            credits: vec![settings.input_flits; channels],
        };
        Router {
            inputs: ports.iter().map(|_| (0..channels).map(|_| Input::default()).collect()).collect(),
            outputs: ports.iter().map(|_| output()).collect(),
            turns: vec![RoundRobin::default(); ports.len()],
            proposals: vec![None; ports.len()],
            is_active: false,
            counters: RouterCounters::default(),
            lost_at: vec![0; ports.len()],
            settings,
            ports,
            table,
        }
    }

    /// Replaces the table. Packets whose first flit has passed the lookup keep their way.
    pub(crate) fn set_table(&mut self, table: Vec<Option<u8>>) {
        self.table = table;
    }

    /// Returns the flits for which the buffer of an input has room.
    pub(crate) fn room(&self, input: usize, virtual_channel: usize) -> usize {
        self.settings.input_flits.saturating_sub(self.inputs[input][virtual_channel].waiting.len())
    }

    /// Takes a flit that is at an input at the time `at`; returns when it reaches the arbiter, unless it is lost.
    pub(crate) fn accept(&mut self, input: usize, at: Time, flit: Flit) -> Option<Time> {
        let settings = &self.settings;
        let buffer = &mut self.inputs[input][flit.virtual_channel];
        if flit.is_head {
            self.counters.packets_in += 1;
            let needed = if settings.has_credits { 1 } else { settings.packet_flits };
            buffer.drops_arriving = buffer.waiting.len() + needed > settings.input_flits;
            self.counters.lost_full += u64::from(buffer.drops_arriving);
            self.lost_at[input] += u64::from(buffer.drops_arriving);
        }
        if buffer.drops_arriving {
            return None;
        }
        // The data path takes one flit a cycle; a link can be a little faster for a short time.
        let earliest = buffer.waiting.back().map_or(0, |last| last.arrived + 1);
        let arrived = settings.clock.cycle_at_or_after(at).max(earliest);
        let ready = arrived + Cycle::from(settings.lookup_cycles);
        buffer.waiting.push_back(Waiting { flit, arrived, ready });
        Some(settings.clock.edge(ready))
    }

    /// A place in the buffer behind an output's link became free.
    pub(crate) fn add_credit(&mut self, output: usize, virtual_channel: usize) {
        self.outputs[output].credits[virtual_channel] += 1;
    }

    /// Returns whether a packet is in the router.
    pub(crate) fn is_busy(&self) -> bool {
        self.inputs.iter().flatten().any(|input| !input.waiting.is_empty())
            || self.outputs.iter().any(|output| !output.crossing.is_empty())
    }

    /// Returns the first flit of each input that is ready and does not pass.
    pub(crate) fn waits(&self) -> Vec<Wait> {
        let mut waits = Vec::new();
        for (input, virtual_channel) in self.all_inputs() {
            let Some(way) = self.way(input, virtual_channel) else { continue };
            let output = &self.outputs[way.output];
            let why = match output.held[way.virtual_channel] {
                Some(holder) if holder != (input, virtual_channel) => Why::Held(holder.0, holder.1),
                _ if !self.has_credit(way) => Why::NoCredit,
                _ => Why::NoRoom,
            };
            waits.push(Wait { input, virtual_channel, output: way.output, output_channel: way.virtual_channel, why });
        }
        waits
    }

    fn all_inputs(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let channels = self.settings.virtual_channels;
        (0..self.inputs.len()).flat_map(move |input| (0..channels).map(move |channel| (input, channel)))
    }

    /// The way of the first flit of an input that waits: of its packet, or chosen for a new one.
    fn way(&self, input: usize, virtual_channel: usize) -> Option<Way> {
        let buffer = &self.inputs[input][virtual_channel];
        buffer.waiting.front()?;
        buffer.way
    }

    /// Looks up the way of each packet whose first flit is ready; drops those without.
    fn look_up<W: Exits>(&mut self, cycle: Cycle, exits: &mut W) {
        for (input, channel) in self.all_inputs() {
            loop {
                let buffer = &mut self.inputs[input][channel];
                let Some(first) = buffer.waiting.front().filter(|first| first.ready <= cycle) else { break };
                if first.flit.is_head && buffer.way.is_none() {
                    let port = self.table.get(exits.destination(&first.flit)).copied().flatten();
                    let goes_round = first.flit.links >= self.settings.most_links;
                    let output = port.map(usize::from).filter(|port| *port < self.ports.len() && !goes_round);
                    buffer.drops_waiting = output.is_none();
                    self.counters.lost_no_route += u64::from(output.is_none());
                    buffer.way = output.map(|output| {
                        let (from, to) = (self.ports[input], self.ports[output]);
                        let stays = from.dimension == to.dimension && from.dimension.is_some();
                        let after = if to.crosses_dateline { 1 } else { channel * usize::from(stays) };
                        Way { output, virtual_channel: after.min(self.settings.virtual_channels - 1) }
                    });
                }
                if !buffer.drops_waiting {
                    break;
                }
                buffer.waiting.pop_front();
                exits.freed(self.settings.clock.edge(cycle), input, channel);
                self.is_active = true;
            }
        }
    }

    fn has_credit(&self, way: Way) -> bool {
        let is_counted = self.settings.has_credits && self.ports[way.output].is_link;
        !is_counted || self.outputs[way.output].credits[way.virtual_channel] > 0
    }

    /// Returns the output to which the first flit of an input may pass in this cycle.
    fn open_output(&self, cycle: Cycle, input: usize, channel: usize) -> Option<usize> {
        let way = self.way(input, channel)?;
        let settings = &self.settings;
        let places = settings.crossbar_cycles + settings.arbiter_cycles + settings.output_flits as u64;
        let output = &self.outputs[way.output];
        let is_ready = self.inputs[input][channel].waiting.front().is_some_and(|first| first.ready <= cycle);
        let is_free = output.held[way.virtual_channel].is_none_or(|holder| holder == (input, channel));
        let has_room = (output.crossing.len() as u64) < places;
        (is_ready && is_free && has_room && self.has_credit(way)).then_some(way.output)
    }

    /// Lets the first flit of an input into the crossbar.
    fn pass(&mut self, cycle: Cycle, input: usize, channel: usize) {
        let buffer = &mut self.inputs[input][channel];
        let (Some(way), Some(first)) = (buffer.way, buffer.waiting.pop_front()) else { return };
        let output = &mut self.outputs[way.output];
        let mut flit = first.flit;
        output.held[way.virtual_channel] = (!flit.is_tail).then_some((input, channel));
        if flit.is_tail {
            buffer.way = None;
        }
        if self.ports[way.output].is_link {
            flit.links += 1;
            if self.settings.has_credits {
                output.credits[way.virtual_channel] -= 1;
            }
        }
        flit.virtual_channel = way.virtual_channel;
        let entered = cycle + Cycle::from(self.settings.arbiter_cycles);
        output.crossing.push_back(Crossing { flit, arrived: first.arrived, entered });
        self.is_active = true;
    }

    fn count_out(&mut self, crossing: &Crossing, cycle: Cycle) {
        self.counters.packets_out += u64::from(crossing.flit.is_tail);
        let keep = |least: &mut u64, since: Cycle| {
            let cycles = (cycle - since) as u64;
            *least = if *least == 0 { cycles } else { (*least).min(cycles) };
        };
        keep(&mut self.counters.least_cycles, crossing.arrived);
        keep(&mut self.counters.least_crossbar_cycles, crossing.entered);
    }

    /// The next cycle in which a flit becomes ready.
    fn next_ready(&self, cycle: Cycle) -> Option<Cycle> {
        let ready = |input: &Input| input.waiting.front().map(|first| first.ready).filter(|ready| *ready > cycle);
        self.inputs.iter().flatten().filter_map(ready).min()
    }
}

impl<W: Exits> Clocked<W> for Router {
    /// Arbitration: every input proposes one of its flits, in turn of the virtual channels, and every output takes one of those
    /// proposed to it, in turn of the inputs.
    fn consume(&mut self, cycle: Cycle, exits: &mut W) {
        self.is_active = false;
        self.look_up(cycle, exits);
        let now = self.settings.clock.edge(cycle);
        let mut proposals = std::mem::take(&mut self.proposals);
        for (input, proposal) in proposals.iter_mut().enumerate() {
            let mut turns = self.turns[input];
            let channels = self.settings.virtual_channels;
            let channel = turns.grant(channels, |channel| self.open_output(cycle, input, channel).is_some());
            self.turns[input] = turns;
            *proposal = channel.and_then(|channel| Some((channel, self.open_output(cycle, input, channel)?)));
        }
        for output in 0..self.outputs.len() {
            let is_proposed = |input: usize| proposals[input].is_some_and(|proposal| proposal.1 == output);
            let input = self.outputs[output].arbiter.grant(proposals.len(), is_proposed);
            if let Some((input, (channel, _))) = input.and_then(|input| Some((input, proposals[input]?))) {
                self.pass(cycle, input, channel);
                exits.freed(now, input, channel);
            }
        }
        self.proposals = proposals;
    }

    fn produce(&mut self, cycle: Cycle, exits: &mut W) -> Option<Cycle> {
        let (clock, now) = (self.settings.clock, self.settings.clock.edge(cycle));
        let mut next = self.next_ready(cycle);
        for output in 0..self.outputs.len() {
            let Some(first) = self.outputs[output].crossing.front() else { continue };
            let leaves = first.entered + Cycle::from(self.settings.crossbar_cycles);
            let wanted = match exits.room_at(output, now) {
                _ if leaves > cycle => Some(leaves),
                Some(at) if at <= now => {
                    if let Some(crossing) = self.outputs[output].crossing.pop_front() {
                        self.count_out(&crossing, cycle);
                        exits.give(output, now, crossing.flit);
                        self.is_active = true;
                    }
                    None
                }
                room => room.map(|at| clock.cycle_at_or_after(at)),
            };
            next = [next, wanted].into_iter().flatten().min();
        }
        if self.is_active { Some(cycle + 1) } else { next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Region;
    use crate::net::flit::FLIT_BYTES;

    const CLOCK: Clock = Clock::new(std::num::NonZeroU64::new(1_000_000_000).unwrap(), 0);
    const SETTINGS: Settings = Settings {
        clock: CLOCK,
        lookup_cycles: 3,
        arbiter_cycles: 1,
        crossbar_cycles: 5,
        output_flits: 4,
        input_flits: 64,
        packet_flits: 1,
        virtual_channels: 2,
        has_credits: false,
        most_links: 4,
    };

    /// Takes all, and notes in which cycle each port gave what.
    #[derive(Default)]
    struct Notes(Vec<(usize, Time, u8)>);

    impl Exits for Notes {
        fn room_at(&mut self, _: usize, now: Time) -> Option<Time> {
            Some(now)
        }

        fn give(&mut self, port: usize, now: Time, flit: Flit) {
            self.0.push((port, now / 1_000, flit.word[1]));
        }

        fn freed(&mut self, _: Time, _: usize, _: usize) {}

        fn destination(&self, head: &Flit) -> usize {
            head.word[0].into()
        }
    }

    /// A packet of one flit.
    fn packet(destination: u8, mark: u8, virtual_channel: usize) -> Flit {
        let mut word = [0; FLIT_BYTES];
        (word[0], word[1]) = (destination, mark);
        Flit { word, is_head: true, is_tail: true, virtual_channel, links: 0 }
    }

    /// Lets flits arrive at their inputs at the time 0, in a router of three ports whose table has ports 1 and 2; returns what
    /// comes out.
    fn run(arriving: impl IntoIterator<Item = (usize, Flit)>) -> Vec<(usize, Time, u8)> {
        let port = Port { dimension: None, crosses_dateline: false, is_link: true };
        let mut region = Region::new(CLOCK, [Router::new(SETTINGS, vec![port; 3], vec![None, Some(1), Some(2)])]);
        let mut next = region.wake(0);
        for (input, flit) in arriving {
            region.modules_mut()[0].accept(input, 0, flit);
        }
        let mut notes = Notes::default();
        while let Some(at) = next {
            next = region.run(at, &mut notes);
        }
        assert!(!region.modules()[0].is_busy());
        notes.0
    }

    #[test]
    fn flits_of_one_input_leave_one_after_the_other() {
        let packets = [(1, 7), (2, 8), (0, 9), (1, 10)].map(|(to, mark)| (0, packet(to, mark, 0)));
        // Nine cycles each; there is no route for the third, which takes its place at the input.
        assert_eq!(run(packets), [(1, 9, 7), (2, 10, 8), (1, 12, 10)]);
    }

    #[test]
    fn a_packet_that_goes_round_is_dropped() {
        let crossed = |mark, links| (0, Flit { links, ..packet(1, mark, 0) });
        let given = run([crossed(3, 3), crossed(4, 4), crossed(5, 5), crossed(0, 0)]);
        assert_eq!(given.iter().map(|(_, _, mark)| *mark).collect::<Vec<_>>(), [3, 0]);
    }

    #[test]
    fn an_input_gives_one_flit_a_cycle_and_serves_its_outputs_in_turn() {
        // Virtual channel 0 goes to port 1, and virtual channel 1 to port 2.
        let packets = (0..20).flat_map(|mark| [(0, packet(1, mark, 0)), (0, packet(2, mark, 1))]);
        let given = run(packets);
        let times: Vec<Time> = given.iter().map(|(_, time, _)| *time).collect();
        assert!(times.is_sorted_by(|one, next| one < next), "{given:?}");
        let early = given.iter().filter(|(port, time, _)| *port == 2 && *time < 9 + 20).count();
        assert_eq!(early, 10, "{given:?}");
    }

    #[test]
    fn an_output_takes_one_flit_a_cycle_and_serves_its_inputs_in_turn() {
        let packets = (0..10).flat_map(|mark| [(0, packet(1, mark, 0)), (2, packet(1, 100 + mark, 0))]);
        let given = run(packets);
        assert_eq!(given.iter().map(|(_, time, _)| *time).collect::<Vec<_>>(), (9..29).collect::<Vec<Time>>());
        let expected: Vec<u8> = (0..10).flat_map(|mark| [mark, 100 + mark]).collect();
        assert_eq!(given.iter().map(|(_, _, mark)| *mark).collect::<Vec<_>>(), expected);
    }
}

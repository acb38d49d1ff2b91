//! One step: instructions of different cards that run together.

use super::clock::{Clock, wire};
use super::flow::Flows;
use super::signals::Signals;
use super::times::Times;
use super::wires::{Wires, farther_ps};
use crate::cost::{Bound, Moment};
use crate::matching::{Job, Membership, is_rendezvous};
use crate::ranges::Transfers;
use crate::{AddressSpace, Instruction, Operation};

/// One rank's instruction among those that run together.
pub(super) struct Part<'a> {
    rank: usize,
    pub(super) instruction: &'a Instruction,
    pub(super) issue: Moment,
    pub(super) moved: Transfers,
    pub(super) membership: Option<Membership<'a>>,
    pub(super) is_rendezvous: bool,
    /// By place in its receives, the part that sends it. This and the next: once they are [paired](Step::pair).
    pub(super) sources: Vec<Option<usize>>,
    /// By place in its sends, the part that receives it, and the place in the receives of that.
    pub(super) targets: Vec<Option<(usize, usize)>>,
}

impl<'a> Part<'a> {
    /// The part of instruction `index` of `rank`, which is issued at `issue`.
    pub(super) fn new((rank, index): (usize, usize), issue: Moment, job: Job<'a>) -> Self {
        let instruction = &job.programs[rank].instructions[index];
        let (moved, membership) = (job.moved(rank, instruction), job.membership(rank, instruction));
        let is_rendezvous = is_rendezvous(instruction, job.capabilities);
        let (sources, targets) = (Vec::new(), Vec::new());
        Part { rank, instruction, issue, moved, membership, is_rendezvous, sources, targets }
    }

    /// How many streams empty its receive buffers: one for a fold, else one for each block; none if nothing lies there.
    pub(super) fn drains(&self) -> usize {
        match self.moved.reduced {
            _ if self.is_rendezvous => 0,
            Some(_) => 1,
            None => self.moved.receives.len(),
        }
    }

    /// Whether a stream within the card belongs to it: of its own block, or of its contribution to a fold.
    pub(super) fn has_own(&self) -> bool {
        self.is_one_stream() || self.moved.own.is_some() || self.moved.contribution().is_some()
    }

    pub(super) fn is_one_stream(&self) -> bool {
        self.moved.multicast && !self.moved.sends.is_empty()
    }

    fn contributions(&self) -> usize {
        self.moved.receives.len() + usize::from(self.moved.reduced.is_some_and(|reduced| reduced.own.is_some()))
    }

    /// Nodes of this rank and of rank `rank` of the communicator.
    fn nodes(&self, rank: u32) -> Option<(u32, u32)> {
        let nodes = self.membership?.nodes();
        Some((*nodes.get(self.membership?.own as usize)?, *nodes.get(rank as usize)?))
    }

    /// Its rank in the communicator.
    pub(super) fn own_rank(&self) -> u32 {
        self.membership.map_or(0, |one| one.own)
    }

    /// Place of what comes from rank `rank` of the communicator among the receives.
    fn receive_from(&self, rank: u32) -> Option<usize> {
        let receives = &self.moved.receives;
        // Most receive from all others, in the order of ranks.
        let likely = [rank as usize, (rank as usize).wrapping_sub(1)];
        let is_from = |at: &usize| receives.get(*at).is_some_and(|receive| receive.peer_rank == rank);
        let at = likely.into_iter().find(is_from);
        at.or_else(|| receives.iter().position(|receive| receive.peer_rank == rank))
    }

    /// Rank of the programs of rank `rank` of the communicator.
    fn partner(&self, rank: u32) -> Option<usize> {
        self.membership?.program_rank(rank)
    }
}

/// Whether instructions that run together move data between cards that all take part.
pub(super) fn is_transfer(parts: &[Part<'_>]) -> bool {
    use Operation::{Barrier, Copy, Delay, Fill, Fold, PutSignal, RdmaRead, RdmaWrite, WaitSignal};
    match parts {
        [first, ..] if first.instruction.operation == Barrier || first.instruction.form().is_some() => false,
        [alone] => {
            let operation = alone.instruction.operation;
            let is_single =
                matches!(operation, Copy | Fill | Fold | RdmaRead | RdmaWrite | PutSignal | WaitSignal | Delay);
            !is_single && alone.membership.is_some()
        }
        _ => true,
    }
}

/// Works out steps.
pub(super) struct Step<'a> {
    pub(super) clock: &'a Clock<'a>,
    pub(super) flows: Flows,
    wires: Wires,
    /// Place among the parts of the step by rank of the programs; `None` but while they are paired.
    place: Vec<Option<usize>>,
    signals: Signals,
}

/// Where a card's streams pass.
#[derive(Clone, Copy)]
pub(super) struct Passes {
    /// Of pseudo channel 0; the others follow.
    channels: u32,
    /// The way through the card's own switch.
    local: u32,
    fold: u32,
}

/// Streams of one part, by their numbers.
#[derive(Default)]
pub(super) struct Streams {
    /// By place in the sends; of one stream to all, the same number.
    pub(super) sends: Vec<usize>,
    pub(super) own: Option<usize>,
    /// By place in the receives; of a fold, one.
    pub(super) drains: Vec<usize>,
}

impl<'a> Step<'a> {
    /// Of `ranks` programs.
    pub(super) fn new(clock: &'a Clock<'a>, ranks: usize) -> Self {
        let wires = Wires::new(clock.capabilities);
        Step { clock, flows: Flows::default(), wires, place: vec![None; ranks], signals: Signals::default() }
    }
}

impl Step<'_> {
    /// Times of instructions that run together, in the order of `parts`.
    pub(super) fn run(&mut self, parts: &[Part<'_>]) -> Vec<Times> {
        let clock = self.clock;
        match parts {
            [first, ..] if first.instruction.operation == Operation::Barrier => self.barrier(parts),
            [first, ..] if first.instruction.form().is_some() => self.switched(parts),
            [alone] if !is_transfer(parts) => vec![match alone.instruction.operation {
                Operation::Copy | Operation::Fill => self.local(alone),
                Operation::Fold => self.fold(alone),
                Operation::RdmaRead | Operation::RdmaWrite | Operation::PutSignal => self.one_sided(alone),
                Operation::WaitSignal => self.wait(alone),
                Operation::Delay => Times::at_once(alone.issue.later(clock.cycles(alone.instruction.extent))),
                _ => Times::at_once(clock.dispatched(alone.issue, 0)),
            }],
            _ => self.transfer(parts),
        }
    }

    fn barrier(&self, parts: &[Part<'_>]) -> Vec<Times> {
        let out: Vec<Moment> = parts.iter().map(|part| self.clock.controls_out(part.issue)).collect();
        let control = u64::from(self.clock.model.timing.control_ps);
        let came = |own: usize| {
            let others = out.iter().zip(parts).enumerate().filter(|(other, _)| *other != own);
            let came = others.map(|(_, (out, part))| {
                let farther = parts[own].membership.map_or(0, |one| self.farther(part, one.own));
                out.later(control.saturating_add(farther))
            });
            came.reduce(Moment::max)
        };
        let times = |(own, t1): (usize, &Moment)| {
            let arrival = came(own).map_or(*t1, |came| came.max(*t1));
            Times { t1: *t1, t2: arrival, arrival: Some(arrival) }
        };
        out.iter().enumerate().map(times).collect()
    }

    /// Copies and fills.
    fn local(&mut self, part: &Part<'_>) -> Times {
        let (clock, instruction) = (self.clock, part.instruction);
        let is_fill = instruction.operation == Operation::Fill;
        let on_card = |space| space == AddressSpace::Card;
        if !on_card(instruction.destination.space) || !(is_fill || on_card(instruction.source.space)) {
            let took = wire(instruction.bytes, clock.model.timing.host_mbps);
            return Times::at_once(clock.dispatched(part.issue, 0).after(Bound::Host, took));
        }
        self.clear();
        let passes = self.card();
        let mut over = vec![passes.channels + clock.channel(instruction.destination.address) as u32];
        let mut start = clock.dispatched(part.issue, 0);
        if !is_fill {
            start = clock.dispatched(part.issue, clock.model.timing.memory_read_cycles);
            over.extend([passes.channels + clock.channel(instruction.source.address) as u32, passes.local]);
        }
        Times::at_once(self.alone(start, instruction.bytes, over))
    }

    /// A fold of two operands of the card, which both pass the loop-back of the lane.
    fn fold(&mut self, part: &Part<'_>) -> Times {
        let (clock, instruction) = (self.clock, part.instruction);
        self.clear();
        let passes = self.card();
        let at = |address: u64| passes.channels + clock.channel(address) as u32;
        let addresses = [instruction.source.address, instruction.extent, instruction.destination.address];
        let over = addresses.map(at).into_iter().chain([passes.local, passes.local, passes.fold]);
        let start = clock.dispatched(part.issue, clock.model.timing.memory_read_cycles).later(clock.cycles(1));
        let counted = self.alone(start, instruction.bytes, over).later(clock.own_ps());
        Times::at_once(counted.after(Bound::Reduce, clock.fold_ps(2)))
    }

    /// A transfer to or from a card that runs nothing for it. What else moves there meanwhile is not regarded.
    fn one_sided(&mut self, part: &Part<'_>) -> Times {
        let (clock, instruction) = (self.clock, part.instruction);
        let timing = &clock.model.timing;
        let is_read = instruction.operation == Operation::RdmaRead;
        let signals = instruction.operation == Operation::PutSignal;
        let announced = clock.dispatched(part.issue, 2);
        let farther = self.farther(part, instruction.peer.into());
        let [control, data, acknowledge] =
            [timing.control_ps, timing.data_ps, timing.acknowledge_ps].map(|ps| u64::from(ps).saturating_add(farther));
        if instruction.bytes == 0 && signals {
            let counted = announced.later(control);
            self.signal(part, counted);
            return Times { t1: announced, t2: counted.later(acknowledge), arrival: None };
        }
        if instruction.bytes == 0 {
            return Times::at_once(announced);
        }
        let start = match is_read {
            true => {
                let requested = announced.later(control);
                requested.later(clock.cycles(u64::from(timing.memory_read_cycles) + 1))
            }
            false => clock.dispatched(part.issue, timing.memory_read_cycles + 2),
        };
        self.clear();
        let (here, there) = (self.card(), self.card());
        let (from, to) = if is_read { (there, here) } else { (here, there) };
        let mut over = vec![
            from.channels + clock.channel(instruction.source.address) as u32,
            to.channels + clock.channel(instruction.destination.address) as u32,
        ];
        let nodes =
            part.nodes(instruction.peer.into()).map(|(own, peer)| if is_read { (peer, own) } else { (own, peer) });
        self.links(nodes, &mut over);
        let out = self.alone(start, instruction.bytes, over);
        let counted = out.later(data);
        if signals {
            self.signal(part, counted);
        }
        match is_read {
            true => Times { t1: announced, t2: counted, arrival: Some(counted) },
            false => Times { t1: out, t2: counted.later(acknowledge), arrival: None },
        }
    }

    fn signal(&mut self, part: &Part<'_>, at: Moment) {
        let instruction = part.instruction;
        if let Some(rank) = part.partner(instruction.peer.into()) {
            self.signals.add(rank, instruction.signal_id, at, instruction.signal_value);
        }
    }

    fn wait(&mut self, part: &Part<'_>) -> Times {
        let instruction = part.instruction;
        let read = self.clock.dispatched(part.issue, 0);
        let came = read.max(self.signals.take(part.rank, instruction.signal_id, instruction.signal_value));
        Times { t1: read, t2: came, arrival: Some(came) }
    }

    /// The end of the only stream there is.
    fn alone(&mut self, start: Moment, bytes: u64, over: impl IntoIterator<Item = u32>) -> Moment {
        let stream = self.flows.stream(start, self.clock.whole_beats(bytes), over);
        self.flows.run();
        self.flows.end(stream)
    }

    /// Forgets the streams of the last step.
    fn clear(&mut self) {
        self.flows.clear();
        self.wires.clear();
    }

    /// Picoseconds that the links after the first add on the way between `part` and rank `other`.
    fn farther(&self, part: &Part<'_>, other: u32) -> u64 {
        part.nodes(other).map_or(0, |nodes| farther_ps(nodes, self.clock.capabilities, self.clock.model))
    }

    /// Appends the links from one of `nodes` to the other to `over`.
    fn links(&mut self, nodes: Option<(u32, u32)>, over: &mut Vec<u32>) {
        let model = self.clock.model;
        match nodes {
            Some(nodes) => self.wires.between(nodes, &mut self.flows, model, over),
            None => over.push(self.flows.resource(model.timing.link_mbps.into(), Bound::Link)),
        }
    }

    /// What streams of one more card pass.
    pub(super) fn card(&mut self) -> Passes {
        let timing = &self.clock.model.timing;
        let mut resource = |mbps, bound| self.flows.resource(mbps, bound);
        let local = resource(self.clock.loop_back_mbps(), Bound::Channel);
        let fold = resource(self.clock.reduce_mbps(), Bound::Reduce);
        let channels = resource(timing.channel_mbps.into(), Bound::Channel);
        for _ in 1..self.clock.channels() {
            resource(timing.channel_mbps.into(), Bound::Channel);
        }
        Passes { channels, local, fold }
    }

    fn transfer(&mut self, parts: &[Part<'_>]) -> Vec<Times> {
        self.clear();
        let passes: Vec<Passes> = parts.iter().map(|_| self.card()).collect();
        let headers: Vec<Moment> = (0..parts.len()).map(|own| self.header_out(parts, own)).collect();
        let mut streams = Vec::with_capacity(parts.len());
        for own in 0..parts.len() {
            let mut of = self.departures(parts, own, headers[own], &passes);
            let drains = 0..parts[own].drains();
            of.drains = drains.map(|drain| self.drain(parts, own, drain, &headers, passes[own])).collect();
            streams.push(of);
        }
        self.flows.run();
        self.times(parts, &streams)
    }

    /// Finds the sources and the targets of all parts of a step.
    pub(super) fn pair(&mut self, parts: &mut [Part<'_>]) {
        parts.iter().enumerate().for_each(|(place, part)| self.place[part.rank] = Some(place));
        for own in 0..parts.len() {
            let part = &parts[own];
            let place_of = |rank: u32| self.place.get(part.partner(rank)?).copied().flatten();
            let target =
                |rank: u32| place_of(rank).and_then(|place| Some((place, parts[place].receive_from(part.own_rank())?)));
            let sources = part.moved.receives.iter().map(|receive| place_of(receive.peer_rank)).collect();
            let targets = part.moved.sends.iter().map(|send| target(send.peer_rank)).collect();
            (parts[own].sources, parts[own].targets) = (sources, targets);
        }
        parts.iter().for_each(|part| self.place[part.rank] = None);
    }

    /// When part `own` has announced its data, once it is read and all destinations are ready.
    pub(super) fn header_out(&self, parts: &[Part<'_>], own: usize) -> Moment {
        let (part, timing) = (&parts[own], &self.clock.model.timing);
        let mut start = self.clock.dispatched(part.issue, timing.memory_read_cycles);
        if part.is_rendezvous && !part.moved.sends.is_empty() {
            start = start.max(self.clock.controls_out(part.issue));
            for (send, target) in part.moved.sends.iter().zip(&part.targets) {
                let Some((place, _)) = *target else { continue };
                let control = u64::from(timing.control_ps).saturating_add(self.farther(part, send.peer_rank));
                start = start.max(self.clock.controls_out(parts[place].issue).later(control));
            }
        }
        start.later(self.clock.cycles(1))
    }

    /// Puts what leaves part `own`, and its own block or contribution, into the flows.
    pub(super) fn departures(&mut self, parts: &[Part<'_>], own: usize, header: Moment, passes: &[Passes]) -> Streams {
        let clock = self.clock;
        let part = &parts[own];
        let at = |place: usize, address: u64| passes[place].channels + clock.channel(address) as u32;
        let mut streams = Streams::default();
        let (mut together, mut over) = (Vec::new(), Vec::new());
        for (send, target) in part.moved.sends.iter().zip(&part.targets) {
            over.clear();
            self.links(part.nodes(send.peer_rank), &mut over);
            let (mut written, mut folded) = (None, None);
            if part.is_rendezvous
                && let Some((place, receive)) = *target
            {
                let moved = &parts[place].moved;
                // The contributions to a fold pass together: one of them stands for the result of all, if it has one only.
                if moved.reduced.is_none() || receive == 0 || !moved.partials.is_empty() {
                    written = Some(at(place, moved.receives[receive].address));
                }
                if moved.reduced.is_some() && receive == 0 {
                    folded = Some(passes[place].fold);
                }
            }
            over.extend([written, folded].into_iter().flatten());
            if part.moved.multicast {
                together.extend(&over);
            } else {
                over.push(at(own, send.address));
                streams.sends.push(self.flows.stream(header, clock.whole_beats(send.bytes), over.iter().copied()));
            }
        }
        if part.is_one_stream()
            && let Some(first) = part.moved.sends.first()
        {
            together.push(at(own, first.address));
            together.extend(part.moved.own.map(|block| at(own, block.destination)));
            let stream = self.flows.stream(header, clock.whole_beats(first.bytes), together);
            streams.sends = vec![stream; part.moved.sends.len()];
            streams.own = Some(stream);
        } else if let Some(block) = part.moved.own {
            let over = [at(own, block.source), at(own, block.destination), passes[own].local];
            streams.own = Some(self.flows.stream(header, clock.whole_beats(block.bytes), over));
        } else if let Some((address, bytes)) = part.moved.contribution() {
            let result = part.moved.reduced.filter(|_| !part.moved.partials.is_empty() && part.is_rendezvous);
            let result = result.map(|reduced| at(own, reduced.destination));
            let over = [at(own, address), passes[own].local].into_iter().chain(result);
            streams.own = Some(self.flows.stream(header, clock.whole_beats(bytes), over));
        }
        streams
    }

    /// Puts number `drain` of what goes from the receive buffers of part `own` to memory into the flows: a block once it begins to be
    /// there, or the fold of all once all do.
    pub(super) fn drain(
        &mut self,
        parts: &[Part<'_>],
        own: usize,
        drain: usize,
        headers: &[Moment],
        passes: Passes,
    ) -> usize {
        let (clock, part) = (self.clock, &parts[own]);
        let is_set = clock.dispatched(part.issue, 0);
        let head = |receive: usize| {
            let farther = self.farther(part, part.moved.receives[receive].peer_rank);
            let to_buffer = clock.to_buffer_ps().saturating_add(farther);
            let head = part.sources[receive].map(|place| headers[place].later(to_buffer));
            head.map_or(is_set, |head| is_set.max(head))
        };
        let at = |address: u64| passes.channels + clock.channel(address) as u32;
        if let Some(reduced) = part.moved.reduced {
            let start = (0..part.moved.receives.len()).map(head).fold(is_set, Moment::max);
            let results =
                if part.moved.partials.is_empty() { &[reduced.destination][..] } else { &part.moved.partials };
            let over = results.iter().map(|address| at(*address)).chain([passes.fold]);
            return self.flows.stream(start, clock.whole_beats(reduced.bytes), over);
        }
        let receive = &part.moved.receives[drain];
        let start = head(drain);
        self.flows.stream(start, clock.whole_beats(receive.bytes), [at(receive.address)])
    }

    /// Times that follow from the ends of the streams, in the order of `parts`: the end of time for those that wait for streams which
    /// have not ended.
    pub(super) fn times(&self, parts: &[Part<'_>], streams: &[Streams]) -> Vec<Times> {
        let issued = |part: &Part<'_>| Times::at_once(self.clock.controls_out(part.issue));
        let mut times: Vec<Times> = parts.iter().map(issued).collect();
        // When the last beat of each block is at the last link, by receiving part and place in its receives.
        let mut out: Vec<Vec<Option<Moment>>> =
            parts.iter().map(|part| vec![None; part.moved.receives.len()]).collect();
        for ((part, streams), times) in parts.iter().zip(streams).zip(&mut times) {
            for ((send, target), stream) in part.moved.sends.iter().zip(&part.targets).zip(&streams.sends) {
                if let Some((place, receive)) = *target {
                    out[place][receive] = Some(self.out(part, send.peer_rank, *stream));
                }
            }
            self.departed(part, streams, times);
        }
        for (place, out) in out.iter().enumerate() {
            let (part, streams) = (&parts[place], &streams[place]);
            let folded = part.moved.reduced.map(|_| self.folded(part, streams, out));
            for (receive, out) in out.iter().enumerate() {
                let counted = folded.or_else(|| Some(self.counted((*out)?, streams, receive)));
                if let Some(counted) = counted {
                    self.count(part, receive, place, counted, &mut times);
                }
            }
        }
        times
    }

    /// When the last beat of `stream` from `part` is at the last link to rank `peer`.
    pub(super) fn out(&self, part: &Part<'_>, peer: u32, stream: usize) -> Moment {
        self.flows.end(stream).later(self.farther(part, peer))
    }

    /// Adds what follows from the ends of what leaves `part`, and of its own stream.
    pub(super) fn departed(&self, part: &Part<'_>, streams: &Streams, times: &mut Times) {
        for stream in &streams.sends {
            times.t1 = times.t1.max(self.flows.end(*stream));
        }
        if let Some(own) = streams.own {
            if part.moved.sends.is_empty() {
                times.t1 = times.t1.max(self.flows.end(own));
            }
            let counted = self.flows.end(own).later(self.clock.own_ps());
            if part.moved.own.is_some() {
                times.arrive(counted);
            } else if part.moved.reduced.is_some_and(|reduced| reduced.own.is_some()) {
                times.t2 = times.t2.max(counted);
            }
        }
        times.t2 = times.t2.max(times.t1);
    }

    /// Adds what follows from the block of receive number `receive` of `part` being counted in: for the part, which is at `place`, and
    /// for its source.
    pub(super) fn count(&self, part: &Part<'_>, receive: usize, place: usize, counted: Moment, times: &mut [Times]) {
        times[place].arrive(counted);
        if let Some(source) = part.sources[receive] {
            let farther = self.farther(part, part.moved.receives[receive].peer_rank);
            let acknowledge = u64::from(self.clock.model.timing.acknowledge_ps).saturating_add(farther);
            times[source].t2 = times[source].t2.max(counted.later(acknowledge));
        }
    }

    /// When the block of receive number `receive` is counted in of which the last beat is at the last link at `out`: it goes to
    /// memory by a stream of its own if it lies in the receive buffer meanwhile.
    pub(super) fn counted(&self, out: Moment, streams: &Streams, receive: usize) -> Moment {
        match streams.drains.get(receive) {
            None => out.later(self.clock.model.timing.data_ps.into()),
            Some(drain) => {
                let whole = out.later(self.clock.to_buffer_ps());
                whole.max(self.flows.end(*drain)).later(self.clock.past_buffer_ps())
            }
        }
    }

    /// When the fold of a part is counted.
    pub(super) fn folded(&self, part: &Part<'_>, streams: &Streams, out: &[Option<Moment>]) -> Moment {
        // One stream, if any, empties the receive buffers of all contributions.
        let came = out.iter().flatten().map(|out| self.counted(*out, streams, 0));
        let has_own = part.moved.reduced.is_some_and(|reduced| reduced.own.is_some());
        let own = streams.own.filter(|_| has_own).map(|own| self.flows.end(own).later(self.clock.own_ps()));
        let last = came.chain(own).fold(Moment::default(), Moment::max);
        last.after(Bound::Reduce, self.clock.fold_ps(part.contributions()))
    }
}

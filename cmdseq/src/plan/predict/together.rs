//! Times all that goes on at a time together: over routers, transfers of different cards share links.
//!
//! Which instructions run together is known before. An instruction is issued once the one before it on its card has ended. What it
//! sends leaves at once if it lies in the receive buffers of the others, else once these are issued too. All streams move together,
//! and each instruction ends with the last stream that it waits for. One-sided operations are timed as if nothing else went on.

use std::collections::{BTreeMap, BTreeSet};

use super::clock::Clock;
use super::issues::Issues;
use super::step::{Part, Passes, Step, Streams, is_transfer};
use super::times::Times;
use crate::Operation;
use crate::cost::Moment;
use crate::matching::{Job, Matching};
use crate::refusal::Refusal;

/// Number of a stream that has not begun.
const NONE_YET: usize = usize::MAX;

/// Times all instructions of programs that were checked, and tells the rank and the times of each.
pub(super) fn each_step(job: Job<'_>, clock: &Clock<'_>, timed: impl FnMut(usize, &Times)) -> Result<(), Refusal> {
    let order = Order::of(job)?;
    let ranks = job.programs.len();
    let mut step = Step::new(clock, ranks);
    let together = Together {
        job,
        issues: Issues::new(clock, job),
        cards: (0..ranks).map(|_| step.card()).collect(),
        step,
        alone: Step::new(clock, ranks),
        meetings: order.steps.iter().map(|_| None).collect(),
        kinds: Vec::new(),
        ready: (0..ranks)
            .filter(|rank| !order.place_of[*rank].is_empty())
            .map(|rank| order.place_of[rank][0])
            .collect(),
        order,
        timed,
    };
    together.run();
    Ok(())
}

/// What runs together, and what must have ended before.
struct Order {
    /// The instructions of each step, by rank and index.
    steps: Vec<Vec<(usize, usize)>>,
    /// The step of each instruction and its place there, by rank.
    place_of: Vec<Vec<(usize, usize)>>,
    /// By step, the number of instructions that are to be issued, and of signals that it waits for.
    missing: Vec<usize>,
    /// By step, those that wait for its signals.
    signalled: Vec<Vec<usize>>,
}

impl Order {
    fn of(job: Job<'_>) -> Result<Self, Refusal> {
        let mut order = Order { steps: Vec::new(), place_of: Vec::new(), missing: Vec::new(), signalled: Vec::new() };
        order.place_of = job.programs.iter().map(|program| vec![(0, 0); program.instructions.len()]).collect();
        // By rank, the steps that signal to it and were not waited for.
        let mut signals: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut matching = Matching::new(job);
        while let Some(together) = matching.step()? {
            let step = order.steps.len();
            let mut missing = together.len();
            for (place, (rank, index)) in together.iter().copied().enumerate() {
                order.place_of[rank][index] = (step, place);
                let instruction = &job.programs[rank].instructions[index];
                match instruction.operation {
                    Operation::PutSignal => {
                        let membership = job.membership(rank, instruction);
                        let peer = membership.and_then(|one| one.program_rank(instruction.peer.into()));
                        signals.entry(peer.unwrap_or(rank)).or_default().push(step);
                    }
                    Operation::WaitSignal => {
                        for signal in signals.remove(&rank).unwrap_or_default() {
                            order.signalled[signal].push(step);
                            missing += 1;
                        }
                    }
                    _ => {}
                }
            }
            order.steps.push(together);
            order.missing.push(missing);
            order.signalled.push(Vec::new());
        }
        Ok(order)
    }
}

/// A step of which some instruction was issued.
struct Meeting<'a> {
    parts: Vec<Part<'a>>,
    passes: Vec<Passes>,
    is_issued: Vec<bool>,
    has_ended: Vec<bool>,
    headers: Vec<Moment>,
    streams: Vec<Streams>,
    /// What is known of the times of each part.
    times: Vec<Times>,
    /// By part and place in its receives, when the last beat was at the last link; `None` before, and once it is counted in.
    out: Vec<Vec<Option<Moment>>>,
    waits: Vec<Waits>,
    is_transfer: bool,
}

/// How much of everything a part waits for.
#[derive(Default)]
struct Waits {
    /// Parts that send to it and are not issued.
    sources: usize,
    /// Parts that it sends to and are not issued.
    targets: usize,
    /// Streams that leave it or are its own.
    leaving: usize,
    /// Streams that come to it.
    coming: usize,
    /// Receives that are not counted in: its own, and those of what it sends.
    uncounted: usize,
}

/// What a stream is for.
#[derive(Clone)]
enum Kind {
    /// Data of one part to others of its step: to these, and these places in their receives.
    Sends { step: usize, from: usize, to: Vec<(usize, usize)> },
    /// A part's own data.
    Own { step: usize, place: usize },
    /// What empties the receive buffer of this receive of a part, or of all.
    Drain { step: usize, place: usize, receive: usize },
}

/// Steps and places of parts that have ended.
type Ended = BTreeSet<(usize, usize)>;

struct Together<'a, F> {
    job: Job<'a>,
    order: Order,
    issues: Issues<'a>,
    /// What moves together.
    step: Step<'a>,
    /// What is timed by itself.
    alone: Step<'a>,
    /// By rank.
    cards: Vec<Passes>,
    /// By step.
    meetings: Vec<Option<Meeting<'a>>>,
    /// By stream.
    kinds: Vec<Option<Kind>>,
    /// Step and place of instructions that can be issued.
    ready: Vec<(usize, usize)>,
    timed: F,
}

impl<F: FnMut(usize, &Times)> Together<'_, F> {
    fn run(mut self) {
        loop {
            while let Some((step, place)) = self.ready.pop() {
                self.issue(step, place);
            }
            if !self.step.flows.advance() {
                // What is left waits for streams that never end.
                let left =
                    |meeting: &Option<Meeting<'_>>| meeting.as_ref().is_some_and(|one| one.is_issued.contains(&true));
                let Some(step) = self.meetings.iter().position(left) else { return };
                self.give_up(step);
                continue;
            }
            let mut ended = Ended::new();
            for stream in self.step.flows.take_ended() {
                self.has_ended(stream as usize, &mut ended);
            }
            self.end(ended);
        }
    }

    /// Issues the instruction at `place` of a step.
    fn issue(&mut self, step: usize, place: usize) {
        let (rank, index) = self.order.steps[step][place];
        let issue = self.issues.of(rank, index);
        self.order.missing[step] -= 1;
        let of = &self.order.steps[step];
        let meeting = self.meetings[step].get_or_insert_with(|| Meeting::of(of, self.job, &self.cards, &mut self.step));
        meeting.parts[place].issue = issue;
        meeting.is_issued[place] = true;
        if !meeting.is_transfer {
            self.begin_if_whole(step);
            return;
        }
        meeting.times[place] = Times::at_once(self.step.clock.controls_out(issue));
        let waits = &meeting.waits[place];
        let has_ended = waits.leaving + waits.uncounted == 0;
        let (departing, filled) = meeting.issued(place);
        departing.into_iter().for_each(|place| self.depart(step, place));
        filled.into_iter().for_each(|(place, receive)| self.drain(step, place, receive));
        if has_ended {
            self.end(Ended::from([(step, place)]));
        }
    }

    /// Runs a step that is no transfer, once all of it is issued and the signals that it waits for are there.
    fn begin_if_whole(&mut self, step: usize) {
        let Some(meeting) = self.meetings[step].as_ref().filter(|_| self.order.missing[step] == 0) else { return };
        let times = self.alone.run(&meeting.parts);
        self.meetings[step] = None;
        (0..times.len()).for_each(|place| self.tell(step, place, &times[place]));
    }

    /// Begins what leaves a part.
    fn depart(&mut self, step: usize, place: usize) {
        let Some(meeting) = &mut self.meetings[step] else { return };
        meeting.headers[place] = self.step.header_out(&meeting.parts, place);
        let streams = self.step.departures(&meeting.parts, place, meeting.headers[place], &meeting.passes);
        let mut sent: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
        for (target, stream) in meeting.parts[place].targets.iter().zip(&streams.sends) {
            sent.entry(*stream).or_default().extend(target);
        }
        let own = streams.own.filter(|own| !sent.contains_key(own));
        meeting.streams[place] = Streams { drains: std::mem::take(&mut meeting.streams[place].drains), ..streams };
        for (stream, to) in sent {
            note(&mut self.kinds, stream, Kind::Sends { step, from: place, to });
        }
        own.into_iter().for_each(|stream| note(&mut self.kinds, stream, Kind::Own { step, place }));
    }

    /// Begins what empties a receive buffer of the part at `place`.
    fn drain(&mut self, step: usize, place: usize, receive: usize) {
        let Some(meeting) = &mut self.meetings[step] else { return };
        let stream = self.step.drain(&meeting.parts, place, receive, &meeting.headers, meeting.passes[place]);
        meeting.streams[place].drains[receive] = stream;
        note(&mut self.kinds, stream, Kind::Drain { step, place, receive });
    }

    /// A stream has ended. Adds the parts that wait for nothing any more.
    fn has_ended(&mut self, stream: usize, ended: &mut Ended) {
        let Some(kind) = self.kinds.get_mut(stream).and_then(Option::take) else { return };
        let step = match kind {
            Kind::Sends { step, .. } | Kind::Own { step, .. } | Kind::Drain { step, .. } => step,
        };
        let Some(meeting) = &mut self.meetings[step] else { return };
        let mut concerned = Vec::new();
        match kind {
            Kind::Sends { from, to, .. } => {
                for (place, receive) in to {
                    let peer = meeting.parts[place].own_rank();
                    meeting.out[place][receive] = Some(self.step.out(&meeting.parts[from], peer, stream));
                    meeting.waits[place].coming -= 1;
                    meeting.count(place, receive, &self.step, &mut concerned);
                }
                meeting.left(from, &self.step, &mut concerned);
            }
            Kind::Own { place, .. } => meeting.left(place, &self.step, &mut concerned),
            Kind::Drain { place, receive, .. } => meeting.count(place, receive, &self.step, &mut concerned),
        }
        let is_done = |place: &usize| meeting.waits[*place].leaving + meeting.waits[*place].uncounted == 0;
        ended.extend(concerned.into_iter().filter(is_done).map(|place| (step, place)));
    }

    /// Ends parts, by their steps and places.
    fn end(&mut self, ended: Ended) {
        let mut told = Vec::new();
        for (step, place) in ended {
            let Some(meeting) = &mut self.meetings[step] else { continue };
            told.push((step, place, meeting.times[place]));
            meeting.has_ended[place] = true;
            if meeting.has_ended.iter().all(|has_ended| *has_ended) {
                self.meetings[step] = None;
            }
        }
        told.into_iter().for_each(|(step, place, times)| self.tell(step, place, &times));
    }

    /// Ends the parts of a step that are issued, and wait for streams that never end.
    fn give_up(&mut self, step: usize) {
        let Some(meeting) = self.meetings[step].take() else { return };
        let times = self.step.times(&meeting.parts, &meeting.streams);
        for (place, times) in times.iter().enumerate() {
            if meeting.is_issued[place] && !meeting.has_ended[place] {
                self.tell(step, place, times);
            }
        }
    }

    /// The part at `place` of a step has ended.
    fn tell(&mut self, step: usize, place: usize, times: &Times) {
        let (rank, index) = self.order.steps[step][place];
        (self.timed)(rank, times);
        self.issues.end(rank, index, times.t2);
        self.ready.extend(self.order.place_of[rank].get(index + 1));
        for waiting in std::mem::take(&mut self.order.signalled[step]) {
            self.order.missing[waiting] -= 1;
            self.begin_if_whole(waiting);
        }
    }
}

impl<'a> Meeting<'a> {
    fn of(instructions: &[(usize, usize)], job: Job<'a>, cards: &[Passes], step: &mut Step<'_>) -> Self {
        let part = |one: &(usize, usize)| Part::new(*one, Moment::default(), job);
        let mut parts: Vec<Part<'a>> = instructions.iter().map(part).collect();
        let count = parts.len();
        step.pair(&mut parts);
        let none_yet = |part: &Part<'_>| Streams {
            sends: vec![NONE_YET; part.moved.sends.len()],
            own: part.has_own().then_some(NONE_YET),
            drains: vec![NONE_YET; part.drains()],
        };
        let waits = |part: &Part<'_>| {
            let (sources, targets) = (part.sources.iter().flatten().count(), part.targets.iter().flatten().count());
            let leaving = if part.is_one_stream() { 1 } else { part.moved.sends.len() + usize::from(part.has_own()) };
            Waits { sources, targets, leaving, coming: sources, uncounted: sources + targets }
        };
        Meeting {
            passes: instructions.iter().map(|(rank, _)| cards[*rank]).collect(),
            is_issued: vec![false; count],
            has_ended: vec![false; count],
            headers: vec![Moment::default(); count],
            streams: parts.iter().map(none_yet).collect(),
            times: vec![Times::default(); count],
            out: parts.iter().map(|part| vec![None; part.moved.receives.len()]).collect(),
            waits: parts.iter().map(waits).collect(),
            is_transfer: is_transfer(&parts),
            parts,
        }
    }

    /// The instruction at `place` is issued. Returns the parts that send now, and the receive buffers that are emptied now, by
    /// part and receive.
    fn issued(&mut self, place: usize) -> (Vec<usize>, BTreeSet<(usize, usize)>) {
        let sources = self.parts[place].sources.iter().flatten().copied();
        sources.clone().for_each(|source| self.waits[source].targets -= 1);
        for (target, _) in self.parts[place].targets.iter().flatten() {
            self.waits[*target].sources -= 1;
        }
        let departing = match self.parts[place].is_rendezvous {
            true => {
                let can_depart = |from: &usize| self.is_issued[*from] && self.waits[*from].targets == 0;
                sources.chain([place]).collect::<BTreeSet<_>>().into_iter().filter(can_depart).collect()
            }
            // What lies in the receive buffers of the others can leave at once.
            false => vec![place],
        };
        let own = (0..self.parts[place].drains()).map(|receive| (place, receive));
        let buffers = own.chain(self.parts[place].targets.iter().flatten().copied());
        (departing, buffers.filter_map(|buffer| self.filled(buffer)).collect())
    }

    /// The buffer that is emptied together with that of this receive of a part, if its data is on the way and was not before.
    fn filled(&self, (place, receive): (usize, usize)) -> Option<(usize, usize)> {
        let is_fold = self.parts[place].moved.reduced.is_some();
        let receive = if is_fold { 0 } else { receive };
        let has_come = match is_fold {
            true => self.waits[place].sources == 0,
            false => self.parts[place].sources[receive].is_none_or(|source| self.is_issued[source]),
        };
        let is_new = self.streams[place].drains.get(receive) == Some(&NONE_YET);
        (self.is_issued[place] && has_come && is_new).then_some((place, receive))
    }

    /// A stream that left the part at `place`, or its own, has ended.
    fn left(&mut self, place: usize, step: &Step<'_>, concerned: &mut Vec<usize>) {
        self.waits[place].leaving -= 1;
        if self.waits[place].leaving == 0 {
            step.departed(&self.parts[place], &self.streams[place], &mut self.times[place]);
            concerned.push(place);
        }
        // Its own contribution may be the last one to a fold.
        if self.parts[place].moved.reduced.is_some() {
            self.count(place, 0, step, concerned);
        }
    }

    /// Counts in the block of a receive, or the fold of all, if all streams that it waits for have ended.
    fn count(&mut self, place: usize, receive: usize, step: &Step<'_>, concerned: &mut Vec<usize>) {
        let (part, streams, out) = (&self.parts[place], &self.streams[place], &mut self.out[place]);
        let (counted, receives) = match (part.moved.reduced, out.get(receive).copied().flatten()) {
            (None, Some(at)) => (step.counted(at, streams, receive), receive..receive + 1),
            (Some(_), _) if self.waits[place].coming == 0 => (step.folded(part, streams, out), 0..out.len()),
            _ => return,
        };
        if counted.ps == u64::MAX {
            return;
        }
        for receive in receives {
            if out[receive].take().is_some() {
                step.count(part, receive, place, counted, &mut self.times);
                for place in [Some(place), part.sources[receive]].into_iter().flatten() {
                    self.waits[place].uncounted -= 1;
                    concerned.push(place);
                }
            }
        }
    }
}

fn note(kinds: &mut Vec<Option<Kind>>, stream: usize, kind: Kind) {
    if kinds.len() <= stream {
        kinds.resize(stream + 1, None);
    }
    kinds[stream] = Some(kind);
}

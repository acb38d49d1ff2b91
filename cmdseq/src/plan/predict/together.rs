//! Times all that goes on at a time together: over routers, transfers of different cards share links.
//!
//! Which instructions run together is known before. An instruction is issued once the one before it on its card has ended. What it
//! sends leaves at once if it lies in the receive buffers of the others, else once these are issued too. All streams move together,
//! and each instruction ends with the last stream that it waits for. One-sided operations are timed as if nothing else went on.

use std::collections::{BTreeMap, BTreeSet};

use super::super::clock::Clock;
use super::super::issues::Issues;
use super::super::times::Times;
use super::step::{Part, Passes, Step, Streams, is_transfer};
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
    /// By part, streams that leave it and that come to it, and have not ended.
    leaving: Vec<usize>,
    coming: Vec<usize>,
    is_transfer: bool,
}

/// What a stream is for.
#[derive(Clone)]
enum Kind {
    /// Data of one part to others of its step.
    Sends { step: usize, from: usize, to: Vec<usize> },
    /// Data within the card of a part.
    Within { step: usize },
}

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
                self.end(step, true);
                continue;
            }
            let mut steps = BTreeSet::new();
            for stream in self.step.flows.take_ended() {
                steps.extend(self.has_ended(stream as usize));
            }
            steps.into_iter().for_each(|step| self.end(step, false));
        }
    }

    /// Issues the instruction at `place` of a step.
    fn issue(&mut self, step: usize, place: usize) {
        let (job, of, cards) = (self.job, &self.order.steps[step], &self.cards);
        let meeting = self.meetings[step].get_or_insert_with(|| Meeting::of(of, job, cards));
        let (rank, index) = of[place];
        meeting.parts[place].issue = self.issues.of(rank, index);
        meeting.is_issued[place] = true;
        let is_transfer = meeting.is_transfer;
        self.order.missing[step] -= 1;
        if is_transfer {
            self.can_depart(step, place).into_iter().for_each(|place| self.depart(step, place));
            self.drain(step, place);
            if self.meetings[step].as_ref().is_some_and(|meeting| meeting.leaving[place] + meeting.coming[place] == 0) {
                self.end(step, false);
            }
        }
        self.begin_if_whole(step);
    }

    fn begin_if_whole(&mut self, step: usize) {
        let Some(meeting) = self.meetings[step].as_mut().filter(|_| self.order.missing[step] == 0) else { return };
        if !meeting.is_transfer {
            let times = self.alone.run(&meeting.parts);
            self.meetings[step] = None;
            (0..times.len()).for_each(|place| self.tell(step, place, &times[place]));
            return;
        }
        self.end(step, false);
    }

    /// Which parts can begin to send, now that the instruction at `place` is issued: itself, and those that wait for its receive.
    fn can_depart(&mut self, step: usize, place: usize) -> Vec<usize> {
        let Some(meeting) = &self.meetings[step] else { return Vec::new() };
        let (parts, part) = (&meeting.parts, &meeting.parts[place]);
        self.step.meet(parts);
        let is_issued =
            |part: &Part<'_>, rank: u32| self.step.place_of(part, rank).is_none_or(|place| meeting.is_issued[place]);
        let is_ready = |from: &usize| {
            let part = &parts[*from];
            meeting.is_issued[*from] && part.moved.sends.iter().all(|send| is_issued(part, send.peer_rank))
        };
        let sources = part.moved.receives.iter().filter_map(|receive| self.step.place_of(part, receive.peer_rank));
        let all: BTreeSet<usize> = match part.is_rendezvous {
            true => sources.chain([place]).filter(is_ready).collect(),
            false => BTreeSet::from([place]),
        };
        self.step.part(parts);
        all.into_iter().collect()
    }

    /// Begins what leaves a part.
    fn depart(&mut self, step: usize, place: usize) {
        let Some(meeting) = &mut self.meetings[step] else { return };
        self.step.meet(&meeting.parts);
        meeting.headers[place] = self.step.header_out(&meeting.parts, place);
        let streams = self.step.departures(&meeting.parts, place, meeting.headers[place], &meeting.passes);
        let part = &meeting.parts[place];
        let to = |rank: u32| self.step.receive_of(&meeting.parts, part, rank).map(|(to, _)| to);
        let mut sent: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (send, stream) in part.moved.sends.iter().zip(&streams.sends) {
            sent.entry(*stream).or_default().extend(to(send.peer_rank));
        }
        self.step.part(&meeting.parts);
        let within = streams.own.filter(|own| !sent.contains_key(own));
        meeting.streams[place] = Streams { drains: std::mem::take(&mut meeting.streams[place].drains), ..streams };
        for (stream, to) in sent {
            note(&mut self.kinds, stream, Kind::Sends { step, from: place, to });
        }
        within.into_iter().for_each(|stream| note(&mut self.kinds, stream, Kind::Within { step }));
    }

    /// Begins what empties receive buffers, now that the instruction at `place` is issued: its own, and those of the parts that it
    /// sends to, if they are issued and their sources are.
    fn drain(&mut self, step: usize, place: usize) {
        let Some(meeting) = &mut self.meetings[step] else { return };
        self.step.meet(&meeting.parts);
        let sends = meeting.parts[place].moved.sends.iter();
        let receivers = sends.filter_map(|send| self.step.place_of(&meeting.parts[place], send.peer_rank));
        let concerned: BTreeSet<usize> = receivers.chain([place]).filter(|own| meeting.is_issued[*own]).collect();
        for own in concerned {
            for drain in 0..meeting.parts[own].drains() {
                let part = &meeting.parts[own];
                let has_come = |rank: u32| self.step.place_of(part, rank).is_none_or(|from| meeting.is_issued[from]);
                let is_ready = meeting.streams[own].drains[drain] == NONE_YET
                    && match part.moved.reduced {
                        Some(_) => part.moved.receives.iter().all(|receive| has_come(receive.peer_rank)),
                        None => has_come(part.moved.receives[drain].peer_rank),
                    };
                if is_ready {
                    let (headers, passes) = (&meeting.headers, meeting.passes[own]);
                    let stream = self.step.drain(&meeting.parts, own, drain, headers, passes);
                    meeting.streams[own].drains[drain] = stream;
                    note(&mut self.kinds, stream, Kind::Within { step });
                }
            }
        }
        self.step.part(&meeting.parts);
    }

    /// A stream has ended. Returns its step if a part of that may have ended too.
    fn has_ended(&mut self, stream: usize) -> Option<usize> {
        match self.kinds.get_mut(stream)?.take()? {
            Kind::Within { step } => Some(step),
            Kind::Sends { step, from, to } => {
                let meeting = self.meetings[step].as_mut()?;
                meeting.leaving[from] -= 1;
                to.iter().for_each(|to| meeting.coming[*to] -= 1);
                let is_last = meeting.leaving[from] == 0 || to.iter().any(|to| meeting.coming[*to] == 0);
                is_last.then_some(step)
            }
        }
    }

    /// Ends the parts of a step that wait for nothing any more; all that are issued if the others never end.
    fn end(&mut self, step: usize, is_over: bool) {
        let Some(meeting) = &mut self.meetings[step] else { return };
        self.step.meet(&meeting.parts);
        let times = self.step.times(&meeting.parts, &meeting.streams);
        self.step.part(&meeting.parts);
        let may_end = |place: &usize| meeting.is_issued[*place] && !meeting.has_ended[*place];
        let is_done = |place: &usize| is_over || times[*place].t2.ps < u64::MAX;
        let ended: Vec<usize> = (0..times.len()).filter(|place| may_end(place) && is_done(place)).collect();
        ended.iter().for_each(|place| meeting.has_ended[*place] = true);
        if is_over || meeting.has_ended.iter().all(|has_ended| *has_ended) {
            self.meetings[step] = None;
        }
        ended.into_iter().for_each(|place| self.tell(step, place, &times[place]));
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
    fn of(instructions: &[(usize, usize)], job: Job<'a>, cards: &[Passes]) -> Self {
        let part = |one: &(usize, usize)| Part::new(*one, Moment::default(), job);
        let parts: Vec<Part<'a>> = instructions.iter().map(part).collect();
        let count = parts.len();
        let none_yet = |part: &Part<'_>| Streams {
            sends: vec![NONE_YET; part.moved.sends.len()],
            own: part.has_own().then_some(NONE_YET),
            drains: vec![NONE_YET; part.drains()],
        };
        let leaving = |part: &Part<'_>| if part.is_one_stream() { 1 } else { part.moved.sends.len() };
        Meeting {
            passes: instructions.iter().map(|(rank, _)| cards[*rank]).collect(),
            is_issued: vec![false; count],
            has_ended: vec![false; count],
            headers: vec![Moment::default(); count],
            streams: parts.iter().map(none_yet).collect(),
            leaving: parts.iter().map(leaving).collect(),
            coming: parts.iter().map(|part| part.moved.receives.len()).collect(),
            is_transfer: is_transfer(&parts),
            parts,
        }
    }
}

fn note(kinds: &mut Vec<Option<Kind>>, stream: usize, kind: Kind) {
    if kinds.len() <= stream {
        kinds.resize(stream + 1, None);
    }
    kinds[stream] = Some(kind);
}

//! Cards of a selector: their memory, and their collectives.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use cmdseq::graph::Schedule;
use cmdseq::plan;
use cmdseq::{Element, Operation, Reduction};
use fpga_driver::{Card, Cluster, State};
use fpga_select::Selector;

use crate::collective::{CollectiveId, Description, Planned, Request, Times};
use crate::error::{Class, Error, Result};
use crate::event::Event;

/// How long one part of a wait is.
const PART_OF_WAIT: Duration = Duration::from_millis(50);

/// How long a launch is tested before the cards' health is read again.
const CHECK_EVERY: Duration = Duration::from_millis(200);

/// Opened cards of one fabric, with the collectives that are stored on them.
///
/// All collectives use the same card memory, so at most one of them is in flight, and the launch of one overwrites the data of
/// another: write the input, launch, wait and read the output before the next.
pub struct Cards {
    pub(crate) cluster: Cluster,
    kind: &'static str,
    pub(crate) collectives: HashMap<u64, Planned>,
    in_flight: Option<CollectiveId>,
    /// When the cards' health was read last, or the launch in flight began.
    checked: Instant,
    event: Option<Event>,
}

/// What a card is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardInfo {
    /// The selector of the card.
    pub name: String,
    /// Kind of the bus: `mock`, `vfio` or `vfio-user`.
    pub kind: &'static str,
    /// The card is a mock, on whatever bus.
    pub is_mock: bool,
    /// Its node in the fabric.
    pub node: u32,
    /// Cards in the fabric.
    pub nodes: u32,
    /// Links of the card.
    pub ports: u32,
    /// Exchanges that it runs at once.
    pub lanes: u32,
    /// Clock of the counters, kHz.
    pub clock_khz: u32,
    /// Card memory, bytes.
    pub memory_bytes: u64,
    /// Bit n: the card runs the operation of code n (`docs/isa.md`).
    pub operations: u64,
    /// Bit n: reductions take elements of the type of code n.
    pub element_types: u32,
    /// Bit n: the card has the reduction of code n.
    pub reductions: u32,
}

/// What a card is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardStatus {
    /// The state of its queue: `running`, `halted` (the card has stopped by itself), `stopped`, `poisoned` or `gone`.
    pub queue: String,
    /// Its clock, in cycles.
    pub cycles: u64,
    /// Instructions completed since the card was reset.
    pub retired: u64,
}

impl CardInfo {
    /// Returns the names of the operations that the card runs and this library knows.
    pub fn operation_names(&self) -> Vec<&'static str> {
        Operation::in_bits(self.operations).map(Operation::name).collect()
    }

    /// Returns the names of the element types that reductions take.
    pub fn element_names(&self) -> Vec<&'static str> {
        Element::in_bits(self.element_types).map(Element::name).collect()
    }

    /// Returns the names of the reductions.
    pub fn reduction_names(&self) -> Vec<&'static str> {
        Reduction::in_bits(self.reductions).map(Reduction::name).collect()
    }
}

impl Cards {
    /// Opens the cards of `selector`, such as `mock:optweb:4`.
    ///
    /// # Errors
    /// [`Class::Usage`] for an invalid selector, [`Class::NoCard`] if a card is missing or may not be opened; else those of the
    /// driver.
    pub fn open(selector: &str) -> Result<Self> {
        let mut selection = Selector::parse(selector)?.open_cards(Duration::MAX)?;
        let kind = selection.kind.name();
        let cluster = Cluster::open(selection.take_cards())?;
        Ok(Cards { cluster, kind, collectives: HashMap::new(), in_flight: None, checked: Instant::now(), event: None })
    }

    /// Number of cards.
    pub fn count(&self) -> u32 {
        self.cluster.cards().len() as u32
    }

    /// Returns what card `card` is. Cards are ordered by node.
    ///
    /// # Errors
    /// [`Class::Usage`] if there is no such card.
    pub fn info(&self, card: u32) -> Result<CardInfo> {
        let card = &self.cluster.cards()[self.index(card)?];
        let capabilities = card.capabilities();
        Ok(CardInfo {
            name: card.name().to_owned(),
            kind: self.kind,
            is_mock: card.is_mock(),
            node: card.node(),
            nodes: capabilities.nodes,
            ports: capabilities.ports,
            lanes: capabilities.lanes,
            clock_khz: capabilities.clock_khz,
            memory_bytes: capabilities.memory_bytes,
            operations: capabilities.operations,
            element_types: capabilities.element_types,
            reductions: capabilities.reductions,
        })
    }

    /// Returns what card `card` is doing, by its registers: not for a hot path.
    ///
    /// # Errors
    /// [`Class::Usage`] if there is no such card; else those of the driver.
    pub fn status(&self, card: u32) -> Result<CardStatus> {
        let card = &self.cluster.cards()[self.index(card)?];
        // The host learns by its next wait that a sequencer has halted.
        let queue = match card.state() {
            State::Running if self.with_rank(card.sequencer_state())?.is_halted() => "halted".to_owned(),
            state => state.to_string(),
        };
        let (cycles, retired) = (self.with_rank(card.cycles())?, self.with_rank(card.retired())?);
        Ok(CardStatus { queue, cycles, retired })
    }

    /// Sets how long a call may take that has no timeout of its own.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.cluster.set_timeout(timeout);
    }

    /// Writes `data` to the memory of card `card` at `address`. If the card has halted, the launch in flight is over:
    /// [`times`](Cards::times) returns its times if it was done.
    ///
    /// # Errors
    /// [`Class::Usage`] if there is no such card, [`Class::Refused`] outside of its memory; else those of the driver.
    pub fn write_memory(&mut self, card: u32, address: u64, data: &[u8]) -> Result<()> {
        let index = self.index(card)?;
        let written = self.cluster.card_mut(index).write_memory(address, data);
        self.note_taken();
        self.settle(Some(index), written)
    }

    /// Reads the memory of card `card` at `address`.
    ///
    /// # Errors
    /// As [`write_memory`](Cards::write_memory).
    pub fn read_memory(&mut self, card: u32, address: u64, data: &mut [u8]) -> Result<()> {
        let index = self.index(card)?;
        let read = self.cluster.card_mut(index).read_memory(address, data);
        self.note_taken();
        self.settle(Some(index), read)
    }

    /// Plans a collective on all the cards, and stores its programs there.
    ///
    /// # Errors
    /// [`Class::Usage`] for an unknown name, [`Class::Refused`] if the cards cannot run or store it; else those of the driver.
    pub fn plan(&mut self, request: &Request<'_>) -> Result<CollectiveId> {
        let request = request.on(self.cluster.nodes())?;
        let plan = plan::plan(&request, self.cluster.capabilities())?;
        let prepared = self.cluster.prepare(&Schedule::of(&plan));
        let prepared = self.settle(None, prepared)?;
        let id = CollectiveId::next();
        self.collectives.insert(id.0, Planned { plan, prepared, spent_inputs: Vec::new(), times: None });
        Ok(id)
    }

    /// Returns what was planned.
    ///
    /// # Errors
    /// [`Class::Usage`] after [`release`](Cards::release), as of all calls with a collective.
    pub fn describe(&self, id: CollectiveId) -> Result<Description> {
        let plan = &self.planned(id)?.plan;
        Ok(Description {
            operation: plan.request.collective.name(),
            algorithm: plan.algorithm.name(),
            ranks: plan.request.ranks(),
            predicted_us: plan.predicted.arrival_ps as f64 / 1e6,
        })
    }

    /// Returns the bytes of a rank's input and output.
    ///
    /// # Errors
    /// [`Class::Usage`] if there is no such rank.
    pub fn data_bytes(&self, id: CollectiveId, rank: u32) -> Result<(u64, u64)> {
        let request = &self.planned(id)?.plan.request;
        if rank >= request.ranks() {
            return Err(Error::usage(format!("no rank {rank} (the last is {})", request.ranks() - 1)));
        }
        Ok((request.input_bytes(rank), request.output_bytes(rank)))
    }

    /// Writes bytes `offset` and on of a rank's input.
    ///
    /// # Errors
    /// [`Class::Refused`] if a collective is in flight, or `data` exceeds the input; else those of the driver.
    pub fn write_input(&mut self, id: CollectiveId, rank: u32, offset: u64, data: &[u8]) -> Result<()> {
        self.data_bytes(id, rank)?;
        self.check_idle()?;
        let planned = Self::planned_mut(&mut self.collectives, id)?;
        let written = self.cluster.write_input(&planned.plan.set, rank, offset, data);
        if written.is_ok() {
            planned.note_input(rank, data.len() as u64);
        }
        self.settle(Some(rank as usize), written)
    }

    /// Reads bytes `offset` and on of a rank's output.
    ///
    /// # Errors
    /// As [`write_input`](Cards::write_input).
    pub fn read_output(&mut self, id: CollectiveId, rank: u32, offset: u64, data: &mut [u8]) -> Result<()> {
        self.data_bytes(id, rank)?;
        self.check_idle()?;
        let planned = Self::planned_mut(&mut self.collectives, id)?;
        let read = self.cluster.read_output(&planned.plan.set, rank, offset, data);
        self.settle(Some(rank as usize), read)
    }

    /// Launches a collective: one doorbell a card. Returns at once.
    ///
    /// # Errors
    /// [`Class::Refused`] if a collective is in flight, or the last launch may have overwritten an input of which no byte was written since;
    /// else those of the driver.
    pub fn launch(&mut self, id: CollectiveId) -> Result<()> {
        let planned = Self::planned_mut(&mut self.collectives, id)?;
        if let Some(other) = self.in_flight {
            return Err(in_flight(other == id));
        }
        planned.check_inputs()?;
        planned.times = None;
        if self.event.is_some() {
            self.arm()?;
        }
        let planned = Self::planned_mut(&mut self.collectives, id)?;
        let launched = self.cluster.launch(&mut planned.prepared);
        // If a bus fails, some cards may have begun.
        if matches!(launched, Ok(()) | Err(fpga_driver::Error::Bus(_))) {
            planned.spend_inputs();
        }
        self.settle(None, launched)?;
        self.in_flight = Some(id);
        self.checked = Instant::now();
        Ok(())
    }

    /// Returns the times of the launch if all ranks are done, as often as it is called. Never waits. If it returns `None`, the
    /// descriptor of [`event`](Cards::event) becomes readable when there may be more to see. It finds out a card that is gone or has
    /// halted: at once with a descriptor, else within 200 ms.
    ///
    /// # Errors
    /// As [`wait`](Cards::wait).
    pub fn test(&mut self, id: CollectiveId) -> Result<Option<Times>> {
        if let done @ Some(_) = self.times(id)? {
            return Ok(done);
        }
        self.check_launched(id)?;
        if let Some(times) = self.test_once(id)? {
            return Ok(Some(times));
        }
        if self.event.is_none() && self.checked.elapsed() < CHECK_EVERY {
            return Ok(None);
        }
        if let Err(error) = self.arm() {
            // Over already if a card has halted, but not if one is gone.
            let _ = self.end_broken(id);
            return self.times(id)?.map(Some).ok_or(error);
        }
        // What came before the queues were armed raises nothing.
        self.test_once(id)
    }

    /// Ends a launch in flight whose cards are broken. Returns its times if it was done; else its cards were aborted.
    fn end_broken(&mut self, id: CollectiveId) -> Option<Times> {
        let done = self.wait(id, Duration::ZERO).ok();
        // The wait may have been too short to find out. Cards that do not stop fail the next call.
        drop(self.abort(id));
        done
    }

    /// Waits until all ranks are done, for at most `timeout`, and returns the times; at once if they are done. After a timeout the
    /// launch goes on, and may be waited for again or [aborted](Cards::abort). After any other error it is over.
    ///
    /// # Errors
    /// [`Class::Timeout`]; [`Class::Refused`] if this collective is neither in flight nor done; else those of the driver.
    pub fn wait(&mut self, id: CollectiveId, timeout: Duration) -> Result<Times> {
        if let Some(times) = self.times(id)? {
            return Ok(times);
        }
        self.check_launched(id)?;
        let finished = self.finish(id, timeout)?;
        self.with_rank(finished)
    }

    /// As [`wait`](Cards::wait), but returns `None` after at most a twentieth of a second if time is left. `began` and `timeout` are
    /// those of the whole wait.
    ///
    /// # Errors
    /// As [`wait`](Cards::wait).
    pub fn wait_part(&mut self, id: CollectiveId, began: Instant, timeout: Duration) -> Result<Option<Times>> {
        use fpga_driver::Error::Timeout;
        if let done @ Some(_) = self.times(id)? {
            return Ok(done);
        }
        self.check_launched(id)?;
        let left = timeout.saturating_sub(began.elapsed());
        match self.finish(id, left.min(PART_OF_WAIT))? {
            Err(Timeout { .. }) if left > PART_OF_WAIT => Ok(None),
            Err(Timeout { what, node, rank, instruction, last_seen, .. }) => {
                let waited = began.elapsed();
                self.with_rank(Err(Timeout { what, node, rank, instruction, waited, last_seen }))
            }
            done => self.with_rank(done).map(Some),
        }
    }

    fn finish(&mut self, id: CollectiveId, timeout: Duration) -> Result<fpga_driver::Result<Times>> {
        let planned = Self::planned_mut(&mut self.collectives, id)?;
        let clock_khz = self.cluster.capabilities().clock_khz;
        let finished = self.cluster.finish(&mut planned.prepared, timeout).map(|times| Times::of(times, clock_khz));
        if planned.prepared.in_flight() == 0 {
            self.in_flight = None;
        }
        if let Ok(times) = &finished {
            planned.times = Some(*times);
        }
        Ok(finished)
    }

    /// Returns the collective that is in flight.
    pub fn in_flight(&self) -> Option<CollectiveId> {
        self.in_flight
    }

    /// Returns the times of the last launch that is done; `None` if there was none, it failed, or another is in flight.
    ///
    /// # Errors
    /// [`Class::Usage`] if there is no such collective.
    pub fn times(&self, id: CollectiveId) -> Result<Option<Times>> {
        Ok(self.planned(id)?.times)
    }

    /// Ends the launch in flight, if there is one: the cards drop what they run, and its output is undefined.
    ///
    /// # Errors
    /// Those of the driver: the card takes nothing more before it is reset.
    pub fn abort(&mut self, id: CollectiveId) -> Result<()> {
        let planned = Self::planned_mut(&mut self.collectives, id)?;
        if self.in_flight != Some(id) {
            return Ok(());
        }
        self.in_flight = None;
        let given_up = self.cluster.give_up(&mut planned.prepared);
        self.with_rank(given_up)
    }

    /// Removes a collective from the cards; aborts it if it is in flight.
    ///
    /// # Errors
    /// As [`abort`](Cards::abort); the collective is removed all the same.
    pub fn release(&mut self, id: CollectiveId) -> Result<()> {
        let aborted = self.abort(id);
        self.collectives.remove(&id.0);
        aborted
    }

    /// Returns a descriptor that becomes readable when a launch may be done, for `poll` and the like. [`test`](Cards::test) says
    /// whether it is, and makes the descriptor wait for the next event. A card that is gone raises no event: wake up every
    /// second to test.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn event(&mut self) -> Result<BorrowedFd<'_>> {
        if self.event.is_none() {
            let event = Event::new(self.cluster.cards()).map_err(|errno| {
                let causes = vec![io::Error::from(errno).to_string()];
                Error { causes, ..Error::new(Class::Failed, "Cannot create the descriptor of events") }
            })?;
            self.event = Some(event);
            self.arm()?;
        }
        self.event.as_ref().map(|event| event.as_fd()).ok_or_else(|| Error::new(Class::Failed, "no event"))
    }

    /// Makes the descriptor of [`event`](Cards::event) unreadable if nothing is in flight: for callers that go on to poll it after a
    /// launch is over. What fails here fails again in the next call that uses the cards.
    pub fn clear_event(&mut self) {
        let Some(event) = self.event.as_ref().filter(|_| self.in_flight.is_none()) else { return };
        if event.is_raised() {
            event.clear();
            for index in 0..self.cluster.cards().len() {
                drop(self.cluster.card_mut(index).queue_mut().take_interrupt());
            }
        }
    }

    /// Takes the events that were raised, checks the health of the cards, and has them raise the next event.
    fn arm(&mut self) -> Result<()> {
        self.checked = Instant::now();
        if let Some(event) = &self.event {
            event.clear();
        }
        for index in 0..self.cluster.cards().len() {
            let queue = self.cluster.card_mut(index).queue_mut();
            let armed = queue.wait_progress(Duration::ZERO).and_then(|_| queue.arm());
            self.settle(Some(index), armed)?;
        }
        Ok(())
    }

    /// Notes that data was moved: the wait for it may have taken completions and the interrupt of the launch in flight.
    pub(crate) fn note_taken(&self) {
        if let Some(event) = self.event.as_ref().filter(|_| self.in_flight.is_some()) {
            event.raise();
        }
    }

    /// Adds the rank to the error of a card.
    fn with_rank<T>(&self, outcome: fpga_driver::Result<T>) -> Result<T> {
        outcome.map_err(|error| Error::of(error, self.cluster.cards(), None))
    }

    /// As [`with_rank`](Self::with_rank); `card` is the only card that the call used, if there was only one. If the error is about a
    /// card that takes nothing more before an abort, ends the launch in flight and aborts that card.
    pub(crate) fn settle<T>(&mut self, card: Option<usize>, outcome: fpga_driver::Result<T>) -> Result<T> {
        outcome.map_err(|error| {
            if let Some(broken) = self.broken(&error) {
                let was_aborted = self.in_flight.is_some_and(|id| self.end_broken(id).is_none());
                if !was_aborted {
                    // A card that does not stop fails the next call.
                    drop(self.cluster.card_mut(broken).abort());
                }
            }
            Error::of(error, self.cluster.cards(), card)
        })
    }

    /// Returns the card that `error` is about, if it has halted or its queue is poisoned.
    fn broken(&self, error: &fpga_driver::Error) -> Option<usize> {
        use fpga_driver::Error::{BadCompletion, Failed, Halted, NotRunning, Timeout};
        let cards = self.cluster.cards();
        let index = cards.iter().position(|card| error.is_about(card.name(), card.node()))?;
        let needs_abort = match error {
            Halted { .. } | BadCompletion { .. } | NotRunning { .. } => true,
            // The card may have halted since.
            Failed { .. } | Timeout { .. } => cards[index].sequencer_state().is_ok_and(|state| state.is_halted()),
            _ => false,
        };
        needs_abort.then_some(index)
    }

    fn test_once(&mut self, id: CollectiveId) -> Result<Option<Times>> {
        let mut has_ended = false;
        for index in 0..self.cluster.cards().len() {
            let queue = self.cluster.card_mut(index).queue_mut();
            // A queue that fails is `finish`'s to report.
            has_ended |= queue.poll().is_err() || queue.in_flight() == 0;
        }
        if !has_ended {
            return Ok(None);
        }
        match self.wait(id, Duration::ZERO) {
            Err(error) if error.class == Class::Timeout && self.in_flight.is_some() => Ok(None),
            done => done.map(Some),
        }
    }

    pub(crate) fn index(&self, card: u32) -> Result<usize> {
        let last = self.cluster.cards().len() - 1;
        let index = usize::try_from(card).ok().filter(|index| *index <= last);
        index.ok_or_else(|| Error::usage(format!("no card {card} (the last is {last})")))
    }

    pub(crate) fn check_idle(&self) -> Result<()> {
        self.in_flight.map_or(Ok(()), |_| Err(in_flight(false)))
    }

    fn check_launched(&self, id: CollectiveId) -> Result<()> {
        self.planned(id)?;
        if self.in_flight == Some(id) {
            Ok(())
        } else {
            Err(Error::refused("not in flight: launch the collective first"))
        }
    }

    pub(crate) fn planned(&self, id: CollectiveId) -> Result<&Planned> {
        self.collectives.get(&id.0).ok_or_else(released)
    }

    pub(crate) fn planned_mut(collectives: &mut HashMap<u64, Planned>, id: CollectiveId) -> Result<&mut Planned> {
        collectives.get_mut(&id.0).ok_or_else(released)
    }
}

fn released() -> Error {
    Error::usage("this collective was released, or is of other cards")
}

fn in_flight(is_same: bool) -> Error {
    let which = if is_same { "this collective" } else { "a collective of these cards" };
    Error::refused(format!("{which} is in flight: wait for it, or abort it"))
}

impl std::fmt::Debug for Cards {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.cluster.cards().iter().map(Card::name).collect();
        f.debug_struct("Cards").field("cards", &names).field("in_flight", &self.in_flight).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No other rank's input, and no empty one.
    #[test]
    fn an_input_that_a_launch_has_replaced_is_written_before_the_next() {
        let mut cards = Cards::open("mock:optweb:4").unwrap();
        let id = cards.plan(&Request { operation: "alltoall", bytes: 64, ..Request::default() }).unwrap();
        let memory = cards.allocate(256).unwrap();
        // As after a plan that has room for the input or the output only.
        cards.collectives.get_mut(&id.0).unwrap().spent_inputs = vec![true; 4];
        for rank in 0..4 {
            cards.write_input(id, rank, 0, &[]).unwrap();
            let error = cards.launch(id).unwrap_err();
            assert!(error.class == Class::Refused && error.message.contains(&format!("rank {rank}")), "{error}");
            match rank % 2 {
                0 => cards.write_input(id, rank, 0, &[1]).unwrap(),
                _ => cards.load_input(id, rank, &memory, 0).unwrap(),
            }
        }
        cards.launch(id).unwrap();
    }

    #[test]
    fn a_launch_that_is_refused_leaves_the_inputs() {
        let mut cards = Cards::open("mock:optweb:4").unwrap();
        let id = cards.plan(&Request { operation: "alltoall", bytes: 64, ..Request::default() }).unwrap();
        cards.collectives.get_mut(&id.0).unwrap().plan.replaces_input = true;
        cards.cluster.card_mut(1).reset().unwrap();
        for _ in 0..2 {
            let error = cards.launch(id).unwrap_err();
            assert!(error.message.contains("prepared schedule"), "{error}");
        }
    }
}

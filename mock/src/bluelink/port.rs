//! A port of a board: the link and reliability layers, and the way to the transceiver and from it.

use std::collections::VecDeque;

use super::message::Message;
use crate::engine::{Clock, ComponentId, Context, Cycle};
use crate::net::line::Serializer;
use crate::profile::bluelink::Parameters;
use crate::proto::bluelink::{Datum, End, EndConfig, Event, Flit, FlitError, Payload, Session, Violation};

/// A port of a board.
#[derive(Debug)]
pub(super) struct Port<P: Payload> {
    end: End<P>,
    clock: Clock,
    /// Cycles of the board's clock for a CRC.
    crc: Cycle,
    /// Cycles of the receiving clock into another clock.
    crossing: Cycle,
    serializer: Serializer,
    cable: ComponentId,
    side: usize,
    has_signal: bool,
    /// Flits between transceiver and reliability layer, with the cycle in which they are through.
    arriving: VecDeque<(Cycle, P::Wire)>,
    /// Session of the end.
    session: Session,
    config: EndConfig,
    damaged: u64,
    written_off: u64,
}

impl<P: Payload> Port<P> {
    pub(super) fn new(parameters: &Parameters, clock: Clock, cable: ComponentId, side: usize) -> Self {
        let config = EndConfig {
            timeout: parameters.timeout_cycles,
            input: parameters.input_flits.max(1),
            receive_buffer: parameters.receive_flits,
        };
        Port {
            end: End::new(config, Session::MIN),
            session: Session::MIN,
            config,
            clock,
            crc: parameters.crc_cycles.into(),
            crossing: parameters.crossing_cycles.into(),
            serializer: Serializer::new(&parameters.line),
            cable,
            side,
            has_signal: true,
            arriving: VecDeque::new(),
            damaged: 0,
            written_off: 0,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.end.is_up()
    }

    pub(super) fn violation(&self) -> Option<Violation> {
        self.end.violation()
    }

    pub(super) fn words(&self) -> u64 {
        self.serializer.sent()
    }

    pub(super) fn damaged(&self) -> u64 {
        self.damaged
    }

    pub(super) fn written_off(&self) -> u64 {
        self.written_off
    }

    /// Forgets all but the number of its restarts, which is the session.
    pub(super) fn restart(&mut self) {
        self.session = self.session.checked_add(1).unwrap_or(Session::MIN);
        self.end = End::new(self.config, self.session);
        self.arriving.clear();
    }

    pub(super) fn has_room(&self) -> bool {
        self.end.input_room() > 0
    }

    /// Takes a flit from the switch, which has seen room.
    pub(super) fn send(&mut self, datum: Datum<P>) {
        let sent = self.end.send(datum);
        debug_assert!(sent.is_ok(), "the switch looks for room first");
    }

    pub(super) fn peek(&self) -> Option<&Datum<P>> {
        self.end.peek()
    }

    pub(super) fn take(&mut self) -> Option<Datum<P>> {
        self.end.take()
    }

    pub(super) fn set_signal(&mut self, is_there: bool) {
        self.has_signal = is_there;
    }

    /// Takes a flit from the transceiver, and returns the cycle in which it is at the reliability layer.
    pub(super) fn arrive(&mut self, cycle: Cycle, wire: P::Wire) -> Cycle {
        let due = cycle + self.crossing + self.crc;
        self.arriving.push_back((due, wire));
        due
    }

    /// Gives the reliability layer what is due.
    pub(super) fn receive(&mut self, cycle: Cycle) {
        while self.arriving.front().is_some_and(|flit| flit.0 <= cycle)
            && let Some((_, wire)) = self.arriving.pop_front()
        {
            match Flit::decode(&wire) {
                Ok(flit) => {
                    // A violation stops the end, which keeps it.
                    if let Ok(Event::NeighbourRestarted { unacknowledged, unsent }) =
                        self.end.receive(cycle as u64, flit)
                    {
                        self.written_off += (unacknowledged + unsent) as u64;
                    }
                }
                Err(FlitError::Damaged(_)) => self.damaged += 1,
                Err(FlitError::Violation(violation)) => self.end.fail(violation),
            }
        }
    }

    /// Sends a flit if there is one and it can begin at once.
    pub(super) fn transmit(&mut self, cycle: Cycle, context: &mut Context<'_, Message<P>>) {
        if !self.has_signal || cycle < self.free_from() {
            return;
        }
        let Some(flit) = self.end.transmit(cycle as u64) else { return };
        let wire = flit.encode();
        let end = self.serializer.send(self.clock.edge(cycle + self.crc), self.crossing, wire.as_ref().len());
        context.send(self.cable, end - context.now(), Message::Sent { side: self.side, wire });
    }

    /// Returns the next cycle after `cycle` in which the port has something to do if nothing comes.
    pub(super) fn wakes_at(&self, cycle: Cycle) -> Option<Cycle> {
        let arriving = self.arriving.front().map(|flit| flit.0);
        let sending = self.end.wakes_at().filter(|_| self.has_signal);
        let sending = sending.map(|at| Cycle::from(at).max(self.free_from()).max(cycle + 1));
        [arriving, sending].into_iter().flatten().min()
    }

    /// Returns the first cycle whose flit begins at once.
    fn free_from(&self) -> Cycle {
        self.clock.cycle_at_or_after(self.serializer.free_at(self.crossing)).saturating_sub(self.crc)
    }
}

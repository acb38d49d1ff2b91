//! A board: ports with the layers of a link, a switch between them, and the channels of its applications.

use std::collections::VecDeque;

use super::address::{CHANNELS, Target};
use super::application::Application;
use super::message::Message;
use super::port::Port;
use crate::engine::{Clock, ComponentId, Context, Cycle};
use crate::profile::bluelink::Parameters;
use crate::proto::bluelink::{Datum, Payload, Violation};

/// What a board has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BoardStatistics {
    /// Flits that the switch passed from link to link.
    pub forwarded: u64,
    /// Flits delivered to a channel.
    pub delivered: u64,
    /// Flits with a wrong header or CRC.
    pub damaged: u64,
    /// Flits for a board that is not there. They are dropped.
    pub misaddressed: u64,
    /// Flits that were given up: the board at the other end of a link restarted, and some of them may have arrived before.
    pub written_off: u64,
    /// Words of 32 bits sent on all links, with acknowledgements and replays.
    pub words: u64,
}

/// Where the switch sends a flit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Output {
    Port(usize),
    Channel(usize),
    Nowhere,
}

/// A board. What it does, it does at edges of its clock: it switches, then receives, then sends.
#[derive(Debug)]
pub(super) struct Board<P: Payload> {
    node: u8,
    parameters: Parameters,
    clock: Clock,
    ports: Vec<Port<P>>,
    /// The port toward each board.
    routes: Vec<Option<usize>>,
    /// The flit that the host has given.
    outbox: Option<Datum<P>>,
    /// Flits of each channel, with the cycle in which they came.
    channels: Vec<VecDeque<(Cycle, Datum<P>)>>,
    /// Applications that the board runs.
    applications: Vec<Application>,
    /// The input of the switch that is asked first.
    first_input: usize,
    next_edge: Option<Cycle>,
    statistics: BoardStatistics,
}

impl<P: Payload> Board<P> {
    pub(super) fn new(parameters: &Parameters, node: u8, clock: Clock) -> Self {
        Board {
            node,
            parameters: *parameters,
            clock,
            ports: Vec::new(),
            routes: Vec::new(),
            outbox: None,
            channels: (0..CHANNELS).map(|_| VecDeque::new()).collect(),
            applications: Vec::new(),
            first_input: 0,
            next_edge: None,
            statistics: BoardStatistics::default(),
        }
    }

    /// Adds a port with one side of a cable.
    pub(super) fn add_port(&mut self, cable: ComponentId, side: usize) {
        self.ports.push(Port::new(&self.parameters, self.clock, cable, side));
    }

    /// Puts an application on its channel, instead of one that is there.
    pub(super) fn add(&mut self, application: Application) {
        self.applications.retain(|other| other.channel() != application.channel());
        self.applications.push(application);
    }

    pub(super) fn application(&self, channel: usize) -> Option<&Application> {
        self.applications.iter().find(|one| one.channel() == channel)
    }

    pub(super) fn application_mut(&mut self, channel: usize) -> Option<&mut Application> {
        self.applications.iter_mut().find(|one| one.channel() == channel)
    }

    /// Sets the port toward each board.
    pub(super) fn set_routes(&mut self, routes: Vec<Option<usize>>) {
        self.routes = routes;
    }

    pub(super) fn clock(&self) -> Clock {
        self.clock
    }

    pub(super) fn statistics(&self) -> BoardStatistics {
        let sum = |of: fn(&Port<P>) -> u64| self.ports.iter().map(of).sum();
        BoardStatistics {
            words: sum(Port::words),
            damaged: sum(Port::damaged),
            written_off: sum(Port::written_off),
            ..self.statistics
        }
    }

    /// Returns the violation that has stopped a link, with its port.
    pub(super) fn violation(&self) -> Option<(usize, Violation)> {
        self.ports.iter().enumerate().find_map(|(number, port)| Some((number, port.violation()?)))
    }

    /// Returns whether all links carry data.
    pub(super) fn is_up(&self) -> bool {
        self.ports.iter().all(Port::is_up)
    }

    /// Returns whether the host may give a flit.
    pub(super) fn has_room(&self) -> bool {
        self.outbox.is_none()
    }

    /// Takes a flit from the host, which has seen room.
    pub(super) fn offer(&mut self, datum: Datum<P>) {
        self.outbox = Some(datum);
    }

    /// Returns whether a flit is in a channel, though perhaps since this cycle only.
    pub(super) fn has_flit(&self, channel: usize) -> bool {
        !self.channels[channel].is_empty()
    }

    /// Removes and returns the oldest flit of a channel, if it came in a cycle before `now`.
    pub(super) fn take(&mut self, channel: usize, now: Cycle) -> Option<Datum<P>> {
        let fifo = &mut self.channels[channel];
        fifo.front().filter(|flit| flit.0 < now)?;
        fifo.pop_front().map(|flit| flit.1)
    }

    pub(super) fn receive(&mut self, message: Message<P>, context: &mut Context<'_, Message<P>>) {
        let cycle = self.clock.cycle_at_or_after(context.now());
        match message {
            Message::Arrived { port, wire } => {
                let due = self.ports[port].arrive(cycle, wire);
                self.wake(due, context);
            }
            Message::Signal { port, is_there } => {
                self.ports[port].set_signal(is_there);
                self.wake(cycle, context);
            }
            Message::HostAccess => self.wake(cycle + 1, context),
            Message::Restart => {
                self.outbox = None;
                self.channels.iter_mut().for_each(VecDeque::clear);
                self.applications.retain_mut(Application::restart);
                self.ports.iter_mut().for_each(Port::restart);
                self.wake(cycle, context);
            }
            // An edge that an earlier one has replaced comes all the same.
            Message::Edge if self.next_edge == Some(cycle) => {
                self.next_edge = None;
                self.run(cycle, context);
            }
            Message::Edge => {}
            Message::Sent { .. } | Message::Unplug | Message::Plug | Message::Locked { .. } => {
                unreachable!("sent to cables only")
            }
        }
    }

    fn wake(&mut self, cycle: Cycle, context: &mut Context<'_, Message<P>>) {
        if self.next_edge.is_none_or(|next| cycle < next) {
            self.next_edge = Some(cycle);
            context.wake(self.clock.edge(cycle).saturating_sub(context.now()), Message::Edge);
        }
    }

    /// Runs one cycle.
    fn run(&mut self, cycle: Cycle, context: &mut Context<'_, Message<P>>) {
        self.run_applications(cycle);
        self.switch(cycle);
        for port in &mut self.ports {
            port.receive(cycle);
            port.transmit(cycle, context);
        }
        let next = self.ports.iter().filter_map(|port| port.wakes_at(cycle)).min();
        let next = if self.can_switch() || self.can_run_applications() { Some(cycle + 1) } else { next };
        if let Some(next) = next {
            self.wake(next, context);
        }
    }

    fn run_applications(&mut self, cycle: Cycle) {
        for place in 0..self.applications.len() {
            let channel = self.applications[place].channel();
            if !self.applications[place].has_room() {
                self.applications[place].run();
            } else if let Some(datum) = self.take(channel, cycle) {
                self.applications[place].push(datum.payload.to_low());
            }
        }
    }

    fn can_run_applications(&self) -> bool {
        let has_flit = |one: &Application| one.has_room() && self.has_flit(one.channel());
        self.applications.iter().any(|one| one.is_running() || has_flit(one))
    }

    /// Moves at most one flit from each input and to each output.
    fn switch(&mut self, cycle: Cycle) {
        let inputs = self.inputs();
        // Bits of the outputs that have a flit in this cycle.
        let mut taken = 0_u64;
        for place in 0..inputs {
            let input = (self.first_input + place) % inputs;
            let Some(datum) = self.head(input) else { continue };
            let output = self.output(&datum);
            let bit = match output {
                Output::Port(port) => 1 << port,
                Output::Channel(_) => 1 << self.ports.len(),
                Output::Nowhere => 0,
            };
            if taken & bit != 0 || !self.has_output_room(output) {
                continue;
            }
            self.remove_head(input);
            taken |= bit;
            match output {
                Output::Port(port) => {
                    self.statistics.forwarded += u64::from(input < self.ports.len());
                    self.ports[port].send(datum);
                }
                Output::Channel(channel) => {
                    self.statistics.delivered += 1;
                    self.channels[channel].push_back((cycle, datum));
                }
                Output::Nowhere => self.statistics.misaddressed += 1,
            }
        }
        self.first_input = (self.first_input + 1) % inputs;
    }

    fn can_switch(&self) -> bool {
        let is_possible = |input| self.head(input).is_some_and(|datum| self.has_output_room(self.output(&datum)));
        (0..self.inputs()).any(is_possible)
    }

    /// Inputs of the switch: the ports, the host's outbox, the applications.
    fn inputs(&self) -> usize {
        self.ports.len() + 1 + self.applications.len()
    }

    /// Returns the first flit of an input.
    fn head(&self, input: usize) -> Option<Datum<P>> {
        match input.checked_sub(self.ports.len()) {
            None => self.ports[input].peek().copied(),
            Some(0) => self.outbox,
            Some(place) => self.applications[place - 1]
                .peek()
                .map(|(target, flit)| Datum { address: target.into(), payload: P::from_low(flit) }),
        }
    }

    fn remove_head(&mut self, input: usize) {
        match input.checked_sub(self.ports.len()) {
            None => drop(self.ports[input].take()),
            Some(0) => self.outbox = None,
            Some(place) => self.applications[place - 1].pop(),
        }
    }

    fn output(&self, datum: &Datum<P>) -> Output {
        let target = Target::from(datum.address);
        if target.board == self.node {
            return Output::Channel(target.channel.into());
        }
        self.routes.get(usize::from(target.board)).copied().flatten().map_or(Output::Nowhere, Output::Port)
    }

    fn has_output_room(&self, output: Output) -> bool {
        match output {
            Output::Port(port) => self.ports[port].has_room(),
            Output::Channel(channel) => self.channels[channel].len() < self.parameters.channel_flits,
            Output::Nowhere => true,
        }
    }
}

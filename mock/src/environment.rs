//! What the cards of a fabric have in common: time, future events, the streams that share links and memory, and the ways to the host.

use crate::card::communicators::Members;
use crate::card::host_dma::HostDma;
use crate::card::resources::Resources;
use crate::card::switched::Switches;
use crate::engine::streams::Rates;
use crate::engine::{Agenda, Time};
use crate::event::Event;
use crate::fault::Fault;
use crate::net::noise::Dice;
use crate::net::transfers::TransferLog;
use crate::net::wiring::Ports;
use crate::profile::Profile;
use crate::proto::optweb::moving::{HOLD_BYTES, Move};
use crate::proto::optweb::stream::StreamPurpose;

/// Counters of a fabric since its creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// The fabric's time in picoseconds.
    pub now_ps: u128,
    /// Events handled.
    pub events: u64,
    /// Blocks that went from one card to another.
    pub transfers: u64,
    /// Bytes that went from one card to another.
    pub bytes: u64,
    /// Instructions completed.
    pub instructions: u64,
    /// Most bytes of memory read and written while the fabric's lock was held once; hosts wait for the lock.
    pub most_held_bytes: u64,
}

/// State of the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Pace {
    /// No thread: time advances inside the access that starts work.
    #[default]
    Access,
    /// The thread sleeps.
    Idle,
    /// The thread has work.
    Due,
    /// The thread must end.
    Stop,
}

/// All that is not on one card.
pub(crate) struct Environment {
    pub(crate) profile: Profile,
    pub(crate) ports: Ports,
    pub(crate) now: Time,
    /// By card.
    pub(crate) resources: Box<[Resources]>,
    pub(crate) rates: Rates<StreamPurpose>,
    pub(crate) host: HostDma,
    /// The network of switches, if they compute.
    pub(crate) switches: Option<Switches>,
    /// Chooses what bit errors hit.
    pub(crate) link_dice: Dice,
    pub(crate) statistics: Statistics,
    /// What links carry, if a trace is recorded.
    pub(crate) transfers: Option<TransferLog>,
    pub(crate) next_burst: u64,
    /// Data that moves at this instant; all other events wait for it.
    pub(crate) moving: Option<Move>,
    /// Planted faults that wait for a transfer.
    pub(crate) watches: Vec<Fault>,
    /// Planted faults that strike again after a reset of a card that has not rung.
    pub(crate) outlasting: Vec<Fault>,
    /// Bytes read and written since the lock was taken.
    pub(crate) hold_bytes: u64,
    /// Card memory, and blocks that were the last to hold some, to be freed after the lock is released.
    pub(crate) discarded: Vec<Box<dyn Send>>,
    pub(crate) world: Members,
    pub(crate) agenda: Agenda<Event>,
    /// Planted faults among its events: time does not pass for them alone.
    pub(crate) strikes: usize,
    pub(crate) pace: Pace,
}

impl Environment {
    pub(crate) fn schedule(&mut self, at: Time, event: Event) {
        self.strikes += usize::from(matches!(event, Event::Strike(_)));
        self.agenda.add(at, event);
    }

    /// Schedules `event` for `delay` picoseconds from now.
    pub(crate) fn schedule_in(&mut self, delay: u64, event: Event) {
        self.schedule(self.now + Time::from(delay), event);
    }

    /// Returns whether the lock must be released. Without a clock, the access that started work waits for all of it.
    pub(crate) fn has_held_enough(&self) -> bool {
        self.pace != Pace::Access && self.hold_bytes >= HOLD_BYTES
    }

    /// Returns card and port at the far end.
    pub(crate) fn back(&self, card: usize, port: usize) -> Option<(usize, usize)> {
        let peer = self.ports.peer(card as u32, port);
        self.ports.toward(peer, card as u32).map(|back| (peer as usize, back))
    }

    /// Stops all streams of a card's instructions, and of what it serves.
    pub(crate) fn stop_streams_of(&mut self, card: usize) {
        self.rates.stop(|purpose| purpose.at().card == card);
    }

    /// Counts a transfer of `bytes` from card to card.
    pub(crate) fn count_transfer(&mut self, bytes: u64) {
        self.statistics.transfers = self.statistics.transfers.wrapping_add(1);
        self.statistics.bytes = self.statistics.bytes.wrapping_add(bytes);
    }

    /// Has the fabric look at the network when its next message arrives.
    pub(crate) fn wake_switches(&mut self) {
        let Some(switches) = &mut self.switches else { return };
        let Some(next) = switches.network.next_at() else { return };
        if switches.due.is_none_or(|due| next < due) {
            switches.due = Some(next);
            self.schedule(next, Event::Switches);
        }
    }

    /// Logs that a stream begins.
    pub(crate) fn log_begin(&mut self, purpose: &StreamPurpose) {
        if let (Some(log), Some(key)) = (&mut self.transfers, purpose.key()) {
            log.begin(key, self.now);
        }
    }
}

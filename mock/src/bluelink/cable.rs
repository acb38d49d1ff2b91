//! A cable: both directions of a line, and whether it is plugged.

use super::message::Message;
use crate::engine::{ComponentId, Context, Time};
use crate::net::line::Medium;
use crate::profile::bluelink::Parameters;
use crate::proto::bluelink::Payload;

/// A cable between ports of two boards. It is cut where flits enter it: one that is in the cable when it is pulled arrives.
#[derive(Debug)]
pub(super) struct Cable {
    /// Board and port at each side.
    ends: [(ComponentId, usize); 2],
    /// What happens to flits from each side.
    media: [Medium; 2],
    latency: Time,
    lock_time: Time,
    is_plugged: bool,
    has_locked: bool,
    /// Number of times it was plugged.
    plugged: u64,
    /// Flits that found no cable.
    unplugged_flits: u64,
}

impl Cable {
    pub(super) fn new(parameters: &Parameters, ends: [(ComponentId, usize); 2], seed: u64) -> Self {
        Cable {
            ends,
            media: [seed << 1, seed << 1 | 1].map(|seed| Medium::new(&parameters.line, seed)),
            latency: parameters.line.latency_ps.into(),
            lock_time: parameters.lock_ps.into(),
            is_plugged: true,
            has_locked: true,
            plugged: 0,
            unplugged_flits: 0,
        }
    }

    /// Returns the flits that were lost and those that were damaged.
    pub(super) fn faults(&self) -> (u64, u64) {
        let sum = |of: fn(&Medium) -> u64| self.media.iter().map(of).sum::<u64>();
        (self.unplugged_flits + sum(|medium| medium.lost), sum(|medium| medium.damaged))
    }

    pub(super) fn receive<P: Payload>(&mut self, message: Message<P>, context: &mut Context<'_, Message<P>>) {
        match message {
            Message::Sent { side, mut wire } => {
                if !self.has_locked {
                    self.unplugged_flits += 1;
                } else if self.media[side].pass(wire.as_mut()) {
                    let (board, port) = self.ends[1 - side];
                    context.send(board, self.latency, Message::Arrived { port, wire });
                }
            }
            Message::Unplug => {
                self.is_plugged = false;
                self.set_signal(false, context);
            }
            Message::Plug if !self.is_plugged => {
                self.is_plugged = true;
                self.plugged += 1;
                context.wake(self.lock_time, Message::Locked { plugged: self.plugged });
            }
            Message::Locked { plugged } if self.is_plugged && plugged == self.plugged => self.set_signal(true, context),
            Message::Plug | Message::Locked { .. } => {}
            Message::Arrived { .. } | Message::Signal { .. } => unreachable!("sent to boards only"),
            Message::Edge | Message::HostAccess | Message::Restart => unreachable!("sent to boards only"),
        }
    }

    fn set_signal<P: Payload>(&mut self, is_there: bool, context: &mut Context<'_, Message<P>>) {
        if std::mem::replace(&mut self.has_locked, is_there) != is_there {
            self.ends
                .iter()
                .for_each(|(board, port)| context.send(*board, 0, Message::Signal { port: *port, is_there }));
        }
    }
}

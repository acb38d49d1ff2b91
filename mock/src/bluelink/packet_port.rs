//! Packets of software on a board.

use std::collections::VecDeque;

use super::address::Target;
use super::fabric::Fabric;
use super::packet::{Packet, PacketError, PacketReader};
use crate::engine::Time;

/// Sends packets from a channel of a board and receives them there, as software that polls the flit buffers.
#[derive(Debug)]
pub struct PacketPort {
    own: Target,
    sending: VecDeque<(Target, u64)>,
    reader: PacketReader,
}

impl PacketPort {
    /// Uses the channel `own`, of the board that the software runs on.
    pub fn new(own: Target) -> Self {
        PacketPort { own, sending: VecDeque::new(), reader: PacketReader::default() }
    }

    /// Begins to send a packet. [`PacketPort::poll`] and [`PacketPort::wait`] go on with it.
    ///
    /// # Errors
    /// [`PacketError::Long`], and [`PacketError::Busy`] before the packet before is sent.
    pub fn send(&mut self, to: Target, bytes: &[u8]) -> Result<(), PacketError> {
        if !self.sending.is_empty() {
            return Err(PacketError::Busy { flits: self.sending.len() });
        }
        let flits = Packet { from: self.own, bytes: bytes.to_vec() }.flits()?;
        self.sending.extend(flits.into_iter().map(|flit| (to, flit)));
        Ok(())
    }

    /// Returns whether all packets were given to the board.
    pub fn is_sent(&self) -> bool {
        self.sending.is_empty()
    }

    /// Gives and takes the flits that can be given and taken now; returns a packet if one is complete.
    ///
    /// # Errors
    /// [`PacketError::Header`] for flits that are no packet, and errors of the fabric.
    pub fn poll(&mut self, fabric: &mut Fabric) -> Result<Option<Packet>, PacketError> {
        while let Some((to, flit)) = self.sending.front().copied() {
            if !fabric.try_send(self.own.board.into(), to, flit)? {
                break;
            }
            self.sending.pop_front();
        }
        while let Some(flit) = fabric.try_receive(self.own)? {
            if let Some(packet) = self.reader.push(flit)? {
                return Ok(Some(packet));
            }
        }
        Ok(None)
    }

    /// Blocks until a packet is complete, or `most` picoseconds have gone.
    ///
    /// # Errors
    /// As [`PacketPort::poll`].
    pub fn wait(&mut self, fabric: &mut Fabric, most: Time) -> Result<Option<Packet>, PacketError> {
        let end = fabric.now().saturating_add(most);
        loop {
            if let Some(packet) = self.poll(fabric)? {
                return Ok(Some(packet));
            }
            if !fabric.advance_for(self.own, end)? {
                return Ok(None);
            }
        }
    }
}

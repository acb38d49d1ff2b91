//! A processor: gives its data to the DMA engine in phits, and takes the result.

use std::collections::{BTreeMap, VecDeque};

use cmdseq::switch::Call;

use crate::engine::{ComponentId, Context, Time};
use crate::net::flit::{FLIT_BYTES, Flit, train};
use crate::net::serial::Transmitter;
use crate::proto::mpi_fpga::header::{Packet, era_of, leader_of, processor_header};
use crate::proto::mpi_fpga::message::Message;

/// What a processor has to do in a call.
#[derive(Debug)]
struct Task {
    call: Call,
    number: u32,
    first_block: usize,
    output: Vec<u8>,
    /// Chunks that have not arrived.
    missing: u32,
}

impl Task {
    /// Takes a part of the result.
    fn take(&mut self, packet: &Packet) {
        let bytes = self.call.bytes as usize;
        let place = self.call.place(packet.head.chunk.index);
        let Some(block) = usize::from(packet.head.chunk.block).checked_sub(self.first_block) else { return };
        let to = self.output.get_mut(block * bytes + place.start..block * bytes + place.end);
        if let (Some(to), Some(from)) = (to, packet.payload.get(..place.len())) {
            to.copy_from_slice(from);
            self.missing = self.missing.saturating_sub(1);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) peer: ComponentId,
    pub(crate) peer_port: usize,
    latency: Time,
    overhead: Time,
    transmitter: Transmitter,
    /// Places in the input FIFO of the switch.
    credits: usize,
    phits: VecDeque<Flit>,
    /// When it looks at the transmitter again.
    wakes_at: Option<Time>,
    partial: Vec<u8>,
    task: Option<Task>,
    /// Results of calls that have not begun here, by entry of the communicator and number of the call.
    early: BTreeMap<(u8, u32), Vec<Packet>>,
    /// When the call ended here.
    pub(crate) ended: Option<Time>,
    /// When the data had left the processor.
    pub(crate) sent: Option<Time>,
    /// Times at which the FIFO of the switch was full while there was data.
    pub(crate) held_back: u64,
}

impl Host {
    pub(crate) fn new(
        (peer, peer_port): (ComponentId, usize),
        (latency, overhead): (Time, Time),
        transmitter: Transmitter,
        credits: usize,
    ) -> Self {
        Host {
            peer,
            peer_port,
            latency,
            overhead,
            transmitter,
            credits,
            phits: VecDeque::new(),
            partial: Vec::new(),
            task: None,
            early: BTreeMap::new(),
            ended: None,
            sent: None,
            held_back: 0,
            wakes_at: None,
        }
    }

    /// Begins call `number` on rank `rank` of `size`.
    pub(crate) fn begin(&mut self, (call, number): (Call, u32), (rank, size): (u32, u32), input: &[u8]) {
        let outputs = call.outputs(rank, size);
        let blocks = outputs.len();
        (self.ended, self.sent, self.held_back) = (None, None, 0);
        if !input.is_empty() {
            let bytes = [&processor_header(&call, number)[..], input].concat();
            self.phits.extend(train(&bytes));
        }
        let mut task = Task {
            first_block: outputs.start as usize,
            output: vec![0; blocks * call.bytes as usize],
            missing: blocks as u32 * call.chunks(),
            call,
            number,
        };
        let entry = call.context.index() as u8;
        self.early.remove(&(entry, number)).unwrap_or_default().iter().for_each(|packet| task.take(packet));
        // What was for calls that ended without this processor has no taker.
        let is_later =
            |other: u32| era_of(other) == era_of(number) && (other as u16).wrapping_sub(number as u16) < 1 << 15;
        self.early.retain(|(of, other), _| *of != entry || leader_of(*other) != leader_of(number) || is_later(*other));
        self.task = Some(task);
    }

    /// Forgets what has come for calls of the communicator of an entry.
    pub(crate) fn forget(&mut self, entry: u8, leader: u16) {
        self.early.retain(|(of, number), _| *of != entry || leader_of(*number) != leader);
    }

    /// Ends the call without a result. What has left the processor goes on.
    pub(crate) fn cancel(&mut self) {
        // The switch waits for the rest of a message that has begun.
        let has_begun = self.phits.front().is_some_and(|flit| !flit.is_head);
        if !has_begun {
            self.phits.clear();
        }
        self.task = None;
    }

    /// Returns the result, if it is complete.
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        self.task.take_if(|task| task.missing == 0).map(|task| task.output)
    }

    pub(crate) fn receive(&mut self, message: Message, context: &mut Context<'_, Message>) {
        match message {
            Message::Flit { flit, .. } => self.arrive(&flit),
            Message::Credit { phits, .. } => {
                self.credits += phits;
                self.send(context);
            }
            Message::Start | Message::Cycle => self.send(context),
            Message::Emit(_) | Message::EndCalls { .. } => {}
        }
        self.end(context.now());
    }

    /// Notes when nothing is left to do.
    fn end(&mut self, now: Time) {
        if self.phits.is_empty() {
            self.sent.get_or_insert(now);
            if self.task.as_ref().is_some_and(|task| task.missing == 0) {
                let is_receiver = self.task.as_ref().is_some_and(|task| !task.output.is_empty());
                self.ended.get_or_insert(if is_receiver { now + self.overhead } else { now });
            }
        }
    }

    fn send(&mut self, context: &mut Context<'_, Message>) {
        let now = context.now();
        while !self.phits.is_empty() {
            if self.credits == 0 {
                self.held_back += 1;
                return;
            }
            let room_at = self.transmitter.room_at(now);
            if room_at > now {
                // One message for this time: each credit asks again.
                if self.wakes_at.replace(room_at) != Some(room_at) {
                    context.wake(room_at - now, Message::Cycle);
                }
                return;
            }
            let Some(flit) = self.phits.pop_front() else { return };
            self.credits -= 1;
            let arrives = self.transmitter.send(now) + self.latency;
            context.send(self.peer, arrives - now, Message::Flit { port: self.peer_port, flit });
        }
    }

    fn arrive(&mut self, flit: &Flit) {
        if flit.is_head {
            self.partial.clear();
        }
        self.partial.extend(flit.word);
        if !flit.is_tail {
            return;
        }
        let Some(packet) = Packet::read(&self.partial) else { return };
        let (entry, number) = (packet.head.context, packet.head.number);
        match &mut self.task {
            Some(task) if (task.call.context.index() as u8, task.number) == (entry, number) => task.take(&packet),
            _ => self.early.entry((entry, number)).or_default().push(packet),
        }
    }
}

/// Bits of a phit.
pub(crate) const PHIT_BITS: u64 = 8 * FLIT_BYTES as u64;

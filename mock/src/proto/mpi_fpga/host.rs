//! A processor: gives its data to the DMA engine in phits, and takes the result.

use std::collections::VecDeque;

use cmdseq::switch::Call;

use crate::engine::{ComponentId, Context, Time};
use crate::net::flit::{FLIT_BYTES, Flit, train};
use crate::net::serial::Transmitter;
use crate::proto::mpi_fpga::header::{Packet, processor_header};
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
        self.task = Some(Task {
            first_block: outputs.start as usize,
            output: vec![0; blocks * call.bytes as usize],
            missing: blocks as u32 * call.chunks(),
            call,
            number,
        });
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
            Message::Flit { flit, .. } => self.arrive(&flit, context.now()),
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

    fn arrive(&mut self, flit: &Flit, _: Time) {
        if flit.is_head {
            self.partial.clear();
        }
        self.partial.extend(flit.word);
        if !flit.is_tail {
            return;
        }
        let Some(packet) = Packet::read(&self.partial) else { return };
        let Some(task) = self.task.as_mut().filter(|task| task.number == packet.head.number) else { return };
        let bytes = task.call.bytes as usize;
        let place = task.call.place(packet.head.chunk.index);
        let Some(block) = usize::from(packet.head.chunk.block).checked_sub(task.first_block) else { return };
        let to = task.output.get_mut(block * bytes + place.start..block * bytes + place.end);
        if let (Some(to), Some(from)) = (to, packet.payload.get(..place.len())) {
            to.copy_from_slice(from);
            task.missing = task.missing.saturating_sub(1);
        }
    }
}

/// Bits of a phit.
pub(crate) const PHIT_BITS: u64 = 8 * FLIT_BYTES as u64;

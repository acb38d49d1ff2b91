//! One-sided operations of other cards, at the card whose memory they reach: its switch checks and serves them, whatever its
//! sequencer does. It knows of them what its links carry.

use cmdseq::completion::Status;

use crate::card::running::memory_refusal;
use crate::event::Event;
use crate::net::payload::Payload;
use crate::on_card::OnCard;
use crate::profile::BEAT_CYCLES;
use crate::proto::optweb::lane::LaneId;
use crate::proto::optweb::moving::{Data, Then};
use crate::proto::optweb::one_sided::{OneSided, Reader, Request, Served, ServedId};
use crate::proto::optweb::signal::Signal;
use crate::proto::optweb::stream::StreamPurpose;
use crate::proto::optweb::transfer::Carried;
use crate::proto::refusal::Refusal;

impl OnCard<'_> {
    /// Takes what a link carried for a one-sided operation. A card whose clock stands still takes nothing.
    pub(crate) fn one_sided_came(&mut self, at: LaneId, port: usize, what: OneSided) {
        if self.card.is_frozen {
            return;
        }
        let id = |number| ServedId { at, port, number };
        match what {
            OneSided::Announced { number, request } => {
                self.admit(id(number), request, None);
            }
            OneSided::Data { number, payload, signal } => self.data_came(id(number), payload, signal),
            OneSided::Signal { number, request, signal } => match self.admit(id(number), request, None) {
                true => self.written(id(number), Some(signal)),
                false => self.refuse(id(number)),
            },
            OneSided::Read { number, tag, request, way } => self.read_came(id(number), request, Reader { tag, way }),
            OneSided::Reply { number, payload } => self.reply_came(at, port, number, payload),
            OneSided::Over { number, bytes, result } => self.over_came(at, port, number, bytes, result),
            OneSided::Cancelled { number } => {
                self.env.rates.stop(|purpose| purpose.served() == Some(id(number)));
                self.forget(id(number));
            }
        }
    }

    pub(crate) fn served(&self, id: ServedId) -> Option<&Served> {
        self.card.served.iter().find(|one| one.is(id))
    }

    /// Whether the card still serves the operation.
    pub(crate) fn is_served(&self, id: ServedId) -> bool {
        self.served(id).is_some()
    }

    /// Checks an operation that a link has announced, and returns whether it is admitted. A card issues one at a time.
    fn admit(&mut self, id: ServedId, request: Request, reader: Option<Reader>) -> bool {
        let card = &mut *self.card;
        let node = self.env.ports.peer(card.node, id.port);
        let admission = card.admit(node, &request);
        card.served.retain(|one| one.port != id.port);
        card.served.push(Served { port: id.port, number: id.number, admission, request, reader });
        admission.is_some()
    }

    /// The operation is served, or given up: a `close` may wait for that.
    fn forget(&mut self, id: ServedId) {
        self.card.served.retain(|one| !one.is(id));
        self.transfer_ended();
    }

    /// The link at `port` of this card was trained: what came over it before is of no use.
    pub(crate) fn lose_served(&mut self, port: usize) {
        let card = self.index();
        self.env.rates.stop(|purpose| purpose.served().is_some_and(|id| id.at.card == card && id.port == port));
        let served = &mut self.card.served;
        let before = served.len();
        served.retain(|one| one.port != port);
        if served.len() != before {
            self.transfer_ended();
        }
    }

    /// Tells the issuer how the operation went.
    fn over(&mut self, id: ServedId, delay: u64, bytes: u64, result: Result<(), Refusal>) {
        let over = OneSided::Over { number: id.number, bytes, result };
        self.carry(id.at, id.port, delay, Carried::OneSided(Box::new(over)));
        self.forget(id);
    }

    /// Tells the issuer of a write or signal that no window admits it.
    fn refuse(&mut self, id: ServedId) {
        let node = self.card.node as u16;
        self.over(id, self.env.profile.acknowledge_ps(), 0, Err((Status::BadWindow, node)));
    }

    /// Whether the window that admitted the operation is still there: it may have been closed although the operation had not ended.
    fn is_admitted(&self, id: ServedId) -> bool {
        let admission = self.served(id).and_then(|served| served.admission);
        admission.is_some_and(|admission| self.card.windows.holds(admission))
    }

    fn data_came(&mut self, id: ServedId, payload: Payload, signal: Option<Signal>) {
        let Some(served) = self.served(id) else { return };
        let to = served.request.address;
        match self.is_admitted(id) {
            true => self.start_move(id.at, Data::Block { payload, to }, Then::Written { id, signal }),
            false => self.refuse(id),
        }
    }

    /// The data of a write is in memory, or there was none: adds to the signal, and acknowledges.
    pub(crate) fn written(&mut self, id: ServedId, signal: Option<Signal>) {
        let Some(served) = self.served(id) else { return };
        let bytes = served.request.bytes;
        let result = signal.map_or(Ok(()), |signal| self.add_signal(signal));
        self.over(id, self.env.profile.acknowledge_ps(), bytes, result);
    }

    /// The data of a write does not fit into memory.
    pub(crate) fn write_failed(&mut self, id: ServedId, refusal: Refusal) {
        if self.is_served(id) {
            self.over(id, self.env.profile.acknowledge_ps(), 0, Err(refusal));
        }
    }

    fn read_came(&mut self, id: ServedId, request: Request, reader: Reader) {
        if self.admit(id, request, Some(reader)) {
            let cycles = self.env.profile.memory_read_cycles + BEAT_CYCLES;
            self.env.schedule_in(self.env.profile.cycles(cycles), Event::ReplyBegins(id));
        } else {
            let node = self.card.node as u16;
            self.over(id, self.env.profile.control_ps(), 0, Err((Status::BadWindow, node)));
        }
    }

    /// The first beat of a reply is at the switch.
    pub(crate) fn reply_begins(&mut self, id: ServedId) {
        let card = &*self.card;
        let Some(Served { request, reader, .. }) = self.served(id).filter(|_| !card.is_frozen) else { return };
        let bytes = request.bytes;
        let mut passes = card.links[id.port].out.to_vec();
        passes.push(self.env.resources[self.index()].channel(request.address));
        passes.extend(reader.iter().flat_map(|reader| reader.way.0).flatten());
        self.start_stream(bytes, passes, StreamPurpose::Reply(id));
        self.env.count_transfer(bytes);
    }

    /// The last beat of a reply is out.
    pub(crate) fn reply_out(&mut self, id: ServedId) {
        let Some(Served { request, .. }) = self.served(id) else { return };
        let card = &*self.card;
        if !self.is_admitted(id) {
            let node = card.node as u16;
            return self.over(id, self.env.profile.control_ps(), 0, Err((Status::BadWindow, node)));
        }
        match card.memory.payload(request.address, request.bytes) {
            Ok(payload) => {
                let reply = OneSided::Reply { number: id.number, payload };
                self.carry(id.at, id.port, self.env.profile.data_ps(), Carried::OneSided(Box::new(reply)));
                self.forget(id);
            }
            Err(error) => self.over(id, self.env.profile.control_ps(), 0, Err(memory_refusal(error))),
        }
    }
}

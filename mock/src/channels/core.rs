//! All cards of a network, and what happens at their ends.

use fpga_hal::Iova;
use fpga_hal::endpoint::{DmaFault, DmaProgress, DmaTag};
use fpga_regs::channel::slot;
use fpga_regs::pci;

use crate::card::bus_ports::BusPorts;
use crate::card::config_space::ConfigSpace;
use crate::card::msix::Msix;
use crate::channels::end::{End, Fault, Request};
use crate::proto::circus::{Network, Torus};

/// Ends of each card for its host: one for each interrupt vector.
pub(super) const ENDS: usize = 8;
/// Bytes that an end which writes holds before it fetches no more.
const HELD_BYTES: usize = 16 << 10;
/// Events of the network between two looks at the ends, and most events in one access.
const SLICE: usize = 1024;
const EVENTS_MAX: usize = 1 << 19;

/// One card, as a function of the bus.
pub(super) struct Card {
    pub(super) config: ConfigSpace,
    pub(super) msix: Msix,
    pub(super) bus: Option<BusPorts>,
    /// The table that the host has written, and whether the router has one.
    pub(super) routes: Vec<u32>,
    pub(super) is_routed: bool,
    pub(super) ends: [End; ENDS],
    pub(super) is_gone: bool,
    pub(super) is_frozen: bool,
}

impl Card {
    pub(super) fn deliver_interrupts(&mut self) {
        BusPorts::deliver(self.bus.as_mut(), &mut self.config, &mut self.msix);
    }
}

/// All cards of a network.
pub(super) struct Core {
    pub(super) network: Network,
    pub(super) torus: Torus,
    pub(super) cards: Vec<Card>,
    tag: u64,
    /// Buffer of requests.
    buffer: Vec<u8>,
}

impl Core {
    pub(super) fn new(network: Network, torus: Torus) -> Self {
        let card = |_| Card {
            config: ConfigSpace::new(&pci::CHANNELS_CARD),
            msix: Msix::new(pci::CHANNELS_CARD.msix),
            bus: None,
            routes: vec![fpga_regs::channel::NO_ROUTE; torus.nodes() as usize],
            is_routed: false,
            ends: Default::default(),
            is_gone: false,
            is_frozen: false,
        };
        Core { network, torus, cards: (0..torus.nodes()).map(card).collect(), tag: 0, buffer: Vec::new() }
    }

    /// Lets time pass until nothing happens any more, or much has happened.
    pub(super) fn run(&mut self) {
        let mut left = EVENTS_MAX;
        while left > 0 {
            let is_moved = self.advance_all();
            let events = self.network.run_some(SLICE);
            left = left.saturating_sub(events);
            if events == 0 && !is_moved {
                return;
            }
        }
    }

    /// Has all ends do what they can; returns whether one did something.
    fn advance_all(&mut self) -> bool {
        let mut is_moved = false;
        for node in 0..self.cards.len() {
            for end in 0..ENDS {
                while self.advance(node, end) {
                    is_moved = true;
                }
            }
        }
        is_moved
    }

    /// Makes the next request of an end. Returns whether it completed at once.
    fn advance(&mut self, node: usize, end: usize) -> bool {
        let card = &self.cards[node];
        let is_stopped = card.is_gone || card.is_frozen;
        let state = &card.ends[end];
        if is_stopped || !state.is_running() {
            return false;
        }
        if state.is_reader() { self.fill(node, end) } else { self.fetch_or_report(node, end) }
    }

    fn fetch_or_report(&mut self, node: usize, end: usize) -> bool {
        let state = &self.cards[node].ends[end];
        if state.rung != state.count && self.network.held(node, end) < HELD_BYTES {
            let (iova, bytes) = (state.slot_address(state.count), state.slot_bytes() as usize);
            self.buffer.clear();
            self.buffer.resize(bytes, 0);
            return self.request(node, end, Request::Fetch, iova);
        }
        if state.seen == state.count {
            return false;
        }
        let (iova, count) = (state.count_address(), state.count);
        self.buffer.clear();
        self.buffer.extend(u64::from(count).to_le_bytes());
        self.request(node, end, Request::Report, iova)
    }

    fn fill(&mut self, node: usize, end: usize) -> bool {
        let state = &self.cards[node].ends[end];
        let (free, payload) = (state.free_slots() as usize, state.payload_bytes() as usize);
        let iova = Iova(state.slot_address(state.count).0 + u64::from(slot::HEADER_BYTES));
        if free == 0 {
            self.network.set_room(node, end, 0);
            return false;
        }
        let bytes = self.network.take_from(node, end, payload);
        self.network.set_room(node, end, free * payload);
        if bytes.is_empty() {
            return false;
        }
        self.cards[node].ends[end].filling = bytes.len() as u32;
        self.buffer = bytes;
        self.request(node, end, Request::Fill, iova)
    }

    /// Makes a request with the buffer; returns whether it completed at once.
    fn request(&mut self, node: usize, end: usize, request: Request, iova: Iova) -> bool {
        self.tag += 1;
        let tag = DmaTag(self.tag);
        let card = &mut self.cards[node];
        let mut buffer = std::mem::take(&mut self.buffer);
        let progress = match (BusPorts::dma(card.bus.as_ref(), &card.config), request) {
            (Err(fault), _) => DmaProgress::Done(Err(fault)),
            (Ok(port), Request::Fetch) => port.read(tag, iova, &mut buffer),
            (Ok(port), _) => port.write(tag, iova, &buffer),
        };
        card.ends[end].outstanding = Some((tag, request));
        let is_done = match progress {
            DmaProgress::Pending => false,
            DmaProgress::Done(result) => {
                self.completed(node, end, request, result.map(|()| &buffer[..]));
                true
            }
        };
        self.buffer = buffer;
        is_done
    }

    /// Ends a request that was pending.
    pub(super) fn dma_completed(&mut self, node: usize, tag: DmaTag, result: Result<&[u8], DmaFault>) {
        let is_its = |end: &End| end.outstanding.is_some_and(|outstanding| outstanding.0 == tag);
        let card = &mut self.cards[node];
        let Some(end) = card.ends.iter().position(is_its) else { return };
        if card.is_gone || card.is_frozen {
            card.ends[end].outstanding = None;
            return;
        }
        if let Some((_, request)) = card.ends[end].outstanding {
            self.completed(node, end, request, result);
        }
        self.run();
    }

    /// Ends a request.
    fn completed(&mut self, node: usize, end: usize, request: Request, result: Result<&[u8], DmaFault>) {
        let state = &mut self.cards[node].ends[end];
        state.outstanding = None;
        if !state.is_enabled {
            return;
        }
        let Ok(data) = result else {
            state.fault = Some(if request == Request::Fetch { Fault::Read } else { Fault::Write });
            return;
        };
        match request {
            Request::Fetch => self.fetched(node, end, data),
            Request::Report => state.seen = state.count,
            Request::Fill => {
                let header = slot::encode(state.count.wrapping_add(1), state.filling, false);
                let iova = state.slot_address(state.count);
                // From now on, the host may see the slot and take it, even before the card knows that the write is done.
                state.count = state.count.wrapping_add(1);
                self.buffer.clear();
                self.buffer.extend(header.to_le_bytes());
                self.request(node, end, Request::Header, iova);
            }
            Request::Header => state.seen = state.count,
        }
        self.interrupt_if_due(node, end);
    }

    /// Takes a slot that the host has filled.
    fn fetched(&mut self, node: usize, end: usize, data: &[u8]) {
        let state = &mut self.cards[node].ends[end];
        let (header, words) = data.split_first_chunk().unwrap_or((&[0; 8], &[]));
        let (sequence, bytes, is_last) = slot::decode(u64::from_le_bytes(*header));
        let next = state.count.wrapping_add(1);
        match words.get(..bytes as usize) {
            Some(words) if sequence == next => {
                state.count = next;
                self.network.give(node, end, words, is_last);
            }
            _ => state.fault = Some(Fault::Slot),
        }
    }

    /// Raises the vector of an end if it is armed and due.
    pub(super) fn interrupt_if_due(&mut self, node: usize, end: usize) {
        let card = &mut self.cards[node];
        if card.ends[end].is_due() {
            card.msix.raise(card.ends[end].vector());
            card.deliver_interrupts();
        }
    }

    /// Resets a function. Router, table and kernels go on: packets of other cards pass.
    pub(super) fn reset(&mut self, node: usize) {
        for end in 0..ENDS {
            if self.cards[node].ends[end].is_enabled {
                self.network.close(node, end);
            }
        }
        let card = &mut self.cards[node];
        card.ends = Default::default();
        card.config.reset(&pci::CHANNELS_CARD);
        card.msix = Msix::new(pci::CHANNELS_CARD.msix);
        card.is_frozen = false;
        card.deliver_interrupts();
        self.run();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fpga_hal::endpoint::DmaPort;
    use fpga_regs::channel::end;

    use super::*;
    use crate::proto::circus::{Design, Profile};
    use crate::testing::Host;

    /// Completes the write of a slot's bytes on a card that is as `stop` makes it. Returns how often the card then writes
    /// host memory.
    fn writes_after(stop: impl FnOnce(&mut Card)) -> usize {
        let torus = Torus::new(2, 1).unwrap();
        let network = Network::for_hosts(&Profile::complete(), Design::new(torus), ENDS).unwrap();
        let (mut core, host) = (Core::new(network, torus), Arc::new(Host::default()));
        let card = &mut core.cards[0];
        card.bus = Some(BusPorts::new(Arc::clone(&host) as Arc<dyn DmaPort>, Arc::clone(&host) as _));
        card.config.write(4, &[6, 0]);
        for (register, value) in
            [(end::DIRECTION, end::READS), (end::WORD_BYTES, 8), (end::SLOT_BYTES, 64), (end::SLOTS, 2)]
        {
            card.ends[0].keep(register, value);
        }
        card.ends[0].enable();
        card.ends[0].outstanding = Some((DmaTag(7), Request::Fill));
        stop(card);
        core.dma_completed(0, DmaTag(7), Ok(&[]));
        assert_eq!(core.cards[0].ends[0].outstanding, None);
        host.writes.lock().unwrap().len()
    }

    #[test]
    fn a_card_that_is_frozen_or_gone_fills_no_slot() {
        assert_eq!(writes_after(|_| {}), 1);
        assert_eq!(writes_after(|card| card.is_frozen = true), 0);
        assert_eq!(writes_after(|card| card.is_gone = true), 0);
    }
}

//! A host that answers at once, or on demand, for tests of the cards.

use std::sync::{Arc, Mutex};

use cmdseq::completion::{self, Status};
use cmdseq::{Completion, Instruction};
use fpga_hal::Iova;
use fpga_hal::endpoint::{DmaPort, DmaProgress, DmaTag, InterruptPort};
use fpga_regs::sequencer::queue;

use crate::card::bus_ports::BusPorts;
use crate::card::running::Running;
use crate::proto::optweb::lane::{Claim, LaneId};
use crate::world::Core;

/// A host that records what it is asked.
#[derive(Debug, Default)]
pub(crate) struct Host {
    /// Reads stay pending.
    pub(crate) is_slow: bool,
    pub(crate) reads: Mutex<Vec<DmaTag>>,
    pub(crate) writes: Mutex<Vec<(u64, Vec<u8>)>>,
}

impl Host {
    /// Makes the host that of a card, which is ready for instructions.
    pub(crate) fn attach(self: &Arc<Self>, core: &mut Core, index: usize) {
        let card = &mut core.cards[index];
        card.bus = Some(BusPorts::new(Arc::clone(self) as Arc<dyn DmaPort>, Arc::clone(self) as _));
        // Memory and bus master.
        card.config.write(4, &[6, 0]);
        card.rings.configure(queue::DEPTH, 4);
        card.rings.configure(queue::ENABLE, 1);
    }

    /// Statuses of the completions that were written.
    pub(crate) fn statuses(&self) -> Vec<Status> {
        let writes = self.writes.lock().unwrap();
        let words = writes.iter().filter_map(|(_, data)| <&[u8; completion::BYTES]>::try_from(&data[..]).ok());
        words.map(|word| Completion::decode(word).status).collect()
    }
}

impl DmaPort for Host {
    fn read(&self, tag: DmaTag, _: Iova, _: &mut [u8]) -> DmaProgress {
        self.reads.lock().unwrap().push(tag);
        if self.is_slow { DmaProgress::Pending } else { DmaProgress::Done(Ok(())) }
    }

    fn write(&self, _: DmaTag, iova: Iova, data: &[u8]) -> DmaProgress {
        self.writes.lock().unwrap().push((iova.0, data.to_vec()));
        DmaProgress::Done(Ok(()))
    }
}

impl InterruptPort for Host {
    fn raise(&self, _: u16) {}
    fn set_intx(&self, _: bool) {}
}

impl Core {
    /// Issues an instruction that runs alone on a card, as its sequencer does.
    pub(crate) fn begin_alone(&mut self, index: usize, instruction: Instruction) {
        let (now, at) = (self.env.now, LaneId::first(index));
        let card = &mut self.cards[index];
        let (order, life) = (card.sequencer.in_flight.begin(), card.rings.life());
        card.lanes[0].claim = Claim::ALONE;
        card.lanes[0].running = Some(Running::begun(instruction, now, order, life));
        self.on(index).begin(at, &instruction).expect("an instruction that the card runs");
    }
}

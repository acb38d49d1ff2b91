//! Alveo cards with AMD's XDMA and its example design: DMA channels behind registers, card memory, and interrupts.
//!
//! A model of the registers and descriptors of PG195 and PG344, for any driver of the core. A channel works inside the access that
//! starts it, up to requests that the bus does not answer at once, and goes on when they are answered; what is left after 256 MiB is
//! done in later accesses. Rules that a host breaks are noted: [`XdmaCards::violations`].
//!
//! A card has memory of its own and no sequencer ([`XdmaCards::new`]), or is before a card of a fabric ([`XdmaCards::before`]): then its
//! memory is that card's, and the sequencer is in the user BAR. It has memory for its rings there and masters no bus, or it masters the bus
//! through one pair of channels, by descriptor bypass.

mod behind;
mod block;
mod bypass;
mod card;
mod channel;
mod cms;
mod endpoint;
mod engine;
mod icap;
mod interrupts;
mod memory;
mod notes;
mod planted;
mod region;
mod registers;
mod rings;
mod user_bar;

use std::ops::Range;
use std::sync::{Arc, Weak};

use fpga_hal::Endpoint;
use fpga_regs::xdma::{BYPASS_BAR_BYTES, CHANNELS_MAX};

pub use crate::xdma::card::Shape;
pub use crate::xdma::channel::Direction;
pub use crate::xdma::cms::Cms;
pub use crate::xdma::icap::{Icap, IcapFault, stream};
pub use crate::xdma::notes::{Fetch, Violation};
pub use crate::xdma::planted::Misanswer;
pub use crate::xdma::region::{IDCODE, INTERFACE};

use crate::card::budget::{Budget, of_this_machine};
use crate::card::memory::MemoryError;
use crate::fabric::Fabric;
use crate::xdma::behind::Behind;
use crate::xdma::bypass::Bypass;
use crate::xdma::card::Card;
use crate::xdma::endpoint::{CardEndpoint, SequencerInterrupt};

/// Alveo cards, each with an XDMA engine and memory of its own. Clones are handles to the same cards.
///
/// A card that does not exist is ignored by all functions that plant faults.
#[derive(Clone)]
pub struct XdmaCards {
    endpoints: Arc<[Arc<CardEndpoint>]>,
}

impl XdmaCards {
    /// Creates `count` cards after power-up. Numbers of channels beyond the core's are cut.
    pub fn new(count: u32, shape: Shape) -> Self {
        let memory_bytes = shape.memory_bytes.max(BYPASS_BAR_BYTES);
        let shape = Shape { memory_bytes, ..with_channels(shape) };
        let budget = Budget::new(of_this_machine(), count);
        let endpoint = |node| Arc::new(CardEndpoint::new(Card::new(shape, node, &budget), None));
        XdmaCards { endpoints: (0..count).map(endpoint).collect() }
    }

    /// Puts an engine before each card of `fabric`, whose profile has a shell with an engine
    /// ([`has_engine`](crate::Shell::has_engine)). Card memory is the fabric's, whatever `shape` says of it. Of a shell with descriptor
    /// bypass, the last channel of each direction is the sequencer's.
    pub fn before(fabric: &Fabric, shape: Shape) -> Self {
        let profile = fabric.profile();
        let shape = Shape { memory_bytes: profile.memory_bytes, ..with_channels(shape) };
        let endpoint = |node| {
            Arc::new_cyclic(|endpoint: &Weak<CardEndpoint>| {
                let shell = Weak::clone(endpoint);
                let tell = move || {
                    if let Some(shell) = shell.upgrade() {
                        shell.look_at_bypass();
                    }
                };
                let last = [shape.h2c - 1, shape.c2h - 1];
                let bypass = profile.shell.masters_bus().then(|| (Bypass::new(tell), last));
                let behind = Behind::new(fabric, node, bypass);
                behind.attach(Arc::new(SequencerInterrupt(Weak::clone(endpoint))));
                CardEndpoint::new(Card::before(behind.clone(), shape), Some(behind))
            })
        };
        XdmaCards { endpoints: (0..profile.nodes).map(endpoint).collect() }
    }

    /// Returns the number of cards.
    pub fn count(&self) -> u32 {
        self.endpoints.len() as u32
    }

    /// Returns a card, to attach it to a bus.
    ///
    /// # Panics
    /// If there is no such card.
    pub fn endpoint(&self, number: u32) -> Arc<dyn Endpoint> {
        let Some(endpoint) = self.endpoints.get(number as usize) else { panic!("there is no card {number}") };
        Arc::<CardEndpoint>::clone(endpoint)
    }

    /// Reads card memory, as user logic does.
    ///
    /// # Errors
    /// [`MemoryError`] outside of it.
    pub fn read_memory(&self, number: u32, address: u64, bytes: u64) -> Result<Vec<u8>, MemoryError> {
        self.endpoints[number as usize].access(|card| card.memory.read(address, bytes))
    }

    /// Writes card memory, as user logic does.
    ///
    /// # Errors
    /// [`MemoryError`] outside of it, or if this machine has no memory for it.
    pub fn write_memory(&self, number: u32, address: u64, data: &[u8]) -> Result<(), MemoryError> {
        self.endpoints[number as usize].access(|card| card.memory.write(address, data))
    }

    /// Sets the level of an interrupt of user logic.
    pub fn set_user_interrupt(&self, number: u32, line: u32, is_asserted: bool) {
        self.at(number, |card| card.assert_user(line, is_asserted));
    }

    /// Removes a card: reads return all-ones, writes are dropped.
    pub fn remove(&self, number: u32) {
        self.at(number, Card::remove);
    }

    /// Has the next access of card memory by a channel never end. Only a reset of the function frees the channel.
    pub fn hang(&self, number: u32) {
        self.at(number, |card| card.hangs = true);
    }

    /// Has card memory in `range` answer with slave errors.
    pub fn fail_memory(&self, number: u32, range: Range<u64>) {
        self.at(number, |card| card.bad_slaves.push(range));
    }

    /// Lets card memory answer again.
    pub fn mend_memory(&self, number: u32) {
        self.at(number, |card| card.bad_slaves.clear());
    }

    /// Has one read of host memory, after `before` others, answered with `misanswer`. Fetches of descriptors count.
    pub fn misanswer(&self, number: u32, before: u32, misanswer: Misanswer) {
        self.at(number, |card| card.misanswers.plant(before, misanswer));
    }

    /// Has one read of host memory by a sequencer with descriptor bypass, after `before` others, answered with `misanswer`.
    pub fn misanswer_sequencer(&self, number: u32, before: u32, misanswer: Misanswer) {
        self.at(number, |card| {
            if let Some(bypass) = &card.bypass {
                bypass.plant(before, misanswer);
            }
        });
    }

    /// Has the channels fetch at most `most` descriptors at a time, however many are adjacent.
    pub fn shorten_fetches(&self, number: u32, most: u32) {
        self.at(number, |card| card.fetch_max = most.max(1));
    }

    /// Has the next `words` words that the host stores in the rings arrive behind the next write to the sequencer's registers, as if
    /// they went through masters that keep no order. Only with a fabric.
    pub fn delay_words(&self, number: u32, words: u32) {
        self.at(number, |card| card.delay_words(words));
    }

    /// Chooses anew when words arrive that the host stores in rings in the bypass window. Only with a fabric whose cards have them there.
    pub fn reorder_words(&self, number: u32, seed: u64) {
        self.at(number, |card| card.reorder_words(seed));
    }

    /// Returns the card management of a card.
    ///
    /// # Panics
    /// If there is no such card.
    pub fn cms(&self, number: u32) -> Cms {
        self.endpoints[number as usize].access(|card| card.cms.clone())
    }

    /// Returns the configuration port of a card.
    ///
    /// # Panics
    /// If there is no such card.
    pub fn icap(&self, number: u32) -> Icap {
        self.endpoints[number as usize].access(|card| card.icap.clone())
    }

    /// Sets the bits of errors that advanced error reporting of a card has seen: uncorrectable, and corrected ones.
    pub fn report_errors(&self, number: u32, uncorrectable: u32, correctable: u32) {
        self.at(number, |card| card.config.report_all(uncorrectable, correctable));
    }

    /// Returns what the host of a card did that the product guide forbids, since the last call.
    pub fn violations(&self, number: u32) -> Vec<Violation> {
        self.endpoints[number as usize].access(|card| card.violations.take())
    }

    /// Returns the fetches of descriptors of a card since the last call. The first call returns none, and starts to note them.
    pub fn fetches(&self, number: u32) -> Vec<Fetch> {
        let noted = self.endpoints[number as usize].access(|card| card.fetches.replace(Vec::new()));
        noted.unwrap_or_default()
    }

    fn at(&self, number: u32, act: impl FnOnce(&mut Card)) {
        if let Some(endpoint) = self.endpoints.get(number as usize) {
            endpoint.access(act);
        }
    }
}

/// Cuts numbers of channels to what the core can have.
fn with_channels(shape: Shape) -> Shape {
    let channels = |number: u32| number.clamp(1, CHANNELS_MAX);
    Shape { h2c: channels(shape.h2c), c2h: channels(shape.c2h), ..shape }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use fpga_hal::endpoint::{DmaPort, DmaProgress, DmaTag, InterruptPort, ResetKind};
    use fpga_hal::{BarIndex, Iova};
    use fpga_regs::xdma::{Block, Control, DMA_BAR, MSIX_TABLE, channel, descriptors, interrupts};

    use super::*;

    const COMMAND: u16 = 0x04;
    const STATUS: u16 = 0x06;
    const MSIX_CONTROL: u16 = 0x82;

    /// A host with a page of memory, the messages that it got, and the level of INTx.
    #[derive(Default)]
    struct Host {
        memory: Mutex<Vec<u8>>,
        raised: Mutex<Vec<u16>>,
        line: Mutex<bool>,
    }

    impl DmaPort for Host {
        fn read(&self, _: DmaTag, Iova(address): Iova, data: &mut [u8]) -> DmaProgress {
            data.copy_from_slice(&self.memory.lock().unwrap()[address as usize..][..data.len()]);
            DmaProgress::Done(Ok(()))
        }

        fn write(&self, _: DmaTag, _: Iova, _: &[u8]) -> DmaProgress {
            DmaProgress::Done(Ok(()))
        }
    }

    impl InterruptPort for Host {
        fn raise(&self, vector: u16) {
            self.raised.lock().unwrap().push(vector);
        }

        fn set_intx(&self, is_asserted: bool) {
            *self.line.lock().unwrap() = is_asserted;
        }
    }

    /// A card that decodes memory and masters the bus of a host.
    fn attached() -> (XdmaCards, Arc<dyn Endpoint>, Arc<Host>) {
        let cards = XdmaCards::new(1, Shape { memory_bytes: 1 << 20, ..Shape::default() });
        let (card, host) = (cards.endpoint(0), Arc::new(Host::default()));
        card.attach(Arc::clone(&host) as Arc<dyn DmaPort>, Arc::clone(&host) as Arc<dyn InterruptPort>);
        card.config_write(COMMAND, &[6, 0]);
        (cards, card, host)
    }

    fn write(card: &dyn Endpoint, block: Block, register: u32, value: u32) {
        let at = Block::ALL.iter().position(|one| *one == block).unwrap() as u64 * 0x1000;
        card.bar_write(BarIndex::new(DMA_BAR).unwrap(), at + u64::from(register), &value.to_le_bytes());
    }

    #[test]
    fn each_run_interrupts_although_the_status_of_the_one_before_was_not_cleared() {
        let (_cards, card, host) = attached();
        // One descriptor, STOP and COMPLETED: 64 bytes from 64 to the card's 0.
        let words = [0xad4b_0003_u32, 64, 64, 0, 0, 0, 0, 0];
        *host.memory.lock().unwrap() = words.iter().flat_map(|word| word.to_le_bytes()).chain([0; 96]).collect();
        card.config_write(MSIX_CONTROL, &[0, 0x80]);
        let unmask = u64::from(MSIX_TABLE) + 12;
        card.bar_write(BarIndex::new(DMA_BAR).unwrap(), unmask, &[0; 4]);
        write(&*card, Block::Interrupts, interrupts::CHANNEL_ENABLE, 1);
        write(&*card, Block::H2c, channel::INTERRUPT_ENABLE, 1 << 1);
        for runs in 1..=2 {
            write(&*card, Block::H2c, channel::CONTROL, 0);
            for register in [descriptors::FIRST_LO, descriptors::FIRST_HI, descriptors::FIRST_ADJACENT] {
                write(&*card, Block::H2cDescriptors, register, 0);
            }
            write(&*card, Block::H2c, channel::CONTROL, Control::RUN.bits() | 1 << 1 | 1 << 2);
            assert_eq!(*host.raised.lock().unwrap(), vec![0; runs]);
        }
    }

    #[test]
    fn intx_has_the_level_of_what_requests_and_falls_with_a_reset() {
        let (cards, card, host) = attached();
        let seen = || {
            let mut status = [0; 2];
            card.config_read(STATUS, &mut status);
            (*host.line.lock().unwrap(), status[0] >> 3 & 1)
        };
        write(&*card, Block::Interrupts, interrupts::USER_ENABLE, 1);
        for is_asserted in [true, false, true] {
            cards.set_user_interrupt(0, 0, is_asserted);
            assert_eq!(seen(), (is_asserted, is_asserted.into()));
        }
        // User logic still asserts it, and nothing is enabled.
        card.reset(ResetKind::Function);
        assert_eq!(seen(), (false, 0));
    }
}

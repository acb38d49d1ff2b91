//! Descriptor bypass: a channel from the host and one to the host, whose descriptors the sequencer loads (PG195, "Descriptor Bypass
//! Mode").
//!
//! Each request of the sequencer is one descriptor. It is refused while its channel does not run. A read that the bus does not answer
//! with data fails, and stops the channel if its bit in CONTROL is set; a write is posted, so nobody hears of one that was lost.
//!
//! The fabric calls the port with its own lock held, which a card with its lock held may wait for. So the channels have a lock of their
//! own, and the card looks at them in each of its accesses.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fpga_hal::Iova;
use fpga_hal::endpoint::{DmaFault, DmaPort, DmaProgress, DmaTag};
use fpga_regs::xdma::Control;

use crate::xdma::channel::{Direction, Seen};
use crate::xdma::planted::{Misanswer, Misanswers};

/// Bits of a tag: the request is the sequencer's and not a channel's own, and writes.
const OF_SEQUENCER: u64 = 1 << 63;
const WRITES: u64 = 1 << 62;

/// The channels of a sequencer.
pub(super) struct Bypass {
    channels: Mutex<Channels>,
    /// Has the card look at its channels.
    tell: Box<dyn Fn() + Send + Sync>,
}

/// What the port knows of the card, and what the card is to learn.
#[derive(Default)]
struct Channels {
    dma: Option<Arc<dyn DmaPort>>,
    is_master: bool,
    from_host: Channel,
    to_host: Channel,
    misanswers: Misanswers,
}

/// A channel, as its port sees it.
#[derive(Debug, Default)]
struct Channel {
    control: u32,
    /// An error has stopped it, until RUN rises.
    is_stopped: bool,
    seen: Seen,
}

impl Channels {
    fn of(&mut self, direction: Direction) -> &mut Channel {
        match direction {
            Direction::H2c => &mut self.from_host,
            Direction::C2h => &mut self.to_host,
        }
    }

    /// Returns the port of the bus, if a request may go there.
    fn begin(&mut self, direction: Direction) -> Result<Arc<dyn DmaPort>, DmaFault> {
        let is_master = self.is_master;
        let channel = self.of(direction);
        if !is_master || channel.is_stopped || channel.control & Control::RUN.bits() == 0 {
            return Err(DmaFault::NotMaster);
        }
        self.dma.clone().ok_or(DmaFault::HostGone)
    }

    /// Ends a request. Returns its result, and whether the card has something to see.
    fn end(&mut self, direction: Direction, result: Result<(), DmaFault>) -> (Result<(), DmaFault>, bool) {
        let planted = if direction == Direction::H2c { self.misanswers.next() } else { None };
        let channel = self.of(direction);
        let (result, answer) = match (direction, planted, result) {
            (Direction::C2h, ..) | (Direction::H2c, None, Ok(())) => {
                channel.seen.completed = channel.seen.completed.wrapping_add(1);
                return (Ok(()), false);
            }
            (Direction::H2c, Some(answer), _) => (Err(DmaFault::HostGone), answer),
            (Direction::H2c, None, Err(fault)) => (Err(fault), Misanswer::Unsupported),
        };
        let is_noted = channel.control & answer.of_data().bits() != 0;
        if is_noted {
            channel.is_stopped = true;
            channel.seen.events |= answer.of_data();
        }
        (result, is_noted)
    }
}

impl Bypass {
    /// Channels whose events the card is told of by `tell`, which never waits.
    pub(super) fn new(tell: impl Fn() + Send + Sync + 'static) -> Self {
        Bypass { channels: Mutex::default(), tell: Box::new(tell) }
    }

    fn lock(&self) -> MutexGuard<'_, Channels> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects the bus.
    pub(super) fn attach(&self, dma: Arc<dyn DmaPort>) {
        self.lock().dma = Some(dma);
    }

    /// Takes over what the host has written.
    pub(super) fn set(&self, is_master: bool, controls: [(Direction, u32); 2]) {
        let mut channels = self.lock();
        channels.is_master = is_master;
        for (direction, control) in controls {
            channels.of(direction).control = control;
        }
    }

    /// RUN of a channel has risen.
    pub(super) fn start(&self, direction: Direction) {
        let mut channels = self.lock();
        let channel = channels.of(direction);
        (channel.is_stopped, channel.seen) = (false, Seen::default());
    }

    /// Returns what has happened on a channel since the last call.
    pub(super) fn take(&self, direction: Direction) -> Seen {
        std::mem::take(&mut self.lock().of(direction).seen)
    }

    /// Has one read of the sequencer, after `before` others, answered with `misanswer`.
    pub(super) fn plant(&self, before: u32, misanswer: Misanswer) {
        self.lock().misanswers.plant(before, misanswer);
    }

    fn request(
        &self,
        direction: Direction,
        DmaTag(tag): DmaTag,
        ask: impl FnOnce(&dyn DmaPort, DmaTag) -> DmaProgress,
    ) -> DmaProgress {
        let dma = match self.lock().begin(direction) {
            Ok(dma) => dma,
            Err(fault) => return DmaProgress::Done(Err(fault)),
        };
        let writes = if direction == Direction::C2h { WRITES } else { 0 };
        match ask(&*dma, DmaTag(tag | OF_SEQUENCER | writes)) {
            DmaProgress::Pending => DmaProgress::Pending,
            DmaProgress::Done(result) => DmaProgress::Done(self.end(direction, result)),
        }
    }

    fn end(&self, direction: Direction, result: Result<(), DmaFault>) -> Result<(), DmaFault> {
        let (result, is_noted) = self.lock().end(direction, result);
        if is_noted {
            (self.tell)();
        }
        result
    }

    /// Ends a request that was pending, if it was the sequencer's: its tag there, and its result.
    pub(super) fn completed<'a>(
        &self,
        DmaTag(tag): DmaTag,
        result: Result<&'a [u8], DmaFault>,
    ) -> Option<(DmaTag, Result<&'a [u8], DmaFault>)> {
        if tag & OF_SEQUENCER == 0 {
            return None;
        }
        let direction = if tag & WRITES == 0 { Direction::H2c } else { Direction::C2h };
        let ended = self.end(direction, result.map(|_| ()));
        Some((DmaTag(tag & !(OF_SEQUENCER | WRITES)), ended.map(|()| result.unwrap_or_default())))
    }
}

/// What the sequencer reaches its host by.
impl DmaPort for Bypass {
    fn read(&self, tag: DmaTag, iova: Iova, data: &mut [u8]) -> DmaProgress {
        self.request(Direction::H2c, tag, |dma, tag| dma.read(tag, iova, data))
    }

    fn write(&self, tag: DmaTag, iova: Iova, data: &[u8]) -> DmaProgress {
        self.request(Direction::C2h, tag, |dma, tag| dma.write(tag, iova, data))
    }
}

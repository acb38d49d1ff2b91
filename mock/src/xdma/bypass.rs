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

use crate::xdma::channel::{Direction, Progress};
use crate::xdma::planted::{Misanswer, Misanswers};

/// Bits of a tag: the request is the sequencer's and not a channel's own, and writes. Below them is the number of the channel's run,
/// modulo 2^14, and the sequencer's own tag.
const OF_SEQUENCER: u64 = 1 << 63;
const WRITES: u64 = 1 << 62;
const RUN_SHIFT: u32 = 48;
const RUNS: u64 = 1 << 14;

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
    progress: Progress,
    /// How often RUN has risen.
    runs: u64,
}

impl Channels {
    fn of(&mut self, direction: Direction) -> &mut Channel {
        match direction {
            Direction::H2c => &mut self.from_host,
            Direction::C2h => &mut self.to_host,
        }
    }

    /// Returns the port of the bus, if a request may go there, and the number of the channel's run.
    fn begin(&mut self, direction: Direction) -> Result<(Arc<dyn DmaPort>, u64), DmaFault> {
        let is_master = self.is_master;
        let channel = self.of(direction);
        if !is_master || channel.is_stopped || channel.control & Control::RUN.bits() == 0 {
            return Err(DmaFault::NotMaster);
        }
        let run = channel.runs % RUNS;
        Ok((self.dma.clone().ok_or(DmaFault::HostGone)?, run))
    }

    /// Ends a request. Returns its result, and whether the card has something to see.
    fn end(&mut self, direction: Direction, result: Result<(), DmaFault>) -> (Result<(), DmaFault>, bool) {
        let planted = if direction == Direction::H2c { self.misanswers.next() } else { None };
        let channel = self.of(direction);
        let (result, answer) = match (direction, planted, result) {
            (Direction::C2h, ..) | (Direction::H2c, None, Ok(())) => {
                channel.progress.completed = channel.progress.completed.wrapping_add(1);
                return (Ok(()), false);
            }
            (Direction::H2c, Some(answer), _) => (Err(DmaFault::HostGone), answer),
            (Direction::H2c, None, Err(fault)) => (Err(fault), Misanswer::Unsupported),
        };
        let is_noted = channel.control & answer.of_data().bits() != 0;
        if is_noted {
            channel.is_stopped = true;
            channel.progress.events |= answer.of_data();
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
        (channel.is_stopped, channel.progress) = (false, Progress::default());
        channel.runs += 1;
    }

    /// The function was reset: what was asked for before does not count any more.
    pub(super) fn reset(&self) {
        let mut channels = self.lock();
        for direction in [Direction::H2c, Direction::C2h] {
            let channel = channels.of(direction);
            *channel = Channel { runs: channel.runs + 1, ..Channel::default() };
        }
    }

    /// Returns what has happened on a channel since the last call.
    pub(super) fn take_progress(&self, direction: Direction) -> Progress {
        std::mem::take(&mut self.lock().of(direction).progress)
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
        let (dma, run) = match self.lock().begin(direction) {
            Ok(begun) => begun,
            Err(fault) => return DmaProgress::Done(Err(fault)),
        };
        let writes = if direction == Direction::C2h { WRITES } else { 0 };
        match ask(&*dma, DmaTag(tag | OF_SEQUENCER | writes | run << RUN_SHIFT)) {
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
        let (run, own) = (tag >> RUN_SHIFT & (RUNS - 1), DmaTag(tag & ((1 << RUN_SHIFT) - 1)));
        // What was asked for in a run before is no request of this one.
        if self.lock().of(direction).runs % RUNS != run {
            return Some((own, result));
        }
        let ended = self.end(direction, result.map(|_| ()));
        Some((own, ended.map(|()| result.unwrap_or_default())))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A bus whose answers come later.
    #[derive(Default)]
    struct Later(Mutex<Vec<DmaTag>>);

    impl DmaPort for Later {
        fn read(&self, tag: DmaTag, _: Iova, _: &mut [u8]) -> DmaProgress {
            self.0.lock().unwrap().push(tag);
            DmaProgress::Pending
        }

        fn write(&self, tag: DmaTag, iova: Iova, data: &[u8]) -> DmaProgress {
            self.read(tag, iova, &mut data.to_vec())
        }
    }

    #[test]
    fn what_was_asked_for_before_a_reset_does_not_count_after_it() {
        let (bypass, bus) = (Bypass::new(|| ()), Arc::new(Later::default()));
        bypass.attach(bus.clone());
        for direction in [Direction::H2c, Direction::C2h] {
            bypass.set(true, [(Direction::H2c, u32::MAX), (Direction::C2h, u32::MAX)]);
            bypass.start(direction);
            let progress = match direction {
                Direction::H2c => bypass.read(DmaTag(1), Iova(0x1000), &mut [0; 8]),
                Direction::C2h => bypass.write(DmaTag(1), Iova(0x1000), &[0; 8]),
            };
            assert_eq!(progress, DmaProgress::Pending);
            let asked = bus.0.lock().unwrap().pop().unwrap();
            bypass.reset();
            assert_eq!(bypass.completed(asked, Ok(&[1; 8])).unwrap(), (DmaTag(1), Ok(&[1; 8][..])));
            assert_eq!(bypass.take_progress(direction).completed, 0);
        }
    }

    #[test]
    fn what_was_asked_for_in_an_earlier_run_is_none_of_this_one() {
        let (bypass, bus) = (Bypass::new(|| ()), Arc::new(Later::default()));
        bypass.attach(bus.clone());
        let all = u32::MAX;
        bypass.set(true, [(Direction::H2c, all), (Direction::C2h, all)]);
        for direction in [Direction::H2c, Direction::C2h] {
            let asked = |number| {
                let (tag, iova) = (DmaTag(number), Iova(0x1000));
                let progress = match direction {
                    Direction::H2c => bypass.read(tag, iova, &mut [0; 8]),
                    Direction::C2h => bypass.write(tag, iova, &[0; 8]),
                };
                assert_eq!(progress, DmaProgress::Pending);
                bus.0.lock().unwrap().pop().unwrap()
            };
            let completed = |tag, result| bypass.completed(tag, result).unwrap();
            bypass.start(direction);
            let [first, second] = [1, 2].map(asked);
            bypass.start(direction);
            let gone = Err(DmaFault::HostGone);
            assert_eq!(completed(first, gone), (DmaTag(1), gone));
            assert_eq!(completed(second, Ok(&[1; 8])), (DmaTag(2), Ok(&[1; 8][..])));
            let progress = bypass.take_progress(direction);
            assert_eq!((progress.completed, progress.events.bits()), (0, 0));
            // Nothing has stopped the channel.
            assert_eq!(completed(asked(3), Ok(&[2; 8])), (DmaTag(3), Ok(&[2; 8][..])));
            assert_eq!(bypass.take_progress(direction).completed, 1);
        }
        assert_eq!(bypass.completed(DmaTag(7), Err(DmaFault::HostGone)), None, "a channel's own");
    }
}

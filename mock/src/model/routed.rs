//! Registers of statically scheduled routers and of the user logic behind them: tables are taken into force, transforms run.

use cmdseq::routing::FftMapping;
use fpga_regs::{Access, Register, fft, lookup, router};

use crate::card::memory::MemoryError;
use crate::card::routed::Ending;
use crate::card::router::ENTRIES;
use crate::engine::Time;
use crate::event::Event;
use crate::profile::novog::{FftCores, Profile};
use crate::proto::novog::{CardsTask, Complex32, OnCard, run_on_cards};
use crate::world::Core;

/// Offsets of the blocks in the register BAR.
pub(crate) const ROUTER_OFFSET: u64 = 0x2000;
pub(crate) const FFT_OFFSET: u64 = 0x4000;
/// Bytes of a point.
const POINT_BYTES: u64 = 8;
const PICOSECONDS: u128 = 1_000_000_000_000;

/// Why user logic refuses a start: reason, and the card if it is one's.
type Refused = (u32, usize);

/// Returns the offset in a block.
fn inside(offset: u64, block: u64, bytes: u32) -> Option<u32> {
    offset.checked_sub(block).filter(|offset| *offset < u64::from(bytes)).map(|offset| offset as u32)
}

/// Returns whether a host may write the register at `offset`.
fn is_writable(table: &'static [Register], offset: u32) -> bool {
    lookup(table, offset).is_some_and(|register| register.access != Access::ReadOnly)
}

/// Returns what a register says of a start or commit.
fn why(result: Result<(), Refused>) -> u32 {
    result.map_or_else(|(reason, card)| reason | (card as u32) << 16, |()| 0)
}

impl Core {
    /// Reads a register behind the sequencer's block; 0 where nothing is.
    pub(crate) fn read_routed(&self, index: usize, offset: u64) -> u32 {
        let Some(routed) = &self.routed else { return 0 };
        if let Some(offset) = inside(offset, ROUTER_OFFSET, router::BLOCK_BYTES) {
            let [x, y, z] = routed.torus.sides();
            return match offset {
                router::MAGIC => router::MAGIC_VALUE,
                router::VERSION => router::VERSION_VALUE,
                router::NODE => self.cards[index].node,
                router::SIDES => x | y << 8 | z << 16,
                router::ENTRIES => ENTRIES,
                router::INPUT_PACKETS => routed.profile.input_packets as u32,
                _ => routed.routers[index].read(offset).unwrap_or(0),
            };
        }
        let Some(offset) = inside(offset, FFT_OFFSET, fft::BLOCK_BYTES) else { return 0 };
        match offset {
            fft::MAGIC => fft::MAGIC_VALUE,
            fft::VERSION => fft::VERSION_VALUE,
            fft::ROUTER_KHZ => (routed.profile.router_hertz / 1000) as u32,
            _ => routed.units[index].read(offset),
        }
    }

    /// Writes a register behind the sequencer's block.
    pub(crate) fn write_routed(&mut self, index: usize, offset: u64, value: u32) {
        let Some(routed) = &mut self.routed else { return };
        if let Some(offset) = inside(offset, ROUTER_OFFSET, router::BLOCK_BYTES) {
            if offset == router::COMMIT {
                let refused = why(self.commit_tables(value));
                self.routed.iter_mut().for_each(|routed| routed.routers[index].refused = refused);
            } else if offset >= router::WINDOW_OFFSET || is_writable(router::TABLE, offset) {
                routed.routers[index].write(offset, value);
            }
            return;
        }
        let Some(offset) = inside(offset, FFT_OFFSET, fft::BLOCK_BYTES) else { return };
        if offset == fft::START {
            let refused = why(self.start_transform(value));
            self.routed.iter_mut().for_each(|routed| routed.units[index].refused = refused);
            self.run();
        } else if is_writable(fft::TABLE, offset) && !self.cards[index].is_frozen {
            routed.units[index].write(offset, value);
        }
    }

    /// Takes the tables staged under `number` into force on all cards.
    fn commit_tables(&mut self, number: u32) -> Result<(), Refused> {
        let Some(routed) = &mut self.routed else { return Ok(()) };
        let is_gone = |card: usize| self.cards[card].is_gone;
        let is_staged = |card: &usize| !is_gone(*card) && number != 0 && routed.routers[*card].staged() == number;
        if let Some(card) = (0..routed.routers.len()).find(|card| !is_staged(card)) {
            return Err((router::NOT_STAGED, card));
        }
        if let Some(card) = routed.units.iter().position(|unit| unit.is_running()) {
            return Err((router::RUN_UNDER_WAY, card));
        }
        routed.routers.iter_mut().for_each(|router| router.commit());
        Ok(())
    }

    /// Starts the user logic of all cards that are armed for `run`.
    fn start_transform(&mut self, run: u32) -> Result<(), Refused> {
        let Some(routed) = &self.routed else { return Ok(()) };
        let transform = routed.units[0].transform();
        let is_armed = |card: &usize| {
            let unit = &routed.units[*card];
            let answers = !self.cards[*card].is_gone && !self.cards[*card].is_frozen;
            answers && run != 0 && unit.armed() == Some(run) && unit.transform() == transform
        };
        if let Some(card) = (0..routed.units.len()).find(|card| !is_armed(card)) {
            return Err((fft::NOT_ARMED, card));
        }
        let (side, count) = transform;
        let mapping = FftMapping::new(side, routed.torus).map_err(|_| (fft::NO_FIT, 0))?;
        if count == 0 || count > FftCores::most(side) {
            return Err((fft::NO_FIT, 0));
        }
        let bytes = u64::from(mapping.points()) * POINT_BYTES;
        let points = (0..self.cards.len()).map(|card| {
            let [input, output] = routed.units[card].addresses();
            self.points(card, input, output, bytes).map_err(|_| (fft::MEMORY, card))
        });
        let task = CardsTask {
            profile: Profile { seed: routed.profile.seed.wrapping_add(routed.runs), ..routed.profile },
            cores: FftCores { count, ..FftCores::published() },
            mapping,
            tables: routed.routers.iter().map(|router| &router.in_force().tables).collect(),
            sources: routed.routers.iter().map(|router| router.in_force().sources.clone()).collect(),
            points: points.collect::<Result<_, _>>()?,
            garbled: routed.garbled,
        };
        let (core_hertz, router_hertz) = (task.cores.hertz, task.profile.router_hertz);
        let done = run_on_cards(task).map_err(|card| (fft::NO_SOURCES, card as usize))?;
        let last = |card: &OnCard| {
            let [x, y, z] = card.phases.map(|span| span.map_or(0, |(_, last)| picoseconds(last + 1, core_hertz)));
            let [xy, yz] = card.turns.map(|span| span.map_or(0, |(_, last)| picoseconds(last, router_hertz)));
            x.max(y).max(z).max(xy).max(yz)
        };
        let after = done.iter().map(last).max().unwrap_or(0);
        let Some(routed) = &mut self.routed else { return Ok(()) };
        routed.units.iter_mut().for_each(|unit| unit.start());
        routed.runs += 1;
        routed.garbled = None;
        let (number, epochs) = (routed.runs, self.cards.iter().map(|card| card.epoch).collect());
        routed.ending = Some(Ending { number, run, done, epochs });
        self.env.schedule(self.env.now + after, Event::TransformEnds { number });
        Ok(())
    }

    /// Reads the points of a card; checks that its memory has room for the result too.
    fn points(&self, card: usize, input: u64, output: u64, bytes: u64) -> Result<Vec<Complex32>, MemoryError> {
        let memory = &self.cards[card].memory;
        if !memory.contains(output, bytes) {
            return Err(MemoryError::OutOfRange { address: output, bytes });
        }
        let mut data = Vec::new();
        memory.append_to(input, bytes, &mut data)?;
        let number = |bytes: &[u8]| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let point = |bytes: &[u8]| Complex32 { re: number(bytes), im: number(&bytes[4..]) };
        Ok(data.chunks_exact(POINT_BYTES as usize).map(point).collect())
    }

    /// The user logic of all cards has nothing left to do: it has the result, or lacks points. If a card was frozen, reset or
    /// gone, all others lack points.
    pub(crate) fn transform_ended(&mut self, number: u64) {
        let Some(routed) = &mut self.routed else { return };
        let Some(Ending { run, done, epochs, .. }) = routed.ending.take_if(|ending| ending.number == number) else {
            return;
        };
        if !self.cards.iter().map(|card| card.epoch).eq(epochs) {
            return;
        }
        for (card, on_card) in done.into_iter().enumerate() {
            routed.routers[card].counts = on_card.counts;
            let [_, output] = routed.units[card].addresses();
            if !routed.units[card].end(run, &on_card) {
                continue;
            }
            let bytes: Vec<u8> =
                on_card.result.iter().flat_map(|one| [one.re, one.im]).flat_map(f32::to_le_bytes).collect();
            self.env.hold_bytes += bytes.len() as u64;
            let memory = &mut self.cards[card].memory;
            if !memory.is_hollow()
                && let Err(error) = memory.write(output, &bytes)
            {
                log::error!("card {card} loses the result of a transform: {error}");
            }
        }
    }

    /// A card is reset: its user logic too, but not its router.
    pub(crate) fn reset_unit(&mut self, index: usize) {
        if let Some(routed) = &mut self.routed {
            routed.units[index] = Default::default();
        }
    }
}

/// Returns when a cycle begins.
fn picoseconds(cycle: u64, hertz: u64) -> Time {
    (u128::from(cycle) * PICOSECONDS / u128::from(hertz)) as Time
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::{Fault, When};

    /// Ends run number 1 with the event `number`, after what happens in `between`. Returns the states of all cards.
    fn states(number: u64, between: impl FnOnce(&mut Core)) -> Vec<u32> {
        let mut core = Core::new(crate::Profile::novo_g_of("2x1x1").unwrap());
        let on_card = OnCard {
            seen: [0; 2],
            missing: [(0, 0); 2],
            phases: [None; 3],
            turns: [None; 2],
            result: Vec::new(),
            counts: Default::default(),
        };
        let epochs = core.cards.iter().map(|card| card.epoch).collect();
        let routed = core.routed.as_mut().unwrap();
        for unit in &mut routed.units {
            unit.write(fft::ARM, 5);
            unit.start();
        }
        routed.ending = Some(Ending { number: 1, run: 5, done: vec![on_card; 2], epochs });
        between(&mut core);
        core.transform_ended(number);
        core.routed.unwrap().units.iter().map(|unit| unit.read(fft::STATE)).collect()
    }

    #[test]
    fn a_card_that_fails_during_a_run_leaves_all_without_a_result() {
        assert_eq!(states(1, |_| {}), [fft::DONE; 2]);
        assert_eq!(states(2, |_| {}), [fft::RUNNING; 2], "the event of another run");
        let faults = [Fault::Freeze { node: 0, when: When::Now }, Fault::Vanish { node: 0 }];
        for fault in faults {
            assert_eq!(states(1, |core| core.strike(fault)), [fft::RUNNING; 2], "{fault:?}");
        }
        assert_eq!(states(1, |core| core.reset(0)), [fft::IDLE, fft::RUNNING]);
    }
}

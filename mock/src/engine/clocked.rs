//! Clocks with exact edges, and regions of modules that one clock drives.

use std::num::NonZeroU64;

use crate::engine::agenda::Time;

/// Number of a clock's edge, from 0.
pub type Cycle = u128;

const PICOSECONDS: Time = 1_000_000_000_000;

/// A clock whose edge `n` is at the time ceil(n · 10^12 / hertz) + phase, in picoseconds.
///
/// Few clocks have a period of whole picoseconds. Edges are rounded one by one, so a clock never drifts from its frequency.
///
/// ```
/// use fpga_mock::engine::Clock;
///
/// let clock = Clock::new(384_000_000.try_into().unwrap(), 0);
/// assert_eq!([0, 1, 2, 3].map(|cycle| clock.edge(cycle)), [0, 2_605, 5_209, 7_813]);
/// assert_eq!(clock.edge_at_or_after(2_600), 2_605);
/// assert_eq!(clock.edge_after(2_600, 2), 7_813);
/// assert_eq!(clock.edge(384_000_000), 1_000_000_000_000);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Clock {
    /// Edges a second.
    pub hertz: NonZeroU64,
    /// Time of edge 0, in picoseconds.
    pub phase: Time,
}

impl Clock {
    /// Returns the clock with `hertz` edges a second and the first of all at `phase` picoseconds.
    pub const fn new(hertz: NonZeroU64, phase: Time) -> Self {
        Clock { hertz, phase }
    }

    /// Returns the time of the edge `cycle`.
    pub fn edge(self, cycle: Cycle) -> Time {
        let hertz = Time::from(self.hertz.get());
        self.phase + cycle / hertz * PICOSECONDS + (cycle % hertz * PICOSECONDS).div_ceil(hertz)
    }

    /// Returns the number of the first edge that is not before `time`.
    pub fn cycle_at_or_after(self, time: Time) -> Cycle {
        // ceil(x) >= t is x > t - 1, for a whole number t.
        let Some(before) = time.checked_sub(self.phase).and_then(|since| since.checked_sub(1)) else { return 0 };
        let hertz = Time::from(self.hertz.get());
        before / PICOSECONDS * hertz + before % PICOSECONDS * hertz / PICOSECONDS + 1
    }

    /// Returns the first edge that is not before `time`.
    pub fn edge_at_or_after(self, time: Time) -> Time {
        self.edge(self.cycle_at_or_after(time))
    }

    /// Returns the edge that comes `cycles` cycles after the first one not before `time`.
    pub fn edge_after(self, time: Time, cycles: Cycle) -> Time {
        self.edge(self.cycle_at_or_after(time) + cycles)
    }
}

/// A module of a [`Region`]: a circuit with registers at its ends.
///
/// `W` is what the modules of a region share: the FIFOs between them. In a cycle all modules consume, and after that all
/// modules produce. So no module sees in a cycle what another one gives in it, and the order of modules is without effect if
/// each FIFO has one consumer and one producer.
pub trait Clocked<W> {
    /// Takes from the FIFOs what the module can take in this cycle.
    fn consume(&mut self, cycle: Cycle, wires: &mut W);

    /// Gives to the FIFOs what is ready in this cycle and has room.
    ///
    /// Returns the next cycle in which the module may have something to do without something new from outside the region;
    /// `None` if there is no such cycle. A module that consumed or produced in this cycle returns the next one: its
    /// neighbours may have been waiting for it.
    fn produce(&mut self, cycle: Cycle, wires: &mut W) -> Option<Cycle>;
}

/// Modules on one clock. It is asleep while none has anything to do: then it needs no event.
///
/// Whoever owns a region has to call [`Region::run`] at the times that [`Region::wake`] and [`Region::run`] return.
///
/// ```
/// use fpga_mock::engine::{Clock, Clocked, Cycle, Region};
///
/// /// Adds one to what stands in one place, and puts it in the next one.
/// struct Increment {
///     place: usize,
///     held: Option<u32>,
/// }
///
/// impl Clocked<[Option<u32>; 3]> for Increment {
///     fn consume(&mut self, _: Cycle, wires: &mut [Option<u32>; 3]) {
///         self.held = wires[self.place].take();
///     }
///
///     fn produce(&mut self, cycle: Cycle, wires: &mut [Option<u32>; 3]) -> Option<Cycle> {
///         wires[self.place + 1] = Some(self.held.take()? + 1);
///         Some(cycle + 1)
///     }
/// }
///
/// let clock = Clock::new(1_000_000_000.try_into().unwrap(), 0);
/// let mut region = Region::new(clock, [0, 1].map(|place| Increment { place, held: None }));
/// let mut wires = [Some(40), None, None];
/// let mut next = region.wake(500);
/// assert_eq!(next, Some(1_000));
/// while let Some(at) = next {
///     next = region.run(at, &mut wires);
/// }
/// assert_eq!((wires, region.is_asleep()), ([None, None, Some(42)], true));
/// ```
#[derive(Debug, Clone)]
pub struct Region<M> {
    clock: Clock,
    modules: Vec<M>,
    /// The cycle for which an event is under way.
    next: Option<Cycle>,
    /// The first cycle that was not run.
    first_left: Cycle,
}

impl<M> Region<M> {
    /// Returns a region of these modules, asleep.
    pub fn new(clock: Clock, modules: impl IntoIterator<Item = M>) -> Self {
        Region { clock, modules: modules.into_iter().collect(), next: None, first_left: 0 }
    }

    /// Returns the clock of the region.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Returns the modules.
    pub fn modules(&self) -> &[M] {
        &self.modules
    }

    /// Returns the modules, to change them from outside.
    pub fn modules_mut(&mut self) -> &mut [M] {
        &mut self.modules
    }

    /// Returns whether no cycle is to be run.
    pub fn is_asleep(&self) -> bool {
        self.next.is_none()
    }

    /// Notes that something came to the region from outside at the time `now`, which its modules see from the next edge on.
    ///
    /// Returns the time for a new call of [`Region::run`]; `None` if one comes in time anyhow.
    pub fn wake(&mut self, now: Time) -> Option<Time> {
        let cycle = self.clock.cycle_at_or_after(now).max(self.first_left);
        self.plan(cycle)
    }

    /// Runs the cycle whose edge is `now`, unless it is not to be run any more.
    ///
    /// Returns the time for the next call; `None` if that is already under way, or if the region falls asleep.
    pub fn run<W>(&mut self, now: Time, wires: &mut W) -> Option<Time>
    where
        M: Clocked<W>,
    {
        let cycle = self.next.filter(|cycle| self.clock.edge(*cycle) == now)?;
        (self.next, self.first_left) = (None, cycle + 1);
        self.modules.iter_mut().for_each(|module| module.consume(cycle, wires));
        let wanted = self.modules.iter_mut().filter_map(|module| module.produce(cycle, wires)).min()?;
        self.plan(wanted.max(cycle + 1))
    }

    fn plan(&mut self, cycle: Cycle) -> Option<Time> {
        if self.next.is_some_and(|next| next <= cycle) {
            return None;
        }
        self.next = Some(cycle);
        Some(self.clock.edge(cycle))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    /// Frequencies of cards, and such as no card has.
    fn hertz() -> impl Strategy<Value = u64> {
        prop_oneof![Just(384_000_000), Just(295_800_000), Just(1), Just(3), 1..4_000_000_000_u64]
    }

    proptest! {
        #[test]
        fn edges_are_where_the_frequency_says(hertz in hertz(), phase in 0..1_u128 << 50, cycle in 0..1_u128 << 60) {
            let clock = Clock::new(hertz.try_into().unwrap(), phase);
            let edge = clock.edge(cycle) - phase;
            // At or after n / hertz, by less than a picosecond.
            let exact = cycle * PICOSECONDS;
            prop_assert!(edge * u128::from(hertz) >= exact);
            prop_assert!(edge == 0 || (edge - 1) * u128::from(hertz) < exact);
        }

        #[test]
        fn an_edge_is_found_from_any_time(hertz in hertz(), phase in 0..1_u128 << 50, time in 0..1_u128 << 70) {
            let clock = Clock::new(hertz.try_into().unwrap(), phase);
            let cycle = clock.cycle_at_or_after(time);
            prop_assert!(clock.edge(cycle) >= time);
            prop_assert!(cycle == 0 || clock.edge(cycle - 1) < time);
            prop_assert_eq!(clock.edge_at_or_after(clock.edge(cycle)), clock.edge(cycle));
            prop_assert_eq!(clock.edge_after(time, 3), clock.edge(cycle + 3));
        }
    }

    /// Passes numbers from one FIFO to the next; its latency is in cycles.
    struct Stage {
        from: usize,
        latency: Cycle,
        held: VecDeque<(Cycle, u32)>,
    }

    type Fifos = Vec<VecDeque<u32>>;

    impl Clocked<Fifos> for Stage {
        fn consume(&mut self, cycle: Cycle, fifos: &mut Fifos) {
            if let Some(number) = fifos[self.from].pop_front() {
                self.held.push_back((cycle + self.latency, number));
            }
        }

        fn produce(&mut self, cycle: Cycle, fifos: &mut Fifos) -> Option<Cycle> {
            if let Some((_, number)) = self.held.pop_front_if(|held| held.0 <= cycle) {
                fifos[self.from + 1].push_back(number);
                return Some(cycle + 1);
            }
            self.held.front().map(|held| held.0)
        }
    }

    /// Runs stages of these latencies until they sleep; returns the cycles that ran, and what came out.
    fn run(order: &[usize], latencies: &[Cycle], numbers: u32) -> (Vec<Time>, VecDeque<u32>) {
        let stage = |from: usize| Stage { from, latency: latencies[from], held: VecDeque::new() };
        let mut region = Region::new(Clock::new(1_000_000_000.try_into().unwrap(), 0), order.iter().map(|i| stage(*i)));
        let mut fifos: Fifos = vec![VecDeque::new(); latencies.len() + 1];
        fifos[0].extend(0..numbers);
        let (mut next, mut cycles) = (region.wake(1), Vec::new());
        while let Some(at) = next {
            cycles.push(at / 1_000);
            next = region.run(at, &mut fifos);
        }
        assert!(region.is_asleep());
        (cycles, fifos.pop().unwrap())
    }

    #[test]
    fn the_order_of_modules_is_without_effect() {
        let in_order = run(&[0, 1, 2], &[1, 4, 2], 9);
        assert_eq!(in_order, run(&[2, 1, 0], &[1, 4, 2], 9));
        assert_eq!(in_order, run(&[1, 2, 0], &[1, 4, 2], 9));
        assert_eq!(in_order.1, (0..9).collect::<VecDeque<u32>>());
    }

    #[test]
    fn a_region_sleeps_through_cycles_without_work() {
        // Taken in cycle 1, given in 101, taken in 102, given in 104, and a look at all in 105.
        let (cycles, out) = run(&[0, 1], &[100, 2], 1);
        assert_eq!((cycles, out), (vec![1, 101, 102, 104, 105], VecDeque::from([0])));
    }

    #[test]
    fn an_earlier_wake_replaces_a_later_one() {
        let clock = Clock::new(1_000_000_000.try_into().unwrap(), 0);
        let mut region = Region::new(clock, [Stage { from: 0, latency: 50, held: VecDeque::new() }]);
        let mut fifos: Fifos = vec![VecDeque::from([1]), VecDeque::new()];
        assert_eq!(region.wake(0), Some(0));
        assert_eq!(region.wake(0), None);
        assert_eq!(region.run(0, &mut fifos), Some(50_000));
        fifos[0].push_back(2);
        assert_eq!(region.wake(9_500), Some(10_000));
        assert_eq!(region.run(10_000, &mut fifos), Some(50_000));
        assert_eq!(region.run(50_000, &mut fifos), Some(51_000));
        // The event of the replaced wake comes all the same.
        assert_eq!(region.run(50_000, &mut fifos), None);
        // What comes at an edge whose cycle has run is seen at the next one.
        assert_eq!(region.wake(50_000), None);
        assert_eq!(fifos[1], [1]);
    }
}

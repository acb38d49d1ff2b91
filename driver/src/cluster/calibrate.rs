//! Measures the latencies and bandwidths of a fabric with programs and the cards' own counters.
//!
//! Clocks of different cards are unrelated, so every number is a difference of counts on one card, or the mean of both
//! directions of an exchange. Each fitted value has its residual.

use std::collections::BTreeMap;
use std::time::Duration;

use cmdseq::calibration::{Calibration, LinearFit, Parameter, Unmeasured, facts};
use cmdseq::capability::{Timing, TimingField};
use cmdseq::plan::{Communicator, ProgramSet, predict_with};
use cmdseq::{Capabilities, Combine, Completion, CostModel, Flags, Instruction, Operand, Operation};

use crate::cluster::Cluster;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::ledger::bound::Bound;
use crate::report::Execution;
use crate::report::times::since;

/// Sizes that go eagerly, and by rendezvous.
const SMALL: [u64; 5] = [32, 1 << 10, 4 << 10, 8 << 10, 16 << 10];
const LARGE: [u64; 4] = [64 << 10, 256 << 10, 1 << 20, MOST];
/// The largest of them.
const MOST: u64 = 2 << 20;
/// Runs of each program; the middle one counts.
const REPEAT: u32 = 3;
/// Cycles by which one card starts before the other, besides the time of a block on the link.
const HEAD_START: u64 = 4000;
/// Times that are farther than this from their line do not tell its parameter. Counts are whole cycles, and the shortest, of 32
/// bytes, has about 20: two cycles are 10 % of it.
const RESIDUAL_PERCENT: f64 = 20.0;
/// A link is reported by itself if its rate differs from the median by more than this.
const ALIKE_PERCENT: f64 = 2.0;
/// A rate that is as near as this to another that limits it may be that other.
const LIMIT_PERCENT: f64 = 2.0;
/// Time limit of one program, and of the whole calibration.
const TIMEOUT: Duration = Duration::from_secs(60);
const WHOLE: Duration = Duration::from_secs(600);

/// Id in the programs of the communicator of their cards, if these are not all.
const GROUP: u16 = 1;

/// Measures the fabric of `cluster`, and calls `progress` with what is done next. Overwrites the first two MiB of two pseudo
/// channels in all cards' memories. Takes at most 10 minutes.
///
/// # Errors
/// Those of [`Cluster::execute`]; [`Error::BadArgument`] if other processes hold members of `cluster`.
pub fn calibrate(cluster: &mut Cluster, progress: &mut dyn FnMut(&str)) -> Result<Calibration> {
    calibrate_until(Deadline::after(WHOLE), cluster, progress)
}

fn calibrate_until(deadline: Deadline, cluster: &mut Cluster, progress: &mut dyn FnMut(&str)) -> Result<Calibration> {
    if !cluster.is_alone() {
        let ranks = cluster.peers().size();
        return Err(Error::argument("cluster", format!("of {ranks} processes"), "one process that holds all cards"));
    }
    let capabilities = cluster.capabilities().clone();
    let mut measuring = Measuring {
        stated: capabilities.timing,
        model: CostModel::stated(&capabilities),
        capabilities,
        cluster,
        parameters: Vec::new(),
        unmeasured: Vec::new(),
        deadline,
    };
    progress("dispatch and hand-over");
    measuring.dispatch()?;
    progress("pseudo channels");
    measuring.channels()?;
    progress("host link");
    measuring.host()?;
    let nodes: Vec<u32> = measuring.cluster.cards().iter().map(crate::Card::node).collect();
    let pair = measuring.linked_pair(&nodes);
    match pair {
        Some(pair) => {
            progress("signals");
            measuring.pair(pair)?;
            progress("reductions");
            measuring.reductions(pair)?;
        }
        None => measuring.skip_all("no two of these cards are linked"),
    }
    let mut links = BTreeMap::new();
    if pair.is_some() {
        progress("links");
        links = measuring.links(&nodes)?;
    }
    for field in Timing::FIELDS {
        measuring.skip(field.name, "there is no program that tells it");
    }
    let place = |field: &TimingField| Timing::FIELDS.iter().position(|other| other.name == field.name);
    measuring.parameters.sort_by_key(|one| place(one.field));
    measuring.unmeasured.sort_by_key(|one| place(one.field));
    Ok(Calibration {
        fabric: facts(&measuring.capabilities),
        parameters: measuring.parameters,
        unmeasured: measuring.unmeasured,
        links,
    })
}

struct Measuring<'a> {
    cluster: &'a mut Cluster,
    capabilities: Capabilities,
    stated: Timing,
    /// The model so far.
    model: CostModel,
    parameters: Vec<Parameter>,
    unmeasured: Vec<Unmeasured>,
    deadline: Deadline,
}

/// Runs of one program on two or more cards: completions by rank, of the middle run of each instruction.
type Counted = Vec<Vec<Completion>>;

impl Measuring<'_> {
    /// Runs one program for each of `group`, several times.
    fn run(&mut self, group: &[u32], programs: Vec<Vec<Instruction>>) -> Result<Counted> {
        self.run_times(group, programs, REPEAT)
    }

    fn run_times(&mut self, group: &[u32], programs: Vec<Vec<Instruction>>, repeat: u32) -> Result<Counted> {
        let execution = Execution { repeat, timeout: self.timeout(), ..Execution::default() };
        let report = self.cluster.execute(&self.set(group, programs), &execution)?;
        let middle = |rank: &crate::RankReport| {
            let length = rank.repetitions.first().map_or(0, Vec::len);
            (0..length)
                .filter_map(|index| {
                    let mut runs: Vec<Completion> =
                        rank.repetitions.iter().filter_map(|run| run.get(index).copied()).collect();
                    runs.sort_by_key(|one| (one.t2, one.arrival));
                    runs.get(runs.len() / 2).copied()
                })
                .collect()
        };
        Ok(report.ranks.iter().map(middle).collect())
    }

    /// The programs of `group`, on a communicator of these cards.
    fn set(&self, group: &[u32], mut programs: Vec<Vec<Instruction>>) -> ProgramSet {
        if group.iter().copied().eq(0..self.capabilities.nodes) {
            return ProgramSet::new(group, programs);
        }
        for one in programs.iter_mut().flatten().filter(|one| one.operation.fields().communicator) {
            *one = one.on(GROUP);
        }
        ProgramSet::new(group, programs).with([Communicator { id: GROUP, members: group.to_vec() }])
    }

    /// Time limit of the next program.
    fn timeout(&self) -> Duration {
        self.deadline.left().min(TIMEOUT)
    }

    fn cycle_ps(&self) -> f64 {
        1e9 / f64::from(self.capabilities.clock_khz)
    }

    /// Keeps `value` of the field `name`.
    fn keep(&mut self, name: &'static str, value: f64, points: usize, residual_percent: f64) {
        let Some(field) = TimingField::named(name) else { return };
        let measured = value.round().clamp(0.0, f64::from(u32::MAX)) as u32;
        if field.is_rate && measured == 0 {
            return self.skip(name, "nothing moved");
        }
        field.set(&mut self.model.timing, measured);
        let stated = field.of(&self.stated);
        self.parameters.push(Parameter { field, stated, measured, points, residual_percent });
    }

    /// Leaves the field `name` as the cards say it, unless something is known of it already.
    fn skip(&mut self, name: &str, why: &str) {
        let is_known = |field: &TimingField| field.name == name;
        if self.parameters.iter().any(|one| is_known(one.field))
            || self.unmeasured.iter().any(|one| is_known(one.field))
        {
            return;
        }
        if let Some(field) = TimingField::named(name) {
            self.unmeasured.push(Unmeasured { field, why: why.to_owned() });
        }
    }

    fn skip_all(&mut self, why: &str) {
        let names = ["memory_read_cycles", "switch_cycles", "control_ps", "data_ps", "acknowledge_ps", "link_mbps"];
        names.iter().chain(&["reduce_beat_cycles", "reduce_unit_cycles"]).for_each(|name| self.skip(name, why));
    }

    /// Measures an instruction that does nothing.
    fn dispatch(&mut self) -> Result<()> {
        let counted = self.first_card(&[Instruction::nop(); 8])?;
        let took: Vec<f64> = counted.iter().map(|one| one.t2 as f64).collect();
        let gap = |pair: &[Completion]| since(pair[0].issued.wrapping_add(pair[0].t2), pair[1].issued, 0) as f64;
        let between: Vec<f64> = counted.windows(2).map(gap).collect();
        self.keep("dispatch_cycles", median(&took), took.len(), spread(&took));
        self.keep("handover_cycles", median(&between), between.len(), spread(&between));
        Ok(())
    }

    fn first_card(&mut self, instructions: &[Instruction]) -> Result<Vec<Completion>> {
        let timeout = self.timeout();
        self.cluster.card_mut(0).run(instructions, timeout)
    }

    /// Measures fills of one pseudo channel.
    fn channels(&mut self) -> Result<()> {
        let fills: Vec<Instruction> =
            LARGE.iter().map(|bytes| Instruction::fill(Operand::card(0), *bytes, 0)).collect();
        let counted = self.first_card(&fills)?;
        let points = LARGE.iter().zip(&counted).map(|(bytes, one)| (*bytes as f64, self.picoseconds(one.t2)));
        self.keep_rate("channel_mbps", &points.collect::<Vec<_>>());
        Ok(())
    }

    /// Measures copies from host memory.
    fn host(&mut self) -> Result<()> {
        if !self.capabilities.host_memory {
            self.skip("host_mbps", "the sequencers reach no host memory");
            return Ok(());
        }
        let timeout = self.timeout();
        let card = self.cluster.card_mut(0);
        let buffer = card.allocate_private(MOST as usize)?;
        let source = Operand::host(buffer.iova().0);
        let copy =
            |bytes: &u64| Bound::from(Instruction::copy(source, Operand::card(0), *bytes)).holding(buffer.clone());
        let counted = card.run(LARGE.iter().map(copy), timeout)?;
        let points = LARGE.iter().zip(&counted).map(|(bytes, one)| (*bytes as f64, self.picoseconds(one.t2)));
        self.keep_rate("host_mbps", &points.collect::<Vec<_>>());
        Ok(())
    }

    /// Cycles that were there before the first byte, of counts by bytes at so many picoseconds a byte. What ends within a
    /// cycle is counted as of its beginning: so each count gives a range, and whole cycles in all of them are the answer.
    fn before(&self, counts: &[(u64, u64)], ps_per_byte: f64) -> Option<f64> {
        let start = |(bytes, cycles): &(u64, u64)| *cycles as f64 - *bytes as f64 * ps_per_byte / self.cycle_ps();
        let lowest = counts.iter().map(start).reduce(f64::max)?;
        let highest = counts.iter().map(start).reduce(f64::min)? + 1.0;
        Some(whole(lowest, highest))
    }

    fn picoseconds(&self, cycles: u64) -> f64 {
        cycles as f64 * self.cycle_ps()
    }

    /// Keeps the rate of a line of times by bytes; what the line is, if there is one.
    fn keep_rate(&mut self, name: &'static str, points: &[(f64, f64)]) -> Option<LinearFit> {
        let Some(line) = LinearFit::of(points).filter(|line| line.slope > 0.0) else {
            self.skip(name, "times did not rise with sizes");
            return None;
        };
        let line = self.straight(name, line)?;
        self.keep(name, mbps(line.slope), points.len(), line.residual_percent);
        Some(line)
    }

    /// Returns `line` if its times are near it; else leaves the field `name`.
    fn straight(&mut self, name: &str, line: LinearFit) -> Option<LinearFit> {
        let is_straight = line.residual_percent <= RESIDUAL_PERCENT;
        if !is_straight {
            self.skip(name, &format!("times are up to {:.0} % off a line by sizes", line.residual_percent));
        }
        is_straight.then_some(line)
    }

    /// Cycles by which one card starts before the other: what it sends eagerly is in the receive buffer in half of them.
    fn head_start(&self) -> u64 {
        let timing = &self.model.timing;
        let bytes = self.small().last().copied().unwrap_or(0) as f64;
        let block_ps = bytes * 8e6 / f64::from(timing.link_mbps.max(1)) + f64::from(timing.data_ps);
        HEAD_START + (2.0 * block_ps / self.cycle_ps()) as u64
    }

    fn linked_pair(&self, nodes: &[u32]) -> Option<[u32; 2]> {
        let is_linked = |a: u32, b: u32| self.capabilities.topology.linked(a, b, self.capabilities.nodes);
        nodes.iter().find_map(|a| nodes.iter().find(|b| is_linked(*a, **b)).map(|b| [*a, *b]))
    }

    /// Whole beats that the receive buffers hold.
    fn small(&self) -> Vec<u64> {
        let most = self.capabilities.eager_bytes.min(self.capabilities.eager_limit);
        SMALL.iter().copied().filter(|bytes| *bytes <= most).collect()
    }

    /// Where data comes from and goes to: pseudo channels of their own.
    fn places(&self) -> (Operand, Operand) {
        let channel_bytes = self.capabilities.memory_bytes / u64::from(self.capabilities.memory_channels.max(1));
        (Operand::card(0), Operand::card(channel_bytes.max(MOST)))
    }

    /// Measures signals and data between two cards.
    fn pair(&mut self, pair: [u32; 2]) -> Result<()> {
        let (source, destination) = self.places();
        let dispatch = f64::from(self.model.timing.dispatch_cycles);
        // Each counts what it waited for the other; what one was early, the other was late.
        let barriers = self.run(&pair, vec![vec![Instruction::barrier(); 4]; 2])?;
        let both = barriers[0].iter().zip(&barriers[1]);
        let waits: Vec<f64> = both.map(|(one, other)| (one.t2 + other.t2) as f64 / 2.0 - dispatch - 1.0).collect();
        let control = median(&waits) * self.cycle_ps();
        self.keep("control_ps", control, waits.len(), spread(&waits));

        let sends = |sizes: &[u64], early: usize, flag: Flags, cycles: u64| -> Vec<Vec<Instruction>> {
            let flagged = |one: Instruction| Instruction { flags: flag, ..one };
            let head_start = |rank: usize| (rank != early).then(|| Instruction::delay(cycles));
            let both = [
                (sizes.iter())
                    .flat_map(|bytes| head_start(0).into_iter().chain([flagged(Instruction::send(1, source, *bytes))]))
                    .collect(),
                (sizes.iter())
                    .flat_map(|bytes| {
                        head_start(1).into_iter().chain([flagged(Instruction::recv(0, destination, *bytes))])
                    })
                    .collect(),
            ];
            both.to_vec()
        };
        // The receiver is there before: the source counts out as fast as memory and link let it.
        let sizes: Vec<u64> = SMALL.into_iter().chain(LARGE).collect();
        let early = self.run(&pair, sends(&sizes, 1, Flags::RENDEZVOUS, HEAD_START))?;
        let sent: Vec<Completion> = delayed(&early[0]);
        let counts: Vec<(u64, u64)> = sizes.iter().zip(&sent).map(|(bytes, one)| (*bytes, one.t1)).collect();
        let points: Vec<(f64, f64)> = counts.iter().map(|one| (one.0 as f64, self.picoseconds(one.1))).collect();
        match self.keep_rate("link_mbps", points.get(SMALL.len()..).unwrap_or(&[])) {
            Some(line) => {
                if let Some(before) = self.before(counts.get(..SMALL.len()).unwrap_or(&[]), line.slope) {
                    self.keep("memory_read_cycles", before - dispatch - 1.0, SMALL.len(), line.residual_percent);
                }
            }
            None => {
                self.skip("memory_read_cycles", "the rate of the link, which it is told apart from, was not measured")
            }
        }
        // From the last beat out to the signal that all is there: data one way, and a signal back.
        let back: Vec<f64> = sent.iter().map(|one| self.picoseconds(one.t2 - one.t1)).collect();
        let way = median(&back) / 2.0;
        self.keep("data_ps", way, back.len(), spread(&back));
        self.keep("acknowledge_ps", way, back.len(), spread(&back));

        // The receiver is late: what lies in its receive buffer goes to memory, and is counted.
        let sizes = self.small();
        let late = self.run(&pair, sends(&sizes, 0, Flags::empty(), self.head_start()))?;
        let received = delayed(&late[1]);
        let counts: Vec<(u64, u64)> = sizes.iter().zip(&received).map(|(bytes, one)| (*bytes, one.arrival)).collect();
        let points: Vec<(f64, f64)> = counts.iter().map(|one| (one.0 as f64, self.picoseconds(one.1))).collect();
        let Some(line) = LinearFit::of(&points) else {
            self.skip("switch_cycles", "the cards have no receive buffers");
            return Ok(());
        };
        let to_memory = 8e6 / f64::from(self.model.timing.channel_mbps.max(1));
        if let Some(line) = self.straight("switch_cycles", line)
            && let Some(before) = self.before(&counts, to_memory)
        {
            let size_check = (way - control) / self.cycle_ps();
            let switch = (before - dispatch - size_check).max(0.0);
            self.keep("switch_cycles", switch, counts.len(), line.residual_percent);
        }
        Ok(())
    }

    /// What the reduction units take: a fold of what lies in a receive buffer, and one of two contributions.
    fn reductions(&mut self, pair: [u32; 2]) -> Result<()> {
        let names = ["reduce_beat_cycles", "reduce_unit_cycles"];
        let combine = all_combines().find(|combine| self.capabilities.combines(*combine));
        let runs = |operation| self.capabilities.runs(operation);
        let Some(combine) = combine.filter(|_| runs(Operation::Exscan) && runs(Operation::Reduce)) else {
            names.iter().for_each(|name| self.skip(name, "the cards do not reduce"));
            return Ok(());
        };
        let sizes = self.small();
        if sizes.len() < 2 {
            names.iter().for_each(|name| self.skip(name, "the cards have no receive buffers"));
            return Ok(());
        }
        let (source, destination) = self.places();
        let cycles = self.head_start();
        let late = |one: &dyn Fn(u64) -> Instruction, delay: bool| -> Vec<Instruction> {
            let head_start = delay.then(|| Instruction::delay(cycles));
            sizes.iter().flat_map(|bytes| head_start.into_iter().chain([one(*bytes)])).collect()
        };
        let exscan = |bytes| Instruction::exscan(combine, source, destination, bytes);
        let counted = self.run(&pair, vec![late(&exscan, false), late(&exscan, true)])?;
        let points: Vec<(f64, f64)> = sizes
            .iter()
            .zip(delayed(&counted[1]))
            .map(|(bytes, one)| (*bytes as f64, self.picoseconds(one.arrival)))
            .collect();
        let beats = LinearFit::of(&points).and_then(|line| self.straight(names[0], line)).map(|line| {
            let rate = mbps(line.slope);
            let beat_ps = f64::from(self.stated.beat_bytes) * 8e6 / rate;
            (rate, beat_ps / self.cycle_ps(), line.residual_percent)
        });
        let channel = f64::from(self.model.timing.channel_mbps);
        match beats {
            Some((rate, cycles, residual)) if !is_limited(rate, channel) => {
                self.keep("reduce_beat_cycles", cycles, points.len(), residual);
            }
            _ => self.skip(names[0], "folds go as fast as the pseudo channel that takes their result"),
        }

        // What a fold of two takes beyond what it would if the units took nothing.
        let bytes = sizes[0];
        let reduce = |bytes| Instruction::reduce(combine, 1, source, destination, bytes);
        let programs = vec![vec![reduce(bytes)], vec![Instruction::delay(cycles), reduce(bytes)]];
        let set = self.set(&pair, programs.clone());
        let counted = self.run(&pair, programs)?;
        let Some(fold) = counted[1].get(1) else { return Ok(()) };
        let mut without = self.model.clone();
        without.timing.reduce_unit_cycles = 0;
        match predict_with(&set, &self.capabilities, &without) {
            Ok(predicted) => {
                let before = cycles as f64 + f64::from(self.model.timing.handover_cycles);
                let without = predicted.arrival_ps as f64 / self.cycle_ps() - before;
                let units = fold.arrival as f64 - without;
                self.keep(names[1], whole(units, units + 1.0), 1, 0.0);
            }
            Err(refusal) => self.skip(names[1], &refusal.to_string()),
        }
        Ok(())
    }

    /// Every link in both directions: those whose rate is not that of the middle one, which becomes that of all.
    fn links(&mut self, nodes: &[u32]) -> Result<BTreeMap<(u32, u32), u32>> {
        if self.unmeasured.iter().any(|one| one.field.name == "link_mbps") {
            return Ok(BTreeMap::new());
        }
        let mut rates: BTreeMap<(u32, u32), f64> = BTreeMap::new();
        let is_whole = nodes.iter().copied().eq(0..self.capabilities.nodes);
        let (topology, all) = (self.capabilities.topology, self.capabilities.nodes);
        let linked = |a: u32, b: u32| topology.linked(a, b, all);
        if !is_whole && !topology.all_reach(nodes, all) {
            // There is no barrier over all of them.
            return Ok(BTreeMap::new());
        }
        let count = nodes.len();
        let sizes = [LARGE[1], LARGE[2]];
        for shift in 1..count {
            let (source, destination) = self.places();
            let program = |rank: usize, bytes: u64| -> Vec<Instruction> {
                let (to, from) = ((rank + shift) % count, (rank + count - shift) % count);
                let one = match (linked(nodes[rank], nodes[to]), linked(nodes[rank], nodes[from])) {
                    (true, true) => Instruction::sendrecv(to as u16, from as u16, source, destination, bytes),
                    (true, false) => Instruction::send(to as u16, source, bytes),
                    (false, true) => Instruction::recv(from as u16, destination, bytes),
                    (false, false) => return Vec::new(),
                };
                vec![Instruction { flags: Flags::RENDEZVOUS, ..one }]
            };
            let senders: Vec<usize> =
                (0..count).filter(|rank| linked(nodes[*rank], nodes[(*rank + shift) % count])).collect();
            if senders.is_empty() {
                continue;
            }
            // Each size behind barriers of its own: a card that is slow does not make the next one late.
            let mut counted = Vec::with_capacity(sizes.len());
            for bytes in sizes {
                let programs = (0..count).map(|rank| program(rank, bytes)).collect();
                counted.push(self.run_times(nodes, programs, 1)?);
            }
            for rank in senders {
                let ([small], [large]) = (&counted[0][rank][..], &counted[1][rank][..]) else { continue };
                let took = self.picoseconds(large.t1) - self.picoseconds(small.t1);
                let rate = mbps(took / (sizes[1] - sizes[0]) as f64);
                rates.insert((nodes[rank], nodes[(rank + shift) % count]), rate);
            }
        }
        let mut all: Vec<f64> = rates.values().copied().collect();
        all.sort_by(f64::total_cmp);
        let Some(middle) = all.get(all.len() / 2).copied() else { return Ok(BTreeMap::new()) };
        let is_alike = |rate: f64| 100.0 * (rate / middle - 1.0).abs() <= ALIKE_PERCENT;
        let residual = all.iter().filter(|rate| is_alike(**rate)).map(|rate| 100.0 * (rate / middle - 1.0).abs());
        let residual = residual.fold(0.0, f64::max);
        let points = all.len();
        // The first fit was of one link. If a pseudo channel is the limit of all, nothing is known of the links but that: they have at
        // least its rate, which may be more than they state.
        let channel = f64::from(self.model.timing.channel_mbps);
        self.parameters.retain(|one| one.field.name != "link_mbps");
        if is_limited(middle, channel) {
            if f64::from(self.stated.link_mbps) < channel {
                self.keep("link_mbps", channel, points, residual);
            } else {
                self.model.timing.link_mbps = self.stated.link_mbps;
                self.skip("link_mbps", "links are not slower than the pseudo channels behind them");
            }
            return Ok(BTreeMap::new());
        }
        self.keep("link_mbps", middle, points, residual);
        let different = rates.into_iter().filter(|(_, rate)| !is_alike(*rate));
        Ok(different.map(|(link, rate)| (link, rate.round().clamp(1.0, f64::from(u32::MAX)) as u32)).collect())
    }
}

fn all_combines() -> impl Iterator<Item = Combine> {
    use cmdseq::{Element, Reduction};
    // Any of one byte or several: the times do not depend on it.
    let pairs = |element: Element| Reduction::ALL.iter().map(move |reduction| Combine::new(*reduction, element));
    let elements = Element::ALL.iter().copied().filter(|element| SMALL[0].is_multiple_of(element.bytes()));
    elements.flat_map(pairs).filter(|combine| combine.reduction.takes(combine.element))
}

/// Of instructions that stand behind a delay each, their completions.
fn delayed(completions: &[Completion]) -> Vec<Completion> {
    completions.iter().skip(1).step_by(2).copied().collect()
}

/// Whole cycles between `lowest` and `highest`, if there are some; else what is in the middle.
fn whole(lowest: f64, highest: f64) -> f64 {
    /// Of a cycle: what rates are fitted to less than.
    const NEAR: f64 = 0.05;
    let cycles = (lowest - NEAR).ceil();
    if cycles <= highest + NEAR { cycles } else { (lowest + highest) / 2.0 }
}

/// Megabits a second of so many picoseconds a byte.
fn mbps(ps_per_byte: f64) -> f64 {
    8e6 / ps_per_byte
}

/// Whether `limit` may be what limits `rate`.
fn is_limited(rate: f64, limit: f64) -> bool {
    rate >= limit * (1.0 - LIMIT_PERCENT / 100.0)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// By how much of the middle one values are off it at most, in percent.
fn spread(values: &[f64]) -> f64 {
    let middle = median(values);
    if middle == 0.0 {
        return 0.0;
    }
    values.iter().map(|value| 100.0 * (value / middle - 1.0).abs()).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_fake::{Fake, Reply};

    #[test]
    fn statistics_of_a_few_numbers() {
        assert_eq!((median(&[]), spread(&[])), (0.0, 0.0));
        assert_eq!((median(&[4.0]), spread(&[4.0])), (4.0, 0.0));
        // Of an even number, the upper one.
        assert_eq!((median(&[4.0, 2.0]), spread(&[4.0, 2.0])), (4.0, 50.0));
        assert_eq!((median(&[9.0, 1.0, 4.0, 2.0, 5.0]), spread(&[9.0, 1.0, 4.0, 2.0, 5.0])), (4.0, 125.0));
        assert_eq!(spread(&[1.0, -1.0, 0.0]), 0.0, "there is no percentage of nothing");
        assert_eq!((mbps(160.0), mbps(8e6)), (50_000.0, 1.0));
    }

    #[test]
    fn whole_cycles_are_preferred() {
        for (lowest, highest, expected) in [
            (6.5, 7.5, 7.0),
            (7.0, 8.0, 7.0),
            (6.96, 7.9, 7.0),
            (7.04, 8.0, 7.0),
            (7.06, 8.0, 8.0),
            (7.3, 7.96, 8.0),
            // None is near enough.
            (7.2, 7.6, 7.4),
            (7.5, 7.7, 7.6),
        ] {
            let found = whole(lowest, highest);
            assert!((found - expected).abs() < 1e-9, "{lowest} to {highest}: {found}");
        }
    }

    #[test]
    fn a_rate_that_is_nearly_another_may_be_limited_by_it() {
        for (rate, is_limit) in [(97.9, false), (98.0, true), (100.0, true), (150.0, true), (50.0, false)] {
            assert_eq!(is_limited(rate, 100.0), is_limit, "{rate}");
        }
        assert!(is_limited(0.98, 1.0) && !is_limited(0.97, 1.0));
    }

    /// The second card never comes to its barrier.
    #[test]
    fn a_calibration_ends_when_all_of_it_has_taken_too_long() {
        assert_eq!(WHOLE, Duration::from_secs(10 * 60), "as its documentation says");
        let fakes = [0, 1].map(|node| Fake::node(node, 2, 64));
        let mut cluster = Cluster::open(fakes.iter().map(Fake::function).collect()).unwrap();
        fakes[1].plant(0, Reply::Hang);
        let mut phases = Vec::new();
        let most = Duration::from_millis(50);
        let progress = &mut |phase: &str| phases.push(phase.to_owned());
        let error = calibrate_until(Deadline::after(most), &mut cluster, progress).unwrap_err();
        let Error::Timeout { node: Some(1), waited, .. } = error else { panic!("{error}") };
        // One program by itself could take a minute, and a plan of its own ten seconds.
        assert!(waited < Duration::from_secs(5), "{waited:?}");
        assert_eq!(phases, ["dispatch and hand-over", "pseudo channels", "host link", "signals"]);
    }
}

//! Runs a trace on every configuration of the wormhole router.

use std::sync::Mutex;
use std::thread;

use fpga_select::novog::wormhole::{Configuration, Switch, Trace, WormholeError, WormholeNetwork, WormholeOutcome};

use crate::exit::{Exit, Failure, Result};

/// Cycles after the last packet of a trace in which a run is given up: seven seconds of a router's time.
const CYCLES_MAX: u64 = 1_000_000_000;

/// What a configuration is judged by (Sheng, table 5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Metric {
    /// Cycles from the first flit injected to the last one ejected.
    Batch,
    /// Mean latency of a packet in cycles.
    Mean,
    /// Largest latency of a packet.
    Worst,
    /// Flits that a node gets in a cycle.
    Throughput,
    /// Area of a router with the virtual channels that it needs, in ALMs.
    Area,
}

impl Metric {
    pub(crate) const ALL: [Metric; 5] = [Metric::Batch, Metric::Mean, Metric::Worst, Metric::Throughput, Metric::Area];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Metric::Batch => "batch",
            Metric::Mean => "mean",
            Metric::Worst => "worst",
            Metric::Throughput => "throughput",
            Metric::Area => "area",
        }
    }

    /// Returns the metric of a run.
    pub(crate) fn of(self, run: &Measured) -> f64 {
        let outcome = &run.outcome;
        match self {
            Metric::Batch => outcome.batch_cycles() as f64,
            Metric::Mean => outcome.latency_mean(),
            Metric::Worst => outcome.latency_max as f64,
            Metric::Throughput => outcome.throughput(),
            Metric::Area => run.switch().alms.into(),
        }
    }

    /// Returns a number that is smaller for a better value.
    fn cost(self, value: f64) -> f64 {
        if self == Metric::Throughput { -value } else { value }
    }

    /// Returns the mean of all runs.
    pub(crate) fn mean(self, runs: &[Measured]) -> f64 {
        runs.iter().map(|run| self.of(run)).sum::<f64>() / runs.len() as f64
    }

    /// Returns the best run, the first of equal ones, and its difference from the mean of all in percent of that mean.
    pub(crate) fn best(self, runs: &[Measured]) -> Option<(&Measured, f64)> {
        let cost = |run: &&Measured| self.cost(self.of(run));
        let best = runs.iter().min_by(|one, other| cost(one).total_cmp(&cost(other)))?;
        let mean = self.mean(runs);
        Some((best, 100.0 * (self.of(best) - mean).abs() / mean))
    }
}

/// Returns the switch of a router with at least so many virtual channels.
fn switch(channels: usize) -> Switch {
    let channels = (channels.max(1)..).find_map(Switch::of);
    channels.unwrap_or(Switch { channels: 1, levels: 0, alms: 0, percent: 0 })
}

/// A run of a configuration.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) configuration: Configuration,
    pub(crate) outcome: WormholeOutcome,
    /// Classes of the rules against deadlocks that the routers had.
    classes: usize,
}

impl Measured {
    /// Returns the switch that has enough virtual channels: those in use, and those that keep the routes free of deadlocks.
    pub(crate) fn switch(&self) -> Switch {
        switch(usize::from(self.outcome.channels_max).max(self.classes))
    }
}

/// Runs all configurations, as many at once as the machine has processors. Returns them in their order; tells of each that is done.
pub(crate) fn all(
    network: &WormholeNetwork,
    trace: &Trace,
    is_done: impl Fn(Configuration) + Sync,
) -> Result<Vec<Measured>> {
    let configurations: Vec<Configuration> = Configuration::all().collect();
    let limit = trace.last_cycle().saturating_add(CYCLES_MAX);
    let left = Mutex::new(configurations.into_iter().enumerate());
    let work = || {
        let mut done = Vec::new();
        // Only this line takes the lock, and it does not panic.
        while let Some((number, configuration)) = left.lock().ok().and_then(|mut left| left.next()) {
            let outcome = network.run(configuration, &mut trace.clone(), limit);
            let classes = network.classes(configuration.routing);
            done.push((number, outcome.map(|outcome| Measured { configuration, outcome, classes })));
            is_done(configuration);
        }
        done
    };
    let threads = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut runs = thread::scope(|scope| -> Result<Vec<_>> {
        let start = |_| thread::Builder::new().spawn_scoped(scope, work).map_err(Failure::no_thread);
        let threads = (0..threads).map(start).collect::<Result<Vec<_>>>()?;
        let joined = threads.into_iter().map(|thread| thread.join());
        Ok(joined.flat_map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect())
    })?;
    runs.sort_by_key(|(number, _)| *number);
    runs.into_iter().map(|(_, run)| run.map_err(failure)).collect()
}

/// Turns an error of a run into that of a command.
pub(crate) fn failure(error: WormholeError) -> Failure {
    let exit = match error {
        WormholeError::Deadlock(_) => Exit::Failed,
        WormholeError::Late { .. } => Exit::Timeout,
        _ => Exit::Refused,
    };
    Failure::chain(exit, &error)
}

//! Finds deadlocks: virtual channels that wait for each other.

use std::fmt;
use std::ops::Range;

use cmdseq::routing::Torus3;

/// A virtual channel whose first packet never leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StuckChannel {
    /// The node.
    pub node: u32,
    /// The port by which its packets leave the node before.
    pub port: usize,
    /// The virtual channel.
    pub channel: usize,
    /// Where its first packet goes.
    pub to: u32,
}

/// Virtual channels that wait for each other: each for the next one, and the last for the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deadlock {
    /// The cycle in which it was found.
    pub cycle: u64,
    /// The channels.
    pub circle: Vec<StuckChannel>,
    /// All channels whose first packet never leaves, with those behind the circle.
    pub stuck: usize,
}

impl fmt::Display for StuckChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StuckChannel { node, port, channel, to } = self;
        write!(f, "{} into node {node}, channel {channel} (packet to {to})", Torus3::port_name(*port))
    }
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "deadlock found in cycle {}: {} channels are stuck; each waits for the next",
            self.cycle, self.stuck
        )?;
        self.circle.iter().try_for_each(|channel| write!(f, "\n  {channel}"))?;
        self.circle.first().map_or(Ok(()), |first| write!(f, "\n  {first}"))
    }
}

/// What the first packet of a channel waits for: any one of these channels, all of them full. `None` if it can leave.
pub(super) type Wait = Option<Range<usize>>;

/// Finds the largest set of channels in which each waits for channels of the set alone: none of them ever has room again.
///
/// Returns those of the set that wait for each other in a circle, and the size of the set.
pub(super) fn find(waits: &[Wait]) -> Option<(Vec<usize>, usize)> {
    let mut stuck: Vec<bool> = waits.iter().map(Option::is_some).collect();
    loop {
        let stays = |wait: &Wait| wait.as_ref().is_some_and(|wanted| stuck[wanted.clone()].iter().all(|one| *one));
        let kept: Vec<bool> = waits.iter().map(stays).collect();
        if kept == stuck {
            break;
        }
        stuck = kept;
    }
    let mut at = stuck.iter().position(|is_stuck| *is_stuck)?;
    let mut way: Vec<usize> = Vec::new();
    while !way.contains(&at) {
        way.push(at);
        at = waits[at].as_ref()?.start;
    }
    let circle = way.into_iter().skip_while(|place| *place != at).collect();
    Some((circle, stuck.into_iter().filter(|is_stuck| *is_stuck).count()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_channels_that_wait_for_each_other_alone_are_stuck() {
        // 0 waits for 1, 1 for 2 or 3, 2 for 0; 3 leaves.
        let mut waits: Vec<Wait> = vec![Some(1..2), Some(2..4), Some(0..1), None, Some(0..1)];
        assert_eq!(find(&waits), None);
        // Once 3 waits for 2, all do; 4 is behind them.
        waits[3] = Some(2..3);
        assert_eq!(find(&waits), Some((vec![0, 1, 2], 5)));
    }
}

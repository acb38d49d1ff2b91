//! Measures as in section 6 of the CIRCUS paper: a kernel's clock is read when the first word goes out (t0), when the first one
//! comes back (t1), and when the last one comes back (t2).

use std::collections::HashMap;

use fpga_select::circus::{Channel, Channels, Design, Network, Overhead, Placement, Profile, Torus, link_gbps};

use crate::exit::{Exit, Failure, Result};

/// Smallest and largest message of the paper, in bytes.
pub(super) const SMALL: u64 = 64;
pub(super) const LARGE: u64 = 1 << 20;
/// Side of the torus of Cygnus.
const SIDE: u32 = 8;

/// What runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Pattern {
    /// A card so many hops away sends everything back.
    PingPong { hops: u32 },
    /// A neighbour adds its own numbers and sends the sums back.
    Pipeline,
}

/// Times of one run, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Measured {
    bytes: u64,
    /// t1 - t0.
    pub(super) round_trip_us: f64,
    /// t2 - t1.
    stream_us: f64,
}

impl Measured {
    /// (t1 - t0) / 2.
    pub(super) fn latency_us(&self) -> f64 {
        self.round_trip_us / 2.0
    }

    /// Size by the paper's time, (t1 - t0) / 2 + (t2 - t1).
    pub(super) fn gbps(&self) -> f64 {
        self.bytes as f64 * 8e-3 / (self.latency_us() + self.stream_us)
    }
}

/// Runs each case once.
#[derive(Default)]
pub(super) struct Lab {
    measured: HashMap<(Pattern, u64), Measured>,
}

impl Lab {
    pub(super) fn measure(&mut self, pattern: Pattern, bytes: u64) -> Result<Measured> {
        if let Some(measured) = self.measured.get(&(pattern, bytes)) {
            return Ok(*measured);
        }
        let measured = run(pattern, bytes)?;
        self.measured.insert((pattern, bytes), measured);
        Ok(measured)
    }
}

/// Returns the rate of a saturated link in Gb/s.
pub(super) fn link(overhead: Overhead) -> f64 {
    link_gbps(&Profile::published(), overhead)
}

/// Returns the fewest cycles of a flit through a router, and in its crossbar.
pub(super) fn router_cycles() -> Result<(u64, u64)> {
    let mut design = Design::new(torus()?);
    let channel = design.channel(Channel::wide(0, 2)).map_err(failed)?;
    let mut network = Network::new(&Profile::published(), design).map_err(failed)?;
    network.push(channel, &numbers(0, SMALL)).map_err(failed)?;
    network.run().map_err(failed)?;
    let between = network.router(1).unwrap_or_default();
    Ok((between.least_cycles, between.least_crossbar_cycles))
}

fn run(pattern: Pattern, bytes: u64) -> Result<Measured> {
    let profile = match pattern {
        Pattern::PingPong { .. } => Profile::published(),
        Pattern::Pipeline => Profile::pipeline(),
    };
    let (other, latency_cycles) = match pattern {
        // As many as there are along a row, the rest along a column.
        Pattern::PingPong { hops } => {
            (hops.min(SIDE / 2) + SIDE * hops.saturating_sub(SIDE / 2), profile.forward_cycles)
        }
        Pattern::Pipeline => (1, profile.add_cycles),
    };
    let mut design = Design::new(torus()?);
    let there = design.channel(Channel::wide(0, other)).map_err(failed)?;
    let back = design.channel(Channel::wide(other, 0)).map_err(failed)?;
    let own = if pattern == Pattern::Pipeline { numbers(1, bytes) } else { vec![0; bytes as usize] };
    let sent = numbers(0, bytes);
    let expected = sum(&sent, &own);
    let placement = Placement { node: other, reads: &[there], writes: &[back], latency_cycles };
    design.kernel(placement, adding(own)).map_err(failed)?;
    let mut network = Network::new(&profile, design).map_err(failed)?;
    network.push(there, &sent).map_err(failed)?;
    network.run().map_err(failed)?;
    if network.take(back).map_err(failed)? != expected {
        return Err(Failure::new(Exit::Verification, format!("{pattern:?} of {bytes} bytes came back wrong")));
    }
    let (out, back) = (network.written(there), network.read(back));
    let us = |from: Option<u128>, to: Option<u128>| match (from, to) {
        (Some(from), Some(to)) => (to - from) as f64 / 1e6,
        _ => f64::NAN,
    };
    let (t0, t1, t2) = (out.first_put, back.first_taken, back.last_taken);
    Ok(Measured { bytes, round_trip_us: us(t0, t1), stream_us: us(t1, t2) })
}

/// A kernel that adds its own numbers to those that it takes.
fn adding(own: Vec<u8>) -> impl FnMut(&mut Channels<'_>) + Send {
    let mut at = 0;
    move |channels| {
        if channels.can_put(0)
            && let Some(word) = channels.take(0)
        {
            let add = |number: u32| {
                let own = own.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |own| u32::from_le_bytes(*own));
                at += size_of::<u32>();
                number.wrapping_add(own)
            };
            channels.put(0, word.map_u32(add));
        }
    }
}

/// Numbers of 32 bits in so many bytes.
fn numbers(seed: u32, bytes: u64) -> Vec<u8> {
    let number = |index: u32| index.wrapping_mul(0x9e37_79b1).wrapping_add(seed.wrapping_mul(0x85eb_ca6b));
    (0..bytes as u32 / 4).flat_map(|index| number(index).to_le_bytes()).collect()
}

/// The sums of numbers, without the kernels of the mock.
fn sum(one: &[u8], other: &[u8]) -> Vec<u8> {
    let number = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes);
    let pairs = one.as_chunks().0.iter().zip(other.as_chunks().0);
    pairs.flat_map(|(one, other)| number(one).wrapping_add(number(other)).to_le_bytes()).collect()
}

fn torus() -> Result<Torus> {
    Torus::new(SIDE, SIDE).map_err(failed)
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Failed, format!("mock of CIRCUS: {error}"))
}

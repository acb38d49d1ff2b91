//! Measures on a mock fabric of two boards with one cable.

use std::collections::BTreeMap;

use fpga_select::bluelink::{Fabric, Parameters, Payload, Target};

use super::ethernet::Stack;
use crate::exit::Result;

/// Bits of a byte.
const BYTE_BITS: u64 = 8;
/// Messages of a measured stream.
const MESSAGES: u64 = 1_000;
/// Picoseconds of a microsecond and a second.
const US: u128 = 1_000_000;
const SECOND: u128 = 1_000_000 * US;
/// Until then a new fabric has started its links.
const START: u128 = 10 * US;
/// Cycles from the input of a FIFO on a chip to its output.
const ON_CHIP_FIFO: u128 = 1;
/// Times that the cable is pulled.
pub(super) const PULLS: u64 = 20;
/// A measurement that takes longer is stuck.
const STUCK: u128 = SECOND;

const TARGET: Target = Target { board: 1, channel: 0 };

/// Payload of a flit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Width {
    /// As published: a flit has 128 bits on the wire.
    Bits64,
    /// An extension: a flit has 192.
    Bits128,
}

impl Width {
    pub(super) const ALL: [Width; 2] = [Width::Bits64, Width::Bits128];

    pub(super) fn name(self) -> &'static str {
        match self {
            Width::Bits64 => "bluelink",
            Width::Bits128 => "wide",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Width::Bits64 => "BlueLink, flits of 64 bits of payload",
            Width::Bits128 => "BlueLink, flits of 128 bits of payload",
        }
    }
}

/// What a stream of messages has shown.
#[derive(Debug, Clone, Copy)]
struct Stream {
    /// Time of a message, in picoseconds.
    message_ps: f64,
    /// From the acceptance of a message's first flit until its last one is taken, in nanoseconds.
    latency_ns: f64,
}

/// Measurements on mock fabrics; each is made once.
#[derive(Default)]
pub(super) struct Lab {
    streams: BTreeMap<(Width, u64), Stream>,
    pulled: Option<Pulled>,
}

impl Lab {
    /// Returns the bits on the line for a message of so many bytes, one after another at full rate.
    pub(super) fn line_bits(&mut self, width: Width, payload: u64) -> Result<f64> {
        let line_bps = Parameters::published().line.line_bps() as f64;
        Ok(self.stream(width, payload)?.message_ps * line_bps / 1e12)
    }

    /// Returns the part of the line's bits that are payload, in percent.
    pub(super) fn efficiency(&mut self, width: Width, payload: u64) -> Result<f64> {
        Ok(100.0 * (payload * BYTE_BITS) as f64 / self.line_bits(width, payload)?)
    }

    /// Returns the bits of payload up to which BlueLink needs fewer bits on the line than Ethernet.
    pub(super) fn crossing(&mut self, width: Width, stack: Stack) -> Result<f64> {
        let mut payload = 0;
        while self.line_bits(width, payload + 1)? <= stack.line_bits(payload + 1) {
            payload += 1;
        }
        Ok((payload * BYTE_BITS) as f64)
    }

    /// Returns the latency of a message under full load, in nanoseconds.
    pub(super) fn loaded_ns(&mut self, payload: u64) -> Result<f64> {
        Ok(self.stream(Width::Bits64, payload)?.latency_ns)
    }

    /// Pulls the cable [`PULLS`] times.
    pub(super) fn pull(&mut self) -> Result<Pulled> {
        match self.pulled {
            Some(known) => Ok(known),
            None => Ok(*self.pulled.insert(pull()?)),
        }
    }

    fn stream(&mut self, width: Width, payload: u64) -> Result<Stream> {
        // Messages of equally many flits are one measurement.
        let bits = match width {
            Width::Bits64 => u64::BITS,
            Width::Bits128 => u128::BITS,
        };
        let flits = (payload * BYTE_BITS).div_ceil(bits.into());
        if let Some(stream) = self.streams.get(&(width, flits)) {
            return Ok(*stream);
        }
        let stream = match width {
            Width::Bits64 => stream::<u64>(flits)?,
            Width::Bits128 => stream::<u128>(flits)?,
        };
        self.streams.insert((width, flits), stream);
        Ok(stream)
    }
}

fn pair<P: Payload>() -> Result<Fabric<P>> {
    let mut fabric = Fabric::new(Parameters::published(), 2, &[(0, 1)])?;
    fabric.run_until(START)?;
    Ok(fabric)
}

/// Sends messages of `flits` flits as fast as they are accepted.
fn stream<P: Payload + From<u64>>(flits: u64) -> Result<Stream> {
    let mut fabric = pair::<P>()?;
    let total = flits * MESSAGES;
    let (mut sent, mut received) = (0, 0);
    let mut accepted_at = Vec::with_capacity(MESSAGES as usize);
    let mut taken_at = Vec::with_capacity(MESSAGES as usize);
    while received < total {
        if sent < total && fabric.try_send(0, TARGET, P::from(sent))? {
            if sent % flits == 0 {
                accepted_at.push(fabric.now());
            }
            sent += 1;
        }
        if fabric.try_receive(TARGET)?.is_some() {
            received += 1;
            if received % flits == 0 {
                taken_at.push(fabric.now());
            }
        }
        fabric.run_cycles(0, 1)?;
    }
    // In the second half the FIFOs are full.
    let half = taken_at.len() / 2;
    let messages = (taken_at.len() - 1 - half) as f64;
    let waits = taken_at[half..].iter().zip(&accepted_at[half..]).map(|(taken, accepted)| taken - accepted);
    Ok(Stream {
        message_ps: (taken_at[taken_at.len() - 1] - taken_at[half]) as f64 / messages,
        latency_ns: waits.sum::<u128>() as f64 / (messages + 1.0) / 1e3,
    })
}

/// Returns the cycles that an idle link adds to those of a FIFO on one chip.
pub(super) fn added_cycles() -> Result<f64> {
    let mut fabric = pair::<u64>()?;
    let begin = fabric.cycle(0)?;
    fabric.send(0, TARGET, 1, STUCK)?;
    fabric.receive(TARGET, STUCK)?;
    Ok((fabric.cycle(1)? - begin - ON_CHIP_FIFO) as f64)
}

/// Returns the cycles in which an idle link accepts a flit: until the next one may be given.
pub(super) fn acceptance_cycles() -> Result<f64> {
    let mut fabric = pair::<u64>()?;
    fabric.try_send(0, TARGET, 1)?;
    let begin = fabric.cycle(0)?;
    while !fabric.try_send(0, TARGET, 2)? {
        fabric.run_cycles(0, 1)?;
    }
    Ok((fabric.cycle(0)? - begin) as f64)
}

/// Returns the latency of a message of so many bytes on an idle link, in nanoseconds.
pub(super) fn idle_ns(payload: u64) -> Result<f64> {
    let mut fabric = pair::<u64>()?;
    let flits = (payload * BYTE_BITS).div_ceil(u64::BITS.into());
    let begin = fabric.now();
    let (mut sent, mut received) = (0, 0);
    while received < flits {
        if sent < flits && fabric.try_send(0, TARGET, sent)? {
            sent += 1;
        }
        if fabric.try_receive(TARGET)?.is_some() {
            received += 1;
        }
        if received < flits {
            fabric.run_cycles(0, 1)?;
        }
    }
    Ok((fabric.now() - begin) as f64 / 1e3)
}

/// An access that is blocked while the cable is out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pulled {
    /// Flits that arrived while the cable was out.
    pub(super) meanwhile: u64,
    /// Flits that arrived after the cable was back.
    pub(super) afterwards: u64,
    /// Flits that were doubled, reordered or wrong.
    pub(super) wrong: u64,
}

/// [`PULLS`] times: unplugs the cable, sends a flit, and waits a second for it without the cable and a second with it.
fn pull() -> Result<Pulled> {
    let mut fabric = pair::<u64>()?;
    let mut pulled = Pulled { meanwhile: 0, afterwards: 0, wrong: 0 };
    let (mut sent, mut next) = (0, 0);
    let mut take = |fabric: &mut Fabric, most: u128| -> Result<u64> {
        let Some(payload) = fabric.receive(TARGET, most)? else { return Ok(0) };
        pulled.wrong += u64::from(payload != next);
        next += 1;
        Ok(1)
    };
    for _ in 0..PULLS {
        let now = fabric.now();
        // All flits are sent one by one; the receiver is always blocked for the next one.
        fabric.unplug(0, now)?;
        fabric.run_cycles(0, 100)?;
        while take(&mut fabric, 0)? == 1 {}
        fabric.send(0, TARGET, sent, STUCK)?;
        sent += 1;
        pulled.meanwhile += take(&mut fabric, SECOND)?;
        fabric.plug(0, fabric.now())?;
        pulled.afterwards += take(&mut fabric, SECOND)?;
    }
    Ok(pulled)
}

//! Tests of CIRCUS channels: what the card says of them, and words that its router brings back to its own host.

use std::time::{Duration, Instant};

use fpga_driver::channel::{Error, Losses, Network, Reader, Settings};
use fpga_hal::Function;

use crate::data::compare;
use crate::interrupt::Interrupt;
use crate::selftest::checks::{Checks, Failed, Result, rate};

/// Bytes that are sent, in parts that fit the ring.
const BYTES: usize = 256 << 10;
const PART: usize = 4 << 10;
const WORD_BYTES: usize = 4;
/// Time limit of each part.
const BOUND: Duration = Duration::from_secs(2);

/// Tests the channels. Returns whether the card says that it is a mock; `None` if it has no channels.
pub(super) fn test(checks: &mut Checks<'_>, function: &Function, interrupt: &Interrupt) -> Option<bool> {
    if checks.is_interrupted() {
        return None;
    }
    let network = match Network::open([function.clone()]) {
        Ok(network) => network,
        Err(Error::NoChannels { .. }) => return None,
        Err(error) => {
            checks.run("channels", || Err::<String, _>(error));
            return Some(false);
        }
    };
    let is_mock = network.has_mocks();
    for node in network.nodes() {
        checks.run("channels", || describe(&network, node));
        checks.run("words", || loop_back(&network, node, interrupt));
    }
    Some(is_mock.unwrap_or(false))
}

fn describe(network: &Network, node: u32) -> Result<String> {
    let (limits, torus, Losses { full, no_route, no_channel }) =
        (network.limits(node)?, network.torus(), network.losses(node)?);
    Ok(format!(
        "card {node} of {} columns and {} rows, {} ends; packets lost: {full} buffer full, {no_route} no route, \
         {no_channel} no reader",
        torus.width(),
        torus.height(),
        limits.ends
    ))
}

/// Sends words from the card's host to itself. Needs a routing table, and loads none: one that others use stays as it is.
fn loop_back(network: &Network, node: u32, interrupt: &Interrupt) -> Result<String> {
    if !network.is_routed(node)? {
        return Ok("none sent: the card has no routing table (fpgactl channel load)".to_owned());
    }
    let (mut reader, settings) = unused(network, node)?;
    let mut writer = network.writer(node, node, settings)?;
    let sent: Vec<u8> = (0..BYTES as u32).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect();
    let mut received = vec![0; PART];
    let began = Instant::now();
    for (index, part) in sent.chunks(PART).enumerate() {
        interrupt.check().map_err(|_| Failed::Interrupted)?;
        writer.write(part, BOUND)?;
        reader.read_exact(&mut received, BOUND)?;
        compare((index * PART) as u64, part, &received)?;
    }
    let seconds = began.elapsed().as_secs_f64();
    writer.close(BOUND)?;
    Ok(format!("{} KiB by channel {} and back, {}", BYTES >> 10, settings.id, rate(BYTES, seconds)))
}

/// Opens a channel that nobody reads on this card, the last ones first: applications count from 0.
fn unused(network: &Network, node: u32) -> Result<(Reader, Settings)> {
    for id in (0..=u8::MAX).rev() {
        let settings = Settings { id, word_bytes: WORD_BYTES as u32, depth: (2 * PART / WORD_BYTES) as u32 };
        match network.reader(node, settings) {
            Ok(reader) => return Ok((reader, settings)),
            Err(Error::Refused { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Failed::other("every channel has a reader on this card: none is left for a test"))
}

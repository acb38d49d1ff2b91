//! `fpgactl bench optweb`: compares every network figure of the OPTWEB paper with the mock.

mod applications;
mod figures;
mod measure;
mod rows;

use std::path::Path;

use cmdseq::plan::Collective;
use fpga_select::{Profile, Selector};

use super::comparison::{PublishedSystem, Value};
use crate::cli::{Cli, Optweb};
use crate::exit::Result;
use crate::interrupt::Interrupt;
use crate::topo::{DragonflySize, dragonflies};
use crate::units::gbps;
use applications::{alltoall_ratio, listed_cost};
use measure::{CARDS, Case, LARGE, Lab, SMALL, powers_of_two};
use rows::{Curve, NOT_REPRODUCED, Part, Quantity};

pub(super) fn run(cli: &Cli, arguments: &Optweb) -> Result<()> {
    let system = PublishedSystem {
        names: ("optweb", "OPTWEB on mock cards"),
        components: Profile::optweb(CARDS).components(),
        not_reproduced: &NOT_REPRODUCED,
        assumed: Vec::new(),
    };
    let mut lab = Lab::new(Interrupt::listen()?);
    let draw = |lab: &mut Lab, directory: &Path| figures::draw(lab, directory, &arguments.figure);
    system.run(cli, &arguments.published, (rows::all(), &mut lab), measure, draw)
}

fn measure(lab: &mut Lab, quantity: &Quantity) -> Result<Value> {
    let small = |one| Case::new(one, SMALL);
    let large = |one| Case::new(one, LARGE);
    let ours = match *quantity {
        Quantity::Barrier(part) => {
            let barrier = lab.measure(Case::new(Collective::Barrier, 0))?;
            match part {
                Part::Configuration => barrier.t1_us,
                Part::Migration => barrier.t2_us - barrier.t1_us,
                Part::StartUp => barrier.t2_us,
            }
        }
        Quantity::Eager(part, one) => {
            let measured = lab.measure(small(one))?;
            match part {
                Part::Configuration => measured.t1_us,
                Part::Migration => measured.migration_us(),
                Part::StartUp => measured.start_up_us(),
            }
        }
        Quantity::EagerT2(one) => lab.measure(small(one))?.t2_us,
        Quantity::RendezvousStartUp => lab.measure(small(Collective::Allgather).rendezvous())?.start_up_us(),
        Quantity::RendezvousExcess => {
            let rendezvous = lab.measure(small(Collective::Allgather).rendezvous())?;
            rendezvous.start_up_us() - lab.measure(small(Collective::Allgather))?.start_up_us()
        }
        Quantity::Sent(one) => gbps(LARGE, lab.measure(large(one))?.t1_us),
        Quantity::Received(one) => lab.received_gbps(large(one))?,
        Quantity::Aggregate(one) => {
            let bytes = lab.measure(large(one))?.bytes_at_a_card;
            gbps(bytes, lab.reception_us(large(one))?)
        }
        // One read and one write of the own block, in the time of all blocks.
        Quantity::Internal => 2.0 * gbps(LARGE, lab.reception_us(large(Collective::Allgather))?),
        Quantity::StartUpOfCards(cards) => lab.measure(small(Collective::Allgather).with_cards(cards))?.start_up_us(),
        Quantity::BandwidthOfCards(cards) => lab.received_gbps(large(Collective::Allgather).with_cards(cards))?,
        Quantity::SpreadOverCards => {
            let mut all = Vec::new();
            for cards in 2..=CARDS {
                all.push(lab.measure(small(Collective::Allgather).with_cards(cards))?.start_up_us());
            }
            1e3 * (all.iter().copied().fold(f64::MIN, f64::max) - all.iter().copied().fold(f64::MAX, f64::min))
        }
        Quantity::FirstSkew => lab.skew()?.first().copied().unwrap_or(f64::NAN),
        Quantity::LaterSkew => lab.skew()?.into_iter().skip(1).fold(0.0, f64::max),
        Quantity::MultipathStartUp(one) => {
            lab.measure(Case::new(one, SMALL * u64::from(CARDS)).multipath())?.arrival_us
        }
        Quantity::MultipathBandwidth(one, cards) => {
            gbps(LARGE, lab.measure(large(one).with_cards(cards).multipath())?.arrival_us)
        }
        Quantity::Crossover => crossover(lab)? as f64 / 1024.0,
        Quantity::StripesUsed => {
            let addresses = stripes(lab)?;
            let half = lab.capabilities(STRIPED)?.stripe_half_bytes;
            let is_in_place = |(block, address): &(u64, &u64)| **address == addresses[0] + 2 * half * block;
            (0..).zip(&addresses).filter(is_in_place).count() as f64
        }
        Quantity::StripeHalf => match stripes(lab)?.as_slice() {
            [first, second, ..] => ((second - first) / 2) as f64 / f64::from(1 << 20),
            _ => f64::NAN,
        },
        Quantity::Dragonfly { groups, links } => {
            let size = dragonflies(links).into_iter().find(|size| size.groups == groups);
            f64::from(size.map_or(Ok(0), |size| cards_in_reach(&size, links))?)
        }
        Quantity::Application(application, other) => application.speed_up(other),
        Quantity::Alltoall(other) => alltoall_ratio(other),
        Quantity::Cost => listed_cost(),
        Quantity::Curve { collective, curve } => return farthest_from(lab, collective, curve),
        Quantity::StartUpBySize(collective) => return worst_start_up(lab, collective),
    };
    Ok(ours.into())
}

/// Largest number of cards with one memory interface for each.
const STRIPED: u32 = 16;

/// Returns the addresses of the blocks that a root scatters.
fn stripes(lab: &mut Lab) -> Result<Vec<u64>> {
    let plan = lab.plan(Case::new(Collective::Scatter, LARGE).with_cards(STRIPED))?;
    Ok(plan.set.programs.first().map(|root| root.input.iter().map(|piece| piece.address).collect()).unwrap_or_default())
}

/// Returns the number of cards that a card of a Dragonfly reaches in at most two hops, including itself; 0 if the card has
/// not exactly `links` links.
fn cards_in_reach(size: &DragonflySize, links: u32) -> Result<u32> {
    let selector = format!("mock:optweb:{}x{}", size.groups, size.group_size);
    let parsed = Selector::parse(&selector)?;
    let profile = parsed.profile().ok_or(fpga_select::Error::NotMock { selector })?;
    let linked = |a, b| profile.topology.linked(a, b, profile.nodes);
    let neighbours: Vec<u32> = (0..profile.nodes).filter(|b| linked(0, *b)).collect();
    let is_near = |card: &u32| *card == 0 || linked(0, *card) || neighbours.iter().any(|one| linked(*one, *card));
    let reached = (0..profile.nodes).filter(is_near).count() as u32;
    Ok(if neighbours.len() as u32 == links { reached } else { 0 })
}

/// Sizes other than whole beats, or just above the receive buffer.
const ODD: [u64; 4] = [63, 4095, 16385, (1 << 20) - 1];

fn worst_start_up(lab: &mut Lab, collective: Collective) -> Result<Value> {
    let mut worst = Value::from(f64::MIN);
    for bytes in powers_of_two(1 << 20).chain(ODD) {
        let ours = lab.start_up_us(Case::new(collective, bytes))?;
        if ours > worst.ours {
            worst = Value { ours, at_bytes: Some(bytes), published: None };
        }
    }
    Ok(worst)
}

fn farthest_from(lab: &mut Lab, collective: Collective, curve: Curve) -> Result<Value> {
    let eager_bytes = lab.capabilities(CARDS)?.eager_bytes;
    let mut farthest = Value::from(f64::NAN);
    let mut distance = f64::MIN;
    for bytes in powers_of_two(if curve.is_rendezvous { LARGE } else { eager_bytes }) {
        let case = Case::new(collective, bytes);
        let ours = lab.received_gbps(if curve.is_rendezvous { case.rendezvous() } else { case })?;
        let published = curve.at(bytes);
        if (ours / published - 1.0).abs() > distance {
            distance = (ours / published - 1.0).abs();
            farthest = Value { ours, at_bytes: Some(bytes), published: Some(published) };
        }
    }
    Ok(farthest)
}

/// Resolution of the crossover search, in bytes: one beat for each of four cards.
const STEP: u64 = 128;

/// Returns the size of a send from which on multipath arrives earlier than one hop.
fn crossover(lab: &mut Lab) -> Result<u64> {
    let mut is_shorter = |bytes| -> Result<bool> {
        let direct = Case::new(Collective::Send, bytes);
        Ok(lab.measure(direct.multipath())?.arrival_us < lab.measure(direct)?.arrival_us)
    };
    let mut above = LARGE;
    while above > STEP && is_shorter(above / 2)? {
        above /= 2;
    }
    let (mut longer, mut shorter) = (above / 2 / STEP, above / STEP);
    while shorter - longer > 1 {
        let middle = (longer + shorter) / 2;
        if is_shorter(middle * STEP)? {
            shorter = middle;
        } else {
            longer = middle;
        }
    }
    Ok(shorter * STEP)
}

#[cfg(test)]
mod tests {
    use super::super::comparison::choose;
    use super::*;
    use crate::cli::Rows;

    #[test]
    fn rows_are_chosen_by_name_and_by_family() {
        let ids = |given: &str| {
            choose(rows::all(), &Rows { row: vec![given.to_owned()], check: false }).map(|rows| rows.len())
        };
        assert_eq!(ids("barrier/total"), Ok(1));
        assert_eq!(ids("barrier"), Ok(3));
        assert!(ids("barr").is_err());
    }
}

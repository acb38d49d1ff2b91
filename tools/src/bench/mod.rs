//! `fpgactl bench optweb`: compares every network figure of the OPTWEB paper with the mock. `bench planner` is in [`planner`].

mod chart;
mod figures;
mod measure;
mod planner;
mod rows;

use std::collections::BTreeSet;

use cmdseq::plan::Collective;
use fpga_select::Selector;
use serde::Serialize;

use crate::cli::{Bench, Cli, Optweb, System};
use crate::exit::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::topo::{DragonflySize, dragonflies};
use crate::units::{gbps, rounded};
use crate::{output, progress, size};
use measure::{CARDS, Case, LARGE, Lab, SMALL, powers_of_two};
use rows::{Accept, Basis, Curve, Part, Quantity, Row};

#[derive(Serialize)]
struct Printed {
    schema: &'static str,
    profile: &'static str,
    kind: &'static str,
    rows: Vec<PrintedRow>,
    summary: Summary,
    not_reproduced: &'static [&'static str],
    figures: Vec<String>,
}

/// What the rows say about the mock, against what was fitted.
#[derive(Serialize)]
struct Summary {
    predicted: usize,
    derived: usize,
    fitted: usize,
    /// Different facts among the predicted rows.
    independent_facts: usize,
    /// Components of the profile that were fitted.
    fitted_values: usize,
}

#[derive(Serialize)]
struct PrintedRow {
    id: String,
    what: String,
    unit: &'static str,
    published: Option<f64>,
    ours: f64,
    difference_percent: Option<f64>,
    within: bool,
    basis: &'static str,
    accept: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_bytes: Option<u64>,
}

/// A measured value; for a row over several sizes, also the size and its published value.
struct Value {
    ours: f64,
    at_bytes: Option<u64>,
    published: Option<f64>,
}

pub(crate) fn run(cli: &Cli, arguments: &Bench) -> Result<()> {
    match &arguments.system {
        System::Optweb(optweb) => run_optweb(cli, optweb),
        System::Planner(arguments) => planner::run(cli, arguments),
    }
}

fn run_optweb(cli: &Cli, arguments: &Optweb) -> Result<()> {
    let chosen = choose(&arguments.row)?;
    let mut lab = Lab::new(Interrupt::listen()?);
    let bar = progress::count(chosen.len() as u64);
    let mut rows = Vec::with_capacity(chosen.len());
    let summary = summary(&chosen);
    for row in chosen {
        bar.set_message(row.id.clone());
        let value = measure_row(&mut lab, &row.quantity)?;
        rows.push(printed(row, &value));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let figures = match &arguments.svg {
        Some(directory) => figures::draw(&mut lab, directory, &arguments.figure)?,
        None => Vec::new(),
    };
    let out: Vec<String> = rows.iter().filter(|row| !row.within).map(|row| row.id.clone()).collect();
    let printed = Printed {
        schema: "fpgactl.bench/1",
        profile: "optweb",
        kind: "mock",
        rows,
        summary,
        not_reproduced: &rows::NOT_REPRODUCED,
        figures,
    };
    if cli.json {
        output::json(&printed)?;
    } else {
        output::write(text(&printed).as_bytes())?;
    }
    if arguments.check && !out.is_empty() {
        return Err(Failure::new(Exit::Verification, format!("out of tolerance: {}", out.join(", "))));
    }
    Ok(())
}

fn summary(rows: &[Row]) -> Summary {
    let count = |is_one: fn(&Basis) -> bool| rows.iter().filter(|row| is_one(&row.basis)).count();
    let fact = |row: &Row| match row.basis {
        Basis::Predicted { fact } => Some(fact),
        Basis::Derived | Basis::Fitted => None,
    };
    let components = fpga_select::Profile::optweb(CARDS).components();
    let is_fitted = |component: &&fpga_select::Component| matches!(component.basis, fpga_select::Basis::Fitted(_));
    Summary {
        predicted: count(|basis| matches!(basis, Basis::Predicted { .. })),
        derived: count(|basis| matches!(basis, Basis::Derived)),
        fitted: count(|basis| matches!(basis, Basis::Fitted)),
        independent_facts: rows.iter().filter_map(fact).collect::<BTreeSet<_>>().len(),
        fitted_values: components.iter().filter(is_fitted).count(),
    }
}

fn choose(ids: &[String]) -> Result<Vec<Row>> {
    let is_selected = |row: &Row, id: &String| {
        row.id.strip_prefix(id.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let all = rows::all();
    if let Some(unknown) = ids.iter().find(|id| !all.iter().any(|row| is_selected(row, id))) {
        return Err(Failure::usage(format!("unknown row {unknown:?}; bench optweb without --row prints all rows")));
    }
    Ok(all.into_iter().filter(|row| ids.is_empty() || ids.iter().any(|id| is_selected(row, id))).collect())
}

fn measure_row(lab: &mut Lab, quantity: &Quantity) -> Result<Value> {
    if let Quantity::Curve { collective, curve } = *quantity {
        return farthest_from(lab, collective, curve);
    }
    if let Quantity::StartUpBySize(collective) = *quantity {
        return worst_start_up(lab, collective);
    }
    Ok(Value { ours: measure_quantity(lab, quantity)?, at_bytes: None, published: None })
}

fn measure_quantity(lab: &mut Lab, quantity: &Quantity) -> Result<f64> {
    let small = |one| Case::new(one, SMALL);
    let large = |one| Case::new(one, LARGE);
    Ok(match *quantity {
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
                all.push(measure_quantity(lab, &Quantity::StartUpOfCards(cards))?);
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
        Quantity::Curve { .. } | Quantity::StartUpBySize(_) => f64::NAN,
    })
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
    let mut worst = Value { ours: f64::MIN, at_bytes: None, published: None };
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
    let mut farthest = Value { ours: f64::NAN, at_bytes: None, published: None };
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

fn printed(row: Row, value: &Value) -> PrintedRow {
    let published = row.published.or(value.published);
    let ours = rounded(value.ours);
    let difference = published.filter(|published| *published != 0.0).map(|right| 100.0 * (ours / right - 1.0));
    let (within, accept) = match row.accept {
        Accept::Percent(most) => (difference.is_some_and(|off| off.abs() <= most), format!("{most} %")),
        Accept::Between(low, high) if low == high => (ours == low, "exact".to_owned()),
        Accept::Between(low, high) => ((low..=high).contains(&ours), format!("{low} to {high}")),
        Accept::Below(limit) => (ours < limit, format!("below {limit}")),
        Accept::Anything => (true, "not published".to_owned()),
    };
    PrintedRow {
        id: row.id,
        what: row.what,
        unit: row.unit,
        published: published.map(rounded),
        ours,
        // Adding zero turns minus zero into zero.
        difference_percent: difference.map(|off| (off * 1e3).round() / 1e3 + 0.0),
        within,
        basis: match row.basis {
            Basis::Predicted { .. } => "predicted",
            Basis::Derived => "derived",
            Basis::Fitted => "fitted",
        },
        accept,
        at_bytes: value.at_bytes,
    }
}

fn text(printed: &Printed) -> String {
    let header = ["ROW", "UNIT", "PUBLISHED", "OURS", "DIFFERENCE", "ACCEPT", "WITHIN", "BASIS", "WHAT"];
    let mut table = vec![header.map(String::from).to_vec()];
    for row in &printed.rows {
        let at = row.at_bytes.map(|bytes| format!(" (at {})", size::show(bytes))).unwrap_or_default();
        table.push(vec![
            row.id.clone(),
            row.unit.to_owned(),
            row.published.map_or("-".to_owned(), figure),
            figure(row.ours),
            row.difference_percent.map_or("-".to_owned(), |off| format!("{:+.2} %", (off * 1e2).round() / 1e2 + 0.0)),
            row.accept.clone(),
            if row.within { "yes" } else { "NO" }.to_owned(),
            row.basis.to_owned(),
            format!("{}{at}", row.what),
        ]);
    }
    let mut text = format!("OPTWEB on mock cards, published and ours\n\n{}", output::table(&table));
    let Summary { predicted, derived, fitted, independent_facts, fitted_values } = printed.summary;
    text += &format!(
        "\n{predicted} rows predicted, of {independent_facts} independent facts; {derived} rows derived, sums or multiples of \
         fitted values; {fitted} rows fitted. The profile has {fitted_values} fitted values.\n"
    );
    text += "\nnot reproduced here:\n";
    printed.not_reproduced.iter().for_each(|line| text += &format!("  {line}\n"));
    if !printed.figures.is_empty() {
        text += "\ndrawn:\n";
        printed.figures.iter().for_each(|path| text += &format!("  {path}\n"));
    }
    text
}

/// Formats a value with four significant digits; a whole number keeps all digits.
fn figure(value: f64) -> String {
    let decimals =
        if value.fract() == 0.0 || value >= 1000.0 { 0 } else { (3 - value.abs().log10().floor() as i32).clamp(0, 6) };
    format!("{value:.*}", decimals.max(0) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_chosen_by_name_and_by_family() {
        let ids = |given: &str| choose(&[given.to_owned()]).map(|rows| rows.len());
        assert_eq!(ids("barrier/total"), Ok(1));
        assert_eq!(ids("barrier"), Ok(3));
        assert!(ids("barr").is_err());
    }

    #[test]
    fn figures_have_four_digits() {
        assert_eq!(figure(0.705), "0.7050");
        assert_eq!(figure(44.99871), "45.00");
        assert_eq!(figure(968.0), "968");
        assert_eq!(figure(0.0), "0");
    }
}

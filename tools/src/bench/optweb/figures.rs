//! Draws figures 10 to 15 and the Dragonfly sizes of the OPTWEB paper from measurements of the mock.

use std::path::Path;

use cmdseq::plan::Collective;

use super::super::chart::{self, Bars, Scale, Series, SizeChart};
use super::measure::{CARDS, Case, LARGE, Lab, SMALL, powers_of_two};
use super::rows::{BY_SIZE, Curve, EAGER, MOVING, RENDEZVOUS};
use crate::exit::Result;
use crate::topo::dragonflies;
use crate::units::gbps;

const FIGURES: [chart::Figure<Lab>; 7] = [
    ("figure-10.svg", link_bandwidth),
    ("figure-11.svg", bandwidth_over_size),
    ("figure-12.svg", start_up_by_operation),
    ("figure-13.svg", start_up_over_size),
    ("figure-14.svg", over_cards),
    ("figure-15.svg", multipath),
    ("dragonfly.svg", dragonfly),
];

/// Links per card of the paper's largest Dragonfly.
const DRAGONFLY_LINKS: u32 = 64;
/// Step between the numbers of groups in the table.
const DRAGONFLY_STEP: u32 = 3;

/// Draws the figures with these numbers, by default all, into `directory`, and returns their paths.
pub(super) fn draw(lab: &mut Lab, directory: &Path, numbers: &[u32]) -> Result<Vec<String>> {
    let is_selected =
        |name: &str| numbers.is_empty() || numbers.iter().any(|number| name == format!("figure-{number}.svg"));
    let selected: Vec<_> = FIGURES.into_iter().filter(|(name, _)| is_selected(name)).collect();
    chart::draw(lab, directory, &selected)
}

/// Returns a series with a point for every power of two up to `most`.
fn line(name: impl Into<String>, most: u64, mut y: impl FnMut(u64) -> Result<f64>) -> Result<Series> {
    let points = powers_of_two(most).map(|bytes| Ok((bytes as f64, y(bytes)?))).collect::<Result<_>>()?;
    Ok(Series { name: name.into(), points, is_dotted: false })
}

fn theory(name: &str, curve: Curve, most: u64) -> Result<Series> {
    Ok(Series { is_dotted: true, ..line(name, most, |bytes| Ok(curve.at(bytes)))? })
}

fn names(collectives: &[Collective]) -> Vec<String> {
    collectives.iter().map(|one| one.name().to_owned()).collect()
}

fn link_bandwidth(lab: &mut Lab, path: &Path) -> Result<()> {
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    for one in MOVING {
        let case = Case::new(one, LARGE);
        sent.push(gbps(LARGE, lab.measure(case)?.t1_us));
        received.push(lab.received_gbps(case)?);
    }
    let bars = Bars {
        title: "Effective link bandwidth at 128 MiB (figure 10), mock",
        x_label: "operation",
        y_label: "Gb/s, one link, one direction",
        y_top: 60.0,
        categories: names(&MOVING),
        parts: vec![("sent (T1)", sent), ("received (T2 - migration)", received)],
        is_stacked: false,
    };
    chart::file(path, &[&bars])
}

fn bandwidth_over_size(lab: &mut Lab, path: &Path) -> Result<()> {
    let mut lines = Vec::new();
    for one in BY_SIZE {
        lines.push(line(one.name(), LARGE, |bytes| lab.received_gbps(Case::new(one, bytes)))?);
    }
    lines.push(theory("n / (0.80 us + n / 45 Gb/s)", RENDEZVOUS, LARGE)?);
    let chart = SizeChart {
        title: "Effective bandwidth of a link against size (figure 11), mock",
        x_label: "size per link in one direction",
        y_label: "Gb/s, one link, one direction",
        y_scale: Scale::Linear,
        y_range: 0.0..60.0,
        lines,
    };
    chart::file(path, &[&chart])
}

fn start_up_by_operation(lab: &mut Lab, path: &Path) -> Result<()> {
    let barrier = lab.measure(Case::new(Collective::Barrier, 0))?;
    let mut categories = vec!["barrier".to_owned()];
    let mut configuration = vec![barrier.t1_us];
    let mut migration = vec![barrier.t2_us - barrier.t1_us];
    let cases = MOVING.map(|one| (one.name(), Case::new(one, SMALL)));
    let rendezvous = ("rendezvous", Case::new(Collective::Allgather, SMALL).rendezvous());
    for (name, case) in cases.into_iter().chain([rendezvous]) {
        let measured = lab.measure(case)?;
        categories.push(name.to_owned());
        configuration.push(measured.t1_us);
        migration.push(measured.migration_us());
    }
    let bars = Bars {
        title: "Start-up latency at 64 B (figure 12), mock; rendezvous is of allgather",
        x_label: "operation",
        y_label: "us",
        y_top: 1.1,
        categories,
        parts: vec![("configuration (T1)", configuration), ("migration", migration)],
        is_stacked: true,
    };
    chart::file(path, &[&bars])
}

fn start_up_over_size(lab: &mut Lab, path: &Path) -> Result<()> {
    let mut lines = Vec::new();
    for one in BY_SIZE {
        lines.push(line(one.name(), 1 << 20, |bytes| lab.start_up_us(Case::new(one, bytes)))?);
    }
    for (name, curve) in [("0.71 us (eager)", EAGER), ("0.80 us (rendezvous)", RENDEZVOUS)] {
        let flat = line(name, 1 << 20, |_| Ok(curve.start_up_us))?;
        lines.push(Series { is_dotted: true, ..flat });
    }
    let chart = SizeChart {
        title: "Start-up latency against size (figure 13), mock",
        x_label: "size per link in one direction",
        y_label: "us, reception - size / rate",
        y_scale: Scale::Linear,
        y_range: 0.0..1.4,
        lines,
    };
    chart::file(path, &[&chart])
}

fn over_cards(lab: &mut Lab, path: &Path) -> Result<()> {
    let (mut start_up, mut bandwidth) = (Vec::new(), Vec::new());
    for cards in 2..=CARDS {
        start_up.push(lab.measure(Case::new(Collective::Allgather, SMALL).with_cards(cards))?.start_up_us());
        bandwidth.push(lab.received_gbps(Case::new(Collective::Allgather, LARGE).with_cards(cards))?);
    }
    let bars = |title, y_label, y_top, name, values| Bars {
        title,
        x_label: "cards",
        y_label,
        y_top,
        categories: (2..=CARDS).map(|cards| cards.to_string()).collect(),
        parts: vec![(name, values)],
        is_stacked: false,
    };
    let title = "Start-up latency of allgather against cards (figure 14), mock";
    let upper = bars(title, "us", 1.0, "T1 + migration at 64 B", start_up);
    let title = "Bandwidth of allgather against cards (figure 14), mock";
    let lower = bars(title, "Gb/s, one link, one direction", 60.0, "received at 128 MiB", bandwidth);
    chart::file(path, &[&upper, &lower])
}

fn multipath(lab: &mut Lab, path: &Path) -> Result<()> {
    let direct = Case::new(Collective::Send, 0);
    let cases = [
        ("direct", direct),
        ("multipath, N = 4", direct.multipath()),
        ("multipath, N = 8", direct.with_cards(8).multipath()),
    ];
    let (mut times, mut rates) = (Vec::new(), Vec::new());
    for (name, case) in cases {
        times.push(line(name, LARGE, |bytes| Ok(lab.measure(Case { bytes, ..case })?.arrival_us))?);
        rates.push(line(name, LARGE, |bytes| Ok(gbps(bytes, lab.measure(Case { bytes, ..case })?.arrival_us)))?);
    }
    let upper = SizeChart {
        title: "Time of a send, end to end (figure 15a), mock",
        x_label: "size, end to end",
        y_label: "us",
        y_scale: Scale::Log,
        y_range: 0.1..100_000.0,
        lines: times,
    };
    let lower = SizeChart {
        title: "Bandwidth of a send, end to end (figure 15b), mock",
        x_label: "size, end to end",
        y_label: "Gb/s",
        y_scale: Scale::Linear,
        y_range: 0.0..200.0,
        lines: rates,
    };
    chart::file(path, &[&upper, &lower])
}

fn dragonfly(_: &mut Lab, path: &Path) -> Result<()> {
    let mut rows = vec![["groups g", "cards per group", "cards", "k >= 3(g - 1)"].map(String::from).to_vec()];
    rows.extend(dragonflies(DRAGONFLY_LINKS).iter().filter(|size| size.groups % DRAGONFLY_STEP == 1).map(|size| {
        let recommended = if size.recommended { "yes" } else { "no" };
        vec![size.groups.to_string(), size.group_size.to_string(), size.cards.to_string(), recommended.to_owned()]
    }));
    chart::table(path, "Dragonfly of cards with k = 64 links: g(k - g + 2) cards", 150, &rows)
}

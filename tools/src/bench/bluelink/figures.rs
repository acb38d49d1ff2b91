//! Draws figures 3 and 4 of the BlueLink paper from measurements of the mock, and tables I and II as published.

use std::path::Path;

use super::super::chart::{self, Figure, Scale, Series, SizeChart};
use super::area::{HEADER, TABLE_1_RELIABLE, TABLE_1_UNRELIABLE, TABLE_2};
use super::ethernet::Stack;
use super::measure::{Lab, Width, idle_ns};
use crate::exit::Result;

pub(super) const FIGURES: [Figure<Lab>; 4] =
    [("figure-3.svg", overhead), ("figure-4.svg", latency), ("table-1.svg", table_1), ("table-2.svg", table_2)];

/// Payloads of the figures, in steps of a flit.
const PAYLOADS: std::ops::RangeInclusive<u64> = 1..=16;
/// Bytes of a step.
const STEP: u64 = 8;
/// Width of a column of a table, in pixels.
const COLUMN: i32 = 210;

fn line(name: &str, is_dotted: bool, mut y: impl FnMut(u64) -> Result<f64>) -> Result<Series> {
    let points = PAYLOADS.map(|step| step * STEP).map(|bytes| Ok((bytes as f64, y(bytes)?)));
    Ok(Series { name: name.to_owned(), points: points.collect::<Result<_>>()?, is_dotted })
}

fn overhead(lab: &mut Lab, path: &Path) -> Result<()> {
    let share = |payload: u64, line_bits: f64| 100.0 * (1.0 - (payload * 8) as f64 / line_bits);
    let mut lines = Vec::new();
    for width in Width::ALL {
        lines.push(line(width.title(), false, |payload| Ok(share(payload, lab.line_bits(width, payload)?)))?);
    }
    for stack in Stack::ALL {
        lines.push(line(stack.title(), false, |payload| Ok(share(payload, stack.line_bits(payload))))?);
    }
    let chart = SizeChart {
        title: "Part of the line's bits that is no payload (figure 3), mock",
        x_label: "payload",
        y_label: "%",
        y_scale: Scale::Linear,
        y_range: 0.0..140.0,
        lines,
    };
    chart::file(path, &[&chart])
}

fn latency(lab: &mut Lab, path: &Path) -> Result<()> {
    let lines =
        vec![
            line("BlueLink, idle link", false, idle_ns)?,
            line("BlueLink, fully loaded link", false, |payload| lab.loaded_ns(payload))?,
            line("an Ethernet frame on the line alone", true, |payload| {
                Ok(Stack::Ethernet.line_bits(payload) / RATE_GBPS)
            })?,
        ];
    let chart = SizeChart {
        title: "Latency of a message on a link of 10 Gb/s (figure 4), mock",
        x_label: "payload",
        y_label: "ns",
        y_scale: Scale::Linear,
        y_range: 0.0..700.0,
        lines,
    };
    chart::file(path, &[&chart])
}

/// Rate on the line of 10GBASE-R (IEEE 802.3, clause 49), in bits a nanosecond.
const RATE_GBPS: f64 = 10.3125;

fn table_1(_: &mut Lab, path: &Path) -> Result<()> {
    let rule = |text| [text, "", "", "", ""];
    let lines = [rule("with reliable transmission")].into_iter().chain(TABLE_1_RELIABLE);
    let lines = lines.chain([rule("without")]).chain(TABLE_1_UNRELIABLE);
    table(path, "Area of interconnect cores, as published (table I)", lines)
}

fn table_2(_: &mut Lab, path: &Path) -> Result<()> {
    table(path, "Area on a Stratix V, as published (table II)", TABLE_2)
}

fn table(path: &Path, title: &str, lines: impl IntoIterator<Item = [&'static str; 5]>) -> Result<()> {
    let rows: Vec<Vec<String>> =
        [HEADER].into_iter().chain(lines).map(|line| line.map(String::from).to_vec()).collect();
    chart::table(path, title, COLUMN, &rows)
}

//! Draws the FFTs of Novo-G# beside the published ones, and the published tables of areas.

use std::path::Path;

use super::super::chart::{self, Bars};
use super::area::TABLES;
use super::fft::{SIDES, Setting};
use super::measure::Lab;
use super::rows::{Quantity, all};
use crate::exit::{Failure, Result};

/// Width of a column of a table, in pixels.
const COLUMN: i32 = 210;

/// Draws into `directory`, and returns the paths.
pub(super) fn draw(lab: &mut Lab, directory: &Path) -> Result<Vec<String>> {
    let mut paths = chart::draw(lab, directory, &[("ffts.svg", ffts)])?;
    for table in &TABLES {
        let path = directory.join(table.file);
        let rows: Vec<Vec<String>> =
            table.rows.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect();
        chart::table(&path, table.title, COLUMN, &rows)?;
        paths.push(path.display().to_string());
    }
    Ok(paths)
}

fn ffts(lab: &mut Lab, path: &Path) -> Result<()> {
    let setting = Setting::Conservative;
    let published = |side| {
        let row = all()
            .into_iter()
            .find(|row| matches!(row.quantity, Quantity::Fft(one, of) if (one, of) == (side, setting)));
        row.and_then(|row| row.published).ok_or_else(|| Failure::usage(format!("no row of {side} points a side")))
    };
    let bars = Bars {
        title: "3-D FFTs at 100 MHz, links of 500 ns (table 6.4), mock",
        x_label: "points a side",
        y_label: "us",
        y_top: 40.0,
        categories: SIDES.iter().map(u32::to_string).collect(),
        parts: vec![
            ("published", SIDES.into_iter().map(published).collect::<Result<_>>()?),
            ("mock", SIDES.into_iter().map(|side| lab.ffts.us(side, setting)).collect::<Result<_>>()?),
        ],
        is_stacked: false,
    };
    chart::file(path, &[&bars])
}

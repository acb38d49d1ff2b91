//! `fpgactl bench novo-g`: compares figures of Novo-G#'s links and routers with the mock.

mod area;
mod cloud;
mod dynamics;
mod fft;
mod figures;
mod measure;
mod rows;
mod wormhole;

use fpga_select::novog::Profile;
use fpga_select::novog::wormhole::WormholeProfile;

use super::comparison::{Comparison, Value, choose};
use crate::cli::{Cli, Novog};
use crate::exit::Result;
use rows::NOT_REPRODUCED;

pub(super) fn run(cli: &Cli, arguments: &Novog) -> Result<()> {
    let rows = choose(rows::all(), &arguments.rows)?;
    let components = [Profile::published().components(), WormholeProfile::published().components()].concat();
    let names = ("novo-g", "Novo-G# on mock cards");
    let mut improvements = wormhole::Improvements::default();
    let measure = |quantity: &rows::Quantity| measure::measure(*quantity, &mut improvements).map(Value::from);
    let mut comparison = Comparison::measure(names, &components, &NOT_REPRODUCED, rows, measure)?;
    if let Some(directory) = &arguments.svg {
        comparison.figures = figures::draw(directory)?;
    }
    comparison.print(cli, arguments.rows.check)
}

//! `fpgactl bench novo-g`: compares figures of Novo-G#'s links and statically scheduled routers with the mock.

mod measure;
mod rows;

use fpga_select::novog::Profile;

use super::comparison::{Comparison, Value, choose};
use crate::cli::{Cli, Novog};
use crate::exit::Result;
use rows::NOT_REPRODUCED;

pub(super) fn run(cli: &Cli, arguments: &Novog) -> Result<()> {
    let rows = choose(rows::all(), &arguments.rows)?;
    let components = Profile::published().components();
    let names = ("novo-g", "Novo-G# on mock cards");
    let measure = |quantity: &rows::Quantity| measure::measure(*quantity).map(Value::from);
    Comparison::measure(names, &components, &NOT_REPRODUCED, rows, measure)?.print(cli, arguments.rows.check)
}

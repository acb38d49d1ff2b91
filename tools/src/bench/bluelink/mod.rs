//! `fpgactl bench bluelink`: compares the figures of the BlueLink paper with the mock.

mod area;
mod ethernet;
mod figures;
mod measure;
mod rows;

use fpga_select::bluelink::Parameters;

use super::comparison::{Comparison, Value, choose};
use crate::cli::{Bluelink, Cli};
use crate::exit::{Exit, Failure, Result};
use area::NOT_REPRODUCED;
use measure::Lab;

pub(super) fn run(cli: &Cli, arguments: &Bluelink) -> Result<()> {
    let rows = choose(rows::all(), &arguments.rows)?;
    let mut lab = Lab::default();
    let components = Parameters::published().components();
    let names = ("bluelink", "BlueLink on mock boards");
    let mut comparison = Comparison::measure(names, &components, &NOT_REPRODUCED, rows, |quantity| {
        quantity.measure(&mut lab).map(Value::from)
    })?;
    if let Some(directory) = &arguments.svg {
        comparison.figures = figures::draw(&mut lab, directory)?;
    }
    comparison.print(cli, arguments.rows.check)
}

impl From<fpga_select::bluelink::FabricError> for Failure {
    fn from(error: fpga_select::bluelink::FabricError) -> Self {
        Failure::new(Exit::Failed, error.to_string())
    }
}

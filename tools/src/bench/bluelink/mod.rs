//! `fpgactl bench bluelink`: compares the figures of the BlueLink paper with the mock.

mod area;
mod ethernet;
mod figures;
mod measure;
mod rows;

use std::path::Path;

use fpga_select::bluelink::Parameters;

use super::chart;
use super::comparison::{PublishedSystem, Value};
use crate::cli::{Cli, Published};
use crate::exit::{Exit, Failure, Result};
use area::NOT_REPRODUCED;
use measure::Lab;
use rows::Quantity;

pub(super) fn run(cli: &Cli, arguments: &Published) -> Result<()> {
    let system = PublishedSystem {
        names: ("bluelink", "BlueLink on mock boards"),
        components: Parameters::published().components(),
        not_reproduced: &NOT_REPRODUCED,
        assumed: Vec::new(),
    };
    let measure = |lab: &mut Lab, quantity: &Quantity| quantity.measure(lab).map(Value::from);
    let draw = |lab: &mut Lab, directory: &Path| chart::draw(lab, directory, &figures::FIGURES);
    system.run(cli, arguments, (rows::all(), &mut Lab::default()), measure, draw)
}

impl From<fpga_select::bluelink::FabricError> for Failure {
    fn from(error: fpga_select::bluelink::FabricError) -> Self {
        Failure::new(Exit::Failed, error.to_string())
    }
}

//! `fpgactl bench mpi-fpga`: compares the figures of the MPI-FPGA paper with the mock.

mod estimate;
mod figures;
mod measure;
mod rows;

use std::path::Path;

use fpga_select::mpi_fpga::Profile;
use fpga_select::{Basis, Component};

use super::chart;
use super::comparison::{PublishedSystem, Value};
use crate::cli::{Cli, Published};
use crate::exit::Result;
use measure::Lab;
use rows::{NOT_REPRODUCED, Quantity};

pub(super) fn run(cli: &Cli, arguments: &Published) -> Result<()> {
    let components = Profile::published().components();
    let system = PublishedSystem {
        names: ("mpi-fpga", "MPI-FPGA on mock switches"),
        assumed: assumed(&components),
        components,
        not_reproduced: &NOT_REPRODUCED,
    };
    let measure = |lab: &mut Lab, quantity: &Quantity| quantity.measure(lab).map(Value::from);
    let draw = |lab: &mut Lab, directory: &Path| chart::draw(lab, directory, &figures::FIGURES);
    system.run(cli, arguments, (rows::all(), &mut Lab::default()), measure, draw)
}

/// What the rows assume, beside the components without a source.
const ASSUMED: [&str; 5] = [
    "CPU time of table 4, which has least and most: the middle of both",
    "time at 1 KB: average of the ranks; a rank that only sends is done when its data has left",
    "time at 1 MB: of the last rank, from the slope between two smaller sizes",
    "algorithms: of 1 KB the first form of table 1, of 1 MB the second; reduce and reduce_scatter by trees (6.2.1)",
    "ranks: in the order of the cards, dimension by dimension",
];

fn assumed(components: &[Component]) -> Vec<String> {
    let of_component = components.iter().filter_map(|one| match one.basis {
        Basis::Assumed(why) => Some(format!("{}: {} {} ({why})", one.name, one.value, one.unit).replace("  ", " ")),
        _ => None,
    });
    of_component.chain(ASSUMED.map(String::from)).collect()
}

//! `fpgactl bench mpi-fpga`: compares the figures of the MPI-FPGA paper with the mock.

mod estimate;
mod figures;
mod measure;
mod rows;

use fpga_select::Basis;
use fpga_select::mpi_fpga::Profile;

use super::comparison::{Comparison, Value, choose};
use crate::cli::{Cli, MpiFpga};
use crate::exit::Result;
use measure::Lab;
use rows::NOT_REPRODUCED;

pub(super) fn run(cli: &Cli, arguments: &MpiFpga) -> Result<()> {
    let rows = choose(rows::all(), &arguments.rows)?;
    let mut lab = Lab::default();
    let components = Profile::published().components();
    let names = ("mpi-fpga", "MPI-FPGA on mock switches");
    let mut comparison = Comparison::measure(names, &components, &NOT_REPRODUCED, rows, |quantity| {
        quantity.measure(&mut lab).map(Value::from)
    })?;
    comparison.assumed = assumed();
    if let Some(directory) = &arguments.svg {
        comparison.figures = figures::draw(&mut lab, directory)?;
    }
    comparison.print(cli, arguments.rows.check)
}

/// What the rows assume, beside the components without a source.
const ASSUMED: [&str; 5] = [
    "CPU time of table 4, which has least and most: the middle of both",
    "time at 1 KB: average of the ranks; a rank that only sends is done when its data has left",
    "time at 1 MB: of the last rank, from the slope between two smaller sizes",
    "algorithms: of 1 KB the first form of table 1, of 1 MB the second; reduce and reduce_scatter by trees (6.2.1)",
    "ranks: in the order of the cards, dimension by dimension",
];

fn assumed() -> Vec<String> {
    let components = Profile::published().components();
    let of_component = components.iter().filter_map(|one| match one.basis {
        Basis::Assumed(why) => Some(format!("{}: {} {} ({why})", one.name, one.value, one.unit).replace("  ", " ")),
        _ => None,
    });
    of_component.chain(ASSUMED.map(String::from)).collect()
}

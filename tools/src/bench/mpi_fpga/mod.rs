//! `fpgactl bench mpi-fpga`: compares the figures of the MPI-FPGA paper with the mock.

mod figures;
mod measure;
mod rows;

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
    if let Some(directory) = &arguments.svg {
        comparison.figures = figures::draw(&mut lab, directory)?;
    }
    comparison.print(cli, arguments.rows.check)
}

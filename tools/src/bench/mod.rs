//! `fpgactl bench`: collectives over sizes, published systems beside their mocks, and plans beside their bounds.

pub(crate) mod accesses;
mod bluelink;
pub(crate) mod chart;
mod circus;
pub(crate) mod coll;
pub(crate) mod comparison;
mod mpi_fpga;
mod novog;
mod optweb;
pub(crate) mod planner;

use crate::cli::{Cli, System};
use crate::exit::Result;

pub(crate) fn run(cli: &Cli, system: &System) -> Result<()> {
    match system {
        System::Coll(arguments) => coll::run(cli, arguments),
        System::Circus(arguments) => circus::run(cli, arguments),
        System::Optweb(arguments) => optweb::run(cli, arguments),
        System::Bluelink(arguments) => bluelink::run(cli, arguments),
        System::MpiFpga(arguments) => mpi_fpga::run(cli, arguments),
        System::Novog(arguments) => novog::run(cli, arguments),
        System::Planner(arguments) => planner::run(cli, arguments),
        System::Accesses => accesses::run(cli),
    }
}

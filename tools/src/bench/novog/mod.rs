//! `fpgactl bench novo-g`: compares figures of Novo-G#'s links and routers with the mock.

mod area;
mod cloud;
mod dynamics;
mod fft;
mod figures;
mod measure;
mod rows;
mod wormhole;

use std::path::Path;

use fpga_select::novog::Profile;
use fpga_select::novog::wormhole::WormholeProfile;

use super::comparison::{PublishedSystem, Value};
use crate::cli::{Cli, Published};
use crate::exit::Result;
use rows::{NOT_REPRODUCED, Quantity};
use wormhole::Improvements;

pub(super) fn run(cli: &Cli, arguments: &Published) -> Result<()> {
    let system = PublishedSystem {
        names: ("novo-g", "Novo-G# on mock cards"),
        components: [Profile::published().components(), WormholeProfile::published().components()].concat(),
        not_reproduced: &NOT_REPRODUCED,
        assumed: Vec::new(),
    };
    let measure = |improvements: &mut Improvements, quantity: &Quantity| {
        measure::measure(*quantity, improvements).map(Value::from)
    };
    let draw = |_: &mut Improvements, directory: &Path| figures::draw(directory);
    system.run(cli, arguments, (rows::all(), &mut Improvements::default()), measure, draw)
}

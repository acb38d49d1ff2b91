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

use super::comparison::{PublishedSystem, Value};
use crate::cli::{Cli, Published};
use crate::exit::Result;
use measure::Lab;
use rows::{NOT_REPRODUCED, Quantity};

pub(super) fn run(cli: &Cli, arguments: &Published) -> Result<()> {
    let system = PublishedSystem {
        names: ("novo-g", "Novo-G# on mock cards"),
        components: [Profile::published().components(), WormholeProfile::published().components()].concat(),
        not_reproduced: &NOT_REPRODUCED,
        assumed: Vec::new(),
    };
    let measure = |lab: &mut Lab, quantity: &Quantity| measure::measure(*quantity, lab).map(Value::from);
    system.run(cli, arguments, (rows::all(), &mut Lab::default()), measure, figures::draw)
}

//! `fpgactl calibrate`: measures latencies and bandwidths of a fabric and writes them to a file for plans.

use std::path::Path;

use cmdseq::calibration::Calibration;
use fpga_driver::calibrate;

use crate::atomic_file::AtomicFile;
use crate::calibration::File;
use crate::cards::{Cards, MOCK_NOTE};
use crate::cli::{self, Cli};
use crate::exit::{Failure, Result};
use crate::interrupt::Interrupt;
use crate::{input_file, output, progress};

/// Number of measurements, for the progress bar.
const STEPS: u64 = 6;

pub(crate) fn run(cli: &Cli, arguments: &cli::Calibrate) -> Result<()> {
    let interrupt = Interrupt::listen()?;
    input_file::check_outputs::<&Path, _>(&[], &[&arguments.output])?;
    let mut written = AtomicFile::create(&arguments.output)?;
    let mut cards = Cards::selected(cli)?;
    if cards.capabilities().topology.has_routers() {
        let cause =
            "cannot calibrate these cards: ways over routers share links, and no program tells how fast each link is";
        return Err(Failure::refused(cause));
    }
    let bar = progress::count(STEPS);
    let mut begin = |what: &str| {
        bar.set_message(what.to_owned());
        bar.inc(1);
    };
    let calibration = interrupt.end_at_once_during(|| calibrate(&mut cards.cluster, &mut begin))??;
    bar.finish_and_clear();
    let file = File::new(&calibration, &cards.selector, cards.kind.name(), cards.are_mock());
    written.append(output::json_text(&file)?.as_bytes())?;
    written.commit()?;
    output::print(cli.json, &file, || summary(&cards, &calibration, arguments))
}

fn summary(cards: &Cards, calibration: &Calibration, arguments: &cli::Calibrate) -> String {
    let measured = calibration.parameters.iter().map(|one| {
        let (name, stated) = (one.field.name.to_owned(), one.stated.to_string());
        let fit = format!("{} points, within {:.2} %", one.points, one.residual_percent);
        [name, stated, one.measured.to_string(), fit]
    });
    let stated = calibration.unmeasured.iter().map(|one| {
        let value = calibration.fabric.get(one.field.name).copied().unwrap_or(0).to_string();
        [one.field.name.to_owned(), value, "not measured".to_owned(), one.why.clone()]
    });
    let mut text = output::headed(["parameter", "stated", "measured", "fit"], measured.chain(stated));
    for ((from, to), mbps) in &calibration.links {
        text += &format!("link from {from} to {to}: {mbps} Mb/s\n");
    }
    if cards.are_mock() {
        text += MOCK_NOTE;
    }
    text + &format!("written: {}\n", arguments.output.display())
}

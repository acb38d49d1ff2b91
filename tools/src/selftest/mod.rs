//! `fpgactl selftest`: the first minutes with a card. Each part of it that this program knows is found and used once.

mod channels;
mod checks;
mod control;
mod engine;
mod exerciser;
mod msgdma;
mod readings;
mod sequencer;

use std::time::Duration;

use cmdseq::text::printable;
use fpga_hal::Function;
use fpga_select::{Kind, Selector};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::{self, Cli};
use crate::exit::{Exit, Failure, Result};
use crate::interrupt::{self, Interrupt};
use crate::selftest::checks::{Check, Checks, Failed};
use crate::{boards, cards, known, output, size};

#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed<'a> {
    schema: &'static str,
    selector: &'a str,
    kind: &'static str,
    mock: bool,
    checks: Vec<Check>,
}

pub(crate) fn run(cli: &Cli, arguments: &cli::Selftest) -> Result<()> {
    let selector = Selector::parse(&arguments.card)?;
    // As long as nothing was changed, a signal ends the command at once.
    let functions = cards::take_single(selector.open_cards(Duration::MAX)?)?;
    let interrupt = Interrupt::listen_until_ended()?;
    let function = &functions.data.clone();
    boards::check(function)?;
    let mut checks = Checks::new(&interrupt);
    checks.run("function", || identity(function));
    let has_engine = engine::test(&mut checks, function, &interrupt);
    let is_control = control::test(&mut checks, function);
    let has_engine = msgdma::test(&mut checks, function, &interrupt) || has_engine;
    readings::test(&mut checks, function);
    let has_exerciser = exerciser::test(&mut checks, function, &interrupt);
    let channels = channels::test(&mut checks, function, &interrupt);
    let sequencer = sequencer::test(&mut checks, functions);
    if !has_engine && !is_control && !has_exerciser && channels.is_none() && sequencer.is_none() {
        let parts = "no XDMA or mSGDMA engine, control function, host exerciser, channels or command sequencer";
        let found = format!("{parts}: nothing that this program can use");
        checks.run("parts", || Err::<String, _>(Failed::Other(found)));
    }
    // No socket leads to hardware.
    let mock = selector.kind() != Kind::Vfio || sequencer == Some(true) || channels == Some(true);
    let failed = checks.done.iter().filter(|check| !check.ok).count();
    let printed = Printed {
        schema: "fpgactl.selftest/1",
        selector: &arguments.card,
        kind: selector.kind().name(),
        mock,
        checks: checks.done,
    };
    interrupt::ending_at_once(|| output::print(cli.json, &printed, || text(&printed)))?;
    interrupt.check()?;
    match failed {
        0 => Ok(()),
        failed => Err(Failure::new(Exit::Failed, output::counted(failed as u64, "check", "checks") + " failed")),
    }
}

/// What the bus sees of the function.
fn identity(function: &Function) -> std::result::Result<String, fpga_hal::Error> {
    let identity = function.identity();
    let bar = |index: u8| {
        let layout = fpga_hal::BarIndex::new(index).and_then(|index| function.bar(index))?;
        Some(format!("BAR{index} {}", size::show(layout.bytes)))
    };
    let bars: Vec<String> = (0..6).filter_map(bar).collect();
    let vectors = function.vectors(fpga_hal::InterruptKind::Msix)?;
    let (vendor, device) = (identity.vendor, identity.device);
    let name = known::name_of(vendor, device).unwrap_or("unknown PCI ids");
    let reset = function.opening_reset();
    Ok(format!(
        "{vendor:04x}:{device:04x} ({name}), {}, {vectors} vectors, opened with reset: {reset}",
        bars.join(", ")
    ))
}

fn text(printed: &Printed<'_>) -> String {
    let row = |check: &Check| {
        let verdict = if check.ok { "ok" } else { "FAILED" };
        vec![check.id.to_owned(), verdict.to_owned(), printable(&check.found)]
    };
    let rows: Vec<Vec<String>> = printed.checks.iter().map(row).collect();
    let note = match printed.mock {
        true => "note: a mock card; rates are of this machine's memory, not of hardware\n",
        false => {
            "note: this program was written without a real card: what fails here may be its mistake (docs/boards.md)\n"
        }
    };
    output::table(&rows) + note
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn no_part_is_opened_after_a_signal() {
        let interrupt = Interrupt::default();
        interrupt.flag().store(true, Ordering::Relaxed);
        let mut checks = Checks::new(&interrupt);
        let card = |selector: &str| {
            cards::take_single(Selector::parse(selector).unwrap().open_cards(Duration::MAX).unwrap()).unwrap()
        };
        assert!(!engine::test(&mut checks, &card("mock:alveo-xdma:1/0").data, &interrupt));
        assert!(!msgdma::test(&mut checks, &card("mock:s10-pac:2/1").data, &interrupt));
        assert!(!control::test(&mut checks, &card("mock:s10-dfl:4/0.control").data));
        assert!(!exerciser::test(&mut checks, &card("mock:s10-dfl:4/0.he-lb").data, &interrupt));
        assert_eq!(sequencer::test(&mut checks, card("mock:s10-dfl:4/0")), None);
    }
}

//! Opens the cards that `--cards` selects.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cmdseq::Capabilities;
use cmdseq::plan::Plan;
use fpga_driver::{Card, CardFunctions, Cluster};
use fpga_hal::Function;
use fpga_hal::sysfs::PciFunction;
use fpga_select::{Fabric, Kind, Selection, Selector};

use crate::cli::Cli;
use crate::exit::{Failure, Result};
use crate::functions::{self, State};
use crate::interrupt;
use crate::known;
use crate::left_over;
use crate::sampler::Sampler;

/// Printed with all times of mock cards.
pub(crate) const MOCK_NOTE: &str = "note: mock cards; times are simulated, not measured on hardware\n";

/// Printed where mock cards change nothing outside of the command.
pub(crate) const MOCK_CARDS_NOTE: &str = "note: mock cards; they end with this command\n";

/// Returns the only function of a selection.
pub(crate) fn single(selection: &Selection) -> Result<&Function> {
    match selection.functions.as_slice() {
        [function] => Ok(function),
        several => Err(Failure::usage(format!("{} selects {} cards: select one", selection.selector, several.len()))),
    }
}

/// Takes the only card out of a selection, with its control function, if it has one of its own.
pub(crate) fn take_single(mut selection: Selection) -> Result<CardFunctions> {
    single(&selection)?;
    let card = selection.take_cards().pop();
    Ok(card.unwrap_or_else(|| unreachable!("there is one")).into())
}

/// Adds to `failure` what the shell of `card` reports.
pub(crate) fn with_shell_errors(failure: Failure, card: &Card) -> Failure {
    let with_one =
        |failure: Failure, reported| failure.with_help(&format!("the shell of {} reports {reported}", card.name()));
    card.shell_errors().unwrap_or_default().into_iter().fold(failure, with_one)
}

/// Opened cards of one fabric.
pub(crate) struct Cards {
    /// Dropped first: it reads the cards.
    sampler: Option<Sampler>,
    pub(crate) selector: String,
    pub(crate) kind: Kind,
    pub(crate) cluster: Cluster,
    /// The fabric of mock cards in this process.
    pub(crate) fabric: Option<Fabric>,
}

/// Returns the selector of `--cards`, or of the environment.
pub(crate) fn given(cli: &Cli) -> Result<Option<&str>> {
    let Some(cards) = &cli.cards else { return Ok(None) };
    let no_text = || format!("invalid selector {cards:?} in --cards or FPGACTL_CARDS: selectors are UTF-8");
    cards.to_str().map(Some).ok_or_else(|| Failure::usage(no_text()))
}

/// Returns the selector of `--cards`, else the default mock cards.
///
/// # Errors
/// A card is bound to VFIO and `--cards` is missing. The user could mistake results of mock cards for results of real
/// cards.
pub(crate) fn selector(cli: &Cli) -> Result<String> {
    if let Some(selector) = given(cli)? {
        return Ok(selector.to_owned());
    }
    let sysfs = functions::sysfs(cli);
    let functions = sysfs.functions_where(known::is_bound_card)?.functions;
    let named = |one: &PciFunction| format!("vfio:{} ({})", one.address, State::of(&sysfs, one).text());
    let bound: Vec<String> = functions.iter().map(named).collect();
    if bound.is_empty() {
        return Ok(fpga_select::DEFAULT.to_owned());
    }
    Err(Failure::usage(format!(
        "cards are bound to vfio-pci: select cards with --cards or FPGACTL_CARDS (available: {}); --cards {} selects mock \
         cards",
        bound.join(", "),
        fpga_select::DEFAULT
    )))
}

/// As [`selector`], with other default mock cards.
pub(crate) fn selector_or(cli: &Cli, default: &str) -> Result<String> {
    let selected = selector(cli)?;
    let is_default = cli.cards.is_none() && selected == fpga_select::DEFAULT;
    Ok(if is_default { default.to_owned() } else { selected })
}

/// Returns the error of a program whose number of ranks differs from the number of cards.
pub(crate) fn wrong_number(ranks: u32, cards: u32) -> Failure {
    let example = if (2..=64).contains(&ranks) { format!(", such as mock:optweb:{ranks}") } else { String::new() };
    Failure::refused(format!("program has {ranks} ranks, --cards selects {cards} cards: select {ranks}{example}"))
}

/// Names the kind of cards for tables; marks mock cards on any bus.
pub(crate) fn kind(kind: &str, is_mock: bool) -> String {
    if is_mock && kind != "mock" { format!("mock {kind}") } else { kind.to_owned() }
}

/// Publishes the counters of `cards` cards by the calls of `one`, unless the command line says `none`. Nobody may be watching: an
/// error is logged, and ends no command.
pub(crate) fn publish(cli: &Cli, cards: usize, mut one: impl FnMut(usize) -> std::io::Result<PathBuf>) {
    let directory = &cli.stats_dir;
    if directory == Path::new("none") {
        return;
    }
    if let Err(error) = fpga_driver::remove_gone_stats(directory) {
        return log::info!("Publishes no counters: {error}");
    }
    if let Some(error) = (0..cards).find_map(|index| left_over::make(|| one(index)).err()) {
        log::info!("Publishes no counters in {}: {error}", directory.display());
    }
}

impl Cards {
    /// Opens the cards that the command line selects.
    pub(crate) fn selected(cli: &Cli) -> Result<Self> {
        Cards::selected_within(cli, Duration::MAX)
    }

    /// As [`selected`](Self::selected), for a command with time limit `timeout`.
    pub(crate) fn selected_within(cli: &Cli, timeout: Duration) -> Result<Self> {
        Ok(Cards::open_within(&selector(cli)?, timeout)?.published(cli))
    }

    /// Takes the cards that this process has in a cluster of several.
    pub(crate) fn joined(cli: &Cli, selector: String, kind: Kind, cluster: Cluster) -> Self {
        Cards { sampler: None, selector, kind, cluster, fabric: None }.published(cli)
    }

    /// Publishes counters and sensors from now on.
    pub(crate) fn published(mut self, cli: &Cli) -> Self {
        let cluster = &mut self.cluster;
        publish(cli, cluster.cards().len(), |index| cluster.card_mut(index).publish(&cli.stats_dir));
        self.sampler = Sampler::start(self.cluster.cards());
        self
    }

    pub(crate) fn open(selector: &str) -> Result<Self> {
        Self::open_within(selector, Duration::MAX)
    }

    /// Opens cards for a command with time limit `timeout`. The limit also applies to a server that opens its card, but
    /// is at least a second. A signal meanwhile ends the command at once.
    pub(crate) fn open_within(selector: &str, timeout: Duration) -> Result<Self> {
        let selector = Selector::parse(selector)?;
        interrupt::ending_at_once(|| Cards::of(selector.open_cards(timeout.max(Duration::from_secs(1)))?))
    }

    /// Takes opened functions into use.
    pub(crate) fn of(mut selection: Selection) -> Result<Self> {
        let cluster = Cluster::open(selection.take_cards()).map_err(Failure::from)?;
        Ok(Cards {
            sampler: None,
            selector: selection.selector,
            kind: selection.kind,
            cluster,
            fabric: selection.fabric,
        })
    }

    /// Closes the cards. Their sensors are read no more: who reads those of a control function holds it, and letting go of it later
    /// would reset a card that another process has by then.
    pub(crate) fn close(self) -> Result<()> {
        drop(self.sampler);
        self.cluster.close().map_err(Failure::from)
    }

    /// Nodes of the cards in the fabric, by rank.
    pub(crate) fn nodes(&self) -> Vec<u32> {
        self.cluster.nodes()
    }

    /// Whether this process holds the card of `rank`.
    pub(crate) fn holds(&self, plan: &Plan, rank: u32) -> bool {
        plan.set.nodes.get(rank as usize).is_some_and(|node| self.cluster.holds(*node))
    }

    /// Whether any card is a mock, on any bus.
    pub(crate) fn are_mock(&self) -> bool {
        self.cluster.cards().iter().any(Card::is_mock)
    }

    /// Converts `error`, and adds the rank of the card that the error is about: its index among all cards.
    pub(crate) fn failure(&self, error: fpga_driver::Error) -> Failure {
        let cards = self.cluster.cards();
        // By node: processes on two hosts may have cards of the same name.
        let node = cards.iter().find(|card| error.is_about(card.name(), card.node())).map(Card::node);
        let rank = node.and_then(|node| self.nodes().iter().position(|one| *one == node));
        cards.iter().fold(Failure::from(error), with_shell_errors).or_of_rank(rank.map(|rank| rank as u32))
    }

    /// Converts `error` of a card that occurred in `phase`.
    pub(crate) fn failed(&self, phase: &str, error: fpga_driver::Error) -> Failure {
        self.failure(fpga_driver::in_phase(error, &self.nodes(), phase))
    }

    pub(crate) fn capabilities(&self) -> &Capabilities {
        self.cluster.capabilities()
    }
}

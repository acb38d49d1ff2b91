//! `fpgactl doctor`: checks the requirements of a card, each after those it depends on. Only reads, and opens no card.

mod checks;
mod finding;
mod iommu;
mod node;

use std::cell::LazyCell;

use fpga_hal::sysfs::Sysfs;
use fpga_select::{Kind, Part, Selector};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::{self, Cli};
use crate::exit::{Exit, Failure, Result};
use crate::unix_sockets::Table;
use crate::{address, cards, functions, known, output};

use finding::{Finding, Fix, SEQUENCER};

#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed {
    schema: &'static str,
    checks: Vec<Check>,
}

/// One check of one card.
#[derive(Debug, JsonSchema, Serialize)]
struct Check {
    card: String,
    id: &'static str,
    ok: bool,
    /// `ok`, `fail` or `unknown`.
    verdict: &'static str,
    found: String,
    cause: Option<String>,
    /// The fix.
    #[serde(rename = "mend")]
    fix: Option<String>,
    /// Who can apply the fix: `user` and `root` run a command, `hand` follows an instruction.
    by: Option<&'static str>,
    /// Side effect of the fix.
    cost: Option<String>,
}

pub(crate) fn run(cli: &Cli, arguments: &cli::Doctor) -> Result<()> {
    let sysfs = functions::sysfs(cli);
    let card = arguments.card.as_deref().map_or_else(|| cards::given(cli), |card| Ok(Some(card)))?;
    let checks = match card {
        Some(card) => examine(&sysfs, card)?,
        None => examine_all(&sysfs)?,
    };
    let bad = checks.iter().filter(|check| !check.ok).count();
    if cli.json {
        output::json(&Printed { schema: "fpgactl.doctor/1", checks })?;
    } else {
        output::text(&text(&checks))?;
    }
    match bad {
        0 => Ok(()),
        bad => Err(Failure::new(Exit::Failed, output::counted(bad as u64, "check", "checks") + " failed")),
    }
}

/// Examines all known cards, else the default cards.
fn examine_all(sysfs: &Sysfs) -> Result<Vec<Check>> {
    let listing = sysfs.functions_where(known::is_card)?;
    listing.unread.iter().for_each(|error| log::warn!("{error}"));
    if listing.functions.is_empty() {
        return examine(sysfs, fpga_select::DEFAULT);
    }
    Ok(listing.functions.iter().flat_map(|function| examine_function(sysfs, function)).collect())
}

fn examine(sysfs: &Sysfs, cards: &str) -> Result<Vec<Check>> {
    let selector = Selector::parse(cards)?;
    let mut checks = Vec::new();
    for address in selector.addresses() {
        checks.extend(examine_function(sysfs, &functions::find(sysfs, address)?));
    }
    let table = LazyCell::new(|| Table::read(sysfs.root()));
    for socket in selector.sockets() {
        let card = format!("vfio-user:{}", socket.display());
        checks.push(Check::new(&card, "socket", checks::socket(socket, &table)));
        checks.push(Check::new(&card, SEQUENCER, checks::unknown_until_opened(&card)));
    }
    let without_sequencer = match selector.kind() {
        Kind::Mock if selector.profile().is_none() => Some(("they model a DMA engine only", "mock:optweb:4")),
        Kind::Mock if selector.part() != Part::Card => {
            Some(("they are other functions of cards", "their cards, such as mock:s10-dfl:4,"))
        }
        _ => None,
    };
    if let Some((cause, other)) = without_sequencer {
        let finding = Finding::Bad {
            found: "no command sequencer on these mock cards".into(),
            cause: cause.into(),
            fix: Fix::Hand(format!("select {other} for collectives; fpgactl selftest tests these")),
        };
        checks.push(Check::new(cards, SEQUENCER, finding));
    } else if selector.profile().is_some() {
        let count = selector.nodes().len();
        let found = format!("{count} in-process mock cards, which have no requirements");
        checks.push(Check::new(cards, "mock", Finding::Good(found)));
        checks.push(Check::new(cards, SEQUENCER, Finding::Good("mock sequencer; its times are simulated".into())));
    }
    Ok(checks)
}

/// Adds to a failure to open cards the cause and fix of the first failed check.
pub(crate) fn with_fix(cli: &Cli, failure: Failure) -> Failure {
    if !failure.is_unopened() {
        return failure;
    }
    let sysfs = functions::sysfs(cli);
    let selector = cli.command.card().or_else(|| cards::given(cli).ok().flatten()).unwrap_or_default();
    let functions = selector.split(',').filter_map(address::in_selector).map(|address| sysfs.function(address));
    let mut checks = functions.filter_map(std::result::Result::ok).flat_map(|one| examine_function(&sysfs, &one));
    match checks.find(|check| !check.ok) {
        Some(Check { cause: Some(cause), fix: Some(fix), by, cost, .. }) => {
            let by = if by == Some("root") { "as root: " } else { "" };
            let cost = cost.map(|cost| format!(" ({cost})")).unwrap_or_default();
            failure.with_help(&format!("{cause}; {by}{fix}{cost}"))
        }
        _ => failure,
    }
}

fn examine_function(sysfs: &Sysfs, function: &fpga_hal::sysfs::PciFunction) -> Vec<Check> {
    let card = function.address.to_string();
    let examination = checks::Examination::new(sysfs, function);
    examination.all().into_iter().map(|(id, finding)| Check::new(&card, id, finding)).collect()
}

impl Check {
    fn new(card: &str, id: &'static str, finding: Finding) -> Self {
        let good = |verdict, found| {
            let card = card.to_owned();
            Check { card, id, ok: true, verdict, found, cause: None, fix: None, by: None, cost: None }
        };
        let bad = |found, cause, fix, cost| {
            let (fix, by) = match fix {
                Fix::User(command) => (command, "user"),
                Fix::Root(command) => (command, "root"),
                Fix::Hand(instruction) => (instruction, "hand"),
            };
            let (cause, fix, by) = (Some(cause), Some(fix), Some(by));
            Check { ok: false, cause, fix, by, cost, ..good("fail", found) }
        };
        match finding {
            Finding::Good(found) => good("ok", found),
            Finding::Unknown(why) => good("unknown", why),
            Finding::Bad { found, cause, fix } => bad(found, cause, fix, None),
            Finding::Costly { found, cause, fix, cost } => bad(found, cause, fix, Some(cost)),
        }
    }
}

fn text(checks: &[Check]) -> String {
    let width = checks.iter().map(|check| check.id.len()).max().unwrap_or(0);
    let mut text = String::new();
    for of_card in checks.chunk_by(|one, next| one.card == next.card) {
        let separator = if text.is_empty() { "" } else { "\n" };
        let card = of_card.first().map_or("", |check| check.card.as_str());
        text += &format!("{separator}{card}\n");
        for check in of_card {
            let verdict = match check.verdict {
                "unknown" => "?   ",
                "ok" => "ok  ",
                _ => "FAIL",
            };
            text += &format!("  {verdict}  {:<width$}  {}\n", check.id, check.found);
            let indent = " ".repeat(width + 10);
            if let Some(cause) = &check.cause {
                text += &format!("{indent}cause: {cause}\n");
            }
            if let (Some(fix), Some(by)) = (&check.fix, check.by) {
                let by = if by == "root" { " (as root)" } else { "" };
                text += &format!("{indent}fix{by}: {fix}\n");
            }
            if let Some(cost) = &check.cost {
                text += &format!("{indent}cost: {cost}\n");
            }
        }
    }
    let is_unknown = checks.iter().any(|check| check.id == SEQUENCER && check.verdict == "unknown");
    match checks.iter().filter(|check| !check.ok).count() {
        0 if is_unknown => text + "\nno problem found; only opening a card shows whether it has a sequencer\n",
        0 => text + "\nno problem found\n",
        1 => text + "\n1 problem\n",
        bad => text + &format!("\n{bad} problems; fix the first one first\n"),
    }
}

//! `fpgactl doctor`: what a card needs of the machine, checked in the order in which it is needed. Only reads, and opens
//! no card.

mod checks;
mod iommu;
mod node;

use fpga_hal::sysfs::Sysfs;
use fpga_select::Selector;
use serde::Serialize;

use crate::cli::{self, Cli, Command};
use crate::exit::{Exit, Failure, Result};
use crate::{functions, known, output};

#[derive(Serialize)]
struct Printed {
    schema: &'static str,
    checks: Vec<Check>,
}

/// One check of one card.
#[derive(Debug, Serialize)]
struct Check {
    card: String,
    id: &'static str,
    ok: bool,
    found: String,
    cause: Option<String>,
    /// What mends it.
    mend: Option<String>,
    /// Who can: `user` and `root` by running `mend` as a command, `hand` by doing what it says.
    by: Option<&'static str>,
}

/// What a check found.
#[derive(Debug, PartialEq, Eq)]
enum Finding {
    Good(String),
    Bad { found: String, cause: String, mend: Mend },
}

/// How what was found is mended.
#[derive(Debug, PartialEq, Eq)]
enum Mend {
    /// A command of this user.
    User(String),
    /// A command of root.
    Root(String),
    /// No command can.
    Hand(String),
}

pub(crate) fn run(cli: &Cli, arguments: &cli::Doctor) -> Result<()> {
    let sysfs = functions::sysfs(cli);
    let checks = match &arguments.card {
        Some(card) => examine(&sysfs, card)?,
        None if cli.cards != fpga_select::DEFAULT => examine(&sysfs, &cli.cards)?,
        None => examine_all(&sysfs, &cli.cards)?,
    };
    let bad = checks.iter().filter(|check| !check.ok).count();
    if cli.json {
        output::json(&Printed { schema: "fpgactl.doctor/1", checks })?;
    } else {
        output::write(text(&checks).as_bytes())?;
    }
    match bad {
        0 => Ok(()),
        1 => Err(Failure::new(Exit::Failed, "one check fails")),
        bad => Err(Failure::new(Exit::Failed, format!("{bad} checks fail"))),
    }
}

/// All cards that are known; without any, those that are used then.
fn examine_all(sysfs: &Sysfs, default: &str) -> Result<Vec<Check>> {
    let listing = sysfs.functions_where(known::is_card)?;
    listing.unread.iter().for_each(|error| log::warn!("{error}"));
    if listing.functions.is_empty() {
        return examine(sysfs, default);
    }
    Ok(listing.functions.iter().flat_map(|function| examine_function(sysfs, function)).collect())
}

fn examine(sysfs: &Sysfs, cards: &str) -> Result<Vec<Check>> {
    let selector = Selector::parse(cards)?;
    let mut checks = Vec::new();
    for address in selector.addresses() {
        checks.extend(examine_function(sysfs, &functions::find(sysfs, address)?));
    }
    for socket in selector.sockets() {
        let card = format!("vfio-user:{}", socket.display());
        checks.push(Check::new(&card, "socket", checks::socket(socket)));
    }
    if let Some(profile) = selector.profile() {
        let cards_of = profile.nodes;
        let found = format!("{cards_of} mock cards in the process that uses them: they need nothing of the machine");
        checks.push(Check::new(cards, "mock", Finding::Good(found)));
    }
    Ok(checks)
}

/// A failure to open the cards of `--cards`, with what mends the first thing that is wrong with them.
pub(crate) fn helped(cli: &Cli, failure: Failure) -> Failure {
    let is_opening = !matches!(
        cli.command,
        Command::List(_) | Command::Doctor(_) | Command::Bind(_) | Command::Unbind(_) | Command::Reset(_)
    );
    if failure.exit() != Exit::NoCard || !is_opening {
        return failure;
    }
    let sysfs = functions::sysfs(cli);
    let functions = cli.cards.split(',').filter_map(functions::address).map(|address| sysfs.function(address));
    let mut checks = functions.filter_map(std::result::Result::ok).flat_map(|one| examine_function(&sysfs, &one));
    match checks.find(|check| !check.ok) {
        Some(Check { cause: Some(cause), mend: Some(mend), by, .. }) => {
            let by = if by == Some("root") { "as root: " } else { "" };
            failure.with_help(&format!("{cause}; {by}{mend}"))
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
        let card = card.to_owned();
        match finding {
            Finding::Good(found) => Check { card, id, ok: true, found, cause: None, mend: None, by: None },
            Finding::Bad { found, cause, mend } => {
                let (mend, by) = match mend {
                    Mend::User(command) => (command, "user"),
                    Mend::Root(command) => (command, "root"),
                    Mend::Hand(what) => (what, "hand"),
                };
                Check { card, id, ok: false, found, cause: Some(cause), mend: Some(mend), by: Some(by) }
            }
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
            let verdict = if check.ok { "ok  " } else { "FAIL" };
            text += &format!("  {verdict}  {:<width$}  {}\n", check.id, check.found);
            let indent = " ".repeat(width + 10);
            if let Some(cause) = &check.cause {
                text += &format!("{indent}cause: {cause}\n");
            }
            if let (Some(mend), Some(by)) = (&check.mend, check.by) {
                let by = if by == "root" { " (as root)" } else { "" };
                text += &format!("{indent}mend{by}: {mend}\n");
            }
        }
    }
    match checks.iter().filter(|check| !check.ok).count() {
        0 => text + "\nnothing to mend\n",
        1 => text + "\none thing to mend\n",
        bad => text + &format!("\n{bad} things to mend, the first one first\n"),
    }
}

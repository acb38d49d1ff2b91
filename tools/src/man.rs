//! Man pages of all commands, from the command line's definition.

use std::path::Path;

use clap::CommandFactory as _;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::atomic_file;
use crate::cli::{Cli, ManPages};
use crate::exit::{Exit, Failure, Result};

/// Options of commands that open cards, which the help of each leaves out: they are on the page of the program.
const OF_ALL: [&str; 3] = ["stats_dir", "board", "board_dir"];

/// What the command's exit codes mean; docs/cli.md has examples of each.
const EXIT_CODES: [(u8, &str); 9] = [
    (0, "Success."),
    (Exit::Failed.code(), "The operation failed."),
    (Exit::Usage.code(), "The command line is invalid."),
    (Exit::Verification.code(), "The result is wrong, or a figure is outside of its tolerance."),
    (Exit::NoCard.code(), "A card or a file does not exist, or is not accessible."),
    (Exit::Timeout.code(), "A time limit expired."),
    (Exit::Gone.code(), "A card, a link, or the process of another rank is gone."),
    (Exit::Refused.code(), "Refused before launch; nothing was changed."),
    (Exit::Interrupted.code(), "Ended by Ctrl-C, SIGTERM or SIGHUP."),
];

const ENVIRONMENT: [(&str, &str); 7] = [
    ("FPGACTL_CARDS", "Cards to use, without --cards."),
    ("FPGACTL_CALIBRATION", "File of fpgactl-calibrate(1), without --calibration."),
    ("FPGACTL_STATS_DIR", "Directory of published counters, or none; else /dev/shm."),
    ("FPGACTL_BOARDS", "Directory of board files, without --board-dir; else /etc/fpga/boards.d."),
    ("FPGACTL_STATE_DIR", "Directory for the last image loaded into each card, without --state-dir."),
    ("NO_COLOR", "If it is not empty, fpgactl-top(1) uses no colours."),
    ("RUST_LOG", "Log level on stderr, such as debug."),
];

const FILES: [(&str, &str); 5] = [
    ("/etc/fpga/cards", "PCI ids of the cards that the group fpga may use."),
    ("/etc/fpga/bind.conf", "Cards to bind to vfio-pci at boot."),
    ("/dev/vfio/N", "Node of IOMMU group N."),
    ("/dev/shm/fpga-stats.PID.N", "Published counters of a card that process PID holds."),
    ("/run/fpgactl.lock", "Lock of bind, unbind and reset."),
];

/// Writes a page for each command into the directory: fpgactl.1, fpgactl-coll.1, fpgactl-bench-coll.1 and so on.
pub(crate) fn run(arguments: &ManPages) -> Result<()> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    std::fs::create_dir_all(&arguments.directory).map_err(|error| Failure::file(&arguments.directory, &error))?;
    write(&command, None, &arguments.directory)
}

/// Writes the pages of a command and of its subcommands. `above` is the name of the command that it is a subcommand of.
fn write(command: &clap::Command, above: Option<&str>, directory: &Path) -> Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let below: Vec<&clap::Command> = command.get_subcommands().filter(|one| !one.is_hide_set()).collect();
    let path = directory.join(format!("{name}.1"));
    let related = above.into_iter().chain(below.iter().filter_map(|one| one.get_display_name()));
    let shown = |arg: clap::Arg| {
        let is_shown = above.is_none() && OF_ALL.iter().any(|id| arg.get_id() == id);
        if is_shown { arg.hide(false) } else { arg }
    };
    let page = page(command.clone().mut_args(shown), &name, related).map_err(|error| Failure::file(&path, &error))?;
    atomic_file::write(&path, &page)?;
    below.into_iter().try_for_each(|one| write(one, Some(&name), directory))
}

fn page<'a>(
    mut command: clap::Command,
    name: &str,
    related: impl Iterator<Item = &'a str>,
) -> std::io::Result<Vec<u8>> {
    // The crate's title leaves out an empty date, and so shifts what follows it.
    let title =
        format!(".TH {} 1 \"\" \"fpgactl {}\" \"User Commands\"\n", name.to_uppercase(), env!("CARGO_PKG_VERSION"));
    let mut page = title.into_bytes();
    let has_subcommands = command.has_subcommands();
    let synopsis = synopsis(&mut command);
    let man = Man::new(command);
    man.render_name_section(&mut page)?;
    synopsis.to_writer(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if has_subcommands {
        man.render_subcommands_section(&mut page)?;
    }
    closing(related).to_writer(&mut page)?;
    Ok(page)
}

/// The usage lines of `--help`. The crate's own synopsis leaves out values, and `--` before a command.
fn synopsis(command: &mut clap::Command) -> Roff {
    let usage = command.render_usage().to_string();
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    for (index, line) in usage.trim_start_matches("Usage:").lines().enumerate() {
        if index > 0 {
            roff.control("br", []);
        }
        let rest = line.trim().strip_prefix(name).unwrap_or(line);
        roff.text([bold(name), roman(rest)]);
    }
    roff
}

/// The sections that all pages have.
fn closing<'a>(related: impl Iterator<Item = &'a str>) -> Roff {
    let mut roff = Roff::new();
    let mut section = |title: &str, rows: &mut dyn Iterator<Item = (String, &str)>| {
        roff.control("SH", [title]);
        for (term, text) in rows {
            roff.control("TP", []);
            roff.text([bold(term)]);
            roff.text([roman(text)]);
        }
    };
    section("EXIT STATUS", &mut EXIT_CODES.into_iter().map(|(code, text)| (code.to_string(), text)));
    section("ENVIRONMENT", &mut ENVIRONMENT.into_iter().map(|(name, text)| (name.to_owned(), text)));
    section("FILES", &mut FILES.into_iter().map(|(path, text)| (path.to_owned(), text)));
    roff.control("SH", ["SEE ALSO"]);
    let mut names: Vec<_> = related.map(|name| format!("{name}(1)")).collect();
    if names.is_empty() {
        names.push("fpgactl(1)".into());
    }
    roff.text([roman(names.join(", "))]);
    roff
}

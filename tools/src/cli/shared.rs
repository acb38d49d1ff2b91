//! Options that several commands have, or refuse.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, value_parser};

/// In place of the global option, for the help of commands that refuse it.
pub(super) fn no_cards() -> Arg {
    Arg::new("cards").long("cards").value_name("SELECTOR").value_parser(value_parser!(OsString)).hide(true)
}

/// The global option in the help of commands with another default.
pub(super) fn cards_default(default: &str) -> Arg {
    let help = format!("Cards to use, such as vfio:0000:3b:00.0 or mock:optweb:8 (docs/cli.md) [default: {default}]");
    no_cards().hide(false).env("FPGACTL_CARDS").hide_env_values(true).help(help)
}

/// The same of commands for Novo-G#.
pub(super) fn on_novo_g() -> Arg {
    cards_default("mock:novo-g:4x4x4 if no card is bound to vfio-pci")
}

/// As [`no_cards`], for --json.
pub(super) fn no_json() -> Arg {
    Arg::new("json").long("json").action(ArgAction::SetTrue).hide(true)
}

/// As [`no_cards`], for all options of commands that look at no machine.
pub(super) fn no_machine() -> [Arg; 4] {
    let directory = |id, long| Arg::new(id).long(long).value_parser(value_parser!(PathBuf)).hide(true);
    let board = Arg::new("board").long("board").hide(true);
    [no_cards(), board, directory("board_dir", "board-dir"), directory("sysfs_root", "sysfs-root")]
}

/// The global option in the help of commands that publish counters.
pub(super) fn publishes() -> Arg {
    stats_dir("Publish counters of opened cards in this directory, or `none` (docs/stats.md)")
}

/// The global option in the help of commands that read published counters.
pub(super) fn reads_published() -> Arg {
    stats_dir("Directory of published counters (docs/stats.md)")
}

fn stats_dir(help: &'static str) -> Arg {
    let arg = Arg::new("stats_dir").long("stats-dir").value_name("DIR").value_parser(value_parser!(PathBuf)).help(help);
    arg.env("FPGACTL_STATS_DIR").hide_env_values(true).default_value(STATS_DIRECTORY)
}

/// Default directory of published counters.
pub(super) const STATS_DIRECTORY: &str = "/dev/shm";

/// Parses the name of one of `all`.
pub(super) fn one_of<T>(all: &'static [T], name: fn(T) -> &'static str) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync,
{
    let names: Vec<_> = all.iter().map(|one| name(*one)).collect();
    let parse = move |text: String| all.iter().copied().find(|one| name(*one) == text).ok_or("unknown name");
    PossibleValuesParser::new(names).try_map(parse)
}

//! Refuses options without effect: an ignored option hides a mistake.

use std::ffi::OsStr;

use clap::ArgMatches;
use clap::parser::ValueSource;
use cmdseq::plan::Collective;

use crate::cli::{self, Cli, Command};
use crate::exit::{Failure, Result};

/// Options without effect, by id, with the reason.
type Rules = Vec<(&'static str, String)>;

/// Refuses options without effect on the command line; ignores those from the environment.
pub(crate) fn check(cli: &Cli, matches: &ArgMatches) -> Result<()> {
    let mut levels = vec![matches];
    while let Some((_, next)) = levels.last().and_then(|level| level.subcommand()) {
        levels.push(next);
    }
    let is_given = |id: &str| {
        let has = |level: &&ArgMatches| level.ids().any(|one| one.as_str() == id);
        levels.iter().filter(|level| has(level)).any(|level| level.value_source(id) == Some(ValueSource::CommandLine))
    };
    match rules(cli).into_iter().find(|(id, _)| is_given(id)) {
        Some((id, why)) => Err(Failure::usage(format!("--{} has no effect: {why}", id.replace('_', "-")))),
        None => Ok(()),
    }
}

/// Whether the option `id` has no effect on this command.
pub(crate) fn has_no_effect(cli: &Cli, id: &str) -> bool {
    rules(cli).iter().any(|(one, _)| *one == id)
}

/// Options of a command that looks at no machine.
fn no_machine(why: &str) -> Rules {
    [no_boards(why), ["cards", "sysfs_root"].map(|id| (id, why.to_owned())).to_vec()].concat()
}

/// Options of a command that uses no board file.
fn no_boards(why: &str) -> Rules {
    ["board", "board_dir"].map(|id| (id, why.to_owned())).to_vec()
}

fn no_function() -> Rules {
    no_boards("the command opens no function")
}

/// Whether a command publishes counters of the cards that it opens, or reads published ones.
fn has_counters(command: &Command) -> bool {
    matches!(
        command,
        Command::Coll(_)
            | Command::Plan(_)
            | Command::Calibrate(_)
            | Command::Lint(_)
            | Command::Run(_)
            | Command::Bench { system: cli::System::Coll(_) }
            | Command::Top(_)
            | Command::Stats(_)
            | Command::Metrics(_)
            | Command::Pipe(_)
            | Command::Topo(cli::Topo { dragonfly: None })
            | Command::Fft3d(_)
    )
}

fn rules(cli: &Cli) -> Rules {
    let mut rules = of_command(cli);
    if !has_counters(&cli.command) {
        rules.push(("stats_dir", "the command publishes no counters".to_owned()));
    }
    rules
}

fn of_command(cli: &Cli) -> Rules {
    let no_cards = |why: &str| vec![("cards", why.to_owned())];
    match &cli.command {
        Command::List(_) => {
            let all = cli.cards.iter().map(|_| ("all", "--cards or FPGACTL_CARDS selects the cards".to_owned()));
            no_function().into_iter().chain(all).collect()
        }
        Command::Info(cli::Info { address: Some(_) }) => {
            [no_function(), no_cards("ADDRESS selects the function")].concat()
        }
        Command::Doctor(cli::Doctor { card: Some(_) }) => [no_function(), no_cards("CARD selects the card")].concat(),
        Command::Doctor(_) => no_function(),
        Command::Bind(_) | Command::Unbind(_) => [no_function(), no_cards("ADDRESS selects the functions")].concat(),
        Command::Reset(arguments) => [no_cards("CARD selects the card"), of_reset(arguments)].concat(),
        Command::Reg(_)
        | Command::Mem { .. }
        | Command::Selftest(_)
        | Command::Image { command: cli::Image::Inspect(cli::ImageInspect { card: Some(_), .. }) } => {
            no_cards("SELECTOR selects the card")
        }
        Command::Image {
            command: cli::Image::Load(cli::ImageLoad { card, .. }) | cli::Image::Recover(cli::ImageRecover { card, .. }),
        } => {
            let mut rules = no_cards("SELECTOR selects the card");
            if card.starts_with("mock:") {
                rules.push(("state_dir", "mock cards end with the command".to_owned()));
                rules.push(("port", "a mock card in this process has no port above it".to_owned()));
            }
            rules
        }
        Command::Coll(arguments) => of_coll(arguments),
        Command::Plan(arguments) => of_operation(arguments.operation.terms.collective),
        Command::Asm(_)
        | Command::Disasm(_)
        | Command::Channel { command: cli::Channel::Check(_) | cli::Channel::Generate(_) }
        | Command::Route { command: cli::Route::Compile(_) | cli::Route::Verify(_) }
        | Command::Route { command: cli::Route::Show(cli::RouteShow { file: Some(_), .. }) }
        | Command::Image { command: cli::Image::Inspect(cli::ImageInspect { card: None, .. }) }
        | Command::Mock { command: cli::Mock::Image(_) } => no_machine("the command uses no card"),
        Command::Fft3d(cli::Fft3d { input: Some(_), .. }) => vec![("seed", "the data comes from --input".to_owned())],
        Command::Tune(arguments) => [no_machine("the command uses no card"), of_traffic(&arguments.traffic)].concat(),
        Command::Run(arguments) => of_run(arguments),
        Command::Bench { system } => of_bench(system),
        Command::Top(_) => {
            let json = ("json", "use `fpgactl stats --json`, with --watch for rates".to_owned());
            [no_machine("the command opens no card"), vec![json]].concat()
        }
        Command::Stats(arguments) => {
            let directory = (!arguments.files.is_empty()).then(|| ("stats_dir", "FILE names the files".to_owned()));
            no_machine("the command opens no card").into_iter().chain(directory).collect()
        }
        Command::Metrics(_) => no_machine("the command opens no card"),
        Command::Topo(cli::Topo { dragonfly: Some(_) }) => no_machine("--dragonfly uses no card"),
        Command::Mock { command: cli::Mock::Serve(arguments) } => {
            let mut rules = no_machine("SELECTOR selects the fabric");
            if !arguments.command.is_empty() {
                rules.push(("json", "the output is that of COMMAND".to_owned()));
            }
            rules
        }
        Command::Schema(arguments) => {
            let mut rules = no_machine("the command uses no card");
            if arguments.name.is_some() {
                rules.push(("json", "a JSON Schema is JSON".to_owned()));
            }
            rules
        }
        Command::Completions { .. } => {
            let why = "the command prints a script and uses no card";
            [no_machine(why), vec![("json", why.to_owned())]].concat()
        }
        Command::ManPages(_) => {
            let why = "the command writes man pages and uses no card";
            [no_machine(why), vec![("json", why.to_owned())]].concat()
        }
        _ => Rules::new(),
    }
}

fn of_reset(arguments: &cli::Reset) -> Rules {
    let mut rules = Rules::new();
    if !arguments.errors {
        rules.extend(no_boards("without --errors the command reads no block of the card"));
    }
    if crate::address::in_selector(&arguments.card).is_none() {
        rules.push(("force", "it applies to a PCI address, not to a selector".to_owned()));
    } else if arguments.errors {
        rules.push(("force", "with --errors the function is opened, which fails if it is in use".to_owned()));
    }
    rules
}

fn of_traffic(traffic: &cli::Traffic) -> Rules {
    let cli::Traffic::Trace(path) = traffic else { return Rules::new() };
    let why = format!("the trace {} has it", path.display());
    ["shape", "load", "flits", "packets"].map(|id| (id, why.clone())).to_vec()
}

fn of_coll(arguments: &cli::Coll) -> Rules {
    let collective = arguments.operation.terms.collective;
    let mut rules = of_operation(collective);
    if collective == Collective::Barrier {
        rules.extend(["seed", "input", "output"].map(|id| (id, "a barrier moves no data".to_owned())));
    }
    if !arguments.input.is_empty() {
        rules.push(("seed", "the data comes from --input".to_owned()));
    }
    rules
}

fn of_bench(system: &cli::System) -> Rules {
    match system {
        cli::System::Coll(arguments) => {
            let collective = arguments.terms.collective;
            let mut rules = of_operation(collective);
            if collective == Collective::Barrier {
                rules.extend(["begin", "end", "factor", "seed"].map(|id| (id, "a barrier moves no data".to_owned())));
                rules.push(("svg", "a barrier has no sizes".to_owned()));
            }
            rules
        }
        cli::System::Planner(_) | cli::System::Accesses => Rules::new(),
        _ => no_machine("the command opens its own mock fabrics"),
    }
}

fn of_operation(collective: Collective) -> Rules {
    let mut rules = Rules::new();
    if collective == Collective::Barrier {
        rules.extend(["bytes", "dtype", "eager_limit"].map(|id| (id, "a barrier moves no data".to_owned())));
    }
    if !collective.has_root() {
        rules.push(("root", format!("{collective} has no root")));
    }
    if !matches!(collective, Collective::Send | Collective::Recv) {
        rules.push(("peer", format!("{collective} has no peer; send and recv have one")));
    }
    if !collective.reduces() {
        rules.extend(["op", "order"].map(|id| (id, format!("{collective} is not a reduction"))));
    }
    if !collective.has_counts() {
        rules.push(("counts", format!("all blocks of {collective} have one size; use --bytes")));
    }
    rules
}

fn of_run(arguments: &cli::Run) -> Rules {
    let has_extension = |path: &std::path::Path, extension| path.extension() == Some(OsStr::new(extension));
    let mut rules = Rules::new();
    if !has_extension(&arguments.file, "seq") {
        rules.push(("root", "a binary includes no files".to_owned()));
    }
    if !arguments.dump.iter().any(|dump| has_extension(&dump.path, "npy")) {
        rules.push(("dtype", "no .npy file is written".to_owned()));
    }
    rules
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{CommandFactory as _, FromArgMatches as _};

    use super::*;

    /// A command line of each command, which refuses no option of cards that another one of the command accepts.
    const LINES: &str = "\
        list
        info
        doctor
        bind 3b:00.0
        unbind 3b:00.0
        reset x
        reg x CLOCK_KHZ
        mem read x 0 1
        mem write x 0 f
        mem fill x 0 1 0
        mem test x 0 1
        selftest x
        coll barrier
        plan barrier
        calibrate --output f
        asm f
        disasm f
        lint f
        run f
        bench coll barrier
        bench optweb
        bench circus
        bench bluelink
        bench mpi-fpga
        bench novo-g
        bench planner
        bench accesses
        top
        stats
        metrics --textfile f
        pipe
        topo
        channel check f
        channel generate f --output d
        channel load f
        route compile f --output f
        route verify f
        route load f
        route show
        tune cube
        fft3d
        image inspect f
        image load f x
        image recover x
        mock serve --socket-dir d
        mock image --output f
        schema
        completions bash
        man-pages d";

    /// Names of all commands without commands below them.
    fn leaves(command: &clap::Command, path: &str, all: &mut BTreeSet<String>) {
        let path = format!("{path} {}", command.get_name());
        let mut below = command.get_subcommands().filter(|one| one.get_name() != "help").peekable();
        if below.peek().is_none() {
            all.insert(path);
        } else {
            below.for_each(|one| leaves(one, &path, all));
        }
    }

    #[test]
    fn help_shows_the_options_that_a_command_accepts() {
        let mut all = Cli::command();
        all.build();
        let mut missing = BTreeSet::new();
        leaves(&all, "", &mut missing);
        for line in LINES.lines() {
            let words = || ["fpgactl"].into_iter().chain(line.split_whitespace());
            let matches = all.clone().try_get_matches_from(words()).unwrap_or_else(|error| panic!("{line}: {error}"));
            let refused: BTreeSet<_> =
                rules(&Cli::from_arg_matches(&matches).unwrap()).into_iter().map(|one| one.0).collect();
            let (mut command, mut path) = (&all, String::new());
            for word in words() {
                command = command.find_subcommand(word).unwrap_or(command);
                path = if path.ends_with(command.get_name()) { path } else { format!("{path} {}", command.get_name()) };
            }
            assert!(missing.remove(&path), "{line}: {path}");
            let is_shown = |id: &str| command.get_arguments().any(|arg| arg.get_id() == id && !arg.is_hide_set());
            for id in ["cards", "stats_dir"] {
                assert_eq!(is_shown(id), !refused.contains(id), "{line}: {id}");
            }
        }
        assert!(missing.is_empty(), "{missing:?}");
    }
}

//! `fpgactl`: load, launch and measure collectives on FPGA cards, real or mock.
#![forbid(unsafe_code)]

mod address;
mod ahead;
mod asm;
mod atomic_file;
mod bench;
mod bind;
mod boards;
mod calibrate;
mod calibration;
mod cards;
mod channel;
mod channel_generate;
mod channel_info;
mod channel_load;
mod check;
mod cli;
mod coll;
mod collective;
mod completions;
mod control_info;
mod data;
mod disasm;
mod doctor;
mod exit;
mod expect;
mod fft3d;
mod fold;
mod function_info;
mod functions;
mod host_memory;
mod image;
mod ineffective;
mod info;
mod input_file;
mod interrupt;
mod known;
mod left_over;
mod lint;
mod list;
mod man;
mod meeting;
mod mem;
mod metrics;
mod npy;
mod number;
mod output;
mod pipe;
mod plan;
mod processes;
mod progress;
mod readings;
mod reg;
mod request;
mod route;
mod run_persistent;
mod run_program;
mod sampler;
mod schema;
mod selftest;
mod serve;
mod served_command;
mod size;
mod source;
mod stats;
mod top;
mod topo;
mod tracing;
mod tune;
mod units;
mod unix_sockets;
mod verification;

use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};
use cli::{Channel, Cli, Command, Image, Mock};
use cmdseq::text::{is_harmful, printable, printable_lines};
use exit::{Failure, Result};

fn main() -> ExitCode {
    let parsed = with_own_rules(Cli::command())
        .try_get_matches()
        .and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) if error.use_stderr() && wants_json() => {
            return Failure::usage(one_line(&error.to_string())).report(true);
        }
        Err(error) => {
            let printed = print(&error).and_then(|()| std::io::stdout().flush());
            return match printed {
                Err(failed) if !error.use_stderr() && failed.kind() != ErrorKind::BrokenPipe => {
                    output::failed(&failed).report(wants_json())
                }
                _ => ExitCode::from(error.exit_code() as u8),
            };
        }
    };
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(logged(&cli))).format(log_line).init();
    let started = interrupt::start(cli.json).and_then(|()| ineffective::check(&cli, &matches));
    match started.and_then(|()| run(&cli)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => interrupt::report(&doctor::with_fix(&cli, failure), cli.json),
    }
}

/// Prints help, or an error of the command line, which names what the user has typed.
fn print(error: &clap::Error) -> std::io::Result<()> {
    let is_harmless = |word: std::ffi::OsString| !word.to_string_lossy().contains(is_harmful);
    if std::env::args_os().all(is_harmless) {
        return error.print();
    }
    // Without colours, which are control characters.
    let plain = printable_lines(&error.render().to_string());
    if error.use_stderr() { write!(std::io::stderr(), "{plain}") } else { write!(std::io::stdout(), "{plain}") }
}

/// Writes a line of the log. Names in it may be others'.
fn log_line(out: &mut env_logger::fmt::Formatter, record: &log::Record<'_>) -> std::io::Result<()> {
    let (level, target) = (record.level(), record.target());
    writeln!(out, "[{level:<5} {target}] {}", printable(&record.args().to_string()))
}

/// What is logged unless the environment says otherwise. Commands report their own errors.
fn logged(cli: &Cli) -> &'static str {
    match cli.command {
        // A server warns of its clients.
        Command::Mock { .. } => "warn",
        // Errors are one object.
        _ if cli.json => "error",
        // The reason why a server was left, after which its card is gone.
        _ => "error,fpga_hal::vfio_user::client=warn",
    }
}

/// Lets an empty variable of the environment count as unset, which clap would take for a value, and a value be a negative number, so
/// that its own parser refuses it: clap would take `-1` for an option.
fn with_own_rules(command: clap::Command) -> clap::Command {
    let ruled = |arg: clap::Arg| {
        let is_empty = arg.get_env().and_then(std::env::var_os).is_some_and(|value| value.is_empty());
        let arg = if is_empty { arg.env(None::<&'static str>) } else { arg };
        let takes_values = arg.get_action().takes_values();
        arg.allow_negative_numbers(takes_values)
    };
    command.mut_args(ruled).mut_subcommands(with_own_rules)
}

/// Whether a command line that clap refuses has `--json`. Words after `--` are no options.
fn wants_json() -> bool {
    std::env::args_os().take_while(|word| word != "--").any(|word| word == "--json")
}

/// Shortens clap's usage error to its first paragraph, on one line.
fn one_line(text: &str) -> String {
    let lines = text.trim_start_matches("error: ").lines().map(str::trim).take_while(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" ")
}

fn run(cli: &Cli) -> Result<()> {
    boards::read(cli)?;
    match &cli.command {
        Command::List(arguments) => list::run(cli, arguments),
        Command::Info(cli::Info { address: Some(address) }) => function_info::run(cli, *address),
        Command::Info(_) => info::run(cli),
        Command::Doctor(arguments) => doctor::run(cli, arguments),
        Command::Bind(arguments) => bind::bind(cli, arguments),
        Command::Unbind(arguments) => bind::unbind(cli, arguments),
        Command::Reset(arguments) => bind::reset(cli, arguments),
        Command::Reg(arguments) => reg::run(cli, arguments),
        Command::Mem { command } => mem::run(cli, command),
        Command::Selftest(arguments) => selftest::run(cli, arguments),
        Command::Coll(arguments) => coll::run(cli, arguments),
        Command::Plan(arguments) => plan::run(cli, arguments),
        Command::Calibrate(arguments) => calibrate::run(cli, arguments),
        Command::Asm(arguments) => asm::run(cli, arguments),
        Command::Disasm(arguments) => disasm::run(cli, arguments),
        Command::Lint(arguments) => lint::run(cli, arguments),
        Command::Run(arguments) => run_program::run(cli, arguments),
        Command::Bench { system } => bench::run(cli, system),
        Command::Top(arguments) => top::run(cli, arguments),
        Command::Stats(arguments) => stats::run(cli, arguments),
        Command::Metrics(arguments) => metrics::run(cli, arguments),
        Command::Pipe(arguments) => pipe::run(cli, arguments),
        Command::Topo(arguments) => topo::run(cli, arguments),
        Command::Channel { command: Channel::Check(arguments) } => channel::check(cli, arguments),
        Command::Channel { command: Channel::Load(arguments) } => channel_load::load(cli, arguments),
        Command::Channel { command: Channel::Generate(arguments) } => channel_generate::run(cli, arguments),
        Command::Route { command } => route::run(cli, command),
        Command::Tune(arguments) => tune::run(cli, arguments),
        Command::Fft3d(arguments) => fft3d::run(cli, arguments),
        Command::Image { command: Image::Inspect(arguments) } => image::inspect::run(cli, arguments),
        Command::Image { command: Image::Load(arguments) } => image::load::run(cli, arguments),
        Command::Image { command: Image::Recover(arguments) } => image::recover::run(cli, arguments),
        Command::Mock { command: Mock::Serve(arguments) } => serve::run(cli, arguments),
        Command::Mock { command: Mock::Image(arguments) } => image::mock::run(cli, arguments),
        Command::Schema(arguments) => schema::run(cli, arguments),
        Command::Completions { shell } => output::write(&completions::script(*shell)),
        Command::ManPages(arguments) => man::run(arguments),
    }
}

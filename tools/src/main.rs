//! `fpgactl`: load, launch and measure collectives on FPGA cards, real or mock.
#![forbid(unsafe_code)]

mod asm;
mod bench;
mod bind;
mod calibrate;
mod calibration;
mod cards;
mod check;
mod cli;
mod coll;
mod data;
mod disasm;
mod doctor;
mod exit;
mod expect;
mod fold;
mod function_info;
mod functions;
mod host_memory;
mod info;
mod interrupt;
mod known;
mod lint;
mod list;
mod npy;
mod output;
mod plan;
mod progress;
mod reg;
mod request;
mod run_persistent;
mod run_program;
mod serve;
mod size;
mod source;
mod topo;
mod units;
mod verification;
mod whole_file;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};
use cli::{Cli, Command, Mock};
use exit::{Failure, Result};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && std::env::args_os().any(|argument| argument == "--json") => {
            return Failure::usage(first_paragraph(&error.to_string())).report(true);
        }
        Err(error) => error.exit(),
    };
    // A server logs what its clients do; other commands report what fails themselves.
    let level = if matches!(cli.command, Command::Mock { .. }) { "warn" } else { "error" };
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(level)).init();
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => doctor::helped(&cli, failure).report(cli.json),
    }
}

/// A usage error without its decoration and without the hints for people.
fn first_paragraph(text: &str) -> String {
    let lines = text.trim_start_matches("error: ").lines().map(str::trim).take_while(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" ")
}

fn run(cli: &Cli) -> Result<()> {
    match &cli.command {
        Command::List(arguments) => list::run(cli, arguments),
        Command::Info(cli::Info { address: Some(address) }) => function_info::run(cli, *address),
        Command::Info(_) => info::run(cli),
        Command::Doctor(arguments) => doctor::run(cli, arguments),
        Command::Bind(arguments) => bind::bind(cli, arguments),
        Command::Unbind(arguments) => bind::unbind(cli, arguments),
        Command::Reset(arguments) => bind::reset(cli, arguments),
        Command::Reg(arguments) => reg::run(cli, arguments),
        Command::Coll(arguments) => coll::run(cli, arguments),
        Command::Plan(arguments) => plan::run(cli, arguments),
        Command::Calibrate(arguments) => calibrate::run(cli, arguments),
        Command::Asm(arguments) => asm::run(cli, arguments),
        Command::Disasm(arguments) => disasm::run(cli, arguments),
        Command::Lint(arguments) => lint::run(cli, arguments),
        Command::Run(arguments) => run_program::run(cli, arguments),
        Command::Bench(arguments) => bench::run(cli, arguments),
        Command::Topo(arguments) => topo::run(cli, arguments),
        Command::Mock { command: Mock::Serve(arguments) } => serve::run(cli, arguments),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "fpgactl", &mut script);
            output::write(&script)
        }
    }
}

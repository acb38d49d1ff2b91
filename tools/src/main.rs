//! `fpgactl`: load, launch and measure collectives on FPGA cards, real or mock.
#![forbid(unsafe_code)]

mod bench;
mod cards;
mod check;
mod cli;
mod coll;
mod data;
mod exit;
mod info;
mod interrupt;
mod list;
mod npy;
mod output;
mod plan;
mod progress;
mod request;
mod size;
mod topo;
mod units;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};
use cli::{Cli, Command};
use exit::{Failure, Result};

fn main() -> ExitCode {
    env_logger::init();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && std::env::args_os().any(|argument| argument == "--json") => {
            return Failure::usage(first_paragraph(&error.to_string())).report(true);
        }
        Err(error) => error.exit(),
    };
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(cli.json),
    }
}

/// A usage error without its decoration and without the hints for people.
fn first_paragraph(text: &str) -> String {
    let lines = text.trim_start_matches("error: ").lines().map(str::trim).take_while(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" ")
}

fn run(cli: &Cli) -> Result<()> {
    match &cli.command {
        Command::List => list::run(cli),
        Command::Info => info::run(cli),
        Command::Coll(arguments) => coll::run(cli, arguments),
        Command::Plan(arguments) => plan::run(cli, arguments),
        Command::Bench(arguments) => bench::run(cli, arguments),
        Command::Topo(arguments) => topo::run(cli, arguments),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "fpgactl", &mut script);
            output::write(&script)
        }
    }
}

//! The command line.

mod bench;
mod channel;
mod fft3d;
mod functions;
mod image;
mod mem;
mod mock;
mod plan;
mod route;
mod shared;
mod time;
mod tune;
mod watching;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use cmdseq::plan::{Algorithm, Collective, Order};
use cmdseq::{Element, Reduction};

use crate::expect::{self, Expect};
use crate::meeting::address::Address;
use crate::meeting::part::RANKS_MAX;
use crate::{number, size};
pub(crate) use bench::{Algorithms, Optweb, Planner, Published, Rows, Sweep, System};
pub(crate) use channel::{Channel, ChannelCheck, ChannelGenerate, ChannelLoad, PlacedEnd};
pub(crate) use fft3d::Fft3d;
pub(crate) use functions::{Bind, Doctor, Functions, Info, List, Reg, Reset, Selftest};
pub(crate) use image::{Image, ImageInspect, ImageLoad, ImageRecover, StateDirectory};
pub(crate) use mem::{Mem, MemFill, MemRead, MemTest, MemWrite};
pub(crate) use mock::{Mock, MockImage, Serve};
pub(crate) use plan::Plan;
pub(crate) use route::{Route, RouteCompile, RouteLoad, RouteRoom, RouteShow, RouteVerify};
use shared::{
    STATS_DIRECTORY, cards_default, no_cards, no_json, no_machine, on_novo_g, one_of, publishes, reads_published,
};
use time::{delay, seconds};
pub(crate) use tune::{Traffic, Tune, shape};
pub(crate) use watching::{Metrics, Schema, Sort, Stats, Top};

/// Load, launch and measure collectives on FPGA cards, real or mock.
#[derive(Debug, Parser)]
#[command(
    name = "fpgactl",
    version = env!("FPGACTL_VERSION"),
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 80,
    after_help = "Commands that open cards also have:\n      --board <FILE|NAME>  Use this board file, or board of this project, for\n                           all functions (docs/boards.md)\n      --board-dir <DIR>    Read board files in this directory [default:\n                           /etc/fpga/boards.d] [env: FPGACTL_BOARDS]\n\nCommands that use sequencers publish counters of the cards in the directory of\n--stats-dir; stats, top and metrics read the counters (docs/stats.md)."
)]
pub(crate) struct Cli {
    /// Print one JSON object on stdout, and errors as JSON on stderr
    /// (docs/json.md)
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Cards to use, such as vfio:0000:3b:00.0 or mock:optweb:8 (docs/cli.md)
    /// [default: mock:optweb:4 if no card is bound to vfio-pci]
    #[arg(long, global = true, value_name = "SELECTOR", env = "FPGACTL_CARDS", hide_env_values = true)]
    pub(crate) cards: Option<OsString>,

    /// Read /sys, /proc and /dev below this directory, for tests
    #[arg(long, global = true, value_name = "DIR", env = "FPGACTL_SYSFS_ROOT", default_value = "/", hide = true)]
    pub(crate) sysfs_root: PathBuf,

    /// Publish counters of opened cards in this directory, or `none`
    /// (docs/stats.md)
    #[arg(long, global = true, value_name = "DIR", env = "FPGACTL_STATS_DIR", default_value = STATS_DIRECTORY, hide = true)]
    pub(crate) stats_dir: PathBuf,

    /// Use this board file, or board of this project, for all functions
    /// (docs/boards.md)
    #[arg(long, global = true, value_name = "FILE|NAME", hide = true)]
    pub(crate) board: Option<String>,

    /// Read board files in this directory
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "FPGACTL_BOARDS",
        default_value = BOARD_DIRECTORY,
        hide = true
    )]
    pub(crate) board_dir: PathBuf,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Default directory of board files, which need not exist.
pub(crate) const BOARD_DIRECTORY: &str = "/etc/fpga/boards.d";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List cards with their driver and state; opens no card
    #[command(arg = cards_default("all known cards"))]
    List(List),
    /// Show capabilities, and a mock fabric's parameters with their sources
    Info(Info),
    /// Diagnose why a card cannot be used and print the fix; opens no card
    #[command(arg = cards_default("all known cards"))]
    Doctor(Doctor),
    /// Bind PCI functions to vfio-pci; on failure all keep their drivers
    #[command(arg = no_cards())]
    Bind(Bind),
    /// Release PCI functions to the driver that the kernel chooses
    #[command(arg = no_cards())]
    Unbind(Functions),
    /// Reset a card
    #[command(arg = no_cards())]
    Reset(Reset),
    /// Read or write a register; opens the card, which resets it
    #[command(arg = no_cards())]
    Reg(Reg),
    /// Read, write, fill or test card memory; opens the card, which resets it
    #[command(arg = no_cards())]
    Mem {
        #[command(subcommand)]
        command: Mem,
    },
    /// Test each part of a card that this program knows; restores card memory
    #[command(arg = no_cards())]
    Selftest(Selftest),
    /// Run a collective, check the result, and print the cards' times
    #[command(arg = publishes())]
    Coll(Coll),
    /// Show a collective's programs, predicted times and algorithm
    #[command(arg = publishes())]
    Plan(Plan),
    /// Measure latencies and bandwidths for --calibration; overwrites card memory
    #[command(arg = publishes())]
    Calibrate(Calibrate),
    /// Assemble a sequencer program (docs/seq.md)
    #[command(args = no_machine())]
    Asm(Asm),
    /// Disassemble; the output reassembles to identical bytes
    #[command(args = no_machine())]
    Disasm(Disasm),
    /// Verify a program and warn about valid but suspicious code
    #[command(args = [publishes(), cards_default("mock:optweb cards, one for each rank of the program, 2 to 64")])]
    Lint(Lint),
    /// Run a program on the cards and print the times of each instruction
    #[command(arg = publishes())]
    Run(Run),
    /// Measure collectives over sizes, or a published system on mock cards
    Bench {
        #[command(subcommand)]
        system: System,
    },
    /// Watch all cards in use on a terminal; opens no card
    #[command(args = no_machine(), arg = no_json(), arg = reads_published())]
    Top(Top),
    /// Show the published counters of all cards in use; opens no card
    #[command(args = no_machine(), arg = reads_published())]
    Stats(Stats),
    /// Export the published counters to Prometheus; opens no card
    #[command(args = no_machine(), arg = reads_published())]
    Metrics(Metrics),
    /// Copy stdin at the host of one card to stdout at the host of another
    #[command(arg = publishes())]
    Pipe(Pipe),
    /// Show how the cards are linked
    #[command(arg = publishes())]
    Topo(Topo),
    /// Check CIRCUS channels, generate their code, load routing tables
    /// (docs/circus.md)
    Channel {
        /// Subcommand
        #[command(subcommand)]
        command: Channel,
    },
    /// Compile, verify, load and show tables of statically scheduled routers
    /// (docs/novo-g.md)
    Route {
        /// Subcommand
        #[command(subcommand)]
        command: Route,
    },
    /// Choose a configuration of Novo-G#'s wormhole router (docs/novo-g.md)
    #[command(args = no_machine())]
    Tune(Tune),
    /// Transform a three-dimensional array on cards of Novo-G#
    /// (docs/novo-g.md)
    #[command(args = [publishes(), on_novo_g()])]
    Fft3d(Fft3d),
    /// Show what an image file holds, and load it into a card
    #[command(arg = no_cards())]
    Image {
        /// Subcommand
        #[command(subcommand)]
        command: Image,
    },
    /// Provide mock cards to other processes, and images for them
    #[command(args = no_machine())]
    Mock {
        /// Subcommand
        #[command(subcommand)]
        command: Mock,
    },
    /// Print the JSON Schema of an output of --json, or list all
    #[command(args = no_machine())]
    Schema(Schema),
    /// Print a completion script for a shell
    #[command(args = no_machine(), arg = no_json())]
    Completions {
        /// Shell to complete for
        shell: clap_complete::Shell,
    },
    /// Write a man page for each command
    #[command(hide = true, args = no_machine(), arg = no_json())]
    ManPages(ManPages),
}

impl Command {
    /// Returns the selector of the card that an argument of the command names.
    pub(crate) fn card(&self) -> Option<&str> {
        match self {
            Command::Reg(Reg { card, .. })
            | Command::Selftest(Selftest { card })
            | Command::Reset(Reset { card, .. })
            | Command::Image {
                command: Image::Load(ImageLoad { card, .. }) | Image::Recover(ImageRecover { card, .. }),
            } => Some(card),
            Command::Image { command: Image::Inspect(ImageInspect { card, .. }) } => card.as_deref(),
            Command::Mem { command } => Some(&command.place().card),
            _ => None,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ManPages {
    /// Directory for the pages; a missing one is created
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

/// The collective of `coll` and `plan`, with its parameters.
#[derive(Debug, Args)]
pub(crate) struct Operation {
    /// Message size, such as 64, 64KiB, 64K (1K = 1KiB = 1024) or 1MiB: bytes
    /// from one rank to another; for broadcast, reduce, allreduce, scan and
    /// exscan the whole vector; for reduce_scatter the block of each rank
    /// [default: 1MiB; of `coll --input`, the size of the file]
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub(crate) bytes: Option<u64>,

    /// Block sizes of scatterv, gatherv, allgatherv and alltoallv, one for each
    /// rank, such as 1KiB,0,3KiB. For alltoallv, a row of sizes to send to each
    /// rank: one row for all ranks, or one row for each rank, separated by `/` or
    /// `;` [default: --bytes for each block; of gatherv and allgatherv with
    /// `coll --input`, the size of each file]
    #[arg(long, value_name = "BYTES,..[/BYTES,..]", value_parser = counts, conflicts_with = "bytes")]
    pub(crate) counts: Option<Counts>,

    /// Algorithm [default: shortest predicted time]
    #[arg(long, value_parser = one_of(Algorithm::ALL, Algorithm::name))]
    pub(crate) algorithm: Option<Algorithm>,

    /// Nodes of the participating cards, in rank order [default: all]
    #[arg(long, value_name = "NODE,NODE,..", value_delimiter = ',')]
    pub(crate) group: Option<Vec<u32>>,

    #[command(flatten)]
    pub(crate) terms: Terms,
}

/// A collective with the parameters that do not depend on its size.
#[derive(Debug, Clone, Args)]
pub(crate) struct Terms {
    /// Collective
    #[arg(value_name = "OP", value_parser = one_of(Collective::ALL, Collective::name))]
    pub(crate) collective: Collective,

    /// Element type [default: u8; of `coll --input`, the type of the file]
    #[arg(long, value_name = "TYPE", value_parser = one_of(Element::ALL, Element::name))]
    pub(crate) dtype: Option<Element>,

    /// Reduction of reduce, allreduce, reduce_scatter, scan and exscan
    #[arg(long, value_name = "REDUCTION", value_parser = one_of(Reduction::ALL, Reduction::name))]
    pub(crate) op: Option<Reduction>,

    /// Rank that distributes, collects or sends
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    pub(crate) root: u32,

    /// Rank that receives from the root in send and recv [default: last rank]
    #[arg(long, value_name = "RANK")]
    pub(crate) peer: Option<u32>,

    /// Reduction order: `any` (the algorithm's) or `rank` (by ascending rank)
    #[arg(long, value_name = "ORDER", default_value = "any", value_parser = one_of(Order::ALL, Order::name))]
    pub(crate) order: Order,

    /// Largest message sent eagerly; 0 forces rendezvous [default: size of the
    /// card's receive buffer]
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub(crate) eager_limit: Option<u64>,

    /// Predict times from this `calibrate` file, not from reported capabilities
    #[arg(long, value_name = "FILE", env = "FPGACTL_CALIBRATION", hide_env_values = true)]
    pub(crate) calibration: Option<PathBuf>,

    /// Nodes of no rank whose cards may relay between cards that are not
    /// linked, or `none` [default: all of --cards]
    #[arg(long, value_name = "NODE,NODE,..", value_parser = relays)]
    pub(crate) relays: Option<Relays>,
}

/// Nodes whose cards may relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Relays(pub(crate) Vec<u32>);

fn relays(text: &str) -> Result<Relays, String> {
    if text == "none" {
        return Ok(Relays(Vec::new()));
    }
    let node = |node: &str| node.parse().map_err(|_| format!("{node:?} is no node number; expected numbers or `none`"));
    text.split(',').map(node).collect::<Result<_, _>>().map(Relays)
}

/// Block sizes in bytes, row by row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Counts(pub(crate) Vec<Vec<u64>>);

fn counts(text: &str) -> Result<Counts, String> {
    let row = |row: &str| row.split(',').map(|count| size::parse(count.trim())).collect();
    text.split(['/', ';']).map(row).collect::<Result<_, String>>().map(Counts)
}

#[derive(Debug, Args)]
pub(crate) struct Coll {
    #[command(flatten)]
    pub(crate) operation: Operation,

    /// Delay of each rank after the barriers that begin a measurement, in
    /// microseconds
    #[arg(long, value_name = "US,US,..", value_delimiter = ',', value_parser = delay)]
    pub(crate) start_delay: Vec<f64>,

    /// Repetitions, back to back; the printed times are of the last
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeat: u32,

    /// Seed of the generated data, without --input
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,

    /// NumPy arrays with the input: one for each rank that has input, in rank
    /// order
    #[arg(long, value_name = "FILE.npy,..", value_delimiter = ',')]
    pub(crate) input: Vec<PathBuf>,

    /// Write the result as a NumPy array; if several ranks have output, one array
    /// each: FILE-0.npy and so on
    #[arg(long, value_name = "FILE.npy")]
    pub(crate) output: Option<PathBuf>,

    /// Time limit for the cards, in seconds; with --meet also for all ranks to
    /// come
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub(crate) timeout: f64,

    /// Record a trace in Perfetto's format into this file; with --rank, FILE-RANK
    /// (docs/traces.md)
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) processes: Processes,
}

/// The rank of this process in a job of several.
#[derive(Debug, Args)]
pub(crate) struct Processes {
    /// Rank of this process, which opens one card: the card of this place in
    /// --cards, or the only one (docs/processes.md)
    #[arg(long, value_name = "RANK", requires_all = ["of", "meet"], value_parser = clap::value_parser!(u32).range(..i64::from(RANKS_MAX)))]
    pub(crate) rank: Option<u32>,

    /// Number of processes, 2 to 256
    #[arg(long, value_name = "N", requires_all = ["rank", "meet"], value_parser = clap::value_parser!(u32).range(2..=i64::from(RANKS_MAX)))]
    pub(crate) of: Option<u32>,

    /// Where the processes meet: unix:/PATH or tcp:HOST:PORT; rank 0 listens
    #[arg(long, value_name = "ADDRESS", requires_all = ["rank", "of"])]
    pub(crate) meet: Option<Address>,
}

#[derive(Debug, Args)]
pub(crate) struct Calibrate {
    /// Write the measurements to this file, for --calibration (docs/json.md)
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: PathBuf,
}

/// The source of a program.
#[derive(Debug, Args)]
pub(crate) struct Program {
    /// Source file
    #[arg(value_name = "FILE.seq")]
    pub(crate) file: PathBuf,

    /// Number of ranks [default: the line `ranks N` of the source]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) ranks: Option<u32>,

    /// Folder that contains all included files [default: folder of FILE.seq]
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,

    /// Accept operands `host ADDRESS`: the card accesses this host memory
    /// unchecked
    #[arg(long)]
    pub(crate) allow_raw_host: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Asm {
    #[command(flatten)]
    pub(crate) program: Program,

    /// Assemble only the program of this rank
    #[arg(long, value_name = "R")]
    pub(crate) rank: Option<u32>,

    /// Output file for the binary [default: FILE.seqb]
    #[arg(long, short, value_name = "OUT")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Disasm {
    /// Binary written by `asm` or `plan --save`
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Lint {
    #[command(flatten)]
    pub(crate) program: Program,

    /// Exit with code 1 if there is a warning
    #[arg(long)]
    pub(crate) check: bool,

    /// Refuse the programs unless they compute this collective, as in `run`
    #[arg(long, value_name = "OP[,KEY=VALUE...]", value_parser = expect::parse)]
    pub(crate) expect: Option<Expect>,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Program: a source if named *.seq, else a binary written by `asm` or
    /// `plan --save`
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Folder that contains all included files [default: folder of FILE]
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,

    /// Accept operands `host ADDRESS`: the card accesses this host memory
    /// unchecked
    #[arg(long)]
    pub(crate) allow_raw_host: bool,

    /// Before the run, load a .npy array, or the bytes of any other file, into a
    /// buffer of all ranks or of one; may be repeated
    #[arg(long, value_name = "BUFFER[@RANK]=FILE", value_parser = transfer)]
    pub(crate) load: Vec<Transfer>,

    /// After the run, write a buffer of one rank, or of all ranks that have the
    /// buffer (FILE-0 and so on), to a file; may be repeated
    #[arg(long, value_name = "BUFFER[@RANK]=FILE", value_parser = transfer)]
    pub(crate) dump: Vec<Transfer>,

    /// Element type of written .npy files
    #[arg(long, value_name = "TYPE", default_value = "u8", value_parser = one_of(Element::ALL, Element::name))]
    pub(crate) dtype: Element,

    /// Refuse the program unless it computes this collective. Keys and defaults:
    /// bytes=SIZE or counts=SIZE/SIZE/.., root=0, peer=LAST, op=sum, dtype=f32,
    /// order=any, and the card buffers input=input and output=output
    #[arg(long, value_name = "OP[,KEY=VALUE...]", value_parser = expect::parse)]
    pub(crate) expect: Option<Expect>,

    /// Store the programs on the cards; one doorbell for each card launches them
    #[arg(long)]
    pub(crate) persistent: bool,

    /// Number of launches
    #[arg(long, value_name = "N", default_value = "1", requires = "persistent", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) repeat: u32,

    /// Time limit for the cards, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub(crate) timeout: f64,

    /// Record a trace in Perfetto's format into this file (docs/traces.md)
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
}

/// A buffer, and the file to load it from or to dump it to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub(crate) buffer: String,
    pub(crate) rank: Option<u32>,
    pub(crate) path: PathBuf,
}

fn transfer(text: &str) -> Result<Transfer, String> {
    let form = || format!("invalid transfer {text:?}: expected BUFFER=FILE or BUFFER@RANK=FILE");
    let (buffer, path) = text.split_once('=').ok_or_else(form)?;
    let (buffer, rank) = match buffer.split_once('@') {
        Some((buffer, rank)) => (buffer, Some(rank.parse().map_err(|_| form())?)),
        None => (buffer, None),
    };
    if buffer.is_empty() || path.is_empty() {
        return Err(form());
    }
    Ok(Transfer { buffer: buffer.to_owned(), rank, path: path.into() })
}

#[derive(Debug, Args)]
pub(crate) struct Pipe {
    /// Node of the card whose host writes
    #[arg(long, value_name = "NODE", default_value_t = 0)]
    pub(crate) from: u32,

    /// Node of the card whose host reads [default: the fabric's last]
    #[arg(long, value_name = "NODE")]
    pub(crate) to: Option<u32>,

    /// Address of the 512 KiB that the pipe uses in the memory of both cards
    #[arg(long, value_name = "ADDRESS", value_parser = number::address, default_value = "0")]
    pub(crate) address: u64,

    /// Key of the windows that the two cards open to each other; not 0
    #[arg(long, value_name = "KEY", value_parser = number::word, default_value = "1")]
    pub(crate) key: u32,

    /// Limit on each wait for the other end, in seconds [default: none]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<f64>,
}

#[derive(Debug, Args)]
pub(crate) struct Topo {
    /// Print only the possible sizes of a Dragonfly whose cards have LINKS links
    #[arg(long, value_name = "LINKS", value_parser = clap::value_parser!(u32).range(2..=1024))]
    pub(crate) dragonfly: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn names_reach_their_operations() {
        let cli = Cli::parse_from(["fpgactl", "coll", "allgather", "--bytes", "64KiB", "--group", "0,2"]);
        let Command::Coll(coll) = cli.command else { panic!() };
        assert_eq!(coll.operation.terms.collective, Collective::Allgather);
        assert_eq!(coll.operation.bytes, Some(65536));
        assert_eq!(coll.operation.group, Some(vec![0, 2]));
        assert_eq!(counts("1KiB,0,3"), Ok(Counts(vec![vec![1024, 0, 3]])));
        assert_eq!(counts("1,2/3,4"), counts("1,2; 3,4"));
        assert!(counts("1,,2").is_err() && counts("").is_err());
        assert!(Cli::try_parse_from(["fpgactl", "coll", "allgatter"]).is_err());
        assert!(Cli::try_parse_from(["fpgactl", "coll", "send", "--start-delay", "nan"]).is_err());
    }
}

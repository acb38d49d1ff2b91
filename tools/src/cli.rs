//! The command line.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use cmdseq::Reduction;
use cmdseq::plan::{Algorithm, Collective, Order};
use fpga_hal::PciAddress;

use crate::expect::{self, Expect};
use crate::npy::Element;
use crate::{functions, reg, size};

/// Load, launch and measure collectives on FPGA cards, real or mock.
#[derive(Debug, Parser)]
#[command(
    name = "fpgactl",
    version,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 80
)]
pub(crate) struct Cli {
    /// Print one JSON object on stdout (docs/json.md), and errors as one on stderr
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Cards to use, such as vfio:0000:3b:00.0 or mock:optweb:8 (docs/cli.md)
    /// [default: mock:optweb:4 if no card is bound to vfio-pci]
    #[arg(long, global = true, value_name = "SELECTOR", env = "FPGACTL_CARDS", hide_env_values = true)]
    pub(crate) cards: Option<String>,

    /// Directory that has the machine's /sys, /proc and /dev, for tests
    #[arg(long, global = true, value_name = "DIR", env = "FPGACTL_SYSFS_ROOT", default_value = "/", hide = true)]
    pub(crate) sysfs_root: PathBuf,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the cards
    List(List),
    /// Show capabilities, and a mock fabric's parameters with their sources
    Info(Info),
    /// Diagnose why a card cannot be used and print the fix; opens no card
    Doctor(Doctor),
    /// Bind PCI functions to vfio-pci; on failure all keep their driver
    Bind(Bind),
    /// Release PCI functions to the driver that the kernel chooses
    Unbind(Functions),
    /// Reset a card
    Reset(Reset),
    /// Read or write a register; opens the card, which resets it
    Reg(Reg),
    /// Run a collective, check the result, and print the cards' times
    Coll(Coll),
    /// Show a collective's programs, predicted times and algorithm
    Plan(Plan),
    /// Measure latencies and bandwidths for --calibration; overwrites card memory
    Calibrate(Calibrate),
    /// Assemble a sequencer program (docs/seq.md)
    Asm(Asm),
    /// Disassemble; the output reassembles to identical bytes
    Disasm(Disasm),
    /// Verify a program, and warn about valid but suspicious code
    Lint(Lint),
    /// Run a program on the cards and print the times of each instruction
    Run(Run),
    /// Measure a published system on mock cards and compare the figures
    Bench(Bench),
    /// Show how the cards are linked
    Topo(Topo),
    /// Provide mock cards to other processes
    Mock {
        /// What to do
        #[command(subcommand)]
        command: Mock,
    },
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Mock {
    /// Serve a fabric of mock cards, each on a vfio-user socket DIR/NODE.sock, until interrupted
    Serve(Serve),
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The fabric, such as mock:optweb:4
    #[arg(value_name = "SELECTOR", default_value = fpga_select::DEFAULT)]
    pub(crate) fabric: String,

    /// Directory of the sockets; made, for this user only, if it is not there
    #[arg(long, value_name = "DIR")]
    pub(crate) socket_dir: PathBuf,

    /// Memory of this machine for all cards together [default: half]
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub(crate) memory: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Also list functions that may be cards: those bound to vfio-pci, and all processing accelerators
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Info {
    /// PCI function, such as 0000:3b:00.0: show what the kernel reports, without opening it [default: open --cards]
    #[arg(value_name = "ADDRESS", value_parser = functions::parse_address)]
    pub(crate) address: Option<PciAddress>,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// The card: a PCI address or a selector [default: --cards if that names one, else all cards that are known]
    #[arg(value_name = "CARD")]
    pub(crate) card: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Bind {
    #[command(flatten)]
    pub(crate) functions: Functions,

    /// The driver
    #[arg(long, value_name = "NAME", default_value = fpga_hal::sysfs::VFIO_PCI)]
    pub(crate) driver: String,
}

/// Which functions get another driver, and how.
#[derive(Debug, Args)]
pub(crate) struct Functions {
    /// PCI functions, such as 0000:3b:00.0: all are changed, or none
    #[arg(value_name = "ADDRESS", required = true, value_parser = functions::parse_address)]
    pub(crate) address: Vec<PciAddress>,

    /// Also change functions that a process, a mounted disk, a network or a display uses
    #[arg(long)]
    pub(crate) force: bool,

    /// Time limit for each step of the kernel, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub(crate) timeout: f64,
}

#[derive(Debug, Args)]
pub(crate) struct Reset {
    /// The card: a PCI address, reset by the kernel, or a selector, whose cards are opened and reset
    #[arg(value_name = "CARD")]
    pub(crate) card: String,

    /// Reset a PCI function even if it is in use
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Reg {
    /// Card, such as vfio:0000:3b:00.0 or mock:optweb:4/2
    #[arg(value_name = "SELECTOR[/NODE]")]
    pub(crate) card: String,

    /// Register of the sequencer by its name (docs/registers.md), such as CLOCK_KHZ or queue1.SUBMISSION_TAIL; or offset
    /// in a BAR, such as 0x1008 or bar4:0x800
    #[arg(value_name = "REGISTER")]
    pub(crate) register: String,

    /// Value to write, 32 bits; without VALUE the register is read
    #[arg(value_name = "VALUE", value_parser = reg::number)]
    pub(crate) value: Option<u32>,
}

/// What is to be done, for `coll` and `plan`.
#[derive(Debug, Args)]
pub(crate) struct Operation {
    /// The collective
    #[arg(value_name = "OP", value_parser = collective_parser())]
    pub(crate) collective: Collective,

    /// Bytes that one pair exchanges in one direction (broadcast, reduce, allreduce, scan, exscan: the whole vector;
    /// reduce_scatter: the block each rank gets), such as 64, 64KiB, 64K (1K = 1KiB = 1024) or 1MiB
    /// [default: what --input holds, else 1MiB]
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub(crate) bytes: Option<u64>,

    /// Bytes of the blocks of scatterv, gatherv, allgatherv and alltoallv: one for each rank, such as 1KiB,0,3KiB; of
    /// alltoallv what a rank gives each, one row for all ranks or a row for each with `/` or `;` between
    /// [default: of gatherv and allgatherv what each --input holds, else --bytes each]
    #[arg(long, value_name = "BYTES,..[/BYTES,..]", value_parser = counts, conflicts_with = "bytes")]
    pub(crate) counts: Option<Counts>,

    /// Type of an element [default: that of --input, else u8]
    #[arg(long, value_name = "TYPE", value_parser = element_parser())]
    pub(crate) dtype: Option<Element>,

    /// Reduction, for reduce, allreduce, reduce_scatter, scan and exscan
    #[arg(long, value_name = "REDUCTION", value_parser = reduction_parser())]
    pub(crate) op: Option<Reduction>,

    /// Rank that distributes, collects or sends
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    pub(crate) root: u32,

    /// Rank that receives from the root, for send and recv [default: the last rank]
    #[arg(long, value_name = "RANK")]
    pub(crate) peer: Option<u32>,

    /// Algorithm [default: the fastest predicted]
    #[arg(long, value_parser = algorithm_parser())]
    pub(crate) algorithm: Option<Algorithm>,

    /// Order of a reduction: that of the algorithm, or by rank
    #[arg(long, value_name = "ORDER", default_value = "any", value_parser = order_parser())]
    pub(crate) order: Order,

    /// Largest piece sent eagerly; 0 forces rendezvous [default: the card's receive buffer]
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub(crate) eager_limit: Option<u64>,

    /// Predict times from this file of `calibrate`, not from what the cards report
    #[arg(long, value_name = "FILE", env = "FPGACTL_CALIBRATION", hide_env_values = true)]
    pub(crate) calibration: Option<PathBuf>,

    /// Nodes of the cards that take part, by rank [default: all]
    #[arg(long, value_name = "NODE,NODE,..", value_delimiter = ',')]
    pub(crate) group: Option<Vec<u32>>,
}

/// Lengths of blocks, in rows.
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

    /// Delays of the ranks after the barriers that begin a measurement, in microseconds
    #[arg(long, value_name = "US,US,..", value_delimiter = ',', value_parser = delay)]
    pub(crate) start_delay: Vec<f64>,

    /// How often to run it, one run behind the other; the times are of the last
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeat: u32,

    /// Seed of the data, without --input
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,

    /// NumPy arrays to start from: one for each rank that has input, in order of ranks
    #[arg(long, value_name = "FILE.npy,..", value_delimiter = ',')]
    pub(crate) input: Vec<PathBuf>,

    /// Write the result: one NumPy array for each rank that gets data (FILE-0.npy and so on if several do)
    #[arg(long, value_name = "FILE.npy")]
    pub(crate) output: Option<PathBuf>,

    /// The most that the cards may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub(crate) timeout: f64,
}

#[derive(Debug, Args)]
pub(crate) struct Plan {
    #[command(flatten)]
    pub(crate) operation: Operation,

    /// Show all candidate algorithms and their predicted times
    #[arg(long)]
    pub(crate) explain: bool,

    /// Write the programs to a file that `run` takes, with their data in buffers `input` and `output`
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Calibrate {
    /// Write the measurements to this file (docs/json.md), for --calibration
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: PathBuf,
}

/// A program's text.
#[derive(Debug, Args)]
pub(crate) struct Program {
    /// The text
    #[arg(value_name = "FILE.seq")]
    pub(crate) file: PathBuf,

    /// How many ranks there are [default: as a line `ranks N` of the text says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) ranks: Option<u32>,

    /// Folder that all included files lie in [default: that of FILE.seq]
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,

    /// Accept operands `host ADDRESS`: the card reads and writes there unchecked
    #[arg(long)]
    pub(crate) allow_raw_host: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Asm {
    #[command(flatten)]
    pub(crate) program: Program,

    /// Only the program of this rank
    #[arg(long, value_name = "R")]
    pub(crate) rank: Option<u32>,

    /// The programs of all ranks, as without --rank
    #[arg(long, conflicts_with = "rank")]
    pub(crate) all: bool,

    /// Where to put the words [default: FILE.seqb]
    #[arg(long, short, value_name = "OUT")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Disasm {
    /// Words that `asm` has written
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Lint {
    #[command(flatten)]
    pub(crate) program: Program,

    /// End with exit code 1 if there is a warning
    #[arg(long)]
    pub(crate) check: bool,

    /// Refuse the programs unless they are this collective; as with `run`
    #[arg(long, value_name = "OP[,KEY=VALUE...]", value_parser = expect::parse)]
    pub(crate) expect: Option<Expect>,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The program: text if it is called *.seq, else words that `asm` has written
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Folder that all included files lie in [default: that of FILE]
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,

    /// Accept operands `host ADDRESS`: the card reads and writes there unchecked
    #[arg(long)]
    pub(crate) allow_raw_host: bool,

    /// Before: put a .npy array, or the bytes of any other file, into a buffer, of all ranks or of one; may be repeated
    #[arg(long, value_name = "BUFFER[@RANK]=FILE", value_parser = transfer)]
    pub(crate) load: Vec<Transfer>,

    /// Behind: write a buffer, of all ranks that have it (FILE-0 and so on) or of one; may be repeated
    #[arg(long, value_name = "BUFFER[@RANK]=FILE", value_parser = transfer)]
    pub(crate) dump: Vec<Transfer>,

    /// Type of the elements of .npy files that are written
    #[arg(long, value_name = "TYPE", default_value = "u8", value_parser = element_parser())]
    pub(crate) dtype: Element,

    /// Refuse the program unless it is this collective: bytes=SIZE (or counts=SIZE/SIZE/..), root=0, peer=LAST, op=sum,
    /// dtype=f32, order=any, from card buffer input=input to output=output
    #[arg(long, value_name = "OP[,KEY=VALUE...]", value_parser = expect::parse)]
    pub(crate) expect: Option<Expect>,

    /// Store the programs on the cards and launch them, with one doorbell for each card
    #[arg(long)]
    pub(crate) persistent: bool,

    /// How often to launch them
    #[arg(long, value_name = "N", default_value = "1", requires = "persistent", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) repeat: u32,

    /// The most that the cards may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub(crate) timeout: f64,
}

/// A buffer and a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub(crate) buffer: String,
    pub(crate) rank: Option<u32>,
    pub(crate) path: PathBuf,
}

fn transfer(text: &str) -> Result<Transfer, String> {
    let form = || format!("{text:?} is not BUFFER=FILE or BUFFER@RANK=FILE");
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
pub(crate) struct Bench {
    #[command(subcommand)]
    pub(crate) system: System,
}

#[derive(Debug, Subcommand)]
pub(crate) enum System {
    /// Every network figure of the OPTWEB paper beside ours, on mock cards
    Optweb(Optweb),
}

#[derive(Debug, Args)]
pub(crate) struct Optweb {
    /// Draw figures 10 to 15 of the paper and the Dragonfly table into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,

    /// With --svg, draw only figure N; may be repeated
    #[arg(long, value_name = "N", requires = "svg", value_parser = clap::value_parser!(u32).range(10..=15))]
    pub(crate) figure: Vec<u32>,

    /// Only the row of this name, or all whose name begins with it and a slash; may be repeated
    #[arg(long, value_name = "ID")]
    pub(crate) row: Vec<String>,

    /// End with exit code 3 if a row is out of its tolerance
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Topo {
    /// Instead, print how many cards a Dragonfly of cards with LINKS links can have, by number of groups
    #[arg(long, value_name = "LINKS", value_parser = clap::value_parser!(u32).range(2..=1024))]
    pub(crate) dragonfly: Option<u32>,
}

fn collective_parser() -> impl TypedValueParser<Value = Collective> {
    let names = Collective::ALL.iter().map(|one| one.name());
    PossibleValuesParser::new(names.collect::<Vec<_>>()).try_map(|name| name.parse::<Collective>())
}

fn reduction_parser() -> impl TypedValueParser<Value = Reduction> {
    let names = Reduction::ALL.iter().map(|one| one.name());
    PossibleValuesParser::new(names.collect::<Vec<_>>()).try_map(|name| name.parse::<Reduction>())
}

fn algorithm_parser() -> impl TypedValueParser<Value = Algorithm> {
    let names = Algorithm::ALL.iter().map(|one| one.name());
    PossibleValuesParser::new(names.collect::<Vec<_>>()).try_map(|name| name.parse::<Algorithm>())
}

fn order_parser() -> impl TypedValueParser<Value = Order> {
    let names = Order::ALL.iter().map(|one| one.name());
    PossibleValuesParser::new(names.collect::<Vec<_>>()).try_map(|name| name.parse::<Order>())
}

fn element_parser() -> impl TypedValueParser<Value = Element> {
    PossibleValuesParser::new(Element::names().collect::<Vec<_>>())
        .try_map(|name| Element::named(&name).ok_or("not an element type"))
}

/// Microseconds that some hardware could wait: up to a day.
fn delay(text: &str) -> Result<f64, String> {
    let is_possible = |us: &f64| (0.0..=8.64e10).contains(us);
    text.parse()
        .ok()
        .filter(is_possible)
        .ok_or_else(|| format!("{text:?} is not a number of microseconds, at most a day"))
}

fn seconds(text: &str) -> Result<f64, String> {
    let is_possible = |seconds: &f64| *seconds > 0.0 && *seconds <= 86_400.0;
    text.parse().ok().filter(is_possible).ok_or_else(|| format!("{text:?} is not a number of seconds, at most a day"))
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
        assert_eq!(coll.operation.collective, Collective::Allgather);
        assert_eq!(coll.operation.bytes, Some(65536));
        assert_eq!(coll.operation.group, Some(vec![0, 2]));
        assert_eq!(counts("1KiB,0,3"), Ok(Counts(vec![vec![1024, 0, 3]])));
        assert_eq!(counts("1,2/3,4"), counts("1,2; 3,4"));
        assert!(counts("1,,2").is_err() && counts("").is_err());
        assert!(Cli::try_parse_from(["fpgactl", "coll", "allgatter"]).is_err());
        assert!(Cli::try_parse_from(["fpgactl", "coll", "send", "--start-delay", "nan"]).is_err());
    }
}

//! `fpgactl run FILE`: runs a program on the cards and prints the times of each instruction.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cmdseq::asm::{Assembly, Buffer, Options, RankProgram};
use cmdseq::completion::microseconds;
use cmdseq::plan::ProgramSet;
use cmdseq::{AddressSpace, Completion, Element, Instruction};
use fpga_driver::trace::Moment;
use fpga_driver::{Bound, Card, Cluster, Error, Outcome};
use fpga_hal::DmaBuffer;
use schemars::JsonSchema;
use serde::Serialize;

use crate::atomic_file::{AtomicFile, Finished};
use crate::cards::{Cards, MOCK_NOTE};
use crate::cli::{self, Cli, Transfer};
use crate::data::{self, CHUNK};
use crate::exit::{Exit, Failure, Result};
use crate::host_memory;
use crate::input_file;
use crate::interrupt::Interrupt;
use crate::npy::{self, Input};
use crate::output;
use crate::run_persistent;
use crate::source::{self, Loaded};
use crate::tracing::{self, Tracing, Written};
use crate::units::rounded;
use crate::verification::verify_programs;

/// Alignment of host buffers.
const PAGE: u64 = 4096;

#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed<'a> {
    schema: &'static str,
    selector: &'a str,
    kind: &'static str,
    mock: bool,
    ranks: u32,
    completions: Vec<PrintedCompletion>,
    #[serde(skip_serializing_if = "Option::is_none")]
    persistent: Option<run_persistent::Printed>,
    outputs: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<Written>,
}

#[derive(JsonSchema, Serialize)]
struct PrintedCompletion {
    rank: u32,
    node: u32,
    instruction: usize,
    operation: &'static str,
    place: Option<String>,
    tag: u16,
    status: String,
    code: u8,
    detail: u16,
    issued_us: f64,
    t1_us: f64,
    t2_us: f64,
    arrival_us: f64,
    bytes: u64,
}

pub(crate) fn run(cli: &Cli, arguments: &cli::Run) -> Result<()> {
    let began = Moment::now();
    let interrupt = Interrupt::listen()?;
    let mut cards = Cards::selected_within(cli, Duration::from_secs_f64(arguments.timeout))?;
    let trace = arguments.trace.as_deref();
    tracing::start(trace, &mut cards, began)?;
    let begin = Moment::now();
    let nodes = cards.nodes();
    let ranks = nodes.len() as u32;
    let options = Options { ranks: Some(ranks), raw_host: arguments.allow_raw_host, ..Options::default() };
    let (loaded, read) = source::load(&arguments.file, arguments.root.as_deref(), &options)?;
    let assembly = loaded.assembly();
    let set = verify_programs(&loaded, &cards, arguments.expect.as_ref(), arguments.persistent)?;
    let loads = arguments.load.iter().map(|one| Load::open(one, assembly)).collect::<Result<Vec<_>>>()?;
    let dumps = dumps(&arguments.dump, assembly, arguments.dtype)?;
    let read = read.iter().chain(arguments.load.iter().map(|load| &load.path)).collect::<Vec<_>>();
    let written = dumps.iter().map(|dump| dump.path.as_path()).chain(trace).collect::<Vec<_>>();
    input_file::check_outputs(&read, &written)?;

    let layouts = assembly.programs.iter().map(HostLayout::of).collect::<Result<Vec<_>>>()?;
    host_memory::check(layouts.iter().fold(0, |sum, layout| sum.saturating_add(layout.bytes)))?;
    cards.cluster.end_span("plan", begin);
    let tracing = Tracing::create(trace)?;
    let ran = Work { arguments, loaded: &loaded, layouts, loads, dumps }.run(&mut cards, set, &interrupt);
    // Most of all if it has failed.
    let trace = tracing.map(|tracing| tracing.finish(&mut cards));
    let Ran { runs, persistent, failure, outputs } = tracing::with_loss(ran, trace.as_ref())?;

    let printed = Printed {
        schema: "fpgactl.run/1",
        selector: &cards.selector,
        kind: cards.kind.name(),
        mock: cards.are_mock(),
        ranks,
        completions: completions(&runs, &nodes, &loaded, cards.capabilities().clock_khz),
        persistent,
        outputs,
        trace: trace.clone(),
    };
    output::print(cli.json, &printed, || text(&printed))?;
    tracing::with_loss(failure.map_or(Ok(()), Err), trace.as_ref())?;
    trace.map_or(Ok(()), |trace| trace.outcome())
}

/// A program to run, and the files around it.
struct Work<'p> {
    arguments: &'p cli::Run,
    loaded: &'p Loaded,
    /// By rank.
    layouts: Vec<HostLayout>,
    loads: Vec<Load>,
    dumps: Vec<Dump>,
}

/// What became of it.
struct Ran<'p> {
    runs: Vec<RankRun<'p>>,
    persistent: Option<run_persistent::Printed>,
    failure: Option<Failure>,
    outputs: Vec<String>,
}

impl<'p> Work<'p> {
    /// Loads the buffers, runs the programs, and writes the files.
    fn run(self, cards: &mut Cards, mut set: ProgramSet, interrupt: &Interrupt) -> Result<Ran<'p>> {
        let Work { arguments, loaded, layouts, loads, dumps } = self;
        let (nodes, timeout) = (cards.nodes(), Duration::from_secs_f64(arguments.timeout));
        let mut runs = Vec::new();
        cards.cluster.set_timeout(timeout);
        for (index, (program, layout)) in loaded.assembly().programs.iter().zip(layouts).enumerate() {
            let card = cards.cluster.card_mut(index);
            runs.push(RankRun::new(card, program, layout)?);
            let loaded = card.load_tables(&program.tables);
            loaded.map_err(|error| cards.failed("tables", error))?;
        }
        if !arguments.persistent {
            // Stored programs define their own communicators.
            for communicator in &set.communicators {
                cards.cluster.define(communicator).map_err(|error| cards.failed("communicators", error))?;
            }
        }
        for load in &loads {
            for (rank, index) in &load.holders {
                interrupt.check()?;
                let begin = Moment::now();
                load.write(cards, &runs[*rank as usize], *index)?;
                cards.cluster.end_span("copy in", begin);
            }
        }
        let (persistent, mut failure) = if arguments.persistent {
            for (program, run) in set.programs.iter_mut().zip(&runs) {
                program.instructions.clone_from(&run.instructions);
            }
            let launched = run_persistent::run(cards, set, arguments.repeat, timeout, interrupt)?;
            (Some(launched), None)
        } else {
            let outcome = interrupt.end_at_once_during(|| run_ranks(&mut cards.cluster, &nodes, &runs, timeout))?;
            runs.iter_mut().zip(outcome.completions).for_each(|(run, completions)| run.completions = completions);
            (None, outcome.result.err().map(|error| located(cards, error, loaded)))
        };
        let mut outputs = Vec::new();
        if failure.is_none() {
            match write_all(&dumps, cards, &runs, interrupt) {
                Ok(written) => outputs = written,
                // The instructions have run: their completions are printed all the same.
                Err(error) => failure = Some(error),
            }
        }
        Ok(Ran { runs, persistent, failure, outputs })
    }
}

/// Writes the files of `dumps`, all or none, and returns their names.
fn write_all(dumps: &[Dump], cards: &mut Cards, runs: &[RankRun<'_>], interrupt: &Interrupt) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for dump in dumps {
        interrupt.check()?;
        let begin = Moment::now();
        files.push(dump.write(cards, &runs[dump.rank as usize])?);
        cards.cluster.end_span("copy out", begin);
    }
    files.into_iter().try_for_each(Finished::commit)?;
    Ok(dumps.iter().map(|dump| dump.path.display().to_string()).collect())
}

/// The host memory that contains a buffer, and the buffer's offset.
type InRegion<'a> = (&'a Arc<DmaBuffer>, u64);

/// The run of one rank's program.
struct RankRun<'p> {
    program: &'p RankProgram,
    instructions: Vec<Instruction>,
    /// Contains all host buffers of the rank; `None` without host buffers.
    region: Option<Arc<DmaBuffer>>,
    offsets: Vec<u64>,
    completions: Vec<Completion>,
}

/// Layout of a rank's host buffers in one region. Before there is one, `verification` lays them out by placeholder addresses.
struct HostLayout {
    /// Offsets by index of the buffer; meaningless for card buffers.
    offsets: Vec<u64>,
    /// Total size.
    bytes: u64,
}

impl HostLayout {
    fn of(program: &RankProgram) -> Result<Self> {
        let mut layout = HostLayout { offsets: Vec::with_capacity(program.buffers.len()), bytes: 0 };
        for buffer in &program.buffers {
            layout.offsets.push(layout.bytes);
            if buffer.space == AddressSpace::Host {
                let end = layout.bytes.checked_add(buffer.bytes).and_then(|end| end.checked_next_multiple_of(PAGE));
                let rank = program.rank;
                let message = format!("rank {rank}: the host buffers exceed 2^64 B");
                let refuse = || Failure::refused(message.clone()).of_rank(rank);
                layout.bytes = end.ok_or_else(refuse)?;
            }
        }
        Ok(layout)
    }
}

impl<'p> RankRun<'p> {
    fn new(card: &Card, program: &'p RankProgram, layout: HostLayout) -> Result<Self> {
        let HostLayout { offsets, bytes } = layout;
        let bytes = usize::try_from(bytes).map_err(|error| Failure::refused(error.to_string()))?;
        let region = (bytes > 0).then(|| card.allocate(bytes)).transpose()?;
        let base = region.as_ref().map_or(0, |region| region.iova().0);
        let instructions = program.bound(|buffer| base + offsets[buffer]).map_err(Failure::refused)?;
        Ok(RankRun { program, instructions, region, offsets, completions: Vec::new() })
    }

    /// Returns the instructions with the host memory that they name.
    fn bound(&self) -> Vec<Bound> {
        let bound = |(index, instruction): (usize, &Instruction)| match self.program.names_raw_host(index) {
            // Loading has refused host addresses outside of host buffers, unless --allow-raw-host is given.
            true => self.region.iter().cloned().fold(Bound::dangerously_unowned(*instruction), Bound::holding),
            false => Bound::covered_by(instruction, self.region.as_slice()),
        };
        self.instructions.iter().enumerate().map(bound).collect()
    }
}

/// Runs all programs.
fn run_ranks(cluster: &mut Cluster, nodes: &[u32], runs: &[RankRun<'_>], timeout: Duration) -> Outcome {
    let programs: Vec<_> = runs.iter().map(RankRun::bound).collect();
    let refused = |error| Outcome { completions: vec![Vec::new(); runs.len()], result: Err(error) };
    cluster.run(nodes, &programs, timeout).unwrap_or_else(refused)
}

/// Returns the failure of a run, with its location in the source.
fn located(cards: &Cards, error: Error, loaded: &Loaded) -> Failure {
    match error {
        Error::Failed { rank: Some(rank), instruction: index, .. }
        | Error::Timeout { rank: Some(rank), instruction: Some(index), .. } => {
            let failure = Failure::from(error);
            let message = failure.message().to_owned();
            failure.at_locations(loaded.diagnose(rank, index, &message).into_iter().collect())
        }
        error => cards.failure(error),
    }
}

fn completions(runs: &[RankRun<'_>], nodes: &[u32], loaded: &Loaded, clock_khz: u32) -> Vec<PrintedCompletion> {
    let us = |cycles: u64| rounded(microseconds(cycles, clock_khz));
    let mut all = Vec::new();
    for ((rank, run), node) in (0..).zip(runs).zip(nodes) {
        let start = run.completions.first().map_or(0, |first| first.issued);
        for (index, completion) in run.completions.iter().enumerate() {
            // Print the program's tag, not the queue's.
            let instruction = &run.program.instructions[index];
            all.push(PrintedCompletion {
                rank,
                node: *node,
                instruction: index,
                operation: instruction.operation.name(),
                place: loaded.line(rank, index),
                tag: instruction.tag,
                status: completion.status.to_string(),
                code: completion.status.code(),
                detail: completion.detail,
                issued_us: us(completion.issued.wrapping_sub(start) & Completion::CYCLES_MASK),
                t1_us: us(completion.t1),
                t2_us: us(completion.t2),
                arrival_us: us(completion.arrival),
                bytes: completion.bytes,
            });
        }
    }
    all
}

fn text(printed: &Printed<'_>) -> String {
    let heads = ["RANK", "INSTRUCTION", "OPERATION", "TAG", "ISSUED us", "T1 us", "T2 us", "BYTES", "STATUS", "SOURCE"];
    let rows = printed.completions.iter().map(|one| {
        let [issued, t1, t2] = [one.issued_us, one.t1_us, one.t2_us].map(|us| format!("{us:.3}"));
        [
            one.rank.to_string(),
            one.instruction.to_string(),
            one.operation.to_owned(),
            one.tag.to_string(),
            issued,
            t1,
            t2,
            one.bytes.to_string(),
            one.status.clone(),
            one.place.clone().unwrap_or_default(),
        ]
    });
    let mut text = match &printed.persistent {
        Some(persistent) => persistent.text(),
        None => output::headed(heads, rows),
    };
    for path in &printed.outputs {
        text += &format!("written: {path}\n");
    }
    text.extend(printed.trace.iter().map(Written::text));
    if printed.mock {
        text += MOCK_NOTE;
    }
    text
}

/// Returns the ranks of a transfer, each with the index of its buffer; at least one.
fn ranks_with_buffer(transfer: &Transfer, assembly: &Assembly) -> Result<Vec<(u32, usize)>> {
    let index = |program: &RankProgram| program.buffers.iter().position(|buffer| buffer.name == transfer.buffer);
    let found: Vec<(u32, usize)> = assembly
        .programs
        .iter()
        .filter(|program| transfer.rank.is_none_or(|rank| rank == program.rank))
        .filter_map(|program| Some((program.rank, index(program)?)))
        .collect();
    if found.is_empty() {
        let rank = transfer.rank.map_or(String::new(), |rank| format!(" of rank {rank}"));
        let names: BTreeSet<&str> =
            assembly.programs.iter().flat_map(|one| &one.buffers).map(|one| one.name.as_str()).collect();
        let names: Vec<&str> = names.into_iter().collect();
        let known = if names.is_empty() { "no buffers".to_owned() } else { names.join(", ") };
        let message = format!("unknown buffer `{}`{rank} (the program has: {known})", transfer.buffer);
        return Err(Failure::refused(message));
    }
    Ok(found)
}

/// Data to load into a buffer before the run.
struct Load {
    /// Ranks, each with the index of its buffer.
    holders: Vec<(u32, usize)>,
    data: Data,
    bytes: u64,
}

enum Data {
    Array(Input),
    Raw(File, PathBuf),
}

impl Load {
    fn open(transfer: &Transfer, assembly: &Assembly) -> Result<Self> {
        let path = &transfer.path;
        let (data, bytes) = if is_array(path) {
            let input = Input::open(path)?;
            let bytes = input.bytes();
            (Data::Array(input), bytes)
        } else {
            let (file, metadata) = input_file::open(path)?;
            input_file::check_end(&file, metadata.len(), path)?;
            (Data::Raw(file, path.clone()), metadata.len())
        };
        let holders = ranks_with_buffer(transfer, assembly)?;
        for (rank, index) in &holders {
            let room = assembly.programs[*rank as usize].buffers[*index].bytes;
            if bytes > room {
                let (file, buffer) = (path.display(), &transfer.buffer);
                let message = format!("rank {rank}: {file} has {bytes} B: buffer `{buffer}` has room for {room} B");
                return Err(Failure::refused(message).of_rank(*rank));
            }
        }
        Ok(Load { holders, data, bytes })
    }

    fn write(&self, cards: &mut Cards, run: &RankRun<'_>, index: usize) -> Result<()> {
        let mut chunk = vec![0; CHUNK.min(usize::try_from(self.bytes).unwrap_or(CHUNK))];
        let (buffer, host) = run.buffer(index);
        for (offset, length) in data::chunks(self.bytes) {
            let data = &mut chunk[..length];
            match &self.data {
                Data::Array(input) => input.read(offset, data)?,
                Data::Raw(file, path) => file
                    .read_exact_at(data, offset)
                    .map_err(|error| Failure::new(Exit::Failed, format!("{}: {error}", path.display())))?,
            }
            match host {
                None => {
                    let index = run.program.rank as usize;
                    let written = cards.cluster.card_mut(index).write_memory(buffer.address + offset, data);
                    written.map_err(|error| cards.failed("copy in", error))?;
                }
                Some((region, at)) => region.write((at + offset) as usize, data)?,
            }
        }
        Ok(())
    }
}

impl RankRun<'_> {
    /// Returns a buffer; for a host buffer, also its location.
    fn buffer(&self, index: usize) -> (&Buffer, Option<InRegion<'_>>) {
        let buffer = &self.program.buffers[index];
        let host = self.region.as_ref().filter(|_| buffer.space == AddressSpace::Host);
        (buffer, host.map(|region| (region, self.offsets[index])))
    }
}

/// A buffer to write to a file after the run.
struct Dump {
    rank: u32,
    /// Index of the buffer.
    index: usize,
    path: PathBuf,
    element: Element,
    bytes: u64,
}

fn is_array(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "npy")
}

fn dumps(transfers: &[Transfer], assembly: &Assembly, element: Element) -> Result<Vec<Dump>> {
    let mut dumps = Vec::new();
    for transfer in transfers {
        let holders = ranks_with_buffer(transfer, assembly)?;
        for (rank, index) in &holders {
            let bytes = assembly.programs[*rank as usize].buffers[*index].bytes;
            let path = npy::path_of_rank(&transfer.path, *rank, holders.len() > 1);
            if is_array(&path) && bytes % element.bytes() != 0 {
                let (buffer, size, name) = (&transfer.buffer, element.bytes(), element.name());
                let message =
                    format!("rank {rank}: buffer `{buffer}` has {bytes} B: expected a multiple of {size} B for {name}");
                return Err(Failure::refused(message).of_rank(*rank));
            }
            dumps.push(Dump { rank: *rank, index: *index, path, element, bytes });
        }
    }
    Ok(dumps)
}

impl Dump {
    /// Writes the file, which does not appear yet.
    fn write(&self, cards: &mut Cards, run: &RankRun<'_>) -> Result<Finished> {
        let mut file = match is_array(&self.path) {
            true => npy::create(&self.path, self.element, self.bytes)?,
            false => AtomicFile::create(&self.path)?,
        };
        self.chunks(cards, run, |data| file.append(data))?;
        file.finish()
    }

    fn chunks(&self, cards: &mut Cards, run: &RankRun<'_>, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut chunk = vec![0; CHUNK.min(usize::try_from(self.bytes).unwrap_or(CHUNK))];
        let (buffer, host) = run.buffer(self.index);
        for (offset, length) in data::chunks(self.bytes) {
            let data = &mut chunk[..length];
            match host {
                None => {
                    let index = run.program.rank as usize;
                    let read = cards.cluster.card_mut(index).read_memory(buffer.address + offset, data);
                    read.map_err(|error| cards.failed("copy out", error))?;
                }
                Some((region, at)) => region.read((at + offset) as usize, data)?,
            }
            take(data)?;
        }
        Ok(())
    }
}

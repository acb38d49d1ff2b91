//! `fpgactl run FILE`: a program on the cards, and what each instruction took.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cmdseq::asm::{Assembly, Buffer, Options, RankProgram};
use cmdseq::plan::Program;
use cmdseq::{AddressSpace, Completion, Instruction, Status};
use fpga_driver::{Bound, Card, Cluster, Error, Token, Unfinished, check};
use fpga_hal::DmaBuffer;
use serde::Serialize;

use crate::cards::{Cards, MOCK_NOTE};
use crate::cli::{self, Cli, Transfer};
use crate::data::CHUNK;
use crate::exit::{Exit, Failure, Result};
use crate::host_memory;
use crate::input_file;
use crate::interrupt::Interrupt;
use crate::npy::{self, Element, Input};
use crate::output;
use crate::run_persistent;
use crate::source::{self, Loaded};
use crate::units::rounded;
use crate::verification::verified;
use crate::whole_file::WholeFile;

/// Host buffers begin on pages of their own.
const PAGE: u64 = 4096;
/// How long other ranks may go on after one has failed.
const GRACE: Duration = Duration::from_millis(50);
/// How long to sleep on one card while others may have something to say.
const SLEEP: Duration = Duration::from_millis(1);
/// Bits of the cards' counter.
const CYCLES_MASK: u64 = (1 << 48) - 1;

#[derive(Serialize)]
struct Printed<'a> {
    schema: &'static str,
    selector: &'a str,
    kind: &'static str,
    mock: bool,
    ranks: u32,
    completions: Vec<PrintedCompletion>,
    #[serde(skip_serializing_if = "Option::is_none")]
    persistent: Option<run_persistent::Printed>,
    outputs: Vec<String>,
}

#[derive(Serialize)]
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
    let interrupt = Interrupt::listen()?;
    let mut cards = Cards::named_within(cli, Duration::from_secs_f64(arguments.timeout))?;
    let nodes = cards.nodes();
    let ranks = nodes.len() as u32;
    let options = Options { ranks: Some(ranks), raw_host: arguments.allow_raw_host, ..Options::default() };
    let (loaded, read) = source::load(&arguments.file, arguments.root.as_deref(), &options)?;
    let assembly = loaded.assembly();
    let communicators = verified(&loaded, &cards, arguments.expect.as_ref(), arguments.persistent)?;
    let loads = arguments.load.iter().map(|one| Load::open(one, assembly)).collect::<Result<Vec<_>>>()?;
    let dumps = dumps(&arguments.dump, assembly, arguments.dtype)?;
    let read = read.iter().chain(arguments.load.iter().map(|load| &load.path)).collect::<Vec<_>>();
    input_file::check_outputs(&read, &dumps.iter().map(|dump| &dump.path).collect::<Vec<_>>())?;

    let timeout = Duration::from_secs_f64(arguments.timeout);
    let layouts = assembly.programs.iter().map(HostLayout::of).collect::<Result<Vec<_>>>()?;
    host_memory::check(layouts.iter().fold(0, |sum, layout| sum.saturating_add(layout.bytes)))?;
    let mut lanes = Vec::new();
    cards.cluster.set_timeout(timeout);
    for (place, (program, layout)) in assembly.programs.iter().zip(layouts).enumerate() {
        let card = cards.cluster.card_mut(place);
        lanes.push(Lane::new(card, program, layout)?);
        let loaded = card.load_tables(&program.tables);
        loaded.map_err(|error| cards.failed("tables", error))?;
    }
    if !arguments.persistent {
        // What is stored has communicators of its own.
        for communicator in &communicators {
            cards.cluster.define(communicator).map_err(|error| cards.failed("communicators", error))?;
        }
    }
    for load in &loads {
        for rank in &load.ranks {
            interrupt.check()?;
            load.put(&mut cards, &lanes[*rank as usize])?;
        }
    }
    let (persistent, failure) = if arguments.persistent {
        let program = |lane: &Lane<'_>| Program {
            instructions: lane.instructions.clone(),
            tables: lane.program.tables.clone(),
            ..Program::default()
        };
        let programs = lanes.iter().map(program).collect();
        let launched = run_persistent::run(&mut cards, programs, communicators, arguments.repeat, timeout, &interrupt)?;
        (Some(launched), None)
    } else {
        let outcome = interrupt.at_once(|| run_lanes(&mut cards.cluster, &mut lanes, timeout))?;
        (None, failure(&cards, &lanes, &nodes, outcome, &loaded))
    };
    let mut outputs = Vec::new();
    if failure.is_none() {
        for dump in &dumps {
            interrupt.check()?;
            outputs.push(dump.take(&mut cards, &lanes[dump.rank as usize])?);
        }
    }

    let printed = Printed {
        schema: "fpgactl.run/1",
        selector: &cards.selector,
        kind: cards.kind.name(),
        mock: cards.are_mock(),
        ranks,
        completions: completions(&lanes, &nodes, &loaded, cards.capabilities().clock_khz),
        persistent,
        outputs,
    };
    match cli.json {
        true => output::json(&printed)?,
        false => output::write(text(&printed).as_bytes())?,
    }
    failure.map_or(Ok(()), Err)
}

/// The host memory that a buffer is in, and where it begins there.
type InRegion<'a> = (&'a Arc<DmaBuffer>, u64);

/// One rank's part.
struct Lane<'p> {
    program: &'p RankProgram,
    instructions: Vec<Instruction>,
    /// All host buffers of the rank, each at its offset; none if there are none.
    region: Option<Arc<DmaBuffer>>,
    offsets: Vec<u64>,
    next: usize,
    tokens: VecDeque<Token>,
    completions: Vec<Completion>,
}

/// Where the host buffers of a rank lie in one region.
struct HostLayout {
    /// By index of the buffer; of those on the card it says nothing.
    offsets: Vec<u64>,
    /// Of all of them.
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

impl<'p> Lane<'p> {
    fn new(card: &Card, program: &'p RankProgram, layout: HostLayout) -> Result<Self> {
        let HostLayout { offsets, bytes } = layout;
        let bytes = usize::try_from(bytes).map_err(|error| Failure::refused(error.to_string()))?;
        let region = (bytes > 0).then(|| card.allocate(bytes)).transpose()?;
        let base = region.as_ref().map_or(0, |region| region.iova().0);
        let instructions = program.bound(|buffer| base + offsets[buffer]).map_err(Failure::refused)?;
        let (tokens, completions) = (VecDeque::new(), Vec::new());
        Ok(Lane { program, instructions, region, offsets, next: 0, tokens, completions })
    }

    /// Stores what fits into the ring, and takes the completions that are there. Says whether anything was done.
    fn advance(&mut self, card: &mut Card) -> fpga_driver::Result<bool> {
        let (queue, mut is_busy) = (card.queue_mut(), false);
        while let Some(instruction) = self.instructions.get(self.next) {
            if !queue.has_room() {
                break;
            }
            // Loading has refused addresses in host memory that are in no host buffer, unless they are allowed.
            let bound = match self.program.names_raw_host(self.next) {
                true => self.region.iter().cloned().fold(Bound::dangerously_unowned(*instruction), Bound::holding),
                false => Bound::covered_by(instruction, self.region.as_slice()),
            };
            self.tokens.push_back(queue.push(bound)?);
            self.next += 1;
            is_busy = true;
        }
        queue.ring()?;
        queue.poll()?;
        while let Some(token) = self.tokens.pop_front() {
            match queue.take(token)? {
                Ok(completion) => self.completions.push(completion),
                Err(token) => {
                    self.tokens.push_front(token);
                    break;
                }
            }
            is_busy = true;
        }
        Ok(is_busy)
    }

    fn is_done(&self) -> bool {
        self.completions.len() == self.instructions.len()
    }

    fn has_failed(&self) -> bool {
        self.completions.iter().any(|completion| completion.status != Status::Done)
    }
}

/// Runs all lanes to their end, or until the time is over, or others have had a while after one failed. What is not
/// complete then is aborted, on all cards together.
fn run_lanes(cluster: &mut Cluster, lanes: &mut [Lane<'_>], timeout: Duration) -> fpga_driver::Result<()> {
    let mut outcome = advance_all(cluster, lanes, timeout);
    if outcome.is_err() || !lanes.iter().all(Lane::is_done) {
        lanes.iter_mut().flat_map(|lane| lane.tokens.drain(..)).for_each(Token::abandon);
        outcome = outcome.and(cluster.abort(0..lanes.len()));
    }
    outcome
}

fn advance_all(cluster: &mut Cluster, lanes: &mut [Lane<'_>], timeout: Duration) -> fpga_driver::Result<()> {
    let began = Instant::now();
    let mut failed_at: Option<Instant> = None;
    let mut sleeper = 0;
    loop {
        let mut is_busy = false;
        for (place, lane) in lanes.iter_mut().enumerate() {
            is_busy |= lane.advance(cluster.card_mut(place))?;
        }
        if lanes.iter().all(Lane::is_done) {
            return Ok(());
        }
        if failed_at.is_none() && lanes.iter().any(Lane::has_failed) {
            failed_at = Some(Instant::now());
        }
        if failed_at.is_some_and(|at| at.elapsed() >= GRACE) {
            return Ok(());
        }
        if began.elapsed() >= timeout {
            return match failed_at {
                Some(_) => Ok(()),
                None => Err(late(cluster, lanes, began.elapsed())),
            };
        }
        if is_busy {
            continue;
        }
        // Every unfinished card in turn, so that one that is gone or halted is found out.
        let turns = (1..=lanes.len()).map(|step| (sleeper + step) % lanes.len());
        sleeper = turns.into_iter().find(|lane| !lanes[*lane].is_done()).unwrap_or(0);
        cluster.card_mut(sleeper).queue_mut().wait_progress(SLEEP)?;
    }
}

/// The error of a wait that was in vain.
fn late(cluster: &Cluster, lanes: &[Lane<'_>], waited: Duration) -> Error {
    let group: Vec<u32> = cluster.cards().iter().map(Card::node).collect();
    let unfinished = |(place, lane): (usize, &Lane<'_>)| Unfinished {
        rank: place as u32,
        place,
        phase: "program",
        instruction: Some(lane.completions.len()),
        operation: lane.instructions[lane.completions.len()].operation,
        completed: lane.completions.len() as u64,
    };
    let unfinished: Vec<_> = lanes.iter().enumerate().filter(|(_, lane)| !lane.is_done()).map(unfinished).collect();
    cluster.timeout(&group, &unfinished, waited)
}

/// What went wrong: a completion that says so, or an error of the driver.
fn failure(
    cards: &Cards,
    lanes: &[Lane<'_>],
    nodes: &[u32],
    outcome: fpga_driver::Result<()>,
    loaded: &Loaded,
) -> Option<Failure> {
    let place = |rank: usize, index: usize, failure: Failure| {
        let message = failure.message().to_owned();
        failure.at_places(loaded.diagnose(rank as u32, index, &message).into_iter().collect())
    };
    // That one was only aborted tells less than why the others were.
    for aborted in [false, true] {
        for (rank, lane) in lanes.iter().enumerate() {
            for (index, completion) in lane.completions.iter().enumerate() {
                if !aborted && completion.status == Status::Aborted {
                    continue;
                }
                let operation = lane.instructions[index].operation;
                if let Err(error) = check(*completion, nodes[rank], index, operation) {
                    let failure = Failure::from(error).of_instruction(rank as u32, index);
                    return Some(place(rank, index, failure));
                }
            }
        }
    }
    match outcome.err()? {
        error @ Error::Timeout { rank: Some(rank), instruction: Some(index), .. } => {
            Some(place(rank as usize, index, error.into()))
        }
        error => Some(cards.failure(error)),
    }
}

fn completions(lanes: &[Lane<'_>], nodes: &[u32], loaded: &Loaded, clock_khz: u32) -> Vec<PrintedCompletion> {
    let us = |cycles: u64| rounded(cycles as f64 * 1e3 / f64::from(clock_khz));
    let mut all = Vec::new();
    for ((rank, lane), node) in (0..).zip(lanes).zip(nodes) {
        let start = lane.completions.first().map_or(0, |first| first.issued);
        for (index, completion) in lane.completions.iter().enumerate() {
            // The queue gives tags of its own; what the program says is what its author looks for.
            let instruction = &lane.program.instructions[index];
            all.push(PrintedCompletion {
                rank,
                node: *node,
                instruction: index,
                operation: instruction.operation.name(),
                place: loaded.place(rank, index),
                tag: instruction.tag,
                status: completion.status.to_string(),
                code: completion.status.code(),
                detail: completion.detail,
                issued_us: us(completion.issued.wrapping_sub(start) & CYCLES_MASK),
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
    let mut rows = vec![heads.map(String::from).to_vec()];
    for one in &printed.completions {
        rows.push(vec![
            one.rank.to_string(),
            one.instruction.to_string(),
            one.operation.to_owned(),
            one.tag.to_string(),
            format!("{:.3}", one.issued_us),
            format!("{:.3}", one.t1_us),
            format!("{:.3}", one.t2_us),
            one.bytes.to_string(),
            one.status.clone(),
            one.place.clone().unwrap_or_default(),
        ]);
    }
    let mut text = match &printed.persistent {
        Some(persistent) => persistent.text(),
        None => output::table(&rows),
    };
    for path in &printed.outputs {
        text += &format!("written: {path}\n");
    }
    if printed.mock {
        text += MOCK_NOTE;
    }
    text
}

/// The ranks that a transfer is of, and the index of its buffer on each; at least one.
fn holders(transfer: &Transfer, assembly: &Assembly) -> Result<Vec<(u32, usize)>> {
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
        let message = format!("unknown buffer `{}`{rank} (the program has: {})", transfer.buffer, names.join(", "));
        return Err(Failure::refused(message));
    }
    Ok(found)
}

/// What is put into a buffer before.
struct Load {
    name: String,
    ranks: Vec<u32>,
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
            (Data::Raw(file, path.clone()), metadata.len())
        };
        let holders = holders(transfer, assembly)?;
        for (rank, index) in &holders {
            let room = assembly.programs[*rank as usize].buffers[*index].bytes;
            if bytes > room {
                let (file, buffer) = (path.display(), &transfer.buffer);
                let message = format!("rank {rank}: {file} has {bytes} B: buffer `{buffer}` has room for {room} B");
                return Err(Failure::refused(message).of_rank(*rank));
            }
        }
        Ok(Load {
            name: transfer.buffer.clone(),
            ranks: holders.into_iter().map(|(rank, _)| rank).collect(),
            data,
            bytes,
        })
    }

    fn put(&self, cards: &mut Cards, lane: &Lane<'_>) -> Result<()> {
        let mut chunk = vec![0; CHUNK.min(usize::try_from(self.bytes).unwrap_or(CHUNK))];
        let mut offset = 0;
        while offset < self.bytes {
            let length = (self.bytes - offset).min(CHUNK as u64) as usize;
            let data = &mut chunk[..length];
            match &self.data {
                Data::Array(input) => input.read(offset, data)?,
                Data::Raw(file, path) => file
                    .read_exact_at(data, offset)
                    .map_err(|error| Failure::new(Exit::Failed, format!("{}: {error}", path.display())))?,
            }
            match lane.find(&self.name)? {
                (buffer, None) => {
                    let place = lane.program.rank as usize;
                    let written = cards.cluster.card_mut(place).write_memory(buffer.address + offset, data);
                    written.map_err(|error| cards.failed("copy in", error))?;
                }
                (_, Some((region, at))) => region.write((at + offset) as usize, data)?,
            }
            offset += length as u64;
        }
        Ok(())
    }
}

impl Lane<'_> {
    /// The buffer of this name; of a host buffer also where it lies.
    fn find(&self, name: &str) -> Result<(&Buffer, Option<InRegion<'_>>)> {
        let found = self.program.buffers.iter().position(|buffer| buffer.name == name);
        let index = found.ok_or_else(|| Failure::refused(format!("unknown buffer `{name}`")))?;
        let buffer = &self.program.buffers[index];
        let host = self.region.as_ref().filter(|_| buffer.space == AddressSpace::Host);
        Ok((buffer, host.map(|region| (region, self.offsets[index]))))
    }
}

/// What is written of a buffer behind.
struct Dump {
    name: String,
    rank: u32,
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
        let holders = holders(transfer, assembly)?;
        for (rank, index) in &holders {
            let bytes = assembly.programs[*rank as usize].buffers[*index].bytes;
            let path = npy::path_of_rank(&transfer.path, *rank, holders.len() > 1);
            if is_array(&path) && bytes % element.bytes() != 0 {
                let (buffer, size, name) = (&transfer.buffer, element.bytes(), element.name());
                let message =
                    format!("rank {rank}: buffer `{buffer}` has {bytes} B: expected a multiple of {size} B for {name}");
                return Err(Failure::refused(message).of_rank(*rank));
            }
            dumps.push(Dump { name: transfer.buffer.clone(), rank: *rank, path, element, bytes });
        }
    }
    Ok(dumps)
}

impl Dump {
    /// Writes the file, and gives its name.
    fn take(&self, cards: &mut Cards, lane: &Lane<'_>) -> Result<String> {
        let mut file = match is_array(&self.path) {
            true => npy::create(&self.path, self.element, self.bytes)?,
            false => WholeFile::create(&self.path)?,
        };
        self.chunks(cards, lane, |data| file.append(data))?;
        file.keep()?;
        Ok(self.path.display().to_string())
    }

    fn chunks(&self, cards: &mut Cards, lane: &Lane<'_>, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut chunk = vec![0; CHUNK.min(usize::try_from(self.bytes).unwrap_or(CHUNK))];
        let mut offset = 0;
        while offset < self.bytes {
            let length = (self.bytes - offset).min(CHUNK as u64) as usize;
            let data = &mut chunk[..length];
            match lane.find(&self.name)? {
                (buffer, None) => {
                    let place = lane.program.rank as usize;
                    let read = cards.cluster.card_mut(place).read_memory(buffer.address + offset, data);
                    read.map_err(|error| cards.failed("copy out", error))?;
                }
                (_, Some((region, at))) => region.read((at + offset) as usize, data)?,
            }
            take(data)?;
            offset += length as u64;
        }
        Ok(())
    }
}

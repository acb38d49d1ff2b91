//! `fpgactl plan OP`: shows a collective's programs, predicted times and algorithm.

use std::fmt::Write as _;

use cmdseq::Refusal;
use cmdseq::asm::{self, Assembly};
use cmdseq::cost::Bound;
use cmdseq::instruction::has_address_in_extent;
use cmdseq::plan::{self, Algorithm, Piece, Plan, Program, SharedLinks};
use cmdseq::table::{Entry, Table};
use cmdseq::{Capabilities, CostModel, Instruction, Layout, Operand};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cards::{self, Cards};
use crate::cli::{self, Cli};
use crate::exit::{Failure, Result};
use crate::source::check_binary_name;
use crate::units::{rounded, us_of_ps};
use crate::{atomic_file, calibration, collective, input_file, output, request, size};

#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed<'a> {
    schema: &'static str,
    op: &'static str,
    ranks: u32,
    bytes: u64,
    #[serde(skip_serializing_if = "<[u64]>::is_empty")]
    counts: &'a [u64],
    algorithm: &'static str,
    kind: &'static str,
    mock: bool,
    selector: &'a str,
    predicted: Times,
    bound_us: Option<f64>,
    busiest_link_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    shared_links: Option<Shared>,
    bytes_per_destination: u64,
    notes: Vec<String>,
    #[serde(skip_serializing_if = "<[u32]>::is_empty")]
    relays: &'a [u32],
    communicators: Vec<Communicator<'a>>,
    programs: Vec<PrintedProgram>,
    #[serde(skip_serializing_if = "Option::is_none")]
    candidates: Option<Vec<Candidate>>,
    /// With candidates, of a plan for switches that compute.
    #[serde(skip_serializing_if = "Option::is_none")]
    switch: Option<InSwitches>,
}

/// The terms of LogGP of a plan for switches: `Os + L + k G + Or` is its arrival.
#[derive(Debug, Clone, Copy, JsonSchema, Serialize)]
struct InSwitches {
    /// Os: dispatch, and the read of card memory.
    send_us: f64,
    /// L: through units, routers and links.
    latency_us: f64,
    /// k G: what a port sends after the first piece.
    gaps_us: f64,
    /// Or: through the own switch to card memory.
    receive_us: f64,
    /// The fastest plan without the units of the switches.
    #[serde(skip_serializing_if = "Option::is_none")]
    without: Option<WithoutUnits>,
}

#[derive(Debug, Clone, Copy, JsonSchema, Serialize)]
struct WithoutUnits {
    algorithm: &'static str,
    arrival_us: f64,
}

/// What ranks share of the links between routers.
#[derive(Debug, Clone, Copy, JsonSchema, Serialize)]
struct Shared {
    farthest: u32,
    pairs: u32,
}

/// Predicted times.
#[derive(Debug, Clone, Copy, JsonSchema, Serialize)]
pub(crate) struct Times {
    t1_us: f64,
    t2_us: f64,
    arrival_us: f64,
}

#[derive(JsonSchema, Serialize)]
struct Communicator<'a> {
    id: u16,
    members: &'a [u32],
}

#[derive(JsonSchema, Serialize)]
struct PrintedProgram {
    rank: Option<u32>,
    node: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tables: Vec<PrintedTable>,
    instructions: Vec<PrintedInstruction>,
    input: Vec<PrintedPiece>,
    output: Vec<PrintedPiece>,
}

#[derive(JsonSchema, Serialize)]
struct PrintedInstruction {
    operation: &'static str,
    communicator: u16,
    root: u16,
    peer: u16,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    element: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reduction: Option<&'static str>,
    extent: u64,
    source: Address,
    destination: Address,
    #[serde(skip_serializing_if = "Option::is_none")]
    lane: Option<u8>,
    flags: Vec<String>,
}

#[derive(JsonSchema, Serialize)]
struct Address {
    address: u64,
    layout: &'static str,
}

#[derive(JsonSchema, Serialize)]
struct PrintedTable {
    slot: u16,
    blocks: Vec<PrintedBlock>,
}

/// The block of a rank in a table.
#[derive(JsonSchema, Serialize)]
struct PrintedBlock {
    displacement: u64,
    bytes: u64,
}

#[derive(JsonSchema, Serialize)]
struct PrintedPiece {
    offset: u64,
    address: u64,
    bytes: u64,
}

#[derive(JsonSchema, Serialize)]
struct Candidate {
    algorithm: &'static str,
    predicted: Option<Times>,
    terms: Option<Vec<PrintedTerm>>,
    bound: Option<&'static str>,
    refused: Option<String>,
}

/// A term of the predicted arrival, summed along the critical path.
#[derive(JsonSchema, Serialize)]
struct PrintedTerm {
    bound: &'static str,
    us: f64,
}

impl From<&Plan> for Times {
    fn from(plan: &Plan) -> Self {
        let predicted = plan.predicted;
        Times {
            t1_us: us_of_ps(predicted.t1_ps),
            t2_us: us_of_ps(predicted.t2_ps),
            arrival_us: us_of_ps(predicted.arrival_ps),
        }
    }
}

/// Returns the time that no plan can be below on cards as fast as `model`; `None` if there is no such time, or nothing to do.
pub(crate) fn bound_us(plan: &Plan, capabilities: &Capabilities, model: &CostModel) -> Option<f64> {
    let mut capabilities = capabilities.clone();
    capabilities.timing = model.timing;
    // Of links that differ, data may go over the fastest.
    capabilities.timing.link_mbps = model.links.values().copied().fold(model.timing.link_mbps, u32::max);
    let bound = plan.request.lower_bound(&capabilities)?.total_ps();
    (bound > 0).then(|| us_of_ps(bound))
}

pub(crate) fn run(cli: &Cli, arguments: &cli::Plan) -> Result<()> {
    let saved = arguments.save.as_slice();
    input_file::check_outputs(arguments.operation.terms.calibration.as_slice(), saved)?;
    arguments.save.iter().try_for_each(|path| check_binary_name("--save", path))?;
    let cards = Cards::selected(cli)?;
    let mut request = request::request(&arguments.operation, &[], cards.nodes())?;
    request.resident = arguments.persistent;
    let model = calibration::model(arguments.operation.terms.calibration.as_deref(), cards.capabilities())?;
    let plan = plan::plan_with(&request, cards.capabilities(), &model)?;
    if let Some(path) = &arguments.save {
        let assembly = Assembly::of(&plan.set, &cards.nodes()).map_err(Failure::refused)?;
        atomic_file::write(path, &asm::encode(&assembly))?;
    }
    let candidates = arguments.explain.then(|| plan::candidates_with(&request, cards.capabilities(), &model));
    if cli.json {
        return output::json(&printed(&cards, &plan, &model, candidates.as_deref()));
    }
    output::text(&text(&cards, &plan, &model, candidates.as_deref()))
}

type Evaluated = (Algorithm, std::result::Result<Plan, Refusal>);

fn printed<'a>(cards: &'a Cards, plan: &'a Plan, model: &CostModel, candidates: Option<&[Evaluated]>) -> Printed<'a> {
    let ranks = (0..plan.request.ranks()).map(Some).chain(std::iter::repeat(None));
    let ranks = plan.set.nodes.iter().zip(&plan.set.programs).zip(ranks);
    Printed {
        schema: "fpgactl.plan/1",
        op: plan.request.collective.name(),
        ranks: plan.request.ranks(),
        bytes: plan.request.bytes,
        counts: &plan.request.counts,
        algorithm: plan.algorithm.name(),
        kind: cards.kind.name(),
        mock: cards.are_mock(),
        selector: &cards.selector,
        predicted: plan.into(),
        bound_us: bound_us(plan, cards.capabilities(), model),
        busiest_link_bytes: plan.busiest_link_bytes,
        shared_links: plan.shared_links.map(|SharedLinks { farthest, pairs }| Shared { farthest, pairs }),
        bytes_per_destination: plan.bytes_per_destination,
        notes: collective::notes(plan, cards),
        relays: plan.relays(),
        communicators: plan
            .set
            .communicators
            .iter()
            .map(|one| Communicator { id: one.id, members: &one.members })
            .collect(),
        programs: ranks.map(|((node, program), rank)| printed_program(rank, *node, program)).collect(),
        candidates: candidates.map(|all| all.iter().map(candidate).collect()),
        switch: candidates.and_then(|all| in_switches(plan, all, cards.capabilities())),
    }
}

fn printed_program(rank: Option<u32>, node: u32, program: &Program) -> PrintedProgram {
    let pieces = |pieces: &[Piece]| -> Vec<PrintedPiece> {
        pieces.iter().map(|&Piece { offset, address, bytes }| PrintedPiece { offset, address, bytes }).collect()
    };
    let table = |(slot, table): (&u16, &Table)| {
        let blocks = table.entries.iter();
        let blocks = blocks.map(|&Entry { displacement, bytes }| PrintedBlock { displacement, bytes }).collect();
        PrintedTable { slot: *slot, blocks }
    };
    PrintedProgram {
        rank,
        node,
        tables: program.tables.iter().map(table).collect(),
        instructions: program.instructions.iter().map(printed_instruction).collect(),
        input: pieces(&program.input),
        output: pieces(&program.output),
    }
}

fn printed_instruction(instruction: &Instruction) -> PrintedInstruction {
    let address = |operand: &Operand| Address { address: operand.address, layout: layout(operand.layout) };
    PrintedInstruction {
        operation: instruction.operation.name(),
        communicator: instruction.communicator,
        root: instruction.root,
        peer: instruction.peer,
        bytes: instruction.bytes,
        element: instruction.element.map(|one| one.name()),
        reduction: instruction.reduction.map(|one| one.name()),
        extent: instruction.extent,
        source: address(&instruction.source),
        destination: address(&instruction.destination),
        lane: Some(instruction.lane).filter(|lane| *lane != 0),
        flags: flags(instruction),
    }
}

const fn layout(layout: Layout) -> &'static str {
    match layout {
        Layout::Block => "block",
        Layout::Striped => "striped",
    }
}

/// Returns the names of the flags, as in a source.
fn flags(instruction: &Instruction) -> Vec<String> {
    instruction.flags.iter_names().map(|(name, _)| name.to_ascii_lowercase()).collect()
}

fn candidate((algorithm, result): &Evaluated) -> Candidate {
    let plan = result.as_ref().ok();
    Candidate {
        algorithm: algorithm.name(),
        predicted: plan.map(Times::from),
        terms: plan.map(terms),
        bound: plan.map(|plan| plan.predicted.terms.dominant().name()),
        refused: result.as_ref().err().map(Refusal::to_string),
    }
}

fn terms(plan: &Plan) -> Vec<PrintedTerm> {
    let us = |bound: &Bound| us_of_ps(plan.predicted.terms.of(*bound));
    Bound::ALL
        .iter()
        .map(|bound| PrintedTerm { bound: bound.name(), us: us(bound) })
        .filter(|one| one.us > 0.0)
        .collect()
}

/// Lists the terms of the predicted arrival and names the dominant one.
fn terms_text(plan: &Plan) -> String {
    let parts: Vec<String> = terms(plan).iter().map(|term| format!("{} {:.3}", term.bound, term.us)).collect();
    format!("{}; {}-bound", parts.join(", "), plan.predicted.terms.dominant().name())
}

fn text(cards: &Cards, plan: &Plan, model: &CostModel, candidates: Option<&[Evaluated]>) -> String {
    let request = &plan.request;
    let times = Times::from(plan);
    let blocks = if request.collective.has_counts() { "blocks of at most " } else { "" };
    let mut text = format!(
        "{} of {blocks}{} over {} ranks, {}, {} cards ({})\n",
        request.collective,
        size::show(request.bytes),
        request.ranks(),
        plan.algorithm,
        cards::kind(cards.kind.name(), cards.are_mock()),
        cards.selector
    );
    let _ = writeln!(
        text,
        "predicted: T1 {:.3} us, T2 {:.3} us, arrival {:.3} us; {} over the busiest link",
        times.t1_us,
        times.t2_us,
        times.arrival_us,
        size::show(plan.busiest_link_bytes)
    );
    if let Some(bound) = bound_us(plan, cards.capabilities(), model) {
        let _ = writeln!(text, "bound: {bound:.3} us; the plan takes {:.2} times that", times.arrival_us / bound);
    }
    if let Some(SharedLinks { farthest, pairs }) = plan.shared_links {
        let _ = writeln!(
            text,
            "routers: at most {farthest} links from a card to one it sends to; at most {pairs} pairs of cards share a link"
        );
    }
    for note in collective::notes(plan, cards) {
        let _ = writeln!(text, "note: {note}");
    }
    if let Some(candidates) = candidates {
        text += &explanation(plan, candidates);
        text += &in_switches_text(plan, candidates, cards.capabilities());
    }
    if !plan.set.communicators.is_empty() {
        text.push('\n');
    }
    for communicator in &plan.set.communicators {
        let members: Vec<String> = communicator.members.iter().map(u32::to_string).collect();
        let _ = writeln!(text, "communicator {}: nodes {}", communicator.id, members.join(" "));
    }
    text + &programs(plan)
}

fn explanation(plan: &Plan, candidates: &[Evaluated]) -> String {
    let rows: Vec<Vec<String>> = candidates
        .iter()
        .map(|(algorithm, result)| {
            let verdict = match result {
                Ok(one) => format!("arrival {:.3} us: {}", Times::from(one).arrival_us, terms_text(one)),
                Err(refusal) => format!("unavailable: {refusal}"),
            };
            let mark = match plan.request.algorithm {
                _ if *algorithm != plan.algorithm => "",
                Some(_) => "selected by --algorithm",
                None => "selected: earliest arrival",
            };
            vec![format!("  {algorithm}"), mark.to_owned(), verdict]
        })
        .collect();
    format!("\ncandidate algorithms:\n{}", output::table(&rows))
}

/// Returns the LogGP terms of a plan for switches, and the fastest plan without their units.
fn in_switches(plan: &Plan, candidates: &[Evaluated], capabilities: &Capabilities) -> Option<InSwitches> {
    if plan.algorithm != Algorithm::Switch {
        return None;
    }
    let timing = &capabilities.timing;
    let cycles = |cycles: u32| us_of_ps(u64::from(cycles) * 1_000_000_000 / u64::from(capabilities.clock_khz.max(1)));
    let (send_us, receive_us) =
        (cycles(timing.dispatch_cycles + timing.memory_read_cycles), cycles(timing.switch_cycles));
    let others = candidates.iter().filter(|(algorithm, _)| *algorithm != Algorithm::Switch);
    let best = others.filter_map(|(_, result)| result.as_ref().ok()).min_by_key(|other| other.predicted.arrival_ps);
    Some(InSwitches {
        send_us,
        latency_us: rounded(us_of_ps(plan.predicted.terms.of(Bound::Latency)) - send_us - receive_us),
        gaps_us: us_of_ps(plan.predicted.terms.of(Bound::Link)),
        receive_us,
        without: best
            .map(|best| WithoutUnits { algorithm: best.algorithm.name(), arrival_us: Times::from(best).arrival_us }),
    })
}

fn in_switches_text(plan: &Plan, candidates: &[Evaluated], capabilities: &Capabilities) -> String {
    let Some(of) = in_switches(plan, candidates, capabilities) else { return String::new() };
    let InSwitches { send_us, latency_us, gaps_us, receive_us, without } = of;
    let mut text =
        format!("switch, by LogGP: Os {send_us:.3} + L {latency_us:.3} + k G {gaps_us:.3} + Or {receive_us:.3} us\n");
    if let Some(WithoutUnits { algorithm, arrival_us }) = without {
        let times = arrival_us / Times::from(plan).arrival_us;
        let _ = writeln!(
            text,
            "without the units of the switches: {algorithm}, arrival {arrival_us:.3} us, {times:.2} times that"
        );
    }
    text
}

/// Prints the programs; consecutive ranks with equal programs appear once.
fn programs(plan: &Plan) -> String {
    let mut alike: Vec<(Vec<usize>, &Program)> = Vec::new();
    let (ranks, relays) = plan.set.programs.split_at(plan.request.group.len());
    for (rank, program) in ranks.iter().enumerate() {
        match alike.last_mut().filter(|(_, last)| *last == program) {
            Some((ranks, _)) => ranks.push(rank),
            None => alike.push((vec![rank], program)),
        }
    }
    let title = |ranks: &[usize]| match ranks {
        [rank] => format!("rank {rank}"),
        [first, .., last] => format!("ranks {first} to {last}"),
        [] => String::new(),
    };
    let ranks = alike.into_iter().map(|(ranks, program)| program_text(&title(&ranks), program));
    let relays = relays.iter().zip(plan.relays());
    let relays = relays.map(|(program, node)| program_text(&format!("relay on node {node}"), program));
    ranks.chain(relays).collect()
}

fn program_text(title: &str, program: &Program) -> String {
    let mut text = format!("\n{title}\n");
    if program.instructions.is_empty() {
        text += "  no instructions\n";
    }
    for instruction in &program.instructions {
        let _ = writeln!(text, "  {}", instruction_text(instruction));
    }
    for (slot, table) in &program.tables {
        text += &table_text(*slot, table);
    }
    text + &pieces_text("input", &program.input) + &pieces_text("output", &program.output)
}

fn instruction_text(instruction: &Instruction) -> String {
    let fields = instruction.operation.fields();
    let mut text = instruction.operation.name().to_owned();
    let mut add = |part: String| {
        text.push(' ');
        text += &part;
    };
    let operand = |operand: &Operand| {
        let mark = if operand.layout == Layout::Striped { " striped" } else { "" };
        format!("{:#x}{mark}", operand.address)
    };
    if fields.communicator {
        add(format!("on communicator {},", instruction.communicator));
    }
    if fields.root {
        add(format!("root {},", instruction.root));
    }
    if fields.peer {
        add(format!("peer {},", instruction.peer));
    }
    if fields.source {
        add(format!("from {}", operand(&instruction.source)));
    }
    if fields.destination {
        add(format!("to {}", operand(&instruction.destination)));
    }
    if fields.bytes {
        add(format!("bytes {}", instruction.bytes));
    }
    if has_address_in_extent(instruction.operation) {
        let name = if fields.peer { "own" } else { "with" };
        add(format!("{name} {:#x}", instruction.extent));
    } else if fields.extent && instruction.extent != 0 {
        add(format!("extent {}", instruction.extent));
    }
    if instruction.lane != 0 {
        add(format!("lane {}", instruction.lane));
    }
    for flag in flags(instruction) {
        add(flag.to_owned());
    }
    text.trim_end_matches(',').to_owned()
}

fn table_text(slot: u16, table: &Table) -> String {
    let mut text = format!("  table {slot}:");
    for Entry { displacement, bytes } in table.entries.iter().take(PIECES_SHOWN) {
        let _ = write!(text, " {bytes} at {displacement:#x},");
    }
    let left = table.entries.len().saturating_sub(PIECES_SHOWN);
    if left > 0 {
        let _ = write!(text, " and {left} more");
    }
    text.trim_end_matches(',').to_owned() + "\n"
}

/// Up to this many pieces or blocks are printed; the rest is counted.
const PIECES_SHOWN: usize = 16;

fn pieces_text(what: &str, pieces: &[Piece]) -> String {
    let mut text = String::new();
    for piece in pieces.iter().take(PIECES_SHOWN) {
        let _ = writeln!(
            text,
            "  {what}  {:#012x}  bytes {} to {}",
            piece.address,
            piece.offset,
            piece.offset + piece.bytes
        );
    }
    if pieces.len() > PIECES_SHOWN {
        let _ = writeln!(text, "  {what}  and {} more", pieces.len() - PIECES_SHOWN);
    }
    text
}

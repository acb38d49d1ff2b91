//! `fpgactl coll OP`: runs a collective, checks the result and prints the cards' times.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cmdseq::instruction::DELAY_MAX;
use cmdseq::plan::{self, Collective, Plan};
use cmdseq::{CostModel, Element};
use fpga_driver::trace::Moment;
use fpga_driver::{Execution, Report, Summary};
use fpga_select::Kind;
use schemars::JsonSchema;
use serde::Serialize;

use crate::atomic_file::{AtomicFile, Finished};
use crate::cards::{Cards, MOCK_NOTE};
use crate::check::Check;
use crate::cli::{Cli, Coll};
use crate::data::Source;
use crate::exit::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::npy::{self, Input};
use crate::plan::{Times, bound_us};
use crate::tracing::{Tracing, Written};
use crate::units::{gbps, rounded, us_of_ps};
use crate::{calibration, collective, host_memory, input_file, output, processes, progress, request, size, tracing};

#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed<'a> {
    schema: &'static str,
    op: &'static str,
    ranks: u32,
    bytes: u64,
    #[serde(skip_serializing_if = "<[u64]>::is_empty")]
    counts: &'a [u64],
    #[serde(skip_serializing_if = "Option::is_none")]
    reduction: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dtype: Option<&'static str>,
    algorithm: &'static str,
    kind: &'static str,
    mock: bool,
    verified: bool,
    t1_us: f64,
    t2_us: f64,
    arrival_us: f64,
    gbps_per_link: f64,
    goodput_gbps: f64,
    predicted_us: f64,
    bound_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skew_us: Option<Vec<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skew: Option<Spread>,
    predicted: Times,
    selector: &'a str,
    group: &'a [u32],
    seed: Option<u64>,
    repeat: u32,
    /// Whether all began together, as is predicted.
    #[serde(skip)]
    is_together: bool,
    extrapolated: bool,
    notes: Vec<String>,
    outputs: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<Written>,
}

/// Statistics over all repetitions.
#[derive(JsonSchema, Serialize)]
struct Spread {
    count: u64,
    least_us: f64,
    mean_us: f64,
    median_us: f64,
    p99_us: f64,
    largest_us: f64,
}

impl Spread {
    fn of(summary: &Summary, us: impl Fn(u64) -> f64, clock_khz: u32) -> Self {
        Spread {
            count: summary.count(),
            least_us: us(summary.least()),
            mean_us: rounded(summary.mean() * 1e3 / f64::from(clock_khz)),
            median_us: us(summary.percentile(50)),
            p99_us: us(summary.percentile(99)),
            largest_us: us(summary.largest()),
        }
    }
}

/// Up to this many repetitions, the skew of each is printed.
const SKEWS_PRINTED: usize = 16;

pub(crate) fn run(cli: &Cli, arguments: &Coll) -> Result<()> {
    let began = Moment::now();
    let interrupt = Interrupt::listen()?;
    let inputs = arguments.input.iter().map(|path| Input::open(path)).collect::<Result<Vec<_>>>();
    let timeout = Duration::from_secs_f64(arguments.timeout);
    let terms = terms(arguments);
    let (mut cards, inputs) = processes::open(cli, &arguments.processes, timeout, &interrupt, &terms, inputs)?;
    let trace = tracing::path(arguments.trace.as_deref(), arguments.processes.rank);
    let prepared = prepare(arguments, inputs, &mut cards, trace.as_deref(), began);
    let (work, tracing) = processes::agree(&mut cards, &interrupt, prepared)?;
    let outcome = interrupt.of(work.run(&mut cards, &interrupt));
    // Most of all if it has failed.
    let trace = tracing.map(|tracing| tracing.finish(&mut cards));
    let agreed = processes::agree(&mut cards, &interrupt, outcome);
    let (report, outputs) = tracing::with_loss(agreed, trace.as_ref())?;
    if cards.cluster.peers().rank() == 0 {
        let printed = Printed { trace: trace.clone(), ..printed(&cards, arguments, &work, &report, outputs) };
        output::print(cli.json, &printed, || text(&printed))?;
    }
    interrupt.of(cards.close())?;
    trace.map_or(Ok(()), |trace| trace.outcome())
}

/// Prepares the collective, and begins the trace.
fn prepare<'a>(
    arguments: &'a Coll,
    inputs: Vec<Input>,
    cards: &mut Cards,
    trace: Option<&Path>,
    began: Moment,
) -> Result<(Work<'a>, Option<Tracing>)> {
    tracing::start(trace, cards, began)?;
    let begin = Moment::now();
    let work = Work::prepare(arguments, inputs, cards, trace)?;
    cards.cluster.end_span("plan", begin);
    Ok((work, Tracing::create(trace)?))
}

/// Options that must be the same on all ranks, and their values.
fn terms(arguments: &Coll) -> Vec<(&'static str, String)> {
    fn shown<T: ToString>(value: Option<T>) -> String {
        value.map_or("the default".to_owned(), |value| value.to_string())
    }
    let operation = &arguments.operation;
    let listed = |list: &[u32]| list.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    vec![
        ("operation", operation.terms.collective.to_string()),
        ("--bytes", shown(operation.bytes)),
        ("--counts", operation.counts.as_ref().map_or(shown::<u64>(None), |counts| format!("{:?}", counts.0))),
        ("--dtype", shown(operation.terms.dtype.map(Element::name))),
        ("--op", shown(operation.terms.op)),
        ("--root", operation.terms.root.to_string()),
        ("--peer", shown(operation.terms.peer)),
        ("--algorithm", shown(operation.algorithm)),
        ("--order", operation.terms.order.to_string()),
        ("--eager-limit", shown(operation.terms.eager_limit)),
        ("--group", shown(operation.group.as_deref().map(listed))),
        ("--relays", shown(operation.terms.relays.as_ref().map(|relays| listed(&relays.0)))),
        ("--start-delay", format!("{:?}", arguments.start_delay)),
        ("--repeat", arguments.repeat.to_string()),
        ("--seed", arguments.seed.to_string()),
        ("number of --input files", arguments.input.len().to_string()),
        ("--output", if arguments.output.is_some() { "given" } else { "missing" }.to_owned()),
        ("calibration", calibration::fingerprint(operation.terms.calibration.as_deref())),
    ]
}

/// A collective to run.
struct Work<'a> {
    plan: Plan,
    model: CostModel,
    source: Source,
    element: Element,
    execution: Execution,
    path: Option<&'a Path>,
}

impl<'a> Work<'a> {
    fn prepare(arguments: &'a Coll, inputs: Vec<Input>, cards: &Cards, trace: Option<&Path>) -> Result<Self> {
        let request = request::request(&arguments.operation, &inputs, cards.nodes())?;
        let element =
            arguments.operation.terms.dtype.or(inputs.first().map(|input| input.element)).unwrap_or(Element::U8);
        let model = calibration::model(arguments.operation.terms.calibration.as_deref(), cards.capabilities())?;
        let plan = plan::plan_with(&request, cards.capabilities(), &model)?;
        let source = match inputs.is_empty() {
            true => Source::Pattern { seed: arguments.seed },
            false => Source::Files(request::assign(&request, inputs, arguments.operation.terms.dtype)?),
        };
        collective::check_repeat(&plan, arguments.repeat)?;
        collective::check_group(&plan.request.group, cards)?;
        let execution = execution(arguments, &plan, cards.capabilities().clock_khz)?;
        let path = arguments.output.as_deref();
        let own = collective::held_ranks_with_output(&plan, cards);
        let read = arguments.input.iter().chain(&arguments.operation.terms.calibration).collect::<Vec<_>>();
        let written = outputs(&plan, path, &own).into_iter().chain(trace.map(Path::to_owned)).collect::<Vec<_>>();
        input_file::check_outputs(&read, &written)?;
        if cards.kind == Kind::Mock {
            host_memory::check_mock(&plan)?;
        }
        Ok(Work { plan, model, source, element, execution, path })
    }

    /// Returns the report, and the paths of the files that all ranks have written.
    fn run(&self, cards: &mut Cards, interrupt: &Interrupt) -> Result<(Report, Vec<String>)> {
        cards.cluster.set_timeout(self.execution.timeout);
        let bar = progress::bytes(collective::input_bytes(&self.plan, cards), "write input");
        let written = interrupt.of(collective::write_inputs(cards, &self.plan, &self.source, interrupt, &bar));
        bar.finish_and_clear();
        processes::agree(cards, interrupt, written)?;
        let report = interrupt
            .end_at_once_during(|| cards.cluster.execute(&self.plan.set, &self.execution))?
            .map_err(|error| cards.failure(error))?;
        collective::check_barrier(&self.plan, &report)?;
        let begin = Moment::now();
        let checked = interrupt.of(self.check_and_write(cards, interrupt));
        cards.cluster.end_span("check", begin);
        // If any output is wrong, no file of any rank appears.
        let files = processes::agree(cards, interrupt, checked)?;
        files.into_iter().try_for_each(Finished::commit)?;
        let all = outputs(&self.plan, self.path, &collective::ranks_with_output(&self.plan));
        Ok((report, all.iter().map(|path| path.display().to_string()).collect()))
    }
}

fn execution(arguments: &Coll, plan: &Plan, clock_khz: u32) -> Result<Execution> {
    let (given, ranks) = (arguments.start_delay.len(), plan.request.group.len());
    if given != 0 && given != ranks {
        return Err(Failure::refused(format!("--start-delay has {given} delays: expected {ranks}, one for each rank")));
    }
    let cycles = |us: &f64| (us * f64::from(clock_khz) / 1e3).round() as u64;
    let mut start_delay_cycles: Vec<u64> = arguments.start_delay.iter().map(cycles).collect();
    if let Some(rank) = start_delay_cycles.iter().position(|cycles| *cycles > DELAY_MAX) {
        let most = DELAY_MAX as f64 * 1e3 / f64::from(clock_khz);
        let message = format!("rank {rank}: --start-delay is too long: the cards wait at most {most:.0} us");
        return Err(Failure::refused(message).of_rank(rank as u32));
    }
    if given != 0 {
        // Relays have none.
        start_delay_cycles.resize(plan.set.nodes.len(), 0);
    }
    Ok(Execution {
        start_delay_cycles,
        repeat: arguments.repeat,
        apart: collective::needs_barriers_between(plan),
        timeout: Duration::from_secs_f64(arguments.timeout),
        ..Execution::default()
    })
}

/// Paths of the files that `--output` writes for `ranks`.
fn outputs(plan: &Plan, path: Option<&Path>, ranks: &[u32]) -> Vec<PathBuf> {
    let are_several = collective::ranks_with_output(plan).len() > 1;
    let of = |path: &Path| ranks.iter().map(|rank| npy::path_of_rank(path, *rank, are_several)).collect();
    path.map(of).unwrap_or_default()
}

impl Work<'_> {
    /// Checks the outputs of the ranks whose cards are held here, and writes their files, which do not appear yet.
    fn check_and_write(&self, cards: &mut Cards, interrupt: &Interrupt) -> Result<Vec<Finished>> {
        let all = collective::ranks_with_output(&self.plan);
        let bar = progress::bytes(collective::output_bytes(&self.plan, cards), "check output");
        let mut check = Check::new(collective::expectation(&self.plan, cards), &self.source);
        let mut files = Vec::new();
        let mut file = None;
        collective::read_outputs(cards, &self.plan, interrupt, |rank, offset, data| {
            expect(&mut check, rank, offset, data)?;
            bar.inc(data.len() as u64);
            let Some(path) = self.path else { return Ok(()) };
            let bytes = self.plan.request.output_bytes(rank);
            if offset == 0 {
                let path = npy::path_of_rank(path, rank, all.len() > 1);
                file = Some(npy::create(&path, self.element, bytes)?);
            }
            if let Some(file) = &mut file {
                file.append(data)?;
            }
            if offset + data.len() as u64 == bytes {
                files.extend(file.take().map(AtomicFile::finish).transpose()?);
            }
            Ok(())
        })?;
        bar.finish_and_clear();
        // An empty output has no parts, and a file all the same: which files there are must not depend on the sizes.
        let empty = collective::held_ranks_with_output(&self.plan, cards);
        let empty = empty.into_iter().filter(|rank| self.plan.request.output_bytes(*rank) == 0).collect::<Vec<_>>();
        for path in outputs(&self.plan, self.path, &empty) {
            files.push(npy::create(&path, self.element, 0)?.finish()?);
        }
        interrupt.check()?;
        Ok(files)
    }
}

/// Checks a part of rank `rank`'s output that begins at `offset`.
fn expect(check: &mut Check<'_>, rank: u32, offset: u64, data: &[u8]) -> Result<()> {
    let Some(wrong) = check.first_mismatch(rank, offset, data)? else { return Ok(()) };
    let message = format!(
        "rank {rank}: wrong result at byte {}: found {:#04x}, expected {:#04x}",
        wrong.offset, wrong.found, wrong.expected
    );
    Err(Failure::new(Exit::Verification, message).of_rank(rank))
}

fn printed<'a>(
    cards: &'a Cards,
    arguments: &Coll,
    work: &'a Work<'_>,
    report: &Report,
    outputs: Vec<String>,
) -> Printed<'a> {
    let plan = &work.plan;
    let us = |cycles| rounded(report.microseconds(cycles));
    let is_barrier = plan.request.collective == Collective::Barrier;
    let arrival_us = us(collective::duration_cycles(plan, report.t2_cycles, report.arrival_cycles));
    let skew = || report.skew_cycles.iter().map(|cycles| us(*cycles)).collect();
    Printed {
        schema: "fpgactl.coll/1",
        op: plan.request.collective.name(),
        ranks: plan.request.ranks(),
        bytes: plan.request.bytes,
        counts: &plan.request.counts,
        reduction: plan.request.combine.map(|combine| combine.reduction.name()),
        dtype: plan.request.combine.map(|combine| combine.element.name()),
        algorithm: plan.algorithm.name(),
        kind: cards.kind.name(),
        mock: cards.are_mock(),
        verified: true,
        t1_us: us(report.t1_cycles),
        t2_us: us(report.t2_cycles),
        arrival_us,
        gbps_per_link: gbps(plan.busiest_link_bytes, arrival_us),
        goodput_gbps: gbps(plan.bytes_per_destination, arrival_us),
        predicted_us: us_of_ps(plan.predicted.arrival_ps),
        bound_us: bound_us(plan, cards.capabilities(), &work.model),
        skew_us: is_barrier.then(skew),
        skew: is_barrier.then(|| Spread::of(&report.skew_summary, us, report.clock_khz)),
        predicted: plan.into(),
        selector: &cards.selector,
        group: &plan.request.group,
        seed: arguments.input.is_empty().then_some(arguments.seed),
        repeat: arguments.repeat,
        is_together: arguments.start_delay.iter().all(|us| *us == 0.0),
        extrapolated: cards.capabilities().extrapolated,
        notes: collective::notes(plan, cards),
        outputs,
        trace: None,
    }
}

fn text(printed: &Printed<'_>) -> String {
    let is_barrier = printed.skew_us.is_some();
    let checked = match printed.seed {
        _ if is_barrier => "no card released before all arrived".to_owned(),
        Some(seed) => format!("bit for bit, seed {seed}"),
        None => "bit for bit, input files".to_owned(),
    };
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let predicted = if printed.is_together { ", predicted" } else { "; predicted without delays:" };
    let mut rows = vec![
        row(
            "operation",
            match (printed.reduction, printed.dtype) {
                (Some(reduction), Some(dtype)) => format!("{}, {reduction} of {dtype}", printed.op),
                _ => printed.op.to_owned(),
            },
        ),
        row("cards", format!("{} {} ({})", printed.ranks, printed.kind, printed.selector)),
    ];
    if !is_barrier {
        let bytes = match printed.counts {
            [] => size::show(printed.bytes),
            counts => {
                let (all, longest) = (size::show(counts.iter().sum()), size::show(printed.bytes));
                format!("{all} in {} blocks, largest {longest}", counts.len())
            }
        };
        rows.push(row("bytes", bytes));
    }
    rows.extend([
        row("algorithm", printed.algorithm.to_owned()),
        row("verified", checked),
        row("T1", format!("{:.3} us", printed.t1_us)),
        row("T2", format!("{:.3} us", printed.t2_us)),
        row("arrival", format!("{:.3} us{predicted} {:.3} us", printed.arrival_us, printed.predicted_us)),
    ]);
    if let Some(bound) = printed.bound_us {
        rows.push(row("bound", format!("{bound:.3} us; arrival is {:.2} times that", printed.arrival_us / bound)));
    }
    match (&printed.skew_us, &printed.skew) {
        (Some(skew), Some(all)) if skew.len() > SKEWS_PRINTED => rows.push(row(
            "skew",
            format!(
                "{:.3} us min, {:.3} mean, {:.3} median, {:.3} p99, {:.3} max of {}",
                all.least_us, all.mean_us, all.median_us, all.p99_us, all.largest_us, all.count
            ),
        )),
        (Some(skew), _) => {
            let skew: Vec<String> = skew.iter().map(|us| format!("{us:.3}")).collect();
            rows.push(row("skew", format!("{} us", skew.join(", "))));
        }
        (None, _) => rows.extend([
            row("busiest link", format!("{:.2} Gb/s", printed.gbps_per_link)),
            row("goodput", format!("{:.2} Gb/s per destination", printed.goodput_gbps)),
        ]),
    }
    rows.extend(printed.outputs.iter().map(|path| row("written", path.clone())));
    let mut text = output::table(&rows);
    text.extend(printed.trace.iter().map(Written::text));
    if printed.mock {
        text += MOCK_NOTE;
    }
    for note in &printed.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

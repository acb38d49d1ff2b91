//! `fpgactl bench coll OP`: measures a collective over sizes, groups and algorithms, with the cards open throughout.

mod figure;
pub(crate) mod row;

use std::fs::File;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cmdseq::plan::{self, Algorithm, Collective, Plan, Request};
use cmdseq::{CostModel, Element};
use fpga_driver::Execution;
use fpga_driver::trace::Moment;
use fpga_select::Kind;
use indicatif::ProgressBar;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cards::{Cards, MOCK_NOTE};
use crate::check::Check;
use crate::cli::{Algorithms, Cli, Operation, Sweep};
use crate::data::Source;
use crate::exit::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::plan::bound_us;
use crate::tracing::{self, Tracing, Written};
use crate::{atomic_file, calibration, collective, host_memory, input_file, output, progress, request, size};
use row::{Found, Row};

pub(super) fn run(cli: &Cli, arguments: &Sweep) -> Result<()> {
    let began = Moment::now();
    let interrupt = Interrupt::listen()?;
    let sizes = sizes(arguments)?;
    let trace = arguments.trace.as_deref();
    let written: Vec<&PathBuf> = arguments.csv.iter().chain(&arguments.svg).chain(&arguments.trace).collect();
    input_file::check_outputs(arguments.terms.calibration.as_slice(), &written)?;
    let mut cards = Cards::selected_within(cli, Duration::from_secs_f64(arguments.timeout))?;
    let groups = groups(arguments, &cards)?;
    let model = calibration::model(arguments.terms.calibration.as_deref(), cards.capabilities())?;
    tracing::start(trace, &mut cards, began)?;
    let tracing = Tracing::create(trace)?;
    let csv = arguments.csv.as_deref().map(Csv::create).transpose()?;
    let bar = progress::count((sizes.len() * groups.len()) as u64);
    let mut sweep = Sweeping { arguments, interrupt, model, bar, csv, as_json: cli.json, rows: Vec::new(), next: 0 };
    if !cli.json {
        output::text(&row::header())?;
    }
    let measured = sweep.all(&mut cards, &groups, &sizes);
    let measured = sweep.interrupt.of(measured);
    sweep.bar.finish_and_clear();
    let trace = tracing.map(|tracing| tracing.finish(&mut cards));
    // What was measured is kept, whatever ended the sweep.
    let drawn = arguments.svg.as_deref().map(|path| figure::draw(path, &sweep.rows)).transpose();
    let is_drawn = tracing::with_loss(measured.and(drawn), trace.as_ref())? != Some(false);
    if cli.json {
        if let Some(trace) = &trace {
            output::write(output::json_line(&Traced { schema: "fpgactl.bench-coll-trace/1", trace })?.as_bytes())?;
        }
    } else {
        let note = if cards.are_mock() { MOCK_NOTE } else { "" };
        let svg = arguments.svg.iter().filter(|_| is_drawn);
        let files = arguments.csv.iter().chain(svg).map(|path| format!("written: {}\n", path.display()));
        let files = files.chain(trace.iter().map(Written::text));
        output::text(&files.chain([note.to_owned()]).collect::<String>())?;
    }
    let outcome = outcome(&sweep.rows).and_then(|()| match is_drawn {
        true => Ok(()),
        false => Err(Failure::new(Exit::Failed, "--svg: nothing was measured, so nothing is drawn")),
    });
    tracing::with_loss(outcome, trace.as_ref())?;
    trace.map_or(Ok(()), |trace| trace.outcome())
}

/// The last line with `--json`, if a trace was recorded.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Traced<'a> {
    schema: &'static str,
    trace: &'a Written,
}

/// Smallest size without `--begin`, unless an element is larger.
const BEGIN: u64 = 8;

/// Returns the sizes, in ascending order; one of no bytes for a barrier.
fn sizes(arguments: &Sweep) -> Result<Vec<u64>> {
    if arguments.terms.collective == Collective::Barrier {
        return Ok(vec![0]);
    }
    let element = arguments.terms.dtype.map_or(1, Element::bytes);
    let (begin, end) = (arguments.begin.unwrap_or(element.max(BEGIN)), arguments.end);
    if begin == 0 || begin > end {
        let (begin, end) = (size::show(begin), size::show(end));
        return Err(Failure::usage(format!("invalid sizes: --begin {begin}, --end {end}: expected 0 < begin <= end")));
    }
    let next = |bytes: &u64| bytes.checked_mul(arguments.factor).filter(|bytes| *bytes <= end);
    Ok(std::iter::successors(Some(begin), next).collect())
}

/// Returns the nodes of each group.
fn groups(arguments: &Sweep, cards: &Cards) -> Result<Vec<Vec<u32>>> {
    let nodes = cards.nodes();
    if arguments.groups.is_empty() {
        collective::check_group(&nodes, cards)?;
        return Ok(vec![nodes]);
    }
    let first = |ranks: &u32| {
        nodes.get(..*ranks as usize).map(<[u32]>::to_vec).ok_or_else(|| {
            let (given, selector) = (nodes.len(), &cards.selector);
            Failure::refused(format!("--groups has {ranks} cards: --cards {selector} has {given}"))
        })
    };
    arguments.groups.iter().map(first).collect()
}

/// Fails if any data was wrong, or nothing could run.
fn outcome(rows: &[Row]) -> Result<()> {
    let wrong = rows.iter().filter(|row| row.measured.as_ref().is_some_and(|one| one.wrong_bytes != 0)).count();
    if wrong != 0 {
        let message = format!("wrong results in {wrong} of {} measurements", rows.len());
        return Err(Failure::new(Exit::Verification, message));
    }
    match rows.iter().find_map(|row| row.refused.as_ref()) {
        Some(why) if rows.iter().all(|row| row.measured.is_none()) => Err(Failure::refused(why)),
        _ => Ok(()),
    }
}

/// A file that gets each line as it is measured.
struct Csv<'a> {
    path: &'a Path,
    file: File,
}

impl<'a> Csv<'a> {
    fn create(path: &'a Path) -> Result<Self> {
        let file = match atomic_file::open_unreplaced(path)? {
            Some(file) => file,
            None => File::create(path).map_err(|error| Failure::file(path, &error))?,
        };
        let mut csv = Csv { path, file };
        csv.append(row::CSV_HEADER)?;
        Ok(csv)
    }

    fn append(&mut self, line: &str) -> Result<()> {
        self.file.write_all(line.as_bytes()).map_err(|error| Failure::file(self.path, &error))
    }
}

/// A sweep that runs.
struct Sweeping<'a> {
    arguments: &'a Sweep,
    interrupt: Interrupt,
    model: CostModel,
    bar: ProgressBar,
    csv: Option<Csv<'a>>,
    as_json: bool,
    rows: Vec<Row>,
    /// Measurements so far.
    next: u64,
}

/// A request, and its plan by one algorithm.
type Planned = (Option<Algorithm>, Result<Plan>);

impl Sweeping<'_> {
    /// Measures everything, until the reader leaves.
    fn all(&mut self, cards: &mut Cards, groups: &[Vec<u32>], sizes: &[u64]) -> Result<()> {
        for group in groups {
            for bytes in sizes {
                self.interrupt.check()?;
                self.bar.set_message(format!("{} ranks, {}", group.len(), size::show(*bytes)));
                if self.one_size(cards, group, *bytes)?.is_break() {
                    return Ok(());
                }
                self.bar.inc(1);
            }
        }
        Ok(())
    }

    fn one_size(&mut self, cards: &mut Cards, group: &[u32], bytes: u64) -> Result<ControlFlow<()>> {
        let begin = Moment::now();
        let (request, plans) = self.plans(cards, group, bytes)?;
        cards.cluster.end_span("plan", begin);
        let is_all = self.arguments.algorithm == Some(Algorithms::All);
        for (algorithm, plan) in plans {
            // Each measurement has data of its own, or what the one before left could pass for its result.
            let terms = (self.arguments.repeat, self.arguments.seed.wrapping_add(self.next));
            let ready = plan.and_then(|plan| check(cards, &plan, self.arguments.repeat).map(|()| plan));
            let name = algorithm.map(Algorithm::name);
            let row = match ready {
                Ok(plan) => {
                    let row = Row::new(cards, &plan.request, name, terms);
                    self.measure(cards, &plan, terms.1, row)?
                }
                Err(why) if why.exit() == Exit::Refused => Row::new(cards, &request, name, terms).refused(&why),
                Err(error) => return Err(error),
            };
            self.next += 1;
            // With all algorithms, most cannot run a given operation: only --json and --csv have them.
            let is_hidden = is_all && row.refused.is_some() && !self.as_json;
            let line = if self.as_json { output::json_line(&row)? } else { row.text() };
            self.csv.as_mut().map_or(Ok(()), |csv| csv.append(&row.csv()))?;
            self.rows.push(row);
            if !is_hidden && self.bar.suspend(|| output::stream(line.as_bytes()))?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Returns the request for a size, and its plans; of a refused request, why.
    fn plans(&self, cards: &Cards, group: &[u32], bytes: u64) -> Result<(Request, Vec<Planned>)> {
        let terms = self.arguments.terms.clone();
        let algorithm = match self.arguments.algorithm {
            Some(Algorithms::One(algorithm)) => Some(algorithm),
            Some(Algorithms::All) | None => None,
        };
        let collective = terms.collective;
        let operation = Operation { bytes: Some(bytes), counts: None, algorithm, group: Some(group.to_vec()), terms };
        let request = match request::request(&operation, &[], cards.nodes()) {
            Err(why) if why.exit() == Exit::Refused => {
                let combine = request::combine(&operation, None)?;
                let request = Request { combine, ..Request::new(collective, group.to_vec(), bytes) };
                return Ok((request, vec![(algorithm, Err(why))]));
            }
            request => request?,
        };
        let plans = match self.arguments.algorithm {
            Some(Algorithms::All) => plan::candidates_with(&request, cards.capabilities(), &self.model)
                .into_iter()
                .map(|(algorithm, plan)| (Some(algorithm), plan.map_err(Failure::from)))
                .collect(),
            _ => {
                let plan = plan::plan_with(&request, cards.capabilities(), &self.model);
                vec![(algorithm, plan.map_err(Failure::from))]
            }
        };
        Ok((request, plans))
    }

    /// Runs a plan and checks its results.
    fn measure(&self, cards: &mut Cards, plan: &Plan, seed: u64, row: Row) -> Result<Row> {
        let source = Source::Pattern { seed };
        let timeout = Duration::from_secs_f64(self.arguments.timeout);
        cards.cluster.set_timeout(timeout);
        collective::write_inputs(cards, plan, &source, &self.interrupt, &ProgressBar::hidden())?;
        let apart = collective::needs_barriers_between(plan);
        let execution = Execution { repeat: self.arguments.repeat, apart, timeout, ..Execution::default() };
        // A signal waits for the cards: this is bounded by the time limit, and what was measured is written.
        self.interrupt.check()?;
        let start = Instant::now();
        let report = cards.cluster.execute(&plan.set, &execution).map_err(|error| cards.failure(error))?;
        let host_us = start.elapsed().as_secs_f64() * 1e6 / f64::from(self.arguments.repeat);
        collective::check_barrier(plan, &report)?;
        let begin = Moment::now();
        let wrong_bytes = self.wrong_bytes(cards, plan, &source)?;
        cards.cluster.end_span("check", begin);
        let found = Found { report: &report, host_us, wrong_bytes };
        Ok(row.measured(plan, bound_us(plan, cards.capabilities(), &self.model), &found))
    }

    fn wrong_bytes(&self, cards: &mut Cards, plan: &Plan, source: &Source) -> Result<u64> {
        let mut check = Check::new(collective::expectation(plan, cards), source);
        let mut wrong = 0;
        collective::read_outputs(cards, plan, &self.interrupt, |rank, offset, data| {
            wrong += check.wrong_bytes(rank, offset, data)?;
            Ok(())
        })?;
        Ok(wrong)
    }
}

/// Refuses plans that cannot be measured here.
fn check(cards: &Cards, plan: &Plan, repeat: u32) -> Result<()> {
    collective::check_repeat(plan, repeat)?;
    if cards.kind == Kind::Mock { host_memory::check_mock(plan) } else { Ok(()) }
}

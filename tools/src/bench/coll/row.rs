//! One measurement of `bench coll`: a size of a group by one algorithm. `fpgactl.bench-coll/1` in docs/json.md.

use std::fmt::Write as _;

use cmdseq::plan::{Collective, Plan, Request};
use fpga_driver::{Report, Summary};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cards::Cards;
use crate::collective;
use crate::exit::Failure;
use crate::size;
use crate::units::{gbps, rounded, us_of_ps};

/// Names of the columns of the CSV file: keys of [`Row`].
pub(super) const CSV_HEADER: &str = "op,ranks,bytes,algorithm,repeat,p50_us,p99_us,algbw_gbps,busbw_gbps,host_us,predicted_us,bound_us,wrong_bytes,seed,refused\n";

#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct Row {
    schema: &'static str,
    pub(super) op: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reduction: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dtype: Option<&'static str>,
    pub(super) ranks: u32,
    pub(super) bytes: u64,
    pub(super) algorithm: Option<&'static str>,
    /// The algorithm that was asked for; `None` if the planner chose.
    #[serde(skip)]
    pub(super) requested: Option<&'static str>,
    selector: String,
    kind: &'static str,
    mock: bool,
    repeat: u32,
    seed: u64,
    #[serde(flatten)]
    pub(super) measured: Option<Measured>,
    /// Why no algorithm, or not this one, can run the request.
    pub(super) refused: Option<String>,
}

/// What was measured, beside what was predicted.
#[derive(Debug, JsonSchema, Serialize)]
pub(super) struct Measured {
    pub(super) p50_us: f64,
    p99_us: f64,
    /// Null for barriers.
    #[schemars(extend("nullable" = true))]
    algbw_gbps: Option<f64>,
    #[schemars(extend("nullable" = true))]
    pub(super) busbw_gbps: Option<f64>,
    host_us: f64,
    predicted_us: f64,
    #[schemars(extend("nullable" = true))]
    pub(super) bound_us: Option<f64>,
    /// Bus bandwidth at the bound.
    #[schemars(extend("nullable" = true))]
    pub(super) bound_busbw_gbps: Option<f64>,
    pub(super) wrong_bytes: u64,
}

/// Returns what the algorithm bandwidth counts, in bytes, and the ratio of the bus bandwidth to it, as nccl-tests define
/// them (PERFORMANCE.md); 1 for operations that nccl-tests have not. `None` for barriers.
fn bandwidth(request: &Request) -> Option<(u64, f64)> {
    use Collective::{
        Allgather, Allgatherv, Allreduce, Alltoall, Alltoallv, Barrier, Broadcast, Exscan, Gather, Gatherv, Recv,
        Reduce, ReduceScatter, Scan, Scatter, Scatterv, Send, Sendrecv,
    };
    let ranks = f64::from(request.ranks());
    let all = request.bytes.saturating_mul(u64::from(request.ranks()));
    match request.collective {
        Barrier => None,
        Allreduce => Some((request.bytes, 2.0 * (ranks - 1.0) / ranks)),
        Scatter | Gather | Alltoall | Allgather | ReduceScatter | Scatterv | Gatherv | Allgatherv | Alltoallv => {
            Some((all, (ranks - 1.0) / ranks))
        }
        Send | Recv | Sendrecv | Broadcast | Reduce | Scan | Exscan => Some((request.bytes, 1.0)),
    }
}

impl Row {
    /// A request before it is run.
    pub(super) fn new(
        cards: &Cards,
        request: &Request,
        algorithm: Option<&'static str>,
        (repeat, seed): (u32, u64),
    ) -> Self {
        Row {
            schema: "fpgactl.bench-coll/1",
            op: request.collective.name(),
            reduction: request.combine.map(|combine| combine.reduction.name()),
            dtype: request.combine.map(|combine| combine.element.name()),
            ranks: request.ranks(),
            bytes: request.bytes,
            algorithm,
            requested: algorithm,
            selector: cards.selector.clone(),
            kind: cards.kind.name(),
            mock: cards.are_mock(),
            repeat,
            seed,
            measured: None,
            refused: None,
        }
    }

    /// The request is not run.
    pub(super) fn refused(self, why: &Failure) -> Self {
        Row { refused: Some(why.message().to_owned()), ..self }
    }

    /// The request was run.
    pub(super) fn measured(self, plan: &Plan, bound_us: Option<f64>, found: &Found<'_>) -> Self {
        let mut summary = Summary::default();
        for times in &found.report.repetitions {
            summary.add(collective::duration_cycles(plan, times.t2_cycles, times.arrival_cycles));
        }
        let us = |percent| rounded(found.report.microseconds(summary.percentile(percent)));
        let p50_us = us(50);
        let counted = bandwidth(&plan.request);
        let bus = |us: f64| counted.map(|(bytes, factor)| rounded(gbps(bytes, us) * factor));
        let measured = Measured {
            p50_us,
            p99_us: us(99),
            algbw_gbps: counted.map(|(bytes, _)| gbps(bytes, p50_us)),
            busbw_gbps: bus(p50_us),
            host_us: rounded(found.host_us),
            predicted_us: us_of_ps(plan.predicted.arrival_ps),
            bound_us,
            bound_busbw_gbps: bound_us.and_then(bus),
            wrong_bytes: found.wrong_bytes,
        };
        Row { measured: Some(measured), algorithm: Some(plan.algorithm.name()), ..self }
    }

    /// Formats the line of a table under [`header`].
    pub(super) fn text(&self) -> String {
        let algorithm = self.algorithm.unwrap_or("-");
        let mut text = format!("{:>5} {:>9}  {algorithm:<WIDTH$}", self.ranks, size::show(self.bytes));
        let or_none =
            |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
        let _ = match (&self.measured, &self.refused) {
            (Some(one), _) => write!(
                text,
                " {:>11.3} {:>11.3} {:>9} {:>9} {:>11.1} {:>11.3} {:>11} {:>7}",
                one.p50_us,
                one.p99_us,
                or_none(one.algbw_gbps, 3),
                or_none(one.busbw_gbps, 3),
                one.host_us,
                one.predicted_us,
                or_none(one.bound_us, 3),
                one.wrong_bytes
            ),
            (None, Some(why)) => write!(text, " refused: {why}"),
            (None, None) => Ok(()),
        };
        text + "\n"
    }

    /// Formats the line of a CSV file under [`CSV_HEADER`].
    pub(super) fn csv(&self) -> String {
        let mut text =
            format!("{},{},{},{},{}", self.op, self.ranks, self.bytes, self.algorithm.unwrap_or(""), self.repeat);
        let number = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
        let one = self.measured.as_ref();
        for value in [
            one.map(|one| one.p50_us),
            one.map(|one| one.p99_us),
            one.and_then(|one| one.algbw_gbps),
            one.and_then(|one| one.busbw_gbps),
            one.map(|one| one.host_us),
            one.map(|one| one.predicted_us),
            one.and_then(|one| one.bound_us),
        ] {
            text += ",";
            text += &number(value);
        }
        let wrong = one.map(|one| one.wrong_bytes.to_string()).unwrap_or_default();
        let refused = self.refused.as_ref().map(|why| format!("\"{}\"", why.replace('"', "\"\""))).unwrap_or_default();
        let _ = writeln!(text, ",{wrong},{},{refused}", self.seed);
        text
    }
}

/// What a run gave.
pub(super) struct Found<'a> {
    pub(super) report: &'a Report,
    /// The host's time of one repetition.
    pub(super) host_us: f64,
    pub(super) wrong_bytes: u64,
}

/// Characters of the longest name of an algorithm.
const WIDTH: usize = 10;

/// Formats the head of the table.
pub(super) fn header() -> String {
    format!(
        "{:>5} {:>9}  {:<WIDTH$} {:>11} {:>11} {:>9} {:>9} {:>11} {:>11} {:>11} {:>7}\n{:>5} {:>9}  {:<WIDTH$} {:>11} {:>11} {:>9} {:>9} {:>11} {:>11} {:>11} {:>7}\n",
        "RANKS",
        "SIZE",
        "ALGORITHM",
        "P50",
        "P99",
        "ALGBW",
        "BUSBW",
        "HOST",
        "PREDICTED",
        "BOUND",
        "WRONG",
        "",
        "",
        "",
        "us",
        "us",
        "Gb/s",
        "Gb/s",
        "us",
        "us",
        "us",
        "bytes"
    )
}

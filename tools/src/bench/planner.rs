//! `fpgactl bench planner`: how far the planner's plans are from the lower bound, on several fabrics.

use std::path::Path;

use cmdseq::plan::{Collective, Request, plan};
use cmdseq::{Combine, CostModel, Element, Reduction};
use schemars::JsonSchema;
use serde::Serialize;

use super::chart;
use crate::cards::{self, Cards};
use crate::cli::{Cli, Planner};
use crate::exit::Result;
use crate::interrupt::Interrupt;
use crate::plan::bound_us;
use crate::units::{rounded, us_of_ps};
use crate::{input_file, output, progress, size};

/// Without `--cards`: fully connected cards, and Dragonflies, with one lane and with several.
const FABRICS: [&str; 12] = [
    "mock:optweb:2",
    "mock:optweb:8",
    "mock:optweb:16",
    "mock:optweb:64",
    "mock:optweb:4x4",
    "mock:optweb:8x8",
    "mock:optweb:8+lanes=2",
    "mock:optweb:16+lanes=2",
    "mock:optweb:64+lanes=2",
    "mock:optweb:4x4+lanes=6",
    "mock:optweb:8x8+lanes=6",
    "mock:optweb:22x44+lanes=6",
];

/// Operations and sizes: long vectors, long blocks, and those that take no longer than their hops.
const ROWS: [(Collective, u64); 12] = [
    (Collective::Send, 64 << 20),
    (Collective::Broadcast, 64 << 20),
    (Collective::Reduce, 64 << 20),
    (Collective::Allreduce, 64 << 20),
    (Collective::Scan, 64 << 20),
    (Collective::Scatter, 4 << 20),
    (Collective::Gather, 4 << 20),
    (Collective::Alltoall, 4 << 20),
    (Collective::Allgather, 4 << 20),
    (Collective::ReduceScatter, 4 << 20),
    (Collective::Allreduce, 16 << 10),
    (Collective::Allreduce, 8),
];

#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed {
    schema: &'static str,
    rows: Vec<Row>,
    /// The drawn file.
    figure: Option<String>,
}

#[derive(JsonSchema, Serialize)]
struct Row {
    op: &'static str,
    bytes: u64,
    cards: String,
    ranks: u32,
    /// Missing if no algorithm can run the request.
    #[serde(flatten)]
    planned: Option<Planned>,
    refused: Option<String>,
}

#[derive(JsonSchema, Serialize)]
struct Planned {
    algorithm: &'static str,
    predicted_us: f64,
    #[schemars(extend("nullable" = true))]
    bound_us: Option<f64>,
    #[schemars(extend("nullable" = true))]
    over_bound: Option<f64>,
    /// What most of the predicted time is spent on.
    limited_by: &'static str,
}

pub(super) fn run(cli: &Cli, arguments: &Planner) -> Result<()> {
    input_file::check_outputs::<&Path, _>(&[], arguments.svg.as_slice())?;
    let interrupt = Interrupt::listen()?;
    let given = cards::given(cli)?.map(|cards| vec![cards]);
    let fabrics = given.unwrap_or_else(|| FABRICS.to_vec());
    let bar = progress::count((fabrics.len() * ROWS.len()) as u64);
    let mut rows = Vec::new();
    for selector in fabrics {
        bar.set_message(selector.to_owned());
        let cards = Cards::open(selector)?;
        for (collective, bytes) in ROWS {
            interrupt.check()?;
            rows.push(row(&cards, collective, bytes));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let table = table(&rows);
    if let Some(path) = &arguments.svg {
        chart::table(path, "Predicted arrival over the lower bound", 150, &table)?;
    }
    let figure = arguments.svg.as_ref().map(|path| path.display().to_string());
    if cli.json {
        return output::json(&Printed { schema: "fpgactl.bench-planner/1", rows, figure });
    }
    let drawn = figure.map(|path| format!("\ndrawn: {path}\n")).unwrap_or_default();
    let text = format!("Predicted arrival over the lower bound\n\n{}{drawn}", output::table(&table));
    output::text(&text)
}

fn row(cards: &Cards, collective: Collective, bytes: u64) -> Row {
    let combine = collective.reduces().then_some(Combine::new(Reduction::Sum, Element::F32));
    let request = Request { combine, ..Request::new(collective, cards.nodes(), bytes) };
    let plan = plan(&request, cards.capabilities());
    let planned = plan.as_ref().ok().map(|plan| {
        let predicted_us = us_of_ps(plan.predicted.arrival_ps);
        let bound_us = bound_us(plan, cards.capabilities(), &CostModel::stated(cards.capabilities()));
        Planned {
            algorithm: plan.algorithm.name(),
            predicted_us,
            bound_us,
            over_bound: bound_us.map(|bound| rounded(predicted_us / bound)),
            limited_by: plan.predicted.terms.dominant().name(),
        }
    });
    Row {
        op: collective.name(),
        bytes,
        cards: cards.selector.clone(),
        ranks: request.ranks(),
        planned,
        refused: plan.err().map(|refusal| refusal.to_string()),
    }
}

/// A line for each operation and size, a column for each fabric.
fn table(rows: &[Row]) -> Vec<Vec<String>> {
    let mut fabrics: Vec<&str> = rows.iter().map(|row| row.cards.as_str()).collect();
    fabrics.dedup();
    let mut header = vec!["OPERATION".to_owned(), "SIZE".to_owned()];
    let shape = |cards: &&str| {
        let shape = cards.strip_prefix("mock:").and_then(|fabric| fabric.split_once(':'));
        shape.map_or(*cards, |(_, shape)| shape).to_owned()
    };
    header.extend(fabrics.iter().map(shape));
    let mut table = vec![header];
    for (collective, bytes) in ROWS {
        let mut line = vec![collective.name().to_owned(), size::show(bytes)];
        for cards in &fabrics {
            let found =
                rows.iter().find(|row| (row.op, row.bytes, row.cards.as_str()) == (collective.name(), bytes, cards));
            let over =
                found.and_then(|row| row.planned.as_ref()).and_then(|one| Some((one.over_bound?, one.algorithm)));
            line.push(over.map_or("-".to_owned(), |(over, algorithm)| format!("{over:.2} {algorithm}")));
        }
        table.push(line);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_headed_with_the_whole_shape() {
        for (cards, head) in [
            ("mock:optweb:8+lanes=2", "8+lanes=2"),
            ("mock:mpi-fpga:fat:32:16", "fat:32:16"),
            ("vfio:0000:3b:00.0", "vfio:0000:3b:00.0"),
        ] {
            let row = Row { op: "bcast", bytes: 1, cards: cards.to_owned(), ranks: 2, planned: None, refused: None };
            assert_eq!(table(&[row])[0], ["OPERATION", "SIZE", head]);
        }
    }
}

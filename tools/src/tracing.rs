//! `--trace FILE`: records what the host and the cards do, and writes it however the command ends.

use std::path::{Path, PathBuf};

use fpga_driver::Cluster;
use fpga_driver::trace::{Moment, RECORDS};
use fpga_trace::{Network, Transfer};
use schemars::JsonSchema;
use serde::Serialize;

use crate::atomic_file::AtomicFile;
use crate::cards::Cards;
use crate::exit::{Exit, Failure, Result};
use crate::npy;

/// Instructions recorded of all cards together, unless that leaves a card too few.
const RECORDS_OF_ALL: usize = 4 * RECORDS;
/// Instructions recorded of a card at least.
const RECORDS_LEAST: usize = 64;
/// Transfers recorded of a mock fabric.
const TRANSFERS: usize = 4 * RECORDS;

/// A trace that is recorded.
pub(crate) struct Tracing {
    path: PathBuf,
    file: AtomicFile,
}

/// What `--json` says of a trace.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Written {
    file: String,
    /// Bytes of the file.
    bytes: u64,
    /// Records that had no room in memory.
    dropped: u64,
    /// Whether the whole trace is in the file.
    complete: bool,
    #[serde(skip)]
    loss: Option<String>,
}

/// Returns the file that this process writes: in a job of several, that of its rank.
pub(crate) fn path(given: Option<&Path>, rank: Option<u32>) -> Option<PathBuf> {
    given.map(|path| npy::path_of_rank(path, rank.unwrap_or_default(), rank.is_some()))
}

/// Records from now on, if a trace is wanted. What was done since `began` is in it.
pub(crate) fn start(path: Option<&Path>, cards: &mut Cards, began: Moment) -> Result<()> {
    if path.is_none() {
        return Ok(());
    }
    let records = (RECORDS_OF_ALL / cards.cluster.cards().len().max(1)).clamp(RECORDS_LEAST, RECORDS);
    cards.cluster.start_trace(began, records).map_err(Failure::from)?;
    if let Some(fabric) = &cards.fabric {
        fabric.log_transfers(TRANSFERS);
    }
    cards.cluster.end_span("open", began);
    Ok(())
}

impl Tracing {
    /// Creates the file, before anything is launched. `path` was compared with the other files.
    pub(crate) fn create(path: Option<&Path>) -> Result<Option<Self>> {
        let create = |path: &Path| Ok(Tracing { path: path.into(), file: AtomicFile::create(path)? });
        path.map(create).transpose()
    }

    /// Ends the recording and writes the file. What has failed is in the outcome: the cards have done their work.
    pub(crate) fn finish(mut self, cards: &mut Cards) -> Written {
        let transfers = cards.fabric.as_ref().map(|fabric| fabric.take_transfers());
        let network_dropped = transfers.as_ref().map_or(0, |(_, dropped)| *dropped);
        let trace = cards.cluster.take_trace();
        let dropped = network_dropped + trace.as_ref().map_or(0, |trace| trace.dropped());
        let (fabric, rank) = (cards.fabric.clone(), rank(&cards.cluster));
        let time_of = |node: u32, count: u64| fabric.as_ref().and_then(|fabric| fabric.time_of(node, count));
        let network = transfers.map(|(transfers, dropped)| Network {
            transfers: transfers
                .iter()
                .map(|one| Transfer {
                    from: one.from,
                    to: one.to,
                    bytes: one.bytes,
                    begin_ps: one.begin_ps,
                    end_ps: one.end_ps,
                    link_mbps: one.link_mbps,
                    node: one.node,
                    tag: one.tag,
                    issued_ps: one.issued_ps,
                })
                .collect(),
            dropped,
            time_of: &time_of,
        });
        let data = trace.map(|trace| fpga_trace::encode(&trace, network.as_ref(), rank)).unwrap_or_default();
        let (kept, outcome) = self.file.append_what_fits(&data, fpga_trace::packet::whole_packets);
        let named = self.file.commit();
        let file = self.path.display().to_string();
        let loss = match (outcome, named) {
            (Err(error), _) => Some(format!("{error}; the first {kept} of {} bytes were kept", data.len())),
            (Ok(()), Err(failure)) => Some(failure.message().to_owned()),
            (Ok(()), Ok(())) => None,
        };
        Written { file, bytes: kept as u64, dropped, complete: loss.is_none(), loss }
    }
}

/// Returns the rank of this process, if others hold cards too.
fn rank(cluster: &Cluster) -> Option<u32> {
    let own = cluster.roster().iter().find(|member| cluster.holds(member.node))?;
    (cluster.roster().len() > cluster.cards().len()).then_some(own.peer)
}

impl Written {
    /// A line for people.
    pub(crate) fn text(&self) -> String {
        let Written { file, dropped, complete, .. } = self;
        let incomplete = if *complete { "" } else { ", incomplete" };
        let dropped = if *dropped == 0 { String::new() } else { format!(", {dropped} records dropped") };
        format!("trace: {file}{dropped}{incomplete}\n")
    }

    /// Fails if the file does not have the whole trace.
    pub(crate) fn outcome(&self) -> Result<()> {
        let Some(loss) = self.loss() else { return Ok(()) };
        Err(Failure::new(Exit::Failed, format!("{loss}; the command's results stand")))
    }

    /// Says what the file lacks.
    fn loss(&self) -> Option<String> {
        let loss = self.loss.as_ref()?;
        Some(format!("{}: trace not written: {loss}", self.file))
    }
}

/// Adds the loss of a trace to the failure of a command.
pub(crate) fn with_loss<T>(outcome: Result<T>, trace: Option<&Written>) -> Result<T> {
    outcome.map_err(|failure| match trace.and_then(Written::loss) {
        Some(loss) => failure.with_help(&loss),
        None => failure,
    })
}

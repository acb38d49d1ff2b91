//! Converts the command line to a request for the planner.

use cmdseq::plan::{Collective, Request};
use cmdseq::{Combine, Element};

use crate::cli::{Counts, Operation, Relays};
use crate::exit::{Failure, Result};
use crate::npy::{self, Input};

/// Message size without `--bytes` and `--input`.
const fn default_bytes(collective: Collective) -> u64 {
    match collective {
        Collective::Barrier => 0,
        _ => 1 << 20,
    }
}

/// Returns the request, for the cards on `nodes` unless `--group` selects some; the others may relay unless `--relays` selects
/// some. Checks that need the fabric are left to the planner.
pub(crate) fn request(arguments: &Operation, inputs: &[Input], nodes: Vec<u32>) -> Result<Request> {
    let collective = arguments.terms.collective;
    let of_inputs = inputs.first().map(|input| input.element);
    let combine = combine(arguments, of_inputs)?;
    let relays = arguments.terms.relays.as_ref().map_or_else(|| nodes.clone(), |relays| relays.0.clone());
    let group = arguments.group.clone().unwrap_or(nodes);
    check_relays(&group, arguments.terms.relays.as_ref())?;
    let last = u32::try_from(group.len().saturating_sub(1)).unwrap_or(u32::MAX);
    let mut request = Request {
        root: arguments.terms.root,
        peer: arguments.terms.peer.unwrap_or(last),
        combine,
        algorithm: arguments.algorithm,
        eager_limit: arguments.terms.eager_limit,
        order: arguments.terms.order,
        relays: Some(relays),
        ..Request::new(collective, group, arguments.bytes.unwrap_or(default_bytes(collective)))
    };
    if collective.has_counts() || arguments.counts.is_some() {
        request.counts = counts(&request, arguments.counts.as_ref(), arguments.bytes, inputs)?;
        request.bytes = request.counts.iter().copied().max().unwrap_or(0);
    } else if let (None, Some(first)) = (arguments.bytes, inputs.first()) {
        request.bytes = bytes_of_input(&request, first)?;
    }
    if let Some(element) = arguments.terms.dtype.or(of_inputs) {
        request.counts.iter().chain([&request.bytes]).try_for_each(|bytes| npy::check_size(element, *bytes))?;
    }
    Ok(request)
}

/// Refuses relays that are cards of ranks, which take part anyway, or that are named twice.
fn check_relays(group: &[u32], relays: Option<&Relays>) -> Result<()> {
    let relays = relays.map_or(&[][..], |relays| &relays.0);
    for (index, node) in relays.iter().enumerate() {
        if let Some(rank) = group.iter().position(|one| one == node) {
            return Err(Failure::refused(format!("--relays: node {node} is rank {rank}; expected nodes of no rank")));
        }
        if relays[..index].contains(node) {
            return Err(Failure::refused(format!("--relays: duplicate node {node}")));
        }
    }
    Ok(())
}

/// Returns the block sizes of a vector form, row by row, as in `Request`.
fn counts(request: &Request, given: Option<&Counts>, bytes: Option<u64>, inputs: &[Input]) -> Result<Vec<u64>> {
    let (collective, ranks) = (request.collective, request.group.len());
    let Some(Counts(rows)) = given else {
        let needed = usize::try_from(request.counts_needed()).unwrap_or(usize::MAX);
        return match (collective, bytes, inputs) {
            (_, Some(_), _) | (_, _, []) => Ok(vec![request.bytes; needed]),
            (Collective::Gatherv | Collective::Allgatherv, None, inputs) => {
                let mut counts: Vec<u64> = inputs.iter().map(Input::bytes).collect();
                // `assign` refuses a missing file.
                counts.resize(needed, 0);
                Ok(counts)
            }
            _ => Err(Failure::usage(format!("{collective} with --input needs --counts, the block sizes"))),
        };
    };
    if !collective.has_counts() {
        return Err(Failure::refused(format!("all blocks of {collective} have one size; use --bytes, not --counts")));
    }
    let is_matrix = collective == Collective::Alltoallv;
    if rows.len() != 1 && !(is_matrix && rows.len() == ranks) {
        let wanted = if is_matrix { format!("1 or {ranks}") } else { "1".to_owned() };
        return Err(Failure::refused(format!("--counts has {} rows: {collective} expects {wanted}", rows.len())));
    }
    if let Some(row) = rows.iter().find(|row| row.len() != ranks) {
        return Err(Failure::refused(format!(
            "--counts has {} sizes in a row: expected {ranks}, one for each rank",
            row.len()
        )));
    }
    let times = if is_matrix && rows.len() == 1 { ranks } else { 1 };
    Ok(rows.iter().cycle().take(times * rows.len()).flatten().copied().collect())
}

/// Returns reduction and element type; the type comes from the command line, else from the first input.
pub(crate) fn combine(arguments: &Operation, input: Option<Element>) -> Result<Option<Combine>> {
    let collective = arguments.terms.collective;
    match arguments.terms.op {
        Some(reduction) if !collective.reduces() => {
            Err(Failure::refused(format!("{collective} is not a reduction: remove --op {reduction}")))
        }
        None if collective.reduces() => {
            Err(Failure::usage(format!("{collective} needs --op, such as --op sum; --dtype selects the element type")))
        }
        Some(reduction) => {
            if arguments.terms.dtype.is_none() && input.is_some_and(npy::is_ambiguous) {
                return Err(Failure::refused("ambiguous element type of the input: select one with --dtype"));
            }
            Ok(Some(Combine::new(reduction, arguments.terms.dtype.or(input).unwrap_or(Element::U8))))
        }
        None => Ok(None),
    }
}

/// Returns the message size for which the first rank with input needs exactly `input`.
fn bytes_of_input(request: &Request, input: &Input) -> Result<u64> {
    let Some((rank, blocks)) = blocks_of_ranks(request).find(|(_, blocks)| *blocks > 0) else {
        return Err(Failure::refused(format!("{} has no input", request.collective)));
    };
    if !input.elements.is_multiple_of(blocks) {
        return Err(Failure::refused(format!(
            "rank {rank}: {} has {} elements: expected a multiple of {blocks}, for blocks of one size",
            input.path().display(),
            input.elements
        ))
        .of_rank(rank));
    }
    Ok(input.bytes() / blocks)
}

/// Returns the request with blocks of 1 B, which shows the ranks with input or output even if the request's blocks are empty.
pub(crate) fn with_blocks_of_one(request: &Request) -> Request {
    Request { bytes: 1, counts: vec![1; request.counts.len()], ..request.clone() }
}

/// Returns the number of blocks in each rank's input.
fn blocks_of_ranks(request: &Request) -> impl Iterator<Item = (u32, u64)> + use<> {
    let one = with_blocks_of_one(request);
    (0..request.ranks()).map(move |rank| (rank, one.input_bytes(rank)))
}

/// Assigns the input files to the ranks with input, and refuses files of the wrong type or size.
pub(crate) fn assign(request: &Request, inputs: Vec<Input>, element: Option<Element>) -> Result<Vec<Option<Input>>> {
    let given = inputs.len();
    let mut inputs = inputs.into_iter();
    let mut files = Vec::with_capacity(request.group.len());
    let mut common: Option<Element> = element;
    for (rank, blocks) in blocks_of_ranks(request) {
        let needed = request.input_bytes(rank);
        if blocks == 0 {
            files.push(None);
            continue;
        }
        let Some(input) = inputs.next() else {
            let cause = format!("rank {rank}: missing input file ({given} given)");
            return Err(Failure::refused(cause).of_rank(rank));
        };
        let expected = *common.get_or_insert(input.element);
        if !npy::are_alike(input.element, expected) {
            let (path, found) = (input.path().display(), input.element.name());
            let cause = format!("rank {rank}: {path} holds {found}, expected {}", expected.name());
            return Err(Failure::refused(cause).of_rank(rank));
        }
        if input.bytes() != needed {
            let cause = format!(
                "rank {rank}: {} holds {} elements of {}: {} of {} B needs {}",
                input.path().display(),
                input.elements,
                expected.name(),
                request.collective,
                request.bytes,
                if needed.is_multiple_of(expected.bytes()) {
                    (needed / expected.bytes()).to_string()
                } else {
                    format!("{needed} B")
                }
            );
            return Err(Failure::refused(cause).of_rank(rank));
        }
        files.push(Some(input));
    }
    let left = inputs.count();
    if left != 0 {
        let used = given - left;
        return Err(Failure::refused(format!(
            "{given} input files given: expected {used}, one for each rank with input"
        )));
    }
    Ok(files)
}

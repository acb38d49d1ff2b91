//! From the command line to what the planner is asked.

use cmdseq::Capabilities;
use cmdseq::plan::Request;

use crate::cli::{Named, Operation};
use crate::exit::{Failure, Result};
use crate::npy::{Element, Input};

/// Bytes without `--bytes` and `--input`.
const BYTES: u64 = 1 << 20;

/// Makes the request. Whatever needs the fabric to be judged is left to the planner.
pub(crate) fn request(arguments: &Operation, inputs: &[Input], capabilities: &Capabilities) -> Result<Request> {
    let collective = match arguments.named {
        Named::Collective(collective) => collective,
        Named::Reduction(name) => {
            return Err(Failure::refused(format!("{name} is a reduction, and no card of this version reduces")));
        }
    };
    if let Some(reduction) = &arguments.op {
        return Err(Failure::refused(format!("{collective} reduces nothing; --op {reduction} is for reductions")));
    }
    let group = arguments.group.clone().unwrap_or_else(|| (0..capabilities.nodes).collect());
    let last = u32::try_from(group.len().saturating_sub(1)).unwrap_or(u32::MAX);
    let mut request = Request {
        collective,
        group,
        bytes: arguments.bytes.unwrap_or(BYTES),
        root: arguments.root,
        peer: arguments.peer.unwrap_or(last),
        algorithm: arguments.algorithm,
        eager_limit: arguments.eager_limit,
    };
    if let (None, Some(first)) = (arguments.bytes, inputs.first()) {
        request.bytes = bytes_held(&request, first)?;
    }
    check_elements(&request, arguments.dtype)?;
    Ok(request)
}

/// What `--bytes` would have to be for the first rank that has input to have that of `input`.
fn bytes_held(request: &Request, input: &Input) -> Result<u64> {
    let Some((rank, blocks)) = blocks_of_ranks(request).find(|(_, blocks)| *blocks > 0) else {
        return Err(Failure::refused(format!("{} has no input", request.collective)));
    };
    if !input.elements.is_multiple_of(blocks) {
        return Err(Failure::refused(format!(
            "rank {rank}: the {} elements of {} cannot be divided into {blocks} equal blocks",
            input.elements,
            input.path().display()
        ))
        .of_rank(rank));
    }
    Ok(input.bytes() / blocks)
}

/// How many blocks of `--bytes` the input of each rank is.
fn blocks_of_ranks(request: &Request) -> impl Iterator<Item = (u32, u64)> + use<> {
    let one = Request { bytes: 1, ..request.clone() };
    (0..request.ranks()).map(move |rank| (rank, one.input_bytes(rank)))
}

fn check_elements(request: &Request, element: Option<Element>) -> Result<()> {
    match element {
        Some(element) if !request.bytes.is_multiple_of(element.bytes()) => Err(Failure::refused(format!(
            "{} B are not a whole number of {} elements of {} B",
            request.bytes,
            element.name(),
            element.bytes()
        ))),
        _ => Ok(()),
    }
}

/// Gives each rank that has input its file, and refuses files that do not hold what that rank needs.
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
            let cause = format!("rank {rank}: no input file; {given} were given");
            return Err(Failure::refused(cause).of_rank(rank));
        };
        let expected = *common.get_or_insert(input.element);
        if input.element != expected {
            let (path, found) = (input.path().display(), input.element.name());
            let cause = format!("rank {rank}: {path} holds {found}, and not {}", expected.name());
            return Err(Failure::refused(cause).of_rank(rank));
        }
        if input.bytes() != needed {
            let cause = format!(
                "rank {rank}: {} holds {} elements of {}, and {} with {} B needs {}",
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
        return Err(Failure::refused(format!("{given} input files were given, and {used} ranks have input")));
    }
    Ok(files)
}

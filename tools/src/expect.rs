//! `--expect OP,KEY=VALUE,...`: the collective that a program must compute, and its input and output buffers.

use cmdseq::asm::{Assembly, Buffer, RankProgram};
use cmdseq::plan::{Collective, Order, Piece, Program, Request};
use cmdseq::{AddressSpace, Capabilities, Combine, Element, Layout, Reduction};

use crate::exit::{Failure, Result};
use crate::size;

/// The expected collective, as given on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expect {
    collective: Collective,
    input: String,
    output: String,
    bytes: u64,
    root: u32,
    /// Default: the last rank.
    peer: Option<u32>,
    combine: Option<Combine>,
    order: Order,
    /// Block sizes of a vector form, row by row.
    counts: Vec<u64>,
}

/// Parses the value of `--expect`.
pub(crate) fn parse(text: &str) -> std::result::Result<Expect, String> {
    let mut parts = text.split(',');
    let name = parts.next().unwrap_or_default();
    let collective: Collective = name.parse().map_err(|error| format!("{error}"))?;
    let (input, output) = ("input".to_owned(), "output".to_owned());
    let (mut reduction, mut element) = (Reduction::Sum, Element::F32);
    let mut expect = Expect {
        collective,
        input,
        output,
        bytes: 0,
        root: 0,
        peer: None,
        combine: None,
        order: Order::Any,
        counts: Vec::new(),
    };
    let mut keys = Vec::new();
    for part in parts {
        let (key, value) = part.split_once('=').ok_or_else(|| format!("invalid part {part:?}: expected KEY=VALUE"))?;
        if keys.contains(&key) {
            return Err(format!("{key}= is given twice"));
        }
        keys.push(key);
        check_effect(collective, key)?;
        let rank = || value.parse::<u32>().map_err(|error| format!("{key}: {error}"));
        match key {
            "input" => value.clone_into(&mut expect.input),
            "output" => value.clone_into(&mut expect.output),
            "bytes" => expect.bytes = size::parse(value)?,
            "counts" => expect.counts = value.split('/').map(size::parse).collect::<std::result::Result<_, _>>()?,
            "root" => expect.root = rank()?,
            "peer" => expect.peer = Some(rank()?),
            "op" => reduction = value.parse().map_err(|error| format!("{error}"))?,
            "dtype" => element = value.parse().map_err(|error| format!("{error}"))?,
            "order" => expect.order = value.parse().map_err(|error| format!("{error}"))?,
            _ => {
                return Err(format!(
                    "unknown key {key:?} (available: input, output, bytes, counts, root, peer, op, dtype, order)"
                ));
            }
        }
    }
    expect.combine = collective.reduces().then_some(Combine::new(reduction, element));
    if collective.has_counts() == expect.counts.is_empty() {
        let what = if collective.has_counts() { "needs" } else { "has no" };
        return Err(format!("{collective} {what} counts=SIZE/SIZE/.. (block sizes)"));
    }
    if collective.has_counts() {
        expect.bytes = expect.counts.iter().copied().max().unwrap_or(0);
    }
    // Of a barrier and of counts, a given one was refused. 0 is a size.
    if !keys.contains(&"bytes") && !collective.has_counts() && collective != Collective::Barrier {
        return Err(format!("{collective} needs bytes=SIZE, the message size as in `coll --bytes`"));
    }
    Ok(expect)
}

/// Refuses a key without effect, as the command line of `coll` does.
fn check_effect(collective: Collective, key: &str) -> std::result::Result<(), String> {
    let why = match key {
        "bytes" | "dtype" | "input" | "output" if collective == Collective::Barrier => "moves no data",
        "bytes" if collective.has_counts() => "has blocks of several sizes; use counts=",
        "root" if !collective.has_root() => "has no root",
        "peer" if !matches!(collective, Collective::Send | Collective::Recv) => "has no peer; send and recv have one",
        "op" | "order" | "dtype" if !collective.reduces() => "is not a reduction",
        _ => return Ok(()),
    };
    Err(format!("{key}= has no effect: {collective} {why}"))
}

impl Expect {
    /// Returns the expected collective.
    pub(crate) fn collective(&self) -> Collective {
        self.collective
    }

    fn request(&self, ranks: u32) -> Request {
        let Expect { collective, bytes, root, combine, order, .. } = *self;
        let peer = self.peer.unwrap_or(ranks.saturating_sub(1));
        let counts = self.counts.clone();
        Request { root, peer, combine, order, counts, ..Request::new(collective, (0..ranks).collect(), bytes) }
    }

    /// Sets the input and output pieces of the programs, and returns the request that they must compute.
    pub(crate) fn request_of(
        &self,
        assembly: &Assembly,
        programs: &mut [Program],
        capabilities: &Capabilities,
    ) -> Result<Request> {
        let request = self.request(programs.len() as u32);
        let ranks = request.ranks();
        if request.counts.len() as u64 != request.counts_needed() {
            let (needed, found) = (request.counts_needed(), request.counts.len());
            let message =
                format!("--expect: {} over {ranks} ranks needs {needed} counts, found {found}", self.collective);
            return Err(Failure::refused(message));
        }
        if request.root >= ranks || request.peer >= ranks {
            let unknown = request.root.max(request.peer);
            let message = format!("--expect: unknown rank {unknown} (available: 0 to {})", ranks.saturating_sub(1));
            return Err(Failure::refused(message));
        }
        for (rank, (program, named)) in (0..).zip(programs.iter_mut().zip(&assembly.programs)) {
            let (input, output) = (request.input_bytes(rank), request.output_bytes(rank));
            program.input = self.pieces(named, &self.input, input, capabilities)?;
            program.output = self.pieces(named, &self.output, output, capabilities)?;
        }
        Ok(request)
    }

    /// Returns the pieces of `total` bytes in a card buffer: if striped, one block in each stripe. Without a buffer `name`,
    /// uses the buffers `name0`, `name1` and so on, one after another, as in a saved plan.
    fn pieces(&self, program: &RankProgram, name: &str, total: u64, capabilities: &Capabilities) -> Result<Vec<Piece>> {
        if total == 0 {
            return Ok(Vec::new());
        }
        let rank = program.rank;
        let named = |name: &str| {
            let on_card = |buffer: &&Buffer| buffer.name == name && buffer.space == AddressSpace::Card;
            program.buffers.iter().find(on_card)
        };
        let Some(buffer) = named(name) else {
            let numbered: Vec<&Buffer> = (0..).map_while(|number: u32| named(&format!("{name}{number}"))).collect();
            if !numbered.is_empty() {
                return self.numbered(rank, name, total, &numbered);
            }
            let message = format!(
                "--expect: rank {rank} has no card buffer `{name}`; select others by input=NAME and output=NAME"
            );
            return Err(Failure::refused(message).of_rank(rank));
        };
        let (block, distance) = match buffer.layout {
            Layout::Block => (total, total),
            Layout::Striped => (self.bytes, capabilities.stripe_bytes()),
        };
        let pieces: Vec<Piece> = (0..total.div_ceil(block))
            .map(|number| {
                let offset = number * block;
                let address = buffer.address.saturating_add(number.saturating_mul(distance));
                Piece { offset, address, bytes: block.min(total - offset) }
            })
            .collect();
        let end = pieces.last().map_or(0, |last| last.address.saturating_add(last.bytes) - buffer.address);
        if end > buffer.bytes {
            return Err(self.too_small(rank, name, end, buffer.bytes));
        }
        Ok(pieces)
    }

    /// Returns the pieces of `total` bytes in `buffers`, one after another.
    fn numbered(&self, rank: u32, name: &str, total: u64, buffers: &[&Buffer]) -> Result<Vec<Piece>> {
        let mut pieces = Vec::new();
        let mut offset = 0;
        for buffer in buffers {
            let bytes = buffer.bytes.min(total - offset);
            if bytes > 0 {
                pieces.push(Piece { offset, address: buffer.address, bytes });
            }
            offset += bytes;
        }
        if offset < total {
            return Err(self.too_small(rank, &format!("{name}0.."), total, offset));
        }
        Ok(pieces)
    }

    fn too_small(&self, rank: u32, name: &str, needed: u64, found: u64) -> Failure {
        let (collective, bytes) = (self.collective, self.bytes);
        let message = format!(
            "--expect: buffer `{name}` of rank {rank} has {found} B: {collective} of {bytes} B needs {needed} B"
        );
        Failure::refused(message).of_rank(rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expectations_are_parsed() {
        let expect = parse("allreduce,bytes=4KiB,op=max,dtype=i32,input=a,order=rank").unwrap();
        assert_eq!(expect.combine, Some(Combine::new(Reduction::Max, Element::I32)));
        assert_eq!((expect.bytes, expect.input.as_str(), expect.output.as_str()), (4096, "a", "output"));
        for empty in ["barrier", "broadcast,bytes=0", "scatterv,counts=0/0"] {
            assert_eq!(parse(empty).unwrap().bytes, 0, "{empty}");
        }
        for (wrong, part) in [
            ("allreduces,bytes=1", "allreduces"),
            ("allgather", "needs bytes=SIZE"),
            ("allgather,bytes", "expected KEY=VALUE"),
            ("allgather,size=4", "unknown key \"size\""),
            ("broadcast,bytes=1,root=x", "root: invalid digit"),
            ("allreduce,bytes=64KiB,bytes=32KiB", "bytes= is given twice"),
            ("allreduce,bytes=1,root=3", "root= has no effect: allreduce has no root"),
            ("broadcast,bytes=1,peer=1", "peer= has no effect: broadcast has no peer"),
            ("allgather,bytes=1,op=max", "op= has no effect: allgather is not a reduction"),
            ("allgather,bytes=1,order=rank", "order= has no effect: allgather is not a reduction"),
            ("allgather,bytes=1,dtype=i8", "dtype= has no effect: allgather is not a reduction"),
            ("allgather,bytes=1,counts=1/2", "has no counts"),
            ("allgatherv", "needs counts"),
            ("allgatherv,counts=1/2,bytes=99", "bytes= has no effect: allgatherv has blocks of several sizes"),
            ("barrier,counts=1/2", "has no counts"),
            ("barrier,bytes=99", "bytes= has no effect: barrier moves no data"),
            ("barrier,dtype=i8", "dtype= has no effect: barrier moves no data"),
            ("barrier,input=x", "input= has no effect: barrier moves no data"),
            ("barrier,output=x", "output= has no effect: barrier moves no data"),
        ] {
            let error = parse(wrong).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}

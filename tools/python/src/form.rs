//! Shapes: which axes the arrays of an operation have before those of a block.

use crate::error::{Error, Result};

/// The axes before those of a block: N is the number of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Axes {
    /// No data at all.
    Nothing,
    /// None: one rank has one block.
    Block,
    /// N, for a block of each rank.
    Ranks,
    /// N, for the blocks of one rank.
    Blocks,
    /// N, N: for blocks of each rank.
    RanksBlocks,
}

impl Axes {
    pub(crate) fn count(self) -> usize {
        match self {
            Axes::Nothing | Axes::Block => 0,
            Axes::Ranks | Axes::Blocks => 1,
            Axes::RanksBlocks => 2,
        }
    }

    /// Whether rank r's data is part r of the array; else one rank has all of it.
    pub(crate) fn is_of_each(self) -> bool {
        matches!(self, Axes::Ranks | Axes::RanksBlocks)
    }
}

/// What an operation takes and gives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pub(crate) name: &'static str,
    pub(crate) input: Axes,
    pub(crate) output: Axes,
}

const fn form(name: &'static str, input: Axes, output: Axes) -> Form {
    Form { name, input, output }
}

const FORMS: [Form; 14] = [
    form("barrier", Axes::Nothing, Axes::Nothing),
    form("send", Axes::Block, Axes::Block),
    form("recv", Axes::Block, Axes::Block),
    form("sendrecv", Axes::Ranks, Axes::Ranks),
    form("scatter", Axes::Blocks, Axes::Ranks),
    form("gather", Axes::Ranks, Axes::Blocks),
    form("broadcast", Axes::Block, Axes::Ranks),
    form("alltoall", Axes::RanksBlocks, Axes::RanksBlocks),
    form("allgather", Axes::Ranks, Axes::RanksBlocks),
    form("reduce", Axes::Ranks, Axes::Block),
    form("allreduce", Axes::Ranks, Axes::Ranks),
    form("reduce_scatter", Axes::RanksBlocks, Axes::Ranks),
    form("scan", Axes::Ranks, Axes::Ranks),
    form("exscan", Axes::Ranks, Axes::Ranks),
];

impl Form {
    /// Returns the form of an operation.
    pub(crate) fn of(operation: &str) -> Result<Form> {
        let found = FORMS.iter().find(|form| form.name == operation);
        found.copied().ok_or_else(|| {
            let names: Vec<&str> = FORMS.iter().map(|form| form.name).collect();
            Error::usage(format!("unknown collective {operation:?} (available: {})", names.join(", ")))
        })
    }

    /// Returns the axes of a block, given an input on so many ranks.
    pub(crate) fn block(self, shape: &[usize], ranks: usize) -> Result<&[usize]> {
        let axes = self.input.count();
        if shape.len() >= axes && shape[..axes].iter().all(|axis| *axis == ranks) {
            return Ok(&shape[axes..]);
        }
        let expected = vec![ranks.to_string(); axes].join(", ");
        let name = self.name;
        Err(Error::usage(format!("{name} on {ranks} cards takes an array of shape ({expected}, ...), not {shape:?}")))
    }

    /// Returns the shape of the output, given the axes of a block.
    pub(crate) fn output_shape(self, block: &[usize], ranks: usize) -> Vec<usize> {
        [&vec![ranks; self.output.count()], block].concat()
    }
}

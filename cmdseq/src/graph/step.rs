//! Collectives and the buffers they name.

use super::error::Side;
use crate::Element;
use crate::request::Request;

/// A named range of memory, at the same address on every card of the graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buffer {
    /// Its name.
    pub name: String,
    /// Bytes; of a striped one, of each block.
    pub bytes: u64,
    /// Striped: a block for each rank of the graph, each in a memory I/O of its own. Else one range.
    pub is_striped: bool,
    /// What is in it, if it matters: a reduction of other elements is refused.
    pub element: Option<Element>,
    /// Where it lies in card memory, bytes; `None` to have it placed.
    pub address: Option<u64>,
    /// Whether its address is an argument of the launch, so that it can be changed between two launches.
    pub is_rebindable: bool,
}

impl Buffer {
    /// A buffer of `bytes` bytes, to be placed.
    pub fn new(name: impl Into<String>, bytes: u64) -> Self {
        let name = name.into();
        Buffer { name, bytes, is_striped: false, element: None, address: None, is_rebindable: false }
    }

    /// The same, a block of its bytes for each rank, striped over the memory I/Os.
    pub fn striped(self) -> Self {
        Buffer { is_striped: true, ..self }
    }

    /// The same, holding elements of this type.
    pub fn of(self, element: Element) -> Self {
        Buffer { element: Some(element), ..self }
    }

    /// The same at this address.
    pub fn at(self, address: u64) -> Self {
        Buffer { address: Some(address), ..self }
    }

    /// The same, to be bound to other addresses later. A graph has room for three of them, none striped.
    pub fn rebindable(self) -> Self {
        Buffer { is_rebindable: true, ..self }
    }
}

/// One collective of a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What to do. Its group is some or all nodes of the graph; its placement is set by the graph.
    pub request: Request,
    /// Buffer with the input of the ranks that have one.
    pub input: Option<String>,
    /// Buffer for the output of the ranks that get one. It may be the input, for algorithms that work in place.
    pub output: Option<String>,
    /// Steps, by number, that must be over before.
    pub after: Vec<usize>,
}

impl Step {
    /// A step on no buffers.
    pub fn new(request: Request) -> Self {
        Step { request, input: None, output: None, after: Vec::new() }
    }

    /// The same with its input in this buffer.
    pub fn input(self, buffer: impl Into<String>) -> Self {
        Step { input: Some(buffer.into()), ..self }
    }

    /// The same with its output in this buffer.
    pub fn output(self, buffer: impl Into<String>) -> Self {
        Step { output: Some(buffer.into()), ..self }
    }

    /// The same, not before step `number` is over.
    pub fn after(mut self, number: usize) -> Self {
        self.after.push(number);
        self
    }

    /// Bytes that the rank with most of them has on a side.
    pub(super) fn needs(&self, side: Side) -> u64 {
        let of = |rank| match side {
            Side::Input => self.request.input_bytes(rank),
            Side::Output => self.request.output_bytes(rank),
        };
        (0..self.request.ranks()).map(of).max().unwrap_or(0)
    }

    pub(super) fn buffer(&self, side: Side) -> Option<&str> {
        match side {
            Side::Input => self.input.as_deref(),
            Side::Output => self.output.as_deref(),
        }
    }
}

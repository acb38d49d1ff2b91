//! Buffers and steps.

use crate::Element;
use crate::request::Request;

/// What a step does with a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BufferRole {
    /// It has the data before the step.
    Input,
    /// It gets the data after the step.
    Output,
}

impl BufferRole {
    pub(super) const ALL: [BufferRole; 2] = [BufferRole::Input, BufferRole::Output];

    pub(super) fn name(self) -> &'static str {
        match self {
            BufferRole::Input => "input",
            BufferRole::Output => "output",
        }
    }
}

/// A named range of memory, at the same address on every card of the graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buffer {
    /// Its name.
    pub name: String,
    /// Bytes; if striped, of each block.
    pub bytes: u64,
    /// Whether it has one block for each rank of the graph, each in its own memory I/O, instead of one range.
    pub is_striped: bool,
    /// Element type; `None` accepts all reductions.
    pub element: Option<Element>,
    /// Address in card memory, bytes; `None` lets the graph choose.
    pub address: Option<u64>,
    /// Whether its address is a launch argument, which can change between launches.
    pub is_rebindable: bool,
}

impl Buffer {
    /// Returns a buffer of `bytes` bytes, whose address the graph chooses.
    pub fn new(name: impl Into<String>, bytes: u64) -> Self {
        let name = name.into();
        Buffer { name, bytes, is_striped: false, element: None, address: None, is_rebindable: false }
    }

    /// Makes it a block of its bytes for each rank, striped over the memory I/Os.
    pub fn striped(self) -> Self {
        Buffer { is_striped: true, ..self }
    }

    /// Sets the element type.
    pub fn of(self, element: Element) -> Self {
        Buffer { element: Some(element), ..self }
    }

    /// Sets the address.
    pub fn at(self, address: u64) -> Self {
        Buffer { address: Some(address), ..self }
    }

    /// Makes it rebindable. A graph has at most three rebindable buffers, none striped.
    pub fn rebindable(self) -> Self {
        Buffer { is_rebindable: true, ..self }
    }
}

/// One collective of a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The request, for some or all nodes of the graph. The graph sets its placement.
    pub request: Request,
    /// Buffer of the input, if any rank has one.
    pub input: Option<String>,
    /// Buffer of the output, if any rank has one. It may equal the input, for algorithms that work in place.
    pub output: Option<String>,
}

impl Step {
    /// Returns a step without buffers.
    pub fn new(request: Request) -> Self {
        Step { request, input: None, output: None }
    }

    /// Sets the buffer of the input.
    pub fn input(self, buffer: impl Into<String>) -> Self {
        Step { input: Some(buffer.into()), ..self }
    }

    /// Sets the buffer of the output.
    pub fn output(self, buffer: impl Into<String>) -> Self {
        Step { output: Some(buffer.into()), ..self }
    }

    /// Returns the bytes of input or output of the rank with the most data.
    pub(super) fn needs(&self, role: BufferRole) -> u64 {
        let of = |rank| match role {
            BufferRole::Input => self.request.input_bytes(rank),
            BufferRole::Output => self.request.output_bytes(rank),
        };
        (0..self.request.ranks()).map(of).max().unwrap_or(0)
    }

    pub(super) fn buffer(&self, role: BufferRole) -> Option<&str> {
        match role {
            BufferRole::Input => self.input.as_deref(),
            BufferRole::Output => self.output.as_deref(),
        }
    }
}

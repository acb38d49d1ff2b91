//! User logic: OpenCL kernels that take words from channels and put words into channels.

use crate::engine::Cycle;
use crate::proto::circus::fifo::{Wires, Word};
use crate::proto::circus::pipe::Pipe;

/// A kernel of user logic: a pipeline that starts once a cycle.
pub trait Kernel: Send {
    /// Starts one iteration of the kernel's loop: takes what it needs, and puts what results. An iteration that lacks a word,
    /// or room for one, does nothing; it starts again when something changed.
    fn start(&mut self, channels: &mut Channels<'_>);
}

impl<F: FnMut(&mut Channels<'_>) + Send> Kernel for F {
    fn start(&mut self, channels: &mut Channels<'_>) {
        self(channels);
    }
}

/// The channels of a kernel in one cycle. Each gives or takes at most one word a cycle.
pub struct Channels<'a> {
    wires: &'a mut Wires,
    reads: &'a mut [Read],
    writes: &'a mut [Write],
    cycle: Cycle,
}

#[derive(Debug)]
struct Read {
    fifo: usize,
    is_used: bool,
}

#[derive(Debug)]
struct Write {
    fifo: usize,
    is_used: bool,
    pipe: Pipe<Word>,
}

impl Channels<'_> {
    /// Returns whether the `index`-th channel that the kernel reads has a word for this cycle.
    pub fn can_take(&self, index: usize) -> bool {
        let read = &self.reads[index];
        !read.is_used && self.wires.words[read.fifo].0.len() > 0
    }

    /// Takes a word from the `index`-th channel that the kernel reads.
    pub fn take(&mut self, index: usize) -> Option<Word> {
        if !self.can_take(index) {
            return None;
        }
        self.reads[index].is_used = true;
        self.wires.take_word(self.reads[index].fifo)
    }

    /// Returns whether the `index`-th channel that the kernel writes takes a word in this cycle.
    pub fn can_put(&self, index: usize) -> bool {
        let write = &self.writes[index];
        !write.is_used && write.pipe.has_room()
    }

    /// Puts a word into the `index`-th channel that the kernel writes. It is in the channel when the pipeline is through.
    ///
    /// # Panics
    /// Unless [`Channels::can_put`].
    pub fn put(&mut self, index: usize, word: Word) {
        assert!(self.can_put(index), "channel {index} takes no word in this cycle");
        let write = &mut self.writes[index];
        write.is_used = true;
        write.pipe.put(self.cycle, word);
    }
}

/// A kernel as a module of its card's region.
pub(crate) struct User {
    kernel: Box<dyn Kernel>,
    reads: Vec<Read>,
    writes: Vec<Write>,
}

impl User {
    /// Returns a kernel whose results come `latency_cycles` after their start.
    pub(crate) fn new(kernel: Box<dyn Kernel>, reads: &[usize], writes: &[usize], latency_cycles: u64) -> Self {
        let reads = reads.iter().map(|fifo| Read { fifo: *fifo, is_used: false }).collect();
        let write = |fifo: &usize| Write { fifo: *fifo, is_used: false, pipe: Pipe::new(latency_cycles) };
        User { kernel, reads, writes: writes.iter().map(write).collect() }
    }

    pub(crate) fn consume(&mut self, cycle: Cycle, wires: &mut Wires) {
        self.reads.iter_mut().for_each(|read| read.is_used = false);
        self.writes.iter_mut().for_each(|write| write.is_used = false);
        self.kernel.start(&mut Channels { wires, reads: &mut self.reads, writes: &mut self.writes, cycle });
    }

    pub(crate) fn produce(&mut self, cycle: Cycle, wires: &mut Wires) -> Option<Cycle> {
        let mut is_active = self.reads.iter().any(|read| read.is_used) || self.writes.iter().any(|write| write.is_used);
        for write in &mut self.writes {
            if wires.words[write.fifo].0.has_room()
                && let Some(word) = write.pipe.take(cycle)
            {
                wires.put_word(write.fifo, word);
                is_active = true;
            }
        }
        if is_active { Some(cycle + 1) } else { self.writes.iter().filter_map(|write| write.pipe.next(cycle)).min() }
    }

    /// Returns whether a result is in the pipeline.
    pub(crate) fn is_busy(&self) -> bool {
        self.writes.iter().any(|write| !write.pipe.is_empty())
    }
}

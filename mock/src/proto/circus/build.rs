//! Lays the modules of each card out for the channels and kernels of a design.

use std::collections::VecDeque;

use crate::profile::circus::Profile;
use crate::proto::circus::design::{Design, PlacedKernel};
use crate::proto::circus::fifo::Wires;
use crate::proto::circus::kernels::{Demultiplexer, Module, Multiplexer, Receive, Send, Sink, Source};
use crate::proto::circus::pipe::Pipe;
use crate::proto::circus::user_logic::User;

/// Packets between a send kernel and the multiplexer, or demultiplexer and receive kernel.
const PACKETS: usize = 2;

/// Where the two ends of a channel are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// FIFO of words at the end that writes, and at the end that reads.
    pub(crate) written: usize,
    pub(crate) read: usize,
    /// Id among the channels into the card.
    pub(crate) id: u8,
    /// Modules of the host, if an end is the host's.
    pub(crate) source: Option<usize>,
    pub(crate) sink: Option<usize>,
}

/// The modules of a card, and what they share.
type Modules = (Vec<Module>, Wires);

/// Returns the modules of each card, and where each channel is.
pub(crate) fn card_modules(profile: &Profile, design: Design) -> (Vec<Modules>, Vec<Places>) {
    let nodes = design.torus.nodes() as usize;
    let mut cards: Vec<Modules> = (0..nodes).map(|_| Default::default()).collect();
    let mut multiplexers: Vec<Multiplexer> = (0..nodes).map(|_| Multiplexer::default()).collect();
    let mut demultiplexers: Vec<Demultiplexer> = (0..nodes).map(|_| Demultiplexer::default()).collect();
    let is_used = |channel: usize, ends: fn(&PlacedKernel) -> &[usize]| {
        design.kernels.iter().any(|kernel| ends(kernel).contains(&channel))
    };
    let mut places = Vec::with_capacity(design.channels.len());
    for (number, channel) in design.channels.iter().enumerate() {
        let (from, to) = (channel.from as usize, channel.to as usize);
        let id = demultiplexers[to].to.len() as u8;
        let (modules, wires) = &mut cards[from];
        let (written, packets) = (wires.add_words(channel.depth), wires.add_packets(PACKETS));
        multiplexers[from].from.push(packets);
        let source = (!is_used(number, |kernel| &kernel.writes)).then_some(modules.len());
        if source.is_some() {
            let (messages, word_bytes) = (VecDeque::new(), channel.word_bytes);
            modules.push(Module::Source(Source { to: written, word_bytes, messages, put: 0 }));
        }
        modules.push(Module::Send(Send {
            from: written,
            to: packets,
            destination: channel.to,
            channel: id,
            buffer: VecDeque::new(),
            is_ending: false,
            pipe: Pipe::new(profile.channel_kernel_cycles),
            is_active: false,
        }));
        let (modules, wires) = &mut cards[to];
        let (read, packets) = (wires.add_words(channel.depth), wires.add_packets(PACKETS));
        demultiplexers[to].to.push(packets);
        modules.push(Module::Receive(Receive {
            from: packets,
            to: read,
            word_bytes: channel.word_bytes,
            buffer: VecDeque::new(),
            is_ending: false,
            pipe: Pipe::new(profile.channel_kernel_cycles),
            is_active: false,
        }));
        let sink = (!is_used(number, |kernel| &kernel.reads)).then_some(modules.len());
        if sink.is_some() {
            let received = VecDeque::new();
            modules.push(Module::Sink(Sink { from: read, received, most: usize::MAX, is_active: false }));
        }
        places.push(Places { from: channel.from, to: channel.to, written, read, id, source, sink });
    }
    for kernel in design.kernels {
        let reads: Vec<usize> = kernel.reads.iter().map(|channel| places[*channel].read).collect();
        let writes: Vec<usize> = kernel.writes.iter().map(|channel| places[*channel].written).collect();
        let user = User::new(kernel.kernel, &reads, &writes, kernel.latency_cycles);
        cards[kernel.node as usize].0.push(Module::User(user));
    }
    for ((modules, _), (multiplexer, demultiplexer)) in
        cards.iter_mut().zip(multiplexers.into_iter().zip(demultiplexers))
    {
        modules.extend([Module::Multiplexer(multiplexer), Module::Demultiplexer(demultiplexer)]);
    }
    (cards, places)
}

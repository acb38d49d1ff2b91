//! Lays the modules of each card out for the channels and kernels of a design.

use crate::profile::circus::Profile;
use crate::proto::circus::design::{Design, PlacedKernel};
use crate::proto::circus::fifo::Wires;
use crate::proto::circus::kernels::{Demultiplexer, Module, Multiplexer, Receive, Send, Sink, Source};
use crate::proto::circus::user_logic::User;

/// Packets between a send kernel and the multiplexer, or demultiplexer and receive kernel.
pub(crate) const PACKETS: usize = 2;
/// Words in the FIFO of an end that the host opens.
pub(crate) const HOST_WORDS: usize = 16;

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

/// An end of a card that the host opens while the network runs, in either direction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostEnd {
    /// Modules at the host, and between it and the network.
    pub(crate) at_host: usize,
    pub(crate) at_network: usize,
    /// FIFO of words, of packets to the multiplexer, and of packets from the demultiplexer.
    pub(crate) words: usize,
    pub(crate) outward: usize,
    pub(crate) inward: usize,
}

/// The modules of a card, and what they share.
type Modules = (Vec<Module>, Wires);

/// What a network is made of.
pub(crate) struct Built {
    /// By card.
    pub(crate) cards: Vec<Modules>,
    /// By channel of the design.
    pub(crate) places: Vec<Places>,
    /// By card, then end.
    pub(crate) host_ends: Vec<Vec<HostEnd>>,
}

/// Returns the modules of each card, and where each channel is. With `host_ends`, hosts open so many ends of each card; else
/// there is an end for each channel that no kernel writes or reads.
pub(crate) fn build(profile: &Profile, design: Design, host_ends: usize) -> Built {
    let nodes = design.torus.nodes() as usize;
    let mut cards: Vec<Modules> = (0..nodes).map(|_| Default::default()).collect();
    let mut multiplexers: Vec<Multiplexer> = (0..nodes).map(|_| Multiplexer::default()).collect();
    let mut demultiplexers: Vec<Demultiplexer> = (0..nodes).map(|_| Demultiplexer::default()).collect();
    let is_used = |channel: usize, ends: fn(&PlacedKernel) -> &[usize]| {
        design.kernels.iter().any(|kernel| ends(kernel).contains(&channel))
    };
    let cycles = profile.channel_kernel_cycles;
    let mut places = Vec::with_capacity(design.channels.len());
    for (number, channel) in design.channels.iter().enumerate() {
        let (from, to) = (channel.from as usize, channel.to as usize);
        let id = demultiplexers[to].to.len() as u8;
        let (is_written, is_read) = (is_used(number, |kernel| &kernel.writes), is_used(number, |kernel| &kernel.reads));
        let (modules, wires) = &mut cards[from];
        let written = wires.add_words(channel.depth);
        let source = (!is_written && host_ends == 0).then_some(modules.len());
        if source.is_some() {
            modules.push(Module::Source(Source::new(written, channel.word_bytes)));
        }
        if is_written || host_ends == 0 {
            let packets = wires.add_packets(PACKETS);
            multiplexers[from].from.push(packets);
            modules.push(Module::Send(Send::new((written, packets), (channel.to, id), cycles)));
        }
        let (modules, wires) = &mut cards[to];
        let read = wires.add_words(channel.depth);
        let packets = (is_read || host_ends == 0).then(|| wires.add_packets(PACKETS));
        demultiplexers[to].to.push(packets);
        if let Some(packets) = packets {
            modules.push(Module::Receive(Receive::new((packets, read), channel.word_bytes, cycles)));
        }
        let sink = (!is_read && host_ends == 0).then_some(modules.len());
        if sink.is_some() {
            modules.push(Module::Sink(Sink::new(read, usize::MAX)));
        }
        places.push(Places { from: channel.from, to: channel.to, written, read, id, source, sink });
    }
    for kernel in design.kernels {
        let reads: Vec<usize> = kernel.reads.iter().map(|channel| places[*channel].read).collect();
        let writes: Vec<usize> = kernel.writes.iter().map(|channel| places[*channel].written).collect();
        let user = User::new(kernel.kernel, &reads, &writes, kernel.latency_cycles);
        cards[kernel.node as usize].0.push(Module::User(user));
    }
    let add_ends = |(card, multiplexer): (&mut Modules, &mut Multiplexer)| {
        (0..host_ends).map(|_| add_host_end(card, multiplexer)).collect()
    };
    let host_ends = cards.iter_mut().zip(&mut multiplexers).map(add_ends).collect();
    for ((modules, _), (multiplexer, demultiplexer)) in
        cards.iter_mut().zip(multiplexers.into_iter().zip(demultiplexers))
    {
        modules.extend([Module::Multiplexer(multiplexer), Module::Demultiplexer(demultiplexer)]);
    }
    Built { cards, places, host_ends }
}

fn add_host_end((modules, wires): &mut Modules, multiplexer: &mut Multiplexer) -> HostEnd {
    let at_host = modules.len();
    modules.extend([Module::Idle, Module::Idle]);
    let (words, outward, inward) =
        (wires.add_words(HOST_WORDS), wires.add_packets(PACKETS), wires.add_packets(PACKETS));
    multiplexer.from.push(outward);
    HostEnd { at_host, at_network: at_host + 1, words, outward, inward }
}

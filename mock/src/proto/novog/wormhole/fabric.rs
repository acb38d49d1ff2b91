//! All routers and links of a torus, cycle by cycle, in flat arrays.
//!
//! Links are numbered by their sending node and port, inputs by the receiving node and port, and virtual channels by input.

use cmdseq::routing::Torus3;

use super::deadlock::{self, Deadlock, StuckChannel, Wait};
use super::outcome::{Configuration, WormholeError, WormholeOutcome};
use super::routing::{Route, Rules};
use super::traffic::{Message, Traffic};
use crate::engine::{Clocked, Cycle};
use crate::net::noise::Dice;
use crate::profile::wormhole::{CHANNELS_MAX, WormholeProfile};

const PORTS: usize = Torus3::LINKS;
const NONE: u32 = u32::MAX;
/// Source of a packet that comes from the node.
const INJECTED: u16 = u16::MAX;
/// One class, and one for each dateline that a packet can cross.
const CLASSES_MAX: usize = 4;
/// Cycles from one look for a deadlock to the next.
const LOOK_CYCLES: u64 = 4_096;

/// A flit on a link: 0 for none, else flags, virtual channel, and the packet's number plus 1.
type Flit = u32;
const CREDIT: Flit = 1 << 31;
const HEAD: Flit = 1 << 30;
const TAIL: Flit = 1 << 29;
/// The packet's route ends at the other end of the link.
const LOCAL: Flit = 1 << 28;
const CHANNEL_SHIFT: u32 = 24;
const PACKETS_MAX: u32 = (1 << CHANNEL_SHIFT) - 1;

#[derive(Debug, Clone, Copy)]
struct Packet {
    to: u32,
    /// The packet behind it in the same buffer.
    next: u32,
    flits: u16,
    /// Port by which it leaves the node it is at, and its class at the next one.
    port: u8,
    class: u8,
    route: Route,
    created: u64,
    injected: u64,
}

/// A virtual channel of an input: packets in order, without the one that leaves.
#[derive(Debug, Clone, Copy)]
struct Channel {
    head: u32,
    tail: u32,
    /// Flits in the buffer.
    flits: u16,
    /// Whether a packet leaves.
    is_sending: bool,
}

/// An output and its link.
#[derive(Debug, Clone, Copy)]
struct Output {
    /// Channels of this node whose first packet wants the output.
    requests: u64,
    /// The packet that leaves: its flits left, where it comes from, and the flags of its flits.
    left: u16,
    from: u16,
    flit: Flit,
    is_first: bool,
    /// Whether something changed since no packet could leave.
    is_open: bool,
    next_channel: u8,
    /// Request that comes first among equals.
    turn: u8,
    /// Packets of the node that wait for the link.
    first: u32,
    last: u32,
    /// Known free places behind the link, by channel.
    credits: [u16; CHANNELS_MAX],
}

pub(super) struct Fabric<'a, T> {
    profile: WormholeProfile,
    torus: Torus3,
    configuration: Configuration,
    rules: Rules,
    /// Classes of the rules on this torus.
    classes: usize,
    traffic: &'a mut T,
    dice: Dice,
    /// Cycles from an output to the buffer of the next input.
    hop_cycles: u64,
    limit: u64,
    packets: Vec<Packet>,
    free: Vec<u32>,
    channels: Vec<Channel>,
    outputs: Vec<Output>,
    /// Input at the other end of a link.
    inputs: Vec<u32>,
    /// Flits on links: by cycle of arrival, then link.
    lines: Vec<Flit>,
    slots: u64,
    /// Free places that the credit flit on a link tells of.
    told: Vec<[u16; CHANNELS_MAX]>,
    /// Channels in use, by input.
    busy: Vec<u8>,
    /// What each node sends next, and its packets that wait for a link.
    pending: Vec<Option<Message>>,
    waiting: Vec<usize>,
    /// Requests of the next cycle: output and channel.
    fresh: Vec<(u32, u8)>,
    alive: usize,
    /// The last cycle with a packet in the network.
    last_alive: u64,
    first_injected: Option<u64>,
    pub(super) outcome: WormholeOutcome,
    pub(super) failure: Option<WormholeError>,
}

/// All routers as one module of a region.
pub(super) struct Routers;

impl<'a, T: Traffic> Fabric<'a, T> {
    pub(super) fn new(
        profile: WormholeProfile,
        torus: Torus3,
        configuration: Configuration,
        rules: Rules,
        traffic: &'a mut T,
        limit: u64,
    ) -> Self {
        let nodes = torus.nodes() as usize;
        let links = nodes * PORTS;
        let hop_cycles = profile.hop_cycles();
        let slots = (hop_cycles + 1).next_power_of_two();
        let free = profile.channel_flits as u16;
        let input = |link: usize| {
            let (node, port) = ((link / PORTS) as u32, link % PORTS);
            torus.neighbour(node, port).map_or(NONE, |other| other * PORTS as u32 + (port ^ 1) as u32)
        };
        let output = Output {
            requests: 0,
            left: 0,
            from: INJECTED,
            flit: 0,
            is_first: false,
            is_open: false,
            next_channel: 0,
            turn: 0,
            first: NONE,
            last: NONE,
            credits: [free; CHANNELS_MAX],
        };
        let mut fabric = Fabric {
            profile,
            torus,
            configuration,
            classes: rules.count(torus),
            rules,
            traffic,
            dice: Dice::new(profile.seed),
            hop_cycles,
            limit,
            packets: Vec::new(),
            free: Vec::new(),
            channels: vec![Channel { head: NONE, tail: NONE, flits: 0, is_sending: false }; links * profile.channels],
            outputs: vec![output; links],
            inputs: (0..links).map(input).collect(),
            lines: vec![0; slots as usize * links],
            slots,
            told: vec![[0; CHANNELS_MAX]; links],
            busy: vec![0; links],
            pending: vec![None; nodes],
            waiting: vec![0; nodes],
            fresh: Vec::new(),
            alive: 0,
            last_alive: 0,
            first_injected: None,
            outcome: WormholeOutcome::new(torus.nodes()),
            failure: None,
        };
        (0..torus.nodes()).for_each(|node| fabric.pull(node));
        fabric
    }

    /// Returns the known credits with which a packet may begin to leave.
    ///
    /// They are the published threshold, and at least the packet's flits and two latencies: a credit flit does not count the flits
    /// that were under way when it was sent, nor those that were sent until it arrived.
    fn needed(&self, flits: u16) -> u16 {
        let threshold = self.profile.link_cycles() + self.profile.credit_cycles;
        threshold.max(2 * self.hop_cycles + u64::from(flits)) as u16
    }

    /// Returns the channels that packets of a class may use: a window that moves up by one with each class. The last channel of a window is
    /// for this class and later ones only. With two classes these are the published overlapped buffers (Sheng, figure 4.9 b).
    fn usable(&self, class: u8) -> std::ops::Range<usize> {
        let first = usize::from(class);
        first..first + self.profile.channels + 1 - self.classes
    }

    /// Takes the next packet of a node from the traffic.
    fn pull(&mut self, node: u32) {
        let message = self.traffic.next(node);
        if let Some(message) = message {
            let most = (self.profile.channel_flits as u16).saturating_sub(2 * self.hop_cycles as u16);
            if let Err(error) = message.check(self.torus) {
                self.failure = Some(error.into());
            } else if message.flits > most {
                self.failure = Some(WormholeError::Long { flits: message.flits, most });
            }
        }
        self.pending[node as usize] = message;
    }

    /// Lets a packet of a node wait for the link that its route begins with.
    fn create(&mut self, message: Message) {
        let Message { cycle, from, to, flits } = message;
        let routing = self.configuration.routing;
        let route = Route::new(self.torus, from, to, routing, &self.rules, &mut self.dice);
        let mut packet = Packet { to, next: NONE, flits, port: 0, class: 0, route, created: cycle, injected: 0 };
        self.choose(&mut packet, from, None);
        let number = match self.free.pop() {
            Some(number) => {
                self.packets[number as usize] = packet;
                number
            }
            None => {
                self.packets.push(packet);
                self.packets.len() as u32 - 1
            }
        };
        let output = &mut self.outputs[from as usize * PORTS + usize::from(packet.port)];
        match output.last {
            NONE => output.first = number,
            last => self.packets[last as usize].next = number,
        }
        output.last = number;
        output.is_open = true;
        self.waiting[from as usize] += 1;
        self.alive += 1;
    }

    /// Routing computation: chooses the output at `node`, and the class behind it.
    fn choose(&mut self, packet: &mut Packet, node: u32, before: Option<(usize, usize)>) {
        let (outputs, channels) = (&self.outputs, self.profile.channels);
        let credits = |port: usize| {
            outputs[node as usize * PORTS + port].credits[..channels].iter().map(|free| u32::from(*free)).sum()
        };
        let port = packet.route.step(self.configuration.routing, &self.rules, &mut self.dice, credits).unwrap_or(0);
        packet.port = port as u8;
        packet.class = self.rules.class(self.torus, node, port, before) as u8;
    }

    fn arrive(&mut self, link: usize, flit: Flit, now: u64) {
        let input = self.inputs[link] as usize;
        if flit & CREDIT != 0 {
            // Tells of the buffers behind the output that stands where the credit came in.
            let output = &mut self.outputs[input];
            output.credits = self.told[link];
            output.is_open = true;
            return;
        }
        let number = (flit & PACKETS_MAX) - 1;
        if flit & LOCAL != 0 {
            if flit & TAIL != 0 {
                let packet = self.packets[number as usize];
                // It is ejected before a virtual channel would be allocated.
                self.outcome.deliver(packet.to, packet.flits, packet.created, now - 1);
                self.free.push(number);
                self.alive -= 1;
            }
            return;
        }
        let place = input * self.profile.channels + (flit >> CHANNEL_SHIFT & 0xf) as usize;
        let channel = &mut self.channels[place];
        if flit & HEAD == 0 {
            channel.flits += 1;
            self.outcome.depth_max = self.outcome.depth_max.max(channel.flits);
            return;
        }
        if channel.flits == 0 && !channel.is_sending {
            self.busy[input] += 1;
            self.outcome.channels_max = self.outcome.channels_max.max(self.busy[input]);
        }
        channel.flits += 1;
        self.outcome.depth_max = self.outcome.depth_max.max(channel.flits);
        let is_next = channel.head == NONE && !channel.is_sending;
        let (is_empty, tail) = (channel.head == NONE, channel.tail);
        channel.tail = number;
        if is_empty {
            channel.head = number;
        } else {
            self.packets[tail as usize].next = number;
        }
        let mut packet = self.packets[number as usize];
        packet.next = NONE;
        let before = (link % PORTS, usize::from(packet.class));
        self.choose(&mut packet, (input / PORTS) as u32, Some(before));
        self.packets[number as usize] = packet;
        if is_next {
            self.request(place, packet.port);
        }
    }

    /// Lets the first packet of a channel ask for its output.
    fn request(&mut self, channel: usize, port: u8) {
        let of_node = PORTS * self.profile.channels;
        let output = &mut self.outputs[channel / of_node * PORTS + usize::from(port)];
        output.requests |= 1 << (channel % of_node);
        output.is_open = true;
    }

    /// Chooses the packet that leaves by a free output; returns whether there is one.
    fn grant(&mut self, link: usize, now: u64) -> bool {
        let output = &self.outputs[link];
        let channels = self.profile.channels;
        let base = link / PORTS * PORTS * channels;
        let node = self.inputs[link] / PORTS as u32;
        let most = |class| self.usable(class).map(|channel| output.credits[channel]).max().unwrap_or(0);
        let mut free = [0; CLASSES_MAX];
        (0..self.classes).for_each(|class| free[class] = most(class as u8));
        let may = |packet: &Packet| packet.to == node || free[usize::from(packet.class)] >= self.needed(packet.flits);
        let policy = self.configuration.arbitration;
        let (mut best, mut requests) = (None, output.requests);
        while requests != 0 {
            let bit = requests.trailing_zeros() as u8;
            requests &= requests - 1;
            let number = self.channels[base + usize::from(bit)].head;
            let packet = &self.packets[number as usize];
            if may(packet) {
                // The link that the packet waits for is off its route already.
                let priority = policy.priority(packet.route.hops() + 1, now - packet.injected, self.profile.old_cycles);
                let after = u8::MAX - bit.wrapping_sub(output.turn) % 64;
                best = best.max(Some((priority, after, bit, number)));
            }
        }
        let injects = best.is_none() && output.first != NONE && may(&self.packets[output.first as usize]);
        let number = match best {
            Some((_, _, _, number)) => number,
            None if injects => output.first,
            None => {
                self.outputs[link].is_open = false;
                return false;
            }
        };
        let packet = self.packets[number as usize];
        let is_local = packet.to == node;
        let channel = if is_local { 0 } else { self.allocate(link, packet.class, packet.flits) };
        let output = &mut self.outputs[link];
        output.left = packet.flits;
        output.is_first = true;
        output.flit = (number + 1) | (channel as Flit) << CHANNEL_SHIFT | if is_local { LOCAL } else { 0 };
        if let Some((_, _, bit, _)) = best {
            output.from = bit.into();
            output.turn = bit + 1;
            output.requests &= !(1 << bit);
            let channel = &mut self.channels[base + usize::from(bit)];
            channel.head = packet.next;
            channel.is_sending = true;
        } else {
            output.from = INJECTED;
            output.first = packet.next;
            if output.first == NONE {
                output.last = NONE;
            }
            self.waiting[link / PORTS] -= 1;
            self.packets[number as usize].injected = now;
            self.first_injected.get_or_insert(now);
        }
        true
    }

    /// Virtual channel allocation: round robin among the channels with enough credits.
    fn allocate(&mut self, link: usize, class: u8, flits: u16) -> usize {
        let (usable, needed, all) = (self.usable(class), self.needed(flits), self.profile.channels);
        let output = &mut self.outputs[link];
        let from = usize::from(output.next_channel);
        let mut turns = (0..all).map(|ahead| (from + ahead) % all);
        let channel = turns.find(|channel| usable.contains(channel) && output.credits[*channel] >= needed).unwrap_or(0);
        output.next_channel = ((channel + 1) % all) as u8;
        channel
    }

    /// Sends the next flit of the packet that leaves by a link, if there is one.
    fn send(&mut self, link: usize, place: usize, now: u64) {
        if self.outputs[link].left == 0 && (!self.outputs[link].is_open || !self.grant(link, now)) {
            return;
        }
        let output = &mut self.outputs[link];
        let source = link / PORTS * PORTS * self.profile.channels + usize::from(output.from);
        if output.from != INJECTED {
            let channel = &mut self.channels[source];
            // The rest of the packet is still on the link before.
            let Some(flits) = channel.flits.checked_sub(1) else { return };
            channel.flits = flits;
        }
        output.left -= 1;
        let mut flit = output.flit;
        if output.is_first {
            flit |= HEAD;
            output.is_first = false;
        }
        if flit & LOCAL == 0 {
            output.credits[(flit >> CHANNEL_SHIFT & 0xf) as usize] -= 1;
        }
        self.outcome.flit_hops += 1;
        if output.left > 0 {
            self.lines[place] = flit;
            return;
        }
        self.lines[place] = flit | TAIL;
        output.is_open = true;
        if output.from != INJECTED {
            let channel = &mut self.channels[source];
            channel.is_sending = false;
            if channel.head != NONE {
                let to = link / PORTS * PORTS + usize::from(self.packets[channel.head as usize].port);
                self.fresh.push((to as u32, (source % (PORTS * self.profile.channels)) as u8));
            } else if channel.flits == 0 {
                self.busy[source / self.profile.channels] -= 1;
            }
        }
    }

    /// Puts credit flits on the links whose turn it is.
    fn tell(&mut self, now: u64, base: usize) {
        let (every, channels) = (self.profile.credit_cycles as usize, self.profile.channels);
        let free = self.profile.channel_flits as u16;
        for link in (now as usize % every..self.outputs.len()).step_by(every) {
            if self.inputs[link] == NONE {
                continue;
            }
            let buffers = &self.channels[link * channels..(link + 1) * channels];
            self.told[link].iter_mut().zip(buffers).for_each(|(told, channel)| *told = free - channel.flits);
            self.lines[base + link] = CREDIT;
            self.outcome.credit_flits += 1;
        }
    }

    /// Looks for channels that wait for each other forever.
    fn deadlock(&self, cycle: u64) -> Option<Deadlock> {
        let waits: Vec<Wait> = (0..self.channels.len()).map(|place| self.wait(place)).collect();
        let (circle, stuck) = deadlock::find(&waits)?;
        let describe = |place: usize| {
            let (input, channel) = (place / self.profile.channels, place % self.profile.channels);
            let to = self.packets[self.channels[place].head as usize].to;
            StuckChannel { node: (input / PORTS) as u32, port: (input % PORTS) ^ 1, channel, to }
        };
        Some(Deadlock { cycle, circle: circle.into_iter().map(describe).collect(), stuck })
    }

    /// Returns what the first packet of a channel waits for.
    fn wait(&self, place: usize) -> Wait {
        let channel = self.channels[place];
        if channel.head == NONE || channel.is_sending {
            return None;
        }
        let packet = &self.packets[channel.head as usize];
        let input = self.inputs[place / self.profile.channels / PORTS * PORTS + usize::from(packet.port)] as usize;
        if input / PORTS == packet.to as usize {
            return None;
        }
        let wanted = self.usable(packet.class);
        let wanted = input * self.profile.channels + wanted.start..input * self.profile.channels + wanted.end;
        let (needed, all) = (self.needed(packet.flits), self.profile.channel_flits as u16);
        self.channels[wanted.clone()].iter().all(|one| all - one.flits < needed).then_some(wanted)
    }

    fn next_cycle(&mut self, now: u64) -> Option<Cycle> {
        if self.failure.is_some() {
            return None;
        }
        if self.alive > 0 {
            self.last_alive = now;
            if now % LOOK_CYCLES == 0
                && let Some(found) = self.deadlock(now)
            {
                self.failure = Some(found.into());
                return None;
            }
            if now >= self.limit {
                self.failure = Some(WormholeError::Late { cycle: now, packets: self.alive });
                return None;
            }
            return Some(Cycle::from(now + 1));
        }
        let next = self.pending.iter().flatten().map(|message| message.cycle).min()?;
        // All credits are known after this time, and the network can sleep.
        if now - self.last_alive <= self.profile.credit_cycles + self.hop_cycles {
            return Some(Cycle::from(now + 1));
        }
        if next > now + 1 {
            self.lines.fill(0);
        }
        Some(Cycle::from(next.max(now + 1)))
    }
}

impl From<Deadlock> for WormholeError {
    fn from(found: Deadlock) -> Self {
        WormholeError::Deadlock(found)
    }
}

impl<T: Traffic> Clocked<Fabric<'_, T>> for Routers {
    fn consume(&mut self, cycle: Cycle, fabric: &mut Fabric<'_, T>) {
        let now = cycle as u64;
        let links = fabric.outputs.len();
        let base = (now % fabric.slots) as usize * links;
        for link in 0..links {
            let flit = fabric.lines[base + link];
            if flit != 0 {
                fabric.lines[base + link] = 0;
                fabric.arrive(link, flit, now);
            }
        }
        for (output, channel) in std::mem::take(&mut fabric.fresh) {
            let output = &mut fabric.outputs[output as usize];
            output.requests |= 1 << channel;
            output.is_open = true;
        }
        for node in 0..fabric.pending.len() {
            while let Some(message) = fabric.pending[node].filter(|message| message.cycle <= now) {
                let is_full = fabric.waiting[node] >= fabric.profile.waiting_packets
                    || (fabric.free.is_empty() && fabric.packets.len() as u32 >= PACKETS_MAX - 1);
                if is_full || fabric.failure.is_some() {
                    break;
                }
                fabric.create(message);
                fabric.pull(node as u32);
            }
        }
    }

    fn produce(&mut self, cycle: Cycle, fabric: &mut Fabric<'_, T>) -> Option<Cycle> {
        let now = cycle as u64;
        let links = fabric.outputs.len();
        let base = ((now + fabric.hop_cycles) % fabric.slots) as usize * links;
        fabric.tell(now, base);
        for link in 0..links {
            if fabric.lines[base + link] == 0 {
                fabric.send(link, base + link, now);
            }
        }
        fabric.outcome.first = fabric.first_injected.unwrap_or(0);
        fabric.next_cycle(now)
    }
}

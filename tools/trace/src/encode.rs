//! From records to tracks.

use std::collections::{BTreeMap, HashMap};
use std::time::SystemTime;

use cmdseq::{Instruction, Status};
use fpga_driver::trace::{CardTrace, Piece, Trace};

use crate::network::{Network, Transfer};
use crate::placed::{Clock, Placed, has_cycles, place};
use crate::writer::{Arguments, Slice, Track, Value, Writer};

/// Returns the file of a trace. `network` is the fabric of the cards if it is in this process: all cards are placed by its time
/// then, and its transfers are shown. `rank` is this process's among several that have a file each: such files can be concatenated.
pub fn encode(trace: &Trace, network: Option<&Network<'_>>, rank: Option<u32>) -> Vec<u8> {
    let began = trace.began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut writer = Writer::new(u64::try_from(began.as_nanos()).unwrap_or(u64::MAX), rank.unwrap_or_default());
    let clocks = place(trace, network);
    host(&mut writer, trace, rank);
    let mut slices: Vec<Vec<Slice>> = trace.cards.iter().map(|_| Vec::new()).collect();
    let mut links: BTreeMap<(u32, u32), Vec<Slice>> = BTreeMap::new();
    for clock in &clocks {
        let mut flows = network.map(|network| carried(&writer, clock, network, trace, &mut links)).unwrap_or_default();
        for (number, one) in clock.instructions.iter().enumerate() {
            let mut slice = instruction(&trace.cards[one.card], one, &clock.pieces[one.piece]);
            slice.flows = flows.remove(&number).unwrap_or_default();
            slices[one.card].push(slice);
        }
    }
    for (index, (card, slices)) in trace.cards.iter().zip(slices).enumerate() {
        let name = format!("card {} ({})", card.node, card.name);
        let parent = writer.track(name, None);
        writer.side_by_side("instructions", parent, slices);
        depth(&mut writer, parent, card);
        if network.is_none() {
            clock_track(&mut writer, parent, &clocks[index]);
        }
        losses(&mut writer, parent, card);
    }
    if let Some(network) = network {
        let parent = writer.track("network", None);
        for ((from, to), slices) in links {
            writer.side_by_side(&format!("card {from} to card {to}"), parent, slices);
        }
        clocks.iter().for_each(|clock| clock_track(&mut writer, parent, clock));
        dropped(&mut writer, parent, "transfers dropped: the latest", network.dropped, 0);
    }
    writer.finish()
}

/// What the host did.
fn host(writer: &mut Writer, trace: &Trace, rank: Option<u32>) {
    let name = rank.map_or_else(|| "host".to_owned(), |rank| format!("host (rank {rank})"));
    let parent = writer.track(name, None);
    let track = writer.track("calls", Some(parent));
    let mut slices: Vec<Slice> =
        trace.spans.iter().map(|span| Slice::new(span.name, "host", span.begin_ns, span.end_ns)).collect();
    for card in &trace.cards {
        slices.extend(card.doorbells.iter().map(|one| {
            let mut slice = Slice::new("doorbell", "host", one.begin_ns, one.end_ns);
            slice.arguments = vec![
                ("card", Value::Count(u64::from(card.node))),
                ("instructions", Value::Count(u64::from(one.count))),
            ];
            slice
        }));
    }
    writer.nested(track, slices);
    dropped(writer, parent, "spans dropped: the latest", trace.dropped_spans, 0);
}

/// Whole nanoseconds since the recording began.
fn whole(ns: f64) -> u64 {
    ns.max(0.0) as u64
}

fn instruction(card: &CardTrace, placed: &Placed, piece: &Piece) -> Slice {
    let record = &card.instructions[placed.index];
    let (instruction, completion) = (&record.instruction, &record.completion);
    let at = |count| whole(piece.host_ns(count));
    let mut slice =
        Slice::new(instruction.operation.name(), "instruction", at(placed.interval.begin), at(placed.interval.end));
    let fields = instruction.operation.fields();
    let members = card.communicators.iter().find(|(id, _)| *id == instruction.communicator);
    let members = members.map(|(_, members)| members.as_slice()).filter(|_| fields.communicator);
    let rank = members.and_then(|members| members.iter().position(|node| *node == card.node));
    let mut arguments: Arguments = vec![("rank", Value::Count(rank.map_or(u64::from(card.node), |rank| rank as u64)))];
    if let Some(peers) = members.map(|members| peers(instruction, members, card.node)).filter(|peers| !peers.is_empty())
    {
        arguments.push(("peers", Value::Nodes(peers)));
    }
    arguments.extend([
        ("bytes", Value::Count(completion.bytes)),
        ("tag", Value::Count(u64::from(completion.tag))),
        ("issued_cycles", Value::Count(completion.issued)),
        ("t1_cycles", Value::Count(completion.t1)),
        ("t2_cycles", Value::Count(completion.t2)),
        ("host_before_ns", Value::Count(record.rung_ns)),
        ("host_after_ns", Value::Count(record.seen_ns)),
    ]);
    if completion.status != Status::Done {
        arguments.push(("status", Value::Text(completion.status.to_string())));
    }
    slice.arguments = arguments;
    slice
}

/// Nodes of the cards that an instruction works with.
fn peers(instruction: &Instruction, members: &[u32], own: u32) -> Vec<u32> {
    let fields = instruction.operation.fields();
    let node = |rank: u16| members.get(usize::from(rank)).copied();
    if fields.peer {
        let root = fields.root.then(|| node(instruction.root)).flatten();
        return node(instruction.peer).into_iter().chain(root).collect();
    }
    match fields.root.then(|| node(instruction.root)).flatten() {
        Some(root) if root != own => vec![root],
        _ => members.iter().copied().filter(|node| *node != own).collect(),
    }
}

/// How many instructions the card was told of and has not completed, as the host knows.
fn depth(writer: &mut Writer, parent: Track, card: &CardTrace) {
    let track = writer.counter("queue depth", parent);
    depths(card).into_iter().for_each(|(at, value)| writer.count(track, at, value));
}

/// Times, and the depth of the queue from then on. What is known is the depth at the end: from there it is counted back.
fn depths(card: &CardTrace) -> Vec<(u64, i64)> {
    let rung = card.doorbells.iter().map(|one| (one.end_ns, i64::from(one.count)));
    let mut changes: Vec<(u64, i64)> = rung.chain(card.instructions.iter().map(|one| (one.seen_ns, -1))).collect();
    changes.sort_unstable_by_key(|(at, _)| *at);
    // Before the oldest record of a kind, changes are missing if some were dropped.
    let first = |dropped, at: Option<u64>| if dropped == 0 { 0 } else { at.unwrap_or(u64::MAX) };
    let instructions = first(card.dropped.instructions, card.instructions.first().map(|one| one.seen_ns));
    let doorbells = first(card.dropped.doorbells, card.doorbells.first().map(|one| one.end_ns));
    let mut value = card.in_flight.len() as i64 - changes.iter().map(|(_, change)| change).sum::<i64>();
    let mut depths = Vec::new();
    for (place, (at, change)) in changes.iter().enumerate() {
        value += change;
        if changes.get(place + 1).is_none_or(|next| next.0 != *at) && *at >= instructions.max(doorbells) {
            depths.push((*at, value));
        }
    }
    depths
}

/// How the clock was placed: one span for each piece.
fn clock_track(writer: &mut Writer, parent: Track, clock: &Clock) {
    let slices = clock.pieces.iter().map(|piece| {
        let all = &clock.instructions[piece.first..piece.first + piece.count];
        let end = all.iter().map(|one| whole(piece.host_ns(one.interval.end))).max().unwrap_or_default();
        let mut slice = Slice::new("clock", "clock", whole(piece.origin_ns), end);
        slice.arguments = vec![
            ("error_ns", Value::Number(piece.error_ns)),
            ("drift_ppm", Value::Number(piece.ppm)),
            ("instructions", Value::Count(piece.count as u64)),
            ("longer_than_host", Value::Count(u64::from(piece.is_longer_than_host))),
        ];
        slice
    });
    let slices = slices.collect();
    writer.side_by_side("clock", parent, slices);
}

/// What is not in the trace of a card.
fn losses(writer: &mut Writer, parent: Track, card: &CardTrace) {
    let first = card.instructions.first().map_or(0, |one| one.rung_ns);
    dropped(writer, parent, "instructions dropped: the oldest", card.dropped.instructions, first);
    let first = card.doorbells.first().map_or(0, |one| one.begin_ns);
    dropped(writer, parent, "doorbells dropped: the oldest", card.dropped.doorbells, first);
    let stopped: Vec<_> = card.instructions.iter().filter(|record| !has_cycles(record)).collect();
    if !stopped.is_empty() {
        let track = writer.track("stopped by the host", Some(parent));
        for record in stopped {
            let arguments = vec![
                ("tag", Value::Count(u64::from(record.completion.tag))),
                ("status", Value::Text(record.completion.status.to_string())),
            ];
            writer.instant(track, record.instruction.operation.name(), record.seen_ns, &arguments);
        }
    }
    if !card.in_flight.is_empty() {
        let track = writer.track("in flight at the end", Some(parent));
        for record in &card.in_flight {
            let bytes = vec![("bytes", Value::Count(record.instruction.bytes))];
            writer.instant(track, record.instruction.operation.name(), record.rung_ns, &bytes);
        }
    }
}

fn dropped(writer: &mut Writer, parent: Track, name: &str, count: u64, at_ns: u64) {
    if count != 0 {
        let track = writer.track("dropped", Some(parent));
        writer.instant(track, name, at_ns, &vec![("count", Value::Count(count))]);
    }
}

/// Adds the transfers to their links. Returns the arrows to them, by the number of the instruction.
fn carried(
    writer: &Writer,
    clock: &Clock,
    network: &Network<'_>,
    trace: &Trace,
    links: &mut BTreeMap<(u32, u32), Vec<Slice>>,
) -> HashMap<usize, Vec<u64>> {
    let owners = Owners::of(clock, trace);
    let mut flows: HashMap<usize, Vec<u64>> = HashMap::new();
    for (number, transfer) in network.transfers.iter().enumerate() {
        let owner = owners.find(clock, transfer);
        // Without the record of its instruction, by the nearest piece.
        let after = clock.instructions.partition_point(|one| one.interval.begin <= transfer.begin_ps);
        let nearest = owner.or_else(|| after.checked_sub(1)).unwrap_or(0);
        let Some(nearest) = clock.instructions.get(nearest) else { continue };
        let piece = &clock.pieces[nearest.piece];
        let at = |ps| whole(piece.host_ns(ps));
        let mut slice = Slice::new("transfer", "network", at(transfer.begin_ps), at(transfer.end_ps));
        let picoseconds = transfer.end_ps.saturating_sub(transfer.begin_ps).max(1);
        slice.arguments = vec![
            ("from", Value::Count(u64::from(transfer.from))),
            ("to", Value::Count(u64::from(transfer.to))),
            ("bytes", Value::Count(transfer.bytes)),
            ("gbps", Value::Number(transfer.bytes as f64 * 8e3 / picoseconds as f64)),
            ("link_gbps", Value::Number(transfer.link_mbps as f64 / 1e3)),
            ("tag", Value::Count(u64::from(transfer.tag))),
            ("node", Value::Count(u64::from(transfer.node))),
        ];
        if let Some(owner) = owner {
            let flow = writer.id(number as u32 + 1);
            slice.ending_flows.push(flow);
            flows.entry(owner).or_default().push(flow);
        }
        links.entry((transfer.from, transfer.to)).or_default().push(slice);
    }
    flows
}

/// Numbers of the instructions by node, and by node and tag, each by their beginning.
struct Owners {
    by_tag: HashMap<(u32, u16), Vec<usize>>,
    by_node: HashMap<u32, Vec<usize>>,
}

impl Owners {
    fn of(clock: &Clock, trace: &Trace) -> Self {
        let mut owners = Owners { by_tag: HashMap::new(), by_node: HashMap::new() };
        for (number, one) in clock.instructions.iter().enumerate() {
            let card = &trace.cards[one.card];
            let tag = card.instructions[one.index].completion.tag;
            owners.by_tag.entry((card.node, tag)).or_default().push(number);
            owners.by_node.entry(card.node).or_default().push(number);
        }
        owners
    }

    /// The instruction that a transfer belongs to: the one of its tag that was issued then, or the launch of its program.
    fn find(&self, clock: &Clock, transfer: &Transfer) -> Option<usize> {
        let latest = |numbers: &Vec<usize>, ps: u64| {
            let after = numbers.partition_point(|number| clock.instructions[*number].interval.begin <= ps);
            let number = *numbers.get(after.checked_sub(1)?)?;
            (clock.instructions[number].interval.end >= transfer.end_ps).then_some(number)
        };
        let exact = self.by_tag.get(&(transfer.node, transfer.tag));
        exact
            .and_then(|numbers| latest(numbers, transfer.issued_ps))
            .or_else(|| latest(self.by_node.get(&transfer.node)?, transfer.begin_ps))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use cmdseq::Completion;
    use fpga_driver::trace::{DoorbellRecord, Dropped, InFlightRecord, InstructionRecord, Span};
    use prost::Message as _;

    use super::*;
    use crate::packet;

    fn doorbell(end_ns: u64, count: u32) -> DoorbellRecord {
        DoorbellRecord { begin_ns: end_ns - 1, end_ns, count }
    }

    fn card(node: u32, doorbells: Vec<DoorbellRecord>, seen: &[u64], dropped: Dropped) -> CardTrace {
        let instruction = Instruction::nop();
        let completion = Completion::decode(&[0; 32]);
        let record = |seen_ns: &u64| InstructionRecord { instruction, completion, rung_ns: 0, seen_ns: *seen_ns };
        CardTrace {
            node,
            name: format!("card {node}"),
            clock_khz: 250_000,
            is_mock: true,
            depth: 8,
            communicators: Vec::new(),
            instructions: seen.iter().map(record).collect(),
            in_flight: Vec::new(),
            doorbells,
            dropped,
        }
    }

    #[test]
    fn the_depth_is_right_where_the_oldest_records_were_dropped() {
        let none = Dropped::default();
        let whole = card(0, vec![doorbell(10, 2), doorbell(30, 3)], &[20, 21, 40, 41, 42], none);
        let expected = vec![(10, 2), (20, 1), (21, 0), (30, 3), (40, 2), (41, 1), (42, 0)];
        assert_eq!(depths(&whole), expected);
        // One doorbell tells of many instructions, so instructions are dropped long before doorbells.
        let dropped = Dropped { instructions: 3, doorbells: 0 };
        let mut fewer = card(0, vec![doorbell(10, 2), doorbell(30, 3)], &[41, 42], dropped);
        assert_eq!(depths(&fewer), [(41, 1), (42, 0)]);
        fewer.in_flight = vec![InFlightRecord { instruction: Instruction::nop(), rung_ns: 29 }];
        assert_eq!(depths(&fewer), [(41, 2), (42, 1)]);
        let dropped = Dropped { instructions: 0, doorbells: 1 };
        let fewer = card(0, vec![doorbell(30, 3)], &[20, 21, 40, 41, 42], dropped);
        assert_eq!(depths(&fewer), expected[3..]);
        let nothing = card(0, Vec::new(), &[40, 41], Dropped { instructions: 3, doorbells: 2 });
        assert_eq!(depths(&nothing), []);
    }

    /// All ids of a file, and the names of its groups.
    fn ids(rank: Option<u32>) -> (BTreeSet<u64>, BTreeSet<u32>, Vec<String>) {
        let spans = vec![Span { name: "wait", begin_ns: 1, end_ns: 9 }];
        let cards = vec![card(rank.unwrap_or_default(), vec![doorbell(2, 1)], &[8], Dropped::default())];
        let began = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        let file = encode(&Trace { began, spans, dropped_spans: 0, cards }, None, rank);
        let packets = packet::Trace::decode(&*file).unwrap().packet;
        let tracks = || packets.iter().filter_map(|packet| packet.track_descriptor.as_ref());
        let uuids: BTreeSet<u64> = tracks().filter_map(|track| track.uuid).collect();
        let events = packets.iter().filter_map(|packet| packet.track_event.as_ref()?.track_uuid);
        assert!(events.into_iter().all(|uuid| uuids.contains(&uuid)));
        let groups = tracks().filter(|track| track.parent_uuid.is_none()).filter_map(|track| track.name.clone());
        let sequences = packets.iter().filter_map(|packet| packet.trusted_packet_sequence_id).collect();
        (uuids, sequences, groups.collect())
    }

    #[test]
    fn ranks_have_ids_of_their_own() {
        let files: Vec<_> = [0, 1, 15].map(|rank| ids(Some(rank))).into();
        for (place, (uuids, sequences, groups)) in files.iter().enumerate() {
            assert!(uuids.len() > 3 && sequences.len() == 1);
            let rank = [0, 1, 15][place];
            assert_eq!(*groups, [format!("host (rank {rank})"), format!("card {rank} (card {rank})")]);
            for (others, sequence, _) in &files[place + 1..] {
                assert!(uuids.is_disjoint(others) && sequences.is_disjoint(sequence));
            }
        }
        assert_eq!(ids(None).2[0], "host");
        let [one, other] = [1, 2].map(|rank| Writer::new(0, rank).id(1));
        assert_ne!(one, other, "arrows");
    }
}

//! Packets, tracks and spans.

use prost::Message as _;

use crate::packet::{CounterDescriptor, DebugAnnotation, EventType, Trace, TracePacket, TrackDescriptor, TrackEvent};

/// Tracks are ordered by their rank.
const EXPLICIT: i32 = 3;
/// A counter counts things.
const UNIT_COUNT: i32 = 2;

/// A named value of an event.
pub(crate) enum Value {
    Count(u64),
    Number(f64),
    Text(String),
    Nodes(Vec<u32>),
}

pub(crate) type Arguments = Vec<(&'static str, Value)>;

/// A span on a track. Times are nanoseconds since the recording began.
pub(crate) struct Slice {
    pub(crate) name: String,
    pub(crate) category: &'static str,
    pub(crate) begin_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) arguments: Arguments,
    /// Arrows that begin and end here.
    pub(crate) flows: Vec<u64>,
    pub(crate) ending_flows: Vec<u64>,
}

impl Slice {
    pub(crate) fn new(name: impl Into<String>, category: &'static str, begin_ns: u64, end_ns: u64) -> Self {
        Slice {
            name: name.into(),
            category,
            begin_ns,
            end_ns: end_ns.max(begin_ns),
            arguments: Vec::new(),
            flows: Vec::new(),
            ending_flows: Vec::new(),
        }
    }
}

/// A track of a file.
#[derive(Clone, Copy)]
pub(crate) struct Track(u64);

/// A file that is written, packet by packet.
pub(crate) struct Writer {
    bytes: Vec<u8>,
    tracks: u32,
    /// Of the process; 0 if it is the only one. Files of several ranks can be concatenated, so all ids differ between ranks.
    rank: u32,
    /// Nanoseconds since 1970 at the beginning.
    began_ns: u64,
}

impl Writer {
    pub(crate) fn new(began_ns: u64, rank: u32) -> Self {
        Writer { bytes: Vec::new(), tracks: 0, rank, began_ns }
    }

    /// Returns an id that no other rank has, from one that is unique in this file.
    pub(crate) fn id(&self, number: u32) -> u64 {
        u64::from(self.rank) << 32 | u64::from(number)
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }

    fn packet(&mut self, packet: TracePacket) {
        let is_first = self.bytes.is_empty();
        let packet = TracePacket {
            trusted_packet_sequence_id: Some(self.rank.saturating_add(1)),
            sequence_flags: is_first.then_some(1),
            first_packet_on_sequence: is_first.then_some(true),
            ..packet
        };
        // Field 1 of the file: packets may be written one after another.
        let one = Trace { packet: vec![packet] };
        self.bytes.reserve(one.encoded_len());
        if one.encode(&mut self.bytes).is_err() {
            unreachable!("a vector has room");
        }
    }

    /// A track in `parent`, below those made before.
    pub(crate) fn track(&mut self, name: impl Into<String>, parent: Option<Track>) -> Track {
        self.describe(name.into(), parent, None)
    }

    /// A track of counts.
    pub(crate) fn counter(&mut self, name: &str, parent: Track) -> Track {
        self.describe(name.into(), Some(parent), Some(CounterDescriptor { unit: Some(UNIT_COUNT) }))
    }

    fn describe(&mut self, name: String, parent: Option<Track>, counter: Option<CounterDescriptor>) -> Track {
        self.tracks += 1;
        let uuid = self.id(self.tracks);
        let descriptor = TrackDescriptor {
            uuid: Some(uuid),
            name: Some(name),
            parent_uuid: parent.map(|parent| parent.0),
            counter,
            child_ordering: Some(EXPLICIT),
            sibling_order_rank: i32::try_from(self.tracks).ok(),
        };
        self.packet(TracePacket { track_descriptor: Some(descriptor), ..Default::default() });
        Track(uuid)
    }

    fn event(&mut self, at_ns: u64, event: TrackEvent) {
        let timestamp = Some(self.began_ns.saturating_add(at_ns));
        self.packet(TracePacket { timestamp, track_event: Some(event), ..Default::default() });
    }

    fn begin(&mut self, track: Track, slice: &Slice) {
        let event = TrackEvent {
            r#type: Some(EventType::SliceBegin.into()),
            track_uuid: Some(track.0),
            categories: vec![slice.category.to_owned()],
            name: Some(slice.name.clone()),
            flow_ids: slice.flows.clone(),
            terminating_flow_ids: slice.ending_flows.clone(),
            debug_annotations: annotations(&slice.arguments),
            counter_value: None,
        };
        self.event(slice.begin_ns, event);
    }

    fn end(&mut self, track: Track, at_ns: u64) {
        let event =
            TrackEvent { r#type: Some(EventType::SliceEnd.into()), track_uuid: Some(track.0), ..Default::default() };
        self.event(at_ns, event);
    }

    /// A moment on a track.
    pub(crate) fn instant(&mut self, track: Track, name: &str, at_ns: u64, arguments: &Arguments) {
        let event = TrackEvent {
            r#type: Some(EventType::Instant.into()),
            track_uuid: Some(track.0),
            name: Some(name.to_owned()),
            debug_annotations: annotations(arguments),
            ..Default::default()
        };
        self.event(at_ns, event);
    }

    pub(crate) fn count(&mut self, track: Track, at_ns: u64, value: i64) {
        let event = TrackEvent {
            r#type: Some(EventType::Counter.into()),
            track_uuid: Some(track.0),
            counter_value: Some(value),
            ..Default::default()
        };
        self.event(at_ns, event);
    }

    /// Spans of one thread, which contain each other. A span that ends after the one it began in is cut there.
    pub(crate) fn nested(&mut self, track: Track, mut slices: Vec<Slice>) {
        slices.sort_by_key(|slice| (slice.begin_ns, std::cmp::Reverse(slice.end_ns)));
        let mut open: Vec<u64> = Vec::new();
        for slice in &slices {
            while let Some(end) = open.pop_if(|end| *end <= slice.begin_ns) {
                self.end(track, end);
            }
            let end = open.last().map_or(slice.end_ns, |outer| slice.end_ns.min(*outer));
            self.begin(track, slice);
            open.push(end);
        }
        while let Some(end) = open.pop() {
            self.end(track, end);
        }
    }

    /// Spans that may overlap, on as many tracks of one name as they need.
    pub(crate) fn side_by_side(&mut self, name: &str, parent: Track, mut slices: Vec<Slice>) {
        slices.sort_by_key(|slice| (slice.begin_ns, slice.end_ns));
        let mut tracks: Vec<(Track, u64)> = Vec::new();
        for slice in &slices {
            let free = tracks.iter().position(|(_, end)| *end <= slice.begin_ns);
            let place = free.unwrap_or_else(|| {
                tracks.push((self.track(name, Some(parent)), 0));
                tracks.len() - 1
            });
            tracks[place].1 = slice.end_ns;
            let track = tracks[place].0;
            self.begin(track, slice);
            self.end(track, slice.end_ns);
        }
    }
}

fn annotations(arguments: &Arguments) -> Vec<DebugAnnotation> {
    let plain = |value: &Value| match value {
        Value::Count(count) => DebugAnnotation { uint_value: Some(*count), ..Default::default() },
        Value::Number(number) => DebugAnnotation { double_value: Some(*number), ..Default::default() },
        Value::Text(text) => DebugAnnotation { string_value: Some(text.clone()), ..Default::default() },
        Value::Nodes(nodes) => {
            let one = |node: &u32| DebugAnnotation { uint_value: Some(u64::from(*node)), ..Default::default() };
            DebugAnnotation { array_values: nodes.iter().map(one).collect(), ..Default::default() }
        }
    };
    let named = |(name, value): &(&str, Value)| DebugAnnotation { name: Some((*name).to_owned()), ..plain(value) };
    arguments.iter().map(named).collect()
}

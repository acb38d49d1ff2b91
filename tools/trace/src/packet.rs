//! The messages of Perfetto's format that a trace has, with their field numbers. Source: perfetto/protos/perfetto/trace/
//! perfetto_trace.proto of Perfetto (Apache 2.0). Fields that nothing here needs are left out; readers know them as absent.

/// A whole file.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Trace {
    /// In any order of time.
    #[prost(message, repeated, tag = "1")]
    pub packet: Vec<TracePacket>,
}

/// One entry of a file.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TracePacket {
    /// Nanoseconds; here since 1970.
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    /// Who wrote it.
    #[prost(uint32, optional, tag = "10")]
    pub trusted_packet_sequence_id: Option<u32>,
    /// 1 for the first of a writer: it refers to nothing before.
    #[prost(uint32, optional, tag = "13")]
    pub sequence_flags: Option<u32>,
    /// Whether it is the first of its writer.
    #[prost(bool, optional, tag = "87")]
    pub first_packet_on_sequence: Option<bool>,
    /// An event on a track.
    #[prost(message, optional, tag = "11")]
    pub track_event: Option<TrackEvent>,
    /// A track.
    #[prost(message, optional, tag = "60")]
    pub track_descriptor: Option<TrackDescriptor>,
}

/// A track.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TrackDescriptor {
    /// Names the track in this file.
    #[prost(uint64, optional, tag = "1")]
    pub uuid: Option<u64>,
    /// Text for people.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    /// The track that it is shown in.
    #[prost(uint64, optional, tag = "5")]
    pub parent_uuid: Option<u64>,
    /// Present if the track has values instead of spans.
    #[prost(message, optional, tag = "8")]
    pub counter: Option<CounterDescriptor>,
    /// How the tracks in it are ordered: 3 is by their rank.
    #[prost(int32, optional, tag = "11")]
    pub child_ordering: Option<i32>,
    /// Its rank among the tracks of its parent.
    #[prost(int32, optional, tag = "12")]
    pub sibling_order_rank: Option<i32>,
}

/// What a track of values counts.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CounterDescriptor {
    /// 2 for a count.
    #[prost(int32, optional, tag = "3")]
    pub unit: Option<i32>,
}

/// Kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum EventType {
    /// Never written.
    Unspecified = 0,
    /// A span begins.
    SliceBegin = 1,
    /// The span that began last ends.
    SliceEnd = 2,
    /// A moment.
    Instant = 3,
    /// A value.
    Counter = 4,
}

/// An event on a track.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TrackEvent {
    /// Its kind.
    #[prost(enumeration = "EventType", optional, tag = "9")]
    pub r#type: Option<i32>,
    /// The track.
    #[prost(uint64, optional, tag = "11")]
    pub track_uuid: Option<u64>,
    /// Kinds of things, such as `instruction`.
    #[prost(string, repeated, tag = "22")]
    pub categories: Vec<String>,
    /// Text for people.
    #[prost(string, optional, tag = "23")]
    pub name: Option<String>,
    /// Arrows that go on from here.
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    pub flow_ids: Vec<u64>,
    /// Arrows that end here.
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    pub terminating_flow_ids: Vec<u64>,
    /// Named values.
    #[prost(message, repeated, tag = "4")]
    pub debug_annotations: Vec<DebugAnnotation>,
    /// Of a counter.
    #[prost(int64, optional, tag = "30")]
    pub counter_value: Option<i64>,
}

/// A named value.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DebugAnnotation {
    /// Its name.
    #[prost(string, optional, tag = "10")]
    pub name: Option<String>,
    /// A number.
    #[prost(uint64, optional, tag = "3")]
    pub uint_value: Option<u64>,
    /// A number with a fraction.
    #[prost(double, optional, tag = "5")]
    pub double_value: Option<f64>,
    /// A text.
    #[prost(string, optional, tag = "6")]
    pub string_value: Option<String>,
    /// A list.
    #[prost(message, repeated, tag = "12")]
    pub array_values: Vec<DebugAnnotation>,
}

/// Returns how many of the first bytes of a file are whole packets.
pub fn whole_packets(file: &[u8]) -> usize {
    let mut rest = file;
    while let Some(next) = after_packet(rest) {
        rest = next;
    }
    file.len() - rest.len()
}

/// Returns what follows the packet that `file` begins with: field 1, its length, its bytes.
fn after_packet(file: &[u8]) -> Option<&[u8]> {
    let (tag, mut rest) = file.split_first()?;
    if *tag != 0x0a {
        return None;
    }
    let bytes = prost::decode_length_delimiter(&mut rest).ok()?;
    rest.get(bytes..)
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    #[test]
    fn a_cut_file_ends_after_its_last_whole_packet() {
        let packet = |bytes: usize| {
            let event = TrackEvent { name: Some("x".repeat(bytes)), ..Default::default() };
            TracePacket { track_event: Some(event), ..Default::default() }
        };
        let packets = [0, 5, 200, 3].map(packet);
        let mut ends = vec![0];
        for packet in &packets {
            let one = Trace { packet: vec![packet.clone()] }.encode_to_vec();
            ends.push(ends[ends.len() - 1] + one.len());
        }
        let file = Trace { packet: packets.to_vec() }.encode_to_vec();
        for cut in 0..=file.len() {
            let whole = whole_packets(&file[..cut]);
            let expected = ends.iter().rev().find(|end| **end <= cut).unwrap();
            assert_eq!(whole, *expected, "cut at {cut}");
            assert!(Trace::decode(&file[..whole]).is_ok());
        }
    }
}

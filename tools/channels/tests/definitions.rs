//! Definitions are read as they are written, and everything else is refused with its place.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use fpga_channels::{BITS_MAX, BYTES_MAX, Error, Problem, Scalar, Word, parse};
use proptest::prelude::*;

/// One end of a channel, as text.
fn end(name: &str, word: &str, width: u32, direction: &str, id: &str) -> String {
    format!(
        "<channel name=\"{name}\"><type>{word}</type><width>{width}</width><depth>16</depth>\
         <{direction}>{id}</{direction}></channel>\n"
    )
}

fn document(ends: &[String]) -> String {
    format!("<channels>\n{}</channels>\n", ends.concat())
}

fn pair() -> [String; 2] {
    [end("out", "float", 32, "write-to", "7"), end("in", "float", 32, "read-from", "7")]
}

#[track_caller]
fn refused(text: &str) -> Error {
    parse(text.as_bytes()).unwrap_err()
}

/// Checks the place, the channel and the message of an error.
#[track_caller]
fn check(text: &str, place: (u32, u32), channel: Option<&str>, message: &str) {
    let error = refused(text);
    let expected = (place, channel.map(String::from));
    assert_eq!(((error.line, error.column), error.channel.clone()), expected, "{error}");
    assert!(error.to_string().contains(message), "{error}");
}

#[test]
fn ends_are_joined_whatever_their_order() {
    let [out, r#in] = pair();
    let one = parse(document(&[out.clone(), r#in.clone()]).as_bytes()).unwrap();
    assert_eq!(one, parse(document(&[r#in, out]).as_bytes()).unwrap());
    let [channel] = one.channels() else { panic!("{one:?}") };
    assert_eq!((channel.id, channel.word), (7, Word::named("float").unwrap()));
    assert_eq!((channel.writer.name.as_str(), channel.reader.name.as_str()), ("out", "in"));
}

#[test]
fn declarations_comments_and_space_are_left_out() {
    let [out, r#in] = pair();
    let plain = parse(document(&[out.clone(), r#in.clone()]).as_bytes()).unwrap();
    let out = out.replace("float<", "\n float <").replace("16<", "16<!-- words --><");
    let text = format!("<?xml version='1.0' encoding='utf-8'?>\r\n<!-- a -->{}<!-- b -->\n", document(&[out, r#in]));
    assert_eq!(parse(text.as_bytes()).unwrap(), plain);
    assert_eq!(parse(format!("\u{feff}{text}").as_bytes()).unwrap(), plain);
}

#[test]
fn a_byte_order_mark_is_left_out_once() {
    check("\u{feff}x", (1, 1), None, "found");
    check("\u{feff}\u{feff}\u{4}", (1, 1), None, "second byte order mark");
}

#[test]
fn what_does_not_fit_a_channel_is_refused() {
    let [out, r#in] = pair();
    let of = |text: String| document(&[out.clone(), text]);
    let changed = |from: &str, to: &str| of(r#in.replace(from, to));
    let channel = Some("in");
    // The second end is on line 3.
    check(&changed("float", "flaot"), (3, 26), channel, "unknown type \"flaot\"");
    check(&changed("float", "float3"), (3, 26), channel, "unknown type");
    check(&changed("float", "double16"), (3, 26), channel, "double16 has 1024 bits");
    check(&changed("float", "double"), (3, 46), channel, "width 32 does not fit double, which has 64 bits");
    check(&changed("float", "int"), (3, 1), channel, "reads int from 7, which out writes as float");
    check(&changed("32<", "31<"), (3, 45), channel, "width 31 does not fit float");
    check(&changed("32<", "+32<"), (3, 45), channel, "invalid width \"+32\"");
    check(&changed(">16", ">0"), (3, 62), channel, "invalid depth \"0\"");
    check(&changed(">7<", ">256<"), (3, 83), channel, "invalid read-from \"256\": expected 0 to 255");
    check(&changed(">7<", ">-1<"), (3, 83), channel, "invalid read-from");
    check(&changed(">7<", "><"), (3, 83), channel, "expected a text, found the end of a tag");
    check(&changed("<read-from>7</read-from>", ""), (3, 1), channel, "missing read-from or write-to");
    check(&changed("<type>float</type>", ""), (3, 1), channel, "missing type");
    check(&changed("<depth>16", "<depth>16</depth><depth>16"), (3, 72), channel, "second tag \"depth\"");
    check(&changed("</channel>", "<write-to>8</write-to></channel>"), (3, 106), channel, "both");
    check(&changed("<depth>", "<node>3</node><depth>"), (3, 55), channel, "found tag \"node\"");
    check(
        &changed("<depth>", "<depth unit=\"words\">"),
        (3, 55),
        channel,
        "unknown attribute \"unit\" of tag \"depth\"",
    );
    check(&changed("\"in\"", "\"in\" id=\"7\""), (3, 1), None, "unknown attribute \"id\"");
    check(&changed("\"in\"", "\"in\" name=\"other\""), (3, 1), None, "invalid XML");
    check(&changed(" name=\"in\"", ""), (3, 1), None, "missing attribute \"name\"");
    for name in ["", "7in", "in-out", "&lt;", "ｉｎ", &"i".repeat(64)] {
        check(&changed("\"in\"", &format!("\"{name}\"")), (3, 1), None, "invalid name");
    }
    parse(changed("\"in\"", &format!("\"{}\"", "i".repeat(63))).as_bytes()).unwrap();
}

#[test]
fn every_channel_has_one_writer_and_one_reader() {
    let [out, r#in] = pair();
    let with = |more: String| document(&[out.clone(), r#in.clone(), more]);
    check(
        &with(end("in2", "float", 32, "read-from", "7")),
        (4, 1),
        Some("in2"),
        "second \"read-from\" 7; the first is channel in",
    );
    check(
        &with(end("out2", "float", 32, "write-to", "7")),
        (4, 1),
        Some("out2"),
        "second \"write-to\" 7; the first is channel out",
    );
    check(&with(end("in2", "float", 32, "read-from", "8")), (4, 1), Some("in2"), "no channel has \"write-to\" 8");
    check(&with(end("out2", "float", 32, "write-to", "8")), (4, 1), Some("out2"), "no channel has \"read-from\" 8");
    check(
        &with(end("in", "float", 32, "read-from", "8")),
        (4, 1),
        Some("in"),
        "second channel of this name; the first is on line 3",
    );
    check(&document(&[]), (3, 1), None, "no channels");
}

#[test]
fn other_xml_is_refused() {
    let whole = document(&pair());
    let bomb = format!("<!DOCTYPE a [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;&a;\">]>\n{whole}");
    check(&bomb, (1, 1), None, "no document type and no entities");
    check(&whole.replace(">float<", ">&a;<"), (2, 27), Some("out"), "no references");
    check(&whole.replace(">float<", ">flo&#97;t<"), (2, 30), Some("out"), "no references");
    check(&whole.replace("float", "<![CDATA[float]]>"), (2, 27), Some("out"), "no CDATA");
    check(&format!("<?go?>{whole}"), (1, 1), None, "no processing instructions");
    check(&format!("\n<?xml version='1.0'?>{whole}"), (2, 1), None, "XML declaration");
    check(&format!("<?xml version='1.0' encoding='EUC-JP'?>{whole}"), (1, 1), None, "unknown encoding \"EUC-JP\"");
    check(&format!("{whole}{whole}"), (5, 1), None, "expected the end of the file, found tag \"channels\"");
    check(&whole.replace("<channels>", "<channels xmlns='a'>"), (1, 1), None, "unknown attribute \"xmlns\"");
    check("", (1, 1), None, "found the end of the file");
    check("channels", (1, 1), None, "found text \"channels\"");
    for end in 0..whole.trim_end().len() {
        refused(&whole[..end]);
    }
    let deep = "<channels>".repeat(BYTES_MAX / 10);
    check(&deep, (1, 11), None, "found tag \"channels\"");
    let mut bytes = whole.into_bytes();
    bytes[40] = 0xff;
    let error = parse(&bytes).unwrap_err();
    assert_eq!((error.problem, error.line, error.column), (Problem::Utf8, 2, 30));
    let large = vec![b' '; BYTES_MAX + 1];
    assert_eq!(parse(&large).unwrap_err().problem, Problem::Large);
    assert_ne!(parse(&large[1..]).unwrap_err().problem, Problem::Large);
}

/// A channel as a test draws it: type, names and depths of writer and reader.
type Drawn = (usize, u32, [u32; 2]);

/// Writes the ends in an order that `keys` chooses.
fn written(channels: &BTreeMap<u8, Drawn>, keys: u64) -> String {
    let mut ends = Vec::new();
    for (id, (scalar, elements, depths)) in channels {
        let scalar = Scalar::ALL[*scalar];
        let number = if *elements == 1 { String::new() } else { elements.to_string() };
        for (direction, depth) in ["write-to", "read-from"].into_iter().zip(depths) {
            let mut text = format!("<channel name='{}{id}'>", &direction[..4]);
            let _ = write!(text, "<depth>{depth}</depth><{direction}>{id}</{direction}>");
            let _ = write!(text, "<width>{}</width>", scalar.bits() * elements);
            let _ = write!(text, "<type>{}{number}</type></channel>\n\t", scalar.name());
            ends.push(text);
        }
    }
    let place = |text: &String| text.bytes().fold(keys, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    ends.sort_by_key(|text| place(text).wrapping_mul(keys | 1));
    document(&ends)
}

fn drawn() -> impl Strategy<Value = BTreeMap<u8, Drawn>> {
    let elements = prop::sample::select(vec![1_u32, 2, 4, 8, 16]);
    let channel = (0..Scalar::ALL.len(), elements, [1..=u32::MAX, 1..=u32::MAX]);
    let fits = |(scalar, elements, _): &Drawn| Scalar::ALL[*scalar].bits() * elements <= BITS_MAX;
    prop::collection::btree_map(any::<u8>(), channel.prop_filter("a word that fits", fits), 1..20)
}

proptest! {
    #[test]
    fn definitions_are_read_as_they_were_written(channels in drawn(), keys in any::<u64>()) {
        let read = parse(written(&channels, keys).as_bytes()).unwrap();
        prop_assert_eq!(read.channels().len(), channels.len());
        for (channel, (id, (scalar, elements, depths))) in read.channels().iter().zip(&channels) {
            prop_assert_eq!(channel.id, *id);
            prop_assert_eq!((channel.word.scalar(), channel.word.elements()), (Scalar::ALL[*scalar], *elements));
            prop_assert_eq!([channel.writer.depth, channel.reader.depth], *depths);
            prop_assert_eq!(&channel.writer.name, &format!("writ{id}"));
            prop_assert_eq!(&channel.reader.name, &format!("read{id}"));
        }
        prop_assert_eq!(parse(read.to_string().as_bytes()), Ok(read));
    }

    /// Changed bytes: a definition that prints and reads the same, or an error at a place in the text.
    #[test]
    fn changed_bytes_do_no_harm(
        channels in drawn(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = written(&channels, 0).into_bytes();
        for (index, byte) in changes {
            let place = index.index(bytes.len());
            bytes[place] = byte;
        }
        match parse(&bytes) {
            Ok(read) => prop_assert_eq!(parse(read.to_string().as_bytes()), Ok(read)),
            Err(error) => {
                let text = String::from_utf8_lossy(&bytes);
                let line = text.split('\n').nth(error.line as usize - 1);
                prop_assert!(line.is_some_and(|line| error.column as usize <= line.chars().count() + 1), "{error:?}");
            }
        }
    }
}

//! Traces of packets: text, a line for each packet.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use cmdseq::routing::Torus3;
use fpga_select::novog::wormhole::Message;

use crate::cli::shape;
use crate::exit::{Failure, Result};
use crate::input_file;

/// Most packets of a trace or a pattern: 240 MB, which all runs share.
pub(super) const PACKETS_MAX: usize = 10_000_000;
/// Most bytes of a line.
const LINE_MAX: usize = 200;
/// Last cycle in which a packet can be sent.
const CYCLE_MAX: u64 = 1_000_000_000_000;

/// Reads a trace: `torus XxYxZ`, then a line `CYCLE FROM TO FLITS` for each packet. Blank lines and what follows # are comments.
pub(super) fn read(path: &Path) -> Result<(Torus3, Vec<Message>)> {
    let (file, _) = input_file::open(path)?;
    let (mut torus, mut messages) = (None, Vec::new());
    let (mut reader, mut line) = (BufReader::new(file), Vec::new());
    for number in 1_u64.. {
        line.clear();
        // A line of any length takes no more memory than one that is too long.
        let mut rest = reader.by_ref().take(LINE_MAX as u64 + 2);
        if rest.read_until(b'\n', &mut line).map_err(|error| Failure::file(path, &error))? == 0 {
            break;
        }
        let refuse = |why: &str| Failure::refused(format!("{}:{number}: {why}", path.display()));
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > LINE_MAX {
            return Err(refuse(&format!("a line has at most {LINE_MAX} bytes")));
        }
        let line = std::str::from_utf8(line).map_err(|_| refuse("not UTF-8"))?;
        let words: Vec<&str> = line.split('#').next().unwrap_or("").split_whitespace().collect();
        match (torus, words.as_slice()) {
            (_, []) => {}
            (None, ["torus", sides]) => {
                let sides = shape(sides).map_err(|why| refuse(&why))?;
                torus = Some(Torus3::new(sides).map_err(|error| refuse(&error.to_string()))?);
            }
            (None, _) => return Err(refuse("expected the line torus XxYxZ")),
            (Some(torus), _) => {
                let message = packet(&words).ok_or_else(|| {
                    refuse("expected four numbers, CYCLE FROM TO FLITS (cycles up to 10^12, flits up to 65535)")
                })?;
                message.check(torus).map_err(|error| refuse(&error.to_string()))?;
                messages.push(message);
            }
        }
        if messages.len() > PACKETS_MAX {
            return Err(refuse(&format!("a trace has at most {PACKETS_MAX} packets")));
        }
    }
    let refuse = |why: &str| Failure::refused(format!("{}: {why}", path.display()));
    let torus = torus.ok_or_else(|| refuse("expected the line torus XxYxZ"))?;
    if messages.is_empty() {
        return Err(refuse("a trace has at least one packet"));
    }
    Ok((torus, messages))
}

fn packet(words: &[&str]) -> Option<Message> {
    let [cycle, from, to, flits] = words else { return None };
    let cycle = cycle.parse().ok().filter(|cycle| *cycle <= CYCLE_MAX)?;
    Some(Message { cycle, from: from.parse().ok()?, to: to.parse().ok()?, flits: flits.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> std::result::Result<(Torus3, Vec<Message>), String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        read(file.path()).map_err(|failure| failure.message().replace(file.path().to_str().unwrap(), "trace"))
    }

    #[test]
    fn a_trace_has_a_torus_and_packets() {
        let (torus, messages) = parse("# halo\n\ntorus 4x2x1 # small\n0 0 1 8\n 17\t7 0 1 # last\n").unwrap();
        assert_eq!(torus.sides(), [4, 2, 1]);
        let message = |cycle, from, to, flits| Message { cycle, from, to, flits };
        assert_eq!(messages, [message(0, 0, 1, 8), message(17, 7, 0, 1)]);
    }

    #[test]
    fn what_is_wrong_has_its_line() {
        let numbers = "expected four numbers, CYCLE FROM TO FLITS (cycles up to 10^12, flits up to 65535)";
        for (text, message) in [
            ("", "trace: expected the line torus XxYxZ"),
            ("0 0 1 8\n", "trace:1: expected the line torus XxYxZ"),
            ("torus 4x4\n", "trace:1: expected three sides, such as 4x4x4"),
            ("torus 4x2x1\n", "trace: a trace has at least one packet"),
            ("torus 4x2x1\n0 0 1\n", &format!("trace:2: {numbers}")),
            ("torus 4x2x1\n0 0 1 70000\n", &format!("trace:2: {numbers}")),
            ("torus 4x2x1\n2000000000000 0 1 7\n", &format!("trace:2: {numbers}")),
            ("torus 4x2x1\n0 0 8 1\n", "trace:2: no node 8 (available: 0 to 7)"),
            ("torus 4x2x1\n0 3 3 1\n", "trace:2: node 3 sends a packet to itself; packets go to other nodes"),
            ("torus 4x2x1\n0 0 1 0\n", "trace:2: a packet has at least 1 flit"),
        ] {
            assert_eq!(parse(text).unwrap_err(), message, "{text:?}");
        }
        let (longest, longer) = ("#".repeat(LINE_MAX), "#".repeat(LINE_MAX + 1));
        for end in ["\n", "\r\n"] {
            let (_, messages) = parse(&format!("torus 2x1x1{end}{longest}{end}0 0 1 1{end}")).unwrap();
            assert_eq!(messages.len(), 1, "{end:?}");
        }
        for end in ["", "\n", "\r\n", &longest] {
            let message = "trace:2: a line has at most 200 bytes";
            assert_eq!(parse(&format!("torus 2x1x1\n{longer}{end}")).unwrap_err(), message, "{end:?}");
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"torus 2x1x1\n0 0 1 \xff\n").unwrap();
        let failure = read(file.path()).unwrap_err();
        assert!(failure.exit() == crate::exit::Exit::Refused && failure.message().ends_with(":2: not UTF-8"));
        assert!(parse("torus 17x1x1\n").unwrap_err().starts_with("trace:1: invalid torus: 17 x 1 x 1"));
    }
}

//! Device code: OpenCL for Intel's FPGA SDK.

use std::borrow::Cow;

use crate::ends::Direction;
use crate::generate::ends::{Generated, readers, writers};
use crate::generate::template::fill;
use crate::word::Scalar;

/// Returns the kernels and channels of these ends.
pub(super) fn device(application: &str, guard: &str, ends: &[Generated<'_>]) -> String {
    let values = [("APP", application.into()), ("GUARD", guard.into()), ("EXTENSIONS", extensions(ends).into())];
    let mut text = fill(include_str!("templates/head.cl"), &values);
    for end in ends {
        text += &of_end(include_str!("templates/ends.cl"), end);
    }
    let (writers, readers) = (writers(ends), readers(ends));
    for end in &writers {
        text += &of_end(include_str!("templates/send.cl"), end);
    }
    if !writers.is_empty() {
        let read = |(index, end): (usize, &Generated<'_>)| {
            let values = [("INDEX", index.to_string().into()), ("NAME", end.end.name.as_str().into())];
            fill(include_str!("templates/read.cl"), &values)
        };
        let reads: String = writers.iter().enumerate().map(read).collect();
        let values = [("COUNT", writers.len().to_string().into()), ("READS", reads.trim_end().into())];
        text += &fill(include_str!("templates/multiplexer.cl"), &values);
    }
    for end in &readers {
        text += &of_end(include_str!("templates/receive.cl"), end);
    }
    if !readers.is_empty() {
        let cases: String = readers.iter().map(|end| of_end(include_str!("templates/case.cl"), end)).collect();
        text += &fill(include_str!("templates/demultiplexer.cl"), &[("CASES", cases.into())]);
    }
    text + include_str!("templates/tail.cl")
}

/// Returns the pragmas that the types of the words need.
fn extensions(ends: &[Generated<'_>]) -> String {
    let has = |scalar| ends.iter().any(|end| end.word.scalar() == scalar);
    let needed = [(Scalar::Half, "cl_khr_fp16"), (Scalar::Double, "cl_khr_fp64")];
    let pragma = |name| format!("#pragma OPENCL EXTENSION {name} : enable\n");
    needed.into_iter().filter(|(scalar, _)| has(*scalar)).map(|(_, name)| pragma(name)).collect()
}

/// Fills a template with the values of an end.
fn of_end(template: &str, end: &Generated<'_>) -> String {
    let (unit, field) = match end.unit_bytes() {
        1 => ("uchar", "bytes"),
        2 => ("ushort", "shorts"),
        _ => ("uint", "words"),
    };
    let verb = if end.direction == Direction::Write { "writes" } else { "reads" };
    let number = |number: u32| Cow::from(number.to_string());
    let values = [
        ("NAME", end.end.name.as_str().into()),
        ("VERB", verb.into()),
        ("ID", number(end.id.into())),
        ("TYPE", end.word.to_string().into()),
        ("DEPTH", number(end.end.depth)),
        ("UNIT", unit.into()),
        ("UNIT_BYTES", number(end.unit_bytes())),
        ("UNITS", number(end.units())),
        ("PAYLOAD", number(end.payload_units())),
        ("HEADER", number(4 / end.unit_bytes())),
        ("FIELD", field.into()),
    ];
    fill(template, &values)
}

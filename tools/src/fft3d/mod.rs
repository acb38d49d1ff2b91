//! `fpgactl fft3d`: a 3-D FFT on cards of Novo-G#.

mod array;
mod reference;

use std::time::Duration;

use cmdseq::routing::FftMapping;
use fpga_driver::routed::{Network, Span, Transform, Transformed};
use fpga_select::novog::Complex32;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cards::Cards;
use crate::cli::{self, Cli};
use crate::exit::{Exit, Failure, Result};
use crate::fft3d::reference::{Comparison, Wrong};
use crate::route::load;
use crate::{input_file, output};

/// The axes, in the order of the phases.
const AXES: [&str; 3] = ["x", "y", "z"];

/// What `fft3d` prints.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed {
    schema: &'static str,
    selector: String,
    kind: &'static str,
    mock: bool,
    /// Points of a side.
    points: u32,
    torus: [u32; 3],
    cores: u32,
    /// From the first point taken to the last result.
    time_us: f64,
    phases: Vec<Phase>,
    turns: Vec<Turn>,
    /// Packets times links.
    hops: u64,
    /// Most packets that waited in a buffer of a link.
    buffer_packets: u32,
    /// Distance from the transform in double precision, in the 2-norm, relative to that.
    error: f64,
    /// Largest error that single precision explains.
    error_bound: f64,
    verified: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<String>,
}

/// All lines along an axis.
#[derive(JsonSchema, Serialize)]
struct Phase {
    axis: &'static str,
    begin_us: f64,
    end_us: f64,
}

/// A corner turn.
#[derive(JsonSchema, Serialize)]
struct Turn {
    name: &'static str,
    begin_us: f64,
    end_us: f64,
    /// Packets that all cards got, and were to get.
    seen: u64,
    expected: u64,
}

pub(crate) fn run(cli: &Cli, arguments: &cli::Fft3d) -> Result<()> {
    let cli::Fft3d { n, cores, seed, timeout, .. } = *arguments;
    input_file::check_outputs(arguments.input.as_slice(), arguments.output.as_slice())?;
    let data = match &arguments.input {
        Some(path) => array::read(path, n)?,
        None if FftMapping::SIDES.contains(&n) => array::random(n, seed),
        // The cards refuse this length.
        None => Vec::new(),
    };
    let timeout = Duration::from_secs_f64(timeout);
    let mut cards = load::open_within(cli, timeout)?.published(cli);
    let mut network = Network::of(&cards.cluster).map_err(load::failure)?;
    let transform = Transform { side: n, cores, timeout };
    let outcome = network.transform(&mut cards.cluster, &transform, &to_bytes(&data)).map_err(load::failure)?;
    let output = from_bytes(&outcome.output);
    let Comparison { error, bound, wrong } = reference::compare(n, &data, &output);
    if let Some(wrong) = wrong {
        return Err(Failure::new(Exit::Verification, different(n, &wrong, (error, bound))));
    }
    if let Some(path) = &arguments.output {
        array::write(path, n, &output)?;
    }
    let named = |path: &std::path::PathBuf| path.display().to_string();
    let printed = Printed {
        input: arguments.input.as_ref().map(named),
        output: arguments.output.as_ref().map(named),
        torus: network.torus().sides(),
        ..printed(&outcome, &cards, (n, cores), (error, bound))
    };
    output::print(cli.json, &printed, || text(&printed))
}

/// Says where the result is wrong first, and by how much all of it.
fn different(n: u32, wrong: &Wrong, (error, bound): (f64, f64)) -> String {
    let Wrong { index, found, right } = wrong;
    let point = format!(
        "the point {} of the result has the parts {:.6e} and {:.6e} (expected {:.6e} and {:.6e}",
        array::place(*index, n),
        found.re,
        found.im,
        right.re,
        right.im
    );
    if error.is_finite() {
        format!("{point}); the result is {error:.1e} from the transform in double precision (at most {bound:.1e})")
    } else {
        format!("{point}; the largest number of single precision is {:.6e})", f32::MAX)
    }
}

fn to_bytes(points: &[Complex32]) -> Vec<u8> {
    points.iter().flat_map(|point| [point.re, point.im]).flat_map(f32::to_le_bytes).collect()
}

fn from_bytes(bytes: &[u8]) -> Vec<Complex32> {
    let number = |bytes: &[u8]| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    bytes.chunks_exact(8).map(|point| Complex32 { re: number(point), im: number(&point[4..]) }).collect()
}

fn printed(
    outcome: &Transformed,
    cards: &Cards,
    (points, cores): (u32, u32),
    (error, error_bound): (f64, f64),
) -> Printed {
    let sum = |packets: &[u32]| packets.iter().map(|one| u64::from(*one)).sum();
    let phase =
        |(axis, Span { begin_ps, end_ps }): (_, &Span)| Phase { axis, begin_us: us(*begin_ps), end_us: us(*end_ps) };
    Printed {
        schema: "fpgactl.fft3d/1",
        selector: cards.selector.clone(),
        kind: cards.kind.name(),
        mock: cards.are_mock(),
        points,
        torus: [0; 3],
        cores,
        time_us: us(outcome.time_ps),
        phases: AXES.into_iter().zip(&outcome.phases).map(phase).collect(),
        turns: outcome
            .turns
            .iter()
            .map(|turn| Turn {
                name: turn.name,
                begin_us: us(turn.span.begin_ps),
                end_us: us(turn.span.end_ps),
                seen: sum(&turn.seen),
                expected: sum(&turn.expected),
            })
            .collect(),
        hops: outcome.hops,
        buffer_packets: outcome.depth_max,
        error,
        error_bound,
        verified: true,
        input: None,
        output: None,
    }
}

/// Returns microseconds, to the nanosecond.
fn us(ps: u64) -> f64 {
    (ps as f64 / 1e3).round() / 1e3
}

fn text(printed: &Printed) -> String {
    let Printed { points: n, torus: [x, y, z], cores, time_us, .. } = printed;
    let mut text = format!(
        "FFT of {n} x {n} x {n} points on {x} x {y} x {z} cards with {cores} cores each: {time_us:.3} us ({})\n",
        if printed.mock { "mock" } else { printed.kind }
    );
    let mut rows = Vec::new();
    let (phases, turns) = (&printed.phases, &printed.turns);
    for (index, phase) in phases.iter().enumerate() {
        let times = |begin: f64, end: f64| [format!("{begin:.3} us"), format!("{end:.3} us")];
        let [begin, end] = times(phase.begin_us, phase.end_us);
        rows.push([format!("lines along {}", phase.axis), begin, end, String::new()]);
        if let Some(turn) = turns.get(index) {
            let [begin, end] = times(turn.begin_us, turn.end_us);
            let packets = format!("{} of {}", turn.seen, turn.expected);
            rows.push([format!("corner turn {}", turn.name), begin, end, packets]);
        }
    }
    text += &output::headed(["PHASE", "BEGIN", "END", "PACKETS"], rows);
    text += &format!(
        "\nverified: {:.1e} from the transform in double precision, at most {:.1e}\n",
        printed.error, printed.error_bound
    );
    if let Some(path) = &printed.output {
        text += &format!("wrote {path}\n");
    }
    text
}

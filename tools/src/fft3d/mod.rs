//! `fpgactl fft3d`: a 3-D FFT on mock cards of Novo-G#.

mod array;
mod reference;

use cmdseq::routing::{FftAxis, FftMapping, Torus3};
use fpga_select::novog::{self, FftCores, FftError, FftOutcome, Profile};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::{self, Cli};
use crate::exit::{Exit, Failure, Result};
use crate::{input_file, output};

/// What `fft3d` prints.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed {
    schema: &'static str,
    kind: &'static str,
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
    buffer_packets: usize,
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
    let cli::Fft3d { n, shape, cores, seed, .. } = *arguments;
    let refuse = |error: &dyn std::error::Error| Failure::refused(error.to_string());
    input_file::check_outputs(arguments.input.as_slice(), arguments.output.as_slice())?;
    let torus = Torus3::new(shape).map_err(|error| refuse(&error))?;
    let mapping = FftMapping::new(n, torus).map_err(|error| refuse(&error))?;
    let data = match &arguments.input {
        Some(path) => array::read(path, n)?,
        None => array::random(n, seed),
    };
    let profile = Profile { seed, ..Profile::fft() };
    let cores = FftCores { count: cores, ..FftCores::published() };
    let fft = novog::Fft3d::new(profile, cores, mapping).map_err(|error| refuse(&error))?;
    let outcome = fft.run(&data).map_err(|error| match &error {
        FftError::Stalled(_) => Failure::new(Exit::Timeout, error.to_string()),
        _ => refuse(&error),
    })?;
    let error = reference::error(n, &data, &outcome.output);
    let error_bound = reference::bound(n);
    if error > error_bound {
        let message =
            format!("the result is {error:.1e} from the transform in double precision (at most {error_bound:.1e})");
        return Err(Failure::new(Exit::Verification, message));
    }
    if let Some(path) = &arguments.output {
        array::write(path, n, &outcome.output)?;
    }
    let named = |path: &std::path::PathBuf| path.display().to_string();
    let printed = Printed {
        input: arguments.input.as_ref().map(named),
        output: arguments.output.as_ref().map(named),
        ..printed(&outcome, (n, shape, cores.count), (error, error_bound))
    };
    if cli.json { output::json(&printed) } else { output::write(text(&printed).as_bytes()) }
}

fn printed(
    outcome: &FftOutcome,
    (points, torus, cores): (u32, [u32; 3], u32),
    (error, error_bound): (f64, f64),
) -> Printed {
    let sum = |packets: &[u32]| packets.iter().map(|one| u64::from(*one)).sum();
    Printed {
        schema: "fpgactl.fft3d/1",
        kind: "mock",
        points,
        torus,
        cores,
        time_us: us(outcome.time_ps),
        phases: outcome
            .phases
            .iter()
            .map(|phase| Phase { axis: axis(phase.axis), begin_us: us(phase.begin_ps), end_us: us(phase.end_ps) })
            .collect(),
        turns: outcome
            .turns
            .iter()
            .map(|turn| Turn {
                name: turn.name(),
                begin_us: us(turn.begin_ps),
                end_us: us(turn.end_ps),
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

const fn axis(axis: FftAxis) -> &'static str {
    match axis {
        FftAxis::X => "x",
        FftAxis::Y => "y",
        FftAxis::Z => "z",
    }
}

/// Returns microseconds, to the nanosecond.
fn us(ps: u64) -> f64 {
    (ps as f64 / 1e3).round() / 1e3
}

fn text(printed: &Printed) -> String {
    let Printed { points: n, torus: [x, y, z], cores, time_us, .. } = printed;
    let mut text = format!(
        "FFT of {n} x {n} x {n} points on {x} x {y} x {z} cards with {cores} cores each: {time_us:.3} us (mock)\n"
    );
    let mut rows = vec![["PHASE", "BEGIN", "END", "PACKETS"].map(String::from).to_vec()];
    let (phases, turns) = (&printed.phases, &printed.turns);
    for (index, phase) in phases.iter().enumerate() {
        let times = |begin: f64, end: f64| [format!("{begin:.3} us"), format!("{end:.3} us")];
        let [begin, end] = times(phase.begin_us, phase.end_us);
        rows.push(vec![format!("lines along {}", phase.axis), begin, end, String::new()]);
        if let Some(turn) = turns.get(index) {
            let [begin, end] = times(turn.begin_us, turn.end_us);
            rows.push(vec![
                format!("corner turn {}", turn.name),
                begin,
                end,
                format!("{} of {}", turn.seen, turn.expected),
            ]);
        }
    }
    text += &output::table(&rows);
    text += &format!(
        "\nverified: {:.1e} from the transform in double precision, at most {:.1e}\n",
        printed.error, printed.error_bound
    );
    if let Some(path) = &printed.output {
        text += &format!("wrote {path}\n");
    }
    text
}

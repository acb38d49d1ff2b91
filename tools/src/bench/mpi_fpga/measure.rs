//! Measures as the paper does: all ranks begin at once, and the time of a collective is the average over the ranks.

use std::collections::HashMap;

use cmdseq::reduction::{Combine, Element, Reduction};
use fpga_select::mpi_fpga::{
    Call, Collective, Form, Network, NetworkError, Outcome, PAYLOAD_BYTES, Profile, Shape, predicted_ps,
};

use crate::exit::{Exit, Failure, Result};

/// Bytes of a large message in table 4.
pub(super) const LARGE: u64 = 1 << 20;

/// Networks as the paper has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// A torus.
    Direct,
    /// Leaf and spine switches of this radix.
    Indirect(u32),
}

impl Kind {
    pub(super) fn shape(self, nodes: u32) -> Shape {
        match self {
            Kind::Direct => Shape::Torus { sides: sides(nodes) },
            Kind::Indirect(radix) => Shape::Fat { processors: nodes, radix },
        }
    }
}

/// Returns the sides of the torus of a power of two: as equal as can be, the longest first.
pub(super) fn sides(nodes: u32) -> [u32; 3] {
    let bits = nodes.max(1).ilog2();
    [bits.div_ceil(3), (bits + 1) / 3, bits / 3].map(|bits| 1 << bits)
}

/// A case, with the size that the OSU benchmarks print: of a reduce-scatter the whole vector, else a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Case {
    pub(super) kind: Kind,
    pub(super) nodes: u32,
    pub(super) collective: Collective,
    pub(super) bytes: u64,
    pub(super) is_long: bool,
}

/// Times of a case in microseconds.
#[derive(Debug, Clone, Copy)]
struct Times {
    average: f64,
    last: f64,
}

/// Runs each case once.
#[derive(Default)]
pub(super) struct Lab {
    times: HashMap<Case, Times>,
    /// The reduction of [`Lab::reduction_ns`], by phits of the input FIFO.
    reductions: HashMap<usize, f64>,
}

impl Lab {
    /// Returns the average time of a rank in microseconds.
    pub(super) fn average_us(&mut self, case: Case) -> Result<f64> {
        Ok(self.times(case)?.average)
    }

    /// Returns the time of the last rank in microseconds.
    pub(super) fn last_us(&mut self, case: Case) -> Result<f64> {
        Ok(self.times(case)?.last)
    }

    fn times(&mut self, case: Case) -> Result<Times> {
        if let Some(times) = self.times.get(&case) {
            return Ok(*times);
        }
        let outcome = run(&Profile::published(), case)?;
        let times = Times { average: outcome.average_ps() / 1e6, last: outcome.last_ps() as f64 / 1e6 };
        self.times.insert(case, times);
        Ok(times)
    }

    /// Returns the time of 1 MiB in microseconds: the slope between two smaller sizes goes on. They fill all packets, and give
    /// each rank as many chunks of a vector.
    ///
    /// It is the time of the last rank. 1 MiB is much more than a FIFO of 48 KB, so a rank that only sends is held back until the
    /// network has taken its data; at the sizes that are run, its data would lie in the FIFO.
    pub(super) fn large_us(&mut self, case: Case) -> Result<f64> {
        let chunk = PAYLOAD_BYTES as u64;
        let small = match case.collective {
            Collective::Scatter | Collective::Gather | Collective::Allgather => 4 * chunk,
            Collective::Reduce | Collective::Allreduce | Collective::Broadcast | Collective::ReduceScatter => {
                u64::from(case.nodes) * chunk
            }
        };
        let mut at = |bytes| -> Result<f64> { Ok(self.times(Case { bytes, is_long: true, ..case })?.last) };
        let (first, second) = (at(small)?, at(2 * small)?);
        Ok(second + (second - first) / small as f64 * (LARGE - 2 * small) as f64)
    }

    /// Returns the nanoseconds of a reduction of 48 KB on 32 nodes, whose root waits for the deepest tree, with an input FIFO of
    /// so many phits.
    fn reduction_ns(&mut self, input_phits: usize) -> Result<f64> {
        if let Some(time) = self.reductions.get(&input_phits) {
            return Ok(*time);
        }
        let profile = Profile { input_phits, ..Profile::published() };
        let case = Case { kind: Kind::Direct, nodes: 32, collective: Collective::Reduce, bytes: 49_152, is_long: true };
        let time = run(&profile, case)?.last_ps() as f64 / 1e3;
        self.reductions.insert(input_phits, time);
        Ok(time)
    }

    /// Returns the nanoseconds that a FIFO of so many phits costs the reduction, against one that all of its data fits into.
    pub(super) fn held_back_ns(&mut self, input_phits: usize) -> Result<f64> {
        Ok(self.reduction_ns(input_phits)? - self.reduction_ns(4 * Profile::published().input_phits)?)
    }

    /// Returns the fewest phits of an input FIFO that cost the reduction nothing.
    pub(super) fn least_fifo(&mut self) -> Result<usize> {
        let (mut too_small, mut enough) = (8, Profile::published().input_phits);
        while enough - too_small > 1 {
            let middle = usize::midpoint(too_small, enough);
            if self.held_back_ns(middle)? > 0.0 { too_small = middle } else { enough = middle }
        }
        Ok(enough)
    }
}

fn call(case: &Case, network: &mut Network) -> Result<Call> {
    let members: Vec<u32> = (0..case.nodes).collect();
    let context = network.create(&members).map_err(failed)?;
    let Case { collective, nodes, bytes, is_long, .. } = *case;
    let forms = collective.forms();
    let form = match collective {
        // The root's switch reduces and scatters directly (6.2.1).
        Collective::ReduceScatter => Form::Tree,
        Collective::Reduce if is_long => Form::Tree,
        _ if is_long => forms.get(1).copied().unwrap_or(Form::Tree),
        _ => forms[0],
    };
    let combine = collective.combines().then_some(Combine::new(Reduction::Sum, Element::F64));
    let bytes = if collective == Collective::ReduceScatter { bytes / u64::from(nodes) } else { bytes };
    let bytes = if combine.is_some() { bytes.next_multiple_of(8).max(8) } else { bytes } as u32;
    Ok(Call { context, collective, form, combine, root: 0, bytes })
}

/// What a rank gives: numbers whose sums are exact.
fn inputs(case: &Case, call: &Call) -> Vec<Vec<u8>> {
    let one = |rank: u32| {
        let blocks = match call.collective {
            Collective::Broadcast if rank > 0 => 0,
            Collective::Scatter if rank > 0 => 0,
            Collective::Scatter | Collective::ReduceScatter => case.nodes,
            _ => 1,
        };
        let bytes = (blocks * call.bytes) as usize;
        match call.combine {
            Some(_) => (0..bytes / 8).flat_map(|place| f64::from(rank + place as u32).to_le_bytes()).collect(),
            None => (0..bytes).map(|place| (place as u32 * 31 + rank * 7) as u8).collect(),
        }
    };
    (0..case.nodes).map(one).collect()
}

/// Whether the ranks got what the definition of the collective says.
fn is_right(case: &Case, call: &Call, inputs: &[Vec<u8>], outputs: &[Vec<u8>]) -> bool {
    let sum = || -> Vec<u8> {
        let (ranks, elements) = (u64::from(case.nodes), inputs[0].len() as u64 / 8);
        let of = |place: u64| (ranks * (ranks - 1) / 2 + ranks * place) as f64;
        (0..elements).flat_map(|place| of(place).to_le_bytes()).collect()
    };
    let block = call.bytes as usize;
    match call.collective {
        Collective::Reduce => outputs[0] == sum(),
        Collective::Allreduce => outputs.iter().all(|output| *output == sum()),
        Collective::Broadcast => outputs.iter().all(|output| *output == inputs[0]),
        Collective::Scatter => outputs.iter().eq(inputs[0].chunks(block)),
        Collective::Gather => outputs[0] == inputs.concat(),
        Collective::Allgather => outputs.iter().all(|output| *output == inputs.concat()),
        Collective::ReduceScatter => outputs.iter().eq(sum().chunks(block)),
    }
}

fn run(profile: &Profile, case: Case) -> Result<Outcome> {
    let mut network = Network::new(profile, case.kind.shape(case.nodes)).map_err(failed)?;
    let call = call(&case, &mut network)?;
    let inputs = inputs(&case, &call);
    let outcome = network.run(&call, &inputs).map_err(failed)?;
    if !is_right(&case, &call, &inputs, &outcome.outputs) {
        return Err(Failure::new(Exit::Verification, format!("{case:?}: wrong data")));
    }
    Ok(outcome)
}

/// Returns by how many percent the LogGP model is off for the last rank; the worst of two short sizes.
pub(super) fn loggp_percent(kind: Kind, nodes: u32, collective: Collective) -> Result<f64> {
    let mut worst = 0_f64;
    for bytes in [8, 64] {
        let bytes = if collective == Collective::ReduceScatter { bytes * u64::from(nodes) } else { bytes };
        let case = Case { kind, nodes, collective, bytes, is_long: false };
        let profile = Profile::published();
        let mut network = Network::new(&profile, kind.shape(nodes)).map_err(failed)?;
        let call = call(&case, &mut network)?;
        let simulated = run(&profile, case)?.last_ps() as f64;
        let predicted = predicted_ps(&profile, kind.shape(nodes), &call).map_err(failed)? as f64;
        worst = worst.max(100.0 * (predicted / simulated - 1.0).abs());
    }
    Ok(worst)
}

/// Equation 2 without margin: (d + q) L / T_clk phits, of the tree of 32 nodes.
pub(super) fn equation_2() -> usize {
    let profile = Profile::published();
    let (depth, slack) = (32_u64.ilog2() as u64, 2);
    ((depth + slack) * profile.link_ps.div_ceil(profile.cycle_ps())) as usize
}

/// Returns the bits of a card's communicator table.
pub(super) fn table_bits() -> Result<f64> {
    let network = Network::new(&Profile::published(), Kind::Direct.shape(32)).map_err(failed)?;
    Ok(network.table_bytes(0).map_or(0, <[u8]>::len) as f64 * 8.0)
}

/// Returns the microseconds of a binomial tree, or of recursive doubling, without units: in round `n` 8 B go from processor to
/// processor across bit `n` of the rank. What a processor computes between is not counted.
pub(super) fn rounds_us(kind: Kind, nodes: u32) -> Result<f64> {
    (0..nodes.ilog2()).map(|bit| Ok(message_ns(kind.shape(nodes), 1 << bit, 8)? / 1e3)).sum()
}

/// Returns the nanoseconds of a message from processor 0 to another one.
fn message_ns(shape: Shape, node: u32, bytes: u32) -> Result<f64> {
    let mut network = Network::new(&Profile::published(), shape).map_err(failed)?;
    let context = network.create(&[0, node]).map_err(failed)?;
    let (collective, form) = (Collective::Broadcast, Form::Tree);
    let call = Call { context, collective, form, combine: None, root: 0, bytes };
    let inputs = [vec![7; bytes as usize], Vec::new()];
    Ok(network.run(&call, &inputs).map_err(failed)?.last_ps() as f64 / 1e3)
}

/// Returns the nanoseconds that one hop more takes, without the four cycles of a router.
pub(super) fn link_ns() -> Result<f64> {
    let to = |node| message_ns(Shape::Torus { sides: [8, 1, 1] }, node, 4);
    Ok(to(2)? - to(1)? - 4.0 * Profile::published().cycle_ps() as f64 / 1e3)
}

/// Returns the Gb/s of data of a long broadcast to a neighbour.
pub(super) fn stream_gbps() -> Result<f64> {
    let of = |bytes| message_ns(Shape::Torus { sides: [2, 1, 1] }, 1, bytes);
    let (small, large) = (24_000, 48_000);
    Ok(f64::from(large - small) * 8.0 / (of(large)? - of(small)?))
}

pub(super) fn failed(error: NetworkError) -> Failure {
    Failure::new(Exit::Failed, format!("mock of MPI-FPGA: {error}"))
}

//! The rows of the MPI-FPGA paper, with their published values and tolerances. Only this module contains published numbers.

use fpga_select::mpi_fpga::{Collective, PHIT_BYTES, logic_units};

use super::super::comparison::{self, Accept};
use super::estimate::{self, NODES_MAX, SIMULATED_MAX};
use super::measure::{self, Case, Kind, Lab};
use crate::exit::Result;

/// The measured quantity of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Quantity {
    /// One hop more, without the router.
    Link,
    /// Data of a stream between neighbours.
    Stream,
    /// Bits of a communicator table.
    Table,
    /// Aggregation logic units of a switch: radix, gather reduction units.
    Units(u64, u64),
    /// What a FIFO as equation 2 says costs a reduction.
    Equation2,
    /// The fewest bytes of a FIFO that costs it nothing.
    LeastFifo,
    /// What a FIFO one phit smaller costs it.
    OneLess,
    /// Deviation of the LogGP model from the simulation.
    LogGp(Kind, Collective),
    /// Time without units, processor to processor round by round, by the time of the switches.
    WithoutUnits(Kind, Collective, u32),
    /// Geometric mean of the speed-ups over the CPU cluster at 1 KB and 1 MB.
    SpeedUp(Collective, u32),
    /// Geometric mean over short messages of direct time by indirect time.
    Indirect(Collective, u32, u32),
    /// Allreduce on 128 nodes, time of radix 16 by time of radix 8.
    Radix16,
    /// By how many percent the estimate is off, of all numbers of nodes that are simulated.
    Estimate(Kind, Collective),
    /// The same without units.
    EstimateWithoutUnits(Kind),
    /// The estimate for a million nodes, with units.
    Million(Kind, Collective),
    /// The same without units.
    MillionWithoutUnits(Kind),
}

pub(super) type Row = comparison::Row<Quantity>;

/// Published results that this command does not reproduce, and why.
pub(super) const NOT_REPRODUCED: [&str; 6] = [
    "bars of figure 10 one by one: the text gives their range only, 2.0 to 32.6; table 4 gives two sizes, 1 KB and 1 MB",
    "speed-ups at other sizes than 1 KB and 1 MB: CPU times of figures 8 and 9 are drawn, not printed",
    "absolute times of figures 8, 9, 11: they depend on the time between processor and card, which is not published",
    "figure 13: SHArP is measured elsewhere, and the paper prints no numbers",
    "LUTs, registers, DSPs and memories of table 3: need the bitstream",
    "applications of table 5: they wait for laggards most of the time, and the skew is not published",
];

/// Latency of the CPU cluster in microseconds (table 4): by collective, of 32, 64 and 128 nodes, least and most at 1 KB, then
/// least and most at 1 MB.
const CPU_US: [(Collective, [[f64; 4]; 3]); 7] = [
    (
        Collective::Allgather,
        [[27.1, 48.8, 4645.1, 5466.9], [44.8, 87.0, 11_327.0, 14_164.9], [66.0, 130.2, 23_233.2, 26_439.0]],
    ),
    (Collective::Allreduce, [[21.0, 46.0, 1896.1, 2224.9], [36.9, 74.1, 1940.0, 2614.0], [33.2, 86.1, 1997.9, 2985.0]]),
    (Collective::Broadcast, [[16.0, 18.1, 349.0, 493.0], [17.8, 26.2, 412.0, 546.2], [22.8, 36.0, 402.9, 816.8]]),
    (
        Collective::Gather,
        [[9.8, 26.9, 2712.0, 2739.0], [21.0, 41.0, 5425.9, 5465.0], [44.1, 151.1, 10_847.0, 11_007.0]],
    ),
    (Collective::Reduce, [[11.9, 39.1, 3089.9, 3720.1], [9.7, 57.0, 3695.1, 4524.9], [21.9, 72.0, 3807.0, 4709.9]]),
    (
        Collective::ReduceScatter,
        [[16.9, 38.2, 2033.9, 2577.9], [25.0, 62.0, 4150.1, 4908.9], [31.0, 61.0, 4195.7, 4904.2]],
    ),
    (
        Collective::Scatter,
        [[11.0, 24.8, 2729.1, 2781.8], [21.9, 34.1, 5483.8, 5549.2], [45.8, 95.1, 10_937.0, 11_018.0]],
    ),
];

/// Numbers of nodes.
pub(super) const NODES: [u32; 3] = [32, 64, 128];
/// Radices of indirect networks.
pub(super) const RADICES: [u32; 3] = [8, 16, 28];
/// Short messages.
const SHORT: [u64; 3] = [8, 64, 1024];

/// What a row states that depends on times that the paper does not publish.
const TIMES: &str = "the order of magnitude, with assumed times between processor and card";
const FEWER_HOPS: &str = "an indirect network has fewer hops";

const ONLY_SENDS: &str = "a rank that only sends is done when its data has left, which the average of 1 KB counts; overheads of a \
                          processor are not published, and larger ones would lower it";
const ONE_PORT: &str = "of 1 MB, all blocks leave through one port of 64 Gb/s; the CPU cluster has 100 Gb/s";
const ROUNDS: &str = "doubling between cards takes a round for each bit, of up to 4 links, and leaf and spine combine on 4 links in \
                      all; the paper's mean has sizes up to 4 KB, and times between processor and switch that are not published";

/// Returns all rows, in the order of output.
pub(super) fn all() -> Vec<Row> {
    let mut rows = parts();
    for (name, kind) in [("direct", Kind::Direct), ("indirect", Kind::Indirect(8))] {
        for collective in Collective::ALL.iter().copied() {
            let (id, what) = (collective.name(), "LogGP against simulation, 64 nodes, last rank");
            let row = Row::new(
                format!("loggp/{name}/{id}"),
                what,
                "%",
                None,
                Accept::Below(5.0),
                Quantity::LogGp(kind, collective),
            );
            rows.push(row.predicted("LogGP with the steps and distances of a form gives its time"));
        }
    }
    rows.extend(without_units());
    for (collective, _) in CPU_US {
        for nodes in NODES {
            let id = format!("speed-up/{}/{nodes}", collective.name());
            let what = "over the CPU cluster, geometric mean of 1 KB and 1 MB";
            let accept = Accept::Between(2.0, 32.6);
            let row = Row::new(id, what, "x", None, accept, Quantity::SpeedUp(collective, nodes)).predicted(TIMES);
            rows.push(match (collective, nodes) {
                (Collective::Reduce, _) => row.outside(ONLY_SENDS),
                (Collective::Scatter, 32 | 64) => row.outside(ONE_PORT),
                _ => row,
            });
        }
    }
    for collective in [Collective::Allgather, Collective::Allreduce] {
        for (nodes, radix) in NODES.into_iter().flat_map(|nodes| RADICES.map(|radix| (nodes, radix))) {
            let id = format!("indirect/{}/{nodes}/{radix}", collective.name());
            let quantity = Quantity::Indirect(collective, nodes, radix);
            let what = "over the direct network, geometric mean of 8 B, 64 B and 1 KB";
            let row = Row::new(id, what, "x", None, Accept::Between(1.2, 1.9), quantity).predicted(FEWER_HOPS);
            let is_outside = collective == Collective::Allreduce && (nodes > 32 || radix == 8);
            rows.push(if is_outside { row.outside(ROUNDS) } else { row });
        }
    }
    rows.push(
        Row::new(
            "radix/11f",
            "allreduce on 128 nodes, time of radix 16 by time of radix 8: no better",
            "x",
            None,
            Accept::Between(1.0, 1.2),
            Quantity::Radix16,
        )
        .predicted("as many hops, and longer chains of units"),
    );
    rows.extend(estimates());
    rows
}

const FOURTH_PORTS: &str = "above 48 nodes the estimate has a level of switches more, and the simulated spine has a port for each leaf, \
                            whose units have longer chains";

/// Networks of the estimates.
pub(super) const ESTIMATED: [(&str, Kind); 3] =
    [("direct", Kind::Direct), ("indirect-8", Kind::Indirect(8)), ("indirect-28", Kind::Indirect(28))];
/// Collectives of the estimates: those of the paper's equations.
pub(super) const ESTIMATED_COLLECTIVES: [Collective; 2] = [Collective::Allreduce, Collective::Broadcast];

/// LogGP in closed form, against the simulation of 8 to 512 nodes, and for a million.
fn estimates() -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |id: &str, (name, kind): (&str, Kind), off, million| {
        let what = "estimate against simulation, 8 B, the worst of 8 to 512 nodes";
        let row = Row::new(format!("estimate/{id}/{name}"), what, "%", None, Accept::Below(5.0), off);
        let row = row.predicted("LogGP in closed form gives the time of a message on any number of nodes");
        rows.push(if kind == Kind::Indirect(8) { row.outside(FOURTH_PORTS) } else { row });
        let what = format!("estimate for {NODES_MAX} nodes, 8 B");
        rows.push(Row::new(format!("million/{id}/{name}"), what, "us", None, Accept::Anything, million).computed());
    };
    for network in ESTIMATED {
        let kind = network.1;
        for collective in ESTIMATED_COLLECTIVES {
            let (off, million) = (Quantity::Estimate(kind, collective), Quantity::Million(kind, collective));
            add(collective.name(), network, off, million);
        }
        let (off, million) = (Quantity::EstimateWithoutUnits(kind), Quantity::MillionWithoutUnits(kind));
        add("without-units", network, off, million);
    }
    rows
}

/// Equations 3 and 4: without units a message visits a processor in each of log P rounds, with units in none between.
fn without_units() -> Vec<Row> {
    let kinds = [("direct", Kind::Direct), ("indirect", Kind::Indirect(8))];
    let of = |(name, kind): (&str, Kind), collective: Collective, nodes: u32| {
        let id = format!("without-units/{name}/{}/{nodes}", collective.name());
        let what = "8 B without units, round by round of processors, by the time of the switches; at most log P";
        let accept = Accept::Between(1.0, f64::from(nodes.ilog2()));
        let row = Row::new(id, what, "x", None, accept, Quantity::WithoutUnits(kind, collective, nodes));
        row.predicted("the overheads of processors between are saved")
    };
    let collectives = [Collective::Broadcast, Collective::Allreduce];
    let all = kinds.iter().flat_map(|kind| collectives.map(|collective| (*kind, collective)));
    all.flat_map(|(kind, collective)| NODES.map(|nodes| of(kind, collective, nodes))).collect()
}

/// Link, table, units and FIFO.
fn parts() -> Vec<Row> {
    let exact = |value| Accept::Between(value, value);
    let units = |id: &str, radix, units, published| {
        let what = format!("aggregation units of 64 bits, radix {radix}, {units} at the same time");
        Row::new(format!("units/{id}"), what, "", published, exact(published), Quantity::Units(radix, units))
    };
    let row = |id: &str, what: &str, unit, published: Option<f64>, accept, quantity| {
        Row::new(id, what, unit, published, accept, quantity)
    };
    let per_phit = PHIT_BYTES as f64;
    vec![
        row(
            "link/latency",
            "one hop more, without the router",
            "ns",
            Some(440.0),
            Accept::Percent(2.0),
            Quantity::Link,
        ),
        row(
            "link/stream",
            "data between neighbours: a port of 250 MHz x 256 bit is slower than the link of 95.9 Gb/s",
            "Gb/s",
            None,
            Accept::Below(64.0),
            Quantity::Stream,
        ),
        row(
            "table/bits",
            "communicator table, equation 1 of the paper",
            "bit",
            Some(9472.0),
            exact(9472.0),
            Quantity::Table,
        ),
        units("direct", 6, 6, 144.0),
        units("indirect-8", 8, 8, 256.0),
        units("indirect-16", 16, 8, 512.0),
        units("indirect-28", 28, 4, 448.0),
        row(
            "fifo/equation-2",
            "what a FIFO by equation 2 of the paper (m = 0, d = 5, q = 2: 24640 B) costs a reduction of 48 KB on 32 nodes",
            "ns",
            Some(0.0),
            exact(0.0),
            Quantity::Equation2,
        ),
        row(
            "fifo/least",
            "fewest bytes of a FIFO that cost this reduction nothing: a phit a cycle from credit to data, whatever the tree; built: 48 KB",
            "B",
            None,
            Accept::Between(per_phit, 49_152.0),
            Quantity::LeastFifo,
        ),
        row(
            "fifo/one-less",
            "what one phit less costs: credits make the processor wait, and nothing is overrun",
            "ns",
            None,
            Accept::Between(0.001, 1e9),
            Quantity::OneLess,
        ),
    ]
}

/// Returns the largest deviation of an estimate from the simulation in percent. `of` returns both.
fn worst_percent(mut of: impl FnMut(u32) -> Result<(f64, f64)>) -> Result<f64> {
    let mut worst = 0.0_f64;
    for nodes in estimate::nodes(SIMULATED_MAX) {
        let (estimated, simulated) = of(nodes)?;
        worst = worst.max(100.0 * (estimated / simulated - 1.0).abs());
    }
    Ok(worst)
}

/// Geometric mean.
fn mean(values: &[f64]) -> f64 {
    (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp()
}

impl Quantity {
    pub(super) fn measure(&self, lab: &mut Lab) -> Result<f64> {
        let case = |kind, nodes, collective, bytes| Case { kind, nodes, collective, bytes, is_long: false };
        Ok(match *self {
            Quantity::Link => measure::link_ns()?,
            Quantity::Stream => measure::stream_gbps()?,
            Quantity::Table => measure::table_bits()?,
            Quantity::Units(radix, units) => logic_units(radix, units) as f64,
            Quantity::Equation2 => lab.held_back_ns(measure::equation_2())?,
            Quantity::LeastFifo => (lab.least_fifo()? * PHIT_BYTES) as f64,
            Quantity::OneLess => {
                let least = lab.least_fifo()?;
                lab.held_back_ns(least - 1)?
            }
            Quantity::LogGp(kind, collective) => measure::loggp_percent(kind, 64, collective)?,
            Quantity::WithoutUnits(kind, collective, nodes) => {
                measure::rounds_us(kind, nodes)? / lab.last_us(case(kind, nodes, collective, 8))?
            }
            Quantity::SpeedUp(collective, nodes) => {
                let of = |one: &(Collective, [[f64; 4]; 3])| one.0 == collective;
                let published = CPU_US.iter().find(|one| of(one)).map_or([[f64::NAN; 4]; 3], |one| one.1);
                let [least, most, least_large, most_large] = published[(nodes.ilog2() - 5) as usize];
                let short = lab.average_us(case(Kind::Direct, nodes, collective, 1024))?;
                let long = lab.large_us(case(Kind::Direct, nodes, collective, 0))?;
                mean(&[(least + most) / 2.0 / short, (least_large + most_large) / 2.0 / long])
            }
            Quantity::Indirect(collective, nodes, radix) => {
                let mut ratio = |bytes| -> Result<f64> {
                    let direct = lab.average_us(case(Kind::Direct, nodes, collective, bytes))?;
                    Ok(direct / lab.average_us(case(Kind::Indirect(radix), nodes, collective, bytes))?)
                };
                mean(&SHORT.iter().map(|bytes| ratio(*bytes)).collect::<Result<Vec<f64>>>()?)
            }
            Quantity::Estimate(kind, collective) => worst_percent(|nodes| {
                let simulated = lab.last_us(case(kind, nodes, collective, 8))?;
                Ok((estimate::with_units_us(kind, nodes, collective), simulated))
            })?,
            Quantity::EstimateWithoutUnits(kind) => {
                worst_percent(|nodes| Ok((estimate::without_units_us(kind, nodes), measure::rounds_us(kind, nodes)?)))?
            }
            Quantity::Million(kind, collective) => estimate::with_units_us(kind, NODES_MAX, collective),
            Quantity::MillionWithoutUnits(kind) => estimate::without_units_us(kind, NODES_MAX),
            Quantity::Radix16 => {
                let mut of = |radix| lab.average_us(case(Kind::Indirect(radix), 128, Collective::Allreduce, 64));
                of(16)? / of(8)?
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::comparison::{Claim, assert_ids_are_different};
    use super::*;

    #[test]
    fn ids_are_different_and_no_row_is_fitted() {
        assert_ids_are_different(&all());
        assert!(all().iter().all(|row| row.claim != Claim::Fitted));
    }
}

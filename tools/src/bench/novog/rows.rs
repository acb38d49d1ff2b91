//! Rows of the Novo-G# dissertation, with their published values and tolerances. Only this module contains published numbers.

use cmdseq::routing::CollectiveKind;
use fpga_select::novog::Profile;

use super::super::comparison::{self, Accept};
use super::wormhole::Size;
use crate::tune::Metric;

/// The measured quantity of a row.
#[derive(Debug, Clone, Copy)]
pub(super) enum Quantity {
    /// Mean latency of links.
    Link(fn() -> Profile),
    /// Time of a packet in a router.
    Router,
    /// Change of the batch latency by OCR, against RPM: geometric mean over the patterns, in percent.
    Batch(CollectiveKind),
    /// Best configuration of the wormhole router against the mean of all, in percent.
    Best(Size, Metric),
}

pub(super) type Row = comparison::Row<Quantity>;

/// Published results that this command does not reproduce.
pub(super) const NOT_REPRODUCED: [&str; 8] = [
    "batches on 8 x 8 x 8, which the published means of 15 % and 4 % include: the rows are of 4 x 4 x 4",
    "multicast better in every batch: all-to-all and bit rotation are, nearest neighbours are not. The published tie-breaks, \
     order of injection and three-dimensional RPM are not stated",
    "table 5.7, bits of tables of all-to-all, bit rotation and nearest neighbours, multicast 6968, 1122, 2928, and reduction \
     61.7 K, 10 K, 25.5 K: whether equal entries of several collectives are shared is not stated, and here they are",
    "table 5.8, depth of buffers online 1532, 367, 91, 1, 277, 14 and offline 1132, 288, 57, 1, 157, 9: length of the runs not stated",
    "ALMs of table 5.6, RPM 56177 (21 %) and OCR 40895 (16 %), and of tables 3.2 and 4.2: need the bitstream",
    "tables 5.3 and 5.4 by pattern, winners of figures 5.12 to 5.16, and table 5.5: loads and batches not stated. Tornado, 0 % as published, \
     is not: RLB sends a quarter of its packets the long way",
    "3-D FFT of 3.86, 5.30, 9.32 and 25.72 us, and the jitter's cost: not measured here, see `fpgactl fft3d`",
    "latencies on Catapult, and molecular dynamics: no models of them",
];

/// Returns all rows, in the order of output.
pub(super) fn all() -> Vec<Row> {
    let mut rows = vec![
        Row::new(
            "link/interlaken",
            "latency of a link, Interlaken, mean of 100000 packets",
            "ns",
            176.0,
            Accept::Percent(1.0),
            Quantity::Link(Profile::published),
        )
        .fitted(),
        Row::new(
            "link/seriallite",
            "latency of a link, SerialLite III",
            "ns",
            307.0,
            Accept::Percent(1.0),
            Quantity::Link(Profile::serial_lite),
        )
        .fitted(),
        // Seven stages of 6.4 ns; the text says "about 45 ns".
        Row::new(
            "router/hop",
            "a packet on its way through a router: \"about\" 45 ns",
            "ns",
            45.0,
            Accept::Percent(2.0),
            Quantity::Router,
        ),
        batch("batch/multicast", -15.0, CollectiveKind::Multicast),
        batch("batch/reduction", -4.0, CollectiveKind::Reduction),
    ];
    // Tables 5.3 and 5.4, row "Average".
    for (size, published) in [(Size::Small, [9.0, 3.0, 15.0, 6.0, 13.0]), (Size::Large, [23.0, 6.0, 34.0, 17.0, 30.0])]
    {
        rows.extend(Metric::ALL.into_iter().zip(published).map(|(metric, published)| best(size, metric, published)));
    }
    rows
}

/// What makes an improvement larger than the published one.
const LOADS: &str = "the loads of the published points are not stated. Where injecting takes longer than the network needs, all \
configurations take equally long; here half of the loads and more are above what the network carries";
const LATENCY: &str = "the cycle from which the published latencies count is not stated; here they contain the time in which a packet \
waits for its link, which the configurations change most";

/// Neither loads nor lengths of batches are stated, and the improvement depends on both: it goes to zero at low load. So the claim
/// is half to twice the published value.
fn best(size: Size, metric: Metric, published: f64) -> Row {
    let id = format!("best/{}/{}", size.name(), metric.name());
    let what =
        format!("{} of the best of 15 wormhole configurations against their mean, on {}", metric.name(), size.name());
    let row = Row::new(
        id,
        what,
        "%",
        published,
        Accept::Between(published / 2.0, published * 2.0),
        Quantity::Best(size, metric),
    )
    .predicted("a configuration chosen for a workload is better than the mean of all");
    match (size, metric) {
        (_, Metric::Mean) => row.outside(LATENCY),
        (Size::Small, Metric::Batch | Metric::Worst | Metric::Throughput) | (Size::Large, Metric::Throughput) => {
            row.outside(LOADS)
        }
        _ => row,
    }
}

/// The published mean is over two sizes, of which the rows measure one; so the claim is that OCR is faster.
fn batch(id: &str, published: f64, kind: CollectiveKind) -> Row {
    let what = format!("{} batches of 64 packets on 4 x 4 x 4, OCR against RPM, geometric mean", kind.name());
    Row::new(id, what, "%", published, Accept::Below(0.0), Quantity::Batch(kind))
        .predicted("trees that share links and avoid loaded ones are faster")
}

#[cfg(test)]
mod tests {
    use super::super::super::comparison::assert_ids_are_different;

    #[test]
    fn ids_are_different() {
        assert_ids_are_different(&super::all());
    }
}

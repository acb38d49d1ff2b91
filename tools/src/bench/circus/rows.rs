//! The network rows of the CIRCUS paper, with their published values and tolerances. Only this module contains published
//! numbers.

use fpga_select::circus::Overhead;

use super::super::comparison::{self, Accept};

/// The measured quantity of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Quantity {
    /// Rate of a saturated link with so much overhead.
    Link(Overhead),
    /// Cycles of a flit through a router.
    RouterCycles,
    /// Of these, cycles in the crossbar.
    CrossbarCycles,
    /// (t1 - t0) / 2 of a ping-pong.
    Latency { hops: u32 },
    /// What one more hop adds to it, on average.
    HopLatency,
    /// Throughput of a ping-pong of 1 MiB.
    Throughput { hops: u32 },
    /// t1 - t0 of the allreduce-like pipeline.
    PipelineLatency,
    /// Throughput of the allreduce-like pipeline with 1 MiB.
    PipelineThroughput,
}

pub(super) type Row = comparison::Row<Quantity>;

/// Hops of the paper's longest way.
pub(super) const FARTHEST: u32 = 7;

/// Latencies of other systems at one hop, in nanoseconds (table 5): published, not modelled.
pub(super) const OTHERS: [(&str, f64); 3] = [("CoE (Ethernet)", 950.0), ("SMI", 801.0), ("SMI, H-tile", 517.0)];
/// Payload rate of SMI in Gb/s (section 6.2): published, not modelled.
pub(super) const SMI_GBPS: f64 = 30.625;

/// Published results that this command does not reproduce.
pub(super) const NOT_REPRODUCED: [&str; 5] = [
    "latency of other systems at one hop (table 5): CoE 950 ns, SMI 801 ns, SMI on the H-tile 517 ns: no models of them",
    "SMI's peak of 30.6 Gb/s of payload (section 6.2): no model of it",
    "points of figures 12, 13 and 17 between those named in the text: the figures are drawn without them",
    "waveforms of figure 18: measured on another build, at 265.6 MHz",
    "resources of tables 6 to 9: need the bitstream",
];

/// Returns all rows, in the order of output.
pub(super) fn all() -> Vec<Row> {
    let mut rows = overheads();
    rows.extend(routers());
    rows.extend(ping_pong());
    rows.extend(pipeline());
    rows
}

/// Table 4. The paper multiplies with factors of three digits, so its rates are good to one in a thousand.
fn overheads() -> Vec<Row> {
    let of = |id, what, published, overhead| {
        Row::new(id, what, "Gb/s", published, Accept::Percent(0.1), Quantity::Link(overhead))
    };
    vec![
        of("overhead/lanes", "saturated link, all bits", 103.125, Overhead::None),
        of("overhead/line-code", "saturated link, after the line code", 98.484, Overhead::Code),
        of("overhead/meta-frame", "saturated link, after meta frames", 98.287, Overhead::MetaFrame).fitted(),
        of("overhead/burst", "saturated link, after bursts", 96.813, Overhead::Burst).fitted(),
        of("overhead/header", "saturated link, payloads", 90.762, Overhead::Header),
    ]
}

fn routers() -> [Row; 2] {
    let of = |id, what, published, quantity| {
        Row::new(id, what, "cycles", published, Accept::Between(published, published), quantity)
    };
    [
        of("router/all", "a flit on its way through a router", 9.0, Quantity::RouterCycles),
        of("router/crossbar", "of these, in the crossbar", 5.0, Quantity::CrossbarCycles),
    ]
}

/// What throughput at 1 MiB says: nothing but the link slows a stream down.
const KEEP_UP: &str = "kernels and routers keep up with the link";

fn ping_pong() -> Vec<Row> {
    let latency =
        |id, what, published, most, quantity| Row::new(id, what, "us", published, Accept::Percent(most), quantity);
    let throughput = |id, what, published, hops| {
        Row::new(id, what, "Gb/s", published, Accept::Percent(0.5), Quantity::Throughput { hops }).predicted(KEEP_UP)
    };
    vec![
        latency("latency/1", "ping-pong of 64 B, 1 hop, (t1 - t0) / 2", 0.50, 1.0, Quantity::Latency { hops: 1 })
            .fitted(),
        latency(
            "latency/3",
            "ping-pong of 64 B, 3 hops: \"almost\" what CoE needs for 1",
            0.95,
            5.0,
            Quantity::Latency { hops: 3 },
        ),
        latency(
            "latency/7",
            "ping-pong of 64 B, 7 hops, (t1 - t0) / 2",
            1.87,
            1.0,
            Quantity::Latency { hops: FARTHEST },
        )
        .fitted(),
        // 0.50 us at one hop and 1.87 us at seven make 0.228 us, to which the model is fitted.
        latency("latency/hop", "one more hop: \"about\" 0.25 us", 0.25, 10.0, Quantity::HopLatency),
        throughput("throughput/1", "ping-pong of 1 MiB, 1 hop, size / ((t1 - t0) / 2 + t2 - t1)", 90.2, 1),
        throughput("throughput/7", "ping-pong of 1 MiB, 7 hops, size / ((t1 - t0) / 2 + t2 - t1)", 88.7, FARTHEST),
    ]
}

fn pipeline() -> [Row; 2] {
    [
        Row::new(
            "pipeline/latency",
            "allreduce-like pipeline of two cards, 64 B, t1 - t0",
            "ns",
            1067.0,
            Accept::Percent(1.0),
            Quantity::PipelineLatency,
        )
        .fitted(),
        Row::new(
            "pipeline/throughput",
            "allreduce-like pipeline of two cards, 1 MiB, by the rule of the ping-pong",
            "Gb/s",
            90.2,
            Accept::Percent(0.5),
            Quantity::PipelineThroughput,
        )
        .predicted(KEEP_UP),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::super::comparison::{Claim, assert_ids_are_different};
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ids_are_different() {
        assert_ids_are_different(&all());
    }

    /// Fitted rows are limited to these values, and no predicted row has one of them.
    #[test]
    fn fitted_rows_are_the_agreed_ones() {
        let values = |is_one: fn(&Claim) -> bool| -> BTreeSet<String> {
            let rows = all().into_iter().filter(|row| is_one(&row.claim));
            rows.map(|row| format!("{} {}", row.published.unwrap(), row.unit)).collect()
        };
        let fitted = values(|claim| *claim == Claim::Fitted);
        let agreed = ["98.287 Gb/s", "96.813 Gb/s", "0.5 us", "1.87 us", "1067 ns"];
        assert_eq!(fitted, agreed.map(String::from).into());
        assert!(fitted.is_disjoint(&values(|claim| matches!(claim, Claim::Predicted { .. }))));
    }
}

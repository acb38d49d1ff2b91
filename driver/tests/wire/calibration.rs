//! Calibrations of fabrics whose completions say what was made up here: what comes out is that, to the cycle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use cmdseq::calibration::Calibration;
use cmdseq::capability::Timing;
use cmdseq::{Flags, Instruction, Operation};
use fpga_driver::{Cluster, calibrate};

use crate::cards::open_all;
use fpga_fake::{BLOCK, Fake, Times};

/// Bytes a cycle in Mb/s, at 200 MHz.
const BYTE_A_CYCLE: u64 = 1600;
const CYCLE_PS: u64 = 5000;
/// Offset of the rate that cards state for a link.
const LINK_MBPS: u32 = 0x98;

/// What the parts of a fabric take, in cycles, or bytes a cycle for rates.
#[derive(Debug, Clone, Copy)]
struct Parts {
    dispatch: u64,
    handover: u64,
    read: u64,
    switch: u64,
    control: u64,
    /// From the last beat out to its arrival, and for the signal back.
    way: u64,
    channel: u64,
    host: u64,
    link: u64,
    /// For a beat of 32 bytes in a fold.
    beat: u64,
    /// The rate of the link from node 2 to node 1, if it is another.
    slow: Option<u64>,
}

const PARTS: Parts = Parts {
    dispatch: 9,
    handover: 13,
    read: 54,
    switch: 11,
    control: 72,
    way: 80,
    channel: 32,
    host: 64,
    link: 16,
    beat: 4,
    slow: None,
};

impl Parts {
    fn times(&self, node: u32, instruction: &Instruction) -> Times {
        let Instruction { operation, bytes, peer, flags, .. } = *instruction;
        let link = self.slow.filter(|_| (node, peer) == (2, 1)).unwrap_or(self.link);
        let is_whole = flags.contains(Flags::RENDEZVOUS);
        let (t1, t2, arrival) = match operation {
            Operation::Delay => (0, instruction.extent, 0),
            // Node 0 is always late, and the others wait for it.
            Operation::Barrier => (0, self.dispatch + 1 + self.control + if node == 0 { 0 } else { 10 } - 5, 0),
            Operation::Fill => (0, self.dispatch + bytes / self.channel, 0),
            Operation::Copy => (0, self.dispatch + bytes / self.host, 0),
            Operation::Send | Operation::Sendrecv if is_whole => {
                let t1 = self.dispatch + 1 + self.read + bytes / link;
                (t1, t1 + 2 * self.way, 0)
            }
            // Out of the receive buffer.
            Operation::Recv if !is_whole => {
                let check = self.way - self.control;
                (0, 5000, self.dispatch + check + self.switch + bytes / self.channel)
            }
            Operation::Exscan => (0, 5000, 30 + bytes / 32 * self.beat),
            _ => (0, self.dispatch, 100),
        };
        Times { t1, t2, arrival, next: t2 + self.handover }
    }
}

/// Cards of a fabric of `parts`, which fold.
fn fabric(nodes: u32, parts: Parts) -> (Vec<Arc<Fake>>, Cluster) {
    let fakes: Vec<_> = (0..nodes).map(|node| Fake::node(node, nodes, 64)).collect();
    for (node, fake) in (0..).zip(&fakes) {
        (0x78..=0x7c).step_by(4).for_each(|offset| fake.set(BLOCK + offset, u32::MAX >> 16));
        fake.state().times = Box::new(move |instruction| parts.times(node, instruction));
    }
    let cluster = open(&fakes);
    (fakes, cluster)
}

fn open(fakes: &[Arc<Fake>]) -> Cluster {
    open_all(fakes.iter().map(Fake::function).collect()).unwrap()
}

fn calibrated(cluster: &mut Cluster) -> Calibration {
    calibrate(cluster, &mut |_| {}).unwrap()
}

/// What was measured, and of how many measurements.
fn measured(calibration: &Calibration) -> BTreeMap<&'static str, (u64, usize)> {
    let one = |one: &cmdseq::calibration::Parameter| (one.field.name, (u64::from(one.measured), one.points));
    calibration.parameters.iter().map(one).collect()
}

fn why<'c>(calibration: &'c Calibration, name: &str) -> Option<&'c str> {
    calibration.unmeasured.iter().find(|one| one.field.name == name).map(|one| one.why.as_str())
}

#[test]
fn parts_are_measured_to_be_what_they_take() {
    for nodes in 2..=4 {
        let (_fakes, mut cluster) = fabric(nodes, PARTS);
        let calibration = calibrated(&mut cluster);
        let mut all = measured(&calibration);
        all.remove("reduce_unit_cycles").expect("a fold was measured");
        let links = nodes * (nodes - 1);
        let expected = BTreeMap::from([
            ("dispatch_cycles", (9, 8)),
            ("handover_cycles", (13, 7)),
            ("memory_read_cycles", (54, 5)),
            ("switch_cycles", (11, 5)),
            ("control_ps", (72 * CYCLE_PS, 4)),
            ("data_ps", (80 * CYCLE_PS, 9)),
            ("acknowledge_ps", (80 * CYCLE_PS, 9)),
            ("link_mbps", (16 * BYTE_A_CYCLE, links as usize)),
            ("channel_mbps", (32 * BYTE_A_CYCLE, 4)),
            ("host_mbps", (64 * BYTE_A_CYCLE, 4)),
            ("reduce_beat_cycles", (4, 5)),
        ]);
        assert_eq!(all, expected);
        assert!(calibration.parameters.iter().all(|one| one.residual_percent < 1e-9), "{calibration:?}");
        assert_eq!(calibration.links, BTreeMap::new());
        assert_eq!(why(&calibration, "beat_bytes"), Some("there is no program that tells it"));
        // Each field is in one of the lists, and both are in the order of the fields.
        let place = |name: &str| Timing::FIELDS.iter().position(|field| field.name == name).unwrap();
        let known: Vec<_> = calibration.parameters.iter().map(|one| place(one.field.name)).collect();
        let unknown: Vec<_> = calibration.unmeasured.iter().map(|one| place(one.field.name)).collect();
        assert!(known.is_sorted() && unknown.is_sorted(), "{known:?} {unknown:?}");
        assert_eq!([known, unknown].concat().into_iter().collect::<BTreeSet<_>>().len(), Timing::FIELDS.len());
    }
}

#[test]
fn the_middle_of_three_runs_counts() {
    let (fakes, mut cluster) = fabric(2, PARTS);
    let runs = Arc::new(Mutex::new(BTreeMap::<u64, u64>::new()));
    let seen = Arc::clone(&runs);
    fakes[0].state().times = Box::new(move |instruction| {
        let mut times = PARTS.times(0, instruction);
        if instruction.operation == Operation::Send && instruction.flags.contains(Flags::RENDEZVOUS) {
            let mut runs = seen.lock().unwrap();
            let run = runs.entry(instruction.bytes).or_default();
            // The first one finds everything cold, and the last one is lucky.
            let (more, less) = [(1000, 0), (0, 0), (0, 5)][*run as usize];
            *run += 1;
            (times.t1, times.t2) = (times.t1 + more - less, times.t2 + more - less);
        }
        times
    });
    let calibration = calibrated(&mut cluster);
    assert_eq!((measured(&calibration)["memory_read_cycles"].0, measured(&calibration)["data_ps"].0), (54, 400_000));
    // What the receive buffer holds, and what it does not.
    let runs = runs.lock().unwrap();
    assert!(runs.values().all(|runs| *runs == 3));
    let sizes: Vec<_> = runs.keys().copied().collect();
    assert_eq!(sizes, [5, 10, 12, 13, 14, 16, 18, 20, 21].map(|power| 1 << power));
}

#[test]
fn a_link_that_differs_is_told_of_by_itself() {
    for (slow, is_told) in [(4, true), (15, true), (17, true), (16, false)] {
        let (_fakes, mut cluster) = fabric(4, Parts { slow: Some(slow), ..PARTS });
        let calibration = calibrated(&mut cluster);
        let told = [((2, 1), (slow * BYTE_A_CYCLE) as u32)].into_iter().filter(|_| is_told).collect();
        assert_eq!(calibration.links, told);
        assert_eq!(measured(&calibration)["link_mbps"], (16 * BYTE_A_CYCLE, 12));
    }
}

#[test]
fn what_a_pseudo_channel_limits_is_left_as_stated() {
    let calibration = limited_by_a_pseudo_channel(51_200);
    let why = |name| why(&calibration, name).unwrap();
    assert!(why("link_mbps").contains("not slower than the pseudo channels"), "{}", why("link_mbps"));
    assert!(why("reduce_beat_cycles").contains("as fast as the pseudo channel"), "{}", why("reduce_beat_cycles"));
    assert_eq!(calibration.links, BTreeMap::new());
    assert_eq!(measured(&calibration)["memory_read_cycles"].0, 54);
}

#[test]
fn links_have_at_least_the_rate_of_the_pseudo_channel_that_limits_them() {
    let calibration = limited_by_a_pseudo_channel(45_000);
    assert_eq!(measured(&calibration)["link_mbps"], (51_200, 6));
    assert_eq!((why(&calibration, "link_mbps"), calibration.links.len()), (None, 0));
}

/// Calibrates cards that state so many Mb/s for their links, which are as fast as a pseudo channel, with 51,200.
fn limited_by_a_pseudo_channel(stated: u32) -> Calibration {
    let (fakes, cluster) = fabric(3, Parts { link: 32, beat: 1, ..PARTS });
    drop(cluster);
    fakes.iter().for_each(|fake| fake.set(BLOCK + LINK_MBPS, stated));
    calibrated(&mut open(&fakes))
}

/// The largest blocks take ten times what the others let expect.
#[test]
fn times_off_a_line_are_no_measurement() {
    let (fakes, mut cluster) = fabric(2, PARTS);
    for (node, fake) in (0..).zip(&fakes) {
        fake.state().times = Box::new(move |instruction| {
            let mut times = PARTS.times(node, instruction);
            match (instruction.operation, instruction.bytes) {
                (Operation::Recv | Operation::Exscan, 16_384) => times.arrival *= 10,
                (Operation::Send, 2_097_152) => (times.t1, times.t2) = (10 * times.t1, 9 * times.t1 + times.t2),
                _ => {}
            }
            times
        });
    }
    let calibration = calibrated(&mut cluster);
    for name in ["switch_cycles", "reduce_beat_cycles", "link_mbps"] {
        assert!(why(&calibration, name).unwrap().ends_with("% off a line by sizes"), "{name}: {calibration:?}");
        assert!(!measured(&calibration).contains_key(name), "{name}");
    }
    let reading = why(&calibration, "memory_read_cycles").unwrap();
    assert!(reading.contains("the rate of the link") && reading.ends_with("was not measured"), "{reading}");
}

#[test]
fn a_card_alone_tells_what_it_has_by_itself_over_any_wrap_of_its_counter() {
    for before in [0, 10, 60, 100, 170, 1000] {
        let (fakes, mut cluster) = fabric(2, PARTS);
        drop(cluster);
        cluster = open(&fakes[..1]);
        fakes[0].state().clock = (1 << 48) - before;
        let calibration = calibrated(&mut cluster);
        let all = measured(&calibration);
        assert_eq!((all["dispatch_cycles"].0, all["handover_cycles"].0), (9, 13), "{before} cycles before the wrap");
        assert_eq!(all.len(), 4, "{all:?}");
        for name in ["memory_read_cycles", "switch_cycles", "control_ps", "data_ps", "acknowledge_ps", "link_mbps"] {
            assert_eq!(why(&calibration, name), Some("no two of these cards are linked"));
        }
        for name in ["reduce_beat_cycles", "reduce_unit_cycles"] {
            assert_eq!(why(&calibration, name), Some("no two of these cards are linked"));
        }
    }
}

#[test]
fn times_that_do_not_rise_give_no_rate() {
    let fake = Fake::new(64);
    fake.state().memory.fill(7);
    let calibration = calibrated(&mut open(&[Arc::clone(&fake)]));
    for name in ["channel_mbps", "host_mbps"] {
        assert_eq!(why(&calibration, name), Some("times did not rise with sizes"));
    }
    let is_left = |byte: &u8| *byte == 7;
    assert!(fake.state().memory[2 << 20..].iter().all(is_left), "only the first two MiB are written over");
}

#[test]
fn cards_that_do_not_fold_or_buffer_say_why_that_is_not_measured() {
    const EXSCAN: u32 = Operation::Exscan as u32;
    const REDUCE: u32 = Operation::Reduce as u32;
    let (not_folding, no_buffer) = ("the cards do not reduce", "the cards have no receive buffers");
    let without = |operation: u32| (0x70, !1 & !(1_u32 << operation));
    for ((offset, value), fold, switch) in [
        (without(EXSCAN), Some(not_folding), None),
        (without(REDUCE), Some(not_folding), None),
        ((0x78, 0), Some(not_folding), None),
        ((0x7c, 0), Some(not_folding), None),
        // The eager limit: of the sizes, it lets none, one and two go through the receive buffer.
        ((0x10c, 0), Some(no_buffer), Some(no_buffer)),
        ((0x10c, 32), Some(no_buffer), Some(no_buffer)),
        ((0x10c, 1024), None, None),
    ] {
        let (fakes, cluster) = fabric(2, PARTS);
        drop(cluster);
        fakes.iter().for_each(|fake| fake.set(BLOCK + offset, value));
        let calibration = calibrated(&mut open(&fakes));
        assert_eq!(why(&calibration, "reduce_beat_cycles"), fold, "{offset:#x} {value:#x}");
        assert_eq!(why(&calibration, "reduce_unit_cycles"), fold, "{offset:#x} {value:#x}");
        assert_eq!(why(&calibration, "switch_cycles"), switch, "{offset:#x} {value:#x}");
    }
}

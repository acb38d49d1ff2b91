//! Traces of mock cards: what is recorded, and where the cards' cycles are placed.

use std::time::Duration;

use cmdseq::graph::Schedule;
use cmdseq::plan::{self, Algorithm, Collective, Request};
use cmdseq::{Completion, CostModel, Instruction, Operand, Status};
use fpga_driver::Execution;
use fpga_driver::trace::{Counter, Interval, Moment, Trace, correlate};
use fpga_mock::{Fabric, Profile};
use fpga_tests::run::open;
use fpga_tests::threads;

const TIMEOUT: Duration = Duration::from_secs(60);
/// The cycle counter has 48 bits.
const CYCLES: u64 = (1 << 48) - 1;

/// Cards whose clocks drift against the fabric's time, which is the host's clock here: the truth is known.
#[test]
fn clocks_that_drift_are_placed_within_the_stated_error() {
    for drift_ppm in [0, 99, 500, 900] {
        let mut profile = Profile::optweb(4);
        profile.hardware.drift_ppm = drift_ppm;
        let (fabric, mut cluster) = open(profile);
        let clock_khz = cluster.capabilities().clock_khz;
        let mut intervals = vec![Vec::new(); 4];
        for round in 0..40_u64 {
            for (card, intervals) in intervals.iter_mut().enumerate() {
                // 1 to 40 ms between looks, and short instructions, which bound tightly.
                let instruction = match round % 2 {
                    0 => Instruction::delay(200_000 * (round + 1)),
                    _ => Instruction::fill(Operand::card(0), 4096, round),
                };
                let after_ns = (fabric.statistics().now_ps / 1000) as u64;
                let done = cluster.card_mut(card).run([instruction], TIMEOUT).unwrap()[0];
                let before_ns = fabric.statistics().now_ps.div_ceil(1000) as u64;
                let end = (done.issued + done.t2) & CYCLES;
                intervals.push(Interval { begin: done.issued, end, after_ns, before_ns });
            }
        }
        for (node, intervals) in intervals.iter().enumerate() {
            let pieces = correlate(Counter::cycles(clock_khz, false), intervals);
            assert_eq!(pieces.len(), 1, "card {node}, {drift_ppm} ppm: one clock, one line");
            let piece = &pieces[0];
            let period = 1e6 / f64::from(clock_khz);
            for count in intervals.iter().flat_map(|one| [one.begin, one.end]) {
                let exact = fabric.time_of(node as u32, count).unwrap() as f64 / 1000.0;
                let off = (piece.host_ns(count) - exact).abs();
                assert!(off <= piece.error_ns + period, "card {node}, {drift_ppm} ppm: {off} ns of {}", piece.error_ns);
            }
            // A faster counter has shorter periods.
            let faster = (2.0 * node as f64 - 3.0) * f64::from(drift_ppm) / 3.0;
            let seconds = (intervals[39].before_ns - intervals[0].after_ns) as f64 / 1e9;
            let open = 2.0 * piece.error_ns / seconds / 1e3 + 1.0;
            assert!((piece.ppm + faster).abs() <= open + faster * faster * 1e-6, "{} for {faster} ppm", piece.ppm);
            // The bounds of these instructions are some microseconds wide: the error is no more than that.
            assert!(piece.error_ns < 20_000.0, "card {node}, {drift_ppm} ppm: {} ns", piece.error_ns);
        }
    }
}

#[test]
fn the_latest_instructions_are_kept_and_the_others_counted() {
    let (_fabric, mut cluster) = open(Profile::optweb(2));
    let nops = |count: u64| (0..count).map(|number| Instruction::fill(Operand::card(0), 8 * (number + 1), 0));
    cluster.card_mut(0).run(nops(3), TIMEOUT).unwrap();
    cluster.start_trace(Moment::now(), 8).unwrap();
    let begin = Moment::now();
    cluster.card_mut(0).run(nops(20), TIMEOUT).unwrap();
    cluster.end_span("fill", begin);
    let trace = cluster.take_trace().unwrap();
    let [first, second] = trace.cards.as_slice() else { panic!("{trace:?}") };
    assert_eq!((first.node, first.instructions.len(), first.dropped.instructions), (0, 8, 12));
    assert_eq!((second.node, second.instructions.len(), second.doorbells.len()), (1, 0, 0));
    assert_eq!(trace.dropped(), 12 + first.dropped.doorbells);
    for (record, number) in first.instructions.iter().zip(13..) {
        assert_eq!(record.instruction.bytes, 8 * number);
        assert_eq!(record.completion.tag, 3 + number as u16 - 1);
        assert!(record.rung_ns <= record.seen_ns && record.completion.status == Status::Done);
    }
    assert!(first.doorbells.iter().all(|one| one.begin_ns <= one.end_ns && one.count > 0));
    let [span] = trace.spans.as_slice() else { panic!("{:?}", trace.spans) };
    let all = || first.instructions.iter();
    assert!(span.name == "fill" && all().all(|one| (span.begin_ns..=span.end_ns).contains(&one.seen_ns)));
    assert!(cluster.take_trace().is_none(), "it is over");
    cluster.card_mut(0).run(nops(3), TIMEOUT).unwrap();
}

#[test]
fn a_trace_begins_with_nothing_in_flight_and_shows_what_was_stopped() {
    let (_fabric, mut cluster) = open(Profile::optweb(2));
    cluster.card_mut(0).queue_mut().submit(Instruction::recv(1, Operand::card(0), 64)).unwrap().abandon();
    let refused = cluster.start_trace(Moment::now(), 8).unwrap_err().to_string();
    assert!(refused.contains("in flight") && refused.contains("mock 0"), "{refused}");
    cluster.card_mut(0).abort().unwrap();
    cluster.start_trace(Moment::now(), 8).unwrap();
    cluster.card_mut(0).queue_mut().submit(Instruction::recv(1, Operand::card(0), 64)).unwrap().abandon();
    cluster.card_mut(0).queue_mut().push(Instruction::nop()).unwrap().abandon();
    cluster.card_mut(0).abort().unwrap();
    cluster.card_mut(0).run([Instruction::nop()], TIMEOUT).unwrap();
    cluster.card_mut(0).queue_mut().submit(Instruction::recv(1, Operand::card(0), 128)).unwrap().abandon();
    let trace = cluster.take_trace().unwrap();
    let [stuck] = trace.cards[0].in_flight.as_slice() else { panic!("{trace:?}") };
    assert_eq!(stuck.instruction.bytes, 128);
    let statuses: Vec<_> = trace.cards[0].instructions.iter().map(|one| one.completion.status).collect();
    assert_eq!(statuses, [Status::Aborted, Status::Aborted, Status::Done]);
}

/// The interval of an instruction in the fabric's time, in picoseconds.
fn in_time(fabric: &Fabric, node: u32, done: &Completion) -> (u64, u64) {
    let at = |count| fabric.time_of(node, count & CYCLES).unwrap();
    (at(done.issued), at(done.issued + done.t2 + 1))
}

/// Checks that each transfer is inside an instruction of its card and tag, and returns the sum of their bytes.
fn inside(fabric: &Fabric, trace: &Trace) -> u64 {
    let (transfers, dropped) = fabric.take_transfers();
    assert_eq!(dropped, 0);
    for transfer in &transfers {
        let card = trace.cards.iter().find(|card| card.node == transfer.node).unwrap();
        let tagged = card.instructions.iter().filter(|one| one.completion.tag == transfer.tag);
        let mut intervals = tagged.map(|one| in_time(fabric, card.node, &one.completion));
        assert!(transfer.begin_ps < transfer.end_ps && transfer.from != transfer.to, "{transfer:?}");
        assert!(intervals.any(|(begin, end)| begin <= transfer.begin_ps && transfer.end_ps <= end), "{transfer:?}");
        let rate = transfer.bytes as f64 * 8e6 / (transfer.end_ps - transfer.begin_ps) as f64;
        assert!(rate <= transfer.link_mbps as f64 * 1.001, "{transfer:?}: {rate} Mb/s");
    }
    transfers.iter().map(|one| one.bytes).sum()
}

#[test]
fn links_say_what_they_carried_within_its_instruction() {
    for profile in [Profile::optweb(4), Profile::optweb_dragonfly(2, 2), Profile::circus(2, 2)] {
        let (fabric, mut cluster) = open(profile);
        for collective in [Collective::Broadcast, Collective::Allgather, Collective::Alltoall, Collective::Send] {
            let request = Request::new(collective, vec![0, 1, 2, 3], 4096);
            let model = CostModel::stated(cluster.capabilities());
            let plans = plan::candidates_with(&request, cluster.capabilities(), &model);
            for (algorithm, plan) in plans {
                let Ok(plan) = plan else { continue };
                let before = fabric.statistics().bytes;
                cluster.start_trace(Moment::now(), 1 << 12).unwrap();
                fabric.log_transfers(1 << 12);
                cluster.execute(&plan.set, &Execution::default()).unwrap();
                let trace = cluster.take_trace().unwrap();
                let bytes = inside(&fabric, &trace);
                assert_eq!(bytes, fabric.statistics().bytes - before, "{collective:?} by {algorithm:?}");
                assert!(bytes > 0, "{collective:?} by {}", Algorithm::name(algorithm));
            }
        }
    }
}

#[test]
fn one_sided_transfers_belong_to_whoever_issued_them() {
    let (fabric, mut cluster) = open(Profile::optweb(2));
    cluster.start_trace(Moment::now(), 64).unwrap();
    fabric.log_transfers(64);
    let read = Instruction::rdma_read(1, Operand::card(0), Operand::card(8192), 4096);
    let write = Instruction::rdma_write(1, Operand::card(0), Operand::card(1 << 20), 2048);
    let programs = [vec![read.into(), write.into()], vec![Instruction::nop().into()]];
    cluster.run(&[0, 1], &programs, TIMEOUT).unwrap().result.unwrap();
    let trace = cluster.take_trace().unwrap();
    let names: Vec<_> = trace.spans.iter().map(|span| span.name).collect();
    assert_eq!(names, ["prepare", "wait"]);
    assert_eq!(inside(&fabric, &trace), 4096 + 2048);
}

#[test]
fn each_rank_of_several_traces_its_wait_for_a_launch() {
    let fabric = Fabric::new(Profile::optweb(2)).unwrap();
    let traces = threads::clusters(&fabric, |cluster, _| {
        let request = Request::new(Collective::Barrier, vec![0, 1], 0);
        let plan = plan::plan(&request, cluster.capabilities()).unwrap();
        let mut prepared = cluster.prepare(&Schedule::of(&plan)).unwrap();
        cluster.start_trace(Moment::now(), 64).unwrap();
        cluster.launch(&mut prepared).unwrap();
        cluster.finish(&mut prepared, TIMEOUT).unwrap();
        cluster.take_trace().unwrap()
    });
    for trace in traces {
        assert_eq!(trace.spans.iter().map(|span| span.name).collect::<Vec<_>>(), ["wait"]);
    }
}

#[test]
fn a_log_of_transfers_has_a_limit() {
    let (fabric, mut cluster) = open(Profile::optweb(2));
    fabric.log_transfers(3);
    let programs = [
        vec![Instruction::send(1, Operand::card(0), 64).into(); 5],
        vec![Instruction::recv(0, Operand::card(0), 64).into(); 5],
    ];
    cluster.run(&[0, 1], &programs, TIMEOUT).unwrap().result.unwrap();
    let (transfers, dropped) = fabric.take_transfers();
    assert_eq!((transfers.len(), dropped), (3, 2));
    assert_eq!(fabric.take_transfers(), (Vec::new(), 0), "it is over");
}

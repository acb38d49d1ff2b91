//! Totals follow from components: changing one changes the totals as calculated by hand.

use cmdseq::plan::Algorithm;
use fpga_driver::{Cluster, Error, Execution, Report};
use fpga_mock::{Fault, Profile, When};
use fpga_tests::run::{open, plan_all, run};

/// The totals of the paper, in cycles of 5 ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Totals {
    barrier: u64,
    eager: u64,
    rendezvous: u64,
    multipath: u64,
}

/// T1 plus migration of a source, as the paper measures start-up.
fn start_up(report: &Report) -> u64 {
    report.t1_cycles + (report.t2_cycles - report.t1_cycles) / 2
}

fn totals(profile: Profile) -> Totals {
    let (_fabric, mut cluster) = open(profile);
    let cluster: &mut Cluster = &mut cluster;
    Totals {
        barrier: run(cluster, "barrier", 0, None, None).t2_cycles,
        eager: start_up(&run(cluster, "allgather", 64, None, None)),
        rendezvous: start_up(&run(cluster, "allgather", 64, None, Some(0))),
        multipath: run(cluster, "send", 256, Some(Algorithm::Multipath), None).arrival_cycles,
    }
}

#[test]
fn link_latency_counts_once_per_crossing() {
    let before = totals(Profile::optweb(4));
    // One crossing for a barrier and for eager data, two for rendezvous (ready, data), three for two stages (data and the
    // signal back, then data). 0.10 us are 20 cycles.
    let after = totals(Profile { link_ps: 250_000, ..Profile::optweb(4) });
    let expected = Totals {
        barrier: before.barrier + 20,
        eager: before.eager + 20,
        rendezvous: before.rendezvous + 40,
        multipath: before.multipath + 60,
    };
    assert_eq!(after, expected);
}

#[test]
fn switch_cycles_count_twice_per_crossing() {
    let before = totals(Profile::optweb(4));
    // Ten cycles more at each end of a crossing.
    let after = totals(Profile { switch_cycles: 20, ..Profile::optweb(4) });
    let expected = Totals {
        barrier: before.barrier + 20,
        eager: before.eager + 20,
        rendezvous: before.rendezvous + 40,
        multipath: before.multipath + 60,
    };
    assert_eq!(after, expected);
}

#[test]
fn memory_latency_is_hidden_by_rendezvous() {
    let before = totals(Profile::optweb(4));
    // The ready signals of the others come 80 cycles after the start; data at 61. Ten cycles more stay hidden behind them.
    let after = totals(Profile { memory_read_cycles: 64, ..Profile::optweb(4) });
    assert_eq!(after.rendezvous, before.rendezvous);
    assert_eq!(after.eager, before.eager + 10);
}

#[test]
fn hand_over_counts_between_instructions_only() {
    let before = totals(Profile::optweb(4));
    let after = totals(Profile { handover_cycles: 24, ..Profile::optweb(4) });
    assert_eq!(after, Totals { multipath: before.multipath + 12, ..before });
}

#[test]
fn half_the_link_rate_doubles_the_time_on_the_wire() {
    let time = |profile| run(&mut open(profile).1, "allgather", 1 << 20, None, None).arrival_cycles * 5;
    // 8 Mi bits take 186.4 us at 45 Gb/s and 372.8 us at 22.5: 186.4 us more, and nothing else changes.
    let more = time(Profile { link_mbps: 22_500, ..Profile::optweb(4) }) - time(Profile::optweb(4));
    assert!(more.abs_diff(186_414) <= 5, "{more} ns");
}

#[test]
fn one_slow_link_slows_what_crosses_it() {
    let (fabric, mut cluster) = open(Profile::optweb(4));
    fabric.set_link_rate(0, 3, 22_500);
    // Rank 0 sends to rank 3 over the slow link; an alltoall waits for it; rank 1 to rank 2 does not cross it.
    let arrival = |cluster: &mut Cluster, operation| {
        run(cluster, operation, 1 << 20, Some(Algorithm::Direct), None).arrival_cycles * 5
    };
    assert!(arrival(&mut cluster, "send").abs_diff(372_828 + 795) <= 30);
    assert!(arrival(&mut cluster, "alltoall").abs_diff(372_828 + 795) <= 30);
    let (_fabric, mut whole) = open(Profile::optweb(4));
    assert!(arrival(&mut whole, "send").abs_diff(186_414 + 795) <= 30);
}

#[test]
fn reading_and_writing_one_pseudo_channel_loses_the_rate() {
    use cmdseq::Operand;
    let (_fabric, mut cluster) = open(Profile::optweb(4));
    let time = |cluster: &mut Cluster, destination: u64| {
        let mut plan = plan_all(cluster, "sendrecv", 1 << 20, None, None).unwrap();
        for program in &mut plan.set.programs {
            program.instructions[0].source = Operand::card(0);
            program.instructions[0].destination = Operand::card(destination);
        }
        cluster.execute(&plan.set, &Execution::default()).unwrap().arrival_cycles * 5
    };
    // K is 256 MiB: behind it lies the other pseudo channel. In one channel, reading and writing get 25.6 Gb/s each.
    for (destination, wire) in [(256 << 20, 186_414), (128 << 20, 327_680)] {
        let time = time(&mut cluster, destination);
        assert!(time.abs_diff(wire + 795) <= 30, "{time} ns to {destination:#x}");
    }
}

#[test]
fn a_copy_goes_through_the_loop_back_at_its_own_rate() {
    use cmdseq::{Instruction, Operand};
    let copy = Instruction::copy(Operand::card(0), Operand::card(512 << 20), 1 << 20);
    let cycles = |profile| {
        let (_fabric, mut cluster) = open(profile);
        let timeout = std::time::Duration::from_secs(5);
        cluster.card_mut(0).run([copy], timeout).unwrap()[0].t2
    };
    // Dispatch, the read, and a beat of 32 bytes each cycle: 51.2 Gb/s, whatever a link has.
    for link_mbps in [10_000, 45_000, 60_000] {
        assert_eq!(cycles(Profile { link_mbps, ..Profile::optweb(2) }), 7 + 54 + (1 << 20) / 32);
    }
}

#[test]
fn a_link_removed_is_seen_by_those_who_need_it() {
    let (fabric, mut cluster) = open(Profile::optweb(4));
    fabric.plant(Fault::Cut { a: 1, b: 2, when: When::Now });
    let plan = plan_all(&cluster, "barrier", 0, None, None).unwrap();
    let failed = cluster.execute(&plan.set, &Execution::default()).unwrap_err();
    let Error::Failed { status, node, detail, .. } = failed else { panic!("{failed}") };
    assert_eq!(status, cmdseq::Status::LinkDown);
    assert!([(1, 2), (2, 1)].contains(&(node, detail)), "{node} {detail}");
}

//! Calibration measures a fabric: a nominal mock fabric gives the reported values; one with slower links or parts gives their
//! actual values, and predictions with these are right.

use std::collections::BTreeMap;

use cmdseq::calibration::Calibration;
use cmdseq::capability::Timing;
use cmdseq::plan::{Collective, Request, plan, plan_with};
use fpga_driver::{Cluster, calibrate};
use fpga_mock::{Fabric, Profile};
use fpga_tests::prediction::{self, request};
use fpga_tests::run;

fn calibrated(cluster: &mut Cluster) -> Calibration {
    calibrate(cluster, &mut |_| {}).expect("a calibration")
}

fn measured(calibration: &Calibration) -> BTreeMap<&'static str, (u32, u32)> {
    let one = |one: &cmdseq::calibration::Parameter| (one.field.name, (one.stated, one.measured));
    calibration.parameters.iter().map(one).collect()
}

/// Fabrics of other parts than the cards' stated ones are what a calibration is for.
fn worst_percent(fabric: &Fabric, cluster: &mut Cluster, calibration: &Calibration) -> f64 {
    fabric.hollow_out();
    let model = calibration.model(cluster.capabilities()).expect("a calibration of this fabric");
    let nodes = cluster.capabilities().nodes;
    let mut worst: f64 = 0.0;
    for collective in Collective::ALL {
        for bytes in [8, 4096, 16 << 10, 100_000, 4 << 20] {
            let request = request(nodes, *collective, bytes, false);
            let Ok(plan) = plan_with(&request, cluster.capabilities(), &model) else { continue };
            let case = prediction::run(cluster, &plan);
            let off = case.difference_percent().abs();
            assert!(off < 5.0, "{case:?}: {off:.1} %");
            worst = worst.max(off);
        }
    }
    worst
}

#[test]
fn a_fabric_that_is_as_it_says_is_measured_to_be_that() {
    for profile in [Profile::optweb(2), Profile::optweb(5), Profile::optweb_dragonfly(2, 3)] {
        let (fabric, mut cluster) = run::open(profile);
        let calibration = calibrated(&mut cluster);
        let all = measured(&calibration);
        for name in ["dispatch_cycles", "handover_cycles", "memory_read_cycles", "control_ps", "data_ps", "link_mbps"] {
            assert!(all.contains_key(name), "{name} was not measured: {:?}", calibration.unmeasured);
        }
        for (name, (stated, measured)) in &all {
            let off = 100.0 * (f64::from(*measured) / f64::from(*stated) - 1.0).abs();
            assert!(off <= 3.0, "{name}: {stated} stated and {measured} measured");
        }
        for parameter in &calibration.parameters {
            assert!(parameter.residual_percent < 1.0, "{}: {}", parameter.field.name, parameter.residual_percent);
        }
        assert_eq!(calibration.links, BTreeMap::new());
        assert_eq!(all.len() + calibration.unmeasured.len(), Timing::FIELDS.len());
        println!("at most {:.2} % off", worst_percent(&fabric, &mut cluster, &calibration));
    }
}

/// Half a stripe of their memory is less than a pseudo channel.
#[test]
fn links_of_more_than_16_cards_are_not_limited_by_a_pseudo_channel() {
    let (fabric, mut cluster) = run::open(Profile::optweb(17));
    fabric.hollow_out();
    let (stated, measured) = measured(&calibrated(&mut cluster))["link_mbps"];
    assert_eq!(stated, measured);
}

#[test]
fn links_that_are_slower_than_they_say_are_found_and_predicted() {
    let (fabric, mut cluster) = run::open(Profile::optweb(4));
    let links = (0..4).flat_map(|a| (0..4).filter(move |b| *b != a).map(move |b| (a, b)));
    links.for_each(|(a, b)| fabric.set_link_rate(a, b, 20_000));
    fabric.set_link_rate(2, 1, 5_000);
    let calibration = calibrated(&mut cluster);
    let (stated, found) = measured(&calibration)["link_mbps"];
    assert_eq!(stated, 45_000);
    assert!((19_800..=20_200).contains(&found), "{found} Mb/s");
    let slow = calibration.links.get(&(2, 1)).copied().expect("the slow link");
    assert!((4_950..=5_050).contains(&slow), "{slow} Mb/s");
    assert_eq!(calibration.links.len(), 1, "{:?}", calibration.links);

    // Without it a large block is predicted to take half of what it does.
    let request = request(4, Collective::Alltoall, 4 << 20, false);
    let capabilities = cluster.capabilities().clone();
    let stated = prediction::run(&mut cluster, &plan(&request, &capabilities).unwrap());
    assert!(stated.difference_percent() < -50.0, "{stated:?}");
    println!("at most {:.2} % off", worst_percent(&fabric, &mut cluster, &calibration));
}

#[test]
fn other_parts_are_measured_too() {
    // The cards of this fabric say what they take; what is predicted by another's words is wrong until it is measured.
    let slow = Profile {
        reduce_beat_cycles: 4,
        reduce_unit_cycles: 20,
        dispatch_cycles: 15,
        memory_read_cycles: 80,
        handover_cycles: 40,
        switch_cycles: 25,
        link_ps: 700_000,
        channel_mbps: 30_000,
        host_mbps: 50_000,
        link_mbps: 12_000,
        ..Profile::optweb(3)
    };
    let (_, mut cluster) = run::open(slow);
    let calibration = calibrated(&mut cluster);
    let all = measured(&calibration);
    for name in ["reduce_beat_cycles", "reduce_unit_cycles", "switch_cycles", "channel_mbps", "host_mbps"] {
        assert!(all.contains_key(name), "{name} was not measured: {:?}", calibration.unmeasured);
    }
    println!("{all:?}");
    for (name, (stated, measured)) in &all {
        let off = 100.0 * (f64::from(*measured) / f64::from(*stated) - 1.0).abs();
        assert!(off <= 5.0, "{name}: {stated} stated and {measured} measured");
    }
}

#[test]
fn of_another_fabric_it_is_refused_with_what_differs() {
    let (_, mut cluster) = run::open(Profile::optweb(3));
    let calibration = calibrated(&mut cluster);
    assert!(calibration.model(cluster.capabilities()).is_ok());
    let four = run::open(Profile::optweb(4)).1.capabilities().clone();
    let error = calibration.model(&four).unwrap_err();
    assert_eq!((error.name.as_str(), error.there.as_str(), error.here.as_str()), ("nodes", "3", "4"), "{error}");
    let faster = Profile { link_mbps: 50_000, ..Profile::optweb(3) };
    let error = calibration.model(run::open(faster).1.capabilities()).unwrap_err();
    assert_eq!(error.name, "link_mbps");
}

/// Some of the cards of a fabric.
fn part(fabric: &Fabric, nodes: &[u32]) -> Cluster {
    let domain = fpga_hal::Domain::in_process();
    let attach = |node: &u32| fpga_hal::in_process::attach(fabric.endpoint(*node), &domain, "mock");
    Cluster::open(nodes.iter().map(attach).collect::<Result<_, _>>().unwrap()).unwrap()
}

#[test]
fn links_that_differ_are_found_wherever_they_are() {
    let dragonfly = Profile::optweb_dragonfly(2, 3);
    for (profile, nodes, slow, links) in [
        (dragonfly.clone(), vec![0, 1, 2, 3, 4, 5], (4, 1), Some(18)),
        (Profile::optweb(5), vec![0, 2, 3], (3, 2), Some(6)),
        (Profile::optweb(2), vec![0, 1], (1, 0), Some(2)),
        // No barrier is over all of these: they have one link, and it is measured with large blocks only.
        (dragonfly, vec![0, 1, 5], (1, 0), None),
    ] {
        let fabric = Fabric::new(profile).unwrap();
        let mut cluster = part(&fabric, &nodes);
        fabric.set_link_rate(slow.0, slow.1, 5_000);
        let calibration = calibrated(&mut cluster);
        let link = calibration.parameters.iter().find(|one| one.field.name == "link_mbps").unwrap();
        assert_eq!(link.points, links.unwrap_or(4));
        assert!((44_800..=45_200).contains(&link.measured) || nodes.len() == 2, "{link:?}");
        let found: Vec<_> = calibration.links.iter().collect();
        match (found.as_slice(), links) {
            ([], None) => {}
            // Of two, either may be the one that all go like.
            ([((0, 1), 44_800..=45_200)], Some(2)) => assert!((4_950..=5_050).contains(&link.measured), "{link:?}"),
            ([(link, 4_950..=5_050)], Some(_)) => assert_eq!(**link, slow),
            other => panic!("{other:?}"),
        }
    }
}

/// A part of the fabric is measured, and one card alone.
#[test]
fn some_of_the_cards_will_do() {
    for nodes in [vec![1, 3], vec![2]] {
        let mut cluster = part(&Fabric::new(Profile::optweb(4)).unwrap(), &nodes);
        let calibration = calibrated(&mut cluster);
        assert_eq!(measured(&calibration).contains_key("link_mbps"), nodes.len() == 2);
        let group: Vec<u32> = nodes.clone();
        let request = Request { group, peer: 0, ..request(4, Collective::Sendrecv, 1 << 20, false) };
        let model = calibration.model(cluster.capabilities()).unwrap();
        let plan = plan_with(&request, cluster.capabilities(), &model).unwrap();
        let case = prediction::run(&mut cluster, &plan);
        assert!(case.difference_percent().abs() < 5.0, "{case:?}");
    }
}

/// What is counted in cycles is told to the cycle, other times within one, and rates within a thousandth.
#[test]
fn whatever_the_parts_take_is_what_is_measured() {
    let optweb = Profile::optweb;
    for profile in [
        optweb(2),
        optweb(3),
        // Signals that are no whole cycles on their way.
        Profile { link_ps: 152_300, ..optweb(2) },
        Profile { link_ps: 701_900, reduce_beat_cycles: 3, reduce_unit_cycles: 20, link_mbps: 12_000, ..optweb(3) },
        Profile { dispatch_cycles: 15, memory_read_cycles: 80, switch_cycles: 25, handover_cycles: 40, ..optweb(2) },
        Profile { channel_mbps: 30_000, link_mbps: 9_000, host_mbps: 50_000, reduce_beat_cycles: 5, ..optweb(4) },
        Profile { cycle_ps: 4_000, link_ps: 99_000, reduce_unit_cycles: 3, ..Profile::optweb_dragonfly(2, 2) },
    ] {
        let calibration = calibrated(&mut run::open(profile.clone()).1);
        let all = measured(&calibration);
        for (name, (stated, measured)) in &all {
            let off = u64::from(stated.abs_diff(*measured));
            let is_right = match name.rsplit('_').next() {
                Some("cycles") => off == 0,
                Some("ps") => off < profile.cycle_ps,
                _ => off * 1000 <= u64::from(*stated),
            };
            assert!(is_right, "{name}: {stated} stated and {measured} measured of {profile:?}");
        }
        // Units that take a beat each cycle are as fast as the pseudo channel behind them.
        let beats = all.contains_key("reduce_beat_cycles");
        assert_eq!((beats, all.len()), (profile.reduce_beat_cycles > 1, 11 + usize::from(beats)));
    }
}

//! Calibrations: of a mock fabric they give what its cards say; of one whose links are slower, or whose parts take longer, what they
//! take, and with them predictions are right again.
#![forbid(unsafe_code)]

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

/// A part of the fabric is measured, and one card alone.
#[test]
fn some_of_the_cards_will_do() {
    for nodes in [vec![1, 3], vec![2]] {
        let fabric = Fabric::new(Profile::optweb(4)).unwrap();
        let domain = fpga_hal::Domain::in_process();
        let attach = |node: &u32| fpga_hal::in_process::attach(fabric.endpoint(*node), &domain, "mock");
        let functions = nodes.iter().map(attach).collect::<Result<_, _>>().unwrap();
        let mut cluster = Cluster::open(functions).unwrap();
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

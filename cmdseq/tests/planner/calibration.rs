//! Linear fits, and the fields of timings.

use cmdseq::calibration::LinearFit;
use cmdseq::capability::{Timing, TimingField};

#[test]
fn a_line_goes_through_points_on_it_and_says_how_far_others_are_off() {
    let line = LinearFit::of(&[(0.0, 10.0), (1.0, 12.0), (2.0, 14.0)]).unwrap();
    assert!((line.start - 10.0).abs() < 1e-9 && (line.slope - 2.0).abs() < 1e-9 && line.residual_percent < 1e-9);
    let bent = LinearFit::of(&[(0.0, 10.0), (1.0, 13.0), (2.0, 10.0)]).unwrap();
    assert!((bent.residual_percent - 100.0 * 2.0 / 13.0).abs() < 1e-9, "{bent:?}");
    assert_eq!(LinearFit::of(&[(1.0, 1.0), (1.0, 2.0)]), None);
    assert_eq!(LinearFit::of(&[]), None);
}

#[test]
fn every_field_of_a_timing_has_a_name_of_its_own() {
    let mut timing = Timing {
        dispatch_cycles: 0,
        memory_read_cycles: 0,
        handover_cycles: 0,
        switch_cycles: 0,
        control_ps: 0,
        data_ps: 0,
        acknowledge_ps: 0,
        hop_ps: 0,
        link_mbps: 0,
        channel_mbps: 0,
        host_mbps: 0,
        beat_bytes: 0,
        reduce_beat_cycles: 0,
        reduce_unit_cycles: 0,
    };
    for (value, field) in (1..).zip(Timing::FIELDS) {
        field.set(&mut timing, value);
    }
    let values: Vec<u32> = Timing::FIELDS.iter().map(|field| field.of(&timing)).collect();
    assert_eq!(values, (1..=14).collect::<Vec<_>>());
    assert_eq!(timing.reduce_unit_cycles, 14);
    assert!(TimingField::named("link_mbps").is_some() && TimingField::named("links").is_none());
}

//! BlueLink fabrics: latency, rate, switching over any cables, bad lines, pulled cables and restarts.

use std::collections::BTreeMap;

use fpga_mock::bluelink::{CHANNELS, Fabric, FabricError, LineConfig, Parameters, Target};
use proptest::prelude::*;

const US: u128 = 1_000_000;
const SECOND: u128 = 1_000_000 * US;
/// From the first turn of both ends until the links carry data.
const START: u128 = 4 * US;

fn target(board: u8, channel: u8) -> Target {
    Target { board, channel }
}

fn pair(parameters: Parameters) -> Fabric {
    let mut fabric = Fabric::new(parameters, 2, &[(0, 1)]).unwrap();
    fabric.run_until(START).unwrap();
    assert!(fabric.is_up());
    fabric
}

/// Sends `flits` flits as fast as they are accepted, and returns the time from the first arrival to the last.
fn stream(fabric: &mut Fabric, flits: u64) -> u128 {
    let (mut sent, mut received, mut first, mut last) = (0, 0, 0, 0);
    while received < flits {
        if sent < flits && fabric.try_send(0, target(1, 0), sent).unwrap() {
            sent += 1;
        }
        if let Some(payload) = fabric.try_receive(target(1, 0)).unwrap() {
            assert_eq!(payload, received);
            last = fabric.now();
            first = if received == 0 { last } else { first };
            received += 1;
        }
        fabric.run_cycles(0, 1).unwrap();
    }
    last - first
}

#[test]
fn an_idle_link_adds_few_cycles() {
    let mut fabric = pair(Parameters::published());
    let begin = fabric.cycle(0).unwrap();
    assert!(fabric.try_send(0, target(1, 0), 7).unwrap());
    assert_eq!(fabric.receive(target(1, 0), US).unwrap(), Some(7));
    // Switch 1, CRC 1, crossing 2, four words, 5 on the line, crossing 2, CRC 1, switch 1, FIFO 1.
    assert_eq!(fabric.cycle(1).unwrap() - begin, 18);
}

#[test]
fn the_window_fills_a_short_line_and_not_a_long_one() {
    // A flit is four words of 4 ns.
    let time = stream(&mut pair(Parameters::published()), 2_001);
    assert_eq!(time / 2_000, 16_000);
    // Half a microsecond of cable: a window in two of them and the rest of the round trip.
    let line = LineConfig { latency_ps: 520_000, ..Parameters::published().line };
    let long = Parameters { line, timeout_cycles: 600, ..Parameters::published() };
    let time = stream(&mut pair(long), 2_001);
    assert!((140_000..145_000).contains(&(time / 2_000)), "{}", time / 2_000);
}

#[test]
fn a_blocked_receiver_waits_while_the_cable_is_out() {
    let mut fabric = pair(Parameters::published());
    fabric.unplug(0, START).unwrap();
    fabric.run_until(START + US).unwrap();
    assert!(fabric.try_send(0, target(1, 3), 5).unwrap());
    fabric.plug(0, 3 * SECOND).unwrap();
    // Blocked for two seconds, and then the flit is there.
    assert_eq!(fabric.receive(target(1, 3), 2 * SECOND).unwrap(), None);
    assert_eq!(fabric.receive(target(1, 3), 2 * SECOND).unwrap(), Some(5));
    let locked = 3 * SECOND + u128::from(Parameters::published().lock_ps);
    assert!((locked..locked + US).contains(&fabric.now()));
}

/// Transceivers without a signal are silent, and lock once the cable was in for long enough.
#[test]
fn a_cable_that_is_pulled_while_it_locks_locks_anew() {
    let lock = u128::from(Parameters::published().lock_ps);
    let mut fabric = pair(Parameters::published());
    fabric.unplug(0, START).unwrap();
    fabric.run_until(START + US).unwrap();
    assert!(fabric.try_send(0, target(1, 0), 1).unwrap());
    for (plugged, pulled) in [(2 * US, 2 * US + lock / 2), (2 * US + 3 * lock / 4, 4 * US), (5 * US, 9 * US)] {
        fabric.plug(0, START + plugged).unwrap();
        fabric.unplug(0, START + pulled).unwrap();
    }
    // The second time it is in from 2.75 to 4 us, and locks after one.
    assert_eq!(fabric.receive(target(1, 0), 9 * US).unwrap(), Some(1));
    let locked = START + 2 * US + 3 * lock / 4 + lock;
    assert!((locked..locked + US / 2).contains(&fabric.now()), "{}", fabric.now());
    assert_eq!(fabric.line_faults(), (0, 0));
}

#[test]
fn flits_in_the_air_when_a_cable_is_pulled_arrive_once() {
    for pulled_at in (0..400).map(|step| START + step * 1_700) {
        let mut fabric = pair(Parameters::published());
        fabric.unplug(0, pulled_at).unwrap();
        fabric.plug(0, pulled_at + 5 * US).unwrap();
        let (mut sent, mut received) = (0, 0);
        while received < 40 {
            sent += u64::from(sent < 40 && fabric.try_send(0, target(1, 0), sent).unwrap());
            if let Some(payload) = fabric.try_receive(target(1, 0)).unwrap() {
                assert_eq!(payload, received);
                received += 1;
            }
            fabric.run_cycles(0, 1).unwrap();
            assert!(fabric.now() < 100 * US, "stuck after {received}, pulled at {pulled_at}");
        }
        assert_eq!(fabric.receive(target(1, 0), 10 * US).unwrap(), None);
    }
}

#[test]
fn a_restarted_board_is_reported_and_the_link_carries_data_again() {
    let mut fabric = pair(Parameters::published());
    fabric.unplug(0, START).unwrap();
    for payload in 0..5 {
        assert!(fabric.send(0, target(1, 0), payload, US).unwrap());
    }
    fabric.restart(1, fabric.now()).unwrap();
    fabric.plug(0, fabric.now()).unwrap();
    fabric.run_until(20 * US).unwrap();
    // Board 0 sends them before it hears of the restart, and board 1 discards them: they could be older than the restart.
    assert_eq!(fabric.statistics(0).unwrap().written_off, 5);
    assert_eq!(fabric.try_receive(target(1, 0)).unwrap(), None);
    assert!(fabric.try_send(1, target(0, 0), 6).unwrap());
    assert_eq!(fabric.receive(target(0, 0), US).unwrap(), Some(6));
}

#[test]
fn shapes_that_cannot_be_are_refused() {
    let build = |boards, cables: &[(usize, usize)]| Fabric::<u64>::new(Parameters::published(), boards, cables).err();
    assert_eq!(build(0, &[]), Some(FabricError::Boards { boards: 0 }));
    assert_eq!(build(257, &[]), Some(FabricError::Boards { boards: 257 }));
    assert_eq!(build(2, &[(0, 2)]), Some(FabricError::Cable { from: 0, to: 2, boards: 2 }));
    assert_eq!(build(2, &[(1, 1)]), Some(FabricError::Cable { from: 1, to: 1, boards: 2 }));
    assert_eq!(build(3, &[(0, 1)]), Some(FabricError::CutOff { board: 2 }));
    assert_eq!(build(2, &[(0, 1); 49]), Some(FabricError::Ports { board: 0, cables: 49 }));
    let mut fabric = pair(Parameters::published());
    assert!(matches!(
        fabric.try_send(0, target(2, 0), 0),
        Err(FabricError::Unknown { what: "board", number: 2, count: 2 })
    ));
    assert!(matches!(fabric.try_receive(target(0, 16)), Err(FabricError::Unknown { what: "channel", .. })));
    assert!(matches!(fabric.unplug(1, 0), Err(FabricError::Unknown { what: "cable", .. })));
}

/// Cables of well-known shapes.
fn shapes() -> impl Strategy<Value = (usize, Vec<(usize, usize)>)> {
    let line = (2..6usize).prop_map(|boards| (boards, (1..boards).map(|board| (board - 1, board)).collect()));
    let ring =
        (3..8usize).prop_map(|boards| (boards, (0..boards).map(|board| (board, (board + 1) % boards)).collect()));
    let full = (2..6usize)
        .prop_map(|boards| (boards, (0..boards).flat_map(|one| (0..one).map(move |other| (one, other))).collect()));
    let tree = (2..10usize).prop_map(|boards| (boards, (1..boards).map(|board| ((board - 1) / 2, board)).collect()));
    let torus = Just({
        let place = |x: usize, y: usize| x % 3 * 3 + y % 3;
        let cell = |cell: usize| [(cell / 3 + 1, cell % 3), (cell / 3, cell % 3 + 1)].map(|(x, y)| (cell, place(x, y)));
        (9, (0..9).flat_map(cell).collect())
    });
    prop_oneof![line, ring, full, tree, torus]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Between any two boards of any shape, on bad lines with flapping cables: all flits arrive once and in order.
    #[test]
    fn all_arrives_over_any_cables(
        (boards, cables) in shapes(),
        flows in prop::collection::vec((0..100usize, 0..100usize, 0..CHANNELS as u8, 1..60u64), 1..12),
        error_exponent in 3..7i32, loss_rate in prop_oneof![Just(0.0), Just(0.01)],
        flaps in prop::collection::vec((0..100usize, 1..60u128, 1..30u128), 0..6),
        taking_percent in 10..100u64, seed in any::<u64>(),
    ) {
        let line = LineConfig {
            bit_error_rate: 10_f64.powi(-error_exponent), loss_rate, ..Parameters::published().line
        };
        let mut fabric: Fabric = Fabric::new(Parameters { line, seed, ..Parameters::published() }, boards, &cables).unwrap();
        for (cable, at, length) in flaps {
            fabric.unplug(cable % cables.len(), at * US).unwrap();
            fabric.plug(cable % cables.len(), (at + length) * US).unwrap();
        }
        // One flow for each pair of boards and channel, so that its order is defined.
        let mut left: BTreeMap<(usize, Target), (u64, u64)> = BTreeMap::new();
        for (from, to, channel, flits) in flows {
            left.insert((from % boards, target((to % boards) as u8, channel)), (0, flits));
        }
        let mut expected: BTreeMap<(usize, Target), u64> = left.keys().map(|flow| (*flow, 0)).collect();
        let total: u64 = left.values().map(|flow| flow.1).sum();
        let (mut received, mut dice) = (0, seed | 1);
        while received < total {
            for ((from, to), (next, most)) in &mut left {
                if next < most && fabric.try_send(*from, *to, (*from as u64) << 32 | *next).unwrap() {
                    *next += 1;
                }
            }
            for board in 0..boards as u8 {
                for channel in 0..CHANNELS as u8 {
                    dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    if (dice >> 33) % 100 >= taking_percent {
                        continue;
                    }
                    if let Some(payload) = fabric.try_receive(target(board, channel)).unwrap() {
                        let next = expected.get_mut(&((payload >> 32) as usize, target(board, channel))).unwrap();
                        prop_assert_eq!(*next, payload & 0xffff_ffff);
                        *next += 1;
                        received += 1;
                    }
                }
            }
            fabric.run_cycles(0, 3).unwrap();
            prop_assert!(fabric.now() < 20_000 * US, "{} of {} arrived", received, total);
        }
        for (flow, (sent, _)) in &left {
            prop_assert_eq!(expected[flow], *sent);
        }
    }
}

/// The same seed gives the same events; another seed does not.
#[test]
fn a_fabric_repeats_itself() {
    let run = |seed| {
        let line = LineConfig { bit_error_rate: 1e-3, loss_rate: 1e-3, ..Parameters::published().line };
        let mut fabric = pair(Parameters { line, seed, ..Parameters::published() });
        let time = stream(&mut fabric, 500);
        (time, fabric.line_faults(), fabric.statistics(0).unwrap(), fabric.statistics(1).unwrap())
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

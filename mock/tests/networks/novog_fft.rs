//! 3-D FFTs on mock cards of Novo-G#: results are those of a direct transform, whatever the timing, and a lost packet is found.

use cmdseq::routing::{FftAxis, FftMapping, Torus3, VerifyError};
use fpga_mock::noise::Dice;
use fpga_mock::novog::{
    Complex32, Fft3d, FftCores, FftError, FftOutcome, FftStall, Garbled, LoadError, Profile, Sampling,
};
use proptest::prelude::*;

use super::direct_transform::{Point, bound, distance};

fn mapping(side: u32, cards: u32) -> FftMapping {
    FftMapping::new(side, Torus3::new([cards; 3]).unwrap()).unwrap()
}

fn fft(side: u32, cards: u32) -> Fft3d {
    Fft3d::new(Profile::fft(), FftCores::published(), mapping(side, cards)).unwrap()
}

/// Numbers from -1 to 1.
fn random(side: u32, seed: u64) -> Vec<Complex32> {
    let mut dice = Dice::new(seed);
    let mut number = || (dice.roll() >> 40) as f32 / (1 << 23) as f32 - 1.0;
    (0..side.pow(3)).map(|_| Complex32 { re: number(), im: number() }).collect()
}

fn points(values: &[Complex32]) -> Vec<Point> {
    values.iter().map(|one| (one.re.into(), one.im.into())).collect()
}

#[test]
fn results_are_those_of_a_direct_transform() {
    // Both cases of the mapping: side >= cards * cards, and less.
    for (side, cards) in [(16, 2), (16, 4), (32, 2), (32, 4), (32, 8), (64, 4)] {
        let input = random(side, u64::from(side + cards));
        let outcome = fft(side, cards).run(&input).unwrap();
        let off = distance(side as usize, points(&input), &points(&outcome.output));
        let most = bound(side);
        assert!(off < most, "{side} on {cards}: {off} of {most}");
        assert!(off > 0.0, "single precision rounds");
        for turn in &outcome.turns {
            assert_eq!(turn.seen, turn.expected, "{side} on {cards}: {}", turn.name());
            assert!(turn.expected.iter().all(|packets| *packets > 0));
        }
    }
}

#[test]
fn a_line_takes_its_length_twice_and_lines_follow_without_a_gap() {
    for (count, rounds) in [(32, 1), (16, 2), (5, 7), (1, 32)] {
        let cores = FftCores { hertz: 100_000_000, count };
        let fft = Fft3d::new(Profile::fft(), cores, mapping(16, 2)).unwrap();
        let FftOutcome { phases, time_ps, .. } = fft.run(&random(16, 1)).unwrap();
        // A card has 32 lines. The last result of the last round comes 16 cycles of 10 ns after its last point.
        assert_eq!((phases[0].axis, phases[0].begin_ps), (FftAxis::X, 0));
        assert_eq!(phases[0].end_ps, (rounds + 1) * 16 * 10_000, "{count} cores");
        assert_eq!(time_ps, phases[2].end_ps);
    }
}

fn stall(fft: &mut Fft3d, side: u32, garbled: Garbled) -> FftStall {
    fft.garble(garbled);
    match fft.run(&random(side, 3)) {
        Err(FftError::Stalled(stall)) => *stall,
        other => panic!("{garbled:?}: {other:?}"),
    }
}

#[test]
fn a_lost_packet_is_named_by_card_and_corner_turn() {
    let torus = Torus3::new([4; 3]).unwrap();
    // With 64 points on 4 cards a side, only XY uses links along Y, and only YZ those along X and Z.
    for (to, after, turn) in
        [([1, 2, 3], FftAxis::X, "XY"), ([2, 1, 3], FftAxis::Y, "YZ"), ([1, 1, 0], FftAxis::Y, "YZ")]
    {
        let [from, to] = [[1, 1, 3], to].map(|place| torus.node(place));
        for packets in [0, 1, 100] {
            let mut fft = fft(64, 4);
            let stall = stall(&mut fft, 64, Garbled { from, to, after: packets });
            assert_eq!((stall.after, stall.cards.len(), stall.garbled, stall.lost), (after, 1, 1, 0), "{stall}");
            let card = &stall.cards[0];
            assert_eq!(card.seen + 1, card.expected);
            // One packet of one card has at most three points.
            let [(source, points)] = card.points.iter().collect::<Vec<_>>()[..] else { panic!("{stall}") };
            assert!((1..=3).contains(points) && *source != card.node);
            let distance = |one: u32, other: u32| torus.distance(one, other);
            assert_eq!(distance(*source, from) + 1 + distance(to, card.node), distance(*source, card.node), "{stall}");
            let text = stall.to_string();
            for part in [&format!("in the {turn} corner turn: card {} got", card.node), &format!("of card {source}")] {
                assert!(text.contains(part.as_str()), "{text}");
            }
        }
    }
}

#[test]
fn a_link_that_carries_nothing_after_the_error_loses_nothing() {
    let mut fft = fft(16, 2);
    fft.garble(Garbled { from: 0, to: 1, after: u64::MAX });
    fft.run(&random(16, 1)).unwrap();
    fft.garble(Garbled { from: 0, to: 0, after: 0 });
    fft.run(&random(16, 1)).unwrap();
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_loaded() {
    let refused = |profile, hertz, count, side, cards| {
        Fft3d::new(profile, FftCores { hertz, count }, mapping(side, cards)).unwrap_err()
    };
    for count in [0, 42, u32::MAX] {
        let error = refused(Profile::fft(), 1, count, 64, 4);
        assert_eq!(error, FftError::Cores { side: 64, cores: count, most: 41 });
    }
    assert_eq!(refused(Profile::fft(), 0, 1, 64, 4), FftError::Clock);
    let error = refused(Profile::fft(), 1, 1, 128, 2);
    assert!(matches!(error, FftError::Load(LoadError::Tables(VerifyError::Overflow { .. }))), "{error}");
    let error = fft(16, 2).run(&random(32, 1)).unwrap_err();
    assert_eq!(error, FftError::Input { points: 32_768, expected: 4_096 });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn timing_does_not_change_a_bit(
        (side, cards) in prop::sample::select(vec![(16, 2), (16, 4), (32, 2), (32, 4), (32, 8)]),
        count in 1_u32..=31,
        hertz in 20_000_000_u64..=400_000_000,
        sampling in prop::sample::select(vec![Sampling::Fixed, Sampling::PerPacket, Sampling::PerLinkUp]),
        seed in any::<u64>(),
    ) {
        let input = random(side, seed);
        let expected = fft(side, cards).run(&input).unwrap().output;
        let profile = Profile { sampling, seed, ..Profile::fft() };
        let fft = Fft3d::new(profile, FftCores { hertz, count }, mapping(side, cards)).unwrap();
        let outcome = fft.run(&input).unwrap();
        prop_assert!(outcome.output == expected);
        prop_assert!(outcome.turns.iter().all(|turn| turn.seen == turn.expected));
        prop_assert_eq!(outcome.hops, fft.report().hops);
        prop_assert!(outcome.depth_max as u64 <= fft.report().link_packets_max);
        // The same again takes the same time.
        prop_assert_eq!(fft.run(&input).unwrap(), outcome);
    }
}

//! Many flits over bad lines, both ways: nothing lost, doubled, reordered or wrong.
//!
//! `FPGA_TESTS_FULL=1 cargo test --release -p fpga-mock --test networks bluelink_soak:: -- --nocapture` delivers 10^9 flits at each bit
//! error rate; `FPGA_SOAK_FLITS` sets another number.

use std::time::Instant;

use fpga_mock::bluelink::{Address, Datum, End, EndConfig, Flit, FlitError, Session};
use fpga_mock::noise::{BitErrors, Dice, Failures};

/// Turns from one end to the other: with the way back two more than a window, so that the window is used to its end.
const DELAY: usize = 5;
const LOSS_RATE: f64 = 1e-5;
/// A cable is pulled once in so many turns.
const FLAP_RATE: f64 = 2e-6;
/// Longest time without a cable, in turns.
const UNPLUGGED_MOST: u64 = 500;
/// A receiver stops taking once in so many turns.
const STALL_RATE: f64 = 1e-5;
const STALL_MOST: u64 = 200;

/// One direction: what its sender puts on the line, and what its receiver must get.
struct Direction {
    line: [Option<[u8; 16]>; DELAY],
    errors: BitErrors,
    losses: Failures,
    stalls: Failures,
    stalled_until: u64,
    sent: u64,
    arrived: u64,
    damaged: u64,
}

/// The payload with this number; a multiplication by an odd constant maps no two numbers to one payload.
fn datum(number: u64) -> Datum {
    let payload = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Datum { address: Address::new((payload >> 52) as u16).unwrap(), payload }
}

struct Outcome {
    arrived: u64,
    damaged: u64,
    flaps: u64,
    turns: u64,
}

/// Delivers `flits` flits in both directions together.
fn soak(rate: f64, flits: u64) -> Outcome {
    let config = EndConfig { timeout: 16, input: 4, receive_buffer: 24 };
    let mut ends = [1, 2].map(|session| End::new(config, Session::new(session).unwrap()));
    let mut directions = [11, 12].map(|seed| Direction {
        line: [None; DELAY],
        errors: BitErrors::new(rate, seed),
        losses: Failures::new(LOSS_RATE, seed + 10),
        stalls: Failures::new(STALL_RATE, seed + 20),
        stalled_until: 0,
        sent: 0,
        arrived: 0,
        damaged: 0,
    });
    let (mut pulls, mut dice) = (Failures::new(FLAP_RATE, 9), Dice::new(10));
    let (mut now, mut plugged_at, mut flaps) = (0_u64, 0, 0);
    let mut progress = Progress::new(rate, flits);
    while directions.iter().map(|direction| direction.arrived).sum::<u64>() < flits {
        now += 1;
        if pulls.first_within(1).is_some() {
            (plugged_at, flaps) = (now + dice.roll() % UNPLUGGED_MOST, flaps + 1);
            directions.iter_mut().for_each(|direction| direction.line = [None; DELAY]);
        }
        for (side, direction) in directions.iter_mut().enumerate() {
            if ends[side].send(datum(direction.sent)).is_ok() {
                direction.sent += 1;
            }
            let place = &mut direction.line[now as usize % DELAY];
            let arriving = place.take();
            *place = ends[side].transmit(now).filter(|_| now >= plugged_at).and_then(|flit| {
                let mut wire = flit.encode();
                direction.errors.pass(&mut wire);
                direction.losses.first_within(1).is_none().then_some(wire)
            });
            let receiver = &mut ends[1 - side];
            match arriving.as_ref().map(Flit::decode) {
                Some(Ok(flit)) => drop(receiver.receive(now, flit).expect("both ends follow the protocol")),
                Some(Err(FlitError::Damaged(_))) => direction.damaged += 1,
                Some(Err(FlitError::Violation(violation))) => panic!("after {now} turns: {violation}"),
                None => {}
            }
            if direction.stalls.first_within(1).is_some() {
                direction.stalled_until = now + dice.roll() % STALL_MOST;
            }
            if now >= direction.stalled_until
                && let Some(received) = receiver.take()
            {
                assert_eq!(received, datum(direction.arrived), "flit {} after {now} turns", direction.arrived);
                direction.arrived += 1;
            }
        }
        progress.show(now, &directions);
    }
    let sum = |of: fn(&Direction) -> u64| directions.iter().map(of).sum();
    Outcome { arrived: sum(|one| one.arrived), damaged: sum(|one| one.damaged), flaps, turns: now }
}

/// Prints a line now and then.
struct Progress {
    rate: f64,
    flits: u64,
    begin: Instant,
}

impl Progress {
    const TURNS: u64 = 1 << 25;

    fn new(rate: f64, flits: u64) -> Self {
        Progress { rate, flits, begin: Instant::now() }
    }

    fn show(&mut self, now: u64, directions: &[Direction; 2]) {
        if now.is_multiple_of(Self::TURNS) {
            let arrived = directions[0].arrived + directions[1].arrived;
            let seconds = self.begin.elapsed().as_secs_f64();
            let (rate, flits) = (self.rate, self.flits);
            println!("bit error rate {rate:e}: {arrived} of {flits} flits, {:.1} M/s", arrived as f64 / seconds / 1e6);
        }
    }
}

#[test]
fn all_flits_arrive_once_in_order_and_unchanged() {
    let is_full = std::env::var_os("FPGA_TESTS_FULL").is_some_and(|value| value != "0");
    let given = std::env::var("FPGA_SOAK_FLITS").ok().map(|flits| flits.parse().expect("FPGA_SOAK_FLITS is a number"));
    let flits = given.unwrap_or(if is_full { 1_000_000_000 } else { 2_000_000 });
    for rate in [0.0, 1e-9, 1e-6, 1e-4] {
        let outcome = soak(rate, flits);
        let Outcome { arrived, damaged, flaps, turns } = outcome;
        println!("bit error rate {rate:e}: {arrived} flits in {turns} turns, {damaged} damaged, {flaps} flaps");
        assert!(arrived >= flits && flaps > 0);
        // Errors were there: 128 bits a flit, and at least as many flits as arrived.
        let expected = rate * 128.0 * arrived as f64;
        assert!(damaged as f64 >= 0.8 * expected - 20.0, "{damaged} damaged, at least {expected} expected");
    }
}

//! A million malformed completions, statuses and registers: no panic, no hang, and no memory released early.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cmdseq::{Instruction, Operand};
use fpga_driver::{Bound, Card, Error, State, Token};
use fpga_hal::endpoint::Endpoint;
use fpga_hal::{Domain, Function, in_process};

use crate::hostile::{Hostile, Random};

/// What no single call may take on any machine.
const BOUND: Duration = Duration::from_secs(60);
const DEPTH: u32 = 8;
const SEED: u64 = 8;

fn seed() -> u64 {
    match std::env::var("PROPTEST_RNG_SEED") {
        Ok(seed) => seed.parse().unwrap_or_else(|_| panic!("PROPTEST_RNG_SEED={seed} is not a number")),
        Err(_) => SEED,
    }
}

fn total() -> u64 {
    if std::env::var_os("FPGA_TESTS_FULL").is_some_and(|value| value != "0") { 1_000_000 } else { 20_000 }
}

fn function(card: &Arc<Hostile>) -> Function {
    in_process::attach(Arc::clone(card) as Arc<dyn Endpoint>, &Domain::in_process(), "hostile").unwrap()
}

/// What a caller does, and everything that came of it.
struct Caller {
    random: Random,
    card: Card,
    tokens: VecDeque<Token>,
    canary: u64,
}

impl Caller {
    fn copy(&mut self) -> Result<Bound, Error> {
        let buffer = self.card.allocate(64)?;
        self.canary += 1;
        buffer.write(0, &self.canary.to_le_bytes()).unwrap();
        let copy = Instruction::copy(Operand::card(0), Operand::host(buffer.iova().0), 8);
        Ok(Bound::from(copy).holding(buffer))
    }

    /// One call.
    fn act(&mut self) -> Result<(), Error> {
        match self.random.below(40) {
            0..=14 => {
                let bound = if self.random.one_in(3) { Instruction::nop().into() } else { self.copy()? };
                self.tokens.push_back(self.card.queue_mut().push(bound)?);
            }
            15..=19 => self.card.queue_mut().ring()?,
            20..=23 => drop(self.card.queue_mut().poll()?),
            24 | 25 => {
                if let Some(token) = self.tokens.front() {
                    self.card.queue_mut().test(token)?;
                }
            }
            26..=29 => {
                let timeout = Duration::from_micros(self.random.below(60));
                if let Some(token) = self.tokens.front() {
                    self.card.wait(token, timeout)?;
                }
            }
            30..=33 => drop(self.tokens.pop_front()),
            34 => {
                let bounds = [self.copy()?, self.copy()?];
                self.card.run(bounds, Duration::from_micros(50))?;
            }
            35 => drop(self.card.sequencer_state()?),
            36 => drop(self.card.cycles()?),
            37 => self.card.queue_mut().wait_progress(Duration::from_micros(30)).map(drop)?,
            38 => self.card.abort()?,
            _ => self.card.reset()?,
        }
        Ok(())
    }
}

#[test]
fn malformed_answers_are_errors_and_no_more() {
    let seed = seed();
    println!("seed {seed}");
    let card = Hostile::new(DEPTH, seed);
    let mut caller = Caller {
        random: Random(!seed),
        card: Card::open(function(&card)).unwrap(),
        tokens: VecDeque::new(),
        canary: 0,
    };
    let mut calls = 0_u64;
    let mut refused = 0_u64;
    while card.malformed() < total() {
        card.set_calm(false);
        if caller.random.one_in(5000) {
            card.set_gone(true);
        }
        let was = caller.card.state();
        let began = Instant::now();
        let outcome = caller.act();
        assert!(began.elapsed() < BOUND, "a call of {:?}, which gave {outcome:?}", began.elapsed());
        card.check_memory();
        calls += 1;
        if outcome.is_err() {
            refused += 1;
        }
        if was != State::Running && caller.card.state() == was {
            assert!(caller.card.queue_mut().push(Instruction::nop()).is_err(), "{was}");
        }
        card.set_gone(false);
        // Whatever was done to it, a card that behaves again can be used.
        if outcome.is_err() && caller.random.one_in(4) {
            card.set_calm(true);
            if caller.card.state() != State::Running || caller.random.one_in(2) {
                caller.card.reset().unwrap();
            }
            card.check_memory();
            caller.tokens.clear();
        }
        if caller.random.one_in(200) {
            card.set_calm(true);
            caller.card.reset().unwrap();
            caller.tokens.clear();
            let bound = caller.copy().unwrap();
            caller.card.run([bound], BOUND).unwrap();
        }
    }
    assert!(refused > 0 && calls > refused);
    println!("{} malformed words in {calls} calls, of which {refused} were refused", card.malformed());
    drop(caller);
    card.forget();
}

#[test]
fn malformed_cards_are_opened_with_checked_capabilities_or_not_at_all() {
    let seed = seed();
    let mut random = Random(seed);
    let rounds = total() / 50;
    let mut opened = 0_u64;
    for round in 0..rounds {
        let card = Hostile::new(DEPTH, random.next());
        // Two capabilities of any value, beside those that are.
        for _ in 0..2 {
            let (offset, value) = (0x20 + 4 * random.below(41) as u32, random.word());
            card.set_register(offset, value);
        }
        card.set_calm(!random.one_in(4));
        let began = Instant::now();
        let outcome = Card::open(function(&card));
        assert!(began.elapsed() < BOUND, "round {round}: {outcome:?}");
        let Ok(mut held) = outcome else { continue };
        opened += 1;
        let capabilities = held.capabilities();
        assert!(held.node() < capabilities.nodes && capabilities.nodes <= 1 << 16, "round {round}");
        assert!((1..=10_000_000).contains(&capabilities.clock_khz), "round {round}");
        assert!(capabilities.queue_depth_max.is_power_of_two() && capabilities.queue_depth_max >= 2);
        assert!(held.queue().depth() <= 1024 && capabilities.memory_bytes <= 1 << 44);
        card.set_calm(true);
        held.run([Instruction::nop()], BOUND).unwrap();
    }
    assert!(opened > rounds / 20 && opened < rounds, "{opened} of {rounds} were opened");
}

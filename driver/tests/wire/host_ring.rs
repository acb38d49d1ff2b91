//! What only rings in host memory do.

use std::sync::Arc;
use std::time::Duration;

use cmdseq::{Instruction, Operand, Status};
use fpga_driver::{Bound, Error, State};
use fpga_fake::{BLOCK, Fake, Reply};

use crate::cards::Open as _;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn an_abort_after_a_wrong_completion_makes_the_rings_anew() {
    let fake = Fake::new(4);
    let mut card = fake.open().unwrap();
    let ring = |fake: &Fake| fake.state().registers[&(BLOCK + 0x408)];
    let before = ring(&fake);
    fake.plant(0, Reply::WrongTag);
    let buffer = card.allocate(4096).unwrap();
    let seen = Arc::downgrade(&buffer);
    let copy = Instruction::copy(Operand::card(0), Operand::host(buffer.iova().0), 4096);
    let bound = Bound::from(copy).holding(buffer);
    let token = card.queue_mut().submit(bound).unwrap();
    let error = card.queue_mut().wait(&token, SECOND).unwrap_err();
    assert!(matches!(error, Error::BadCompletion { .. }), "{error}");
    assert_eq!(card.state(), State::Poisoned);
    assert!(seen.upgrade().is_some());
    fake.state().script.clear();
    card.abort().unwrap();
    assert_ne!(ring(&fake), before, "the card may still write to the old one");
    assert!(seen.upgrade().is_none());
    assert_eq!(card.queue_mut().wait(&token, SECOND).unwrap().status, Status::Aborted);
    // After an abort of a queue that was not poisoned, the rings are the same.
    let before = ring(&fake);
    card.abort().unwrap();
    assert_eq!(ring(&fake), before);
    card.run([Instruction::nop(); 9], SECOND).unwrap();
}

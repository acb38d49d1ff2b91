use std::collections::VecDeque;

use fpga_hal::Domain;
use proptest::prelude::*;

use super::*;

const DEPTH: u32 = 4;

fn running(at: u32) -> Ledger {
    let mut ledger = Ledger::new(DEPTH);
    ledger.restart();
    (ledger.pushed, ledger.rung, ledger.taken, ledger.announced) = (at, at, at, at);
    ledger.freed = at.wrapping_add(2 * DEPTH);
    ledger
}

fn push(ledger: &mut Ledger, held: Held) -> Token {
    let entry = enter(ledger, held);
    ledger.token(entry)
}

fn enter(ledger: &mut Ledger, held: Held) -> Entry {
    assert!(ledger.has_credit() || ledger.has_room());
    let entry = ledger.push(&Instruction::nop());
    ledger.hold(held);
    entry
}

fn done(tag: u16) -> Completion {
    Completion { status: Status::Done, ..aborted(tag) }
}

#[test]
fn what_the_card_could_not_be_told_of_is_taken_back() {
    let buffer = Domain::in_process().allocate(64, 64).unwrap();
    for at in [0, 3, u32::MAX] {
        let mut ledger = running(at);
        let first = push(&mut ledger, Held::None);
        for _ in 0..20 {
            let entry = enter(&mut ledger, Held::One(Arc::clone(&buffer)));
            assert_eq!(Arc::strong_count(&buffer), 2);
            ledger.take_back(entry);
            assert_eq!((ledger.in_flight(), Arc::strong_count(&buffer)), (1, 1));
        }
        // What was stored before stays stored, and what is stored next has the same place and tag.
        let second = push(&mut ledger, Held::None);
        assert_eq!(second.tag(), (at as u16).wrapping_add(1));
        ledger.set_rung(ledger.pushed());
        ledger.complete(done(first.tag())).unwrap();
        ledger.complete(done(second.tag())).unwrap();
        assert_eq!(ledger.take(first).unwrap().unwrap().status, Status::Done);
        assert!(ledger.result(&second).unwrap().is_some());
    }
}

#[test]
fn memory_goes_with_its_completion_or_a_certain_stop() {
    let buffer = Domain::in_process().allocate(64, 64).unwrap();
    let mut ledger = running(0);
    let token = push(&mut ledger, Held::Two([Arc::clone(&buffer), Arc::clone(&buffer)]));
    push(&mut ledger, Held::Many(vec![Arc::clone(&buffer); 3])).abandon();
    ledger.set_rung(ledger.pushed());
    ledger.complete(done(7)).unwrap_err();
    ledger.set_poison(Poison::Failed(String::new()));
    assert_eq!(Arc::strong_count(&buffer), 6);
    ledger.complete(done(0)).unwrap();
    assert_eq!(Arc::strong_count(&buffer), 4);
    ledger.abort_all();
    assert_eq!(Arc::strong_count(&buffer), 1);
    assert_eq!(ledger.result(&token).unwrap().unwrap().status, Status::Done);
}

#[test]
fn memory_of_a_card_that_cannot_be_stopped_is_kept_for_good() {
    let domain = Domain::in_process();
    let [flying, resident] = [0, 1].map(|_| domain.allocate(64, 64).unwrap());
    let mut ledger = running(0);
    push(&mut ledger, Held::One(Arc::clone(&flying))).abandon();
    ledger.set_resident(1, vec![Arc::clone(&resident)]);
    ledger.leak();
    drop(ledger);
    assert_eq!((Arc::strong_count(&flying), Arc::strong_count(&resident)), (2, 2));
}

#[test]
fn what_loads_tables_makes_the_host_forget_them() {
    use cmdseq::Operation::{Launch, Nop, Table as Load};
    let table = cmdseq::Table::packed([64, 64], 1);
    let slots = [0, 1, 2, 0x102, 0x201];
    for (instruction, left) in [
        (Instruction::nop(), slots.to_vec()),
        (Instruction::table(1, 0, 2), vec![0, 2, 0x102, 0x201]),
        (Instruction::table(0x102, 0, 2), vec![0, 1, 2, 0x201]),
        // What a program loads is not known.
        (Instruction::launch(0, [0; 3]), vec![]),
    ] {
        let mut ledger = running(0);
        slots.iter().for_each(|slot| ledger.has_table(*slot, table.clone()));
        let operation = instruction.operation;
        assert!(matches!(operation, Nop | Load | Launch));
        assert!(ledger.has_room());
        let _ = ledger.push(&instruction);
        assert_eq!(ledger.tables().keys().copied().collect::<Vec<_>>(), left, "{operation}");
    }
}

#[test]
fn programs_keep_their_memory_until_another_is_surely_stored() {
    let domain = Domain::in_process();
    let [first, second] = [0, 1].map(|_| domain.allocate(64, 64).unwrap());
    let mut ledger = running(0);
    ledger.keep_resident(3, &[Arc::clone(&first)]);
    ledger.set_resident(3, vec![Arc::clone(&first)]);
    ledger.keep_resident(3, &[Arc::clone(&second)]);
    assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (2, 2), "either may be there");
    ledger.set_resident(3, vec![Arc::clone(&second)]);
    assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (1, 2));
    ledger.abort_all();
    assert_eq!(Arc::strong_count(&second), 2, "an abort leaves programs on the card");
    ledger.forget_card();
    assert_eq!(Arc::strong_count(&second), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Counts keep their order, over the wrap of 32 bits too, and each token gets the completion of its instruction.
    #[test]
    fn any_order_of_calls_keeps_the_counts(start in prop_oneof![Just(0), Just(u32::MAX - 20), any::<u32>()],
                                           calls in prop::collection::vec(0..8u8, 0..200)) {
        let mut ledger = running(start & !(DEPTH - 1));
        let mut tokens = VecDeque::new();
        for call in calls {
            match call {
                0..=2 if ledger.has_room() => tokens.push_back(push(&mut ledger, Held::None)),
                3 => {
                    // The card writes over completions that it does not know to be taken.
                    if ledger.must_announce() {
                        ledger.set_announced();
                    }
                    ledger.set_rung(ledger.pushed());
                }
                4 | 5 if !ledger.is_idle() => {
                    let tag = ledger.taken() as u16;
                    let before = ledger.in_flight();
                    prop_assert!(ledger.complete(done(tag.wrapping_add(1))).is_err());
                    prop_assert_eq!(ledger.in_flight(), before);
                    prop_assert!(ledger.complete(done(tag)).is_ok());
                }
                6 => {
                    let Some(token) = tokens.pop_front() else { continue };
                    let tag = token.tag();
                    match ledger.take(token).unwrap() {
                        Ok(completion) => prop_assert_eq!(completion.tag, tag),
                        Err(token) => tokens.push_front(token),
                    }
                }
                7 => drop(tokens.pop_front()),
                _ => {}
            }
        }
    }
}

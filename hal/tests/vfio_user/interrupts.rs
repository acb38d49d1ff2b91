//! Interrupts of a client: MSI-X, the INTx line, and the request to release the function.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use crate::card;
use crate::raw::*;
use crate::setting::{QUICK, Served, counter, raised, raised_within};

#[test]
fn msix_belongs_to_the_server() {
    let served = Served::new();
    let mut raw = Raw::open(served.path());
    raw.enable();
    let counters: Vec<_> = (0..card::VECTORS).map(|_| counter()).collect();
    for (start, chunk) in (0..).step_by(16).zip(counters.chunks(16)) {
        raw.connect_vectors(start, chunk);
    }
    let raise_all = || {
        for (vector, counter) in (0..).zip(&counters) {
            served.card.raise(vector);
            assert_eq!(raised(counter), 1, "vector {vector}");
        }
    };
    raise_all();
    // A client's writes to MSI-X, as those of a guest's kernel, change nothing.
    raw.write(7, card::MSIX + 2, &[0, 0]);
    raw.write(7, card::MSIX, &[0x11, 0x60, 0, 0]);
    raw.write(7, card::MSIX + 3, &[0xc0]);
    assert_eq!(served.card.msix_control(), 0x8000 | (card::VECTORS - 1));
    raw.write(0, card::TABLE, &vec![0xff; usize::from(card::VECTORS) * 16]);
    raw.write(0, card::TABLE + 8, &[0xff; 8]);
    assert_ne!(raw.read(0, card::TABLE, 16), [0xff; 16]);
    raise_all();
    // The bytes around are written.
    let behind = card::TABLE + u64::from(card::VECTORS) * 16;
    raw.write(0, behind - 8, &[0xab; 16]);
    assert_eq!(raw.read(0, behind, 8), [0xab; 8]);
    assert_eq!(raw.read_u32(0, behind - 4), 0);
    // A reset, by message or by a register, keeps the interrupts.
    raw.write(7, card::EXPRESS + 8, &[0, 0x80]);
    raw.enable();
    raise_all();
    assert_eq!(raw.call(RESET, &[]).errno(), 0);
    assert_eq!(served.card.command(), 0);
    served.card.raise(0);
    assert_eq!(raised_within(&counters[0], QUICK), 0, "not bus master");
    raw.enable();
    raise_all();
    // Disconnects one, then all.
    assert_eq!(raw.call(SET_IRQS, &set_irqs(0x24, 2, 3, 1, &[])).errno(), 0);
    assert!(served.card.is_masked(3) && !served.card.is_masked(2));
    assert_eq!(raw.call(SET_IRQS, &set_irqs(0x21, 2, 0, 0, &[])).errno(), 0);
    assert_eq!(served.card.msix_control() & 0x8000, 0);
}

#[test]
fn msix_is_programmed_while_memory_decoding_is_off() {
    let served = Served::new();
    served.card.needs_decoding.store(true, Ordering::Relaxed);
    let mut raw = Raw::open(served.path());
    let counters: Vec<_> = (0..3).map(|_| counter()).collect();
    let enable_and_raise = |raw: &mut Raw, why: &str| {
        assert_eq!(served.card.command() & 2, 0, "{why}: decoding is as the client has set it");
        raw.enable();
        for (vector, counter) in (0..).zip(&counters) {
            served.card.raise(vector);
            assert_eq!(raised(counter), 1, "{why}: vector {vector}");
        }
    };
    raw.connect_vectors(0, &counters);
    enable_and_raise(&mut raw, "vectors connected before decoding is on");
    assert_eq!(raw.call(RESET, &[]).errno(), 0);
    enable_and_raise(&mut raw, "DEVICE_RESET");
    raw.write(7, card::EXPRESS + 8, &[0, 0x80]);
    enable_and_raise(&mut raw, "function-level reset");
    raw.write(7, 4, &[0, 0]);
    raw.connect_vectors(0, &counters);
    enable_and_raise(&mut raw, "vectors connected again");
}

#[test]
fn interrupts_can_be_triggered_by_the_client() {
    let served = Served::new();
    let mut raw = Raw::open(served.path());
    let trigger = |raw: &mut Raw, flags, index, start, count, data: &[u8]| {
        raw.call(SET_IRQS, &set_irqs(flags, index, start, count, data)).errno()
    };
    assert_eq!(trigger(&mut raw, 0x21, 2, 0, 1, &[]), EINVAL, "nothing is connected");
    let counters = [counter(), counter(), counter()];
    raw.connect_vectors(0, &counters);
    assert_eq!(trigger(&mut raw, 0x21, 2, 0, 3, &[]), 0);
    assert_eq!(counters.each_ref().map(raised), [1, 1, 1]);
    assert_eq!(trigger(&mut raw, 0x22, 2, 0, 3, &[1, 0, 7]), 0);
    assert_eq!((raised(&counters[0]), raised(&counters[2])), (1, 1));
    assert_eq!(raised_within(&counters[1], QUICK), 0);
    assert_eq!(trigger(&mut raw, 0x21, 2, 3, 1, &[]), 0, "a vector without a descriptor");
    assert_eq!(trigger(&mut raw, 0x21, 0, 0, 1, &[]), EINVAL, "INTx is not connected");
    for index in [3, 4] {
        let one = [counters[0].as_fd()];
        assert_eq!(raw.call_with(SET_IRQS, &set_irqs(0x24, index, 0, 1, &[]), &one).errno(), 0);
        assert_eq!(trigger(&mut raw, 0x21, index, 0, 1, &[]), 0);
        assert_eq!(raised(&counters[0]), 1);
        assert_eq!(trigger(&mut raw, 0x21, index, 0, 0, &[]), 0);
        assert_eq!(trigger(&mut raw, 0x21, index, 0, 1, &[]), 0);
        assert_eq!(raised_within(&counters[0], QUICK), 0);
    }
}

#[test]
fn a_client_is_asked_to_release_the_function() {
    let mut served = Served::new();
    let mut raw = Raw::open(served.path());
    let request = counter();
    assert_eq!(raw.call_with(SET_IRQS, &set_irqs(0x24, 4, 0, 1, &[]), &[request.as_fd()]).errno(), 0);
    drop(served.serving.take());
    assert_eq!(raised(&request), 1);
    raw.expect_end();
}

#[test]
fn a_client_that_leaves_by_itself_is_not_asked() {
    let served = Served::new();
    let mut raw = Raw::open(served.path());
    let request = counter();
    assert_eq!(raw.call_with(SET_IRQS, &set_irqs(0x24, 4, 0, 1, &[]), &[request.as_fd()]).errno(), 0);
    drop(raw);
    served.wait_for_end(1);
    assert!(request.read().is_err());
}

#[test]
fn a_level_interrupt_is_raised_once_until_it_is_unmasked() {
    let served = Served::new();
    let mut raw = Raw::open(served.path());
    let line = counter();
    assert_eq!(raw.call_with(SET_IRQS, &set_irqs(0x24, 0, 0, 1, &[]), &[line.as_fd()]).errno(), 0);
    let unmask = set_irqs(0x11, 0, 0, 1, &[]);
    raw.write_u32(0, card::LINE, 1);
    assert_eq!(raised(&line), 1);
    assert_ne!(raw.read(7, 6, 1)[0] & 8, 0, "the status register shows it");
    raw.write_u32(0, card::LINE, 1);
    assert_eq!(raised_within(&line, QUICK), 0, "masked until served");
    // A storm of levels: asserted all the time, and unmasked repeatedly.
    for _ in 0..2000 {
        assert_eq!(raw.call(SET_IRQS, &unmask).errno(), 0);
        assert_eq!(raised(&line), 1);
    }
    raw.write_u32(0, card::LINE, 0);
    assert_eq!(raw.call(SET_IRQS, &unmask).errno(), 0);
    assert_eq!(raised_within(&line, QUICK), 0);
    // A storm of edges, while it is masked.
    assert_eq!(raw.call(SET_IRQS, &set_irqs(0x9, 0, 0, 1, &[])).errno(), 0);
    for level in 0..2000 {
        raw.write_u32(0, card::LINE, level & 1);
    }
    raw.write_u32(0, card::LINE, 1);
    assert_eq!(raw.read_u32(0, card::ID), card::ID_VALUE);
    assert_eq!(raised_within(&line, QUICK), 0);
    assert_eq!(raw.call(SET_IRQS, &set_irqs(0x12, 0, 0, 1, &[1])).errno(), 0);
    assert_eq!(raised(&line), 1);
}

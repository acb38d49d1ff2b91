//! Moving data, by any address and length.

use std::time::Duration;

use cmdseq::{Instruction, Operation};
use fpga_driver::Error;

use crate::cards::Open as _;
use fpga_fake::{Fake, MEMORY_BYTES, Reply};

fn pattern(bytes: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

#[test]
fn any_range_is_written_and_read_back_and_nothing_else() {
    let half = 128 << 10;
    for depth in [2, 64] {
        let fake = Fake::new(depth);
        let mut card = fake.open().unwrap();
        for (address, bytes) in [
            (0, 0),
            (0, 1),
            (0, 64),
            (1, 1),
            (63, 1),
            (63, 2),
            (5, 300),
            (64, half),
            (0, half + 1),
            (7, 3 * half + 100),
            (0, MEMORY_BYTES),
            (MEMORY_BYTES - 1, 1),
            (MEMORY_BYTES, 0),
        ] {
            let mut expected = pattern(MEMORY_BYTES, 5);
            fake.state().memory.copy_from_slice(&expected);
            let data = pattern(bytes, address as u32 + 3);
            expected[address..address + bytes].copy_from_slice(&data);
            card.write_memory(address as u64, &data).unwrap();
            assert!(fake.state().memory == expected, "{bytes} bytes at {address}");
            let mut back = vec![0; bytes];
            card.read_memory(address as u64, &mut back).unwrap();
            assert!(back == data, "{bytes} bytes at {address}");
        }
    }
}

#[test]
fn one_half_is_filled_while_the_other_is_on_its_way() {
    let fake = Fake::new(64);
    let mut card = fake.open().unwrap();
    fake.counts();
    card.write_memory(0, &vec![7; 512 << 10]).unwrap();
    let (reads, writes) = fake.counts();
    assert_eq!(reads, 0);
    assert_eq!(fake.state().ran, [Operation::Copy; 4]);
    assert!(writes <= 4, "a doorbell a chunk, not {writes}");
}

#[test]
fn both_halves_are_on_their_way_together() {
    let fake = Fake::new(64);
    let mut card = fake.open().unwrap();
    card.set_timeout(Duration::from_millis(50));
    fake.plant(1, Reply::Hang);
    fake.counts();
    let arms = fake.state().arms;
    card.write_memory(0, &vec![7; 512 << 10]).unwrap_err();
    let (_, writes) = fake.counts();
    let arms = fake.state().arms - arms;
    // The first half is filled again while the copy from the second hangs.
    assert_eq!(writes - arms, 3 + 1, "three doorbells, and the completion of the first copy is announced");
}

#[test]
fn ranges_outside_of_the_memory_are_refused_before_anything_is_written() {
    let fake = Fake::new(64);
    let mut card = fake.open().unwrap();
    let size = MEMORY_BYTES as u64;
    for (address, bytes) in [(size, 1), (size - 1, 2), (u64::MAX, 2), (0, MEMORY_BYTES + 1)] {
        let mut data = vec![0; bytes];
        assert!(matches!(card.write_memory(address, &data).unwrap_err(), Error::BadArgument { .. }));
        assert!(matches!(card.read_memory(address, &mut data).unwrap_err(), Error::BadArgument { .. }));
        assert!(matches!(card.fill(address, bytes as u64, 0).unwrap_err(), Error::BadArgument { .. }));
    }
    assert!(fake.state().ran.is_empty());
}

#[test]
fn fills() {
    let fake = Fake::new(64);
    let mut card = fake.open().unwrap();
    card.fill(128, 20, 0x0807_0605_0403_0201).unwrap();
    assert_eq!(fake.state().memory[128..149], [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 0]);
    card.fill(64, 0, 1).unwrap();
    assert!(matches!(card.fill(65, 8, 1).unwrap_err(), Error::BadArgument { .. }));
}

#[test]
fn a_copy_that_fails_is_told_and_the_next_works() {
    let fake = Fake::new(64);
    let mut card = fake.open().unwrap();
    fake.plant(1, Reply::Code(11, 0));
    let error = card.write_memory(0, &vec![1; 4 << 20]).unwrap_err();
    assert!(
        matches!(error, Error::Failed { operation: Operation::Copy, status: cmdseq::Status::HostReadFault, .. }),
        "{error}"
    );
    card.write_memory(0, &[3; 100]).unwrap();
    let mut back = [0; 100];
    card.read_memory(0, &mut back).unwrap();
    assert_eq!(back, [3; 100]);
}

#[test]
fn a_copy_that_hangs_keeps_its_memory_and_is_bounded() {
    let fake = Fake::new(64);
    let mut card = fake.open().unwrap();
    card.set_timeout(Duration::from_millis(50));
    fake.plant(0, Reply::Hang);
    let mut data = [0; 64];
    let error = card.read_memory(0, &mut data).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    fake.release();
    card.read_memory(0, &mut data).unwrap();
    card.run([Instruction::nop()], Duration::from_secs(1)).unwrap();
}

#[test]
fn data_goes_through_what_kept_tokens_leave_of_the_queue() {
    let fake = Fake::new(4);
    let mut card = fake.open().unwrap();
    let mut tokens = Vec::new();
    let data = pattern((1 << 20) + 100, 3);
    let mut back = vec![0; data.len()];
    for kept in [7, 8] {
        while tokens.len() < kept {
            let token = card.queue_mut().submit(Instruction::nop()).unwrap();
            card.wait(&token, Duration::from_secs(60)).unwrap();
            tokens.push(token);
        }
        if kept == 7 {
            card.write_memory(7, &data).unwrap();
            card.read_memory(7, &mut back).unwrap();
            assert!(back == data && fake.state().memory[7..7 + data.len()] == data[..]);
        } else {
            let before = fake.state().memory.clone();
            for error in [card.write_memory(64, &data).unwrap_err(), card.read_memory(64, &mut back).unwrap_err()] {
                assert!(matches!(error, Error::Full { in_flight: 0, depth: 4, .. }), "{error}");
            }
            assert!(fake.state().memory == before);
        }
    }
    drop(tokens);
    card.write_memory(64, &data).unwrap();
}

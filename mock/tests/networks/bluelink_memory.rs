//! Packets and remote DMA over BlueLink, against a plain array of bytes.

use fpga_mock::bluelink::{
    Fabric, LineConfig, MemoryError, PACKET_BYTES_MAX, Packet, PacketError, PacketPort, PacketReader, Parameters,
    RemoteMemory, Target,
};
use proptest::prelude::*;

const US: u128 = 1_000_000;
const SECOND: u128 = 1_000_000 * US;
const CPU: Target = Target { board: 0, channel: 1 };
const DRAM: Target = Target { board: 2, channel: 15 };
const BYTES: usize = 20_000;

/// A CPU and a memory with a board between them.
fn fabric(parameters: Parameters, width: usize) -> Fabric {
    let mut fabric = Fabric::new(parameters, 3, &[(0, 1), (1, 2)]).unwrap();
    fabric.add_memory(DRAM, BYTES, width).unwrap();
    fabric
}

/// Words of `width` bytes that a burst touches, and those that it touches in part.
fn words(address: usize, bytes: usize, width: usize) -> (u64, u64) {
    let touched = |word: usize| (address..address + bytes).filter(|byte| byte / width == word).count();
    let counts: Vec<usize> = (0..BYTES / width + 2).map(touched).filter(|count| *count > 0).collect();
    (counts.len() as u64, counts.iter().filter(|count| **count < width).count() as u64)
}

/// The last burst is outside of the memory: nothing of those before it is left.
#[test]
fn a_refused_read_returns_no_data() {
    let mut fabric = fabric(Parameters::published(), 32);
    let mut memory = RemoteMemory::new(CPU, DRAM);
    memory.begin_read(0, BYTES + 1).unwrap();
    assert!(matches!(memory.wait(&mut fabric, SECOND), Err(MemoryError::Refused { .. })));
    assert_eq!(memory.wait(&mut fabric, SECOND), Ok(Some(Vec::new())));
    memory.begin_read(8, 4).unwrap();
    assert_eq!(memory.wait(&mut fabric, SECOND), Ok(Some(vec![0; 4])));
}

/// Somebody else sends to the channel that waits for the memory.
#[test]
fn an_access_goes_on_after_a_packet_from_elsewhere() {
    let mut fabric = fabric(Parameters::published(), 32);
    let mut other = PacketPort::new(Target { board: 1, channel: 0 });
    let mut memory = RemoteMemory::new(CPU, DRAM);
    other.send(CPU, b"not an answer").unwrap();
    assert_eq!((other.wait(&mut fabric, US), other.is_sent()), (Ok(None), true));
    memory.begin_write(8, b"blue").unwrap();
    assert_eq!(memory.wait(&mut fabric, SECOND), Err(MemoryError::Answer { bytes: 13, board: 1 }));
    assert_eq!(memory.begin_read(8, 4), Err(MemoryError::Busy));
    assert_eq!(memory.wait(&mut fabric, SECOND), Ok(Some(Vec::new())));
    memory.begin_read(8, 4).unwrap();
    assert_eq!(memory.wait(&mut fabric, SECOND), Ok(Some(b"blue".to_vec())));
}

/// A memory that answers with other bytes than the protocol has.
#[test]
fn an_invalid_answer_of_the_memory_ends_the_access() {
    let mut fabric = Fabric::new(Parameters::published(), 3, &[(0, 1), (1, 2)]).unwrap();
    let mut answers = PacketPort::new(DRAM);
    let mut memory = RemoteMemory::new(CPU, DRAM);
    for _ in 0..2 {
        memory.begin_read(8, 4).unwrap();
        assert_eq!(memory.wait(&mut fabric, US), Ok(None));
        while answers.poll(&mut fabric).unwrap().is_none() {
            assert_eq!(memory.wait(&mut fabric, US), Ok(None));
        }
        answers.send(CPU, b"odd").unwrap();
        let ended = loop {
            assert_eq!(answers.poll(&mut fabric), Ok(None));
            let ended = memory.wait(&mut fabric, US);
            if ended != Ok(None) {
                break ended;
            }
        };
        assert_eq!(ended, Err(MemoryError::Answer { bytes: 3, board: 2 }));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any accesses to a memory of any word width, on bad lines and with pulled cables: they wait, and do what they should.
    #[test]
    fn a_remote_memory_is_an_array_of_bytes(
        width in 1..70usize,
        accesses in prop::collection::vec((0..BYTES + 40, prop_oneof![0..40usize, 0..9_000usize], any::<bool>()), 1..12),
        error_exponent in 4..8i32, flaps in prop::collection::vec((0..2usize, 1..100u128, 1..30u128), 0..4), seed in any::<u64>(),
    ) {
        let line = LineConfig { bit_error_rate: 10_f64.powi(-error_exponent), loss_rate: 1e-4, ..Parameters::published().line };
        let mut fabric = fabric(Parameters { line, seed, ..Parameters::published() }, width);
        for (cable, at, length) in flaps {
            fabric.unplug(cable, at * US).unwrap();
            fabric.plug(cable, (at + length) * US).unwrap();
        }
        let mut expected = vec![0_u8; BYTES];
        let mut memory = RemoteMemory::new(CPU, DRAM);
        for (number, (address, bytes, is_write)) in accesses.into_iter().enumerate() {
            let data: Vec<u8> = (0..bytes).map(|byte| (byte * 7 + number + 1) as u8).collect();
            if is_write {
                memory.begin_write(address as u64, &data).unwrap();
            } else {
                memory.begin_read(address as u64, bytes).unwrap();
            }
            let result = memory.wait(&mut fabric, SECOND);
            // Bursts before the one that is outside are made.
            let whole = (0..bytes).step_by(4080).map(|start| (start + 4080).min(bytes));
            let done = whole.take_while(|end| address + end <= BYTES).last().unwrap_or(0);
            if done < bytes {
                prop_assert!(matches!(result, Err(MemoryError::Refused { .. })), "{:?}", result);
            } else if is_write {
                prop_assert_eq!(result, Ok(Some(vec![])));
            } else {
                prop_assert_eq!(result, Ok(Some(expected[address.min(BYTES)..][..bytes].to_vec())));
            }
            if is_write && done > 0 {
                expected[address..address + done].copy_from_slice(&data[..done]);
            }
            prop_assert_eq!(fabric.memory(DRAM).unwrap().unwrap().0, &expected[..]);
        }
    }

    /// Bytes are enabled where a burst is no whole word, and nowhere else.
    #[test]
    fn bursts_become_words_of_the_memory(width in 1..70usize, address in 0..1_000usize, bytes in 1..2_000usize) {
        let mut fabric = fabric(Parameters::published(), width);
        let mut memory = RemoteMemory::new(CPU, DRAM);
        memory.begin_write(address as u64, &vec![1; bytes]).unwrap();
        memory.wait(&mut fabric, SECOND).unwrap().unwrap();
        memory.begin_read(address as u64, bytes).unwrap();
        memory.wait(&mut fabric, SECOND).unwrap().unwrap();
        let statistics = fabric.memory(DRAM).unwrap().unwrap().1;
        let (whole, partial) = words(address, bytes, width);
        prop_assert_eq!((statistics.writes, statistics.reads, statistics.partial_writes), (whole, whole, partial));
    }

    #[test]
    fn packets_survive_their_flits(packets in prop::collection::vec((any::<u8>(), 0..16u8, prop::collection::vec(any::<u8>(), 0..100)), 1..10)) {
        let mut reader = PacketReader::default();
        let mut found = Vec::new();
        let packets: Vec<Packet> = packets
            .into_iter()
            .map(|(board, channel, bytes)| Packet { from: Target { board, channel }, bytes })
            .collect();
        for flit in packets.iter().flat_map(|packet| packet.flits().unwrap()) {
            found.extend(reader.push(flit).unwrap());
        }
        prop_assert_eq!(found, packets);
    }

    /// What is no request is counted or refused, and the memory stays as it was.
    #[test]
    fn a_memory_refuses_what_is_no_request(bytes in prop::collection::vec(any::<u8>(), 0..60), header in any::<u64>()) {
        prop_assume!(!(bytes.len() >= 16 && matches!(bytes[0], 1 | 2) && bytes[1..4] == [0; 3]));
        let mut fabric = fabric(Parameters::published(), 8);
        let mut port = PacketPort::new(CPU);
        port.send(DRAM, &bytes).unwrap();
        let answer = port.wait(&mut fabric, SECOND).unwrap().unwrap();
        prop_assert_eq!((answer.from, answer.bytes), (DRAM, vec![0xff, 0, 0, 0, 0, 0, 0, 0]));
        fabric.send(0, DRAM, header | 1 << 63, SECOND).unwrap();
        fabric.run_until(fabric.now() + US).unwrap();
        let (memory, statistics) = fabric.memory(DRAM).unwrap().unwrap();
        prop_assert_eq!(statistics.refused, 2);
        prop_assert!(memory.iter().all(|byte| *byte == 0));
    }
}

/// A CPU runs code from the memory of another board; the cable is pulled, and plugged again (section VI.B.3 of the paper).
#[test]
fn a_blocked_access_goes_on_when_the_cable_is_back() {
    let mut fabric = fabric(Parameters::published(), 32);
    let mut memory = RemoteMemory::new(CPU, DRAM);
    memory.begin_write(0, &[0xa5; 64]).unwrap();
    assert_eq!(memory.wait(&mut fabric, SECOND), Ok(Some(vec![])));
    fabric.unplug(1, fabric.now()).unwrap();
    memory.begin_read(0, 64).unwrap();
    assert_eq!(memory.wait(&mut fabric, 5 * SECOND), Ok(None));
    assert_eq!(memory.begin_read(0, 1), Err(MemoryError::Busy));
    fabric.plug(1, fabric.now()).unwrap();
    assert_eq!(memory.wait(&mut fabric, SECOND), Ok(Some(vec![0xa5; 64])));
}

#[test]
fn packets_that_cannot_be_are_refused() {
    let mut port = PacketPort::new(CPU);
    let long = PACKET_BYTES_MAX + 1;
    assert_eq!(port.send(DRAM, &vec![0; long]), Err(PacketError::Long { bytes: long }));
    port.send(DRAM, &[0; 9]).unwrap();
    assert!(!port.is_sent());
    assert_eq!(port.send(DRAM, &[]), Err(PacketError::Busy { flits: 3 }));
    assert_eq!(PacketReader::default().push(4097), Err(PacketError::Header(4097)));
    assert_eq!(PacketReader::default().push(1 << 28), Err(PacketError::Header(1 << 28)));
}

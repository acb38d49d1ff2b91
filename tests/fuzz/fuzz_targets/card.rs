//! Two cards survive whatever a host does to their registers, configuration space and rings.
#![no_main]

use fpga_hal::{BarIndex, Domain, in_process};
use fpga_mock::{Fabric, Profile};
use libfuzzer_sys::fuzz_target;

const SEQUENCER: u64 = 0x1000;
const QUEUE: u64 = 0x1400;

fuzz_target!(|data: &[u8]| {
    // Little memory, so that an instruction that fills all of it costs little.
    let profile = Profile { memory_bytes: 64 << 20, ..Profile::optweb(2) };
    let fabric = Fabric::new(profile).unwrap();
    let domain = Domain::in_process();
    let memory = domain.allocate(8192, 4096).unwrap();
    let iova = memory.iova().0;
    let cards: Vec<_> = (0..2)
        .map(|node| in_process::attach(fabric.endpoint(node), &domain, &format!("{node}")).unwrap())
        .collect();
    for card in &cards {
        card.set_bus_master(true).unwrap();
        let registers = card.window(BarIndex::new(0).unwrap()).unwrap();
        for (offset, value) in [(0, iova as u32), (4, 0), (8, iova as u32 + 4096), (12, 0), (16, 4), (20, 1)] {
            registers.write_u32(QUEUE + offset, value).unwrap();
        }
        registers.write_u32(SEQUENCER + 0x100, 1).unwrap();
    }
    let mut tails = [0u32; 2];
    let mut rest = data;
    while let Some((head, tail)) = rest.split_first_chunk::<8>() {
        rest = tail;
        let card = usize::from(head[0] & 1);
        let registers = cards[card].window(BarIndex::new(0).unwrap()).unwrap();
        let value = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        let offset = u64::from(u16::from_le_bytes([head[2], head[3]])) & !3;
        match head[0] >> 1 & 7 {
            0 => drop(registers.write_u32(offset, value)),
            1 => drop(registers.read_u32(offset)),
            2 => drop(registers.read_u64(offset & !7)),
            3 => drop(cards[card].config_write_u32(offset as u16 & 0xffc, value)),
            4 => drop(cards[card].config_read_u32(offset as u16 & 0xffc)),
            5 => {
                if let Some((word, tail)) = rest.split_first_chunk::<64>() {
                    rest = tail;
                    let mut word = *word;
                    cmdseq::instruction::seal(&mut word);
                    memory.write((tails[card] % 4) as usize * 64, &word).unwrap();
                    tails[card] = tails[card].wrapping_add(1);
                    let _ = registers.write_u32(QUEUE + 0x18, tails[card]);
                    let _ = registers.write_u32(QUEUE + 0x1c, tails[card]);
                }
            }
            6 => drop(registers.write_u32(QUEUE + u64::from(head[1] & 0x3c), value)),
            _ => drop(cards[card].reset()),
        }
    }
});

//! DMA between an endpoint and buffers of a domain.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::fake::Fake;
use fpga_hal::endpoint::DmaFault;
use fpga_hal::memory::barrier;
use fpga_hal::{Domain, Error, Iova, Ring};

/// An endpoint that masters the bus of a domain.
fn master(domain: &Domain) -> (Arc<Fake>, fpga_hal::Function) {
    let fake = Fake::new();
    let function = fake.open(domain, "card").unwrap();
    function.set_bus_master(true).unwrap();
    (fake, function)
}

/// Bytes of a page, found by what a one-byte buffer takes.
fn page() -> u64 {
    let domain = Domain::in_process();
    let (first, second) = (domain.allocate(1, 1).unwrap(), domain.allocate(1, 1).unwrap());
    second.iova().0 - first.iova().0
}

#[test]
fn buffers_hold_what_either_side_writes() {
    let domain = Domain::in_process();
    let (fake, _function) = master(&domain);
    let buffer = domain.allocate(10_000, 4096).unwrap();
    assert_eq!((buffer.len(), buffer.iova().0 % 4096), (10_000, 0));
    let mut data = vec![1; 10_000];
    fake.dma_read(buffer.iova().0, &mut data).unwrap();
    assert!(data.iter().all(|&b| b == 0), "it begins zeroed");

    let text: Vec<u8> = (0..5000u32).map(|i| (i % 251) as u8).collect();
    buffer.write(3, &text).unwrap();
    fake.dma_read(buffer.iova().0 + 3, &mut data[..5000]).unwrap();
    assert_eq!(data[..5000], text);
    fake.dma_write(buffer.iova().0 + 5003, &text[..4997]).unwrap();
    buffer.read(5003, &mut data[..4997]).unwrap();
    assert_eq!(data[..4997], text[..4997]);
    buffer.fill(1, 2, 0xee).unwrap();
    buffer.read(0, &mut data[..4]).unwrap();
    assert_eq!(data[..4], [0, 0xee, 0xee, text[0]]);

    let mut word = [0; 64];
    word.iter_mut().zip(1..).for_each(|(byte, i)| *byte = i);
    buffer.write(128, &word).unwrap();
    let mut seen = [0; 64];
    fake.dma_read(buffer.iova().0 + 128, &mut seen).unwrap();
    assert_eq!(seen, word);
    assert_eq!(buffer.load_acquire(128).unwrap(), 0x0807_0605_0403_0201);
    assert_eq!(buffer.load_acquire(184).unwrap(), 0x403f_3e3d_3c3b_3a39);
}

#[test]
fn a_count_names_the_entry_at_its_rest() {
    let domain = Domain::in_process();
    let (fake, _function) = master(&domain);
    let ring: Ring<64> = Ring::new(domain.allocate(4 * 64, 64).unwrap()).unwrap();
    let start = ring.buffer().iova().0;
    assert_eq!(ring.entries(), 4);
    for (count, place) in [(0, 0), (3, 3), (4, 0), (6, 2), (u32::MAX, 3)] {
        let entry: [u8; 64] = std::array::from_fn(|byte| (byte as u8 + 1).wrapping_mul(count as u8 | 1));
        ring.store(count, &entry).unwrap();
        let mut seen = [0; 64];
        fake.dma_read(start + 64 * place, &mut seen).unwrap();
        assert_eq!(seen, entry, "{count}");
        fake.dma_write(start + 64 * place + 8, &[0xee; 8]).unwrap();
        ring.load(count, &mut seen).unwrap();
        assert_eq!((seen[..8].to_vec(), seen[8..16].to_vec()), (entry[..8].to_vec(), vec![0xee; 8]), "{count}");
        let last = u64::from_le_bytes(entry[56..].try_into().unwrap());
        assert_eq!(ring.load_acquire::<56>(count).unwrap(), last, "{count}");
    }
}

#[test]
fn a_ring_has_a_power_of_two_of_whole_entries() {
    let domain = Domain::in_process();
    for (bytes, is_ring) in [(64, true), (128, true), (192, false), (256, true), (96, false), (32, false)] {
        let ring = Ring::<64>::new(domain.allocate(bytes, 64).unwrap());
        assert_eq!(ring.is_ok(), is_ring, "{bytes}");
        assert!(is_ring || matches!(ring, Err(Error::BufferSize { .. })));
    }
    assert!(Ring::<12>::new(domain.allocate(12, 64).unwrap()).is_err(), "words of 8 bytes");
}

#[test]
fn buffers_refuse_what_is_outside_or_not_aligned() {
    let buffer = Domain::in_process().allocate(1000, 1).unwrap();
    for offset in [993, 1000, usize::MAX, usize::MAX - 7] {
        assert!(matches!(
            buffer.read(offset, &mut [0; 8]),
            Err(Error::OutOfBounds { bytes: 8, len: 1000, offset: at, .. }) if at == offset as u64
        ));
        assert!(buffer.write(offset, &[0; 8]).is_err());
        assert!(buffer.fill(offset, 8, 0).is_err());
        assert!(buffer.load_acquire(offset).is_err());
    }
    assert!(buffer.fill(1, usize::MAX, 0).is_err());
    assert!(matches!(buffer.load_acquire(4), Err(Error::Misaligned { offset: 4, bytes: 8, .. })));
    assert!(buffer.load_acquire(992).is_ok());
}

#[test]
fn dma_crosses_adjacent_mappings_and_faults_at_the_first_gap() {
    let page = page();
    let domain = Domain::in_process_with(&[page..=4 * page - 1, 8 * page..=9 * page - 1], 10);
    let (fake, _function) = master(&domain);
    let buffers: Vec<_> = (0..4).map(|_| domain.allocate(page as usize, 1).unwrap()).collect();
    assert_eq!(buffers.iter().map(|b| b.iova().0 / page).collect::<Vec<_>>(), [1, 2, 3, 8]);

    let data: Vec<u8> = (0..2 * page + 10).map(|i| (i % 253) as u8).collect();
    fake.dma_write(2 * page - 10, &data).unwrap();
    let mut back = vec![0; data.len()];
    fake.dma_read(2 * page - 10, &mut back).unwrap();
    assert_eq!(back, data);
    for (buffer, offset, part) in [
        (&buffers[0], page as usize - 10, &data[..10]),
        (&buffers[1], 0, &data[10..][..page as usize]),
        (&buffers[2], 0, &data[10 + page as usize..]),
    ] {
        let mut seen = vec![0; part.len()];
        buffer.read(offset, &mut seen).unwrap();
        assert_eq!(seen, part);
    }
    let gap = Err(DmaFault::Unmapped { iova: Iova(4 * page) });
    assert_eq!(fake.dma_read(2 * page - 10, &mut vec![0; 2 * page as usize + 11]), gap);
    assert_eq!(fake.dma_read(page, &mut vec![0; 8 * page as usize]), gap);
}

#[test]
fn a_fault_touches_nothing_and_names_the_first_unmapped_address() {
    let page = page();
    let domain = Domain::in_process_with(&[page..=4 * page - 1], 10);
    let (fake, function) = master(&domain);
    let mut buffers: Vec<_> = (0..3).map(|_| domain.allocate(page as usize, 1).unwrap()).collect();
    let unmapped = |iova: u64| Err(DmaFault::Unmapped { iova: Iova(iova) });

    assert_eq!(fake.dma_write(4 * page - 4, &[1; 8]), unmapped(4 * page));
    assert_eq!(buffers[2].load_acquire(page as usize - 8).unwrap(), 0, "nothing was written");
    assert_eq!(fake.dma_write(page - 1, &[1; 8]), unmapped(page - 1));
    assert_eq!(fake.dma_write(0, &[]), Ok(()));
    assert_eq!(fake.dma_write(u64::MAX, &[1; 8]), unmapped(u64::MAX));

    // Dropping a buffer takes it away from the card.
    assert_eq!(domain.mappings(), 3);
    drop(buffers.remove(1));
    assert_eq!(domain.mappings(), 2);
    let mut data = vec![7; 3 * page as usize];
    assert_eq!(fake.dma_read(page, &mut data), unmapped(2 * page));
    assert!(data.iter().all(|&b| b == 7), "nothing was read");
    assert_eq!(fake.dma_read(3 * page - 1, &mut data[..2]), unmapped(3 * page - 1));
    // The place can be had again.
    assert_eq!(domain.allocate(1, 1).unwrap().iova(), Iova(2 * page));

    function.set_bus_master(false).unwrap();
    assert_eq!(fake.dma_read(page, &mut data[..1]), Err(DmaFault::NotMaster));
}

#[test]
fn the_end_of_the_address_space_can_be_mapped() {
    let page = page();
    let domain = Domain::in_process_with(&[u64::MAX - page + 1..=u64::MAX], 1);
    let (fake, _function) = master(&domain);
    let buffer = domain.allocate(1, 1).unwrap();
    assert_eq!(fake.dma_write(u64::MAX - 3, &[1, 2, 3, 4]), Ok(()));
    assert_eq!(fake.dma_write(u64::MAX - 3, &[9; 5]), Err(DmaFault::Unmapped { iova: Iova(0) }));
    let mut data = [0; 4];
    fake.dma_read(buffer.iova().0 + (page - 4), &mut data).unwrap();
    assert_eq!(data, [1, 2, 3, 4]);
}

#[test]
fn refusals_name_who_limits() {
    let page = page();
    // Room for one buffer below 2^24, for more above.
    let low = (1 << 24) - page;
    let domain = Domain::in_process_with(&[low..=(1 << 24) + 8 * page], 3);
    let (wide, narrow) = (Fake::with(48, |_| {}), Fake::with(24, |_| {}));
    let _wide = wide.open(&domain, "the wide one").unwrap();
    let narrow_function = narrow.open(&domain, "the narrow one").unwrap();
    assert_eq!(domain.narrowest(), Some(("the narrow one".to_owned(), 24)));

    let first = domain.allocate(page as usize, 1).unwrap();
    assert_eq!(first.iova(), Iova(low));
    let error = domain.allocate(1, 1).unwrap_err();
    assert!(matches!(&error, Error::DmaMask { function, bits: 24, .. } if function == "the narrow one"), "{error}");
    assert!(error.to_string().contains("the narrow one") && error.to_string().contains("24"), "{error}");
    // What it cannot reach, it does not reach.
    narrow_function.set_bus_master(true).unwrap();
    let beyond = Err(DmaFault::Unmapped { iova: Iova(1 << 24) });
    assert_eq!(narrow.dma_write((1 << 24) - 4, &[1; 8]), beyond);
    assert_eq!(first.load_acquire(page as usize - 8).unwrap(), 0);
    assert_eq!(narrow.dma_write((1 << 24) + 4, &[1; 8]), Err(DmaFault::Unmapped { iova: Iova((1 << 24) + 4) }));
    assert_eq!(narrow.dma_write(low - 4, &[1; 1 << 20]), Err(DmaFault::Unmapped { iova: Iova(low - 4) }));

    drop(narrow_function);
    let second = domain.allocate(1, 1).unwrap();
    assert_eq!(second.iova(), Iova(1 << 24));
    let error = domain.allocate(100 * page as usize, 1).unwrap_err();
    assert!(matches!(&error, Error::IovaSpace { .. }), "{error}");
    assert!(error.to_string().contains(&format!("{low:#x}-")), "{error}");
    let third = domain.allocate(1, 1).unwrap();
    assert!(matches!(domain.allocate(1, 1), Err(Error::EntryLimit { limit: 3 })));
    drop(third);
    assert!(domain.allocate(1, 1).is_ok());

    assert!(matches!(domain.allocate(0, 1), Err(Error::BufferSize { bytes: 0 })));
    assert!(matches!(domain.allocate(usize::MAX, 1), Err(Error::BufferSize { .. })));
    assert!(matches!(domain.allocate(1, 3), Err(Error::Alignment { alignment: 3 })));
    // A request beyond reason is refused by its address, before any memory is taken for it.
    assert!(matches!(Domain::in_process().allocate(1 << 50, 1), Err(Error::IovaSpace { .. })));
    assert!(Domain::in_process_with(&[], 1).allocate(1, 1).unwrap_err().to_string().contains("(none)"));
}

#[test]
fn the_default_ranges_avoid_the_interrupt_window() {
    let domain = Domain::in_process();
    assert_eq!(domain.ranges(), [0x1000..=0xfedf_ffff, 0xfef0_0000..=0xffff_ffff_ffff]);
    assert_eq!(domain.entry_limit(), 65535);
    let aligned = domain.allocate(1, 1 << 31).unwrap();
    assert_eq!(aligned.iova(), Iova(1 << 31));
    assert_eq!(domain.allocate(1, 1 << 31).unwrap().iova(), Iova(1 << 32));
}

#[test]
fn the_last_word_tells_that_the_rest_has_arrived() {
    let domain = Domain::in_process();
    let (fake, _function) = master(&domain);
    let buffer = domain.allocate(8192, 1).unwrap();
    let iova = buffer.iova().0;
    const ROUNDS: u64 = 20_000;
    for bytes in [32usize, 2048] {
        buffer.fill(0, 8192, 0).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    let data: Vec<u8> = round.to_le_bytes().into_iter().cycle().take(bytes).collect();
                    fake.dma_write(iova, &data).unwrap();
                }
            });
            let mut last = 0;
            while last < ROUNDS {
                last = buffer.load_acquire(bytes - 8).unwrap();
                barrier::device_word_before_data();
                for offset in (0..bytes - 8).step_by(8) {
                    // Later rounds may have begun to write over it, earlier ones are over.
                    let word = buffer.load_acquire(offset).unwrap();
                    assert!(word >= last, "word {word} at {offset} is older than the last, {last}");
                }
            }
        });
    }
}

#[test]
fn mappings_come_and_go_under_dma() {
    let domain = Domain::in_process_with(&[0x10_0000..=0x17_ffff], 64);
    let (fake, _function) = master(&domain);
    let over = AtomicBool::new(false);
    let done: u64 = thread::scope(|scope| {
        let hammers: Vec<_> = [1usize, 2]
            .into_iter()
            .map(|seed| {
                let (fake, over) = (&fake, &over);
                scope.spawn(move || {
                    let (mut at, mut done) = (seed as u64, 0);
                    let mut data = vec![0u8; 0x3000];
                    while !over.load(Ordering::Relaxed) {
                        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let iova = 0x10_0000 + (at >> 40) % 0x8_0000;
                        let bytes = 1 + (at >> 20) as usize % data.len();
                        data[..bytes].fill(0x5a);
                        if fake.dma_write(iova, &data[..bytes]).is_ok() {
                            done += 1;
                        }
                        data[..bytes].fill(0xee);
                        match fake.dma_read(iova, &mut data[..bytes]) {
                            Ok(()) => assert!(data[..bytes].iter().all(|&b| b == 0x5a || b == 0)),
                            Err(_) => assert!(data[..bytes].iter().all(|&b| b == 0xee)),
                        }
                    }
                    done
                })
            })
            .collect();
        let mut held = Vec::new();
        for round in 0..1500usize {
            match domain.allocate(1 + round * 7919 % 0x1_0000, 1) {
                Ok(buffer) => held.push(buffer),
                Err(_) => held.clear(),
            }
            if round % 3 == 0 && !held.is_empty() {
                held.swap_remove(round % held.len());
            }
        }
        over.store(true, Ordering::Relaxed);
        hammers.into_iter().map(|hammer| hammer.join().unwrap()).sum()
    });
    assert!(done > 0, "no DMA hit a mapping");
    assert_eq!(domain.mappings(), 0);
}

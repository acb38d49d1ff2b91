//! What a copy between host memory and a card's memory keeps on the way.
#![forbid(unsafe_code)]

use fpga_collective::Cards;

/// The engine of these cards does not reach host memory for their sequencers, so the host copies.
#[test]
fn long_copies_keep_little_memory() {
    let bytes = 64 << 20;
    let mut cards = Cards::open("mock:alveo-xdma:2").unwrap();
    let (source, destination) = (cards.allocate(bytes).unwrap(), cards.allocate(bytes).unwrap());
    let data: Vec<u8> = (0..bytes).map(|index| (index ^ index >> 11) as u8).collect();
    source.write(0, &data).unwrap();
    // Once before, because the mock card's memory grows with what is written to it.
    cards.load_memory(1, 4096, &source, 0, bytes as u64).unwrap();
    let most = |kept: allocation_counter::AllocationInfo| kept.bytes_max >> 20;
    let kept = allocation_counter::measure(|| cards.load_memory(1, 4096, &source, 0, bytes as u64).unwrap());
    assert!(most(kept) < 24, "{} MiB", most(kept));
    let kept = allocation_counter::measure(|| cards.store_memory(1, 4096, &destination, 0, bytes as u64).unwrap());
    assert!(most(kept) < 24, "{} MiB", most(kept));
    let mut copied = vec![0; bytes];
    destination.read(0, &mut copied).unwrap();
    assert!(copied == data);
}

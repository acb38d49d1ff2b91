//! An independent client (the crate `vfio_user`) with the server.
//!
//! This client ignores error replies to `dma_map` and `set_irqs`, never returns from error replies to region accesses, and
//! inverts whether a device can be reset. So the test sends only commands that must succeed, and checks their effects.

use std::os::fd::AsRawFd;

use vfio_user::Client;

use crate::card;
use crate::setting::{Served, counter, memory, pattern, peek, poke, raised};

#[test]
fn another_client_uses_the_card() {
    let served = Served::new();
    for round in 1..=3u64 {
        let mut client = Client::new(served.path()).unwrap();
        assert!(!client.resettable(), "this client inverts the flag");
        let sizes: Vec<_> = (0..9).map(|index| client.region(index).unwrap().size).collect();
        assert_eq!(sizes, [4096, 0, 1 << 16, 0, 0, 0, 0, 4096, 0]);
        let lent = client.region(2).unwrap().file_offset.as_ref().expect("memory to map");
        assert_eq!(lent.file().metadata().unwrap().len(), 1 << 16);
        assert_eq!(lent.start(), 0);
        let irqs: Vec<_> = (0..5).map(|index| client.get_irq_info(index).unwrap().count).collect();
        assert_eq!(irqs, [1, 0, u32::from(card::VECTORS), 1, 1]);

        let mut word = [0; 4];
        client.region_read(0, card::ID, &mut word).unwrap();
        assert_eq!(u32::from_le_bytes(word), card::ID_VALUE);
        let mut config = [0; 256];
        client.region_read(7, 0, &mut config).unwrap();
        assert_eq!(config[..4], [0xee, 0x10, 0x20, 0x50]);
        client.region_write(7, 4, &[6, 0]).unwrap();
        assert_eq!(served.card.command(), 6);

        let (file, done, line) = (memory(1 << 20, true), counter(), counter());
        client.dma_map(0x1000, 0x10_0000, 0x4_0000, file.as_raw_fd()).unwrap();
        client.dma_map(0x8_0000, 0x20_0000, 0x4_0000, file.as_raw_fd()).unwrap();
        client.set_irqs(2, 0x24, 5, 1, &[done.as_raw_fd()]).unwrap();
        client.set_irqs(0, 0x24, 0, 1, &[line.as_raw_fd()]).unwrap();
        let data = pattern(round, 200_000);
        poke(&file, 0x1000, &data);
        let mut write = |offset, value: u32| client.region_write(0, offset, &value.to_le_bytes()).unwrap();
        for (offset, value) in [
            (card::SOURCE, 0x10_0000),
            (card::TARGET, 0x20_0001),
            (card::BYTES, data.len() as u32),
            (card::DOORBELL, 5),
            (card::LINE, 1),
        ] {
            write(offset, value);
        }
        assert_eq!((raised(&done), raised(&line)), (1, 1));
        assert!(peek(&file, 0x8_0001, data.len()) == data);

        client.dma_unmap(0x20_0000, 0x4_0000).unwrap();
        client.region_write(0, card::DOORBELL, &5u32.to_le_bytes()).unwrap();
        assert_eq!(raised(&done), 1);
        client.region_read(0, card::STATUS, &mut word).unwrap();
        assert_eq!(u32::from_le_bytes(word), 2, "unmapped");
        client.reset().unwrap();
        client.region_read(0, card::DONE, &mut word).unwrap();
        assert_eq!(u32::from_le_bytes(word), 0);
        client.shutdown().unwrap();
        drop(client);
        served.wait_for_end(round);
    }
}

//! The server with an independent client (the crate `vfio_user`) and with messages as other clients send them, and the client
//! with that crate's server.
//!
//! The crate's client ignores error replies to `dma_map` and `set_irqs`, never returns from error replies to region accesses, and
//! inverts whether a device can be reset. So the test sends only commands that must succeed, and checks their effects.

use std::error::Error as _;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::thread;

use fpga_hal::vfio_user::connect;
use fpga_hal::{BarIndex, Domain, Error};
use vfio_bindings::bindings::vfio::vfio_region_info;
use vfio_user::{Client, DmaMapFlags, DmaUnmapFlags, ServerBackend, ServerRegion};

use crate::card;
use crate::raw::*;
use crate::setting::{Directory, Served, counter, memory, pattern, peek, poke, raised};

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

/// SPDK and the sample client of libvfio-user send as many bytes as they accept in the reply. SPDK sends the descriptor of a
/// mapping again to unmap it.
#[test]
fn a_longer_request_and_the_descriptor_of_an_unmapping_are_accepted() {
    let served = Served::new();
    let mut raw = Raw::open(served.path());
    for (command, request, bytes) in [
        (GET_INFO, four(4096, 0, 0, 0), 16),
        (GET_REGION_INFO, region_info(4096, 2), 32),
        (GET_IRQ_INFO, four(4096, 0, 2, 0), 16),
    ] {
        let whole = raw.call(command, &request);
        assert_eq!((whole.errno(), whole.body.len()), (0, bytes), "{command}");
        for len in [bytes + 1, 4096] {
            let mut longer = request.clone();
            longer.resize(len, 0xa5);
            let reply = raw.call(command, &longer);
            assert_eq!((reply.errno(), reply.body), (0, whole.body.clone()), "{command} with {len} bytes");
        }
    }
    let file = memory(0x1000, true);
    for passed in [&[][..], &[file.as_fd()], &[file.as_fd(); 16]] {
        assert_eq!(raw.call_with(DMA_MAP, &map(3, 0, 0x10_0000, 0x1000), &[file.as_fd()]).errno(), 0);
        let reply = raw.call_with(DMA_UNMAP, &unmap(0, 0x10_0000, 0x1000), passed);
        assert_eq!((reply.errno(), reply.body), (0, unmap(0, 0x10_0000, 0x1000)));
    }
}

/// Where this card refuses writes to its BAR.
const REFUSED: u64 = 0x20;

/// A card of one register file.
struct Registers([u8; 256]);

impl ServerBackend for Registers {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        data.fill(0);
        if region == 7 && offset == 0 {
            data[..2].copy_from_slice(&[0xee, 0x10]);
        } else if region == 0 {
            data.copy_from_slice(&self.0[offset as usize..][..data.len()]);
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        if region == 0 && offset == REFUSED {
            return Err(io::Error::other("refused"));
        }
        if region == 0 {
            self.0[offset as usize..][..data.len()].copy_from_slice(data);
        }
        Ok(())
    }

    fn dma_map(&mut self, _: DmaMapFlags, _: u64, _: u64, _: u64, _: Option<File>) -> io::Result<()> {
        Ok(())
    }

    fn dma_unmap(&mut self, _: DmaUnmapFlags, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn set_irqs(&mut self, _: u32, _: u32, _: u32, _: u32, _: Vec<File>) -> io::Result<()> {
        Ok(())
    }
}

/// This server replies to a write that fails, though it was posted.
#[test]
fn a_posted_write_that_a_server_refuses_fails_later_accesses() {
    let directory = Directory::new();
    let path = directory.0.join("other");
    let region = |index| {
        let size = if matches!(index, 0 | 7) { 256 } else { 0 };
        let region_info = vfio_region_info { argsz: 32, flags: 3, index, cap_offset: 0, size, offset: 0 };
        ServerRegion { region_info, sparse_areas: Vec::new(), mmap_fd: None }
    };
    // Without interrupts.
    let server = vfio_user::Server::new(&path, true, Vec::new(), (0..9).map(region).collect()).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| server.run(&mut Registers([0; 256])).unwrap());
        let function = connect(&path, &Domain::vfio_user()).unwrap();
        let registers = function.window(BarIndex::new(0).unwrap()).unwrap();
        for value in 1..4 {
            registers.write_u32(0x10, value).unwrap();
            registers.write_u32(REFUSED, value).unwrap();
            // Whoever comes first may tolerate it.
            for outcome in
                [registers.read_u32(0x10).map(drop), registers.write_u32(0, 7), registers.read_u32(0).map(drop)]
            {
                let error = outcome.unwrap_err();
                assert!(matches!(error, Error::Refused { .. }), "{error:?}");
                let cause = error.source().unwrap().to_string();
                assert!(cause.contains("write of 4 bytes at offset 0x20 of BAR0"), "{cause}");
            }
            function.reset().unwrap();
            assert_eq!([0, 0x10].map(|offset| registers.read_u32(offset).unwrap()), [0, value]);
        }
        assert!(!function.is_removed());
    });
}

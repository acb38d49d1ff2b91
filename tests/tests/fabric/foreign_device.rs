//! Devices on sockets that are not cards: the refusal names the socket and the device.

use std::sync::Arc;

use fpga_driver::{Card, Error};
use fpga_hal::endpoint::{DmaFault, DmaPort, DmaTag, InterruptPort, Layout, ResetKind};
use fpga_hal::vfio_user::{Server, connect};
use fpga_hal::{BarIndex, Domain, Endpoint};

/// A device with a header and, it may be, a BAR of zeros.
struct Foreign {
    has_bar: bool,
}

impl Endpoint for Foreign {
    fn layout(&self) -> Layout {
        let bar = fpga_hal::endpoint::BarLayout { bytes: 0x1_0000, is_64_bit: true, prefetchable: false };
        let mut bars = [None; BarIndex::COUNT];
        bars[if self.has_bar { 0 } else { 2 }] = Some(bar);
        Layout { bars, dma_bits: 64 }
    }

    fn attach(&self, _: Arc<dyn DmaPort>, _: Arc<dyn InterruptPort>) {}

    fn config_read(&self, offset: u16, data: &mut [u8]) {
        // Vendor 10ee, device 903f, class 120000.
        let header = [0xee, 0x10, 0x3f, 0x90, 2, 0, 0, 0, 1, 0, 0, 0x12];
        for (at, byte) in (usize::from(offset)..).zip(data) {
            *byte = header.get(at).copied().unwrap_or(0);
        }
    }

    fn config_write(&self, _: u16, _: &[u8]) {}

    fn bar_read(&self, _: BarIndex, _: u64, data: &mut [u8]) {
        data.fill(0);
    }

    fn bar_write(&self, _: BarIndex, _: u64, _: &[u8]) {}

    fn reset(&self, _: ResetKind) {}

    fn dma_complete(&self, _: DmaTag, _: Result<&[u8], DmaFault>) {}
}

#[test]
fn a_refusal_names_the_socket_and_the_pci_id() {
    let directory = tempfile::tempdir().unwrap();
    for (has_bar, looked) in [(true, "feature list"), (false, "BAR0")] {
        let path = directory.path().join(format!("foreign-{has_bar}.sock"));
        let _server = Server::bind(&path, Arc::new(Foreign { has_bar })).and_then(Server::spawn).unwrap();
        let function = connect(&path, &Domain::vfio_user()).unwrap();
        let error = Card::open(function).unwrap_err();
        assert!(matches!(error, Error::NoSequencer { .. }), "{error:?}");
        let text = error.to_string();
        for part in [path.to_str().unwrap(), "10ee:903f", looked] {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
    }
}
